//! Locks on three or five servers in random trouble, without a network: the real engines are the servers, and the clients are the
//! real [`Core`] of each connection under the real [`Protocol`].
//!
//! `machine.rs` is a server: an engine, its keyspace, its connections, and its files. Here are the network, the clients and what
//! goes wrong: messages that take their time, connections that break or are cut without a word, servers that crash and come back
//! with their files, with older ones or without any, clients that stop, and clocks that jump.
//!
//! All times are sharp: the fence, the grace and the quarantine are the same. After each step no two clients may believe that they
//! hold the lock, whatever the clocks do. Its tokens rise where the world keeps what that takes: up to date files, or clocks
//! that agree. From time to time all trouble ends, and then each client must get the lock within a bound.
//!
//! A failure prints its seed. `TETHER_SEED` and `TETHER_STEPS` choose other worlds.

mod machine;

use super::protocol::{Effect, Fact, Protocol, Rule, Server, Token, majority_vouches};
use crate::clock::BootTime;
use crate::core::{Change, Core, Id, Mode, Request, Subject, Tag};
use crate::error::Error;
use machine::{Frame, Machine, Request as Message};
use std::collections::VecDeque;
use std::time::Duration;
use tether_testing::random::{Random, seed, steps};

const KEY: &[u8] = b"report";
const LABEL: &[u8] = b"main";
/// The fence, the grace and the quarantine.
const D_MS: u64 = 1000;
const MS: u64 = 1000;
/// Without trouble each client has had the lock after this time: D and the grace are over, and everyone has had its turn.
const BOUND: u64 = 30_000 * MS;
/// So far apart clocks are that do not agree. A server that was started is ahead of its own clock by a little: until the others'
/// clocks have come there, they do not raise tokens to its.
const CLOCKS_APART_MS: u64 = 50_000;

/// What is broken, to see whether that is noticed.
#[derive(Clone, Copy, Debug)]
struct Rules {
    quarantine_ms: u64,
    grace_ms: u64,
    broken: Option<Rule>,
}

const SOUND: Rules = Rules {
    quarantine_ms: D_MS,
    grace_ms: D_MS,
    broken: None,
};

/// What it takes for tokens to rise.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Clocks {
    /// They agree, and files may be lost.
    Agree,
    /// They jump, and files are up to date.
    JumpWithFiles,
    /// They jump, and files may be lost: tokens may fall.
    Jump,
}

/// A connection and what is on its way on it.
#[derive(Default)]
struct Wire {
    /// The server's number for it; 0 is none.
    number: u64,
    /// Of the server's start; after another the connection is gone.
    start: u64,
    to_server: VecDeque<(u64, Message)>,
    to_client: VecDeque<(u64, Frame)>,
    /// What the next replies are about, and when it was asked.
    asked: VecDeque<(Tag, BootTime)>,
    /// Nothing passes any more, though nobody was told.
    is_cut: bool,
}

/// A client's side of one server.
struct Link {
    wire: Option<Wire>,
    core: Option<Core>,
    /// Of the session, and the server's start at which it was begun.
    secret: Option<(u64, u64)>,
    /// It waits for the answer to its first message, sent then.
    hello: Option<(u64, bool)>,
    tries_at: u64,
    is_reached: bool,
    asked: Option<Id>,
}

struct Client {
    links: Vec<Link>,
    protocol: Option<Protocol>,
    is_stopped: bool,
    /// When it wants the lock again, or gives it up.
    acts_at: u64,
    token: Token,
    grants: u64,
}

struct World {
    random: Random,
    rules: Rules,
    clocks: Clocks,
    now: u64,
    machines: Vec<Machine>,
    clients: Vec<Client>,
    /// Pairs of client and server between which nothing passes.
    parted: Vec<Vec<bool>>,
    is_troubled: bool,
    last_token: Token,
    grants: u64,
    losses: u64,
    faults: u64,
    numbers: u64,
}

