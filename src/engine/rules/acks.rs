//! Grants with `ACKS`: a number of replicas must acknowledge them before the client is told.
//!
//! Until then the grant is *pending*: its keys are created and replicated, and taken for every other client. Once acknowledged,
//! its client is told, and its holds are like any other. Otherwise it is *withdrawn*: the client gets `NOACKS` with the count,
//! and its holds become those of a dead client. A replica promoted in between may keep the hold for its session, which finds
//! out when it resumes.

use crate::engine::effect::{Effect, Gone, Refusal, Reply, WaitEnd};
use crate::engine::limits::STEPS_PER_GRANT;
use crate::engine::state::holds::Grant;
use crate::engine::state::rows::{Client, Death, Hold, PendingGrant, Requester};
use crate::engine::storage::arena::Id;
use crate::engine::storage::few::Few;
use crate::engine::tables::Engine;
use crate::engine::types::{AskedAcks, ClientId, Db, KeyBuf, Moment, ReplyTo, Token};

/// A grant whose acknowledgements are to be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    pub token: Token,
    /// The replication offset that acknowledges it; none while unknown.
    pub offset: Option<u64>,
    pub wanted: u32,
}

impl Engine {
    /// Whether any pending grant has no replication offset yet. O(log pending grants).
    pub fn has_unplaced_grants(&self) -> bool {
        self.holds.acks.is_any_unplaced()
    }

    /// The number of pending grants. O(1).
    pub fn pending_grants(&self) -> usize {
        self.holds.acks.len()
    }

    /// The oldest pending grant per requested replica count: later ones cannot have more acknowledgements. O(distinct counts).
    pub fn grants_to_count(&self) -> Vec<Counted> {
        let first = self.holds.acks.first_of_each();
        first.map(Self::counted).collect()
    }

    /// Up to `most` grants that the next tick withdraws unless they are acknowledged before it.
    pub fn grants_due(&self, now: Moment, most: usize) -> Vec<Counted> {
        let due = self.timers.acks.until(now);
        let due = due.filter_map(|token| self.holds.acks.get(token));
        due.take(most).map(Self::counted).collect()
    }

    /// The pending grant for which this connection is blocked.
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

    /// The refusal of a request with `ACKS`, if it cannot be granted now: it needs a session, since a promoted replica keeps only
    /// sessions, and as many connected replicas as it wants.
    pub(in crate::engine) fn why_not_acked(
        &self,
        client: Id<Client>,
        acks: AskedAcks,
    ) -> Option<Refusal> {
        if self.clients[client].session().is_none() {
            return Some(Refusal::AcksWithoutSession);
        }
        let wanted = acks.replicas.get();
        (wanted > self.replicas).then_some(Refusal::NoAcks { got: 0, wanted })
    }

    /// This grant with `ACKS` is pending; its holds follow. The key is the request's first one. O(log pending grants).
    pub(in crate::engine) fn begin_pending(
        &mut self,
        grant: &Grant<'_>,
        acks: AskedAcks,
        reply_to: ReplyTo,
        key: KeyBuf,
        effects: &mut Vec<Effect>,
    ) {
        let requester = Requester {
            reply_to,
            key,
            label: grant.terms.label.into(),
        };
        let grant = PendingGrant {
            token: grant.token,
            requester,
            holds: Few::new(),
            lease_ms: grant.terms.lease_ms,
            wanted: acks.replicas.get(),
            got: 0,
            offset: None,
            deadline: self.now.after_ms(acks.timeout_ms.into()),
        };
        self.holds.acks.add(&mut self.timers, grant);
        effects.push(Effect::CountAcks);
    }

    /// Everything replicated so far ends at this offset. O(grants without one).
    pub(in crate::engine) fn propagated(&mut self, offset: u64) {
        self.holds.acks.place(offset);
    }

