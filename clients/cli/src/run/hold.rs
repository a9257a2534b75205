//! The lock, as the runner has it: a connection of its own, which tether-client keeps.

use super::patience::{Attempts, Patience};
use crate::address::Target;
use crate::options::Announcement;
use crate::{advice, inspect, timing};
use std::cell::Cell;
use std::pin::{Pin, pin};
use std::time::Duration;
use tether_client::{BootTime, Error, Guard, LockRequest, Locks, Loss, Quorum, Term, quorum};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};

/// So much longer than the time to wait an answer may take that the server gives at the end of that time.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// How long the only attempt may take where nothing is waited for, as long as it may take to connect.
const ONCE_WITHIN: Duration = Duration::from_secs(5);

/// How long a server may refuse to take the lock back (without enough replicas, say), before the connection is ended all the same.
const RELEASE_WITHIN: Duration = Duration::from_secs(5);

/// How long it may take to find out who has a lock that is taken.
const HOLDER_WITHIN: Duration = Duration::from_secs(1);

/// How the lock is wanted.
pub struct Request {
    pub target: Target,
    /// In place of that, if there are any.
    pub quorum: Vec<String>,
    pub key: Vec<u8>,
    pub mode: Mode,
    pub patience: Patience,
    pub lease: Option<Duration>,
    pub at_least: Option<Duration>,
    /// What is there while the lock is held.
    pub announce: Option<Announcement>,
    /// 0 is without a session.
    pub grace: Duration,
    pub kill_after: Duration,
    /// What the server's list of clients says of the connection.
    pub client_name: String,
}

pub enum Mode {
    Exclusive,
    Shared,
    Permits {
        count: u64,
        total: u64,
    },
    /// In an election; others see this value.
    Lead(Vec<u8>),
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
    async fn of(error: Error, request: &Request) -> Refusal {
        let server = request.server();
        let advised = |why: &str| advice::with(&at(&server, why), error.code());
        match &error {
            Error::Taken => Refusal::Taken(taken(request).await),
            Error::Quarantine(why) => Refusal::Taken(format!("{server}: {why}")),
            Error::Lost(loss) => Refusal::Lost(reason(loss, request.has_session())),
            Error::Unfit(unfit) => {
                Refusal::Refused(timing::complaint(unfit, request.needs_grace()))
            }
            Error::Unreachable(why) if error.code() == "REPLICA" => Refusal::Refused(advised(why)),
            Error::Unreachable(why) => Refusal::Unreachable(advised(why)),
            // As the other commands have it: nobody was spoken to.
            Error::Refused(why) if error.code() == "TLS" => Refusal::Unreachable(advised(why)),
            Error::Refused(why) if error.code() == "ANNOUNCE" => Refusal::Taken(advised(why)),
            other => Refusal::Refused(advised(&other.to_string())),
        }
    }
}

/// Who has it, as far as that can be found out soon.
async fn taken(request: &Request) -> String {
    let mut why = format!("{}: it is taken", request.server());
    if request.quorum.is_empty() {
        let (target, key) = (request.target.clone(), request.key.clone());
        let asked = spawn_blocking(move || inspect::held_by(&target, &key));
        if let Ok(Ok(Some(holder))) = timeout(HOLDER_WITHIN, asked).await {
            why = holder;
        }
    }
    match request.patience {
        Patience::None => format!("{why}; wait for it with --wait"),
        _ => format!("{why}, and the time to wait is over"),
    }
}

pub struct Hold {
    pub token: u64,
    /// Who granted it, for people: in a cluster the node.
    pub server: String,
    /// Until when the lock is vouched for. It only grows.
    pub alive: watch::Receiver<BootTime>,
    held: Held,
    announced: Option<Guard>,
    has_session: bool,
}

/// On one server, or on a majority of several.
enum Held {
    One(Guard, Locks),
    Lead(Term, Locks),
    Majority(quorum::Guard, Quorum),
}

impl Held {
    fn lost(&self) -> Pin<Box<dyn Future<Output = Loss>>> {
        match self {
            Held::One(guard, _) => Box::pin(guard.lost()),
            Held::Lead(term, _) => Box::pin(term.lost()),
            Held::Majority(guard, _) => Box::pin(guard.lost()),
        }
    }
}