impl World {
    fn new(seed: u64, rules: Rules) -> World {
        let mut random = Random::new(seed);
        let servers = random.pick(&[3, 3, 3, 5]);
        let clients = random.pick(&[2, 3, 4]);
        let clocks = random.pick(&[Clocks::Agree, Clocks::JumpWithFiles, Clocks::Jump]);
        let link = |_| Link {
            wire: None,
            core: None,
            secret: None,
            hello: None,
            tries_at: 0,
            is_reached: false,
            asked: None,
        };
        let client = |_| Client {
            links: (0..servers).map(link).collect(),
            protocol: None,
            is_stopped: false,
            acts_at: 0,
            token: 0,
            grants: 0,
        };
        let mut world = World {
            rules,
            clocks,
            now: MS,
            machines: (0..servers)
                .map(|_| Machine::new(rules.quarantine_ms))
                .collect(),
            clients: (0..clients).map(client).collect(),
            parted: vec![vec![false; servers]; clients],
            is_troubled: true,
            last_token: 0,
            grants: 0,
            losses: 0,
            faults: 0,
            numbers: 0,
            random,
        };
        for server in 0..servers {
            if clocks != Clocks::Agree {
                world.machines[server].ahead_ms = world.random.next() % CLOCKS_APART_MS;
            }
            world.machines[server].start(world.now, None);
        }
        world
    }

    // ---- what goes wrong ----

    fn trouble(&mut self) {
        let server = self.random.below(self.machines.len());
        let client = self.random.below(self.clients.len());
        self.faults += 1;
        match self.random.below(17) {
            0 => self.machines[server].crash(self.now),
            1..=3 => self.restart(server),
            4 => {
                self.machines[server].crash(self.now);
                self.restart(server);
            }
            5 => self.parted[client][server] = true,
            6 => self.parted[client][server] = false,
            7 => self.parted[client].fill(true),
            8 | 9 => self.parted[client].fill(false),
            10 => {
                let link = &mut self.clients[client].links[server];
                self.machines[server].close(self.now, link.wire.as_ref());
                self.flush(server);
                self.break_off(client, server);
            }
            11 => self.clients[client].is_stopped = true,
            12 | 13 => self.clients[client].is_stopped = false,
            14 if self.clocks != Clocks::Agree => {
                self.machines[server].ahead_ms = self.random.next() % CLOCKS_APART_MS;
            }
            // All of them at once, as where power fails.
            15 => {
                for server in 0..self.machines.len() {
                    self.machines[server].crash(self.now);
                    self.restart(server);
                }
            }
            _ => self.machines[server].save(self.now),
        }
    }

    fn restart(&mut self, server: Server) {
        if self.machines[server].is_up() {
            return;
        }
        // A start takes its time, so that a clock that agrees has gone on.
        self.now += MS;
        let files = match self.random.below(3) {
            0 if self.clocks != Clocks::JumpWithFiles => None,
            1 if self.clocks != Clocks::JumpWithFiles => Some(false),
            _ => Some(true),
        };
        self.machines[server].start(self.now, files);
    }

    fn end_trouble(&mut self) {
        self.is_troubled = false;
        for server in 0..self.machines.len() {
            self.restart(server);
            for client in 0..self.clients.len() {
                self.parted[client][server] = false;
                self.clients[client].is_stopped = false;
            }
        }
    }

    // ---- time and the network ----

    fn pass(&mut self) {
        let limit = self.random.pick(&[MS / 2, 2 * MS, 20 * MS, 200 * MS]);
        self.now += 1 + self.random.next() % limit;
        for server in 0..self.machines.len() {
            self.machines[server].tick(self.now);
            self.flush(server);
        }
        for client in 0..self.clients.len() {
            for server in 0..self.machines.len() {
                self.carry(client, server);
            }
        }
        for client in 0..self.clients.len() {
            if !self.clients[client].is_stopped {
                self.live(client);
            }
        }
    }

    fn delay(&mut self) -> u64 {
        let limit = self.random.pick(&[MS, MS, 30 * MS]);
        self.now + 1 + self.random.next() % limit
    }

    /// What the server has for its connections goes on its way.
    fn flush(&mut self, server: Server) {
        for (number, frame) in self.machines[server].said() {
            let at = self.delay();
            for client in &mut self.clients {
                if let Some(wire) = &mut client.links[server].wire
                    && wire.number == number
                {
                    let last = wire.to_client.back().map_or(0, |(at, _)| *at);
                    wire.to_client.push_back((at.max(last), frame.clone()));
                }
            }
        }
    }

