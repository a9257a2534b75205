//! SETTP WAIT: standing in line for a key.

mod handoff;
mod leaving;
mod mass;
mod pushes;
mod strangers;

use crate::harness::*;
use crate::line::*;
use std::time::{Duration, Instant};

/// A server, the owner of `k`, and so many that wait for it in this order with the values w0, w1 ...
fn line_of(count: usize) -> (Server, Client, Vec<Client>) {
    let server = Server::start().over_tcp();
    let mut owner = server.resp3();
    assert_eq!(owner.call("SETTP k mine"), int(1));
    let waiters = (0..count).map(|n| {
        let mut waiter = server.resp3();
        queue(&server, &mut waiter, &format!("SETTP k w{n} TOKEN WAIT 0"));
        waiter
    });
    let waiters = waiters.collect();
    (server, owner, waiters)
}

#[test]
fn waiters_are_served_in_the_order_in_which_they_asked() {
    let (server, mut owner, waiting) = line_of(6);
    let mut reader = server.resp2();
    let mut last = token_of(&server, "k");
    let line = waiters(&server, "k");
    for (n, mut next) in waiting.into_iter().enumerate() {
        assert_eq!(owner.call("DELTP k"), int(1));
        // In the same step: whoever looks now sees the next one's key.
        assert_eq!(reader.call("GET k"), bulk(format!("w{n}")));
        let token = next.read_reply().number();
        assert!(token > last, "{token} after {last}");
        assert_eq!(token_of(&server, "k"), token);
        assert_eq!(holders(&server, "k"), [next.id()]);
        assert_eq!(waiters(&server, "k"), line[n + 1..]);
        (owner, last) = (next, token);
    }
    assert_eq!(owner.call("DELTP k"), int(1));
    assert_eq!(reader.call("EXISTS k"), int(0));
}

#[test]
fn a_free_key_is_granted_at_once() {
    let server = Server::start();
    let mut client = server.resp3();
    assert_eq!(client.call("SETTP a v WAIT 0"), int(1));
    let token = client.call("SETTP b v WAIT 1000 TOKEN").number();
    assert_eq!(token, tether(&server, "last_token"));
    assert_eq!(client.call("SETTP c v WAIT 0 PUSH"), int(1));
    let token = client.call("SETTP d v WAIT 0 PUSH TOKEN").number();
    assert_eq!(token, tether(&server, "last_token"));
    assert_eq!(client.call("MGET a b c d").items(), vec![bulk("v"); 4]);
    assert_eq!(server.settled(&mut client), [""; 0], "no push for these");
}

#[test]
fn a_newcomer_without_wait_gets_0_and_takes_no_place() {
    let (server, mut owner, mut waiting) = line_of(1);
    let mut newcomer = server.resp3();
    assert_eq!(newcomer.call("SETTP k theirs"), int(0));
    assert_eq!(newcomer.call("SETTP k theirs TOKEN"), int(0));
    assert_eq!(tether(&server, "waiters"), 1);
    owner.run("DELTP k");
    assert!(waiting[0].read_reply().number() > 1);
    assert_eq!(waiting[0].call("DELTP k"), int(1));
    assert_eq!(newcomer.call("EXISTS k"), int(0));
}

#[test]
fn a_newcomer_gets_0_while_anyone_waits_even_right_after_a_foreign_removal() {
    for removal in ["DEL k", "UNLINK k", "FLUSHALL", "RENAME k away", "MOVE k 1"] {
        let (server, _owner, mut waiting) = line_of(2);
        let mut third = server.resp2();
        third.pipeline(&[
            removal,
            "SETTP k stolen",
            "LOCK.ACQUIRE k",
            "SETTP k stolen TOKEN",
        ]);
        let replies = third.read_replies(4);
        assert_eq!(replies[1], int(0), "after {removal}");
        assert!(
            matches!(&replies[2], Frame::Null | Frame::Error(_)),
            "after {removal}: {:?}",
            replies[2]
        );
        assert_eq!(replies[3], int(0), "after {removal}");
        assert!(waiting[0].read_reply().number() > 1, "after {removal}");
        assert_eq!(third.call("GET k"), bulk("w0"), "after {removal}");
        assert_eq!(tether(&server, "waiters"), 1, "after {removal}");
    }
}

#[test]
fn so_it_does_inside_the_remover_s_transaction() {
    let (server, _owner, mut waiting) = line_of(1);
    let mut third = server.resp2();
    third.run_all(&["MULTI", "DEL k", "SETTP k stolen", "SETTP k stolen WAIT 0"]);
    assert_eq!(third.call("EXEC"), array([int(1), int(0), int(0)]));
    assert!(waiting[0].read_reply().number() > 1);
    assert_eq!(third.call("GET k"), bulk("w0"));
    assert_eq!(tether(&server, "waiters"), 0);
}

#[test]
fn a_newcomer_with_wait_goes_to_the_end_even_right_after_a_foreign_removal() {
    let (server, _owner, mut waiting) = line_of(2);
    let mut third = server.resp2();
    third.pipeline(&["DEL k", "SETTP k last WAIT 0"]);
    assert_eq!(third.read_reply(), int(1));
    for (n, waiter) in waiting.iter_mut().enumerate() {
        assert!(waiter.read_reply().number() > 1);
        assert_eq!(server.resp2().call("GET k"), bulk(format!("w{n}")));
        assert_eq!(waiter.call("DELTP k"), int(1));
    }
    assert_eq!(third.read_reply(), int(1));
    assert_eq!(third.call("GET k"), bulk("last"));
}

