//! Who keeps whom from going on, one step at a time, and how many steps there are.

use crate::engine::state::rows::{Ack, Client, Hold, KeyRecord, QueueEntry, Waiter};
use crate::engine::storage::arena::Id;
use crate::engine::tables::Engine;

/// So many waits, holds and places in queues are looked at to find out who can go on.
pub(super) const SEARCH_STEPS: usize = 1000;

/// And so many more to find a cycle in which everybody must wait for the next, where those did not suffice.
pub(super) const WALK_STEPS: usize = 500;

/// How many steps are left: looks at a wait, at a place in a queue, or at a hold.
pub(super) struct Budget(usize);

impl Budget {
    pub fn of(steps: usize) -> Self {
        Budget(steps)
    }

    /// One step; nothing if there is none left.
    pub fn take(&mut self) -> Option<()> {
        self.0 = self.0.checked_sub(1)?;
        Some(())
    }

    pub fn is_spent(&self) -> bool {
        self.0 == 0
    }

    #[cfg(test)]
    pub fn left(&self) -> usize {
        self.0
    }
}

/// Why a waiter cannot go on: another one is stuck that holds this key or is ahead in its queue.
pub(super) struct Obstacle {
    pub key: Id<KeyRecord>,
    pub waiter: Id<Waiter>,
}

/// A connection with a label; where a session holds, the connection that is attached to it.
pub(super) type Owner<'a> = (Id<Client>, &'a [u8]);

/// Who is right ahead in a queue, but for ended connections, which are in nobody's way: a step for each of those. Nothing if
/// the steps do not suffice.
pub(super) fn living_ahead(
    engine: &Engine,
    place: Id<QueueEntry>,
    budget: &mut Budget,
) -> Option<Option<Id<Waiter>>> {
    let mut ahead = engine.queues.ahead_of(&engine.keys, place);
    while let Some((next, waiter)) = ahead
        && engine.is_faded(waiter)
    {
        budget.take()?;
        ahead = engine.queues.ahead_of(&engine.keys, next);
    }
    Some(ahead.map(|(_, waiter)| waiter))
}

/// A session waits by the connection that is attached to it. While none is, it waits for nothing,
/// and the end of its grace ends what it holds.
pub(super) fn holder_of(engine: &Engine, hold: Id<Hold>) -> Owner<'_> {
    let client = engine.holds[hold].client;
    let attached = engine.clients[client].attached;
    (attached.unwrap_or(client), engine.holds.label(hold))
}

/// Whether a hold does not end by itself. A lease can begin with the acknowledgement of its grant.
pub(super) fn is_lasting(engine: &Engine, hold: Id<Hold>) -> bool {
    let acks = &engine.holds.acks;
    match engine.holds.ack(hold) {
        Ack::Settled => engine.holds.lease(hold).is_none(),
        Ack::Pending(token) => acks.get(token).is_none_or(|grant| grant.lease_ms.is_none()),
        Ack::Withdrawn => false,
    }
}
