//! The one grant: everything that follows when a client is granted a key, at once or after a wait.

use crate::engine::effect::Effect;
use crate::engine::state::holds::Grant;
use crate::engine::state::keys::Keys;
use crate::engine::state::rows::{Client, HeldKey, Hold, Name};
use crate::engine::storage::arena::Id;
use crate::engine::storage::bytes::Bytes;
use crate::engine::tables::Engine;
use crate::engine::terms::Terms;
use crate::engine::types::{ClientId, Token};

/// How the granted key is created.
pub(in crate::engine) enum Making {
    /// By the current command, which has the key open.
    InCommand,
    /// By its name: as a temporary key with this value, or as a lock.
    ByName(Bytes),
}

impl Making {
    fn effect(self, keys: &Keys, key: Id<HeldKey>, grant: &Grant<'_>) -> Effect {
        let (mode, token) = (grant.terms.mode, grant.token);
        let key = || keys.key_of(key).to_owned();
        match self {
            Making::InCommand => Effect::CreateKey { mode, token },
            Making::ByName(_) if mode.is_lock() => {
                let key = key();
                Effect::MakeLock { key, mode, token }
            }
            Making::ByName(value) => {
                let key = key();
                Effect::Make { key, value, token }
            }
        }
    }
}

impl Engine {
    /// Grants one key: records the hold, and emits all effects. The caller has checked that the key's holders admit the new one.
    /// `replaced` is the key's only hold, if the new hold takes it over; both are plain then. O(1), with a lease O(log leases).
    pub(in crate::engine) fn grant_key(
        &mut self,
        key: Id<HeldKey>,
        name: Option<Id<Name>>,
        grant: &Grant<'_>,
        making: Making,
        replaced: Option<Id<Hold>>,
        effects: &mut Vec<Effect>,
    ) {
        if self.losses_emitted != self.losses_closed {
            let (key, token) = (self.keys.key_of(key).to_owned(), grant.token);
            effects.push(Effect::NextHolder { key, token });
        }
        if self.keys.has_retired() {
            let at = self.keys.key_of(key).to_owned();
            self.sweep_previous(at.as_key(), grant.client, grant.terms.label, effects);
        }
        let stays = grant.terms.mode.is_lock() && self.keeps_lock(key, replaced);
        let hold = match replaced {
            Some(replaced) => {
                self.record_hold_time(replaced);
                let record = &mut self.keys[key];
                self.holds
                    .transfer(record, &mut self.clients, replaced, grant);
                replaced
            }
            None => self.add_hold(key, grant),
        };
        if !stays {
            self.keys[key].set_timed(false);
            effects.push(making.effect(&self.keys, key, grant));
        }
        self.replicate_hold(hold, effects);
        self.start_ttl_backstop(key, effects);
        if let Some(name) = name {
            self.set_state(name, grant.terms.mode.key_state(), effects);
        }
        self.show(key, effects);
    }

    /// Whether the lock at a key stays as it is for the next holder. A TTL set by a client belongs to the living holders; without
    /// any the lock is created anew, so that the next holder does not inherit it.
    fn keeps_lock(&self, key: Id<HeldKey>, replaced: Option<Id<Hold>>) -> bool {
        let record = &self.keys[key];
        if !record.is_lock() || !record.is_timed() {
            return record.is_lock();
        }
        let mut living = self.living_holds(key);
        living.any(|hold| Some(hold) != replaced)
    }

    pub(in crate::engine) fn add_hold(&mut self, key: Id<HeldKey>, grant: &Grant<'_>) -> Id<Hold> {
        let (keys, clients) = (&mut self.keys, &mut self.clients);
        self.holds.add(keys, clients, &mut self.timers, key, grant)
    }

    /// Re-enters a hold on these terms.
    pub(in crate::engine) fn re_enter_hold(
        &mut self,
        hold: Id<Hold>,
        terms: &Terms<&[u8]>,
        effects: &mut Vec<Effect>,
    ) {
        self.holds.reenter(hold, terms.mode);
        self.notify_on_reentry(hold, terms.attributes.notify);
        let lease = terms.lease_from(self.now);
        if lease.is_some() {
            self.holds.set_lease(&mut self.timers, hold, lease);
        }
        self.replicate_hold(hold, effects);
    }

    /// The token of a grant. The first of an epoch is replicated, so that this server after a restart, or a promoted replica,
    /// continues above it.
    pub(in crate::engine) fn next_token(&mut self, effects: &mut Vec<Effect>) -> Token {
        self.totals.grants += 1;
        self.take_token(effects)
    }

    /// A token that was never given before.
    pub(in crate::engine) fn take_token(&mut self, effects: &mut Vec<Effect>) -> Token {
        let token = self.tokens.next();
        self.replicate_epoch(token, effects);
        token
    }

    /// Makes all later tokens greater than this one, on this server and its successors.
    pub(in crate::engine) fn know_token(
        &mut self,
        token: Token,
        effects: &mut Vec<Effect>,
    ) -> Token {
        self.tokens.apply(token);
        self.replicate_epoch(token, effects);
        token
    }

    fn replicate_epoch(&mut self, token: Token, effects: &mut Vec<Effect>) {
        if self.tokens.mark_replicated() {
            effects.push(Effect::ReplicateToken(token));
        }
    }

    /// The caller's record, inserted if there is none.
    pub(in crate::engine) fn client_record(
        &mut self,
        caller: ClientId,
        effects: &mut Vec<Effect>,
    ) -> Id<Client> {
        let (client, made) = self.clients.find_or_add(caller);
        if made {
            effects.push(Effect::EnablePush(caller));
        }
        client
    }

    /// Asks the shell to notice this connection's end, once.
    pub(in crate::engine) fn track_disconnect(
        &mut self,
        client: Id<Client>,
        effects: &mut Vec<Effect>,
    ) {
        let record = &mut self.clients[client];
        if !std::mem::replace(&mut record.disconnect_tracked, true) {
            effects.push(Effect::TrackDisconnect(record.id));
        }
    }
}
