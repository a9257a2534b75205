//! What happened to keys, whatever the cause: watchers are told, holds end or go along.
//!
//! Nothing here orders a write: the shell may be in the middle of somebody's command. Who waits for
//! a key that is free now is served when the shell says that it may write.

use crate::engine::effect::{Effect, News, Push, Refusal};
use crate::engine::event::{Event, KeySnapshot};
use crate::engine::state::rows::{HeldKey, Name};
use crate::engine::storage::arena::Id;
use crate::engine::storage::few::Few;
use crate::engine::tables::Engine;
use crate::engine::types::{Cause, Key, KeyBuf, KeyState, Loss};

impl Engine {
    /// What is held is there; should that be another key now, what follows says so.
    pub(in crate::engine) fn made(&mut self, key: Key<'_>, effects: &mut Vec<Effect>) {
        if let Some(name) = self.name(key, effects) {
            self.set_standing(name, KeyState::Other, effects);
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
        let name = self.vacate(key, effects);
        if let Some(held) = self.keys.find_held(key) {
            self.lose(held, by, why, effects);
        }
        if let Some(name) = name {
            self.make_ready(name);
        }
    }

    /// What stood at a name is not there any more, whether that was known or not.
    fn vacate(&mut self, key: Key<'_>, effects: &mut Vec<Effect>) -> Option<Id<Name>> {
        let name = self.name(key, effects)?;
        if self.keys.is_stale(name) {
            self.set_standing(name, KeyState::Other, effects);
        }
        self.set_standing(name, KeyState::Absent, effects);
        Some(name)
    }

    /// Another key is in the place of what stood at this one: to a watcher nothing happened then, but the owner's key
    /// is gone.
    pub(in crate::engine) fn replaced(
        &mut self,
        key: Key<'_>,
        by: Cause,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(name) = self.name(key, effects) {
            self.set_standing(name, KeyState::Other, effects);
        }
        if let Some(held) = self.keys.find_held(key) {
            self.lose(held, by, Loss::Overwritten, effects);
        }
    }

    /// An orphaned key is another client's: its holds end, and it stays.
    pub(in crate::engine) fn taken_over(&mut self, key: Key<'_>, effects: &mut Vec<Effect>) {
        if let Some(held) = self.keys.find_held(key) {
            self.totals.keys_removed_by_disconnect += self.holds.count(&self.keys, held) as u64;
        }
        self.replaced(key, Cause::Server, effects);
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
        while let Some(held) = self.keys.find_held(key)
            && let Some(hold) = self.keys[held].holds.head()
        {
            self.take_away(hold, Loss::Moved, effects);
        }
    }

    pub(in crate::engine) fn moved_from(&mut self, key: Key<'_>, effects: &mut Vec<Effect>) {
        if let Some(name) = self.vacate(key, effects) {
            self.make_ready(name);
        }
        if let Some(held) = self.keys.find_held(key) {
            let holds: Few<_> = self.holds.all_of_key(&self.keys, held).collect();
            self.withdraw_pending_of(&holds, effects);
            self.keys.take_out(held);
            self.moving = Some(held);
        }
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
        let Some(held) = self.moving.take() else {
            return;
        };
        let is_renamed = *self.keys.key_of(held).name != *key.name;
        for &hold in &*self.holds.all_of_key(&self.keys, held).collect::<Few<_>>() {
            let (owner, label) = (self.holds[hold].client, self.holds.label(hold).to_owned());
            self.sweep_former(key, owner, &label, effects);
            if is_renamed {
                self.holds.rename(hold);
            }
        }
        self.keys.put_in(held, key);
    }

    /// Between the two names of a key comes a fact that may be about its owners, or the key's new name is never told: it is lost
    /// at its old name. O(holds of the key).
    #[cold]
    #[inline(never)]
    pub(in crate::engine) fn lose_moving(&mut self, before: &Event<'_>, effects: &mut Vec<Effect>) {
        self.lost_on_its_way = None;
        let Some(held) = self.moving.take() else {
            return;
        };
        // A second key that leaves its place may be at the new name of which is told next; and a turn of the server's is between
        // commands.
        let is_in_between = !matches!(
            before,
            Event::MovedFrom { .. } | Event::Tick | Event::Work { .. }
        );
        let first = self.keys[held].holds.head().filter(|_| is_in_between);
        self.lost_on_its_way = first.map(|hold| self.holds.mode(hold));
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
            self.set_standing(name, seen.standing, effects);
        }
        if let Some(held) = self.keys.find_held(seen.key)
            && !self.keys[held].held().stand_as(seen.standing)
        {
            let why = seen.standing.loss_or(gone);
            self.lose(held, Cause::Server, why, effects);
        }
        if let Some(name) = name {
            self.make_ready(name);
        }
    }

