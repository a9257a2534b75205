//! Many at once: a thousand waiters, and an owner of many keys.

use crate::harness::*;
use crate::line::*;

const WAITERS: usize = 1000;

/// So many connections that wait for `k`, in the order in which the server has them.
fn thousand_in_line(server: &Server) -> Vec<Client> {
    let mut waiting: Vec<_> = (0..WAITERS)
        .map(|_| {
            let mut waiter = server.resp3();
            (waiter.id(), waiter)
        })
        .collect();
    let mut sent = 0;
    // Some at a time: Redis 8 stops a thread for each that it takes over from it, and answers nobody else until all are.
    for some in waiting.chunks_mut(50) {
        for (id, waiter) in &mut *some {
            waiter.send(["SETTP", "k", &format!("of {id}"), "WAIT", "0"]);
        }
        sent += some.len() as i64;
        eventually_equal("waiters", sent, || tether(server, "waiters"));
    }
    let line = waiters(server, "k");
    waiting.sort_by_key(|(id, _)| line.iter().position(|other| other == id));
    waiting.into_iter().map(|(_, waiter)| waiter).collect()
}

#[test]
fn after_flushall_one_of_a_thousand_is_granted_and_the_others_in_turn() {
    let server = Server::start();
    let (mut owner, mut other) = (server.resp3(), server.resp2());
    owner.run("SETTP k mine NOTIFY");
    let waiting = thousand_in_line(&server);
    other.pipeline(&["FLUSHALL", "SETTP k stolen NOTIFY"]);
    assert_eq!(other.read_replies(2), [ok(), int(0)]);
    assert_eq!(owner.next_push(), "settp k LOST flushed");
    for (served, mut waiter) in waiting.into_iter().enumerate() {
        assert_eq!(waiter.read_reply(), int(1), "number {served}");
        let id = waiter.id();
        assert_eq!(other.call("GET k"), bulk(format!("of {id}")));
        assert_eq!(
            tether(&server, "waiters"),
            (WAITERS - served - 1) as i64,
            "nobody else was answered"
        );
        if served % 3 == 0 {
            drop(waiter);
        } else {
            assert_eq!(waiter.call("DELTP k"), int(1), "number {served}");
        }
    }
    eventually_nothing_is_left(&server);
    assert_eq!(other.call("DBSIZE"), int(0));
    assert_eq!(tether(&server, "grants_total"), 1 + WAITERS as i64);
}

#[test]
fn a_thousand_deaths_in_line_leave_nothing() {
    let server = Server::start().over_tcp();
    let (mut owner, mut last) = (server.resp3(), server.resp3());
    owner.run("SETTP k mine");
    let waiting = thousand_in_line(&server);
    queue(&server, &mut last, "SETTP k last WAIT 0");
    for (n, waiter) in waiting.into_iter().enumerate() {
        if n % 2 == 0 {
            drop(waiter);
        } else {
            waiter.reset();
        }
    }
    owner.run("DELTP k");
    assert_eq!(last.read_reply(), int(1));
    assert_eq!(last.call("GET k"), bulk("last"));
    assert_eq!(last.call("DELTP k"), int(1));
    eventually_nothing_is_left(&server);
}

#[test]
fn a_key_whose_dead_owner_has_too_many_to_remove_at_once_is_refused_to_nobody() {
    const KEYS: usize = 200_000;
    let server = Server::with(&[&format!("tether.max-keys-per-client {KEYS}")]);
    let (mut owner, mut other) = (server.resp2(), server.resp3());
    let id = owner.id();
    owner.run_many((0..KEYS).map(|n| format!("SETTP key:{n} v")));
    let mut waiter = server.resp3();
    queue_push(&mut waiter, "SETTP key:199900 next WAIT 0 PUSH");
    other.pipeline(&[
        &format!("CLIENT KILL ID {id}"),
        "SETTP key:199999 mine",
        "SETTP key:199998 mine WAIT 0",
        "LOCK.ACQUIRE key:199997",
        "LOCK.ACQUIRE key:199996 SHARED WAIT 0",
        "LOCK.MACQUIRE 2 key:199995 key:199994",
        "SETTP key:199900 stolen",
    ]);
    let replies = other.read_replies(7);
    assert_eq!(replies[1..3], [int(1), int(1)]);
    for reply in &replies[3..6] {
        assert!(matches!(reply, Frame::Integer(_)), "{replies:?}");
    }
    assert_eq!(replies[6], int(0), "somebody waits for it");
    assert!(waiter.next_push().starts_with("settp key:199900 "));
    eventually_equal("keys", 7, || other.run("DBSIZE").number());
    assert_eq!(other.call("GET key:199999"), bulk("mine"));
    assert_eq!(waiter.call("GET key:199900"), bulk("next"));
}
