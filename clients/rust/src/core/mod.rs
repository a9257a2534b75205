//! The rules of the client protocol (`clients/protocol/protocol.md`), of one connection at a time: calls, frames and the time in;
//! commands, events and orders out. No socket, no clock, no tasks.
//!
//! - words.rs: what goes in and out        errors.rs: what an error of the server means
//! - connection.rs: greeting, fence, breaks  mine.rs: what of a session is still there
//! - request.rs: one request               acquire.rs, release.rs, lease.rs: its life
//! - pushes.rs: pushes about requests      watches.rs, presence.rs: what is watched
//! - cluster.rs: slots, and who has them
//!
//! The vectors of `clients/protocol/vectors` run on it (vectors.rs). P-FENCE-3 and the like are rules of protocol.md.

mod acquire;
mod cluster;
mod connection;
mod errors;
mod lease;
mod mine;
mod presence;
mod pushes;
mod release;
mod request;
#[cfg(test)]
mod vectors;
mod watches;
mod words;

use crate::error::{Error, Loss};
use crate::resp::Frame;
use crate::timing::Unfit;
use connection::{Connection, Link};
use mine::Mine;
use presence::Presences;
use request::{Extension, Phase, Place, Request, Rid};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Add;
use std::time::Duration;
use watches::Watches;

pub use cluster::{Referral, slot};
pub use errors::{code, is_momentary, is_passing, is_unwritable};
pub(crate) use words::words;
pub use words::{
    Ask, BootClock, Bytes, Command, Config, Event, Id, KeyChange, Kind, Member, MemberChange,
    Members, Mode, Now, Order, PresenceEvent, Status, Told, WatchEvent, Word,
};

/// After its time the client ends a wait itself, if the server has not by then (P-ACQ-5).
const SERVERS_WORD: Duration = Duration::from_millis(100);

/// How long a connection that closes waits for the answer to SESSION.END, and how long to look for one (P-CLOSE-1, P-CLOSE-2).
const END_WITHIN: Duration = Duration::from_millis(2000);
const PART_WITHIN: Duration = Duration::from_millis(1000);

/// A moment on a clock of the core's own, which goes on by the greater of what the two clocks do (P-FENCE-3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(Duration);

impl Time {
    fn since(self, earlier: Time) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Time {
    type Output = Time;

    fn add(self, time: Duration) -> Time {
        Time(self.0.saturating_add(time))
    }
}

/// What the answer to a command is about.
#[derive(Debug)]
enum Expect {
    Nothing,
    Server,
    Start,
    Resume,
    Part,
    Mine,
    Grant(Rid),
    Release {
        rid: Rid,
        key: Bytes,
        /// A break cut off the answer to a former sending.
        was_sent_before: bool,
    },
    Extend {
        rid: Rid,
        key: Bytes,
        serial: u64,
    },
    Keep {
        rid: Rid,
        key: Bytes,
        rest: Duration,
    },
    Raise {
        rid: Rid,
        token: u64,
    },
    Watch(Bytes),
    Unwatch(Bytes),
    Prefix {
        prefix: Bytes,
        serial: u64,
    },
}

/// What is sent again after a refusal (P-RETRY-3).
#[derive(Debug)]
enum Retry {
    Ask(Rid),
    Release(Rid),
    Keep(Rid),
    Raise { rid: Rid, token: u64 },
    Look { loss: Loss, held: Vec<Rid> },
    Watch(Bytes),
    Prefix(Bytes),
}

/// The client of one server.
pub struct Core {
    config: Config,
    clocks: Now,
    now: Time,
    /// By how much the second clock is ahead of the first one since the beginning.
    suspended: Duration,
    out: Vec<Command>,
    events: Vec<Event>,
    orders: Vec<Order>,
    connection: Connection,
    /// In the order of the calls.
    requests: BTreeMap<Rid, Request>,
    last_rid: Rid,
    ids: HashMap<Id, Rid>,
    /// Who asks for each place; only the first has been sent (P-OWNER-4).
    places: HashMap<Place, VecDeque<Rid>>,
    timers: BTreeSet<(Time, Rid)>,
    /// How many requests may have a hold.
    holds: usize,
    labels: u64,
    /// The greatest token so far.
    greatest: u64,
    serial: u64,
    mine: Option<Mine>,
    /// The next one: a page of this one is from before what it is to find.
    next_mine: Option<Mine>,
    watches: Watches,
    presences: Presences,
    /// All holds are being lost; whether to connect again is decided after that.
    is_losing: bool,
    is_closed: bool,
    closing_until: Option<Time>,
    /// What a client that closes sends last.
    parting: Vec<Command>,
}

impl Core {
    pub fn new(clocks: Now, config: Config) -> Core {
        Core {
            config,
            clocks,
            now: Time::default(),
            suspended: Duration::ZERO,
            out: Vec::new(),
            events: Vec::new(),
            orders: Vec::new(),
            connection: Connection::default(),
            requests: BTreeMap::new(),
            last_rid: 0,
            ids: HashMap::new(),
            places: HashMap::new(),
            timers: BTreeSet::new(),
            holds: 0,
            labels: 0,
            greatest: 0,
            serial: 0,
            mine: None,
            next_mine: None,
            watches: Watches::default(),
            presences: Presences::default(),
            is_losing: false,
            is_closed: false,
            closing_until: None,
            parting: vec![words!["SESSION.END"]],
        }
    }

