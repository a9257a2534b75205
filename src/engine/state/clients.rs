//! Connections that watch, hold or wait, or once did; and sessions, which own the holds of their connection.

use crate::engine::state::rows::{Client, ClientKind, Death, Hold};
use crate::engine::storage::arena::{Arena, Id};
use crate::engine::storage::chain::{Chain, Link};
use crate::engine::types::{ClientId, NOBODY};
use hashbrown::HashMap;
use std::cell::Cell;
use std::ops;

/// Invariant: `by_id` has exactly the records of living connections. `session` and `attached` mirror each other, and a connection
/// with a session has no holds of its own. A record stays until its connection ends (a client that locks in a loop keeps it),
/// then in `orphaners` until its last hold is released, and in `reaping` until its last wait and watch are reaped; `dead` counts
/// those.
#[derive(Default)]
pub(in crate::engine) struct Clients {
    records: Arena<Client>,
    by_id: HashMap<ClientId, Id<Client>>,
    /// The last lookup: a command looks its connection up several times.
    last: Cell<Option<(ClientId, Id<Client>)>>,
    /// The foreign client and dead ones that still own holds, and those with waits or watches; each oldest first.
    orphaners: Chain<Client, { Client::ENDING }>,
    reaping: Chain<Client, { Client::REAPING }>,
    dead: DeadCounts,
    foreign: Option<Id<Client>>,
    /// Sessions with an attached connection.
    attached: usize,
}

/// Waits and watches of ended connections.
#[derive(Clone, Copy, Default)]
pub(in crate::engine) struct DeadCounts {
    pub waits: usize,
    pub watches: usize,
}

impl Client {
    fn new(id: ClientId, kind: ClientKind) -> Self {
        Client {
            id,
            kind,
            origin: None,
            killed: false,
            disconnect_tracked: false,
            watching: Chain::default(),
            watch_count: 0,
            watch_bytes: 0,
            prefixes: Chain::default(),
            prefix_count: 0,
            prefix_bytes: 0,
            is_blind: false,
            viewer: 0,
            holding: Chain::default(),
            hold_count: 0,
            waiting: Chain::default(),
            wait_count: 0,
            place_count: 0,
            blocked: None,
            ending: Link::default(),
            reaping: Link::default(),
        }
    }

    /// Whether it is a connection or a session that has not ended.
    pub fn is_living(&self) -> bool {
        match self.kind {
            ClientKind::Connection { .. } | ClientKind::Session { .. } => true,
            ClientKind::Foreign | ClientKind::Dead(_) => false,
        }
    }

    pub fn is_session(&self) -> bool {
        matches!(self.kind, ClientKind::Session { .. })
    }

    /// The session of a connection.
    pub fn session(&self) -> Option<Id<Client>> {
        match self.kind {
            ClientKind::Connection { session } => session,
            _ => None,
        }
    }

    /// The connection of a session.
    pub fn attached(&self) -> Option<Id<Client>> {
        match self.kind {
            ClientKind::Session { attached } => attached,
            _ => None,
        }
    }

    pub fn death(&self) -> Option<Death> {
        match self.kind {
            ClientKind::Dead(death) => Some(death),
            _ => None,
        }
    }

    /// Whether it is told of keys with the prefixes that it watches.
    pub fn sees(&self) -> bool {
        self.is_living() && !self.is_blind
    }

    fn owes_nothing(&self) -> bool {
        self.hold_count + self.wait_count + self.watches() == 0
    }

    /// Of names and of prefixes.
    pub fn watches(&self) -> u32 {
        self.watch_count + self.prefix_count
    }
}

impl Clients {
    /// O(1).
    pub fn find(&self, id: ClientId) -> Option<Id<Client>> {
        if let Some((last, found)) = self.last.get()
            && last == id
        {
            return Some(found);
        }
        let found = *self.by_id.get(&id)?;
        self.last.set(Some((id, found)));
        Some(found)
    }

