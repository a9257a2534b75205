//! All rows of the engine and the links between them. Read this page first.
//!
//! Each table (`state/`) keeps its rows in an arena. A row refers to another by a 4-byte id. Where one row has many of another
//! kind, it has the list head and they have the links (intrusive lists): link and unlink are O(1), and a list allocates
//! nothing.
//!
//! ```text
//!     HeldKey                          Client: a connection, or a session
//!     |                                |  |  |  \
//!     |    Name                        |  |  |   \
//!     |    |  +--watchers--  Watch  --watching |    Session   what only a session has, besides its Client
//!     +----------holds-----  Hold  ----holding |
//!          |                |          |       |
//!          |               Extra: attributes that few holds have; a list for each task of a Client
//!          |                           |       |
//!          +----queue--  QueueEntry --places-- Waiter --waiting
//!                        one key of a          one request
//!                        request
//!
//!     PendingGrant: a grant with ACKS that replicas have not acknowledged yet, and its holds
//!     Prefix --watchers-- PrefixWatch --prefixes-- Client
//! ```
//!
//! A `HeldKey` is a key that a client holds: RENAME, MOVE and SWAPDB move it, a flush deletes it. A `Name` is where clients watch
//! or wait: it stays, whatever happens to the key. Neither has the other's id: each is found by a lookup of the name.
//!
//! The tables' `Invariant:`s say the rest, and `check` asserts them. A client that neither watches, holds nor waits has no row,
//! nor has a key that nobody watches, holds or waits for.
//!
//! When you add a field: there can be millions of rows, and tests assert their sizes; see `Extra` for what few holds have.

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

/// A key that is held. It exists while it has a hold, and within a step until it is handed over or removed.
pub(in crate::engine) struct HeldKey {
    pub(super) name: Bytes,
    /// The name's.
    pub(super) hash: u32,
    pub(super) space: SpaceId,
    pub(super) flags: Flags,
    /// The modes of all its holds.
    pub(super) held: Modes,
    pub holds: Chain<Hold, { Hold::BY_KEY }>,
    pub hold_count: u32,
    /// By the holds of a semaphore.
    pub permits_taken: u32,
}

/// A name that is watched or waited for. It exists while it has a watcher or a waiter, or is ready.
pub(in crate::engine) struct Name {
    pub(super) name: Bytes,
    /// The name's.
    pub(super) hash: u32,
    pub(super) db: Db,
    /// The epoch of its database in which the key's state was last known.
    pub(super) seen: u32,
    pub(super) flags: Flags,
    pub watchers: Chain<Watch, { Watch::BY_NAME }>,
    pub queue: Chain<QueueEntry, { QueueEntry::BY_NAME }>,
    pub queue_length: u32,
}

/// Booleans of a key, one bit each.
#[derive(Clone, Copy, Default)]
pub(super) struct Flags(pub(super) u8);

/// The contents of a database between two flushes; SWAPDB swaps two spaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct SpaceId(pub(super) u32);

// ---- connections and sessions (clients.rs, sessions.rs) ----

/// Who watches, waits or holds. The record exists from the first request, or the start of the session, until the client is dead
/// and has left nothing behind.
pub(in crate::engine) struct Client {
    /// Of a session: the attached connection's, or `NOBODY`.
    pub id: ClientId,
    pub kind: ClientKind,
    /// Address, name and user of a connection that has ended, or of a session's last connection.
    pub origin: Option<Box<Origin>>,
    /// CLIENT KILL or the like ended this connection, or the session's last one.
    pub killed: bool,
    /// `TrackDisconnect` was emitted for this connection.
    pub disconnect_tracked: bool,
    pub watching: Chain<Watch, { Watch::BY_CLIENT }>,
    pub watch_count: u32,
    /// The summed lengths of the names it watches.
    pub watch_bytes: usize,
    pub prefixes: Chain<PrefixWatch, { PrefixWatch::BY_CLIENT }>,
    pub prefix_count: u32,
    /// The summed lengths of the prefixes it watches, and of the names up to which it was told.
    pub prefix_bytes: usize,
    /// Its watches of prefixes are over, of which it is still to be told.
    pub is_blind: bool,
    /// Where it stands among those who are told of a change; if another one, or nobody, stands there, it does not (a sparse set,
    /// after Briggs and Torczon).
    pub viewer: u32,
    pub holding: Chain<Hold, { Hold::BY_CLIENT }>,
    pub hold_count: u32,
    pub waiting: Chain<Waiter, { Waiter::BY_CLIENT }>,
    pub wait_count: u32,
    /// Its queue entries: one for each key of each wait.
    pub place_count: u32,
    /// The wait that blocks the connection.
    pub blocked: Option<Id<Waiter>>,
    pub(super) ending: Link<Client>,
    pub(super) reaping: Link<Client>,
}

