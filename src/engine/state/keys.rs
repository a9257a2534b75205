//! The keys that somebody here holds, and the names that somebody watches or waits for. A key for which nobody cares has no
//! record, and finding that out is one hash and one probe, or two.
//!
//! A held key stands in a *space*: what a database contains between two flushes. A flush retires the spaces of its databases,
//! and an exchange of databases exchanges their spaces: both are O(databases), whatever is held. No lookup finds a key of a
//! retired space; its holds are still there until they are swept, and count no more.
//!
//! A name belongs to a database. A flush or an exchange begins an *epoch* of the database: what was known of its names was known
//! in an earlier one, and they are *stale* until a fact or a look says what stands there now. After a flush nothing does.

mod check;

use crate::engine::mode::Modes;
use crate::engine::state::rows::{HeldKey, Marks, Name, SpaceId};
use crate::engine::storage::arena::{Arena, Id};
use crate::engine::storage::bytes::Bytes;
use crate::engine::storage::chain::Chain;
use crate::engine::storage::index::{self, Index};
use crate::engine::types::{Cause, Db, Key, KeyState};
use hashbrown::DefaultHashBuilder;
use std::cell::Cell;
use std::hash::BuildHasher;
use std::ops;

impl Marks {
    // Of held keys.
    const TIMED: u8 = 1;
    const ONE_HOLD: u8 = 2;
    const LOCK: u8 = 4;
    // Of names.
    const PRESENT: u8 = 1;
    const READY: u8 = 2;
    const OTHER: u8 = 4;

    fn has(self, mark: u8) -> bool {
        self.0 & mark != 0
    }

    fn set(&mut self, mark: u8, on: bool) {
        match on {
            true => self.0 |= mark,
            false => self.0 &= !mark,
        }
    }
}

impl HeldKey {
    /// What stands here may have a time to live.
    pub fn is_timed(&self) -> bool {
        self.marks.has(Marks::TIMED)
    }

    pub fn set_timed(&mut self, timed: bool) {
        self.marks.set(Marks::TIMED, timed);
    }

    /// It has exactly one hold, which was its first: so that one stands in no other list of its key's holds. It may be no
    /// although there is one.
    pub fn has_one_hold(&self) -> bool {
        self.marks.has(Marks::ONE_HOLD)
    }

    pub fn set_one_hold(&mut self, one: bool) {
        self.marks.set(Marks::ONE_HOLD, one);
    }

    /// A lock stands here as soon as the effects given so far are performed, though perhaps nobody holds it.
    pub fn is_lock(&self) -> bool {
        self.marks.has(Marks::LOCK)
    }

    /// In which modes it is held, whoever holds it.
    #[inline]
    pub fn held(&self) -> Modes {
        self.held
    }

    /// Somebody holds it.
    #[inline]
    pub fn set_held(&mut self, held: Modes) {
        self.held = held;
        self.marks.0 = (self.marks.0 & !Marks::LOCK) | (u8::from(held.is_lock()) * Marks::LOCK);
    }

    /// Nobody holds it now; what stands here stays.
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

    /// Whether something stood here when that was last known, as the watchers were told.
    pub fn is_present(&self) -> bool {
        self.marks.has(Marks::PRESENT)
    }

    /// Whether that was no lock. Where it is not held, it is not ours.
    pub fn is_other(&self) -> bool {
        self.marks.has(Marks::OTHER)
    }

    pub fn set_standing(&mut self, standing: KeyState) {
        self.marks.set(Marks::PRESENT, standing.is_present());
        self.marks.set(Marks::OTHER, standing == KeyState::Other);
    }

    /// It may be that somebody in the queue can be served: it waits in the engine's `ready`.
    pub fn is_ready(&self) -> bool {
        self.marks.has(Marks::READY)
    }

    pub fn set_ready(&mut self, ready: bool) {
        self.marks.set(Marks::READY, ready);
    }

    pub fn is_idle(&self) -> bool {
        self.watchers.is_empty() && self.queue.is_empty() && !self.is_ready()
    }
}

/// Which flush it was that a space ended with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::engine) struct Retired {
    pub by: Cause,
    /// How many flushes there were until then, with this one.
    pub number: u32,
}

struct Space {
    /// The database that it belongs to, or did when it was retired.
    db: Db,
    keys: u32,
    retired: Option<Retired>,
}

#[derive(Clone, Copy)]
struct Database {
    db: Db,
    space: SpaceId,
    epoch: u32,
    /// What stands at its stale names: nothing, or it is not known.
    is_empty: bool,
    names: u32,
    stale: u32,
}

