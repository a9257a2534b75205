//! All that can happen to a lock on three servers that two clients want, at small size: the clients are the real
//! [`Protocol`], the servers and connections are as simple as they can be said.
//!
//! The world:
//! - A request arrives at once or not at all; what a server says waits in the connection's inbox until the client takes it, so a
//!   client may act on what has long been otherwise.
//! - A connection can break, which its client hears behind all that was said before; or be cut, of which it hears nothing until
//!   no answer has come for D. Then, or if the server was restarted meanwhile, the session is not resumed but ended.
//! - The server notices at once, which is the soonest, and gives the session its grace.
//! - A server can crash, and be restarted with what sessions held or without. Its tokens go on from where they were: it keeps its
//!   epoch in files, or has a clock that is not behind.
//! - A client can stop for any time, and can be killed.
//! - Time goes on in ticks for all alike. D, the grace and the quarantine are one tick each, or two.
//!
//! What must be so always: no two clients believe that they hold the lock; each lock's token is greater than that of the one
//! before; and where nothing is left to happen by itself, no client that reaches a majority waits for a lock that nobody has.

use super::protocol::{Effect, Fact, Protocol, Rule, Server, Token};
use stateright::{Checker, HasDiscoveries, Model, Property};
use std::time::Duration;

const SERVERS: usize = 3;
const CLIENTS: usize = 2;
const MAJORITY: usize = 2;

type Client = usize;

/// What can happen, and for how long things last.
#[derive(Clone, Copy)]
struct Bounds {
    /// So often servers crash and connections break or are cut, in all.
    faults: u8,
    /// So often clients stop and are killed, in all.
    stops: u8,
    /// So often each client wants the lock.
    rounds: u8,
    /// How long a client relies on a server without an answer.
    fence: u8,
    grace: u8,
    quarantine: u8,
    /// A server that crashed comes back as one that was its replica and knows nothing.
    is_replaced: bool,
    /// Clients hear what is said before they notice that a hold is not vouched for any more.
    looks_late: bool,
    broken: Option<Rule>,
}

/// What the rules ask for, with one tick for all times.
const RULES: Bounds = Bounds {
    faults: 2,
    stops: 1,
    rounds: 1,
    fence: 1,
    grace: 1,
    quarantine: 1,
    is_replaced: false,
    looks_late: false,
    broken: None,
};

/// The same where clients are well.
const SERVERS_FAIL: Bounds = Bounds { stops: 0, ..RULES };

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    servers: [Machine; SERVERS],
    clients: [Program; CLIENTS],
    links: [[Link; SERVERS]; CLIENTS],
    faults: u8,
    stops: u8,
    /// The greatest with which a client has held the lock.
    token: Token,
    tokens_rise: bool,
}

/// A server with one key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Machine {
    is_up: bool,
    holder: Option<Client>,
    token: Token,
    last_token: Token,
    queue: Vec<Client>,
    quarantine: u8,
}

/// Who wants the lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Program {
    protocol: Option<Protocol>,
    rounds: u8,
    is_stopped: bool,
    is_dead: bool,
}

