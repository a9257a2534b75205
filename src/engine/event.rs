//! The engine's input: every event that it handles.
//!
//! An event carries the state of its keys: the engine never looks it up. When you add an event, add it to the simulation's
//! random worlds, too.

use crate::engine::mode::Mode;
use crate::engine::record::SessionRecord;
use crate::engine::terms::Terms;
use crate::engine::types::{
    Cause, ClientId, Db, Digest, Form, Key, KeyState, Loss, ReplyTo, SessionId, Token, Wait,
};

/// A key and its state in the keyspace at the time of the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySnapshot<'a> {
    pub key: Key<'a>,
    pub state: KeyState,
}

/// `SETTP`, `LOCK.ACQUIRE` or `LOCK.MACQUIRE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acquire<'a> {
    pub client: ClientId,
    /// Distinct keys; more than one only for an exclusive lock.
    pub seen: &'a [KeySnapshot<'a>],
    pub terms: Terms<&'a [u8]>,
    /// A temporary key's value.
    pub value: &'a [u8],
    pub wait: Option<Wait>,
    pub form: Form,
    /// The shell has the only key open: the grant is emitted as `CreateKey`, not as `Make` or `MakeLock`.
    pub in_command: bool,
}

impl Acquire<'_> {
    pub(super) fn reply_to(&self) -> ReplyTo {
        ReplyTo {
            client: self.client,
            form: self.form,
            push: self.wait.is_some_and(|wait| wait.push),
        }
    }
}

/// `LOCK.RAISE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raise<'a> {
    pub client: ClientId,
    pub key: Key<'a>,
    pub label: &'a [u8],
    /// The hold's token is raised to at least this one.
    pub token: Token,
    /// The greatest token that the clock allows. Tokens up to the last one granted are always allowed.
    pub most: Token,
}

/// `SESSION.START`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start<'a> {
    pub client: ClientId,
    /// 128 random bits, encoded as the client gets them.
    pub secret: &'a [u8],
    pub digest: Digest,
    pub grace_ms: u64,
    /// See [`Limits::sessions_per_user`](super::Limits::sessions_per_user).
    pub user: &'a [u8],
}

/// `WATCHTP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchPrefix<'a> {
    pub client: ClientId,
    /// Not empty.
    pub prefix: Key<'a>,
    /// With the next page of a watch.
    pub goes_on: bool,
    pub keys_only: bool,
    /// What the connection may see, as a number: it has another when its user or the user's rights are others.
    pub sight: u64,
    /// Keys of the page, if that is less than [`Limits::keys_per_page`](super::Limits::keys_per_page).
    pub at_most: usize,
}

