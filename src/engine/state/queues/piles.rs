//! The places that one owner has in one queue, found by key and owner.
//!
//! An owner may have very many of a kind for one key. They are one pile, of which the index knows one place only; so each is
//! found, put on it and taken away in O(1).

use crate::engine::state::queues::{Queues, Sort};
use crate::engine::state::rows::{Client, KeyRecord, QueueEntry, Waiter};
use crate::engine::storage::arena::Id;
use crate::engine::storage::chain::Chain;
use crate::engine::storage::index;
use std::hash::BuildHasher;

type Pile = Chain<QueueEntry, { QueueEntry::BY_PILE }>;

/// Whose waits, of which sort.
#[derive(Clone, Copy)]
pub(super) struct PileOf<'a> {
    pub key: Id<KeyRecord>,
    pub client: Id<Client>,
    pub label: &'a [u8],
    pub sort: Sort,
}

impl Queues {
    /// Puts a place on its pile. O(1).
    pub(super) fn pile(&mut self, place: Id<QueueEntry>) {
        let of = self.pile_of(place);
        let mark = self.mark(of);
        let found = self.find_pile(mark, of);
        self.places[place].mark = mark;
        match found {
            Some(head) => Pile::of(head).push(&mut self.places, place),
            None => {
                Pile::default().push(&mut self.places, place);
                self.piles.lowest.insert(mark, place);
            }
        }
    }

    /// Takes a place from its pile. O(1).
    pub(super) fn unpile(&mut self, place: Id<QueueEntry>) {
        let mark = self.places[place].mark;
        let is_lowest = self.piles.lowest.remove(mark, place);
        let mut pile = Pile::of(place);
        pile.remove(&mut self.places, place);
        if is_lowest && let Some(next) = pile.head() {
            self.piles.lowest.insert(mark, next);
        }
    }

    /// Takes a pile away; whose waits they were, the oldest first. O(those).
    pub(super) fn take_pile(&mut self, of: PileOf<'_>) -> Vec<Id<Waiter>> {
        let mark = self.mark(of);
        let Some(head) = self.find_pile(mark, of) else {
            return Vec::new();
        };
        self.piles.lowest.remove(mark, head);
        let mut waiters = Vec::new();
        let mut pile = Pile::of(head);
        while let Some(place) = pile.head() {
            waiters.push(self.places[place].waiter);
            pile.remove(&mut self.places, place);
        }
        waiters
    }

    pub(super) fn is_piled(&self, place: Id<QueueEntry>) -> bool {
        self.places[place].by_pile.is_in_use()
    }

    /// Whether a place that is on a pile shares that with others.
    pub(super) fn is_piled_with_others(&self, place: Id<QueueEntry>) -> bool {
        let pile = Pile::of(place);
        pile.tail(&self.places) != Some(place)
    }

    /// A wait of this owner for this key, of one of these sorts, that is told by a push; the oldest of several. O(1).
    pub fn find_pushed(
        &self,
        key: Id<KeyRecord>,
        client: Id<Client>,
        label: &[u8],
        sorts: &[Sort],
    ) -> Option<Id<Waiter>> {
        if self.piles.lowest.is_empty() {
            return None;
        }
        let found = sorts.iter().find_map(|sort| {
            let of = PileOf {
                key,
                client,
                label,
                sort: *sort,
            };
            self.find_pile(self.mark(of), of)
        });
        found.map(|place| self.places[place].waiter)
    }

    /// The lowest place of a pile. O(1).
    fn find_pile(&self, mark: u32, of: PileOf<'_>) -> Option<Id<QueueEntry>> {
        self.piles.lowest.find(mark, |place| {
            let this = self.pile_of(place);
            let is_owners = this.client == of.client && *this.label == *of.label;
            this.key == of.key && is_owners && this.sort == of.sort
        })
    }

    fn pile_of(&self, place: Id<QueueEntry>) -> PileOf<'_> {
        let QueueEntry { waiter, key, .. } = self.places[place];
        let waiter = &self.waiters[waiter];
        PileOf {
            key,
            client: waiter.client,
            label: &waiter.terms.label,
            sort: waiter.sort(),
        }
    }

    fn mark(&self, of: PileOf<'_>) -> u32 {
        let all = (of.key, of.client, of.label, of.sort);
        index::fold(self.piles.hasher.hash_one(all))
    }

    /// Panics unless the piles have exactly the places of those who are told by a push, and perhaps some, each for itself, that
    /// were given up. O(everything).
    pub(super) fn check_piles(&self) {
        let (mut piled, mut piles) = (0, 0);
        for (id, place) in self.places.iter() {
            if !self.waiters[place.waiter].reply_to.push {
                assert!(!place.by_pile.is_in_use() || !self.is_piled_with_others(id));
                piles += usize::from(place.by_pile.is_in_use());
                continue;
            }
            piled += 1;
            let of = self.pile_of(id);
            let head = self.find_pile(self.mark(of), of).expect("on a pile");
            if head == id {
                piles += 1;
                let others = Pile::of(head).iter(&self.places);
                for other in others {
                    let other = self.pile_of(other);
                    assert!(other.key == of.key && other.client == of.client);
                    assert!(other.label == of.label && other.sort == of.sort);
                    piled -= 1;
                }
            }
        }
        assert_eq!((piled, piles), (0, self.piles.lowest.len()));
    }
}
