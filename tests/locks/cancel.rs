//! LOCK.CANCEL: giving up a place in line, or hearing that the grant was quicker.

mod races;

use crate::harness::*;
use crate::line::*;

/// A server, and who holds `k` there by this request.
fn held(by: &str) -> (Server, Client) {
    let server = Server::start();
    let mut holder = server.resp3();
    holder.run(by);
    (server, holder)
}

#[test]
fn a_place_is_given_up_and_nothing_is_heard_of_it() {
    for request in [
        "LOCK.ACQUIRE k WAIT 0 PUSH",
        "LOCK.ACQUIRE k SHARED WAIT 100000 PUSH",
        "LOCK.ACQUIRE k PERMITS 1 OF 2 LEASE 5 WAIT 0 PUSH",
        "LOCK.MACQUIRE 2 other k WAIT 0 PUSH",
        "SETTP k v WAIT 0 PUSH",
    ] {
        let (server, mut holder) = held("LOCK.ACQUIRE k NOTIFY");
        let (mut waiter, mut next) = (server.resp3(), server.resp3());
        queue_push(&mut waiter, request);
        queue_push(&mut next, "SETTP k v WAIT 0 PUSH");
        assert_eq!(waiter.call("LOCK.CANCEL k"), int(1), "{request}");
        assert_eq!(waiter.call("LOCK.CANCEL k"), int(0), "{request}");
        assert_eq!(waiters(&server, "k"), [next.id()], "{request}");
        assert_eq!(waiters(&server, "other"), [0; 0], "{request}");
        holder.run("LOCK.RELEASE k");
        assert!(next.next_push().starts_with("settp k "), "{request}");
        assert_eq!(server.settled(&mut waiter), [""; 0], "{request}");
    }
}

#[test]
fn a_place_that_was_given_up_is_not_heard_of_when_its_time_is_over() {
    in_time(|ms| {
        let (server, _holder) = held("LOCK.ACQUIRE k");
        let (mut waiter, mut later) = (server.resp3(), server.resp3());
        queue_push(&mut waiter, &format!("LOCK.ACQUIRE k WAIT {ms} PUSH"));
        let is_given_up = waiter.call("LOCK.CANCEL k") == int(1);
        queue_push(&mut later, &format!("LOCK.ACQUIRE k WAIT {ms} PUSH"));
        assert_eq!(later.next_push(), "lock k TIMEOUT");
        let heard = server.settled(&mut waiter);
        is_given_up.then(|| assert_eq!(heard, [""; 0]))
    });
}

#[test]
fn those_behind_are_served() {
    let (server, _holder) = held("LOCK.ACQUIRE k SHARED");
    let (mut writer, mut reader) = (server.resp3(), server.resp3());
    queue_push(&mut writer, "LOCK.ACQUIRE k WAIT 0 PUSH");
    queue_push(&mut reader, "LOCK.ACQUIRE k SHARED WAIT 0 PUSH");
    assert_eq!(writer.call("LOCK.CANCEL k"), int(1));
    assert!(reader.next_push().starts_with("lock k "));
}

#[test]
fn only_the_places_of_this_owner_and_this_key_are_given_up() {
    let (server, mut holder) = held("LOCK.ACQUIRE k");
    holder.run("LOCK.ACQUIRE l");
    let (mut waiter, mut other) = (server.resp3(), server.resp3());
    queue_push(&mut other, "LOCK.ACQUIRE k WAIT 0 PUSH");
    for label in ["", " OWNER one", " OWNER two"] {
        queue_push(&mut waiter, &format!("LOCK.ACQUIRE k{label} WAIT 0 PUSH"));
    }
    queue_push(&mut waiter, "LOCK.ACQUIRE l OWNER one WAIT 0 PUSH");
    assert_eq!(waiter.call("LOCK.CANCEL k OWNER nobody"), int(0));
    assert_eq!(waiter.call("LOCK.CANCEL k OWNER one"), int(1));
    let id = waiter.id();
    assert_eq!(waiters(&server, "k"), [other.id(), id, id]);
    assert_eq!(waiters(&server, "l"), [id]);
    assert_eq!(waiter.call("LOCK.CANCEL k"), int(1));
    holder.run("LOCK.RELEASE k");
    assert!(other.next_push().starts_with("lock k "));
    other.run("LOCK.RELEASE k");
    let token = token_of(&server, "k");
    assert_eq!(waiter.next_push(), format!("lock k {token} two"));
    assert_eq!(waiter.call("LOCK.CANCEL k OWNER two"), int(token));
}

#[test]
fn what_an_owner_holds_is_told_with_its_token() {
    let (server, mut holder) = held("LOCK.ACQUIRE k OWNER me");
    let token = token_of(&server, "k");
    assert_eq!(holder.call("LOCK.CANCEL k OWNER me"), int(token));
    assert_eq!(holder.call("LOCK.CANCEL k"), int(0));
    assert_eq!(server.resp3().call("LOCK.CANCEL k OWNER me"), int(0));
    let token = holder.run("SETTP t v TOKEN");
    assert_eq!(holder.call("LOCK.CANCEL t"), token);
    assert_eq!(holder.call("LOCK.CANCEL t OWNER me"), int(0));
    assert_eq!(holder.call("LOCK.CANCEL nothing"), int(0));
    assert_eq!(holder.call("EXISTS k t"), int(2));
    holder.run_all(&["DEL t", "LOCK.RELEASE k OWNER me"]);
    assert_eq!(holder.call("LOCK.CANCEL t"), int(0));
    assert_eq!(holder.call("LOCK.CANCEL k OWNER me"), int(0));
}

