//! What is remembered because of Redis 8's I/O threads.

use crate::engine::ClientId;
use std::collections::HashSet;

/// What is done because of I/O threads.
#[derive(Default)]
pub struct Threads {
    pub filtering: bool,
    /// The event of the server's loop is subscribed to.
    pub looping: bool,
    /// Those that gave a command which may have been postponed.
    pub deferred: HashSet<ClientId>,
    /// The connections whose tracking is of our making.
    pub kept: HashSet<ClientId>,
}
