//! LOCK.LIST's walk: what is there from its beginning to its end is met, and no step costs more than it was asked for.

use crate::random::Random;
use std::cell::Cell;
use std::collections::BTreeSet;
use tether::engine::{
    Acquire, ClientId, Db, Engine, Event, Form, Key, KeySnapshot, KeyState, Mode, Moment, Page,
    Terms, Walk,
};

#[derive(Default)]
struct Server {
    engine: Engine,
}

fn key(name: &[u8]) -> Key<'_> {
    Key { db: Db(0), name }
}

impl Server {
    fn tell(&mut self, event: Event<'_>) {
        self.engine.handle(Moment(0), event, &mut Vec::new());
    }

    fn takes(&mut self, who: u64, name: &[u8]) {
        let is_held = self.engine.look_up(key(name)).flatten().is_some();
        let seen = KeySnapshot {
            key: key(name),
            state: if is_held {
                KeyState::Lock
            } else {
                KeyState::Absent
            },
        };
        self.tell(Event::Acquire(Acquire {
            client: ClientId(who),
            seen: &[seen],
            terms: Terms::of(Mode::Exclusive),
            value: b"",
            wait: None,
            form: Form::Lock,
            in_command: true,
        }));
    }

    fn gives_back(&mut self, who: u64, name: &[u8]) {
        self.tell(Event::Release {
            client: ClientId(who),
            key: key(name),
            label: b"",
            all: true,
        });
    }

    fn watches(&mut self, who: u64, name: &[u8]) {
        let seen = KeySnapshot {
            key: key(name),
            state: KeyState::Absent,
        };
        self.tell(Event::Watch {
            client: ClientId(who),
            seen: &[seen],
        });
    }
}

/// A step of a walk, and how many names it looked at.
fn step(server: &Server, cursor: u64, who: Option<ClientId>, count: u64) -> (Page, u64) {
    step_matching(server, cursor, who, count, 0)
}

/// The same with a pattern of so many bytes.
fn step_matching(
    server: &Server,
    cursor: u64,
    who: Option<ClientId>,
    count: u64,
    pattern_len: usize,
) -> (Page, u64) {
    let looked = Cell::new(0);
    let walk = Walk {
        cursor,
        db: Db(0),
        client: who,
        is_meant: &|_| {
            looked.set(looked.get() + 1);
            true
        },
        pattern_len,
        count,
    };
    (server.engine.list(Moment(0), &walk), looked.get())
}

fn names(page: &Page) -> impl Iterator<Item = Vec<u8>> + '_ {
    page.lines.iter().map(|line| line.key.name.to_vec())
}

/// 256 keys' worth each, by the name's length times the pattern's.
#[test]
fn a_long_pattern_is_matched_with_few_long_names_in_a_step() {
    let mut server = Server::default();
    let name = |number: usize| format!("{number:01024}").into_bytes();
    let names: BTreeSet<_> = (0..50).map(name).collect();
    for name in &names {
        server.takes(1, name);
    }
    for who in [None, Some(ClientId(1))] {
        let (mut found, mut cursor, mut steps) = (BTreeSet::new(), 0, 0);
        loop {
            let (page, looked) = step_matching(&server, cursor, who, 1000, 1024);
            assert!(looked <= 4, "{looked}");
            found.extend(self::names(&page));
            (cursor, steps) = (page.cursor, steps + 1);
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(found, names);
        assert!(steps > 12, "{steps}");
    }
}

#[test]
fn what_stays_is_met_while_all_else_comes_and_goes() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let mut server = Server::default();
        let stay: BTreeSet<Vec<u8>> = (0..40).map(|n| format!("stays:{n}").into_bytes()).collect();
        for (number, name) in stay.iter().enumerate() {
            server.takes(1 + number as u64 % 3, name);
        }
        let who = (random.below(2) == 0).then_some(ClientId(1));
        let (mut met, mut cursor) = (BTreeSet::new(), 0);
        loop {
            let (page, _) = step(&server, cursor, who, 1 + random.below(9) as u64);
            met.extend(names(&page));
            cursor = page.cursor;
            if cursor == 0 {
                break;
            }
            for _ in 0..random.below(30) {
                let name = format!("comes:{}", random.below(2000)).into_bytes();
                let whose = 1 + random.below(3) as u64;
                if random.below(2) == 0 {
                    server.takes(whose, &name);
                } else {
                    server.gives_back(whose, &name);
                }
            }
        }
        let is_asked_for = |name: &&Vec<u8>| {
            let holders = server.engine.holders(key(name));
            who.is_none_or(|who| holders.contains(&who))
        };
        let expected: Vec<_> = stay.iter().filter(is_asked_for).collect();
        assert!(expected.iter().all(|name| met.contains(*name)), "{seed}");
        server.engine.check_invariants();
    }
}

#[test]
fn no_step_looks_at_more_keys_than_it_was_asked_for() {
    let mut server = Server::default();
    for number in 0..5000 {
        let name = format!("watched:{number}").into_bytes();
        server.watches(9, &name);
        if number % 100 == 0 {
            server.takes(1, &name);
        }
    }
    for count in [1, 10, 1000] {
        for who in [None, Some(ClientId(0)), Some(ClientId(9))] {
            let (mut cursor, mut found) = (0, 0);
            loop {
                let (page, looked) = step(&server, cursor, who, count);
                assert!(looked <= count, "{looked} of {count}");
                found += page.lines.len();
                cursor = page.cursor;
                if cursor == 0 {
                    break;
                }
            }
            assert_eq!(found, if who.is_none() { 50 } else { 0 });
        }
        // It has few keys: only those are looked at.
        let (page, looked) = step(&server, 0, Some(ClientId(1)), count);
        assert_eq!((page.lines.len(), looked, page.cursor), (50, 50, 0));
    }
    // A connection's end, and its keys wait to be given back: they refuse nobody, and are not told of.
    server.tell(Event::Ended {
        client: ClientId(1),
    });
    let (page, _) = step(&server, 0, None, 6000);
    assert_eq!((page.lines.len(), page.cursor), (0, 0));
}
