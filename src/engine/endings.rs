//! Connections that are no more.
//!
//! What an ended connection held is removed a slice at a time, so that a connection with a million
//! keys does not stop everyone else; until its turn comes such a key is *left behind*: it is still
//! in the keyspace, but it refuses nobody. Removals wait while the server must not write.

use super::Engine;
use super::arena::Id;
use super::effect::Effect;
use super::id::ClientId;
use super::keys::KeyRecord;

impl Engine {
    pub(super) fn ended(&mut self, client: ClientId) {
        let Some(client) = self.clients.find(client) else {
            return;
        };
        self.watches
            .remove_all(&mut self.keys, &mut self.clients, client);
        self.clients.end(client);
    }

    pub(super) fn work(&mut self, most: usize, effects: &mut Vec<Effect>) {
        for _ in 0..most {
            let Some(client) = self.clients.first_ended() else {
                return;
            };
            let key = self.holds.first_of(&self.clients, client);
            self.remove_left_behind(
                key.expect("an ended connection is kept for what it holds"),
                effects,
            );
        }
    }

    /// Removes a key whose owner has ended.
    pub(super) fn remove_left_behind(&mut self, key: Id<KeyRecord>, effects: &mut Vec<Effect>) {
        let client = self.holds.remove(&mut self.keys, &mut self.clients, key);
        let name = match self.keys.remove_if_idle(key) {
            Some(name) => name,
            None => self.keys[key].key().to_owned(),
        };
        effects.push(Effect::Remove(name));
        self.totals.keys_removed_by_disconnect += 1;
        self.clients
            .forget_if_done(client.expect("a key left behind has a holder"));
    }
}
