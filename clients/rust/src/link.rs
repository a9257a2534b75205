//! The task that keeps the connection: it sends what the core wants sent, brings it what comes, and looks for a new connection
//! when that one breaks: with the session that there was, otherwise with a new one or none.

use crate::address::Address;
use crate::backoff;
use crate::clock::BootTime;
use crate::core::{Change, Command, Core, Id, Request, Tag, WatchEvent};
use crate::error::{Error, Loss};
use crate::fork::Birth;
use crate::incoming::{Arrivals, Incoming};
use crate::line::{self, Driver, Line, Push};
use crate::terms::{CONNECT_WITHIN, Terms, or_passing};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::task::AtomicWaker;
use redis::aio::MultiplexedConnection;
use redis::cmd;
use std::collections::{BTreeSet, HashMap};
use std::future::{poll_fn, ready};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::{Notify, watch};
use tokio::task::unconstrained;
use tokio::time::{sleep, timeout};

/// A connection that broke sooner was as bad as none.
const SOUND_AFTER: Duration = Duration::from_secs(1);

/// How long to try to end a session whose connection is not there any more.
const PARTING: Duration = Duration::from_secs(1);

/// So much is heard before something is sent.
const HEARD_AT_ONCE: usize = 100;

/// What has become of a request; as long as nothing has, None.
pub type State = Option<Change>;

/// What callers and the task share. Locked for moments only, and never across an await.
#[derive(Default)]
struct Table {
    core: Option<Core>,
    callers: Callers,
    /// Nobody is left who could ask, or somebody closes it.
    is_closing: bool,
}

/// Who is to hear of what the core says.
#[derive(Default)]
struct Callers {
    states: HashMap<Id, Hearer>,
    watches: HashMap<Id, Arc<AtomicWaker>>,
}

/// Who hears of one request.
enum Hearer {
    /// Its last change is enough.
    State(watch::Sender<State>),
    /// Each change, with the number of the server among several.
    Each(usize, UnboundedSender<Heard>),
}

/// A change of a request to one server of several.
pub type Heard = (usize, Id, Change);

impl Callers {
    fn hear(&mut self, core: &mut Core) {
        for (id, change) in core.changes() {
            let is_last = change.is_last();
            match self.states.get(&id) {
                Some(Hearer::State(state)) => _ = state.send_replace(Some(change)),
                // Nobody may be left to hear it.
                Some(Hearer::Each(server, sender)) => _ = sender.send((*server, id, change)),
                None => {}
            }
            if is_last {
                self.states.remove(&id);
            }
        }
        for id in core.woken() {
            if let Some(waker) = self.watches.get(&id) {
                waker.wake();
            }
        }
    }
}

/// The callers' side: whoever has one can ask. When the last is gone, the connection ends.
pub struct Shared {
    inner: Arc<Inner>,
}

struct Inner {
    table: Mutex<Table>,
    /// The task has something to do.
    wake: Notify,
    alive: watch::Sender<BootTime>,
    /// Whether there is a connection.
    up: watch::Sender<bool>,
    /// Why there is none.
    trouble: watch::Sender<Option<Error>>,
    /// That the task has ended.
    over: watch::Sender<bool>,
    birth: Birth,
}

/// What the task needs to connect again.
#[derive(Clone)]
pub struct Way {
    pub address: Arc<Address>,
    pub secret: Option<String>,
    pub fence: Duration,
    /// Of the server on which the session began.
    pub run_id: Vec<u8>,
    /// How to begin anew, once the session is gone or where there was none. None is not to; and the session is resumed on the
    /// same start of the server only, and ended on another.
    pub terms: Option<Terms>,
}

impl Shared {
    /// Starts the task. `sent` is when the last request was sent that the connection has answered.
    pub fn start(line: Line, way: Way, sent: BootTime) -> Arc<Shared> {
        let mut core = Core::new(sent, way.fence, way.secret.is_some());
        if way.terms.is_some() {
            core = core.going_on();
            core.began_on(way.run_id.clone());
        }
        let inner = Arc::new(Inner {
            alive: watch::channel(core.alive_until()).0,
            up: watch::channel(true).0,
            trouble: watch::channel(None).0,
            over: watch::channel(false).0,
            wake: Notify::new(),
            birth: Birth::now(),
            table: Mutex::new(Table {
                core: Some(core),
                ..Table::default()
            }),
        });
        let link = Link {
            inner: inner.clone(),
            connection: line.connection,
            arrivals: Arrivals::new(line.pushes),
            driver: line.driver,
            way,
            began: sent,
            failed: 0,
            is_over: false,
        };
        tokio::spawn(link.run());
        Arc::new(Shared { inner })
    }

