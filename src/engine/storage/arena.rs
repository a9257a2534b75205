//! A slab of records with typed 4-byte ids; slots are reused.
//!
//! Records refer to each other in cycles: keys to watchers, connections to holds. Ids instead of pointers make that safe, and
//! take half the memory. Records are allocated in chunks, so growing never moves a million of them while clients wait.

use crate::engine::storage::generation::{self, Generations};
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::ops::{Index, IndexMut};

/// Slots of a chunk. With the checks of a test there are few, since tests make millions of engines, and are to meet the borders.
const CHUNK: usize = if cfg!(debug_assertions) { 64 } else { 512 };

/// Identifies one record of an [`Arena`] until it is removed. `Option<Id<T>>` takes four bytes, too. The number is that of the
/// slot, from 1, in the high bits, and the [generation](generation::BITS) in the low ones.
pub struct Id<T> {
    number: NonZeroU32,
    of: PhantomData<fn() -> T>,
}

impl<T> Id<T> {
    #[inline]
    fn new(slot: usize, generation: u32) -> Self {
        let number = (slot + 1) << generation::BITS;
        let number = u32::try_from(number).expect("fewer than 2^32 records") | generation;
        Id {
            number: NonZeroU32::new(number).expect("one more than a slot is not zero"),
            of: PhantomData,
        }
    }

    /// Never 0.
    #[inline]
    pub fn number(self) -> u32 {
        self.number.get()
    }

    /// None for 0.
    #[inline]
    pub fn of_number(number: u32) -> Option<Self> {
        let number = NonZeroU32::new(number)?;
        let of = PhantomData;
        Some(Id { number, of })
    }

    /// For [`Arena::at`].
    #[inline]
    pub fn slot(self) -> usize {
        (self.number.get() >> generation::BITS) as usize - 1
    }
}

impl<T> Clone for Id<T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Id<T> {}
impl<T> PartialEq for Id<T> {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl<T> Eq for Id<T> {}
impl<T> PartialOrd for Id<T> {
    #[inline]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Id<T> {
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        self.number.cmp(&other.number)
    }
}
impl<T> Hash for Id<T> {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.number.hash(state);
    }
}
impl<T> fmt::Debug for Id<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.number)
    }
}

/// Invariant: `roomy` has each chunk that has a free slot once, and `len` counts the records. Of the chunks without a record, only
/// `spare` and that of `last_freed` are allocated.
pub struct Arena<T> {
    /// The records of each chunk. Separate from `chunks`, which is accessed much less often.
    slots: Vec<Slots<T>>,
    chunks: Vec<Chunk>,
    roomy: Vec<u32>,
    /// The last chunk to become empty while it was next in `roomy`. It stays allocated, so that inserting and removing a single
    /// record does not allocate and free a chunk each time.
    spare: Option<u32>,
    /// The slot that was freed last, with its next id. The next insert takes it; it is in no free list. An insert mostly follows
    /// a remove.
    last_freed: Option<Id<T>>,
    len: usize,
    generations: Generations,
}

/// The slots of a chunk; none while it is not allocated.
type Slots<T> = Option<Box<[Option<T>; CHUNK]>>;

/// Invariant: `free` has exactly the empty slots among the first `used`, except `last_freed`; the slots from `used` on are empty.
/// `is_roomy` says whether this chunk is in `roomy`.
struct Chunk {
    used: u16,
    free: Vec<u16>,
    is_roomy: bool,
}

impl Chunk {
    #[inline]
    fn is_full(&self) -> bool {
        self.free.is_empty() && usize::from(self.used) == CHUNK
    }

    #[inline]
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
            last_freed: None,
            len: 0,
            generations: Generations::default(),
        }
    }
}

impl<T> Arena<T> {
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// O(1).
    #[inline]
    pub fn insert(&mut self, record: T) -> Id<T> {
        self.len += 1;
        if let Some(id) = self.last_freed.take()
            && let Some(empty) = self.slot_mut(id)
        {
            *empty = Some(record);
            return id;
        }
        self.insert_slow(record)
    }

    /// Cold, which makes the fast path above 1.7 % faster, and a load of millions, which always takes this path, 0.5 % slower.
    #[cold]
    #[inline(never)]
    fn insert_slow(&mut self, record: T) -> Id<T> {
        let number = match self.roomy.last() {
            Some(number) => *number as usize,
            None => self.add_chunk(),
        };
        let chunk = &mut self.chunks[number];
        let slot = chunk.free.pop().unwrap_or_else(|| {
            chunk.used += 1;
            chunk.used - 1
        });
        let slots = self.slots[number].get_or_insert_with(empty_slots);
        slots[usize::from(slot) % CHUNK] = Some(record);
        if chunk.is_full() {
            chunk.is_roomy = false;
            self.roomy.pop();
        }
        self.id_at(number * CHUNK + usize::from(slot))
    }

    fn add_chunk(&mut self) -> usize {
        let number = self.chunks.len();
        self.slots.push(None);
        self.generations.add_slots(CHUNK);
        self.chunks.push(Chunk {
            used: 0,
            free: Vec::new(),
            is_roomy: true,
        });
        self.roomy.push(number as u32);
        number
    }

