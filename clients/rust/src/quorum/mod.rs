//! A lock on three or five independent servers, held while a majority of them is.
//!
//! - protocol.rs: the rules, without a server    request.rs: the task that follows them for one lock
//! - servers.rs: a connection to each server     model.rs: all that can happen to the rules at small size
//! - simulation.rs: the rules and real engines in random trouble    acks.rs: a model of ACKS, beside which a quorum is the other way
//!
//! No server is a replica of another, none is ever replaced by one, and all clients name the same servers.

#[cfg(test)]
mod acks;
#[cfg(test)]
mod model;
mod protocol;
mod request;
mod servers;
#[cfg(test)]
mod simulation;

use crate::address::Address;
use crate::clock::BootTime;
use crate::error::{Error, Loss};
use crate::timing::{self, Unfit};
use crate::tls::Certificates;
use protocol::{majority, majority_vouches};
use request::{Handle, Holder, State, Wish};
use servers::{Servers, Times};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;

/// How long to look for a majority at first.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// The grace of the sessions, unless another is given.
const GRACE: Duration = Duration::from_secs(10);

/// Connections to three or five independent servers, for any number of tasks. Clones are the same; they end when the last of
/// them, and of the guards, is dropped.
///
/// ```no_run
/// use std::time::Duration;
/// use tether_client::{Error, Quorum};
///
/// async fn lead() -> Result<(), Error> {
///     let quorum = Quorum::builder(["redis://a:6379", "redis://b:6379", "redis://c:6379"])
///         .grace(Duration::from_secs(10))
///         .stop_within(Duration::from_secs(2))
///         .connect()
///         .await?;
///     let guard = quorum.lock("leader").acquire().await?;
///     println!("held with the token {}", guard.token());
///     guard.release().await?;
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct Quorum {
    servers: Arc<Servers>,
}

/// How to connect; see [`Quorum::builder`].
#[derive(Clone)]
pub struct Builder {
    urls: Vec<String>,
    certificates: Certificates,
    name: Option<String>,
    grace: Duration,
    fence: Option<Duration>,
    stop_within: Duration,
}

/// Without the URLs and certificates, which have secrets in them.
impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("servers", &self.urls.len())
            .field("grace", &self.grace)
            .field("fence", &self.fence)
            .field("stop_within", &self.stop_within)
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// Trust this authority alone, for `rediss://`: certificates in PEM. Default: those that the system trusts.
    #[cfg(feature = "tls")]
    pub fn authority(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.certificates.authority = Some(pem.into());
        self
    }

    /// Show this certificate to servers that ask for one, for `rediss://`: a chain and its key, both in PEM.
    #[cfg(feature = "tls")]
    pub fn client_certificate(
        mut self,
        chain: impl Into<Vec<u8>>,
        key: impl Into<Vec<u8>>,
    ) -> Self {
        self.certificates.own = Some((chain.into(), key.into()));
        self
    }

    /// As [`Builder::name`](crate::Builder::name).
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// For how long each server keeps the holds of a client that it does not hear of. Default: 10 seconds.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// How long to rely on a server that does not answer. Default: the longest that holds, which is the grace less
    /// [`stop_within`](Builder::stop_within) and a second.
    pub fn fence(mut self, fence: Duration) -> Self {
        self.fence = Some(fence);
        self
    }

    /// How long the work goes on after its lock is lost, at most. Default: 0.
    pub fn stop_within(mut self, stop_within: Duration) -> Self {
        self.stop_within = stop_within;
        self
    }

    /// Connects, and waits until a majority of the servers is reached that fit: masters whose `tether.quarantine` is as long as
    /// the fence, [`stop_within`](Builder::stop_within) and a second together. Within a tokio runtime.
    ///
    /// # Errors
    /// [`Error::Unfit`] if the times do not fit together; otherwise why one of the servers that are missing is.
    pub async fn connect(self) -> Result<Quorum, Error> {
        if !matches!(self.urls.len(), 3 | 5) {
            return Err(Unfit::Servers(self.urls.len()).into());
        }
        let most = timing::fence(self.grace, self.stop_within)?;
        let fence = self.fence.unwrap_or(most);
        if fence > most || fence < timing::SHORTEST_FENCE {
            return Err(Unfit::Fence { fence, most }.into());
        }
        let mut urls = self.urls;
        // All clients ask them in one order, in whatever order they name them.
        urls.sort_by(|one, other| place(one).cmp(place(other)));
        let name = self.name.as_deref();
        let address = |url: &String| {
            let url = std::slice::from_ref(url);
            Ok(Address::new(url, &[], &self.certificates, name)?.fixed())
        };
        let addresses = urls
            .iter()
            .map(address)
            .collect::<Result<Vec<_>, Error>>()?;
        let times = Times {
            grace: self.grace,
            fence,
            stop_within: self.stop_within,
        };
        let servers = Arc::new(Servers::start(addresses, times));
        let mut changed = servers.changed();
        let is_majority = || {
            let reached = (0..servers.len()).filter(|at| servers.reached(*at).is_some());
            reached.count() >= majority(servers.len())
        };
        let connecting = async {
            while !is_majority() {
                let _ = changed.changed().await;
            }
        };
        if timeout(CONNECT_WITHIN, connecting).await.is_err() {
            let why = servers.why();
            return Err(why.unwrap_or_else(|| Error::Unreachable("no majority".to_owned())));
        }
        Ok(Quorum { servers })
    }
}

