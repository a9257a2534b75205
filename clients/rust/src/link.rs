//! The task that keeps the connection: it sends what the core wants sent, brings it what comes, and looks for a new connection
//! when that one breaks and there is a session.

use crate::address::Address;
use crate::clock::BootTime;
use crate::core::{Change, Command, Core, Id, Request, Tag, WatchEvent};
use crate::error::{Error, Loss};
use crate::incoming::{Arrivals, Incoming};
use crate::line::{self, Line, Push};
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

/// Between two attempts to reach the server again.
const ATTEMPTS_APART: Duration = Duration::from_millis(20);

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
    /// That the task has ended.
    over: watch::Sender<bool>,
}

/// What the task needs to connect again.
pub struct Way {
    pub address: Arc<Address>,
    pub secret: Option<String>,
    pub fence: Duration,
    /// Of the server on which the session began.
    pub run_id: Vec<u8>,
    /// Whether the session is resumed on a server that was restarted since, or on another one. If not, it is ended there.
    pub survives_restarts: bool,
}

impl Shared {
    /// Starts the task. `sent` is when the last request was sent that the connection has answered.
    pub fn start(line: Line, way: Way, sent: BootTime) -> Arc<Shared> {
        let mut core = Core::new(sent, way.fence, way.secret.is_some());
        if way.survives_restarts {
            core.began_on(way.run_id.clone());
        }
        let inner = Arc::new(Inner {
            alive: watch::channel(core.alive_until()).0,
            up: watch::channel(true).0,
            over: watch::channel(false).0,
            wake: Notify::new(),
            table: Mutex::new(Table {
                core: Some(core),
                ..Table::default()
            }),
        });
        let link = Link {
            inner: inner.clone(),
            connection: line.connection,
            arrivals: Arrivals::new(line.pushes),
            way,
        };
        tokio::spawn(link.run());
        Arc::new(Shared { inner })
    }

    pub fn ask(&self, request: Request) -> Result<(Id, watch::Receiver<State>), Error> {
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
        let asked = self.inner.with(|callers, core| {
            let id = core.ask(BootTime::now(), request)?;
            callers.states.insert(id, Hearer::Each(server, heard));
            Ok(id)
        });
        self.inner.wake.notify_one();
        asked
    }

    pub fn raise(&self, id: Id, token: u64) {
        self.inner
            .with(|_, core| core.raise(BootTime::now(), id, token));
        self.inner.wake.notify_one();
    }

    pub fn give_up(&self, id: Id) {
        self.inner.with(|_, core| core.give_up(BootTime::now(), id));
        self.inner.wake.notify_one();
    }

    pub fn release(&self, id: Id) {
        self.inner.with(|_, core| core.release(BootTime::now(), id));
        self.inner.wake.notify_one();
    }

    pub fn watch(&self, keys: BTreeSet<Vec<u8>>) -> (Id, Arc<AtomicWaker>) {
        let watch = self.inner.with(|callers, core| {
            let id = core.watch(BootTime::now(), keys);
            let waker = callers.watches.entry(id).or_default();
            (id, waker.clone())
        });
        self.inner.wake.notify_one();
        watch
    }

    pub fn unwatch(&self, id: Id) {
        self.inner.with(|callers, core| {
            callers.watches.remove(&id);
            core.unwatch(id);
        });
        self.inner.wake.notify_one();
    }

    pub fn next_event(&self, id: Id) -> Option<Result<WatchEvent, Error>> {
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

    /// Ends when this connection, and all that would follow it, has.
    pub async fn over(&self) {
        let mut over = self.inner.over.subscribe();
        let _ = over.wait_for(|over| *over).await;
    }

    /// Ends the connection, and the session if there is one: at once for what is held.
    pub async fn close(&self) {
        self.inner.close();
        self.over().await;
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
        callers.hear(core);
        worked
    }

    fn close(&self) {
        self.table().is_closing = true;
        self.wake.notify_one();
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
    way: Way,
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
                    self.inner.with(|_, core| core.end(Loss::Connection));
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
        let over = &self.inner.over;
        over.send_replace(true);
    }

    /// Goes on until there is a reason to leave this connection.
    async fn attend(&mut self) -> Leave {
        let mut alarm = pin!(sleep(Duration::ZERO));
        let mut rings_at = BootTime(0);
        loop {
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

    /// Whether there is a connection again on which the locks go on.
    async fn reconnect(&mut self) -> bool {
        loop {
            let left = self.inner.with(|_, core| {
                core.tick(BootTime::now());
                let left = core.next_tick().since(BootTime::now());
                core.ended().is_none().then_some(left)
            });
            let (Some(left), Some(secret)) = (left, self.way.secret.clone()) else {
                return false;
            };
            let within = left.min(self.way.fence / 2);
            match timeout(within, self.resume(&secret)).await {
                Ok(Ok(())) => return true,
                Ok(Err(Error::Refused(_))) => {
                    self.inner.with(|_, core| core.end(Loss::Connection));
                    return false;
                }
                _ if self.inner.table().is_closing => return false,
                _ => sleep(ATTEMPTS_APART.min(left)).await,
            }
        }
    }

    async fn resume(&mut self, secret: &str) -> Result<(), Error> {
        let mut line = self.way.address.connect(self.way.fence / 2).await?;
        let way = &self.way;
        if !way.survives_restarts && line.server().await?.run_id != way.run_id {
            line.end_former_session(secret).await?;
            return Err(Error::Refused("the server was restarted".to_owned()));
        }
        let sent = line.resume_session(secret).await?;
        self.connection = line.connection;
        self.arrivals = Arrivals::new(line.pushes);
        self.inner
            .with(|_, core| core.resumed(BootTime::now(), sent));
        Ok(())
    }

    /// So that nothing stays for the grace. Without a session the end of the connection is enough.
    async fn end_session(&mut self) {
        if self.way.secret.is_some() {
            let end = cmd("SESSION.END");
            let asked = line::ask(&mut self.connection, &end);
            let _ = timeout(self.way.fence, asked).await;
        }
    }
}
