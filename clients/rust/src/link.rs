//! The shell around the core: the socket, the timers, and who hears of what.
//!
//! Callers call the core themselves, under a lock that is held for moments only, and write what it sends. A task does the rest: it
//! connects, reads, and looks at the time. It begins with the first connection, and ends when the client is closed.

use crate::address::Open;
use crate::callers::{Callers, Note, State};
use crate::clock::{self, BOOT_CLOCK, BootTime};
use crate::core::{Ask, Config, Core, Id, Order, Status};
use crate::error::{Error, Loss};
use crate::fork::Birth;
use crate::observer::Observer;
use crate::socket::{Socket, Wire};
use futures_util::future::BoxFuture;
use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::{sleep, timeout};
use tracing::warn;

/// What clocks that are read one after the other differ by, without anything having happened.
const JITTER: Duration = Duration::from_millis(1);

/// What callers and the task share.
struct Table {
    core: Core,
    wire: Option<Wire>,
    callers: Callers,
    last_id: Id,
    /// The connection that is to be opened, if one is; each has a number of its own.
    opening: Option<u64>,
    last_opening: u64,
    /// Connections that stay open for so long, and are not used.
    lingering: Vec<(Duration, Wire)>,
    task: Task,
    resumes: u64,
}

/// What the task is doing that connects, reads and looks at the time.
enum Task {
    None,
    Working,
    Waiting(Awaited),
}

/// For what it waits, beside being woken.
#[derive(PartialEq)]
struct Awaited {
    has_wire: bool,
    has_more: bool,
    opening: Option<u64>,
    is_over: bool,
    rings_at: Option<Duration>,
}

/// Whether there is a connection, how many attempts have failed, and why the last one did if there is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trouble {
    pub is_up: bool,
    pub failures: u64,
    pub error: Option<Error>,
}

/// A request on its way through a cluster.
#[derive(Clone, Copy)]
pub struct Hop {
    /// When it was first asked for.
    pub began: Instant,
    /// It goes on where an error refers to, so that this error is no refusal.
    pub may_follow: bool,
}

/// The callers' side: whoever has one can ask. When the last is gone, the client is closed.
pub struct Shared {
    inner: Arc<Inner>,
}

struct Inner {
    table: Mutex<Table>,
    opener: Arc<dyn Open>,
    observer: Option<Arc<dyn Observer>>,
    /// The task has something to do.
    wake: Notify,
    alive: watch::Sender<BootTime>,
    trouble: watch::Sender<Trouble>,
    /// That the client is closed, and nothing is left to do.
    over: watch::Sender<bool>,
    birth: Birth,
}

impl Shared {
    /// Connects when a call first needs a connection.
    pub fn new(
        opener: Arc<dyn Open>,
        config: Config,
        observer: Option<Arc<dyn Observer>>,
    ) -> Arc<Shared> {
        let config = Config {
            boot_clock: BOOT_CLOCK,
            ..config
        };
        let table = Table {
            core: Core::new(clock::now(), config),
            wire: None,
            callers: Callers::default(),
            last_id: 0,
            opening: None,
            last_opening: 0,
            lingering: Vec::new(),
            task: Task::None,
            resumes: 0,
        };
        let inner = Inner {
            table: Mutex::new(table),
            opener,
            observer,
            wake: Notify::new(),
            alive: watch::channel(BootTime(0)).0,
            trouble: watch::channel(Trouble::default()).0,
            over: watch::channel(false).0,
            birth: Birth::now(),
        };
        Arc::new(Shared {
            inner: Arc::new(inner),
        })
    }

    /// Whether this is a forked child of the process that made it. It may not even lock the table, which another thread may have
    /// locked at the fork (P-FORK-1).
    pub fn is_of_parent(&self) -> bool {
        self.inner.birth.was_before_fork()
    }

    pub fn birth(&self) -> Birth {
        self.inner.birth
    }

