//! How much memory what is held and waited for at a key takes, about.

use crate::engine::state::rows::{KeyRecord, QueueEntry, Waiter};
use crate::engine::storage::arena::Id;
use crate::engine::tables::Engine;
use crate::engine::types::Key;

impl Engine {
    /// The bytes that are remembered of a key, its holders and its waiters. Of each so many are looked at, at most, and the
    /// others are taken to be like them. O(looks).
    pub fn bytes_of(&self, key: Key<'_>, looks: usize) -> usize {
        let Some(id) = self.keys.find(key) else {
            return 0;
        };
        let holds = self.holds.all_of_key(&self.keys, id).take(looks);
        let holds = holds.map(|hold| self.holds.bytes_of(hold));
        let waiters = self.queues.of_key(&self.keys, id).take(looks);
        let waiters = waiters.map(|waiter| self.bytes_of_wait(waiter));
        size_of::<KeyRecord>()
            + key.name.len()
            + like_these(holds, self.holds.count(&self.keys, id))
            + like_these(waiters, self.queues.count(&self.keys, id))
    }

    /// A place at a key, and the request that has it.
    fn bytes_of_wait(&self, id: Id<Waiter>) -> usize {
        let waiter = &self.queues[id];
        let whole = size_of::<Waiter>() + waiter.terms.bytes() + waiter.value.len();
        size_of::<QueueEntry>() + whole
    }
}

/// How many bytes so many take of whom some were looked at.
fn like_these(looked_at: impl Iterator<Item = usize>, count: usize) -> usize {
    let (looks, bytes) = looked_at.fold((0, 0), |(looks, sum), bytes| (looks + 1, sum + bytes));
    match looks {
        0 => 0,
        looks => (bytes as u128 * count as u128 / looks) as usize,
    }
}
