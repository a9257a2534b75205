//! The keys that somebody watches, holds or waits for, and nothing else: a key that nobody cares for
//! has no record here, and finding that out is one hash and one probe.

use crate::engine::mode::Modes;
use crate::engine::state::rows::{KeyRecord, Marks};
use crate::engine::storage::arena::{Arena, Id};
use crate::engine::storage::chain::Chain;
use crate::engine::storage::index::{self, Index};
use crate::engine::types::{Db, Key, KeyBuf, KeyState};
use hashbrown::DefaultHashBuilder;
use std::cell::Cell;
use std::hash::BuildHasher;
use std::ops;

impl Marks {
    const PRESENT: u16 = 1;
    const READY: u16 = 2;
    const LOCK: u16 = 4;
    const OTHER: u16 = 8;
    const TIMED: u16 = 16;
    /// Two bits.
    const ROUND_AT: u32 = 5;
    const ONE_HOLD: u16 = 128;
    const UNSEEN: u16 = 256;

    fn has(self, mark: u16) -> bool {
        self.0 & mark != 0
    }

    fn set(&mut self, mark: u16, on: bool) {
        if on {
            self.0 |= mark;
        } else {
            self.0 &= !mark;
        }
    }
}

impl KeyRecord {
    fn new(key: Key<'_>, standing: KeyState, round: Round) -> Self {
        let mut record = KeyRecord {
            name: key.name.into(),
            db: key.db,
            marks: Marks(round.0 << Marks::ROUND_AT),
            held: Modes::NONE,
            watchers: Chain::default(),
            holds: Chain::default(),
            queue: Chain::default(),
        };
        record.set_present(standing.is_present());
        record.set_stands(standing);
        record
    }

    pub fn key(&self) -> Key<'_> {
        Key {
            db: self.db,
            name: &self.name,
        }
    }

    /// Whether the keyspace has this key, as far as the watchers were told.
    pub fn is_present(&self) -> bool {
        self.marks.has(Marks::PRESENT)
    }

    pub fn set_present(&mut self, present: bool) {
        self.marks.set(Marks::PRESENT, present);
    }

    /// What stands at this key as soon as the effects given so far are performed.
    pub fn stands(&self) -> KeyState {
        if self.marks.has(Marks::LOCK) {
            KeyState::Lock
        } else if self.marks.has(Marks::OTHER) {
            KeyState::Other
        } else {
            KeyState::Absent
        }
    }

    pub fn set_stands(&mut self, standing: KeyState) {
        let mark = match standing {
            KeyState::Absent => 0,
            KeyState::Lock => Marks::LOCK,
            KeyState::Other => Marks::OTHER,
        };
        self.marks.0 = self.marks.0 & !(Marks::LOCK | Marks::OTHER) | mark;
    }

    /// What stands here may have a time to live.
    pub fn is_timed(&self) -> bool {
        self.marks.has(Marks::TIMED)
    }

    pub fn set_timed(&mut self, timed: bool) {
        self.marks.set(Marks::TIMED, timed);
    }

    /// It may be that somebody in the queue can be served: it waits in the engine's `ready`.
    pub fn is_ready(&self) -> bool {
        self.marks.has(Marks::READY)
    }

    pub fn set_ready(&mut self, ready: bool) {
        self.marks.set(Marks::READY, ready);
    }

    /// It has exactly one hold, which was its first: so that one stands in no other list of its key's holds. It may be no
    /// although there is one.
    pub fn has_one_hold(&self) -> bool {
        self.marks.has(Marks::ONE_HOLD)
    }

    pub fn set_one_hold(&mut self, one: bool) {
        self.marks.set(Marks::ONE_HOLD, one);
    }

    /// Databases have exchanged their contents, and what stands here now has not been looked at since. What is held came with
    /// its holds.
    pub fn is_unseen(&self) -> bool {
        self.marks.has(Marks::UNSEEN)
    }

    pub fn set_unseen(&mut self, unseen: bool) {
        self.marks.set(Marks::UNSEEN, unseen);
    }

    /// In which modes it is held, whoever holds it.
    #[inline]
    pub fn held(&self) -> Modes {
        self.held
    }

    pub fn set_held(&mut self, held: Modes) {
        self.held = held;
    }

    /// Whether something that is not ours stands here, or may, so that nobody can be granted the key.
    pub fn is_unmanaged(&self) -> bool {
        (self.stands() == KeyState::Other || self.is_unseen()) && self.holds.is_empty()
    }

    fn round(&self) -> Round {
        Round(self.marks.0 >> Marks::ROUND_AT & Round::MOST)
    }

    fn set_round(&mut self, round: Round) {
        let others = self.marks.0 & !(Round::MOST << Marks::ROUND_AT);
        self.marks.0 = others | round.0 << Marks::ROUND_AT;
    }

    /// Whether somebody watches it or waits for it.
    pub fn is_open(&self) -> bool {
        !(self.watchers.is_empty() && self.queue.is_empty())
    }

    /// Whether nobody watches it or waits for it, and somebody holds it.
    pub fn is_only_held(&self) -> bool {
        !(self.is_open() || self.is_ready() || self.holds.is_empty())
    }

    pub fn is_idle(&self) -> bool {
        !self.is_open() && self.holds.is_empty() && !self.is_ready()
    }
}