/// What names the server in a URL: without the user, whose password may differ.
fn place(url: &str) -> &str {
    let place = url.split_once("://").map_or(url, |(_, place)| place);
    place.rsplit_once('@').map_or(place, |(_, place)| place)
}

impl Quorum {
    /// To three or five servers, each with a URL as for [`Locks::builder`](crate::Locks::builder). Every client names the same
    /// servers by the same hosts and ports, since those give the order in which they are asked.
    pub fn builder<U: Into<String>>(urls: impl IntoIterator<Item = U>) -> Builder {
        Builder {
            urls: urls.into_iter().map(Into::into).collect(),
            certificates: Certificates::default(),
            name: None,
            grace: GRACE,
            fence: None,
            stop_within: Duration::ZERO,
        }
    }

    /// An exclusive lock of this name, to be [acquired](Request::acquire).
    pub fn lock(&self, key: impl AsRef<[u8]>) -> Request {
        Request {
            servers: self.servers.clone(),
            wish: Wish {
                key: key.as_ref().to_vec(),
                owner: None,
                waits: true,
            },
            wait: None,
        }
    }

    /// How many of the servers can be asked at the moment.
    pub fn reached(&self) -> usize {
        let reached = (0..self.servers.len()).filter(|at| self.servers.reached(*at).is_some());
        reached.count()
    }

    /// Ends the connections and their sessions, also for guards that are still there: they are lost. Requests end, those of clones
    /// too, with [`Error::Closed`].
    pub async fn close(self) {
        self.servers.close().await;
    }
}

/// A lock as it is wanted. Nothing is asked before [`Request::acquire`].
#[must_use = "nothing is asked before `acquire`"]
pub struct Request {
    servers: Arc<Servers>,
    wish: Wish,
    wait: Option<Duration>,
}

