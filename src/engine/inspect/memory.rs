//! The approximate memory of a key's holds and waits.

use crate::engine::state::rows::{HeldKey, Name, QueueEntry, Waiter};
use crate::engine::storage::arena::Id;
use crate::engine::tables::Engine;
use crate::engine::types::Key;

impl Engine {
    /// The bytes of a key's records, holds and waits, extrapolated from at most this many samples of each. O(samples).
    pub fn bytes_of(&self, key: Key<'_>, samples: usize) -> usize {
        let held = self.keys.find_held(key).map_or(0, |held| {
            let holds = self.holds.all_of_key(&self.keys, held).take(samples);
            let holds = holds.map(|hold| self.holds.bytes_of(hold));
            let count = self.keys[held].hold_count as usize;
            size_of::<HeldKey>() + key.name.len() + extrapolate(holds, count)
        });
        let awaited = self.keys.find_name(key).map_or(0, |name| {
            let waiters = self.queues.of_name(&self.keys, name).take(samples);
            let waiters = waiters.map(|waiter| self.bytes_of_wait(waiter));
            let count = self.keys[name].queue_length as usize;
            size_of::<Name>() + key.name.len() + extrapolate(waiters, count)
        });
        held + awaited
    }

    /// A queue entry and its request.
    fn bytes_of_wait(&self, id: Id<Waiter>) -> usize {
        let waiter = &self.queues[id];
        let whole = size_of::<Waiter>() + waiter.terms.bytes() + waiter.value.len();
        size_of::<QueueEntry>() + whole
    }
}

/// The bytes of `count` records, of which these are samples.
fn extrapolate(samples: impl Iterator<Item = usize>, count: usize) -> usize {
    let (samples, bytes) = samples.fold((0, 0), |(samples, sum), bytes| (samples + 1, sum + bytes));
    match samples {
        0 => 0,
        samples => (bytes as u128 * count as u128 / samples) as usize,
    }
}
