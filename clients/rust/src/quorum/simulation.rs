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
use crate::core::{Ask, Command, Config, Core, Event, Id, Kind, Mode, Now, Order, Status};
use crate::error::Error;
use crate::resp::Frame;
use crate::timing::MARGIN;
use machine::Machine;
use std::collections::VecDeque;
use std::time::Duration;
use tether_testing::random::{Random, seed, steps};

const KEY: &[u8] = b"report";
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
    to_server: VecDeque<(u64, Command)>,
    /// None is the end of the connection.
    to_client: VecDeque<(u64, Option<Frame>)>,
    /// Nothing passes any more, though nobody was told.
    is_cut: bool,
}

/// A client's side of one server.
struct Link {
    wire: Option<Wire>,
    core: Core,
    /// The core has ordered a connection.
    is_opening: bool,
    /// When to see to it that there is one.
    tries_at: u64,
    is_reached: bool,
    asked: Option<Id>,
}

struct Client {
    links: Vec<Link>,
    protocol: Option<Protocol>,
    facts: VecDeque<Fact>,
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
        // Without the rule, a client relies on a server for longer than its sessions last.
        let relied_on = match rules.broken {
            Some(Rule::Vouched) => 10 * D_MS,
            _ => D_MS,
        };
        let config = Config {
            grace: Some(Duration::from_millis(relied_on) + MARGIN),
            // Attempts come as soon as they may, so that more can go wrong.
            random: Some(0.0),
            ..Config::default()
        };
        let link = |_| Link {
            wire: None,
            core: Core::new(Now::default(), config.clone()),
            is_opening: false,
            tries_at: 0,
            is_reached: false,
            asked: None,
        };
        let client = |_| Client {
            links: (0..servers).map(link).collect(),
            protocol: None,
            facts: VecDeque::new(),
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
                .map(|_| Machine::new(rules.quarantine_ms, rules.grace_ms))
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
                    wire.to_client
                        .push_back((at.max(last), Some(frame.clone())));
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
            let is_told = matches!(wire.to_client.back(), Some((_, None)));
            if !is_told {
                let last = wire.to_client.back().map_or(0, |(at, _)| *at);
                wire.to_client.push_back((at.max(last), None));
            }
        }
    }

    /// The client ends the connection; the server hears that at once.
    fn hang_up(&mut self, client: usize, server: Server) {
        let wire = self.clients[client].links[server].wire.take();
        self.machines[server].close(self.now, wire.as_ref());
        self.flush(server);
    }

    // ---- the clients ----

    fn live(&mut self, client: usize) {
        self.handle(client);
        for server in 0..self.machines.len() {
            self.connect(client, server);
            self.hear(client, server);
        }
        self.want(client);
        self.handle(client);
    }

    fn clocks(&self) -> Now {
        let now = Duration::from_micros(self.now);
        Now {
            mono: now,
            boot: now,
        }
    }

    fn connect(&mut self, client: usize, server: Server) {
        let now = self.now;
        let is_there = self.machines[server].is_up() && !self.parted[client][server];
        let link = &mut self.clients[client].links[server];
        if now >= link.tries_at {
            link.tries_at = now + 20 * MS;
            link.core.open();
        }
        if std::mem::take(&mut link.is_opening) {
            if is_there {
                self.numbers += 1;
                link.wire = Some(Wire {
                    number: self.numbers,
                    start: self.machines[server].starts,
                    ..Wire::default()
                });
                self.machines[server].accept(self.numbers);
                link.core.connected();
            } else {
                link.core.unreached(Error::late());
            }
        }
        self.handle(client);
    }

    fn hear(&mut self, client: usize, server: Server) {
        loop {
            let link = &mut self.clients[client].links[server];
            let Some(wire) = &mut link.wire else {
                return;
            };
            if wire.to_client.front().is_none_or(|(at, _)| *at > self.now) {
                return;
            }
            match wire.to_client.pop_front() {
                Some((_, Some(frame))) => link.core.recv(frame),
                _ => {
                    link.core.broke();
                    self.hang_up(client, server);
                }
            }
            self.handle(client);
        }
    }

    /// Before each fact it looks at the time: what is not vouched for any more is lost.
    fn handle(&mut self, client: usize) {
        loop {
            for server in 0..self.machines.len() {
                let clocks = self.clocks();
                self.clients[client].links[server].core.tick(clocks);
                self.follow(client, server);
            }
            let Some(fact) = self.clients[client].facts.pop_front() else {
                break;
            };
            self.tell(client, fact);
        }
    }

    /// Sends what the core sends, and does what it orders; what it tells becomes facts.
    fn follow(&mut self, client: usize, server: Server) {
        for command in self.clients[client].links[server].core.take_out() {
            let at = self.delay();
            if let Some(wire) = &mut self.clients[client].links[server].wire {
                let last = wire.to_server.back().map_or(0, |(at, _)| *at);
                wire.to_server.push_back((at.max(last), command));
            }
        }
        for order in self.clients[client].links[server].core.take_orders() {
            let is_opening = order == Order::Connect;
            self.clients[client].links[server].is_opening = is_opening;
            if !is_opening {
                self.hang_up(client, server);
            }
        }
        let own = &mut self.clients[client];
        let link = &mut own.links[server];
        for event in link.core.take_events() {
            if event.id() != link.asked {
                continue;
            }
            if event.is_last() {
                link.asked = None;
            }
            own.facts.push_back(match event {
                Event::Granted { token, .. } => Fact::Granted(server, token),
                Event::Refused {
                    error: Error::Unreachable(_),
                    ..
                } => {
                    link.is_reached = false;
                    Fact::Unreached(server)
                }
                Event::Refused {
                    error: Error::Deadlock(_),
                    ..
                } => Fact::Deadlocked(server),
                Event::Refused { .. } => Fact::Refused(server),
                Event::Raised { token, .. } => Fact::Raised(server, token),
                Event::NotRaised { .. } => Fact::RaiseRefused(server),
                Event::Lost { .. } => Fact::Lost(server),
                _ => continue,
            });
        }
        let is_up = link.core.trouble().0;
        if link.is_reached != is_up {
            own.facts.push_back(match is_up {
                true => Fact::Reached(server),
                false => Fact::Unreached(server),
            });
        }
        link.is_reached = is_up;
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
        match effect {
            Effect::Ask { server, .. } => {
                self.numbers += 1;
                let ask = Ask::new(vec![KEY.to_vec()], Kind::Lock(Mode::Exclusive));
                let link = &mut self.clients[client].links[server];
                link.asked = Some(self.numbers);
                link.core.acquire(self.numbers, ask);
            }
            Effect::Withdraw(server) => {
                let link = &mut self.clients[client].links[server];
                if let Some(id) = link.asked.take() {
                    link.core.give_up(id);
                }
            }
            Effect::Raise(server, token) => {
                let link = &mut self.clients[client].links[server];
                if let Some(id) = link.asked {
                    link.core.raise(id, token);
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

    // ---- what must be so ----

    fn believes(&self, client: usize) -> bool {
        let own = &self.clients[client];
        let Some(protocol) = &own.protocol else {
            return false;
        };
        if protocol.held_until(|_| ()).is_none() {
            return false;
        }
        let held = (0..own.links.len()).filter(|server| protocol.is_held(*server));
        let until = held.map(|server| {
            let link = &own.links[server];
            let held = link.asked.and_then(|id| link.core.check(id));
            match held {
                Some(Status::Held) => BootTime(self.now * 1000) + link.core.fence_left(),
                _ => BootTime(0),
            }
        });
        let until = majority_vouches(until, own.links.len());
        until.is_some_and(|until| BootTime(self.now * 1000) < until)
    }

    fn check(&mut self) {
        let clocks = self.clocks();
        for link in self.clients.iter_mut().flat_map(|client| &mut client.links) {
            link.core.set_now(clocks);
        }
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
            let links = client
                .links
                .iter()
                .map(|link| format!("{}/{:?}", link.is_reached, link.asked));
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
