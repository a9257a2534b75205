//! Databases that exchange their contents.
//!
//! Holds go with their keys, at once; watches and queues stay with the name. What stands at a name that is watched or waited
//! for is not known then: it is *unseen*, until a fact about the key says it or the shell has looked at it, which it does key
//! by key, in slices. Meanwhile nobody is granted what is unseen, and its watchers are told of nothing but of what happens
//! there. Should the contents be exchanged again or flushed before the look, that is all they hear of.

use crate::engine::Engine;
use crate::engine::effect::{Effect, Loss};
use crate::engine::event::{Acquire, Event};
use crate::engine::state::holds::Hold;
use crate::engine::state::keys::KeyRecord;
use crate::engine::storage::arena::Id;
use crate::engine::types::{Db, Key, KeyBuf};

/// A hold on its way to its key's new name.
struct Carried {
    to: KeyBuf,
    hold: Id<Hold>,
    /// The key may have a time to live.
    timed: bool,
}

impl Engine {
    /// O(keys known), in a few nanoseconds each, and more only for those that are held and besides watched or waited for.
    pub(in crate::engine) fn swapped(&mut self, one: Db, other: Db) {
        let (open, is_any_only_held) = self.open_keys(one, other);
        let mut carried = Vec::new();
        if is_any_only_held {
            for key in &open {
                let twin = self.keys.find(self.twin(*key, one, other).as_key());
                if let Some(twin) = twin.filter(|twin| self.keys[*twin].is_only_held()) {
                    self.take_off(twin, (one, other), &mut carried);
                }
            }
            self.keys.exchange_only_held(one, other);
        }
        for key in open {
            self.mark_unseen(key);
            self.take_off(key, (one, other), &mut carried);
        }
        for Carried { to, hold, timed } in carried {
            let standing = self.holds.mode(hold).stands();
            let key = self.keys.find_or_add(to.as_key(), standing);
            self.settle(hold, key, timed);
            // Who waits here may go with those who hold it now.
            self.make_ready(key);
        }
    }

    /// The keys of these databases that cannot simply go by the same name in the other one, since they are not only held; and
    /// whether there are others. While a data set is loaded there are none.
    fn open_keys(&self, one: Db, other: Db) -> (Vec<Id<KeyRecord>>, bool) {
        let mut open = Vec::new();
        let mut is_any_only_held = false;
        for (key, record) in self.keys.iter() {
            if ![one, other].contains(&record.key().db) {
                continue;
            }
            match record.is_only_held() && !self.loading {
                true => is_any_only_held = true,
                false => open.push(key),
            }
        }
        (open, is_any_only_held)
    }

    /// The same name in the other database.
    fn twin(&self, key: Id<KeyRecord>, one: Db, other: Db) -> KeyBuf {
        let mut twin = self.keys[key].key().to_owned();
        twin.db = twin.db.exchanged(one, other);
        twin
    }

    /// Loosens what goes with its key, to be settled at its twin.
    fn take_off(&mut self, key: Id<KeyRecord>, (one, other): (Db, Db), carried: &mut Vec<Carried>) {
        let goes = self.holds_that_go(key);
        if goes.is_empty() {
            return;
        }
        let to = self.twin(key, one, other);
        let timed = self.keys[key].is_timed();
        for &hold in &*goes {
            self.holds.loosen(&mut self.keys, hold);
            let to = to.clone();
            carried.push(Carried { to, hold, timed });
        }
        self.keys.remove_if_idle(key);
    }

    /// What stands at a key is not known any more. O(1).
    fn mark_unseen(&mut self, key: Id<KeyRecord>) {
        let record = &mut self.keys[key];
        let is_awaited = !(record.watchers.is_empty() && record.queue.is_empty());
        if is_awaited && !record.is_unseen() && !self.loading {
            record.set_unseen(true);
            self.unseen.push_back(key);
        }
    }

    /// Whether there is perhaps a key that is to be looked at. O(1).
    pub fn has_unseen(&self) -> bool {
        !self.unseen.is_empty()
    }

    /// The next key to be looked at, if there is one: what that shows is to be told ([`Event::Found`]). Those of which something
    /// was told meanwhile are passed over. O(1) for each exchange and key.
    pub fn next_unseen(&mut self) -> Option<KeyBuf> {
        while let Some(key) = self.unseen.pop_front() {
            if self.keys.has(key) && self.keys[key].is_unseen() {
                return Some(self.keys[key].key().to_owned());
            }
        }
        None
    }

    /// Before a fact about keys that may be unseen: what it says of what stood there until now.
    #[cold]
    #[inline(never)]
    pub(in crate::engine) fn see_before(&mut self, event: &Event<'_>, effects: &mut Vec<Effect>) {
        match *event {
            Event::Acquire(Acquire { seen, .. }) | Event::Watch { seen, .. } => {
                for seen in seen {
                    if self.is_unseen(seen.key) {
                        self.found(*seen, Loss::Deleted, effects);
                    }
                }
            }
            Event::Made { key } => self.see(key, false, effects),
            Event::Gone { key, .. } | Event::MovedFrom { key } => self.see(key, true, effects),
            _ => {}
        }
    }

    fn is_unseen(&self, key: Key<'_>) -> bool {
        let key = self.keys.find(key);
        key.is_some_and(|key| self.keys[key].is_unseen())
    }

    /// Something stood here until now, or nothing did unless it is held.
    fn see(&mut self, key: Key<'_>, present: bool, effects: &mut Vec<Effect>) {
        if let Some(key) = self.keys.find(key)
            && self.keys[key].is_unseen()
        {
            let is_held = !self.keys[key].holds.is_empty();
            self.set_present(key, present || is_held, effects);
        }
    }
}
