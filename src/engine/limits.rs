//! Of what there can be too much, in numbers. Who wants more is refused: `rules/admission.rs`.

use crate::engine::state::rows::Header;

/// What one connection may have, and how much is done in one step. Lowering a limit takes nothing away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub watches_per_client: u32,
    /// Of the names that one connection watches, and of all that are watched, each counted once: they are the watchers'
    /// memory, by which they must not push out what others have stored.
    pub watch_bytes_per_client: u32,
    pub watch_bytes: u32,
    pub keys_per_client: u32,
    /// Of all users together.
    pub sessions: u32,
    /// That one user has started on this server.
    pub sessions_per_user: u32,
    /// Of so many keys whatever follows from one flush is done at once.
    pub at_once: usize,
    /// So many who go together are served in the step in which their key becomes free. At least one.
    pub together: usize,
    /// As soon as requests for several keys each were granted so many keys in one step, further such requests follow in
    /// slices. At least one.
    pub several: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            watches_per_client: 65_536,
            watch_bytes_per_client: 8 << 20,
            watch_bytes: 64 << 20,
            keys_per_client: 65_536,
            sessions: 65_536,
            sessions_per_user: 32_768,
            at_once: 1000,
            together: 128,
            several: 256,
        }
    }
}

/// So often at most a client can acquire a lock that it holds.
pub const MOST_DEPTH: u32 = 1 << 31;

/// So many holds can have a label, a lease, permits or more than one depth. Numbers are left for what must be written
/// down although nobody asked for it.
pub(in crate::engine) const MOST_EXTRAS: usize = if cfg!(test) {
    50_000
} else {
    Header::MOST_EXTRAS - (1 << 20)
};
