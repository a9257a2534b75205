//! What happened to keys, whatever the cause: watchers are told, holds end or go along.
//!
//! Nothing here orders a write: the shell may be in the middle of somebody's command. Who waits for
//! a key that is free now is served when the shell says that it may write.

use crate::engine::effect::{Effect, News, Push, Refusal};
use crate::engine::event::{Event, KeySnapshot};
use crate::engine::state::rows::{Hold, KeyRecord};
use crate::engine::storage::arena::Id;
use crate::engine::storage::few::Few;
use crate::engine::tables::Engine;
use crate::engine::types::{Cause, Key, KeyBuf, KeyState, Loss};

impl Engine {
    /// What is held is there; should that be another key now, what follows says so.
    pub(in crate::engine) fn made(&mut self, key: Key<'_>, effects: &mut Vec<Effect>) {
        if let Some(key) = self.keys.find(key) {
            let record = &mut self.keys[key];
            if record.holds.is_empty() {
                record.set_stands(KeyState::Other);
                record.set_timed(false);
            }
            self.set_present(key, true, effects);
        }
    }

    /// What stood at a key is gone, and nothing is there now.
    pub(in crate::engine) fn gone(
        &mut self,
        key: Key<'_>,
        by: Cause,
        why: Loss,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(key) = self.keys.find(key) {
            self.changed(key, KeyState::Absent, (by, why), effects);
        }
    }

    /// Another key is in the place of what stood at this one: to a watcher nothing happened then, but the owner's key
    /// is gone.
    pub(in crate::engine) fn replaced(
        &mut self,
        key: Key<'_>,
        by: Cause,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(key) = self.keys.find(key) {
            self.changed(key, KeyState::Other, (by, Loss::Overwritten), effects);
        }
    }

    fn changed(
        &mut self,
        key: Id<KeyRecord>,
        standing: KeyState,
        (by, why): (Cause, Loss),
        effects: &mut Vec<Effect>,
    ) {
        self.keys[key].set_stands(standing);
        self.keys[key].set_timed(false);
        self.set_present(key, standing.is_present(), effects);
        self.lose(key, by, why, effects);
    }

    /// Whoever waits for this key is to ask another server.
    pub(in crate::engine) fn elsewhere(&mut self, key: Key<'_>, effects: &mut Vec<Effect>) {
        let refusal = Refusal::Elsewhere {
            key: key.to_owned(),
        };
        self.turn_all_away(key, &refusal, effects);
    }

    /// What is held and waited for here is another server's.
    pub(in crate::engine) fn disowned(&mut self, key: Key<'_>, effects: &mut Vec<Effect>) {
        self.elsewhere(key, effects);
        while let Some(found) = self.keys.find(key)
            && let Some(hold) = self.keys[found].holds.head()
        {
            self.take_away(hold, Loss::Moved, effects);
        }
    }

    pub(in crate::engine) fn moved_from(&mut self, key: Key<'_>, effects: &mut Vec<Effect>) {
        let Some(key) = self.keys.find(key) else {
            return;
        };
        self.set_present(key, false, effects);
        self.keys[key].set_stands(KeyState::Absent);
        self.carried_timed = self.keys[key].is_timed();
        let goes: Few<_> = self.holds.all_of_key(&self.keys, key).collect();
        if !goes.is_empty() {
            self.carried_key = Some(self.keys[key].key().to_owned());
        }
        self.withdraw_pending_of(&goes, effects);
        for &hold in &*goes {
            self.holds.loosen(&mut self.keys, hold);
            self.carried.push(hold);
        }
        self.make_ready(key);
        self.keys.remove_if_idle(key);
    }

    pub(in crate::engine) fn moved_to(
        &mut self,
        key: Key<'_>,
        by: Cause,
        effects: &mut Vec<Effect>,
    ) {
        self.replaced(key, by, effects);
        if let Some(mode) = self.lost_on_its_way.take() {
            return self.inherited(key, mode, effects);
        }
        let Some(&first) = self.carried.first() else {
            return;
        };
        let standing = self.holds.mode(first).stands();
        let from = self.carried_key.take();
        let is_renamed = from.is_none_or(|from| *from.name != *key.name);
        let key = self.keys.find_or_add(key, standing);
        for hold in std::mem::take(&mut self.carried) {
            if is_renamed {
                self.holds.rename(hold);
            }
            self.settle(hold, key, self.carried_timed);
        }
    }

    /// A hold that was carried comes to its key's new name.
    pub(in crate::engine) fn settle(&mut self, hold: Id<Hold>, key: Id<KeyRecord>, timed: bool) {
        let record = &mut self.keys[key];
        record.set_timed(timed);
        record.set_stands(self.holds.mode(hold).stands());
        self.holds.fasten(&mut self.keys, hold, key);
    }

