//! Finding one of a key's many watchers or holders.
//!
//! Most keys have few, and those are simply looked through. Only the ones that come to a crowd also
//! stand in a table, so most records cost nothing beyond themselves.

use crate::engine::storage::arena::Id;
use crate::engine::storage::index::{self, Index};
use hashbrown::DefaultHashBuilder;
use std::hash::{BuildHasher, Hash};

/// From this many members on, a key's further ones stand in the table too.
pub(in crate::engine) const CROWD: usize = 8;

/// Invariant: a member that is not in the table is among the first [`CROWD`] of its key's chain.
/// (Members join at the end of a chain and only ever move forward.)
pub(in crate::engine) struct Crowd<T> {
    index: Index<T>,
    hasher: DefaultHashBuilder,
}

impl<T> Default for Crowd<T> {
    fn default() -> Self {
        Crowd {
            index: Index::default(),
            hasher: DefaultHashBuilder::default(),
        }
    }
}

impl<T> Crowd<T> {
    /// Looks through the beginning of a key's chain, then in the table under the member's mark. O(1).
    pub fn find(
        &self,
        mut chain: impl Iterator<Item = Id<T>>,
        mark: impl Hash,
        is_it: impl Fn(Id<T>) -> bool,
    ) -> Option<Id<T>> {
        let near = chain.by_ref().take(CROWD).find(|id| is_it(*id));
        if near.is_some() || self.index.is_empty() {
            return near;
        }
        self.index.find(self.hash(mark), is_it)
    }

    /// A member is about to join the end of this chain; whether it comes to a crowd. O(1).
    pub fn join(&mut self, chain: impl Iterator<Item = Id<T>>, mark: impl Hash, id: Id<T>) -> bool {
        let is_crowd = chain.take(CROWD).count() == CROWD;
        if is_crowd {
            self.index.insert(self.hash(mark), id);
        }
        is_crowd
    }

    /// A member has left its chain. O(1).
    pub fn leave(&mut self, mark: impl Hash, id: Id<T>) {
        if !self.index.is_empty() {
            self.index.remove(self.hash(mark), id);
        }
    }

    /// Panics unless this member, at this place of its chain, can be found.
    pub fn check(&self, place: usize, mark: impl Hash, id: Id<T>) {
        let hash = self.hash(mark);
        assert!(place < CROWD || self.index.find(hash, |found| found == id).is_some());
    }

    /// How many stand in the table.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    fn hash(&self, mark: impl Hash) -> u32 {
        index::fold(self.hasher.hash_one(mark))
    }
}
