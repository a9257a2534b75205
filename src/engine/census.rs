//! Who holds and who waits, for an operator at three in the morning.

use super::Engine;
use super::arena::Id;
use super::ask::Mode;
use super::holds::Hold;
use super::id::{ClientId, Db, Key, KeyBuf, Moment};
use super::keys::KeyRecord;
use super::queues::Waiter;
use super::tokens::Token;

/// Everything about one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyCensus {
    pub holders: Vec<Holder>,
    /// In the order in which they will be served.
    pub waiters: Vec<Waiting>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// 0 where nobody is attached to the session that holds.
    pub client: ClientId,
    /// Whether somebody is attached to the session that holds; none where a connection does.
    pub session: Option<bool>,
    pub label: Box<[u8]>,
    pub mode: Mode,
    pub token: Token,
    pub depth: u32,
    pub held_ms: u64,
    /// What is left of its lease.
    pub lease_ms: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub client: ClientId,
    pub label: Box<[u8]>,
    pub mode: Mode,
    pub waiting_ms: u64,
}

/// A key in short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyLine {
    pub key: KeyBuf,
    /// 0 where nobody is attached to the session that holds.
    pub holders: Vec<ClientId>,
    pub waiters: usize,
    /// How long the longest hold has lasted.
    pub oldest_ms: Option<u64>,
}

impl Engine {
    /// Who holds a key and who waits for it; nothing where nobody does. O(their number).
    pub fn census(&self, now: Moment, key: Key<'_>) -> Option<KeyCensus> {
        let key = self.keys.find(key)?;
        let holders = self.holds.of_key(&self.keys, key);
        let waiters = self.queues.of_key(&self.keys, key);
        let census = KeyCensus {
            holders: holders
                .filter_map(|hold| self.holder_line(now, hold))
                .collect(),
            waiters: waiters
                .map(|waiter| self.waiting_line(now, waiter))
                .collect(),
        };
        let anyone = !census.holders.is_empty() || !census.waiters.is_empty();
        anyone.then_some(census)
    }

    /// The keys of a database that are held or waited for, or those of one connection, in no
    /// particular order. O(keys known).
    pub fn list(
        &self,
        now: Moment,
        db: Db,
        client: Option<ClientId>,
    ) -> impl Iterator<Item = KeyLine> {
        self.keys
            .iter()
            .filter(move |(_, record)| record.key().db == db)
            .filter_map(move |(id, record)| self.key_line(now, id, record))
            .filter(move |line| client.is_none_or(|client| self.concerns(line, client)))
    }

    fn concerns(&self, line: &KeyLine, client: ClientId) -> bool {
        let waits = || {
            let key = self.keys.find(line.key.as_key())?;
            let mut queue = self.queues.of_key(&self.keys, key);
            queue.find(|id| self.clients[self.queues[*id].client].id == client)
        };
        line.holders.contains(&client) || waits().is_some()
    }

    fn key_line(&self, now: Moment, id: Id<KeyRecord>, record: &KeyRecord) -> Option<KeyLine> {
        let holds = || self.holds.of_key(&self.keys, id).map(|id| &self.holds[id]);
        let living = || holds().filter(|hold| !self.clients[hold.client].ended);
        let line = KeyLine {
            key: record.key().to_owned(),
            holders: living().map(|hold| self.clients[hold.client].id).collect(),
            waiters: self.queues.of_key(&self.keys, id).count(),
            oldest_ms: living().map(|hold| hold.nature.held_ms(now)).max(),
        };
        (!line.holders.is_empty() || line.waiters > 0).then_some(line)
    }

    fn holder_line(&self, now: Moment, id: Id<Hold>) -> Option<Holder> {
        let hold = &self.holds[id];
        let owner = &self.clients[hold.client];
        (!owner.ended).then(|| Holder {
            client: owner.id,
            session: owner.is_session.then_some(owner.attached.is_some()),
            label: self.holds.label(id).into(),
            mode: self.holds.mode(id),
            token: hold.token,
            depth: self.holds.depth(id),
            held_ms: hold.nature.held_ms(now),
            lease_ms: self.holds.lease(id).map(|end| end.ms_since(now)),
        })
    }

    fn waiting_line(&self, now: Moment, id: Id<Waiter>) -> Waiting {
        let waiter = &self.queues[id];
        Waiting {
            client: self.clients[waiter.client].id,
            label: waiter.label.clone(),
            mode: waiter.mode,
            waiting_ms: now.ms_since(waiter.since),
        }
    }
}