    /// The connection's record, inserted if there is none; and whether it was. O(1).
    pub fn find_or_add(&mut self, id: ClientId) -> (Id<Client>, bool) {
        if let Some(found) = self.find(id) {
            return (found, false);
        }
        let kind = ClientKind::Connection { session: None };
        let made = self.records.insert(Client::new(id, kind));
        self.by_id.insert(id, made);
        (made, true)
    }

    /// Adds a detached session. O(1).
    pub fn add_session(&mut self) -> Id<Client> {
        let kind = ClientKind::Session { attached: None };
        self.records.insert(Client::new(NOBODY, kind))
    }

    /// The number of sessions with an attached connection.
    pub fn attached(&self) -> usize {
        self.attached
    }

    /// Removes a session without holds. O(1).
    pub fn remove_session(&mut self, id: Id<Client>) {
        self.records.remove(id);
    }

    /// The owner of what this connection is granted: its session, or itself. O(1).
    pub fn owner(&self, connection: Id<Client>) -> Id<Client> {
        self.records[connection].session().unwrap_or(connection)
    }

    /// Whose waits are an owner's: its attached connection, or itself. A detached session has none. O(1).
    pub fn connection_of(&self, owner: Id<Client>) -> Id<Client> {
        self.records[owner].attached().unwrap_or(owner)
    }

    /// Attaches a connection to a session, which owns what it is granted from now on. O(1).
    pub fn attach(&mut self, session: Id<Client>, connection: Id<Client>) {
        let id = self.records[connection].id;
        self.records[connection].kind = ClientKind::Connection {
            session: Some(session),
        };
        let record = &mut self.records[session];
        record.kind = ClientKind::Session {
            attached: Some(connection),
        };
        record.id = id;
        self.attached += 1;
    }

    /// Detaches a session from its connection. O(1).
    pub fn detach(&mut self, session: Id<Client>) {
        if let Some(connection) = self.records[session].attached() {
            self.records[connection].kind = ClientKind::Connection { session: None };
            self.attached -= 1;
        }
        let record = &mut self.records[session];
        record.kind = ClientKind::Session { attached: None };
        record.id = NOBODY;
    }

    /// A connection or a detached session dies. O(1).
    pub fn end(&mut self, id: Id<Client>, death: Death) {
        self.last.set(None);
        let record = &mut self.records[id];
        record.kind = ClientKind::Dead(death);
        self.by_id.remove(&record.id);
        let (waits, watches) = (record.wait_count, record.watches());
        if record.owes_nothing() {
            self.records.remove(id);
            return;
        }
        if record.hold_count > 0 {
            self.orphaners.push(&mut self.records, id);
        }
        if waits + watches > 0 {
            self.dead.waits += waits as usize;
            self.dead.watches += watches as usize;
            self.reaping.push(&mut self.records, id);
        }
    }

    /// Adds a client that is dead, for holds that the caller gives it. O(1).
    pub fn add_dead(&mut self, death: Death) -> Id<Client> {
        self.add_orphaner(ClientKind::Dead(death))
    }

    fn add_orphaner(&mut self, kind: ClientKind) -> Id<Client> {
        let made = self.records.insert(Client::new(NOBODY, kind));
        self.orphaners.push(&mut self.records, made);
        made
    }

    /// The waits and watches left to reap. O(1).
    pub fn dead(&self) -> DeadCounts {
        self.dead
    }

    /// The connection that ended first and has waits or watches left.
    pub fn first_to_reap(&self) -> Option<Id<Client>> {
        self.reaping.head()
    }

    /// Those with waits and watches to reap, oldest first.
    pub fn to_reap(&self) -> impl Iterator<Item = Id<Client>> {
        self.reaping.iter(&self.records)
    }

    /// A wait of an ended connection was reaped. O(1).
    pub fn wait_reaped(&mut self, id: Id<Client>) {
        self.dead.waits -= 1;
        self.forget_if_reaped(id);
    }

    /// A watch of an ended connection was reaped. O(1).
    pub fn watch_reaped(&mut self, id: Id<Client>) {
        self.dead.watches -= 1;
        self.forget_if_reaped(id);
    }

