//! Databases that exchange their contents: what is only held goes as it is, and the rest key by key.

use super::*;
use tether::engine::Limits;

const HERE: Db = Db(3);

fn at(db: Db, name: &str) -> Key<'_> {
    let name = name.as_bytes();
    Key { db, name }
}

/// A connection acquires a lock, or waits for it.
fn acquire(server: &mut Server, who: u64, key: Key<'_>) {
    let state = match server.engine.holders(key).is_empty() {
        true => KeyState::Absent,
        false => KeyState::Lock,
    };
    server.tell(Event::Acquire(Acquire {
        client: ClientId(who),
        seen: &[KeySnapshot { key, state }],
        terms: Terms::of(Mode::Exclusive),
        value: b"",
        wait: Some(Wait {
            limit_ms: None,
            push: true,
        }),
        form: Form::Lock,
        in_command: true,
    }));
}

fn watch(server: &mut Server, key: Key<'_>, state: KeyState) {
    let client = ClientId(9);
    let seen = &[KeySnapshot { key, state }];
    server.tell(Event::Watch { client, seen });
}

#[test]
fn holds_go_with_their_keys_to_near_and_to_far_databases() {
    for there in [Db(4), Db(15), Db(16), Db(1_000_000)] {
        let mut server = Server::default();
        acquire(&mut server, 1, at(HERE, "here"));
        acquire(&mut server, 1, at(HERE, "both"));
        acquire(&mut server, 2, at(there, "both"));
        acquire(&mut server, 1, at(HERE, "watched here"));
        acquire(&mut server, 2, at(there, "watched here"));
        watch(&mut server, at(HERE, "watched here"), KeyState::Lock);
        acquire(&mut server, 1, at(HERE, "watched there"));
        watch(&mut server, at(there, "watched there"), KeyState::Absent);
        acquire(&mut server, 1, at(HERE, "waited for"));
        acquire(&mut server, 3, at(HERE, "waited for"));
        acquire(&mut server, 1, at(Db(9), "elsewhere"));
        let all = [
            ("here", [None, Some(1)]),
            ("both", [Some(2), Some(1)]),
            ("watched here", [Some(2), Some(1)]),
            ("watched there", [None, Some(1)]),
            ("waited for", [None, Some(1)]),
        ];
        for (is_back, (one, other)) in [(HERE, there), (there, HERE)].into_iter().enumerate() {
            server.tell(Event::Swapped { one, other });
            for (name, expected) in all {
                let dbs = if is_back == 0 {
                    [HERE, there]
                } else {
                    [there, HERE]
                };
                let holder = |db| server.engine.holders(at(db, name)).first().copied();
                let expected = expected.map(|who| who.map(ClientId));
                assert_eq!(dbs.map(holder), expected, "{name}, {there:?}");
            }
            server.engine.check_invariants();
            assert_eq!(
                &*server.engine.holders(at(Db(9), "elsewhere")),
                [ClientId(1)]
            );
        }
        for client in [1, 2, 3, 9].map(ClientId) {
            server.tell(Event::Ended { client });
        }
        while server.engine.has_work(server.now) {
            server.tell(Event::Work { steps: 64 });
        }
        assert!(server.engine.is_idle());
    }
}

