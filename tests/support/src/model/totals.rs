//! How often what came about.

/// What is counted, and how often in 100,000 steps it comes about at least.
pub type Floor = (&'static str, fn(&Totals) -> u64, u64);

/// Why a hold ended that its owner did not end. Of a key that went, servers do not agree whether it was deleted or expired.
pub const REASONS: [&[&str]; 7] = [
    &["lease"],
    &["deleted", "expired"],
    &["evicted"],
    &["flushed"],
    &["overwritten"],
    &["died", "killed"],
    &["ended"],
];

/// Which of them is that of an owner that is no more.
pub const DIED: usize = 5;

/// Since the world was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub lost: u64,
    /// How many holds ended for each reason: see [`REASONS`].
    pub reasons: [u64; REASONS.len()],
    pub grants: u64,
    pub handoffs: u64,
    pub timeouts: u64,
    pub deadlocks_refused: u64,
    /// Requests that their owner gave up by `LOCK.CANCEL`.
    pub cancels: u64,
    /// Holds that their owner was granted once more.
    pub reentries: u64,
    /// Holds whose token was raised.
    pub raises: u64,
    /// Grants that were acknowledged by as many replicas as was wanted; those that were withdrawn; and requests that were
    /// refused since too few are connected, or there is no session.
    pub acknowledged: u64,
    pub withdrawn: u64,
    pub unacked: u64,
    /// Requests with PUSH that were not answered at once; those whose outcome was pushed; and those that their connection
    /// gave up, or that went with it.
    pub pushes_asked: u64,
    pub pushes_told: u64,
    pub pushes_given_up: u64,
    /// Requests that nothing but the quarantine stood against.
    pub quarantined: u64,
    /// Keys that a connection held or watched when its user lost the right to them.
    pub rights_lost: u64,
    /// Waits that ended since their user might not have that any more.
    pub waits_lost: u64,
    /// Sessions that held something and were resumed, moved from a living connection, or were not resumed.
    pub resumed: u64,
    pub moved: u64,
    pub graces_over: u64,
    /// Those that somebody else ended, or that let go of their connection.
    pub sessions_killed: u64,
    pub let_go: u64,
    pub loads: u64,
    /// Leases that a command found over.
    pub overdue: u64,
    /// Those of them that a transaction found.
    pub overdue_in_exec: u64,
    /// Keys that ended between the two names of a held one.
    pub between: u64,
    pub restarts: u64,
    /// Lists of what somebody has that were not empty.
    pub lists: u64,
    /// Pages of watches of prefixes that were not empty.
    pub pages: u64,
    /// Pushes to who watches prefixes.
    pub sights: u64,
}

impl Totals {
    /// Panics with all that came about less often than it should.
    pub fn check_floors(&self, steps: u64, floors: &[Floor]) {
        let is_rare = |floor: &&Floor| (floor.1)(self) * 100_000 < floor.2 * steps;
        let rare: Vec<&str> = floors.iter().filter(is_rare).map(|floor| floor.0).collect();
        assert!(rare.is_empty(), "too rare in {steps} steps: {rare:?}");
    }

    /// Where numbers began again, some are less than nothing.
    pub fn less(&self, other: &Totals) -> Totals {
        Totals {
            lost: self.lost.wrapping_sub(other.lost),
            reasons: pairs(self.reasons, other.reasons, u64::wrapping_sub),
            grants: self.grants.wrapping_sub(other.grants),
            handoffs: self.handoffs.wrapping_sub(other.handoffs),
            timeouts: self.timeouts.wrapping_sub(other.timeouts),
            deadlocks_refused: self.deadlocks_refused.wrapping_sub(other.deadlocks_refused),
            ..*self
        }
    }

    pub fn plus(&self, other: &Totals) -> Totals {
        Totals {
            lost: self.lost + other.lost,
            reasons: pairs(self.reasons, other.reasons, u64::wrapping_add),
            grants: self.grants + other.grants,
            handoffs: self.handoffs + other.handoffs,
            timeouts: self.timeouts + other.timeouts,
            deadlocks_refused: self.deadlocks_refused + other.deadlocks_refused,
            cancels: self.cancels + other.cancels,
            reentries: self.reentries + other.reentries,
            raises: self.raises + other.raises,
            acknowledged: self.acknowledged + other.acknowledged,
            withdrawn: self.withdrawn + other.withdrawn,
            unacked: self.unacked + other.unacked,
            pushes_asked: self.pushes_asked + other.pushes_asked,
            pushes_told: self.pushes_told + other.pushes_told,
            pushes_given_up: self.pushes_given_up + other.pushes_given_up,
            quarantined: self.quarantined + other.quarantined,
            rights_lost: self.rights_lost + other.rights_lost,
            waits_lost: self.waits_lost + other.waits_lost,
            resumed: self.resumed + other.resumed,
            moved: self.moved + other.moved,
            graces_over: self.graces_over + other.graces_over,
            sessions_killed: self.sessions_killed + other.sessions_killed,
            let_go: self.let_go + other.let_go,
            loads: self.loads + other.loads,
            overdue: self.overdue + other.overdue,
            overdue_in_exec: self.overdue_in_exec + other.overdue_in_exec,
            between: self.between + other.between,
            restarts: self.restarts + other.restarts,
            lists: self.lists + other.lists,
            pages: self.pages + other.pages,
            sights: self.sights + other.sights,
        }
    }
}

fn pairs<const N: usize>(one: [u64; N], other: [u64; N], of: fn(u64, u64) -> u64) -> [u64; N] {
    std::array::from_fn(|at| of(one[at], other[at]))
}
