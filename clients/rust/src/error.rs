//! Why there is no lock, and why there is none any more.

use crate::core::code;
use crate::timing::Unfit;
use std::fmt;

const FORKED: &str = "the connection is that of the parent process";

/// Why a lock that was granted is lost.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// The server did not answer for the time of the fence.
    Silence,
    /// The connection broke, and there is no session; or the lock was lost while the connection was broken.
    Connection,
    /// The client was closed.
    Closed,
    /// This is a forked child of the process that has the lock.
    Forked,
    /// What the server said: `deleted`, `overwritten`, `lease`, `demoted` and others, as in the reference of the module.
    Told(String),
}

impl Loss {
    /// In one word: `silence`, `connection`, `closed`, `fork`, or the server's.
    pub fn reason(&self) -> &str {
        match self {
            Loss::Silence => "silence",
            Loss::Connection => "connection",
            Loss::Closed => "closed",
            Loss::Forked => "fork",
            Loss::Told(reason) => reason,
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Loss::Silence => {
                "no answer in time: the server was silent, or this program stood still"
            }
            Loss::Connection => "the connection broke",
            Loss::Closed => "the client was closed",
            Loss::Forked => FORKED,
            Loss::Told(reason) => reason,
        })
    }
}

impl std::error::Error for Loss {}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// Another owner has the lock; or still had it when the time to wait was over.
    Taken,
    /// The server has just been started, and grants nothing yet, since an earlier holder may still believe in its hold. Its error.
    Quarantine(String),
    /// To wait would never end: the server's error, with the cycle; or this owner has or waits for the lock itself.
    Deadlock(String),
    /// The server refuses, with this error; or the client does, before it asks.
    Refused(String),
    /// There is no such server, or no connection to it, or it did not answer in time.
    Unreachable(String),
    /// This is a forked child of the process that made the client: make one here.
    Forked,
    /// The server does not have the module tether.
    NoModule,
    /// The server sends no pushes.
    NoPush,
    /// The keys, or the prefix, are of more than one slot of a cluster.
    CrossSlot,
    /// The client was closed.
    Closed,
    /// The lock was lost.
    Lost(Loss),
    /// The times that were given do not fit those of the server.
    Unfit(Unfit),
}

impl Error {
    /// In one word: `taken`, `deadlock`, `refused`, `unreachable`, `nomodule`, `nopush`, `unfit`, `crossslot`, `closed`, `fork`, `lost`.
    pub fn name(&self) -> &'static str {
        match self {
            Error::Taken | Error::Quarantine(_) => "taken",
            Error::Deadlock(_) => "deadlock",
            Error::Refused(_) => "refused",
            Error::Unreachable(_) => "unreachable",
            Error::NoModule => "nomodule",
            Error::NoPush => "nopush",
            Error::Unfit(_) => "unfit",
            Error::CrossSlot => "crossslot",
            Error::Closed => "closed",
            Error::Forked => "fork",
            Error::Lost(_) => "lost",
        }
    }

    /// The first word of the server's error, or one of the client's own: `TAKEN`, `UNREACHABLE`, `REPLICA`, `TLS`, `KEYS`, `OWNER` or the
    /// [`name`](Error::name) in capitals.
    pub fn code(&self) -> &str {
        match self {
            Error::Taken => "TAKEN",
            Error::Quarantine(_) => "QUARANTINE",
            Error::Deadlock(_) => "DEADLOCK",
            Error::Refused(text) => code(text),
            Error::Unreachable(text) => match code(text) {
                code if code.bytes().all(|byte| byte.is_ascii_uppercase()) => code,
                _ => "UNREACHABLE",
            },
            Error::NoModule => "NOMODULE",
            Error::NoPush => "NOPUSH",
            Error::Unfit(_) => "UNFIT",
            Error::CrossSlot => "CROSSSLOT",
            Error::Closed => "CLOSED",
            Error::Forked => "FORK",
            Error::Lost(_) => "LOST",
        }
    }

    pub(crate) fn late() -> Error {
        Error::Unreachable("no answer in time".to_owned())
    }

    pub(crate) fn broke() -> Error {
        Error::Unreachable("the connection broke".to_owned())
    }

    /// With the server that was tried, unless the text begins with a code.
    pub(crate) fn at(self, server: &impl fmt::Display) -> Error {
        match (&self, self.code()) {
            (Error::Unreachable(why), "UNREACHABLE") => {
                Error::Unreachable(format!("{server}: {why}"))
            }
            _ => self,
        }
    }

    /// P-CONN-5.
    pub(crate) fn replica() -> Error {
        Error::Unreachable("REPLICA it is a replica, and no master is reached from it".to_owned())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Taken => f.write_str("another owner has the lock"),
            Error::Deadlock(error) | Error::Refused(error) | Error::Quarantine(error) => {
                f.write_str(error)
            }
            Error::NoModule => f.write_str("this server does not have the module tether"),
            Error::NoPush => f.write_str(
                "this server sends no pushes to this connection; on the server, run `tether qualify`",
            ),
            Error::Unreachable(why) => write!(f, "no server: {why}"),
            Error::Forked => f.write_str(FORKED),
            Error::CrossSlot => f.write_str("in a cluster, all keys must be of one slot"),
            Error::Closed => f.write_str("the client was closed"),
            Error::Lost(loss) => write!(f, "the lock is lost: {loss}"),
            Error::Unfit(unfit) => unfit.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Lost(loss) => Some(loss),
            Error::Unfit(unfit) => Some(unfit),
            _ => None,
        }
    }
}

impl From<Unfit> for Error {
    fn from(unfit: Unfit) -> Error {
        Error::Unfit(unfit)
    }
}

impl From<Loss> for Error {
    fn from(loss: Loss) -> Error {
        Error::Lost(loss)
    }
}
