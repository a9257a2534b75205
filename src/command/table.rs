//! The one table of commands: the source of registration, of the reference's table, and of a test of `COMMAND INFO`.

/// A command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Settp,
    Deltp,
    Watchex,
    Unwatchex,
    Watchtp,
    Unwatchtp,
    Acquire,
    Macquire,
    Release,
    Extend,
    Raise,
    Cancel,
    Check,
    Guard,
    Info,
    List,
    Mine,
    Log,
    Why,
    Server,
    Start,
    Resume,
    End,
    Detach,
    Sessions,
    KillSession,
}

/// How a command accesses its keys, for key specifications and key permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads whether they exist; does not reveal their values.
    Look,
    /// May create or delete them.
    Write,
    /// May delete them, also while the server refuses writes: a release takes nothing from anybody.
    Release,
    /// Withdraws a request for them: needs the right to write, though nothing is written.
    Withdraw,
}

/// The positions of a command's keys. (Never by the flag `getkeys-api`: servers call such a command for its keys in I/O
/// threads, see docs/servers.md.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPlaces {
    /// The first argument only.
    First,
    /// All arguments.
    All,
    /// The first argument, if any, begins the names of keys: a cluster routes by it, and no right to it is needed.
    Prefix,
    /// The first argument is their number; they follow it.
    Numbered,
    /// None.
    Nowhere,
}

/// One argument, for `COMMAND DOCS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument {
    pub name: &'static str,
    /// The option's name, if it is one.
    pub token: Option<&'static str>,
    pub kind: ArgumentKind,
    pub optional: bool,
    pub multiple: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentKind {
    Key,
    String,
    Integer,
    Pattern,
    /// An option without a value.
    Flag,
}

/// The declaration of a command.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    pub verb: Verb,
    pub name: &'static str,
    /// As the server counts: including the name; negative: a minimum.
    pub arity: i32,
    /// The server's names of its command flags.
    pub flags: &'static str,
    /// Its ACL categories. (Redis 7.0 puts module commands into none.)
    pub categories: &'static str,
    pub access: Access,
    pub keys: KeyPlaces,
    pub summary: &'static str,
    pub complexity: &'static str,
    pub arguments: &'static [Argument],
}

const fn required(name: &'static str, kind: ArgumentKind) -> Argument {
    Argument {
        name,
        token: None,
        kind,
        optional: false,
        multiple: false,
    }
}

const fn option(token: &'static str, name: &'static str, kind: ArgumentKind) -> Argument {
    Argument {
        token: Some(token),
        optional: true,
        ..required(name, kind)
    }
}

const KEY: Argument = required("key", ArgumentKind::Key);
const KEYS: Argument = Argument {
    multiple: true,
    ..KEY
};
const OWNER: Argument = option("OWNER", "label", ArgumentKind::String);
const TASK: Argument = option("TASK", "task", ArgumentKind::String);
const LEASE: Argument = option("LEASE", "lease-ms", ArgumentKind::Integer);
const REENTRANT: Argument = option("REENTRANT", "reentrant", ArgumentKind::Flag);
const NOTIFY: Argument = option("NOTIFY", "notify", ArgumentKind::Flag);
const WAIT: Argument = option("WAIT", "wait-ms", ArgumentKind::Integer);
const PUSH: Argument = option("PUSH", "push", ArgumentKind::Flag);
const ACKS: Argument = option("ACKS", "replicas", ArgumentKind::Integer);
const ACKTIMEOUT: Argument = option("ACKTIMEOUT", "acktimeout-ms", ArgumentKind::Integer);
const GRACE: Argument = option("GRACE", "grace-ms", ArgumentKind::Integer);

