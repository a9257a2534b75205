//! Consistency of holds, keys, connections and their counters.

use crate::engine::mode::{Mode, Modes};
use crate::engine::state::clients::Clients;
use crate::engine::state::holds::{Holds, Permits};
use crate::engine::state::keys::Keys;
use hashbrown::HashMap;

impl Holds {
    /// Panics unless the invariant holds. O(everything).
    pub fn check(&self, keys: &Keys, clients: &Clients) {
        let mut chained = 0;
        let mut permits = HashMap::new();
        for key in keys.all_held() {
            let record = &keys[key];
            let holds: Vec<_> = record.holds.iter(&self.all).collect();
            let mut owners = std::collections::HashSet::new();
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
                    let permits = permits.entry(key).or_insert(Permits { taken: 0, total });
                    permits.taken += count;
                    assert!(permits.taken <= total && permits.total == total);
                }
            }
            assert!(!holds.is_empty() && record.is_lock() == record.held().is_lock());
            let kinds: Vec<_> = holds.iter().map(|id| self.mode(*id).kind()).collect();
            assert_eq!(record.held(), Modes::of(&kinds));
            assert!(!record.has_one_hold() || holds.len() == 1);
            assert_eq!(self.count(keys, key), holds.len());
            chained += holds.len();
        }
        assert_eq!(permits, self.permits);
        let mut counted = 0;
        for (client, record) in clients.iter() {
            let mine: Vec<_> = record.holding.iter(&self.all).collect();
            assert!(mine.iter().all(|id| self.all[*id].client == client));
            assert_eq!(mine.len(), record.hold_count as usize);
            counted += mine.len();
        }
        assert_eq!((chained, counted), (self.len(), self.len()));
        let extras = self.all.iter().filter_map(|(_, hold)| hold.header.extra());
        let extras: std::collections::HashSet<_> = extras.collect();
        assert_eq!(extras.len(), self.extras.len());
        let mut labelled = 0;
        for ((client, label), chain) in &self.owners {
            assert!(!chain.is_empty() && !label.is_empty());
            for id in self.of_owner(*client, label) {
                let hold = &self.all[id];
                assert!(hold.client == *client && self.label(id) == &**label);
                labelled += 1;
            }
        }
        let with_label = self
            .all
            .iter()
            .filter(|(id, _)| !self.label(*id).is_empty());
        assert_eq!(with_label.count(), labelled);
        let temporary = self.all.iter().filter(|(id, _)| !self.mode(*id).is_lock());
        assert_eq!(temporary.count(), self.temporary);
        let pending = self.all.iter();
        let pending = pending.filter_map(|(id, _)| Some((id, self.pending(id)?)));
        self.acks.check(pending);
        assert!(self.by_token.len() == self.overflow.len());
        assert!(self.overflow.len() <= self.len() && self.sizes.len() <= self.overflow.len());
    }
}
