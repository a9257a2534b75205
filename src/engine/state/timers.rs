//! All deadlines.
//!
//! Each kind has its own ordered set: a wait ends at its deadline, but a lease only when the keyspace may be written, so a million
//! overdue leases must not delay a wait.

use crate::engine::state::rows::{Client, Hold, Waiter};
use crate::engine::storage::arena::Id;
use crate::engine::types::{Moment, Token};
use std::collections::BTreeSet;

/// Invariant: each record with a deadline is in its set exactly once, and nothing else is.
#[derive(Default)]
pub(in crate::engine) struct Timers {
    /// When a wait times out.
    pub waits: Due<Id<Waiter>>,
    /// When a lease expires.
    pub leases: Due<Id<Hold>>,
    /// When the grace of a detached session expires.
    pub graces: Due<Id<Client>>,
    /// When the grant with this token is withdrawn if not acknowledged.
    pub acks: Due<Token>,
    /// When the next batch of TTL backstops is refreshed.
    pub renewal: Option<Moment>,
    /// When the quarantine ends, also if it has passed.
    pub quarantine: Option<Moment>,
}

impl Timers {
    /// The earliest deadline. O(1).
    #[inline]
    pub fn first(&self) -> Option<Moment> {
        let (leases, graces) = (self.leases.first(), self.graces.first());
        let all = [self.first_without_writes(), leases, graces, self.renewal];
        all.into_iter().flatten().min()
    }

    /// The earliest of those that need no write to the keyspace. O(1).
    #[inline]
    pub fn first_without_writes(&self) -> Option<Moment> {
        let (waits, acks) = (self.waits.first(), self.acks.first());
        [waits, acks, self.quarantine].into_iter().flatten().min()
    }
}

/// The deadlines of one kind, in order.
pub(in crate::engine) struct Due<T> {
    all: BTreeSet<(Moment, T)>,
    /// The earliest: each event asks for it.
    first: Option<Moment>,
}

impl<T> Default for Due<T> {
    fn default() -> Self {
        let (all, first) = (BTreeSet::new(), None);
        Due { all, first }
    }
}

impl<T: Ord + Copy> Due<T> {
    /// Moves a deadline, or adds or removes it. O(log n), n = deadlines of its kind.
    #[inline]
    pub fn set(&mut self, of: T, previous: Option<Moment>, end: Option<Moment>) {
        if previous != end {
            self.change(of, previous, end);
        }
    }

    fn change(&mut self, of: T, previous: Option<Moment>, end: Option<Moment>) {
        if let Some(previous) = previous {
            self.all.remove(&(previous, of));
        }
        if let Some(end) = end {
            self.all.insert((end, of));
        }
        self.first = self.all.first().map(|(end, _)| *end);
    }

    /// The earliest. O(1).
    #[inline]
    pub fn first(&self) -> Option<Moment> {
        self.first
    }

    /// The first that is due by then. O(log n).
    #[inline]
    pub fn first_until(&self, now: Moment) -> Option<T> {
        let is_due = self.first.is_some_and(|end| end <= now);
        is_due.then(|| self.until(now).next())?
    }

    /// What is due by then, in order. O(log n) to begin.
    pub fn until(&self, now: Moment) -> impl Iterator<Item = T> {
        let due = self.all.iter().take_while(move |(end, _)| *end <= now);
        due.map(|(_, of)| *of)
    }

    /// Panics unless exactly these deadlines are set. O(everything).
    pub fn check(&self, all: impl Iterator<Item = (Moment, T)>) {
        assert!(all.collect::<BTreeSet<_>>() == self.all);
        assert_eq!(self.first, self.all.first().map(|(end, _)| *end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_is_set_moved_and_removed() {
        let mut timers = Timers::default();
        let at = |ms: u64| Some(Moment(ms));
        assert_eq!(timers.first(), None);
        timers.acks.set(Token(1), None, at(5));
        timers.acks.set(Token(2), None, at(3));
        timers.renewal = at(4);
        assert_eq!((timers.first(), timers.acks.first()), (at(3), at(3)));
        let session = Id::of_number(1).expect("a number");
        timers.graces.set(session, None, at(2));
        assert_eq!(timers.first(), at(2));
        assert_eq!(timers.first_without_writes(), at(3));
        timers.graces.set(session, at(2), None);
        timers.acks.set(Token(2), at(3), at(7));
        timers.acks.set(Token(3), None, None);
        assert_eq!((timers.first(), timers.acks.first()), (at(4), at(5)));
        assert_eq!(timers.acks.first_until(Moment(4)), None);
        assert!(timers.acks.until(Moment(7)).eq([Token(1), Token(2)]));
        timers.acks.set(Token(1), at(5), None);
        timers.acks.check([(Moment(7), Token(2))].into_iter());
    }
}
