//! Grants that so many replicas are to acknowledge (`ACKS`) before their owners are told of them.
//!
//! Such a grant is *pending*: its keys are made and replicated, and everybody else finds them taken. Once it is acknowledged
//! its owner is told, and its hold is as any other. Otherwise it is *withdrawn*: its owner is told how many replicas have
//! acknowledged it, and its holds end as soon as the keyspace may be written, each handed over to the next in line in the same
//! step. A replica that is promoted in between may keep it for its session: that finds out when it is resumed.

use crate::engine::effect::{Effect, Refusal, Reply, WaitEnd};
use crate::engine::limits::GRANTS_TAKEN_BACK_PER_STEP;
use crate::engine::state::rows::{Ack, Asker, Client, Hold, Name, PendingGrant, Waiter};
use crate::engine::storage::arena::Id;
use crate::engine::storage::few::Few;
use crate::engine::tables::Engine;
use crate::engine::types::{AskedAcks, ClientId, Db, Moment, Token};

/// A grant whose acknowledgements are to be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Its name.
    pub token: Token,
    /// What a replica has received that acknowledges it; none as long as that is not known.
    pub offset: Option<u64>,
    pub wanted: u32,
}

impl Engine {
    /// Whether there are grants of which nobody has told how far replication has come with them. O(1).
    pub fn has_unplaced_grants(&self) -> bool {
        self.holds.acks.is_any_unplaced()
    }

    /// How many grants wait for acknowledgements. O(1).
    pub fn pending_grants(&self) -> usize {
        self.holds.acks.len()
    }

    /// Those whose acknowledgements are to be counted next: others have no more than these. O(the numbers of replicas that
    /// are asked for).
    pub fn grants_to_count(&self) -> Vec<Counted> {
        let first = self.holds.acks.first_of_each();
        first.map(Self::counted).collect()
    }

    /// Those that are withdrawn by the next tick at this time, if they are not acknowledged before it; so many at most.
    pub fn grants_due(&self, now: Moment, most: usize) -> Vec<Counted> {
        let due = self.timers.acks().take_while(|(end, _)| *end <= now);
        let due = due.filter_map(|(_, token)| self.holds.acks.get(token));
        due.take(most).map(Self::counted).collect()
    }

    /// The one for which this connection is blocked.
    pub fn grant_blocking(&self, client: ClientId) -> Option<Counted> {
        let token = self.holds.acks.blocking(client)?;
        self.holds.acks.get(token).map(Self::counted)
    }

    fn counted(grant: &PendingGrant) -> Counted {
        Counted {
            token: grant.token,
            offset: grant.offset,
            wanted: grant.wanted,
        }
    }

    /// Why a request for acknowledgements cannot be granted now, if it cannot: it needs a session, since a promoted replica
    /// keeps nothing else, and as many replicas as it wants.
    pub(in crate::engine) fn why_not_acked(
        &self,
        client: Id<Client>,
        acks: AskedAcks,
    ) -> Option<Refusal> {
        if self.clients[client].session.is_none() {
            return Some(Refusal::AcksWithoutSession);
        }
        let wanted = acks.replicas.get();
        (wanted > self.replicas).then_some(Refusal::NoAcks { got: 0, wanted })
    }

    /// Whoever is first in line cannot be granted the key, which it wants acknowledged: it leaves all its queues. Whether that
    /// was so.
    pub(in crate::engine) fn refuse_unacked(
        &mut self,
        waiter: Id<Waiter>,
        at: Id<Name>,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let Waiter { client, terms, .. } = &self.queues[waiter];
        let (client, acks) = (*client, terms.acks);
        let Some(refusal) = acks.and_then(|acks| self.why_not_acked(client, acks)) else {
            return false;
        };
        let first = self.queues.names_of(waiter).next();
        let key = first.map(|name| self.keys[name].key().to_owned());
        let (asked, waiter) = self.dequeue(waiter);
        // The caller is about to look at this one again.
        self.look_behind(&asked, Some(at));
        if let Some(key) = key {
            let asker = Asker::of(&waiter, key);
            effects.push(asker.told(WaitEnd::Refused(refusal)));
        }
        true
    }

