//! The connections to the servers of a quorum: one task each sees to it that there is one with a session, as long as the server
//! can be relied on.

use crate::address::Address;
use crate::backoff;
use crate::clock::BootTime;
use crate::error::Error;
use crate::line::{self, Line, ServerFacts};
use crate::link::{Shared, Way};
use crate::terms::CONNECT_WITHIN;
use crate::timing::{MARGIN, Unfit};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

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
    shared: Option<Arc<Shared>>,
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
        let keep = |(server, address): (usize, Address)| {
            let keeper = Keeper {
                table: table.clone(),
                server,
                address: Arc::new(address),
                times,
                former: None,
            };
            tokio::spawn(keeper.run()).abort_handle()
        };
        let keepers = addresses.into_iter().enumerate().map(keep).collect();
        Servers {
            table,
            keepers,
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
        let shared = self.table.entries()[server].shared.clone();
        shared.filter(|shared| shared.with_core(|core| core.is_up()))
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

    /// Ends the connections and their sessions.
    pub async fn close(&self) {
        self.stop();
        let entries = std::mem::take(&mut *self.table.entries());
        for entry in &entries {
            if let Some(shared) = &entry.shared {
                shared.begin_close();
            }
        }
        for shared in entries.into_iter().filter_map(|entry| entry.shared) {
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

    fn set(&self, server: usize, entry: Entry) {
        if let Some(place) = self.entries().get_mut(server) {
            *place = entry;
        }
        self.changed.send_replace(());
    }
}

struct Keeper {
    table: Arc<Table>,
    server: usize,
    address: Arc<Address>,
    times: Times,
    /// The secret of the last session, of which something may be left on the server.
    former: Option<String>,
}

impl Keeper {
    async fn run(mut self) {
        let mut failed = 0;
        loop {
            let connected = timeout(CONNECT_WITHIN, self.connect()).await;
            match connected.unwrap_or_else(|_| Err(line::late())) {
                Ok((shared, run_id)) => {
                    failed = 0;
                    let mut up = shared.up();
                    let entry = Entry {
                        shared: Some(shared.clone()),
                        run_id,
                        why: None,
                    };
                    self.table.set(self.server, entry);
                    loop {
                        tokio::select! {
                            () = shared.over() => break,
                            changed = up.changed() => match changed {
                                Ok(()) => self.table.changed.send_replace(()),
                                Err(_) => break,
                            },
                        }
                    }
                    self.table.set(self.server, Entry::default());
                }
                Err(error) => {
                    failed += 1;
                    let why = Some(error);
                    let entry = Entry {
                        why,
                        ..Entry::default()
                    };
                    self.table.set(self.server, entry);
                }
            }
            let longest = backoff::LONGEST.min(self.times.fence / 8);
            sleep(backoff::delay(failed, BootTime::now().0, longest)).await;
        }
    }

    /// A connection with a new session, on a server that fits; what is left of the former session is ended first.
    async fn connect(&mut self) -> Result<(Arc<Shared>, Vec<u8>), Error> {
        let mut line = self.address.connect(CONNECT_WITHIN).await?;
        let sent = BootTime::now();
        let server = line.server().await?;
        self.look_at(&server)?;
        let secret = self.begin_session(&mut line).await?;
        let way = Way {
            address: self.address.clone(),
            secret: Some(secret),
            fence: self.times.fence,
            run_id: server.run_id.clone(),
            terms: None,
        };
        Ok((Shared::start(line, way, sent), server.run_id))
    }

    async fn begin_session(&mut self, line: &mut Line) -> Result<String, Error> {
        if let Some(former) = &self.former {
            line.end_former_session(former).await?;
        }
        let secret = line.start_session(self.times.grace).await?;
        self.former = Some(secret.clone());
        Ok(secret)
    }

    /// Whether the server can be one of the quorum.
    fn look_at(&self, server: &ServerFacts) -> Result<(), Error> {
        if !server.is_master {
            return Err(Unfit::Replica.into());
        }
        let least = self.times.fence + self.times.stop_within + MARGIN;
        let quarantine = server.quarantine;
        if quarantine < least {
            return Err(Unfit::Quarantine { quarantine, least }.into());
        }
        let mut entries = self.table.entries();
        let mut others = (0..).zip(entries.iter());
        if others.any(|(other, entry)| other != self.server && entry.run_id == server.run_id) {
            return Err(Unfit::NamedTwice.into());
        }
        // From now on no other may be this one.
        if let Some(entry) = entries.get_mut(self.server) {
            entry.run_id.clone_from(&server.run_id);
        }
        Ok(())
    }
}
