//! Databases that exchange their contents.
//!
//! Holds go with their keys, at once; watches and queues stay with the name. What stands at a name that is watched or waited
//! for is not known then: it is *unseen*, until a fact about the key says it or the shell has looked at it, which it does key
//! by key, in slices. Meanwhile nobody is granted what is unseen and not held, and its watchers are told of nothing but of what
//! happens there. Should a key be made there before the look, or the contents be exchanged again or flushed, they hear of no
//! more than the difference.

use crate::engine::effect::Effect;
use crate::engine::event::{Acquire, Event};
use crate::engine::state::rows::{Hold, KeyRecord};
use crate::engine::storage::arena::Id;
use crate::engine::storage::few::Few;
use crate::engine::tables::Engine;
use crate::engine::types::{Db, Key, KeyBuf, Loss};

/// The keys of a database that somebody watches, holds or waits for.
#[derive(Default)]
struct Known {
    /// They simply go by the same name in the other database.
    only_held: Vec<Id<KeyRecord>>,
    /// Those that cannot: mostly since somebody watches them or waits for them.
    others: Vec<Id<KeyRecord>>,
}

/// A hold on its way to its key's new name.
struct Carried {
    to: KeyBuf,
    hold: Id<Hold>,
    /// The key may have a time to live.
    timed: bool,
}

impl Engine {
    /// O(keys known), in a few nanoseconds each; in more for those that are held and besides watched or waited for, and for as
    /// many as are only held in one database and watched or waited for in the other, whichever are fewer; and O(grants that wait
    /// for acknowledgements). In the midst of a flush also [what is done of that](Self::end_flushes_of_others).
    pub(in crate::engine) fn swapped(&mut self, one: Db, other: Db, effects: &mut Vec<Effect>) {
        if self.flushes.is_any() {
            self.end_flushes_of_others([one, other], effects);
        }
        if one != other {
            self.withdraw_pending_in([one, other], effects);
        }
        let [here, there] = self.known_in([one, other]);
        let mut carried = Vec::new();
        for (only_held, others) in [
            (&here.only_held, &there.others),
            (&there.only_held, &here.others),
        ] {
            let is_fewer = only_held.len() < others.len();
            for &key in if is_fewer { only_held } else { others } {
                let Some(twin) = self.keys.find(self.twin(key, one, other)) else {
                    continue;
                };
                match [key, twin].map(|key| self.keys[key].is_only_held()) {
                    [true, false] => self.make_way(key, (one, other), &mut carried, effects),
                    [false, true] => self.make_way(twin, (one, other), &mut carried, effects),
                    _ => {}
                }
            }
        }
        // What went by a flush and is left to be done is only held: it goes by its new name to its end.
        self.flushes.exchange(one, other);
        for known in [&here, &there] {
            self.keys.exchange_only_held(&known.only_held, one, other);
        }
        let mut is_any_unseen = false;
        for key in here.others.into_iter().chain(there.others) {
            // What comes here now is none of what the flushes so far were of.
            self.keys.renew(key);
            if self.keys[key].is_open() && !self.loading {
                self.keys[key].set_unseen(true);
                is_any_unseen = true;
            }
            self.take_off(key, (one, other), &mut carried);
        }
        if is_any_unseen {
            self.unseen.begin(self.keys.places());
        }
        for Carried { to, hold, timed } in carried {
            let standing = self.holds.mode(hold).stands();
            let key = self.keys.find_or_add(to.as_key(), standing);
            self.keys.name(key);
            self.settle(hold, key, timed);
            // Who waits here may go with those who hold it now.
            self.make_ready(key);
        }
    }

    /// What is known of each of these databases. O(keys known).
    fn known_in(&self, dbs: [Db; 2]) -> [Known; 2] {
        let mut all = <[Known; 2]>::default();
        for (key, record) in self.keys.iter() {
            let Some(place) = dbs.iter().position(|db| *db == record.key().db) else {
                continue;
            };
            match record.is_only_held() {
                true => all[place].only_held.push(key),
                false => all[place].others.push(key),
            }
        }
        all
    }

    /// The same name in the other database.
    fn twin(&self, key: Id<KeyRecord>, one: Db, other: Db) -> Key<'_> {
        let mut twin = self.keys[key].key();
        twin.db = twin.db.exchanged(one, other);
        twin
    }

    /// A key that is only held cannot simply go by its new name, since its twin cannot by its own.
    fn make_way(
        &mut self,
        key: Id<KeyRecord>,
        dbs: (Db, Db),
        carried: &mut Vec<Carried>,
        effects: &mut Vec<Effect>,
    ) {
        match self.is_flushed(key) {
            true => self.end_flush_of(key, effects),
            false => self.take_off(key, dbs, carried),
        }
    }

    /// Loosens what goes with its key, to be settled at its twin.
    fn take_off(&mut self, key: Id<KeyRecord>, (one, other): (Db, Db), carried: &mut Vec<Carried>) {
        let goes: Few<_> = self.holds.all_of_key(&self.keys, key).collect();
        if goes.is_empty() {
            return;
        }
        let to = self.twin(key, one, other).to_owned();
        let timed = self.keys[key].is_timed();
        for &hold in &*goes {
            self.holds.loosen(&mut self.keys, hold);
            let to = to.clone();
            carried.push(Carried { to, hold, timed });
        }
        self.keys.remove_if_idle(key);
    }

    /// Whether there is perhaps a key that is to be looked at. O(1).
    pub fn has_unseen(&self) -> bool {
        self.unseen.is_any()
    }

    /// The next key to be looked at, if one stands at the next so many places: what that shows is to be told
    /// ([`Event::Found`]). Those of which something was told meanwhile are not among them. O(so many).
    pub fn next_unseen(&mut self, most: usize) -> Option<KeyBuf> {
        for _ in 0..most {
            if !self.unseen.is_any() {
                break;
            }
            if let Some(key) = self.unseen.visit(&self.keys) {
                return Some(self.keys[key].key().to_owned());
            }
        }
        None
    }

    /// Before a fact about keys that may be unseen: what it says of what stood there until now. That a key is made says
    /// nothing of that: the server tells it of one that takes another's place, too.
    #[cold]
    #[inline(never)]
    pub(in crate::engine) fn see_before(&mut self, event: &Event<'_>, effects: &mut Vec<Effect>) {
        match *event {
            Event::Acquire(Acquire { seen, .. }) | Event::Watch { seen, .. } => {
                for seen in seen {
                    let key = self.keys.find(seen.key);
                    if key.is_some_and(|key| self.keys[key].is_unseen()) {
                        self.found(*seen, Loss::Deleted, effects);
                    }
                }
            }
            Event::Gone { key, .. } | Event::MovedFrom { key } => {
                if let Some(key) = self.keys.find(key) {
                    self.see(key, true, effects);
                }
            }
            _ => {}
        }
    }

    /// Whether something stood here until now, should nobody know yet. O(1), besides the watchers who are told.
    #[inline]
    pub(in crate::engine) fn see(
        &mut self,
        key: Id<KeyRecord>,
        present: bool,
        effects: &mut Vec<Effect>,
    ) {
        if self.keys[key].is_unseen() {
            self.set_present(key, present, effects);
        }
    }
}
