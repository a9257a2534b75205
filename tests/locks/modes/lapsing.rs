//! Leases that lapse unseen, while the server is busy: the next request for the lock finds out, and what follows from it
//! happens inside that request.

use crate::harness::*;
use crate::line::*;

const ROUNDS: usize = 60;

/// Longer than a lease of 1 ms; no timer can run before the request behind it.
const BUSY: &str = "DEBUG SLEEP 0.002";

#[test]
fn a_lapsed_lease_is_over_for_the_next_request() {
    let server = Server::start();
    let (mut holder, mut client) = (server.resp3(), server.resp3());
    for round in 0..ROUNDS {
        let (request, give) = [
            ("SETTP k v NOTIFY", "DELTP k"),
            ("LOCK.ACQUIRE k NOTIFY", "LOCK.RELEASE k"),
            ("LOCK.ACQUIRE k SHARED WAIT 0", "LOCK.RELEASE k"),
            (
                "LOCK.ACQUIRE k PERMITS 1 OF 2 WAIT 0 PUSH",
                "LOCK.RELEASE k",
            ),
            ("LOCK.MACQUIRE 2 l k NOTIFY", "LOCK.RELEASE k"),
        ][round % 5];
        holder.run("LOCK.ACQUIRE k LEASE 1 NOTIFY");
        client.pipeline(&[BUSY, request]);
        let granted = client.read_replies(2);
        assert!(granted[1].number() > 0, "{request}: {granted:?}");
        assert_eq!(holder.next_push(), "lock k LOST lease", "{request}");
        assert_eq!(holders(&server, "k"), [client.id()], "{request}");
        let kind = client.run("TYPE k").text();
        assert_eq!(kind == "string", request.starts_with("SETTP"), "{kind}");
        assert_ne!(kind, "none", "{request}");
        client.run_all(&[give, "DEL l"]);
        assert_eq!(client.call("EXISTS k l"), int(0), "{request}");
    }
}

#[test]
fn a_lapsed_lease_is_handed_over_before_the_next_request_is_looked_at() {
    let server = Server::start();
    let (mut holder, mut waiter) = (server.resp3(), server.resp3());
    for round in 0..ROUNDS {
        let (waits, name) = [
            ("SETTP k of-the-waiter WAIT 0 PUSH", "settp"),
            ("LOCK.ACQUIRE k WAIT 0 PUSH", "lock"),
            ("LOCK.ACQUIRE k PERMITS 1 OF 1 WAIT 0 PUSH", "lock"),
        ][round % 3];
        let request = [
            "SETTP k a-value-of-some-length NOTIFY",
            "LOCK.ACQUIRE k SHARED NOTIFY",
            "LOCK.MACQUIRE 2 k l NOTIFY",
            "SETTP k v TOKEN WAIT 0 PUSH",
        ][round % 4];
        holder.run("LOCK.ACQUIRE k LEASE 100000 NOTIFY");
        queue_push(&mut waiter, waits);
        holder.pipeline(&["LOCK.EXTEND k 1", BUSY, request, "DELTP k"]);
        let replies = holder.read_replies(4);
        match &replies[2] {
            Frame::Integer(0) => assert!(request.starts_with("SETTP")),
            Frame::Null => assert!(request.starts_with("LOCK") && name == "lock"),
            Frame::Error(error) => {
                assert!(request.starts_with("LOCK") && name == "settp");
                assert!(error.starts_with(b"WRONGTYPE"), "{replies:?}");
            }
            other => panic!("{waits}, {request}: {other:?}"),
        }
        assert_eq!(replies[3], int(0), "{waits}, {request}");
        let token = token_of(&server, "k");
        assert_eq!(waiter.next_push(), format!("{name} k {token}"));
        assert_eq!(holders(&server, "k"), [waiter.id()], "{waits}, {request}");
        assert_eq!(holder.next_push(), "lock k LOST lease");
        waiter.run("DEL k");
        server.settle();
        assert_eq!(holder.call("DBSIZE"), int(0), "{waits}, {request}");
    }
}

