//! Records with small, typed, reusable ids.
//!
//! Everything in the engine points at everything else: keys at watchers, connections at holds. Ids
//! of four bytes instead of pointers make that safe and half as large. The records stand in
//! chunks, so growing never moves a million of them while the server's clients wait.

use crate::engine::storage::generation::{self, Generations};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::ops::{Index, IndexMut};

const CHUNK: usize = 512;

/// Names one record of an [`Arena`] until that record is removed. `Option<Id<T>>` is four bytes too. Its number is that of the
/// place, from 1 on, and below it the [generation](generation::BITS).
pub struct Id<T> {
    number: NonZeroU32,
    of: PhantomData<fn() -> T>,
}

impl<T> Id<T> {
    fn new(place: usize, generation: u32) -> Self {
        let number = (place + 1) << generation::BITS;
        let number = u32::try_from(number).expect("fewer than 2^32 records") | generation;
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
        (self.number.get() >> generation::BITS) as usize - 1
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
/// without a record has memory but `spare` and that of `last_left`.
pub struct Arena<T> {
    /// Where the chunks' records stand, apart from the rest, since they are looked at much more often.
    slots: Vec<Slots<T>>,
    chunks: Vec<Chunk>,
    roomy: Vec<u32>,
    /// The last chunk to be emptied whose places are next: whoever comes and goes alone does not
    /// have the memory taken and given back each time.
    spare: Option<u32>,
    /// The place that a record left last. It is the next to be taken, and nobody's else: mostly whoever comes
    /// follows somebody who has just left.
    last_left: Option<Id<T>>,
    len: usize,
    generations: Generations,
}

/// One chunk's places, as long as it has memory.
type Slots<T> = Option<Box<[Option<T>; CHUNK]>>;

/// Invariant: `free` holds exactly those of the first `used` places whose record is absent, as it is in
/// all others, but the arena's `last_left`; `is_roomy` says whether the arena's `roomy` names this chunk.
struct Chunk {
    used: u16,
    free: Vec<u16>,
    is_roomy: bool,
}

impl Chunk {
    fn is_full(&self) -> bool {
        self.free.is_empty() && usize::from(self.used) == CHUNK
    }

    fn is_empty(&self) -> bool {
        self.free.len() == usize::from(self.used)
    }
}

impl<T> Default for Arena<T> {
    fn default() -> Self {
        Arena {
            slots: Vec::new(),
            chunks: Vec::new(),
            roomy: Vec::new(),
            spare: None,
            last_left: None,
            len: 0,
            generations: Generations::default(),
        }
    }
}

impl<T> Arena<T> {
    /// How many records there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// O(1).
    #[inline]
    pub fn insert(&mut self, record: T) -> Id<T> {
        self.len += 1;
        if let Some(id) = self.last_left.take()
            && let Some(slot) = self.slot_mut(id)
        {
            *slot = Some(record);
            return id;
        }
        self.insert_elsewhere(record)
    }

    /// Apart and marked as cold for the sake of who comes and goes alone, by the way above: that takes a sixtieth less
    /// by it. Whoever loads millions comes by here each time, and pays a two-hundredth for it.
    #[cold]
    #[inline(never)]
    fn insert_elsewhere(&mut self, record: T) -> Id<T> {
        let number = match self.roomy.last() {
            Some(number) => *number as usize,
            None => self.add_chunk(),
        };
        let chunk = &mut self.chunks[number];
        let place = chunk.free.pop().unwrap_or_else(|| {
            chunk.used += 1;
            chunk.used - 1
        });
        let slots = self.slots[number].get_or_insert_with(empty_slots);
        slots[usize::from(place) % CHUNK] = Some(record);
        if chunk.is_full() {
            chunk.is_roomy = false;
            self.roomy.pop();
        }
        self.id_at(number * CHUNK + usize::from(place))
    }

    fn add_chunk(&mut self) -> usize {
        let number = self.chunks.len();
        self.slots.push(None);
        self.generations.add_places(CHUNK);
        self.chunks.push(Chunk {
            used: 0,
            free: Vec::new(),
            is_roomy: true,
        });
        self.roomy.push(number as u32);
        number
    }

    /// O(1). A chunk's last record takes the chunk's memory along, or that of the former spare.
    pub fn remove(&mut self, id: Id<T>) -> T {
        let record = self.slot_mut(id).and_then(Option::take);
        let record = record.expect("an id names a record");
        self.len -= 1;
        self.generations.end(id.place());
        if let Some(left) = self.last_left.replace(self.next_at(id)) {
            self.set_free(left);
        }
        record
    }

    /// A place that a record left is not the last one any more. Cold as in [`insert_elsewhere`](Self::insert_elsewhere).
    #[cold]
    #[inline(never)]
    fn set_free(&mut self, left: Id<T>) {
        let number = left.place() / CHUNK;
        let chunk = &mut self.chunks[number];
        chunk.free.push((left.place() % CHUNK) as u16);
        if !std::mem::replace(&mut chunk.is_roomy, true) {
            self.roomy.push(number as u32);
        }
        if chunk.is_empty() {
            self.let_go(number as u32);
        }
    }

    /// A chunk has become empty.
    fn let_go(&mut self, number: u32) {
        let gone = if self.roomy.last() == Some(&number) {
            let former = self.spare.replace(number);
            former.filter(|former| *former != number)
        } else {
            Some(number)
        };
        // The former spare may be in use again.
        if let Some(gone) = gone.filter(|gone| self.chunks[*gone as usize].is_empty()) {
            let gone = gone as usize;
            self.slots[gone] = None;
            self.chunks[gone].used = 0;
            self.chunks[gone].free = Vec::new();
        }
    }

    /// Every record with its id, in the order of their places.
    pub fn iter(&self) -> impl Iterator<Item = (Id<T>, &T)> {
        let chunks = self.slots.iter().zip(&self.chunks).enumerate();
        chunks.flat_map(move |(number, (slots, chunk))| {
            let used = usize::from(chunk.used);
            let slots = slots.iter().flat_map(move |slots| &slots[..used]);
            slots.enumerate().filter_map(move |(place, slot)| {
                let id = || self.id_at(number * CHUNK + place);
                slot.as_ref().map(|record| (id(), record))
            })
        })
    }

    /// How many places there are, with and without a record.
    pub fn places(&self) -> usize {
        let last = self.chunks.last().map_or(0, |chunk| chunk.used.into());
        self.chunks.len().saturating_sub(1) * CHUNK + last
    }

    /// The record at a place, if there is one. O(1).
    pub fn at(&self, place: usize) -> Option<Id<T>> {
        let slots = self.slots.get(place / CHUNK)?.as_ref()?;
        slots[place % CHUNK].as_ref().map(|_| self.id_at(place))
    }

    /// The place at which to look after this one: nothing is in between. O(1).
    pub fn place_after(&self, place: usize) -> usize {
        match self.slots.get(place / CHUNK) {
            Some(Some(_)) => place + 1,
            _ => (place / CHUNK + 1) * CHUNK,
        }
    }

    fn id_at(&self, place: usize) -> Id<T> {
        Id::new(place, self.generations.at(place))
    }

    /// The id of the next record at the place that this one has left.
    #[inline(always)]
    fn next_at(&self, left: Id<T>) -> Id<T> {
        match cfg!(debug_assertions) {
            true => self.id_at(left.place()),
            false => left,
        }
    }

    /// Panics if the record that this id names has left its place, though another may stand there. See [`generation`].
    #[inline(always)]
    fn check_generation(&self, id: Id<T>) {
        debug_assert!(
            self.id_at(id.place()) == id,
            "a stale id: its record was removed"
        );
    }

    fn slot_mut(&mut self, id: Id<T>) -> Option<&mut Option<T>> {
        self.check_generation(id);
        let slots = self.slots[id.place() / CHUNK].as_mut()?;
        Some(&mut slots[id.place() % CHUNK])
    }
}

fn empty_slots<T>() -> Box<[Option<T>; CHUNK]> {
    let slots: Box<[Option<T>]> = (0..CHUNK).map(|_| None).collect();
    slots.try_into().unwrap_or_else(|_| unreachable!())
}

impl<T> Index<Id<T>> for Arena<T> {
    type Output = T;
    fn index(&self, id: Id<T>) -> &T {
        self.check_generation(id);
        let slots = self.slots[id.place() / CHUNK].as_ref();
        let record = slots.and_then(|slots| slots[id.place() % CHUNK].as_ref());
        record.expect("an id names a record")
    }
}

impl<T> IndexMut<Id<T>> for Arena<T> {
    fn index_mut(&mut self, id: Id<T>) -> &mut T {
        let record = self.slot_mut(id).and_then(Option::as_mut);
        record.expect("an id names a record")
    }
}

#[cfg(test)]
mod tests;
