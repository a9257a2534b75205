//! Handing keys over: the waiter at the head of the queue is granted its keys as soon as all of them are free.

use crate::engine::effect::{Effect, Gone, Refusal, WaitEnd};
use crate::engine::event::KeySnapshot;
use crate::engine::limits::STEPS_PER_GRANT;
use crate::engine::rules::grant::Making;
use crate::engine::state::holds::Grant;
use crate::engine::state::queues::Request;
use crate::engine::state::rows::{Client, HeldKey, Hold, Name, Waiter};
use crate::engine::storage::arena::Id;
use crate::engine::storage::few::Few;
use crate::engine::tables::Engine;
use crate::engine::types::{Key, KeyBuf, KeyState, Moment, Token};
use hashbrown::HashSet;

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

    /// Whether a request for these keys is granted at once, whoever the client is: no key exists, and nobody waits. May return
    /// false negatives. O(keys).
    pub fn is_uncontended(&self, keys: &[KeySnapshot<'_>]) -> bool {
        !self.is_awaited()
            && self.timers.quarantine.is_none()
            && keys.iter().all(|key| key.state == KeyState::Absent)
    }

    /// All keys with a queue. O(names).
    pub(in crate::engine) fn keys_waited_for(&self) -> Vec<KeyBuf> {
        let queued = self.keys.all_names();
        let queued = queued.filter(|(_, name)| !name.queue.is_empty());
        queued.map(|(_, name)| name.key().to_owned()).collect()
    }

    /// Keys that somebody waits for and nobody holds, which only a request for several keys leaves so. O(names) while there is one.
    pub fn free_keys_waited_for(&self) -> Vec<KeyBuf> {
        if self.queues.places() == self.queues.len() {
            return Vec::new();
        }
        let names = self.keys.all_names();
        let is_free = |id| self.keys.held_at(id).is_none();
        let free = names.filter(|(id, name)| !name.queue.is_empty() && is_free(*id));
        free.map(|(_, name)| name.key().to_owned()).collect()
    }

    /// Ends a hold and hands its key over in the same step; if no waiter can be served, the key is deleted with its last hold.
    /// O(1) per waiter served: the first one always, those who share the key with it within the budget.
    /// `why` is for those who watch prefixes.
    pub(in crate::engine) fn release(
        &mut self,
        hold: Id<Hold>,
        why: Gone,
        effects: &mut Vec<Effect>,
    ) {
        let key = self.holds[hold].key;
        let shown = self.shown_token(key);
        let Some(name) = self.name_of(key, effects) else {
            return self.release_unawaited(hold, (shown, why), effects);
        };
        let (freed, grants) = (self.freed(hold), self.totals.grants);
        let next_waiter = self.next_waiter(name, hold);
        if next_waiter.is_none() {
            self.remove_hold(hold);
        }
        if let Some(freed) = freed
            && !(self.keys[key].holds.is_empty() && self.keys[name].queue.is_empty())
        {
            effects.push(Effect::Replicate(freed));
        }
        if let Some(next_waiter) = next_waiter {
            self.grant(next_waiter, name, Some(hold), effects);
        }
        let most = self.limits.compatible_grants_per_event;
        let most = most.min(self.budget.left().max(1));
        let first = usize::from(next_waiter.is_some());
        let served = first + self.serve(name, most - first, effects);
        self.budget.spend(served.saturating_sub(1));
        self.totals.handoffs += u64::from(self.totals.grants > grants);
        self.hide_if_ended(key, shown, why, effects);
        if self.keys[key].holds.is_empty() {
            self.remove(key, effects);
            self.set_state(name, KeyState::Absent, effects);
        }
        self.keys.remove_name_if_unreferenced(name);
    }

    /// The same for a key without watchers and waiters.
    fn release_unawaited(
        &mut self,
        hold: Id<Hold>,
        (shown, why): (Option<Token>, Gone),
        effects: &mut Vec<Effect>,
    ) {
        let key = self.holds[hold].key;
        if self.holds.is_plain_and_only(&self.keys[key], hold) {
            if let Some(token) = shown {
                self.hide(key, token, why, effects);
            }
            self.record_hold_time(hold);
            self.holds.remove_plain(&mut self.clients, hold);
            return self.remove(key, effects);
        }
        let freed = self.freed(hold);
        self.remove_hold(hold);
        self.hide_if_ended(key, shown, why, effects);
        if self.keys[key].holds.is_empty() {
            self.remove(key, effects);
        } else if let Some(freed) = freed {
            effects.push(Effect::Replicate(freed));
        }
    }

    /// Ends a hold, and nothing that follows from that.
    #[inline]
    pub(in crate::engine) fn remove_hold(&mut self, hold: Id<Hold>) {
        self.record_hold_time(hold);
        let (keys, clients) = (&mut self.keys, &mut self.clients);
        self.holds.remove(keys, clients, &mut self.timers, hold);
    }

    /// Counts the time of a hold that ends. A replica counts none, and of another server's holds the beginning is not known.
    #[inline]
    pub(in crate::engine) fn record_hold_time(&mut self, hold: Id<Hold>) {
        let Hold { client, header, .. } = self.holds[hold];
        if !self.is_replica && !self.clients.is_foreign(client) {
            let held_ms = header.since().held_ms(self.now);
            self.hold_times.record(held_ms * 1000);
        }
    }

    /// Removes the record of a key without holds, and deletes the key. O(1).
    fn remove(&mut self, key: Id<HeldKey>, effects: &mut Vec<Effect>) {
        let (db, name) = self.keys.remove_held(key);
        effects.push(Effect::Remove(KeyBuf { db, name }));
    }

    /// The waiter that takes this hold over in place when it ends: it is next, both are plain, and the hold is the key's only
    /// one. May return false negatives. O(1).
    fn next_waiter(&self, name: Id<Name>, hold: Id<Hold>) -> Option<Id<Waiter>> {
        let id = self.queues.head(&self.keys, name)?;
        let waiter = &self.queues[id];
        let key = self.holds[hold].key;
        let can_take_over = self.holds.is_plain_and_only(&self.keys[key], hold)
            && waiter.terms.is_plain()
            && self.queues.asks_for_one(id)
            && !self.postpones_grants()
            && !self.is_dead_wait(id)
            && self.lost_right(id).is_none();
        can_take_over.then_some(id)
    }

    /// Serves or refuses up to `most` waiters from the head of a name's queue, and returns their number. Further waiters that can be
    /// served follow with the next work: nobody overtakes them. The name's record stays.
    #[inline]
    pub(in crate::engine) fn serve(
        &mut self,
        name: Id<Name>,
        most: usize,
        effects: &mut Vec<Effect>,
    ) -> usize {
        match self.is_unservable(name) {
            true => 0,
            false => self.serve_queue(name, most, effects),
        }
    }

    /// Whether waiters are granted nothing now, whatever is free. O(1).
    fn postpones_grants(&self) -> bool {
        self.writes_refused || self.is_quarantined()
    }

    /// Whether the queue is empty, or the key has a holder that admits no other: usually the one just served. O(1).
    #[inline]
    fn is_unservable(&self, name: Id<Name>) -> bool {
        let is_alone = |held: Id<HeldKey>| self.keys[held].held().is_single_owner();
        self.keys[name].queue.is_empty()
            || !self.has_dead_waits() && self.keys.held_at(name).is_some_and(is_alone)
    }

    fn serve_queue(&mut self, name: Id<Name>, most: usize, effects: &mut Vec<Effect>) -> usize {
        if self.postpones_grants() {
            self.mark_ready(name);
            return 0;
        }
        let mut done = 0;
        while let Some(waiter) = self.first_living_waiter(name) {
            if self.has_dead_waits() {
                self.drop_dead_waits_ahead_of(waiter, name);
            }
            // A request for one key is served by whatever frees it. One for several may become the next with each of its keys, and is
            // not looked at each time.
            let is_spent = self.budget.is_spent();
            if is_spent && !self.queues.asks_for_one(waiter) {
                self.mark_ready(name);
                break;
            }
            if !self.can_serve(waiter) {
                if !self.queues.asks_for_one(waiter) {
                    self.budget.spend(self.queues.names_of(waiter).count());
                }
                break;
            }
            if done == most {
                self.mark_ready(name);
                break;
            }
            match self.why_refused(waiter) {
                None => self.grant(waiter, name, None, effects),
                Some(_) if is_spent && done > 0 => {
                    self.mark_ready(name);
                    break;
                }
                refusal => {
                    let keys = self.queues.names_of(waiter).count();
                    self.budget.spend(STEPS_PER_GRANT * keys);
                    self.fail_wait(waiter, refusal, Some(name), effects);
                }
            }
            done += 1;
        }
        done
    }

    /// Why a waiter whose turn has come is not granted its keys.
    fn why_refused(&self, waiter: Id<Waiter>) -> Option<Refusal> {
        if let Some(right) = self.lost_right(waiter) {
            return Some(Refusal::NoRight(right));
        }
        let Waiter { client, terms, .. } = &self.queues[waiter];
        self.why_not_acked(*client, terms.acks?)
    }

    /// Drops dead waits ahead of a waiter in the queues of its other keys, within the budget; who is first there then may be served.
    /// O(its keys) besides those.
    fn drop_dead_waits_ahead_of(&mut self, waiter: Id<Waiter>, name: Id<Name>) {
        let asked: Few<_> = self.queues.names_of(waiter).collect();
        for other in asked.iter().filter(|other| **other != name) {
            let head = self.queues.head(&self.keys, *other);
            if self.first_living_waiter(*other) != head {
                self.mark_ready(*other);
            }
        }
    }

    /// Schedules the name's queue to be served when the keyspace may be written. O(1).
    pub(in crate::engine) fn mark_ready(&mut self, name: Id<Name>) {
        let record = &mut self.keys[name];
        if !record.queue.is_empty() && !record.is_ready() {
            record.set_ready(true);
            self.ready.push_back(name);
        }
    }

    /// Whether any queue is scheduled to be served, also during a quarantine. O(1).
    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The same, if it can be served now.
    pub(in crate::engine) fn is_any_ready(&self, now: Moment) -> bool {
        self.has_ready() && self.quarantine_left_ms(now) == 0
    }

    /// The keys whose queues the next [`Event::Work`](crate::engine::Event::Work) with this `most` may serve: ready ones, those
    /// whose holds end by then, and those that the waits of ended connections leave. O(most), and of requests for several keys O(their
    /// keys).
    pub fn keys_about_to_be_served(&self, now: Moment, most: usize) -> Vec<KeyBuf> {
        if !self.is_awaited() {
            return Vec::new();
        }
        let leases = self.timers.leases.until(now).take(most);
        let holds = |owner| self.holds.of_client(&self.clients, owner);
        // Either kind comes first when holds are released.
        let orphaned = self.clients.orphaners().take(most);
        let orphaned = orphaned.flat_map(holds).take(most);
        let graces = self.timers.graces.until(now).take(most);
        let graces = graces.flat_map(holds).take(most);
        let over = leases.chain(orphaned).chain(graces);
        let over = over.filter_map(|hold| self.keys.name_of(self.holds[hold].key));
        let to_reap = self.clients.to_reap().take(most);
        let waits = to_reap.flat_map(|client| self.queues.of_client(&self.clients, client));
        let left = waits.take(most).flat_map(|wait| self.queues.names_of(wait));
        let ready = self.ready.iter().take(most).copied();
        let names = ready.chain(over).chain(left);
        let names = names.map(|name| &self.keys[name]);
        let awaited = names.filter(|name| !name.queue.is_empty());
        awaited.map(|name| name.key().to_owned()).collect()
    }

    /// Serves ready queues.
    pub(in crate::engine) fn serve_ready(&mut self, effects: &mut Vec<Effect>) {
        if self.is_quarantined() {
            return;
        }
        while !self.budget.is_spent()
            && let Some(name) = self.ready.pop_front()
        {
            self.keys[name].set_ready(false);
            self.refresh(name, effects);
            let most = self.budget.left();
            let done = self.serve(name, most, effects);
            // The last step, too, serves a request for several keys.
            self.budget.spend(1 + done);
            self.keys.remove_name_if_unreferenced(name);
        }
    }

    /// Appends a request to each of these queues.
    pub(in crate::engine) fn enqueue(
        &mut self,
        asked: &[Id<Name>],
        request: &Request<'_>,
    ) -> Id<Waiter> {
        let (keys, clients) = (&mut self.keys, &mut self.clients);
        self.queues
            .add(keys, clients, &mut self.timers, asked, request)
    }

    /// Removes a waiter from all its queues, and returns their names.
    pub(in crate::engine) fn dequeue(&mut self, waiter: Id<Waiter>) -> (Few<Id<Name>>, Waiter) {
        let (keys, clients) = (&mut self.keys, &mut self.clients);
        let (asked, waiter) = self.queues.remove(keys, clients, &mut self.timers, waiter);
        if !clients[waiter.client].is_living() {
            clients.wait_reaped(waiter.client);
        }
        (asked, waiter)
    }

    /// Ends a wait; the waiters behind it may be served. O(its keys).
    pub(in crate::engine) fn remove_wait(&mut self, waiter: Id<Waiter>) -> Waiter {
        self.leave_queues(waiter, None)
    }

    /// The same for a dead wait; it costs a step for each of its queue entries.
    pub(in crate::engine) fn remove_dead_wait(&mut self, waiter: Id<Waiter>) {
        self.budget.spend(self.queues.names_of(waiter).count());
        self.leave_queues(waiter, None);
    }

    /// Removes a waiter from its queues, and schedules those in which it was first, except `but`, which the caller serves. O(its keys).
    pub(in crate::engine) fn leave_queues(
        &mut self,
        waiter: Id<Waiter>,
        but: Option<Id<Name>>,
    ) -> Waiter {
        let first_in = self.names_it_is_first_at(waiter);
        let (asked, waiter) = self.dequeue(waiter);
        let mut to_be_served = HashSet::new();
        for name in first_in.iter().filter(|name| Some(**name) != but) {
            // Who waits for several keys is served, or not, by whichever of its queues is looked at.
            let next = self.queues.head(&self.keys, *name);
            let is_of_several = |next: &Id<Waiter>| !self.queues.asks_for_one(*next);
            let next = next.filter(|next| !self.has_dead_waits() && is_of_several(next));
            if next.is_none_or(|next| to_be_served.insert(next)) {
                self.mark_ready(*name);
            }
        }
        for name in asked.iter().filter(|name| Some(**name) != but) {
            self.keys.remove_name_if_unreferenced(*name);
        }
        waiter
    }

    /// The connection is out of its session: those of its waits that are first may have waited for a hold of that session, which is
    /// another owner's now. One queue of each is looked at, since who is not first in all of them is not served. O(its waits), within
    /// the budget.
    pub(in crate::engine) fn mark_own_waits_ready(&mut self, connection: Id<Client>) {
        let waits = self.queues.of_client(&self.clients, connection);
        let waits: Vec<_> = waits.take(self.budget.left()).collect();
        self.budget.spend(waits.len());
        for waiter in waits {
            let name = self.queues.names_of(waiter).next();
            if let Some(name) = name.filter(|name| self.is_first_at(waiter, *name)) {
                self.mark_ready(name);
            }
        }
    }

    /// The names in whose queues a waiter is first. O(its keys).
    fn names_it_is_first_at(&self, waiter: Id<Waiter>) -> Few<Id<Name>> {
        let names = self.queues.names_of(waiter);
        names
            .filter(|name| self.is_first_at(waiter, *name))
            .collect()
    }

    fn is_first_at(&self, waiter: Id<Waiter>, name: Id<Name>) -> bool {
        self.queues.head(&self.keys, name) == Some(waiter)
    }

    /// Whether a waiter is at the head of each of its queues and can be granted all of its keys.
    fn can_serve(&self, waiter: Id<Waiter>) -> bool {
        self.queues.names_of(waiter).all(|name| {
            self.is_first_at(waiter, name)
                && match self.keys.held_at(name) {
                    Some(key) => self.can_acquire(waiter, key),
                    None => !self.may_be_foreign(name),
                }
        })
    }

    /// Whether a key's holders admit the waiter. Its own owner may hold the key, by a rename after it began to wait: then it
    /// waits for its own release.
    fn can_acquire(&self, waiter: Id<Waiter>, key: Id<HeldKey>) -> bool {
        let Waiter { client, terms, .. } = &self.queues[waiter];
        let owner = self.clients.owner(*client);
        self.holds.admit(&self.keys, key, terms.mode)
            && self
                .holds
                .find(&self.keys, key, owner, &terms.label)
                .is_none()
    }

    /// Grants a waiter all of its keys, and removes the names except `at` if unreferenced; the grant takes over the hold
    /// `replaced`, see [`grant_key`](Self::grant_key).
    fn grant(
        &mut self,
        waiter: Id<Waiter>,
        at: Id<Name>,
        replaced: Option<Id<Hold>>,
        effects: &mut Vec<Effect>,
    ) {
        let (asked, mut waiter) = self.dequeue(waiter);
        let owner = self.clients.owner(waiter.client);
        self.wait_times.record(self.now.us_since(waiter.since));
        let terms = waiter.terms.borrowed();
        let token = self.next_token(effects);
        let grant = Grant {
            client: owner,
            terms,
            token,
            since: self.now,
        };
        if let Some(acks) = terms.acks {
            let key = self.keys[asked[0]].key().to_owned();
            self.begin_pending(&grant, acks, waiter.reply_to, key, effects);
        }
        let mut value = std::mem::take(&mut waiter.value);
        for name in &*asked {
            let making = Making::ByName(std::mem::take(&mut value));
            let key = match replaced {
                Some(replaced) => self.holds[replaced].key,
                None => self.keys.get_or_insert_held_at(*name),
            };
            self.grant_key(key, Some(*name), &grant, making, replaced, effects);
        }
        if asked.len() > 1 {
            self.budget.spend(STEPS_PER_GRANT * asked.len());
        }
        if terms.acks.is_none() {
            let (key, label) = (self.keys[asked[0]].key(), &*waiter.terms.label);
            effects.push(WaitEnd::Granted(token).told(waiter.reply_to, key, label));
        }
        for name in asked.iter().filter(|name| **name != at) {
            self.keys.remove_name_if_unreferenced(*name);
        }
    }
}