/// A client's side of its connection to a server, and what is on its way to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Link {
    /// Nothing passes, and nobody is told.
    is_cut: bool,
    /// The server has the connection.
    is_open: bool,
    /// The client believes that it has.
    is_up: bool,
    /// The session is to be ended, and not resumed.
    is_over: bool,
    /// How long the client still relies on the server.
    alive: u8,
    /// What is left of the session's grace, while there is no connection.
    grace: u8,
    inbox: Vec<Said>,
    want: Want,
    /// It was taken back, and the server has not said so yet.
    is_leaving: bool,
    raising: Option<Token>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Want {
    Nothing,
    Asked,
    Held,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Said {
    Granted(Token),
    Lost,
    TakenBack,
    Raised(Token),
    /// The connection is broken.
    Broken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Want(Client),
    Release(Client),
    Hear(Client, Server),
    Connect(Client, Server),
    /// Nothing was heard from the server for D.
    GiveUp(Client, Server),
    Tick,
    Crash(Server),
    Restart {
        server: Server,
        with_files: bool,
    },
    Break(Client, Server),
    Cut(Client, Server),
    Heal(Client, Server),
    Stop(Client),
    Continue(Client),
    Kill(Client),
}

impl Action {
    /// It happens sooner or later, whatever people and fate do.
    fn is_by_itself(self) -> bool {
        matches!(
            self,
            Action::Hear(..)
                | Action::Connect(..)
                | Action::GiveUp(..)
                | Action::Tick
                | Action::Continue(_)
        )
    }

    fn is_fault(self) -> bool {
        matches!(self, Action::Crash(_) | Action::Break(..) | Action::Cut(..))
    }

    fn is_stop(self) -> bool {
        matches!(self, Action::Stop(_) | Action::Kill(_))
    }
}

fn pairs() -> impl Iterator<Item = (Client, Server)> {
    (0..CLIENTS).flat_map(|client| (0..SERVERS).map(move |server| (client, server)))
}

// ---- what is so ----

impl World {
    fn new(bounds: &Bounds) -> World {
        let machine = |last_token| Machine {
            is_up: true,
            holder: None,
            token: 0,
            last_token,
            queue: Vec::new(),
            quarantine: 0,
        };
        let link = Link {
            is_cut: false,
            is_open: true,
            is_up: true,
            is_over: false,
            alive: bounds.fence,
            grace: 0,
            inbox: Vec::new(),
            want: Want::Nothing,
            is_leaving: false,
            raising: None,
        };
        let program = Program {
            protocol: None,
            rounds: bounds.rounds,
            is_stopped: false,
            is_dead: false,
        };
        World {
            // The tokens of independent servers are as far apart as they like.
            servers: [machine(0), machine(3), machine(6)],
            clients: [const { None }; CLIENTS].map(|protocol| Program {
                protocol,
                ..program.clone()
            }),
            links: [(); CLIENTS].map(|()| [(); SERVERS].map(|()| link.clone())),
            faults: bounds.faults,
            stops: bounds.stops,
            token: 0,
            tokens_rise: true,
        }
    }

    fn protocol(&self, client: Client) -> Option<&Protocol> {
        self.clients[client].protocol.as_ref()
    }

    /// A client relies on its holds by its clock, also while it is stopped.
    fn believes(&self, bounds: &Bounds, client: Client) -> bool {
        let is_living = !self.clients[client].is_dead;
        let until = self.protocol(client).and_then(|protocol| {
            protocol.held_until(|server| match bounds.broken {
                Some(Rule::Vouched) => 1,
                _ => self.links[client][server].alive,
            })
        });
        is_living && until.is_some_and(|until| until > 0)
    }

    fn is_exclusive(&self, bounds: &Bounds) -> bool {
        (0..CLIENTS)
            .filter(|client| self.believes(bounds, *client))
            .count()
            < 2
    }

    /// A client that reaches a majority wants the lock, and nobody has it.
    fn is_stuck(&self) -> bool {
        let is_taken = (0..CLIENTS).any(|client| {
            !self.clients[client].is_dead
                && self.protocol(client).is_some_and(Protocol::has_majority)
        });
        let can_reach = |client: Client| {
            let up = self.links[client].iter().filter(|link| link.is_up);
            up.count() >= MAJORITY
        };
        let waits = |client: Client| {
            let Program {
                protocol, is_dead, ..
            } = &self.clients[client];
            !is_dead && protocol.is_some_and_not_over() && can_reach(client)
        };
        !is_taken && (0..CLIENTS).any(waits)
    }

    /// Whether time changes anything, and may go on: a client that does not hear within a tick is one that has stopped.
    fn is_time_awaited(&self) -> bool {
        let is_behind = |(client, server): (Client, Server)| {
            !self.clients[client].is_stopped && !self.links[client][server].inbox.is_empty()
        };
        if pairs().any(is_behind) {
            return false;
        }
        let runs_out = |(client, server): (Client, Server)| {
            let link = &self.links[client][server];
            let is_living = !self.clients[client].is_dead;
            link.grace > 0 || is_living && link.alive > 0 && !self.is_heard(client, server)
        };
        pairs().any(runs_out) || self.servers.iter().any(|server| server.quarantine > 0)
    }

    /// Pings are answered, behind all that was said before.
    fn is_heard(&self, client: Client, server: Server) -> bool {
        let link = &self.links[client][server];
        link.is_open && link.is_up && link.inbox.is_empty() && !self.clients[client].is_stopped
    }

    /// Whether the client does something, having looked at the time.
    fn is_active(&self, bounds: &Bounds, client: Client) -> bool {
        let lapses = |link: &Link| link.want == Want::Held && link.alive == 0;
        let program = &self.clients[client];
        !program.is_stopped
            && !program.is_dead
            && (bounds.looks_late || !self.links[client].iter().any(lapses))
    }

    fn allows(&self, bounds: &Bounds, action: Action) -> bool {
        let is_active = |client: Client| self.is_active(bounds, client);
        match action {
            Action::Want(client) => {
                let program = &self.clients[client];
                is_active(client) && program.protocol.is_none() && program.rounds > 0
            }
            Action::Release(client) => {
                let is_held = |protocol: &Protocol| protocol.held_until(|_| ()).is_some();
                is_active(client) && self.protocol(client).is_some_and(is_held)
            }
            Action::Hear(client, server) => {
                let link = &self.links[client][server];
                // What comes after the fence has fallen counts for nothing.
                is_active(client) && link.alive > 0 && !link.inbox.is_empty()
            }
            Action::GiveUp(client, server) => {
                let link = &self.links[client][server];
                let program = &self.clients[client];
                !program.is_stopped
                    && !program.is_dead
                    && link.alive == 0
                    && (link.is_up || link.want != Want::Nothing || !link.is_over)
            }
            Action::Connect(client, server) => {
                let link = &self.links[client][server];
                let is_free = !link.is_up && !link.is_cut && self.servers[server].is_up;
                let is_settled = link.inbox.is_empty() && (link.alive > 0 || link.is_over);
                is_active(client) && is_free && is_settled
            }
            Action::Tick => self.is_time_awaited(),
            Action::Crash(server) => self.servers[server].is_up,
            Action::Restart { server, .. } => !self.servers[server].is_up,
            Action::Break(client, server) => self.links[client][server].is_open,
            Action::Cut(client, server) => !self.links[client][server].is_cut,
            Action::Heal(client, server) => self.links[client][server].is_cut,
            Action::Stop(client) => is_active(client) && self.clients[client].protocol.is_some(),
            Action::Continue(client) => self.clients[client].is_stopped,
            Action::Kill(client) => is_active(client) && self.clients[client].protocol.is_some(),
        }
    }
}

trait Wanted {
    fn is_some_and_not_over(&self) -> bool;
}

impl Wanted for Option<Protocol> {
    fn is_some_and_not_over(&self) -> bool {
        self.as_ref().is_some_and(|protocol| !protocol.is_over())
    }
}

// ---- what happens ----

impl World {
    #[expect(
        clippy::too_many_lines,
        reason = "one arm for each thing that can happen"
    )]
    fn take(&mut self, bounds: &Bounds, action: Action) {
        match action {
            Action::Want(client) => {
                self.clients[client].rounds -= 1;
                self.clients[client].protocol = Some(Protocol::new(SERVERS).without(bounds.broken));
                for server in 0..SERVERS {
                    if self.links[client][server].is_up {
                        self.tell(client, Fact::Reached(server));
                    }
                }
            }
            Action::Release(client) => self.tell(client, Fact::GivenUp),
            Action::Hear(client, server) => {
                let said = self.links[client][server].inbox.remove(0);
                self.hear(client, server, said);
            }
            Action::Connect(client, server) => self.connect(bounds, client, server),
            Action::GiveUp(client, server) => {
                self.close(bounds, client, server);
                let link = &mut self.links[client][server];
                link.is_over = true;
                link.inbox.clear();
                link.is_up = false;
                link.is_leaving = false;
                link.raising = None;
                let want = match bounds.broken {
                    Some(Rule::Vouched) => Want::Nothing,
                    _ => std::mem::replace(&mut link.want, Want::Nothing),
                };
                if want == Want::Held {
                    self.tell(client, Fact::Lost(server));
                }
                self.tell(client, Fact::Unreached(server));
            }
            Action::Tick => self.tick(bounds),
            Action::Crash(server) => {
                for client in 0..CLIENTS {
                    self.break_off(client, server);
                    let link = &mut self.links[client][server];
                    link.is_open = false;
                    link.is_over = true;
                    link.grace = 0;
                }
                let machine = &mut self.servers[server];
                machine.is_up = false;
                machine.queue.clear();
                machine.quarantine = 0;
            }
            Action::Restart { server, with_files } => {
                let machine = &mut self.servers[server];
                machine.is_up = true;
                machine.quarantine = bounds.quarantine;
                if bounds.is_replaced {
                    machine.quarantine = 0;
                }
                match machine.holder {
                    Some(client) if with_files && !bounds.is_replaced => {
                        self.links[client][server].grace = bounds.grace;
                    }
                    _ => machine.holder = None,
                }
            }
            Action::Break(client, server) => {
                self.break_off(client, server);
                self.close(bounds, client, server);
            }
            Action::Cut(client, server) => {
                self.links[client][server].is_cut = true;
                self.close(bounds, client, server);
            }
            Action::Heal(client, server) => {
                let link = &mut self.links[client][server];
                link.is_cut = false;
                // The first packet that passes is answered by a reset.
                let knows = link.inbox.contains(&Said::Broken);
                if link.is_up && !link.is_open && !knows {
                    link.inbox.push(Said::Broken);
                }
            }
            Action::Stop(client) => self.clients[client].is_stopped = true,
            Action::Continue(client) => self.clients[client].is_stopped = false,
            Action::Kill(client) => self.kill(bounds, client),
        }
        self.faults -= u8::from(action.is_fault());
        self.stops -= u8::from(action.is_stop());
        // Who will want nothing any more is gone.
        for client in 0..CLIENTS {
            let program = &self.clients[client];
            if program.protocol.is_none() && program.rounds == 0 && !program.is_dead {
                self.kill(bounds, client);
            }
        }
    }

    /// The client is no more, and what its sessions hold stays for their grace.
    fn kill(&mut self, bounds: &Bounds, client: Client) {
        self.clients[client] = Program {
            protocol: None,
            rounds: 0,
            is_stopped: false,
            is_dead: true,
        };
        for server in 0..SERVERS {
            self.close(bounds, client, server);
            self.links[client][server] = Link {
                is_cut: false,
                is_open: false,
                is_up: false,
                is_over: true,
                alive: 0,
                grace: self.links[client][server].grace,
                inbox: Vec::new(),
                want: Want::Nothing,
                is_leaving: false,
                raising: None,
            };
        }
    }

    /// Time goes on for everybody.
    fn tick(&mut self, bounds: &Bounds) {
        for (client, server) in pairs() {
            let is_heard = self.is_heard(client, server);
            let link = &mut self.links[client][server];
            link.alive = match is_heard {
                true => bounds.fence,
                false => link.alive.saturating_sub(1),
            };
            if link.grace > 0 {
                link.grace -= 1;
                if link.grace == 0 {
                    self.forget(client, server);
                }
            }
        }
        for server in 0..SERVERS {
            if self.servers[server].quarantine > 0 {
                self.servers[server].quarantine -= 1;
                self.serve(server);
            }
        }
    }

    // ---- the servers ----

    /// The key is granted to the next if nobody has it.
    fn serve(&mut self, server: Server) {
        let machine = &mut self.servers[server];
        if machine.is_up
            && machine.holder.is_none()
            && machine.quarantine == 0
            && !machine.queue.is_empty()
        {
            let client = machine.queue.remove(0);
            machine.last_token += 1;
            machine.token = machine.last_token;
            machine.holder = Some(client);
            let granted = Said::Granted(machine.token);
            self.say(client, server, granted);
        }
    }

    fn say(&mut self, client: Client, server: Server, said: Said) {
        let link = &mut self.links[client][server];
        if link.is_open && !link.is_cut {
            link.inbox.push(said);
        }
    }

    /// Neither holds nor waits.
    fn forget(&mut self, client: Client, server: Server) {
        let machine = &mut self.servers[server];
        machine.queue.retain(|other| *other != client);
        if machine.holder == Some(client) {
            machine.holder = None;
        }
        self.serve(server);
    }

    /// The server notices that the connection is no more.
    fn close(&mut self, bounds: &Bounds, client: Client, server: Server) {
        if !std::mem::replace(&mut self.links[client][server].is_open, false) {
            return;
        }
        let machine = &mut self.servers[server];
        machine.queue.retain(|other| *other != client);
        if machine.holder == Some(client) {
            self.links[client][server].grace = bounds.grace;
        }
    }

    /// The client hears that the connection is no more, behind all else.
    fn break_off(&mut self, client: Client, server: Server) {
        let link = &mut self.links[client][server];
        if link.is_open && !link.is_cut {
            link.inbox.push(Said::Broken);
        }
    }

    /// A request, if the connection stands.
    fn ask(&mut self, client: Client, server: Server) {
        let link = &self.links[client][server];
        if link.is_open && !link.is_leaving {
            self.servers[server].queue.push(client);
            self.serve(server);
        }
    }

    fn take_back(&mut self, client: Client, server: Server) {
        if self.links[client][server].is_open {
            self.forget(client, server);
            self.say(client, server, Said::TakenBack);
        }
    }

    fn raise(&mut self, client: Client, server: Server, token: Token) {
        let machine = &mut self.servers[server];
        if !self.links[client][server].is_open {
            return;
        }
        let said = match machine.holder == Some(client) {
            true => {
                machine.token = machine.token.max(token);
                machine.last_token = machine.last_token.max(token);
                Said::Raised(machine.token)
            }
            false => Said::Lost,
        };
        self.say(client, server, said);
    }

    // ---- the clients' connections, as `core` keeps them ----

    fn hear(&mut self, client: Client, server: Server, said: Said) {
        let link = &mut self.links[client][server];
        match said {
            Said::Broken => {
                link.is_up = false;
                self.tell(client, Fact::Unreached(server));
            }
            Said::TakenBack => {
                link.is_leaving = false;
                if link.want == Want::Asked {
                    self.ask(client, server);
                }
            }
            Said::Granted(_) | Said::Raised(_) | Said::Lost if link.is_leaving => {}
            Said::Granted(token) => {
                if link.want == Want::Asked {
                    link.want = Want::Held;
                    self.tell(client, Fact::Granted(server, token));
                }
            }
            Said::Raised(token) => {
                link.raising = None;
                self.tell(client, Fact::Raised(server, token));
            }
            Said::Lost => self.lose(client, server),
        }
    }

    fn lose(&mut self, client: Client, server: Server) {
        let link = &mut self.links[client][server];
        link.raising = None;
        if link.want == Want::Held {
            link.want = Want::Nothing;
            self.tell(client, Fact::Lost(server));
        }
    }

    /// A new connection: the session goes on, or its rest is ended and there is a new one.
    fn connect(&mut self, bounds: &Bounds, client: Client, server: Server) {
        let link = &mut self.links[client][server];
        link.is_up = true;
        link.is_open = true;
        link.alive = bounds.fence;
        link.grace = 0;
        let is_over = std::mem::replace(&mut link.is_over, false);
        let is_leaving = std::mem::replace(&mut link.is_leaving, false);
        let want = link.want;
        let is_held = self.servers[server].holder == Some(client);
        if is_over || is_leaving || want == Want::Nothing {
            self.forget(client, server);
        }
        match want {
            Want::Held if is_over || !is_held => self.lose(client, server),
            Want::Held => {
                if let Some(token) = self.links[client][server].raising {
                    self.raise(client, server, token);
                }
            }
            Want::Asked if is_held && !is_over && !is_leaving => {
                let granted = Said::Granted(self.servers[server].token);
                self.say(client, server, granted);
            }
            Want::Asked => self.ask(client, server),
            Want::Nothing => {}
        }
        self.tell(client, Fact::Reached(server));
    }

    fn tell(&mut self, client: Client, fact: Fact) {
        let mut effects = Vec::new();
        if let Some(protocol) = &mut self.clients[client].protocol {
            protocol.handle(fact, &mut effects);
        }
        for effect in effects {
            self.perform(client, effect);
        }
        let program = &mut self.clients[client];
        if program.protocol.as_ref().is_some_and(Protocol::is_over) {
            program.protocol = None;
        }
    }

    fn perform(&mut self, client: Client, effect: Effect) {
        match effect {
            Effect::Ask { server, .. } => {
                self.links[client][server].want = Want::Asked;
                self.ask(client, server);
            }
            Effect::Withdraw(server) => {
                let link = &mut self.links[client][server];
                link.want = Want::Nothing;
                link.raising = None;
                // What was not asked for yet needs not be taken back; and with a session that is over, all is.
                if !link.is_leaving && (!link.is_over || link.is_open) {
                    link.is_leaving = true;
                    self.take_back(client, server);
                }
            }
            Effect::Raise(server, token) => {
                self.links[client][server].raising = Some(token);
                self.raise(client, server, token);
            }
            Effect::Held(token) => {
                self.tokens_rise &= token > self.token;
                self.token = self.token.max(token);
            }
            Effect::Lost | Effect::Failed => {}
        }
    }
}

