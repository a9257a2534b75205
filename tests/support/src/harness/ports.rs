//! Ports for servers.

use std::collections::BTreeSet;
use std::net::TcpListener;
use std::sync::{Mutex, PoisonError};

/// A port that was free a moment ago. None is given twice: a server that is down for a moment finds its own again.
pub fn free_port() -> u16 {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port to listen on");
        let port = listener.local_addr().expect("its address").port();
        if given.insert(port) {
            return port;
        }
    }
}