    /// Whether this is a forked child of the process that has the connection. It may not even lock the table, which another
    /// thread may have locked at the fork.
    pub fn is_of_parent(&self) -> bool {
        self.inner.birth.was_before_fork()
    }

    pub fn birth(&self) -> Birth {
        self.inner.birth
    }

    pub fn ask(&self, request: Request) -> Result<(Id, watch::Receiver<State>), Error> {
        if self.is_of_parent() {
            return Err(Error::Forked);
        }
        let asked = self.inner.with(|callers, core| {
            let id = core.ask(BootTime::now(), request)?;
            let (sender, receiver) = watch::channel(None);
            callers.states.insert(id, Hearer::State(sender));
            Ok((id, receiver))
        });
        self.inner.wake.notify_one();
        asked
    }

    /// The same, for who hears of several servers.
    pub fn ask_one_of(
        &self,
        request: Request,
        server: usize,
        heard: UnboundedSender<Heard>,
    ) -> Result<Id, Error> {
        if self.is_of_parent() {
            return Err(Error::Forked);
        }
        let asked = self.inner.with(|callers, core| {
            let id = core.ask(BootTime::now(), request)?;
            callers.states.insert(id, Hearer::Each(server, heard));
            Ok(id)
        });
        self.inner.wake.notify_one();
        asked
    }

    pub fn raise(&self, id: Id, token: u64) {
        self.tell(|core| core.raise(BootTime::now(), id, token));
    }

    pub fn give_up(&self, id: Id) {
        self.tell(|core| core.give_up(BootTime::now(), id));
    }

    pub fn release(&self, id: Id) {
        self.tell(|core| core.release(BootTime::now(), id));
    }

    fn tell(&self, what: impl FnOnce(&mut Core)) {
        if !self.is_of_parent() {
            self.inner.with(|_, core| what(core));
            self.inner.wake.notify_one();
        }
    }

    pub fn watch(&self, keys: BTreeSet<Vec<u8>>) -> (Id, Arc<AtomicWaker>) {
        if self.is_of_parent() {
            return Default::default(); // Nothing is watched; see `next_event`.
        }
        let watch = self.inner.with(|callers, core| {
            let id = core.watch(BootTime::now(), keys);
            let waker = callers.watches.entry(id).or_default();
            (id, waker.clone())
        });
        self.inner.wake.notify_one();
        watch
    }

    pub fn unwatch(&self, id: Id) {
        if self.is_of_parent() {
            return;
        }
        self.inner.with(|callers, core| {
            callers.watches.remove(&id);
            core.unwatch(id);
        });
        self.inner.wake.notify_one();
    }

    pub fn next_event(&self, id: Id) -> Option<Result<WatchEvent, Error>> {
        if self.is_of_parent() {
            return Some(Err(Error::Forked));
        }
        self.inner.with(|_, core| core.next_event(id))
    }

    pub fn with_core<T>(&self, look: impl FnOnce(&Core) -> T) -> T {
        self.inner.with(|_, core| look(core))
    }

    pub fn alive(&self) -> watch::Receiver<BootTime> {
        self.inner.alive.subscribe()
    }

    /// Until when the holds of this connection are vouched for; in the past once it has ended for good.
    pub fn vouched_until(&self) -> BootTime {
        if self.is_of_parent() {
            return BootTime(0);
        }
        self.with_core(|core| match core.ended() {
            Some(_) => BootTime(0),
            None => core.alive_until(),
        })
    }

    /// Ends the connection, and the session if there is one, without waiting for that.
    pub fn begin_close(&self) {
        self.inner.close();
    }

    /// Whether there is a connection, as that changes.
    pub fn up(&self) -> watch::Receiver<bool> {
        self.inner.up.subscribe()
    }