    /// The server is a node of a cluster, or is not.
    pub fn set_cluster(&mut self, is_cluster: bool) {
        let is_news = is_cluster && !self.config.is_cluster;
        self.config.is_cluster = is_cluster;
        if is_news {
            self.refuse_what_crosses_slots();
        }
    }

    /// Whether the connection that was opened is by a Unix socket.
    pub fn set_unix(&mut self, is_unix: bool) {
        self.config.is_unix = is_unix;
    }

    /// A slot that the server is to have: that of a hold, since its session is where the slot is (P-CLUSTER-6), else of anything
    /// that is wanted of it.
    pub fn slot(&self) -> Option<u16> {
        let is_here = |request: &&Request| !request.ask.is_asking;
        let requests = || self.requests.values().filter(is_here);
        let held = requests().find(|request| request.phase.is_hold());
        let request = held.or_else(|| requests().next());
        let key = request.and_then(|request| request.keys.first());
        key.or_else(|| self.watches.first())
            .or_else(|| self.presences.first())
            .map(|key| cluster::slot(key))
    }

    // ---- outputs ----

    /// The commands to send, in their order.
    pub fn take_out(&mut self) -> Vec<Command> {
        std::mem::take(&mut self.out)
    }

    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    pub fn take_orders(&mut self) -> Vec<Order> {
        std::mem::take(&mut self.orders)
    }

    // ---- the time ----

    /// The clocks are read: elapsed time is the greater of both differences (P-FENCE-3).
    pub fn set_now(&mut self, clocks: Now) {
        let [mono, boot] = [
            clocks.mono.saturating_sub(self.clocks.mono),
            clocks.boot.saturating_sub(self.clocks.boot),
        ];
        let suspended = match self.config.boot_clock {
            BootClock::Exact => boot.saturating_sub(mono),
            BootClock::Rounded => boot.saturating_sub(mono + Duration::from_millis(20)),
            BootClock::Missing => Duration::ZERO,
        };
        self.suspended = self.suspended.max(suspended);
        self.now = Time(mono + self.suspended);
    }

    /// How long it is until `tick` has something to do.
    pub fn next_tick(&self) -> Option<Duration> {
        let due = self.due().into_iter().flatten().min();
        let due = due
            .into_iter()
            .chain(self.timers.first().map(|(at, _)| *at));
        due.min().map(|at| at.since(self.now))
    }

    /// Goes on to this moment, and does what is due.
    pub fn tick(&mut self, clocks: Now) {
        self.set_now(clocks);
        self.run_timers();
    }

    fn run_timers(&mut self) {
        let is_due = |at: Option<Time>, now| at.is_some_and(|at| at <= now);
        if is_due(self.fence_falls_at(), self.now) {
            self.fence_falls();
        }
        while let Some(&(at, rid)) = self.timers.first() {
            if at > self.now {
                break;
            }
            self.timer_of_request(rid);
        }
        if is_due(self.closing_until, self.now) {
            self.closing_until = None;
            self.drop_connection(Order::Leave);
        }
        if is_due(self.stuck_at(), self.now) {
            self.leave();
        }
        if is_due(self.greeting_until(), self.now) {
            match self.connection.link {
                Link::Resuming => self.leave(),
                _ => self.greeting_failed(Error::late()),
            }
        }
        if is_due(self.connection.connect_at, self.now) {
            self.connect();
        }
        if is_due(self.retry_at(), self.now) {
            self.retry();
        }
        if is_due(self.ping_at(), self.now) {
            self.connection.pinged = self.now;
            self.send(words!["PING"], Expect::Nothing);
            if self.config.is_cluster {
                self.watch_again();
            }
        }
    }

