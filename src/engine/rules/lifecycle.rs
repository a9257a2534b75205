//! Ends: of connections, of waits, of leases, and of this server's time as a master.
//!
//! The holds of an ended connection are released in slices, so that a connection with a million keys does not stall the server;
//! until then such a key is *orphaned*: it exists, but blocks nobody. Releases are deferred while the server must not write.
//! Its watches and waits are *dead*, and reaped in slices: no push, no grant, and nobody waits behind them.

use crate::engine::effect::{Effect, Gone, Over, Refusal, Reply, WaitEnd};
use crate::engine::limits::Budget;
use crate::engine::state::clients::DeadCounts;
use crate::engine::state::rows::{Client, Death, Hold, Name, Waiter};
use crate::engine::storage::arena::Id;
use crate::engine::tables::Engine;
use crate::engine::types::{ClientId, Key, Loss};

impl Engine {
    /// A connection has ended: its watches and waits are dead, its holds orphaned. O(1), and O(log pending grants) for each of its
    /// pending grants that the budget reaches.
    pub(in crate::engine) fn ended(&mut self, client: ClientId) {
        self.take_back_asked_by(client);
        let Some(client) = self.clients.find(client) else {
            return;
        };
        if let Some(session) = self.clients[client].session() {
            self.begin_grace(session);
        }
        self.lose_client(client);
    }

    /// A connection has ended, or a session's grace: its holds are logged as lost when they are released.
    pub(in crate::engine) fn lose_client(&mut self, client: Id<Client>) {
        let why = match self.clients[client].killed {
            true => Loss::Killed,
            false => Loss::Died,
        };
        let flushes = self.keys.retirements();
        self.clients.end(client, Death::Lost { why, flushes });
    }

    /// Continues the sweep after a flush and what else watchers of prefixes are to be told, and reaps dead watches and queue entries;
    /// a wait is reaped whole.
    pub(in crate::engine) fn reap(&mut self, effects: &mut Vec<Effect>) {
        self.sweep(effects);
        self.build_indexes();
        self.end_blind(effects);
        while !self.budget.is_spent()
            && let Some(client) = self.clients.first_to_reap()
        {
            match self.clients[client].waiting.head() {
                Some(waiter) => self.remove_dead_wait(waiter),
                None if self.clients[client].watch_count == 0 => {
                    self.reap_prefix_watch(client);
                    self.budget.spend(1);
                }
                None => {
                    let (keys, clients) = (&mut self.keys, &mut self.clients);
                    self.watches.remove_first(keys, clients, client);
                    clients.watch_reaped(client);
                    self.budget.spend(1);
                }
            }
        }
    }

    /// The number of dead watches and waits left to reap. O(1).
    pub fn dead_waits(&self) -> usize {
        let DeadCounts { waits, watches } = self.clients.dead();
        waits + watches
    }

    /// The first living waiter of a queue. Removes dead entries ahead of it, within the budget. O(1) besides those.
    pub(in crate::engine) fn first_living_waiter(&mut self, name: Id<Name>) -> Option<Id<Waiter>> {
        loop {
            let head = self.queues.head(&self.keys, name)?;
            if !self.has_dead_waits() || !self.is_dead_wait(head) {
                return Some(head);
            }
            if !self.budget.spend(1) {
                return None;
            }
            if self.queues.asks_for_one(head) {
                self.dequeue(head);
            } else {
                let (keys, clients) = (&mut self.keys, &mut self.clients);
                self.queues.remove_first_entry(keys, clients, name);
            }
        }
    }