    /// What is due arrives, unless nothing passes.
    fn carry(&mut self, client: usize, server: Server) {
        let now = self.now;
        let is_parted = self.parted[client][server];
        let machine = &mut self.machines[server];
        let Some(wire) = &mut self.clients[client].links[server].wire else {
            return;
        };
        if is_parted && !wire.is_cut {
            wire.is_cut = true;
            machine.close(now, Some(wire));
        }
        if wire.is_cut {
            // Once packets pass again, they are answered by a reset.
            if !is_parted {
                self.break_off(client, server);
            }
            return self.flush(server);
        }
        while let Some((at, _)) = wire.to_server.front()
            && *at <= now
        {
            let Some((_, message)) = wire.to_server.pop_front() else {
                break;
            };
            machine.take(now, wire, &message);
        }
        if machine.is_gone(wire) {
            self.break_off(client, server);
        }
        self.flush(server);
    }

    /// The client's side of a connection hears that it is no more, behind all that was said.
    fn break_off(&mut self, client: usize, server: Server) {
        let at = self.delay();
        if let Some(wire) = &mut self.clients[client].links[server].wire {
            let is_told = matches!(wire.to_client.back(), Some((_, Frame::Broken)));
            if !is_told {
                let last = wire.to_client.back().map_or(0, |(at, _)| *at);
                wire.to_client.push_back((at.max(last), Frame::Broken));
            }
        }
    }

    /// The client ends the connection; the server hears that at once.
    fn hang_up(&mut self, client: usize, server: Server) {
        let link = &mut self.clients[client].links[server];
        link.hello = None;
        let wire = link.wire.take();
        self.machines[server].close(self.now, wire.as_ref());
        self.flush(server);
    }

    // ---- the clients ----

    fn live(&mut self, client: usize) {
        self.look_at_time(client);
        for server in 0..self.machines.len() {
            self.connect(client, server);
            self.hear(client, server);
        }
        self.want(client);
        for server in 0..self.machines.len() {
            self.send(client, server);
        }
    }

    fn connect(&mut self, client: usize, server: Server) {
        let now = self.now;
        let link = &mut self.clients[client].links[server];
        // An attempt that nobody answers is given up.
        if let Some((sent, _)) = link.hello
            && now >= sent + D_MS * MS / 2
        {
            self.hang_up(client, server);
        }
        let link = &mut self.clients[client].links[server];
        if link.wire.is_some() || now < link.tries_at {
            return;
        }
        link.tries_at = now + 20 * MS;
        if !self.machines[server].is_up() || self.parted[client][server] {
            return;
        }
        self.numbers += 1;
        let number = self.numbers;
        let mut wire = Wire {
            number,
            start: self.machines[server].starts,
            ..Wire::default()
        };
        let resumes = link.core.is_some();
        let hello = Message::Hello {
            former: link.secret,
            resumes,
            secret: number,
            grace_ms: self.rules.grace_ms,
        };
        link.hello = Some((now, resumes));
        wire.to_server.push_back((now + MS / 10, hello));
        link.wire = Some(wire);
    }

    fn hear(&mut self, client: usize, server: Server) {
        let now = BootTime(self.now * 1000);
        loop {
            let link = &mut self.clients[client].links[server];
            let Some(wire) = &mut link.wire else {
                return;
            };
            if wire.to_client.front().is_none_or(|(at, _)| *at > self.now) {
                return;
            }
            let Some((_, frame)) = wire.to_client.pop_front() else {
                return;
            };
            match frame {
                Frame::Broken => {
                    if let Some(core) = &mut link.core {
                        core.broke(now);
                    }
                    self.hang_up(client, server);
                }
                Frame::Began { start, is_resumed } => {
                    let Some((sent, _)) = link.hello.take() else {
                        return;
                    };
                    let sent = BootTime(sent * 1000);
                    match (&mut link.core, is_resumed) {
                        (Some(core), true) => core.resumed(now, sent),
                        (Some(core), false) => {
                            core.end(crate::Loss::Connection);
                            self.hang_up(client, server);
                        }
                        (None, _) => {
                            link.secret = Some((wire.number, start));
                            let fence = Duration::from_millis(D_MS);
                            link.core = Some(Core::new(sent, fence, true));
                        }
                    }
                }
                Frame::Reply(reply) => {
                    if let (Some((tag, sent)), Some(core)) =
                        (wire.asked.pop_front(), &mut link.core)
                    {
                        core.replied(now, sent, tag, reply);
                    }
                }
                Frame::Push(text) => {
                    if let Some(core) = &mut link.core {
                        core.pushed(now, Subject::Lock, KEY, &text);
                    }
                }
            }
            self.follow(client, server);
        }
    }

