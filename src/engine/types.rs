//! The engine's words for "who", "which key" and "when": no bare integer leaves this file.

use crate::engine::storage::bytes::Bytes;
use std::fmt;

/// A connection, by the id that the server gave it. Never reused while the server lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(pub u64);

/// A session, on every server that is told of it. No two ever have the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionId(pub u64);

/// What is kept of a session's secret: SHA-256, from which the secret cannot be had.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Digest(pub [u8; 32]);

/// A database's number (`SELECT`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Db(pub u32);

impl Db {
    /// The number of this database once these two have exchanged theirs.
    pub(super) fn exchanged(self, one: Db, other: Db) -> Db {
        match self {
            of if of == one => other,
            of if of == other => one,
            of => of,
        }
    }
}

/// A key, borrowed: any bytes, in one database.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key<'a> {
    pub db: Db,
    pub name: &'a [u8],
}

impl Key<'_> {
    /// The same key, owned.
    pub fn to_owned(self) -> KeyBuf {
        KeyBuf {
            db: self.db,
            name: self.name.into(),
        }
    }
}

impl fmt::Debug for Key<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.db.0, self.name.escape_ascii())
    }
}

/// A key, owned.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyBuf {
    pub db: Db,
    pub name: Bytes,
}

impl KeyBuf {
    /// The same key, borrowed.
    pub fn as_key(&self) -> Key<'_> {
        Key {
            db: self.db,
            name: &self.name,
        }
    }
}

impl fmt::Debug for KeyBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_key().fmt(f)
    }
}

/// A moment, in microseconds on a clock that never goes back; only differences mean something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Moment(pub u64);

impl Moment {
    /// The moment so many milliseconds later.
    pub fn after_ms(self, ms: u64) -> Moment {
        Moment(self.0.saturating_add(ms.saturating_mul(1000)))
    }

    /// The milliseconds from an earlier moment to this one; 0 if it is not earlier.
    pub fn ms_since(self, earlier: Moment) -> u64 {
        self.us_since(earlier) / 1000
    }

    /// The microseconds from an earlier moment to this one; 0 if it is not earlier.
    pub fn us_since(self, earlier: Moment) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
