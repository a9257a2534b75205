//! What commands ask for. Each is answered by exactly one [`Effect::Reply`].

use super::Engine;
use super::arena::Id;
use super::clients::Client;
use super::effect::{Effect, Refusal, Reply};
use super::event::{Hand, Seen};
use super::id::{ClientId, Key};

impl Engine {
    pub(super) fn settp(&mut self, client: ClientId, seen: Seen<'_>, effects: &mut Vec<Effect>) {
        let limit = self.limits.keys_per_client;
        let found = self.keys.find(seen.key);
        let holder = found.and_then(|key| self.holds.holder(&self.keys, key));
        let left_behind = holder.is_some_and(|client| self.clients[client].ended);
        if seen.present && !left_behind {
            effects.push(Effect::Reply(Reply::Integer(0)));
            return;
        }
        let client = self.attend(client, effects);
        if self.clients[client].hold_count >= limit {
            effects.push(Effect::Reply(Reply::Refused(Refusal::TooManyKeys {
                limit,
            })));
            return;
        }
        match found {
            Some(key) if left_behind => self.remove_left_behind(key, effects),
            // Another module can take a key away without an event.
            Some(key) => self.lose(key, Hand::Nobody, effects),
            None => {}
        }
        let key = self.keys.find_or_add(seen.key, false);
        self.holds
            .add(&mut self.keys, &mut self.clients, key, client);
        if !std::mem::replace(&mut self.clients[client].guarded, true) {
            effects.push(Effect::Guard(self.clients[client].id));
        }
        effects.push(Effect::Make);
        effects.push(Effect::Reply(Reply::Integer(1)));
    }

    pub(super) fn watch(&mut self, client: ClientId, seen: &[Seen<'_>], effects: &mut Vec<Effect>) {
        let client = self.attend(client, effects);
        if !self.may_watch(client, seen) {
            let limit = self.limits.watches_per_client;
            effects.push(Effect::Reply(Reply::Refused(Refusal::TooManyWatches {
                limit,
            })));
            return;
        }
        for seen in seen {
            let key = self.keys.find_or_add(seen.key, seen.present);
            // What the look says now can be news to those who watched before: a replica hides a
            // key whose time has come before the master's DEL for it arrives.
            self.set_present(key, seen.present, effects);
            if !self.watches.has(&self.keys, key, client) {
                self.watches
                    .add(&mut self.keys, &mut self.clients, key, client);
            }
        }
        let states = seen.iter().map(|seen| seen.present).collect();
        effects.push(Effect::Reply(Reply::States(states)));
    }

    pub(super) fn unwatch(
        &mut self,
        client: ClientId,
        keys: &[Key<'_>],
        effects: &mut Vec<Effect>,
    ) {
        let mut removed = 0;
        if let Some(client) = self.clients.find(client) {
            for key in keys {
                let Some(key) = self.keys.find(*key) else {
                    continue;
                };
                let watches = &mut self.watches;
                removed +=
                    i64::from(watches.remove(&mut self.keys, &mut self.clients, key, client));
            }
        }
        effects.push(Effect::Reply(Reply::Integer(removed)));
    }

    pub(super) fn unwatch_all(&mut self, client: ClientId, effects: &mut Vec<Effect>) {
        let removed = self.clients.find(client).map_or(0, |client| {
            self.watches
                .remove_all(&mut self.keys, &mut self.clients, client)
        });
        effects.push(Effect::Reply(Reply::Integer(i64::from(removed))));
    }

    /// The caller's record.
    fn attend(&mut self, caller: ClientId, effects: &mut Vec<Effect>) -> Id<Client> {
        let (client, made) = self.clients.find_or_add(caller);
        if made {
            effects.push(Effect::Attend(caller));
        }
        client
    }

    /// Whether all of these watches fit under the limit; keys already watched or repeated count once.
    fn may_watch(&self, client: Id<Client>, seen: &[Seen<'_>]) -> bool {
        let room = self.limits.watches_per_client
            - self
                .limits
                .watches_per_client
                .min(self.clients[client].watch_count);
        let room = room as usize;
        if seen.len() <= room {
            return true;
        }
        let mut new: Vec<_> = seen
            .iter()
            .map(|seen| seen.key)
            .filter(|key| {
                let watched = self.keys.find(*key);
                !watched.is_some_and(|key| self.watches.has(&self.keys, key, client))
            })
            .collect();
        new.sort_unstable();
        new.dedup();
        new.len() <= room
    }
}
