//! What is remembered because of Redis 8's I/O threads.

use crate::engine::ClientId;
use std::collections::{HashMap, HashSet};

/// What is done because of I/O threads.
#[derive(Default)]
pub struct Threads {
    /// Those whose tracking is to be made again once their command is over; true if that may have been postponed.
    pub deferred: HashMap<ClientId, bool>,
    /// Those that have queued `CLIENT TRACKING` for EXEC.
    pub queued: HashSet<ClientId>,
    /// The connections whose tracking is of our making.
    pub kept: HashSet<ClientId>,
}
