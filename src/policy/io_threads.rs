//! Clients whose tracking flag the module sets to keep them in the main thread (Redis 8's I/O threads).

use crate::engine::ClientId;
use std::collections::{HashMap, HashSet};

/// See `shell/server/io_threads.rs`.
#[derive(Default)]
pub struct IoThreads {
    /// Clients whose flag must be set again after their command; true if the command may have been postponed.
    pub deferred: HashMap<ClientId, bool>,
    /// Clients that have queued `CLIENT TRACKING` for EXEC.
    pub queued: HashSet<ClientId>,
    /// Clients whose tracking the module switched on.
    pub kept: HashSet<ClientId>,
}