    /// O(1). May free a chunk.
    #[inline]
    pub fn remove(&mut self, id: Id<T>) -> T {
        let record = self.slot_mut(id).and_then(Option::take);
        let record = record.expect("an id names a record");
        self.len -= 1;
        self.generations.end(id.slot());
        if let Some(freed) = self.last_freed.replace(self.next_id_of(id)) {
            self.push_free(freed);
        }
        record
    }

    /// Puts a slot that is no longer `last_freed` on its chunk's free list. Cold as [`insert_slow`](Self::insert_slow) is.
    #[cold]
    #[inline(never)]
    fn push_free(&mut self, freed: Id<T>) {
        let number = freed.slot() / CHUNK;
        let chunk = &mut self.chunks[number];
        chunk.free.push((freed.slot() % CHUNK) as u16);
        if !std::mem::replace(&mut chunk.is_roomy, true) {
            self.roomy.push(number as u32);
        }
        if chunk.is_empty() {
            self.free_chunk(number as u32);
        }
    }

    /// A chunk has become empty: frees it, or keeps it as the spare and frees the previous spare.
    fn free_chunk(&mut self, number: u32) {
        let surplus = if self.roomy.last() == Some(&number) {
            let previous = self.spare.replace(number);
            previous.filter(|previous| *previous != number)
        } else {
            Some(number)
        };
        // The previous spare may be in use again.
        if let Some(surplus) = surplus.filter(|chunk| self.chunks[*chunk as usize].is_empty()) {
            let surplus = surplus as usize;
            self.slots[surplus] = None;
            self.chunks[surplus].used = 0;
            self.chunks[surplus].free = Vec::new();
        }
    }

    /// Every record with its id, in slot order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = (Id<T>, &T)> {
        let chunks = self.slots.iter().zip(&self.chunks).enumerate();
        chunks.flat_map(move |(number, (slots, chunk))| {
            let used = usize::from(chunk.used);
            let slots = slots.iter().flat_map(move |slots| &slots[..used]);
            slots.enumerate().filter_map(move |(slot, content)| {
                let id = || self.id_at(number * CHUNK + slot);
                content.as_ref().map(|record| (id(), record))
            })
        })
    }

    /// The number of slots, empty ones included.
    pub fn slot_count(&self) -> usize {
        let last = self.chunks.last().map_or(0, |chunk| chunk.used.into());
        self.chunks.len().saturating_sub(1) * CHUNK + last
    }

    /// The id of the record in a slot, if any. O(1).
    #[inline]
    pub fn at(&self, slot: usize) -> Option<Id<T>> {
        let slots = self.slots.get(slot / CHUNK)?.as_ref()?;
        slots[slot % CHUNK].as_ref().map(|_| self.id_at(slot))
    }

    /// The next slot to visit; skips chunks that are not allocated. O(1).
    #[inline]
    pub fn next_slot(&self, slot: usize) -> usize {
        match self.slots.get(slot / CHUNK) {
            Some(Some(_)) => slot + 1,
            _ => (slot / CHUNK + 1) * CHUNK,
        }
    }

    #[inline]
    fn id_at(&self, slot: usize) -> Id<T> {
        Id::new(slot, self.generations.at(slot))
    }

    /// The id that the next record in this slot gets.
    #[inline(always)]
    fn next_id_of(&self, freed: Id<T>) -> Id<T> {
        match cfg!(debug_assertions) {
            true => self.id_at(freed.slot()),
            false => freed,
        }
    }

    /// Panics if this id's record was removed, even if another is in its slot. See [`generation`].
    #[inline(always)]
    fn check_generation(&self, id: Id<T>) {
        debug_assert!(
            self.id_at(id.slot()) == id,
            "a stale id: its record was removed"
        );
    }

    #[inline]
    fn slot_mut(&mut self, id: Id<T>) -> Option<&mut Option<T>> {
        self.check_generation(id);
        let slots = self.slots[id.slot() / CHUNK].as_mut()?;
        Some(&mut slots[id.slot() % CHUNK])
    }
}

fn empty_slots<T>() -> Box<[Option<T>; CHUNK]> {
    let slots: Box<[Option<T>]> = (0..CHUNK).map(|_| None).collect();
    slots.try_into().unwrap_or_else(|_| unreachable!())
}

impl<T> Index<Id<T>> for Arena<T> {
    type Output = T;
    #[inline]
    fn index(&self, id: Id<T>) -> &T {
        self.check_generation(id);
        let slots = self.slots[id.slot() / CHUNK].as_ref();
        let record = slots.and_then(|slots| slots[id.slot() % CHUNK].as_ref());
        record.expect("an id names a record")
    }
}

impl<T> IndexMut<Id<T>> for Arena<T> {
    #[inline]
    fn index_mut(&mut self, id: Id<T>) -> &mut T {
        let record = self.slot_mut(id).and_then(Option::as_mut);
        record.expect("an id names a record")
    }
}

#[cfg(test)]
mod tests;
