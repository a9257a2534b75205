//! All bounds of the engine, each with its noun and unit: what a client may have (who wants more is refused: `rules/admission.rs`),
//! and how much one step looks at. They are checked against each other at compile time.

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
    pub flushed_keys_per_step: usize,
    /// So many who go together are served in the step in which their key becomes free. At least one.
    pub compatible_grants_per_step: usize,
    /// As soon as requests for several keys each were granted so many keys in one step, further such requests follow in
    /// slices. At least one.
    pub multi_key_grants_per_step: usize,
}

impl Limits {
    pub const DEFAULT: Limits = Limits {
        watches_per_client: 65_536,
        watch_bytes_per_client: 8 << 20,
        watch_bytes: 64 << 20,
        keys_per_client: 65_536,
        sessions: 65_536,
        sessions_per_user: 32_768,
        flushed_keys_per_step: 1000,
        compatible_grants_per_step: 128,
        multi_key_grants_per_step: 256,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
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

// ---- what one command or one step looks at ----

/// Holders and places in queues that one command looks at for those that are over; of each key one in any case. All others
/// end in slices.
pub(in crate::engine) const LOOKS_PER_COMMAND: usize = 256;

/// Holds that the command releases which ends a session. The rest is orphaned.
pub(in crate::engine) const RELEASES_PER_SESSION_END: u32 = 1000;

/// For so many a pending hold counts there: its requester is told that it is withdrawn.
pub(in crate::engine) const RELEASES_PER_PENDING_HOLD: u32 = 4;

/// Pending grants of a connection that one event withdraws.
pub(in crate::engine) const GRANTS_TAKEN_BACK_PER_STEP: usize = 256;

/// Holds of a session that is about to be ended, whose waiters' rights are checked. Where it holds more, what else it holds may
/// be free for a moment.
pub(in crate::engine) const HOLDS_PER_RIGHTS_CHECK: usize = 64;

/// Waiters of one key whose rights are checked before it is released. Further readers of one grant may follow a little later.
pub(in crate::engine) const WAITERS_PER_RIGHTS_CHECK: usize = 16;

/// Keys that stay ready during quarantine although nobody waits for them.
pub(in crate::engine) const READY_KEYS_KEPT: usize = 64;

/// Places in the table of keys that a renewal visits at once, so that few keys do not wake the server often.
pub(in crate::engine) const PLACES_PER_RENEWAL: usize = 64;

/// An owner that loses more holds at once has one entry of the log for all of them.
pub const LOSSES_LOGGED_APART: u32 = 100;

// ---- what the search for a cycle looks at ----

/// Holds and waits of the caller that are looked at to see whether anybody waits for it. Of one with more that is taken for so.
pub(in crate::engine) const LOOKS_BEFORE_WALK: usize = 64;

/// Waits, places in queues and holds that are looked at for one request.
pub(in crate::engine) const WALK_STEPS: usize = 2000;

/// Holders of one key.
pub(in crate::engine) const WALK_HOLDERS_PER_KEY: usize = 256;

// ---- what a report looks at ----

/// Keys of a connection for which LOCK.LIST answers at once.
pub(in crate::engine) const KEYS_LISTED_AT_ONCE: usize = 100;

/// Holders or waiters of one key that take LOCK.LIST about as long as one key.
pub(in crate::engine) const ENTRIES_PER_LISTED_KEY: usize = 16;

/// Holders or waiters of one key of which those of ended connections are told apart. Where there are more, they are told among
/// the numbers until they are gone.
pub(in crate::engine) const ENTRIES_COUNTED: usize = 1000;

/// Holds of one key among which that one is looked for whose token is named in place of a stale one.
pub(in crate::engine) const HOLDS_SEARCHED: usize = 16;

/// Holders that LOCK.WHY returns.
pub(in crate::engine) const WHY_STEPS: usize = 64;

/// Keys of one request that LOCK.WHY looks at for one that somebody else holds.
pub(in crate::engine) const WHY_KEYS_PER_REQUEST: usize = 64;

// How they fit each other.
const _: () = {
    let limits = Limits::DEFAULT;
    // A command that meets as many dead waiters as it may grant together still finds the living ones.
    assert!(limits.compatible_grants_per_step <= LOOKS_PER_COMMAND / 2);
    assert!(limits.multi_key_grants_per_step <= limits.flushed_keys_per_step);
    assert!(limits.sessions_per_user < limits.sessions);
    assert!(limits.watch_bytes_per_client < limits.watch_bytes);
    assert!(RELEASES_PER_PENDING_HOLD < RELEASES_PER_SESSION_END);
    // A key's holders and their waits leave steps for the rest of a cycle.
    assert!(LOOKS_BEFORE_WALK < WALK_HOLDERS_PER_KEY && 2 * WALK_HOLDERS_PER_KEY <= WALK_STEPS / 2);
    assert!(HOLDS_SEARCHED <= ENTRIES_COUNTED && WHY_STEPS <= ENTRIES_COUNTED);
};
