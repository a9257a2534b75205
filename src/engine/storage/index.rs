//! A hash index over records in an arena.

use crate::engine::storage::arena::Id;
use hashbrown::{DefaultHashBuilder, Equivalent, HashMap, HashTable};
use std::hash::{BuildHasher, Hash};

/// A table with capacity for more than this many entries is freed when it becomes empty. A table in use never shrinks.
const LARGE: usize = 1 << 12;

/// An id with its hash, so that growing the table reads no record.
struct Entry<T> {
    hash: u32,
    id: Id<T>,
}

/// A hash table of ids. The caller compares; nothing here depends on an order.
pub(in crate::engine) struct Index<T> {
    table: HashTable<Entry<T>>,
    hasher: DefaultHashBuilder,
}

impl<T> Default for Index<T> {
    fn default() -> Self {
        Index {
            table: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
        }
    }
}

impl<T> Index<T> {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// O(1).
    #[inline]
    pub fn find(&self, key: impl Hash, is_it: impl Fn(Id<T>) -> bool) -> Option<Id<T>> {
        match self.is_empty() {
            true => None,
            false => self.find_hashed(self.hash(key), is_it),
        }
    }

    /// Inserts an id that is not there yet. Amortised O(1).
    #[inline]
    pub fn insert(&mut self, key: impl Hash, id: Id<T>) {
        self.insert_hashed(self.hash(key), id);
    }

    /// Returns whether the id was there. O(1). See [`LARGE`].
    #[inline]
    pub fn remove(&mut self, key: impl Hash, id: Id<T>) -> bool {
        !self.is_empty() && self.remove_hashed(self.hash(key), id)
    }

    // ---- for a caller that keeps a hash, and uses it for two tables ----

    /// Folded to the 32 bits that an entry keeps.
    #[inline]
    pub fn hash(&self, key: impl Hash) -> u32 {
        let hash = self.hasher.hash_one(key);
        (hash ^ (hash >> 32)) as u32
    }

    #[inline]
    pub fn find_hashed(&self, hash: u32, is_it: impl Fn(Id<T>) -> bool) -> Option<Id<T>> {
        self.table
            .find(spread(hash), |entry| entry.hash == hash && is_it(entry.id))
            .map(|entry| entry.id)
    }

    pub fn insert_hashed(&mut self, hash: u32, id: Id<T>) {
        self.table
            .insert_unique(spread(hash), Entry { hash, id }, |entry| spread(entry.hash));
    }

    /// Reserves capacity for `more` entries.
    pub fn reserve(&mut self, more: usize) {
        self.table.reserve(more, |entry| spread(entry.hash));
    }

    pub fn remove_hashed(&mut self, hash: u32, id: Id<T>) -> bool {
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

/// Removes an entry from a map. O(1). See [`LARGE`].
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

/// The table takes a slot from the hash's low bits and a tag from the high ones, which an entry does not keep: Fibonacci
/// hashing fills them again.
#[inline]
fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests;