    /// Does what was deferred until the keyspace may be written.
    pub(in crate::engine) fn work(&mut self, effects: &mut Vec<Effect>) {
        self.writes_refused = false;
        // There may be millions to reap, for which nobody waits.
        let for_others = self.budget.split_off_half();
        self.reap(effects);
        self.budget.add(for_others);
        let kinds = [
            Self::tell_given_away,
            Self::end_leases,
            Self::serve_ready,
            Self::end_graces,
            Self::release_orphans,
            // After that: the next work hands over what was withdrawn, and says so before.
            Self::withdraw_hopeless,
            // Last: where a key turns out to have expired, the effects above have granted it already.
            Self::renew,
        ];
        // Clients can make more of one kind all the time.
        for kind in kinds {
            self.budget.leave_one();
            kind(self, effects);
        }
    }

    fn release_orphans(&mut self, effects: &mut Vec<Effect>) {
        while let Some(client) = self.clients.first_orphaner()
            && self.budget.spend(1)
        {
            let hold = self.clients[client].holding.head();
            let hold = hold.expect("it is in the list for its holds");
            if !self.sweep_hold(hold, effects) {
                self.release_after_death(hold, effects);
            }
        }
    }

    /// Releases the orphaned holds of this key and removes dead entries ahead in its queue, within the budget.
    pub(in crate::engine) fn release_orphaned(&mut self, key: Key<'_>, effects: &mut Vec<Effect>) {
        if !self.is_anything_orphaned() {
            return;
        }
        let name = self.name(key, effects);
        if let Some(name) = name {
            self.first_living_waiter(name);
        }
        let mut left = Vec::new();
        if let Some(held) = self.keys.find_held(key) {
            let holds = self.holds.all_of_key(&self.keys, held);
            left.extend(holds.take(self.budget.left().max(1)));
        }
        self.budget.spend(left.len());
        left.retain(|hold| !self.is_living(*hold));
        if let Some(name) = name.filter(|_| left.is_empty()) {
            self.mark_ready(name);
            self.keys.remove_name_if_unreferenced(name);
        }
        for hold in left {
            self.release_after_death(hold, effects);
        }
    }

    /// Releases the hold of a dead client.
    pub(in crate::engine) fn release_after_death(
        &mut self,
        hold: Id<Hold>,
        effects: &mut Vec<Effect>,
    ) {
        let client = self.holds[hold].client;
        if self.is_settled(hold) {
            self.note_end(hold, effects);
        }
        let why = match self.clients[client].death() {
            Some(Death::Lost { why, .. }) => Gone::Lost(why),
            Some(Death::Closed | Death::Withdrawn { .. }) => Gone::Released,
            None => Gone::Lost(Loss::Promoted),
        };
        self.release(hold, why, effects);
        self.clients.forget_if_done(client);
    }

    /// Ends expired leases.
    pub(in crate::engine) fn end_leases(&mut self, effects: &mut Vec<Effect>) {
        while let Some(hold) = self.timers.leases.first_until(self.now)
            && self.budget.spend(1)
        {
            if !self.sweep_hold(hold, effects) {
                self.revoke(hold, Loss::Lease, effects);
            }
        }
    }

