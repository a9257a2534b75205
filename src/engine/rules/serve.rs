//! Handing keys over: whoever is first in line and can be granted what it asks for, is.

use crate::engine::effect::{Effect, WaitEnd};
use crate::engine::event::KeySnapshot;
use crate::engine::limits::LOOKS_PER_COMMAND;
use crate::engine::rules::grant::Making;
use crate::engine::state::clients::Faded;
use crate::engine::state::holds::Grant;
use crate::engine::state::queues::Request;
use crate::engine::state::rows::{Asker, HeldKey, Hold, Name, Waiter};
use crate::engine::storage::arena::Id;
use crate::engine::storage::few::Few;
use crate::engine::tables::Engine;
use crate::engine::types::{Key, KeyBuf, KeyState, Moment, Token};

impl Engine {
    /// Whether anybody waits for this key. O(1).
    pub fn has_waiters(&self, key: Key<'_>) -> bool {
        let name = self.keys.find_name(key);
        name.is_some_and(|name| !self.keys[name].queue.is_empty())
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

    /// All keys that somebody waits for. O(names known).
    pub(in crate::engine) fn keys_waited_for(&self) -> Vec<KeyBuf> {
        let queued = self.keys.all_names();
        let queued = queued.filter(|(_, name)| !name.queue.is_empty());
        queued.map(|(_, name)| name.key().to_owned()).collect()
    }

    /// Ends a hold and hands its key over in the same step; if nobody waits that can be served, the
    /// key goes with its last hold. O(1) for each that is served.
    pub(in crate::engine) fn release(&mut self, hold: Id<Hold>, effects: &mut Vec<Effect>) {
        let key = self.holds[hold].key;
        let Some(name) = self.name_of(key, effects) else {
            return self.release_unawaited(hold, effects);
        };
        let freed = self.freed(hold);
        let heir = self.heir(name, hold);
        if heir.is_none() {
            let (keys, clients) = (&mut self.keys, &mut self.clients);
            self.holds.remove(keys, clients, &mut self.timers, hold);
        }
        if let Some(freed) = freed
            && !(self.keys[key].holds.is_empty() && self.keys[name].queue.is_empty())
        {
            effects.push(Effect::Replicate(freed));
        }
        if let Some(heir) = heir {
            self.grant(heir, name, Some(hold), effects);
        }
        let others = self.limits.together - usize::from(heir.is_some());
        if self.serve(name, others, effects) > 0 || heir.is_some() {
            self.totals.handoffs += 1;
        }
        if self.keys[key].holds.is_empty() {
            self.remove(key, effects);
            self.set_standing(name, KeyState::Absent, effects);
        }
        self.keys.remove_name_if_idle(name);
    }

    /// The same where nobody watches the key or waits for it.
    fn release_unawaited(&mut self, hold: Id<Hold>, effects: &mut Vec<Effect>) {
        let key = self.holds[hold].key;
        if self.holds.is_plain_and_alone(&self.keys[key], hold) {
            self.holds.remove_alone(&mut self.clients, hold);
            return self.remove(key, effects);
        }
        let freed = self.freed(hold);
        let (keys, clients) = (&mut self.keys, &mut self.clients);
        self.holds.remove(keys, clients, &mut self.timers, hold);
        if self.keys[key].holds.is_empty() {
            self.remove(key, effects);
        } else if let Some(freed) = freed {
            effects.push(Effect::Replicate(freed));
        }
    }

    /// A key goes with its last hold. O(1).
    fn remove(&mut self, key: Id<HeldKey>, effects: &mut Vec<Effect>) {
        let (db, name) = self.keys.remove_held(key);
        effects.push(Effect::Remove(KeyBuf { db, name }));
    }

    /// Who is served next at this name when this hold ends, if it can have that in its owner's place: both are plain, and nobody
    /// else holds the key. O(1).
    fn heir(&self, name: Id<Name>, hold: Id<Hold>) -> Option<Id<Waiter>> {
        let id = self.queues.head(&self.keys, name)?;
        let waiter = &self.queues[id];
        let key = self.holds[hold].key;
        let is_heir = self.holds.is_plain_and_alone(&self.keys[key], hold)
            && waiter.terms.is_plain()
            && self.queues.asks_for_one(id)
            && !self.is_quarantined()
            && !self.is_faded(id)
            && !self.queues.is_doubted(id);
        is_heir.then_some(id)
    }

    /// Serves a name's queue from its head as far as it can be, so many waiters at most, and says how many were served.
    /// Others who can be served follow as soon as the keyspace may be written: nobody passes them. The name stays.
    #[inline]
    pub(in crate::engine) fn serve(
        &mut self,
        name: Id<Name>,
        most: usize,
        effects: &mut Vec<Effect>,
    ) -> usize {
        match self.is_shut(name) {
            true => 0,
            false => self.serve_queue(name, most, effects),
        }
    }

    /// Whether nobody waits here, or somebody holds the key alone: mostly who was served right before. O(1).
    #[inline]
    fn is_shut(&self, name: Id<Name>) -> bool {
        let is_alone = |held: Id<HeldKey>| self.keys[held].held().is_alone();
        self.keys[name].queue.is_empty()
            || !self.is_fading() && self.keys.held_at(name).is_some_and(is_alone)
    }

    fn serve_queue(&mut self, name: Id<Name>, most: usize, effects: &mut Vec<Effect>) -> usize {
        if self.is_quarantined() {
            self.make_ready(name);
            return 0;
        }
        let (mut served, mut refused) = (0, 0);
        let mut looks = LOOKS_PER_COMMAND;
        while let Some(waiter) = self.first_in_line(name, &mut looks) {
            self.refresh_for(waiter, effects);
            if self.is_fading() {
                self.clear_lines_of(waiter, name, &mut looks);
            }
            if !self.can_serve(waiter) {
                break;
            }
            let is_later = self.has_granted_enough() && !self.queues.asks_for_one(waiter);
            if served + refused == most || is_later || self.queues.is_doubted(waiter) {
                self.make_ready(name);
                break;
            }
            if self.queues[waiter].terms.acks.is_some()
                && self.refuse_unacked(waiter, name, effects)
            {
                refused += 1;
                continue;
            }
            self.grant(waiter, name, None, effects);
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
    fn clear_lines_of(&mut self, waiter: Id<Waiter>, name: Id<Name>, looks: &mut usize) {
        let asked: Few<_> = self.queues.names_of(waiter).collect();
        for other in asked.iter().filter(|other| **other != name) {
            self.first_in_line(*other, looks);
            self.make_ready(*other);
        }
    }

    /// Has the name's queue served as soon as the keyspace may be written. O(1).
    pub(in crate::engine) fn make_ready(&mut self, name: Id<Name>) {
        let record = &mut self.keys[name];
        if !record.queue.is_empty() && !record.is_ready() {
            record.set_ready(true);
            self.ready.push_back(name);
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
        let over = over.filter_map(|hold| self.keys.name_of(self.holds[hold].key));
        let names = self.ready.iter().take(most).copied().chain(over);
        let names = names.map(|name| &self.keys[name]);
        let awaited = names.filter(|name| !name.queue.is_empty());
        awaited.map(|name| name.key().to_owned()).collect()
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
            let Some(name) = self.ready.pop_front() else {
                return;
            };
            self.keys[name].set_ready(false);
            self.refresh(name, effects);
            let served = self.serve(name, left, effects);
            left -= served;
            if served == 0 && self.keys[name].is_ready() {
                // Whoever is first there is in doubt.
                doubted += 1;
                if doubted >= self.ready.len() {
                    return;
                }
            }
            self.keys.remove_name_if_idle(name);
        }
    }

    /// Takes the last place in each of these queues.
    pub(in crate::engine) fn enqueue(
        &mut self,
        asked: &[Id<Name>],
        request: &Request<'_>,
    ) -> Id<Waiter> {
        let (keys, clients) = (&mut self.keys, &mut self.clients);
        self.queues
            .add(keys, clients, &mut self.timers, asked, request)
    }

    /// Leaves all queues, those of these keys.
    pub(in crate::engine) fn dequeue(&mut self, waiter: Id<Waiter>) -> (Few<Id<Name>>, Waiter) {
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

    /// Somebody has left the queues of these names. To the name `but` the caller sees itself.
    pub(in crate::engine) fn look_behind(&mut self, left: &[Id<Name>], but: Option<Id<Name>>) {
        for name in left.iter().filter(|name| Some(**name) != but) {
            self.make_ready(*name);
            self.keys.remove_name_if_idle(*name);
        }
    }

    /// Whether a waiter is first in line for each of its keys, and all of them can be had.
    fn can_serve(&self, waiter: Id<Waiter>) -> bool {
        self.queues.names_of(waiter).all(|name| {
            self.queues.head(&self.keys, name) == Some(waiter)
                && match self.keys.held_at(name) {
                    Some(key) => self.can_have(waiter, key),
                    None => !self.is_unmanaged(name),
                }
        })
    }

    /// Whether a key's holders let the waiter hold it, too. Its owner can be one of them, if what it held came to go by this
    /// name: then it waits for its own release.
    fn can_have(&self, waiter: Id<Waiter>, key: Id<HeldKey>) -> bool {
        let Waiter { client, terms, .. } = &self.queues[waiter];
        let owner = self.clients.owner(*client);
        self.holds.admit(&self.keys, key, terms.mode)
            && self
                .holds
                .find(&self.keys, key, owner, &terms.label)
                .is_none()
    }

    /// Grants a waiter what it asks for, at this name and others, which are forgotten if they are idle then; in the place of the
    /// hold `former`, see [`grant_key`](Self::grant_key).
    fn grant(
        &mut self,
        waiter: Id<Waiter>,
        at: Id<Name>,
        former: Option<Id<Hold>>,
        effects: &mut Vec<Effect>,
    ) {
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
        for name in &*asked {
            let making = Making::ByName(std::mem::take(&mut value));
            let key = match former {
                Some(former) => self.holds[former].key,
                None => self.keys.hold_at(*name),
            };
            self.grant_key(key, Some(*name), &grant, making, former, effects);
        }
        if asked.len() > 1 {
            self.several_granted += asked.len();
        }
        if terms.acks.is_none() {
            self.notify_granted(asked[0], &waiter, token, effects);
        }
        for name in asked.iter().filter(|name| **name != at) {
            self.keys.remove_name_if_idle(*name);
        }
    }

    /// Tells a waiter that it was granted what it asked for; `name` is the first of its keys.
    fn notify_granted(
        &self,
        name: Id<Name>,
        waiter: &Waiter,
        token: Token,
        effects: &mut Vec<Effect>,
    ) {
        let key = || (self.keys[name].key().to_owned(), &*waiter.terms.label);
        let about = waiter.reply_to.push.then(key);
        effects.push(WaitEnd::Granted(token).told(waiter.reply_to, about));
    }
}
