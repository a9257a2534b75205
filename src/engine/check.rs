//! What must hold between two facts, for tests.

use super::state::timers::Timer;
use crate::engine::tables::Engine;

impl Engine {
    /// For tests: the next event goes the long ways. How many keys there were with a short one. O(keys).
    pub fn forget_short_ways(&mut self) -> usize {
        let short = self.keys.all_held();
        let short: Vec<_> = short.filter(|key| self.keys[*key].has_one_hold()).collect();
        for key in &short {
            self.keys[*key].set_one_hold(false);
        }
        short.len()
    }

    /// Panics unless every room's invariant holds. For tests: O(everything).
    pub fn check_invariants(&self) {
        self.watches.check(&self.keys, &self.clients);
        self.holds.check(&self.keys, &self.clients);
        self.queues.check(&self.keys, &self.clients);
        self.sessions.check(&self.clients);
        self.keys.check(self.in_transit);
        assert!(self.loading || self.attached_before_load.is_empty());
        self.check_timers();
        for (id, name) in self.keys.all_names() {
            assert_eq!(name.is_ready(), self.ready.contains(&id));
        }
        self.clients.check();
    }

    fn check_timers(&self) {
        let renewal = self.renewals.deadline();
        let renewal = renewal.map(|end| (end, Timer::Renewal));
        // The quarantine has no other record than its timer.
        let quarantine = self.timers.quarantine();
        let quarantine = quarantine.map(|end| (end, Timer::Quarantine));
        let ends = self.queues.deadlines().chain(self.holds.leases());
        let ends = ends.chain(self.sessions.ends());
        let ends = ends.chain(self.holds.acks.deadlines());
        self.timers.check(ends.chain(renewal).chain(quarantine));
    }
}
