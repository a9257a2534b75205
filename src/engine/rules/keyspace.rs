//! Keyspace events of any cause: watchers are notified, holds end or move with their key.
//!
//! Nothing here emits a write: the shell may be in the middle of another client's command. The waiters of a key that is free
//! now are served when the shell may write.

use crate::engine::effect::{Effect, Gone, News, Push, Refusal};
use crate::engine::event::{Event, KeySnapshot};
use crate::engine::record::{NO_SESSION, SessionRecord};
use crate::engine::state::rows::{HeldKey, Hold, Name};
use crate::engine::storage::arena::Id;
use crate::engine::storage::few::Few;
use crate::engine::tables::Engine;
use crate::engine::types::{Cause, Key, KeyBuf, KeyState, Loss};

impl Engine {
    /// A key was created. It may replace a held key: `Replaced` follows then.
    pub(in crate::engine) fn made(&mut self, key: Key<'_>, effects: &mut Vec<Effect>) {
        if let Some(name) = self.name(key, effects) {
            self.set_state(name, KeyState::Other, effects);
        }
    }

    /// A key was deleted.
    pub(in crate::engine) fn gone(
        &mut self,
        key: Key<'_>,
        by: Cause,
        why: Loss,
        effects: &mut Vec<Effect>,
    ) {
        let name = self.vacate(key, effects);
        if let Some(held) = self.keys.find_held(key) {
            self.lose(held, by, why, effects);
        }
        if let Some(name) = name {
            self.mark_ready(name);
        }
    }

    /// Marks a name's key as deleted, whether or not its state was known.
    fn vacate(&mut self, key: Key<'_>, effects: &mut Vec<Effect>) -> Option<Id<Name>> {
        let name = self.name(key, effects)?;
        if self.keys.is_stale(name) {
            self.set_state(name, KeyState::Other, effects);
        }
        self.set_state(name, KeyState::Absent, effects);
        Some(name)
    }

    /// A key was overwritten: watchers see no change, but the owners lose it.
    pub(in crate::engine) fn replaced(
        &mut self,
        key: Key<'_>,
        by: Cause,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(name) = self.name(key, effects) {
            self.set_state(name, KeyState::Other, effects);
        }
        if let Some(held) = self.keys.find_held(key) {
            if self.is_left_behind(held) && !self.keys[held].held().is_lock() {
                self.note_given_away(held);
            }
            self.lose(held, by, Loss::Overwritten, effects);
        }
    }

    /// Another client stored a value over a temporary key whose owner is gone. Replicas and files see a value that changes, and do not
    /// know that there was no owner.
    fn note_given_away(&mut self, held: Id<HeldKey>) {
        let holds: Few<_> = self.holds.all_of_key(&self.keys, held).collect();
        for hold in holds {
            let freed = self.freed(hold);
            let ownerless = SessionRecord::Freed {
                session: NO_SESSION,
                key: self.keys.key_of(held).to_owned(),
                label: Box::default(),
                token: Some(self.holds[hold].token),
            };
            self.given_away.extend(freed);
            self.given_away.push_back(Box::new(ownerless));
        }
    }

    /// Tells replicas and files of keys that are another client's now: as many as there are steps, of which it takes none from the
    /// rest of the work.
    pub(in crate::engine) fn tell_given_away(&mut self, effects: &mut Vec<Effect>) {
        let most = self.given_away.len().min(self.budget.left());
        effects.extend(self.given_away.drain(..most).map(Effect::Replicate));
    }

    /// Fails all waits for this key with a redirection to another server.
    pub(in crate::engine) fn elsewhere(&mut self, key: Key<'_>, effects: &mut Vec<Effect>) {
        let refusal = Refusal::Elsewhere {
            key: key.to_owned(),
        };
        self.fail_all_waits(key, &refusal, effects);
    }

    /// The key belongs to another server now: ends its holds and waits.
    pub(in crate::engine) fn disowned(&mut self, key: Key<'_>, effects: &mut Vec<Effect>) {
        self.elsewhere(key, effects);
        while let Some(held) = self.keys.find_held(key)
            && let Some(hold) = self.keys[held].holds.head()
        {
            self.revoke(hold, Loss::Moved, effects);
        }
    }

    pub(in crate::engine) fn moved_from(&mut self, key: Key<'_>, effects: &mut Vec<Effect>) {
        if let Some(name) = self.vacate(key, effects) {
            self.mark_ready(name);
        }
        if let Some(held) = self.keys.find_held(key) {
            let holds: Few<_> = self.holds.all_of_key(&self.keys, held).collect();
            self.withdraw_pending_of(&holds, effects);
            self.hide_held(held, Gone::Renamed, effects);
            self.keys.detach(held);
            self.in_transit = Some(held);
        }
    }

    pub(in crate::engine) fn moved_to(
        &mut self,
        key: Key<'_>,
        by: Cause,
        effects: &mut Vec<Effect>,
    ) {
        self.replaced(key, by, effects);
        if let Some(mode) = self.lost_in_transit.take() {
            return self.inherited(key, mode, None, effects);
        }
        let Some(held) = self.in_transit.take() else {
            return;
        };
        let is_renamed = *self.keys.key_of(held).name != *key.name;
        for &hold in &*self.holds.all_of_key(&self.keys, held).collect::<Few<_>>() {
            let (owner, label) = (self.holds[hold].client, self.holds.label(hold).to_owned());
            self.sweep_previous(key, owner, &label, effects);
            if is_renamed {
                self.holds.rename(hold);
            }
        }
        self.keys.attach(held, key);
        self.show(held, effects);
        // Its holders may admit who waits here.
        if let Some(name) = self.keys.find_name(key) {
            self.mark_ready(name);
        }
    }

