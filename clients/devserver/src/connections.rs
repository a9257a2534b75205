//! Who is connected, and what is to be sent to whom.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use tether::engine::{ClientId, Db};
use tokio::sync::Notify;

/// What the socket's tasks share with the machine.
#[derive(Default)]
pub struct Wire {
    pub out: RefCell<Vec<u8>>,
    /// There is something to send, the connection is to be closed, or it is not blocked any more.
    pub news: Notify,
    /// To be closed, once all is sent.
    pub is_over: Cell<bool>,
    /// Its command is not answered yet, and the next one waits.
    pub is_blocked: Cell<bool>,
}

impl Wire {
    pub fn send(&self, bytes: &[u8]) {
        self.out.borrow_mut().extend_from_slice(bytes);
        self.news.notify_one();
    }

    pub fn close(&self) {
        self.is_over.set(true);
        self.news.notify_one();
    }
}

pub struct Connection {
    pub wire: Rc<Wire>,
    pub db: Db,
    pub resp3: bool,
    pub may_speak: bool,
    pub addr: String,
    pub name: String,
}

/// The address of a connection over the Unix socket, whose peer cannot vanish.
pub const UNIX: &str = "unix";

pub const USER: &str = "default";

#[derive(Default)]
pub struct Connections {
    all: BTreeMap<ClientId, Connection>,
    last_id: u64,
}

impl Connections {
    pub fn add(&mut self, wire: Rc<Wire>, addr: String, may_speak: bool) -> ClientId {
        self.last_id += 1;
        let id = ClientId(self.last_id);
        let connection = Connection {
            wire,
            db: Db(0),
            resp3: false,
            may_speak,
            addr,
            name: String::new(),
        };
        self.all.insert(id, connection);
        id
    }

    /// None if it ended.
    pub fn get(&self, id: ClientId) -> Option<&Connection> {
        self.all.get(&id)
    }

    pub fn get_mut(&mut self, id: ClientId) -> Option<&mut Connection> {
        self.all.get_mut(&id)
    }

    pub fn remove(&mut self, id: ClientId) -> Option<Connection> {
        self.all.remove(&id)
    }

    pub fn iter(&self) -> impl Iterator<Item = (ClientId, &Connection)> {
        self.all.iter().map(|(id, connection)| (*id, connection))
    }

    /// Address, name and user.
    pub fn origin(&self, id: ClientId) -> Option<(String, String, String)> {
        let connection = self.all.get(&id)?;
        let Connection { addr, name, .. } = connection;
        Some((addr.clone(), name.clone(), USER.to_owned()))
    }
}