    /// Connects, if there is no connection. Why there is none, if the next attempt fails.
    pub async fn open(&self) -> Result<(), Error> {
        if self.is_of_parent() {
            return Err(Error::Forked);
        }
        let mut trouble = self.trouble();
        let failures = trouble.borrow_and_update().failures;
        self.inner.with(|core, _| core.open());
        let is_news = |it: &Trouble| it.is_up || it.failures > failures;
        tokio::select! {
            () = self.over() => Err(Error::Closed),
            news = trouble.wait_for(is_news) => match news {
                Ok(news) if news.is_up => Ok(()),
                Ok(news) => Err(news.error.clone().unwrap_or_else(Error::broke)),
                Err(_) => Err(Error::Closed),
            },
        }
    }

    /// A new request; what becomes of it is told there.
    pub fn acquire(&self, ask: Ask, hop: Hop) -> Result<(Id, watch::Receiver<State>), Error> {
        if self.is_of_parent() {
            return Err(Error::Forked);
        }
        Ok(self.inner.with_new_id(|core, callers, id| {
            let state = callers.expect(id, &ask, hop);
            core.acquire(id, ask);
            (id, state)
        }))
    }

    /// The same, for who hears of several servers.
    #[cfg(feature = "quorum")]
    pub fn acquire_one_of(
        &self,
        ask: Ask,
        server: usize,
        heard: tokio::sync::mpsc::UnboundedSender<crate::callers::Heard>,
    ) -> Result<Id, Error> {
        if self.is_of_parent() {
            return Err(Error::Forked);
        }
        Ok(self.inner.with_new_id(|core, callers, id| {
            callers.expect_one_of(id, server, heard);
            core.acquire(id, ask);
            id
        }))
    }

    #[cfg(feature = "quorum")]
    pub fn raise(&self, id: Id, token: u64) {
        self.tell(|core, _| core.raise(id, token));
    }

    pub fn release(&self, id: Id) {
        self.tell(|core, _| core.release(id));
    }

    /// Only from the term with this token: the candidate may have another one by now.
    pub fn resign(&self, id: Id, token: u64) {
        self.tell(|core, _| core.resign(id, token));
    }

    #[cfg(feature = "quorum")]
    pub fn give_up(&self, id: Id) {
        self.tell(|core, _| core.give_up(id));
    }

    /// The request is given up, and nobody hears of it any more.
    pub fn forget(&self, id: Id) {
        self.tell(|core, callers| {
            core.give_up(id);
            callers.forget(id);
        });
    }

    pub fn extend(&self, id: Id, lease: Duration) -> oneshot::Receiver<Result<(), Error>> {
        let (sender, receiver) = oneshot::channel();
        self.tell(|core, callers| {
            callers.expect_extension(id, sender);
            core.extend(id, lease);
        });
        receiver
    }

    /// Whether the hold with this token is held, as far as can be known here (P-FENCE-4).
    pub fn check(&self, id: Id, token: u64, state: &watch::Receiver<State>) -> Result<(), Loss> {
        if self.is_of_parent() {
            return Err(Loss::Forked);
        }
        let mut table = self.inner.table();
        table.core.set_now(clock::now());
        let status = table.core.check(id);
        // Under the lock: of those that are lost at once none says otherwise.
        let state = state.borrow();
        match status {
            Some(Status::Held) if state.token == token => Ok(()),
            Some(Status::Lost(loss)) if state.token == token => Err(loss),
            _ => Err(state
                .loss
                .clone()
                .unwrap_or_else(|| Loss::Told("released".to_owned()))),
        }
    }

    /// Begins to watch something; `begin` says what.
    pub fn watch<T>(
        &self,
        begin: impl FnOnce(&mut Core, &mut Callers, Id) -> T,
    ) -> Result<T, Error> {
        if self.is_of_parent() {
            return Err(Error::Forked);
        }
        Ok(self.inner.with_new_id(begin))
    }

