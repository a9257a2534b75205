//! The lock, as the runner has it: a connection of its own, which tether-client keeps.

use crate::timing;
use std::pin::Pin;
use std::time::Duration;
use tether_client::{BootTime, Error, Guard, Locks, Loss, Quorum, quorum};
use tokio::sync::watch;

/// How the lock is wanted.
pub struct Request {
    pub url: String,
    /// In place of that, if there are any.
    pub quorum: Vec<String>,
    pub key: Vec<u8>,
    pub mode: Mode,
    /// None without WAIT; 0 waits for as long as it takes.
    pub wait: Option<Duration>,
    pub lease: Option<Duration>,
    /// 0 is without a session.
    pub grace: Duration,
    pub kill_after: Duration,
}

pub enum Mode {
    Exclusive,
    Shared,
    Permits { count: u64, total: u64 },
}

/// Why there is no lock.
#[derive(Debug)]
pub enum Refusal {
    Taken(String),
    Unreachable(String),
    /// The server says no, or does not fit.
    Refused(String),
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        match error {
            Error::Taken => Refusal::Taken("it is taken".to_owned()),
            Error::Refused(text) if text.starts_with("QUARANTINE") => Refusal::Taken(text),
            Error::Unreachable(why) => Refusal::Unreachable(why),
            Error::Lost(loss) => Refusal::Unreachable(loss.to_string()),
            Error::Unfit(unfit) => Refusal::Refused(timing::complaint(&unfit)),
            other => Refusal::Refused(other.to_string()),
        }
    }
}

pub struct Hold {
    pub token: u64,
    /// Until when the lock is vouched for. It only grows.
    pub alive: watch::Receiver<BootTime>,
    held: Held,
    has_session: bool,
}

/// On one server, or on a majority of several.
enum Held {
    One(Guard, Locks),
    Majority(quorum::Guard, Quorum),
}

/// The lock, or why not. If this is dropped while it waits, the connection ends and the place in the queue with it.
pub async fn acquire(request: Request) -> Result<Hold, Refusal> {
    if !request.quorum.is_empty() {
        return acquire_majority(request).await;
    }
    let has_session = !request.grace.is_zero();
    let mut builder = Locks::builder(&request.url).stop_within(request.kill_after);
    if has_session {
        builder = builder.grace(request.grace);
    }
    let locks = builder.connect().await?;
    // Nobody else is on this connection, so nobody needs to be told apart.
    let mut lock = locks.lock(&request.key).owner("");
    lock = match request.mode {
        Mode::Exclusive => lock,
        Mode::Shared => lock.shared(),
        Mode::Permits { count, total } => lock.permits(count, total),
    };
    lock = match request.wait {
        Some(Duration::ZERO) => lock,
        Some(wait) => lock.wait(wait),
        None => lock.no_wait(),
    };
    if let Some(lease) = request.lease {
        lock = lock.lease(lease);
    }
    let is_patient = request.wait.is_some();
    let guard = lock.acquire().await;
    let guard = guard.map_err(|error| refusal(error, is_patient))?;
    Ok(Hold {
        token: guard.token(),
        alive: locks.alive(),
        held: Held::One(guard, locks),
        has_session,
    })
}

async fn acquire_majority(request: Request) -> Result<Hold, Refusal> {
    let builder = Quorum::builder(request.quorum).grace(request.grace);
    let quorum = builder.stop_within(request.kill_after).connect().await?;
    let lock = quorum.lock(&request.key).owner("");
    let lock = match request.wait {
        Some(Duration::ZERO) => lock,
        Some(wait) => lock.wait(wait),
        None => lock.no_wait(),
    };
    let guard = lock.acquire().await;
    let guard = guard.map_err(|error| refusal(error, request.wait.is_some()))?;
    Ok(Hold {
        token: guard.token(),
        alive: guard.alive(),
        held: Held::Majority(guard, quorum),
        has_session: true,
    })
}

fn refusal(error: Error, is_patient: bool) -> Refusal {
    match error {
        Error::Taken if is_patient => {
            Refusal::Taken("it is taken, and the time to wait is over".to_owned())
        }
        other => other.into(),
    }
}

impl Hold {
    /// Ends with the reason when the lock is lost.
    pub fn lost(&self) -> impl Future<Output = String> + 'static {
        let has_session = self.has_session;
        let lost: Pin<Box<dyn Future<Output = Loss>>> = match &self.held {
            Held::One(guard, _) => Box::pin(guard.lost()),
            Held::Majority(guard, _) => Box::pin(guard.lost()),
        };
        async move { reason(&lost.await, has_session) }
    }

    /// Releases the lock and ends the session. Why it was not held any more, if that is so.
    pub async fn release(self) -> Result<(), String> {
        let released = match self.held {
            Held::One(guard, locks) => {
                let released = guard.release().await;
                locks.close().await;
                released
            }
            Held::Majority(guard, quorum) => {
                let released = guard.release().await;
                quorum.close().await;
                released
            }
        };
        match released {
            // Not answered is not refused: then nothing says that it was lost.
            Ok(()) | Err(Loss::Silence) => Ok(()),
            Err(Loss::Connection) if !self.has_session => Ok(()),
            Err(loss) => Err(reason(&loss, self.has_session)),
        }
    }
}

fn reason(loss: &Loss, has_session: bool) -> String {
    match loss {
        Loss::Told(word) => format!("LOST {word}"),
        Loss::Connection if has_session => "it was lost while the connection was broken".to_owned(),
        Loss::Connection => "the connection broke, and there is no --grace".to_owned(),
        other => other.to_string(),
    }
}