/// Invariant: `held_index` has each key of `held` once but one that is [moving](Self::take_out), under its name and space, and
/// `name_index` each name of `names`, under its name and database; no two of either are the same. `databases` has each that a
/// record is in, each with a live space of its own; all other spaces are retired and have a key, or are in `free`. The counts of
/// spaces and databases are those of the records, and `retired` and `stale` their sums. `retired_spaces` has the retired ones.
#[derive(Default)]
pub(in crate::engine) struct Keys {
    held: Arena<HeldKey>,
    held_index: Index<HeldKey>,
    names: Arena<Name>,
    name_index: Index<Name>,
    hasher: DefaultHashBuilder,
    /// What was found last: what is asked for once is asked for again soon.
    last_held: Cell<Option<Id<HeldKey>>>,
    last_name: Cell<Option<Id<Name>>>,
    /// In the order of their numbers. As a rule there is one.
    databases: Vec<Database>,
    spaces: Vec<Space>,
    free: Vec<SpaceId>,
    /// Those that have keys left, the oldest first.
    retired_spaces: Vec<SpaceId>,
    retirements: u32,
    /// How many keys are in retired spaces.
    retired: usize,
    /// How many names are stale at which nothing stands, and how many of which that is not known.
    stale: Stale,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Stale {
    empty: usize,
    unknown: usize,
}

/// What a look for a key found, so that it need not be looked for again.
#[derive(Clone, Copy)]
pub(in crate::engine) struct Spot {
    hash: u32,
    /// None where no key of the database was ever known.
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

    // ---- looking for a key ----

    /// O(1).
    pub fn find_held(&self, key: Key<'_>) -> Option<Id<HeldKey>> {
        if self.held_index.is_empty() {
            return None;
        }
        let space = self.space_of(key.db)?;
        self.is_last_held(space, key.name)
            .or_else(|| self.probe_held(self.hash(key.name), space, key.name))
    }

    /// O(1).
    pub fn find_name(&self, key: Key<'_>) -> Option<Id<Name>> {
        if self.name_index.is_empty() {
            return None;
        }
        self.is_last_name(key)
            .or_else(|| self.probe_name(self.hash(key.name), key))
    }

    /// Where a key is, or would be. O(1).
    pub fn spot(&self, key: Key<'_>) -> Spot {
        let space = self.space_of(key.db);
        let last = space.and_then(|space| self.is_last_held(space, key.name));
        let hash = last.map_or_else(|| self.hash(key.name), |last| self.held[last].hash);
        let probe = || self.probe_held(hash, space?, key.name);
        Spot {
            hash,
            space,
            held: last.or_else(probe),
            name: match self.name_index.is_empty() {
                true => None,
                false => self
                    .is_last_name(key)
                    .or_else(|| self.probe_name(hash, key)),
            },
        }
    }

    /// The held key at a name. O(1).
    pub fn held_at(&self, name: Id<Name>) -> Option<Id<HeldKey>> {
        let name = &self.names[name];
        let space = self.database(name.db).space;
        self.is_last_held(space, &name.name)
            .or_else(|| self.probe_held(name.hash, space, &name.name))
    }

    /// The name at which a held key stands, if somebody watches it or waits for it; not of a retired space. O(1).
    #[inline]
    pub fn name_of(&self, held: Id<HeldKey>) -> Option<Id<Name>> {
        match self.name_index.is_empty() || self.is_retired(held) {
            true => None,
            false => self.look_for_name_of(held),
        }
    }

    fn look_for_name_of(&self, held: Id<HeldKey>) -> Option<Id<Name>> {
        let (key, hash) = (self.key_of(held), self.held[held].hash);
        self.is_last_name(key)
            .or_else(|| self.probe_name(hash, key))
    }

    fn space_of(&self, db: Db) -> Option<SpaceId> {
        let place = self.place_of(db)?;
        Some(self.databases[place].space)
    }

    #[inline]
    fn place_of(&self, db: Db) -> Option<usize> {
        if self.databases.first()?.db == db {
            return Some(0);
        }
        let place = self
            .databases
            .binary_search_by_key(&db, |database| database.db);
        place.ok()
    }

    /// Of a name.
    #[inline]
    fn database(&self, db: Db) -> &Database {
        let place = self.place_of(db).expect("a name's database is known");
        &self.databases[place]
    }

    /// What was found last, if it is this.
    #[inline]
    fn is_last_held(&self, space: SpaceId, name: &[u8]) -> Option<Id<HeldKey>> {
        let last = self.last_held.get()?;
        let held = &self.held[last];
        (held.space == space && *held.name == *name).then_some(last)
    }