#[test]
fn waiting_blocks_the_asking_connection_and_no_other() {
    let (server, mut owner, mut waiting) = line_of(1);
    let waiter = &mut waiting[0];
    waiter.pipeline(&["ECHO one", "ECHO two"]);
    let mut other = server.resp2();
    assert_eq!(other.call("SET x 1"), ok());
    assert_eq!(other.call("SETTP y 1"), int(1));
    owner.run("DELTP k");
    // The replies come in the order of the commands.
    assert!(waiter.read_reply().number() > 1);
    assert_eq!(waiter.read_replies(2), [bulk("one"), bulk("two")]);
}

#[test]
fn when_the_time_is_over_the_reply_is_0_and_the_place_is_gone() {
    let (server, mut owner, _) = line_of(0);
    for (request, refusal) in [
        ("SETTP k v WAIT 60", int(0)),
        ("SETTP k v TOKEN WAIT 60", int(0)),
    ] {
        let (mut waiter, begin) = (server.resp3(), Instant::now());
        assert_eq!(waiter.call(request), refusal, "{request}");
        assert!(begin.elapsed() >= Duration::from_millis(60), "{request}");
    }
    assert_eq!(tether(&server, "waiters"), 0);
    assert_eq!(tether(&server, "timeouts_total"), 2);
    owner.run("DELTP k");
    assert_eq!(owner.call("EXISTS k"), int(0));
}

#[test]
fn those_behind_a_time_out_move_up() {
    in_time(|ms| {
        let (server, mut owner, _) = line_of(0);
        let (mut hasty, mut patient) = (server.resp3(), server.resp3());
        stands_in_line(&server, &mut hasty, &format!("SETTP k hasty WAIT {ms}"));
        assert!(stands_in_line(
            &server,
            &mut patient,
            "SETTP k patient WAIT 0"
        ));
        let before = waiters(&server, "k").len();
        assert_eq!(hasty.read_reply(), int(0));
        assert_eq!(waiters(&server, "k").len(), 1);
        owner.run("DELTP k");
        assert_eq!(patient.read_reply(), int(1));
        (before == 2).then_some(())
    });
}

#[test]
fn a_wait_of_0_outlasts_others() {
    let (server, mut owner, mut waiting) = line_of(1);
    for _ in 0..3 {
        assert_eq!(server.resp2().call("SETTP k v WAIT 40"), int(0));
        assert_eq!(tether(&server, "waiters"), 1);
    }
    owner.run("DELTP k");
    assert!(waiting[0].read_reply().number() > 1);
}

#[test]
fn in_a_transaction_wait_is_as_if_not_given() {
    let (server, mut owner, _) = line_of(0);
    let mut client = server.resp3();
    client.run_all(&[
        "MULTI",
        "SETTP k v WAIT 0",
        "SETTP k v TOKEN WAIT 0 PUSH",
        "SETTP free v WAIT 0 PUSH",
        "SETTP free v WAIT 0",
    ]);
    let replies = client.call("EXEC");
    assert_eq!(replies, array([int(0), int(0), int(1), int(0)]));
    assert_eq!(tether(&server, "waiters"), 0);
    owner.run("DELTP k");
    assert_eq!(server.settled(&mut client), [""; 0]);
    assert_eq!(client.call("EXISTS k"), int(0));
}

#[test]
fn waits_count_among_a_connection_s_keys() {
    let (server, mut owner, _) = line_of(0);
    owner.run_all(&[
        "SETTP l mine",
        "SETTP m mine",
        "CONFIG SET tether.max-keys-per-client 3",
    ]);
    let mut client = server.resp3();
    assert_eq!(client.call("SETTP own v"), int(1));
    // In one piece: no time is over in its midst.
    client.pipeline(&[
        "SETTP k v WAIT 200 PUSH",
        "SETTP l v WAIT 0 PUSH",
        "SETTP more v",
        "SETTP m v WAIT 0",
        "LOCK.ACQUIRE more",
        "LOCK.ACQUIRE more WAIT 0 PUSH",
        "EXISTS more",
    ]);
    let replies = client.read_replies(7);
    assert_eq!(replies[..2], [int(0), int(0)]);
    for refusal in &replies[2..6] {
        let message = refusal.text();
        assert!(message.contains("max-keys-per-client"), "{message}");
    }
    assert_eq!(replies[6], int(0));
    assert_eq!(client.next_push(), "settp k TIMEOUT");
    assert_eq!(client.call("SETTP more v"), int(1));
    client.refused("SETTP another v");
    // A place that becomes a key is counted once.
    owner.run("DELTP l");
    assert!(client.next_push().starts_with("settp l "));
    assert_eq!(client.call("DELTP own"), int(1));
    assert_eq!(client.call("SETTP another v"), int(1));
}

#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    let (server, _owner, _) = line_of(0);
    let mut client = server.resp3();
    for request in [
        "SETTP k v WAIT",
        "SETTP k v WAIT soon",
        "SETTP k v WAIT -1",
        "SETTP k v WAIT 99999999999999999999",
        "SETTP k v PUSH",
        "SETTP k v WAIT 0 PUSH PUSH",
        "SETTP k v TOKEN TOKEN",
        "SETTP free v WAIT 0 NOW",
    ] {
        let message = client.refused(request);
        assert!(message.starts_with("ERR "), "{request}: {message}");
    }
    assert_eq!(tether(&server, "waiters"), 0);
    assert_eq!(client.call("EXISTS free"), int(0));
}