    /// The number of replicas that have acknowledged a grant.
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
        // A flush before the acknowledgement took the hold.
        let holds = grant.holds.clone();
        let mut gone = false;
        for hold in holds {
            gone = gone || self.sweep_hold(hold, effects);
        }
        if gone {
            return;
        }
        match self.is_as_asked_for(token) {
            true => self.grant_acknowledged(token, effects),
            false => self.withdraw(token, effects),
        }
    }

    /// The steps that the release of a hold takes: the requester of a pending one is told, too.
    pub(in crate::engine) fn steps_to_release(&self, hold: Id<Hold>) -> usize {
        if self.is_settled(hold) {
            1
        } else {
            STEPS_PER_GRANT
        }
    }

    /// A connection was detached from its session: withdraws its pending grants, within the budget. The others are withdrawn when
    /// they are acknowledged or time out.
    pub(in crate::engine) fn withdraw_asked_by(
        &mut self,
        client: ClientId,
        effects: &mut Vec<Effect>,
    ) {
        while let Some(token) = self.holds.acks.first_asked_by(client)
            && self.spend_on_grant(token)
        {
            self.withdraw(token, effects);
        }
    }

    /// Spends the steps that the withdrawal of a grant takes. False if none was left before.
    fn spend_on_grant(&mut self, token: Token) -> bool {
        let grant = self.holds.acks.get(token);
        let keys = grant.map_or(1, |grant| grant.holds.len());
        self.budget.spend(STEPS_PER_GRANT * keys)
    }

    /// The same for an ended connection, which is told nothing.
    pub(in crate::engine) fn take_back_asked_by(&mut self, client: ClientId) {
        while let Some(token) = self.holds.acks.first_asked_by(client)
            && self.spend_on_grant(token)
        {
            self.take_back_pending(token);
        }
    }

    /// A grant is acknowledged: its client is told.
    fn grant_acknowledged(&mut self, token: Token, effects: &mut Vec<Effect>) {
        let Some(grant) = self.holds.acks.take(&mut self.timers, token) else {
            return;
        };
        let lease = grant.lease_ms.map(|ms| self.now.after_ms(ms));
        for hold in &grant.holds {
            self.holds.settle(*hold);
            // On replicas the lease runs from the grant: nothing may be replicated here.
            if lease.is_some() {
                self.holds.set_lease(&mut self.timers, *hold, lease);
            }
            self.show(self.holds[*hold].key, effects);
        }
        effects.push(grant.requester.told(WaitEnd::Granted(token)));
    }

    fn is_requester_connected(&self, token: Token) -> bool {
        let grant = self.holds.acks.get(token);
        grant.is_some_and(|grant| self.knows_client(grant.requester.reply_to.client))
    }

    /// Whether the connection that asked for a grant is still that of the session that has it, and the key has the same name.
    fn is_as_asked_for(&self, token: Token) -> bool {
        let as_asked_for = || {
            let grant = self.holds.acks.get(token)?;
            let connection = self.clients.find(grant.requester.reply_to.client)?;
            let hold = &self.holds[*grant.holds.first()?];
            let is_attached = self.clients.owner(connection) == hold.client;
            Some(is_attached && self.keys.key_of(hold.key) == grant.requester.key.as_key())
        };
        as_asked_for().unwrap_or(false)
    }

    /// Withdraws a grant, and tells its requester if that is connected.
    fn withdraw(&mut self, token: Token, effects: &mut Vec<Effect>) {
        let is_here = self.is_requester_connected(token);
        let grant = self.take_back_pending(token);
        if let Some(grant) = grant.filter(|_| is_here) {
            let refusal = grant.refusal();
            effects.push(grant.requester.told(WaitEnd::Refused(refusal)));
        }
    }

    /// Withdraws a grant silently.
    fn take_back_pending(&mut self, token: Token) -> Option<PendingGrant> {
        let grant = self.holds.acks.take(&mut self.timers, token)?;
        self.totals.grants_withdrawn += 1;
        self.orphan(&grant.holds);
        Some(grant)
    }

    /// The holds of a grant of which its client never learns become those of a dead client. Each is released, and handed over
    /// in the same step, when the keyspace may be written. O(holds).
    fn orphan(&mut self, holds: &[Id<Hold>]) {
        let Some(first) = holds.first() else {
            return;
        };
        let session = self.session_on_replicas(*first);
        let dead = self.clients.add_dead(Death::Withdrawn { session });
        for hold in holds {
            let owner = self.holds[*hold].client;
            if self.holds.pending(*hold).is_some() {
                self.holds.settle(*hold);
            }
            self.holds.give_to(&mut self.clients, *hold, dead);
            self.clients.forget_if_done(owner);
        }
    }

    /// A connection was unblocked with this grant, and will not learn of it.
    pub(in crate::engine) fn take_back(
        &mut self,
        client: ClientId,
        granted: Option<Token>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(client) = self.clients.find(client) else {
            return;
        };
        let owner = self.clients.owner(client);
        let holds = self.holds.of_client(&self.clients, owner);
        let granted = holds.filter(|hold| Some(self.holds[*hold].token) == granted);
        let granted: Few<_> = granted.collect();
        for hold in &granted {
            self.hide_held(self.holds[*hold].key, Gone::Released, effects);
        }
        self.orphan(&granted);
    }

    /// Withdraws the grant for which a connection is blocked; returns its reply.
    pub(in crate::engine) fn unblock_pending(&mut self, client: ClientId) -> Option<Reply> {
        let token = self.holds.acks.blocking(client)?;
        let grant = self.take_back_pending(token)?;
        Some(Reply::Refused(grant.refusal()))
    }

    /// The owner cancels a pending hold, which it sees as a wait; returns whether the hold was pending.
    pub(in crate::engine) fn give_up_pending(&mut self, hold: Id<Hold>) -> bool {
        let token = self.holds.pending(hold);
        token.is_some_and(|token| self.take_back_pending(token).is_some())
    }

    /// The number of connected replicas changed.
    pub(in crate::engine) fn count_replicas(&mut self, replicas: u32, effects: &mut Vec<Effect>) {
        self.replicas = replicas;
        self.withdraw_hopeless(effects);
    }

    /// Withdraws grants that want more replicas than are connected, within the budget.
    pub(in crate::engine) fn withdraw_hopeless(&mut self, effects: &mut Vec<Effect>) {
        while let Some(token) = self.first_hopeless_grant()
            && self.spend_on_grant(token)
        {
            self.withdraw(token, effects);
        }
    }

    /// The oldest grant that wants more replicas than are connected. O(distinct counts).
    pub(in crate::engine) fn first_hopeless_grant(&self) -> Option<Token> {
        self.holds.acks.first_that_wants_more_than(self.replicas)
    }

    /// These holds are re-keyed: withdraws their pending grants, within the budget. The requester only knows the old key, which another
    /// client may hold by the time of the acknowledgement. The others are withdrawn when they are acknowledged or time out.
    pub(in crate::engine) fn withdraw_pending_of(
        &mut self,
        holds: &[Id<Hold>],
        effects: &mut Vec<Effect>,
    ) {
        for hold in holds {
            if let Some(token) = self.holds.pending(*hold)
                && self.spend_on_grant(token)
            {
                self.withdraw(token, effects);
            }
        }
    }

    /// The same for the holds of these databases, within the budget: the other grants are withdrawn when they are acknowledged or
    /// time out. O(pending grants).
    pub(in crate::engine) fn withdraw_pending_in(
        &mut self,
        dbs: [Db; 2],
        effects: &mut Vec<Effect>,
    ) {
        let is_there = |token: &Token| {
            let grant = self.holds.acks.get(*token);
            let hold = grant.and_then(|grant| grant.holds.first());
            hold.is_some_and(|hold| dbs.contains(&self.keys.key_of(self.holds[*hold].key).db))
        };
        let most = self.budget.left() / STEPS_PER_GRANT;
        let tokens = self.holds.acks.tokens().filter(is_there).take(most);
        for token in tokens.collect::<Few<_>>() {
            if self.spend_on_grant(token) {
                self.withdraw(token, effects);
            }
        }
    }

    /// Withdraws the grants that timed out, within the budget.
    pub(in crate::engine) fn withdraw_due(&mut self, effects: &mut Vec<Effect>) {
        while let Some(token) = self.timers.acks.first_until(self.now)
            && self.spend_on_grant(token)
        {
            self.withdraw(token, effects);
        }
    }

    /// Withdraws the grants that have lost a hold; tells their clients before the current command's reply.
    #[cold]
    pub(in crate::engine) fn withdraw_broken(&mut self, effects: &mut Vec<Effect>) {
        let reply = effects.pop_if(|effect| matches!(effect, Effect::Reply(_) | Effect::Block));
        while let Some(token) = self.holds.acks.first_broken() {
            self.withdraw(token, effects);
        }
        effects.extend(reply);
    }

    /// This server became a replica: withdraws all pending grants.
    pub(in crate::engine) fn forget_acks(&mut self, effects: &mut Vec<Effect>) {
        for token in self.holds.acks.tokens().collect::<Few<_>>() {
            self.withdraw(token, effects);
        }
        self.replicas = 0;
    }
}

impl PendingGrant {
    fn refusal(&self) -> Refusal {
        let (got, wanted) = (self.got, self.wanted);
        Refusal::NoAcks { got, wanted }
    }
}
