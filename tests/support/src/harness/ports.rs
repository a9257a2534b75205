//! Ports for servers.

use std::net::{TcpListener, UdpSocket};
use std::ops::Range;
use std::process;
use std::sync::{Mutex, PoisonError};

/// Below those that systems give to outgoing connections, and so are the ports of the cluster's bus, which are higher by 10,000:
/// nobody's connection takes the port of a server that is down for a moment.
const PORTS: Range<u16> = 10_000..20_000;
const BLOCK: u16 = 50;

/// The ports that this program has for itself: whole blocks, whose first port it keeps bound for UDP, which no server needs.
struct Reserved {
    blocks: Vec<UdpSocket>,
    left: Range<u16>,
}

static RESERVED: Mutex<Reserved> = Mutex::new(Reserved {
    blocks: Vec::new(),
    left: 0..0,
});

/// A port that no other program of the tests gives as long as this one runs: a server that is down for a moment finds its own
/// again. None is given twice.
pub fn free_port() -> u16 {
    free_ports(1)
}

/// The first of `count` such ports in a row, as few as a block has at most.
pub fn free_ports(count: u16) -> u16 {
    assert!((1..=BLOCK).contains(&count), "{count} ports in a row");
    let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let mut reserved = RESERVED.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let first = reserved.left.start;
        if reserved.left.len() < usize::from(count) {
            reserved.add_block();
            continue;
        }
        // The first port that another program has, and all below it, are of no use here.
        let taken = (first..first + count).find(|&port| !is_free(port));
        reserved.left.start = taken.map_or(first + count, |port| port + 1);
        if taken.is_none() {
            return first;
        }
    }
}

impl Reserved {
    /// Programs that begin at once begin their search apart from each other.
    fn add_block(&mut self) {
        let blocks = PORTS.len() / usize::from(BLOCK);
        let begin = process::id() as usize * 7;
        let firsts =
            (begin..begin + blocks).map(|number| PORTS.start + (number % blocks) as u16 * BLOCK);
        for first in firsts {
            if let Ok(socket) = UdpSocket::bind(("127.0.0.1", first)) {
                self.blocks.push(socket);
                self.left = first..first + BLOCK;
                return;
            }
        }
        panic!("no port is free");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ports_in_a_row_are_given_once_too() {
        let rows = (0..20).map(|_| free_ports(6));
        let ports: HashSet<u16> = rows.flat_map(|first| first..first + 6).collect();
        assert_eq!(ports.len(), 20 * 6);
        assert!(!ports.contains(&free_port()));
    }

    #[test]
    fn a_port_is_given_once_and_its_block_is_nobody_elses() {
        let ports: HashSet<u16> = (0..3 * BLOCK).map(|_| free_port()).collect();
        assert_eq!(ports.len(), 3 * usize::from(BLOCK));
        for port in ports {
            let first = port - port % BLOCK;
            assert!(UdpSocket::bind(("127.0.0.1", first)).is_err(), "{port}");
        }
    }
}