    /// What the connection's core says becomes facts.
    fn follow(&mut self, client: usize, server: Server) {
        let link = &mut self.clients[client].links[server];
        let Some(core) = &mut link.core else {
            return;
        };
        let changes = core.changes();
        let is_over = core.ended().is_some();
        let is_up = core.is_up();
        let mut facts = Vec::new();
        for (id, change) in changes {
            if link.asked != Some(id) {
                continue;
            }
            if change.is_last() {
                link.asked = None;
            }
            facts.push(match change {
                Change::Granted(token) => Fact::Granted(server, token),
                Change::Refused(Error::Unreachable(_)) => {
                    link.is_reached = false;
                    Fact::Unreached(server)
                }
                Change::Refused(Error::Deadlock(_)) => Fact::Deadlocked(server),
                Change::Refused(_) => Fact::Refused(server),
                Change::Raised(token) => Fact::Raised(server, token),
                Change::RaiseRefused(_) => Fact::RaiseRefused(server),
                Change::RaiseDelayed(_) => continue,
                Change::Lost(_) => Fact::Lost(server),
                Change::Over => continue,
            });
        }
        if link.is_reached && !is_up {
            facts.push(Fact::Unreached(server));
        }
        if !link.is_reached && is_up {
            facts.push(Fact::Reached(server));
        }
        link.is_reached = is_up;
        if is_over {
            link.core = None;
            self.hang_up(client, server);
        }
        for fact in facts {
            self.look_at_time(client);
            self.tell(client, fact);
        }
    }

    /// What is not vouched for any more is lost, before anything else is heard.
    fn look_at_time(&mut self, client: usize) {
        if self.rules.broken == Some(Rule::Vouched) {
            return;
        }
        let now = BootTime(self.now * 1000);
        for server in 0..self.machines.len() {
            if let Some(core) = &mut self.clients[client].links[server].core {
                core.tick(now);
                if core.is_stuck() {
                    core.broke(now);
                    self.hang_up(client, server);
                }
                self.follow_end(client, server);
            }
        }
    }

    /// Only the end of a connection, so that this does not look at the time again.
    fn follow_end(&mut self, client: usize, server: Server) {
        let link = &mut self.clients[client].links[server];
        let Some(core) = &mut link.core else {
            return;
        };
        if core.ended().is_none() {
            if link.is_reached && !core.is_up() {
                link.is_reached = false;
                self.tell(client, Fact::Unreached(server));
            }
            return;
        }
        link.core = None;
        let was_reached = std::mem::replace(&mut link.is_reached, false);
        let was_asked = link.asked.take().is_some();
        self.hang_up(client, server);
        if was_asked {
            self.tell(client, Fact::Lost(server));
        }
        if was_reached {
            self.tell(client, Fact::Unreached(server));
        }
    }

    fn tell(&mut self, client: usize, fact: Fact) {
        let mut effects = Vec::new();
        if let Some(protocol) = &mut self.clients[client].protocol {
            protocol.handle(fact, &mut effects);
        }
        for effect in effects {
            self.perform(client, effect);
        }
    }

