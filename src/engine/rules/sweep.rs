//! FLUSH, SWAPDB and loads: changes to all keys of a database at once, and the sweep that follows in slices.
//!
//! Held keys are retired or move at once (`state/keys.rs`), so every request is decided on the new state. Notifications follow:
//! LOST to the owners of flushed keys, ADD and DEL to the watchers of names whose state differs. An event first *refreshes* the
//! names that it touches; the sweep visits the others. After a flush all names are absent. After SWAPDB their state is
//! unknown until an event or a look by the shell tells it: meanwhile an unheld key is granted to nobody, and watchers then
//! hear of the difference only.

use crate::engine::effect::Effect;
use crate::engine::limits::Budget;
use crate::engine::state::rows::{Client, HeldKey, Hold, Name};
use crate::engine::storage::arena::Id;
use crate::engine::storage::few::Few;
use crate::engine::tables::Engine;
use crate::engine::types::{Cause, ClientId, Db, Key, KeyBuf, KeyState, Loss};

impl Engine {
    /// All keys of one database, or of all, were deleted. O(databases), and the first slice of the sweep.
    pub(in crate::engine) fn flushed(
        &mut self,
        db: Option<Db>,
        by: Cause,
        effects: &mut Vec<Effect>,
    ) {
        self.keys.retire(db, by);
        self.prefixes.flushed(db);
        // Losses found in a file were reported before.
        if self.loading {
            self.budget = Budget::unlimited();
        }
        self.sweep(effects);
    }

    /// SWAPDB. O(1), and O(pending grants).
    pub(in crate::engine) fn swapped(&mut self, one: Db, other: Db, effects: &mut Vec<Effect>) {
        if one != other {
            self.withdraw_pending_in([one, other], effects);
            self.keys.swap_databases(one, other);
            self.prefixes.swapped([one, other]);
            self.sweep_prefixes(effects);
        }
    }

    /// Whether the sweep after a flush is unfinished. O(1).
    pub fn is_flushing(&self) -> bool {
        self.keys.has_retired() || self.has_absent_to_report() || self.prefixes.is_any_behind()
    }

    /// Whether watchers and waiters have yet to be notified of a flush. Nobody is notified while loading.
    fn has_absent_to_report(&self) -> bool {
        self.keys.has_stale_absent() && !self.loading
    }

    /// Sweeps slots of names and of held keys.
    pub(in crate::engine) fn sweep(&mut self, effects: &mut Vec<Effect>) {
        self.sweep_prefixes(effects);
        while self.has_absent_to_report() && self.budget.spend(1) {
            let name = self.sweeps.names.visit(self.keys.name_arena());
            if let Some(name) = name.filter(|name| self.keys.is_absent_if_stale(*name)) {
                self.refresh(name, effects);
                self.keys.remove_name_if_unreferenced(name);
            }
        }
        while self.keys.has_retired() && self.budget.spend(1) {
            if let Some(held) = self.sweeps.held.visit(self.keys.held_arena()) {
                self.sweep_key(held, effects);
            }
        }
    }

    /// Ends the holds of a key if a flush deleted it, a step for each; returns whether it did.
    fn sweep_key(&mut self, held: Id<HeldKey>, effects: &mut Vec<Effect>) -> bool {
        let retired = self.keys.retired_by(held);
        if let Some(retired) = retired {
            // The caller spends the first one.
            let holds = self.holds.all_of_key(&self.keys, held).count();
            self.budget.spend(holds.saturating_sub(1));
            self.lose(held, retired.by, Loss::Flushed, effects);
        }
        retired.is_some()
    }

    /// Before an owner gets a key by a grant or a rename: if a flush took its previous hold of that name, reports that loss first.
    /// O(retired spaces), of which there are mostly none.
    #[cold]
    #[inline(never)]
    pub(in crate::engine) fn sweep_previous(
        &mut self,
        key: Key<'_>,
        owner: Id<Client>,
        label: &[u8],
        effects: &mut Vec<Effect>,
    ) {
        for key in self.keys.retired_at(key).collect::<Few<_>>().iter() {
            let Some(previous) = self.holds.find(&self.keys, *key, owner, label) else {
                continue;
            };
            if let Some(retired) = self.keys.retired_by(*key) {
                self.lose_hold(previous, retired.by, Loss::Flushed, effects);
            }
            if self.keys[*key].holds.is_empty() {
                self.keys.remove_held(*key);
            }
        }
    }

