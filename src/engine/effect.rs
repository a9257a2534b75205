//! Every order that the engine can give.
//!
//! The shell carries them out in order, after the engine has been let go: what an order causes
//! comes back as facts, with [`Hand::Ours`](super::event::Hand::Ours).

use super::id::{ClientId, KeyBuf};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Answer the command in hand.
    Reply(Reply),
    /// Make the key of the command in hand, with its value.
    Make,
    /// Remove this key, as `DEL` would.
    Remove(KeyBuf),
    /// Send a frame to each of these connections, in this order.
    Push { to: Vec<ClientId>, push: Push },
    /// From now on pushes may go to this connection at any time.
    Attend(ClientId),
    /// From now on this connection's death matters: notice it soon.
    Guard(ClientId),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Integer(i64),
    /// Whether each of the keys asked for exists; a single one is not wrapped in an array.
    States(Vec<bool>),
    Refused(Refusal),
}

/// Why a command changes nothing: the client's doing, not a fault of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    TooManyWatches { limit: u32 },
    TooManyKeys { limit: u32 },
}

/// What a frame tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    pub key: KeyBuf,
    pub news: News,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// `watchex <key> ADD`
    Added,
    /// `watchex <key> DEL`
    Deleted,
    /// `settp <key> LOST`, to a connection that speaks RESP3
    Lost,
}
