//! Two hash tables: the held keys, and the names that are watched or waited for. Any other key has no record; a miss costs
//! one hash and one probe per table.
//!
//! A held key belongs to a *space*: the contents of a database between two flushes. FLUSH retires the spaces of its databases,
//! SWAPDB swaps two: both are O(databases), however many keys are held. No lookup finds a key of a retired space. Its holds
//! no longer count, and stay until the sweep removes them.
//!
//! A name belongs to a database. FLUSH and SWAPDB begin a new *epoch* of the database, and its names are *stale* until an
//! event or a look says what state their keys are in. After FLUSH that is known: the keys are absent.

mod check;
mod shown;

use crate::engine::mode::Modes;
use crate::engine::state::rows::{Flags, HeldKey, Name, SpaceId};
use crate::engine::storage::arena::{Arena, Id};
use crate::engine::storage::bytes::Bytes;
use crate::engine::storage::chain::Chain;
use crate::engine::storage::index::Index;
use crate::engine::storage::sorted::Sorted;
use crate::engine::types::{Cause, Db, Key, KeyState};
use std::cell::Cell;
use std::ops;

impl Flags {
    // Of held keys.
    const TIMED: u8 = 1;
    const LOCK: u8 = 2;
    const SHOWN: u8 = 4;
    // Of names.
    const PRESENT: u8 = 1;
    const READY: u8 = 2;
    const OTHER: u8 = 4;

    fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    fn set(&mut self, flag: u8, on: bool) {
        match on {
            true => self.0 |= flag,
            false => self.0 &= !flag,
        }
    }
}

impl HeldKey {
    /// A key without holds.
    fn new(name: Bytes, hash: u32, space: SpaceId) -> Self {
        HeldKey {
            name,
            hash,
            space,
            flags: Flags::default(),
            held: Modes::NONE,
            holds: Chain::default(),
            hold_count: 0,
            permits_taken: 0,
        }
    }

    #[inline]
    fn is_at(&self, space: SpaceId, name: &[u8]) -> bool {
        self.space == space && *self.name == *name
    }

    /// The key may have a TTL.
    pub fn is_timed(&self) -> bool {
        self.flags.has(Flags::TIMED)
    }

    pub fn set_timed(&mut self, timed: bool) {
        self.flags.set(Flags::TIMED, timed);
    }

    /// The key is a lock once the effects emitted so far are performed, even if nobody holds it.
    pub fn is_lock(&self) -> bool {
        self.flags.has(Flags::LOCK)
    }

    /// The modes of all its holds.
    #[inline]
    pub fn held(&self) -> Modes {
        self.held
    }

    /// Records the modes of its holds.
    #[inline]
    pub fn set_held(&mut self, held: Modes) {
        self.held = held;
        self.flags.0 = (self.flags.0 & !Flags::LOCK) | (u8::from(held.is_lock()) * Flags::LOCK);
    }

    /// Its last hold is gone; the key itself stays.
    pub fn set_unheld(&mut self) {
        self.held = Modes::NONE;
    }
}

impl Name {
    pub fn key(&self) -> Key<'_> {
        Key {
            db: self.db,
            name: &self.name,
        }
    }

    /// Whether the key existed when its state was last known: what the watchers were told.
    pub fn is_present(&self) -> bool {
        self.flags.has(Flags::PRESENT)
    }

    /// Whether the key existed and was no lock. Unless it is held, it is another client's key.
    pub fn is_foreign(&self) -> bool {
        self.flags.has(Flags::OTHER)
    }

    pub fn set_state(&mut self, state: KeyState) {
        self.flags.set(Flags::PRESENT, state.is_present());
        self.flags.set(Flags::OTHER, state == KeyState::Other);
    }

    /// The name is in the engine's `ready` queue: a waiter may be served.
    pub fn is_ready(&self) -> bool {
        self.flags.has(Flags::READY)
    }

    pub fn set_ready(&mut self, ready: bool) {
        self.flags.set(Flags::READY, ready);
    }

    pub fn is_unreferenced(&self) -> bool {
        self.watchers.is_empty() && self.queue.is_empty() && !self.is_ready()
    }
}

/// The flush that retired a space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::engine) struct Retired {
    pub by: Cause,
    /// Its sequence number.
    pub number: u32,
}

