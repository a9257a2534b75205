//! What a program asks: a connection, and locks on it.

use crate::address::Address;
use crate::backoff;
use crate::clock::BootTime;
use crate::core::{Mode, Request};
use crate::election::Election;
use crate::error::Error;
use crate::guard::{Attempt, Guard};
use crate::line;
use crate::link::{Shared, Way};
use crate::temporary::TemporaryKey;
use crate::terms::{CONNECT_WITHIN, Terms};
use crate::tls::Certificates;
use crate::watch::Watch;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// A connection to a server with the module, for any number of tasks. When it breaks, another is made. Clones are the same
/// connection; it ends when the last of them, and of the guards, is dropped.
#[derive(Clone)]
pub struct Locks {
    shared: Arc<Shared>,
}

/// How to connect; see [`Locks::builder`].
#[derive(Clone)]
pub struct Builder {
    urls: Vec<String>,
    sentinels: Vec<String>,
    certificates: Certificates,
    name: Option<String>,
    terms: Terms,
    connect_within: Option<Duration>,
}

/// Without the URL and certificates, which have secrets in them.
impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("terms", &self.terms)
            .field("connect_within", &self.connect_within)
            .finish_non_exhaustive()
    }
}

impl Builder {
    /// To the master that these Sentinels name: they are asked each time that a connection is made, and what most of them say is
    /// believed. They have URLs of their own, `redis://host:26379`. The URL of the builder then says how to speak to the master,
    /// with the name that the Sentinels know it by in place of its address: `redis://user:password@mymaster/db`.
    pub fn sentinels<U: Into<String>>(mut self, urls: impl IntoIterator<Item = U>) -> Self {
        self.sentinels = urls.into_iter().map(Into::into).collect();
        self
    }

    /// Other servers that may be the master, now or after a failover, as URLs. They are tried in this order, after the first;
    /// one that is a replica says where its master is, and is believed.
    pub fn or_at<U: Into<String>>(mut self, urls: impl IntoIterator<Item = U>) -> Self {
        self.urls.extend(urls.into_iter().map(Into::into));
        self
    }

    /// Try for so long to connect at first, if the server cannot be reached. Default: once.
    pub fn connect_within(mut self, time: Duration) -> Self {
        self.connect_within = Some(time);
        self
    }

    /// What lists of clients call this connection (`CLIENT SETNAME`), and so what says who holds a lock. Characters that the server
    /// does not take become `_`. Default:
    /// `tether:<host>:<pid>:<program>`, which `tether who` shows in three columns.
    pub fn client_name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

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

    /// Hold locks in a session: they survive a broken connection, and a restart or failover of the server, if the client is
    /// back before the fence falls. The server gives the locks of a client that does not come back to others after this time.
    /// Default: no session; a connection that breaks loses its locks at once.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.terms.grace = Some(grace);
        self
    }

    /// How long to rely on a server that does not answer. After this time every lock is lost here, whatever the server does.
    /// It counts from the sending of the last request that was answered. Default: the longest that holds, which is the grace
    /// less [`stop_within`](Builder::stop_within) and a second, or without a session half of the server's
    /// `tether.peer-timeout`.
    pub fn fence(mut self, fence: Duration) -> Self {
        self.terms.fence = Some(fence);
        self
    }

    /// How long the work goes on after its lock is lost, at most. Default: 0.
    pub fn stop_within(mut self, stop_within: Duration) -> Self {
        self.terms.stop_within = stop_within;
        self
    }

    /// Connects, checks that server and times fit together, and begins a session where a grace was given. Within a tokio
    /// runtime.
    ///
    /// # Errors
    /// [`Error::Unreachable`], [`Error::NoModule`], [`Error::Unfit`], or [`Error::Refused`] with the server's error.
    pub async fn connect(self) -> Result<Locks, Error> {
        let Builder {
            urls,
            sentinels,
            certificates,
            name,
            ..
        } = &self;
        let address = Address::new(urls, sentinels, certificates, name.as_deref())?;
        let address = Arc::new(address);
        let began = BootTime::now();
        for failed in 0.. {
            let now = BootTime::now();
            let delay = backoff::delay(failed, now.0, backoff::LONGEST);
            match self.connect_once(&address).await {
                Err(Error::Unreachable(_)) if self.has_time_for(began, delay) => sleep(delay).await,
                connected => return connected,
            }
        }
        Err(line::late())
    }

    /// Whether there is time for another attempt after this delay.
    fn has_time_for(&self, began: BootTime, delay: Duration) -> bool {
        let spent = BootTime::now().since(began) + delay;
        self.connect_within.is_some_and(|within| spent < within)
    }

    async fn connect_once(&self, address: &Arc<Address>) -> Result<Locks, Error> {
        let within = self.connect_within.unwrap_or(CONNECT_WITHIN);
        let within = within.min(CONNECT_WITHIN);
        let mut line = address.connect(within).await?;
        let sent = BootTime::now();
        let begun = timeout(within, self.terms.begin(&mut line)).await;
        let begun = begun.map_err(|_| line::late())??;
        let way = Way {
            address: address.clone(),
            secret: begun.secret,
            fence: begun.fence,
            run_id: begun.run_id,
            terms: Some(self.terms),
        };
        let shared = Shared::start(line, way, sent);
        Ok(Locks { shared })
    }
}

