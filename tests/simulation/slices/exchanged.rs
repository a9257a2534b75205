//! Databases that exchange their contents: what is only held goes as it is, and the rest key by key.

use super::*;

const HERE: Db = Db(3);

fn at(db: Db, name: &str) -> Key<'_> {
    let name = name.as_bytes();
    Key { db, name }
}

/// A connection acquires a lock, or waits for it.
fn acquire(server: &mut Server, who: u64, key: Key<'_>) {
    let standing = match server.engine.holders(key).is_empty() {
        true => KeyState::Absent,
        false => KeyState::Lock,
    };
    server.tell(Event::Acquire(Acquire {
        client: ClientId(who),
        seen: &[KeySnapshot { key, standing }],
        mode: Mode::Exclusive,
        attributes: Attributes::default(),
        value: b"",
        label: b"",
        lease_ms: None,
        wait: Some(Wait {
            limit_ms: None,
            push: true,
        }),
        acks: None,
        form: Form::Lock,
        in_command: true,
    }));
}

fn watch(server: &mut Server, key: Key<'_>, standing: KeyState) {
    let client = ClientId(9);
    let seen = &[KeySnapshot { key, standing }];
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
            server.tell(Event::Work { most: 64 });
        }
        assert!(server.engine.is_idle());
    }
}
