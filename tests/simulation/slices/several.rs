//! Requests for very many keys each that can be granted at the same time.

use super::*;

/// Keys of one request.
const KEYS: usize = 300;
const REQUESTS: usize = 20;

fn first(request: usize) -> String {
    format!("{request}:0")
}

/// Somebody holds the first key of each of these requests, which a second one waits for; a third one waits behind it for
/// the last key of each.
fn with_requests(mode: Mode, lease_ms: Option<u64>) -> Server {
    let mut server = Server::default();
    for request in 0..REQUESTS {
        let what = What {
            mode,
            lease_ms,
            waits: true,
            ..EXCLUSIVE
        };
        // Only a lock can be waited for by a request for locks; a temporary key comes after it.
        server.acquire(9, &first(request));
        server.request(1, &first(request), what);
        let names: Vec<_> = (0..KEYS).map(|n| format!("{request}:{n}")).collect();
        let seen: Vec<_> = (names.iter().enumerate())
            .map(|(n, name)| KeySnapshot {
                key: key(name),
                state: match n {
                    0 => KeyState::Lock,
                    _ => KeyState::Absent,
                },
            })
            .collect();
        server.tell(Event::Acquire(Acquire {
            client: ClientId(2),
            seen: &seen,
            terms: Terms::of(Mode::Exclusive),
            value: b"",
            wait: Some(Wait {
                limit_ms: None,
                push: true,
            }),
            form: Form::Locks,
            in_command: true,
        }));
        server.wait(3, &names[KEYS - 1], b"");
        server.tell(Event::Release {
            client: ClientId(9),
            key: key(&first(request)),
            label: b"",
            all: false,
        });
    }
    server
}

fn granted(orders: &[Effect]) -> usize {
    let is_push =
        |order: &&Effect| matches!(order, Effect::Push { to, .. } if to[..] == [ClientId(2)]);
    orders.iter().filter(is_push).count()
}

/// All of them are granted, one in each slice, and nobody passes them.
fn others_follow_in_slices(mut server: Server, mut served: usize) {
    assert_eq!(served, 1, "in one step");
    let passes = server.acquire(4, &first(REQUESTS - 1));
    assert!(
        matches!(passes[..], [.., Effect::Reply(Reply::Null)]),
        "{passes:?}"
    );
    while served < REQUESTS {
        assert!(server.engine.has_work(server.now), "{served}");
        let orders = server.tell(Event::Work { steps: 64 });
        assert!(granted(&orders) <= 1, "{} in one slice", granted(&orders));
        served += granted(&orders);
    }
    while server.engine.has_work(server.now) {
        assert_eq!(granted(&server.tell(Event::Work { steps: 64 })), 0);
    }
    assert_eq!(server.held(), REQUESTS * KEYS);
    assert_eq!(server.engine.gauges().waiters, REQUESTS, "the third one");
    server.engine.check_invariants();
}

#[test]
fn one_command_that_makes_room_for_them_grants_the_first() {
    let mut server = with_requests(Mode::Temporary, None);
    let names: Vec<_> = (0..REQUESTS).map(first).collect();
    let keys: Vec<_> = names.iter().map(|name| key(name)).collect();
    let (client, keys) = (ClientId(1), &*keys);
    let orders = server.tell(Event::Drop { client, keys });
    let deleted = Reply::Integer(REQUESTS as i64);
    assert_eq!(orders.last(), Some(&Effect::Reply(deleted)));
    others_follow_in_slices(server, granted(&orders));
}

#[test]
fn a_connection_ends_that_held_the_first_of_each() {
    let mut server = with_requests(Mode::Exclusive, None);
    let client = ClientId(1);
    assert_eq!(server.tell(Event::Ended { client }), []);
    let orders = server.tell(Event::Work { steps: 64 });
    others_follow_in_slices(server, granted(&orders));
}

#[test]
fn the_leases_on_the_first_of_each_are_over() {
    let mut server = with_requests(Mode::Exclusive, Some(10));
    server.now = server.now.after_ms(10);
    let orders = server.tell(Event::Work { steps: 64 });
    others_follow_in_slices(server, granted(&orders));
}

#[test]
fn the_first_of_each_are_deleted() {
    let mut server = with_requests(Mode::Exclusive, None);
    for request in 0..REQUESTS {
        server.tell(Event::Gone {
            key: key(&first(request)),
            by: Cause::Server,
            why: Loss::Deleted,
        });
    }
    let orders = server.tell(Event::Work { steps: 64 });
    others_follow_in_slices(server, granted(&orders));
}
