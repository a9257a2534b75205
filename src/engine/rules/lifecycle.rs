//! Ends: of connections, of waits, of leases, and of this server's time as a master.
//!
//! What an ended connection held is removed a slice at a time, so that a connection with a million
//! keys does not stop everyone else; until its turn comes such a key is *orphaned*: it is still
//! in the keyspace, but it refuses nobody. Removals wait while the server must not write. What it watched and waited for
//! *fades*, a slice at a time, too: nobody is told of it, granted it, or kept waiting by it.

use crate::engine::effect::{Effect, Refusal, Reply, WaitEnd};
use crate::engine::limits::LOOKS_PER_COMMAND;
use crate::engine::state::clients::Faded;
use crate::engine::state::rows::{Ack, Hold, Name, Waiter};
use crate::engine::storage::arena::Id;
use crate::engine::tables::Engine;
use crate::engine::types::{ClientId, Key, Loss, Token};

impl Engine {
    /// A connection is no more: nobody is told of its watches and waits from now on, and its holds end as soon as may be.
    /// O(1), and O(log of the grants that wait for acknowledgements) for some of its own.
    pub(in crate::engine) fn ended(&mut self, client: ClientId) {
        self.take_back_asked_by(client);
        let Some(client) = self.clients.find(client) else {
            return;
        };
        if let Some(session) = self.clients[client].session {
            self.begin_grace(session);
        }
        let killed = self.clients[client].ended_by.take();
        self.clients[client].ended_after = self.keys.retirements();
        self.clients.end(client, killed.or(Some(Loss::Died)));
    }

    /// Goes on with what follows from flushes, and forgets up to so many watches of ended connections, and places in queues: all of a wait's.
    pub(in crate::engine) fn fade(&mut self, most: usize, effects: &mut Vec<Effect>) {
        self.sweep(most, effects);
        let mut left = most;
        while left > 0
            && let Some(client) = self.clients.first_fading()
        {
            match self.clients[client].waiting.head() {
                Some(waiter) => left = left.saturating_sub(self.forget_wait(waiter)),
                None => {
                    let (keys, clients) = (&mut self.keys, &mut self.clients);
                    self.watches.remove_first(keys, clients, client);
                    let (waits, watches) = (0, 1);
                    clients.fade(client, Faded { waits, watches });
                    left -= 1;
                }
            }
        }
    }

    /// How many watches and waits ended connections have left. O(1).
    pub fn fading(&self) -> usize {
        let Faded { waits, watches } = self.clients.faded();
        waits + watches
    }

    /// Who is first in line at a name. The places of ended connections ahead are given up, as far as the looks go. O(1)
    /// besides those.
    pub(in crate::engine) fn first_in_line(
        &mut self,
        name: Id<Name>,
        looks: &mut usize,
    ) -> Option<Id<Waiter>> {
        loop {
            let head = self.queues.head(&self.keys, name)?;
            if !self.is_fading() || !self.is_faded(head) {
                return Some(head);
            }
            *looks = looks.checked_sub(1)?;
            if self.queues.asks_for_one(head) {
                self.dequeue(head);
            } else {
                let (keys, clients) = (&mut self.keys, &mut self.clients);
                self.queues.leave_first(keys, clients, name);
            }
        }
    }

    /// Does what had to wait until the keyspace may be written.
    pub(in crate::engine) fn work(&mut self, most: usize, effects: &mut Vec<Effect>) {
        self.fade(most, effects);
        self.end_leases(most, effects);
        self.serve_ready(most, effects);
        self.end_graces(most, effects);
        self.release_withdrawn(most, effects);
        self.release_what_ended(most, effects);
        // The last: where a key turns out to have lapsed, whoever is to have it by an order before this one has it.
        self.renew(most, effects);
    }

    /// Ends up to so many holds of ended connections.
    fn release_what_ended(&mut self, most: usize, effects: &mut Vec<Effect>) {
        for _ in 0..most {
            if self.has_granted_enough() {
                return;
            }
            let Some(client) = self.clients.first_ended() else {
                return;
            };
            let hold = self.clients[client].holding.head();
            let hold = hold.expect("kept for what it holds");
            if !self.sweep_hold(hold, effects) {
                self.release_after_end(hold, effects);
            }
        }
    }

    /// Ends the holds of ended connections on this key, and their places in its queue, as far as the looks go.
    pub(in crate::engine) fn release_orphaned(
        &mut self,
        key: Key<'_>,
        looks: &mut usize,
        effects: &mut Vec<Effect>,
    ) {
        if !self.is_anything_orphaned() {
            return;
        }
        let name = self.name(key, effects);
        if let Some(name) = name {
            self.first_in_line(name, looks);
        }
        let mut left = Vec::new();
        if let Some(held) = self.keys.find_held(key) {
            let holds = self.holds.all_of_key(&self.keys, held);
            left.extend(holds.take((*looks).max(1)));
        }
        *looks = looks.saturating_sub(left.len());
        left.retain(|hold| !self.is_living(*hold));
        if let Some(name) = name.filter(|_| left.is_empty()) {
            self.make_ready(name);
            self.keys.remove_name_if_idle(name);
        }
        for hold in left {
            self.release_after_end(hold, effects);
        }
    }

