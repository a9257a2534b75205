//! What `make test`, which somebody waits for, does in less time than all other runs, where TETHER_QUICK is set: tests connect over
//! Unix sockets, which take the kernel half the work of TCP; and where I/O threads have much to do they are two, since more threads
//! than processors mostly wait for each other.

use std::env;

pub(super) fn is_quick() -> bool {
    env::var_os("TETHER_QUICK").is_some()
}

/// A line for a server whose I/O threads have much to do.
pub fn io_threads() -> &'static str {
    match is_quick() {
        true => "io-threads 2",
        false => "io-threads 4",
    }
}