    /// Why there is no connection, as that changes.
    pub fn trouble(&self) -> watch::Receiver<Option<Error>> {
        self.inner.trouble.subscribe()
    }

    /// Ends when this connection, and all that would follow it, has.
    pub async fn over(&self) {
        let mut over = self.inner.over.subscribe();
        let _ = over.wait_for(|over| *over).await;
    }

    /// Ends the connection, and the session if there is one: at once for what is held.
    pub async fn close(&self) {
        if !self.is_of_parent() {
            self.inner.close();
            self.over().await;
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.inner.close();
    }
}

impl Inner {
    fn table(&self) -> MutexGuard<'_, Table> {
        // Whoever panicked while it was locked left it whole: nothing in there panics but by running out of memory.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, work: impl FnOnce(&mut Callers, &mut Core) -> T) -> T {
        let mut table = self.table();
        let Table { core, callers, .. } = &mut *table;
        let core = core.as_mut().expect("there from the start");
        let worked = work(callers, core);
        self.alive.send_if_modified(|alive| {
            let before = std::mem::replace(alive, core.alive_until());
            before != *alive
        });
        self.up.send_if_modified(|up| {
            let before = std::mem::replace(up, core.is_up());
            before != *up
        });
        self.trouble.send_if_modified(|trouble| {
            let is_news = trouble.as_ref() != core.trouble();
            if is_news {
                *trouble = core.trouble().cloned();
            }
            is_news
        });
        callers.hear(core);
        worked
    }

    fn close(&self) {
        if !self.birth.was_before_fork() {
            self.table().is_closing = true;
            self.wake.notify_one();
        }
    }

    /// Does this while the time is looked at; None once the core has ended or somebody closes it.
    async fn meanwhile<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        loop {
            let next = self.with(|_, core| {
                core.tick(BootTime::now());
                core.ended().is_none().then(|| core.next_tick())
            });
            if self.table().is_closing || self.birth.was_before_fork() {
                return None;
            }
            tokio::select! {
                biased;
                done = work.as_mut() => return Some(done),
                () = self.wake.notified() => {}
                () = sleep(next?.since(BootTime::now())) => {}
            }
        }
    }
}

