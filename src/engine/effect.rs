//! The engine's output: every effect.
//!
//! The shell performs effects in order, after it has released the engine. It reports no keyspace events of keys that an effect
//! writes: the engine has recorded these changes already.

use crate::engine::mode::Mode;
use crate::engine::record::SessionRecord;
use crate::engine::storage::bytes::Bytes;
use crate::engine::types::{
    ClientId, Form, Key, KeyBuf, Kind, Loss, NoRight, Origin, ReplyTo, Since, Token,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Reply to the current command. The last effect, so that pushes to its client precede the reply.
    Reply(Reply),
    /// Block the current command's client until an `Answer`. If the server refuses:
    /// [`Event::BlockRefused`](super::event::Event::BlockRefused).
    Block,
    /// Unblock a client with this reply. If the client disconnects or the server unblocks it before the reply is written,
    /// [`Event::Abandoned`](super::event::Event::Abandoned) returns what was granted.
    Answer {
        client: ClientId,
        reply: Reply,
        granted: Option<Token>,
    },
    /// Create the current command's key, over any value: with the command's value, or as a lock. The grant is replicated, here and
    /// below.
    CreateKey { mode: Mode, token: Token },
    /// Create a temporary key with this value, over any value.
    Make {
        key: KeyBuf,
        value: Bytes,
        token: Token,
    },
    /// Create a lock, over any value.
    MakeLock {
        key: KeyBuf,
        mode: Mode,
        token: Token,
    },
    /// Replicate that tokens from this one on may be granted.
    ReplicateToken(Token),
    /// Replicate a change of a session or its holds.
    Replicate(Box<SessionRecord>),
    /// Delete this key, as `DEL` would.
    Remove(KeyBuf),
    /// If less than `least_ms` of this temporary key's TTL is left, set the TTL to `most_ms`. With 0, only if it has no TTL, and
    /// [`Event::Renewed`](super::event::Event::Renewed) reports that.
    Renew {
        key: KeyBuf,
        least_ms: u64,
        most_ms: u64,
    },
    /// Remove this temporary key's TTL.
    Persist(KeyBuf),
    /// Send a push to each of these connections, in this order.
    Push { to: Vec<ClientId>, push: Push },
    /// Push a change of a temporary key to the watchers of its prefixes.
    Presence(Box<Presence>),
    /// Prepare this connection for pushes at any time.
    EnablePush(ClientId),
    /// Detect this connection's end soon: from now on it matters.
    TrackDisconnect(ClientId),
    /// Start to count replicas' acknowledgements: a grant waits for them.
    CountAcks,
    /// Log a loss. Emitted after [`Engine::set_logs_losses`](crate::engine::Engine::set_logs_losses).
    Lost(Box<Lost>),
    /// This key, whose last loss the log may have, was granted again.
    NextHolder { key: KeyBuf, token: Token },
}

/// A change of a temporary key. The shell adds its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Presence {
    /// No connection twice.
    pub to: Vec<Viewer>,
    pub key: KeyBuf,
    /// `Added`, `Set` or `Gone`.
    pub change: PresenceChange,
}

/// A connection that watches a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Viewer {
    pub client: ClientId,
    /// Told without values, and not of a change of the value alone.
    pub keys_only: bool,
    /// See [`WatchPrefix`](crate::engine::WatchPrefix).
    pub sight: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PresenceChange {
    Added(Token),
    /// Its owner, and so its token, or its value changed.
    Set(Token),
    Gone(Token, Gone),
    /// Of a prefix: all its keys were deleted.
    Flushed,
    /// Of a prefix: the watch ended.
    Over(Over),
}

/// How a temporary key ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    Lost(Loss),
    /// By its owner; or its grant was withdrawn before the owner was told.
    Released,
    Renamed,
}

impl Gone {
    pub fn name(self) -> &'static str {
        match self {
            Gone::Lost(loss) => loss.name(),
            Gone::Released => "released",
            Gone::Renamed => "renamed",
        }
    }
}

/// Why a watch of a prefix ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    NoPermission,
    Moved,
    Swapped,
    Demoted,
    /// Another data set was loaded.
    Loaded,
}

impl Over {
    pub fn name(self) -> &'static str {
        match self {
            Over::NoPermission => "noperm",
            Over::Moved => "moved",
            Over::Swapped => "swapped",
            Over::Demoted => "demoted",
            Over::Loaded => "loaded",
        }
    }
}

