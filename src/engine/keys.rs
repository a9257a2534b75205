//! The keys that somebody watches, holds or waits for, and nothing else: a key that nobody cares for has no
//! record here, and finding that out is one hash and one probe.

use super::arena::{Arena, Id};
use super::chain::Chain;
use super::event::Standing;
use super::holds::{self, Hold};
use super::id::{Db, Key, KeyBuf};
use super::index::{self, Index};
use super::queues::{self, Place};
use super::watches::{self, Watch};
use hashbrown::DefaultHashBuilder;
use std::hash::BuildHasher;
use std::ops;

/// What the engine knows of one key.
pub(super) struct KeyRecord {
    name: Box<[u8]>,
    db: Db,
    /// Whether the keyspace has this key, as far as the watchers were told.
    pub present: bool,
    pub watchers: Chain<Watch, { watches::BY_KEY }>,
    pub holds: Chain<Hold, { holds::BY_KEY }>,
    pub queue: Chain<Place, { queues::BY_KEY }>,
    /// What stands at this key as soon as the orders given so far are carried out.
    pub stands: Standing,
    /// It may be that somebody in the queue can be served: it waits in the engine's `ready`.
    pub ready: bool,
}

impl KeyRecord {
    pub fn key(&self) -> Key<'_> {
        Key {
            db: self.db,
            name: &self.name,
        }
    }

    /// Whether something that is not ours stands here, so that nobody can be granted the key.
    pub fn is_taken_by_a_stranger(&self) -> bool {
        self.stands == Standing::Other && self.holds.is_empty()
    }

    pub fn is_idle(&self) -> bool {
        self.watchers.is_empty() && self.holds.is_empty() && self.queue.is_empty() && !self.ready
    }
}

/// Invariant: `index` has each record of `records` once, under its key's hash; no two records
/// have the same key; none is idle when a room has finished its work.
#[derive(Default)]
pub(super) struct Keys {
    records: Arena<KeyRecord>,
    index: Index<KeyRecord>,
    hasher: DefaultHashBuilder,
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
        self.lookup(self.hash(key), key)
    }

    /// The key's record, made with what stands there where there is none. O(1).
    pub fn find_or_add(&mut self, key: Key<'_>, standing: Standing) -> Id<KeyRecord> {
        let hash = self.hash(key);
        if let Some(id) = self.lookup(hash, key) {
            return id;
        }
        let id = self.records.insert(KeyRecord {
            name: key.name.into(),
            db: key.db,
            present: standing.is_present(),
            watchers: Chain::default(),
            holds: Chain::default(),
            queue: Chain::default(),
            stands: standing,
            ready: false,
        });
        self.index.insert(hash, id);
        id
    }

    /// Forgets the record if nobody watches or holds its key any more; its key is given back. O(1).
    pub fn remove_if_idle(&mut self, id: Id<KeyRecord>) -> Option<KeyBuf> {
        if !self.records[id].is_idle() {
            return None;
        }
        let hash = self.hash(self.records[id].key());
        self.index.remove(hash, id);
        let record = self.records.remove(id);
        Some(KeyBuf {
            db: record.db,
            name: record.name,
        })
    }

    pub fn iter(&self) -> impl Iterator<Item = (Id<KeyRecord>, &KeyRecord)> {
        self.records.iter()
    }

    fn lookup(&self, hash: u32, key: Key<'_>) -> Option<Id<KeyRecord>> {
        self.index.find(hash, |id| self.records[id].key() == key)
    }

    fn hash(&self, key: Key<'_>) -> u32 {
        index::fold(self.hasher.hash_one(key))
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
