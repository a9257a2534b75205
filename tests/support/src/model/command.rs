//! What a client can say.

use super::sessions::Number;

/// A place for a connection. When one ends, another can take its place.
pub type Who = usize;
/// One of [`NAMES`], or of a key that was [made](super::sequence::made).
pub type Name = usize;

/// Keys are bytes: one is empty, one would break a line.
pub const NAMES: [&[u8]; 5] = [b"a", b"ab", b"abc", b"", b"\xff\r\n d"];
/// What some of them begin with.
pub const PREFIXES: [&[u8]; 3] = [b"a", b"ab", b"\xff\r"];
/// One of these.
pub type Prefix = usize;
pub const DATABASES: usize = 2;

/// What tells owners apart. Labels are bytes, too.
pub const LABELS: [&[u8]; 3] = [b"", b"x", b"\xffy"];

/// A key in its database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot {
    pub db: usize,
    pub name: Name,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    // The module's.
    Settp {
        key: Name,
        value: u32,
        token: bool,
        notify: bool,
        task: Option<Task>,
        wait: Option<Wait>,
        acks: Option<Acks>,
    },
    /// `SETTP ... SEQ`
    Sequence {
        key: Name,
        value: u32,
        notify: bool,
        acks: Option<Acks>,
    },
    Deltp {
        keys: Vec<Name>,
    },
    Acquire {
        key: Name,
        mode: Mode,
        ask: Ask,
    },
    Macquire {
        keys: Vec<Name>,
        ask: Ask,
    },
    Release {
        key: Name,
        label: Label,
        all: bool,
    },
    Extend {
        key: Name,
        label: Label,
        lease_ms: u64,
    },
    Raise {
        key: Name,
        label: Label,
        to: Raised,
    },
    Cancel {
        key: Name,
        label: Label,
    },
    Watchex {
        keys: Vec<Name>,
    },
    /// Without keys: all of them.
    Unwatchex {
        keys: Vec<Name>,
    },

    Watchtp {
        prefix: Prefix,
        /// With the next page.
        goes_on: bool,
        keys_only: bool,
    },
    /// Without a prefix: all of them.
    Unwatchtp {
        prefix: Option<Prefix>,
    },

    /// `LOCK.MINE`. Only where there is a server; elsewhere all lists are looked at after each step.
    Mine,

    Start {
        grace_ms: u64,
    },
    Resume {
        session: Number,
        notify: bool,
    },
    EndSession,
    /// `SESSION.DETACH`.
    Detach,
    /// `SESSION.KILL`, by the id that the server gave the session.
    KillSession {
        session: Number,
    },

    // The server's: keys come.
    Set {
        key: Name,
        value: u32,
    },
    Setnx {
        key: Name,
        value: u32,
    },
    Append {
        key: Name,
    },
    Mset {
        keys: Vec<Name>,
    },
    Lpush {
        key: Name,
    },
    /// From a dump made by the same server.
    Restore {
        key: Name,
        kind: Kind,
        replace: bool,
    },

    // Keys go by other names, or are made after others.
    Rename {
        from: Name,
        to: Name,
    },
    Renamenx {
        from: Name,
        to: Name,
    },
    Copy {
        from: Name,
        to: Name,
        db: usize,
        replace: bool,
    },
    Move {
        key: Name,
        db: usize,
    },
    /// `SORT from STORE to`.
    Sort {
        from: Name,
        to: Name,
    },
    Swapdb,

    // Keys go.
    Del {
        keys: Vec<Name>,
    },
    Unlink {
        keys: Vec<Name>,
    },
    Getdel {
        key: Name,
    },
    Lpop {
        key: Name,
    },
    /// `SUNIONSTORE to` of sets that are not there.
    Sunionstore {
        to: Name,
    },
    /// A time to live that is over already.
    Lapse {
        key: Name,
        how: Past,
    },
    /// `RESTORE key 1 ... ABSTTL REPLACE`: what is restored has lapsed already.
    RestoreLapsed {
        key: Name,
    },
    Flushdb,
    Flushall,

    // Keys stay.
    /// A time to live that nobody will see the end of.
    Expire {
        key: Name,
    },
    Persist {
        key: Name,
    },
    Exists {
        key: Name,
    },
    Select {
        db: usize,
    },

    /// `CLIENT KILL ID`, with the id of the last connection in that place.
    Kill {
        who: Who,
    },
    /// `CLIENT UNBLOCK ... TIMEOUT`, or `ERROR`.
    Unblock {
        who: Who,
        error: bool,
    },
    /// `CLIENT REPLY`.
    Replies {
        how: Replies,
    },
    /// To the one channel that there is.
    Subscribe,
    Unsubscribe,
    Publish,
    /// `EVAL`: runs these one after the other and returns their replies. They are written in the
    /// script itself, or given as its arguments.
    Script {
        commands: Vec<Command>,
        written: bool,
    },
}

/// What of the answers to its commands a connection wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replies {
    All,
    None,
    /// Not that to the next command.
    NotNext,
}

