//! What a program asks: a client, and locks of it.

use crate::address::Address;
use crate::cluster::Cluster;
#[cfg(feature = "internals")]
use crate::cluster::Route;
use crate::core::{Ask, Bytes, Config, Kind, Mode};
use crate::election::Election;
use crate::error::Error;
use crate::guard::{Attempt, Guard};
#[cfg(feature = "internals")]
use crate::link::Trouble;
use crate::observer::Observer;
use crate::temporary::TemporaryKey;
use crate::tls::Certificates;
use crate::watch::{LeaderWatch, Presence, Watch};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
#[cfg(feature = "internals")]
use tokio::sync::watch;

/// A client of one server, or of the master among several, for any number of tasks. It connects when a call first needs a connection,
/// and again whenever one does: make one of it, and keep it as long as the program.
///
/// Clones are the same client. It is closed when the last of them, and of the guards, is dropped.
#[derive(Clone)]
pub struct Locks {
    cluster: Arc<Cluster>,
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let trouble = self.cluster.first().trouble();
        let trouble = trouble.borrow();
        f.debug_struct("Locks")
            .field("is_connected", &trouble.is_up)
            .field("trouble", &trouble.error)
            .finish_non_exhaustive()
    }
}

/// How to connect; see [`Locks::builder`].
#[derive(Clone)]
pub struct Builder {
    urls: Vec<String>,
    sentinels: Vec<String>,
    certificates: Certificates,
    name: Option<String>,
    config: Config,
    observer: Option<Arc<dyn Observer>>,
}

/// Without the URLs and certificates, which have secrets in them.
impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("grace", &self.config.grace)
            .field("fence", &self.config.fence)
            .field("stop_within", &self.config.stop_within)
            .field("connect_timeout", &self.config.connect_timeout)
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

    /// How long to try to open a connection, and to greet on it, once. Default: 5 seconds.
    pub fn connect_timeout(mut self, time: Duration) -> Self {
        self.config.connect_timeout = time;
        self
    }

    /// What lists of clients call this connection (`CLIENT SETNAME`), and so what says who holds a lock. Characters that the server
    /// does not take become `_`. Default:
    /// `tether:<host>:<pid>:<program>`, which `tether who` shows in three columns.
    pub fn name(mut self, name: impl Into<String>) -> Self {
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
        self.config.grace = Some(grace);
        self
    }

    /// How long to rely on a server that does not answer. After this time every lock is lost here, whatever the server does.
    /// It counts from the sending of the last command that was answered. Default: the longest that holds, which is the grace
    /// less [`stop_within`](Builder::stop_within) and a second, or without a session half of the server's
    /// `tether.peer-timeout`.
    pub fn fence(mut self, fence: Duration) -> Self {
        self.config.fence = Some(fence);
        self
    }

    /// How long the work goes on after its lock is lost, at most. Default: 0.
    pub fn stop_within(mut self, stop_within: Duration) -> Self {
        self.config.stop_within = stop_within;
        self
    }

    /// Tell this what happens to requests.
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// The client, which connects when it is needed. O(1).
    ///
    /// # Errors
    /// [`Error::Refused`] if a URL or certificate is none.
    pub fn build(self) -> Result<Locks, Error> {
        let Builder {
            urls,
            sentinels,
            certificates,
            name,
            ..
        } = &self;
        let address = Address::new(urls, sentinels, certificates, name.as_deref())?;
        Ok(Locks {
            cluster: Cluster::new(address, self.config, self.observer),
        })
    }

    /// The same, once it has connected. Within a tokio runtime.
    ///
    /// # Errors
    /// As [`Locks::open`].
    pub async fn connect(self) -> Result<Locks, Error> {
        let locks = self.build()?;
        locks.open().await?;
        Ok(locks)
    }
}

impl Locks {
    /// A client with the defaults of [`Locks::builder`], once it has connected.
    ///
    /// # Errors
    /// As [`Locks::open`].
    pub async fn connect(url: &str) -> Result<Locks, Error> {
        Locks::builder(url).connect().await
    }