    /// Something of the callers', unless this is a forked child.
    pub fn tell(&self, what: impl FnOnce(&mut Core, &mut Callers)) {
        if !self.is_of_parent() {
            self.inner.with(what);
        }
    }

    pub fn with_callers<T>(&self, look: impl FnOnce(&mut Callers) -> T) -> T {
        look(&mut self.inner.table().callers)
    }

    pub fn is_closed(&self) -> bool {
        self.inner.table().core.is_closed()
    }

    /// Whether nothing is held, waited for or on its way.
    pub fn is_idle(&self) -> bool {
        self.inner.table().core.is_idle()
    }

    #[cfg(feature = "internals")]
    pub fn alive(&self) -> watch::Receiver<BootTime> {
        self.inner.alive.subscribe()
    }

    /// Until when this hold is vouched for; a moment in the past once it is none.
    #[cfg(feature = "quorum")]
    pub fn vouched_until(&self, id: Id) -> BootTime {
        if self.is_of_parent() {
            return BootTime(0);
        }
        let mut table = self.inner.table();
        table.core.set_now(clock::now());
        match table.core.check(id) {
            Some(Status::Held) => BootTime::now() + table.core.fence_left(),
            _ => BootTime(0),
        }
    }

    /// Whether there is a connection.
    #[cfg(feature = "quorum")]
    pub fn is_up(&self) -> bool {
        self.inner.trouble.borrow().is_up
    }

    pub fn trouble(&self) -> watch::Receiver<Trouble> {
        self.inner.trouble.subscribe()
    }

    /// Ends everything, without waiting for that.
    pub fn begin_close(&self) {
        self.tell(|core, _| core.close());
    }

    /// Ends when the client is closed, and nothing is left to do.
    pub async fn over(&self) {
        let mut over = self.inner.over.subscribe();
        let _ = over.wait_for(|over| *over).await;
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.begin_close();
    }
}

impl Inner {
    fn table(&self) -> MutexGuard<'_, Table> {
        // Whoever panicked while it was locked left it whole: nothing in there panics but by running out of memory.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(self: &Arc<Self>, work: impl FnOnce(&mut Core, &mut Callers) -> T) -> T {
        let mut table = self.table();
        let Table { core, callers, .. } = &mut *table;
        core.tick(clock::now());
        let worked = work(core, callers);
        self.settle(table);
        worked
    }

    fn with_new_id<T>(self: &Arc<Self>, work: impl FnOnce(&mut Core, &mut Callers, Id) -> T) -> T {
        let mut table = self.table();
        table.last_id += 1;
        let id = table.last_id;
        drop(table);
        self.with(|core, callers| work(core, callers, id))
    }

    /// Does what the core wants, and tells what it tells.
    fn settle(self: &Arc<Self>, mut table: MutexGuard<'_, Table>) {
        let mut notes = Vec::new();
        while !table.settle_once(&mut notes) {}
        self.publish(&mut table, &mut notes);
        let has_work =
            table.opening.is_some() || table.wire.is_some() || !table.lingering.is_empty();
        match &table.task {
            Task::None if has_work => self.drive(&mut table),
            Task::Waiting(awaited) if table.wants_task(awaited) => self.wake.notify_one(),
            _ => {}
        }
        drop(table);
        for note in notes {
            // The task that all locks and watches rely on must not end with it.
            let told = AssertUnwindSafe(|| note.tell(self.observer.as_deref()));
            if catch_unwind(told).is_err() {
                warn!("the observer panicked");
            }
        }
    }

    /// Within a runtime; elsewhere the next call that is made in one begins.
    fn drive(self: &Arc<Self>, table: &mut Table) {
        if let Ok(runtime) = Handle::try_current() {
            table.task = Task::Working;
            let inner = self.clone();
            runtime.spawn(Link { inner }.run());
        }
    }

    fn publish(&self, table: &mut Table, notes: &mut Vec<Note>) {
        let core = &table.core;
        let until = match core.fence_left() {
            Duration::ZERO => BootTime(0),
            left => BootTime::now() + left,
        };
        self.alive.send_if_modified(|alive| {
            let is_later = until > *alive + JITTER;
            if is_later {
                *alive = until;
            }
            is_later
        });
        let (is_up, failures, error) = core.trouble();
        self.trouble.send_if_modified(|trouble| {
            let is_same = trouble.is_up == is_up
                && trouble.failures == failures
                && trouble.error.as_ref() == error;
            if !is_same {
                *trouble = Trouble {
                    is_up,
                    failures,
                    error: error.cloned(),
                };
                notes.extend(error.cloned().map(Note::Unreachable));
            }
            !is_same
        });
        if core.resumes() > table.resumes {
            notes.push(Note::Resumed);
        }
        table.resumes = core.resumes();
        if core.is_over() {
            self.over.send_replace(true);
        }
    }
}

