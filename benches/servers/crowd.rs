//! Thousands of connections that all get the same bytes.

use super::server::Server;
use std::io::Read;
use std::net::TcpStream;

/// Lets this process have as many sockets as the system allows, and says how many that is.
pub fn most_sockets() -> usize {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: both calls only read or fill in the structure.
    unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        limit.rlim_cur = limit.rlim_max;
        if libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) != 0 {
            libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
        }
    }
    usize::try_from(limit.rlim_cur).unwrap_or(usize::MAX)
}

pub struct Crowd {
    members: Vec<TcpStream>,
    received: Vec<u8>,
}

impl Crowd {
    /// So many RESP3 connections; each runs `command`, whose answer is `replies` replies and `pushes` pushes.
    pub fn gather(
        server: &Server,
        size: usize,
        commands: &[u8],
        replies: usize,
        pushes: u64,
    ) -> Crowd {
        let join = |_| {
            let mut member = server.connect_resp3();
            member.run_all(commands, replies);
            member.wait_for_pushes(pushes);
            member.into_stream()
        };
        Crowd {
            members: (0..size).map(join).collect(),
            received: Vec::new(),
        }
    }

    /// Waits until each has got exactly these bytes. One read for each is enough: whoever is asked first waits,
    /// and by then the others have theirs.
    pub fn expect(&mut self, bytes: &[u8]) {
        self.received.resize(bytes.len(), 0);
        for member in &mut self.members {
            member
                .read_exact(&mut self.received)
                .expect("the server pushes");
            assert!(self.received == bytes, "a push is lost, doubled or broken");
        }
    }
}