    fn forget_if_reaped(&mut self, id: Id<Client>) {
        let record = &self.records[id];
        if record.wait_count + record.watches() == 0 {
            self.reaping.remove(&mut self.records, id);
            self.remove_if_unlisted(id);
        }
    }

    /// Removes a dead client that is in neither list. O(1).
    fn remove_if_unlisted(&mut self, id: Id<Client>) {
        let Client {
            ending, reaping, ..
        } = &self.records[id];
        if !ending.is_linked() && !reaping.is_linked() {
            self.records.remove(id);
        }
    }

    /// Whether any hold, wait or watch of the dead is left. O(1).
    pub fn has_dead(&self) -> bool {
        !(self.orphaners.is_empty() && self.reaping.is_empty())
    }

    /// The foreign client, added if there is none. O(1).
    pub fn foreign(&mut self) -> Id<Client> {
        if let Some(foreign) = self.foreign {
            return foreign;
        }
        let made = self.add_orphaner(ClientKind::Foreign);
        *self.foreign.insert(made)
    }

    pub fn is_foreign(&self, id: Id<Client>) -> bool {
        self.foreign == Some(id)
    }

    /// One of the foreign client's holds.
    pub fn first_foreign_hold(&self) -> Option<Id<Hold>> {
        self.records[self.foreign?].holding.head()
    }

    /// The number of the foreign client's holds.
    pub fn foreign_holds(&self) -> usize {
        let foreign = self.foreign.map(|foreign| &self.records[foreign]);
        foreign.map_or(0, |foreign| foreign.hold_count as usize)
    }

    /// After one of its holds was removed: removes a client that has no further holds, unless it lives. O(1).
    pub fn forget_if_done(&mut self, id: Id<Client>) {
        let record = &self.records[id];
        if !record.is_living() && record.hold_count == 0 {
            self.orphaners.remove(&mut self.records, id);
            self.remove_if_unlisted(id);
            self.foreign.take_if(|foreign| *foreign == id);
        }
    }

    /// The clients with orphaned holds, oldest first.
    pub fn orphaners(&self) -> impl Iterator<Item = Id<Client>> {
        self.orphaners.iter(&self.records)
    }

    /// The first of them. O(1).
    pub fn first_orphaner(&self) -> Option<Id<Client>> {
        self.orphaners.head()
    }

    /// Panics unless the invariant holds. O(everything).
    pub fn check(&self) {
        let dead = || {
            self.records
                .iter()
                .filter(|(_, record)| !record.is_living())
        };
        let holders = dead().filter(|(_, record)| record.hold_count > 0);
        assert_eq!(self.orphaners().count(), holders.count());
        let reaping = dead().filter(|(_, record)| record.wait_count + record.watches() > 0);
        assert_eq!(self.reaping.iter(&self.records).count(), reaping.count());
        let foreign = dead().find(|(_, record)| matches!(record.kind, ClientKind::Foreign));
        assert_eq!(self.foreign, foreign.map(|(id, _)| id));
        let (mut waits, mut watches) = (0, 0);
        for (_, record) in dead() {
            assert!(!record.owes_nothing());
            waits += record.wait_count as usize;
            watches += record.watches() as usize;
        }
        assert_eq!((waits, watches), (self.dead.waits, self.dead.watches));
    }

    /// The slots of all records, for cursors.
    pub fn arena(&self) -> &Arena<Client> {
        &self.records
    }

    pub fn iter(&self) -> impl Iterator<Item = (Id<Client>, &Client)> {
        self.records.iter()
    }
}

impl ops::Index<Id<Client>> for Clients {
    type Output = Client;
    #[inline]
    fn index(&self, id: Id<Client>) -> &Client {
        &self.records[id]
    }
}

impl ops::IndexMut<Id<Client>> for Clients {
    #[inline]
    fn index_mut(&mut self, id: Id<Client>) -> &mut Client {
        &mut self.records[id]
    }
}