impl Table {
    /// Whether nothing is left of what the core wants.
    fn settle_once(&mut self, notes: &mut Vec<Note>) -> bool {
        let out = self.core.take_out();
        if let Some(wire) = &mut self.wire {
            for command in &out {
                wire.push(command);
            }
        }
        let is_broken = self.wire.as_mut().is_some_and(|wire| wire.flush().is_err());
        // Before the connection is closed, which frees the locks (P-FENCE-9).
        self.callers.hear(self.core.take_events(), notes);
        for order in self.core.take_orders() {
            self.opening = None;
            match order {
                Order::Connect => {
                    self.last_opening += 1;
                    self.opening = Some(self.last_opening);
                }
                Order::Leave => self.wire = None,
                Order::LeaveAfter(time) => {
                    self.lingering
                        .extend(self.wire.take().map(|wire| (time, wire)));
                }
            }
        }
        if self.core.is_closed() {
            self.callers.close();
        }
        if is_broken && self.wire.take().is_some() {
            self.core.broke();
            return false;
        }
        true
    }

    fn awaited(&self) -> Awaited {
        let next = self.core.next_tick();
        Awaited {
            has_wire: self.wire.is_some(),
            has_more: self.wire.as_ref().is_some_and(Wire::has_more),
            opening: self.opening,
            is_over: self.core.is_over(),
            rings_at: next.map(|left| clock::now().mono + left),
        }
    }

    /// Whether there is something to do for the task that it does not wait for. That it looks at the time too soon does no harm.
    fn wants_task(&self, awaited: &Awaited) -> bool {
        let now = self.awaited();
        let is_later = match (now.rings_at, awaited.rings_at) {
            (Some(at), Some(rings_at)) => at + JITTER >= rings_at,
            (at, _) => at.is_none(),
        };
        let rings_at = awaited.rings_at;
        !is_later || !self.lingering.is_empty() || *awaited != Awaited { rings_at, ..now }
    }

    /// What came in. An error is the end of the connection.
    fn read(&mut self) -> bool {
        let Some(wire) = &mut self.wire else {
            return true;
        };
        let read = wire.read().is_ok();
        loop {
            match wire.next() {
                Ok(Some(frame)) => self.core.recv(frame),
                Ok(None) => return read,
                Err(_) => return false,
            }
        }
    }
}

/// The task.
struct Link {
    inner: Arc<Inner>,
}

/// What it waits for next.
struct Plan {
    socket: Option<Arc<Socket>>,
    has_more: bool,
    opening: Option<u64>,
    within: Duration,
    /// What is wanted of a connection that is to be opened.
    slot: Option<u16>,
    rings_in: Option<Duration>,
}

