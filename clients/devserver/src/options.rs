//! How it is started.

use std::path::PathBuf;

/// The settings of the module have its names and units, and by and large its defaults.
#[derive(Clone, Debug)]
pub struct Options {
    /// On 127.0.0.1; 0 takes a free one.
    pub port: u16,
    pub unix_socket: Option<PathBuf>,
    /// Of the user `default`.
    pub password: Option<String>,
    /// What LOCK.SERVER says, from which clients make their fence. (Peers here do not vanish.)
    pub peer_timeout_ms: u64,
    /// After the start nothing is granted for so long.
    pub quarantine_ms: u64,
    /// Whether connections get pushes: without, as on a server whose private functions tether must not use.
    pub can_push: bool,
    /// Whether it knows the module's commands: without, as on a server that lacks the module.
    pub has_module: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            port: 6379,
            unix_socket: None,
            password: None,
            peer_timeout_ms: 10_000,
            quarantine_ms: 0,
            can_push: true,
            has_module: true,
        }
    }
}
