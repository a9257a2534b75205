//! The connections to the servers of a quorum: one task each sees to it that there is one with a session, as long as the server
//! can be relied on.

use crate::address::{Address, Open};
use crate::core::{Config, words};
use crate::error::Error;
use crate::link::Shared;
use crate::resp::Frame;
use crate::socket::Wire;
use crate::timing::{MARGIN, Unfit};
use futures_util::future::BoxFuture;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::sleep;

/// Before a server is looked for again that was not reached, at most.
const LONGEST_DELAY: Duration = Duration::from_secs(1);

/// The times of a quorum, which its servers must fit.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub grace: Duration,
    pub fence: Duration,
    pub stop_within: Duration,
}

/// What is known of each server, and the tasks that see to it. With the last of it the connections end.
pub struct Servers {
    table: Arc<Table>,
    shared: Vec<Arc<Shared>>,
    keepers: Vec<AbortHandle>,
    times: Times,
}

/// Locked for moments only.
struct Table {
    entries: Mutex<Vec<Entry>>,
    changed: watch::Sender<()>,
}

#[derive(Clone, Default)]
struct Entry {
    /// Of the server as it was last reached.
    run_id: Vec<u8>,
    /// Why there is no connection.
    why: Option<Error>,
}

impl Servers {
    /// Begins to connect to each of them.
    pub fn start(addresses: Vec<Address>, times: Times) -> Servers {
        let table = Arc::new(Table {
            entries: Mutex::new(vec![Entry::default(); addresses.len()]),
            changed: watch::channel(()).0,
        });
        let config = Config {
            grace: Some(times.grace),
            fence: Some(times.fence),
            stop_within: times.stop_within,
            ..Config::default()
        };
        let share = |(server, address): (usize, Address)| {
            let fit = FitServer {
                table: table.clone(),
                server,
                address,
                times,
            };
            Shared::new(Arc::new(fit), config.clone(), None)
        };
        let shared: Vec<_> = addresses.into_iter().enumerate().map(share).collect();
        let keep = |(server, shared): (usize, &Arc<Shared>)| {
            let kept = keep(table.clone(), server, shared.clone());
            tokio::spawn(kept).abort_handle()
        };
        Servers {
            keepers: shared.iter().enumerate().map(keep).collect(),
            shared,
            table,
            times,
        }
    }

    /// How many there are, reached or not.
    pub fn len(&self) -> usize {
        self.keepers.len()
    }

    /// For how long a server is relied on without an answer.
    pub fn fence(&self) -> Duration {
        self.times.fence
    }

    /// For how long the work goes on after its lock is lost, at most.
    pub fn stop_within(&self) -> Duration {
        self.times.stop_within
    }

    /// The connection to this server, if there is one at the moment.
    pub fn reached(&self, server: usize) -> Option<Arc<Shared>> {
        let shared = &self.shared[server];
        shared.is_up().then(|| shared.clone())
    }

    /// Sees changes of what [`reached`](Servers::reached) says.
    pub fn changed(&self) -> watch::Receiver<()> {
        self.table.changed.subscribe()
    }

    /// Why a server is not reached, of those that are not.
    pub fn why(&self) -> Option<Error> {
        let entries = self.table.entries();
        entries.iter().find_map(|entry| entry.why.clone())
    }

    /// Whether nothing is reached any more, and whoever had a request or hold at a server has been told so.
    pub fn is_closed(&self) -> bool {
        self.shared.iter().all(|shared| shared.is_closed())
    }

    /// Ends the connections and their sessions.
    pub async fn close(&self) {
        self.stop();
        for shared in &self.shared {
            shared.begin_close();
        }
        self.table.changed.send_replace(());
        for shared in &self.shared {
            shared.over().await;
        }
    }

    fn stop(&self) {
        for keeper in &self.keepers {
            keeper.abort();
        }
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Table {
    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Why a server is not reached, or that it is.
    fn set(&self, server: usize, why: Option<Error>) {
        if let Some(entry) = self.entries().get_mut(server) {
            entry.why = why;
        }
        self.changed.send_replace(());
    }
}

/// Sees to it that there is a connection, as long as there can be one.
async fn keep(table: Arc<Table>, server: usize, shared: Arc<Shared>) {
    let mut trouble = shared.trouble();
    let mut delay = Duration::ZERO;
    loop {
        match shared.open().await {
            Ok(()) => {
                delay = Duration::ZERO;
                table.set(server, None);
                // Each change is passed on: a connection that broke and is there again ended the requests on it all the same.
                while trouble.borrow_and_update().is_up && trouble.changed().await.is_ok() {
                    table.changed.send_replace(());
                }
            }
            Err(error) => {
                table.set(server, Some(error));
                delay = (delay * 2).clamp(Duration::from_millis(20), LONGEST_DELAY);
                sleep(delay).await;
            }
        }
    }
}

/// A server, if it can be one of the quorum (P-QUORUM-1).
struct FitServer {
    table: Arc<Table>,
    server: usize,
    address: Address,
    times: Times,
}

impl Open for FitServer {
    fn open(&self, within: Duration, _: Option<u16>) -> BoxFuture<'_, Result<Wire, Error>> {
        Box::pin(async move {
            let mut wire = self.address.connect(within).await?;
            let [server] = wire.ask([words!["LOCK.SERVER"]]).await?;
            // An error is the core's, which asks again.
            if server.error().is_none() {
                self.look_at(&server)?;
            }
            Ok(wire)
        })
    }
}

impl FitServer {
    fn look_at(&self, server: &Frame) -> Result<(), Error> {
        let bytes = |name| server.named(name).and_then(Frame::bytes);
        if bytes("role") != Some(b"master") {
            return Err(Unfit::Replica.into());
        }
        let least = self.times.fence + self.times.stop_within + MARGIN;
        let quarantine = server.named("quarantine-ms").and_then(Frame::number);
        let quarantine = Duration::from_millis(quarantine.unwrap_or(0));
        if quarantine < least {
            return Err(Unfit::Quarantine { quarantine, least }.into());
        }
        let run_id = bytes("run-id").unwrap_or_default();
        let mut entries = self.table.entries();
        let mut others = (0..).zip(entries.iter());
        if others.any(|(other, entry)| other != self.server && entry.run_id == run_id) {
            return Err(Unfit::NamedTwice.into());
        }
        // From now on no other may be this one.
        if let Some(entry) = entries.get_mut(self.server) {
            entry.run_id = run_id.to_vec();
        }
        Ok(())
    }
}
