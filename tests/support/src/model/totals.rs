//! How often what came about.

/// Since the world was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub lost: u64,
    pub removed_by_disconnect: u64,
    pub grants: u64,
    pub handoffs: u64,
    pub timeouts: u64,
    pub deadlocks_refused: u64,
    /// Sessions that held something and were resumed, moved from a living connection, or were not resumed.
    pub resumed: u64,
    pub moved: u64,
    pub graces_over: u64,
    pub loads: u64,
    /// Leases that a command found over.
    pub overdue: u64,
    pub restarts: u64,
}

impl Totals {
    /// Where numbers began again, some are less than nothing.
    pub fn less(&self, other: &Totals) -> Totals {
        Totals {
            lost: self.lost.wrapping_sub(other.lost),
            removed_by_disconnect: self
                .removed_by_disconnect
                .wrapping_sub(other.removed_by_disconnect),
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
            removed_by_disconnect: self.removed_by_disconnect + other.removed_by_disconnect,
            grants: self.grants + other.grants,
            handoffs: self.handoffs + other.handoffs,
            timeouts: self.timeouts + other.timeouts,
            deadlocks_refused: self.deadlocks_refused + other.deadlocks_refused,
            resumed: self.resumed + other.resumed,
            moved: self.moved + other.moved,
            graces_over: self.graces_over + other.graces_over,
            loads: self.loads + other.loads,
            overdue: self.overdue + other.overdue,
            restarts: self.restarts + other.restarts,
        }
    }
}