    /// Another event came between `MovedFrom` and `MovedTo`, which may concern the key's owners, or `MovedTo` never comes: the
    /// key in transit is lost under its old name. O(holders).
    #[cold]
    #[inline(never)]
    pub(in crate::engine) fn lose_in_transit(
        &mut self,
        before: &Event<'_>,
        effects: &mut Vec<Effect>,
    ) {
        self.lost_in_transit = None;
        let Some(held) = self.in_transit.take() else {
            return;
        };
        // A second `MovedFrom` may be the one that the next `MovedTo` completes; `Tick` and `Work` come between commands.
        let is_in_between = !matches!(
            before,
            Event::MovedFrom { .. } | Event::Tick | Event::Work { .. }
        );
        let first = self.keys[held].holds.head().filter(|_| is_in_between);
        self.lost_in_transit = first.map(|hold| self.holds.mode(hold));
        self.lose(held, Cause::Server, Loss::Deleted, effects);
    }

    pub(in crate::engine) fn found(
        &mut self,
        seen: KeySnapshot<'_>,
        gone: Loss,
        effects: &mut Vec<Effect>,
    ) {
        let name = self.keys.find_name(seen.key);
        if let Some(name) = name {
            self.set_state(name, seen.state, effects);
        }
        if let Some(held) = self.keys.find_held(seen.key)
            && !self.keys[held].held().matches_state(seen.state)
        {
            let why = seen.state.loss_or(gone);
            self.lose(held, Cause::Server, why, effects);
        }
        if let Some(name) = name {
            self.mark_ready(name);
        }
    }

    /// Records the state of a name's key, and notifies watchers of a change. Does nothing while loading.
    #[inline]
    pub(in crate::engine) fn set_state(
        &mut self,
        name: Id<Name>,
        state: KeyState,
        effects: &mut Vec<Effect>,
    ) {
        if self.loading {
            return;
        }
        if self.keys.mark_fresh(name) {
            // It could not be served while its state was unknown.
            self.mark_ready(name);
        }
        let record = &mut self.keys[name];
        let was_present = record.is_present();
        record.set_state(state);
        let present = state.is_present();
        if was_present != present && !record.watchers.is_empty() {
            self.notify_watchers(name, present, effects);
        }
    }

    /// The same of what a command sees: another module can delete a key without an event, and then whoever waits for it may be
    /// served.
    pub(in crate::engine) fn see(
        &mut self,
        name: Id<Name>,
        state: KeyState,
        effects: &mut Vec<Effect>,
    ) {
        let was_foreign = self.keys[name].is_foreign();
        self.set_state(name, state, effects);
        if was_foreign && !self.keys[name].is_foreign() {
            self.mark_ready(name);
        }
    }

    #[inline(never)]
    fn notify_watchers(&mut self, name: Id<Name>, present: bool, effects: &mut Vec<Effect>) {
        let to = self.watches.watchers(&self.keys, &self.clients, name);
        if to.is_empty() {
            return;
        }
        let news = if present { News::Added } else { News::Deleted };
        let push = Push::new(self.keys[name].key().to_owned(), news, b"");
        effects.push(Effect::Push { to, push });
    }

    /// Ends all holds of a key that was lost, and notifies the owners, except `by` itself and while loading; its waiters may be
    /// served. O(holders).
    pub(in crate::engine) fn lose(
        &mut self,
        held: Id<HeldKey>,
        by: Cause,
        why: Loss,
        effects: &mut Vec<Effect>,
    ) {
        self.hide_held(held, Gone::Lost(why), effects);
        while let Some(hold) = self.keys[held].holds.head() {
            self.lose_hold(hold, by, why, effects);
        }
        let name = self.keys.name_of(held);
        self.keys.remove_held(held);
        if let Some(name) = name {
            self.mark_ready(name);
        }
    }

    /// The same for one hold. The caller removes the key's record if this was its last.
    pub(in crate::engine) fn lose_hold(
        &mut self,
        hold: Id<Hold>,
        by: Cause,
        why: Loss,
        effects: &mut Vec<Effect>,
    ) {
        let client = self.holds[hold].client;
        if !self.loading && by != Cause::Client(self.clients[client].id) {
            self.notify_lost(hold, why, effects);
        }
        self.forget_hold(hold);
    }

    /// The keys that clients of this server watch, wait for or hold; not those held only by the foreign client, which are removed
    /// in any case. O(all records), or O(1) if there are none.
    pub fn keys_of_the_living(&self) -> Vec<KeyBuf> {
        let holds = self.holds.len() - self.clients.foreign_holds();
        if (self.keys.name_count(), holds) == (0, 0) {
            return Vec::new();
        }
        let is_of_others = |held: &Id<HeldKey>| {
            let first = self.keys[*held].holds.head();
            first.is_some_and(|hold| !self.clients.is_foreign(self.holds[hold].client))
        };
        self.keys_where(is_of_others)
    }

    /// All keys that are watched, waited for or held by anyone. O(all records).
    pub fn keys_known(&self) -> Vec<KeyBuf> {
        self.keys_where(|_| true)
    }

    /// All names, and those of the other held keys that `is_meant` selects.
    fn keys_where(&self, is_meant: impl Fn(&Id<HeldKey>) -> bool) -> Vec<KeyBuf> {
        let names = self.keys.all_names().map(|(_, name)| name.key().to_owned());
        let held = self.keys.all_held().filter(|held| {
            !self.keys.is_retired(*held) && self.keys.name_of(*held).is_none() && is_meant(held)
        });
        let held = held.map(|held| self.keys.key_of(held).to_owned());
        names.chain(held).collect()
    }
}
