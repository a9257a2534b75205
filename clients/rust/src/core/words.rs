//! The words that the core and its callers exchange.

use crate::error::{Error, Loss};

/// The number of a want or of a watch; never used again.
pub type Id = u64;

/// What a reply is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tag {
    Asked(Id),
    /// After a want was given up.
    Cancelled(Id),
    Released(Id),
    /// What token a hold has, which was to be raised.
    Raised(Id),
    /// Whether this key of a want is still held; if not, this is why.
    Looked(Id, Vec<u8>, Loss),
    /// Whether a want was granted before the former connection broke.
    Resumed(Id),
    /// This key is watched from now on.
    Watched(Vec<u8>),
    Unwatched(Vec<u8>),
    Search(Search),
    Ping,
}

/// A step of the search for holds that no want claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Search {
    /// Which server this is.
    Server,
    /// The number of this connection.
    Client,
    /// Some of the keys that the session holds.
    Page,
    /// Who holds this key.
    Holders(Vec<u8>),
    Released,
}

/// What the server replied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Number(u64),
    Null,
    Text(Vec<u8>),
    /// An array; or a map, as names and values in turn.
    Many(Vec<Reply>),
    /// Anything else that is no error.
    Other,
    /// An error, with its code as the first word.
    Error(String),
}

impl Reply {
    pub fn items(&self) -> &[Reply] {
        match self {
            Reply::Many(items) => items,
            _ => &[],
        }
    }

    /// The value of this name in a map.
    pub fn field(&self, name: &str) -> Option<&Reply> {
        let is_meant =
            |pair: &&[Reply]| matches!(&pair[0], Reply::Text(is) if is == name.as_bytes());
        let pair = self.items().chunks_exact(2).find(is_meant)?;
        Some(&pair[1])
    }
}

/// What a push is about: its first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    Lock,
    TemporaryKey,
    Watch,
}

/// What has become of a want.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// With this token.
    Granted(u64),
    Refused(Error),
    /// Its token is this one from now on.
    Raised(u64),
    /// It keeps its token.
    RaiseRefused(Error),
    /// It keeps its token for now, and is asked for again.
    RaiseDelayed(Error),
    Lost(Loss),
    /// Given back, or given up.
    Over,
}

impl Change {
    /// Whether no other follows.
    pub fn is_last(&self) -> bool {
        !matches!(
            self,
            Change::Granted(_)
                | Change::Raised(_)
                | Change::RaiseRefused(_)
                | Change::RaiseDelayed(_)
        )
    }
}

/// How often a want that was given up had been granted already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Races {
    pub cancel_first: u64,
    pub grant_first: u64,
}

/// What a [`Watch`](crate::Watch) says of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchEvent {
    /// As it was given.
    pub key: Vec<u8>,
    /// What is so from now on.
    pub change: KeyChange,
}

/// What becomes of a watched key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyChange {
    /// It exists when the watch begins.
    Exists,
    /// It does not exist when the watch begins.
    Missing,
    /// It appeared.
    Added,
    /// It disappeared.
    Deleted,
}

impl KeyChange {
    /// Whether the key exists from then on.
    pub fn is_there(self) -> bool {
        matches!(self, KeyChange::Exists | KeyChange::Added)
    }
}