    fn release_after_end(&mut self, hold: Id<Hold>, effects: &mut Vec<Effect>) {
        if !self.is_settled(hold) {
            return self.release_one_withdrawn(hold, effects);
        }
        let client = self.holds[hold].client;
        self.note_end(hold, effects);
        // Of what is told of the past only the key that is left counts: others may have had it besides, and gone before.
        let is_last = || {
            let mut holds = self.holds.all_of_key(&self.keys, self.holds[hold].key);
            holds.nth(1).is_none()
        };
        let is_counted = self.clients[client].ended_by.is_some() || is_last();
        self.release(hold, effects);
        self.totals.keys_removed_by_disconnect += u64::from(is_counted);
        self.clients.forget_if_done(client);
    }

    /// Ends up to so many leases whose time is over.
    pub(in crate::engine) fn end_leases(&mut self, most: usize, effects: &mut Vec<Effect>) {
        for _ in 0..most {
            match self.timers.first_lease() {
                Some((end, hold)) if end <= self.now && !self.has_granted_enough() => {
                    if !self.sweep_hold(hold, effects) {
                        self.take_away(hold, Loss::Lease, effects);
                    }
                }
                _ => return,
            }
        }
    }

    /// Ends the leases on these keys whose time is over, as far as [`LOOKS_PER_COMMAND`] go. O(keys).
    pub(in crate::engine) fn end_leases_of(&mut self, keys: &[Key<'_>], effects: &mut Vec<Effect>) {
        let mut looks = LOOKS_PER_COMMAND;
        for key in keys {
            let Some(held) = self.keys.find_held(*key) else {
                continue;
            };
            let holds = self.holds.all_of_key(&self.keys, held);
            let holds: Vec<_> = holds.take(looks.max(1)).collect();
            looks = looks.saturating_sub(holds.len());
            for hold in holds {
                if self.is_over(hold) {
                    self.take_away(hold, Loss::Lease, effects);
                }
            }
        }
    }

    /// Ends an owner's hold of this key if its lease is over or its grant was withdrawn, however many hold it. O(log of leases).
    pub(in crate::engine) fn end_own_lease(
        &mut self,
        client: ClientId,
        key: Key<'_>,
        label: &[u8],
        effects: &mut Vec<Effect>,
    ) {
        let Some(own) = self.hold_by(client, key, label) else {
            return;
        };
        if self.is_over(own) {
            self.take_away(own, Loss::Lease, effects);
        } else if self.holds.ack(own) == Ack::Withdrawn {
            self.release_one_withdrawn(own, effects);
        }
    }

    /// Whether a hold has a lease whose time is over.
    fn is_over(&self, hold: Id<Hold>) -> bool {
        let lease = self.holds.lease(hold);
        lease.is_some_and(|end| end <= self.now)
    }

    /// Whether there is a lease whose time is over. O(1).
    pub(in crate::engine) fn is_any_lease_over(&self) -> bool {
        let first = self.timers.first_lease();
        first.is_some_and(|(end, _)| end <= self.now)
    }

    /// Ends a hold and tells its owner, if that asked for it.
    pub(in crate::engine) fn take_away(
        &mut self,
        hold: Id<Hold>,
        why: Loss,
        effects: &mut Vec<Effect>,
    ) {
        self.notify_lost(hold, why, effects);
        let client = self.holds[hold].client;
        self.release(hold, effects);
        self.clients.forget_if_done(client);
    }

    /// Ends the waits whose time is over, and withdraws the grants that were not acknowledged in time.
    pub(in crate::engine) fn tick(&mut self, effects: &mut Vec<Effect>) {
        self.end_quarantine();
        self.withdraw_due(effects);
        let mut looks = LOOKS_PER_COMMAND;
        while let Some((end, waiter)) = self.timers.first_wait() {
            if end > self.now || looks == 0 {
                return;
            }
            if self.is_faded(waiter) {
                looks = looks.saturating_sub(self.forget_wait(waiter));
                continue;
            }
            self.totals.timeouts += 1;
            self.turn_away(waiter, None, effects);
        }
    }

    /// A blocked connection goes on as if its time were over.
    pub(in crate::engine) fn unblocked(&mut self, client: ClientId, effects: &mut Vec<Effect>) {
        let reply = self.unblock(client);
        effects.push(Effect::Reply(reply.unwrap_or(Reply::Null)));
    }

    /// A blocked connection goes on without what it waited for. Its form of "not granted".
    pub(in crate::engine) fn unblock(&mut self, client: ClientId) -> Option<Reply> {
        if let Some(reply) = self.unblock_pending(client) {
            return Some(reply);
        }
        let client = self.clients.find(client)?;
        let waiter = self.clients[client].blocked?;
        Some(self.leave_queues(waiter).reply_to.form.not_granted())
    }

    /// The server does not block this connection, which was to wait.
    pub(in crate::engine) fn block_refused(&mut self, client: ClientId, effects: &mut Vec<Effect>) {
        self.unblock(client);
        let refused = Reply::Refused(Refusal::CannotBlock);
        effects.push(Effect::Reply(refused));
    }

    /// Ends what was granted with this token, as soon as the keyspace may be written.
    pub(in crate::engine) fn take_back(&mut self, client: ClientId, granted: Option<Token>) {
        let Some(client) = self.clients.find(client) else {
            return;
        };
        let owner = self.clients.owner(client);
        let holds = self.holds.of_client(&self.clients, owner);
        let granted = holds.filter(|hold| Some(self.holds[*hold].token) == granted);
        for hold in granted.collect::<Vec<_>>() {
            self.holds.set_lease(&mut self.timers, hold, Some(self.now));
            if self.holds.depth(hold) == 1 {
                // It never heard that it had it.
                self.holds.forget_notify(hold);
            }
        }
    }

    /// This server has a master now: nobody can wait here, and what was held is that one's affair. Its
    /// sessions will tell which they are.
    pub(in crate::engine) fn demoted(&mut self, redirect: bool, effects: &mut Vec<Effect>) {
        for key in self.keys_waited_for() {
            let key = key.as_key();
            match redirect {
                true => self.elsewhere(key, effects),
                false => self.turn_all_away(key, &Refusal::Unblocked, effects),
            }
        }
        self.forget_acks(effects);
        self.stop_renewals();
        self.begin_quarantine(0);
        while let Some(name) = self.ready.pop_front() {
            self.keys[name].set_ready(false);
            self.keys.remove_name_if_idle(name);
        }
        self.sweep(usize::MAX, effects);
        for key in self.keys.all_held().collect::<Vec<_>>() {
            let holds: Vec<_> = self.holds.all_of_key(&self.keys, key).collect();
            let mode = self.holds.mode(holds[0]);
            for hold in holds {
                self.notify_lost(hold, Loss::Demoted, effects);
                let owner = self.holds[hold].client;
                if self.sessions.get(owner).is_none() {
                    self.forget_hold(hold);
                }
            }
            // What a session holds stays its own, also where this server was a replica before and only changes its master.
            if self.keys[key].holds.is_empty() {
                self.leave_behind(key, mode);
            }
        }
        self.leave_withdrawn_to_master();
        self.is_replica = true;
        let sessions: Vec<_> = self.sessions.iter().map(|(session, _)| session).collect();
        for session in sessions {
            self.begin_grace(session);
        }
    }

    /// This server has no master any more.
    pub(in crate::engine) fn promoted(&mut self, effects: &mut Vec<Effect>) {
        self.is_replica = false;
        self.note_former(effects);
        self.begin_all_graces();
    }

    /// The data are there. Each connection that spoke for a session goes on with it, as if it resumed it, if there is one.
    pub(in crate::engine) fn load_ended(&mut self, effects: &mut Vec<Effect>) {
        self.loading = false;
        self.keys.lose_sight();
        let speakers = std::mem::take(&mut self.speakers);
        if self.is_replica {
            return;
        }
        for (client, digest, notify) in speakers {
            let found = (self.sessions.find(&digest), self.clients.find(client));
            if let (Some(session), Some(connection)) = found {
                self.go_on_with(session, connection, notify, effects);
            }
        }
        self.begin_all_graces();
    }

    /// Ends a wait and tells its connection that it got nothing, and why, where that is not its time.
    pub(in crate::engine) fn turn_away(
        &mut self,
        waiter: Id<Waiter>,
        why: Option<Refusal>,
        effects: &mut Vec<Effect>,
    ) {
        let name = self.queues.names_of(waiter).next();
        let key = name.map(|name| self.keys[name].key().to_owned());
        let waiter = self.leave_queues(waiter);
        let key = key.filter(|_| waiter.reply_to.push);
        let about = key.map(|key| (key, &*waiter.terms.label));
        let end = why.map_or(WaitEnd::TimedOut, WaitEnd::Refused);
        effects.push(end.told(waiter.reply_to, about));
    }

    /// Turns everyone away who waits for this key. It is looked up by its name each time: one that nobody here holds is
    /// forgotten with its last waiter, who may have waited for several.
    pub(in crate::engine) fn turn_all_away(
        &mut self,
        key: Key<'_>,
        why: &Refusal,
        effects: &mut Vec<Effect>,
    ) {
        while let Some(found) = self.keys.find_name(key)
            && let Some(waiter) = self.queues.head(&self.keys, found)
        {
            match self.is_faded(waiter) {
                true => {
                    self.forget_wait(waiter);
                }
                false => self.turn_away(waiter, Some(why.clone()), effects),
            }
        }
    }
}
