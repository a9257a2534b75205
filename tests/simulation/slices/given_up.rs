//! Requests for as many keys as one may name, whose places in queues are all left at once.

use super::*;

/// So many keys one request may name.
const MANY: usize = 1024;

fn request<'a>(who: u64, seen: &'a [KeySnapshot<'a>], wait: Wait) -> Acquire<'a> {
    Acquire {
        client: ClientId(who),
        seen,
        terms: Terms::of(Mode::Exclusive),
        value: b"",
        wait: Some(wait),
        form: Form::Locks,
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

fn pushed_to(orders: &[Effect]) -> Vec<u64> {
    let to = orders.iter().filter_map(|order| match order {
        Effect::Push { to, .. } => Some(to[0].0),
        _ => None,
    });
    to.collect()
}

/// A server where somebody holds the first one of very many keys, and others have places in the queues of all.
fn with_requests_for_very_many_keys(who: impl IntoIterator<Item = u64>, wait: Wait) -> Server {
    let mut server = Server::default();
    server.acquire(1, "key:0");
    let names: Vec<_> = (0..MANY).map(name).collect();
    let seen: Vec<_> = (names.iter().enumerate())
        .map(|(number, name)| KeySnapshot {
            key: key(name),
            state: match number {
                0 => KeyState::Lock,
                _ => KeyState::Absent,
            },
        })
        .collect();
    for who in who {
        server.tell(Event::Acquire(request(who, &seen, wait)));
    }
    server
}

/// The same with one of them, behind which a third one waits for the last key.
fn with_a_request_for_very_many_keys(wait: Wait) -> Server {
    let mut server = with_requests_for_very_many_keys([2], wait);
    server.wait(3, &name(MANY - 1), b"");
    server
}

/// Nothing is left of the request but what its keys' next waiters are to be granted.
fn others_go_on(mut server: Server) {
    assert_eq!(server.engine.gauges().waiters, 1);
    assert!(!server.engine.has_dead_waits());
    server.engine.check_invariants();
    assert_eq!(pushed_to(&server.tell(Event::Work { steps: 64 })), [3]);
    assert!(!server.engine.has_work(server.now));
    server.tell(release(3, &name(MANY - 1)));
    server.tell(release(1, "key:0"));
    assert!(server.engine.is_idle());
}

#[test]
fn a_request_for_very_many_keys_is_cancelled() {
    let mut server = with_a_request_for_very_many_keys(FOR_EVER);
    let last = name(MANY - 1);
    let orders = server.tell(cancel(2, &last));
    assert_eq!(orders, [Effect::Reply(Reply::Integer(1))]);
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
    others_go_on(server);
}

#[test]
fn a_connection_that_is_blocked_for_very_many_keys_is_unblocked() {
    let (limit_ms, push) = (None, false);
    let mut server = with_a_request_for_very_many_keys(Wait { limit_ms, push });
    let client = ClientId(2);
    let orders = server.tell(Event::Unblocked { client });
    assert_eq!(orders, [Effect::Reply(Reply::Null)]);
    others_go_on(server);
}

#[test]
fn a_connection_ends_that_asked_for_very_many_keys() {
    let mut server = with_a_request_for_very_many_keys(FOR_EVER);
    let client = ClientId(2);
    assert_eq!(server.tell(Event::Ended { client }), []);
    assert_eq!(server.tell(Event::Reap { steps: 64 }), []);
    others_go_on(server);
}

#[test]
fn who_has_given_up_a_request_for_very_many_keys_is_in_nobodys_way() {
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

/// In one step, those of few.
#[test]
fn no_step_leaves_the_places_of_many_ended_connections() {
    const WAITERS: u64 = 20;
    let all = 10..10 + WAITERS;
    let steps: [fn() -> Event<'static>; 4] = [
        || Event::Reap { steps: 64 },
        || Event::Work { steps: 64 },
        || release(1, "key:0"),
        || Event::Tick,
    ];
    for step in steps {
        let limit_ms = Some(10);
        let wait = Wait {
            limit_ms,
            push: true,
        };
        let mut server = with_requests_for_very_many_keys(all.clone(), wait);
        for client in all.clone().map(ClientId) {
            server.tell(Event::Ended { client });
        }
        server.now = server.now.after_ms(10);
        assert_eq!(server.engine.dead_waits(), WAITERS as usize);
        server.tell(step());
        let left = server.engine.dead_waits();
        assert!(left >= WAITERS as usize - 2, "{left} are left");
        server.engine.check_invariants();
        let mut slices = 0;
        while server.engine.has_dead_waits() {
            server.tell(Event::Work { steps: 64 });
            slices += 1;
        }
        assert!(slices > WAITERS / 2, "{slices} slices");
        server.tell(release(1, "key:0"));
        while server.engine.has_work(server.now) {
            server.tell(Event::Work { steps: 64 });
        }
        assert!(server.engine.is_idle());
    }
}
