//! Why there is no lock, and why there is none any more.

use crate::timing::Unfit;
use std::fmt;

const FORKED: &str = "the connection is that of the parent process";

/// Why a lock that was granted is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Loss {
    /// The server did not answer for the time of the fence.
    Silence,
    /// The connection broke, and there is no session; or the lock was lost while the connection was broken.
    Connection,
    /// The server refuses to take the lock back, with this error, and not for a moment only. It is asked again and again, and the
    /// lock ends with the connection or session at the latest.
    Unreleased(String),
    /// This is a forked child of the process that has the lock.
    Forked,
    /// What the server said: `deleted`, `overwritten`, `lease`, `demoted` and others, as in the reference of the module.
    Told(String),
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::Silence => f.write_str("the server does not answer"),
            Loss::Connection => f.write_str("the connection broke"),
            Loss::Unreleased(error) => write!(f, "a release was refused: {error}"),
            Loss::Forked => f.write_str(FORKED),
            Loss::Told(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for Loss {}

/// Why a request was not granted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// Another owner has the lock; or still had it when the time to wait was over.
    Taken,
    /// To wait would never end: the server's error, with the cycle.
    Deadlock(String),
    /// This owner has asked for the lock already and has not given it back. Another owner may wait for it: see
    /// [`LockRequest::owner`](crate::LockRequest::owner).
    AskedAlready,
    /// The server refuses; its error.
    Refused(String),
    /// There is no such server, or no connection to it, or it did not answer in time.
    Unreachable(String),
    /// This is a forked child of the process that connected: connect anew here.
    Forked,
    /// The server does not have the module tether.
    NoModule,
    /// It was granted, and lost before anybody could know.
    Lost(Loss),
    /// The times that were given do not fit those of the server.
    Unfit(Unfit),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Taken => f.write_str("another owner has the lock"),
            Error::AskedAlready => f.write_str("this owner has or waits for the lock itself"),
            Error::Deadlock(error) | Error::Refused(error) => f.write_str(error),
            Error::NoModule => f.write_str("this server does not have the module tether"),
            Error::Unreachable(why) => write!(f, "no server: {why}"),
            Error::Forked => f.write_str(FORKED),
            Error::Lost(loss) => write!(f, "granted, and lost at once: {loss}"),
            Error::Unfit(unfit) => unfit.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<Unfit> for Error {
    fn from(unfit: Unfit) -> Error {
        Error::Unfit(unfit)
    }
}