/// The lock, or why not. Who is patient asks again where no server can be reached, or where what it refuses for passes; `tell` hears
/// the first such reason. If this is dropped while it waits, the connection ends and the place in the queue with it.
pub async fn acquire(request: &Request, tell: impl Fn(&str)) -> Result<Hold, Refusal> {
    let mut attempts = Attempts::begin(request.patience);
    let is_told = Cell::new(false);
    let tell = |place: Option<&str>, why: &Error| {
        if !is_told.replace(true) {
            let server = place.map_or_else(|| request.server(), str::to_owned);
            tell(&at(&server, &bare(why)));
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
                tell(None, &error);
                sleep(pause).await;
            }
            None => return Err(Refusal::of(error, request).await),
        }
    }
}

/// With the server, unless the reason begins with it.
pub fn at(server: &str, why: &str) -> String {
    match why.starts_with(server) {
        true => why.to_owned(),
        false => format!("{server}: {why}"),
    }
}

/// Without words before it that say what an exit code says.
fn bare(error: &Error) -> String {
    match error {
        Error::Unreachable(why) => why.clone(),
        other => other.to_string(),
    }
}

/// One connection, which ends at the latest when the time to wait is over, whatever the server does.
async fn attempt(
    request: &Request,
    attempts: &Attempts,
    tell: &impl Fn(Option<&str>, &Error),
) -> Result<Hold, Error> {
    let asked = async {
        match request.quorum.is_empty() {
            true => acquire_one(request, attempts, tell).await,
            false => acquire_majority(request, attempts).await,
        }
    };
    let within = match (request.patience, attempts.left()) {
        (Patience::None, _) => ONCE_WITHIN,
        (_, Some(left)) => left + ANSWER_WITHIN,
        (_, None) => return asked.await,
    };
    let late = || Error::Unreachable("it does not answer".to_owned());
    let asked = timeout(within, asked).await;
    asked.unwrap_or_else(|_| Err(late()))
}

async fn acquire_one(
    request: &Request,
    attempts: &Attempts,
    tell: &impl Fn(Option<&str>, &Error),
) -> Result<Hold, Error> {
    let mut builder = request
        .target
        .builder()
        .name(&request.client_name)
        .stop_within(request.kill_after);
    if request.has_session() {
        builder = builder.grace(request.grace);
    }
    let locks = builder.connect().await?;
    let (token, alive, held) = if let Mode::Lead(value) = &request.mode {
        let mut election = locks.elect(&request.key, value);
        let term = patiently(&locks, &request.key, election.term(), tell).await?;
        (term.token(), term.alive(), Held::Lead(term, locks.clone()))
    } else {
        let asked = wanted(request, attempts, &locks).acquire();
        let guard = patiently(&locks, &request.key, asked, tell).await?;
        (
            guard.token(),
            guard.alive(),
            Held::One(guard, locks.clone()),
        )
    };
    let (place, _) = locks.trouble(&request.key);
    let announced = match &request.announce {
        Some(announcement) => tokio::select! {
            biased;
            loss = held.lost() => return Err(lost_before_start(loss, request)),
            announced = announce(announcement, request, attempts, &locks, tell) => Some(announced?),
        },
        None => None,
    };
    Ok(Hold {
        token,
        server: place.unwrap_or_else(|| request.server()),
        alive,
        held,
        announced,
        has_session: request.has_session(),
    })
}

