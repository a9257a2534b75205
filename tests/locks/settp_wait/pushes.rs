//! SETTP WAIT PUSH: a place in line, and one push in the end.

use super::line_of;
use crate::harness::*;
use crate::line::*;
use std::time::{Duration, Instant};

#[test]
fn the_reply_is_0_at_once_and_the_grant_a_push() {
    let (server, mut owner, _) = line_of(0);
    let mut waiter = server.resp3();
    queue_push(&mut waiter, "SETTP k next WAIT 0 PUSH");
    assert_eq!(waiter.call("PING"), simple("PONG"));
    owner.run("DELTP k");
    let token = token_of(&server, "k");
    waiter.expect_bytes(&format!(
        ">3\r\n$5\r\nsettp\r\n$1\r\nk\r\n${}\r\n{token}\r\n",
        token.to_string().len()
    ));
    assert_eq!(token, tether(&server, "last_token"));
    assert_eq!(waiter.call("GET k"), bulk("next"));
    assert_eq!(waiter.call("DELTP k"), int(1));
    assert_eq!(server.settled(&mut waiter), [""; 0]);
}

#[test]
fn a_time_out_is_a_push_and_the_only_one() {
    let (server, mut owner, _) = line_of(0);
    let mut waiter = server.resp3();
    queue_push(&mut waiter, "SETTP k next WAIT 50 PUSH TOKEN");
    assert_eq!(waiter.next_push(), "settp k TIMEOUT");
    assert_eq!(tether(&server, "waiters"), 0);
    assert_eq!(tether(&server, "timeouts_total"), 1);
    owner.run("DELTP k");
    assert_eq!(server.settled(&mut waiter), [""; 0]);
    assert_eq!(waiter.call("EXISTS k"), int(0));
}

#[test]
fn a_grant_is_not_followed_by_a_time_out() {
    let (server, mut owner, _) = line_of(0);
    owner.run("SETTP l mine NOTIFY");
    let (mut served, mut late) = (server.resp3(), server.resp3());
    // In one piece: no time is over in its midst.
    served.pipeline(&["SETTP k next WAIT 200 PUSH", "DEL k"]);
    assert_eq!(served.read_replies(2), [int(0), int(1)]);
    queue_push(&mut late, "SETTP l next WAIT 201 PUSH");
    assert!(served.next_push().starts_with("settp k "));
    // When the later wait's time is over, the earlier's would be, too.
    assert_eq!(late.next_push(), "settp l TIMEOUT");
    assert_eq!(server.settled(&mut served), [""; 0]);
    assert_eq!(holders(&server, "k"), [served.id()]);
}

#[test]
fn one_connection_waits_for_many_keys_and_gets_one_push_for_each() {
    let server = Server::start();
    let (mut owner, mut waiter) = (server.resp3(), server.resp3());
    for key in ["a", "b", "c", "d"] {
        owner.run(["SETTP", key, "mine"]);
    }
    for request in [
        "SETTP a v WAIT 0 PUSH",
        "SETTP b v WAIT 50 PUSH",
        "SETTP c v WAIT 0 PUSH",
        "SETTP d v WAIT 0 PUSH",
    ] {
        queue_push(&mut waiter, request);
    }
    assert_eq!(waiter.next_push(), "settp b TIMEOUT");
    assert_eq!(owner.call("DELTP d c b"), int(3));
    let (d, c) = (waiter.next_push(), waiter.next_push());
    assert_eq!(d, format!("settp d {}", token_of(&server, "d")));
    assert_eq!(c, format!("settp c {}", token_of(&server, "c")));
    server.resp2().run("DEL a");
    let a = waiter.next_push();
    assert_eq!(a, format!("settp a {}", token_of(&server, "a")));
    assert_eq!(server.settled(&mut waiter), [""; 0]);
    assert_eq!(waiter.call("DELTP a b c d"), int(3));
}

#[test]
fn pushed_and_blocked_waiters_stand_in_one_line() {
    let (server, mut owner, _) = line_of(0);
    let (mut one, mut two, mut three) = (server.resp3(), server.resp3(), server.resp3());
    queue_push(&mut one, "SETTP k 1 WAIT 0 PUSH");
    queue(&server, &mut two, "SETTP k 2 WAIT 0");
    queue_push(&mut three, "SETTP k 3 WAIT 0 PUSH");
    owner.run("DELTP k");
    assert!(one.next_push().starts_with("settp k "));
    assert_eq!(one.call("DELTP k"), int(1));
    assert_eq!(two.read_reply(), int(1));
    assert_eq!(server.settled(&mut three), [""; 0]);
    assert_eq!(two.call("DELTP k"), int(1));
    assert!(three.next_push().starts_with("settp k "));
    assert_eq!(three.call("GET k"), bulk("3"));
}