    fn due(&self) -> [Option<Time>; 7] {
        [
            self.fence_falls_at(),
            self.closing_until,
            self.stuck_at(),
            self.greeting_until(),
            self.connection.connect_at,
            self.retry_at(),
            self.ping_at(),
        ]
    }

    /// A request's one timer: what it is for depends on its phase.
    fn set_timer(&mut self, rid: Rid) {
        let Some(request) = self.requests.get_mut(&rid) else {
            return;
        };
        let at = match request.phase {
            _ if request.is_given_up => None,
            Phase::Queued | Phase::Asked | Phase::Waiting => request
                .wait()
                .filter(|wait| !wait.is_zero())
                .map(|wait| request.began + wait + SERVERS_WORD),
            Phase::Held => request.lease_ends_at(),
            Phase::Kept => Some(request.kept_until),
            Phase::Extending | Phase::Releasing => None,
        };
        let before = std::mem::replace(&mut request.timer, at);
        if before == at {
            return;
        }
        if let Some(before) = before {
            self.timers.remove(&(before, rid));
        }
        if let Some(at) = at {
            self.timers.insert((at, rid));
        }
    }

    fn timer_of_request(&mut self, rid: Rid) {
        let request = &self.requests[&rid];
        match request.phase {
            Phase::Held => {
                let keys = request.keys.clone();
                self.explain(rid, keys);
                self.lose(rid, Loss::Told("lease".to_owned()), &[]);
            }
            Phase::Kept => self.end(rid),
            _ => self.wait_is_over(rid),
        }
    }

    // ---- requests ----

    fn set_phase(&mut self, rid: Rid, phase: Phase) {
        if let Some(request) = self.requests.get_mut(&rid) {
            let before = std::mem::replace(&mut request.phase, phase);
            self.holds += usize::from(phase.is_hold());
            self.holds -= usize::from(before.is_hold());
            self.set_timer(rid);
        }
    }

    fn add(&mut self, request: Request) -> Rid {
        self.last_rid += 1;
        let rid = self.last_rid;
        for id in &request.ids {
            self.ids.insert(*id, rid);
        }
        for place in request.places() {
            self.places.entry(place).or_default().push_back(rid);
        }
        self.holds += usize::from(request.phase.is_hold());
        self.requests.insert(rid, request);
        self.set_timer(rid);
        rid
    }

    /// The request of a caller that is still told of it.
    fn find(&self, id: Id) -> Option<Rid> {
        let rid = *self.ids.get(&id)?;
        self.requests.get(&rid).filter(|it| !it.is_silent)?;
        Some(rid)
    }

    fn phase(&self, rid: Rid) -> Option<Phase> {
        self.requests.get(&rid).map(|request| request.phase)
    }

    fn rids(&self) -> Vec<Rid> {
        self.requests.keys().copied().collect()
    }

    fn fresh_label(&mut self) -> Bytes {
        self.labels += 1;
        format!(".{}", self.labels).into_bytes()
    }

    /// Nothing is left of it, here or at the server.
    fn end(&mut self, rid: Rid) {
        let Some(request) = self.requests.remove(&rid) else {
            return;
        };
        self.holds -= usize::from(request.phase.is_hold());
        if let Some(at) = request.timer {
            self.timers.remove(&(at, rid));
        }
        for id in &request.ids {
            if self.ids.get(id) == Some(&rid) {
                self.ids.remove(id);
            }
        }
        for place in request.places() {
            self.leave_place(rid, &place);
        }
        match &request.ask.task {
            Some(task) if !request.phase.is_open() => self.task_goes_on(task),
            _ => {}
        }
    }

