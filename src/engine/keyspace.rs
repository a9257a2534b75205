//! What happened to keys, by whatever hand: watchers are told, bindings end or go along.
//!
//! Nothing here orders a write: the shell may be in the middle of somebody's command.

use super::Engine;
use super::arena::Id;
use super::effect::{Effect, News, Push};
use super::event::{Hand, Seen};
use super::id::{Db, Key};
use super::keys::KeyRecord;

impl Engine {
    /// A key that is there and is made again was replaced by another (RENAME over it, RESTORE and
    /// COPY with REPLACE): to a watcher nothing happened, but the owner's key is gone.
    pub(super) fn made(&mut self, key: Key<'_>, by: Hand, effects: &mut Vec<Effect>) {
        let Some(key) = self.keys.find(key) else {
            return;
        };
        self.set_present(key, true, effects);
        if by != Hand::Ours {
            self.lose(key, by, effects);
        }
    }

    pub(super) fn gone(&mut self, key: Key<'_>, by: Hand, effects: &mut Vec<Effect>) {
        let Some(key) = self.keys.find(key) else {
            return;
        };
        self.set_present(key, false, effects);
        if by != Hand::Ours {
            self.lose(key, by, effects);
        }
    }

    pub(super) fn moved_from(&mut self, key: Key<'_>, effects: &mut Vec<Effect>) {
        let Some(key) = self.keys.find(key) else {
            return;
        };
        self.set_present(key, false, effects);
        self.carried = self.holds.pick_up(&mut self.keys, key);
        self.keys.remove_if_idle(key);
    }

    pub(super) fn moved_to(&mut self, key: Key<'_>) {
        if let Some(hold) = self.carried.take() {
            let key = self.keys.find_or_add(key, true);
            self.holds.put_down(&mut self.keys, hold, key);
        }
    }

    /// A key whose new name was never told has gone.
    pub(super) fn drop_carried(&mut self) {
        if let Some(hold) = self.carried.take() {
            let client = self.holds.drop_carried(&mut self.clients, hold);
            self.clients.forget_if_done(client);
        }
    }

    pub(super) fn flushed(&mut self, db: Option<Db>, by: Hand, effects: &mut Vec<Effect>) {
        for key in self.known_in(|record| db.is_none_or(|db| db == record.key().db)) {
            self.set_present(key, false, effects);
            self.lose(key, by, effects);
        }
    }

    /// Bindings go with their keys to the other database; watches stay with their name.
    pub(super) fn swapped(&mut self, one: Db, other: Db) {
        let held = self.known_in(|record| {
            let db = record.key().db;
            (db == one || db == other) && !record.holds.is_empty()
        });
        let mut carried = Vec::with_capacity(held.len());
        for key in held {
            let mut name = self.keys[key].key().to_owned();
            name.db = if name.db == one { other } else { one };
            let hold = self.holds.pick_up(&mut self.keys, key);
            carried.extend(hold.map(|hold| (name, hold)));
            self.keys.remove_if_idle(key);
        }
        for (name, hold) in carried {
            let key = self.keys.find_or_add(name.as_key(), true);
            self.holds.put_down(&mut self.keys, hold, key);
        }
    }

    pub(super) fn found(&mut self, seen: Seen<'_>, effects: &mut Vec<Effect>) {
        if let Some(key) = self.keys.find(seen.key) {
            self.set_present(key, seen.present, effects);
            if !seen.present {
                self.lose(key, Hand::Nobody, effects);
            }
        }
    }

    /// Tells the watchers, if it is news to them.
    pub(super) fn set_present(
        &mut self,
        key: Id<KeyRecord>,
        present: bool,
        effects: &mut Vec<Effect>,
    ) {
        let record = &mut self.keys[key];
        if std::mem::replace(&mut record.present, present) == present || record.watchers.is_empty()
        {
            return;
        }
        let to = self.watches.watchers(&self.keys, &self.clients, key);
        let push = Push {
            key: self.keys[key].key().to_owned(),
            news: if present { News::Added } else { News::Deleted },
        };
        effects.push(Effect::Push { to, push });
    }

    /// Ends the binding of a key that another hand may have taken away, and tells its owner.
    pub(super) fn lose(&mut self, key: Id<KeyRecord>, by: Hand, effects: &mut Vec<Effect>) {
        let Some(client) = self.holds.remove(&mut self.keys, &mut self.clients, key) else {
            return;
        };
        let owner = &self.clients[client];
        if !owner.ended && by != Hand::Client(owner.id) {
            self.totals.lost += 1;
            let to = vec![owner.id];
            let push = Push {
                key: self.keys[key].key().to_owned(),
                news: News::Lost,
            };
            effects.push(Effect::Push { to, push });
        }
        self.keys.remove_if_idle(key);
        self.clients.forget_if_done(client);
    }

    fn known_in(&self, is_in: impl Fn(&KeyRecord) -> bool) -> Vec<Id<KeyRecord>> {
        self.keys
            .iter()
            .filter(|(_, record)| is_in(record))
            .map(|(id, _)| id)
            .collect()
    }
}