// ---- the checker ----

impl Model for Bounds {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        // Which of them is the first does not matter.
        let mut world = World::new(self);
        world.take(self, Action::Want(0));
        vec![world]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for client in 0..CLIENTS {
            actions.extend([Action::Want(client), Action::Release(client)]);
            actions.extend([
                Action::Stop(client),
                Action::Kill(client),
                Action::Continue(client),
            ]);
        }
        for (client, server) in pairs() {
            actions.extend([
                Action::Hear(client, server),
                Action::Connect(client, server),
                Action::GiveUp(client, server),
                Action::Break(client, server),
                Action::Cut(client, server),
                Action::Heal(client, server),
            ]);
        }
        for server in 0..SERVERS {
            actions.push(Action::Crash(server));
            for with_files in [true, false] {
                actions.push(Action::Restart { server, with_files });
            }
        }
        actions.push(Action::Tick);
        actions.retain(|action| {
            world.allows(self, *action)
                && (world.faults > 0 || !action.is_fault())
                && (world.stops > 0 || !action.is_stop())
        });
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        next.take(self, action);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("exclusion", |bounds: &Bounds, world: &World| {
                world.is_exclusive(bounds)
            }),
            Property::always("tokens rise", |_, world: &World| world.tokens_rise),
            Property::always("the line moves", |bounds: &Bounds, world: &World| {
                if !world.is_stuck() {
                    return true;
                }
                let mut actions = Vec::new();
                bounds.actions(world, &mut actions);
                actions.into_iter().any(Action::is_by_itself)
            }),
            Property::sometimes("held", |bounds: &Bounds, world: &World| {
                world.believes(bounds, 0)
            }),
        ]
    }
}

