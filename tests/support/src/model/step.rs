//! What can happen in a world.

use super::command::{Command, Label, Name, Spot, Who};
use super::rights::{Rights, User};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Connect {
        who: Who,
        resp3: bool,
    },
    End {
        who: Who,
        how: Ending,
    },
    /// One command; after `Multi` it is queued.
    Run {
        who: Who,
        command: Command,
    },
    Multi {
        who: Who,
    },
    Exec {
        who: Who,
    },
    Discard {
        who: Who,
    },
    /// Several commands sent in one piece.
    Pipeline {
        who: Who,
        commands: Vec<Command>,
    },
    /// A key is given a millisecond to live, which passes; then somebody comes who may find it so.
    Expiry {
        who: Who,
        key: Name,
        then: Option<(Who, Command)>,
    },
    /// The server forgets its data and loads it again, from a file that it saves first (`DEBUG RELOAD`) or from what it
    /// has written all the while (`DEBUG LOADAOF`): a flush, after which sessions have what they had. Meanwhile somebody goes, and
    /// somebody comes.
    Reload {
        appended: bool,
        goes: Option<Who>,
        comes: Option<Who>,
    },

    /// From now on the connections of these users may not name these keys, or may not ask for any.
    Rights {
        user: User,
        rights: Rights,
    },

    // Only where there is a server.
    /// The lease of a lock that this one holds is over, and nobody has noticed, when somebody's command comes upon it, or
    /// several in a transaction of which the first does.
    Overdue {
        holder: Who,
        key: Name,
        label: Label,
        then: (Who, Vec<Command>),
    },
    /// Between its two names a key that is renamed or moved has none. There another module looks at keys whose time to live is
    /// over, which nobody has noticed, and deletes others. (The names of the key itself can be over, too: the command comes
    /// upon them.) More can follow in a script.
    Between {
        who: Who,
        over: Vec<Name>,
        deleted: Vec<Name>,
        command: Command,
    },
    /// The server is killed, and started again with its files; then it grants nothing for a while, or it does.
    Restart {
        quarantine: bool,
    },
    /// That is over.
    QuarantineOver,

    // Only where there is no server to be asked for it.
    Evict {
        spot: Spot,
    },
    /// The keyspace may be written: leases end whose time is over, who can be served is, and of what
    /// ended connections left so much is removed. (Without a server, endings remove nothing.)
    Work {
        most: usize,
    },
    /// Another server's data set is loaded, which has no sessions: from now on these keys exist and no others; the `held` among
    /// them were held by its connections.
    Resync {
        present: Vec<Spot>,
        held: Vec<Spot>,
        /// The locks among them, as far as they are not here already.
        locks: Vec<Spot>,
    },
    /// Time goes by, and waits whose time is over end. (Leases end with the next work.)
    Pass {
        ms: u64,
    },
    /// The server has started, and grants nothing for so long.
    Quarantine {
        ms: u64,
    },
    /// The server refuses writes until the next work. Releases are taken all the same.
    Refuse,
    /// All that was replicated so far ends here: from now on the grants until then can be acknowledged.
    Propagated,
    /// So many replicas have acknowledged a grant, that in this place among those that wait for it.
    Acknowledged {
        at: usize,
        replicas: u32,
    },
    /// So many replicas are connected.
    Replicas {
        count: u32,
    },
    /// The answer to this one's wait was a grant, and never came to it.
    Drop {
        who: Who,
    },
}

impl Step {
    /// Whether somebody asks to be told of a key, or to have it later.
    pub fn watches_or_waits(&self) -> bool {
        self.has(|part| {
            matches!(part, Command::Watchex { .. } | Command::Watchtp { .. })
                || part.wait().is_some()
                || part.acks().is_some()
        })
    }

    /// Whether a key is made after another.
    pub fn copies(&self) -> bool {
        self.has(|part| matches!(part, Command::Copy { .. }))
    }

    /// Whether commands follow at once on one that ends a connection.
    pub fn goes_on_after_a_kill(&self) -> bool {
        let Step::Pipeline { commands, .. } = self else {
            return false;
        };
        let kills = |command: &Command| {
            let mut parts = command.parts().iter();
            parts.any(|part| matches!(part, Command::Kill { .. }))
        };
        let all_but_last = &commands[..commands.len().saturating_sub(1)];
        all_but_last.iter().any(kills)
    }

    pub(super) fn has(&self, is_meant: impl Fn(&Command) -> bool) -> bool {
        let mut parts = self.commands().iter().flat_map(Command::parts);
        parts.any(is_meant)
    }

    /// All that it is said to be about.
    pub(super) fn names(&self) -> Vec<Name> {
        let parts = self.commands().iter().flat_map(Command::parts);
        let mut names: Vec<Name> = parts.flat_map(Command::keys).collect();
        match self {
            Step::Expiry { key, .. } | Step::Overdue { key, .. } => names.push(*key),
            Step::Between { over, deleted, .. } => names.extend(over.iter().chain(deleted)),
            Step::Evict { spot } => names.push(spot.name),
            _ => {}
        }
        names
    }

    fn commands(&self) -> &[Command] {
        match self {
            Step::Run { command, .. } => std::slice::from_ref(command),
            Step::Pipeline { commands, .. } => commands,
            Step::Expiry { then, .. } => then
                .as_ref()
                .map_or(&[][..], |(_, command)| std::slice::from_ref(command)),
            Step::Overdue { then, .. } => &then.1,
            Step::Between { command, .. } => std::slice::from_ref(command),
            _ => &[],
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// By a FIN.
    Close,
    /// By a RST.
    Reset,
    /// By `QUIT`.
    Quit,
    /// While `CLIENT PAUSE` wants no writes: what is to be removed waits until that is over.
    WhilePaused,
    /// After the time to live of what it alone holds was over, which nobody has noticed.
    AfterLapse,
}