    fn leave_place(&mut self, rid: Rid, place: &Place) {
        let Some(queue) = self.places.get_mut(place) else {
            return;
        };
        queue.retain(|other| *other != rid);
        match queue.front().copied() {
            None => _ = self.places.remove(place),
            Some(next) => self.send_if_first(next),
        }
    }

    /// P-ELECT-2: a candidate stands again, at the end of the queue.
    fn end_or_stand_again(&mut self, rid: Rid) {
        let again = self.stands_again(rid);
        self.end(rid);
        if let Some((id, ask)) = again {
            self.acquire(id, ask);
        }
    }

    fn stands_again(&self, rid: Rid) -> Option<(Id, Ask)> {
        let request = self.requests.get(&rid)?;
        let stands = request.is_elected() && !request.is_given_up && !self.is_closed;
        let id = request.ids.first().filter(|_| stands)?;
        // ASK was for the former request alone (P-CLUSTER-4).
        let ask = Ask {
            is_asking: false,
            ..request.ask.clone()
        };
        Some((*id, ask))
    }

    // ---- the wire ----

    fn is_up(&self) -> bool {
        self.connection.link == Link::Up
    }

    /// About a request, which may be at a node that takes its slot over (P-CLUSTER-4).
    fn send_about(&mut self, rid: Rid, command: Command, expect: Expect) {
        if self.requests[&rid].ask.is_asking {
            self.send(words!["ASKING"], Expect::Nothing);
        }
        self.send(command, expect);
    }

    fn send(&mut self, command: Command, expect: Expect) {
        self.out.push(command);
        self.connection.replies.push_back((self.now, expect));
    }

    /// What is refused for a moment is sent again with all else that is (P-RETRY-3).
    fn try_again(&mut self, retry: Retry) {
        if self.connection.retry_at.is_none() {
            let delay = self.delay(self.connection.refused, connection::LONGEST_DELAY);
            self.connection.retry_at = Some(self.now + delay);
            self.connection.refused = self.connection.refused.saturating_add(1);
        }
        self.connection.retries.push(retry);
    }

    fn retry(&mut self) {
        self.connection.retry_at = None;
        for retry in std::mem::take(&mut self.connection.retries) {
            match retry {
                Retry::Ask(rid) => self.send_if_first(rid),
                Retry::Release(rid) => self.send_unsettled(rid),
                Retry::Keep(rid) if self.phase(rid) == Some(Phase::Extending) => self.keep(rid),
                Retry::Keep(_) => {}
                Retry::Raise { rid, token } => self.send_raise(rid, token),
                Retry::Look { loss, held } => self.look(loss, held),
                Retry::Watch(key) => self.send_watch(&key),
                Retry::Prefix(prefix) => self.send_prefix(&prefix, None),
            }
        }
    }

    /// A frame that the server sent.
    pub fn recv(&mut self, frame: Frame) {
        // What arrives later changes nothing (P-FENCE-8).
        if self.fence_falls_at().is_some_and(|at| at <= self.now) {
            self.run_timers();
        }
        if matches!(self.connection.link, Link::None | Link::Opening) {
            return;
        }
        let reply = match frame {
            Frame::Push(push) => return self.pushed(&push),
            reply => reply,
        };
        let Some((sent, expect)) = self.connection.replies.pop_front() else {
            return self.leave(); // P-FRAME-2
        };
        let error = reply.error();
        if self.is_up() && error.is_none_or(errors::vouches) {
            self.vouch(sent);
        }
        let is_not_here = error.is_some_and(|error| {
            errors::is_not_here(error)
                || self.connection.secret.is_some() && errors::code(error) == "LOADING"
        });
        if self.is_up() && !self.is_closed && is_not_here {
            return self.demoted();
        }
        self.answered(sent, expect, reply);
    }

    fn answered(&mut self, sent: Time, expect: Expect, reply: Frame) {
        match expect {
            Expect::Nothing => {}
            Expect::Server => self.greeted(sent, &reply),
            Expect::Start => self.started(sent, reply),
            Expect::Resume => self.resumed(sent, &reply),
            Expect::Part => self.parted(),
            Expect::Mine => self.mine_answered(reply),
            Expect::Grant(rid) => self.request_answered(rid, sent, reply),
            Expect::Release {
                rid,
                key,
                was_sent_before,
            } => self.release_answered(rid, key, was_sent_before, &reply),
            Expect::Extend { rid, key, serial } => {
                self.extension_answered(rid, &key, serial, sent, &reply);
            }
            Expect::Keep { rid, key, rest } => self.keep_answered(rid, &key, sent + rest, &reply),
            Expect::Raise { rid, token } => self.raise_answered(rid, token, &reply),
            Expect::Watch(key) => self.watch_answered(&key, &reply),
            Expect::Unwatch(key) => self.unwatch_answered(&key),
            Expect::Prefix { prefix, serial } => self.prefix_answered(&prefix, serial, reply),
        }
    }

