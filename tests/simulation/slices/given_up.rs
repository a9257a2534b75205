//! Very many places in queues that are given up at once.

use super::*;

const MANY: usize = 3 * LEASES;

fn request<'a>(
    who: u64,
    seen: &'a [KeySnapshot<'a>],
    reentrant: bool,
    wait: Option<Wait>,
) -> Acquire<'a> {
    Acquire {
        client: ClientId(who),
        seen,
        terms: Terms {
            attributes: Attributes {
                reentrant,
                ..Attributes::default()
            },
            ..Terms::of(Mode::Exclusive)
        },
        value: b"",
        wait,
        form: Form::Lock,
        in_command: true,
    }
}

const FOR_EVER: Wait = Wait {
    limit_ms: None,
    push: true,
};

fn cancel(who: u64, name: &str) -> Event<'_> {
    Event::Cancel {
        client: ClientId(who),
        key: key(name),
        label: b"",
    }
}

fn release(who: u64, name: &str) -> Event<'_> {
    Event::Release {
        client: ClientId(who),
        key: key(name),
        label: b"",
        all: false,
    }
}

/// The slices until nothing fades. In none of them anybody is told of anything.
fn fade(server: &mut Server) -> usize {
    let mut slices = 0;
    while server.engine.is_fading() {
        assert_eq!(server.tell(Event::Fade { most: 64 }), []);
        slices += 1;
    }
    slices
}

fn pushed_to(orders: &[Effect]) -> Vec<u64> {
    let to = orders.iter().filter_map(|order| match order {
        Effect::Push { to, .. } => Some(to[0].0),
        _ => None,
    });
    to.collect()
}

#[test]
fn very_many_requests_of_one_owner_for_one_key_are_cancelled_in_slices() {
    let mut server = Server::default();
    server.acquire(1, "k");
    let standing = KeyState::Lock;
    let seen = &[KeySnapshot {
        key: key("k"),
        standing,
    }];
    for _ in 0..MANY {
        server.tell(Event::Acquire(request(2, seen, true, Some(FOR_EVER))));
    }
    server.wait(3, "k", b"");
    let orders = server.tell(cancel(2, "k"));
    assert_eq!(orders, [Effect::Reply(Reply::Integer(1))]);
    assert_eq!(server.engine.gauges().waiters, 1, "it waits no longer");
    let left = server.engine.fading();
    assert!(left > MANY / 2, "{left} fade");
    assert_eq!(
        server.tell(cancel(2, "k")),
        [Effect::Reply(Reply::Integer(0))]
    );
    // It may wait anew, and has its place behind the other one.
    server.tell(Event::Acquire(request(2, seen, true, Some(FOR_EVER))));
    assert_eq!(server.engine.gauges().waiters, 2);
    server.engine.check_invariants();
    let left = server.engine.fading();
    assert_eq!(fade(&mut server), left.div_ceil(64));
    let orders = server.tell(release(1, "k"));
    assert_eq!(pushed_to(&orders), [3]);
    assert_eq!(pushed_to(&server.tell(release(3, "k"))), [2]);
    server.tell(release(2, "k"));
    server.tell(Event::Work { most: 64 });
    assert!(server.engine.is_idle());
}

/// A server where somebody holds the first one of very many keys, another one has a place in the queues of all, and a third
/// one waits behind it for the last.
fn with_a_request_for_very_many_keys(wait: Wait) -> Server {
    let mut server = Server::default();
    server.acquire(1, "key:0");
    let names: Vec<_> = (0..MANY).map(name).collect();
    let seen: Vec<_> = (names.iter().enumerate())
        .map(|(number, name)| KeySnapshot {
            key: key(name),
            standing: match number {
                0 => KeyState::Lock,
                _ => KeyState::Absent,
            },
        })
        .collect();
    server.tell(Event::Acquire(request(2, &seen, false, Some(wait))));
    server.wait(3, &names[MANY - 1], b"");
    server
}

fn others_go_on(mut server: Server) {
    assert_eq!(server.engine.gauges().waiters, 1);
    server.engine.check_invariants();
    let last = name(MANY - 1);
    let mut slices = 0;
    let mut told = Vec::new();
    while server.engine.has_work(server.now) || server.engine.is_fading() {
        assert!(slices <= 2 * MANY / 64, "it comes to an end");
        told.extend(pushed_to(&server.tell(Event::Work { most: 64 })));
        slices += 1;
    }
    assert!(slices >= MANY / 64, "{slices} slices");
    assert_eq!(told, [3]);
    server.engine.check_invariants();
    server.tell(release(3, &last));
    server.tell(release(1, "key:0"));
    assert!(server.engine.is_idle());
}

#[test]
fn a_request_for_very_many_keys_is_cancelled_in_slices() {
    let mut server = with_a_request_for_very_many_keys(FOR_EVER);
    let last = name(MANY - 1);
    let orders = server.tell(cancel(2, &last));
    assert_eq!(orders, [Effect::Reply(Reply::Integer(1))]);
    assert!(server.engine.fading() > 0);
    others_go_on(server);
}

#[test]
fn the_time_of_a_request_for_very_many_keys_is_over() {
    let limit_ms = Some(10);
    let mut server = with_a_request_for_very_many_keys(Wait {
        limit_ms,
        push: true,
    });
    server.now = server.now.after_ms(10);
    let orders = server.tell(Event::Tick);
    assert_eq!(pushed_to(&orders), [2], "once, by the name of the first");
    assert_eq!(server.tell(Event::Tick), []);
    assert!(server.engine.fading() > 0);
    others_go_on(server);
}

#[test]
fn a_connection_that_is_blocked_for_very_many_keys_is_unblocked() {
    let (limit_ms, push) = (None, false);
    let mut server = with_a_request_for_very_many_keys(Wait { limit_ms, push });
    let client = ClientId(2);
    let orders = server.tell(Event::Unblocked { client });
    assert_eq!(orders, [Effect::Reply(Reply::Null)]);
    assert!(server.engine.fading() > 0);
    others_go_on(server);
}

#[test]
fn a_connection_ends_that_asked_for_very_many_keys() {
    let mut server = with_a_request_for_very_many_keys(FOR_EVER);
    let client = ClientId(2);
    assert_eq!(server.tell(Event::Ended { client }), []);
    others_go_on(server);
}

#[test]
fn who_has_given_up_very_many_requests_is_in_nobodys_way() {
    let mut server = with_a_request_for_very_many_keys(FOR_EVER);
    server.tell(cancel(2, "key:0"));
    // Of each key in between it was the first in line, and nobody is behind it.
    let orders = server.acquire(4, "key:7");
    let is_granted = |order: &Effect| matches!(order, Effect::Reply(Reply::Integer(_)));
    assert!(orders.iter().any(is_granted), "{orders:?}");
    server.tell(release(4, "key:7"));
    let orders = server.tell(release(1, "key:0"));
    assert_eq!(pushed_to(&orders), [0_u64; 0]);
    server.acquire(1, "key:0");
    others_go_on(server);
}