/// See `shown.rs`.
#[derive(Default)]
struct Shown {
    sorted: Sorted<HeldKey>,
    /// While it is built: the next slot to visit.
    next_slot: usize,
}

/// A page of an index.
pub(in crate::engine) struct ShownPage {
    pub keys: Vec<Id<HeldKey>>,
    /// No key with the prefix follows.
    pub is_last: bool,
}

struct Space {
    /// Its database; of a retired space, the database when it was retired.
    db: Db,
    keys: u32,
    retired: Option<Retired>,
    /// See `shown.rs`.
    shown: Option<Box<Shown>>,
}

#[derive(Clone, Copy)]
struct Database {
    db: Db,
    space: SpaceId,
    epoch: u32,
    /// The epoch began with a flush: stale names are absent. Otherwise their state is unknown.
    began_empty: bool,
    names: u32,
    stale: u32,
}

/// Invariant: `held_index` has each key of `held` once, by name and space, except a [detached](Self::detach) one;
/// `name_index` has each name of `names` once, by name and database. `databases` has the database of each record, each with its
/// own live space; every other space is retired and not empty, or in `free`. The counters of spaces and databases match the
/// records, and `retired` and `stale` are their sums. `retired_spaces` lists the retired spaces.
#[derive(Default)]
pub(in crate::engine) struct Keys {
    held: Arena<HeldKey>,
    held_index: Index<HeldKey>,
    names: Arena<Name>,
    name_index: Index<Name>,
    /// The last lookups: one command looks the same key up several times.
    last_held: Cell<Option<Id<HeldKey>>>,
    last_name: Cell<Option<Id<Name>>>,
    /// Sorted by number; usually one.
    databases: Vec<Database>,
    spaces: Vec<Space>,
    free: Vec<SpaceId>,
    /// Oldest first.
    retired_spaces: Vec<SpaceId>,
    retirements: u32,
    /// Keys in retired spaces.
    retired: usize,
    /// Stale names, by what is known of their keys.
    stale: Stale,
    /// Spaces with an index, and those of them whose index is being built.
    indexes: usize,
    building: Vec<SpaceId>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Stale {
    absent: usize,
    unknown: usize,
}

impl Stale {
    /// The counter of the databases whose epoch began so.
    fn counter(&mut self, began_empty: bool) -> &mut usize {
        match began_empty {
            true => &mut self.absent,
            false => &mut self.unknown,
        }
    }
}

/// The result of a lookup, with the hash and space for a later insert.
#[derive(Clone, Copy)]
pub(in crate::engine) struct Lookup {
    hash: u32,
    /// None if the database has no record yet.
    space: Option<SpaceId>,
    pub held: Option<Id<HeldKey>>,
    pub name: Option<Id<Name>>,
}

impl Keys {
    /// How many keys are held.
    pub fn held_count(&self) -> usize {
        self.held.len()
    }

    /// How many names are watched or waited for.
    pub fn name_count(&self) -> usize {
        self.names.len()
    }

    // ---- lookup ----

    /// O(1).
    pub fn find_held(&self, key: Key<'_>) -> Option<Id<HeldKey>> {
        if self.held_index.is_empty() {
            return None;
        }
        let space = self.space_of(key.db)?;
        self.cached_held(space, key.name)
            .or_else(|| self.probe_held(self.hash(key.name), space, key.name))
    }

    /// O(1).
    pub fn find_name(&self, key: Key<'_>) -> Option<Id<Name>> {
        if self.name_index.is_empty() {
            return None;
        }
        self.cached_name(key)
            .or_else(|| self.probe_name(self.hash(key.name), key))
    }

    /// Looks a key up in both tables with one hash. O(1).
    pub fn lookup(&self, key: Key<'_>) -> Lookup {
        let space = self.space_of(key.db);
        let last = space.and_then(|space| self.cached_held(space, key.name));
        let hash = last.map_or_else(|| self.hash(key.name), |last| self.held[last].hash);
        let probe = || self.probe_held(hash, space?, key.name);
        Lookup {
            hash,
            space,
            held: last.or_else(probe),
            name: match self.name_index.is_empty() {
                true => None,
                false => self.cached_name(key).or_else(|| self.probe_name(hash, key)),
            },
        }
    }