fn wanted(request: &Request, attempts: &Attempts, locks: &Locks) -> LockRequest {
    // Nobody else is on this connection, so nobody needs to be told apart.
    let mut lock = locks.lock(&request.key).owner("");
    lock = match request.mode {
        Mode::Exclusive | Mode::Lead(_) => lock,
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
    match request.at_least {
        Some(time) => lock.at_least(time),
        None => lock,
    }
}

/// Makes the temporary key, and waits for its name as long as for the lock.
async fn announce(
    announcement: &Announcement,
    request: &Request,
    attempts: &Attempts,
    locks: &Locks,
    tell: &impl Fn(Option<&str>, &Error),
) -> Result<Guard, Error> {
    let Announcement { key, value } = announcement;
    let mut temporary = locks.temporary_key(key, value);
    temporary = match (request.patience, attempts.left()) {
        (Patience::None, _) => temporary.no_wait(),
        (_, Some(left)) => temporary.wait(left),
        (_, None) => temporary,
    };
    let announced = patiently(locks, key, temporary.acquire(), tell).await;
    announced.map_err(|error| match error {
        Error::Taken => {
            let name = String::from_utf8_lossy(key);
            Error::Refused(format!("ANNOUNCE the key '{name}' exists already"))
        }
        other => other,
    })
}

/// Nothing was started yet, so what went with the connection can be asked for again.
fn lost_before_start(loss: Loss, request: &Request) -> Error {
    match loss {
        Loss::Connection | Loss::Silence => {
            Error::Unreachable(reason(&loss, request.has_session()))
        }
        other => Error::Lost(other),
    }
}

/// What is asked for, which goes on waiting by itself where no server is; `tell` hears why.
async fn patiently<T>(
    locks: &Locks,
    key: &[u8],
    asked: impl Future<Output = Result<T, Error>>,
    tell: &impl Fn(Option<&str>, &Error),
) -> Result<T, Error> {
    let (place, mut trouble) = locks.trouble(key);
    let mut asked = pin!(asked);
    loop {
        tokio::select! {
            answer = asked.as_mut() => return answer,
            Ok(()) = trouble.changed() => {
                if let Some(why) = &trouble.borrow_and_update().error {
                    tell(place.as_deref(), why);
                }
            }
        }
    }
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
        server: request.server(),
        alive: guard.alive(),
        held: Held::Majority(guard, quorum),
        announced: None,
        has_session: true,
    })
}

impl Request {
    pub fn has_session(&self) -> bool {
        !self.quorum.is_empty() || !self.grace.is_zero()
    }

    /// Whether it cannot be had without one.
    pub fn needs_grace(&self) -> bool {
        !self.quorum.is_empty() || self.at_least.is_some()
    }

    /// Who is asked, for people.
    pub fn server(&self) -> String {
        match self.quorum.is_empty() {
            true => self.target.name(),
            false => "the quorum".to_owned(),
        }
    }
}

impl Hold {
    /// Ends when what was announced is gone; never, if nothing was.
    pub fn unannounced(&self) -> impl Future<Output = ()> + 'static {
        let lost = self.announced.as_ref().map(Guard::lost);
        async move {
            match lost {
                Some(lost) => drop(lost.await),
                None => std::future::pending().await,
            }
        }
    }

    /// Why it is lost, if that is known already.
    pub fn check(&self) -> Result<(), String> {
        let checked = match &self.held {
            Held::One(guard, _) => guard.check(),
            Held::Lead(term, _) => term.check(),
            Held::Majority(guard, _) => guard.check(),
        };
        checked.map_err(|loss| reason(&loss, self.has_session))
    }

    /// Ends with the reason when the lock is lost.
    pub fn lost(&self) -> impl Future<Output = String> + 'static {
        let (lost, has_session) = (self.held.lost(), self.has_session);
        async move { reason(&lost.await, has_session) }
    }

    /// Ends what was announced, releases the lock and ends the session. Why it was not held any more, if that is so.
    pub async fn release(self) -> Result<(), String> {
        if let Some(announced) = self.announced {
            let _ = timeout(RELEASE_WITHIN, announced.release()).await;
        }
        let of_one = |released| match released {
            Ok(Err(Error::Lost(loss))) => Err(loss),
            // What the server did not take, the end of the connection or of the session takes along.
            _ => Ok(()),
        };
        let released = match self.held {
            Held::One(guard, locks) => {
                let released = timeout(RELEASE_WITHIN, guard.release()).await;
                locks.close().await;
                of_one(released)
            }
            Held::Lead(term, locks) => {
                let released = timeout(RELEASE_WITHIN, term.resign()).await;
                locks.close().await;
                of_one(released)
            }
            Held::Majority(guard, quorum) => {
                let released = timeout(RELEASE_WITHIN, guard.release()).await;
                quorum.close().await;
                released.unwrap_or(Ok(()))
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
