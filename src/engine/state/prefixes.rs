//! Prefixes that are watched: connections that watch the temporary keys of a database whose names begin with them.

use crate::engine::limits::PREFIX_LENGTHS;
use crate::engine::state::clients::Clients;
use crate::engine::state::keys::Cursor;
use crate::engine::state::rows::{Changes, Client, Prefix, PrefixWatch};
use crate::engine::storage::arena::{Arena, Id};
use crate::engine::storage::bytes::Bytes;
use crate::engine::storage::chain::{Chain, Link};
use crate::engine::storage::few::Few;
use crate::engine::storage::index::Index;
use crate::engine::storage::overflow::Overflow;
use crate::engine::types::{ClientId, Db, Key};
use std::collections::VecDeque;
use std::ops;

/// A database with prefixes.
struct Watched {
    db: Db,
    changes: Changes,
    /// The lengths of its prefixes, and how many have each.
    lengths: Vec<(usize, u32)>,
}

/// What a prefix's watchers do not know yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Unseen {
    Nothing,
    Flush,
    /// The database's keys are others now.
    Swap,
}

/// Invariant: `index` has each prefix once, by name and database; each has a watcher. A watch is in its prefix's list and in its
/// client's, once each; no two watches are the same pair. `databases` has those with a prefix, sorted, each with the lengths of
/// its prefixes. While a prefix may not have seen all changes of its database, `left` is not 0. `blind` has each living connection
/// that is blind.
#[derive(Default)]
pub(in crate::engine) struct Prefixes {
    all: Arena<Prefix>,
    index: Index<Prefix>,
    watches: Arena<PrefixWatch>,
    overflow: Overflow<PrefixWatch>,
    databases: Vec<Watched>,
    /// The summed lengths of the prefixes.
    bytes: usize,
    cursor: Cursor,
    /// Slots of prefixes to visit, since databases were flushed or swapped.
    left: usize,
    /// Connections to tell that their watches are over, the first first.
    blind: VecDeque<ClientId>,
}

impl Prefixes {
    /// The number of watches.
    pub fn len(&self) -> usize {
        self.watches.len()
    }

