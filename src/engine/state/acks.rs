//! Grants that replicas have not acknowledged yet, and holds of grants that were withdrawn.
//!
//! A grant asked for with `ACKS` is a hold from its beginning, so that everybody else finds the key taken; its owner is
//! told of it only when so many replicas have it. Each such grant is known by its token. The server says how far
//! replication has come by an *offset*, which is known a moment after the grant: until then the grant is unplaced.

use crate::engine::effect::{Effect, WaitEnd};
use crate::engine::state::rows::{Ack, Asker, Client, Hold, PendingGrant, Waiter};
use crate::engine::state::timers::{Timer, Timers};
use crate::engine::storage::arena::Id;
use crate::engine::types::{ClientId, KeyBuf, Moment, Token};
use std::collections::{BTreeMap, BTreeSet};

impl Asker {
    /// Who waits for a request of which this is the first key.
    pub fn of(waiter: &Waiter, key: KeyBuf) -> Self {
        Asker {
            reply_to: waiter.reply_to,
            key,
            label: waiter.terms.label.clone(),
        }
    }

    /// Tells it what became of its request.
    pub fn told(self, end: WaitEnd) -> Effect {
        let about = self.reply_to.push.then(|| (self.key, &*self.label));
        end.told(self.reply_to, about)
    }
}