/// What a watcher is told of a key by each of these events after an exchange, before anybody has looked there.
fn told(server: &mut Server, events: &[Event<'_>]) -> Vec<News> {
    let (one, other) = (HERE, Db(4));
    assert_eq!(server.tell(Event::Swapped { one, other }), []);
    let orders = events.iter().flat_map(|event| server.tell(*event));
    let news = orders.filter_map(|order| match order {
        Effect::Push { push, .. } => Some(push.news().clone()),
        _ => None,
    });
    news.collect()
}

#[test]
fn what_happens_to_a_key_says_what_was_there_before_anybody_looks() {
    let key = at(HERE, "k");
    let (by, why) = (Cause::Server, Loss::Deleted);
    let (mode, token) = (Mode::Temporary, None);
    let cases: [(&[Event<'_>], [&[News]; 2]); 4] = [
        // Perhaps it takes another's place.
        (&[Event::Replaced { key, by }], [&[News::Added], &[]]),
        (
            &[Event::Inherited { key, mode, token }],
            [&[News::Added], &[]],
        ),
        (
            &[Event::Gone { key, by, why }],
            [&[News::Added, News::Deleted], &[News::Deleted]],
        ),
        (
            &[Event::MovedFrom { key }],
            [&[News::Added, News::Deleted], &[News::Deleted]],
        ),
    ];
    for (events, expected) in cases {
        for (state, expected) in [KeyState::Absent, KeyState::Other].iter().zip(expected) {
            let mut server = Server::default();
            watch(&mut server, key, *state);
            let told = told(&mut server, events);
            assert_eq!(told, expected, "{events:?} where there was {state:?}");
            assert_eq!(
                server.engine.next_stale_name(usize::MAX),
                None,
                "it is known now"
            );
        }
    }
}

#[test]
fn a_lock_that_came_by_an_exchange_is_there_before_it_goes() {
    let key = at(HERE, "k");
    let mut server = Server::default();
    acquire(&mut server, 1, at(Db(4), "k"));
    watch(&mut server, key, KeyState::Absent);
    let release = Event::Release {
        client: ClientId(1),
        key,
        label: b"",
        all: true,
    };
    assert_eq!(told(&mut server, &[release]), [News::Added, News::Deleted]);
}

#[test]
fn nobody_is_granted_what_nobody_has_looked_at() {
    let waits_for = at(HERE, "k");
    for state in [KeyState::Absent, KeyState::Other, KeyState::Lock] {
        let mut server = Server::default();
        acquire(&mut server, 1, waits_for);
        acquire(&mut server, 2, waits_for);
        let (one, other) = (HERE, Db(4));
        server.tell(Event::Swapped { one, other });
        let work = |server: &mut Server| server.tell(Event::Work { steps: 64 });
        assert_eq!(work(&mut server), []);
        assert_eq!(&*server.engine.holders(waits_for), []);
        let next = server.engine.next_stale_name(usize::MAX);
        assert_eq!(next, Some(waits_for.to_owned()));
        let gone = Loss::Deleted;
        let seen = KeySnapshot {
            key: waits_for,
            state,
        };
        server.tell(Event::Found { seen, gone });
        work(&mut server);
        // A lock that nobody holds is made anew.
        let is_granted = state != KeyState::Other;
        let holders = server.engine.holders(waits_for);
        assert_eq!(!holders.is_empty(), is_granted, "{state:?}");
        server.engine.check_invariants();
    }
}

#[test]
fn exchanges_one_after_the_other_keep_no_key_from_being_looked_at() {
    const KEYS: usize = 10;
    let mut server = Server::default();
    for number in 0..KEYS {
        watch(&mut server, at(HERE, &name(number)), KeyState::Other);
    }
    let (one, other) = (HERE, Db(4));
    let mut seen = std::collections::BTreeSet::new();
    // Beyond the last one it goes on with the first.
    for _ in 0..2 * KEYS {
        server.tell(Event::Swapped { one, other });
        let next = server.engine.next_stale_name(1).expect("one of them");
        let (key, state, gone) = (next.as_key(), KeyState::Other, Loss::Deleted);
        let found = KeySnapshot { key, state };
        server.tell(Event::Found { seen: found, gone });
        server.engine.check_invariants();
        seen.insert(next);
    }
    assert_eq!(seen.len(), KEYS);
}

#[test]
fn what_is_left_to_do_of_a_flush_is_left_after_an_exchange() {
    let mut server = Server::default();
    let there = Db(4);
    for number in 0..2 * Limits::default().steps_per_event {
        acquire(&mut server, 1, at(HERE, &name(number)));
    }
    // Its twin stays, and goes by the other one's name.
    acquire(&mut server, 2, at(there, &name(5)));
    let (db, by) = (Some(HERE), Cause::Server);
    server.tell(Event::Flushed { db, by });
    let (one, other) = (HERE, there);
    for _ in 0..3 {
        server.tell(Event::Swapped { one, other });
        server.engine.check_invariants();
    }
    assert!(server.engine.is_flushing());
    assert_eq!(&*server.engine.holders(at(HERE, &name(5))), [ClientId(2)]);
    assert_eq!(&*server.engine.holders(at(there, &name(5))), []);
    acquire(&mut server, 3, at(there, &name(6)));
    assert_eq!(&*server.engine.holders(at(there, &name(6))), [ClientId(3)]);
    while server.engine.is_flushing() {
        server.tell(Event::Reap { steps: 64 });
    }
    server.engine.check_invariants();
    assert_eq!(server.held(), 2);
}
