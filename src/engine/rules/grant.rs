//! The one grant: all that follows when somebody is granted a key, whatever led to it.

use crate::engine::effect::Effect;
use crate::engine::mode::Mode;
use crate::engine::state::holds::Grant;
use crate::engine::state::keys::Keys;
use crate::engine::state::rows::{Client, HeldKey, Hold, Name};
use crate::engine::storage::arena::Id;
use crate::engine::storage::bytes::Bytes;
use crate::engine::tables::Engine;
use crate::engine::terms::Terms;
use crate::engine::types::{ClientId, Token};

/// How a key is made when it is granted.
pub(in crate::engine) enum Making {
    /// By the current command, which has all that it takes.
    InCommand,
    /// By its name: as a temporary key with this value, or as a lock.
    ByName(Bytes),
}

impl Making {
    fn effect(self, keys: &Keys, key: Id<HeldKey>, mode: Mode) -> Effect {
        let key = || keys.key_of(key).to_owned();
        match self {
            Making::InCommand => Effect::CreateKey,
            Making::ByName(_) if mode.is_lock() => Effect::MakeLock { key: key() },
            Making::ByName(value) => Effect::Make { key: key(), value },
        }
    }
}

impl Engine {
    /// Grants one key: records the hold, and everything that follows from it. The key can be had: its holders, if there
    /// are any, are compatible with the new one. Where the new hold comes in place of the key's only other one, that is
    /// `former`, and both are plain. O(1), with a lease O(log of leases).
    pub(in crate::engine) fn grant_key(
        &mut self,
        key: Id<HeldKey>,
        name: Option<Id<Name>>,
        grant: &Grant<'_>,
        making: Making,
        former: Option<Id<Hold>>,
        effects: &mut Vec<Effect>,
    ) {
        if self.losses_told != self.losses_closed {
            let (key, token) = (self.keys.key_of(key).to_owned(), grant.token);
            effects.push(Effect::NextHolder { key, token });
        }
        if self.keys.has_retired() {
            let at = self.keys.key_of(key).to_owned();
            self.sweep_former(at.as_key(), grant.client, grant.terms.label, effects);
        }
        let stays = grant.terms.mode.is_lock() && self.has_lock_that_stays(key, former);
        let hold = match former {
            Some(former) => {
                let record = &mut self.keys[key];
                self.holds
                    .transfer(record, &mut self.clients, former, grant);
                former
            }
            None => self.write_down(key, grant),
        };
        if !stays {
            self.keys[key].set_timed(false);
            effects.push(making.effect(&self.keys, key, grant.terms.mode));
        }
        self.replicate_hold(hold, effects);
        self.back_up(key, effects);
        if let Some(name) = name {
            self.set_standing(name, grant.terms.mode.stands(), effects);
        }
    }

    /// Whether the lock that stands at a key can be the next holder's as it is. Beside living holders it is theirs, and so is
    /// the time to live that somebody may have given it; else it would not do to inherit that.
    fn has_lock_that_stays(&self, key: Id<HeldKey>, former: Option<Id<Hold>>) -> bool {
        let record = &self.keys[key];
        if !record.is_lock() || !record.is_timed() {
            return record.is_lock();
        }
        let mut living = self.living_holds(key);
        living.any(|hold| Some(hold) != former)
    }

    pub(in crate::engine) fn write_down(
        &mut self,
        key: Id<HeldKey>,
        grant: &Grant<'_>,
    ) -> Id<Hold> {
        let (keys, clients) = (&mut self.keys, &mut self.clients);
        self.holds.add(keys, clients, &mut self.timers, key, grant)
    }

    /// An owner that holds a lock is granted it once more, on these terms.
    pub(in crate::engine) fn re_enter_hold(
        &mut self,
        hold: Id<Hold>,
        terms: &Terms<&[u8]>,
        effects: &mut Vec<Effect>,
    ) {
        self.holds.reenter(hold, terms.mode);
        self.deepen_notice(hold, terms.attributes.notify);
        let lease = terms.lease_from(self.now);
        if lease.is_some() {
            self.holds.set_lease(&mut self.timers, hold, lease);
        }
        self.replicate_hold(hold, effects);
    }

    /// A grant's token. The first of an epoch is made known, so that whoever goes on after this
    /// server (itself started again, a replica) begins above it.
    pub(in crate::engine) fn next_token(&mut self, effects: &mut Vec<Effect>) -> Token {
        self.totals.grants += 1;
        self.take_token(effects)
    }

    /// A number that is nobody else's, ever.
    pub(in crate::engine) fn take_token(&mut self, effects: &mut Vec<Effect>) -> Token {
        let token = self.tokens.next();
        self.replicate_epoch(token, effects);
        token
    }

    /// All later tokens are greater than this one. Whoever goes on after this server begins above it.
    pub(in crate::engine) fn know_token(
        &mut self,
        token: Token,
        effects: &mut Vec<Effect>,
    ) -> Token {
        self.tokens.know(token);
        self.replicate_epoch(token, effects);
        token
    }

    fn replicate_epoch(&mut self, token: Token, effects: &mut Vec<Effect>) {
        if self.tokens.mark_replicated() {
            effects.push(Effect::ReplicateToken(token));
        }
    }

    /// The caller's record.
    pub(in crate::engine) fn attend(
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

    /// A connection's end matters from now on.
    pub(in crate::engine) fn guard(&mut self, client: Id<Client>, effects: &mut Vec<Effect>) {
        let record = &mut self.clients[client];
        if !std::mem::replace(&mut record.guarded, true) {
            effects.push(Effect::TrackDisconnect(record.id));
        }
    }
}
