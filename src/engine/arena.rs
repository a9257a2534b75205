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

    /// Never 0.
    pub fn number(self) -> u32 {
        self.number.get()
    }

    /// The id with this number; none for 0.
    pub fn of_number(number: u32) -> Option<Self> {
        let number = NonZeroU32::new(number)?;
        let of = PhantomData;
        Some(Id { number, of })
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

/// Invariant: `roomy` names each chunk once that has room, and `len` counts the records. No chunk
/// without a record has memory but `spare`.
pub struct Arena<T> {
    chunks: Vec<Chunk<T>>,
    roomy: Vec<u32>,
    /// The last chunk to be emptied whose places are next: whoever comes and goes alone does not
    /// have the memory taken and given back each time.
    spare: Option<u32>,
    len: usize,
}

/// Invariant: `free` holds exactly the places whose record is absent; `is_roomy` says whether the
/// arena's `roomy` names this chunk.
struct Chunk<T> {
    slots: Vec<Option<T>>,
    free: Vec<u16>,
    is_roomy: bool,
}

impl<T> Chunk<T> {
    fn is_full(&self) -> bool {
        self.free.is_empty() && self.slots.len() == CHUNK
    }

    fn is_empty(&self) -> bool {
        self.free.len() == self.slots.len()
    }
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Arena {
            chunks: Vec::new(),
            roomy: Vec::new(),
            spare: None,
            len: 0,
        }
    }
}

impl<T> Arena<T> {
    /// How many records there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// O(1).
    pub fn insert(&mut self, record: T) -> Id<T> {
        let number = match self.roomy.last() {
            Some(number) => *number as usize,
            None => self.add_chunk(),
        };
        let chunk = &mut self.chunks[number];
        let place = match chunk.free.pop() {
            Some(place) => {
                chunk.slots[usize::from(place)] = Some(record);
                usize::from(place)
            }
            None => {
                chunk.slots.reserve_exact(CHUNK - chunk.slots.len());
                chunk.slots.push(Some(record));
                chunk.slots.len() - 1
            }
        };
        if chunk.is_full() {
            chunk.is_roomy = false;
            self.roomy.pop();
        }
        self.len += 1;
        Id::new(number * CHUNK + place)
    }

    fn add_chunk(&mut self) -> usize {
        let number = self.chunks.len();
        self.chunks.push(Chunk {
            slots: Vec::new(),
            free: Vec::new(),
            is_roomy: true,
        });
        self.roomy.push(number as u32);
        number
    }

    /// O(1). A chunk's last record takes the chunk's memory along, or that of the former spare.
    pub fn remove(&mut self, id: Id<T>) -> T {
        let number = id.place() / CHUNK;
        let chunk = &mut self.chunks[number];
        let place = id.place() % CHUNK;
        let record = chunk.slots[place].take().expect("an id names a record");
        chunk.free.push(place as u16);
        self.len -= 1;
        if !std::mem::replace(&mut chunk.is_roomy, true) {
            self.roomy.push(number as u32);
        }
        if chunk.is_empty() {
            self.let_go(number as u32);
        }
        record
    }

    /// A chunk has become empty.
    fn let_go(&mut self, number: u32) {
        let gone = if self.roomy.last() == Some(&number) {
            let former = self.spare.replace(number);
            former.filter(|former| *former != number)
        } else {
            Some(number)
        };
        let chunk = gone.map(|gone| &mut self.chunks[gone as usize]);
        // The former spare may be in use again.
        if let Some(chunk) = chunk.filter(|chunk| chunk.is_empty()) {
            chunk.slots = Vec::new();
            chunk.free = Vec::new();
        }
    }

    /// Every record with its id, in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = (Id<T>, &T)> {
        self.chunks.iter().enumerate().flat_map(|(number, chunk)| {
            let slots = chunk.slots.iter().enumerate();
            slots.filter_map(move |(place, slot)| {
                let id = Id::new(number * CHUNK + place);
                slot.as_ref().map(|record| (id, record))
            })
        })
    }

    /// How many places there are, with and without a record.
    pub fn places(&self) -> usize {
        let last = self.chunks.last().map_or(0, |chunk| chunk.slots.len());
        self.chunks.len().saturating_sub(1) * CHUNK + last
    }

    /// The record at a place, if there is one. O(1).
    pub fn at(&self, place: usize) -> Option<Id<T>> {
        let slots = &self.chunks.get(place / CHUNK)?.slots;
        slots.get(place % CHUNK)?.as_ref().map(|_| Id::new(place))
    }

    fn slot(&mut self, id: Id<T>) -> &mut Option<T> {
        &mut self.chunks[id.place() / CHUNK].slots[id.place() % CHUNK]
    }
}

impl<T> Index<Id<T>> for Arena<T> {
    type Output = T;
    fn index(&self, id: Id<T>) -> &T {
        self.chunks[id.place() / CHUNK].slots[id.place() % CHUNK]
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
        assert_eq!((arena.places(), arena.at(700)), (2000, Some(again)));
        arena.remove(again);
        assert_eq!((arena.places(), arena.at(700)), (2000, None));
        assert_eq!(arena.at(2000), None);
    }

    #[test]
    fn a_chunk_gives_its_memory_back_with_its_last_record() {
        let mut arena = Arena::default();
        let ids: Vec<_> = (0..10 * CHUNK).map(|n| arena.insert(n)).collect();
        let survivor = ids[3 * CHUNK];
        for id in ids.iter().filter(|id| **id != survivor) {
            arena.remove(*id);
        }
        let with_memory = arena.chunks.iter().filter(|c| c.slots.capacity() > 0);
        assert_eq!((arena.len(), arena[survivor]), (1, 3 * CHUNK));
        assert!(with_memory.count() <= 2, "the survivor's and one to spare");
        let again: Vec<_> = (0..3 * CHUNK).map(|n| arena.insert(n)).collect();
        assert_eq!(arena.iter().count(), again.len() + 1);
        assert_eq!(arena.chunks.len(), 10, "places are used again");
    }

    #[test]
    fn a_record_that_comes_and_goes_alone_keeps_its_memory() {
        let mut arena = Arena::default();
        let ids: Vec<_> = (0..4 * CHUNK).map(|n| arena.insert(n)).collect();
        for id in ids {
            arena.remove(id);
        }
        let memory = |arena: &Arena<usize>| -> usize {
            let chunks = arena.chunks.iter();
            chunks.map(|chunk| chunk.slots.capacity()).sum()
        };
        for n in 0..3 {
            let alone = arena.insert(n);
            assert_eq!((arena[alone], memory(&arena)), (n, CHUNK));
            arena.remove(alone);
            assert_eq!(memory(&arena), CHUNK);
        }
    }

    #[test]
    fn an_optional_id_costs_nothing() {
        assert_eq!(size_of::<Option<Id<String>>>(), 4);
    }
}