    /// What is granted next, with this token, waits for acknowledgements. O(log of such grants).
    pub(in crate::engine) fn begin_pending(
        &mut self,
        token: Token,
        acks: AskedAcks,
        (asker, lease_ms): (Asker, Option<u64>),
        effects: &mut Vec<Effect>,
    ) {
        let grant = PendingGrant {
            token,
            asker,
            holds: Few::new(),
            lease_ms,
            wanted: acks.replicas.get(),
            got: 0,
            offset: None,
            deadline: self.now.after_ms(acks.timeout_ms.into()),
        };
        self.holds.acks.add(&mut self.timers, grant);
        effects.push(Effect::CountAcks);
    }

    /// All that was replicated so far ends here. O(grants that were unplaced).
    pub(in crate::engine) fn propagated(&mut self, offset: u64) {
        self.holds.acks.place(offset);
    }

    /// So many replicas have acknowledged this grant.
    pub(in crate::engine) fn acknowledged(
        &mut self,
        token: Token,
        replicas: u32,
        effects: &mut Vec<Effect>,
    ) {
        let Some(grant) = self.holds.acks.get_mut(token) else {
            return;
        };
        if replicas < grant.wanted {
            grant.got = replicas;
            return;
        }
        // What went by a flush was lost before this.
        let holds = grant.holds.clone();
        let mut gone = false;
        for hold in holds {
            gone = gone || self.sweep_hold(hold, effects);
        }
        if gone {
            return;
        }
        match self.is_asker_here(token) {
            true => self.grant_acknowledged(token, effects),
            false => self.withdraw(token, effects),
        }
    }

    /// This connection speaks for its session no longer: what it asked for and was not told of is withdrawn. O(log of such
    /// grants) for each.
    pub(in crate::engine) fn withdraw_asked_by(
        &mut self,
        client: ClientId,
        effects: &mut Vec<Effect>,
    ) {
        while let Some(token) = self.holds.acks.first_asked_by(client) {
            self.withdraw(token, effects);
        }
    }

    /// The same where the connection is no more, for so many of its grants at most: the others are withdrawn when they are
    /// acknowledged, or their time is over.
    pub(in crate::engine) fn take_back_asked_by(&mut self, client: ClientId) {
        for _ in 0..GRANTS_TAKEN_BACK_PER_STEP {
            let Some(token) = self.holds.acks.first_asked_by(client) else {
                return;
            };
            self.take_back_pending(token);
        }
    }

    /// How many holds of a session are not withdrawn. O(log of the owners that have such).
    pub(in crate::engine) fn count_held_by(&self, session: Id<Client>) -> i64 {
        let withdrawn = self.holds.acks.withdrawn_of(session);
        i64::from(self.clients[session].hold_count) - i64::from(withdrawn)
    }

    /// A grant is acknowledged: its owner is told.
    fn grant_acknowledged(&mut self, token: Token, effects: &mut Vec<Effect>) {
        let Some(grant) = self.holds.acks.take(&mut self.timers, token) else {
            return;
        };
        let lease = grant.lease_ms.map(|ms| self.now.after_ms(ms));
        for hold in &grant.holds {
            self.holds.set_ack(*hold, Ack::Settled);
            // Replicas count it from the grant on: nothing may be written here.
            if lease.is_some() {
                self.holds.set_lease(&mut self.timers, *hold, lease);
            }
        }
        effects.push(grant.asker.told(WaitEnd::Granted(token)));
    }

    fn is_asker_here(&self, token: Token) -> bool {
        let grant = self.holds.acks.get(token);
        grant.is_some_and(|grant| self.knows_client(grant.asker.reply_to.client))
    }

    /// A grant is withdrawn, and its asker is told so, if that is there.
    fn withdraw(&mut self, token: Token, effects: &mut Vec<Effect>) {
        let is_here = self.is_asker_here(token);
        let grant = self.take_back_pending(token);
        if let Some(grant) = grant.filter(|_| is_here) {
            let refusal = grant.refusal();
            effects.push(grant.asker.told(WaitEnd::Refused(refusal)));
        }
    }

    /// A grant is withdrawn without a word.
    fn take_back_pending(&mut self, token: Token) -> Option<PendingGrant> {
        let grant = self.holds.acks.take(&mut self.timers, token)?;
        self.totals.grants_withdrawn += 1;
        for hold in &grant.holds {
            self.holds.set_ack(*hold, Ack::Withdrawn);
        }
        Some(grant)
    }

    /// A connection that is blocked for a grant is not to wait for it any longer: what it is told, if it is.
    pub(in crate::engine) fn unblock_pending(&mut self, client: ClientId) -> Option<Reply> {
        let token = self.holds.acks.blocking(client)?;
        let grant = self.take_back_pending(token)?;
        Some(Reply::Refused(grant.refusal()))
    }

