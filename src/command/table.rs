//! The one table of commands. Registration, the reference's table and a test of `COMMAND INFO` are
//! fed from it.

/// Which command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    Settp,
    Watchex,
    Unwatchex,
}

/// What a command does to its keys, as key specifications and key permissions see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Looks whether they exist; reveals nothing of their values.
    Look,
    /// May make or remove them.
    Write,
}

/// Where a command's keys stand among its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPlaces {
    /// The first argument only.
    First,
    /// All arguments.
    All,
}

/// One argument, for `COMMAND DOCS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument {
    pub name: &'static str,
    pub kind: ArgumentKind,
    pub optional: bool,
    pub multiple: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentKind {
    Key,
    String,
}

/// Everything about a command that is not code.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    pub verb: Verb,
    pub name: &'static str,
    /// As the server counts: the name included, negative for "at least".
    pub arity: i32,
    /// The server's names of its command flags.
    pub flags: &'static str,
    /// ACL categories beyond those that the flags imply. (Redis 7.0 knows only the implied ones.)
    pub categories: &'static str,
    pub access: Access,
    pub keys: KeyPlaces,
    pub summary: &'static str,
    pub complexity: &'static str,
    pub arguments: &'static [Argument],
}

const KEY: Argument = Argument {
    name: "key",
    kind: ArgumentKind::Key,
    optional: false,
    multiple: false,
};

pub const TABLE: &[Spec] = &[
    Spec {
        verb: Verb::Settp,
        name: "settp",
        arity: 3,
        flags: "write deny-oom fast deny-script",
        categories: "keyspace",
        access: Access::Write,
        keys: KeyPlaces::First,
        summary: "Makes a key that lives as long as this connection, unless the key exists.",
        complexity: "O(1)",
        arguments: &[
            KEY,
            Argument {
                name: "value",
                kind: ArgumentKind::String,
                ..KEY
            },
        ],
    },
    Spec {
        verb: Verb::Watchex,
        name: "watchex",
        arity: -2,
        flags: "readonly fast deny-script",
        categories: "keyspace",
        access: Access::Look,
        keys: KeyPlaces::All,
        summary: "Tells whether keys exist, and from then on pushes each change of that.",
        complexity: "O(N) with N the number of keys",
        arguments: &[Argument {
            multiple: true,
            ..KEY
        }],
    },
    Spec {
        verb: Verb::Unwatchex,
        name: "unwatchex",
        arity: -1,
        flags: "readonly fast deny-script no-mandatory-keys",
        categories: "keyspace",
        access: Access::Look,
        keys: KeyPlaces::All,
        summary: "Ends watches of this connection: of the keys given, or all of them.",
        complexity: "O(N) with N the number of watches that end",
        arguments: &[Argument {
            optional: true,
            multiple: true,
            ..KEY
        }],
    },
];