/// What it says when it is polled now.
async fn poll_once<T>(future: &mut BoxFuture<'static, T>) -> Poll<T> {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

struct Link {
    inner: Arc<Inner>,
    connection: MultiplexedConnection,
    arrivals: Arrivals,
    /// Keeps the connection.
    driver: Driver,
    way: Way,
    began: BootTime,
    /// Connections that were tried in vain, or came to nothing, one after the other.
    failed: u32,
    /// Nothing is left to do about the session.
    is_over: bool,
}

/// Why the task leaves its connection.
enum Leave {
    Closed,
    Broken,
    Ended,
}

impl Link {
    async fn run(mut self) {
        loop {
            match self.attend().await {
                Leave::Closed => {
                    self.end_session().await;
                    break;
                }
                Leave::Broken => {
                    self.inner.with(|_, core| core.broke(BootTime::now()));
                    if !self.reconnect().await {
                        break;
                    }
                }
                Leave::Ended => break,
            }
        }
        if self.inner.table().is_closing && self.way.secret.is_some() {
            let _ = timeout(PARTING, self.way.part()).await;
        }
        self.inner.with(|_, core| core.end(Loss::Connection));
        self.is_over = true;
        let over = &self.inner.over;
        over.send_replace(true);
    }

    /// Goes on until there is a reason to leave this connection.
    async fn attend(&mut self) -> Leave {
        let mut alarm = pin!(sleep(Duration::ZERO));
        let mut rings_at = BootTime(0);
        loop {
            if self.inner.birth.was_before_fork() {
                self.inner.with(|_, core| core.end(Loss::Forked));
                return Leave::Ended;
            }
            if self.inner.table().is_closing {
                return Leave::Closed;
            }
            let (out, next, leave) = self.inner.with(|_, core| {
                core.tick(BootTime::now());
                let leave = match core.ended() {
                    Some(_) => Some(Leave::Ended),
                    None => core.is_stuck().then_some(Leave::Broken),
                };
                (core.out(), core.next_tick(), leave)
            });
            if let Some(leave) = leave {
                return leave;
            }
            if !self.send(out).await {
                return Leave::Broken;
            }
            if rings_at != next {
                rings_at = next;
                alarm.set(sleep(next.since(BootTime::now())));
            }
            let is_well = tokio::select! {
                biased;
                incoming = self.arrivals.next() => self.hear(incoming),
                () = self.inner.wake.notified() => true,
                () = alarm.as_mut() => {
                    rings_at = BootTime(0);
                    true
                }
            };
            if !(is_well && self.hear_the_rest()) {
                return Leave::Broken;
            }
        }
    }

    /// Whether the connection stands.
    async fn send(&mut self, out: Vec<(Tag, Command)>) -> bool {
        for (tag, command) in out {
            let connection = self.connection.clone();
            let sent = BootTime::now();
            let answer = line::answer(connection, command);
            // Polled, it is in the connection's own queue: so commands are sent in this order, if the runtime does not
            // have a poll do nothing for a change.
            let mut answer = unconstrained(async move { (tag, sent, answer.await) }).boxed();
            match poll_once(&mut answer).await {
                // Only where it could not be sent.
                Poll::Ready((_, _, None)) => return false,
                Poll::Ready(answer) => self.arrivals.expect(ready(answer).boxed()),
                Poll::Pending => self.arrivals.expect(answer),
            }
        }
        true
    }

    /// What else came already, so that what follows from all of it is sent at once. Whether the connection stands.
    fn hear_the_rest(&mut self) -> bool {
        for _ in 0..HEARD_AT_ONCE {
            let Some(incoming) = self.arrivals.next().now_or_never() else {
                break;
            };
            if !self.hear(incoming) {
                return false;
            }
        }
        true
    }

    /// Whether the connection stands.
    fn hear(&self, incoming: Incoming) -> bool {
        let now = BootTime::now();
        let push = match incoming {
            Incoming::Push(push) => line::meaning(push),
            Incoming::Reply((_, _, None)) => return false,
            Incoming::Reply((tag, sent, Some(reply))) => {
                self.inner
                    .with(|_, core| core.replied(now, sent, tag, reply));
                return true;
            }
        };
        match push {
            Push::Disconnected => false,
            Push::Other => true,
            Push::About { subject, key, text } => {
                self.inner
                    .with(|_, core| core.pushed(now, subject, &key, &text));
                true
            }
        }
    }

    /// Whether there is a connection again on which the locks go on, or others can be had.
    async fn reconnect(&mut self) -> bool {
        if BootTime::now().since(self.began) >= SOUND_AFTER {
            self.failed = 0;
        }
        let inner = self.inner.clone();
        loop {
            if self.failed > 0 {
                let longest = backoff::LONGEST.min(self.way.fence / 8);
                let delay = backoff::delay(self.failed - 1, BootTime::now().0, longest);
                if inner.meanwhile(sleep(delay)).await.is_none() {
                    return false;
                }
            }
            self.failed = self.failed.saturating_add(1);
            let Some(attempt) = inner.meanwhile(self.attempt()).await else {
                return false;
            };
            match attempt {
                Ok(()) if inner.with(|_, core| core.is_up()) => return true,
                Ok(()) => {} // The fence fell meanwhile.
                Err(error) => inner.with(|_, core| self.way.not_reached(core, &error)),
            }
        }
    }

    /// A connection with the session that there was, as long as that is relied on; else one without anything of the former.
    async fn attempt(&mut self) -> Result<(), Error> {
        let inner = self.inner.clone();
        let session = self.way.secret.clone();
        let session = session.filter(|_| inner.with(|_, core| core.has_session()));
        match (session, self.way.terms) {
            (Some(secret), _) => {
                let resumed = timeout(self.way.fence / 2, self.resume(&secret));
                resumed.await.unwrap_or_else(|_| Err(line::late()))
            }
            (None, Some(terms)) => {
                let begun = timeout(CONNECT_WITHIN, self.begin_anew(&terms));
                begun.await.unwrap_or_else(|_| Err(line::late()))
            }
            // Without terms the core has ended.
            (None, None) => Err(line::late()),
        }
    }

    async fn resume(&mut self, secret: &str) -> Result<(), Error> {
        let way = &self.way;
        let mut line = way.address.connect(way.fence / 2).await?;
        if way.terms.is_none() && line.server().await?.run_id != way.run_id {
            line.end_former_session(secret).await?;
            return Err(Error::Refused("the server was restarted".to_owned()));
        }
        let sent = line.resume_session(secret).await?;
        self.use_line(line);
        self.inner
            .with(|_, core| core.resumed(BootTime::now(), sent));
        Ok(())
    }

    /// What a former session holds goes with its grace. To end it now would give the locks away while those who have just been told
    /// that they are lost are stopping.
    async fn begin_anew(&mut self, terms: &Terms) -> Result<(), Error> {
        let mut line = self.way.address.connect(CONNECT_WITHIN).await?;
        let sent = BootTime::now();
        let begun = terms.begin(&mut line).await.map_err(or_passing)?;
        self.use_line(line);
        self.way.secret = begun.secret;
        self.way.fence = begun.fence;
        self.way.run_id.clone_from(&begun.run_id);
        self.inner.with(|_, core| {
            let has_session = self.way.secret.is_some();
            core.renewed(BootTime::now(), sent, begun.fence, has_session);
            core.began_on(begun.run_id);
        });
        Ok(())
    }

    fn use_line(&mut self, line: Line) {
        let connection = std::mem::replace(&mut self.connection, line.connection);
        let driver = std::mem::replace(&mut self.driver, line.driver);
        self.linger((connection, driver));
        self.arrivals = Arrivals::new(line.pushes);
        self.began = BootTime::now();
    }

    /// Without a session the server frees what a connection held when that ends, and it may have been silent only. So it is left open
    /// for as long as those need to stop who were told of the loss.
    fn linger(&self, former: (MultiplexedConnection, Driver)) {
        let terms = self.way.terms;
        let stop_within = terms.map_or(Duration::ZERO, |terms| terms.stop_within);
        if self.way.secret.is_none() && !stop_within.is_zero() {
            tokio::spawn(async move {
                sleep(stop_within).await;
                drop(former);
            });
        }
    }

    /// So that nothing stays for the grace. Without a session the end of the connection is enough.
    async fn end_session(&mut self) {
        if self.way.secret.is_some() {
            let end = cmd("SESSION.END");
            let asked = line::ask(&mut self.connection, &end);
            if let Ok(Ok(_)) = timeout(self.way.fence, asked).await {
                self.way.secret = None;
            }
        }
    }
}

impl Way {
    /// What an attempt means that came to nothing.
    fn not_reached(&self, core: &mut Core, error: &Error) {
        match error {
            Error::Refused(_) if self.terms.is_none() => core.end(Loss::Connection),
            Error::Refused(text) if text.starts_with("NOSESSION") => {
                core.lose_all(&Loss::Connection);
            }
            error => core.not_reached(BootTime::now(), error),
        }
    }

    /// Ends the session on another connection.
    async fn part(&self) -> Result<(), Error> {
        let mut line = self.address.connect(PARTING).await?;
        match &self.secret {
            Some(secret) => line.end_former_session(secret).await,
            None => Ok(()),
        }
    }
}

/// The runtime ends, most often because `main` does, and this task with it. What was given back in the last moment is on no wire
/// yet. So a session in which nobody holds anything is ended by another connection, for which this waits a moment.
impl Drop for Link {
    fn drop(&mut self) {
        if self.is_over || self.inner.birth.was_before_fork() {
            return;
        }
        let is_relied_on = self.inner.with(|_, core| {
            let is_relied_on = core.is_relied_on();
            core.end(Loss::Connection);
            is_relied_on
        });
        self.inner.over.send_replace(true);
        if self.way.secret.is_none() || is_relied_on {
            return;
        }
        let way = self.way.clone();
        let part = move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            if let Ok(runtime) = runtime {
                let parted = async { timeout(PARTING, way.part()).await };
                let _ = runtime.block_on(parted);
                // The name of a server may be looked for still.
                runtime.shutdown_background();
            }
        };
        // A thread of its own, since this one may run a runtime.
        if let Ok(thread) = std::thread::Builder::new().spawn(part) {
            let _ = thread.join();
        }
    }
}
