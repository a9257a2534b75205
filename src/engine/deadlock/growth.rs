//! The cost of a search among many waits, in steps, so that the tests depend on no machine's speed.

use super::{Verdict, Walk};
use crate::engine::event::{Acquire, Event, KeySnapshot};
use crate::engine::limits::WALK_STEPS;
use crate::engine::state::queues::Request;
use crate::engine::state::rows::Waiter;
use crate::engine::storage::arena::Id;
use crate::engine::tables::Engine;
use crate::engine::types::{ClientId, Db, Form, Key, KeyState, Moment, ReplyTo};
use crate::engine::{Mode, Terms};

/// An engine, and the task of what is asked for next, if it is not the label's.
#[derive(Default)]
struct World(Engine, Option<&'static [u8]>);

/// A connection, a label and a mode.
type Requester = (u64, usize, Mode);

impl World {
    fn holds(&mut self, (client, label, mode): Requester, key: &str) {
        let name = key.as_bytes();
        let key = Key { db: Db(0), name };
        let label = label.to_string();
        let state = match self.0.knows(key) {
            true => KeyState::Lock,
            false => KeyState::Absent,
        };
        let ask = Acquire {
            client: ClientId(client),
            seen: &[KeySnapshot { key, state }],
            terms: Terms {
                label: label.as_bytes(),
                task: self.1,
                ..Terms::of(mode)
            },
            value: b"",
            wait: None,
            form: Form::Lock,
            in_command: false,
        };
        let granted = self.0.totals().grants + 1;
        let mut effects = Vec::new();
        self.0.handle(Moment(0), Event::Acquire(ask), &mut effects);
        assert_eq!(self.0.totals().grants, granted, "{effects:?}");
    }

    /// Enqueues a wait without a search. All keys are held.
    fn waits(&mut self, (client, label, mode): Requester, keys: &[&str]) -> Id<Waiter> {
        let id = ClientId(client);
        let (client, _) = self.0.clients.find_or_add(id);
        let key = |key: &&str| {
            let (db, name) = (Db(0), key.as_bytes());
            let (keys, key) = (&mut self.0.keys, Key { db, name });
            keys.get_or_insert_name(keys.lookup(key), key, KeyState::Lock)
        };
        let keys: Vec<_> = keys.iter().map(key).collect();
        let label = label.to_string();
        let request = Request {
            client,
            terms: Terms {
                label: label.as_bytes(),
                task: self.1,
                ..Terms::of(mode)
            },
            value: b"",
            since: Moment(0),
            deadline: None,
            reply_to: ReplyTo {
                client: id,
                form: Form::Lock,
                push: true,
            },
        };
        self.0.enqueue(&keys, &request)
    }

    /// The length of the cycle that the newest wait closes, if any, and the steps of an unlimited search for it.
    fn search(&self, newest: Id<Waiter>) -> (Option<usize>, usize) {
        const ENOUGH: usize = 1 << 40;
        assert!(self.0.is_waited_for(newest), "no search is made");
        let mut walk = Walk::new(&self.0, newest, ENOUGH);
        let cycle = walk.cycle().map(|path| path.len());
        (cycle, ENOUGH - walk.steps_left())
    }

    /// The result of a search with its usual limits.
    fn verdict(&self, newest: Id<Waiter>) -> Result<Option<usize>, Cut> {
        match self.0.find_cycle(newest) {
            Verdict::Open => Ok(None),
            Verdict::Cycle(cycle) => Ok(Some(cycle.len())),
            Verdict::Cut => Err(Cut),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Cut;

const ONE: Mode = Mode::Exclusive;

/// Builds a world of each size, and asserts the length of the cycle that its newest wait closes, and that the steps are linear in
/// the size.
fn assert_linear(
    cycle: impl Fn(usize) -> Option<usize>,
    build: impl Fn(&mut World, usize) -> Id<Waiter>,
) {
    for size in [2, 3, 10, 1_000, 2_000] {
        let mut world = World::default();
        let newest = build(&mut world, size);
        let (found, steps) = world.search(newest);
        assert_eq!(found, cycle(size), "of {size}");
        assert!(steps <= 20 * size + 24, "{steps} steps for {size}");
        match world.verdict(newest) {
            Ok(Some(_)) => assert!(found.is_some(), "a false cycle of {size}"),
            Ok(None) => assert_eq!(found, None, "of {size}"),
            Err(Cut) => assert!(
                steps > WALK_STEPS || size > 256,
                "{size} are within the limits"
            ),
        }
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
fn labels_of_a_connection_behind_a_holder_that_can_release() {
    assert_linear(|_| None, |world, size| own_queue(world, 3, size));
}

#[test]
fn a_label_that_asks_for_more_permits_behind_all_the_others() {
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

/// One task holds permits under many labels, and asks for all of them under many others, behind which it waits itself. Another
/// client's permit is in its way as well.
fn permits_of_a_task(world: &mut World, other: u64, size: usize) -> Id<Waiter> {
    let total = size as u32 + 2;
    let permits = |count| Mode::Permits { count, total };
    world.holds((other, 0, permits(1)), "seats");
    world.1 = Some(b"task");
    world.holds((1, 0, ONE), "own");
    for label in 1..=size {
        world.holds((1, label, permits(1)), "seats");
    }
    for label in 1..=size {
        world.waits((1, size + label, permits(total)), &["seats"]);
    }
    world.1 = None;
    world.waits((2, 0, ONE), &["own"]);
    world.1 = Some(b"task");
    world.waits((1, 0, permits(total)), &["seats"])
}

#[test]
fn a_task_behind_its_own_permits_and_those_of_one_who_waits_for_it() {
    assert_linear(|_| Some(2), |world, size| permits_of_a_task(world, 2, size));
}

#[test]
fn a_task_behind_its_own_permits_and_those_of_one_who_can_release() {
    assert_linear(|_| None, |world, size| permits_of_a_task(world, 3, size));
}

/// Each client holds a key and waits for the next client's.
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

/// Readers of a book wait for a pen, every other one for a second key as well. The writer asks for the book behind other waits;
/// it is client 1, which holds the pen, or another.
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
fn readers_that_all_wait_for_the_writer() {
    assert_linear(|_| Some(2), |world, size| readers(world, 1, size));
}

#[test]
fn readers_that_can_all_release() {
    assert_linear(|_| None, |world, size| readers(world, 8_888, size));
}

/// Each holder of a permit waits for the next one's key, and the last one for the newest client's, which asks for so many permits
/// that all but one must be released: no single holder blocks it, unless there is only one.
#[test]
fn permits_that_run_out() {
    assert_linear(
        |size| (size == 2).then_some(2),
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

// ---- beyond the limits ----

const OVERFLOW_THRESHOLD: usize = 5_000;

#[test]
fn a_cycle_is_found_behind_however_many_waits() {
    let mut world = World::default();
    let newest = own_queue(&mut world, 1, OVERFLOW_THRESHOLD);
    assert_eq!(world.verdict(newest), Ok(Some(2)));
    let mut world = World::default();
    let newest = readers(&mut world, 1, OVERFLOW_THRESHOLD);
    assert_eq!(world.verdict(newest), Ok(Some(2)));
}

#[test]
fn a_cycle_within_the_step_limit_is_found() {
    let mut world = World::default();
    const LONG: usize = 200;
    chain(&mut world, LONG);
    world.waits((1, 0, ONE), &["1"]);
    let newest = world.waits((LONG as u64 + 1, 0, ONE), &["0"]);
    for other in 0..OVERFLOW_THRESHOLD {
        world.waits((1_000_000, other, ONE), &["7"]);
    }
    assert_eq!(world.verdict(newest), Ok(Some(LONG + 1)));
}

#[test]
fn a_search_that_hits_its_limit_is_cut_and_reports_no_cycle() {
    for size in [OVERFLOW_THRESHOLD / 2, OVERFLOW_THRESHOLD] {
        let mut world = World::default();
        let newest = own_queue(&mut world, 3, size);
        assert_eq!(world.verdict(newest), Err(Cut));
        let mut world = World::default();
        let newest = readers(&mut world, 8_888, size);
        assert_eq!(world.verdict(newest), Err(Cut));
        let mut world = World::default();
        chain(&mut world, size);
        world.waits((9_999_999, 0, ONE), &["0"]);
        let newest = world.waits((1, 0, ONE), &["1"]);
        assert_eq!(world.verdict(newest), Err(Cut));
    }
}

#[test]
fn a_search_never_exceeds_its_step_limit() {
    let mut world = World::default();
    let newest = own_queue(&mut world, 3, OVERFLOW_THRESHOLD);
    let mut walk = Walk::new(&world.0, newest, WALK_STEPS);
    assert!(walk.cycle().is_none() && walk.is_cut());
    assert_eq!(walk.steps_left(), 0);
}

/// Labels of one connection queue for one lock, and each holds another: whether a client waits for a label's hold is found without
/// visiting the other labels.
#[test]
fn a_label_does_not_visit_the_holds_and_waits_of_the_others_of_its_connection() {
    let mut world = World::default();
    world.holds((2, 0, ONE), "lock");
    for label in 1..=OVERFLOW_THRESHOLD {
        world.holds((1, label, ONE), &label.to_string());
    }
    world.waits((3, 0, ONE), &["7"]);
    for label in 1..=OVERFLOW_THRESHOLD {
        let newest = world.waits((1, label, ONE), &["lock"]);
        assert_eq!(world.0.is_waited_for(newest), label == 7);
    }
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        (self.0 >> 33) % end
    }

    fn requester(&mut self) -> Requester {
        let count = 1 + self.below(2) as u32;
        let mode = match self.below(4) {
            0 => Mode::Shared,
            1 => Mode::Permits { count, total: 3 },
            _ => ONE,
        };
        (self.below(5), self.below(2) as usize, mode)
    }

    fn task(&mut self) -> Option<&'static [u8]> {
        [None, None, Some(&b"0"[..]), Some(b"task")][self.below(4) as usize]
    }
}

#[test]
fn a_short_search_finds_no_other_cycle_than_a_long_one() {
    const KEYS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
    let (mut cycles, mut found, mut cut) = (0, 0, 0);
    for seed in 0..2_000 {
        let mut dice = Dice(seed);
        let mut world = World::default();
        for key in KEYS {
            world.1 = dice.task();
            world.holds(dice.requester(), key);
        }
        for _ in 0..12 {
            let first = dice.below(6) as usize;
            let last = (first + 1 + dice.below(2) as usize).min(6);
            world.1 = dice.task();
            let newest = world.waits(dice.requester(), &KEYS[first..last]);
            let is_stuck = Walk::new(&world.0, newest, 10_000).cycle().is_some();
            for steps in [2, 4, 6, 10, 20, 40] {
                let mut walk = Walk::new(&world.0, newest, steps);
                let is_found = walk.cycle().is_some();
                assert!(is_stuck || !is_found, "{seed}: false in {steps} steps");
                assert!(is_found == is_stuck || walk.is_cut(), "{seed}: {steps}");
                found += u32::from(is_found);
                cut += u32::from(walk.is_cut());
            }
            if is_stuck {
                cycles += 1;
                world.0.dequeue(newest);
            }
        }
    }
    assert!(
        cycles > 500 && found > 500 && cut > 500,
        "{cycles} {found} {cut}"
    );
}
