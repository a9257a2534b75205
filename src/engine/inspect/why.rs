//! Why a key is not free: its holders, the keys for which they wait, the holders of those, and so on.

use crate::engine::inspect::inspection::Holder;
use crate::engine::limits::{WHY_KEYS_PER_REQUEST, WHY_STEPS};
use crate::engine::state::rows::{Hold, Name};
use crate::engine::storage::arena::Id;
use crate::engine::tables::Engine;
use crate::engine::types::{Key, KeyBuf, Moment};
use std::collections::HashSet;

/// A holder of one of the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub key: KeyBuf,
    pub holder: Holder,
    /// A key for which it waits. The holders of that key follow, unless listed already.
    pub waits_for: Option<KeyBuf>,
}

impl Engine {
    /// The holders of a key, then those of the keys for which they wait, each key once. O(`WHY_STEPS`).
    pub fn why(&self, now: Moment, key: Key<'_>) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut keys = vec![key.to_owned()];
        let mut met: HashSet<_> = keys.iter().cloned().collect();
        let mut next = 0;
        while let Some(key) = keys.get(next).cloned() {
            next += 1;
            let held = self.keys.find_held(key.as_key()).into_iter();
            let holds = held.flat_map(|held| self.holds.all_of_key(&self.keys, held));
            // Among these holds may be orphaned ones, which are skipped: then fewer steps are returned.
            for hold in holds.take(WHY_STEPS) {
                if steps.len() == WHY_STEPS {
                    return steps;
                }
                let Some(holder) = self.holder_line(now, hold) else {
                    continue;
                };
                let waits_for = self.waited_for_by(hold);
                if let Some(other) = &waits_for
                    && met.insert(other.clone())
                {
                    keys.push(other.clone());
                }
                steps.push(Step {
                    key: key.clone(),
                    holder,
                    waits_for,
                });
            }
        }
        steps
    }

    /// The key for which a hold's task waits: a key of the wait that blocks its connection, or else of a wait with a push by any
    /// request of the task; preferably one held by another client.
    fn waited_for_by(&self, hold: Id<Hold>) -> Option<KeyBuf> {
        let owner = self.holds[hold].client;
        let connection = self.clients.connection_of(owner);
        let pushed = || {
            let task = self.holds.task(hold);
            self.queues.of_task(connection, task).next()
        };
        let waiter = self.clients[connection].blocked.or_else(pushed)?;
        let is_held_by_other = |name: &Id<Name>| {
            let held = self.keys.held_at(*name);
            let first = held.and_then(|held| self.living_holds(held).next());
            first.is_some_and(|hold| self.holds[hold].client != owner)
        };
        let names = || self.queues.names_of(waiter).take(WHY_KEYS_PER_REQUEST);
        let name = names().find(is_held_by_other);
        let name = name.or_else(|| names().next())?;
        Some(self.keys[name].key().to_owned())
    }
}