/// In which of the rounds of flushes a key was last worked off. There are never records of more than three at a time.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Round(u16);

impl Round {
    const MOST: u16 = 3;

    fn next(self) -> Self {
        Round((self.0 + 1) & Self::MOST)
    }

    fn former(self) -> Self {
        Round((self.0 + Self::MOST) & Self::MOST)
    }
}

/// Invariant: `index` has each record of `records` once, under its key's hash; no two records
/// have the same key; none is idle when a room has finished its work. `last` names a record.
#[derive(Default)]
pub(in crate::engine) struct Keys {
    records: Arena<KeyRecord>,
    index: Index<KeyRecord>,
    hasher: DefaultHashBuilder,
    /// What was found last, with its hash: what is asked for once is asked for again soon.
    last: Cell<Option<(Id<KeyRecord>, u32)>>,
    /// Each record is of this round, of the one before, or while it goes on, of the one before that.
    round: Round,
    /// While a round goes on, the records of this round that there may be something to say of should another flush come.
    named: Option<Vec<Id<KeyRecord>>>,
}

/// What a look for a key found, so that it need not be looked for again.
#[derive(Clone, Copy)]
pub(in crate::engine) struct Spot {
    hash: u32,
    pub found: Option<Id<KeyRecord>>,
}

impl Keys {
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// O(1).
    pub fn find(&self, key: Key<'_>) -> Option<Id<KeyRecord>> {
        if self.index.is_empty() {
            return None;
        }
        self.spot(key).found
    }

    /// The key's record, made with what stands there where there is none. O(1).
    pub fn find_or_add(&mut self, key: Key<'_>, standing: KeyState) -> Id<KeyRecord> {
        let spot = self.spot(key);
        self.fill(spot, key, standing)
    }

    /// Where a key is, or would be. O(1).
    pub fn spot(&self, key: Key<'_>) -> Spot {
        if let Some((last, hash)) = self.last.get()
            && self.records[last].key() == key
        {
            let found = Some(last);
            return Spot { hash, found };
        }
        let hash = self.hash(key);
        let found = self.lookup(hash, key);
        if let Some(found) = found {
            self.last.set(Some((found, hash)));
        }
        Spot { hash, found }
    }

    /// The record at the key's spot, made with what stands there where there is none. Nothing was
    /// added or forgotten at this spot since it was looked for. O(1).
    pub fn fill(&mut self, spot: Spot, key: Key<'_>, standing: KeyState) -> Id<KeyRecord> {
        if let Some(id) = spot.found {
            return id;
        }
        let record = KeyRecord::new(key, standing, self.round);
        let id = self.records.insert(record);
        if let Some(named) = &mut self.named {
            named.push(id);
        }
        self.index.insert(spot.hash, id);
        self.last.set(Some((id, spot.hash)));
        id
    }