    /// Of a server at `redis://user:password@host:port/db`, `unix:///path` or, with the feature `tls`, `rediss://`.
    pub fn builder(url: &str) -> Builder {
        Builder {
            urls: vec![url.to_owned()],
            sentinels: Vec::new(),
            certificates: Certificates::default(),
            name: None,
            config: Config::default(),
            observer: None,
        }
    }

    /// Connects, if there is no connection: checks that server and times fit together, and begins a session where a grace was given.
    /// Nobody has to call this: each request does it.
    ///
    /// # Errors
    /// Why the next attempt failed: [`Error::Unreachable`], [`Error::NoModule`], [`Error::NoPush`], [`Error::Unfit`], or
    /// [`Error::Refused`] with the server's error. [`Error::Closed`], [`Error::Forked`].
    pub async fn open(&self) -> Result<(), Error> {
        self.cluster.first().open().await
    }

    /// A lock of this name, to be [acquired](LockRequest::acquire).
    pub fn lock(&self, key: impl AsRef<[u8]>) -> LockRequest {
        self.all([key])
    }

    /// Several exclusive locks in one step, or none of them; with one token.
    pub fn all<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> LockRequest {
        let keys = keys.into_iter().map(|key| key.as_ref().to_vec()).collect();
        LockRequest {
            cluster: self.cluster.clone(),
            ask: Ask::new(keys, Kind::Lock(Mode::Exclusive)),
        }
    }

    /// A string key that lives as long as its guard and the connection, to be [acquired](TemporaryKey::acquire).
    pub fn temporary_key(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> TemporaryKey {
        TemporaryKey::new(self.cluster.clone(), key.as_ref(), value.as_ref())
    }

    /// Whether these keys exist, and each change of that, whatever they are and whoever makes or deletes them. Any number of
    /// watches share the connection, also of the same keys. O(keys).
    pub fn watch<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Watch {
        let keys = keys.into_iter().map(|key| key.as_ref().to_vec()).collect();
        Watch::new(&self.cluster, keys)
    }

    /// The temporary keys of this prefix, with their values, and each change of them. O(keys) at first.
    pub fn presence(&self, prefix: impl AsRef<[u8]>) -> Presence {
        Presence::new(&self.cluster, prefix.as_ref().to_vec())
    }

    /// A candidate for the lead of this name; while it leads, others see this value, which says where it is.
    pub fn elect(&self, name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Election {
        Election::new(self.cluster.clone(), name.as_ref(), value.as_ref())
    }

    /// Who leads in the election of this name, and each change of that.
    pub fn observe(&self, name: impl AsRef<[u8]>) -> LeaderWatch {
        LeaderWatch::new(&self.cluster, name.as_ref().to_vec())
    }

    /// Why the server is not reached that has this key, and which node of a cluster that is.
    #[cfg(feature = "internals")]
    #[doc(hidden)]
    pub fn trouble(&self, key: &[u8]) -> (Option<String>, watch::Receiver<Trouble>) {
        let route = Route::of(&self.cluster, Some(&key.to_vec()));
        (route.place(), route.node().trouble())
    }

    /// Whether nothing is held, waited for or on its way, as far as the server has answered.
    pub fn is_idle(&self) -> bool {
        self.cluster.is_idle()
    }

    /// Ends the connection and its session, if there is one: every guard that is still there is lost, every request ends with
    /// [`Error::Closed`]. Waits until the server has ended the session, for two seconds at most.
    pub async fn close(&self) {
        self.cluster.close().await;
    }

    /// Ends once the client is closed.
    pub async fn closed(&self) {
        self.cluster.first().over().await;
    }
}

/// A lock as it is wanted. Nothing is asked before [`LockRequest::acquire`], and it may be asked for any number of times: clones, and
/// any number of tasks, can share it. Each request is an owner of its own, unless it is [named](LockRequest::owner).
#[derive(Clone)]
#[must_use = "nothing is asked before `acquire`"]
pub struct LockRequest {
    cluster: Arc<Cluster>,
    ask: Ask,
}

impl fmt::Debug for LockRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockRequest")
            .field("keys", &shown(&self.ask.keys))
            .field("wait", &self.ask.wait)
            .field("lease", &self.ask.lease)
            .finish_non_exhaustive()
    }
}

