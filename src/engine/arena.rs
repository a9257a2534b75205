//! Records with small, typed, reusable ids.
//!
//! Everything in the engine points at everything else: keys at watchers, connections at holds. Ids
//! of four bytes instead of pointers make that safe and half as large. The records stand in
//! chunks, so growing never moves a million of them while the server's clients wait.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::ops::{Index, IndexMut};

const CHUNK: usize = 512;

/// Names one record of an [`Arena`] until that record is removed. `Option<Id<T>>` is four bytes too.
pub struct Id<T> {
    number: NonZeroU32,
    of: PhantomData<fn() -> T>,
}

impl<T> Id<T> {
    fn new(place: usize) -> Self {
        let number = u32::try_from(place + 1).expect("fewer than 2^32 records");
        Id {
            number: NonZeroU32::new(number).expect("one more than a place is not zero"),
            of: PhantomData,
        }
    }

    fn place(self) -> usize {
        self.number.get() as usize - 1
    }
}

impl<T> Clone for Id<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Id<T> {}
impl<T> PartialEq for Id<T> {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl<T> Eq for Id<T> {}
impl<T> PartialOrd for Id<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Id<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.number.cmp(&other.number)
    }
}
impl<T> Hash for Id<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}
impl<T> fmt::Debug for Id<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.number)
    }
}

/// Invariant: `free` holds exactly the places below `used` whose record is absent.
pub struct Arena<T> {
    chunks: Vec<Vec<Option<T>>>,
    free: Vec<u32>,
    used: usize,
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Arena {
            chunks: Vec::new(),
            free: Vec::new(),
            used: 0,
        }
    }
}

impl<T> Arena<T> {
    /// How many records there are.
    pub fn len(&self) -> usize {
        self.used - self.free.len()
    }

    /// O(1).
    pub fn insert(&mut self, record: T) -> Id<T> {
        if let Some(place) = self.free.pop() {
            let id = Id::new(place as usize);
            *self.slot(id) = Some(record);
            return id;
        }
        let id = Id::new(self.used);
        if self.used == self.chunks.len() * CHUNK {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        self.chunks[self.used / CHUNK].push(Some(record));
        self.used += 1;
        id
    }

    /// O(1). The last record's removal gives the memory back, all but one chunk.
    pub fn remove(&mut self, id: Id<T>) -> T {
        let record = self.slot(id).take().expect("an id names a record");
        self.free.push(id.number.get() - 1);
        if self.len() == 0 {
            self.chunks.truncate(1);
            self.chunks[0].clear();
            self.free.clear();
            self.free.shrink_to(CHUNK);
            self.used = 0;
        }
        record
    }

    /// Every record with its id, in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = (Id<T>, &T)> {
        self.chunks
            .iter()
            .flatten()
            .enumerate()
            .filter_map(|(place, slot)| slot.as_ref().map(|record| (Id::new(place), record)))
    }

    fn slot(&mut self, id: Id<T>) -> &mut Option<T> {
        &mut self.chunks[id.place() / CHUNK][id.place() % CHUNK]
    }
}

impl<T> Index<Id<T>> for Arena<T> {
    type Output = T;
    fn index(&self, id: Id<T>) -> &T {
        self.chunks[id.place() / CHUNK][id.place() % CHUNK]
            .as_ref()
            .expect("an id names a record")
    }
}

impl<T> IndexMut<Id<T>> for Arena<T> {
    fn index_mut(&mut self, id: Id<T>) -> &mut T {
        self.slot(id).as_mut().expect("an id names a record")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_used_again() {
        let mut arena = Arena::default();
        let ids: Vec<_> = (0..2000).map(|n| arena.insert(n)).collect();
        assert_eq!(arena.len(), 2000);
        assert_eq!(arena.remove(ids[700]), 700);
        let again = arena.insert(9);
        assert_eq!(again, ids[700]);
        assert_eq!(arena[again], 9);
        assert_eq!(arena.iter().count(), 2000);
    }

    #[test]
    fn an_empty_arena_gives_its_memory_back() {
        let mut arena = Arena::default();
        let ids: Vec<_> = (0..5000).map(|n| arena.insert(n)).collect();
        for id in ids {
            arena.remove(id);
        }
        assert_eq!((arena.len(), arena.chunks.len(), arena.used), (0, 1, 0));
    }

    #[test]
    fn an_optional_id_costs_nothing() {
        assert_eq!(size_of::<Option<Id<String>>>(), 4);
    }
}