    /// Makes a record for each of these keys that has none, and tells for each the record that was made.
    ///
    /// All memory is taken before the first record is put into the index: the servers' allocators count in
    /// atomic operations, and each of these waits for the index's far-off memory. That was most of the time.
    pub fn add_all(&mut self, keys: &[Key<'_>], standing: KeyState) -> Vec<Option<Id<KeyRecord>>> {
        self.index.reserve(keys.len());
        let (records, round) = (&mut self.records, self.round);
        let add = |key: &Key<'_>| Some(records.insert(KeyRecord::new(*key, standing, round)));
        let mut made: Vec<_> = keys.iter().map(add).collect();
        for (key, made) in keys.iter().zip(&mut made) {
            let hash = self.hash(*key);
            if self.lookup(hash, *key).is_some() {
                made.take().map(|made| self.records.remove(made));
            } else if let Some(made) = *made {
                self.index.insert(hash, made);
            }
        }
        made
    }

    /// Makes room for so many more.
    pub fn reserve(&mut self, more: usize) {
        self.index.reserve(more);
    }

    /// Forgets the record if nobody watches, holds or waits for its key any more; its key is given back. O(1).
    pub fn remove_if_idle(&mut self, id: Id<KeyRecord>) -> Option<KeyBuf> {
        self.records[id].is_idle().then(|| self.remove(id))
    }

    /// Forgets a record; its key is given back. O(1).
    pub fn remove(&mut self, id: Id<KeyRecord>) -> KeyBuf {
        let hash = match self.last.take() {
            Some((last, hash)) if last == id => hash,
            _ => self.hash(self.records[id].key()),
        };
        self.index.remove(hash, id);
        let record = self.records.remove(id);
        KeyBuf {
            db: record.db,
            name: record.name,
        }
    }

    /// Those of these keys that are still there and only held go by the same name in the other one of these databases, in which
    /// all of them are. Of two such keys of one name both do. O(keys), where the databases are not far from each other in a
    /// moment each.
    pub fn exchange_only_held(&mut self, keys: &[Id<KeyRecord>], one: Db, other: Db) {
        self.last.take();
        let is_near = neighbours(one) == neighbours(other);
        for &id in keys {
            if !(self.has(id) && self.records[id].is_only_held()) {
                continue;
            }
            let db = self.records[id].db.exchanged(one, other);
            if is_near {
                self.records[id].db = db;
                continue;
            }
            self.index.remove(self.hash(self.records[id].key()), id);
            self.records[id].db = db;
            self.index.insert(self.hash(self.records[id].key()), id);
        }
    }

    /// Whether there is a record of this id. O(1).
    pub fn has(&self, id: Id<KeyRecord>) -> bool {
        self.records.has(id)
    }

    /// A round begins: each record is of one before. O(1).
    pub fn begin_round(&mut self) {
        self.round = self.round.next();
        self.named = Some(Vec::new());
    }

    /// No record is left of any but the last two. O(1).
    pub fn end_round(&mut self) {
        self.named = None;
    }

    /// Whether a record is of an earlier round. O(1).
    pub fn is_old(&self, id: Id<KeyRecord>) -> bool {
        self.records[id].round() != self.round
    }

    /// A record is of this round from now on. O(1).
    pub fn renew(&mut self, id: Id<KeyRecord>) {
        let round = self.round;
        self.records[id].set_round(round);
    }

    /// A record that no flush of this round concerned is of the one before from now on. O(1).
    pub fn pass_by(&mut self, id: Id<KeyRecord>) {
        let former = self.round.former();
        self.records[id].set_round(former);
    }

    /// Something may change at this key: see `named`. O(1).
    pub fn name(&mut self, id: Id<KeyRecord>) {
        if let Some(named) = &mut self.named {
            named.push(id);
        }
    }

    /// Those of which that was said and that are there still. O(their number).
    pub fn take_named(&mut self) -> Vec<Id<KeyRecord>> {
        let mut named = self.named.replace(Vec::new()).unwrap_or_default();
        named.retain(|id| self.records.has(*id));
        named
    }

    /// The places among which the records stand. One stays at its place as long as it is there.
    pub fn places(&self) -> usize {
        self.records.places()
    }

    /// The place at which to look after this one. O(1).
    pub fn place_after(&self, place: usize) -> usize {
        self.records.place_after(place)
    }

    /// The record at a place, if there is one. O(1).
    pub fn at(&self, place: usize) -> Option<Id<KeyRecord>> {
        self.records.at(place)
    }

    pub fn iter(&self) -> impl Iterator<Item = (Id<KeyRecord>, &KeyRecord)> {
        self.records.iter()
    }

    fn lookup(&self, hash: u32, key: Key<'_>) -> Option<Id<KeyRecord>> {
        self.index.find(hash, |id| self.records[id].key() == key)
    }

    fn hash(&self, key: Key<'_>) -> u32 {
        let near = (neighbours(key.db), key.name);
        index::fold(self.hasher.hash_one(near))
    }
}

impl ops::Index<Id<KeyRecord>> for Keys {
    type Output = KeyRecord;
    fn index(&self, id: Id<KeyRecord>) -> &KeyRecord {
        &self.records[id]
    }
}

impl ops::IndexMut<Id<KeyRecord>> for Keys {
    fn index_mut(&mut self, id: Id<KeyRecord>) -> &mut KeyRecord {
        &mut self.records[id]
    }
}

/// Databases whose keys have their hash by their name alone, so that it remains what it is when two of them are exchanged. They
/// are few: a name is found among those of its neighbours.
fn neighbours(db: Db) -> u32 {
    db.0 / 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_small_and_keeps_what_it_is_told() {
        assert_eq!(size_of::<Option<KeyRecord>>(), 48);
        let db = Db(0xab2b_cdef);
        let mut record = KeyRecord::new(Key { db, name: b"k" }, KeyState::Lock, Round(2));
        assert_eq!(record.key(), Key { db, name: b"k" });
        for standing in [KeyState::Other, KeyState::Absent, KeyState::Lock] {
            record.set_stands(standing);
            record.set_ready(standing == KeyState::Other);
            record.set_unseen(standing == KeyState::Lock);
            assert_eq!(record.stands(), standing);
            assert_eq!(record.is_unseen(), standing == KeyState::Lock);
            assert_eq!(record.is_ready(), standing == KeyState::Other);
            assert!(record.is_present() && record.round() == Round(2));
        }
        record.db = Db(7);
        assert!(record.key().db == Db(7) && record.is_unseen());
        for round in [3, 0, 1] {
            record.set_round(Round(round));
            assert!(record.round() == Round(round) && record.is_present());
        }
        assert!(Round(3).next() == Round(0) && Round(0).former() == Round(3));
    }
}
