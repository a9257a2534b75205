//! How much memory what is held and waited for at a key takes, about.

use crate::engine::state::rows::{HeldKey, Name, QueueEntry, Waiter};
use crate::engine::storage::arena::Id;
use crate::engine::tables::Engine;
use crate::engine::types::Key;

impl Engine {
    /// The bytes that are remembered of a key, its holders and its waiters. Of each so many are looked at, at most, and the
    /// others are taken to be like them. O(looks).
    pub fn bytes_of(&self, key: Key<'_>, looks: usize) -> usize {
        let held = self.keys.find_held(key).map_or(0, |held| {
            let holds = self.holds.all_of_key(&self.keys, held).take(looks);
            let holds = holds.map(|hold| self.holds.bytes_of(hold));
            let count = self.holds.count(&self.keys, held);
            size_of::<HeldKey>() + key.name.len() + like_these(holds, count)
        });
        let awaited = self.keys.find_name(key).map_or(0, |name| {
            let waiters = self.queues.of_name(&self.keys, name).take(looks);
            let waiters = waiters.map(|waiter| self.bytes_of_wait(waiter));
            let count = self.queues.count(&self.keys, name);
            size_of::<Name>() + key.name.len() + like_these(waiters, count)
        });
        held + awaited
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
