//! The connections that watch, hold or wait for something, or have done so.

use super::arena::{Arena, Id};
use super::chain::{Chain, Chained, Link};
use super::holds::{self, Hold};
use super::id::ClientId;
use super::queues::{self, Waiter};
use super::watches::{self, Watch};
use hashbrown::HashMap;
use std::ops;

/// What the engine knows of one connection.
pub(super) struct Client {
    pub id: ClientId,
    /// It has ended; what it held waits to be removed.
    pub ended: bool,
    /// The shell was told that this connection's death matters.
    pub guarded: bool,
    pub watching: Chain<Watch, { watches::BY_CLIENT }>,
    pub watch_count: u32,
    pub holding: Chain<Hold, { holds::BY_CLIENT }>,
    pub hold_count: u32,
    /// How many of its holds somebody waits for.
    pub contended: u32,
    pub waiting: Chain<Waiter, { queues::BY_CLIENT }>,
    pub wait_count: u32,
    /// Its places in queues: a wait for several keys has several.
    pub place_count: u32,
    /// The wait for whose end the connection stands still.
    pub blocked: Option<Id<Waiter>>,
    ending: Link<Client>,
}

const ENDING: usize = 0;

impl Chained<ENDING> for Client {
    fn link(&self) -> &Link<Self> {
        &self.ending
    }
    fn link_mut(&mut self) -> &mut Link<Self> {
        &mut self.ending
    }
}

/// Invariant: `by_id` names each record whose connection lives, and those only. A record stays
/// until its connection ends (a client that locks in a loop is not forgotten after each round),
/// and after that, in `ended`, until nothing is bound to it.
#[derive(Default)]
pub(super) struct Clients {
    records: Arena<Client>,
    by_id: HashMap<ClientId, Id<Client>>,
    /// The longest dead first.
    ended: Chain<Client, ENDING>,
    former: Option<Id<Client>>,
}

/// An id that no connection has.
const NOBODY: ClientId = ClientId(0);

impl Client {
    fn new(id: ClientId) -> Self {
        Client {
            id,
            ended: false,
            guarded: false,
            watching: Chain::default(),
            watch_count: 0,
            holding: Chain::default(),
            hold_count: 0,
            contended: 0,
            waiting: Chain::default(),
            wait_count: 0,
            place_count: 0,
            blocked: None,
            ending: Link::default(),
        }
    }
}

impl Clients {
    /// O(1).
    pub fn find(&self, id: ClientId) -> Option<Id<Client>> {
        self.by_id.get(&id).copied()
    }

    /// The connection's record, made where there is none; and whether it was made. O(1).
    pub fn find_or_add(&mut self, id: ClientId) -> (Id<Client>, bool) {
        if let Some(&found) = self.by_id.get(&id) {
            return (found, false);
        }
        let made = self.records.insert(Client::new(id));
        self.by_id.insert(id, made);
        (made, true)
    }

    /// From now on no command can come from this connection. O(1).
    pub fn end(&mut self, id: Id<Client>) {
        self.records[id].ended = true;
        self.by_id.remove(&self.records[id].id);
        self.ended.push(&mut self.records, id);
        self.forget_if_done(id);
    }

    /// Whoever held something on a former server, and is not here. Ended, as its connections are.
    /// O(1).
    pub fn former(&mut self) -> Id<Client> {
        if let Some(former) = self.former {
            return former;
        }
        let former = self.records.insert(Client::new(NOBODY));
        self.records[former].ended = true;
        self.ended.push(&mut self.records, former);
        self.former = Some(former);
        former
    }

    pub fn is_former(&self, id: Id<Client>) -> bool {
        self.former == Some(id)
    }

    /// Forgets an ended connection to which nothing is bound any more. O(1).
    pub fn forget_if_done(&mut self, id: Id<Client>) {
        if self.records[id].ended && self.records[id].hold_count == 0 {
            self.ended.remove(&mut self.records, id);
            self.records.remove(id);
            self.former.take_if(|former| *former == id);
        }
    }

    /// The connection whose end is longest ago and to which something is bound still. O(1).
    pub fn first_ended(&self) -> Option<Id<Client>> {
        self.ended.head()
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
