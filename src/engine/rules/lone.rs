//! The common case by the shortest way: a key of which nothing is known but its one holder.
//!
//! Nobody watches it or waits for it, and nobody else holds it; so what becomes of it matters to its owner alone. What is
//! done here is what the longer ways would come to, which ask for all that cannot be.

use crate::engine::Engine;
use crate::engine::effect::{Effect, Loss};
use crate::engine::event::{Acquire, Hand, Seen, Standing};
use crate::engine::state::holds::{Grant, Hold};
use crate::engine::state::keys::KeyRecord;
use crate::engine::state::tokens::Token;
use crate::engine::storage::arena::Id;
use crate::engine::types::KeyBuf;

impl Engine {
    /// Grants a key that is not there and that nobody knows to who asks for nothing special. Nothing if that is not so, or
    /// must be refused. O(1).
    pub(in crate::engine) fn grant_unknown(
        &mut self,
        ask: &Acquire<'_>,
        effects: &mut Vec<Effect>,
    ) -> Option<Token> {
        let &[Seen { key, standing }] = ask.seen else {
            return None;
        };
        if standing != Standing::Absent || !ask.is_plain() || self.quarantine.is_set() {
            return None;
        }
        let spot = self.keys.spot(key);
        if spot.found.is_some() {
            return None;
        }
        let client = self.attend(ask.client, effects);
        self.check_room(client, 1).ok()?;
        let grant = Grant {
            client: self.clients.owner(client),
            label: b"",
            mode: ask.mode,
            attributes: ask.attributes,
            token: self.next_token(effects),
            since: self.now,
            lease: None,
        };
        let id = self.keys.fill(spot, key, ask.mode.stands());
        let hold = self
            .holds
            .add(&mut self.keys, &mut self.clients, id, &grant);
        effects.push(ask.make(key));
        self.tell_held(hold, effects);
        self.back_up(id, effects);
        self.guard(client, effects);
        Some(grant.token)
    }

    /// The only hold of a key of which nothing else is known, if that is so and the hold is a plain one. O(1).
    fn lone_hold(&self, key: Id<KeyRecord>) -> Option<Id<Hold>> {
        let record = &self.keys[key];
        let is_quiet = record.watchers.is_empty() && record.queue.is_empty() && !record.is_ready();
        let hold = record.holds.head().filter(|_| is_quiet)?;
        self.holds.is_lone(record, hold).then_some(hold)
    }

    /// Ends such a hold, and forgets its key. O(1).
    fn end_lone(&mut self, key: Id<KeyRecord>, hold: Id<Hold>) -> KeyBuf {
        self.holds.remove_lone(&mut self.clients, hold);
        self.keys.remove(key)
    }

    /// Ends a hold if it is a lone one, and has its key removed. O(1).
    pub(in crate::engine) fn release_lone(
        &mut self,
        hold: Id<Hold>,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let key = self.holds[hold].key;
        if self.lone_hold(key).is_none() {
            return false;
        }
        let name = self.end_lone(key, hold);
        effects.push(Effect::Remove(name));
        true
    }

    /// Ends the hold of a key that has gone, if it is a lone one, and tells its owner of another's hand. O(1).
    pub(in crate::engine) fn lose_lone(
        &mut self,
        key: Id<KeyRecord>,
        by: Hand,
        why: Loss,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let Some(hold) = self.lone_hold(key) else {
            return false;
        };
        let client = self.holds[hold].client;
        if by != Hand::Client(self.clients[client].id) {
            self.tell_lost(hold, why, effects);
        }
        self.end_lone(key, hold);
        self.clients.forget_if_done(client);
        true
    }
}