    /// The summed lengths of all watched prefixes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn key_of(&self, id: Id<Prefix>) -> Key<'_> {
        let Prefix { name, db, .. } = &self.all[id];
        Key { db: *db, name }
    }

    /// O(1).
    pub fn find(&self, prefix: Key<'_>) -> Option<Id<Prefix>> {
        self.index.find(prefix, |id| self.key_of(id) == prefix)
    }

    /// The watched prefixes of a name, the shortest first. O(lengths).
    pub fn of_name(&self, key: Key<'_>) -> Few<Id<Prefix>> {
        let Key { db, name } = key;
        let database = self.database_index(db).ok().map(|at| &self.databases[at]);
        let lengths = database.into_iter().flat_map(|database| &database.lengths);
        let prefixes = lengths.filter_map(|(length, _)| name.get(..*length));
        prefixes
            .filter_map(|name| self.find(Key { db, name }))
            .collect()
    }

    /// Whether any prefix of a database is watched. O(log databases).
    pub fn is_any_in(&self, db: Db) -> bool {
        self.database_index(db).is_ok()
    }

    fn database_index(&self, db: Db) -> Result<usize, usize> {
        self.databases
            .binary_search_by_key(&db, |watched| watched.db)
    }

    /// Whether a database has room for one more prefix of this length.
    pub fn has_room_for(&self, prefix: Key<'_>) -> bool {
        let Ok(at) = self.database_index(prefix.db) else {
            return true;
        };
        let lengths = &self.databases[at].lengths;
        let is_same = |(length, _): &(usize, u32)| *length == prefix.name.len();
        lengths.len() < PREFIX_LENGTHS || lengths.iter().any(is_same)
    }

    /// The watch of this pair. O(1).
    pub fn watch_of(&self, prefix: Id<Prefix>, client: Id<Client>) -> Option<Id<PrefixWatch>> {
        let chain = self.all[prefix].watchers.iter(&self.watches);
        self.overflow.find(chain, (prefix, client), |id| {
            self.watches[id].prefix == prefix && self.watches[id].client == client
        })
    }

    /// A connection's watches, oldest first.
    pub fn of_client(
        &self,
        clients: &Clients,
        client: Id<Client>,
    ) -> impl Iterator<Item = Id<PrefixWatch>> {
        clients[client].prefixes.iter(&self.watches)
    }

    /// A prefix's watches, oldest first.
    pub fn of_prefix(&self, prefix: Id<Prefix>) -> impl Iterator<Item = Id<PrefixWatch>> {
        self.all[prefix].watchers.iter(&self.watches)
    }

    /// All watched prefixes.
    pub fn iter(&self) -> impl Iterator<Item = Id<Prefix>> {
        self.all.iter().map(|(id, _)| id)
    }

    /// Whether the watch's connection is told of changes of this name.
    pub fn is_told_of(&self, id: Id<PrefixWatch>, name: &[u8]) -> bool {
        let told = &self.watches[id].told;
        told.as_ref().is_none_or(|told| *name <= **told)
    }

    /// The name up to which it is told; none if its snapshot is complete.
    pub fn told(&self, id: Id<PrefixWatch>) -> Option<&Bytes> {
        self.watches[id].told.as_ref()
    }

    /// Sets that. O(1).
    pub fn set_told(&mut self, clients: &mut Clients, id: Id<PrefixWatch>, told: Option<Bytes>) {
        let bytes = |told: &Option<Bytes>| told.as_ref().map_or(0, |told| told.len());
        let watch = &mut self.watches[id];
        let client = &mut clients[watch.client];
        client.prefix_bytes -= bytes(&watch.told);
        client.prefix_bytes += bytes(&told);
        watch.told = told;
    }

    /// Adds a pair that is not there, with its prefix, which has seen all changes. O(lengths).
    pub fn add(
        &mut self,
        clients: &mut Clients,
        prefix: Key<'_>,
        client: Id<Client>,
        sight: u64,
    ) -> Id<PrefixWatch> {
        let prefix_id = self.find(prefix).unwrap_or_else(|| self.insert(prefix));
        let id = self.watches.insert(PrefixWatch {
            prefix: prefix_id,
            client,
            told: None,
            keys_only: false,
            sight,
            by_prefix: Link::default(),
            by_client: Link::default(),
        });
        let watchers = &mut self.all[prefix_id].watchers;
        self.overflow
            .join(watchers.iter(&self.watches), (prefix_id, client), id);
        watchers.push(&mut self.watches, id);
        let client = &mut clients[client];
        client.prefixes.push(&mut self.watches, id);
        client.prefix_count += 1;
        client.prefix_bytes += prefix.name.len();
        id
    }

    fn insert(&mut self, prefix: Key<'_>) -> Id<Prefix> {
        let Key { db, name } = prefix;
        let at = self.database_index(db).unwrap_or_else(|at| {
            let (changes, lengths) = (Changes::default(), Vec::new());
            let watched = Watched {
                db,
                changes,
                lengths,
            };
            self.databases.insert(at, watched);
            at
        });
        let database = &mut self.databases[at];
        let lengths = &mut database.lengths;
        match lengths.binary_search_by_key(&name.len(), |(length, _)| *length) {
            Ok(at) => lengths[at].1 += 1,
            Err(at) => lengths.insert(at, (name.len(), 1)),
        }
        self.bytes += name.len();
        let id = self.all.insert(Prefix {
            name: name.into(),
            db,
            seen: database.changes,
            watchers: Chain::default(),
        });
        self.index.insert(prefix, id);
        id
    }

    /// Removes a watch, and its prefix if it was the last. O(lengths).
    pub fn remove(&mut self, clients: &mut Clients, id: Id<PrefixWatch>) {
        self.set_told(clients, id, None);
        let PrefixWatch { prefix, client, .. } = self.watches[id];
        self.overflow.leave((prefix, client), id);
        let record = &mut clients[client];
        record.prefixes.remove(&mut self.watches, id);
        record.prefix_count -= 1;
        record.prefix_bytes -= self.all[prefix].name.len();
        self.all[prefix].watchers.remove(&mut self.watches, id);
        self.watches.remove(id);
        if self.all[prefix].watchers.is_empty() {
            self.remove_prefix(prefix);
        }
    }

    fn remove_prefix(&mut self, id: Id<Prefix>) {
        let Prefix { name, db, .. } = self.all.remove(id);
        self.index.remove(Key { db, name: &name }, id);
        self.bytes -= name.len();
        let at = self.database_index(db).expect("it has a prefix");
        let lengths = &mut self.databases[at].lengths;
        let place = lengths.binary_search_by_key(&name.len(), |(length, _)| *length);
        let place = place.expect("it has a prefix of this length");
        lengths[place].1 -= 1;
        if lengths[place].1 == 0 {
            lengths.remove(place);
        }
        if lengths.is_empty() {
            self.databases.remove(at);
        }
    }

    // ---- connections whose watches are over ----

    /// Marks a connection whose watches are over. O(1).
    pub fn set_blind(&mut self, clients: &mut Clients, client: Id<Client>) {
        let record = &mut clients[client];
        if !std::mem::replace(&mut record.is_blind, true) {
            self.blind.push_back(record.id);
        }
    }

    /// The first blind connection. Forgets those before it that have ended or are blind no longer.
    pub fn first_blind(&mut self, clients: &Clients) -> Option<Id<Client>> {
        while let Some(first) = self.blind.front() {
            let found = clients.find(*first);
            if let Some(client) = found.filter(|client| clients[*client].is_blind) {
                return Some(client);
            }
            self.blind.pop_front();
        }
        None
    }

    /// Whether any connection may be blind. O(1).
    pub fn is_any_blind(&self) -> bool {
        !self.blind.is_empty()
    }

    // ---- changes of whole databases ----

    /// A flush deleted all keys of one database, or of all. O(databases).
    pub fn flushed(&mut self, db: Option<Db>) {
        self.change(
            |watched| db.is_none_or(|db| db == watched),
            |its| &mut its.flushes,
        );
    }

    /// SWAPDB. O(databases).
    pub fn swapped(&mut self, dbs: [Db; 2]) {
        self.change(|watched| dbs.contains(&watched), |its| &mut its.swaps);
    }

    fn change(&mut self, is_meant: impl Fn(Db) -> bool, counter: fn(&mut Changes) -> &mut u32) {
        for watched in &mut self.databases {
            if is_meant(watched.db) {
                let counter = counter(&mut watched.changes);
                *counter = counter.wrapping_add(1);
                self.left = self.all.slot_count();
            }
        }
    }

    /// Whether a prefix may not have seen all changes. O(1).
    pub fn is_any_behind(&self) -> bool {
        self.left > 0
    }

    /// The prefix to look at because of that, if there is one in the next slot. O(1).
    pub fn next_behind(&mut self) -> Option<Id<Prefix>> {
        self.cursor.visit(&self.all)
    }

    /// It was looked at. O(1).
    pub fn pass_behind(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// What a prefix has not seen yet; from now on it has. O(log databases).
    pub fn see(&mut self, id: Id<Prefix>) -> Unseen {
        let at = self
            .database_index(self.all[id].db)
            .expect("it has a prefix");
        let changes = self.databases[at].changes;
        let seen = std::mem::replace(&mut self.all[id].seen, changes);
        if seen.swaps != changes.swaps {
            Unseen::Swap
        } else if seen.flushes != changes.flushes {
            Unseen::Flush
        } else {
            Unseen::Nothing
        }
    }

    /// Panics unless the invariant holds. O(everything).
    pub fn check(&self, clients: &Clients) {
        assert_eq!(self.index.len(), self.all.len());
        let (mut watches, mut bytes) = (0, 0);
        let mut lengths = std::collections::BTreeMap::<_, u32>::new();
        for (id, prefix) in self.all.iter() {
            let key = self.key_of(id);
            assert_eq!(self.find(key), Some(id));
            assert!(!prefix.watchers.is_empty());
            bytes += prefix.name.len();
            *lengths.entry((prefix.db, prefix.name.len())).or_default() += 1;
            let at = self.database_index(prefix.db).expect("it has a prefix");
            assert!(self.left > 0 || prefix.seen == self.databases[at].changes);
            for (place, watch) in prefix.watchers.iter(&self.watches).enumerate() {
                let client = self.watches[watch].client;
                assert_eq!(self.watch_of(id, client), Some(watch));
                self.overflow.check(place, (id, client), watch);
                watches += 1;
            }
        }
        let counted = self.databases.iter().flat_map(|watched| {
            let all = watched.lengths.iter();
            all.map(|(length, count)| ((watched.db, *length), *count))
        });
        assert!(counted.eq(lengths));
        assert_eq!((watches, bytes), (self.watches.len(), self.bytes));
        let mut counted = 0;
        for (client, record) in clients.iter() {
            assert!(!record.is_blind || !record.is_living() || self.blind.contains(&record.id));
            let mine: Vec<_> = self.of_client(clients, client).collect();
            assert!(mine.iter().all(|id| self.watches[*id].client == client));
            assert_eq!(mine.len(), record.prefix_count as usize);
            let bytes = mine.iter().map(|id| {
                let told = self.told(*id).map_or(0, |told| told.len());
                told + self.all[self.watches[*id].prefix].name.len()
            });
            assert_eq!(bytes.sum::<usize>(), record.prefix_bytes);
            counted += mine.len();
        }
        assert_eq!(counted, self.watches.len());
    }
}

impl ops::Index<Id<PrefixWatch>> for Prefixes {
    type Output = PrefixWatch;
    #[inline]
    fn index(&self, id: Id<PrefixWatch>) -> &PrefixWatch {
        &self.watches[id]
    }
}

impl ops::IndexMut<Id<PrefixWatch>> for Prefixes {
    #[inline]
    fn index_mut(&mut self, id: Id<PrefixWatch>) -> &mut PrefixWatch {
        &mut self.watches[id]
    }
}