    /// Tells the watchers, if it is news to them. While a data set is loaded nothing is.
    #[inline]
    pub(in crate::engine) fn set_standing(
        &mut self,
        name: Id<Name>,
        standing: KeyState,
        effects: &mut Vec<Effect>,
    ) {
        if self.loading {
            return;
        }
        if self.keys.renew(name) {
            // Whoever waits here has waited for that.
            self.make_ready(name);
        }
        let record = &mut self.keys[name];
        let was_present = record.is_present();
        record.set_standing(standing);
        let present = standing.is_present();
        if was_present != present && !record.watchers.is_empty() {
            self.notify_watchers(name, present, effects);
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

    /// Ends all holds of a key that another client may have taken away, and tells their owners; who
    /// waits may be next. What a file tells of was lost once. O(holds of the key).
    pub(in crate::engine) fn lose(
        &mut self,
        held: Id<HeldKey>,
        by: Cause,
        why: Loss,
        effects: &mut Vec<Effect>,
    ) {
        while let Some(hold) = self.keys[held].holds.head() {
            let client = self.holds[hold].client;
            if !self.loading && by != Cause::Client(self.clients[client].id) {
                self.notify_lost(hold, why, effects);
            }
            self.forget_hold(hold);
        }
        self.forget_key(held);
    }

    /// Forgets a key that nobody holds any more; who waits for it may be next.
    pub(in crate::engine) fn forget_key(&mut self, held: Id<HeldKey>) {
        let name = self.keys.name_of(held);
        self.keys.remove_held(held);
        if let Some(name) = name {
            self.make_ready(name);
        }
    }

    /// The keys that somebody here watches, waits for or holds. Those that only connections of a former server held are not
    /// among them: they go in any case. O(keys known), or O(1) where there are no others.
    pub fn keys_of_the_living(&self) -> Vec<KeyBuf> {
        let holds = self.holds.len() - self.clients.held_by_former();
        if (self.keys.name_count(), holds) == (0, 0) {
            return Vec::new();
        }
        let is_of_others = |held: &Id<HeldKey>| {
            let first = self.keys[*held].holds.head();
            first.is_some_and(|hold| !self.clients.is_former(self.holds[hold].client))
        };
        self.keys_where(is_of_others)
    }

    /// All keys that are watched, waited for or held, whoever does. O(keys known).
    pub fn keys_known(&self) -> Vec<KeyBuf> {
        self.keys_where(|_| true)
    }

    /// All names that are watched or waited for, and these of the other held keys.
    fn keys_where(&self, is_meant: impl Fn(&Id<HeldKey>) -> bool) -> Vec<KeyBuf> {
        let names = self.keys.all_names().map(|(_, name)| name.key().to_owned());
        let held = self.keys.all_held().filter(|held| {
            !self.keys.is_retired(*held) && self.keys.name_of(*held).is_none() && is_meant(held)
        });
        let held = held.map(|held| self.keys.key_of(held).to_owned());
        names.chain(held).collect()
    }
}
