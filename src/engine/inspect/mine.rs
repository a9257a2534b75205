//! What a connection and its session hold and wait for.

use crate::engine::state::rows::{Client, Hold, Name, QueueEntry, Waiter};
use crate::engine::storage::arena::Id;
use crate::engine::tables::Engine;
use crate::engine::terms::Terms;
use crate::engine::types::{ClientId, KeyBuf, Moment, Token};

/// A line of LOCK.MINE: a hold, or a place in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    pub key: KeyBuf,
    /// With the rest of its lease.
    pub terms: Terms<Box<[u8]>>,
    /// 0 while it waits.
    pub depth: u32,
    /// None while it waits or is pending.
    pub token: Option<Token>,
    /// Of a pending grant: the replicas that have acknowledged it, and the number required.
    pub acks: Option<(u32, u32)>,
}

/// A hold, or a place in a queue.
#[derive(Clone, Copy)]
enum Place {
    Hold(Id<Hold>),
    Wait(Id<Waiter>, Id<Name>, Id<QueueEntry>),
}

/// A position of a walk: the slot of the last record, and a number that its next tenant does not have.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Position {
    waits: bool,
    mark: u32,
    slot: u32,
}

impl Position {
    const MARK_BITS: u32 = 31;

    fn new(waits: bool, mark: u64, slot: usize) -> Self {
        Position {
            waits,
            mark: (mark & ((1 << Self::MARK_BITS) - 1)) as u32,
            slot: slot as u32,
        }
    }

    /// None for 0, where a walk begins.
    fn of(cursor: u64) -> Option<Self> {
        let slot = (cursor as u32).checked_sub(1)?;
        let (waits, mark) = (cursor >> 63 == 1, cursor >> u32::BITS);
        Some(Position::new(waits, mark, slot as usize))
    }

    fn cursor(self) -> u64 {
        let Position { waits, mark, slot } = self;
        u64::from(waits) << 63 | u64::from(mark) << u32::BITS | (u64::from(slot) + 1)
    }
}

impl Engine {
    /// The next `most` holds and places of a connection and its session, and the cursor of the page after, 0 at the end. A hold
    /// whose lease is over is left out. What they have during all pages is on one of them: they come in the order in which they
    /// began, and a walk whose last record is gone begins anew. O(most).
    pub fn mine(&self, now: Moment, client: ClientId, cursor: u64, most: usize) -> (u64, Vec<Own>) {
        let Some(client) = self.clients.find(client) else {
            return (0, Vec::new());
        };
        let mut page = Vec::new();
        let mut last = None;
        for (visited, place) in self.places_after(client, cursor).enumerate() {
            if visited == most {
                let cursor = last.map_or(0, |last| self.position(last).cursor());
                return (cursor, page);
            }
            last = Some(place);
            page.extend(self.own(now, place));
        }
        (0, page)
    }

    /// The holds and then the places after a position.
    fn places_after(&self, client: Id<Client>, cursor: u64) -> impl Iterator<Item = Place> {
        let owner = self.clients.owner(client);
        let last = Position::of(cursor).and_then(|position| self.place_at(position, client));
        let (hold, wait) = match last {
            Some(Place::Hold(hold)) => (Some(hold), None),
            Some(Place::Wait(waiter, _, entry)) => (None, Some((waiter, entry))),
            None => (None, None),
        };
        let has_holds = wait.is_none();
        let holds = has_holds.then(|| self.holds.of_client_after(&self.clients, owner, hold));
        let rest = wait.map(|(waiter, entry)| {
            let places = self.queues.places_after(waiter, Some(entry));
            places.map(move |(name, entry)| Place::Wait(waiter, name, entry))
        });
        let waiter = wait.map(|(waiter, _)| waiter);
        let waiters = self.queues.of_client_after(&self.clients, client, waiter);
        let waits = waiters.flat_map(|waiter| {
            let places = self.queues.places_of(waiter);
            places.map(move |(name, entry)| Place::Wait(waiter, name, entry))
        });
        let holds = holds.into_iter().flatten().map(Place::Hold);
        holds.chain(rest.into_iter().flatten()).chain(waits)
    }

    fn position(&self, place: Place) -> Position {
        match place {
            Place::Hold(hold) => Position::new(false, self.holds[hold].token.0, hold.slot()),
            Place::Wait(waiter, _, entry) => {
                let since = self.queues[waiter].since.0;
                Position::new(true, since, entry.slot())
            }
        }
    }

    /// The record of a position, if it is still there and the client's.
    fn place_at(&self, position: Position, client: Id<Client>) -> Option<Place> {
        let slot = position.slot as usize;
        let (place, of) = match position.waits {
            false => {
                let hold = self.holds.at(slot)?;
                let owner = self.clients.owner(client);
                (Place::Hold(hold), self.holds[hold].client == owner)
            }
            true => {
                let (waiter, entry) = self.queues.entry_at(slot)?;
                let name = self.queues.name_of(entry);
                let is_own = self.queues[waiter].client == client;
                (Place::Wait(waiter, name, entry), is_own)
            }
        };
        (of && self.position(place) == position).then_some(place)
    }

    fn own(&self, now: Moment, place: Place) -> Option<Own> {
        match place {
            Place::Hold(hold) => {
                let lease = self.holds.lease(hold);
                let is_over = lease.is_some_and(|end| end <= now);
                let is_own = !is_over && !self.keys.is_retired(self.holds[hold].key);
                is_own.then(|| self.own_hold(now, hold))
            }
            Place::Wait(waiter, name, _) => Some(Own {
                key: self.keys[name].key().to_owned(),
                terms: Terms {
                    // It has not begun.
                    lease_ms: None,
                    ..self.queues[waiter].terms.owned()
                },
                depth: 0,
                token: None,
                acks: None,
            }),
        }
    }

    fn own_hold(&self, now: Moment, id: Id<Hold>) -> Own {
        let hold = &self.holds[id];
        let pending = self.holds.pending_grant(id);
        Own {
            key: self.keys.key_of(hold.key).to_owned(),
            terms: self.terms_left(id, now),
            depth: self.holds.depth(id),
            token: pending.is_none().then_some(hold.token),
            acks: pending.map(|grant| (grant.got, grant.wanted)),
        }
    }
}
