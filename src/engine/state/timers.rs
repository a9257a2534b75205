//! What ends, or is due, although nothing happens: the one table of deadlines.
//!
//! Each kind stands in an order of its own. What ends by time ends in different ways (a wait at once, a lease only when the
//! keyspace may be written), so a million of one kind that are overdue must not stand before the first of another.

use crate::engine::state::rows::{Client, Hold, Waiter};
use crate::engine::storage::arena::Id;
use crate::engine::types::{Moment, Token};
use std::collections::BTreeSet;

/// What a moment is the end of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::engine) enum Timer {
    /// A waiter is told that it got nothing.
    Wait(Id<Waiter>),
    /// A hold is taken away.
    Lease(Id<Hold>),
    /// A session to which no connection is attached ends.
    Grace(Id<Client>),
    /// The grant with this token is withdrawn, unless it was acknowledged.
    Acks(Token),
    /// Temporary keys get their backstop anew.
    Renewal,
    /// From then on keys are granted.
    Quarantine,
}

/// Invariant: each record with an end has its timer here, at that end, and there are no others; `next` is the first of all.
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
    /// Sets a timer that was set to `former` to another end, or to none. O(log of its kind).
    #[inline]
    pub fn set(&mut self, timer: Timer, former: Option<Moment>, end: Option<Moment>) {
        if former != end {
            self.change(timer, former, end);
        }
    }

    fn change(&mut self, timer: Timer, former: Option<Moment>, end: Option<Moment>) {
        match timer {
            Timer::Wait(id) => change(&mut self.waits, id, former, end),
            Timer::Lease(id) => change(&mut self.leases, id, former, end),
            Timer::Grace(id) => change(&mut self.graces, id, former, end),
            Timer::Acks(token) => change(&mut self.acks, token, former, end),
            Timer::Renewal => self.renewal = end,
            Timer::Quarantine => self.quarantine = end,
        }
        self.next = match former.is_some() && former == self.next {
            true => self.first(),
            false => sooner(self.next, end),
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

    /// When the first of all is due. O(1).
    #[inline]
    pub fn next(&self) -> Option<Moment> {
        self.next
    }

    /// The wait that ends first.
    pub fn first_wait(&self) -> Option<(Moment, Id<Waiter>)> {
        self.waits.first().copied()
    }

    /// The lease that ends first.
    pub fn first_lease(&self) -> Option<(Moment, Id<Hold>)> {
        self.leases.first().copied()
    }

    /// The leases that end until then, the first first.
    pub fn leases_until(&self, now: Moment) -> impl Iterator<Item = Id<Hold>> {
        let due = self.leases.iter().take_while(move |(end, _)| *end <= now);
        due.map(|(_, hold)| *hold)
    }

    /// The graces that end until then, the first first.
    pub fn graces_until(&self, now: Moment) -> impl Iterator<Item = Id<Client>> {
        let due = self.graces.iter().take_while(move |(end, _)| *end <= now);
        due.map(|(_, session)| *session)
    }

    /// The grace that is over first.
    pub fn first_grace(&self) -> Option<(Moment, Id<Client>)> {
        self.graces.first().copied()
    }

    /// The grant that is withdrawn first.
    pub fn first_acks(&self) -> Option<(Moment, Token)> {
        self.acks.first().copied()
    }

    /// Those grants, in order.
    pub fn acks(&self) -> impl Iterator<Item = (Moment, Token)> {
        self.acks.iter().copied()
    }

    /// When something is to be renewed next.
    pub fn renewal(&self) -> Option<Moment> {
        self.renewal
    }

    /// When the quarantine ends, if there is one, over or not.
    pub fn quarantine(&self) -> Option<Moment> {
        self.quarantine
    }

    /// Panics unless these are all. O(everything).
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
    former: Option<Moment>,
    end: Option<Moment>,
) {
    if let Some(former) = former {
        timers.remove(&(former, id));
    }
    if let Some(end) = end {
        timers.insert((end, id));
    }
}

/// The first of two moments, as far as there are any.
fn sooner(one: Option<Moment>, other: Option<Moment>) -> Option<Moment> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_is_the_first_of_all_kinds_however_they_come_and_go() {
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
            let former = std::mem::replace(end, (at > 4).then_some(Moment(at)));
            timers.set(*timer, former, *end);
            let set = all
                .iter()
                .filter_map(|(timer, end)| Some(((*end)?, *timer)));
            timers.check(set);
        }
    }
}
