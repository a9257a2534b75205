//! Watches: pairs of a connection and a name.

use crate::engine::state::clients::Clients;
use crate::engine::state::keys::Keys;
use crate::engine::state::rows::{Client, Name, Watch};
use crate::engine::storage::arena::{Arena, Id};
use crate::engine::storage::chain::Link;
use crate::engine::storage::overflow::Overflow;
use crate::engine::types::ClientId;

/// Invariant: a watch is in its name's list and in its client's, once each; no two watches are the same pair.
#[derive(Default)]
pub(in crate::engine) struct Watches {
    all: Arena<Watch>,
    overflow: Overflow<Watch>,
    watched_keys: usize,
    /// The summed lengths of their names.
    watched_bytes: usize,
}

impl Watches {
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// The number of names with a watcher.
    pub fn watched_keys(&self) -> usize {
        self.watched_keys
    }

    /// The summed lengths of all watched names.
    pub fn watched_bytes(&self) -> usize {
        self.watched_bytes
    }

    /// O(1).
    pub fn has(&self, keys: &Keys, name: Id<Name>, client: Id<Client>) -> bool {
        self.find(keys, name, client).is_some()
    }

    /// Adds a pair that is not there. O(1).
    pub fn add(
        &mut self,
        keys: &mut Keys,
        clients: &mut Clients,
        name: Id<Name>,
        client: Id<Client>,
    ) {
        let bytes = keys[name].key().name.len();
        let watchers = &mut keys[name].watchers;
        if watchers.is_empty() {
            self.watched_keys += 1;
            self.watched_bytes += bytes;
        }
        let id = self.all.insert(Watch {
            name,
            client,
            by_name: Link::default(),
            by_client: Link::default(),
        });
        self.overflow
            .join(watchers.iter(&self.all), (name, client), id);
        watchers.push(&mut self.all, id);
        let client = &mut clients[client];
        client.watching.push(&mut self.all, id);
        client.watch_count += 1;
        client.watch_bytes += bytes;
    }

    /// Removes the pair; returns whether it was there. O(1).
    pub fn remove(
        &mut self,
        keys: &mut Keys,
        clients: &mut Clients,
        name: Id<Name>,
        client: Id<Client>,
    ) -> bool {
        let found = self.find(keys, name, client);
        if let Some(id) = found {
            self.take_out(keys, clients, id);
        }
        found.is_some()
    }

    /// Removes all watches of a connection, and returns their number. O(their number).
    pub fn remove_all(
        &mut self,
        keys: &mut Keys,
        clients: &mut Clients,
        client: Id<Client>,
    ) -> u32 {
        let count = clients[client].watch_count;
        while let Some(id) = clients[client].watching.head() {
            self.take_out(keys, clients, id);
        }
        count
    }

    /// Removes a connection's oldest watch, if any. O(1).
    pub fn remove_first(&mut self, keys: &mut Keys, clients: &mut Clients, client: Id<Client>) {
        if let Some(id) = clients[client].watching.head() {
            self.take_out(keys, clients, id);
        }
    }

    /// The living watchers of a name, oldest watch first. O(watchers).
    pub fn watchers(&self, keys: &Keys, clients: &Clients, name: Id<Name>) -> Vec<ClientId> {
        let chain = || keys[name].watchers.iter(&self.all);
        let mut watchers = Vec::with_capacity(chain().count());
        let all = chain().map(|id| &clients[self.all[id].client]);
        watchers.extend(
            all.filter(|client| client.is_living())
                .map(|client| client.id),
        );
        watchers
    }

    fn take_out(&mut self, keys: &mut Keys, clients: &mut Clients, id: Id<Watch>) {
        let Watch { name, client, .. } = self.all[id];
        self.overflow.leave((name, client), id);
        let bytes = keys[name].key().name.len();
        let watchers = &mut keys[name].watchers;
        watchers.remove(&mut self.all, id);
        if watchers.is_empty() {
            self.watched_keys -= 1;
            self.watched_bytes -= bytes;
        }
        let record = &mut clients[client];
        record.watching.remove(&mut self.all, id);
        record.watch_count -= 1;
        record.watch_bytes -= bytes;
        self.all.remove(id);
        keys.remove_name_if_unreferenced(name);
    }

    fn find(&self, keys: &Keys, name: Id<Name>, client: Id<Client>) -> Option<Id<Watch>> {
        let chain = keys[name].watchers.iter(&self.all);
        self.overflow.find(chain, (name, client), |id| {
            self.all[id].name == name && self.all[id].client == client
        })
    }

    /// Panics unless the invariant holds. O(everything).
    pub fn check(&self, keys: &Keys, clients: &Clients) {
        let mut pairs = hashbrown::HashSet::new();
        let (mut watched_keys, mut watched_bytes) = (0, 0);
        for (name, record) in keys.all_names() {
            if !record.watchers.is_empty() {
                watched_keys += 1;
                watched_bytes += record.key().name.len();
            }
            for (place, id) in record.watchers.iter(&self.all).enumerate() {
                let watch = &self.all[id];
                assert!(watch.name == name && pairs.insert((name, watch.client)));
                self.overflow.check(place, (name, watch.client), id);
            }
        }
        let mut counted = 0;
        for (client, record) in clients.iter() {
            let mine: Vec<_> = record.watching.iter(&self.all).collect();
            assert!(mine.iter().all(|id| self.all[*id].client == client));
            assert_eq!(mine.len(), record.watch_count as usize);
            let bytes = mine
                .iter()
                .map(|id| keys[self.all[*id].name].key().name.len());
            assert_eq!(bytes.sum::<usize>(), record.watch_bytes);
            counted += mine.len();
        }
        assert_eq!((pairs.len(), counted), (self.len(), self.len()));
        assert_eq!(
            (watched_keys, watched_bytes),
            (self.watched_keys, self.watched_bytes)
        );
        assert!(self.overflow.len() <= self.len());
    }
}
