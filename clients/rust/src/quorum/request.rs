//! One lock on several servers, from the request to its end: the task that tells the protocol what happens and does what it says.

use super::protocol::{Effect, Fact, Protocol, Server, Token, majority_vouches};
use super::servers::Servers;
use crate::callers::Heard;
use crate::clock::BootTime;
use crate::core::{Ask, Event, Id, Kind, Mode};
use crate::error::{Error, Loss};
use crate::link::Shared;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::time::sleep;

/// What has become of a request.
#[derive(Clone)]
pub enum State {
    Wanted,
    /// With this token, on these servers.
    Held(Token, Vec<Holder>),
    Lost(Loss),
    Failed(Error),
    /// It was given up or given back, and each server that can be reached has taken that.
    Over,
}

/// What is wanted.
#[derive(Clone)]
pub struct Wish {
    pub key: Vec<u8>,
    pub owner: Option<Vec<u8>>,
    pub waits: bool,
}

/// A request to one server, and its hold there.
#[derive(Clone)]
pub struct Holder {
    shared: Arc<Shared>,
    id: Id,
}

impl Holder {
    /// Until when the server vouches for the hold.
    pub fn vouched_until(&self) -> BootTime {
        self.shared.vouched_until(self.id)
    }

    fn is(&self, other: &Holder) -> bool {
        self.id == other.id && Arc::ptr_eq(&self.shared, &other.shared)
    }
}

/// The caller's side of a request. With it the request is given up.
pub struct Handle {
    pub state: watch::Receiver<State>,
    /// Until when the servers vouch for the lock, as that moves on.
    #[cfg_attr(
        not(feature = "internals"),
        expect(dead_code, reason = "it is of the internals")
    )]
    pub alive: watch::Receiver<BootTime>,
    is_wanted: watch::Sender<bool>,
}

