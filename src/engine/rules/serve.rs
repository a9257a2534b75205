//! Handing keys over: whoever is first in line and can be granted what it asks for, is.

use crate::engine::effect::{Effect, WaitEnd};
use crate::engine::event::KeySnapshot;
use crate::engine::limits::LOOKS_PER_COMMAND;
use crate::engine::rules::grant::Making;
use crate::engine::state::clients::Faded;
use crate::engine::state::holds::Grant;
use crate::engine::state::queues::Request;
use crate::engine::state::rows::{Asker, Hold, KeyRecord, Waiter};
use crate::engine::storage::arena::Id;
use crate::engine::storage::few::Few;
use crate::engine::tables::Engine;
use crate::engine::types::{Key, KeyBuf, KeyState, Moment, Token};

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
    pub fn can_be_had_at_once(&self, keys: &[KeySnapshot<'_>]) -> bool {
        !self.is_awaited()
            && self.timers.quarantine().is_none()
            && keys.iter().all(|key| key.standing == KeyState::Absent)
    }

    /// All keys that somebody waits for. O(keys known).
    pub(in crate::engine) fn keys_waited_for(&self) -> Vec<KeyBuf> {
        self.keys_with_queues()
            .map(|key| self.keys[key].key().to_owned())
            .collect()
    }

    /// Ends a hold and hands its key over in the same step; if nobody waits that can be served, the
    /// key goes with its last hold. O(1) for each that is served.
    pub(in crate::engine) fn release(&mut self, hold: Id<Hold>, effects: &mut Vec<Effect>) {
        let key = self.holds[hold].key;
        if self.is_all_of(key, hold) {
            let name = self.end_with_key(hold);
            return effects.push(Effect::Remove(name));
        }
        // What is held is there.
        self.see(key, true, effects);
        let freed = self.freed(hold);
        let heir = self.heir(key, hold);
        if heir.is_none() {
            let (keys, clients) = (&mut self.keys, &mut self.clients);
            self.holds.remove(keys, clients, &mut self.timers, hold);
        }
        let record = &mut self.keys[key];
        if let Some(freed) = freed
            && !(record.holds.is_empty() && record.queue.is_empty())
        {
            effects.push(Effect::Replicate(freed));
        }
        if record.holds.is_empty() && record.stands() == KeyState::Other {
            // A temporary key that has no owner any more: it is replaced or removed below.
            record.set_stands(KeyState::Absent);
        }
        if let Some(heir) = heir {
            self.grant(heir, Some(hold), effects);
        }
        let others = self.limits.together - usize::from(heir.is_some());
        if self.serve(key, others, effects) > 0 || heir.is_some() {
            self.totals.handoffs += 1;
        }
        if self.keys[key].holds.is_empty() {
            self.keys[key].set_stands(KeyState::Absent);
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

    /// Whether a plain hold is all that is known of its key: nobody watches that, waits for it, or holds it besides. It may be
    /// no although it is so. O(1).
    #[inline]
    pub(in crate::engine) fn is_all_of(&self, key: Id<KeyRecord>, hold: Id<Hold>) -> bool {
        let record = &self.keys[key];
        !record.is_open() && !record.is_ready() && self.holds.is_plain_and_alone(record, hold)
    }

    /// Ends such a hold, and forgets its key. O(1).
    pub(in crate::engine) fn end_with_key(&mut self, hold: Id<Hold>) -> KeyBuf {
        let key = self.holds[hold].key;
        self.holds.remove_alone(&mut self.clients, hold);
        self.keys.remove(key)
    }

    /// Who is served next when this hold ends, if it can have that in its owner's place: both are plain, and nobody else
    /// holds the key. O(1).
    fn heir(&self, key: Id<KeyRecord>, hold: Id<Hold>) -> Option<Id<Waiter>> {
        let id = self.queues.head(&self.keys, key)?;
        let waiter = &self.queues[id];
        let is_heir = self.holds.is_plain_and_alone(&self.keys[key], hold)
            && waiter.terms.is_plain()
            && self.queues.asks_for_one(id)
            && !self.is_quarantined()
            && !self.is_faded(id)
            && !self.queues.is_doubted(id);
        is_heir.then_some(id)
    }

    /// Serves a key's queue from its head as far as it can be, so many waiters at most, and says how many were served.
    /// Others who can be served follow as soon as the keyspace may be written: nobody passes them.
    #[inline]
    pub(in crate::engine) fn serve(
        &mut self,
        key: Id<KeyRecord>,
        most: usize,
        effects: &mut Vec<Effect>,
    ) -> usize {
        match self.is_shut(key) {
            true => 0,
            false => self.serve_queue(key, most, effects),
        }
    }

    /// Whether nobody waits for this key, or somebody holds it alone: mostly who was served right before. O(1).
    #[inline]
    fn is_shut(&self, key: Id<KeyRecord>) -> bool {
        let record = &self.keys[key];
        record.queue.is_empty()
            || record.held().is_alone() && !self.is_fading() && !self.flushes.is_any()
    }

    fn serve_queue(&mut self, key: Id<KeyRecord>, most: usize, effects: &mut Vec<Effect>) -> usize {
        if self.is_quarantined() {
            self.make_ready(key);
            return 0;
        }
        let (mut served, mut refused) = (0, 0);
        let mut looks = LOOKS_PER_COMMAND;
        while let Some(waiter) = self.first_in_line(key, &mut looks) {
            self.end_flushes_for(waiter, effects);
            if self.is_fading() {
                self.clear_lines_of(waiter, key, &mut looks);
            }
            if !self.can_serve(waiter) {
                break;
            }
            let is_later = self.has_granted_enough() && !self.queues.asks_for_one(waiter);
            if served + refused == most || is_later || self.queues.is_doubted(waiter) {
                self.make_ready(key);
                break;
            }
            if self.queues[waiter].terms.acks.is_some() && self.refuse_unacked(waiter, key, effects)
            {
                refused += 1;
                continue;
            }
            self.grant(waiter, None, effects);
            served += 1;
        }
        served
    }

    /// Whether requests for several keys were granted as many in this step as they may. O(1).
    #[inline]
    pub(in crate::engine) fn has_granted_enough(&self) -> bool {
        self.several_granted >= self.limits.several
    }

    /// Lets places of ended connections keep nobody waiting who is first in line for this key and asks for others, too.
    fn clear_lines_of(&mut self, waiter: Id<Waiter>, key: Id<KeyRecord>, looks: &mut usize) {
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

    /// The keys whose queues the next [`Event::Work`](crate::engine::Event::Work) of so many may serve: those that are ready, and
    /// those whose holds are over by then. O(so many).
    pub fn keys_about_to_be_served(&self, now: Moment, most: usize) -> Vec<KeyBuf> {
        if !self.is_awaited() {
            return Vec::new();
        }
        let leases = self.timers.leases_until(now).take(most);
        let graces = self.timers.graces_until(now).take(most);
        let ended = graces.chain(self.clients.all_ended().take(most));
        let holds = ended.flat_map(|owner| self.holds.of_client(&self.clients, owner));
        let withdrawn = self.holds.acks.withdrawn().take(most);
        let over = leases.chain(holds.take(most)).chain(withdrawn);
        let over = over.map(|hold| self.holds[hold].key);
        let keys = self.ready.iter().take(most).copied().chain(over);
        let keys: Few<_> = keys
            .filter(|key| !self.keys[*key].queue.is_empty())
            .collect();
        keys.iter()
            .map(|key| self.keys[*key].key().to_owned())
            .collect()
    }

    /// Serves up to so many of the queues that are ready, and so many waiters in all.
    pub(in crate::engine) fn serve_ready(&mut self, most: usize, effects: &mut Vec<Effect>) {
        if self.is_quarantined() {
            return;
        }
        let mut doubted = 0;
        let mut left = most;
        for _ in 0..most {
            if left == 0 || self.has_granted_enough() {
                return;
            }
            let Some(key) = self.ready.pop_front() else {
                return;
            };
            self.keys[key].set_ready(false);
            let served = self.serve(key, left, effects);
            left -= served;
            if served == 0 && self.keys[key].is_ready() {
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
        self.queues
            .add(keys, clients, &mut self.timers, asked, request)
    }

    /// Leaves all queues, those of these keys.
    pub(in crate::engine) fn dequeue(
        &mut self,
        waiter: Id<Waiter>,
    ) -> (Few<Id<KeyRecord>>, Waiter) {
        let (keys, clients) = (&mut self.keys, &mut self.clients);
        let (asked, waiter) = self.queues.remove(keys, clients, &mut self.timers, waiter);
        if clients[waiter.client].ended {
            let (waits, watches) = (1, 0);
            clients.fade(waiter.client, Faded { waits, watches });
        }
        (asked, waiter)
    }

    /// Ends a wait; those behind it may be served now. O(places).
    pub(in crate::engine) fn leave_queues(&mut self, waiter: Id<Waiter>) -> Waiter {
        let (asked, waiter) = self.dequeue(waiter);
        self.look_behind(&asked, None);
        waiter
    }

    /// The same where nobody is told, and how many places that were.
    pub(in crate::engine) fn forget_wait(&mut self, waiter: Id<Waiter>) -> usize {
        let (asked, _) = self.dequeue(waiter);
        self.look_behind(&asked, None);
        asked.len()
    }

    /// Somebody has left the queues of these keys. To the key `but` the caller sees itself.
    pub(in crate::engine) fn look_behind(
        &mut self,
        left: &[Id<KeyRecord>],
        but: Option<Id<KeyRecord>>,
    ) {
        for key in left.iter().filter(|key| Some(**key) != but) {
            self.make_ready(*key);
            self.keys.remove_if_idle(*key);
        }
    }

    /// Whether a waiter is first in line for each of its keys, and all of them can be had.
    fn can_serve(&self, waiter: Id<Waiter>) -> bool {
        self.queues.keys_of(waiter).all(|key| {
            self.queues.head(&self.keys, key) == Some(waiter)
                && !self.keys[key].is_unmanaged()
                && self.can_have(waiter, key)
        })
    }

    /// Whether a key's holders let the waiter hold it, too. Its owner can be one of them, if what it held came to go by this
    /// name: then it waits for its own release.
    fn can_have(&self, waiter: Id<Waiter>, key: Id<KeyRecord>) -> bool {
        if self.keys[key].holds.is_empty() {
            return true;
        }
        let Waiter { client, terms, .. } = &self.queues[waiter];
        let owner = self.clients.owner(*client);
        self.holds.admit(&self.keys, key, terms.mode)
            && self
                .holds
                .find(&self.keys, key, owner, &terms.label)
                .is_none()
    }

    /// Grants a waiter what it asks for; in the place of the hold `former`, see [`grant_key`](Self::grant_key).
    fn grant(&mut self, waiter: Id<Waiter>, former: Option<Id<Hold>>, effects: &mut Vec<Effect>) {
        let (asked, mut waiter) = self.dequeue(waiter);
        let owner = self.clients.owner(waiter.client);
        self.waits.note(self.now.us_since(waiter.since));
        let terms = waiter.terms.borrowed();
        let token = self.next_token(effects);
        if let Some(acks) = terms.acks {
            let key = self.keys[asked[0]].key().to_owned();
            let asker = Asker::of(&waiter, key);
            self.begin_pending(token, acks, (asker, terms.lease_ms), effects);
        }
        let mut value = std::mem::take(&mut waiter.value);
        let grant = Grant {
            client: owner,
            terms,
            token,
            since: self.now,
        };
        for key in &*asked {
            let making = Making::ByName(std::mem::take(&mut value));
            self.grant_key(*key, &grant, making, former, effects);
        }
        if asked.len() > 1 {
            self.several_granted += asked.len();
        }
        if terms.acks.is_none() {
            self.notify_granted(asked[0], &waiter, token, effects);
        }
    }

    /// Tells a waiter that it was granted what it asked for; `key` is the first of its keys.
    fn notify_granted(
        &self,
        key: Id<KeyRecord>,
        waiter: &Waiter,
        token: Token,
        effects: &mut Vec<Effect>,
    ) {
        let key = || (self.keys[key].key().to_owned(), &*waiter.terms.label);
        let about = waiter.reply_to.push.then(key);
        effects.push(WaitEnd::Granted(token).told(waiter.reply_to, about));
    }
}
