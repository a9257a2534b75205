//! What is due in great numbers is done in slices, and no fact causes more of it than it was asked for.

mod exchanged;
mod given_up;
mod several;
mod together;

use tether::engine::{
    Acquire, Attributes, Cause, ClientId, Db, Digest, Effect, Engine, Event, Form, Gauges, Key,
    KeySnapshot, KeyState, Limits, Loss, Mode, Moment, News, Reply, Start, Terms, Wait,
};

const LEASES: usize = 1000;

/// What is asked for.
struct What<'a> {
    mode: Mode,
    label: &'a [u8],
    lease_ms: Option<u64>,
    waits: bool,
}

const EXCLUSIVE: What<'static> = What {
    mode: Mode::Exclusive,
    label: b"",
    lease_ms: None,
    waits: false,
};

#[derive(Default)]
struct Server {
    engine: Engine,
    now: Moment,
}

fn key(name: &str) -> Key<'_> {
    let (db, name) = (Db(0), name.as_bytes());
    Key { db, name }
}

fn name(number: usize) -> String {
    format!("key:{number}")
}

impl Server {
    fn tell(&mut self, event: Event<'_>) -> Vec<Effect> {
        let mut orders = Vec::new();
        self.engine.handle(self.now, event, &mut orders);
        orders
    }

    fn request(&mut self, who: u64, name: &str, what: What<'_>) -> Vec<Effect> {
        let state = match self.engine.holders(key(name)).is_empty() {
            true => KeyState::Absent,
            false => KeyState::Lock,
        };
        self.tell(Event::Acquire(Acquire {
            client: ClientId(who),
            seen: &[KeySnapshot {
                key: key(name),
                state,
            }],
            terms: Terms {
                attributes: Attributes {
                    notify: true,
                    ..Attributes::default()
                },
                label: what.label,
                lease_ms: what.lease_ms,
                ..Terms::of(what.mode)
            },
            value: b"",
            wait: what.waits.then_some(Wait {
                limit_ms: None,
                push: true,
            }),
            form: Form::Lock,
            in_command: true,
        }))
    }

    fn acquire(&mut self, who: u64, name: &str) -> Vec<Effect> {
        self.request(who, name, EXCLUSIVE)
    }

    fn wait(&mut self, who: u64, name: &str, label: &[u8]) -> Vec<Effect> {
        let waits = true;
        self.request(
            who,
            name,
            What {
                label,
                waits,
                ..EXCLUSIVE
            },
        )
    }

    fn share(&mut self, who: u64, label: &[u8], lease_ms: Option<u64>) -> Vec<Effect> {
        let what = What {
            mode: Mode::Shared,
            label,
            lease_ms,
            waits: false,
        };
        self.request(who, "k", what)
    }

    fn held(&self) -> usize {
        self.engine.gauges().holds
    }
}

/// A server with so many leases, all of which are over.
fn with_leases_that_are_over() -> Server {
    let mut server = Server::default();
    for number in 0..LEASES {
        let lease_ms = Some(10);
        server.request(
            1,
            &name(number),
            What {
                lease_ms,
                ..EXCLUSIVE
            },
        );
    }
    server.now = server.now.after_ms(20);
    server
}

#[test]
fn a_command_ends_its_own_keys_leases_and_few_others() {
    let mut server = with_leases_that_are_over();
    let last = name(LEASES - 1);
    server.wait(2, &last, b"");
    let orders = server.tell(Event::Lapse { steps: 16 });
    assert_eq!(server.held(), LEASES - 16);
    assert!(orders.len() <= 2 * 16, "a push and a removal each");

    // Whose turn it is has it before anybody asks.
    let orders = server.tell(Event::LapseOf {
        keys: &[key(&last)],
    });
    let pushes = orders
        .iter()
        .filter(|order| matches!(order, Effect::Push { .. }));
    assert_eq!(pushes.count(), 2, "{orders:?}");
    assert_eq!(&*server.engine.holders(key(&last)), &[ClientId(2)]);
    assert_eq!(server.held(), LEASES - 16, "one has gone, one has come");
    let refused = server.acquire(3, &last);
    assert!(
        matches!(refused[..], [.., Effect::Reply(Reply::Null)]),
        "{refused:?}"
    );

    // Its former owner holds nothing, and who does not wait has what is free.
    let other = name(LEASES - 2);
    let orders = server.tell(Event::LapseOf {
        keys: &[key(&other)],
    });
    assert!(
        matches!(orders[..], [Effect::Push { .. }, Effect::Remove(_)]),
        "{orders:?}"
    );
    let released = server.tell(Event::Release {
        client: ClientId(1),
        key: key(&other),
        label: b"",
        all: false,
    });
    assert!(
        matches!(released[..], [Effect::Reply(Reply::Refused(_))]),
        "{released:?}"
    );
    server.engine.check_invariants();
}

