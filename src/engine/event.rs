//! Every fact that the engine can be told.
//!
//! A fact carries what the keyspace says: the engine does not ask for it. When you add one, also give it a
//! place in the simulation's random worlds.

use crate::engine::mode::Mode;
use crate::engine::record::SessionRecord;
use crate::engine::terms::Terms;
use crate::engine::types::{
    Cause, ClientId, Db, Digest, Form, Key, KeyState, Loss, ReplyTo, SessionId, Token, Wait,
};

/// A key and what the keyspace has there at this moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeySnapshot<'a> {
    pub key: Key<'a>,
    pub standing: KeyState,
}

/// `SETTP`, `LOCK.ACQUIRE` or `LOCK.MACQUIRE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acquire<'a> {
    pub client: ClientId,
    /// The keys, each once; more than one only for an exclusive lock.
    pub seen: &'a [KeySnapshot<'a>],
    pub terms: Terms<&'a [u8]>,
    /// A temporary key's value.
    pub value: &'a [u8],
    pub wait: Option<Wait>,
    pub form: Form,
    /// The shell has the (only) key open, and can make it without being told its name.
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
    /// The least token that the hold is to have.
    pub token: Token,
    /// The greatest that the clock allows. What is not above a token that was given is allowed in any case.
    pub most: Token,
}

