//! Every effect: what the engine can ask its surroundings to do.
//!
//! The shell carries them out in order, after the engine has been let go. What becomes of a key by
//! an order is not told back: the engine knows it.

use crate::engine::mode::Mode;
use crate::engine::record::SessionRecord;
use crate::engine::storage::bytes::Bytes;
use crate::engine::types::{
    ClientId, Form, KeyBuf, Kind, Loss, NoRight, Origin, ReplyTo, Since, Token,
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Answer the current command: the last effect, so that what its connection is told by the others comes before.
    Reply(Reply),
    /// Do not answer the current command yet: its connection waits for an `Answer`. If the server does not let it:
    /// [`Event::BlockRefused`](super::event::Event::BlockRefused).
    Block,
    /// End a connection's block with this answer. Should the server answer it in another way before
    /// this one is written, [`Event::Abandoned`](super::event::Event::Abandoned) names what was
    /// granted.
    Answer {
        client: ClientId,
        reply: Reply,
        granted: Option<Token>,
    },
    /// Make the current command's key, in place of whatever stands there: with its value, or as
    /// a lock. Replicas and the append-only file are told of the grant, here and below.
    CreateKey { mode: Mode, token: Token },
    /// Make a key with this value, in place of whatever stands there.
    Make {
        key: KeyBuf,
        value: Bytes,
        token: Token,
    },
    /// Make a lock at this key, in place of whatever stands there.
    MakeLock {
        key: KeyBuf,
        mode: Mode,
        token: Token,
    },
    /// Tell replicas and the append-only file that tokens from this one on may be given.
    ReplicateToken(Token),
    /// Tell replicas and the append-only file what sessions hold.
    Replicate(Box<SessionRecord>),
    /// Remove this key, as `DEL` would.
    Remove(KeyBuf),
    /// See that this temporary key has at least so much of its time left; give it `most_ms` if not. With 0, only
    /// if it has no time to live at all, which is then a fact: [`Event::Renewed`](super::event::Event::Renewed).
    Renew {
        key: KeyBuf,
        least_ms: u64,
        most_ms: u64,
    },
    /// Take this temporary key's time to live away.
    Persist(KeyBuf),
    /// Send a frame to each of these connections, in this order.
    Push { to: Vec<ClientId>, push: Push },
    /// Tell who watches prefixes of a temporary key that it came, changed or went.
    Presence(Box<Presence>),
    /// From now on pushes may go to this connection at any time.
    EnablePush(ClientId),
    /// From now on this connection's death matters: notice it soon.
    TrackDisconnect(ClientId),
    /// There is a grant whose acknowledgements are to be counted.
    CountAcks,
    /// Log this, as [`Engine::set_logs_losses`](crate::engine::Engine::set_logs_losses) has asked for.
    Lost(Box<Lost>),
    /// Somebody was granted this key, whose loss is perhaps in the log.
    NextHolder { key: KeyBuf, token: Token },
}

/// A change of a temporary key. The shell adds its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Presence {
    /// Each connection once.
    pub to: Vec<Viewer>,
    pub key: KeyBuf,
    /// `Added`, `Set` or `Gone`.
    pub change: PresenceChange,
}

/// A connection that watches a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Viewer {
    pub client: ClientId,
    pub keys_only: bool,
    /// See [`WatchPrefix`](crate::engine::WatchPrefix).
    pub sight: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PresenceChange {
    Added(Token),
    /// It has another owner, with this token, or another value.
    Set(Token),
    Gone(Token, Gone),
    /// Of a prefix: all keys are gone.
    Flushed,
    /// Of a prefix: the watch is over.
    Over(Over),
}

/// How a temporary key ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    Lost(Loss),
    /// By its owner, or its owner never heard of the grant.
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

/// Why a watch of a prefix is over.
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
    /// Names and tokens, sorted.
    pub entries: Vec<(Bytes, Token)>,
    /// No other key has the prefix.
    pub is_last: bool,
}

/// A hold that its owner did not end; or many that ended at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Of many, that of the first; and so is what follows.
    pub key: KeyBuf,
    pub token: Token,
    pub label: Box<[u8]>,
    /// Two that are there at the same time have different numbers.
    pub owner: u32,
    /// 0 where nobody was attached to the session that held it.
    pub client: ClientId,
    /// None if the server has not said it yet.
    pub origin: Option<Box<Origin>>,
    pub mode: Mode,
    pub since: Since,
    pub why: Loss,
    pub waiters: usize,
    /// Its owner loses many for this reason.
    pub is_one_of_many: bool,
    /// How many holds.
    pub count: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Integer(i64),
    Null,
    /// Whether each of the keys asked for exists; a single one is not wrapped in an array.
    States(Vec<bool>),
    /// Of a watch of a prefix.
    Page(Box<SnapshotPage>),
    /// A new session's secret, which is kept nowhere.
    Secret(Box<[u8]>),
    /// The key that was made, and its token.
    Made {
        name: Bytes,
        token: Token,
    },
    Refused(Refusal),
}