#[test]
fn leases_that_are_over_end_in_slices_of_the_size_asked_for() {
    let mut server = with_leases_that_are_over();
    let mut slices = 0;
    while server.engine.has_work(server.now) {
        let before = server.held();
        let orders = server.tell(Event::Work { steps: 64 });
        assert!(before - server.held() <= 64 && orders.len() <= 2 * 64);
        slices += 1;
    }
    assert_eq!((server.held(), slices), (0, LEASES.div_ceil(64)));
    server.engine.check_invariants();
}

#[test]
fn of_a_lock_with_very_many_readers_each_finds_its_own_lease_over_and_others_end_some() {
    let mut server = with_few_steps();
    for number in 0..LEASES {
        let label = number.to_string();
        server.share(1, label.as_bytes(), Some(10));
    }
    server.now = server.now.after_ms(20);
    let keys = &[key("k")];
    server.tell(Event::LapseOf { keys });
    let left = server.held();
    assert!((1..LEASES).contains(&left), "{left} are left");

    let last = (LEASES - 1).to_string();
    let released = server.tell(Event::Release {
        client: ClientId(1),
        key: key("k"),
        label: last.as_bytes(),
        all: false,
    });
    assert!(
        matches!(
            released[..],
            [Effect::Push { .. }, Effect::Reply(Reply::Refused(_))]
        ),
        "{released:?}"
    );
    let last = (LEASES - 2).to_string();
    let orders = server.share(1, last.as_bytes(), None);
    let granted = matches!(orders.last(), Some(Effect::Reply(Reply::Integer(_))));
    assert!(granted, "not deeper, but anew: {orders:?}");
    assert_eq!(server.held(), left - 1);
    while server.engine.has_work(server.now) {
        server.tell(Event::Work { steps: 64 });
    }
    assert_eq!(server.held(), 1);
    server.engine.check_invariants();
}

/// A server where a command does not get to the end of what a thousand left.
fn with_few_steps() -> Server {
    let mut server = Server::default();
    server.engine.set_limits(Limits {
        steps_per_event: LEASES / 4,
        ..Limits::default()
    });
    server
}

/// A server where the first connection holds a key, and the second one stands in very many lines for it and others. It
/// watches as many keys. Then that one ends.
fn with_a_connection_that_has_ended() -> Server {
    let mut server = with_few_steps();
    for number in 0..LEASES {
        server.acquire(1, &name(number));
        server.wait(2, &name(number), b"");
        let label = number.to_string();
        let label = label.as_bytes();
        if number == 0 {
            server.acquire(1, "line");
        }
        server.wait(2, "line", label);
        let name = name(number);
        let seen = KeySnapshot {
            key: key(&name),
            state: KeyState::Lock,
        };
        let client = ClientId(2);
        server.tell(Event::Watch {
            client,
            seen: &[seen],
        });
    }
    server.wait(3, "line", b"");
    let client = ClientId(2);
    assert_eq!(server.tell(Event::Ended { client }), []);
    server
}

fn left(server: &Server) -> usize {
    let Gauges {
        waiters, watches, ..
    } = server.engine.gauges();
    assert_eq!((waiters, watches), (1, 0), "who has ended does not count");
    server.engine.dead_waits()
}

#[test]
fn what_an_ended_connection_waited_for_and_watched_is_forgotten_in_slices() {
    let mut server = with_a_connection_that_has_ended();
    assert_eq!(left(&server), 3 * LEASES, "at once nothing is done");
    let mut slices = 0;
    while server.engine.has_dead_waits() {
        let before = left(&server);
        assert_eq!(server.tell(Event::Reap { steps: 64 }), []);
        assert!(before - left(&server) <= 64);
        slices += 1;
    }
    assert_eq!(slices, (3 * LEASES).div_ceil(64));
    assert_eq!(server.engine.gauges().watched_keys, 0);
    server.engine.check_invariants();
}