/// How a key is asked for, and then held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Temporary,
    Exclusive,
    Shared,
    Permits { count: u32, total: u32 },
}

impl Mode {
    /// Whether who holds a lock in this way can take it in that one, too.
    pub fn reenters_as(self, asked: Mode) -> bool {
        match self {
            Mode::Temporary => false,
            Mode::Exclusive => matches!(asked, Mode::Exclusive | Mode::Shared),
            Mode::Shared | Mode::Permits { .. } => self == asked,
        }
    }
}

/// The token that `LOCK.RAISE` asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raised {
    /// No greater than any.
    Least,
    /// So much greater than all that were given.
    Above(u32),
    /// Greater than the server's clock allows.
    TooFar,
}

/// What tells the owners apart that share a connection: one of [`LABELS`].
pub type Label = usize;

/// Whose requests on a connection block together: by a name that is one of [`LABELS`], too.
pub type Task = usize;

/// `WAIT limit_ms [PUSH]`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// 0 for ever.
    pub limit_ms: u64,
    pub push: bool,
}

/// What a lock can be asked for with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ask {
    pub label: Label,
    /// The label's where it is not said.
    pub task: Option<Task>,
    pub lease_ms: Option<u64>,
    pub reentrant: bool,
    pub notify: bool,
    pub wait: Option<Wait>,
    /// Not together with `reentrant`.
    pub acks: Option<Acks>,
}

/// `ACKS replicas ACKTIMEOUT timeout_ms`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Acks {
    pub replicas: u32,
    pub timeout_ms: u64,
}

/// Whether who asks like this is told when it loses what it is granted: who is told of the one by a push is told of the
/// other.
pub fn is_notified(notify: bool, wait: Option<Wait>) -> bool {
    notify || wait.is_some_and(|wait| wait.push)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    List,
    /// A lock that nobody holds.
    Lock,
}

/// The commands that end a key by giving it a time in the past.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Past {
    Expire,
    Pexpire,
    Expireat,
    Pexpireat,
    Getex,
}

impl Command {
    /// Whether it is one of the module's.
    pub fn is_ours(&self) -> bool {
        let resumes = matches!(self, Command::Resume { .. } | Command::Detach);
        self.is_look() || self.is_write() || resumes
    }

    fn is_look(&self) -> bool {
        matches!(
            self,
            Command::Watchex { .. }
                | Command::Unwatchex { .. }
                | Command::Watchtp { .. }
                | Command::Unwatchtp { .. }
                | Command::Mine
        )
    }

    /// The keys of one of the module's that write.
    pub fn named(&self) -> &[Name] {
        match self {
            Command::Settp { key, .. }
            | Command::Sequence { key, .. }
            | Command::Acquire { key, .. }
            | Command::Release { key, .. }
            | Command::Extend { key, .. }
            | Command::Raise { key, .. }
            | Command::Cancel { key, .. } => std::slice::from_ref(key),
            Command::Deltp { keys } | Command::Macquire { keys, .. } => keys,
            _ => &[],
        }
    }

    /// Whether it is one of the module's that write, or may end what is over before it looks.
    pub fn is_write(&self) -> bool {
        matches!(
            self,
            Command::Settp { .. }
                | Command::Sequence { .. }
                | Command::Deltp { .. }
                | Command::Acquire { .. }
                | Command::Macquire { .. }
                | Command::Release { .. }
                | Command::Extend { .. }
                | Command::Raise { .. }
                | Command::Cancel { .. }
                | Command::Start { .. }
                | Command::EndSession
                | Command::KillSession { .. }
        )
    }

    /// How it waits, if it would.
    pub fn wait(&self) -> Option<Wait> {
        match self {
            Command::Settp { wait, .. } => *wait,
            Command::Acquire { ask, .. } | Command::Macquire { ask, .. } => ask.wait,
            _ => None,
        }
    }

    /// What its grant is to be acknowledged by.
    pub fn acks(&self) -> Option<Acks> {
        match self {
            Command::Settp { acks, .. } | Command::Sequence { acks, .. } => *acks,
            Command::Acquire { ask, .. } | Command::Macquire { ask, .. } => ask.acks,
            _ => None,
        }
    }

    /// After how long a hold ends that it begins or changes.
    pub fn lease_ms(&self) -> Option<u64> {
        match self {
            Command::Acquire { ask, .. } | Command::Macquire { ask, .. } => ask.lease_ms,
            Command::Extend { lease_ms, .. } => Some(*lease_ms),
            _ => None,
        }
    }

    /// Whether it would keep its connection standing.
    pub fn blocks(&self) -> bool {
        match self.wait() {
            Some(wait) => !wait.push,
            None => self.acks().is_some(),
        }
    }

    /// Itself, or what a script consists of.
    pub fn parts(&self) -> &[Command] {
        match self {
            Command::Script { commands, .. } => commands,
            other => std::slice::from_ref(other),
        }
    }
}
