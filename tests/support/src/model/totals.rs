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
}

impl Totals {
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
        }
    }
}
