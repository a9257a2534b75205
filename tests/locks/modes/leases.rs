//! LEASE: holds that end by themselves, and LOCK.EXTEND.

use crate::harness::*;
use crate::line::*;
use std::time::{Duration, Instant};

fn lease_left(server: &Server, key: &str) -> Frame {
    let info = server.resp3().run(["LOCK.INFO", key]);
    field(&field(&info, "holders").items()[0], "lease-ms")
}

#[test]
fn a_lease_ends_by_itself_tells_its_holder_and_hands_over() {
    let server = Server::start();
    let (mut holder, mut waiter) = (server.resp3(), server.resp3());
    let first = holder.run("LOCK.ACQUIRE k LEASE 100000 NOTIFY").number();
    queue(&server, &mut waiter, "LOCK.ACQUIRE k WAIT 0");
    let begin = Instant::now();
    assert_eq!(holder.call("LOCK.EXTEND k 100"), int(1));
    let second = waiter.read_reply().number();
    assert!(begin.elapsed() >= Duration::from_millis(100));
    assert!(second > first);
    assert_eq!(holder.next_push(), "lock k LOST lease");
    assert!(holder.refused("LOCK.RELEASE k").starts_with("NOTHELD"));
    assert!(holder.refused("LOCK.EXTEND k 1000").starts_with("NOTHELD"));
    assert_eq!(holders(&server, "k"), [waiter.id()]);
    assert_eq!(lease_left(&server, "k"), null(), "it asked for none");
    assert_eq!(tether(&server, "lost_total"), 1);
    assert_eq!(server.settled(&mut holder), [""; 0]);
}

#[test]
fn a_lease_that_nobody_waits_for_takes_the_key_along() {
    let server = Server::start();
    let (mut holder, mut watcher) = (server.resp3(), server.resp3());
    watcher.run("WATCHEX k");
    let twice = ["100000", "30"].map(|ms| format!("LOCK.ACQUIRE k LEASE {ms} REENTRANT NOTIFY"));
    holder.run_all(&twice.each_ref().map(String::as_str));
    assert_eq!(watcher.next_pushes(2), ["watchex k ADD", "watchex k DEL"]);
    assert_eq!(holder.next_push(), "lock k LOST lease");
    assert_eq!(holder.call("EXISTS k"), int(0));
    assert_eq!(
        server.settled(&mut holder),
        [""; 0],
        "once, whatever the depth"
    );
    eventually_nothing_is_left(&server);
}

#[test]
fn a_resp2_holder_is_told_nothing() {
    let server = Server::start();
    let mut holder = server.resp2();
    holder.run("LOCK.ACQUIRE k LEASE 20");
    eventually_gone(&mut server.resp2(), "k");
    server.settle();
    assert_eq!(holder.call("PING"), simple("PONG"));
}

#[test]
fn extend_sets_the_lease_from_now() {
    let server = Server::start();
    let (mut holder, mut other) = (server.resp3(), server.resp3());
    holder.pipeline(&[
        "LOCK.ACQUIRE k LEASE 60 NOTIFY",
        "LOCK.ACQUIRE l LEASE 60 NOTIFY",
        "LOCK.EXTEND k 100000",
    ]);
    assert_eq!(holder.read_replies(3)[2], int(1));
    assert_eq!(holder.next_push(), "lock l LOST lease");
    assert_eq!(other.call("LOCK.ACQUIRE k"), null());
    let left = lease_left(&server, "k").number();
    assert!((90_000..=100_000).contains(&left), "{left}");
    // Shorter too, and for a hold without one.
    assert_eq!(holder.call("LOCK.EXTEND k 20"), int(1));
    assert_eq!(holder.next_push(), "lock k LOST lease");
    holder.run("LOCK.ACQUIRE m OWNER label NOTIFY");
    assert_eq!(lease_left(&server, "m"), null());
    assert_eq!(holder.call("LOCK.EXTEND m 20 OWNER label"), int(1));
    assert_eq!(holder.next_push(), "lock m LOST lease label");
    for request in ["LOCK.EXTEND k 0", "LOCK.EXTEND k -1", "LOCK.EXTEND k soon"] {
        assert!(holder.refused(request).starts_with("ERR "), "{request}");
    }
}

#[test]
fn taking_again_with_a_lease_renews_it_and_without_leaves_it() {
    let server = Server::start();
    let mut holder = server.resp3();
    holder.run_all(&[
        "LOCK.ACQUIRE k LEASE 50000 REENTRANT",
        "LOCK.ACQUIRE k REENTRANT",
    ]);
    let left = lease_left(&server, "k").number();
    assert!((40_000..=50_000).contains(&left), "{left}");
    holder.run("LOCK.ACQUIRE k LEASE 200000 REENTRANT");
    let left = lease_left(&server, "k").number();
    assert!((190_000..=200_000).contains(&left), "{left}");
}

#[test]
fn a_waiter_s_lease_begins_with_its_grant() {
    let server = Server::start();
    let (mut holder, mut waiter) = (server.resp3(), server.resp3());
    holder.run("LOCK.ACQUIRE k LEASE 100000 NOTIFY");
    queue_push(&mut waiter, "LOCK.ACQUIRE k LEASE 100 WAIT 0 PUSH");
    let asked = Instant::now();
    holder.run("LOCK.EXTEND k 150");
    assert_eq!(holder.next_push(), "lock k LOST lease");
    assert!(waiter.next_push().starts_with("lock k "));
    assert_eq!(waiter.next_push(), "lock k LOST lease");
    assert!(asked.elapsed() >= Duration::from_millis(250));
    assert_eq!(waiter.call("EXISTS k"), int(0));
}

