//! Finding a record by what it says, when the record itself stands in an arena.

use crate::engine::storage::arena::Id;
use hashbrown::{Equivalent, HashMap, HashTable};
use std::hash::Hash;

/// A table that has room for more than so many was large: it gives its memory back when it is empty. One in use keeps its
/// size, since records come and go.
const LARGE: usize = 1 << 12;

/// An id with its hash beside it, so that growing the table reads no record.
struct Entry<T> {
    hash: u32,
    id: Id<T>,
}

/// A hash table of ids. The caller hashes and compares; nothing here depends on an order.
pub(in crate::engine) struct Index<T> {
    table: HashTable<Entry<T>>,
}

impl<T> Default for Index<T> {
    fn default() -> Self {
        Index {
            table: HashTable::new(),
        }
    }
}

impl<T> Index<T> {
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// O(1).
    pub fn find(&self, hash: u32, is_it: impl Fn(Id<T>) -> bool) -> Option<Id<T>> {
        self.table
            .find(spread(hash), |entry| entry.hash == hash && is_it(entry.id))
            .map(|entry| entry.id)
    }

    /// Takes in an id that is not there yet. O(1) but for the growth of the table.
    pub fn insert(&mut self, hash: u32, id: Id<T>) {
        self.table
            .insert_unique(spread(hash), Entry { hash, id }, |entry| spread(entry.hash));
    }

    /// Makes room for so many more, so that the table need not grow step by step.
    pub fn reserve(&mut self, more: usize) {
        self.table.reserve(more, |entry| spread(entry.hash));
    }

    /// Whether the id was there. O(1). See [`LARGE`].
    pub fn remove(&mut self, hash: u32, id: Id<T>) -> bool {
        let Ok(entry) = self.table.find_entry(spread(hash), |entry| entry.id == id) else {
            return false;
        };
        entry.remove();
        if self.table.is_empty() && self.table.capacity() > LARGE {
            self.table = HashTable::new();
        }
        true
    }
}

/// Takes an entry out of a map. O(1). See [`LARGE`].
pub(in crate::engine) fn take<K: Hash + Eq, V>(
    map: &mut HashMap<K, V>,
    key: &(impl Hash + Equivalent<K>),
) -> Option<V> {
    let taken = map.remove(key);
    if map.is_empty() && map.capacity() > LARGE {
        *map = HashMap::new();
    }
    taken
}

/// Folds a hash to the half that an entry keeps.
pub(in crate::engine) fn fold(hash: u64) -> u32 {
    (hash ^ (hash >> 32)) as u32
}

/// The table takes a record's place from a hash's low bits and its tag from the high ones, which
/// an entry does not keep: a multiplication (Fibonacci hashing) fills them again.
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests;
