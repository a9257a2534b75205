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
    let mut reserved = RESERVED.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let Some(port) = reserved.left.next() else {
            reserved.add_block();
            continue;
        };
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
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
    fn a_port_is_given_once_and_its_block_is_nobody_elses() {
        let ports: HashSet<u16> = (0..3 * BLOCK).map(|_| free_port()).collect();
        assert_eq!(ports.len(), 3 * usize::from(BLOCK));
        for port in ports {
            let first = port - port % BLOCK;
            assert!(UdpSocket::bind(("127.0.0.1", first)).is_err(), "{port}");
        }
    }
}
