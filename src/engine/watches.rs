//! Who watches what. A watch is a pair of a connection and a key.
//!
//! To know whether a pair is there, a key's first few watchers are simply looked through; only
//! those that come to a crowd also stand in a table. Most keys have few watchers, so most watches
//! cost their own 24 bytes and no more.

use super::arena::{Arena, Id};
use super::chain::{Chained, Link};
use super::clients::{Client, Clients};
use super::id::ClientId;
use super::index::{self, Index};
use super::keys::{KeyRecord, Keys};
use hashbrown::DefaultHashBuilder;
use std::hash::BuildHasher;

pub(super) const BY_KEY: usize = 0;
pub(super) const BY_CLIENT: usize = 1;

/// From this many watchers on, a key's further watches stand in the table too.
const CROWD: usize = 8;

pub(super) struct Watch {
    key: Id<KeyRecord>,
    client: Id<Client>,
    by_key: Link<Watch>,
    by_client: Link<Watch>,
}

impl Chained<BY_KEY> for Watch {
    fn link(&self) -> &Link<Self> {
        &self.by_key
    }
    fn link_mut(&mut self) -> &mut Link<Self> {
        &mut self.by_key
    }
}

impl Chained<BY_CLIENT> for Watch {
    fn link(&self) -> &Link<Self> {
        &self.by_client
    }
    fn link_mut(&mut self) -> &mut Link<Self> {
        &mut self.by_client
    }
}

/// Invariant: a watch stands in its key's chain and in its client's, once each, and no two watches
/// are the same pair. One that is not in `crowd` is among the first [`CROWD`] of its key's chain
/// (they join at the end and only ever move forward).
#[derive(Default)]
pub(super) struct Watches {
    all: Arena<Watch>,
    crowd: Index<Watch>,
    hasher: DefaultHashBuilder,
    watched_keys: usize,
}

impl Watches {
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// How many keys have a watcher.
    pub fn watched_keys(&self) -> usize {
        self.watched_keys
    }

    /// O(1).
    pub fn has(&self, keys: &Keys, key: Id<KeyRecord>, client: Id<Client>) -> bool {
        self.find(keys, key, client).is_some()
    }

    /// Adds a pair that is not there. O(1).
    pub fn add(
        &mut self,
        keys: &mut Keys,
        clients: &mut Clients,
        key: Id<KeyRecord>,
        client: Id<Client>,
    ) {
        let watchers = &mut keys[key].watchers;
        let crowded = watchers.iter(&self.all).take(CROWD).count() == CROWD;
        if watchers.is_empty() {
            self.watched_keys += 1;
        }
        let id = self.all.insert(Watch {
            key,
            client,
            by_key: Link::default(),
            by_client: Link::default(),
        });
        watchers.push(&mut self.all, id);
        if crowded {
            self.crowd.insert(self.hash(key, client), id);
        }
        let client = &mut clients[client];
        client.watching.push(&mut self.all, id);
        client.watch_count += 1;
    }

    /// Removes the pair if it is there, and says so. O(1).
    pub fn remove(
        &mut self,
        keys: &mut Keys,
        clients: &mut Clients,
        key: Id<KeyRecord>,
        client: Id<Client>,
    ) -> bool {
        let Some(id) = self.find(keys, key, client) else {
            return false;
        };
        self.take_out(keys, clients, id);
        keys.remove_if_idle(key);
        true
    }

    /// Removes all of a connection's watches and says how many. O(their number).
    pub fn remove_all(
        &mut self,
        keys: &mut Keys,
        clients: &mut Clients,
        client: Id<Client>,
    ) -> u32 {
        let count = clients[client].watch_count;
        while let Some(id) = clients[client].watching.head() {
            let key = self.all[id].key;
            self.take_out(keys, clients, id);
            keys.remove_if_idle(key);
        }
        count
    }

    /// The connections that watch a key, longest first. O(their number).
    pub fn watchers(&self, keys: &Keys, clients: &Clients, key: Id<KeyRecord>) -> Vec<ClientId> {
        keys[key]
            .watchers
            .iter(&self.all)
            .map(|id| clients[self.all[id].client].id)
            .collect()
    }

    fn take_out(&mut self, keys: &mut Keys, clients: &mut Clients, id: Id<Watch>) {
        let Watch { key, client, .. } = self.all[id];
        if !self.crowd.is_empty() {
            let hash = self.hash(key, client);
            self.crowd.remove(hash, id);
        }
        let watchers = &mut keys[key].watchers;
        watchers.remove(&mut self.all, id);
        if watchers.is_empty() {
            self.watched_keys -= 1;
        }
        let client = &mut clients[client];
        client.watching.remove(&mut self.all, id);
        client.watch_count -= 1;
        self.all.remove(id);
    }

    fn find(&self, keys: &Keys, key: Id<KeyRecord>, client: Id<Client>) -> Option<Id<Watch>> {
        keys[key]
            .watchers
            .iter(&self.all)
            .take(CROWD)
            .find(|id| self.all[*id].client == client)
            .or_else(|| {
                if self.crowd.is_empty() {
                    return None;
                }
                self.crowd.find(self.hash(key, client), |id| {
                    self.all[id].key == key && self.all[id].client == client
                })
            })
    }

    fn hash(&self, key: Id<KeyRecord>, client: Id<Client>) -> u32 {
        index::fold(self.hasher.hash_one((key, client)))
    }

    /// Panics unless the invariant holds. O(everything).
    pub fn check(&self, keys: &Keys, clients: &Clients) {
        let mut pairs = std::collections::HashSet::new();
        let mut chained = 0;
        let mut watched_keys = 0;
        for (key, record) in keys.iter() {
            watched_keys += usize::from(!record.watchers.is_empty());
            for (place, id) in record.watchers.iter(&self.all).enumerate() {
                let watch = &self.all[id];
                assert!(watch.key == key && pairs.insert((key, watch.client)));
                let hash = self.hash(key, watch.client);
                assert!(place < CROWD || self.crowd.find(hash, |found| found == id).is_some());
                chained += 1;
            }
        }
        for (client, record) in clients.iter() {
            let mine = record.watching.iter(&self.all);
            assert_eq!(
                mine.inspect(|id| assert!(self.all[*id].client == client))
                    .count(),
                record.watch_count as usize
            );
        }
        let counted: usize = clients.iter().map(|(_, c)| c.watch_count as usize).sum();
        assert_eq!((chained, counted), (self.len(), self.len()));
        assert_eq!(watched_keys, self.watched_keys);
        assert!(self.crowd.len() <= self.len());
    }
}