impl Link {
    async fn run(self) {
        let inner = &self.inner;
        let mut opening: Option<(u64, BoxFuture<'_, Result<Wire, Error>>)> = None;
        while let Some(plan) = self.plan() {
            if opening.as_ref().map(|(number, _)| *number) != plan.opening {
                opening = plan.opening.map(|number| {
                    let opened = timeout(plan.within, inner.opener.open(plan.within, plan.slot));
                    let opened = async move { opened.await.unwrap_or_else(|_| Err(Error::late())) };
                    let opened: BoxFuture<'_, _> = Box::pin(opened);
                    (number, opened)
                });
            }
            let opened = async {
                match &mut opening {
                    Some((_, opened)) => opened.await,
                    None => pending().await,
                }
            };
            let alarm = async {
                match plan.rings_in {
                    Some(time) => sleep(time).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                _ = ready(plan.socket.as_deref(), plan.has_more) => self.read(),
                result = opened => {
                    opening = None;
                    self.opened(plan.opening, result);
                }
                () = inner.wake.notified() => {}
                () = alarm => {}
            }
        }
    }

    /// None once nothing is left to do.
    fn plan(&self) -> Option<Plan> {
        if self.inner.birth.was_before_fork() {
            return None;
        }
        self.work();
        self.inner.with(|_, _| {});
        let mut table = self.inner.table();
        for (time, wire) in table.lingering.drain(..) {
            tokio::spawn(async move {
                sleep(time).await;
                drop(wire);
            });
        }
        if table.core.is_over() {
            table.task = Task::None;
            return None;
        }
        let awaited = table.awaited();
        let plan = Plan {
            socket: table.wire.as_ref().map(|wire| wire.socket.clone()),
            has_more: awaited.has_more,
            opening: awaited.opening,
            within: table.core.connect_within(),
            slot: awaited.opening.and_then(|_| table.core.slot()),
            rings_in: table.core.next_tick(),
        };
        table.task = Task::Waiting(awaited);
        Some(plan)
    }

    /// What comes of it is seen before it waits again.
    fn work(&self) {
        self.inner.table().task = Task::Working;
    }

    fn read(&self) {
        self.work();
        let mut table = self.inner.table();
        table.core.tick(clock::now());
        let stands = table.read();
        let orders_before = table.last_opening;
        self.inner.settle(table);
        if !stands {
            self.broke(orders_before);
        }
    }

    /// The connection has ended, unless the core has left it already.
    fn broke(&self, last_opening: u64) {
        let mut table = self.inner.table();
        if table.last_opening == last_opening && table.wire.take().is_some() {
            table.core.broke();
        }
        self.inner.settle(table);
    }

    fn opened(&self, number: Option<u64>, opened: Result<Wire, Error>) {
        self.work();
        // What is due comes first: it may be that this connection is not wanted any more.
        self.inner.with(|_, _| {});
        let mut table = self.inner.table();
        if table.opening != number {
            return;
        }
        table.opening = None;
        let mut stands = true;
        match opened {
            Ok(wire) => {
                table.core.set_cluster(wire.is_cluster);
                table.core.set_unix(wire.place.is_none());
                table.wire = Some(wire);
                table.core.connected();
                stands = table.read();
            }
            Err(error) => table.core.unreached(error),
        }
        let last_opening = table.last_opening;
        self.inner.settle(table);
        if !stands {
            self.broke(last_opening);
        }
    }
}

/// Something has come, or what is left can be written.
async fn ready(socket: Option<&Socket>, has_more: bool) {
    let Some(socket) = socket else {
        return pending().await;
    };
    let interest = match has_more {
        true => Interest::READABLE | Interest::WRITABLE,
        false => Interest::READABLE,
    };
    // An error is seen by reading.
    let _ = socket.ready(interest).await;
}

/// The client is closed; or the runtime ends, most often because `main` does, and nobody is left who would connect again.
impl Drop for Link {
    fn drop(&mut self) {
        if self.inner.birth.was_before_fork() {
            return;
        }
        let mut table = self.inner.table();
        table.task = Task::None;
        table.opening = None;
        if !table.core.is_over() {
            table.core.abandon();
            let mut notes = Vec::new();
            while !table.settle_once(&mut notes) {}
            table.wire = None;
            if table.core.is_closed() {
                self.inner.over.send_replace(true);
            }
        }
    }
}
