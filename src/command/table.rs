//! The one table of commands: the source of registration, of the reference's table, and of a test of `COMMAND INFO`.

use super::options::{
    self, AFTER, ALL, Argument, ArgumentKind, CLIENT, COUNT, CURSOR, GRACE, KEYSONLY, MATCH,
    NOTIFY, OF_LOCK, OF_LOCKS, OF_TEMPORARY, OWNER, RESET, SINCE, Word,
};

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

/// The declaration of a command.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    pub verb: Verb,
    pub name: &'static str,
    /// The server's names of its command flags.
    pub flags: &'static str,
    /// Its ACL categories. (Redis 7.0 puts module commands into none.)
    pub categories: &'static str,
    pub access: Access,
    pub keys: KeyPlaces,
    pub summary: &'static str,
    pub complexity: &'static str,
    /// Its arguments before the options.
    pub fixed: &'static [Argument],
    pub options: &'static [Word],
}

impl Spec {
    /// How many words it has, as the server counts: with its name; negative: at least so many.
    pub fn arity(&self) -> i32 {
        let required = self.fixed.iter().filter(|argument| !argument.optional);
        let least = 1 + required.count() as i32;
        let is_open = |argument: &Argument| argument.optional || argument.multiple;
        let has_more = self.arguments().any(is_open);
        if has_more { -least } else { least }
    }

    /// All its arguments, in their order.
    pub fn arguments(&self) -> impl Iterator<Item = &'static Argument> {
        let options = self.options.iter().flat_map(|option| option.1);
        self.fixed.iter().chain(options)
    }
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

