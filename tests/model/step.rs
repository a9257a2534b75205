//! What can happen in a world.

use super::command::{Command, Name, Spot, Who};

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
    /// `DEBUG RELOAD`: the server saves its data, forgets it, and loads it again.
    Reload,

    // Only where there is no server to be asked for it.
    Evict {
        spot: Spot,
    },
    /// Some of what ended connections left is removed. (Without a server, endings remove nothing.)
    Work {
        most: usize,
    },
    /// A full resync: from now on these keys exist and no others; the `held` among them are held by
    /// connections of the master.
    Resync {
        present: Vec<Spot>,
        held: Vec<Spot>,
    },
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
}
