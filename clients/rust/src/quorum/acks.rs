//! What an acknowledged grant is worth when the master fails: a model of ACKS with a master and two replicas.
//!
//! This is a model beside the engine, as simply as it can be said. The master grants a key to one session at a time, in the order of
//! the queue, and replicates that asynchronously; a replica receives the stream in order and acknowledges it. A grant is pending
//! until so many replicas have acknowledged it, and only then is the client told. It can be withdrawn before: then the
//! next in line is served in the same step. Once the master has failed, either replica is promoted, and has what it received.
//!
//! What must be so always: an acknowledged grant is known to whichever replica is promoted; and where nothing is left to happen by
//! itself, nobody waits for a key that nobody has.

use stateright::{Checker, HasDiscoveries, Model, Property};

const REPLICAS: usize = 2;
const CLIENTS: usize = 2;

/// A state of the key: who has it.
type Holder = Option<usize>;

#[derive(Clone, Copy)]
struct Rules {
    /// How many replicas must have acknowledged a grant.
    acks: usize,
    /// A grant that is withdrawn hands the key on.
    serves_next: bool,
}

const SOUND: Rules = Rules {
    acks: REPLICAS,
    serves_next: true,
};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    /// The master's stream: who has the key from each change on.
    stream: Vec<Holder>,
    /// How much of it each replica has received, and how much the master knows of that.
    received: [usize; REPLICAS],
    acknowledged: [usize; REPLICAS],
    queue: Vec<usize>,
    /// The grant is not acknowledged yet.
    is_pending: bool,
    /// Whose grant the client was told of, and that has not been given back.
    told: Holder,
    asks: [u8; CLIENTS],
    withdrawals: u8,
    /// The replica that was promoted.
    promoted: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Ask(usize),
    Receive(usize),
    Acknowledge(usize),
    /// The time for acknowledgements is over, or the owner has ended.
    Withdraw,
    Release,
    Promote(usize),
}

impl World {
    fn holder(&self) -> Holder {
        self.stream.last().copied().flatten()
    }

    /// Whether enough replicas have acknowledged all that there is.
    fn is_acknowledged(&self, rules: &Rules) -> bool {
        let whole = |known: &&usize| **known == self.stream.len();
        self.acknowledged.iter().filter(whole).count() >= rules.acks
    }

    fn serve(&mut self) {
        if self.holder().is_none() && !self.queue.is_empty() {
            let next = self.queue.remove(0);
            self.stream.push(Some(next));
            self.is_pending = true;
        }
    }

    /// The key is free: it is handed on in one step, or goes.
    fn free(&mut self, serves: bool) {
        self.is_pending = false;
        match self.queue.is_empty() || !serves {
            true => self.stream.push(None),
            false => {
                let next = self.queue.remove(0);
                self.stream.push(Some(next));
                self.is_pending = true;
            }
        }
    }

    /// What a promoted replica has.
    fn known_to(&self, replica: usize) -> Holder {
        let received = &self.stream[..self.received[replica]];
        received.last().copied().flatten()
    }
}

impl Model for Rules {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            stream: Vec::new(),
            received: [0; REPLICAS],
            acknowledged: [0; REPLICAS],
            queue: Vec::new(),
            is_pending: false,
            told: None,
            asks: [2; CLIENTS],
            withdrawals: 2,
            promoted: None,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        if world.promoted.is_some() {
            return;
        }
        for client in 0..CLIENTS {
            let is_owner = world.holder() == Some(client) || world.queue.contains(&client);
            if world.asks[client] > 0 && !is_owner {
                actions.push(Action::Ask(client));
            }
        }
        for replica in 0..REPLICAS {
            if world.received[replica] < world.stream.len() {
                actions.push(Action::Receive(replica));
            }
            if world.acknowledged[replica] < world.received[replica] {
                actions.push(Action::Acknowledge(replica));
            }
            actions.push(Action::Promote(replica));
        }
        if world.is_pending && world.withdrawals > 0 {
            actions.push(Action::Withdraw);
        }
        if world.told.is_some() {
            actions.push(Action::Release);
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        match action {
            Action::Ask(client) => {
                next.asks[client] -= 1;
                next.queue.push(client);
                next.serve();
            }
            Action::Receive(replica) => next.received[replica] += 1,
            Action::Acknowledge(replica) => {
                next.acknowledged[replica] = next.received[replica];
                if next.is_pending && next.is_acknowledged(self) {
                    next.is_pending = false;
                    next.told = next.holder();
                }
            }
            Action::Withdraw => {
                next.withdrawals -= 1;
                next.free(self.serves_next);
            }
            Action::Release => {
                next.told = None;
                next.free(true);
            }
            Action::Promote(replica) => next.promoted = Some(replica),
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("known", |_, world: &World| {
                let lost = |replica| world.told.is_some() && world.known_to(replica) != world.told;
                !world.promoted.is_some_and(lost)
            }),
            Property::always("the line moves", |_, world: &World| {
                // Replication goes on, and nobody has to withdraw or release.
                let is_quiet = world.acknowledged == [world.stream.len(); REPLICAS];
                let is_stuck = world.holder().is_none() && !world.queue.is_empty();
                world.promoted.is_some() || !(is_quiet && is_stuck)
            }),
            Property::sometimes("told", |_, world: &World| world.told.is_some()),
            Property::sometimes("promoted while held", |_, world: &World| {
                world.promoted.is_some() && world.told.is_some()
            }),
        ]
    }
}

fn finds(rules: Rules, property: &'static str) {
    let failures = HasDiscoveries::AnyFailures;
    let checker = rules.checker().finish_when(failures).spawn_bfs().join();
    let found = checker.discovery(property).map(|path| path.into_actions());
    eprintln!("{} states: {found:?}", checker.unique_state_count());
    assert!(found.is_some(), "not found");
}

#[test]
fn a_grant_that_all_replicas_acknowledged_is_known_to_the_next_master() {
    let checker = SOUND.checker().spawn_bfs().join();
    eprintln!("{} states", checker.unique_state_count());
    checker.assert_properties();
}

#[test]
fn a_grant_that_one_of_two_replicas_acknowledged_can_be_lost() {
    finds(Rules { acks: 1, ..SOUND }, "known");
}

#[test]
fn to_withdraw_without_serving_the_next_in_line_stops_the_line() {
    let serves_next = false;
    finds(
        Rules {
            serves_next,
            ..SOUND
        },
        "the line moves",
    );
}
