//! All deadlines.
//!
//! Each kind has its own ordered set: a wait ends at its deadline, but a lease only when the keyspace may be written, so a million
//! overdue leases must not delay a wait.

use crate::engine::state::rows::{Client, Hold, Waiter};
use crate::engine::storage::arena::Id;
use crate::engine::types::{Moment, Token};
use std::collections::BTreeSet;

/// What ends or is due at a deadline.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::engine) enum Timer {
    /// A wait times out.
    Wait(Id<Waiter>),
    /// A lease expires.
    Lease(Id<Hold>),
    /// The grace of a detached session expires.
    Grace(Id<Client>),
    /// The grant with this token is withdrawn if not acknowledged.
    Acks(Token),
    /// The next batch of TTL backstops is refreshed.
    Renewal,
    /// The quarantine ends.
    Quarantine,
}

/// Invariant: each record with a deadline has exactly one timer here, and there are no others; `next` is the earliest.
#[derive(Default)]
pub(in crate::engine) struct Timers {
    waits: BTreeSet<(Moment, Id<Waiter>)>,
    leases: BTreeSet<(Moment, Id<Hold>)>,
    graces: BTreeSet<(Moment, Id<Client>)>,
    acks: BTreeSet<(Moment, Token)>,
    renewal: Option<Moment>,
    quarantine: Option<Moment>,
    next: Option<Moment>,
}

impl Timers {
    /// Moves a timer from its previous deadline to another one, or removes it. O(log n), n = timers of its kind.
    #[inline]
    pub fn set(&mut self, timer: Timer, previous: Option<Moment>, end: Option<Moment>) {
        if previous != end {
            self.change(timer, previous, end);
        }
    }

    fn change(&mut self, timer: Timer, previous: Option<Moment>, end: Option<Moment>) {
        match timer {
            Timer::Wait(id) => change(&mut self.waits, id, previous, end),
            Timer::Lease(id) => change(&mut self.leases, id, previous, end),
            Timer::Grace(id) => change(&mut self.graces, id, previous, end),
            Timer::Acks(token) => change(&mut self.acks, token, previous, end),
            Timer::Renewal => self.renewal = end,
            Timer::Quarantine => self.quarantine = end,
        }
        self.next = match previous.is_some() && previous == self.next {
            true => self.first(),
            false => earlier(self.next, end),
        };
    }

    fn first(&self) -> Option<Moment> {
        let wait = self.first_wait().map(|(end, _)| end);
        let lease = self.first_lease().map(|(end, _)| end);
        let grace = self.first_grace().map(|(end, _)| end);
        let acks = self.first_acks().map(|(end, _)| end);
        let all = [wait, lease, grace, acks, self.renewal, self.quarantine];
        all.into_iter().flatten().min()
    }

    /// The earliest deadline. O(1).
    #[inline]
    pub fn next(&self) -> Option<Moment> {
        self.next
    }

    pub fn first_wait(&self) -> Option<(Moment, Id<Waiter>)> {
        self.waits.first().copied()
    }

    pub fn first_lease(&self) -> Option<(Moment, Id<Hold>)> {
        self.leases.first().copied()
    }

    /// The leases that expire by then, in order.
    pub fn leases_until(&self, now: Moment) -> impl Iterator<Item = Id<Hold>> {
        let due = self.leases.iter().take_while(move |(end, _)| *end <= now);
        due.map(|(_, hold)| *hold)
    }

    /// The graces that expire by then, in order.
    pub fn graces_until(&self, now: Moment) -> impl Iterator<Item = Id<Client>> {
        let due = self.graces.iter().take_while(move |(end, _)| *end <= now);
        due.map(|(_, session)| *session)
    }

    pub fn first_grace(&self) -> Option<(Moment, Id<Client>)> {
        self.graces.first().copied()
    }

    pub fn first_acks(&self) -> Option<(Moment, Token)> {
        self.acks.first().copied()
    }

    /// All pending grants, by deadline.
    pub fn acks(&self) -> impl Iterator<Item = (Moment, Token)> {
        self.acks.iter().copied()
    }

    pub fn renewal(&self) -> Option<Moment> {
        self.renewal
    }

    /// The end of the quarantine, also if it has passed.
    pub fn quarantine(&self) -> Option<Moment> {
        self.quarantine
    }

    /// Panics unless exactly these timers are set. O(everything).
    pub fn check(&self, all: impl Iterator<Item = (Moment, Timer)>) {
        let waits = self.waits.iter().map(|(end, id)| (*end, Timer::Wait(*id)));
        let leases = self
            .leases
            .iter()
            .map(|(end, id)| (*end, Timer::Lease(*id)));
        let graces = self
            .graces
            .iter()
            .map(|(end, id)| (*end, Timer::Grace(*id)));
        let of_one = [
            (self.renewal, Timer::Renewal),
            (self.quarantine, Timer::Quarantine),
        ];
        let of_one = of_one
            .into_iter()
            .filter_map(|(end, timer)| Some((end?, timer)));
        let acks = self.acks.iter();
        let acks = acks.map(|(end, token)| (*end, Timer::Acks(*token)));
        let all_set = waits.chain(leases).chain(graces).chain(acks);
        let set: BTreeSet<_> = all_set.chain(of_one).collect();
        assert_eq!(all.collect::<BTreeSet<_>>(), set);
        assert_eq!(self.next, set.first().map(|(end, _)| *end));
    }
}

fn change<T: Ord + Copy>(
    timers: &mut BTreeSet<(Moment, T)>,
    id: T,
    previous: Option<Moment>,
    end: Option<Moment>,
) {
    if let Some(previous) = previous {
        timers.remove(&(previous, id));
    }
    if let Some(end) = end {
        timers.insert((end, id));
    }
}

fn earlier(one: Option<Moment>, other: Option<Moment>) -> Option<Moment> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_is_the_earliest_of_all_kinds_whatever_is_set_and_removed() {
        let mut timers = Timers::default();
        let mut all: Vec<(Timer, Option<Moment>)> =
            vec![(Timer::Renewal, None), (Timer::Quarantine, None)];
        for number in 1..=4 {
            all.push((Timer::Wait(Id::of_number(number).unwrap()), None));
            all.push((Timer::Lease(Id::of_number(number).unwrap()), None));
            all.push((Timer::Grace(Id::of_number(number).unwrap()), None));
            all.push((Timer::Acks(Token(number.into())), None));
        }
        let mut seed = 7_u64;
        for _ in 0..5000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (which, at) = ((seed >> 33) as usize, (seed >> 50) % 12);
            let count = all.len();
            let (timer, end) = &mut all[which % count];
            let previous = std::mem::replace(end, (at > 4).then_some(Moment(at)));
            timers.set(*timer, previous, *end);
            let set = all
                .iter()
                .filter_map(|(timer, end)| Some(((*end)?, *timer)));
            timers.check(set);
        }
    }
}
