//! Pending grants (`ACKS`), by token.
//!
//! A pending grant has its holds from the beginning, so the key is taken for every other client. Its replication *offset* is known
//! a moment after the grant; until then it is *unplaced*.

use crate::engine::effect::{Effect, WaitEnd};
use crate::engine::state::rows::{Hold, PendingGrant, Requester};
use crate::engine::state::timers::Timers;
use crate::engine::storage::arena::Id;
use crate::engine::types::{ClientId, Token};
use std::collections::{BTreeMap, BTreeSet};

impl Requester {
    /// The effect that reports the outcome.
    pub fn told(self, end: WaitEnd) -> Effect {
        end.told(self.reply_to, self.key.as_key(), &self.label)
    }
}

/// Invariant: each grant is in `by_wanted` under its replica count, and in `asked` with its connection; offsets rise with tokens, and
/// the last grants may have none yet. Each has its timer. `blocked` has the grants whose connection is blocked, `broken` those
/// that have lost a hold. Exactly the holds of a grant are pending with its token.
#[derive(Default)]
pub(in crate::engine) struct Acks {
    grants: BTreeMap<Token, PendingGrant>,
    by_wanted: BTreeMap<u32, BTreeSet<Token>>,
    asked: BTreeSet<(ClientId, Token)>,
    blocked: BTreeMap<ClientId, Token>,
    broken: BTreeSet<Token>,
}

impl Acks {
    pub fn len(&self) -> usize {
        self.grants.len()
    }

    pub fn get(&self, token: Token) -> Option<&PendingGrant> {
        self.grants.get(&token)
    }

    pub fn get_mut(&mut self, token: Token) -> Option<&mut PendingGrant> {
        self.grants.get_mut(&token)
    }

    /// O(log of the grants).
    pub fn add(&mut self, timers: &mut Timers, grant: PendingGrant) {
        let token = grant.token;
        timers.acks.set(token, None, Some(grant.deadline));
        self.asked.insert((grant.requester.reply_to.client, token));
        if !grant.requester.reply_to.push {
            self.blocked.insert(grant.requester.reply_to.client, token);
        }
        self.by_wanted
            .entry(grant.wanted)
            .or_default()
            .insert(token);
        self.grants.insert(token, grant);
    }

    /// O(log of the grants).
    pub fn take(&mut self, timers: &mut Timers, token: Token) -> Option<PendingGrant> {
        let grant = self.grants.remove(&token)?;
        timers.acks.set(token, Some(grant.deadline), None);
        self.asked.remove(&(grant.requester.reply_to.client, token));
        if !grant.requester.reply_to.push {
            self.blocked.remove(&grant.requester.reply_to.client);
        }
        let same = self.by_wanted.get_mut(&grant.wanted);
        if same.is_some_and(|same| same.remove(&token) && same.is_empty()) {
            self.by_wanted.remove(&grant.wanted);
        }
        self.broken.remove(&token);
        Some(grant)
    }

    /// Whether any grant has no offset. O(log of the grants).
    pub fn is_any_unplaced(&self) -> bool {
        let last = self.grants.last_key_value();
        last.is_some_and(|(_, grant)| grant.offset.is_none())
    }

    /// Sets the offset of all of them.
    pub fn place(&mut self, offset: u64) {
        let grants = self.grants.values_mut().rev();
        let unplaced = grants.take_while(|grant| grant.offset.is_none());
        unplaced.for_each(|grant| grant.offset = Some(offset));
    }

    /// The oldest grant per replica count, if it has an offset; offsets rise with tokens, so later ones cannot have more acks.
    pub fn first_of_each(&self) -> impl Iterator<Item = &PendingGrant> {
        let first = self.by_wanted.values().filter_map(|same| same.first());
        let first = first.filter_map(|token| self.grants.get(token));
        first.filter(|grant| grant.offset.is_some())
    }

    /// The oldest grant that wants more replicas than this. O(distinct counts).
    pub fn first_that_wants_more_than(&self, replicas: u32) -> Option<Token> {
        let more = self.by_wanted.range(replicas.saturating_add(1)..);
        more.filter_map(|(_, same)| same.first()).min().copied()
    }

    pub fn tokens(&self) -> impl Iterator<Item = Token> {
        self.grants.keys().copied()
    }

    /// The grant for which this connection is blocked.
    pub fn blocking(&self, client: ClientId) -> Option<Token> {
        self.blocked.get(&client).copied()
    }

    /// The oldest grant that this connection asked for. O(log grants).
    pub fn first_asked_by(&self, client: ClientId) -> Option<Token> {
        let mut its = self.asked.range((client, Token(0))..);
        let (requester, token) = its.next()?;
        (*requester == client).then_some(*token)
    }

    /// Adds a hold to its grant. O(log grants).
    pub fn hold_begins(&mut self, token: Token, hold: Id<Hold>) {
        if let Some(grant) = self.grants.get_mut(&token) {
            grant.holds.push(hold);
        }
    }

    /// A hold of this grant has ended: the grant is broken. O(its holds).
    pub fn hold_ends(&mut self, token: Token, hold: Id<Hold>) {
        if let Some(grant) = self.grants.get_mut(&token) {
            grant.holds.retain(|other| *other != hold);
            self.broken.insert(token);
        }
    }

    /// Whether any grant has lost a hold. O(1).
    #[inline]
    pub fn is_any_broken(&self) -> bool {
        !self.broken.is_empty()
    }

    /// A grant that has lost a hold. O(1).
    pub fn first_broken(&self) -> Option<Token> {
        self.broken.first().copied()
    }

    /// Panics unless the invariant holds, given the pending holds. O(everything).
    pub fn check(&self, pending: impl Iterator<Item = (Id<Hold>, Token)>, timers: &Timers) {
        let deadlines = self.grants.iter();
        let deadlines = deadlines.map(|(token, grant)| (grant.deadline, *token));
        timers.acks.check(deadlines);
        assert!(self.broken.is_empty());
        let mut last = 0;
        for (token, grant) in &self.grants {
            assert!(self.by_wanted[&grant.wanted].contains(token));
            let requester = &grant.requester;
            assert!(self.asked.contains(&(requester.reply_to.client, *token)));
            assert!(
                requester.reply_to.push
                    || self.blocked.get(&requester.reply_to.client) == Some(token)
            );
            assert!(!grant.holds.is_empty() && grant.got < grant.wanted);
            let offset = grant.offset.unwrap_or(u64::MAX);
            assert!(last <= offset);
            last = offset;
        }
        let same = self.by_wanted.values();
        assert!(same.clone().all(|same| !same.is_empty()));
        assert_eq!(same.map(BTreeSet::len).sum::<usize>(), self.grants.len());
        let blocking = self
            .grants
            .values()
            .filter(|grant| !grant.requester.reply_to.push);
        assert_eq!(blocking.count(), self.blocked.len());
        assert_eq!(self.asked.len(), self.grants.len());
        let named = self.grants.values().map(|grant| grant.holds.len());
        let is_named = |(hold, token)| self.grants[&token].holds.contains(&hold);
        assert_eq!(
            named.sum::<usize>(),
            pending.filter(|at| is_named(*at)).count()
        );
    }
}