impl Request {
    /// Wait for so long at most. Default: for as long as it takes, also for a majority of the servers to be reached.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wish.waits = !wait.is_zero();
        self.wait = self.wish.waits.then_some(wait);
        self
    }

    /// Do not wait: neither for another owner nor for servers.
    pub fn no_wait(mut self) -> Self {
        self.wish.waits = false;
        self
    }

    /// As [`LockRequest::owner`](crate::LockRequest::owner).
    pub fn owner(mut self, name: impl AsRef<[u8]>) -> Self {
        self.wish.owner = Some(name.as_ref().to_vec());
        self
    }

    /// Asks, and waits as was said. If this future is dropped, everything is given back.
    ///
    /// # Errors
    /// [`Error::Taken`], [`Error::Deadlock`], [`Error::Closed`], or why so many servers refuse that there is no majority.
    pub async fn acquire(self) -> Result<Guard, Error> {
        let servers = self.servers.len();
        let mut handle = request::start(self.servers, self.wish);
        let is_settled = |state: &State| !matches!(state, State::Wanted);
        let settled = handle.state.wait_for(is_settled);
        let settled = match self.wait {
            Some(wait) => timeout(wait, settled).await.map_err(|_| Error::Taken)?,
            None => settled.await,
        };
        let state = settled.map(|state| state.clone());
        match state {
            Ok(State::Held(token, _)) => Ok(Guard {
                handle,
                token,
                servers,
            }),
            Ok(State::Lost(loss)) => Err(Error::Lost(loss)),
            Ok(State::Failed(error)) => Err(error),
            Ok(State::Over | State::Wanted) | Err(_) => {
                Err(Error::Unreachable("it was closed".to_owned()))
            }
        }
    }
}

/// A lock that is held on a majority of the servers. Dropped, it is given back, without anybody waiting for their answers. Drop it
/// once the work has stopped, also where the lock was lost: until then, or until everything is over that it ever promised, what is
/// left of it is kept from others.
#[must_use = "it is given back when it is dropped"]
pub struct Guard {
    handle: Handle,
    token: u64,
    servers: usize,
}

impl Guard {
    /// The fencing token: greater than that of every earlier holder, if each server keeps its files or has a clock that is not
    /// behind those of the others. Send it along with each write to what the lock protects.
    pub fn token(&self) -> u64 {
        self.token
    }

    /// Whether the lock is held, as far as can be known here: without asking the servers. O(servers).
    ///
    /// # Errors
    /// Why it is lost.
    pub fn check(&self) -> Result<(), Loss> {
        // First, since this waits while a loss is on its way: of those that are lost at once none says otherwise.
        let held_until = self.vouched_until();
        if let State::Lost(loss) = &*self.handle.state.borrow() {
            return Err(loss.clone());
        }
        match BootTime::now() < held_until {
            true => Ok(()),
            false => Err(Loss::Silence),
        }
    }

    /// Until when the lock is vouched for, as it moves on with the answers of the servers. What must not rely on this process
    /// (another that watches over the work) can keep the last that it was told.
    #[cfg(feature = "internals")]
    #[doc(hidden)]
    pub fn alive(&self) -> watch::Receiver<BootTime> {
        self.handle.alive.clone()
    }

    /// The same, as it is at this moment; a moment in the past once the lock is lost.
    #[cfg(feature = "internals")]
    #[doc(hidden)]
    pub fn held_until(&self) -> BootTime {
        self.vouched_until()
    }

    fn vouched_until(&self) -> BootTime {
        let State::Held(_, holders) = &*self.handle.state.borrow() else {
            return BootTime(0);
        };
        let until = holders.iter().map(Holder::vouched_until);
        majority_vouches(until, self.servers).unwrap_or(BootTime(0))
    }

    /// Ends when the lock is lost, with the reason. While it is held, and once it was released, this waits. It does not keep the
    /// lock.
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + 'static {
        let mut state: watch::Receiver<State> = self.handle.state.clone();
        async move {
            let lost = state
                .wait_for(|state| matches!(state, State::Lost(_)))
                .await;
            match lost.map(|state| state.clone()) {
                Ok(State::Lost(loss)) => loss,
                _ => std::future::pending().await,
            }
        }
    }

    /// Gives it back, and waits until each server that can be reached has taken it or refused to.
    ///
    /// # Errors
    /// Why it was not held any more.
    pub async fn release(self) -> Result<(), Loss> {
        self.handle.give_up();
        let mut state = self.handle.state.clone();
        let ended = state
            .wait_for(|state| !matches!(state, State::Held(..)))
            .await;
        match ended.map(|state| state.clone()) {
            Ok(State::Lost(loss)) => Err(loss),
            _ => Ok(()),
        }
    }
}