    /// Ends the expired leases of these keys, within the budget, and at least one of each. O(keys).
    pub(in crate::engine) fn end_leases_of(&mut self, keys: &[Key<'_>], effects: &mut Vec<Effect>) {
        for key in keys {
            let Some(held) = self.keys.find_held(*key) else {
                continue;
            };
            let holds = self.holds.all_of_key(&self.keys, held);
            let holds: Vec<_> = holds.take(self.budget.left().max(1)).collect();
            self.budget.spend(holds.len());
            for hold in holds {
                if self.is_over(hold) {
                    self.revoke(hold, Loss::Lease, effects);
                }
            }
        }
    }

    /// Ends the owner's hold of this key if its lease has expired. O(log leases).
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
            self.revoke(own, Loss::Lease, effects);
        }
    }

    /// Whether a hold's lease has expired.
    pub(super) fn is_over(&self, hold: Id<Hold>) -> bool {
        let lease = self.holds.lease(hold);
        lease.is_some_and(|end| end <= self.now)
    }

    /// Whether any lease has expired and not been ended yet. O(log leases).
    pub(in crate::engine) fn is_any_lease_over(&self) -> bool {
        let first = self.timers.leases.first();
        first.is_some_and(|end| end <= self.now)
    }

    /// Ends a hold, with LOST to an owner that asked for it, and hands the key over.
    pub(in crate::engine) fn revoke(
        &mut self,
        hold: Id<Hold>,
        why: Loss,
        effects: &mut Vec<Effect>,
    ) {
        self.notify_lost(hold, why, effects);
        let client = self.holds[hold].client;
        self.release(hold, Gone::Lost(why), effects);
        self.clients.forget_if_done(client);
    }

    /// Times waits out, within the budget, and withdraws the grants that were not acknowledged in time.
    pub(in crate::engine) fn tick(&mut self, effects: &mut Vec<Effect>) {
        self.end_quarantine();
        self.withdraw_due(effects);
        self.budget.leave_one();
        while let Some(waiter) = self.timers.waits.first_until(self.now)
            && !self.budget.is_spent()
        {
            if self.is_dead_wait(waiter) {
                self.remove_dead_wait(waiter);
                continue;
            }
            self.totals.timeouts += 1;
            self.budget.spend(self.queues.names_of(waiter).count());
            self.fail_wait(waiter, None, None, effects);
        }
    }

    /// A blocked connection's wait ends as if it had timed out.
    pub(in crate::engine) fn unblocked(&mut self, client: ClientId, effects: &mut Vec<Effect>) {
        let reply = self.unblock(client);
        effects.push(Effect::Reply(reply.unwrap_or(Reply::Null)));
    }

    /// Ends the wait of a blocked connection; returns its "not granted" reply.
    pub(in crate::engine) fn unblock(&mut self, client: ClientId) -> Option<Reply> {
        if let Some(reply) = self.unblock_pending(client) {
            return Some(reply);
        }
        let client = self.clients.find(client)?;
        let waiter = self.clients[client].blocked?;
        Some(self.remove_wait(waiter).reply_to.form.not_granted())
    }

    /// The server refused to block this connection.
    pub(in crate::engine) fn block_refused(&mut self, client: ClientId, effects: &mut Vec<Effect>) {
        self.unblock(client);
        let refused = Reply::Refused(Refusal::CannotBlock);
        effects.push(Effect::Reply(refused));
    }

    /// This server became a replica: all waits fail, and connections lose their holds. Sessions keep theirs until the master's
    /// stream says otherwise.
    pub(in crate::engine) fn demoted(&mut self, redirect: bool, effects: &mut Vec<Effect>) {
        self.end_all_prefixes(Over::Demoted, effects);
        for key in self.keys_waited_for() {
            let key = key.as_key();
            match redirect {
                true => self.elsewhere(key, effects),
                false => self.fail_all_waits(key, &Refusal::Unblocked, effects),
            }
        }
        self.forget_acks(effects);
        self.given_away.clear();
        self.stop_renewals();
        self.begin_quarantine(0);
        while let Some(name) = self.ready.pop_front() {
            self.keys[name].set_ready(false);
            self.keys.remove_name_if_unreferenced(name);
        }
        self.budget = Budget::unlimited();
        self.sweep(effects);
        for key in self.keys.all_held().collect::<Vec<_>>() {
            let holds: Vec<_> = self.holds.all_of_key(&self.keys, key).collect();
            let mode = self.holds.mode(holds[0]);
            // Of a temporary key, that of its only hold; of a lock, it is for nobody to see.
            let token = self.holds[holds[0]].token;
            for hold in holds {
                if self.return_to_session(hold) {
                    continue;
                }
                self.notify_lost(hold, Loss::Demoted, effects);
                let owner = self.holds[hold].client;
                if self.sessions.get(owner).is_none() {
                    self.forget_hold(hold);
                }
            }
            // Sessions keep their holds, also when a replica only changes its master.
            if self.keys[key].holds.is_empty() {
                self.add_ownerless_hold(key, mode, Some(token));
            }
        }
        self.is_replica = true;
        let sessions: Vec<_> = self.sessions.iter().map(|(session, _)| session).collect();
        for session in sessions {
            self.begin_grace(session);
        }
    }

    /// A withdrawn hold that was not released goes back to its session, until the master's stream says otherwise. Returns whether
    /// it did.
    fn return_to_session(&mut self, hold: Id<Hold>) -> bool {
        let owner = self.holds[hold].client;
        let Some(Death::Withdrawn { session }) = self.clients[owner].death() else {
            return false;
        };
        let key = self.holds[hold].key;
        let session = session.and_then(|id| self.sessions.numbered(id));
        let session = session.filter(|session| {
            let label = self.holds.label(hold);
            (self.holds.find(&self.keys, key, *session, label)).is_none()
        });
        if let Some(session) = session {
            self.holds.give_to(&mut self.clients, hold, session);
            self.clients.forget_if_done(owner);
        }
        session.is_some()
    }

    /// This server became a master.
    pub(in crate::engine) fn promoted(&mut self, effects: &mut Vec<Effect>) {
        self.is_replica = false;
        self.log_foreign_holds(effects);
        self.begin_all_graces();
    }

    /// Loading has finished. Connections that were attached to a session before are attached again, if the session was loaded.
    pub(in crate::engine) fn load_ended(&mut self, effects: &mut Vec<Effect>) {
        self.loading = false;
        self.keys.forget_states();
        let attached_before_load = std::mem::take(&mut self.attached_before_load);
        if self.is_replica {
            return;
        }
        for (client, digest, notify) in attached_before_load {
            let found = (self.sessions.find(&digest), self.clients.find(client));
            if let (Some(session), Some(connection)) = found {
                self.attach_session(session, connection, notify, effects);
            }
        }
        self.begin_all_graces();
    }

    /// Fails a wait with this refusal; without one it timed out. `at` is the name that the caller serves.
    pub(in crate::engine) fn fail_wait(
        &mut self,
        waiter: Id<Waiter>,
        why: Option<Refusal>,
        at: Option<Id<Name>>,
        effects: &mut Vec<Effect>,
    ) {
        let first = self.queues.names_of(waiter).next().expect("it has a key");
        let key = self.keys[first].key().to_owned();
        let waiter = self.leave_queues(waiter, at);
        let end = why.map_or(WaitEnd::TimedOut, WaitEnd::Refused);
        effects.push(end.told(waiter.reply_to, key.as_key(), &waiter.terms.label));
    }

    /// Fails all waits at this name. Looks the name up each time: its record goes with the last waiter, which may be a multi-key
    /// waiter.
    pub(in crate::engine) fn fail_all_waits(
        &mut self,
        key: Key<'_>,
        why: &Refusal,
        effects: &mut Vec<Effect>,
    ) {
        while let Some(found) = self.keys.find_name(key)
            && let Some(waiter) = self.queues.head(&self.keys, found)
        {
            match self.is_dead_wait(waiter) {
                true => self.remove_dead_wait(waiter),
                false => self.fail_wait(waiter, Some(why.clone()), None, effects),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Db, Event, KeySnapshot, KeyState, Moment};

    /// However many come and go, nothing is remembered of them.
    #[test]
    fn of_who_holds_and_watches_nothing_no_record_is_left() {
        let mut engine = Engine::default();
        let mut effects = Vec::new();
        let (db, name) = (Db(0), b"k".as_slice());
        let key = Key { db, name };
        let state = KeyState::Absent;
        let seen = &[KeySnapshot { key, state }];
        for number in 1..=100 {
            let client = ClientId(number);
            for event in [
                Event::Watch { client, seen },
                Event::UnwatchAll { client },
                Event::Ended { client },
            ] {
                engine.handle(Moment(number), event, &mut effects);
            }
        }
        assert_eq!(engine.clients.iter().count(), 0);
        assert_eq!(engine.keys.name_count(), 0);
    }
}
