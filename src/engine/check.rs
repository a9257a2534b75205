//! What must hold between two facts, for tests.

use super::state::timers::Timer;
use crate::engine::tables::Engine;

impl Engine {
    /// For tests: the next event goes the long ways. How many keys there were with a short one. O(keys).
    pub fn forget_short_ways(&mut self) -> usize {
        let short = self.keys.iter().filter(|(_, key)| key.has_one_hold());
        let short: Vec<_> = short.map(|(id, _)| id).collect();
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
        assert!(self.carried.is_empty());
        assert!(self.loading || self.speakers.is_empty());
        self.check_flushes();
        self.check_unseen();
        self.check_timers();
        for (id, record) in self.keys.iter() {
            assert_eq!(self.keys.find(record.key()), Some(id));
            assert!(!record.is_idle(), "{:?} is kept for nothing", record.key());
            assert_eq!(record.is_ready(), self.ready.contains(&id));
            assert!(record.holds.is_empty() || record.held().stands() == record.stands());
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

    fn check_unseen(&self) {
        let passed = (0..self.keys.places()).filter(|place| !self.unseen.has(*place));
        for id in passed.filter_map(|place| self.keys.at(place)) {
            let record = &self.keys[id];
            assert!(!record.is_unseen(), "{:?} was passed by", record.key());
        }
    }

    fn check_flushes(&self) {
        let passed = self.flushes.passed();
        for id in (0..passed).filter_map(|place| self.keys.at(place)) {
            assert!(
                !self.is_flushed(id),
                "{:?} was passed by",
                self.keys[id].key()
            );
        }
    }
}
