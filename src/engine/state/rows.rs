//! All rows that the engine keeps, and what links them. Who is new here reads this page first.
//!
//! The engine is a handful of tables (`state/`), and each table keeps its rows in an arena. A row names another by an id of
//! four bytes. Where one row has many of another kind, it has the head of a chain and these have the links: so each row is
//! put into its chains and taken out of them in O(1), and no list has memory of its own.
//!
//! ```text
//!     HeldKey                          Client: a connection, or a session
//!     |                                |  |  |  \
//!     |    Name                        |  |  |   \
//!     |    |  +--watchers--  Watch  --watching |    Session   what only a session has, besides its Client
//!     +----------holds-----  Hold  ----holding |
//!          |                |          |       |
//!          |               Extra: what only few holds have; those of one owner (a Client with a label) are a chain
//!          |                           |       |
//!          +----queue--  QueueEntry --places-- Waiter --waiting
//!                        one key that is       one request
//!                        waited for
//!
//!     PendingGrant: a grant that replicas are to acknowledge; the holds that it made
//! ```
//!
//! A `HeldKey` is what somebody here holds: it moves with its key, and dies with a flush. A `Name` is where somebody watches or
//! waits: it stays, whatever comes and goes there. Neither names the other: each is found by the other's name.
//!
//! A row says here what it promises; its table's `Invariant:` says the rest, and `check` looks whether it holds. What needs no
//! row: who watches, holds or waits for nothing any more, and a key for which nobody cares.
//!
//! When you add a field: a row is small because there can be millions of it, which tests count; see `Extra` for what only few
//! have.

use crate::engine::mode::Modes;
use crate::engine::storage::arena::Id;
use crate::engine::storage::bytes::Bytes;
use crate::engine::storage::chain::{Chain, Chained, Link};
use crate::engine::storage::few::Few;
use crate::engine::terms::{Kept, Terms};
use crate::engine::types::{
    ClientId, Db, Digest, KeyBuf, Loss, Moment, Origin, ReplyTo, SessionId, Token,
};

// ---- keys (keys.rs) ----

/// A key that somebody here holds, wherever it goes. It is there as long as it has a hold; within a step also until it is handed
/// over or removed.
pub(in crate::engine) struct HeldKey {
    pub(super) name: Bytes,
    /// The name's.
    pub(super) hash: u32,
    pub(super) space: SpaceId,
    pub(super) marks: Marks,
    /// In which modes it is held: those of all its holds.
    pub(super) held: Modes,
    pub holds: Chain<Hold, { Hold::BY_KEY }>,
}

/// A name in a database that somebody watches or waits for. It is there as long as somebody does, or it is ready.
pub(in crate::engine) struct Name {
    pub(super) name: Bytes,
    /// The name's.
    pub(super) hash: u32,
    pub(super) db: Db,
    /// The epoch of its database in which it was last known what stands here.
    pub(super) seen: u32,
    pub(super) marks: Marks,
    pub watchers: Chain<Watch, { Watch::BY_NAME }>,
    pub queue: Chain<QueueEntry, { QueueEntry::BY_NAME }>,
}

/// Small facts about a key in few bytes. With millions of keys it counts.
#[derive(Clone, Copy, Default)]
pub(super) struct Marks(pub(super) u8);

/// What a database contains between two flushes: exchanging databases exchanges their spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct SpaceId(pub(super) u32);

// ---- connections and sessions (clients.rs, sessions.rs) ----

