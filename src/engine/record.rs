//! What is persisted, and told from one server to the next: by a master's stream, the append-only file, an RDB file.
//!
//! Only sessions go on at another server, so of these all is told. Of other keys it is told that they are held, and in what
//! mode ([`Event::Inherited`](super::event::Event::Inherited)), for their owners are connections, which end with their server.

use crate::engine::terms::Terms;
use crate::engine::types::{Digest, KeyBuf, SessionId, Token};

/// What sessions hold. Each can be told again without harm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionRecord {
    /// There is a session.
    Session {
        id: SessionId,
        digest: Digest,
        grace_ms: u64,
    },
    /// There is no such session any more. What it still holds is orphaned.
    SessionEnded(SessionId),
    /// A session holds a key, in this way and no other.
    Held(Held),
    /// A session does not hold a key any more, and the key is still there.
    Freed {
        session: SessionId,
        key: KeyBuf,
        label: Box<[u8]>,
    },
}

/// How a session holds a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub session: SessionId,
    pub key: KeyBuf,
    /// With what is left of its lease.
    pub terms: Terms<Box<[u8]>>,
    pub depth: u32,
    /// Below an exclusive hold: how often its owner has also taken it shared.
    pub shared_below: u32,
    pub token: Token,
    /// Somebody gave this temporary key a time to live, which goes before its backstop.
    pub timed: bool,
}