#[test]
fn a_resumed_session_hears_what_it_holds() {
    let server = Server::start();
    let mut client = server.resp3();
    let secret = client.run("SESSION.START").text();
    let lock = client.run("LOCK.ACQUIRE k OWNER me");
    let key = client.run("SETTP t v TOKEN");
    quit(&server, client);
    let mut again = server.resp3();
    assert_eq!(again.call("LOCK.CANCEL k OWNER me"), int(0));
    again.run(format!("SESSION.RESUME {secret}").as_str());
    assert_eq!(again.call("LOCK.CANCEL k OWNER me"), lock);
    assert_eq!(again.call("LOCK.CANCEL t"), key);
    assert_eq!(again.call("LOCK.CANCEL k"), int(0));
}

#[test]
fn in_a_transaction_it_tells_the_same() {
    let (server, mut holder) = held("LOCK.ACQUIRE k NOTIFY");
    let mut waiter = server.resp3();
    queue_push(&mut waiter, "LOCK.ACQUIRE k WAIT 0 PUSH");
    waiter.run_all(&["MULTI", "LOCK.CANCEL k", "LOCK.CANCEL k"]);
    assert_eq!(waiter.call("EXEC"), array([int(1), int(0)]));
    let token = token_of(&server, "k");
    holder.run_all(&["MULTI", "LOCK.CANCEL k", "LOCK.RELEASE k", "LOCK.CANCEL k"]);
    assert_eq!(holder.call("EXEC"), array([int(token), int(0), int(0)]));
    assert_eq!(server.settled(&mut waiter), [""; 0]);
}

#[test]
fn deltp_gives_up_waits_for_temporary_keys_only() {
    let (server, mut holder) = held("LOCK.ACQUIRE k");
    let mut waiter = server.resp3();
    queue_push(&mut waiter, "LOCK.ACQUIRE k WAIT 0 PUSH");
    queue_push(&mut waiter, "LOCK.ACQUIRE k OWNER one WAIT 0 PUSH");
    queue_push(&mut waiter, "LOCK.MACQUIRE 2 k l OWNER two WAIT 0 PUSH");
    assert_eq!(waiter.call("DELTP k l"), int(0));
    assert_eq!(waiters(&server, "k").len(), 3);
    assert_eq!(waiters(&server, "l").len(), 1);
    let mut other = server.resp3();
    queue_push(&mut other, "SETTP k v WAIT 0 PUSH");
    assert_eq!(other.call("DELTP k"), int(0));
    assert_eq!(waiters(&server, "k").len(), 3);
    holder.run("LOCK.RELEASE k");
    assert!(waiter.next_push().starts_with("lock k "));
}

#[test]
fn it_works_where_the_server_refuses_to_write() {
    for (hindrance, goes_on) in [
        (
            "CONFIG SET min-replicas-to-write 1",
            "CONFIG SET min-replicas-to-write 0",
        ),
        ("CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
        ("CLIENT PAUSE 100000 WRITE", "CLIENT UNPAUSE"),
    ] {
        let (server, _holder) = held("LOCK.ACQUIRE k SHARED");
        let (mut waiter, mut reader, mut other) = (server.resp3(), server.resp3(), server.resp3());
        let token = waiter.run("LOCK.ACQUIRE mine").number();
        queue_push(&mut waiter, "LOCK.ACQUIRE k WAIT 0 PUSH");
        queue_push(&mut reader, "LOCK.ACQUIRE k SHARED WAIT 0 PUSH");
        other.run(hindrance);
        assert_eq!(waiter.call("LOCK.CANCEL k"), int(1), "{hindrance}");
        assert_eq!(waiter.call("LOCK.CANCEL mine"), int(token), "{hindrance}");
        other.run(goes_on);
        assert!(reader.next_push().starts_with("lock k "), "{hindrance}");
    }
}

#[test]
fn a_lease_that_is_over_and_could_not_be_ended_yet_holds_nothing() {
    let (server, mut holder) = held("LOCK.ACQUIRE k LEASE 100000 NOTIFY");
    let mut other = server.resp3();
    assert!(holder.call("LOCK.CANCEL k").number() > 0);
    holder.pipeline(&["LOCK.EXTEND k 1", "CLIENT PAUSE 100000 WRITE"]);
    assert_eq!(holder.read_replies(2), [int(1), ok()]);
    eventually_equal("what it holds", int(0), || holder.call("LOCK.CANCEL k"));
    other.run("CLIENT UNPAUSE");
    assert_eq!(holder.next_push(), "lock k LOST lease");
    assert_eq!(holder.call("LOCK.CANCEL k"), int(0));
}

#[test]
fn on_a_replica_nobody_waits_or_holds() {
    let (master, _holder) = held("LOCK.ACQUIRE k");
    let replica = Server::replica_of(&master, &[]);
    assert_eq!(replica.resp3().call("LOCK.CANCEL k"), int(0));
}
