//! What a search costs in worlds of many: counted, so that no machine is too slow for it.

use super::search::Search;
use crate::engine::arena::Id;
use crate::engine::effect::Form;
use crate::engine::event::{Acquire, Event, Seen, Standing};
use crate::engine::id::{ClientId, Db, Key, Moment};
use crate::engine::queues::{Request, Waiter};
use crate::engine::{Engine, Mode};

#[derive(Default)]
struct World(Engine);

/// A connection, a label, and in what way.
type Asker = (u64, usize, Mode);

impl World {
    fn holds(&mut self, (client, label, mode): Asker, key: &str) {
        let name = key.as_bytes();
        let key = Key { db: Db(0), name };
        let label = label.to_string();
        let standing = match self.0.knows(key) {
            true => Standing::Lock,
            false => Standing::Absent,
        };
        let ask = Acquire {
            client: ClientId(client),
            seen: &[Seen { key, standing }],
            mode,
            value: b"",
            label: label.as_bytes(),
            lease_ms: None,
            wait: None,
            form: Form::Lock,
            in_hand: false,
        };
        let granted = self.0.totals().grants + 1;
        let mut effects = Vec::new();
        self.0.handle(Moment(0), Event::Acquire(ask), &mut effects);
        assert_eq!(self.0.totals().grants, granted, "{effects:?}");
    }

    /// Queues, and is not asked whether that closes a circle. All keys are held by somebody.
    fn waits(&mut self, (client, label, mode): Asker, keys: &[&str]) -> Id<Waiter> {
        let (client, _) = self.0.clients.find_or_add(ClientId(client));
        let key = |key: &&str| {
            let name = key.as_bytes();
            self.0.keys.find(Key { db: Db(0), name }).expect("held")
        };
        let keys: Vec<_> = keys.iter().map(key).collect();
        let label = label.to_string();
        let request = Request {
            client,
            label: label.as_bytes(),
            mode,
            value: b"",
            lease_ms: None,
            since: Moment(0),
            deadline: None,
            push: true,
            form: Form::Lock,
        };
        self.0.enqueue(&keys, &request)
    }

    /// How long a circle is closed by the newest, if one is, and in how many steps that is found out.
    fn search(&self, newest: Id<Waiter>) -> (Option<usize>, usize) {
        assert!(self.0.is_waited_for(newest), "nothing is searched for");
        let mut search = Search::new(&self.0);
        search.is_stuck(newest);
        let circle = self.0.circle_of(newest);
        (circle.map(|circle| circle.len()), search.steps())
    }
}

const ONE: Mode = Mode::Exclusive;

/// Builds a world of each size, and asserts what circle its newest closes, and that the steps grow no
/// faster than the world.
fn assert_linear(
    circle: impl Fn(usize) -> Option<usize>,
    build: impl Fn(&mut World, usize) -> Id<Waiter>,
) {
    for size in [2, 3, 10, 1_000, 2_000] {
        let mut world = World::default();
        let newest = build(&mut world, size);
        let (found, steps) = world.search(newest);
        assert_eq!(found, circle(size), "of {size}");
        assert!(steps <= 20 * size + 24, "{steps} steps for {size}");
        assert!(steps >= size, "only {steps} steps for {size}");
    }
}

/// Labels of one connection queue for a lock, and the last of them holds another.
fn own_queue(world: &mut World, holder: u64, size: usize) -> Id<Waiter> {
    world.holds((holder, 0, ONE), "lock");
    world.holds((1, size, ONE), "other");
    for label in 1..=size {
        world.waits((1, label, ONE), &["lock"]);
    }
    world.holds((1, 0, ONE), "own");
    world.waits((2, 0, ONE), &["own"]);
    world.waits((1, 0, ONE), &["other"])
}

#[test]
fn labels_of_a_connection_behind_its_own_hold() {
    assert_linear(|_| Some(2), |world, size| own_queue(world, 1, size));
}

#[test]
fn labels_of_a_connection_behind_one_who_will_release() {
    assert_linear(|_| None, |world, size| own_queue(world, 3, size));
}

#[test]
fn a_label_that_asks_again_in_another_way_behind_all_the_others() {
    assert_linear(
        |_| Some(1),
        |world, size| {
            world.holds((1, 0, Mode::Permits { count: 1, total: 2 }), "seats");
            for label in 1..=size {
                world.waits((1, label, Mode::Permits { count: 2, total: 2 }), &["seats"]);
            }
            world.waits((1, 0, Mode::Permits { count: 2, total: 2 }), &["seats"])
        },
    );
}

/// Each holds a key and waits for the next one's.
fn chain(world: &mut World, size: usize) {
    let keys: Vec<_> = (0..=size).map(|n| n.to_string()).collect();
    for (n, key) in keys.iter().enumerate() {
        world.holds((n as u64 + 1, 0, ONE), key);
    }
    for n in 1..size {
        world.waits((n as u64 + 1, 0, ONE), &[&keys[n + 1]]);
    }
}

#[test]
fn a_chain_that_closes() {
    assert_linear(
        |size| Some(size + 1),
        |world, size| {
            chain(world, size);
            world.waits((1, 0, ONE), &["1"]);
            world.waits((size as u64 + 1, 0, ONE), &["0"])
        },
    );
}

#[test]
fn a_chain_that_does_not_close() {
    assert_linear(
        |_| None,
        |world, size| {
            chain(world, size);
            world.waits((9_999, 0, ONE), &["0"]);
            world.waits((1, 0, ONE), &["1"])
        },
    );
}

/// Readers of a book wait for a pen, some for it alone and some for more; the writer that has it, or
/// another, asks for the book behind others who do.
fn readers(world: &mut World, writer: u64, size: usize) -> Id<Waiter> {
    world.holds((1, 0, ONE), "pen");
    world.holds((2, 0, ONE), "ink");
    world.holds((writer, 0, ONE), "wanted");
    for reader in 0..size {
        let client = reader as u64 + 3;
        world.holds((client, 0, Mode::Shared), "book");
        let keys = ["pen", "ink"];
        world.waits((client, 0, ONE), &keys[..1 + reader % 2]);
    }
    for label in 1..=size {
        world.waits((2, label, ONE), &["book"]);
    }
    world.waits((9_999, 0, ONE), &["wanted"]);
    world.waits((writer, 0, ONE), &["book"])
}

#[test]
fn readers_who_all_wait_for_the_writer() {
    assert_linear(|_| Some(2), |world, size| readers(world, 1, size));
}

#[test]
fn readers_who_all_go_on() {
    assert_linear(|_| None, |world, size| readers(world, 8_888, size));
}

/// Each of those who have a permit waits for the next one's key, and the last for the newest's, who can
/// have as many permits as all but one give back.
#[test]
fn permits_that_run_out() {
    assert_linear(
        |_| Some(2),
        |world, size| {
            let total = 3 * size as u32;
            let permits = |count| Mode::Permits { count, total };
            let keys: Vec<_> = (0..size).map(|n| n.to_string()).collect();
            world.holds((0, 0, ONE), &keys[0]);
            for (n, key) in (1..).zip(&keys[1..]) {
                world.holds((n, 0, permits(1)), "seats");
                world.holds((n, 0, ONE), key);
            }
            for n in 1..size {
                world.waits((n as u64, 0, ONE), &[&keys[(n + 1) % size]]);
            }
            world.waits((0, 0, permits(total + 2 - size as u32)), &["seats"])
        },
    );
}
