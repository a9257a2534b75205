//! Flushes, exchanges of databases, and loads: what changes for all keys of a database at once, and what follows key by key, in
//! slices.
//!
//! What is held by then is retired or moves along at once (`state/keys.rs`), so everybody is granted and refused by what is true.
//! What is told comes later: to the owners of what went, and to the watchers of names at which something else stands now. A
//! name that a fact is about is *refreshed* before that; all others are visited in turn. After a flush nothing stands at a name.
//! After an exchange that is not known until a fact about the key says it or the shell has looked at it. Meanwhile nobody is
//! granted what is not held there, and watchers hear of no more than the difference.

use crate::engine::effect::Effect;
use crate::engine::state::rows::{Client, HeldKey, Hold, Name, Waiter};
use crate::engine::storage::arena::Id;
use crate::engine::storage::few::Few;
use crate::engine::tables::Engine;
use crate::engine::types::{Cause, ClientId, Db, Key, KeyBuf, KeyState, Loss};

impl Engine {
    /// All keys of a database, or of all, went. O(databases), and a part of what follows.
    pub(in crate::engine) fn flushed(
        &mut self,
        db: Option<Db>,
        by: Cause,
        effects: &mut Vec<Effect>,
    ) {
        self.keys.retire(db, by);
        // What a file says was lost once.
        let most = match self.loading {
            true => usize::MAX,
            false => self.limits.at_once,
        };
        self.sweep(most, effects);
    }

    /// Two databases have exchanged their contents. O(1), and O(grants that wait for acknowledgements).
    pub(in crate::engine) fn swapped(&mut self, one: Db, other: Db, effects: &mut Vec<Effect>) {
        if one != other {
            self.withdraw_pending_in([one, other], effects);
            self.keys.exchange(one, other);
        }
    }

    /// Whether something is left that follows from a flush. O(1).
    pub fn is_flushing(&self) -> bool {
        self.keys.has_retired() || self.is_any_name_empty()
    }

    /// Whether watchers and waiters are to hear of a flush. While a data set is loaded nobody hears of anything.
    fn is_any_name_empty(&self) -> bool {
        self.keys.has_stale_empty() && !self.loading
    }

    /// Does what follows from flushes, at so many names and held keys at most.
    pub(in crate::engine) fn sweep(&mut self, most: usize, effects: &mut Vec<Effect>) {
        let mut left = most;
        while left > 0 && self.is_any_name_empty() {
            left -= 1;
            let name = self.sweeps.names.visit(&self.keys.name_places());
            if let Some(name) = name.filter(|name| self.keys.is_empty_there(*name)) {
                self.refresh(name, effects);
                self.keys.remove_name_if_idle(name);
            }
        }
        while left > 0 && self.keys.has_retired() {
            left -= 1;
            if let Some(held) = self.sweeps.held.visit(&self.keys.held_places()) {
                self.sweep_key(held, effects);
            }
        }
    }

    /// Ends the holds of a key if it went by a flush. Whether that was so.
    fn sweep_key(&mut self, held: Id<HeldKey>, effects: &mut Vec<Effect>) -> bool {
        let retired = self.keys.retired_by(held);
        if let Some(retired) = retired {
            self.lose(held, retired.by, Loss::Flushed, effects);
        }
        retired.is_some()
    }

    /// Before an owner has a key, by a grant or by another name: if it lost a key of this name by a flush, it hears of that first.
    /// O(1) but for the flushes whose keys are not all swept.
    #[inline]
    pub(in crate::engine) fn sweep_former(
        &mut self,
        key: Key<'_>,
        owner: Id<Client>,
        label: &[u8],
        effects: &mut Vec<Effect>,
    ) {
        if self.keys.has_retired() {
            self.sweep_former_of(key, owner, label, effects);
        }
    }

    #[cold]
    #[inline(never)]
    fn sweep_former_of(
        &mut self,
        key: Key<'_>,
        owner: Id<Client>,
        label: &[u8],
        effects: &mut Vec<Effect>,
    ) {
        for key in self.keys.retired_at(key).collect::<Few<_>>().iter() {
            let Some(former) = self.holds.find(&self.keys, *key, owner, label) else {
                continue;
            };
            if self.keys.retired_by(*key).map(|retired| retired.by) != Some(self.cause_of(owner)) {
                self.notify_lost(former, Loss::Flushed, effects);
            }
            self.forget_hold(former);
            if self.keys[*key].holds.is_empty() {
                self.keys.remove_held(*key);
            }
        }
    }