/// Each event up to `BlockRefused` emits one reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// Emits a block instead of the reply if it waits, and one answer later. Writes.
    Acquire(Acquire<'a>),
    /// `DELTP`. Keys may be repeated. Writes.
    Drop {
        client: ClientId,
        keys: &'a [Key<'a>],
    },
    /// `LOCK.RELEASE`: of one depth; or of `all`, and of what the owner waits for. Writes.
    Release {
        client: ClientId,
        key: Key<'a>,
        label: &'a [u8],
        all: bool,
    },
    /// `LOCK.EXTEND`. Writes.
    Extend {
        client: ClientId,
        key: Key<'a>,
        label: &'a [u8],
        lease_ms: u64,
    },
    /// Writes.
    Raise(Raise<'a>),
    /// `LOCK.CANCEL`. Writes nothing.
    Cancel {
        client: ClientId,
        key: Key<'a>,
        label: &'a [u8],
    },
    /// `WATCHEX`. Keys may be repeated.
    Watch {
        client: ClientId,
        seen: &'a [KeySnapshot<'a>],
    },
    /// `UNWATCHEX` with keys, which may be repeated.
    Unwatch {
        client: ClientId,
        keys: &'a [Key<'a>],
    },
    /// `UNWATCHEX` without keys.
    UnwatchAll { client: ClientId },
    /// `WATCHTP`.
    WatchPrefix(WatchPrefix<'a>),
    /// `UNWATCHTP`, of one prefix or of all.
    UnwatchPrefix {
        client: ClientId,
        prefix: Option<Key<'a>>,
    },
    /// Replicated.
    Start(Start<'a>),
    /// `SESSION.RESUME` of the session with this digest. Writes nothing.
    Resume {
        client: ClientId,
        digest: Digest,
        /// The connection gets LOST for the session's holds with NOTIFY.
        notify: bool,
    },
    /// `SESSION.END`. Writes.
    EndSession {
        client: ClientId,
        /// The keys cannot be written in this callback: the session's holds are orphaned.
        later: bool,
    },
    /// `SESSION.KILL`, attached or not. Writes.
    KillSession {
        session: SessionId,
        /// As in `EndSession`.
        later: bool,
    },
    /// `SESSION.DETACH`. Writes nothing.
    Detach { client: ClientId },

    /// Of the last page that a connection was answered with for this prefix only the keys up to this name were returned.
    PageCut {
        client: ClientId,
        prefix: Key<'a>,
        last: &'a [u8],
    },
    /// What these connections may see is not what it was when they began to watch prefixes: they are told of no key any more, and
    /// that each of their watches is over, which [`Event::Reap`] goes on with.
    SightLost { clients: &'a [ClientId] },
    /// A watched prefix belongs to another server now (its slot moved in a cluster): its watches end.
    PrefixElsewhere { prefix: Key<'a> },

    /// `CLIENT UNBLOCK`: the wait of a blocked connection ends as at its timeout.
    Unblocked { client: ClientId },
    /// The server refused `Effect::Block`: the wait ends.
    BlockRefused { client: ClientId },
    /// The server ended a connection's block itself, by a reply or by closing the connection. The connection never learns of
    /// this grant, which is taken back.
    Abandoned {
        client: ClientId,
        granted: Option<Token>,
    },

    /// Another client created a key, or another module wrote to one; no hold ends. Optional until the first watch or request with
    /// a wait. (If a key without a living owner was written to, the event is `Replaced`.)
    Made { key: Key<'a> },
    /// Another client created a key in place of whatever was there; follows `Made`. Or it wrote a string to an
    /// [orphaned](super::Engine::is_orphaned) key, which is its own now.
    Replaced { key: Key<'a>, by: Cause },
    /// A client wrote to a key, which stays; at the end of the step, and once for each key.
    Changed { key: Key<'a> },
    /// A key was removed, other than by an effect.
    Gone { key: Key<'a>, by: Cause, why: Loss },
    /// A key was renamed or moved; `MovedTo` follows.
    MovedFrom { key: Key<'a> },
    /// The new key of the one in `MovedFrom`, or of an unknown one, in place of whatever was there. Follows `Made`.
    MovedTo { key: Key<'a>, by: Cause },
    /// A key got a TTL, which its next owner must not inherit.
    Timed { key: Key<'a> },
    /// A key has no TTL except the backstop from the master.
    Renewed { key: Key<'a> },
    /// A lookup shows no TTL: a client removed it, or overwrote the key.
    Untimed { key: Key<'a> },
    /// An absent key belongs to another server now (its slot moved in a cluster): waits for it fail.
    Elsewhere { key: Key<'a> },
    /// A key that may be present belongs to another server now, and the server will emit no events for it: waits for it fail, and
    /// its holds are lost. Writes.
    Disowned { key: Key<'a> },
    /// All keys of one database, or of all databases, were removed.
    Flushed { db: Option<Db>, by: Cause },
    /// SWAPDB. Unless loading, `Found` follows for each name in these databases that no other event refreshes: see
    /// [`Engine::next_stale_name`](super::Engine::next_stale_name).
    Swapped { one: Db, other: Db },
    /// The result of a lookup after a change without events.
    Found {
        seen: KeySnapshot<'a>,
        /// The reason of the loss if the key is absent.
        gone: Loss,
    },

    /// A connection of another server holds a key, according to the master's stream, the append-only file or an RDB file. Ignored
    /// on a master for a held key, unless loading.
    Inherited {
        key: Key<'a>,
        mode: Mode,
        /// The grant's, if the record has it.
        token: Option<Token>,
    },
    /// A record of a session, or of its holds, from the same sources.
    SessionRecord(&'a SessionRecord),
    /// A load that replaces the data set begins: holds are lost, as by a flush, and sessions and foreign holds come with the data
    /// set. The keyspace may not be written until `LoadEnded`.
    LoadBegins,
    /// The data set is loaded. `Found` follows for every key that is watched, held or waited for, which notifies the watchers of
    /// changes. Connections stay attached to sessions that the data set has.
    LoadEnded,

    /// Everything replicated so far ends at this offset.
    Propagated { offset: u64 },
    /// This many replicas have acknowledged the grant with this token.
    Acknowledged { token: Token, replicas: u32 },
    /// The number of connected replicas.
    Replicas { count: u32 },

    /// A connection was closed.
    Ended { client: ClientId },
    /// Continue the sweep after a flush, and remove watches and waits of closed connections, in at most this many steps. Writes
    /// nothing.
    Reap { steps: usize },
    /// This server became a replica. In a cluster, waiting clients are redirected to the master.
    Demoted { redirect: bool },
    /// This server became a master.
    Promoted,
    /// Whether the server accepts writes. Releases are taken also where it does not: then, until it does or the next `Work`, nobody is
    /// granted what they free.
    Writes { accepted: bool },
    /// The server has started and loaded its data: grant nothing for this long. 0 ends a quarantine.
    Quarantine { ms: u64 },
    /// End the waits that have timed out.
    Tick,
    /// A command is about to look up keys and may write: end expired leases first, oldest first, in at most this many steps.
    Lapse { steps: usize },
    /// The same for these keys, however many.
    LapseOf { keys: &'a [Key<'a>] },
    /// TTLs may be shorter than the engine believes: refresh every temporary key soon.
    RenewAll,
    /// TTLs may be set, though the keyspace may not be written otherwise: refresh them, in at most this many steps.
    Renew { steps: usize },
    /// The keyspace may be written: do deferred work, in at most this many steps.
    Work { steps: usize },
}

/// The precision that an event's time needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    Exact,
    /// Up to some milliseconds in the past.
    Late,
    /// Any time in the past.
    Any,
}

impl Event<'_> {
    /// Whether the event may come between `MovedFrom` and `MovedTo` without loss of the key in transit: it ends only holds of the
    /// keys that it names.
    pub(in crate::engine) fn spares_key_in_transit(&self) -> bool {
        matches!(
            self,
            Event::MovedTo { .. }
                | Event::Watch { .. }
                | Event::Made { .. }
                | Event::Replaced { .. }
                | Event::Gone { .. }
                | Event::Timed { .. }
                | Event::Renewed { .. }
                | Event::Untimed { .. }
                | Event::Elsewhere { .. }
                | Event::Disowned { .. }
                | Event::Found { .. }
                | Event::Changed { .. }
                | Event::SightLost { .. }
        )
    }

    /// The precision that its time needs while no client waits and no timer is set.
    pub(super) fn timing(&self) -> Timing {
        match self {
            Event::Acquire(ask)
                if ask.wait.is_none()
                    && ask.terms.lease_ms.is_none()
                    && ask.terms.acks.is_none() =>
            {
                Timing::Late
            }
            // The time of the hold that ends is counted.
            Event::Drop { .. } | Event::Gone { .. } | Event::Release { .. } => Timing::Late,
            Event::Watch { .. } | Event::Unwatch { .. } | Event::Made { .. } => Timing::Any,
            _ => Timing::Exact,
        }
    }
}