    fn perform(&mut self, client: usize, effect: Effect) {
        let now = BootTime(self.now * 1000);
        match effect {
            Effect::Ask { server, .. } => {
                let request = Request {
                    keys: vec![KEY.to_vec()],
                    label: LABEL.to_vec(),
                    mode: Mode::Exclusive,
                    wait: Some(Duration::ZERO),
                    lease: None,
                };
                let link = &mut self.clients[client].links[server];
                match link.core.as_mut().map(|core| core.ask(now, request)) {
                    Some(Ok(id)) => link.asked = Some(id),
                    _ => {
                        link.is_reached = false;
                        self.tell(client, Fact::Unreached(server));
                    }
                }
            }
            Effect::Withdraw(server) => {
                let link = &mut self.clients[client].links[server];
                if let (Some(id), Some(core)) = (link.asked.take(), &mut link.core) {
                    core.give_up(now, id);
                }
            }
            Effect::Raise(server, token) => {
                let link = &mut self.clients[client].links[server];
                if let (Some(id), Some(core)) = (link.asked, &mut link.core) {
                    core.raise(now, id, token);
                }
            }
            Effect::Held(token) => {
                let limit = self.random.pick(&[30 * MS, 300 * MS, 3000 * MS]);
                let held_for = self.random.next() % limit;
                let own = &mut self.clients[client];
                own.token = token;
                own.grants += 1;
                own.acts_at = self.now + held_for;
                self.grants += 1;
                if self.clocks != Clocks::Jump && token <= self.last_token {
                    self.fail(&format!("the token {token} after {}", self.last_token));
                }
                self.last_token = self.last_token.max(token);
            }
            Effect::Lost => self.losses += 1,
            Effect::Failed => self.fail("nobody refuses"),
        }
    }

    fn want(&mut self, client: usize) {
        let now = self.now;
        let idle_for = self.random.next() % (300 * MS);
        let own = &mut self.clients[client];
        let is_over = own.protocol.as_ref().is_none_or(Protocol::is_over);
        match &own.protocol {
            _ if is_over => {
                own.protocol = None;
                if now < own.acts_at {
                    return;
                }
                own.acts_at = u64::MAX;
                let servers = own.links.len();
                own.protocol = Some(Protocol::new(servers).without(self.rules.broken));
                for server in 0..servers {
                    if self.clients[client].links[server].is_reached {
                        self.tell(client, Fact::Reached(server));
                    }
                }
            }
            // It gives back what it has, or gives up what it waits for.
            Some(protocol) => {
                let is_held = protocol.held_until(|_| ()).is_some();
                let gives_up = self.is_troubled && self.random.per_mille(2);
                if is_held && now >= self.clients[client].acts_at || gives_up {
                    self.clients[client].acts_at = now + idle_for;
                    self.tell(client, Fact::GivenUp);
                }
            }
            None => {}
        }
    }

    fn send(&mut self, client: usize, server: Server) {
        self.look_at_time(client);
        let now = BootTime(self.now * 1000);
        let link = &mut self.clients[client].links[server];
        if link.hello.is_some() {
            return;
        }
        let Some(core) = &mut link.core else {
            return;
        };
        let out = core.out();
        for (tag, command) in out {
            let at = self.delay();
            if let Some(wire) = &mut self.clients[client].links[server].wire {
                wire.asked.push_back((tag, now));
                let last = wire.to_server.back().map_or(0, |(at, _)| *at);
                let message = Message::Command(command.0);
                wire.to_server.push_back((at.max(last), message));
            }
        }
        self.follow(client, server);
    }

    // ---- what must be so ----

    fn believes(&self, client: usize) -> bool {
        let own = &self.clients[client];
        let Some(protocol) = &own.protocol else {
            return false;
        };
        if protocol.held_until(|_| ()).is_none() {
            return false;
        }
        if self.rules.broken == Some(Rule::Vouched) {
            return true;
        }
        let held = (0..own.links.len()).filter(|server| protocol.is_held(*server));
        let until = held.map(|server| {
            let core = own.links[server].core.as_ref();
            core.map_or(BootTime(0), Core::alive_until)
        });
        let until = majority_vouches(until, own.links.len());
        until.is_some_and(|until| BootTime(self.now * 1000) < until)
    }

    fn check(&self) {
        let holders = (0..self.clients.len()).filter(|client| self.believes(*client));
        let holders: Vec<_> = holders.collect();
        if holders.len() > 1 {
            self.fail(&format!("{holders:?} hold the lock"));
        }
    }