#[test]
fn of_several_readers_only_the_leased_one_ends() {
    let server = Server::start();
    let (mut leased, mut other) = (server.resp3(), server.resp3());
    leased.run("LOCK.ACQUIRE k SHARED LEASE 100000 NOTIFY");
    other.run("LOCK.ACQUIRE k SHARED NOTIFY");
    leased.run("LOCK.ACQUIRE s PERMITS 2 OF 3 LEASE 100000 NOTIFY");
    let mut waiter = server.resp3();
    queue(&server, &mut waiter, "LOCK.ACQUIRE s PERMITS 2 OF 3 WAIT 0");
    leased.run_all(&["LOCK.EXTEND k 40", "LOCK.EXTEND s 40"]);
    let mut told = leased.next_pushes(2);
    told.sort();
    assert_eq!(told, ["lock k LOST lease", "lock s LOST lease"]);
    waiter.read_reply().number();
    assert_eq!(holders(&server, "k"), [other.id()]);
    assert_eq!(holders(&server, "s"), [waiter.id()]);
}

#[test]
fn all_the_keys_of_one_request_end_together() {
    in_time(|ms| {
        let server = Server::start();
        let (mut holder, mut waiter) = (server.resp3(), server.resp3());
        holder.run(&format!("LOCK.MACQUIRE 3 a b c LEASE {ms} NOTIFY"));
        let waits = stands_in_line(&server, &mut waiter, "LOCK.MACQUIRE 3 c b a WAIT 0");
        let mut told = holder.next_pushes(3);
        told.sort();
        assert_eq!(
            told,
            [
                "lock a LOST lease",
                "lock b LOST lease",
                "lock c LOST lease"
            ]
        );
        waiter.read_reply().number();
        assert_eq!(server.settled(&mut holder), [""; 0]);
        waits.then_some(())
    });
}

#[test]
fn a_released_lease_never_tells_of_a_loss() {
    let server = Server::start();
    let mut holder = server.resp3();
    holder.pipeline(&["LOCK.ACQUIRE k LEASE 60 NOTIFY", "LOCK.RELEASE k"]);
    assert_eq!(holder.read_replies(2)[1], int(0));
    holder.run_all(&["LOCK.ACQUIRE k NOTIFY", "LOCK.ACQUIRE l LEASE 70 NOTIFY"]);
    assert_eq!(holder.next_push(), "lock l LOST lease");
    assert_eq!(server.settled(&mut holder), [""; 0]);
    assert_eq!(holders(&server, "k"), [holder.id()]);
}

#[test]
fn a_lease_that_ends_while_writes_are_paused_ends_afterwards() {
    let server = Server::start();
    let (mut holder, mut waiter) = (server.resp3(), server.resp3());
    let mut other = server.resp3();
    holder.run("LOCK.ACQUIRE k LEASE 100000 NOTIFY");
    queue(&server, &mut waiter, "LOCK.ACQUIRE k WAIT 0");
    holder.pipeline(&["LOCK.EXTEND k 100", "CLIENT PAUSE 100000 WRITE"]);
    assert_eq!(holder.read_replies(2), [int(1), ok()]);
    let begin = Instant::now();
    eventually("the lease's time", || match begin.elapsed() {
        passed if passed > Duration::from_millis(150) => Ok(()),
        passed => Err(format!("{passed:?}")),
    });
    assert_eq!(other.call("EXISTS k"), int(1));
    assert_eq!(tether(&server, "waiters"), 1);
    other.run("CLIENT UNPAUSE");
    waiter.read_reply().number();
    assert_eq!(holder.next_push(), "lock k LOST lease");
}

#[test]
fn the_longest_times_are_not_short_ones() {
    let server = Server::start();
    let (mut holder, mut waiter) = (server.resp3(), server.resp3());
    let longest = (1_u64 << 53) - 1;
    holder.run(&format!("LOCK.ACQUIRE k LEASE {longest} NOTIFY"));
    queue_push(&mut waiter, &format!("LOCK.ACQUIRE k WAIT {longest} PUSH"));
    let mut other = server.resp3();
    queue_push(&mut other, &format!("SETTP k v WAIT {longest} PUSH"));
    assert_eq!(server.settled(&mut other), [""; 0]);
    assert_eq!(server.settled(&mut waiter), [""; 0]);
    assert_eq!(holder.call(&format!("LOCK.EXTEND k {longest}")), int(1));
    assert!(lease_left(&server, "k").number() > 1 << 52);
    for request in [
        format!("LOCK.ACQUIRE k LEASE {} NOTIFY", longest + 1),
        format!("LOCK.ACQUIRE k WAIT {}", u64::MAX),
        format!("LOCK.EXTEND k {}0", u64::MAX),
    ] {
        assert!(holder.refused(&request).starts_with("ERR "), "{request}");
    }
    assert_eq!(server.settled(&mut holder), [""; 0]);
    assert_eq!(holder.call("LOCK.RELEASE k"), int(0));
    assert!(waiter.next_push().starts_with("lock k "));
}
