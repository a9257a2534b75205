//! All bounds of the engine, each with its noun and unit: quotas (`rules/admission.rs` refuses requests beyond them) and the work
//! per step. They are checked against each other at compile time.

use crate::engine::state::rows::Header;

/// Quotas, and the work per step. Lowering a quota revokes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub watches_per_client: u32,
    /// Summed lengths of the names that one connection watches, and of all watched names: bounds the memory that watchers can take
    /// from the data set.
    pub watch_bytes_per_client: u32,
    pub watch_bytes: u32,
    pub keys_per_client: u32,
    /// All users together.
    pub sessions: u32,
    /// Started by one user on this server.
    pub sessions_per_user: u32,
    /// Keys and names swept in the step of a flush.
    pub flushed_keys_per_step: usize,
    /// Compatible waiters served in the step that frees their key. At least one.
    pub compatible_grants_per_step: usize,
    /// Keys granted to multi-key requests in one step; further such requests follow in slices. At least one.
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

/// The maximum depth of a hold.
pub const MOST_DEPTH: u32 = 1 << 31;

/// Holds with a label, a lease, permits or depth above 1. Leaves ids for extras that are needed without a request.
pub(in crate::engine) const MOST_EXTRAS: usize = if cfg!(test) {
    50_000
} else {
    Header::MOST_EXTRAS - (1 << 20)
};

// ---- work per command or step ----

/// Holders and queue entries that one command checks for expired or dead ones; at least one per key. The rest ends in slices.
pub(in crate::engine) const LOOKS_PER_COMMAND: usize = 256;

/// Holds released by the command that ends a session. The rest is orphaned.
pub(in crate::engine) const RELEASES_PER_SESSION_END: u32 = 1000;

/// The weight of a pending hold there: its requester is notified.
pub(in crate::engine) const RELEASES_PER_PENDING_HOLD: u32 = 4;

/// Pending grants of an ended connection withdrawn in its step.
pub(in crate::engine) const GRANTS_TAKEN_BACK_PER_STEP: usize = 256;

/// Holds of a session about to end whose waiters' rights are checked. Further keys may be free for a moment.
pub(in crate::engine) const HOLDS_PER_RIGHTS_CHECK: usize = 64;

/// Waiters of one key whose rights are checked before its release. Further ones may be served a little later.
pub(in crate::engine) const WAITERS_PER_RIGHTS_CHECK: usize = 16;

/// Ready names kept during quarantine without a waiter.
pub(in crate::engine) const READY_KEYS_KEPT: usize = 64;

/// Slots of holds that a TTL refresh visits at once: few keys do not wake the server often.
pub(in crate::engine) const PLACES_PER_RENEWAL: usize = 64;

/// After this many losses of one owner at once, further ones share one log entry.
pub const LOSSES_LOGGED_APART: u32 = 100;

// ---- deadlock search ----

/// Holds and waits of the caller checked for waiters before the walk; a caller with more is walked in any case.
pub(in crate::engine) const LOOKS_BEFORE_WALK: usize = 64;

/// Waits, queue entries and holds visited for one request.
pub(in crate::engine) const WALK_STEPS: usize = 2000;

/// Holders of one key.
pub(in crate::engine) const WALK_HOLDERS_PER_KEY: usize = 256;

// ---- reports ----

/// Keys of a connection for which LOCK.LIST answers at once.
pub(in crate::engine) const KEYS_LISTED_AT_ONCE: usize = 100;

/// Holders or waiters that cost LOCK.LIST about as much as one key.
pub(in crate::engine) const ENTRIES_PER_LISTED_KEY: usize = 16;

/// Holders or waiters of one key from which ended ones are excluded. Beyond that, counts include them until they are removed.
pub(in crate::engine) const ENTRIES_COUNTED: usize = 1000;

/// Holds of one key searched for the token that replaced a stale one.
pub(in crate::engine) const HOLDS_SEARCHED: usize = 16;

/// Holders that LOCK.WHY returns.
pub(in crate::engine) const WHY_STEPS: usize = 64;

/// Keys of one request that LOCK.WHY searches for one held by another owner.
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