pub(in crate::engine) enum ClientKind {
    /// With a session, that owns what it is granted.
    Connection { session: Option<Id<Client>> },
    /// It has holds, no watches and no waits.
    Session { attached: Option<Id<Client>> },
    /// All clients of another server that hold keys: this one's master, or the one that wrote the file. Nobody here is told
    /// of them, and on a master their holds are released.
    Foreign,
    /// Its holds block nobody and are released in slices, its waits and watches dropped.
    Dead(Death),
}

/// How a client died.
#[derive(Clone, Copy)]
pub(in crate::engine) enum Death {
    /// Its connection ended, or its grace, after so many flushes: its holds are logged under this reason.
    Lost { why: Loss, flushes: u32 },
    /// Its session was ended by a command or a load.
    Closed,
    /// It never lived: it has the holds of one withdrawn grant, which replicas know as those of this session.
    Withdrawn { session: Option<SessionId> },
}

/// What a session has besides its [`Client`]. It exists until the grace period expires or a client ends the session.
pub(in crate::engine) struct Session {
    pub id: SessionId,
    pub digest: Digest,
    pub grace_ms: u64,
    /// Its connection gets LOST for holds with NOTIFY whose tokens are greater.
    pub notify_after: Token,
    /// The number of times it was resumed.
    pub attachment: u32,
    /// When its grace expires. None while a connection is attached, on a replica, and while loading.
    pub(super) ends: Option<Moment>,
    /// The user who started it; none if it was started on another server.
    pub(super) user: Option<Box<[u8]>>,
}

// ---- watches (watches.rs) ----

/// A connection watches a name; at most one row per pair.
pub(in crate::engine) struct Watch {
    pub(super) name: Id<Name>,
    pub(super) client: Id<Client>,
    pub(super) by_name: Link<Watch>,
    pub(super) by_client: Link<Watch>,
}

// ---- watches of prefixes (prefixes.rs) ----

/// A prefix that is watched. It exists while it has a watcher.
pub(in crate::engine) struct Prefix {
    pub(super) name: Bytes,
    pub(super) db: Db,
    /// Of its database, as its watchers know it.
    pub(super) seen: Changes,
    pub(super) watchers: Chain<PrefixWatch, { PrefixWatch::BY_PREFIX }>,
}

/// How often all keys of a database went, or became others, since a prefix of it is watched.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Changes {
    pub flushes: u32,
    pub swaps: u32,
}

/// A connection watches the temporary keys with a prefix; at most one row per pair.
pub(in crate::engine) struct PrefixWatch {
    pub prefix: Id<Prefix>,
    pub client: Id<Client>,
    /// It is told of keys up to this name; of all, if none: its snapshot is complete.
    pub(super) told: Option<Bytes>,
    pub keys_only: bool,
    /// What its connection may see, in the shell's word; the same for all watches of a connection.
    pub sight: u64,
    pub(super) by_prefix: Link<PrefixWatch>,
    pub(super) by_client: Link<PrefixWatch>,
}

// ---- holds (holds.rs) ----

/// An owner (a connection or a session, with a label) holds a key, at whatever depth. All holds of one key have compatible modes.
/// A hold whose owner is dead is orphaned: it stays until it is released, and blocks nobody.
pub(in crate::engine) struct Hold {
    pub key: Id<HeldKey>,
    /// The owner: a connection, or a session.
    pub client: Id<Client>,
    pub token: Token,
    pub header: Header,
    pub by_key: Link<Hold>,
    pub by_client: Link<Hold>,
}

