//! All bounds of the engine, each with its noun and unit: quotas (`rules/admission.rs` refuses requests beyond them) and the
//! budget of one event. They are checked against each other at compile time.

use crate::engine::state::rows::Header;

/// Quotas, and the steps of one event. Lowering a quota revokes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub watches_per_client: u32,
    /// Summed lengths of the names that one connection watches, and of all watched names: bounds the memory that watchers can take
    /// from the data set.
    pub watch_bytes_per_client: u32,
    pub watch_bytes: u32,
    /// UNWATCHTP and a WATCHTP with other rights remove all of them in one step.
    pub prefixes_per_client: u32,
    pub keys_per_client: u32,
    /// All users together.
    pub sessions: u32,
    /// Started by one user on this server.
    pub sessions_per_user: u32,
    /// The `Budget` of a command, a flush, or any other event that does not state its own.
    pub steps_per_event: usize,
    /// Compatible waiters served by the event that frees their key. At least one.
    pub compatible_grants_per_event: usize,
    /// Keys of one page of WATCHTP. At least one.
    pub keys_per_page: usize,
}

impl Limits {
    pub const DEFAULT: Limits = Limits {
        watches_per_client: 65_536,
        watch_bytes_per_client: 8 << 20,
        watch_bytes: 64 << 20,
        prefixes_per_client: 4096,
        keys_per_client: 65_536,
        sessions: 65_536,
        sessions_per_user: 32_768,
        steps_per_event: 1000,
        compatible_grants_per_event: 128,
        keys_per_page: 1000,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The maximum depth of a hold.
pub const MAX_DEPTH: u32 = 1 << 31;

/// Holds with a label, a task, a lease, permits or depth above 1. Leaves ids for extras that are needed without a request.
pub(in crate::engine) const MAX_EXTRAS: usize = if cfg!(test) {
    50_000
} else {
    Header::MAX_EXTRAS - (1 << 20)
};

// ---- work per event ----

/// The steps that are left to the event at hand: a step is a row to look at or to remove, about a microsecond with what the shell
/// does for it. What does not fit is left to a later [`Event::Work`](crate::engine::Event::Work) or
/// [`Event::Reap`](crate::engine::Event::Reap).
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::engine) struct Budget(usize);

impl Budget {
    pub fn of(steps: usize) -> Self {
        Budget(steps)
    }

    /// For what cannot be left to later: a load, the end of this server's time as a master.
    pub fn unlimited() -> Self {
        Budget(usize::MAX)
    }

    pub fn left(self) -> usize {
        self.0
    }

    pub fn is_spent(self) -> bool {
        self.0 == 0
    }

    /// For the next kind of work: a step at least, whatever those before it took.
    pub fn leave_one(&mut self) {
        self.0 = self.0.max(1);
    }

    /// Leaves half of the steps, or the greater part of an odd number, and returns the others.
    pub fn split_off_half(&mut self) -> Budget {
        let others = Budget(self.0 / 2);
        self.0 -= others.0;
        others
    }

    pub fn add(&mut self, others: Budget) {
        self.0 = self.0.saturating_add(others.0);
    }

    /// Spends this many steps. False if none was left before: what costs several is done whole.
    pub fn spend(&mut self, steps: usize) -> bool {
        let had_any = !self.is_spent();
        self.0 = self.0.saturating_sub(steps);
        had_any
    }
}

/// For each key that is granted to a request for several, and for each of a request that is refused when its turn has come. A grant
/// to a request for one costs nothing beyond the step that frees its key; to those who share that key, a step each.
pub(in crate::engine) const STEPS_PER_GRANT: usize = 4;

/// Ready names kept during quarantine without a waiter.
pub(in crate::engine) const READY_KEYS_KEPT: usize = 64;

/// Slots of holds that a TTL refresh visits at once: few keys do not wake the server often.
pub(in crate::engine) const SLOTS_PER_RENEWAL: usize = 64;

/// After this many losses of one owner at once, further ones share one log entry.
pub const LOSSES_LOGGED_APART: u32 = 100;

// ---- watches of prefixes ----

/// Different lengths of the prefixes that are watched in a database: a change of a temporary key looks each of them up.
pub(in crate::engine) const PREFIX_LENGTHS: usize = 32;

/// The first WATCHTP of a database visits so many times as many slots of held keys as an event has steps; more are indexed in
/// slices.
pub(in crate::engine) const SLOTS_INDEXED_PER_STEP: usize = 4;

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

/// Bytes of a name, times bytes of a pattern, that cost LOCK.LIST about as much as one key.
pub(in crate::engine) const MATCHED_BYTES_PER_LISTED_KEY: usize = 4096;

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
    assert!(limits.compatible_grants_per_event * STEPS_PER_GRANT < limits.steps_per_event);
    assert!(limits.sessions_per_user < limits.sessions);
    assert!(limits.watch_bytes_per_client < limits.watch_bytes);
    assert!(limits.prefixes_per_client <= limits.watches_per_client);
    // A key's holders and their waits leave steps for the rest of a cycle.
    assert!(LOOKS_BEFORE_WALK < WALK_HOLDERS_PER_KEY && 2 * WALK_HOLDERS_PER_KEY <= WALK_STEPS / 2);
    assert!(HOLDS_SEARCHED <= ENTRIES_COUNTED && WHY_STEPS <= ENTRIES_COUNTED);
};
