//! Invariants, for tests.

use crate::engine::tables::Engine;

impl Engine {
    /// For tests: takes no fast path for plain holds from now on.
    pub fn disable_fast_paths(&mut self) {
        self.holds.without_fast_paths = true;
    }

    /// Panics unless the invariant of every table holds. For tests: O(everything).
    pub fn check_invariants(&self) {
        self.watches.check(&self.keys, &self.clients);
        self.holds.check(&self.keys, &self.clients, &self.timers);
        self.prefixes.check(&self.clients);
        self.check_presence();
        self.queues.check(&self.keys, &self.clients, &self.timers);
        self.sessions.check(&self.clients, &self.timers);
        self.keys.check(self.in_transit);
        assert!(self.loading || self.attached_before_load.is_empty());
        assert_eq!(self.timers.renewal, self.renewals.deadline());
        for (id, name) in self.keys.all_names() {
            assert_eq!(name.is_ready(), self.ready.contains(&id));
        }
        self.clients.check();
    }
}