/// Mode, attributes and start of a hold, packed into eight bytes: see `header.rs`.
#[derive(Clone, Copy)]
pub(in crate::engine) struct Header(pub(super) u64);

/// What a plain hold (depth 1, no label, task, lease or permits) does not need. Allocated on first use, freed with the hold.
pub(in crate::engine) struct Extra {
    pub kept: Kept,
    /// Its hold, if its task has a name: see [`Terms::task`].
    pub hold: Option<Id<Hold>>,
    pub by_task: Link<Extra>,
    /// Unreleased acquisitions in its own mode.
    pub depth: u32,
    /// Of an exclusive hold: how often its owner has re-entered it as shared.
    pub shared_below: u32,
    pub lease: Option<Moment>,
    /// Its key was renamed since the grant.
    pub renamed: bool,
    /// The attachment of its session in which a re-entry last asked for NOTIFY; 0 for none.
    pub notify_attachment: u32,
    /// The token of the grant, if it was raised since.
    pub granted_as: Option<Token>,
    /// The grant with this token waits for acknowledgements.
    pub pending: Option<Token>,
}

impl Default for Extra {
    fn default() -> Self {
        Extra {
            kept: Kept::default(),
            hold: None,
            by_task: Link::default(),
            depth: 1,
            shared_below: 0,
            lease: None,
            renamed: false,
            notify_attachment: 0,
            granted_as: None,
            pending: None,
        }
    }
}

// ---- waits (queues.rs) ----

/// One request that waits, for all of its keys or none. It has an entry in the queue of each key, and exists until it is granted,
/// cancelled or timed out, or reaped after its connection has ended.
pub(in crate::engine) struct Waiter {
    pub client: Id<Client>,
    pub terms: Terms<Bytes>,
    /// A temporary key's value.
    pub value: Bytes,
    pub since: Moment,
    pub deadline: Option<Moment>,
    pub reply_to: ReplyTo,
    pub(super) places: Chain<QueueEntry, { QueueEntry::BY_WAITER }>,
    pub(super) by_client: Link<Waiter>,
    /// Links the task's waits that are answered by a push.
    pub(super) by_task: Link<Waiter>,
}

/// A waiter's entry in the queue of one key.
pub(in crate::engine) struct QueueEntry {
    pub(super) waiter: Id<Waiter>,
    pub(super) name: Id<Name>,
    pub(super) by_name: Link<QueueEntry>,
    pub(super) by_waiter: Link<QueueEntry>,
}

// ---- grants that wait for acknowledgements (acks.rs) ----

/// A grant that waits for acknowledgements; its holds are pending with its token. It exists until enough replicas have
/// acknowledged it, or it is withdrawn.
#[derive(Debug)]
pub(in crate::engine) struct PendingGrant {
    pub token: Token,
    pub requester: Requester,
    pub holds: Few<Id<Hold>>,
    /// The lease; it starts at the acknowledgement.
    pub lease_ms: Option<u64>,
    /// The number of replicas required.
    pub wanted: u32,
    /// The number at the last count.
    pub got: u32,
    /// The replication offset that acknowledges it, once known.
    pub offset: Option<u64>,
    pub deadline: Moment,
}

/// Where the outcome of a grant with ACKS is reported.
#[derive(Debug)]
pub(in crate::engine) struct Requester {
    pub reply_to: ReplyTo,
    /// The first key of the request.
    pub key: KeyBuf,
    pub label: Bytes,
}

// ---- links: the lists that a row can be in ----

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
    PrefixWatch: BY_PREFIX = 0, by_prefix;
    PrefixWatch: BY_CLIENT = 1, by_client;
    Hold: BY_KEY = 0, by_key;
    Hold: BY_CLIENT = 1, by_client;
    Extra: BY_TASK = 0, by_task;
    Waiter: BY_CLIENT = 0, by_client;
    Waiter: BY_TASK = 1, by_task;
    QueueEntry: BY_NAME = 0, by_name;
    QueueEntry: BY_WAITER = 1, by_waiter;
    Client: ENDING = 0, ending;
    Client: REAPING = 1, reaping;
}