    // ---- what callers ask ----

    /// What a request is at this moment, without asking anybody; the clocks were read just before (P-FENCE-4). None once it has ended:
    /// its last event says how.
    pub fn check(&self, id: Id) -> Option<Status> {
        let request = &self.requests[&self.find(id)?];
        if request.phase != Phase::Held {
            return Some(match request.granted {
                Some(_) => Status::Released, // P-REL-9
                None => Status::Waiting,
            });
        }
        let is_over = |at: Option<Time>| at.is_some_and(|at| at <= self.now);
        Some(match request.lease_ends_at() {
            _ if is_over(self.fence_falls_at()) => Status::Lost(Loss::Silence),
            lease if is_over(lease) => Status::Lost(Loss::Told("lease".to_owned())),
            _ => Status::Held,
        })
    }

    /// Whether nothing is held, waited for or on its way.
    pub fn is_idle(&self) -> bool {
        self.requests.is_empty()
    }

    /// Whether it ends, or has ended.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether the client is closed, and nothing is left to do.
    pub fn is_over(&self) -> bool {
        self.is_closed && self.connection.link == Link::None
    }

    /// Ends all requests, watches and the session (P-CLOSE-1).
    pub fn close(&mut self) {
        if self.is_closed {
            return;
        }
        self.is_closed = true;
        self.set_parting();
        for rid in self.rids() {
            self.fail(rid, Some(Loss::Closed), Some(Error::Closed));
        }
        self.end_watches(&Error::Closed);
        self.connection.connect_at = None;
        self.connection.retry_at = None;
        self.connection.fence = None;
        let has_session = self.connection.secret.is_some();
        match self.connection.link {
            Link::Up if has_session => {
                self.closing_until = Some(self.now + END_WITHIN);
                self.part();
            }
            // P-CLOSE-2
            Link::None | Link::Opening | Link::Resuming if has_session => {
                self.closing_until = Some(self.now + PART_WITHIN);
                if self.connection.link == Link::None {
                    self.connect();
                }
            }
            Link::None => {}
            _ => self.drop_connection(Order::Leave),
        }
    }

    /// P-LEAST-3: what is kept outlives the client.
    fn set_parting(&mut self) {
        let is_kept = |request: &Request| matches!(request.phase, Phase::Extending | Phase::Kept);
        if !self.requests.values().any(is_kept) {
            return;
        }
        // What was asked for may be granted by now.
        let is_given_back = |request: &&Request| {
            let is_sent = !matches!(
                request.phase,
                Phase::Queued | Phase::Extending | Phase::Kept
            );
            is_sent && request.is_named
        };
        let asking = |request: &Request| request.ask.is_asking.then(|| words!["ASKING"]);
        let release = |request: &Request, key| [asking(request), Some(request.release(key))];
        self.parting = self
            .requests
            .values()
            .filter(is_given_back)
            .flat_map(|request| request.keys.iter().flat_map(|key| release(request, key)))
            .flatten()
            .chain([words!["SESSION.DETACH"]])
            .collect();
    }

    fn part(&mut self) {
        let parting = std::mem::take(&mut self.parting);
        let last = parting.len() - 1;
        for (at, command) in parting.into_iter().enumerate() {
            let expect = if at == last {
                Expect::Part
            } else {
                Expect::Nothing
            };
            self.send(command, expect);
        }
    }

    fn parted(&mut self) {
        self.closing_until = None;
        self.drop_connection(Order::Leave);
    }

    fn end_watches(&mut self, error: &Error) {
        let ids = self.watches.clear().into_iter();
        for id in ids.chain(self.presences.clear()) {
            self.refuse_watch(id, error.clone());
        }
    }

    fn tell(&mut self, event: Event) {
        self.events.push(event);
    }
}