/// Looks at everything; says how much that was.
fn check(bounds: Bounds) {
    let started = std::time::Instant::now();
    let failures = HasDiscoveries::AnyFailures;
    let checker = bounds
        .checker()
        .threads(2)
        .finish_when(failures)
        .spawn_bfs()
        .join();
    eprintln!(
        "{} states, {} deep, {:?}",
        checker.unique_state_count(),
        checker.max_depth(),
        started.elapsed()
    );
    checker.assert_properties();
}

/// Something must go wrong, and that is it.
#[track_caller]
fn finds(bounds: Bounds, property: &'static str) {
    let checker = bounds
        .checker()
        .threads(2)
        .finish_when(HasDiscoveries::AnyFailures)
        .timeout(Duration::from_secs(120))
        .spawn_bfs()
        .join();
    let found = checker.discoveries();
    let path = found.get(property).map(|path| path.clone().into_actions());
    eprintln!("{} states: {path:?}", checker.unique_state_count());
    assert!(path.is_some(), "not found");
}

/// Without this rule that goes wrong.
#[track_caller]
fn needs(rule: Rule, property: &'static str) {
    let broken = Some(rule);
    let bounds = Bounds {
        broken,
        ..SERVERS_FAIL
    };
    finds(bounds, property);
}

#[test]
fn no_two_clients_hold_the_lock_tokens_rise_and_the_line_moves() {
    check(Bounds { faults: 1, ..RULES });
    check(SERVERS_FAIL);
}

