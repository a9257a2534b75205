//! Hold counts of the keys with an overflow; shorter lists are counted by walking.

use crate::engine::state::rows::HeldKey;
use crate::engine::storage::arena::Id;
use crate::engine::storage::index;
use crate::engine::storage::overflow::OVERFLOW_THRESHOLD;
use hashbrown::HashMap;

/// Invariant: it has exactly the keys with more than [`OVERFLOW_THRESHOLD`] holds.
#[derive(Default)]
pub(in crate::engine) struct Sizes(HashMap<Id<HeldKey>, usize>);

impl Sizes {
    /// Counts a hold beyond the threshold. O(1).
    pub fn join(&mut self, key: Id<HeldKey>) {
        *self.0.entry(key).or_insert(OVERFLOW_THRESHOLD) += 1;
    }

    /// Uncounts a hold of a key. O(1).
    pub fn leave(&mut self, key: Id<HeldKey>) {
        if !self.0.is_empty()
            && let Some(size) = self.0.get_mut(&key)
        {
            *size -= 1;
            if *size == OVERFLOW_THRESHOLD {
                index::take(&mut self.0, &key);
            }
        }
    }

    /// The count, if the key has an overflow. O(1).
    pub fn of(&self, key: Id<HeldKey>) -> Option<usize> {
        self.0.get(&key).copied()
    }

    /// The number of keys with an overflow.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}
