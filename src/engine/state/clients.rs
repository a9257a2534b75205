//! Connections that watch, hold or wait, or once did; and sessions, which own the holds of their connection.

use crate::engine::state::rows::{Client, Hold};
use crate::engine::storage::arena::{Arena, Id};
use crate::engine::storage::chain::{Chain, Link};
use crate::engine::types::{ClientId, Loss, NOBODY};
use hashbrown::HashMap;
use std::cell::Cell;
use std::ops;

/// Invariant: `by_id` has exactly the records of living connections. `session` and `attached` mirror each other, and a connection
/// with a session has no holds of its own. A record stays until its connection ends (a client that locks in a loop keeps it),
/// then in `ended` until its last hold is released, and in `reaping` until its last wait and watch are reaped; `dead` counts
/// those.
#[derive(Default)]
pub(in crate::engine) struct Clients {
    records: Arena<Client>,
    by_id: HashMap<ClientId, Id<Client>>,
    /// The last lookup: a command looks its connection up several times.
    last: Cell<Option<(ClientId, Id<Client>)>>,
    /// Ended clients that still own holds, and those with waits or watches; each oldest first.
    ended: Chain<Client, { Client::ENDING }>,
    reaping: Chain<Client, { Client::REAPING }>,
    dead: DeadCounts,
    foreign_owner: Option<Id<Client>>,
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
    fn new(id: ClientId) -> Self {
        Client {
            id,
            ended: false,
            ended_by: None,
            ended_after: 0,
            origin: None,
            has_orphans: false,
            disconnect_tracked: false,
            is_session: false,
            session: None,
            attached: None,
            watching: Chain::default(),
            watch_count: 0,
            watch_bytes: 0,
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
        let made = self.records.insert(Client::new(id));
        self.by_id.insert(id, made);
        (made, true)
    }

    /// Adds a detached session. O(1).
    pub fn add_session(&mut self) -> Id<Client> {
        let mut session = Client::new(NOBODY);
        session.is_session = true;
        self.records.insert(session)
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
        self.records[connection].session.unwrap_or(connection)
    }

    /// Attaches a connection to a session, which owns what it is granted from now on. O(1).
    pub fn attach(&mut self, session: Id<Client>, connection: Id<Client>) {
        self.records[connection].session = Some(session);
        self.records[session].attached = Some(connection);
        self.attached += 1;
        self.records[session].id = self.records[connection].id;
    }

    /// Detaches a session from its connection. O(1).
    pub fn detach(&mut self, session: Id<Client>) {
        self.records[session].id = NOBODY;
        if let Some(connection) = self.records[session].attached.take() {
            self.records[connection].session = None;
            self.attached -= 1;
        }
    }

    /// A connection or session has ended: its holds are orphaned, its waits and watches dead. O(1).
    pub fn end(&mut self, id: Id<Client>, ended_by: Option<Loss>) {
        self.records[id].ended = true;
        self.records[id].ended_by = ended_by;
        self.last.set(None);
        let record = &self.records[id];
        self.by_id.remove(&record.id);
        let (waits, watches) = (record.wait_count, record.watch_count);
        if record.hold_count > 0 {
            self.orphan_holds(id);
        }
        if waits + watches > 0 {
            self.dead.waits += waits as usize;
            self.dead.watches += watches as usize;
            self.reaping.push(&mut self.records, id);
        } else if self.records[id].hold_count == 0 {
            self.records.remove(id);
        }
    }

    fn orphan_holds(&mut self, id: Id<Client>) {
        self.records[id].has_orphans = true;
        self.ended.push(&mut self.records, id);
    }

    /// The waits and watches left to reap. O(1).
    pub fn dead(&self) -> DeadCounts {
        self.dead
    }

    /// The connection that ended first and has waits or watches left.
    pub fn first_to_reap(&self) -> Option<Id<Client>> {
        self.reaping.head()
    }

    /// Counts waits and watches reaped from an ended connection. O(1).
    pub fn reap(&mut self, id: Id<Client>, less: DeadCounts) {
        self.dead.waits -= less.waits;
        self.dead.watches -= less.watches;
        let record = &self.records[id];
        if record.wait_count + record.watch_count == 0 {
            self.reaping.remove(&mut self.records, id);
            if !self.records[id].has_orphans {
                self.records.remove(id);
            }
        }
    }

    /// Whether an ended connection has left anything. O(1).
    pub fn is_anyone_ended(&self) -> bool {
        !(self.ended.is_empty() && self.reaping.is_empty())
    }

    /// The owner of holds whose connections belong to another server: a former master, or this one before a restart. It has
    /// ended, so its holds are orphaned. O(1).
    pub fn foreign_owner(&mut self) -> Id<Client> {
        if let Some(owner) = self.foreign_owner {
            return owner;
        }
        let owner = self.records.insert(Client::new(NOBODY));
        self.records[owner].ended = true;
        self.orphan_holds(owner);
        self.foreign_owner = Some(owner);
        owner
    }

    pub fn is_foreign_owner(&self, id: Id<Client>) -> bool {
        self.foreign_owner == Some(id)
    }

    /// One of the foreign owner's holds.
    pub fn first_foreign_hold(&self) -> Option<Id<Hold>> {
        self.records[self.foreign_owner?].holding.head()
    }

    /// The number of the foreign owner's holds.
    pub fn foreign_holds(&self) -> usize {
        let former = self.foreign_owner.map(|former| &self.records[former]);
        former.map_or(0, |former| former.hold_count as usize)
    }

    /// After a hold was removed: removes its owner if that has ended and has nothing left. O(1).
    pub fn forget_if_done(&mut self, id: Id<Client>) {
        let record = &mut self.records[id];
        if record.has_orphans && record.hold_count == 0 {
            record.has_orphans = false;
            let is_reaping = record.wait_count + record.watch_count > 0;
            self.ended.remove(&mut self.records, id);
            if !is_reaping {
                self.records.remove(id);
            }
            self.foreign_owner.take_if(|former| *former == id);
        }
    }

    /// Ended clients that still own holds, oldest first.
    pub fn all_ended(&self) -> impl Iterator<Item = Id<Client>> {
        self.ended.iter(&self.records)
    }

    /// The first of them. O(1).
    pub fn first_ended(&self) -> Option<Id<Client>> {
        self.ended.head()
    }

    /// Panics unless the invariant holds. O(everything).
    pub fn check(&self) {
        let ended = || self.records.iter().filter(|(_, record)| record.ended);
        let holders = ended().filter(|(_, record)| record.hold_count > 0);
        assert_eq!(self.ended.iter(&self.records).count(), holders.count());
        let reaping = ended().filter(|(_, record)| record.wait_count + record.watch_count > 0);
        assert_eq!(self.reaping.iter(&self.records).count(), reaping.count());
        let (mut waits, mut watches) = (0, 0);
        for (_, record) in ended() {
            assert!(record.hold_count + record.wait_count + record.watch_count > 0);
            waits += record.wait_count as usize;
            watches += record.watch_count as usize;
        }
        assert_eq!((waits, watches), (self.dead.waits, self.dead.watches));
    }

    pub fn iter(&self) -> impl Iterator<Item = (Id<Client>, &Client)> {
        self.records.iter()
    }
}

impl ops::Index<Id<Client>> for Clients {
    type Output = Client;
    fn index(&self, id: Id<Client>) -> &Client {
        &self.records[id]
    }
}

impl ops::IndexMut<Id<Client>> for Clients {
    fn index_mut(&mut self, id: Id<Client>) -> &mut Client {
        &mut self.records[id]
    }
}