/// What the engine knows of one connection, or of one session. That of a connection is there from its first request until it
/// has ended and has left nothing; that of a session until the session is over and has left nothing.
pub(in crate::engine) struct Client {
    /// Of a session, the connection that is attached to it, or `NOBODY`.
    pub id: ClientId,
    /// It has ended; what it held waits to be removed, and what it waited for and watched to be forgotten.
    pub ended: bool,
    /// How that is called where what it held ends then; none where that is nobody's loss.
    pub ended_by: Option<Loss>,
    /// How many spaces were retired before.
    pub ended_after: u32,
    /// What it was, as far as the server told in time: of one that has ended, or of a session whose connection has.
    pub origin: Option<Box<Origin>>,
    /// It stands in `ended`, until its last hold has gone.
    pub(super) leaves_holds: bool,
    /// The shell was told that this connection's death matters.
    pub guarded: bool,
    /// It is a session's record: it holds, and neither watches nor waits.
    pub is_session: bool,
    /// The session to which belongs what this connection is granted.
    pub session: Option<Id<Client>>,
    /// The connection that is attached to this session.
    pub attached: Option<Id<Client>>,
    pub watching: Chain<Watch, { Watch::BY_CLIENT }>,
    pub watch_count: u32,
    /// Of the names that it watches.
    pub watch_bytes: usize,
    pub holding: Chain<Hold, { Hold::BY_CLIENT }>,
    pub hold_count: u32,
    pub waiting: Chain<Waiter, { Waiter::BY_CLIENT }>,
    pub wait_count: u32,
    /// Its places in queues: a wait for several keys has several.
    pub place_count: u32,
    /// The wait that blocks the connection.
    pub blocked: Option<Id<Waiter>>,
    pub(super) ending: Link<Client>,
    pub(super) fading: Link<Client>,
}

/// What only a session has, besides its [`Client`]. It is there until the session's grace is over or somebody ends it.
#[derive(Clone, Copy)]
pub(in crate::engine) struct Session {
    pub id: SessionId,
    pub digest: Digest,
    pub grace_ms: u64,
    /// Its connection is told of the loss of holds whose tokens are greater, as far as that was asked for.
    pub hears_after: Token,
    /// How often a connection has resumed it.
    pub attachment: u32,
    /// When its grace is over. None while somebody is attached, and while its end is not this server's affair.
    pub(super) ends: Option<Moment>,
    /// Who has started it; none if that was on another server.
    pub(super) user: Option<Id<User>>,
}

/// A user who has started sessions that are still there.
pub(super) struct User {
    pub name: Box<[u8]>,
    pub sessions: u32,
}

// ---- watches (watches.rs) ----

/// That one connection watches one key. No two are of the same connection and the same key.
pub(in crate::engine) struct Watch {
    pub(super) name: Id<Name>,
    pub(super) client: Id<Client>,
    pub(super) by_name: Link<Watch>,
    pub(super) by_client: Link<Watch>,
}

// ---- holds (holds.rs) ----

/// That one owner (a connection or a session, with a label) holds one key, however often it has taken it. All holds of one key
/// have modes that are compatible. One whose owner has ended is there until it is removed, and refuses nobody.
pub(in crate::engine) struct Hold {
    pub key: Id<HeldKey>,
    /// The owner: a connection, or a session.
    pub client: Id<Client>,
    pub token: Token,
    pub header: Header,
    pub by_key: Link<Hold>,
    pub by_client: Link<Hold>,
}

/// In eight bytes what each hold has besides: see `header.rs`.
#[derive(Clone, Copy)]
pub(in crate::engine) struct Header(pub(super) u64);

/// What a hold that is acquired once, without a label, a lease or permits does not have. Made when a hold comes to have any
/// of it, and there as long as that hold.
pub(in crate::engine) struct Extra {
    pub kept: Kept,
    /// Whose record this is, if it has a label.
    pub hold: Option<Id<Hold>>,
    pub by_owner: Link<Extra>,
    /// How often it was acquired and not yet released, in its mode.
    pub depth: u32,
    /// Below an exclusive hold: how often its owner has also taken it shared.
    pub shared_below: u32,
    pub lease: Option<Moment>,
    /// Its key has come to go by another name since it was granted.
    pub renamed: bool,
    /// In which of its session's attachments somebody last asked to be told of its loss while deepening it.
    pub asked_in: u32,
    /// The token with which it was granted, if it was raised since.
    pub granted_as: Option<Token>,
    pub ack: Ack,
}