#[test]
fn what_stands_at_the_key_is_right_after_a_handover_inside_a_request() {
    let server = Server::start();
    let (mut holder, mut temporary, mut lock) = (server.resp3(), server.resp3(), server.resp3());
    for request in [
        "LOCK.ACQUIRE k SHARED NOTIFY",
        "LOCK.MACQUIRE 2 k l NOTIFY",
        "LOCK.ACQUIRE k WAIT 1 PUSH",
        "SETTP k v NOTIFY",
        "SETTP k v WAIT 1 PUSH",
        "LOCK.RELEASE k",
    ] {
        holder.run("LOCK.ACQUIRE k LEASE 100000 NOTIFY");
        queue_push(&mut temporary, "SETTP k temporary WAIT 0 PUSH");
        queue_push(&mut lock, "LOCK.ACQUIRE k WAIT 0 PUSH");
        holder.pipeline(&["LOCK.EXTEND k 1", BUSY, request, "DELTP k"]);
        holder.read_replies(4);
        assert!(temporary.next_push().starts_with("settp k "), "{request}");
        assert_eq!(temporary.call("GET k"), bulk("temporary"), "{request}");
        assert_eq!(temporary.call("DELTP k"), int(1), "{request}");
        assert!(lock.next_push().starts_with("lock k "), "{request}");
        let message = lock.refused("GET k");
        assert!(message.starts_with("WRONGTYPE"), "{request}: {message}");
        assert_eq!(lock.call("LOCK.RELEASE k"), int(0), "{request}");
        assert_eq!(lock.call("EXISTS k"), int(0), "{request}");
        let lost = server.settled(&mut holder);
        assert!(
            lost.contains(&"lock k LOST lease".to_owned()),
            "{request}: {lost:?}"
        );
    }
}

#[test]
fn a_handover_of_several_keys_inside_a_request_for_one_of_them_is_believed() {
    let server = Server::start();
    let (mut holder, mut several) = (server.resp3(), server.resp3());
    for request in [
        "LOCK.ACQUIRE l",
        "SETTP l v",
        "LOCK.MACQUIRE 2 k l",
        "LOCK.ACQUIRE l SHARED WAIT 1 PUSH",
    ] {
        holder.run("LOCK.ACQUIRE k LEASE 100000");
        queue_push(&mut several, "LOCK.MACQUIRE 2 k l WAIT 0 PUSH");
        holder.pipeline(&["LOCK.EXTEND k 1", BUSY, request, "DELTP l"]);
        let replies = holder.read_replies(4);
        let refusals = [int(0), null()];
        assert!(refusals.contains(&replies[2]), "{request}: {replies:?}");
        let told = server.settled(&mut several);
        let granted = format!("lock k {}", token_of(&server, "k"));
        assert_eq!(told, [granted], "{request}");
        for key in ["k", "l"] {
            assert_eq!(holders(&server, key), [several.id()], "{request}");
            assert_eq!(several.call(["EXISTS", key]), int(1), "{request}");
            assert_eq!(several.call(["LOCK.RELEASE", key]), int(0), "{request}");
        }
        assert_eq!(several.call("EXISTS k l"), int(0), "{request}");
        let _ = server.settled(&mut holder);
    }
}

#[test]
fn a_lapsed_lease_cannot_be_released_or_extended() {
    let server = Server::start();
    let (mut holder, mut waiter) = (server.resp3(), server.resp3());
    for round in 0..ROUNDS {
        let request = ["LOCK.RELEASE k", "LOCK.EXTEND k 1000"][round % 2];
        holder.run("LOCK.ACQUIRE k LEASE 100000 NOTIFY");
        queue_push(&mut waiter, "LOCK.ACQUIRE k WAIT 0 PUSH");
        holder.pipeline(&["LOCK.EXTEND k 1", BUSY, request]);
        let replies = holder.read_replies(3);
        let refusal = replies[2].text();
        assert!(refusal.starts_with("NOTHELD"), "{request}: {refusal}");
        assert_eq!(holder.next_push(), "lock k LOST lease");
        assert!(waiter.next_push().starts_with("lock k "));
        assert_eq!(waiter.call("LOCK.RELEASE k"), int(0));
    }
}

/// As many leases as there are keys, which lapse while requests for them are on their way: many times, so that
/// memory that was let go is in use again.
#[test]
fn a_server_outlives_lapsing_leases_of_all_kinds() {
    let server = Server::start();
    let (mut one, mut two) = (server.resp3(), server.resp3());
    for round in 0..40 {
        let mut commands = Vec::new();
        for n in 0..50 {
            let key = format!("k{}", (n * 7 + round) % 10);
            commands.push(match (n + round) % 6 {
                0 | 3 => format!("LOCK.ACQUIRE {key} LEASE 1 WAIT 5 PUSH"),
                1 => format!("SETTP {key} {} WAIT 5 PUSH", "v".repeat(n)),
                2 => format!("LOCK.ACQUIRE {key} SHARED LEASE 1 WAIT 5 PUSH"),
                4 => format!("DELTP {key}"),
                _ => "DEBUG SLEEP 0.0005".to_owned(),
            });
        }
        let commands: Vec<_> = commands.iter().map(String::as_str).collect();
        one.pipeline(&commands);
        two.pipeline(&commands);
        one.read_replies(commands.len());
        two.read_replies(commands.len());
    }
    drop((one, two));
    eventually_nothing_is_left(&server);
    assert_eq!(server.resp2().call("DBSIZE"), int(0));
}