    /// If a flush deleted this hold's key, ends the hold and the key's other holds; returns whether it did. O(holders).
    pub(in crate::engine) fn sweep_hold(
        &mut self,
        hold: Id<Hold>,
        effects: &mut Vec<Effect>,
    ) -> bool {
        self.sweep_key(self.holds[hold].key, effects)
    }

    /// Before an owner's holds are counted: sweeps up to `steps_per_event` of its flushed keys.
    pub(in crate::engine) fn sweep_holds_of(
        &mut self,
        owner: Id<Client>,
        effects: &mut Vec<Effect>,
    ) {
        self.sweep_most_holds_of(owner, self.limits.steps_per_event.max(1), effects);
    }

    /// The same for up to `most` of them. O(holds).
    pub(in crate::engine) fn sweep_most_holds_of(
        &mut self,
        owner: Id<Client>,
        most: usize,
        effects: &mut Vec<Effect>,
    ) {
        if !self.keys.has_retired() {
            return;
        }
        let holds = self.holds.of_client(&self.clients, owner);
        let keys = holds.map(|hold| self.holds[hold].key);
        let retired = keys.filter(|key| self.keys.is_retired(*key));
        let mut retired: Vec<_> = retired.take(most).collect();
        // Holds with different labels share a key.
        retired.sort_unstable();
        retired.dedup();
        for key in retired {
            self.sweep_key(key, effects);
        }
    }

    /// The same for a connection or its session.
    pub(in crate::engine) fn sweep_holds_by(
        &mut self,
        client: ClientId,
        effects: &mut Vec<Effect>,
    ) {
        if let Some(client) = self.clients.find(client) {
            self.sweep_holds_of(self.clients.owner(client), effects);
        }
    }

    // ---- names ----

    /// Looks a name up and refreshes it. O(1).
    pub(in crate::engine) fn name(
        &mut self,
        key: Key<'_>,
        effects: &mut Vec<Effect>,
    ) -> Option<Id<Name>> {
        let name = self.keys.find_name(key)?;
        self.refresh(name, effects);
        Some(name)
    }

    /// The same for the name of a held key. O(1).
    #[inline]
    pub(in crate::engine) fn name_of(
        &mut self,
        held: Id<HeldKey>,
        effects: &mut Vec<Effect>,
    ) -> Option<Id<Name>> {
        let name = self.keys.name_of(held)?;
        self.refresh(name, effects);
        Some(name)
    }

    /// Brings a stale name up to date, unless its state is unknown until the shell looks. O(1), and O(watchers) if it changed.
    #[inline]
    pub(in crate::engine) fn refresh(&mut self, name: Id<Name>, effects: &mut Vec<Effect>) {
        if self.keys.has_stale() && self.keys.is_stale(name) {
            self.refresh_stale(name, effects);
        }
    }

    #[cold]
    #[inline(never)]
    fn refresh_stale(&mut self, name: Id<Name>, effects: &mut Vec<Effect>) {
        let state = match self.keys.held_at(name) {
            Some(held) => self.keys[held].held().key_state(),
            None if self.keys.is_absent_if_stale(name) => KeyState::Absent,
            None => return,
        };
        self.set_state(name, state, effects);
    }

    /// Whether an unheld key exists at a name, or may exist, since the name is stale: then it cannot be granted. O(1).
    pub(in crate::engine) fn may_be_foreign(&self, name: Id<Name>) -> bool {
        self.keys.is_stale(name) || self.keys[name].is_foreign()
    }

    /// Whether the shell has to look at any name. O(1).
    pub fn has_stale_names(&self) -> bool {
        self.keys.has_stale_unknown()
    }

    /// The next key that the shell has to look at, within the next `most` slots; it reports the result by
    /// [`Event::Found`](crate::engine::Event::Found). Names that an event has refreshed meanwhile are skipped. O(most).
    pub fn next_stale_name(&mut self, most: usize) -> Option<KeyBuf> {
        for _ in 0..most {
            if !self.has_stale_names() {
                break;
            }
            let name = self.sweeps.looks.visit(self.keys.name_arena());
            if let Some(name) = name.filter(|name| self.keys.is_stale(*name)) {
                return Some(self.keys[name].key().to_owned());
            }
        }
        None
    }
}