    fn cause_of(&self, owner: Id<Client>) -> Cause {
        Cause::Client(self.clients[owner].id)
    }

    /// Ends the holds of the key of this hold if it went by a flush, which is no more then. O(1) but for the key's other holders.
    pub(in crate::engine) fn sweep_hold(
        &mut self,
        hold: Id<Hold>,
        effects: &mut Vec<Effect>,
    ) -> bool {
        self.keys.has_retired() && self.sweep_key(self.holds[hold].key, effects)
    }

    /// What an owner holds is counted: of very much that went, some may be counted still.
    pub(in crate::engine) fn sweep_holds_of(
        &mut self,
        owner: Id<Client>,
        effects: &mut Vec<Effect>,
    ) {
        if !self.keys.has_retired() {
            return;
        }
        let holds = self.holds.of_client(&self.clients, owner);
        let keys = holds.map(|hold| self.holds[hold].key);
        let retired = keys.filter(|key| self.keys.is_retired(*key));
        let mut retired: Vec<_> = retired.take(self.limits.at_once.max(1)).collect();
        // One can be that of several of these.
        retired.sort_unstable();
        retired.dedup();
        for key in retired {
            self.sweep_key(key, effects);
        }
    }

    /// The same of a connection, or of its session.
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

    /// The record of a name, if it is watched or waited for, as fresh as can be told. O(1).
    pub(in crate::engine) fn name(
        &mut self,
        key: Key<'_>,
        effects: &mut Vec<Effect>,
    ) -> Option<Id<Name>> {
        let name = self.keys.find_name(key)?;
        self.refresh(name, effects);
        Some(name)
    }

    /// The same of the name at which a held key stands. O(1).
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

    /// Before a fact about a name: what stands there now is known, unless a look is to tell that. O(1), besides the watchers
    /// who are told.
    #[inline]
    pub(in crate::engine) fn refresh(&mut self, name: Id<Name>, effects: &mut Vec<Effect>) {
        if self.keys.has_stale() && self.keys.is_stale(name) {
            self.refresh_stale(name, effects);
        }
    }

    #[cold]
    #[inline(never)]
    fn refresh_stale(&mut self, name: Id<Name>, effects: &mut Vec<Effect>) {
        let standing = match self.keys.held_at(name) {
            Some(held) => self.keys[held].held().stands(),
            None if self.keys.is_empty_there(name) => KeyState::Absent,
            None => return,
        };
        self.set_standing(name, standing, effects);
    }

    /// The same of all that somebody asks for whose turn has come.
    pub(in crate::engine) fn refresh_for(&mut self, waiter: Id<Waiter>, effects: &mut Vec<Effect>) {
        if self.keys.has_stale() {
            for name in &*self.queues.names_of(waiter).collect::<Few<_>>() {
                self.refresh(*name, effects);
            }
        }
    }

    /// Whether something stands at a name that is not held, or may, so that nobody can be granted it. O(1).
    pub(in crate::engine) fn is_unmanaged(&self, name: Id<Name>) -> bool {
        match self.keys.is_stale(name) {
            true => !self.keys.is_empty_there(name),
            false => self.keys[name].is_other(),
        }
    }

    /// Whether there is a name that is to be looked at. O(1).
    pub fn has_unseen(&self) -> bool {
        self.keys.has_stale_unknown()
    }

    /// The next key to be looked at, if one stands at the next so many places: what that shows is to be told
    /// ([`Event::Found`](crate::engine::Event::Found)). Those of which something was told meanwhile are not among them. O(so many).
    pub fn next_unseen(&mut self, most: usize) -> Option<KeyBuf> {
        for _ in 0..most {
            if !self.has_unseen() {
                break;
            }
            let name = self.sweeps.looks.visit(&self.keys.name_places());
            if let Some(name) = name.filter(|name| self.keys.is_stale(*name)) {
                return Some(self.keys[name].key().to_owned());
            }
        }
        None
    }
}
