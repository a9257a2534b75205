//! How many holds a key has, where they are many; fewer are simply counted.

use crate::engine::state::rows::HeldKey;
use crate::engine::storage::arena::Id;
use crate::engine::storage::index;
use crate::engine::storage::overflow::MANY;
use hashbrown::HashMap;

/// Invariant: it has each key with more than [`MANY`] holds, and no other.
#[derive(Default)]
pub(in crate::engine) struct Sizes(HashMap<Id<HeldKey>, usize>);

impl Sizes {
    /// A hold was added to the many at this key. O(1).
    pub fn join(&mut self, key: Id<HeldKey>) {
        *self.0.entry(key).or_insert(MANY) += 1;
    }

    /// A hold has left this key. O(1).
    pub fn leave(&mut self, key: Id<HeldKey>) {
        if !self.0.is_empty()
            && let Some(size) = self.0.get_mut(&key)
        {
            *size -= 1;
            if *size == MANY {
                index::take(&mut self.0, &key);
            }
        }
    }

    /// How many there are, if they are many. O(1).
    pub fn of(&self, key: Id<HeldKey>) -> Option<usize> {
        self.0.get(&key).copied()
    }

    /// How many keys have an overflow.
    pub fn len(&self) -> usize {
        self.0.len()
    }
}