pub const TABLE: &[Spec] = &[
    Spec {
        verb: Verb::Settp,
        name: "settp",
        arity: -3,
        flags: "write deny-oom fast deny-script blocking",
        categories: "keyspace write fast blocking",
        access: Access::Write,
        keys: KeyPlaces::First,
        summary: "Creates a key that lives as long as this connection, unless the key exists.",
        complexity: "O(1)",
        arguments: &[
            KEY,
            required("value", ArgumentKind::String),
            option("TOKEN", "token", ArgumentKind::Flag),
            option("SEQ", "seq", ArgumentKind::Flag),
            NOTIFY,
            TASK,
            WAIT,
            PUSH,
            ACKS,
            ACKTIMEOUT,
        ],
    },
    Spec {
        verb: Verb::Deltp,
        name: "deltp",
        arity: -2,
        flags: "may-replicate fast deny-script",
        categories: "keyspace write fast",
        access: Access::Release,
        keys: KeyPlaces::All,
        summary: "Deletes the given keys that this connection made with SETTP and still owns.",
        complexity: "O(N) with N the number of keys",
        arguments: &[KEYS],
    },
    Spec {
        verb: Verb::Watchex,
        name: "watchex",
        arity: -2,
        flags: "readonly deny-oom fast deny-script",
        categories: "keyspace read fast",
        access: Access::Look,
        keys: KeyPlaces::All,
        summary: "Returns whether keys exist, and from then on pushes each change.",
        complexity: "O(N) with N the number of keys",
        arguments: &[KEYS],
    },
    Spec {
        verb: Verb::Unwatchex,
        name: "unwatchex",
        arity: -1,
        flags: "readonly fast deny-script no-mandatory-keys",
        categories: "keyspace read fast",
        access: Access::Look,
        keys: KeyPlaces::All,
        summary: "Ends watches of this connection: those of the given keys, or all.",
        complexity: "O(N) with N the number of watches that end",
        arguments: &[Argument {
            optional: true,
            ..KEYS
        }],
    },
    Spec {
        verb: Verb::Watchtp,
        name: "watchtp",
        arity: -2,
        flags: "readonly deny-oom deny-script",
        categories: "keyspace read slow",
        access: Access::Look,
        keys: KeyPlaces::Prefix,
        summary: "Returns the temporary keys with a prefix, and from then on pushes each change of them.",
        complexity: "O(log N + M) with N the number of temporary keys and M that of the keys returned",
        arguments: &[
            required("prefix", ArgumentKind::String),
            option("AFTER", "key", ArgumentKind::String),
            option("KEYSONLY", "keysonly", ArgumentKind::Flag),
        ],
    },
    Spec {
        verb: Verb::Unwatchtp,
        name: "unwatchtp",
        arity: -1,
        flags: "readonly fast deny-script no-mandatory-keys",
        categories: "keyspace read fast",
        access: Access::Look,
        keys: KeyPlaces::Prefix,
        summary: "Ends watches of this connection: that of the given prefix, or those of all prefixes.",
        complexity: "O(N) with N the number of watches that end",
        arguments: &[Argument {
            optional: true,
            ..required("prefix", ArgumentKind::String)
        }],
    },
    Spec {
        verb: Verb::Acquire,
        name: "lock.acquire",
        arity: -2,
        flags: "write deny-oom fast deny-script blocking",
        categories: "keyspace write fast blocking",
        access: Access::Write,
        keys: KeyPlaces::First,
        summary: "Acquires a lock: exclusive, shared, or permits of a semaphore.",
        complexity: "O(1)",
        arguments: &[
            KEY,
            option("SHARED", "shared", ArgumentKind::Flag),
            option("PERMITS", "permits", ArgumentKind::Integer),
            option("OF", "total", ArgumentKind::Integer),
            OWNER,
            TASK,
            LEASE,
            REENTRANT,
            NOTIFY,
            WAIT,
            PUSH,
            ACKS,
            ACKTIMEOUT,
        ],
    },
    Spec {
        verb: Verb::Macquire,
        name: "lock.macquire",
        arity: -3,
        flags: "write deny-oom deny-script blocking",
        categories: "keyspace write slow blocking",
        access: Access::Write,
        keys: KeyPlaces::Numbered,
        summary: "Acquires several exclusive locks in one step, or none of them.",
        complexity: "O(N) with N the number of keys",
        arguments: &[
            required("numkeys", ArgumentKind::Integer),
            KEYS,
            OWNER,
            TASK,
            LEASE,
            REENTRANT,
            NOTIFY,
            WAIT,
            PUSH,
            ACKS,
            ACKTIMEOUT,
        ],
    },
    Spec {
        verb: Verb::Release,
        name: "lock.release",
        arity: -2,
        flags: "may-replicate fast deny-script",
        categories: "keyspace write fast",
        access: Access::Release,
        keys: KeyPlaces::First,
        summary: "Releases a lock and grants it to the next waiter.",
        complexity: "O(1); with ALL O(N) with N the number of places that are given up",
        arguments: &[KEY, OWNER, option("ALL", "all", ArgumentKind::Flag)],
    },
    Spec {
        verb: Verb::Extend,
        name: "lock.extend",
        arity: -3,
        flags: "write fast deny-script",
        categories: "keyspace write fast",
        access: Access::Write,
        keys: KeyPlaces::First,
        summary: "Sets the lease of a held lock, counted from now.",
        complexity: "O(log N) with N the number of leases",
        arguments: &[KEY, required("lease-ms", ArgumentKind::Integer), OWNER],
    },
    Spec {
        verb: Verb::Raise,
        name: "lock.raise",
        arity: -3,
        flags: "write fast deny-script",
        categories: "keyspace write fast",
        access: Access::Write,
        keys: KeyPlaces::First,
        summary: "Raises the token of a hold, and with it all later tokens.",
        complexity: "O(1)",
        arguments: &[KEY, required("token", ArgumentKind::Integer), OWNER],
    },
    Spec {
        verb: Verb::Cancel,
        name: "lock.cancel",
        arity: -2,
        // Not a write command, so that a wait can be cancelled while writes are paused.
        flags: "fast deny-script",
        categories: "keyspace write fast",
        access: Access::Withdraw,
        keys: KeyPlaces::First,
        summary: "Withdraws a wait for a key, or returns the token if the key is held already.",
        complexity: "O(N) with N the number of places that are given up",
        arguments: &[KEY, OWNER],
    },
    Spec {
        verb: Verb::Check,
        name: "lock.check",
        arity: 3,
        // Scripts and functions may call it: it needs no connection.
        flags: "readonly fast",
        categories: "keyspace read fast",
        access: Access::Look,
        keys: KeyPlaces::First,
        summary: "Checks that a token is that of a current hold.",
        complexity: "O(1)",
        arguments: &[KEY, required("token", ArgumentKind::Integer)],
    },
    Spec {
        verb: Verb::Guard,
        name: "lock.guard",
        arity: -4,
        // The inner command does and replicates the writes, and its rights and slots are checked when it is called. MONITOR
        // and SLOWLOG show the inner command, which hides its own secrets.
        flags: "may-replicate deny-script no-monitor no-slowlog",
        categories: "keyspace write slow",
        access: Access::Look,
        keys: KeyPlaces::First,
        summary: "Runs a command only while a token is that of a current hold.",
        complexity: "O(1), and what the command takes",
        arguments: &[
            KEY,
            required("token", ArgumentKind::Integer),
            required("command", ArgumentKind::String),
            Argument {
                optional: true,
                multiple: true,
                ..required("argument", ArgumentKind::String)
            },
        ],
    },
    Spec {
        verb: Verb::Info,
        name: "lock.info",
        arity: -2,
        flags: "readonly deny-script",
        categories: "keyspace read slow",
        access: Access::Look,
        keys: KeyPlaces::First,
        summary: "Returns the holders of a key and its queue, in order.",
        complexity: "O(N) with N the number of holders and waiters that it tells of",
        arguments: &[KEY, option("COUNT", "count", ArgumentKind::Integer)],
    },
    Spec {
        verb: Verb::List,
        name: "lock.list",
        arity: -2,
        flags: "readonly deny-script",
        categories: "keyspace read slow",
        access: Access::Look,
        keys: KeyPlaces::Nowhere,
        summary: "Lists the held and waited-for keys of this database, some at a time.",
        complexity: "O(N) with N the number of keys that the call looks at",
        arguments: &[
            required("cursor", ArgumentKind::Integer),
            option("CLIENT", "client-id", ArgumentKind::Integer),
            option("MATCH", "pattern", ArgumentKind::Pattern),
            option("COUNT", "count", ArgumentKind::Integer),
        ],
    },
    Spec {
        verb: Verb::Mine,
        name: "lock.mine",
        arity: -1,
        flags: "fast deny-script",
        categories: "connection fast",
        access: Access::Look,
        keys: KeyPlaces::Nowhere,
        summary: "Lists what this connection and its session hold and wait for.",
        complexity: "O(N) with N the number of entries asked for",
        arguments: &[
            option("CURSOR", "cursor", ArgumentKind::Integer),
            option("COUNT", "count", ArgumentKind::Integer),
        ],
    },
    Spec {
        verb: Verb::Log,
        name: "lock.log",
        arity: -1,
        flags: "readonly deny-script",
        categories: "keyspace read slow",
        access: Access::Look,
        keys: KeyPlaces::Nowhere,
        summary: "Lists the locks that were lost (not released), and why; or empties the list.",
        complexity: "O(N) with N the number of entries",
        arguments: &[
            option("KEY", "key", ArgumentKind::String),
            option("COUNT", "count", ArgumentKind::Integer),
            option("SINCE", "id", ArgumentKind::Integer),
            option("RESET", "reset", ArgumentKind::Flag),
        ],
    },
    Spec {
        verb: Verb::Why,
        name: "lock.why",
        arity: 2,
        flags: "readonly deny-script",
        categories: "keyspace read slow",
        access: Access::Look,
        keys: KeyPlaces::First,
        summary: "Reports why nobody gets a key: its holders, what they wait for, and so on.",
        complexity: "O(N) with N the number of holders that it looks at, 64 at most",
        arguments: &[KEY],
    },
    Spec {
        verb: Verb::Server,
        name: "lock.server",
        arity: 1,
        flags: "fast deny-script",
        categories: "connection fast",
        access: Access::Look,
        keys: KeyPlaces::Nowhere,
        summary: "Reports what a client must know of this server to rely on its locks.",
        complexity: "O(1)",
        arguments: &[],
    },
    Spec {
        verb: Verb::Start,
        name: "session.start",
        arity: -1,
        flags: "write deny-oom fast deny-script",
        categories: "keyspace write fast",
        access: Access::Write,
        keys: KeyPlaces::Nowhere,
        summary: "Starts a session, so that what this connection makes can outlive it for a moment.",
        complexity: "O(1)",
        arguments: &[GRACE],
    },
    Spec {
        verb: Verb::Resume,
        name: "session.resume",
        arity: -2,
        // Not a write command, so that it works while writes are paused. MONITOR and SLOWLOG must not show the secret.
        flags: "fast deny-script no-monitor no-slowlog",
        categories: "keyspace write fast",
        access: Access::Write,
        keys: KeyPlaces::Nowhere,
        summary: "Resumes a session on this connection.",
        complexity: "O(1)",
        arguments: &[required("secret", ArgumentKind::String), NOTIFY],
    },
    Spec {
        verb: Verb::End,
        name: "session.end",
        arity: 1,
        flags: "may-replicate deny-script",
        categories: "keyspace write slow",
        access: Access::Release,
        keys: KeyPlaces::Nowhere,
        summary: "Releases all that this connection's session holds, and ends it.",
        complexity: "O(N) with N the number of keys and holds, 1000 at most",
        arguments: &[],
    },
    Spec {
        verb: Verb::Detach,
        name: "session.detach",
        arity: 1,
        flags: "fast deny-script",
        categories: "keyspace write fast",
        access: Access::Write,
        keys: KeyPlaces::Nowhere,
        summary: "Detaches this connection's session, to resume it elsewhere.",
        complexity: "O(1)",
        arguments: &[],
    },
    Spec {
        verb: Verb::Sessions,
        name: "session.list",
        arity: 1,
        flags: "admin deny-script",
        categories: "admin dangerous slow",
        access: Access::Look,
        keys: KeyPlaces::Nowhere,
        summary: "Lists all sessions: whose they are, and what they have.",
        complexity: "O(N) with N the number of sessions and of what they hold",
        arguments: &[],
    },
    Spec {
        verb: Verb::KillSession,
        name: "session.kill",
        arity: 2,
        flags: "write admin deny-script",
        categories: "admin dangerous write slow",
        access: Access::Write,
        keys: KeyPlaces::Nowhere,
        summary: "Releases all that a session holds, and ends it.",
        complexity: "O(N) with N the number of keys and holds",
        arguments: &[required("session-id", ArgumentKind::Integer)],
    },
];

/// The commands that have this option, case-insensitively.
pub fn commands_with(option: &[u8]) -> Vec<String> {
    let is_it = |argument: &Argument| {
        let token = argument.token.map(str::as_bytes);
        token.is_some_and(|token| token.eq_ignore_ascii_case(option))
    };
    let all = TABLE.iter();
    let having = all.filter(|spec| spec.arguments.iter().any(is_it));
    having.map(|spec| spec.name.to_ascii_uppercase()).collect()
}