    fn fail(&self, what: &str) -> ! {
        let World { now, clocks, .. } = self;
        panic!("{what}, after {now} us, clocks {clocks:?}");
    }

    /// Without trouble each client gets the lock within the bound.
    fn settle(&mut self) {
        self.end_trouble();
        let before: Vec<_> = self.clients.iter().map(|client| client.grants).collect();
        let begun = self.now;
        let bound = match self.clocks {
            Clocks::Agree => BOUND,
            Clocks::JumpWithFiles | Clocks::Jump => BOUND + CLOCKS_APART_MS * MS,
        };
        loop {
            self.pass();
            self.check();
            let mut clients = self.clients.iter().zip(&before);
            if clients.all(|(client, before)| client.grants > *before) {
                break;
            }
            if self.now > begun + bound {
                self.fail(&self.describe());
            }
        }
        self.is_troubled = true;
    }

    fn describe(&self) -> String {
        let clients = self.clients.iter().map(|client| {
            let links = client.links.iter().map(|link| {
                let core = link.core.is_some();
                format!("{core}/{}/{:?}", link.is_reached, link.asked)
            });
            let links: Vec<_> = links.collect();
            format!("{:?} {links:?}", client.protocol)
        });
        let servers = self.machines.iter().map(Machine::describe);
        let clients: Vec<_> = clients.chain(servers).collect();
        format!("the line stands: {}", clients.join("\n"))
    }
}

/// One world of so many steps; what happened in it.
fn run(seed: u64, steps: usize, rules: Rules) -> World {
    let mut world = World::new(seed, rules);
    let apart = world.random.pick(&[8, 40, 200, 1000]);
    for step in 0..steps {
        if world.random.below(apart) == 0 {
            world.trouble();
        }
        world.pass();
        world.check();
        if step % 2000 == 1999 {
            world.settle();
        }
    }
    world
}

/// So many steps in all, in worlds of 10,000.
fn simulate(all: usize) {
    let first = seed();
    let (mut grants, mut losses, mut faults) = (0, 0, 0);
    for number in 0..all.div_ceil(10_000) as u64 {
        let seed = first + number;
        let ran = std::panic::catch_unwind(|| run(seed, 10_000, SOUND));
        let Ok(world) = ran else {
            panic!("it fails with TETHER_SEED={seed} TETHER_STEPS=10000");
        };
        grants += world.grants;
        losses += world.losses;
        faults += world.faults;
    }
    eprintln!("{all} steps: {grants} grants, {losses} losses, {faults} faults");
    assert!(grants > 0 && losses > 0, "nothing happened");
}

/// Some world must go wrong, in this way.
#[track_caller]
fn finds(rules: Rules, what: &str) {
    let said = (0..400).find_map(|seed| {
        let ran = std::panic::catch_unwind(|| run(seed, 10_000, rules));
        let why = ran.err()?;
        why.downcast_ref::<String>().cloned()
    });
    let said = said.unwrap_or_else(|| panic!("nothing goes wrong: {rules:?}"));
    assert!(said.contains(what), "{rules:?}: {said}");
}

#[test]
fn no_two_clients_hold_the_lock_tokens_rise_and_the_line_moves() {
    simulate(steps(200_000));
}

#[test]
#[ignore = "takes minutes"]
fn the_same_in_ten_million_steps() {
    simulate(steps(10_000_000));
}

#[test]
fn a_quarantine_that_is_too_short_is_noticed() {
    let quarantine_ms = D_MS / 2;
    finds(
        Rules {
            quarantine_ms,
            ..SOUND
        },
        "hold the lock",
    );
}

#[test]
fn a_grace_that_is_too_short_is_noticed() {
    let grace_ms = D_MS / 2;
    finds(Rules { grace_ms, ..SOUND }, "hold the lock");
}

#[test]
fn rules_that_are_broken_are_noticed() {
    for (rule, what) in [
        (Rule::Vouched, "hold the lock"),
        (Rule::WriteBack, "the token"),
        (Rule::BeginAgain, "the line stands"),
        (Rule::GiveBackWithoutReach, "the line stands"),
    ] {
        let broken = Some(rule);
        finds(Rules { broken, ..SOUND }, what);
    }
}