    #[inline]
    fn is_last_name(&self, key: Key<'_>) -> Option<Id<Name>> {
        let last = self.last_name.get()?;
        (self.names[last].key() == key).then_some(last)
    }

    fn probe_held(&self, hash: u32, space: SpaceId, name: &[u8]) -> Option<Id<HeldKey>> {
        let found = self.held_index.find(mix(hash, space.0), |id| {
            let held = &self.held[id];
            held.space == space && *held.name == *name
        });
        if found.is_some() {
            self.last_held.set(found);
        }
        found
    }

    fn probe_name(&self, hash: u32, key: Key<'_>) -> Option<Id<Name>> {
        let is_it = |id: Id<Name>| self.names[id].key() == key;
        let found = self.name_index.find(mix(hash, key.db.0), is_it);
        if found.is_some() {
            self.last_name.set(found);
        }
        found
    }

    fn hash(&self, name: &[u8]) -> u32 {
        index::fold(self.hasher.hash_one(name))
    }

    // ---- held keys ----

    /// The key by which it goes; that of a retired space, by which it went.
    pub fn key_of(&self, held: Id<HeldKey>) -> Key<'_> {
        let HeldKey { name, space, .. } = &self.held[held];
        let db = self.spaces[space.0 as usize].db;
        Key { db, name }
    }

    /// The record of the key at this spot, made where there is none. Nothing was added or forgotten at the spot since it was
    /// looked for. O(1).
    pub fn hold(&mut self, spot: Spot, key: Key<'_>) -> Id<HeldKey> {
        if let Some(id) = spot.held {
            return id;
        }
        let space = spot.space;
        let space = space.unwrap_or_else(|| self.database_mut(key.db).space);
        self.add_held(key.name.into(), spot.hash, space)
    }

    /// The record of the key at a name, made where there is none. O(1).
    pub fn hold_at(&mut self, name: Id<Name>) -> Id<HeldKey> {
        self.held_at(name).unwrap_or_else(|| {
            let Name { name, hash, db, .. } = &self.names[name];
            let space = self.database(*db).space;
            self.add_held(name.clone(), *hash, space)
        })
    }

    fn add_held(&mut self, name: Bytes, hash: u32, space: SpaceId) -> Id<HeldKey> {
        self.spaces[space.0 as usize].keys += 1;
        let id = self.held.insert(HeldKey {
            name,
            hash,
            space,
            marks: Marks::default(),
            held: Modes::NONE,
            holds: Chain::default(),
        });
        self.held_index.insert(mix(hash, space.0), id);
        self.last_held.set(Some(id));
        id
    }

    /// Makes a record for each of these keys that has none and stands at no name, and tells for each the record that was made.
    ///
    /// All memory is taken before the first record is put into the index: the servers' allocators count in
    /// atomic operations, and each of these waits for the index's far-off memory. That was most of the time.
    pub fn hold_all(&mut self, keys: &[Key<'_>]) -> Vec<Option<Id<HeldKey>>> {
        self.held_index.reserve(keys.len());
        let mut made = Vec::with_capacity(keys.len());
        for key in keys {
            let hash = self.hash(key.name);
            let space = self.database_mut(key.db).space;
            made.push(Some(self.held.insert(HeldKey {
                name: key.name.into(),
                hash,
                space,
                marks: Marks::default(),
                held: Modes::NONE,
                holds: Chain::default(),
            })));
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
                self.held_index.insert(mix(hash, space.0), id);
                self.spaces[space.0 as usize].keys += 1;
            }
        }
        made
    }

    /// Makes room for so many more held keys.
    pub fn reserve(&mut self, more: usize) {
        self.held_index.reserve(more);
    }

    /// Forgets a held key, which has no hold; its key is given back. O(1).
    pub fn remove_held(&mut self, id: Id<HeldKey>) -> (Db, Bytes) {
        if self.last_held.get() == Some(id) {
            self.last_held.set(None);
        }
        let HeldKey {
            name, hash, space, ..
        } = self.held.remove(id);
        self.held_index.remove(mix(hash, space.0), id);
        (self.leave_space(space), name)
    }

    /// A key has left a space, which is that of this database.
    #[inline]
    fn leave_space(&mut self, id: SpaceId) -> Db {
        let space = &mut self.spaces[id.0 as usize];
        space.keys -= 1;
        let (db, keys) = (space.db, space.keys);
        if space.retired.is_some() {
            self.leave_retired(id, keys);
        }
        db
    }