impl LockRequest {
    /// With other readers, and no writer.
    pub fn shared(mut self) -> Self {
        self.ask.kind = Kind::Lock(Mode::Shared);
        self
    }

    /// So many permits of a semaphore that has `total`.
    pub fn permits(mut self, permits: u64, total: u64) -> Self {
        self.ask.kind = Kind::Lock(Mode::Permits { permits, total });
        self
    }

    /// The lock ends by itself after this time, which is a loss, unless it is [extended](Guard::extend). Default: it ends with the
    /// connection, or is released.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.ask.lease = Some(lease);
        self
    }

    /// Wait for so long at most. Default: for as long as it takes, also for a server that is away.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.ask.wait = (!wait.is_zero()).then_some(wait);
        self
    }

    /// Do not wait.
    pub fn no_wait(mut self) -> Self {
        self.ask.wait = Some(Duration::ZERO);
        self
    }

    /// Who asks, under a name of your own, which must not begin with a dot: it is shown in lists, and has the lock once. Default: a
    /// fresh owner for each request.
    pub fn owner(mut self, name: impl AsRef<[u8]>) -> Self {
        self.ask.owner = Some(name.as_ref().to_vec());
        self
    }

    /// The same [owner](LockRequest::owner) may have it more than once, if each request asks for that; it is released with the last
    /// guard.
    pub fn reentrant(mut self) -> Self {
        self.ask.is_reentrant = true;
        self
    }

    /// What stands still while this waits, under a name of your own. The server refuses a request that would let such tasks wait for
    /// each other ([`Error::Deadlock`]). Default: none, since a future may be awaited beside others.
    pub fn task(mut self, name: impl AsRef<[u8]>) -> Self {
        self.ask.task = Some(name.as_ref().to_vec());
        self
    }

    /// It is granted only once so many replicas have acknowledged the grant, so that it outlives the master. Needs a
    /// [grace](Builder::grace).
    pub fn acks(mut self, replicas: u64) -> Self {
        self.ask.acks = Some(replicas);
        self
    }

    /// How long the replicas have for that. Default: the server's `tether.ack-timeout`.
    pub fn ack_timeout(mut self, time: Duration) -> Self {
        self.ask.ack_timeout = Some(time);
        self
    }

    /// The server keeps the lock for so long at least, counted from its grant, even if it is released sooner or the client ends. Needs
    /// a [grace](Builder::grace) that is as long.
    pub fn at_least(mut self, time: Duration) -> Self {
        self.ask.at_least = time;
        self
    }

    /// Asks, and waits as was said. If this future is dropped, its place in the queue is given up, and what was granted
    /// meanwhile is given back. Within a tokio runtime.
    ///
    /// # Errors
    /// Each but [`Error::Lost`] of a lock that was granted.
    pub fn acquire(&self) -> impl Future<Output = Result<Guard, Error>> + Send + use<> {
        Attempt::of(&self.cluster, &self.ask)
    }

    /// Asks without waiting; None if another owner has it.
    ///
    /// # Errors
    /// As [`LockRequest::acquire`], but for [`Error::Taken`].
    pub fn try_acquire(&self) -> impl Future<Output = Result<Option<Guard>, Error>> + Send + use<> {
        let asked = self.clone().no_wait().acquire();
        async {
            match asked.await {
                Err(Error::Taken) => Ok(None),
                granted => granted.map(Some),
            }
        }
    }
}

/// As it is shown.
pub(crate) fn shown(keys: &[Bytes]) -> Vec<String> {
    let keys = keys.iter().map(|key| String::from_utf8_lossy(key));
    keys.map(std::borrow::Cow::into_owned).collect()
}