    /// The held key at a name. O(1).
    pub fn held_at(&self, name: Id<Name>) -> Option<Id<HeldKey>> {
        let name = &self.names[name];
        let space = self.database(name.db).space;
        self.cached_held(space, &name.name)
            .or_else(|| self.probe_held(name.hash, space, &name.name))
    }

    /// The name of a held key, if it is watched or waited for; none for a key of a retired space. O(1).
    #[inline]
    pub fn name_of(&self, held: Id<HeldKey>) -> Option<Id<Name>> {
        match self.name_index.is_empty() || self.is_retired(held) {
            true => None,
            false => self.lookup_name_of(held),
        }
    }

    fn lookup_name_of(&self, held: Id<HeldKey>) -> Option<Id<Name>> {
        let (key, hash) = (self.key_of(held), self.held[held].hash);
        self.cached_name(key).or_else(|| self.probe_name(hash, key))
    }

    fn space_of(&self, db: Db) -> Option<SpaceId> {
        let place = self.database_index(db)?;
        Some(self.databases[place].space)
    }

    #[inline]
    fn database_index(&self, db: Db) -> Option<usize> {
        if self.databases.first()?.db == db {
            return Some(0);
        }
        let place = self
            .databases
            .binary_search_by_key(&db, |database| database.db);
        place.ok()
    }

    /// The database of a name.
    #[inline]
    fn database(&self, db: Db) -> &Database {
        let place = self.database_index(db).expect("a name's database is known");
        &self.databases[place]
    }

    /// The last lookup's result, if it matches.
    #[inline]
    fn cached_held(&self, space: SpaceId, name: &[u8]) -> Option<Id<HeldKey>> {
        let last = self.last_held.get()?;
        self.held[last].is_at(space, name).then_some(last)
    }

    #[inline]
    fn cached_name(&self, key: Key<'_>) -> Option<Id<Name>> {
        let last = self.last_name.get()?;
        (self.names[last].key() == key).then_some(last)
    }

    fn probe_held(&self, hash: u32, space: SpaceId, name: &[u8]) -> Option<Id<HeldKey>> {
        let is_it = |id: Id<HeldKey>| self.held[id].is_at(space, name);
        let found = self.held_index.find_hashed(mix(hash, space.0), is_it);
        if found.is_some() {
            self.last_held.set(found);
        }
        found
    }

    fn probe_name(&self, hash: u32, key: Key<'_>) -> Option<Id<Name>> {
        let is_it = |id: Id<Name>| self.names[id].key() == key;
        let found = self.name_index.find_hashed(mix(hash, key.db.0), is_it);
        if found.is_some() {
            self.last_name.set(found);
        }
        found
    }

    /// For both tables.
    fn hash(&self, name: &[u8]) -> u32 {
        self.held_index.hash(name)
    }

    // ---- held keys ----

    /// Its current key; of a retired space, its key when it was flushed.
    pub fn key_of(&self, held: Id<HeldKey>) -> Key<'_> {
        let HeldKey { name, space, .. } = &self.held[held];
        let db = self.spaces[space.0 as usize].db;
        Key { db, name }
    }

    /// The held key of this lookup, inserted if it is vacant. No record of this key was inserted or removed since. O(1).
    pub fn get_or_insert_held(&mut self, lookup: Lookup, key: Key<'_>) -> Id<HeldKey> {
        if let Some(id) = lookup.held {
            return id;
        }
        let space = lookup.space;
        let space = space.unwrap_or_else(|| self.database_mut(key.db).space);
        self.insert_held(key.name.into(), lookup.hash, space)
    }

    /// The held key of a name, inserted if there is none. O(1).
    pub fn get_or_insert_held_at(&mut self, name: Id<Name>) -> Id<HeldKey> {
        self.held_at(name).unwrap_or_else(|| {
            let Name { name, hash, db, .. } = &self.names[name];
            let space = self.database(*db).space;
            self.insert_held(name.clone(), *hash, space)
        })
    }

    fn insert_held(&mut self, name: Bytes, hash: u32, space: SpaceId) -> Id<HeldKey> {
        self.spaces[space.0 as usize].keys += 1;
        let id = self.held.insert(HeldKey::new(name, hash, space));
        self.held_index.insert_hashed(mix(hash, space.0), id);
        self.last_held.set(Some(id));
        id
    }