/// `SESSION.START`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start<'a> {
    pub client: ClientId,
    /// 128 random bits, in whatever form the client is to have them.
    pub secret: &'a [u8],
    /// The secret's.
    pub digest: Digest,
    pub grace_ms: u64,
    /// For whom it counts.
    pub user: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// Answered by one reply, or by a block and one answer later. Writes.
    Acquire(Acquire<'a>),
    /// `DELTP`. Answered by one reply; keys may be repeated. Writes.
    Drop {
        client: ClientId,
        keys: &'a [Key<'a>],
    },
    /// `LOCK.RELEASE`, of one depth or of all. Answered by one reply. Writes.
    Release {
        client: ClientId,
        key: Key<'a>,
        label: &'a [u8],
        all: bool,
    },
    /// `LOCK.EXTEND`. Answered by one reply. Writes.
    Extend {
        client: ClientId,
        key: Key<'a>,
        label: &'a [u8],
        lease_ms: u64,
    },
    /// Answered by one reply. Writes.
    Raise(Raise<'a>),
    /// `LOCK.CANCEL`. Answered by one reply. Writes nothing.
    Cancel {
        client: ClientId,
        key: Key<'a>,
        label: &'a [u8],
    },
    /// `WATCHEX`. Answered by one reply; keys may be repeated.
    Watch {
        client: ClientId,
        seen: &'a [KeySnapshot<'a>],
    },
    /// `UNWATCHEX` with keys. Answered by one reply; keys may be repeated.
    Unwatch {
        client: ClientId,
        keys: &'a [Key<'a>],
    },
    /// `UNWATCHEX` without a key. Answered by one reply.
    UnwatchAll { client: ClientId },
    /// Answered by one reply. Replicated.
    Start(Start<'a>),
    /// `SESSION.RESUME`, of the session with this digest. Answered by one reply. Writes nothing.
    Resume {
        client: ClientId,
        digest: Digest,
        /// To be told of what the session loses, as far as that was asked for.
        notify: bool,
    },
    /// `SESSION.END`. Answered by one reply. Writes.
    EndSession {
        client: ClientId,
        /// What the session holds cannot be touched in this callback: it is orphaned.
        later: bool,
    },
    /// `SESSION.KILL`, whoever has it. Answered by one reply. Writes.
    KillSession {
        session: SessionId,
        /// As of `EndSession`.
        later: bool,
    },
    /// `SESSION.DETACH`. Answered by one reply. Writes nothing.
    Detach { client: ClientId },

    /// A blocked connection is to go on as if its time were over (`CLIENT UNBLOCK`). Answered by one
    /// reply.
    Unblocked { client: ClientId },
    /// A connection that was just to be blocked cannot be: it waits for nothing. Answered by one reply.
    BlockRefused { client: ClientId },
    /// A blocked connection's wait ended without us, and it has been answered or is gone. What it was
    /// granted in the same moment it does not know of, and does not get.
    Abandoned {
        client: ClientId,
        granted: Option<Token>,
    },

    /// Another client made a key, or another module wrote over one that was there, which
    /// ends no hold. Need not be told before the first watch or request with a wait. (A key that no living connection
    /// holds has been `Replaced`.)
    Made { key: Key<'a> },
    /// Another client put a key in the place of what stood there, if anything did. Follows `Made`.
    Replaced { key: Key<'a>, by: Cause },
    /// Another client has written a string into a key that is [orphaned](super::Engine::is_orphaned): it is that one's now.
    TakenOver { key: Key<'a> },
    /// A key went, and its owner did not remove it.
    Gone { key: Key<'a>, by: Cause, why: Loss },
    /// A key went because it goes by another name from now on; its new name follows.
    MovedFrom { key: Key<'a> },
    /// The name by which a key goes from now on, in the place of what stood there: of the key that just
    /// went, or of one that nobody knows. Follows `Made`.
    MovedTo { key: Key<'a>, by: Cause },
    /// A key was given a time to live. Its next owner shall not inherit that.
    Timed { key: Key<'a> },
    /// A key has no time to live but the backstop that the master gave it.
    Renewed { key: Key<'a> },
    /// A look shows that a key has no time to live: somebody took it away, or overwrote the key.
    Untimed { key: Key<'a> },
    /// A key that is not there is another server's to make from now on (its slot moved in a cluster): nobody
    /// can wait for it here.
    Elsewhere { key: Key<'a> },
    /// A key that may be there is another server's from now on, of which the server tells nothing: nobody can wait for it here,
    /// and who holds it here has lost it. May write.
    Disowned { key: Key<'a> },
    /// All keys of one database, or of all, went.
    Flushed { db: Option<Db>, by: Cause },
    /// Two databases have exchanged their contents. Unless data are loaded, followed by `Found` for each key that is watched or
    /// waited for in them and of which nothing was told meanwhile: see [`Engine::next_stale_name`](super::Engine::next_stale_name).
    Swapped { one: Db, other: Db },
    /// A fresh look at a known key after a change without events.
    Found {
        seen: KeySnapshot<'a>,
        /// Should it not be there.
        gone: Loss,
    },

    /// A key is held on behalf of a connection of a former server: it comes from a master's stream,
    /// the append-only file or an RDB file. On a master, unless data are loaded, a key that somebody holds is left alone.
    Inherited {
        key: Key<'a>,
        mode: Mode,
        /// That of the grant which made it, where it is told of.
        token: Option<Token>,
    },
    /// What sessions hold on a former server. Comes as `Inherited` does.
    SessionRecord(&'a SessionRecord),
    /// A data set is about to be loaded in the place of all that is there: what is held is lost, as by a flush, and sessions and what
    /// is inherited come with it. Watchers are told what is different when it is there. Until then nothing may be written.
    LoadBegins,
    /// The data set is there. Followed by `Found` for every key that somebody here watches, holds or waits for. Connections go on
    /// with their sessions that it has.
    LoadEnded,

    /// All that was replicated until now ends at this offset.
    Propagated { offset: u64 },
    /// So many replicas have received all that belongs to the grant with this token.
    Acknowledged { token: Token, replicas: u32 },
    /// So many replicas are connected.
    Replicas { count: u32 },

    /// A connection is no more.
    Ended { client: ClientId },
    /// Continue the sweep after a flush, and remove the watches and waits of ended connections, in so many steps. Writes nothing.
    Reap { steps: usize },
    /// This server has a master from now on, and keys are that one's affair. In a cluster, whoever waits is redirected to it.
    Demoted { redirect: bool },
    /// This server has no master any more, and what it knows of keys is its own affair.
    Promoted,
    /// The server has started and has its data: nothing is granted for so many milliseconds. With 0, what was so ends.
    Quarantine { ms: u64 },
    /// Time has passed: end the waits whose time is over.
    Tick,
    /// A command is about to look at keys and may write them: end expired leases first, in so many steps, the oldest first.
    Lapse { steps: usize },
    /// The same for these keys only, however many.
    LapseOf { keys: &'a [Key<'a>] },
    /// Times to live may be shorter than the engine believes: every temporary key is renewed soon.
    RenewAll,
    /// TTLs may be set, though the keyspace may not be written otherwise: refresh them, in so many steps.
    Renew { steps: usize },
    /// The keyspace may be written now: do what was deferred, in so many steps.
    Work { steps: usize },
}

/// How well the time of a fact must be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    Exact,
    /// To some milliseconds, and not ahead.
    Late,
    /// Not at all: what is given may be as old as it likes.
    Any,
}

impl Event<'_> {
    /// Whether this may come between the two names of a key that is being renamed or moved, without harm to its holds: it ends none
    /// but of the keys that it names.
    pub(in crate::engine) fn spares_key_in_transit(&self) -> bool {
        matches!(
            self,
            Event::MovedTo { .. }
                | Event::Watch { .. }
                | Event::Made { .. }
                | Event::Replaced { .. }
                | Event::TakenOver { .. }
                | Event::Gone { .. }
                | Event::Timed { .. }
                | Event::Renewed { .. }
                | Event::Untimed { .. }
                | Event::Elsewhere { .. }
                | Event::Disowned { .. }
                | Event::Found { .. }
        )
    }

    /// How well its time must be known where nobody waits and nothing ends by itself.
    pub(super) fn timing(&self) -> Timing {
        match self {
            Event::Acquire(ask)
                if ask.wait.is_none()
                    && ask.terms.lease_ms.is_none()
                    && ask.terms.acks.is_none() =>
            {
                Timing::Late
            }
            Event::Drop { .. }
            | Event::Gone { .. }
            | Event::Release { .. }
            | Event::Watch { .. }
            | Event::Unwatch { .. }
            | Event::Made { .. } => Timing::Any,
            _ => Timing::Exact,
        }
    }
}
