//! Who holds what: temporary keys, bound to connections.

use super::arena::{Arena, Id};
use super::chain::{Chained, Link};
use super::clients::{Client, Clients};
use super::keys::{KeyRecord, Keys};

pub(super) const BY_KEY: usize = 0;
pub(super) const BY_CLIENT: usize = 1;

pub(super) struct Hold {
    key: Id<KeyRecord>,
    client: Id<Client>,
    by_key: Link<Hold>,
    by_client: Link<Hold>,
}

impl Chained<BY_KEY> for Hold {
    fn link(&self) -> &Link<Self> {
        &self.by_key
    }
    fn link_mut(&mut self) -> &mut Link<Self> {
        &mut self.by_key
    }
}

impl Chained<BY_CLIENT> for Hold {
    fn link(&self) -> &Link<Self> {
        &self.by_client
    }
    fn link_mut(&mut self) -> &mut Link<Self> {
        &mut self.by_client
    }
}

/// Invariant: a hold stands in its key's chain and in its client's, once each; a key has at most
/// one. Only a hold that is being carried to another name stands in no key's chain.
#[derive(Default)]
pub(super) struct Holds {
    all: Arena<Hold>,
}

impl Holds {
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// The key's holder. O(1).
    pub fn holder(&self, keys: &Keys, key: Id<KeyRecord>) -> Option<Id<Client>> {
        let hold = keys[key].holds.head()?;
        Some(self.all[hold].client)
    }

    /// The key that the connection has held longest. O(1).
    pub fn first_of(&self, clients: &Clients, client: Id<Client>) -> Option<Id<KeyRecord>> {
        let hold = clients[client].holding.head()?;
        Some(self.all[hold].key)
    }

    /// Binds a key that nobody holds. O(1).
    pub fn add(
        &mut self,
        keys: &mut Keys,
        clients: &mut Clients,
        key: Id<KeyRecord>,
        client: Id<Client>,
    ) {
        let id = self.all.insert(Hold {
            key,
            client,
            by_key: Link::default(),
            by_client: Link::default(),
        });
        keys[key].holds.push(&mut self.all, id);
        let client = &mut clients[client];
        client.holding.push(&mut self.all, id);
        client.hold_count += 1;
    }

    /// Ends the binding of a key and says whose it was. O(1).
    pub fn remove(
        &mut self,
        keys: &mut Keys,
        clients: &mut Clients,
        key: Id<KeyRecord>,
    ) -> Option<Id<Client>> {
        let hold = self.pick_up(keys, key)?;
        Some(self.drop_carried(clients, hold))
    }

    /// Loosens a hold from its key, to be put down on another or dropped. O(1).
    pub fn pick_up(&mut self, keys: &mut Keys, key: Id<KeyRecord>) -> Option<Id<Hold>> {
        let hold = keys[key].holds.head()?;
        keys[key].holds.remove(&mut self.all, hold);
        Some(hold)
    }

    /// Fastens a carried hold to a key that nobody holds. O(1).
    pub fn put_down(&mut self, keys: &mut Keys, hold: Id<Hold>, key: Id<KeyRecord>) {
        self.all[hold].key = key;
        keys[key].holds.push(&mut self.all, hold);
    }

    /// Ends a carried hold and says whose it was. O(1).
    pub fn drop_carried(&mut self, clients: &mut Clients, hold: Id<Hold>) -> Id<Client> {
        let client = self.all[hold].client;
        let owner = &mut clients[client];
        owner.holding.remove(&mut self.all, hold);
        owner.hold_count -= 1;
        self.all.remove(hold);
        client
    }

    /// Panics unless the invariant holds. O(everything).
    pub fn check(&self, keys: &Keys, clients: &Clients) {
        let mut chained = 0;
        for (key, record) in keys.iter() {
            let holds: Vec<_> = record.holds.iter(&self.all).collect();
            assert!(holds.len() <= 1);
            chained += holds.len();
            assert!(holds.iter().all(|id| self.all[*id].key == key));
        }
        let mut counted = 0;
        for (client, record) in clients.iter() {
            let mine: Vec<_> = record.holding.iter(&self.all).collect();
            assert_eq!(mine.len(), record.hold_count as usize);
            assert!(mine.iter().all(|id| self.all[*id].client == client));
            counted += mine.len();
        }
        assert_eq!((chained, counted), (self.len(), self.len()));
    }
}
