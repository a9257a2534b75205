//! What a client can say.

/// A place for a connection. When one ends, another can take its place.
pub type Who = usize;
/// One of [`NAMES`].
pub type Name = usize;

/// Keys are bytes: one is empty, one would break a line.
pub const NAMES: [&[u8]; 5] = [b"a", b"b", b"c", b"", b"\xff\r\n d"];
pub const DATABASES: usize = 2;

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
    },
    Deltp {
        keys: Vec<Name>,
    },
    Watchex {
        keys: Vec<Name>,
    },
    /// Without keys: all of them.
    Unwatchex {
        keys: Vec<Name>,
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
    /// `EVAL`: runs these one after the other and returns their replies. They are written in the
    /// script itself, or given as its arguments.
    Script {
        commands: Vec<Command>,
        written: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    List,
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
        matches!(
            self,
            Command::Settp { .. }
                | Command::Deltp { .. }
                | Command::Watchex { .. }
                | Command::Unwatchex { .. }
        )
    }
}