#[test]
fn deltp_gives_up_a_place_and_nothing_is_pushed_for_it() {
    in_time(|ms| {
        let (server, mut owner, _) = line_of(0);
        let (mut first, mut second) = (server.resp3(), server.resp3());
        let asked = Instant::now();
        queue_push(&mut first, &format!("SETTP k 1 WAIT {ms} PUSH"));
        queue_push(&mut second, "SETTP k 2 WAIT 0 PUSH");
        assert_eq!(first.call("DELTP k"), int(0), "a place is no key");
        if asked.elapsed() >= Duration::from_millis(ms) {
            return None;
        }
        assert_eq!(waiters(&server, "k"), [second.id()]);
        owner.run("DELTP k");
        assert!(second.next_push().starts_with("settp k "));
        let mut third = server.resp3();
        queue_push(&mut third, &format!("SETTP k 3 WAIT {ms} PUSH"));
        assert_eq!(third.next_push(), "settp k TIMEOUT");
        assert_eq!(server.settled(&mut first), [""; 0], "not even a time-out");
        Some(())
    });
}

#[test]
fn deltp_leaves_the_keys_and_places_of_others_alone() {
    let (server, mut owner, _) = line_of(0);
    let (mut waiter, mut other) = (server.resp3(), server.resp3());
    queue_push(&mut waiter, "SETTP k next WAIT 0 PUSH");
    other.run_all(&["SET plain v", "SETTP own v", "LOCK.ACQUIRE lock"]);
    assert_eq!(other.call("DELTP k plain lock none own own"), int(1));
    assert_eq!(other.call("EXISTS k plain lock own"), int(3));
    assert_eq!(waiters(&server, "k"), [waiter.id()]);
    assert_eq!(owner.call("DELTP k"), int(1));
    assert!(waiter.next_push().starts_with("settp k "));
}

#[test]
fn a_push_that_its_own_command_caused_comes_after_the_reply() {
    let server = Server::start();
    let (mut waiter, mut other) = (server.resp3(), server.resp2());
    for (command, answer) in [
        (vec!["DEL k"], int(1)),
        (
            vec!["MULTI", "DEL k", "ECHO x", "EXEC"],
            array([int(1), bulk("x")]),
        ),
    ] {
        other.run("SET k stranger");
        queue_push(&mut waiter, "SETTP k mine WAIT 0 PUSH");
        let (last, before) = command.split_last().expect("a command");
        waiter.run_all(before);
        waiter.send(*last);
        assert_eq!(waiter.next(), reply(answer), "{command:?}");
        let told = waiter.next();
        let granted = format!("settp k {}", token_of(&server, "k"));
        assert_eq!(told, push(&granted), "{command:?}");
        assert_eq!(waiter.call("DELTP k"), int(1));
    }
    assert_eq!(server.settled(&mut waiter), [""; 0]);
}

#[test]
fn resp2_is_pushed_to_unless_that_is_switched_off() {
    let (server, mut owner, _) = line_of(0);
    let (mut waiter, mut other) = (server.resp2(), server.resp2());
    queue_push(&mut waiter, "SETTP k next WAIT 0 PUSH");
    owner.run("DELTP k");
    let token = token_of(&server, "k");
    waiter.expect_bytes(&format!(
        "*3\r\n$5\r\nsettp\r\n$1\r\nk\r\n${}\r\n{token}\r\n",
        token.to_string().len()
    ));
    other.run("CONFIG SET tether.resp2-push no");
    let message = other.refused("SETTP k v WAIT 0 PUSH");
    assert!(message.contains("RESP2"), "{message}");
    other.refused("LOCK.ACQUIRE lock WAIT 0 PUSH");
    assert_eq!(tether(&server, "waiters"), 0);
    let mut blocking = server.resp2();
    queue(&server, &mut blocking, "SETTP k v WAIT 0");
    queue_push(&mut server.resp3(), "SETTP k v WAIT 0 PUSH");
    waiter.run("DELTP k");
    assert_eq!(blocking.read_reply(), int(1));
}

#[test]
fn client_reply_off_does_not_swallow_a_grant() {
    let (server, mut owner, _) = line_of(0);
    let mut waiter = server.resp3();
    waiter.pipeline(&["CLIENT REPLY OFF", "SETTP k next WAIT 0 PUSH"]);
    eventually_equal("waiters", 1, || tether(&server, "waiters"));
    owner.run("DELTP k");
    assert!(waiter.next_push().starts_with("settp k "));
    waiter.send("CLIENT REPLY ON");
    assert_eq!(waiter.read_reply(), ok());
}

#[test]
fn the_names_of_keys_in_pushes_are_bytes() {
    let server = Server::start();
    let (mut owner, mut waiter) = (server.resp3(), server.resp3());
    let name = b"\0 \r\n\xff{}".to_vec();
    let value = b"\xfe\0\r\n".to_vec();
    owner.run([b"SETTP".to_vec(), name.clone(), b"v".to_vec()]);
    let words = [&b"SETTP"[..], &name, &value, b"WAIT", b"0", b"PUSH"];
    assert_eq!(waiter.call(words), int(0));
    owner.run([b"DELTP".to_vec(), name.clone()]);
    let token = tether(&server, "last_token");
    let expected = format!("settp {} {token}", name.escape_ascii());
    assert_eq!(waiter.next_push(), expected);
    assert_eq!(waiter.call([b"GET".to_vec(), name]), bulk(value));
}