const KEY: Argument = required("key", ArgumentKind::Key);
const KEYS: Argument = Argument {
    multiple: true,
    ..KEY
};
pub const TABLE: &[Spec] = &[
    Spec {
        verb: Verb::Settp,
        name: "settp",
        flags: "write deny-oom fast deny-script blocking",
        categories: "keyspace write fast blocking",
        access: Access::Write,
        keys: KeyPlaces::First,
        summary: "Creates a key that lives as long as this connection, unless the key exists.",
        complexity: "O(1)",
        fixed: &[KEY, required("value", ArgumentKind::String)],
        options: OF_TEMPORARY,
    },
    Spec {
        verb: Verb::Deltp,
        name: "deltp",
        flags: "may-replicate fast deny-script",
        categories: "keyspace write fast",
        access: Access::Release,
        keys: KeyPlaces::All,
        summary: "Deletes the given keys that this connection made with SETTP and still owns.",
        complexity: "O(N) with N the number of keys",
        fixed: &[KEYS],
        options: &[],
    },
    Spec {
        verb: Verb::Watchex,
        name: "watchex",
        flags: "readonly deny-oom fast deny-script",
        categories: "keyspace read fast",
        access: Access::Look,
        keys: KeyPlaces::All,
        summary: "Returns whether keys exist, and from then on pushes each change.",
        complexity: "O(N) with N the number of keys",
        fixed: &[KEYS],
        options: &[],
    },
    Spec {
        verb: Verb::Unwatchex,
        name: "unwatchex",
        flags: "readonly fast deny-script no-mandatory-keys",
        categories: "keyspace read fast",
        access: Access::Look,
        keys: KeyPlaces::All,
        summary: "Ends the watches of this connection on the given keys, or all of them.",
        complexity: "O(N) with N the number of watches that end",
        fixed: &[Argument {
            optional: true,
            ..KEYS
        }],
        options: &[],
    },
    Spec {
        verb: Verb::Watchtp,
        name: "watchtp",
        flags: "readonly deny-oom deny-script",
        categories: "keyspace read slow",
        access: Access::Look,
        keys: KeyPlaces::Prefix,
        summary: "Returns the temporary keys with a prefix, and from then on pushes each change of them.",
        complexity: "O(log N + M) with N the number of temporary keys and M that of the keys returned",
        fixed: &[required("prefix", ArgumentKind::String)],
        options: &[AFTER, KEYSONLY],
    },
    Spec {
        verb: Verb::Unwatchtp,
        name: "unwatchtp",
        flags: "readonly fast deny-script no-mandatory-keys",
        categories: "keyspace read fast",
        access: Access::Look,
        keys: KeyPlaces::Prefix,
        summary: "Ends the watch of this connection on a prefix, or on all prefixes.",
        complexity: "O(N) with N the number of watches that end",
        fixed: &[Argument {
            optional: true,
            ..required("prefix", ArgumentKind::String)
        }],
        options: &[],
    },
    Spec {
        verb: Verb::Acquire,
        name: "lock.acquire",
        flags: "write deny-oom fast deny-script blocking",
        categories: "keyspace write fast blocking",
        access: Access::Write,
        keys: KeyPlaces::First,
        summary: "Acquires a lock: exclusive, shared, or permits of a semaphore.",
        complexity: "O(1)",
        fixed: &[KEY],
        options: OF_LOCK,
    },
    Spec {
        verb: Verb::Macquire,
        name: "lock.macquire",
        flags: "write deny-oom deny-script blocking",
        categories: "keyspace write slow blocking",
        access: Access::Write,
        keys: KeyPlaces::Numbered,
        summary: "Acquires several exclusive locks in one step, or none of them.",
        complexity: "O(N) with N the number of keys",
        fixed: &[required("numkeys", ArgumentKind::Integer), KEYS],
        options: OF_LOCKS,
    },
    Spec {
        verb: Verb::Release,
        name: "lock.release",
        flags: "may-replicate fast deny-script",
        categories: "keyspace write fast",
        access: Access::Release,
        keys: KeyPlaces::First,
        summary: "Releases a lock and grants it to the next waiter.",
        complexity: "O(1); with ALL O(N) with N the number of places that are given up",
        fixed: &[KEY],
        options: &[OWNER, ALL],
    },
    Spec {
        verb: Verb::Extend,
        name: "lock.extend",
        flags: "write fast deny-script",
        categories: "keyspace write fast",
        access: Access::Write,
        keys: KeyPlaces::First,
        summary: "Sets the lease of a held lock, counted from now.",
        complexity: "O(log N) with N the number of leases",
        fixed: &[KEY, required("lease-ms", ArgumentKind::Integer)],
        options: &[OWNER],
    },
    Spec {
        verb: Verb::Raise,
        name: "lock.raise",
        flags: "write fast deny-script",
        categories: "keyspace write fast",
        access: Access::Write,
        keys: KeyPlaces::First,
        summary: "Raises the token of a hold, and with it all later tokens.",
        complexity: "O(1)",
        fixed: &[KEY, required("token", ArgumentKind::Integer)],
        options: &[OWNER],
    },
    Spec {
        verb: Verb::Cancel,
        name: "lock.cancel",
        // Not a write command, so that a wait can be cancelled while writes are paused.
        flags: "fast deny-script",
        categories: "keyspace write fast",
        access: Access::Withdraw,
        keys: KeyPlaces::First,
        summary: "Withdraws a wait for a key, or returns the token if the caller already holds the key.",
        complexity: "O(N) with N the number of places that are given up",
        fixed: &[KEY],
        options: &[OWNER],
    },
    Spec {
        verb: Verb::Check,
        name: "lock.check",
        // Scripts and functions may call it: it needs no connection.
        flags: "readonly fast",
        categories: "keyspace read fast",
        access: Access::Look,
        keys: KeyPlaces::First,
        summary: "Checks that a token is that of a current hold.",
        complexity: "O(1)",
        fixed: &[KEY, required("token", ArgumentKind::Integer)],
        options: &[],
    },
    Spec {
        verb: Verb::Guard,
        name: "lock.guard",
        // The inner command does and replicates the writes, and its rights and slots are checked when it is called. MONITOR
        // and SLOWLOG show the inner command, which hides its own secrets.
        flags: "may-replicate deny-script no-monitor no-slowlog",
        categories: "keyspace write slow",
        access: Access::Look,
        keys: KeyPlaces::First,
        summary: "Runs a command only if a token is that of a current hold.",
        complexity: "O(1), and what the command takes",
        fixed: &[
            KEY,
            required("token", ArgumentKind::Integer),
            required("command", ArgumentKind::String),
            Argument {
                optional: true,
                multiple: true,
                ..required("argument", ArgumentKind::String)
            },
        ],
        options: &[],
    },
    Spec {
        verb: Verb::Info,
        name: "lock.info",
        flags: "readonly deny-script",
        categories: "keyspace read slow",
        access: Access::Look,
        keys: KeyPlaces::First,
        summary: "Returns the holders of a key and its queue, in order.",
        complexity: "O(N) with N the number of holders and waiters that it shows",
        fixed: &[KEY],
        options: &[COUNT],
    },
    Spec {
        verb: Verb::List,
        name: "lock.list",
        flags: "readonly deny-script",
        categories: "keyspace read slow",
        access: Access::Look,
        keys: KeyPlaces::Nowhere,
        summary: "Lists the keys of this database that are held or waited for, a page at a time.",
        complexity: "O(N) with N the number of keys that the call looks at",
        fixed: &[required("cursor", ArgumentKind::Integer)],
        options: &[CLIENT, MATCH, COUNT],
    },
    Spec {
        verb: Verb::Mine,
        name: "lock.mine",
        flags: "fast deny-script",
        categories: "connection fast",
        access: Access::Look,
        keys: KeyPlaces::Nowhere,
        summary: "Lists what this connection and its session hold and wait for.",
        complexity: "O(N) with N the number of entries asked for",
        fixed: &[],
        options: &[CURSOR, COUNT],
    },
    Spec {
        verb: Verb::Log,
        name: "lock.log",
        flags: "readonly deny-script",
        categories: "keyspace read slow",
        access: Access::Look,
        keys: KeyPlaces::Nowhere,
        summary: "Lists the locks that were lost (not released), and why; or empties the list.",
        complexity: "O(N) with N the number of entries",
        fixed: &[],
        options: &[options::KEY, COUNT, SINCE, RESET],
    },
    Spec {
        verb: Verb::Why,
        name: "lock.why",
        flags: "readonly deny-script",
        categories: "keyspace read slow",
        access: Access::Look,
        keys: KeyPlaces::First,
        summary: "Reports why nobody gets a key: its holders, what they wait for, and so on.",
        complexity: "O(N) with N the number of holders that it looks at, 64 at most",
        fixed: &[KEY],
        options: &[],
    },
    Spec {
        verb: Verb::Server,
        name: "lock.server",
        flags: "fast deny-script",
        categories: "connection fast",
        access: Access::Look,
        keys: KeyPlaces::Nowhere,
        summary: "Returns what a client must know about this server to rely on its locks.",
        complexity: "O(1)",
        fixed: &[],
        options: &[],
    },
    Spec {
        verb: Verb::Start,
        name: "session.start",
        flags: "write deny-oom fast deny-script",
        categories: "keyspace write fast",
        access: Access::Write,
        keys: KeyPlaces::Nowhere,
        summary: "Starts a session, which keeps what this connection holds for a grace period after a disconnect.",
        complexity: "O(1)",
        fixed: &[],
        options: &[GRACE],
    },
    Spec {
        verb: Verb::Resume,
        name: "session.resume",
        // Not a write command, so that it works while writes are paused. MONITOR and SLOWLOG must not show the secret.
        flags: "fast deny-script no-monitor no-slowlog",
        categories: "keyspace write fast",
        access: Access::Write,
        keys: KeyPlaces::Nowhere,
        summary: "Resumes a session on this connection.",
        complexity: "O(1)",
        fixed: &[required("secret", ArgumentKind::String)],
        options: &[NOTIFY],
    },
    Spec {
        verb: Verb::End,
        name: "session.end",
        flags: "may-replicate deny-script",
        categories: "keyspace write slow",
        access: Access::Release,
        keys: KeyPlaces::Nowhere,
        summary: "Ends this connection's session and releases everything that it holds.",
        complexity: "O(N) with N the number of keys and holds, 1000 at most",
        fixed: &[],
        options: &[],
    },
    Spec {
        verb: Verb::Detach,
        name: "session.detach",
        flags: "fast deny-script",
        categories: "keyspace write fast",
        access: Access::Write,
        keys: KeyPlaces::Nowhere,
        summary: "Detaches this connection's session, so that another connection can resume it.",
        complexity: "O(1)",
        fixed: &[],
        options: &[],
    },
    Spec {
        verb: Verb::Sessions,
        name: "session.list",
        flags: "admin deny-script",
        categories: "admin dangerous slow",
        access: Access::Look,
        keys: KeyPlaces::Nowhere,
        summary: "Lists all sessions, with their users, connections and holds.",
        complexity: "O(N) with N the number of sessions and of what they hold",
        fixed: &[],
        options: &[],
    },
    Spec {
        verb: Verb::KillSession,
        name: "session.kill",
        flags: "write admin deny-script",
        categories: "admin dangerous write slow",
        access: Access::Write,
        keys: KeyPlaces::Nowhere,
        summary: "Ends a session and releases everything that it holds.",
        complexity: "O(N) with N the number of keys and holds",
        fixed: &[required("session-id", ArgumentKind::Integer)],
        options: &[],
    },
];