/// A page of the snapshot of a watch. The shell adds the values, and may return less:
/// [`Event::PageCut`](super::event::Event::PageCut).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotPage {
    pub client: ClientId,
    pub prefix: KeyBuf,
    pub keys_only: bool,
    /// Names and tokens, sorted by name.
    pub entries: Vec<(Bytes, Token)>,
    /// No key of this prefix follows.
    pub is_last: bool,
}

/// A hold that its owner did not release; or many holds of one owner, lost at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Of many holds this and the following fields are those of the first.
    pub key: KeyBuf,
    pub token: Token,
    pub label: Box<[u8]>,
    /// The number of the owner's record: unique among the owners that exist at this time.
    pub owner: u32,
    /// [`NOBODY`](crate::engine::NOBODY) for a detached session.
    pub client: ClientId,
    /// None until the server has reported it.
    pub origin: Option<Box<Origin>>,
    pub mode: Mode,
    pub since: Since,
    pub why: Loss,
    pub waiters: usize,
    /// The owner loses many holds for this reason.
    pub is_one_of_many: bool,
    /// The number of holds.
    pub count: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Integer(i64),
    Null,
    /// Whether each key exists. For a single key the reply is no array.
    States(Vec<bool>),
    /// A page of a prefix's keys.
    Page(Box<SnapshotPage>),
    /// A new session's secret. It is not stored.
    Secret(Box<[u8]>),
    /// A created key, and its token.
    Made {
        name: Bytes,
        token: Token,
    },
    Refused(Refusal),
}

impl Form {
    /// The reply to a granted request; only that of a sequence has the key's name.
    pub fn granted(self, name: &[u8], token: Token) -> Reply {
        match self {
            Form::Settp => Reply::Integer(1),
            Form::SettpToken | Form::Lock | Form::Locks => Reply::Integer(token.0 as i64),
            Form::Sequence => {
                let name = name.into();
                Reply::Made { name, token }
            }
        }
    }

    pub fn not_granted(self) -> Reply {
        match self {
            Form::Settp | Form::SettpToken => Reply::Integer(0),
            Form::Lock | Form::Locks | Form::Sequence => Reply::Null,
        }
    }
}

/// How a wait ends.
pub(in crate::engine) enum WaitEnd {
    Granted(Token),
    TimedOut,
    Refused(Refusal),
}

impl WaitEnd {
    /// The effect that reports it, as a push or to the blocked client. The key is the request's first one.
    #[inline]
    pub fn told(self, to: ReplyTo, key: Key<'_>, label: &[u8]) -> Effect {
        let ReplyTo { client, form, push } = to;
        if push {
            let kind = form.kind();
            let news = match self {
                WaitEnd::Granted(token) => News::Granted(kind, token),
                WaitEnd::TimedOut => News::TimedOut(kind),
                WaitEnd::Refused(refusal) => News::Failed(kind, Box::new(refusal)),
            };
            let push = Push::new(key.to_owned(), news, label);
            let to = vec![client];
            return Effect::Push { to, push };
        }
        let (reply, granted) = match self {
            WaitEnd::Granted(token) => (form.granted(key.name, token), Some(token)),
            WaitEnd::TimedOut => (form.not_granted(), None),
            WaitEnd::Refused(refusal) => (Reply::Refused(refusal), None),
        };
        Effect::Answer {
            client,
            reply,
            granted,
        }
    }
}