#[test]
#[ignore = "takes minutes"]
fn the_same_with_more_faults() {
    check(RULES);
}

#[test]
#[ignore = "takes minutes"]
fn the_same_where_each_wants_the_lock_twice() {
    check(Bounds {
        rounds: 2,
        ..SERVERS_FAIL
    });
}

#[test]
#[ignore = "takes minutes"]
fn the_same_with_longer_times() {
    check(Bounds {
        fence: 2,
        grace: 2,
        quarantine: 2,
        ..SERVERS_FAIL
    });
}

#[test]
fn a_replica_in_the_place_of_a_server_breaks_exclusion() {
    let is_replaced = true;
    finds(
        Bounds {
            is_replaced,
            ..SERVERS_FAIL
        },
        "exclusion",
    );
}

#[test]
fn a_quarantine_that_is_too_short_breaks_exclusion() {
    let quarantine = 0;
    finds(
        Bounds {
            quarantine,
            ..SERVERS_FAIL
        },
        "exclusion",
    );
}

#[test]
fn a_grace_that_is_too_short_breaks_exclusion() {
    let (fence, quarantine) = (2, 2);
    let bounds = Bounds {
        fence,
        quarantine,
        ..SERVERS_FAIL
    };
    finds(bounds, "exclusion");
}

#[test]
fn to_rely_on_silent_servers_breaks_exclusion() {
    needs(Rule::Vouched, "exclusion");
}

#[test]
fn to_go_on_after_the_loss_of_a_lower_server_stops_the_line() {
    needs(Rule::BeginAgain, "the line moves");
}

#[test]
fn to_queue_without_reach_of_a_majority_stops_the_line() {
    needs(Rule::GiveBackWithoutReach, "the line moves");
}

#[test]
fn without_writing_the_token_back_tokens_fall() {
    needs(Rule::WriteBack, "tokens rise");
}

#[test]
fn to_look_at_the_time_late_lets_tokens_fall() {
    let looks_late = true;
    finds(
        Bounds {
            looks_late,
            ..SERVERS_FAIL
        },
        "tokens rise",
    );
}