    #[cold]
    fn leave_retired(&mut self, id: SpaceId, keys: u32) {
        self.retired -= 1;
        if keys == 0 {
            self.free.push(id);
            self.retired_spaces.retain(|retired| *retired != id);
        }
    }

    /// A held key has lost its name: no lookup finds it until it has its new one. O(1).
    pub fn take_out(&mut self, id: Id<HeldKey>) {
        self.last_held.set(None);
        let HeldKey { hash, space, .. } = self.held[id];
        self.held_index.remove(mix(hash, space.0), id);
    }

    /// A held key that was taken out goes by this key now, at which none is. O(1).
    pub fn put_in(&mut self, id: Id<HeldKey>, key: Key<'_>) {
        let hash = self.hash(key.name);
        let space = self.database_mut(key.db).space;
        self.spaces[space.0 as usize].keys += 1;
        let held = &mut self.held[id];
        (held.name, held.hash) = (key.name.into(), hash);
        let former = std::mem::replace(&mut held.space, space);
        self.held_index.insert(mix(hash, space.0), id);
        self.leave_space(former);
    }

    pub fn all_held(&self) -> impl Iterator<Item = Id<HeldKey>> {
        self.held.iter().map(|(id, _)| id)
    }

    /// The places among which held keys stand, for walks; each stays at its place as long as it is there.
    pub fn held_places(&self) -> Places<'_, HeldKey> {
        Places(&self.held)
    }

    // ---- names ----

    /// The record of a name, made with what stands there where there is none. O(1).
    pub fn find_or_add_name(&mut self, key: Key<'_>, standing: KeyState) -> Id<Name> {
        let found = self.find_name(key);
        found.unwrap_or_else(|| self.add_name(key, standing))
    }

    fn add_name(&mut self, key: Key<'_>, standing: KeyState) -> Id<Name> {
        let hash = self.hash(key.name);
        let database = self.database_mut(key.db);
        database.names += 1;
        let mut name = Name {
            name: key.name.into(),
            hash,
            db: key.db,
            seen: database.epoch,
            marks: Marks::default(),
            watchers: Chain::default(),
            queue: Chain::default(),
        };
        name.set_standing(standing);
        let id = self.names.insert(name);
        self.name_index.insert(mix(hash, key.db.0), id);
        self.last_name.set(Some(id));
        id
    }

    /// Forgets a name if nobody watches it or waits for it any more. O(1).
    pub fn remove_name_if_idle(&mut self, id: Id<Name>) {
        if !self.names[id].is_idle() {
            return;
        }
        self.renew(id);
        if self.last_name.get() == Some(id) {
            self.last_name.set(None);
        }
        let Name { hash, db, .. } = self.names.remove(id);
        self.name_index.remove(mix(hash, db.0), id);
        self.database_mut(db).names -= 1;
    }

    pub fn all_names(&self) -> impl Iterator<Item = (Id<Name>, &Name)> {
        self.names.iter()
    }

    pub fn name_places(&self) -> Places<'_, Name> {
        Places(&self.names)
    }

    /// Whether it is not known what stands at a name now. O(1).
    pub fn is_stale(&self, id: Id<Name>) -> bool {
        let name = &self.names[id];
        name.seen != self.database(name.db).epoch
    }

    /// Whether nothing stands at a name that is stale. O(1).
    pub fn is_empty_there(&self, id: Id<Name>) -> bool {
        self.database(self.names[id].db).is_empty
    }

    /// It is known now what stands at a name. Whether it was stale. O(1).
    #[inline]
    pub fn renew(&mut self, id: Id<Name>) -> bool {
        let Name { db, seen, .. } = self.names[id];
        let epoch = self.database(db).epoch;
        let was_stale = seen != epoch;
        if was_stale {
            self.names[id].seen = epoch;
            let database = self.database_mut(db);
            database.stale -= 1;
            match database.is_empty {
                true => self.stale.empty -= 1,
                false => self.stale.unknown -= 1,
            }
        }
        was_stale
    }

    // ---- databases and spaces ----

    fn database_mut(&mut self, db: Db) -> &mut Database {
        let place = self.place_of(db).unwrap_or_else(|| self.add_database(db));
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
            is_empty: true,
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
        };
        if let Some(free) = self.free.pop() {
            self.spaces[free.0 as usize] = space;
            return free;
        }
        self.spaces.push(space);
        SpaceId(self.spaces.len() as u32 - 1)
    }

    /// All keys of a database, or of all, went by a flush. O(databases).
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
                self.databases[place].space = self.new_space(of);
            }
            self.begin_epoch(place, true);
        }
    }

    /// Two databases have exchanged their contents. O(1).
    pub fn exchange(&mut self, one: Db, other: Db) {
        let first = self.database_mut(one).space;
        let second = std::mem::replace(&mut self.database_mut(other).space, first);
        self.database_mut(one).space = second;
        self.spaces[first.0 as usize].db = other;
        self.spaces[second.0 as usize].db = one;
        for db in [one, other] {
            let place = self.place_of(db).expect("it is there");
            self.begin_epoch(place, false);
        }
    }

    /// It is not known any more what stands at any name. O(databases).
    pub fn lose_sight(&mut self) {
        for place in 0..self.databases.len() {
            self.begin_epoch(place, false);
        }
    }

    fn begin_epoch(&mut self, place: usize, is_empty: bool) {
        let database = &mut self.databases[place];
        let former = database.stale as usize;
        match database.is_empty {
            true => self.stale.empty -= former,
            false => self.stale.unknown -= former,
        }
        database.epoch = database.epoch.wrapping_add(1);
        database.is_empty = is_empty;
        database.stale = database.names;
        match is_empty {
            true => self.stale.empty += database.names as usize,
            false => self.stale.unknown += database.names as usize,
        }
    }

    /// How many flushes there were.
    pub fn retirements(&self) -> u32 {
        self.retirements
    }

    /// The flush with which a key went, whose holds are to be swept; none where it is there. O(1).
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

    /// The keys that went by flushes and went by this name then, the first flush first. O(flushes whose keys are not all swept).
    pub fn retired_at(&self, key: Key<'_>) -> impl Iterator<Item = Id<HeldKey>> {
        let hash = self.hash(key.name);
        let spaces = self.retired_spaces.iter();
        let spaces = spaces.filter(move |id| self.spaces[id.0 as usize].db == key.db);
        spaces.filter_map(move |space| {
            let is_it = |id: Id<HeldKey>| {
                let held = &self.held[id];
                held.space == *space && *held.name == *key.name
            };
            self.held_index.find(mix(hash, space.0), is_it)
        })
    }

    /// Whether keys are left that went by flushes. O(1).
    #[inline]
    pub fn has_retired(&self) -> bool {
        self.retired > 0
    }

    /// Whether there are stale names at which nothing stands. O(1).
    pub fn has_stale_empty(&self) -> bool {
        self.stale.empty > 0
    }

    /// Whether there are names of which it is not known what stands there. O(1).
    #[inline]
    pub fn has_stale_unknown(&self) -> bool {
        self.stale.unknown > 0
    }

    /// Whether there are stale names. O(1).
    #[inline]
    pub fn has_stale(&self) -> bool {
        self.stale != Stale::default()
    }
}

