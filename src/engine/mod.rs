//! The engine: every rule, and nothing of a server.
//!
//! It is told facts ([`Event`]) and answers with orders ([`Effect`]). It has no clock, no input and
//! no output, and asks nobody; two engines that are told the same facts give the same orders.
//!
//! ```text
//!   requests.rs   what commands ask for
//!   keyspace.rs   what happened to keys
//!   endings.rs    connections that are no more, and the slow removal of what they left
//!   watches.rs    who watches what           holds.rs   who holds what
//!   keys.rs, clients.rs                      their records, found by name and by id
//!   arena.rs, chain.rs, index.rs             how records stand in memory
//! ```

#![forbid(unsafe_code)]

mod arena;
mod chain;
mod clients;
mod effect;
mod endings;
mod event;
mod holds;
mod id;
mod index;
mod keys;
mod keyspace;
mod requests;
mod watches;

pub use effect::{Effect, News, Push, Refusal, Reply};
pub use event::{Event, Hand, Seen};
pub use id::{ClientId, Db, Key, KeyBuf};

use arena::Id;
use clients::Clients;
use holds::{Hold, Holds};
use keys::Keys;
use watches::Watches;

/// What one connection may have. Lowering a limit takes nothing away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub watches_per_client: u32,
    pub keys_per_client: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            watches_per_client: 65_536,
            keys_per_client: 65_536,
        }
    }
}

/// Counted since the engine was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Keys removed because their owner's connection ended.
    pub keys_removed_by_disconnect: u64,
    /// Bindings that ended by another hand than their owner's.
    pub lost: u64,
}

/// What there is at this moment. O(1) to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gauges {
    pub temporary_keys: usize,
    pub watches: usize,
    pub watched_keys: usize,
}

/// All that the module knows.
#[derive(Default)]
pub struct Engine {
    keys: Keys,
    clients: Clients,
    watches: Watches,
    holds: Holds,
    /// The hold of a key whose old name has gone and whose new name is about to be told.
    carried: Option<Id<Hold>>,
    limits: Limits,
    totals: Totals,
}

impl Engine {
    /// Takes in one fact and appends the orders that follow from it.
    pub fn handle(&mut self, event: Event<'_>, effects: &mut Vec<Effect>) {
        if !matches!(event, Event::MovedTo { .. }) {
            self.drop_carried();
        }
        match event {
            Event::Settp { client, seen } => self.settp(client, seen, effects),
            Event::Watch { client, seen } => self.watch(client, seen, effects),
            Event::Unwatch { client, keys } => self.unwatch(client, keys, effects),
            Event::UnwatchAll { client } => self.unwatch_all(client, effects),
            Event::Made { key, by } => self.made(key, by, effects),
            Event::Gone { key, by } => self.gone(key, by, effects),
            Event::MovedFrom { key } => self.moved_from(key, effects),
            Event::MovedTo { key } => self.moved_to(key),
            Event::Flushed { db, by } => self.flushed(db, by, effects),
            Event::Swapped { one, other } => self.swapped(one, other),
            Event::Found { seen } => self.found(seen, effects),
            Event::Ended { client } => self.ended(client),
            Event::Work { most } => self.work(most, effects),
        }
    }

    /// Whether anything that happens to any key could matter. O(1).
    pub fn is_idle(&self) -> bool {
        self.keys.len() == 0
    }

    /// Whether anybody watches or holds this key. O(1).
    pub fn knows(&self, key: Key<'_>) -> bool {
        self.keys.find(key).is_some()
    }

    /// The living connection that holds this key. O(1).
    pub fn holder(&self, key: Key<'_>) -> Option<ClientId> {
        let client = self.holds.holder(&self.keys, self.keys.find(key)?)?;
        let client = &self.clients[client];
        (!client.ended).then_some(client.id)
    }

    /// Whether this connection has come to the engine's notice and lives. O(1).
    pub fn knows_client(&self, client: ClientId) -> bool {
        self.clients.find(client).is_some()
    }

    /// Whether there is something to do as soon as the keyspace may be written. O(1).
    pub fn has_work(&self) -> bool {
        self.clients.first_ended().is_some()
    }

    /// The keys of these databases, or of all, that somebody watches or holds; for a fresh look at
    /// each of them. O(their number).
    pub fn known_keys(&self, dbs: Option<&[Db]>) -> Vec<KeyBuf> {
        self.keys
            .iter()
            .map(|(_, record)| record.key())
            .filter(|key| dbs.is_none_or(|dbs| dbs.contains(&key.db)))
            .map(Key::to_owned)
            .collect()
    }

    pub fn limits(&self) -> Limits {
        self.limits
    }

    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    pub fn totals(&self) -> Totals {
        self.totals
    }

    pub fn gauges(&self) -> Gauges {
        Gauges {
            temporary_keys: self.holds.len(),
            watches: self.watches.len(),
            watched_keys: self.watches.watched_keys(),
        }
    }

    /// Panics unless every room's invariant holds. For tests: O(everything).
    pub fn check_invariants(&self) {
        self.watches.check(&self.keys, &self.clients);
        self.holds.check(&self.keys, &self.clients);
        for (id, record) in self.keys.iter() {
            let idle = record.watchers.is_empty() && record.holds.is_empty();
            assert!(!idle, "{:?} is kept for nothing", record.key());
            assert_eq!(self.keys.find(record.key()), Some(id));
        }
        for (_, client) in self.clients.iter() {
            assert!(!client.ended || client.watch_count == 0);
            assert!(!client.ended || client.hold_count > 0);
        }
    }
}