/// Why a request is refused. It changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The quota of watched names' bytes, of one connection or of all.
    TooManyWatchBytes {
        limit: u32,
        of_client: bool,
    },
    TooManyWatches {
        limit: u32,
    },
    TooManyKeys {
        limit: u32,
    },
    /// The next names of the sequence exist already.
    SequenceTaken,
    /// The quota of the caller's user, or of all users.
    TooManySessions {
        limit: u32,
        of_user: bool,
    },
    /// All records for labels, tasks, leases, permits and depths are in use or reserved for waiters.
    TooManyExtras {
        limit: usize,
    },
    /// The key exists and is not a lock.
    WrongType,
    NotHeld,
    /// Another server of the cluster serves the key.
    Elsewhere {
        key: KeyBuf,
    },
    /// The client's user lost a right during the wait.
    NoRight(NoRight),
    /// The server refuses to block this connection.
    CannotBlock,
    /// This server became a replica during the wait.
    Unblocked,
    /// The owner holds the key in a mode that cannot be re-entered in the requested one.
    HeldOtherwise,
    /// The owner has re-entered the lock up to the limit.
    TooDeep {
        limit: u32,
    },
    /// The semaphore has another total.
    OtherTotal {
        total: u32,
    },
    /// The owner already holds this one of the requested keys, and not all of them.
    HeldAlready {
        key: KeyBuf,
    },
    /// The owner already holds all requested keys, with different tokens.
    HeldApart,
    /// The key is free, but the server was started so recently that a former holder may not know yet that it lost the key.
    Quarantine {
        left_ms: u64,
    },
    /// Too few replicas acknowledged the grant.
    NoAcks {
        got: u32,
        wanted: u32,
    },
    /// The token is too far ahead of this server's tokens and its clock: the greatest allowed is `most`.
    TokenAhead {
        most: Token,
    },
    /// ACKS needs a session.
    AcksWithoutSession,
    /// The index of this database's temporary keys is still being built.
    IndexIncomplete,
    /// AFTER needs a watch of this prefix.
    NotWatched,
    /// The quota of a connection.
    TooManyPrefixes {
        limit: u32,
    },
    /// The limit of different lengths of the watched prefixes of a database.
    TooManyPrefixLengths {
        limit: usize,
    },
    /// The session does not exist, or the connection has none.
    NoSession,
    /// The connection has a session already.
    HasSession,
    /// The connection has holds, which cannot become the session's.
    HoldsAlready,
    /// The connection waits for a key.
    WaitsAlready,
    /// The owner holds a key already, and not every request was REENTRANT.
    Reentry,
    /// The owner waits for a key already.
    WaitsForIt,
    /// The request would block behind its own connection, which holds the key or waits for it with another label. With PUSH it
    /// may wait.
    Standstill(Box<Waits>),
    /// Each client of the cycle would wait for the next one. The caller is the first.
    Deadlock {
        cycle: Vec<Waits>,
    },
}

/// A link of a cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waits {
    pub client: ClientId,
    pub label: Box<[u8]>,
    /// None if it is the label's.
    pub task: Option<Box<[u8]>>,
    /// The key that it waits for, and that the next client holds or waits for ahead of it.
    pub key: KeyBuf,
}

/// The content of a push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    pub key: KeyBuf,
    said: Said,
}

/// Few pushes have a label, so it is boxed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    Plain(News),
    Labelled(Box<(News, Box<[u8]>)>),
}

impl Push {
    /// `label`: of the request or hold.
    pub fn new(key: KeyBuf, news: News, label: &[u8]) -> Self {
        let said = match label {
            [] => Said::Plain(news),
            label => Said::Labelled(Box::new((news, label.into()))),
        };
        Push { key, said }
    }

    pub fn news(&self) -> &News {
        match &self.said {
            Said::Plain(news) => news,
            Said::Labelled(said) => &said.0,
        }
    }

    pub fn label(&self) -> &[u8] {
        match &self.said {
            Said::Plain(_) => &[],
            Said::Labelled(said) => &said.1,
        }
    }
}

/// The origin of a lost key's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameFrom {
    /// The request.
    Request,
    /// A later RENAME.
    Rename,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// `watchex <key> ADD`
    Added,
    /// `watchex <key> DEL`
    Deleted,
    /// `<kind> <key> <token>`
    Granted(Kind, Token),
    /// `<kind> <key> TIMEOUT`
    TimedOut(Kind),
    /// `<kind> <key> FAILED <code>`: the code of the error that a blocked client would get
    Failed(Kind, Box<Refusal>),
    /// `<kind> <key> LOST <why>`
    Lost(Kind, Loss, NameFrom),
    /// `watchtp <key> ...` or `watchtp <prefix> ...`
    Presence(Box<(PresenceChange, Option<Bytes>)>),
}

impl News {
    /// `value`: the key's, unless the watch is KEYSONLY.
    pub fn of_presence(change: PresenceChange, value: Option<Bytes>) -> News {
        News::Presence(Box::new((change, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each is moved several times on its way to the shell.
    #[test]
    fn an_effect_is_small() {
        assert_eq!(size_of::<Effect>(), 72);
    }
}
