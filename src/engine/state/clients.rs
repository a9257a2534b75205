//! The connections that watch, hold or wait for something, or have done so; and the sessions, which
//! hold in their stead.

use crate::engine::state::rows::{Client, Hold};
use crate::engine::storage::arena::{Arena, Id};
use crate::engine::storage::chain::{Chain, Link};
use crate::engine::types::{ClientId, Loss, NOBODY};
use hashbrown::HashMap;
use std::cell::Cell;
use std::ops;

/// Invariant: `by_id` names each record whose connection lives, and those only. `session` and
/// `attached` mirror each other, and a connection with a session holds nothing itself. A record stays
/// until its connection ends (a client that locks in a loop is not forgotten after each round),
/// and after that, in `ended`, until it holds nothing, and, in `fading`, until it has no wait and no watch;
/// `faded` counts those.
#[derive(Default)]
pub(in crate::engine) struct Clients {
    records: Arena<Client>,
    by_id: HashMap<ClientId, Id<Client>>,
    /// One of those, found last: a command asks for its connection more than once.
    last: Cell<Option<(ClientId, Id<Client>)>>,
    /// The longest dead first, of those that have left holds; and of those that have left waits or watches.
    ended: Chain<Client, { Client::ENDING }>,
    fading: Chain<Client, { Client::FADING }>,
    faded: Faded,
    former: Option<Id<Client>>,
    /// How many sessions have a connection.
    attached: usize,
}

/// What ended connections have left that they only waited for or watched.
#[derive(Clone, Copy, Default)]
pub(in crate::engine) struct Faded {
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
            leaves_holds: false,
            guarded: false,
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
            fading: Link::default(),
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

    /// The connection's record, made where there is none; and whether it was made. O(1).
    pub fn find_or_add(&mut self, id: ClientId) -> (Id<Client>, bool) {
        if let Some(found) = self.find(id) {
            return (found, false);
        }
        let made = self.records.insert(Client::new(id));
        self.by_id.insert(id, made);
        (made, true)
    }

    /// A record for a session, to which nobody is attached yet. O(1).
    pub fn add_session(&mut self) -> Id<Client> {
        let mut session = Client::new(NOBODY);
        session.is_session = true;
        self.records.insert(session)
    }

    /// How many sessions have a connection.
    pub fn attached(&self) -> usize {
        self.attached
    }

    /// Forgets a session that holds nothing. O(1).
    pub fn remove_session(&mut self, id: Id<Client>) {
        self.records.remove(id);
    }

    /// To whom belongs what this connection is granted: to its session, if it has one. O(1).
    pub fn owner(&self, connection: Id<Client>) -> Id<Client> {
        self.records[connection].session.unwrap_or(connection)
    }

    /// From now on what this connection is granted belongs to this session. O(1).
    pub fn attach(&mut self, session: Id<Client>, connection: Id<Client>) {
        self.records[connection].session = Some(session);
        self.records[session].attached = Some(connection);
        self.attached += 1;
        self.records[session].id = self.records[connection].id;
    }

    /// From now on no connection is attached to this session. O(1).
    pub fn detach(&mut self, session: Id<Client>) {
        self.records[session].id = NOBODY;
        if let Some(connection) = self.records[session].attached.take() {
            self.records[connection].session = None;
            self.attached -= 1;
        }
    }

    /// From now on no command can come from this connection, or its session is over. O(1).
    pub fn end(&mut self, id: Id<Client>, ended_by: Option<Loss>) {
        self.records[id].ended = true;
        self.records[id].ended_by = ended_by;
        self.last.set(None);
        let record = &self.records[id];
        self.by_id.remove(&record.id);
        let (waits, watches) = (record.wait_count, record.watch_count);
        if record.hold_count > 0 {
            self.leave_holds(id);
        }
        if waits + watches > 0 {
            self.faded.waits += waits as usize;
            self.faded.watches += watches as usize;
            self.fading.push(&mut self.records, id);
        } else if self.records[id].hold_count == 0 {
            self.records.remove(id);
        }
    }

    fn leave_holds(&mut self, id: Id<Client>) {
        self.records[id].leaves_holds = true;
        self.ended.push(&mut self.records, id);
    }

    /// What ended connections have left that they only waited for or watched. O(1).
    pub fn faded(&self) -> Faded {
        self.faded
    }

    /// The connection whose end is longest ago and that has left something of that.
    pub fn first_fading(&self) -> Option<Id<Client>> {
        self.fading.head()
    }

    /// Such a connection has so much less of it. O(1).
    pub fn fade(&mut self, id: Id<Client>, less: Faded) {
        self.faded.waits -= less.waits;
        self.faded.watches -= less.watches;
        let record = &self.records[id];
        if record.wait_count + record.watch_count == 0 {
            self.fading.remove(&mut self.records, id);
            if !self.records[id].leaves_holds {
                self.records.remove(id);
            }
        }
    }

    /// Whether an ended connection has left anything. O(1).
    pub fn is_anyone_ended(&self) -> bool {
        !(self.ended.is_empty() && self.fading.is_empty())
    }

    /// Whoever held something on a former server, and is not here. Ended, as its connections are.
    /// O(1).
    pub fn former(&mut self) -> Id<Client> {
        if let Some(former) = self.former {
            return former;
        }
        let former = self.records.insert(Client::new(NOBODY));
        self.records[former].ended = true;
        self.leave_holds(former);
        self.former = Some(former);
        former
    }

    pub fn is_former(&self, id: Id<Client>) -> bool {
        self.former == Some(id)
    }

    /// One of the holds that were orphaned by a former server's connections.
    pub fn first_held_by_former(&self) -> Option<Id<Hold>> {
        self.records[self.former?].holding.head()
    }

    /// How many holds were orphaned by a former server's connections.
    pub fn held_by_former(&self) -> usize {
        let former = self.former.map(|former| &self.records[former]);
        former.map_or(0, |former| former.hold_count as usize)
    }

    /// An owner has one hold less: forgets an ended connection to which nothing is bound any more. O(1).
    pub fn forget_if_done(&mut self, id: Id<Client>) {
        let record = &mut self.records[id];
        if record.leaves_holds && record.hold_count == 0 {
            record.leaves_holds = false;
            let is_fading = record.wait_count + record.watch_count > 0;
            self.ended.remove(&mut self.records, id);
            if !is_fading {
                self.records.remove(id);
            }
            self.former.take_if(|former| *former == id);
        }
    }

    /// Those that have left holds, the longest dead first.
    pub fn all_ended(&self) -> impl Iterator<Item = Id<Client>> {
        self.ended.iter(&self.records)
    }

    /// The connection whose end is longest ago and that has left holds. O(1).
    pub fn first_ended(&self) -> Option<Id<Client>> {
        self.ended.head()
    }

    /// Panics unless the invariant holds. O(everything).
    pub fn check(&self) {
        let ended = || self.records.iter().filter(|(_, record)| record.ended);
        let holders = ended().filter(|(_, record)| record.hold_count > 0);
        assert_eq!(self.ended.iter(&self.records).count(), holders.count());
        let fading = ended().filter(|(_, record)| record.wait_count + record.watch_count > 0);
        assert_eq!(self.fading.iter(&self.records).count(), fading.count());
        let (mut waits, mut watches) = (0, 0);
        for (_, record) in ended() {
            assert!(record.hold_count + record.wait_count + record.watch_count > 0);
            waits += record.wait_count as usize;
            watches += record.watch_count as usize;
        }
        assert_eq!((waits, watches), (self.faded.waits, self.faded.watches));
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