impl Form {
    /// `name` is that of the granted key; only a sequence's reply has it.
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
    /// Tells it to who asked: of the request's first key with its label by a push, where that was wanted, and otherwise as the
    /// answer for which the connection is blocked. `made` is the name that a sequence has made.
    #[inline]
    pub fn told(self, to: ReplyTo, about: Option<(KeyBuf, &[u8])>, made: &[u8]) -> Effect {
        let ReplyTo { client, form, .. } = to;
        if let Some((key, label)) = about {
            let kind = form.kind();
            let news = match self {
                WaitEnd::Granted(token) => News::Granted(kind, token),
                WaitEnd::TimedOut => News::TimedOut(kind),
                WaitEnd::Refused(refusal) => News::Failed(kind, Box::new(refusal)),
            };
            let push = Push::new(key, news, label);
            let to = vec![client];
            return Effect::Push { to, push };
        }
        let (reply, granted) = match self {
            WaitEnd::Granted(token) => (form.granted(made, token), Some(token)),
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

/// Why a command changes nothing: the client's doing, not a fault of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Of the names of one connection's watches, or of all.
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
    /// The names that a sequence would make next are there already.
    SequenceTaken,
    /// Of all users, or of the caller's.
    TooManySessions {
        limit: u32,
        of_user: bool,
    },
    /// So many holds have a label, a task, a lease, permits or a depth already, or wait for it.
    TooManyExtras {
        limit: usize,
    },
    /// The key is there and is no lock.
    WrongType,
    NotHeld,
    /// The key is served by another server of the cluster.
    Elsewhere {
        key: KeyBuf,
    },
    /// A right that the request needs was taken away during the wait.
    NoRight(NoRight),
    /// The server does not block this connection.
    CannotBlock,
    /// The server that it waited at has a master now.
    Unblocked,
    /// The owner holds the key in another way, from which there is none to the one asked for.
    HeldOtherwise,
    /// The owner has acquired the lock so often already.
    TooDeep {
        limit: u32,
    },
    /// The semaphore has another number of permits.
    OtherTotal {
        total: u32,
    },
    /// The owner holds one of several keys already.
    HeldAlready {
        key: KeyBuf,
    },
    /// The owner holds all of several keys already, with tokens that differ.
    HeldApart,
    /// It could be had, but the server was started so recently that somebody may believe to hold it still.
    Quarantine {
        left_ms: u64,
    },
    /// So many replicas have acknowledged the grant, and not as many as were wanted.
    NoAcks {
        got: u32,
        wanted: u32,
    },
    /// The token is too far ahead of what this server has given and of its clock: it goes up to `most`.
    TokenAhead {
        most: Token,
    },
    /// Acknowledgements were asked for without a session.
    AcksWithoutSession,
    /// Keys of this database are still being sorted, for the first watch of a prefix.
    IndexIncomplete,
    /// A page was asked for without a watch.
    NotWatched,
    /// That one connection watches.
    TooManyPrefixes {
        limit: u32,
    },
    /// Of the prefixes that are watched in a database.
    TooManyPrefixLengths {
        limit: usize,
    },
    /// There is no such session, or no session.
    NoSession,
    /// The connection has a session already.
    HasSession,
    /// The connection holds something already, which would belong to nobody.
    HoldsAlready,
    /// The connection waits for something.
    WaitsAlready,
    /// The owner has a key itself, and did not say each time that it takes it again.
    Reentry,
    /// The owner waits for a key already.
    WaitsForIt,
    /// It would block behind its own connection, which has the key or waits for it with another label; with PUSH it may wait.
    Standstill(Box<Waits>),
    /// Everyone in the cycle would wait for the next, for ever; it begins with the caller.
    Deadlock {
        cycle: Vec<Waits>,
    },
}

/// A link of a cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waits {
    pub client: ClientId,
    pub label: Box<[u8]>,
    /// Unless it is the label's.
    pub task: Option<Box<[u8]>>,
    /// The key that it waits for, which the next one holds or waits for before it.
    pub key: KeyBuf,
}

/// What a frame tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Push {
    pub key: KeyBuf,
    said: Said,
}

/// Mostly there is no label, and it takes no room.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    Plain(News),
    Labelled(Box<(News, Box<[u8]>)>),
}

impl Push {
    /// The label is that of the request or hold which it is about.
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

/// Where the name comes from by which a key that was lost is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameFrom {
    /// The request.
    Request,
    /// Somebody who renamed the key afterwards.
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
    /// `<kind> <key> FAILED <code>`: a blocked client would get this error
    Failed(Kind, Box<Refusal>),
    /// `<kind> <key> LOST <why>`
    Lost(Kind, Loss, NameFrom),
    /// `watchtp <key> ...`, or of a prefix
    Presence(Box<(PresenceChange, Option<Bytes>)>),
}

impl News {
    /// With the key's value, if it is told.
    pub fn of_presence(change: PresenceChange, value: Option<Bytes>) -> News {
        News::Presence(Box::new((change, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each is moved some times on its way to the shell.
    #[test]
    fn an_order_is_small() {
        assert_eq!(size_of::<Effect>(), 72);
    }
}