/// Where the records of one kind stand. See [`Arena`].
pub(in crate::engine) struct Places<'a, T>(&'a Arena<T>);

impl<T> Places<'_, T> {
    pub fn count(&self) -> usize {
        self.0.places()
    }

    /// The place at which to look after this one. O(1).
    pub fn after(&self, place: usize) -> usize {
        self.0.place_after(place)
    }

    /// The record at a place, if there is one. O(1).
    pub fn at(&self, place: usize) -> Option<Id<T>> {
        self.0.at(place)
    }
}

/// A walk around and around all places of a table.
#[derive(Default)]
pub(in crate::engine) struct Cursor(usize);

impl Cursor {
    /// The record at the next place, if there is one. O(1).
    pub fn visit<T>(&mut self, places: &Places<'_, T>) -> Option<Id<T>> {
        if self.0 >= places.count() {
            self.0 = 0;
        }
        let found = places.at(self.0);
        self.0 = places.after(self.0);
        found
    }
}

impl ops::Index<Id<HeldKey>> for Keys {
    type Output = HeldKey;
    fn index(&self, id: Id<HeldKey>) -> &HeldKey {
        &self.held[id]
    }
}

impl ops::IndexMut<Id<HeldKey>> for Keys {
    fn index_mut(&mut self, id: Id<HeldKey>) -> &mut HeldKey {
        &mut self.held[id]
    }
}

impl ops::Index<Id<Name>> for Keys {
    type Output = Name;
    fn index(&self, id: Id<Name>) -> &Name {
        &self.names[id]
    }
}

impl ops::IndexMut<Id<Name>> for Keys {
    fn index_mut(&mut self, id: Id<Name>) -> &mut Name {
        &mut self.names[id]
    }
}

/// The hash under which a name stands in an index, with the number of its space or database.
fn mix(hash: u32, number: u32) -> u32 {
    hash ^ number.wrapping_mul(0x9E37_79B9)
}

#[cfg(test)]
mod tests;
