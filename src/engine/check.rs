//! Invariants, for tests.

use super::state::timers::Timer;
use crate::engine::tables::Engine;

impl Engine {
    /// For tests: takes no fast path for plain holds from now on.
    pub fn disable_fast_paths(&mut self) {
        self.holds.disable_fast_paths();
    }

    /// Panics unless the invariant of every table holds. For tests: O(everything).
    pub fn check_invariants(&self) {
        self.watches.check(&self.keys, &self.clients);
        self.holds.check(&self.keys, &self.clients);
        self.prefixes.check(&self.clients);
        self.check_presence();
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
        // The quarantine is recorded only as its timer.
        let quarantine = self.timers.quarantine();
        let quarantine = quarantine.map(|end| (end, Timer::Quarantine));
        let ends = self.queues.deadlines().chain(self.holds.leases());
        let ends = ends.chain(self.sessions.ends());
        let ends = ends.chain(self.holds.acks.deadlines());
        self.timers.check(ends.chain(renewal).chain(quarantine));
    }
}
