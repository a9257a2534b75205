//! An overflow index for long lists of watchers or holders.
//!
//! A lookup scans the first entries of the list. Only entries beyond the threshold are also in a hash index, so short lists
//! cost nothing extra.

use crate::engine::storage::arena::Id;
use crate::engine::storage::index::Index;
use std::hash::Hash;

/// Entries beyond this many are indexed.
pub(in crate::engine) const OVERFLOW_THRESHOLD: usize = 8;

/// Invariant: an entry that is not in the index is among the first [`OVERFLOW_THRESHOLD`] of its list. (Entries are appended, and
/// only ever move forward.)
pub(in crate::engine) struct Overflow<T> {
    index: Index<T>,
}

impl<T> Default for Overflow<T> {
    fn default() -> Self {
        Overflow {
            index: Index::default(),
        }
    }
}

impl<T> Overflow<T> {
    /// Scans the beginning of the list, then probes the index with the entry's hash key. O(1).
    pub fn find(
        &self,
        mut chain: impl Iterator<Item = Id<T>>,
        key: impl Hash,
        is_it: impl Fn(Id<T>) -> bool,
    ) -> Option<Id<T>> {
        let near = chain
            .by_ref()
            .take(OVERFLOW_THRESHOLD)
            .find(|id| is_it(*id));
        near.or_else(|| self.index.find(key, is_it))
    }

    /// An entry is about to be appended to this list; returns whether it was indexed. O(1).
    pub fn join(&mut self, chain: impl Iterator<Item = Id<T>>, key: impl Hash, id: Id<T>) -> bool {
        let is_long = chain.take(OVERFLOW_THRESHOLD).count() == OVERFLOW_THRESHOLD;
        if is_long {
            self.add(key, id);
        }
        is_long
    }

    /// Indexes an entry that another index over the same list has indexed. O(1).
    pub fn add(&mut self, key: impl Hash, id: Id<T>) {
        self.index.insert(key, id);
    }

    /// An entry leaves its list or changes its hash key; returns whether it was indexed. O(1).
    pub fn leave(&mut self, key: impl Hash, id: Id<T>) -> bool {
        self.index.remove(key, id)
    }

    /// Panics unless this entry, at this position of its list, can be found.
    pub fn check(&self, position: usize, key: impl Hash, id: Id<T>) {
        let is_found = || self.index.find(key, |found| found == id).is_some();
        assert!(position < OVERFLOW_THRESHOLD || is_found());
    }

    /// The number of indexed entries.
    pub fn len(&self) -> usize {
        self.index.len()
    }
}

#[cfg(test)]
mod tests;