impl Handle {
    /// The lock is wanted no more.
    pub fn give_up(&self) {
        self.is_wanted.send_replace(false);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// Begins a request.
pub fn start(servers: Arc<Servers>, wish: Wish) -> Handle {
    let (sender, heard) = unbounded_channel();
    let (state, receiver) = watch::channel(State::Wanted);
    let (is_wanted, wanted) = watch::channel(true);
    let (alive, moments) = watch::channel(BootTime(0));
    let asked = (0..servers.len()).map(|_| None).collect();
    let task = Task {
        protocol: Protocol::new(servers.len()),
        reached: vec![None; servers.len()],
        servers,
        wish,
        asked,
        leaving: Vec::new(),
        heard,
        sender,
        facts: VecDeque::new(),
        error: None,
        loss: Loss::Silence,
        relied_on_until: None,
        state,
        alive,
        wanted,
    };
    tokio::spawn(task.run());
    Handle {
        state: receiver,
        alive: moments,
        is_wanted,
    }
}

struct Task {
    protocol: Protocol,
    servers: Arc<Servers>,
    wish: Wish,
    /// What the protocol was told of: by which connection each server is reached.
    reached: Vec<Option<Arc<Shared>>>,
    asked: Vec<Option<Holder>>,
    /// What was taken back, and the server has not said so yet.
    leaving: Vec<(Server, Holder)>,
    heard: UnboundedReceiver<Heard>,
    sender: UnboundedSender<Heard>,
    facts: VecDeque<Fact>,
    /// Why the last one refused.
    error: Option<Error>,
    /// Why the last hold was lost.
    loss: Loss,
    /// Once the lock is lost: until when somebody may rely on it who has not heard of that.
    relied_on_until: Option<BootTime>,
    state: watch::Sender<State>,
    alive: watch::Sender<BootTime>,
    wanted: watch::Receiver<bool>,
}

impl Task {
    async fn run(mut self) {
        let mut changed = self.servers.changed();
        changed.mark_changed();
        let mut wanted = self.wanted.clone();
        while !self.protocol.is_over() {
            let rings_in = self.rings_in();
            tokio::select! {
                // What was heard comes before what follows from it.
                biased;
                Some(heard) = self.heard.recv() => self.hear(heard),
                _ = changed.changed() => match self.servers.is_closed() {
                    true => self.close(),
                    false => self.look_at_servers(),
                },
                _ = wanted.wait_for(|wanted| !wanted) => self.facts.push_back(Fact::GivenUp),
                () = sleep(rings_in) => {}
            }
            self.handle();
            if !self.wish.waits && self.protocol.is_apart() {
                let why = self.servers.why();
                let why = why.unwrap_or_else(|| Error::Unreachable("no majority".to_owned()));
                self.error.get_or_insert(why);
                self.fail();
            }
        }
        self.keep_while_relied_on().await;
        self.leave().await;
    }

    /// Ends it, also where it is asked for nowhere, and so no server says so (P-CLOSE-1).
    fn close(&mut self) {
        self.hear_all();
        self.handle();
        if !self.protocol.is_over() {
            self.error = Some(Error::Closed);
            self.fail();
        }
    }

    fn fail(&mut self) {
        self.facts.push_back(Fact::GivenUp);
        self.handle();
        self.end_with(|error| State::Failed(error.unwrap_or(Error::Taken)));
    }

    /// What is left of a lost lock is kept from others until whoever was told that it is held has stopped: that is so when the
    /// guard is dropped, or its time is over.
    async fn keep_while_relied_on(&mut self) {
        let Some(until) = self.relied_on_until else {
            return;
        };
        let mut wanted = self.wanted.clone();
        tokio::select! {
            _ = wanted.wait_for(|wanted| !wanted) => {}
            () = sleep(until.since(BootTime::now())) => {}
        }
        for server in 0..self.asked.len() {
            self.withdraw(server);
        }
    }

    /// Waits until the servers have taken it back that can be reached.
    async fn leave(mut self) {
        let mut changed = self.servers.changed();
        loop {
            let servers = &self.servers;
            self.leaving.retain(|(server, asked)| {
                let reached = servers.reached(*server);
                reached.is_some_and(|shared| Arc::ptr_eq(&shared, &asked.shared))
            });
            if self.leaving.is_empty() {
                break;
            }
            tokio::select! {
                Some(heard) = self.heard.recv() => self.hear(heard),
                _ = changed.changed() => {}
            }
        }
        self.state.send_if_modified(|state| {
            let is_open = matches!(state, State::Wanted | State::Held(..));
            if is_open {
                *state = State::Over;
            }
            is_open
        });
    }

    /// When a hold is not vouched for any more, if nothing is heard until then.
    fn rings_in(&self) -> Duration {
        let held = (0..self.asked.len()).filter(|server| self.protocol.is_held(*server));
        let first = held.map(|server| self.vouched_until(server)).min();
        // A while is as good as for ever.
        let first = first.unwrap_or(BootTime::now() + Duration::from_secs(3600));
        let first = first.since(BootTime::now());
        match *self.state.borrow() {
            // So often it looks until when the lock is vouched for.
            State::Held(..) => first.min(self.servers.fence() / 8),
            _ => first,
        }
    }

    fn vouched_until(&self, server: Server) -> BootTime {
        let asked = self.asked[server].as_ref();
        asked.map_or(BootTime(0), Holder::vouched_until)
    }

    // ---- facts ----

    fn hear_all(&mut self) {
        while let Ok(heard) = self.heard.try_recv() {
            self.hear(heard);
        }
    }

    fn hear(&mut self, (server, event): Heard) {
        let Some(id) = event.id() else {
            return;
        };
        let is_it = |asked: &Holder| asked.id == id;
        if !self.asked[server].as_ref().is_some_and(is_it) {
            // The connection sends again what was refused (P-REL-5).
            if event.is_last() || matches!(event, Event::Releasing { .. }) {
                self.leaving
                    .retain(|(other, asked)| (*other, asked.id) != (server, id));
            }
            return;
        }
        if event.is_last() {
            self.asked[server] = None;
        }
        let fact = match event {
            Event::Granted { token, .. } => Fact::Granted(server, token),
            Event::Refused {
                error: Error::Unreachable(_),
                ..
            } => {
                self.reached[server] = None;
                Fact::Unreached(server)
            }
            Event::Refused { error, .. } => {
                let is_deadlock = matches!(error, Error::Deadlock(_));
                self.error = Some(error);
                match is_deadlock {
                    true => Fact::Deadlocked(server),
                    false => Fact::Refused(server),
                }
            }
            Event::Raised { token, .. } => Fact::Raised(server, token),
            Event::NotRaised { error, .. } => {
                self.error = Some(error);
                Fact::RaiseRefused(server)
            }
            Event::Lost { loss, .. } => {
                self.loss = loss;
                Fact::Lost(server)
            }
            _ => return,
        };
        self.facts.push_back(fact);
    }

    fn look_at_servers(&mut self) {
        for server in 0..self.reached.len() {
            let is = self.servers.reached(server);
            let was = std::mem::replace(&mut self.reached[server], is.clone());
            let is_same = match (&was, &is) {
                (Some(was), Some(is)) => Arc::ptr_eq(was, is),
                (None, None) => true,
                _ => false,
            };
            if is_same {
                continue;
            }
            if was.is_some() {
                self.facts.push_back(Fact::Unreached(server));
            }
            if is.is_some() {
                self.facts.push_back(Fact::Reached(server));
            }
        }
    }

    /// Before each fact it looks at the time.
    fn handle(&mut self) {
        loop {
            self.lose_what_is_over();
            let Some(fact) = self.facts.pop_front() else {
                break;
            };
            self.tell(fact);
        }
        // Who checks looks at these.
        let holders = self.holders();
        let until = holders.iter().map(Holder::vouched_until);
        if let Some(until) = majority_vouches(until, self.asked.len()) {
            self.alive.send_if_modified(|alive| {
                let before = std::mem::replace(alive, until.max(*alive));
                before != *alive
            });
        }
        self.state.send_if_modified(|state| {
            let State::Held(_, known) = state else {
                return false;
            };
            let is_same =
                known.len() == holders.len() && known.iter().zip(&holders).all(|(a, b)| a.is(b));
            *known = holders;
            !is_same
        });
    }

    /// What is not vouched for any more is lost: for silence, unless its connection has given another reason.
    fn lose_what_is_over(&mut self) {
        let now = BootTime::now();
        for server in 0..self.asked.len() {
            if !self.protocol.is_held(server) || self.vouched_until(server) > now {
                continue;
            }
            self.hear_all();
            if self.asked[server].is_some() {
                self.loss = Loss::Silence;
                self.withdraw(server);
            }
            self.tell(Fact::Lost(server));
        }
    }

    fn tell(&mut self, fact: Fact) {
        let mut effects = Vec::new();
        self.protocol.handle(fact, &mut effects);
        for effect in effects {
            self.perform(effect);
        }
    }

    // ---- effects ----

    fn perform(&mut self, effect: Effect) {
        match effect {
            Effect::Ask { server, is_needed } => self.ask(server, is_needed),
            // Later, see `keep_while_relied_on`.
            Effect::Withdraw(_) if self.relied_on_until.is_some() => {}
            Effect::Withdraw(server) => self.withdraw(server),
            Effect::Raise(server, token) => {
                if let Some(asked) = &self.asked[server] {
                    asked.shared.raise(asked.id, token);
                }
            }
            Effect::Held(token) => {
                let holders = self.holders();
                let until = holders.iter().map(Holder::vouched_until);
                if let Some(until) = majority_vouches(until, self.asked.len()) {
                    self.alive.send_replace(until);
                }
                self.state.send_replace(State::Held(token, holders));
            }
            Effect::Lost => {
                let loss = self.loss.clone();
                let relied_on = self.servers.fence() + self.servers.stop_within();
                self.relied_on_until = Some(BootTime::now() + relied_on);
                self.state.send_replace(State::Lost(loss));
            }
            Effect::Failed => self.end_with(|error| State::Failed(error.unwrap_or(Error::Taken))),
        }
    }

    fn end_with(&mut self, state: impl FnOnce(Option<Error>) -> State) {
        let error = self.error.take();
        self.state.send_replace(state(error));
    }

    fn ask(&mut self, server: Server, is_needed: bool) {
        let Some(shared) = self.reached[server].clone() else {
            return self.facts.push_back(Fact::Unreached(server));
        };
        let waits = self.wish.waits || !is_needed;
        let ask = Ask {
            owner: self.wish.owner.clone(),
            wait: (!waits).then_some(Duration::ZERO),
            ..Ask::new(vec![self.wish.key.clone()], Kind::Lock(Mode::Exclusive))
        };
        match shared.acquire_one_of(ask, server, self.sender.clone()) {
            Ok(id) => self.asked[server] = Some(Holder { shared, id }),
            Err(Error::Unreachable(_)) => {
                self.reached[server] = None;
                self.facts.push_back(Fact::Unreached(server));
            }
            Err(error) => {
                self.error = Some(error);
                self.facts.push_back(Fact::Refused(server));
            }
        }
    }

    fn withdraw(&mut self, server: Server) {
        if let Some(asked) = self.asked[server].take() {
            asked.shared.give_up(asked.id);
            self.leaving.push((server, asked));
        }
    }

    fn holders(&self) -> Vec<Holder> {
        let held = (0..self.asked.len()).filter(|server| self.protocol.is_held(*server));
        held.filter_map(|server| self.asked[server].clone())
            .collect()
    }
}
