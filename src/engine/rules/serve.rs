//! Handing keys over: whoever is first in line and can be granted what it asks for, is.

use crate::engine::Engine;
use crate::engine::effect::{Effect, News, Push};
use crate::engine::event::{Seen, Standing};
use crate::engine::rules::lifecycle::LOOKS;
use crate::engine::state::clients::Faded;
use crate::engine::state::holds::{Grant, Hold};
use crate::engine::state::keys::KeyRecord;
use crate::engine::state::queues::{Request, Waiter};
use crate::engine::state::tokens::Token;
use crate::engine::storage::arena::Id;
use crate::engine::storage::few::Few;
use crate::engine::types::{Key, KeyBuf, Moment};

impl Engine {
    /// Whether anybody waits for this key. O(1).
    pub fn has_waiters(&self, key: Key<'_>) -> bool {
        let key = self.keys.find(key);
        key.is_some_and(|key| !self.keys[key].queue.is_empty())
    }

    /// Whether anybody waits for any key. O(1).
    pub fn is_awaited(&self) -> bool {
        self.queues.len() > 0
    }

    /// Whether a request for these keys is answered at once, whoever asks: none is there, so none is held, and nobody waits
    /// for any. It may be no although it is so. O(keys).
    pub fn can_be_had_at_once(&self, keys: &[Seen<'_>]) -> bool {
        !self.is_awaited()
            && !self.quarantine.is_set()
            && keys.iter().all(|key| key.standing == Standing::Absent)
    }

    /// All keys that somebody waits for. O(keys known).
    pub fn keys_waited_for(&self) -> Vec<KeyBuf> {
        self.keys_with_queues()
            .map(|key| self.keys[key].key().to_owned())
            .collect()
    }

    /// Ends a hold and hands its key over in the same step; if nobody waits that can be served, the
    /// key goes with its last hold. O(1) for each that is served.
    pub(in crate::engine) fn release(&mut self, hold: Id<Hold>, effects: &mut Vec<Effect>) {
        if self.release_lone(hold, effects) || self.hand_over(hold, effects) {
            return;
        }
        let key = self.holds[hold].key;
        let freed = self.freed(hold);
        let (keys, clients) = (&mut self.keys, &mut self.clients);
        self.holds.remove(keys, clients, hold);
        let record = &mut self.keys[key];
        if let Some(freed) = freed
            && !(record.holds.is_empty() && record.queue.is_empty())
        {
            effects.push(Effect::Tell(Box::new(freed)));
        }
        if record.holds.is_empty() && record.stands() == Standing::Other {
            // A temporary key that has no owner any more: it is replaced or removed below.
            record.set_stands(Standing::Absent);
        }
        if self.serve(key, effects) {
            self.totals.handoffs += 1;
        }
        if self.keys[key].holds.is_empty() {
            self.keys[key].set_stands(Standing::Absent);
            match self.keys.remove_if_idle(key) {
                Some(name) => effects.push(Effect::Remove(name)),
                None => {
                    let name = self.keys[key].key().to_owned();
                    effects.push(Effect::Remove(name));
                    self.set_present(key, false, effects);
                }
            }
        }
    }

    /// Serves a key's queue from its head as far as it can be, and says whether anyone was served.
    pub(in crate::engine) fn serve(
        &mut self,
        key: Id<KeyRecord>,
        effects: &mut Vec<Effect>,
    ) -> bool {
        if self.is_quarantined() {
            self.make_ready(key);
            return false;
        }
        let mut served = false;
        let mut looks = LOOKS;
        while let Some(waiter) = self.first_in_line(key, &mut looks) {
            self.end_flushes_for(waiter, effects);
            self.clear_lines_of(waiter, key, &mut looks);
            if !self.can_serve(waiter) {
                break;
            }
            if self.queues.is_doubted(waiter) {
                self.make_ready(key);
                break;
            }
            self.grant(waiter, effects);
            served = true;
        }
        served
    }

    /// Lets places of ended connections keep nobody waiting who is first in line for this key and asks for others, too.
    fn clear_lines_of(&mut self, waiter: Id<Waiter>, key: Id<KeyRecord>, looks: &mut usize) {
        if !self.is_fading() {
            return;
        }
        let asked: Few<_> = self.queues.keys_of(waiter).collect();
        for other in asked.iter().filter(|other| **other != key) {
            self.first_in_line(*other, looks);
            self.make_ready(*other);
        }
    }

    /// Has the key's queue served as soon as the keyspace may be written. O(1).
    pub(in crate::engine) fn make_ready(&mut self, key: Id<KeyRecord>) {
        let record = &mut self.keys[key];
        if !record.queue.is_empty() && !record.is_ready() {
            record.set_ready(true);
            self.ready.push_back(key);
        }
    }

    /// Whether there are queues that can be served, as far as is known.
    pub(in crate::engine) fn is_any_ready(&self, now: Moment) -> bool {
        !self.ready.is_empty() && self.quarantine_left_ms(now) == 0
    }

    /// The first of the keys whose queues are about to be served, so many at most. O(that many).
    pub fn keys_about_to_be_served(&self, most: usize) -> Vec<KeyBuf> {
        let first = self.ready.iter().take(most);
        first.map(|key| self.keys[*key].key().to_owned()).collect()
    }

    /// Serves up to so many of the queues that are ready.
    pub(in crate::engine) fn serve_ready(&mut self, most: usize, effects: &mut Vec<Effect>) {
        if self.is_quarantined() {
            return;
        }
        let mut doubted = 0;
        for _ in 0..most {
            let Some(key) = self.ready.pop_front() else {
                return;
            };
            self.keys[key].set_ready(false);
            let served = self.serve(key, effects);
            if !served && self.keys[key].is_ready() {
                // Whoever is first there is in doubt.
                doubted += 1;
                if doubted >= self.ready.len() {
                    return;
                }
            }
            self.keys.remove_if_idle(key);
        }
    }

    /// Takes the last place in each of these queues.
    pub(in crate::engine) fn enqueue(
        &mut self,
        asked: &[Id<KeyRecord>],
        request: &Request<'_>,
    ) -> Id<Waiter> {
        let (keys, clients) = (&mut self.keys, &mut self.clients);
        self.queues.add(keys, clients, asked, request)
    }

    /// Leaves all queues, those of these keys.
    pub(in crate::engine) fn dequeue(
        &mut self,
        waiter: Id<Waiter>,
    ) -> (Few<Id<KeyRecord>>, Waiter) {
        let asked: Few<_> = self.queues.keys_of(waiter).collect();
        let (keys, clients) = (&mut self.keys, &mut self.clients);
        let waiter = self.queues.remove(keys, clients, waiter);
        if clients[waiter.client].ended {
            let (waits, watches) = (1, 0);
            clients.fade(waiter.client, Faded { waits, watches });
        }
        (asked, waiter)
    }

    /// Whether a waiter is first in line for each of its keys, and all of them can be had.
    fn can_serve(&self, waiter: Id<Waiter>) -> bool {
        self.queues.keys_of(waiter).all(|key| {
            self.queues.head(&self.keys, key) == Some(waiter)
                && !self.keys[key].is_taken_by_a_stranger()
                && self.can_have(waiter, key)
        })
    }

    /// Whether a key's holders let the waiter hold it, too. Is its owner one of them (two of its
    /// requests have waited, or what it held came to go by this name), then if it can make its hold deeper.
    fn can_have(&self, waiter: Id<Waiter>, key: Id<KeyRecord>) -> bool {
        let Some(first) = self.keys[key].holds.head() else {
            return true;
        };
        let Waiter {
            client,
            label,
            mode,
            attributes,
            ..
        } = &self.queues[waiter];
        let owner = self.clients.owner(*client);
        // Mostly somebody else holds the key alone: whoever was served right before.
        let held = self.holds.mode(first);
        if !held.goes_with(held) && self.holds[first].client != owner {
            return false;
        }
        match self.holds.find(&self.keys, key, owner, label) {
            Some(own) => {
                let may_again =
                    attributes.reentrant && self.holds[own].nature.attributes().reentrant;
                let deepens = self.holds.mode(own).deepens_as(*mode);
                may_again && deepens && self.queues.asks_for_one(waiter)
            }
            None => self.holds.admit(&self.keys, key, *mode),
        }
    }

    fn grant(&mut self, waiter: Id<Waiter>, effects: &mut Vec<Effect>) {
        let (asked, mut waiter) = self.dequeue(waiter);
        let token = self.token_for(&waiter, &asked, effects);
        self.waits.note(self.now.us_since(waiter.since));
        for key in &*asked {
            self.grant_key(*key, &mut waiter, token, effects);
            if asked.len() > 1 {
                // The owner's next request for this one alone can make its hold deeper.
                self.make_ready(*key);
            }
        }
        self.tell_granted(asked[0], &waiter, token, effects);
    }

    /// Tells a waiter that it was granted what it asked for; `key` is the first of its keys.
    pub(in crate::engine) fn tell_granted(
        &self,
        key: Id<KeyRecord>,
        waiter: &Waiter,
        token: Token,
        effects: &mut Vec<Effect>,
    ) {
        let client = self.clients[waiter.client].id;
        if waiter.push {
            let key = self.keys[key].key().to_owned();
            let news = News::Granted(waiter.form.kind(), token);
            let push = Push::new(key, news, &waiter.label);
            let to = vec![client];
            effects.push(Effect::Push { to, push });
        } else {
            let reply = waiter.form.granted(token);
            effects.push(Effect::Answer {
                client,
                reply,
                granted: Some(token),
            });
        }
    }

    /// A new token; or the one of the hold that is deepened, where two requests of one owner waited.
    fn token_for(
        &mut self,
        waiter: &Waiter,
        asked: &[Id<KeyRecord>],
        effects: &mut Vec<Effect>,
    ) -> Token {
        let own = asked.first().and_then(|key| {
            let owner = self.clients.owner(waiter.client);
            self.holds.find(&self.keys, *key, owner, &waiter.label)
        });
        match own {
            Some(hold) => self.holds[hold].token,
            None => self.next_token(effects),
        }
    }

    fn grant_key(
        &mut self,
        key: Id<KeyRecord>,
        waiter: &mut Waiter,
        token: Token,
        effects: &mut Vec<Effect>,
    ) {
        let (client, label) = (self.clients.owner(waiter.client), &waiter.label);
        let lease = waiter.lease_ms.map(|ms| self.now.after_ms(ms));
        // Two requests of the same readers' or permits' owner can have waited.
        if let Some(hold) = self.holds.find(&self.keys, key, client, label) {
            self.holds.deepen(hold, waiter.mode);
            self.deepen_notice(hold, waiter.attributes.notify);
            if lease.is_some() {
                self.holds.set_lease(hold, lease);
            }
            self.tell_held(hold, effects);
            return;
        }
        let grant = Grant {
            client,
            label,
            mode: waiter.mode,
            attributes: waiter.attributes,
            token,
            since: self.now,
            lease,
        };
        // Beside others the lock is theirs, and so is the time to live that somebody may have given it.
        let is_living = |hold: Id<Hold>| !self.clients[self.holds[hold].client].ended;
        let record = &self.keys[key];
        let goes = record.is_timed() && !self.holds.of_key(&self.keys, key).any(is_living);
        let (hold, stood) = self.write_down(key, &grant);
        let stays = stood == Standing::Lock && !goes;
        if !stays {
            self.keys[key].set_timed(false);
        }
        if !waiter.mode.is_lock() {
            // There is only this one key.
            let value = std::mem::take(&mut waiter.value);
            let key = self.keys[key].key().to_owned();
            effects.push(Effect::Make { key, value });
        } else if !stays {
            let key = self.keys[key].key().to_owned();
            effects.push(Effect::MakeLock { key });
        }
        self.tell_held(hold, effects);
        self.back_up(key, effects);
        self.set_present(key, true, effects);
    }
}