    /// An owner gives up what it was granted and not told of: to it this was a wait. Whether the hold was such.
    pub(in crate::engine) fn give_up_pending(&mut self, hold: Id<Hold>) -> bool {
        match self.holds.ack(hold) {
            Ack::Settled => false,
            Ack::Pending(token) => self.take_back_pending(token).is_some(),
            Ack::Withdrawn => false,
        }
    }

    /// So many replicas are connected. What wants more is withdrawn.
    pub(in crate::engine) fn count_replicas(&mut self, replicas: u32, effects: &mut Vec<Effect>) {
        self.replicas = replicas;
        while let Some(token) = self.holds.acks.first_that_wants_more_than(replicas) {
            self.withdraw(token, effects);
        }
    }

    /// These holds go by another name from now on. Who has not been told of such a grant knows the old one only, which somebody
    /// else may have by the time of the acknowledgement.
    pub(in crate::engine) fn withdraw_pending_of(
        &mut self,
        holds: &[Id<Hold>],
        effects: &mut Vec<Effect>,
    ) {
        for hold in holds {
            if let Ack::Pending(token) = self.holds.ack(*hold) {
                self.withdraw(token, effects);
            }
        }
    }

    /// The same for all holds of these databases. O(such grants).
    pub(in crate::engine) fn withdraw_pending_in(
        &mut self,
        dbs: [Db; 2],
        effects: &mut Vec<Effect>,
    ) {
        let is_there = |hold: &Id<Hold>| {
            let key = self.holds[*hold].key;
            dbs.contains(&self.keys.key_of(key).db)
        };
        let grants = self.holds.acks.tokens();
        let grants = grants.filter_map(|token| self.holds.acks.get(token));
        let holds = grants.flat_map(|grant| grant.holds.iter().copied());
        let holds: Few<_> = holds.filter(is_there).collect();
        self.withdraw_pending_of(&holds, effects);
    }

    /// Withdraws the grants whose time is over.
    pub(in crate::engine) fn withdraw_due(&mut self, effects: &mut Vec<Effect>) {
        while let Some((end, token)) = self.timers.first_acks() {
            if end > self.now {
                return;
            }
            self.withdraw(token, effects);
        }
    }

    /// Withdraws what is left of grants of which a hold has ended; before the reply to the current command, if there is one.
    #[cold]
    pub(in crate::engine) fn withdraw_broken(&mut self, effects: &mut Vec<Effect>) {
        let reply = effects.pop_if(|effect| matches!(effect, Effect::Reply(_) | Effect::Block));
        while let Some(token) = self.holds.acks.first_broken() {
            self.withdraw(token, effects);
        }
        effects.extend(reply);
    }

    /// Ends up to so many holds that were withdrawn. The keyspace may be written.
    pub(in crate::engine) fn release_withdrawn(&mut self, most: usize, effects: &mut Vec<Effect>) {
        for _ in 0..most {
            if self.has_granted_enough() {
                return;
            }
            let Some(hold) = self.holds.acks.first_withdrawn() else {
                return;
            };
            if !self.sweep_hold(hold, effects) {
                self.release_one_withdrawn(hold, effects);
            }
        }
    }

    pub(in crate::engine) fn release_one_withdrawn(
        &mut self,
        hold: Id<Hold>,
        effects: &mut Vec<Effect>,
    ) {
        let owner = self.holds[hold].client;
        self.release(hold, effects);
        self.clients.forget_if_done(owner);
    }

    /// This server has a master now, which decides about everything that is held.
    pub(in crate::engine) fn forget_acks(&mut self, effects: &mut Vec<Effect>) {
        for token in self.holds.acks.tokens().collect::<Few<_>>() {
            self.withdraw(token, effects);
        }
        self.replicas = 0;
    }

    /// What was withdrawn and had not ended is told of by the master, as all that sessions hold.
    pub(in crate::engine) fn leave_withdrawn_to_master(&mut self) {
        while let Some(hold) = self.holds.acks.first_withdrawn() {
            self.holds.set_ack(hold, Ack::Settled);
        }
    }
}

impl PendingGrant {
    fn refusal(&self) -> Refusal {
        let (got, wanted) = (self.got, self.wanted);
        Refusal::NoAcks { got, wanted }
    }
}
