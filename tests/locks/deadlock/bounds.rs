//! How much is looked at for a cycle is bounded, and what is found within the bound is found.

use super::assert_deadlock;
use crate::harness::*;
use crate::line::*;

/// More than a search looks at.
const MANY: usize = 5_000;

/// Tasks of one connection that all wait for this key, which another one holds.
fn crowd(server: &Server, key: &str) -> Client {
    let mut tasks = server.resp3();
    let requests: Vec<_> = (0..MANY)
        .map(|n| format!("LOCK.ACQUIRE {key} OWNER task-{n} WAIT 0 PUSH"))
        .collect();
    let requests: Vec<_> = requests.iter().map(String::as_str).collect();
    tasks.pipeline(&requests);
    for reply in tasks.read_replies(MANY) {
        assert_eq!(reply, null());
    }
    tasks
}

#[test]
fn a_circle_is_refused_though_thousands_wait_for_one_of_its_keys() {
    let server = Server::start();
    let (mut one, mut two) = (server.resp3(), server.resp3());
    let ids = [one.id(), two.id()];
    one.run("LOCK.ACQUIRE apple");
    two.run("LOCK.ACQUIRE pear");
    let _tasks = crowd(&server, "apple");
    queue(&server, &mut two, "LOCK.ACQUIRE apple WAIT 0");
    assert_deadlock(
        &mut one,
        "LOCK.ACQUIRE pear WAIT 0",
        &["apple", "pear"],
        &ids,
    );
    assert_eq!(tether(&server, "deadlock_searches_cut_total"), 0);
    // Behind all of them the cycle is the same, and so is the answer.
    let _more = crowd(&server, "pear");
    assert_deadlock(
        &mut one,
        "LOCK.ACQUIRE pear WAIT 0",
        &["apple", "pear"],
        &ids,
    );
    assert_eq!(tether(&server, "deadlocks_refused_total"), 2);
}

#[test]
fn what_is_too_much_to_look_at_waits_and_is_counted() {
    let server = Server::start();
    let (mut one, mut two, mut free) = (server.resp3(), server.resp3(), server.resp3());
    let id = one.id().to_string();
    one.run("LOCK.ACQUIRE apple");
    free.run("LOCK.ACQUIRE pear");
    let _tasks = crowd(&server, "pear");
    queue(&server, &mut two, "LOCK.ACQUIRE apple WAIT 0");
    queue(&server, &mut one, "LOCK.ACQUIRE pear WAIT 0");
    assert_eq!(tether(&server, "deadlock_searches_cut_total"), 1);
    assert_eq!(tether(&server, "deadlocks_refused_total"), 0);
    // It waits like any other.
    assert_eq!(waiters(&server, "apple").len(), 1);
    assert_eq!(free.call(["CLIENT", "UNBLOCK", &id]), int(1));
    assert_eq!(one.read_reply(), null());
}
