//! What a connection and its session hold and wait for.

use crate::engine::mode::Mode;
use crate::engine::state::rows::{Hold, Name, QueueEntry, Waiter};
use crate::engine::storage::arena::Id;
use crate::engine::tables::Engine;
use crate::engine::types::{ClientId, KeyBuf, Moment, Token};

/// A line of LOCK.MINE: a hold, or a place in a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    pub key: KeyBuf,
    pub label: Box<[u8]>,
    pub mode: Mode,
    /// 0 while it waits.
    pub depth: u32,
    /// None while it waits or is pending.
    pub token: Option<Token>,
    pub state: OwnState,
    /// Of a pending grant: the replicas that have acknowledged it, and the number required.
    pub acks: Option<(u32, u32)>,
    /// The rest of its lease.
    pub lease_ms: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnState {
    Held,
    /// Granted, and not acknowledged yet.
    Pending,
    Waiting,
}

#[derive(Clone, Copy)]
enum Place {
    Hold(Id<Hold>),
    Wait(Id<Waiter>, Id<Name>, Id<QueueEntry>),
}

impl Place {
    /// Holds come first. Records keep their slots, so what stays during all pages is on one of them.
    fn cursor(self) -> u64 {
        const WAITS: u64 = 1 << u32::BITS;
        match self {
            Place::Hold(hold) => hold.number().into(),
            Place::Wait(_, _, entry) => WAITS | u64::from(entry.number()),
        }
    }
}

impl Engine {
    /// The next `most` holds and waits of a connection and its session, and the cursor of the page after: 0 at the end. A hold
    /// counts until its lease is over. O(its holds and waits).
    pub fn mine(&self, now: Moment, client: ClientId, cursor: u64, most: usize) -> (u64, Vec<Own>) {
        let Some(client) = self.clients.find(client) else {
            return (0, Vec::new());
        };
        let holds = self
            .holds
            .of_client(&self.clients, self.clients.owner(client));
        let holds = holds.filter(|hold| self.is_own(now, *hold));
        let waits = self.queues.of_client(&self.clients, client);
        let waits = waits.flat_map(|waiter| {
            let places = self.queues.places_of(waiter);
            places.map(move |(name, entry)| Place::Wait(waiter, name, entry))
        });
        let all = holds.map(Place::Hold).chain(waits);
        let mut page: Vec<_> = all.filter(|place| place.cursor() > cursor).collect();
        let has_more = page.len() > most;
        if has_more {
            page.select_nth_unstable_by_key(most, |place| place.cursor());
            page.truncate(most);
        }
        page.sort_unstable_by_key(|place| place.cursor());
        let last = page.last().filter(|_| has_more);
        let cursor = last.map_or(0, |place| place.cursor());
        (
            cursor,
            page.iter().map(|place| self.own(now, *place)).collect(),
        )
    }

    fn is_own(&self, now: Moment, hold: Id<Hold>) -> bool {
        let lease = self.holds.lease(hold);
        !self.keys.is_retired(self.holds[hold].key) && lease.is_none_or(|end| end > now)
    }

    fn own(&self, now: Moment, place: Place) -> Own {
        match place {
            Place::Hold(hold) => self.own_hold(now, hold),
            Place::Wait(waiter, name, _) => {
                let terms = &self.queues[waiter].terms;
                Own {
                    key: self.keys[name].key().to_owned(),
                    label: terms.label[..].into(),
                    mode: terms.mode,
                    depth: 0,
                    token: None,
                    state: OwnState::Waiting,
                    acks: None,
                    lease_ms: None,
                }
            }
        }
    }

    fn own_hold(&self, now: Moment, id: Id<Hold>) -> Own {
        let hold = &self.holds[id];
        let pending = self.holds.pending_grant(id);
        Own {
            key: self.keys.key_of(hold.key).to_owned(),
            label: self.holds.label(id).into(),
            mode: self.holds.mode(id),
            depth: self.holds.depth(id),
            token: pending.is_none().then_some(hold.token),
            state: match pending {
                Some(_) => OwnState::Pending,
                None => OwnState::Held,
            },
            acks: pending.map(|grant| (grant.got, grant.wanted)),
            lease_ms: self.holds.lease(id).map(|end| end.ms_since(now)),
        }
    }
}
