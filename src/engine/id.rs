//! The engine's words for "who", "which key" and "when": no bare integer leaves this file.

use std::fmt;

/// A connection, by the id that the server gave it. Never reused while the server lives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(pub u64);

/// A database's number (`SELECT`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Db(pub u32);

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
    pub name: Box<[u8]>,
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
