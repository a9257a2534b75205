//! Finding one of a key's many watchers or holders.
//!
//! Most keys have few, and those are simply looked through. Only where a key has many, its further ones also
//! stand in a table, so most records cost nothing beyond themselves.

use crate::engine::storage::arena::Id;
use crate::engine::storage::index::{self, Index};
use hashbrown::DefaultHashBuilder;
use std::hash::{BuildHasher, Hash};

/// From this many members on, a key's further ones stand in the table too.
pub(in crate::engine) const MANY: usize = 8;

/// Invariant: a member that is not in the table is among the first [`MANY`] of its key's chain.
/// (Members join at the end of a chain and only ever move forward.)
pub(in crate::engine) struct Overflow<T> {
    index: Index<T>,
    hasher: DefaultHashBuilder,
}

impl<T> Default for Overflow<T> {
    fn default() -> Self {
        Overflow {
            index: Index::default(),
            hasher: DefaultHashBuilder::default(),
        }
    }
}

impl<T> Overflow<T> {
    /// Looks through the beginning of a key's chain, then in the table under the member's mark. O(1).
    pub fn find(
        &self,
        mut chain: impl Iterator<Item = Id<T>>,
        mark: impl Hash,
        is_it: impl Fn(Id<T>) -> bool,
    ) -> Option<Id<T>> {
        let near = chain.by_ref().take(MANY).find(|id| is_it(*id));
        if near.is_some() || self.index.is_empty() {
            return near;
        }
        self.index.find(self.hash(mark), is_it)
    }

    /// A member is about to join the end of this chain; whether there are many by now. O(1).
    pub fn join(&mut self, chain: impl Iterator<Item = Id<T>>, mark: impl Hash, id: Id<T>) -> bool {
        let has_many = chain.take(MANY).count() == MANY;
        if has_many {
            self.add(mark, id);
        }
        has_many
    }

    /// A member has joined the end of a chain with many, as another table of the same members says. O(1).
    pub fn add(&mut self, mark: impl Hash, id: Id<T>) {
        self.index.insert(self.hash(mark), id);
    }

    /// A member has left its chain, or has another mark. Whether it stood in the table. O(1).
    pub fn leave(&mut self, mark: impl Hash, id: Id<T>) -> bool {
        !self.index.is_empty() && self.index.remove(self.hash(mark), id)
    }

    /// Panics unless this member, at this place of its chain, can be found.
    pub fn check(&self, place: usize, mark: impl Hash, id: Id<T>) {
        let hash = self.hash(mark);
        assert!(place < MANY || self.index.find(hash, |found| found == id).is_some());
    }

    /// How many stand in the table.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    fn hash(&self, mark: impl Hash) -> u32 {
        index::fold(self.hasher.hash_one(mark))
    }
}

#[cfg(test)]
mod tests;
