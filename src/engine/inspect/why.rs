//! Why nobody gets a key: who holds it, what they wait for, who holds that, and so on.

use crate::engine::inspect::inspection::Holder;
use crate::engine::limits::{WHY_KEYS_PER_REQUEST, WHY_STEPS};
use crate::engine::state::rows::{Hold, KeyRecord};
use crate::engine::storage::arena::Id;
use crate::engine::tables::Engine;
use crate::engine::types::{Key, KeyBuf, Moment};
use std::collections::HashSet;

/// A holder of one of the keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub key: KeyBuf,
    pub holder: Holder,
    /// A key for which it waits itself. Its holders follow, unless they came before.
    pub waits_for: Option<KeyBuf>,
}

impl Engine {
    /// The holders of a key, then those of the keys for which they wait, each key once. O(the steps, 64 at most).
    pub fn why(&self, now: Moment, key: Key<'_>) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut keys: Vec<_> = self.keys.find(key).into_iter().collect();
        let mut met: HashSet<_> = keys.iter().copied().collect();
        let mut next = 0;
        while let Some(&key) = keys.get(next) {
            next += 1;
            // Those of ended connections among them are few, or the chain is cut.
            for hold in self.holds_at(key).take(WHY_STEPS) {
                if steps.len() == WHY_STEPS {
                    return steps;
                }
                let Some(holder) = self.holder_line(now, hold) else {
                    continue;
                };
                let waits_for = self.waited_for_by(hold);
                if let Some(other) = waits_for
                    && met.insert(other)
                {
                    keys.push(other);
                }
                steps.push(Step {
                    key: self.keys[key].key().to_owned(),
                    holder,
                    waits_for: waits_for.map(|key| self.keys[key].key().to_owned()),
                });
            }
        }
        steps
    }

    /// What keeps the owner of a hold waiting: the request that blocks its connection, or one with a push by its label. Of
    /// several keys one that another holds, if there is one.
    fn waited_for_by(&self, hold: Id<Hold>) -> Option<Id<KeyRecord>> {
        let owner = self.holds[hold].client;
        let record = &self.clients[owner];
        let connection = match record.is_session {
            true => record.attached?,
            false => owner,
        };
        let pushed = || {
            let label = self.holds.label(hold);
            self.queues.of_owner(connection, label).next()
        };
        let waiter = self.clients[connection].blocked.or_else(pushed)?;
        let is_anothers = |key: &Id<KeyRecord>| {
            let first = self.living_holds(*key).next();
            first.is_some_and(|hold| self.holds[hold].client != owner)
        };
        let keys = || self.queues.keys_of(waiter).take(WHY_KEYS_PER_REQUEST);
        keys().find(is_anothers).or_else(|| keys().next())
    }
}