#[test]
fn an_ended_connection_is_granted_nothing_told_nothing_and_in_nobodys_way() {
    let mut server = with_a_connection_that_has_ended();
    let release = |name| Event::Release {
        client: ClientId(1),
        key: name,
        label: b"",
        all: false,
    };
    // It would be next, and watches.
    let orders = server.tell(release(key("key:0")));
    assert!(
        matches!(orders[..], [Effect::Remove(_), Effect::Reply(_)]),
        "{orders:?}"
    );
    assert_eq!(left(&server), 3 * LEASES - 1);
    // In front of who asks now is nobody else.
    let orders = server.acquire(4, "key:0");
    let is_granted = |order: &Effect| matches!(order, Effect::Reply(Reply::Integer(_)));
    assert!(orders.iter().any(is_granted), "{orders:?}");

    // Very many are in front of a living one: not all of them are passed by in one command.
    let orders = server.tell(release(key("line")));
    assert!(
        matches!(orders[..], [Effect::Remove(_), Effect::Reply(_)]),
        "{orders:?}"
    );
    let passed = 3 * LEASES - 1 - left(&server);
    assert!(
        (100..LEASES / 2).contains(&passed),
        "{passed} in one command"
    );
    let orders = server.acquire(4, "line");
    assert!(
        matches!(orders[..], [.., Effect::Reply(Reply::Null)]),
        "nobody passes who waits: {orders:?}"
    );
    let mut pushes = Vec::new();
    while server.engine.has_work(server.now) {
        let orders = server.tell(Event::Work { steps: 64 });
        pushes.extend(orders.into_iter().filter_map(|order| match order {
            Effect::Push { to, .. } => Some(to),
            _ => None,
        }));
    }
    assert_eq!(pushes, [[ClientId(3)]]);
    assert_eq!(&*server.engine.holders(key("line")), &[ClientId(3)]);
    server.engine.check_invariants();
}

#[test]
fn keys_that_are_only_held_need_no_look_after_an_exchange_of_databases() {
    let mut server = Server::default();
    for number in 0..LEASES {
        server.acquire(1, &name(number));
    }
    server.wait(2, "key:7", b"");
    let seen = KeySnapshot {
        key: key("watched"),
        state: KeyState::Absent,
    };
    let client = ClientId(3);
    server.tell(Event::Watch {
        client,
        seen: &[seen],
    });
    let (one, other) = (Db(0), Db(1));
    assert_eq!(server.tell(Event::Swapped { one, other }), []);
    let mut open = Vec::new();
    while let Some(key) = server.engine.next_stale_name(usize::MAX) {
        let seen = KeySnapshot {
            key: key.as_key(),
            state: KeyState::Absent,
        };
        let gone = Loss::Deleted;
        server.tell(Event::Found { seen, gone });
        open.push(key);
    }
    open.sort_unstable();
    assert_eq!(open, [key("key:7").to_owned(), key("watched").to_owned()]);
}

#[test]
fn a_session_that_ends_with_very_much_leaves_most_of_it_behind() {
    let mut server = Server::default();
    let client = ClientId(1);
    let (secret, digest, grace_ms) = (&b""[..], Digest([1; 32]), 0);
    server.tell(Event::Start(Start {
        client,
        secret,
        digest,
        grace_ms,
        user: b"",
    }));
    const MANY: usize = 3 * LEASES;
    for number in 0..MANY {
        server.acquire(1, &name(number));
    }
    let last = name(MANY - 1);
    server.wait(2, &last, b"");
    let later = false;
    let orders = server.tell(Event::EndSession { client, later });
    let reply = Effect::Reply(Reply::Integer(MANY as i64));
    assert_eq!(orders.last(), Some(&reply));
    assert_eq!(server.held(), MANY - 1000, "so much at once");
    // What is left is in nobody's way, and in the way to nobody.
    let orders = server.acquire(3, &name(MANY - 2));
    let is_granted = |order: &Effect| matches!(order, Effect::Reply(Reply::Integer(_)));
    assert!(orders.iter().any(is_granted), "{orders:?}");
    let released = server.tell(Event::Release {
        client,
        key: key(&name(MANY - 3)),
        label: b"",
        all: false,
    });
    assert!(matches!(released[..], [Effect::Reply(Reply::Refused(_))]));
    while server.engine.has_work(server.now) {
        server.tell(Event::Work { steps: 64 });
    }
    assert_eq!(&*server.engine.holders(key(&last)), &[ClientId(2)]);
    assert_eq!(server.held(), 2);
    server.engine.check_invariants();
}
