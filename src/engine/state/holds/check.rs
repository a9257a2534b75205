//! Consistency of holds, keys, connections and their counters.

use crate::engine::mode::{Mode, Modes};
use crate::engine::state::clients::Clients;
use crate::engine::state::holds::Holds;
use crate::engine::state::keys::Keys;
use crate::engine::state::timers::Timers;
use crate::engine::storage::overflow::OVERFLOW_THRESHOLD;

impl Holds {
    /// Panics unless the invariant holds. O(everything).
    pub fn check(&self, keys: &Keys, clients: &Clients, timers: &Timers) {
        let (mut chained, mut of_many) = (0, 0);
        for key in keys.all_held() {
            let record = &keys[key];
            let holds: Vec<_> = record.holds.iter(&self.all).collect();
            let mut owners = hashbrown::HashSet::new();
            let mut taken = 0;
            for (place, id) in holds.iter().enumerate() {
                let hold = &self.all[*id];
                assert!(hold.key == key && self.depth(*id) > 0);
                assert!(owners.insert((hold.client, self.label(*id))));
                let others = holds.iter().filter(|other| *other != id);
                assert!(
                    { others }.all(|other| self.mode(*other).is_compatible_with(self.mode(*id)))
                );
                self.overflow
                    .check(place, (key, hold.client, self.label(*id)), *id);
                self.by_token.check(place, (key, hold.token), *id);
                if let Mode::Permits { count, total } = self.mode(*id) {
                    taken += count;
                    assert!(taken <= total && self.total(keys, key) == Some(total));
                }
            }
            assert!(!holds.is_empty() && record.is_lock() == record.held().is_lock());
            let kinds: Vec<_> = holds.iter().map(|id| self.mode(*id).kind()).collect();
            assert_eq!(record.held(), Modes::of(&kinds));
            assert_eq!(record.hold_count as usize, holds.len());
            assert_eq!(record.permits_taken, taken);
            chained += holds.len();
            if holds.len() > OVERFLOW_THRESHOLD {
                of_many += holds.len();
            }
        }
        let mut counted = 0;
        for (client, record) in clients.iter() {
            let mine: Vec<_> = record.holding.iter(&self.all).collect();
            assert!(mine.iter().all(|id| self.all[*id].client == client));
            assert_eq!(mine.len(), record.hold_count as usize);
            counted += mine.len();
        }
        assert_eq!((chained, counted), (self.len(), self.len()));
        let extras = self.all.iter().filter_map(|(_, hold)| hold.header.extra());
        let extras: hashbrown::HashSet<_> = extras.collect();
        assert_eq!(extras.len(), self.extras.len());
        let mut named = 0;
        for ((client, task), chain) in &self.tasks {
            assert!(!chain.is_empty() && !task.is_empty());
            for id in self.of_task(*client, task) {
                let hold = &self.all[id];
                assert!(hold.client == *client && self.task(id) == &**task);
                named += 1;
            }
        }
        let with_name = self.all.iter();
        let with_name = with_name.filter(|(id, _)| !self.task(*id).is_empty());
        assert_eq!(with_name.count(), named);
        let temporary = self.all.iter().filter(|(id, _)| !self.mode(*id).is_lock());
        assert_eq!(temporary.count(), self.temporary);
        let pending = self.all.iter();
        let pending = pending.filter_map(|(id, _)| Some((id, self.pending(id)?)));
        self.acks.check(pending, timers);
        let leases = self.all.iter();
        let leases = leases.filter_map(|(id, _)| Some((self.lease(id)?, id)));
        timers.leases.check(leases);
        assert!(self.by_token.len() == self.overflow.len());
        assert!(self.overflow.len() <= of_many);
    }
}
