//! The lock, as the runner has it: a connection of its own, which tether-client keeps.

use super::patience::{Attempts, Patience};
use crate::timing;
use std::cell::Cell;
use std::pin::{Pin, pin};
use std::time::Duration;
use tether_client::{BootTime, Error, Guard, Locks, Loss, Quorum, quorum};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// So much longer than the time to wait an answer may take that the server gives at the end of that time.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// How long a server may refuse to take the lock back (without enough replicas, say), before the connection is ended all the same.
const RELEASE_WITHIN: Duration = Duration::from_secs(5);

/// How the lock is wanted.
pub struct Request {
    pub url: String,
    /// In place of that, if there are any.
    pub quorum: Vec<String>,
    pub key: Vec<u8>,
    pub mode: Mode,
    pub patience: Patience,
    pub lease: Option<Duration>,
    /// 0 is without a session.
    pub grace: Duration,
    pub kill_after: Duration,
    /// What the server's list of clients says of the connection.
    pub client_name: String,
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
    /// It was granted, and lost before anything was started.
    Lost(String),
}

/// What passes by itself: the server starts, is busy, hands over to another, or has forgotten a session by a restart.
const PASSING: [&str; 8] = [
    "BUSY",
    "CLUSTERDOWN",
    "LOADING",
    "MASTERDOWN",
    "NOSESSION",
    "READONLY",
    "TRYAGAIN",
    "UNBLOCKED",
];

/// Whether it may be had if it is asked for again.
fn is_passing(error: &Error) -> bool {
    match error {
        Error::Unreachable(_) => true,
        Error::Quarantine(_) => true,
        Error::Refused(_) => PASSING.contains(&error.code()),
        _ => false,
    }
}

impl Refusal {
    fn of(error: Error, has_session: bool) -> Refusal {
        match error {
            Error::Taken => Refusal::Taken("it is taken".to_owned()),
            Error::Quarantine(text) => Refusal::Taken(text),
            Error::Unreachable(why) => Refusal::Unreachable(why),
            Error::Lost(loss) => Refusal::Lost(reason(&loss, has_session)),
            Error::Unfit(unfit) => Refusal::Refused(timing::complaint(&unfit)),
            // As the other commands have it: nobody was spoken to.
            Error::Refused(_) if error.code() == "TLS" => Refusal::Unreachable(error.to_string()),
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

/// The lock, or why not. Who is patient asks again where no server can be reached, or where what it refuses for passes; `tell` hears
/// the first such reason. If this is dropped while it waits, the connection ends and the place in the queue with it.
pub async fn acquire(request: &Request, tell: impl Fn(&str)) -> Result<Hold, Refusal> {
    let mut attempts = Attempts::begin(request.patience);
    let is_told = Cell::new(false);
    let tell = |why: &Error| {
        if !is_told.replace(true) {
            tell(&why.to_string());
        }
    };
    loop {
        let error = match attempt(request, &attempts, &tell).await {
            Ok(hold) => return Ok(hold),
            Err(error) => error,
        };
        let pause = is_passing(&error).then(|| attempts.pause()).flatten();
        match pause {
            Some(pause) => {
                tell(&error);
                sleep(pause).await;
            }
            None if error == Error::Taken && !matches!(request.patience, Patience::None) => {
                let why = "it is taken, and the time to wait is over";
                return Err(Refusal::Taken(why.to_owned()));
            }
            None => return Err(Refusal::of(error, request.has_session())),
        }
    }
}

/// One connection, which ends at the latest when the time to wait is over, whatever the server does.
async fn attempt(
    request: &Request,
    attempts: &Attempts,
    tell: &impl Fn(&Error),
) -> Result<Hold, Error> {
    let asked = async {
        match request.quorum.is_empty() {
            true => acquire_one(request, attempts, tell).await,
            false => acquire_majority(request, attempts).await,
        }
    };
    match attempts.left() {
        Some(left) if request.patience != Patience::None => {
            let late = || Error::Unreachable("it does not answer".to_owned());
            let asked = timeout(left + ANSWER_WITHIN, asked).await;
            asked.unwrap_or_else(|_| Err(late()))
        }
        _ => asked.await,
    }
}

async fn acquire_one(
    request: &Request,
    attempts: &Attempts,
    tell: &impl Fn(&Error),
) -> Result<Hold, Error> {
    let mut builder = Locks::builder(&request.url)
        .name(&request.client_name)
        .stop_within(request.kill_after);
    if request.has_session() {
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
    lock = match (request.patience, attempts.left()) {
        (Patience::None, _) => lock.no_wait(),
        (_, Some(left)) => lock.wait(left),
        (_, None) => lock,
    };
    if let Some(lease) = request.lease {
        lock = lock.lease(lease);
    }
    let mut trouble = locks.trouble();
    let mut asked = pin!(lock.acquire());
    let guard = loop {
        tokio::select! {
            guard = asked.as_mut() => break guard?,
            // It goes on waiting, by itself.
            Ok(()) = trouble.changed() => {
                if let Some(why) = &trouble.borrow_and_update().error {
                    tell(why);
                }
            }
        }
    };
    Ok(Hold {
        token: guard.token(),
        alive: locks.alive(),
        held: Held::One(guard, locks),
        has_session: request.has_session(),
    })
}

async fn acquire_majority(request: &Request, attempts: &Attempts) -> Result<Hold, Error> {
    let builder = Quorum::builder(request.quorum.clone())
        .name(&request.client_name)
        .grace(request.grace);
    let quorum = builder.stop_within(request.kill_after).connect().await?;
    let lock = quorum.lock(&request.key).owner("");
    let lock = match (request.patience, attempts.left()) {
        (Patience::None, _) => lock.no_wait(),
        (_, Some(left)) => lock.wait(left),
        (_, None) => lock,
    };
    let guard = lock.acquire().await?;
    Ok(Hold {
        token: guard.token(),
        alive: guard.alive(),
        held: Held::Majority(guard, quorum),
        has_session: true,
    })
}

impl Request {
    fn has_session(&self) -> bool {
        !self.quorum.is_empty() || !self.grace.is_zero()
    }
}

impl Hold {
    /// Why it is lost, if that is known already.
    pub fn check(&self) -> Result<(), String> {
        let checked = match &self.held {
            Held::One(guard, _) => guard.check(),
            Held::Majority(guard, _) => guard.check(),
        };
        checked.map_err(|loss| reason(&loss, self.has_session))
    }

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
                let released = timeout(RELEASE_WITHIN, guard.release()).await;
                locks.close().await;
                match released {
                    Ok(Err(Error::Lost(loss))) => Err(loss),
                    // What the server did not take, the end of the connection or of the session takes along.
                    _ => Ok(()),
                }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_told_from_what_stays() {
        let refused = |text: &str| Error::Refused(text.to_owned());
        for error in [
            Error::Unreachable("Connection refused (os error 111)".to_owned()),
            refused("LOADING Redis is loading the dataset in memory"),
            Error::Quarantine("QUARANTINE nothing is granted yet".to_owned()),
            refused("UNBLOCKED force unblock from blocking operation"),
        ] {
            assert!(is_passing(&error), "{error}");
        }
        for error in [
            Error::Taken,
            Error::NoModule,
            refused("TLS invalid peer certificate: UnknownIssuer"),
            refused("NOPERM this user has no permissions"),
            refused("BUSYKEY x"),
            refused("ERR option"),
        ] {
            assert!(!is_passing(&error), "{error}");
        }
    }
}