impl Default for Extra {
    fn default() -> Self {
        Extra {
            kept: Kept::default(),
            hold: None,
            by_owner: Link::default(),
            depth: 1,
            shared_below: 0,
            lease: None,
            renamed: false,
            asked_in: 0,
            granted_as: None,
            ack: Ack::Settled,
        }
    }
}

/// What a hold is to the acknowledgements of its grant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::engine) enum Ack {
    /// It is its owner's.
    #[default]
    Settled,
    /// Its grant has this token, and waits for acknowledgements.
    Pending(Token),
    /// Its owner was told that it has not got it: it ends as soon as the keyspace may be written.
    Withdrawn,
}

// ---- waits (queues.rs) ----

/// One request that waits, for all of its keys or none. It has a place in the queue of each of them, and is there until it is
/// granted them, gives up, or its connection has ended and it is forgotten.
pub(in crate::engine) struct Waiter {
    pub client: Id<Client>,
    pub terms: Terms<Bytes>,
    /// A temporary key's value.
    pub value: Bytes,
    pub since: Moment,
    pub deadline: Option<Moment>,
    pub reply_to: ReplyTo,
    pub(super) rights: Stamp,
    pub(super) places: Chain<QueueEntry, { QueueEntry::BY_WAITER }>,
    pub(super) by_client: Link<Waiter>,
    /// Among the owner's waits that are told by a push.
    pub(super) by_owner: Link<Waiter>,
}

/// Of how many changes a waiter's rights are known.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Stamp(pub(super) u32);

/// One waiter's place in one key's queue. It keeps its place until the waiter leaves that queue.
pub(in crate::engine) struct QueueEntry {
    pub(super) waiter: Id<Waiter>,
    pub(super) name: Id<Name>,
    /// At the head of a queue: how many places that has.
    pub(super) length: u32,
    pub(super) by_name: Link<QueueEntry>,
    pub(super) by_waiter: Link<QueueEntry>,
}

// ---- grants that wait for acknowledgements (acks.rs) ----

/// A grant that waits for acknowledgements. Its holds are [`Ack::Pending`] with its token. It is there until enough replicas
/// have acknowledged it, or it is withdrawn.
#[derive(Debug)]
pub(in crate::engine) struct PendingGrant {
    /// Its name.
    pub token: Token,
    pub asker: Asker,
    pub holds: Few<Id<Hold>>,
    /// The lease, which begins when the grant is acknowledged.
    pub lease_ms: Option<u64>,
    /// How many replicas are to acknowledge it.
    pub wanted: u32,
    /// How many had done so when this was last looked at.
    pub got: u32,
    /// What they are to have received for that, once it is known.
    pub offset: Option<u64>,
    pub deadline: Moment,
}

/// Who asked for a grant, and how that one is told.
#[derive(Debug)]
pub(in crate::engine) struct Asker {
    pub reply_to: ReplyTo,
    /// The first key, as it was asked for.
    pub key: KeyBuf,
    pub label: Bytes,
}

// ---- links: in which chains a row can stand ----

macro_rules! links {
    ($($row:ident: $list:ident = $number:literal, $link:ident;)*) => {$(
        impl $row {
            pub(in crate::engine) const $list: usize = $number;
        }

        impl Chained<$number> for $row {
            fn link(&self) -> &Link<Self> {
                &self.$link
            }
            fn link_mut(&mut self) -> &mut Link<Self> {
                &mut self.$link
            }
        }
    )*};
}

links! {
    Watch: BY_NAME = 0, by_name;
    Watch: BY_CLIENT = 1, by_client;
    Hold: BY_KEY = 0, by_key;
    Hold: BY_CLIENT = 1, by_client;
    Extra: BY_OWNER = 0, by_owner;
    Waiter: BY_CLIENT = 0, by_client;
    Waiter: BY_OWNER = 1, by_owner;
    QueueEntry: BY_NAME = 0, by_name;
    QueueEntry: BY_WAITER = 1, by_waiter;
    Client: ENDING = 0, ending;
    Client: FADING = 1, fading;
}
