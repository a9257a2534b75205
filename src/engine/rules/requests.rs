//! The commands that acquire nothing. Each is answered by exactly one [`Effect::Reply`].

use crate::engine::effect::{Effect, Gone, Refusal, Reply};
use crate::engine::event::{KeySnapshot, Raise};
use crate::engine::mode::Mode;
use crate::engine::state::rows::{Client, Hold, Waiter};
use crate::engine::storage::arena::Id;
use crate::engine::tables::Engine;
use crate::engine::types::{ClientId, Key, Kind, Token};
use hashbrown::HashSet;

impl Engine {
    /// DELTP: releases temporary keys and cancels waits for them.
    pub(in crate::engine) fn drop_keys(
        &mut self,
        client: ClientId,
        keys: &[Key<'_>],
        effects: &mut Vec<Effect>,
    ) {
        let mut deleted = 0;
        if let Some(client) = self.clients.find(client) {
            for name in keys {
                // A pending hold counts as a wait.
                self.give_up_request(client, *name, b"", Kind::Temporary, effects);
                let hold = self.hold_of_record(client, *name, b"");
                if let Some(hold) = hold.filter(|hold| !self.holds.mode(*hold).is_lock()) {
                    self.release(hold, Gone::Released, effects);
                    deleted += 1;
                }
            }
        }
        effects.push(Effect::Reply(Reply::Integer(deleted)));
    }

    /// LOCK.CANCEL: ends an owner's wait for a key; without one, replies with the token of its hold.
    pub(in crate::engine) fn cancel(
        &mut self,
        client: ClientId,
        key: Key<'_>,
        label: &[u8],
        effects: &mut Vec<Effect>,
    ) {
        let client = self.clients.find(client);
        let waited =
            client.is_some_and(|client| self.give_up_waiting(client, key, label, |_| true));
        let pending = client.and_then(|client| self.hold_of_record(client, key, label));
        let waited = pending.is_some_and(|hold| self.give_up_pending(hold)) || waited;
        let token = || self.token_of(client?, key, label);
        let answer = if waited {
            1
        } else {
            token().map_or(0, |token| token.0 as i64)
        };
        effects.push(Effect::Reply(Reply::Integer(answer)));
    }

    /// Ends an owner's wait for a key if `is_meant`; returns whether it did. O(keys of the wait).
    fn give_up_waiting(
        &mut self,
        client: Id<Client>,
        name: Key<'_>,
        label: &[u8],
        is_meant: impl Fn(&Waiter) -> bool,
    ) -> bool {
        if self.clients[client].wait_count == 0 {
            return false;
        }
        let name = self.keys.find_name(name);
        let found = name.and_then(|name| self.queues.find_pushed(name, client, label));
        let meant = found.filter(|waiter| is_meant(&self.queues[*waiter]));
        meant.is_some_and(|waiter| {
            self.remove_wait(waiter);
            true
        })
    }

    /// The token of an owner's hold, which is not pending, unless its lease has expired.
    fn token_of(&self, client: Id<Client>, key: Key<'_>, label: &[u8]) -> Option<Token> {
        let hold = self.hold_of_record(client, key, label)?;
        (!self.is_over(hold)).then_some(self.holds[hold].token)
    }

    /// Whether a connection or its session has the hold of this key and label that was granted with this token. O(1).
    pub fn holds_as(&self, client: ClientId, key: Key<'_>, label: &[u8], token: Token) -> bool {
        let client = self.clients.find(client);
        let hold = client.and_then(|client| self.hold_of_record(client, key, label));
        hold.is_some_and(|hold| self.holds.granted_as(hold) == token)
    }

    /// The tokens with which all holds of a connection or its session were granted. O(its holds).
    pub fn granted(&self, client: ClientId) -> HashSet<Token> {
        let Some(client) = self.clients.find(client) else {
            return HashSet::new();
        };
        let owner = self.clients.owner(client);
        let holds = self.holds.of_client(&self.clients, owner);
        let current = holds.filter(|hold| !self.keys.is_retired(self.holds[*hold].key));
        current.map(|hold| self.holds.granted_as(hold)).collect()
    }

    /// LOCK.RELEASE. With `all` nothing of the lock is left to the owner: no hold at any depth, no pending grant, no wait.
    pub(in crate::engine) fn release_lock(
        &mut self,
        client: ClientId,
        key: Key<'_>,
        label: &[u8],
        all: bool,
        effects: &mut Vec<Effect>,
    ) {
        let asker = self.clients.find(client).filter(|_| all);
        let gave_up =
            asker.is_some_and(|asker| self.give_up_request(asker, key, label, Kind::Lock, effects));
        let reply = match self.lock_of(client, key, label, effects) {
            Some(hold) => Reply::Integer(self.release_depth(hold, all, effects).into()),
            None if gave_up => Reply::Integer(0),
            None => Reply::Refused(Refusal::NotHeld),
        };
        effects.push(Effect::Reply(reply));
    }

    /// Ends an owner's wait for a key of this kind, and withdraws its pending grant; returns whether there was either.
    fn give_up_request(
        &mut self,
        client: Id<Client>,
        key: Key<'_>,
        label: &[u8],
        kind: Kind,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let is_meant = |mode: Mode| mode.is_lock() == (kind == Kind::Lock);
        let waited = self.give_up_waiting(client, key, label, |waiter| is_meant(waiter.terms.mode));
        match self.hold_of_record(client, key, label) {
            Some(hold) if is_meant(self.holds.mode(hold)) && self.give_up_pending(hold) => {
                self.release_after_death(hold, effects);
                true
            }
            _ => waited,
        }
    }

    /// Releases one depth of a hold, or `all`; returns the depth that is left.
    fn release_depth(&mut self, hold: Id<Hold>, all: bool, effects: &mut Vec<Effect>) -> u32 {
        let left = if all { 0 } else { self.holds.depth(hold) - 1 };
        if left == 0 {
            self.release(hold, Gone::Released, effects);
        } else {
            let serves = self.holds.lower(&mut self.keys, hold);
            self.replicate_hold(hold, effects);
            if serves && let Some(name) = self.name_of(self.holds[hold].key, effects) {
                self.serve(name, self.limits.compatible_grants_per_event, effects);
                self.keys.remove_name_if_unreferenced(name);
            }
        }
        left
    }

    pub(in crate::engine) fn extend(
        &mut self,
        client: ClientId,
        key: Key<'_>,
        label: &[u8],
        lease_ms: u64,
        effects: &mut Vec<Effect>,
    ) {
        let reply = match self.lock_of(client, key, label, effects) {
            Some(hold) => match self.check_extras_of(&[hold]) {
                Ok(()) => {
                    let lease = Some(self.now.after_ms(lease_ms));
                    self.holds.set_lease(&mut self.timers, hold, lease);
                    self.replicate_hold(hold, effects);
                    Reply::Integer(1)
                }
                Err(refusal) => Reply::Refused(refusal),
            },
            None => Reply::Refused(Refusal::NotHeld),
        };
        effects.push(Effect::Reply(reply));
    }

    /// LOCK.RAISE: raises the token of an owner's hold, and so all later tokens.
    pub(in crate::engine) fn raise(&mut self, raise: Raise<'_>, effects: &mut Vec<Effect>) {
        let hold = self.hold_of(raise.client, raise.key, raise.label, effects);
        let raised = match hold {
            Some(hold) => self.raise_hold(hold, raise.token, raise.most, effects),
            None => Err(Refusal::NotHeld),
        };
        let reply = raised.map_or_else(Reply::Refused, |token| Reply::Integer(token.0 as i64));
        effects.push(Effect::Reply(reply));
    }

    /// Returns the hold's new token: at least this one, and one that no other hold of its key ever had.
    fn raise_hold(
        &mut self,
        hold: Id<Hold>,
        token: Token,
        most: Token,
        effects: &mut Vec<Effect>,
    ) -> Result<Token, Refusal> {
        let own = self.holds[hold].token;
        if token <= own {
            return Ok(own);
        }
        let last = self.tokens.last();
        if token > last.max(most) {
            return Err(Refusal::TokenAhead { most });
        }
        self.check_extras_of(&[hold])?;
        // Other holders of the key may have had any token between its own and the last one.
        let is_others = token <= last && self.holds.mode(hold).admits_others();
        let token = match is_others {
            true => self.take_token(effects),
            false => self.know_token(token, effects),
        };
        self.holds.raise(hold, token);
        self.replicate_raise(hold, effects);
        self.show(self.holds[hold].key, effects);
        Ok(token)
    }

    /// The owner's lock; see [`hold_of`](Self::hold_of).
    fn lock_of(
        &mut self,
        client: ClientId,
        name: Key<'_>,
        label: &[u8],
        effects: &mut Vec<Effect>,
    ) -> Option<Id<Hold>> {
        let hold = self.hold_of(client, name, label, effects)?;
        self.holds.mode(hold).is_lock().then_some(hold)
    }

    /// The owner's hold, unless it is pending; ends its lease first if that has expired.
    fn hold_of(
        &mut self,
        client: ClientId,
        name: Key<'_>,
        label: &[u8],
        effects: &mut Vec<Effect>,
    ) -> Option<Id<Hold>> {
        if self.is_any_lease_over() {
            self.end_own_lease(client, name, label, effects);
        }
        let hold = self.hold_by(client, name, label)?;
        self.is_settled(hold).then_some(hold)
    }

    /// The hold of a connection or its session with this label, pending or not. O(1).
    pub(in crate::engine) fn hold_by(
        &self,
        client: ClientId,
        key: Key<'_>,
        label: &[u8],
    ) -> Option<Id<Hold>> {
        self.hold_of_record(self.clients.find(client)?, key, label)
    }

    fn hold_of_record(&self, client: Id<Client>, key: Key<'_>, label: &[u8]) -> Option<Id<Hold>> {
        let key = self.keys.find_held(key)?;
        let owner = self.clients.owner(client);
        self.holds.find(&self.keys, key, owner, label)
    }

    pub(in crate::engine) fn watch(
        &mut self,
        client: ClientId,
        seen: &[KeySnapshot<'_>],
        effects: &mut Vec<Effect>,
    ) {
        let client = self.client_record(client, effects);
        if let Err(refusal) = self.check_watches(client, seen) {
            effects.push(Effect::Reply(Reply::Refused(refusal)));
            return;
        }
        for seen in seen {
            let lookup = self.keys.lookup(seen.key);
            let name = self.keys.get_or_insert_name(lookup, seen.key, seen.state);
            self.see(name, seen.state, effects);
            if !self.watches.has(&self.keys, name, client) {
                let (keys, clients) = (&mut self.keys, &mut self.clients);
                self.watches.add(keys, clients, name, client);
            }
        }
        let states = seen.iter().map(|seen| seen.state.is_present()).collect();
        effects.push(Effect::Reply(Reply::States(states)));
    }

    pub(in crate::engine) fn unwatch(
        &mut self,
        client: ClientId,
        keys: &[Key<'_>],
        effects: &mut Vec<Effect>,
    ) {
        let mut removed = 0;
        if let Some(client) = self.clients.find(client) {
            for key in keys {
                let Some(name) = self.keys.find_name(*key) else {
                    continue;
                };
                let (keys, clients) = (&mut self.keys, &mut self.clients);
                removed += i64::from(self.watches.remove(keys, clients, name, client));
            }
        }
        effects.push(Effect::Reply(Reply::Integer(removed)));
    }

    pub(in crate::engine) fn unwatch_all(&mut self, client: ClientId, effects: &mut Vec<Effect>) {
        let removed = self.clients.find(client).map_or(0, |client| {
            let (keys, clients) = (&mut self.keys, &mut self.clients);
            self.watches.remove_all(keys, clients, client)
        });
        effects.push(Effect::Reply(Reply::Integer(removed.into())));
    }
}