/// Invariant: each grant stands in `by_wanted` under the number of replicas that it wants, in `asked` with its connection, and in
/// `unplaced` if it has no offset; offsets rise with tokens. Each has its timer. `blocked` names those whose connection is
/// blocked, `broken` those of which a hold has ended. The holds that a grant names are `Ack::Pending` with its token, those in
/// `withdrawn` are `Ack::Withdrawn`, and no others are either.
#[derive(Default)]
pub(in crate::engine) struct Acks {
    grants: BTreeMap<Token, PendingGrant>,
    by_wanted: BTreeMap<u32, BTreeSet<Token>>,
    asked: BTreeSet<(ClientId, Token)>,
    unplaced: BTreeSet<Token>,
    blocked: BTreeMap<ClientId, Token>,
    broken: BTreeSet<Token>,
    withdrawn: BTreeSet<Id<Hold>>,
    /// How many of those each owner has; none that has none.
    withdrawn_of: BTreeMap<Id<Client>, u32>,
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
        timers.set(Timer::Acks(token), None, Some(grant.deadline));
        self.asked.insert((grant.asker.reply_to.client, token));
        if !grant.asker.reply_to.push {
            self.blocked.insert(grant.asker.reply_to.client, token);
        }
        self.by_wanted
            .entry(grant.wanted)
            .or_default()
            .insert(token);
        self.unplaced.insert(token);
        self.grants.insert(token, grant);
    }

    /// O(log of the grants).
    pub fn take(&mut self, timers: &mut Timers, token: Token) -> Option<PendingGrant> {
        let grant = self.grants.remove(&token)?;
        timers.set(Timer::Acks(token), Some(grant.deadline), None);
        self.asked.remove(&(grant.asker.reply_to.client, token));
        if !grant.asker.reply_to.push {
            self.blocked.remove(&grant.asker.reply_to.client);
        }
        let same = self.by_wanted.get_mut(&grant.wanted);
        if same.is_some_and(|same| same.remove(&token) && same.is_empty()) {
            self.by_wanted.remove(&grant.wanted);
        }
        self.unplaced.remove(&token);
        self.broken.remove(&token);
        Some(grant)
    }

    /// Whether there are grants that have no offset. O(1).
    pub fn is_any_unplaced(&self) -> bool {
        !self.unplaced.is_empty()
    }

    /// Gives all of those this offset.
    pub fn place(&mut self, offset: u64) {
        for token in std::mem::take(&mut self.unplaced) {
            if let Some(grant) = self.grants.get_mut(&token) {
                grant.offset = Some(offset);
            }
        }
    }

    /// Of the grants that want the same number of replicas the first, for each number, if it has an offset: those after it
    /// have no more acknowledgements.
    pub fn first_of_each(&self) -> impl Iterator<Item = &PendingGrant> {
        let first = self.by_wanted.values().filter_map(|same| same.first());
        let first = first.filter_map(|token| self.grants.get(token));
        first.filter(|grant| grant.offset.is_some())
    }

    /// One that wants more replicas than this. O(log of the grants).
    pub fn first_that_wants_more_than(&self, replicas: u32) -> Option<Token> {
        let mut more = self.by_wanted.range(replicas.saturating_add(1)..);
        more.next()?.1.first().copied()
    }

    pub fn tokens(&self) -> impl Iterator<Item = Token> {
        self.grants.keys().copied()
    }

    /// The grant for which this connection is blocked.
    pub fn blocking(&self, client: ClientId) -> Option<Token> {
        self.blocked.get(&client).copied()
    }

    /// One for which this connection asked. O(log of the grants).
    pub fn first_asked_by(&self, client: ClientId) -> Option<Token> {
        let mut its = self.asked.range((client, Token(0))..);
        let (asker, token) = its.next()?;
        (*asker == client).then_some(*token)
    }

    /// A hold was written down that is one of this grant. O(log of the grants).
    pub fn hold_begins(&mut self, token: Token, hold: Id<Hold>) {
        if let Some(grant) = self.grants.get_mut(&token) {
            grant.holds.push(hold);
        }
    }

    /// A hold of this grant has ended. O(its holds).
    pub fn hold_ends(&mut self, token: Token, hold: Id<Hold>) {
        if let Some(grant) = self.grants.get_mut(&token) {
            grant.holds.retain(|other| *other != hold);
            self.broken.insert(token);
        }
    }

    /// Whether a hold of a grant has ended. O(1).
    #[inline]
    pub fn is_any_broken(&self) -> bool {
        !self.broken.is_empty()
    }

    /// A grant of which a hold has ended. O(1).
    pub fn first_broken(&self) -> Option<Token> {
        self.broken.first().copied()
    }

    /// A hold of this owner is withdrawn. O(log of the withdrawn).
    pub fn withdraw(&mut self, hold: Id<Hold>, owner: Id<Client>) {
        if self.withdrawn.insert(hold) {
            *self.withdrawn_of.entry(owner).or_default() += 1;
        }
    }

    /// A hold of this owner that was has ended. O(log of the withdrawn).
    pub fn forget_withdrawn(&mut self, hold: Id<Hold>, owner: Id<Client>) {
        if self.withdrawn.remove(&hold)
            && let Some(count) = self.withdrawn_of.get_mut(&owner)
        {
            *count -= 1;
            if *count == 0 {
                self.withdrawn_of.remove(&owner);
            }
        }
    }

    /// Whether there are withdrawn holds. O(1).
    #[inline]
    pub fn has_withdrawn(&self) -> bool {
        !self.withdrawn.is_empty()
    }

    /// How many holds of this owner are. O(log of the owners that have such).
    pub fn withdrawn_of(&self, owner: Id<Client>) -> u32 {
        self.withdrawn_of.get(&owner).copied().unwrap_or(0)
    }

    pub fn withdrawn(&self) -> impl Iterator<Item = Id<Hold>> {
        self.withdrawn.iter().copied()
    }

    pub fn first_withdrawn(&self) -> Option<Id<Hold>> {
        self.withdrawn.first().copied()
    }

    /// The deadlines, for tests.
    pub fn deadlines(&self) -> impl Iterator<Item = (Moment, Timer)> {
        let grants = self.grants.iter();
        grants.map(|(token, grant)| (grant.deadline, Timer::Acks(*token)))
    }

    /// Panics unless the invariant holds of these, which are all: each hold with its owner. O(everything).
    pub fn check(&self, holds: impl Iterator<Item = (Id<Hold>, Id<Client>, Ack)>) {
        assert!(self.broken.is_empty());
        let mut last = None;
        for (token, grant) in &self.grants {
            assert_eq!(self.unplaced.contains(token), grant.offset.is_none());
            assert!(self.by_wanted[&grant.wanted].contains(token));
            let asker = &grant.asker;
            assert!(self.asked.contains(&(asker.reply_to.client, *token)));
            assert!(asker.reply_to.push || self.blocked.get(&asker.reply_to.client) == Some(token));
            assert!(!grant.holds.is_empty() && grant.got < grant.wanted);
            assert!(grant.offset.is_none() || last <= grant.offset);
            last = grant.offset.or(last);
        }
        let same = self.by_wanted.values();
        assert!(same.clone().all(|same| !same.is_empty()));
        assert_eq!(same.map(BTreeSet::len).sum::<usize>(), self.grants.len());
        assert!(self.unplaced.len() <= self.grants.len());
        let blocking = self
            .grants
            .values()
            .filter(|grant| !grant.asker.reply_to.push);
        assert_eq!(blocking.count(), self.blocked.len());
        assert_eq!(self.asked.len(), self.grants.len());
        let mut pending = 0;
        let mut withdrawn_of = BTreeMap::new();
        for (hold, owner, ack) in holds {
            match ack {
                Ack::Settled => {}
                Ack::Pending(token) => {
                    assert!(self.grants[&token].holds.contains(&hold));
                    pending += 1;
                }
                Ack::Withdrawn => {
                    assert!(self.withdrawn.contains(&hold));
                    *withdrawn_of.entry(owner).or_default() += 1;
                }
            }
        }
        let named = self.grants.values().map(|grant| grant.holds.len());
        assert_eq!(named.sum::<usize>(), pending);
        assert_eq!(self.withdrawn_of, withdrawn_of);
        let withdrawn = withdrawn_of.values().sum::<u32>();
        assert_eq!(self.withdrawn.len(), withdrawn as usize);
    }
}