    /// Between the two names of a key comes a fact that may be about its owners, or the key's new name is never told: what is
    /// carried is lost at its old name. O(holds of the key).
    #[cold]
    #[inline(never)]
    pub(in crate::engine) fn lose_carried(
        &mut self,
        before: &Event<'_>,
        effects: &mut Vec<Effect>,
    ) {
        self.lost_on_its_way = None;
        let carried = std::mem::take(&mut self.carried);
        let (Some(first), Some(from)) = (carried.first(), self.carried_key.take()) else {
            return;
        };
        // A second key that leaves its place may be at the new name of which is told next; and a turn of the server's is between
        // commands.
        let is_in_between = !matches!(
            before,
            Event::MovedFrom { .. } | Event::Tick | Event::Work { .. }
        );
        self.lost_on_its_way = is_in_between.then(|| self.holds.mode(*first));
        let key = self.keys.find_or_add(from.as_key(), KeyState::Absent);
        self.keys.name(key);
        for hold in carried {
            self.holds.fasten(&mut self.keys, hold, key);
        }
        self.lose(key, Cause::Server, Loss::Deleted, effects);
    }

    pub(in crate::engine) fn found(
        &mut self,
        seen: KeySnapshot<'_>,
        gone: Loss,
        effects: &mut Vec<Effect>,
    ) {
        let Some(key) = self.keys.find(seen.key) else {
            return;
        };
        self.set_present(key, seen.standing.is_present(), effects);
        let record = &mut self.keys[key];
        record.set_stands(seen.standing);
        if record.holds.is_empty() || !record.held().stand_as(seen.standing) {
            self.lose(key, Cause::Server, seen.standing.loss_or(gone), effects);
        }
    }

    /// Tells the watchers, if it is news to them. While a data set is loaded nothing is.
    #[inline]
    pub(in crate::engine) fn set_present(
        &mut self,
        key: Id<KeyRecord>,
        present: bool,
        effects: &mut Vec<Effect>,
    ) {
        if self.loading {
            return;
        }
        let record = &mut self.keys[key];
        let was_present = record.is_present();
        record.set_present(present);
        record.set_unseen(false);
        if was_present != present && !record.watchers.is_empty() {
            self.notify_watchers(key, present, effects);
        }
    }

    #[inline(never)]
    fn notify_watchers(&mut self, key: Id<KeyRecord>, present: bool, effects: &mut Vec<Effect>) {
        let to = self.watches.watchers(&self.keys, &self.clients, key);
        if to.is_empty() {
            return;
        }
        let news = if present { News::Added } else { News::Deleted };
        let push = Push::new(self.keys[key].key().to_owned(), news, b"");
        effects.push(Effect::Push { to, push });
    }

    /// Ends all holds of a key that another client may have taken away, and tells their owners; who
    /// waits may be next.
    pub(in crate::engine) fn lose(
        &mut self,
        key: Id<KeyRecord>,
        by: Cause,
        why: Loss,
        effects: &mut Vec<Effect>,
    ) {
        while let Some(hold) = self.keys[key].holds.head() {
            let client = self.holds[hold].client;
            if by != Cause::Client(self.clients[client].id) {
                self.notify_lost(hold, why, effects);
            }
            if self.is_all_of(key, hold) {
                self.end_with_key(hold);
                return self.clients.forget_if_done(client);
            }
            self.forget_hold(hold);
        }
        self.make_ready(key);
        self.keys.remove_if_idle(key);
    }

    /// The keys that somebody here watches, waits for or holds. Those that only connections of a former server held are not
    /// among them: they go in any case. O(keys known), or O(1) where there are no others.
    pub fn keys_of_the_living(&self) -> Vec<KeyBuf> {
        let holds = self.holds.len() - self.clients.held_by_former();
        if (self.watches.len(), self.queues.len(), holds) == (0, 0, 0) {
            return Vec::new();
        }
        let matters = |record: &&KeyRecord| {
            let mut holds = record.holds.head().into_iter();
            record.is_open() || holds.any(|hold| !self.clients.is_former(self.holds[hold].client))
        };
        let records = self.keys.iter().map(|(_, record)| record);
        let keys = records.filter(matters).map(KeyRecord::key);
        keys.map(Key::to_owned).collect()
    }

    /// All keys that are watched, waited for or held, whoever does. O(keys known).
    pub fn keys_known(&self) -> Vec<KeyBuf> {
        let records = self.keys.iter().map(|(_, record)| record.key());
        records.map(Key::to_owned).collect()
    }

    pub(in crate::engine) fn known(
        &self,
        is_meant: impl Fn(&KeyRecord) -> bool,
    ) -> Vec<Id<KeyRecord>> {
        let meant = self.keys.iter().filter(|(_, record)| is_meant(record));
        meant.map(|(id, _)| id).collect()
    }
}