    /// Inserts each of these keys that has neither a record nor a name; returns the record inserted for each.
    ///
    /// It allocates all records before it touches the index: the servers' allocators count with atomic operations, and each
    /// would wait for the cache misses of the index.
    pub fn insert_all_held(&mut self, keys: &[Key<'_>]) -> Vec<Option<Id<HeldKey>>> {
        self.held_index.reserve(keys.len());
        let mut made = Vec::with_capacity(keys.len());
        for key in keys {
            let hash = self.hash(key.name);
            let space = self.database_mut(key.db).space;
            let record = HeldKey::new(key.name.into(), hash, space);
            made.push(Some(self.held.insert(record)));
        }
        for (key, made) in keys.iter().zip(&mut made) {
            let Some(id) = *made else { continue };
            let HeldKey { hash, space, .. } = self.held[id];
            let is_known = self.probe_held(hash, space, key.name).is_some()
                || self.probe_name(hash, *key).is_some();
            if is_known {
                made.take();
                self.held.remove(id);
            } else {
                self.held_index.insert_hashed(mix(hash, space.0), id);
                self.spaces[space.0 as usize].keys += 1;
            }
        }
        made
    }

    /// Reserves capacity for `more` held keys.
    pub fn reserve(&mut self, more: usize) {
        self.held_index.reserve(more);
    }

    /// Removes a held key without holds, and returns its key. O(1).
    pub fn remove_held(&mut self, id: Id<HeldKey>) -> (Db, Bytes) {
        if self.last_held.get() == Some(id) {
            self.last_held.set(None);
        }
        let HeldKey {
            name,
            hash,
            space,
            flags,
            ..
        } = self.held.remove(id);
        debug_assert!(!flags.has(Flags::SHOWN) || self.spaces[space.0 as usize].retired.is_some());
        self.held_index.remove_hashed(mix(hash, space.0), id);
        (self.remove_from_space(space), name)
    }

    /// Uncounts a key of a space; returns the space's database.
    #[inline]
    fn remove_from_space(&mut self, id: SpaceId) -> Db {
        let space = &mut self.spaces[id.0 as usize];
        space.keys -= 1;
        let (db, keys) = (space.db, space.keys);
        if space.retired.is_some() {
            self.free_if_swept(id, keys);
        }
        db
    }

    #[cold]
    fn free_if_swept(&mut self, id: SpaceId, keys: u32) {
        self.retired -= 1;
        if keys == 0 {
            self.free.push(id);
            self.retired_spaces.retain(|retired| *retired != id);
        }
    }

    /// Takes a held key out of the index, until [`attach`](Self::attach) gives it its new key. O(1).
    pub fn detach(&mut self, id: Id<HeldKey>) {
        self.last_held.set(None);
        let HeldKey { hash, space, .. } = self.held[id];
        self.held_index.remove_hashed(mix(hash, space.0), id);
    }

    /// Re-keys a detached held key. Nothing is held at the new key. O(1).
    pub fn attach(&mut self, id: Id<HeldKey>, key: Key<'_>) {
        let hash = self.hash(key.name);
        let space = self.database_mut(key.db).space;
        self.spaces[space.0 as usize].keys += 1;
        let held = &mut self.held[id];
        (held.name, held.hash) = (key.name.into(), hash);
        let previous = std::mem::replace(&mut held.space, space);
        self.held_index.insert_hashed(mix(hash, space.0), id);
        self.remove_from_space(previous);
    }

    pub fn all_held(&self) -> impl Iterator<Item = Id<HeldKey>> {
        self.held.iter().map(|(id, _)| id)
    }

    /// The slots of the held keys, for cursors; a record never changes its slot.
    pub fn held_arena(&self) -> &Arena<HeldKey> {
        &self.held
    }

    // ---- names ----

    /// The name of this lookup, inserted with this state if it is vacant. No record of this key was inserted or removed since. O(1).
    pub fn get_or_insert_name(
        &mut self,
        lookup: Lookup,
        key: Key<'_>,
        state: KeyState,
    ) -> Id<Name> {
        lookup
            .name
            .unwrap_or_else(|| self.insert_name(lookup.hash, key, state))
    }

    fn insert_name(&mut self, hash: u32, key: Key<'_>, state: KeyState) -> Id<Name> {
        let database = self.database_mut(key.db);
        database.names += 1;
        let mut name = Name {
            name: key.name.into(),
            hash,
            db: key.db,
            seen: database.epoch,
            flags: Flags::default(),
            watchers: Chain::default(),
            queue: Chain::default(),
            queue_length: 0,
        };
        name.set_state(state);
        let id = self.names.insert(name);
        self.name_index.insert_hashed(mix(hash, key.db.0), id);
        self.last_name.set(Some(id));
        id
    }

    /// Removes a name that has no watcher and no waiter and is not ready. O(1).
    pub fn remove_name_if_unreferenced(&mut self, id: Id<Name>) {
        if !self.names[id].is_unreferenced() {
            return;
        }
        self.mark_fresh(id);
        if self.last_name.get() == Some(id) {
            self.last_name.set(None);
        }
        let Name { hash, db, .. } = self.names.remove(id);
        self.name_index.remove_hashed(mix(hash, db.0), id);
        self.database_mut(db).names -= 1;
    }

    pub fn all_names(&self) -> impl Iterator<Item = (Id<Name>, &Name)> {
        self.names.iter()
    }

    pub fn name_arena(&self) -> &Arena<Name> {
        &self.names
    }

    /// Whether the state of a name's key dates from an earlier epoch. O(1).
    pub fn is_stale(&self, id: Id<Name>) -> bool {
        let name = &self.names[id];
        name.seen != self.database(name.db).epoch
    }

    /// Whether a stale name's key is known to be absent: the epoch began with a flush. O(1).
    pub fn is_absent_if_stale(&self, id: Id<Name>) -> bool {
        self.database(self.names[id].db).began_empty
    }

    /// The state of a name's key is known in this epoch. Returns whether it was stale. O(1).
    #[inline]
    pub fn mark_fresh(&mut self, id: Id<Name>) -> bool {
        let Name { db, seen, .. } = self.names[id];
        let epoch = self.database(db).epoch;
        let was_stale = seen != epoch;
        if was_stale {
            self.names[id].seen = epoch;
            let database = self.database_mut(db);
            database.stale -= 1;
            let began_empty = database.began_empty;
            *self.stale.counter(began_empty) -= 1;
        }
        was_stale
    }

    // ---- databases and spaces ----

    fn database_mut(&mut self, db: Db) -> &mut Database {
        let place = self
            .database_index(db)
            .unwrap_or_else(|| self.add_database(db));
        &mut self.databases[place]
    }

    #[cold]
    fn add_database(&mut self, db: Db) -> usize {
        let space = self.new_space(db);
        let place = self.databases.partition_point(|other| other.db < db);
        let database = Database {
            db,
            space,
            epoch: 0,
            began_empty: true,
            names: 0,
            stale: 0,
        };
        self.databases.insert(place, database);
        place
    }

    fn new_space(&mut self, db: Db) -> SpaceId {
        let space = Space {
            db,
            keys: 0,
            retired: None,
            shown: None,
        };
        if let Some(free) = self.free.pop() {
            self.spaces[free.0 as usize] = space;
            return free;
        }
        self.spaces.push(space);
        SpaceId(self.spaces.len() as u32 - 1)
    }

    /// A flush deleted all keys of one database, or of all. O(databases).
    pub fn retire(&mut self, db: Option<Db>, by: Cause) {
        self.retirements += 1;
        for place in 0..self.databases.len() {
            let Database { db: of, space, .. } = self.databases[place];
            if db.is_some_and(|db| db != of) {
                continue;
            }
            let SpaceId(space) = space;
            let keys = self.spaces[space as usize].keys;
            if keys > 0 {
                let number = self.retirements;
                self.spaces[space as usize].retired = Some(Retired { by, number });
                self.retired += keys as usize;
                self.retired_spaces.push(SpaceId(space));
                let new = self.new_space(of);
                self.inherit_index(SpaceId(space), new);
                self.databases[place].space = new;
            }
            self.begin_epoch(place, true);
        }
    }

    /// SWAPDB: swaps the spaces of two databases. O(1).
    pub fn swap_databases(&mut self, one: Db, other: Db) {
        let first = self.database_mut(one).space;
        let second = std::mem::replace(&mut self.database_mut(other).space, first);
        self.database_mut(one).space = second;
        self.spaces[first.0 as usize].db = other;
        self.spaces[second.0 as usize].db = one;
        for db in [one, other] {
            let place = self.database_index(db).expect("it is there");
            self.begin_epoch(place, false);
        }
    }

    /// Makes all names stale, with unknown states. O(databases).
    pub fn forget_states(&mut self) {
        for place in 0..self.databases.len() {
            self.begin_epoch(place, false);
        }
    }

    fn begin_epoch(&mut self, place: usize, began_empty: bool) {
        let database = &mut self.databases[place];
        *self.stale.counter(database.began_empty) -= database.stale as usize;
        database.epoch = database.epoch.wrapping_add(1);
        database.began_empty = began_empty;
        database.stale = database.names;
        *self.stale.counter(began_empty) += database.names as usize;
    }

    /// The number of flushes so far.
    pub fn retirements(&self) -> u32 {
        self.retirements
    }

    /// The flush that deleted a key whose holds are not swept yet; none for a live key. O(1).
    #[inline]
    pub fn retired_by(&self, held: Id<HeldKey>) -> Option<Retired> {
        match self.retired {
            0 => None,
            _ => self.spaces[self.held[held].space.0 as usize].retired,
        }
    }

    #[inline]
    pub fn is_retired(&self, held: Id<HeldKey>) -> bool {
        self.retired_by(held).is_some()
    }

    /// The retired keys of this name, oldest flush first. O(retired spaces).
    pub fn retired_at(&self, key: Key<'_>) -> impl Iterator<Item = Id<HeldKey>> {
        let hash = self.hash(key.name);
        let spaces = self.retired_spaces.iter();
        let spaces = spaces.filter(move |id| self.spaces[id.0 as usize].db == key.db);
        spaces.filter_map(move |space| self.probe_held(hash, *space, key.name))
    }

    /// How many keys are left to sweep. O(1).
    pub fn retired_count(&self) -> usize {
        self.retired
    }

    /// Whether any key is left to sweep. O(1).
    #[inline]
    pub fn has_retired(&self) -> bool {
        self.retired > 0
    }

    /// Whether any stale name is known to be absent. O(1).
    pub fn has_stale_absent(&self) -> bool {
        self.stale.absent > 0
    }

    /// Whether the state of any name is unknown. O(1).
    #[inline]
    pub fn has_stale_unknown(&self) -> bool {
        self.stale.unknown > 0
    }

    /// Whether any name is stale. O(1).
    #[inline]
    pub fn has_stale(&self) -> bool {
        self.stale != Stale::default()
    }
}

/// A cursor that cycles through the slots of a table.
#[derive(Default)]
pub(in crate::engine) struct Cursor(usize);

impl Cursor {
    /// Advances one slot; returns its record, if any. O(1).
    pub fn visit<T>(&mut self, arena: &Arena<T>) -> Option<Id<T>> {
        if self.0 >= arena.slot_count() {
            self.0 = 0;
        }
        let found = arena.at(self.0);
        self.0 = arena.next_slot(self.0);
        found
    }
}

impl ops::Index<Id<HeldKey>> for Keys {
    type Output = HeldKey;
    #[inline]
    fn index(&self, id: Id<HeldKey>) -> &HeldKey {
        &self.held[id]
    }
}

impl ops::IndexMut<Id<HeldKey>> for Keys {
    #[inline]
    fn index_mut(&mut self, id: Id<HeldKey>) -> &mut HeldKey {
        &mut self.held[id]
    }
}

impl ops::Index<Id<Name>> for Keys {
    type Output = Name;
    #[inline]
    fn index(&self, id: Id<Name>) -> &Name {
        &self.names[id]
    }
}

impl ops::IndexMut<Id<Name>> for Keys {
    #[inline]
    fn index_mut(&mut self, id: Id<Name>) -> &mut Name {
        &mut self.names[id]
    }
}

/// Mixes the number of a space or database into a name's hash.
fn mix(hash: u32, number: u32) -> u32 {
    hash ^ number.wrapping_mul(0x9E37_79B9)
}

#[cfg(test)]
mod tests;
