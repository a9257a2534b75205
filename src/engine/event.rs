//! Every fact that the engine can be told.
//!
//! A fact carries what the keyspace says: the engine never asks. When you add one, also give it a
//! place in the simulation's random worlds.

use super::id::{ClientId, Db, Key};

/// A key and whether the keyspace has it at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen<'a> {
    pub key: Key<'a>,
    pub present: bool,
}

/// Whose hand changed the keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hand {
    /// The engine's own: an effect is being carried out.
    Ours,
    /// A connection's, by a command of the server.
    Client(ClientId),
    /// Somebody's whom it is no use to name: expiry, eviction, a master's stream.
    Nobody,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// `SETTP`. Answered by one reply.
    Settp { client: ClientId, seen: Seen<'a> },
    /// `WATCHEX`. Answered by one reply; keys may be repeated.
    Watch {
        client: ClientId,
        seen: &'a [Seen<'a>],
    },
    /// `UNWATCHEX` with keys. Answered by one reply; keys may be repeated.
    Unwatch {
        client: ClientId,
        keys: &'a [Key<'a>],
    },
    /// `UNWATCHEX` without a key. Answered by one reply.
    UnwatchAll { client: ClientId },

    /// A key came into being, or its object was replaced by another in one step.
    Made { key: Key<'a>, by: Hand },
    /// A key went.
    Gone { key: Key<'a>, by: Hand },
    /// A key went because it goes by another name from now on; its new name follows.
    MovedFrom { key: Key<'a> },
    /// The new name of the key that just went. Told after `Made` for that name.
    MovedTo { key: Key<'a> },
    /// All keys of one database, or of all, went.
    Flushed { db: Option<Db>, by: Hand },
    /// Two databases have exchanged their contents. Followed by `Found` for what is watched in them.
    Swapped { one: Db, other: Db },
    /// A fresh look at a watched key after a change without events.
    Found { seen: Seen<'a> },

    /// A connection is no more.
    Ended { client: ClientId },
    /// The keyspace may be written now: remove what ended connections left, at most so many keys.
    Work { most: usize },
}
