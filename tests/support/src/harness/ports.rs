//! Ports for servers.

use std::net::TcpListener;
use std::ops::Range;
use std::process;
use std::sync::{Mutex, PoisonError};

/// Below those that systems give to outgoing connections, so that nobody's connection takes the port of a server that is down
/// for a moment.
const PORTS: Range<u16> = 10_000..32_000;

/// A port that was free a moment ago. None is given twice, and programs that run side by side begin apart from each other: a
/// server that is down for a moment finds its own again.
pub fn free_port() -> u16 {
    static GIVEN: Mutex<usize> = Mutex::new(0);
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let begin = process::id() as usize * 997;
    loop {
        assert!(*given < PORTS.len(), "no port is free");
        let port = PORTS.start + ((begin + *given) % PORTS.len()) as u16;
        *given += 1;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