impl Locks {
    /// Connects with the defaults of [`Locks::builder`].
    ///
    /// # Errors
    /// As [`Builder::connect`].
    pub async fn connect(url: &str) -> Result<Locks, Error> {
        Locks::builder(url).connect().await
    }

    /// To a server at `redis://user:password@host:port/db`, `unix:///path` or, with the feature `tls`, `rediss://`.
    pub fn builder(url: &str) -> Builder {
        Builder {
            urls: vec![url.to_owned()],
            sentinels: Vec::new(),
            certificates: Certificates::default(),
            name: None,
            terms: Terms::default(),
            connect_within: None,
        }
    }

    /// A lock of this name, to be [acquired](LockRequest::acquire).
    pub fn lock(&self, key: impl AsRef<[u8]>) -> LockRequest {
        self.request(vec![key.as_ref().to_vec()])
    }

    /// Several exclusive locks in one step, or none of them; with one token. The first must not be named twice.
    pub fn all<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> LockRequest {
        self.request(keys.into_iter().map(|key| key.as_ref().to_vec()).collect())
    }

    /// A string key that lives as long as its guard and the connection, to be [acquired](TemporaryKey::acquire).
    pub fn temporary_key(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> TemporaryKey {
        TemporaryKey::new(self.shared.clone(), key.as_ref(), value.as_ref())
    }

    /// Whether these keys exist, and each change of that, whatever they are and whoever makes or deletes them. Any number of
    /// watches share the connection, also of the same keys. O(keys).
    pub fn watch<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Watch {
        Watch::new(self.shared.clone(), keys)
    }

    /// A candidate for the lead of this name, which is an exclusive lock.
    pub fn elect(&self, name: impl AsRef<[u8]>) -> Election {
        Election::new(self.clone(), name.as_ref())
    }

    /// Until when the locks of this connection are vouched for, as it moves on with each answer of the server. What must not
    /// rely on this process (another that watches over the work) can keep the last that it was told.
    pub fn alive(&self) -> watch::Receiver<BootTime> {
        self.shared.alive()
    }

    /// Why there is no connection at the moment, as that changes; None while there is one. Requests that wait go on waiting
    /// meanwhile: this is for who wants to say so.
    pub fn trouble(&self) -> watch::Receiver<Option<Error>> {
        self.shared.trouble()
    }

    /// How often requests that were given up had not been granted, and had been.
    pub fn races(&self) -> (u64, u64) {
        let races = self.shared.with_core(|core| core.races());
        (races.cancel_first, races.grant_first)
    }

    /// Whether nothing is held, waited for or on its way, as far as the server has answered.
    pub fn is_idle(&self) -> bool {
        self.shared.with_core(|core| core.is_idle())
    }

    /// Ends the connection and its session, if there is one, also for guards that are still there: they are lost.
    pub async fn close(self) {
        self.shared.close().await;
    }

    fn request(&self, keys: Vec<Vec<u8>>) -> LockRequest {
        LockRequest {
            shared: self.shared.clone(),
            request: Request {
                keys,
                label: own_label(),
                mode: Mode::Exclusive,
                wait: Some(Duration::ZERO),
                lease: None,
            },
        }
    }
}

/// A lock as it is wanted. Nothing is asked before [`LockRequest::acquire`].
#[must_use = "nothing is asked before `acquire`"]
pub struct LockRequest {
    shared: Arc<Shared>,
    request: Request,
}

impl LockRequest {
    /// With other readers, and no writer.
    pub fn shared(mut self) -> Self {
        self.request.mode = Mode::Shared;
        self
    }

    /// So many permits of a semaphore that has `total`.
    pub fn permits(mut self, permits: u64, total: u64) -> Self {
        self.request.mode = Mode::Permits { permits, total };
        self
    }

    /// The lock ends by itself after this time, which is a loss. Default: it ends with the connection, or is released.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.request.lease = Some(lease);
        self
    }

    /// Wait for so long at most. Default: for as long as it takes.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.request.wait = (!wait.is_zero()).then_some(wait);
        self
    }

    /// Do not wait.
    pub fn no_wait(mut self) -> Self {
        self.request.wait = None;
        self
    }

    /// Who asks, of those that share the connection; an owner cannot have a lock twice, and the server refuses what would let
    /// owners wait for each other. Default: the task that made this request.
    pub fn owner(mut self, label: impl AsRef<[u8]>) -> Self {
        self.request.label = label.as_ref().to_vec();
        self
    }

    /// Asks, and waits as was said. If this future is dropped, its place in the queue is given up, and what was granted
    /// meanwhile is given back.
    ///
    /// # Errors
    /// Each but [`Error::Unfit`] and [`Error::NoModule`].
    pub async fn acquire(self) -> Result<Guard, Error> {
        if self.request.keys.is_empty() {
            return Err(Error::Refused("no lock is named".to_owned()));
        }
        Attempt::new(self.shared, self.request)?.granted().await
    }
}

/// The task's, or `main` outside of tasks.
pub(crate) fn own_label() -> Vec<u8> {
    match tokio::task::try_id() {
        Some(id) => format!("task-{id}").into_bytes(),
        None => b"main".to_vec(),
    }
}
