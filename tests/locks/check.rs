//! LOCK.CHECK: whether a token is that of a current hold, asked from any connection, script, function or transaction.

use crate::harness::*;
use crate::line::*;
use std::thread::sleep;
use std::time::Duration;

fn check(client: &mut Client, key: &str, token: i64) -> Frame {
    client.call(["LOCK.CHECK", key, &token.to_string()])
}

fn stale(token: i64, why: &str) -> Frame {
    Frame::Error(format!("STALE token {token} is not current: {why}").into())
}

const NOBODY: &str = "nobody holds the key";

/// Checks, and then writes.
const CHECKED_SET: &str =
    "redis.call('LOCK.CHECK', KEYS[1], ARGV[1]) return redis.call('SET', KEYS[2], ARGV[2])";

fn checked_set(client: &mut Client, key: &str, token: i64, value: &str) -> Frame {
    let token = token.to_string();
    client.call(["EVAL", CHECKED_SET, "2", key, "data", &token, value])
}

#[test]
fn only_the_token_of_a_hold_that_goes_on_is_current() {
    let server = Server::start();
    let (mut one, mut two, mut other) = (server.resp3(), server.resp3(), server.resp2());
    assert_eq!(check(&mut other, "k", 7), stale(7, NOBODY));
    for [take, give] in [
        ["SETTP k v TOKEN WAIT 0", "DELTP k"],
        ["LOCK.ACQUIRE k WAIT 0", "LOCK.RELEASE k"],
        [
            "LOCK.ACQUIRE k OWNER job LEASE 60000 WAIT 0",
            "LOCK.RELEASE k OWNER job",
        ],
        ["LOCK.ACQUIRE k PERMITS 2 OF 2 WAIT 0", "LOCK.RELEASE k"],
    ] {
        let first = one.run(take).number();
        assert_eq!(check(&mut other, "k", first), int(1), "{take}");
        let held = format!("the key is held with token {first}");
        assert_eq!(check(&mut other, "k", first + 1), stale(first + 1, &held));
        queue(&server, &mut two, take);
        one.run(give);
        let second = two.read_reply().number();
        assert_eq!(check(&mut other, "k", second), int(1), "{take}");
        let held = format!("the key is held with token {second}");
        assert_eq!(check(&mut other, "k", first), stale(first, &held));
        two.run(give);
        assert_eq!(check(&mut other, "k", second), stale(second, NOBODY));
    }
    let token = one.run("LOCK.ACQUIRE k").number();
    other.run("SELECT 1");
    assert_eq!(check(&mut other, "k", token), stale(token, NOBODY));
}

#[test]
fn each_of_very_many_holders_has_a_current_token() {
    let server = Server::start();
    let (mut one, mut other) = (server.resp3(), server.resp2());
    let acquire = |n| format!("LOCK.ACQUIRE k SHARED OWNER {n}");
    let mut tokens: Vec<i64> = (0..40).map(|n| one.run(&acquire(n)).number()).collect();
    // Those in the table move forward, and others take their places.
    for n in (0..40).step_by(3) {
        one.run(&format!("LOCK.RELEASE k OWNER {n}"));
        let former = std::mem::replace(&mut tokens[n], one.run(&acquire(n)).number());
        let Frame::Error(text) = check(&mut other, "k", former) else {
            panic!("{former} is not current any more");
        };
        assert!(text.starts_with(b"STALE "));
    }
    for token in &tokens {
        assert_eq!(check(&mut other, "k", *token), int(1));
    }
    one.run("RENAME k to");
    for token in &tokens {
        assert_eq!(check(&mut other, "to", *token), int(1));
        assert_eq!(check(&mut other, "k", *token), stale(*token, NOBODY));
    }
}

/// What is done to the key in the same transaction or script is noticed, also what the module looks at later.
#[test]
fn what_was_just_done_to_the_key_counts() {
    let endings = [
        "DEL k",
        "UNLINK k",
        "SET k other",
        "RENAME k to",
        "MOVE k 1",
        "PEXPIRE k 0",
        "FLUSHALL",
        "FLUSHDB ASYNC",
        "SWAPDB 0 1",
        "COPY plain k REPLACE",
        "RENAME plain k",
    ];
    for (take, ending) in endings
        .iter()
        .flat_map(|ending| ["SETTP k v TOKEN", "LOCK.ACQUIRE k"].map(|take| (take, ending)))
    {
        // The value of a temporary key may be overwritten: it is held all the same.
        let goes_on = take.starts_with("SETTP") && ending.starts_with("SET ");
        let server = Server::start();
        let (mut holder, mut other) = (server.resp3(), server.resp2());
        let acquire = |holder: &mut Client, other: &mut Client| {
            other.run_all(&["FLUSHALL", "SET plain v"]);
            holder.call(take).number()
        };
        let expected = |token| {
            if goes_on {
                int(1)
            } else {
                stale(token, NOBODY)
            }
        };
        let token = acquire(&mut holder, &mut other);
        other.run("MULTI");
        other.run(*ending);
        other.run(["LOCK.CHECK", "k", &token.to_string()]);
        let replies = other.run("EXEC");
        assert_eq!(
            replies.items()[1],
            expected(token),
            "{take}, MULTI, {ending}"
        );
        holder.call("DELTP k");
        holder.call("LOCK.RELEASE k");
        let token = acquire(&mut holder, &mut other);
        let script = format!(
            "redis.call('{}') return redis.pcall('LOCK.CHECK', KEYS[1], ARGV[1])",
            ending.replace(' ', "', '")
        );
        let checked = other.call(["EVAL", &script, "1", "k", &token.to_string()]);
        let checked = match checked {
            Frame::Error(text) => {
                // Some servers add where in the script it was.
                let text = String::from_utf8_lossy(&text).into_owned();
                let text = text.split(" script:").next().unwrap_or_default().to_owned();
                Frame::Error(text.into())
            }
            reply => reply,
        };
        assert_eq!(checked, expected(token), "{take}, in a script, {ending}");
        assert_eq!(other.call("PING"), simple("PONG"));
    }
}

#[test]
fn a_lease_that_is_over_is_not_current_although_it_could_not_be_ended() {
    in_time(|ms| {
        let server = Server::start();
        let (mut holder, mut other) = (server.resp3(), server.resp2());
        let lease = format!("LOCK.ACQUIRE k LEASE {ms}");
        let token = holder.run(&lease).number();
        other.run("CLIENT PAUSE 100000 WRITE");
        let current = check(&mut other, "k", token);
        let over = stale(token, NOBODY);
        if current == over {
            return None;
        }
        assert_eq!(current, int(1));
        sleep(Duration::from_millis(ms + 100));
        assert_eq!(holders(&server, "k"), [holder.id()], "it is there still");
        assert_eq!(check(&mut other, "k", token), over);
        other.run("CLIENT UNPAUSE");
        Some(())
    });
}

#[test]
fn the_end_of_a_connection_ends_it_and_a_session_keeps_it_for_its_grace() {
    let server = Server::start();
    let (mut one, mut other) = (server.resp3(), server.resp2());
    let first = one.run("LOCK.ACQUIRE k").number();
    // What ended connections held goes later in a pause, but nobody holds it.
    other.run("CLIENT PAUSE 100000 WRITE");
    quit(&server, one);
    assert_eq!(check(&mut other, "k", first), stale(first, NOBODY));
    other.run("CLIENT UNPAUSE");
    in_time(|ms| {
        eventually_nothing_is_left(&server);
        let mut two = server.resp3();
        let grace = format!("SESSION.START GRACE {ms}");
        let secret = two.run(&grace).text();
        let second = two.run("LOCK.ACQUIRE k").number();
        quit(&server, two);
        let detached = check(&mut other, "k", second);
        let mut three = server.resp3();
        if three.call(["SESSION.RESUME", &secret]) != int(1) {
            return None;
        }
        assert_eq!(detached, int(1));
        assert_eq!(check(&mut other, "k", second), int(1));
        other.run("CLIENT PAUSE 100000 WRITE");
        quit(&server, three);
        let detached = check(&mut other, "k", second);
        sleep(Duration::from_millis(ms + 100));
        assert_eq!(check(&mut other, "k", second), stale(second, NOBODY));
        other.run("CLIENT UNPAUSE");
        (detached == int(1)).then_some(())
    });
}

#[test]
fn a_script_or_function_checks_and_then_writes_and_a_stale_token_ends_it_before() {
    let server = Server::start();
    let (mut holder, mut other) = (server.resp3(), server.resp2());
    let token = holder.run("LOCK.ACQUIRE k").number();
    assert_eq!(checked_set(&mut other, "k", token, "one"), simple("OK"));
    let Frame::Error(text) = checked_set(&mut other, "k", token - 1, "two") else {
        panic!("a stale token has passed");
    };
    let text = String::from_utf8_lossy(&text).into_owned();
    let expected = format!("the key is held with token {token}");
    assert!(
        text.starts_with("STALE ") && text.contains(&expected),
        "{text}"
    );
    assert_eq!(other.run("GET data"), bulk("one"));
    let library = "#!lua name=checked\nredis.register_function('checked_set', function(keys, args) \
        redis.call('LOCK.CHECK', keys[1], args[1]) \
        return redis.call('SET', keys[2], args[2]) end)";
    other.run(["FUNCTION", "LOAD", library]);
    let call = |other: &mut Client, token: i64, value: &str| {
        let token = token.to_string();
        other.call(["FCALL", "checked_set", "2", "k", "data", &token, value])
    };
    assert_eq!(call(&mut other, token, "three"), simple("OK"));
    assert!(
        matches!(call(&mut other, 1, "four"), Frame::Error(text) if text.starts_with(b"STALE "))
    );
    let read_only = "return redis.call('LOCK.CHECK', KEYS[1], ARGV[1])";
    let reply = other.call(["EVAL_RO", read_only, "1", "k", &token.to_string()]);
    assert_eq!(reply, int(1));
    assert_eq!(other.run("GET data"), bulk("three"));
}

/// In a transaction it stops nothing.
#[test]
fn in_a_transaction_the_other_commands_are_executed_all_the_same() {
    let server = Server::start();
    let mut client = server.resp3();
    client.run_all(&["MULTI", "LOCK.CHECK k 7", "SET data v"]);
    let replies = client.run("EXEC");
    assert_eq!(replies.items()[..], [stale(7, NOBODY), simple("OK")]);
    let token = client.run("LOCK.ACQUIRE k").number();
    client.run_all(&["MULTI", &format!("LOCK.CHECK k {token}"), "LOCK.RELEASE k"]);
    assert_eq!(client.run("EXEC"), array([int(1), int(0)]));
}

#[test]
fn nothing_is_current_on_a_replica_and_all_of_a_session_is_when_it_has_taken_over() {
    let master = Server::start();
    let replica = Server::replica_of(&master, &[]);
    let mut holder = master.resp3();
    holder.run("SESSION.START GRACE 60000");
    let token = holder.run("LOCK.ACQUIRE k").number();
    replica.catch_up(&master);
    let mut other = replica.resp2();
    let expected = stale(token, "this server is a replica");
    assert_eq!(check(&mut other, "k", token), expected);
    assert_eq!(check(&mut master.resp2(), "k", token), int(1));
    other.run("REPLICAOF NO ONE");
    assert_eq!(check(&mut other, "k", token), int(1));
}

#[test]
fn it_takes_the_right_to_read_the_key_and_a_token_that_is_a_number() {
    let server = Server::start();
    let (mut admin, mut reader) = (server.resp2(), server.resp2());
    let token = admin.run("LOCK.ACQUIRE open:k").number();
    admin.run("ACL SETUSER reader on nopass +lock.check +eval %R~open:* %W~shut:*");
    reader.run("AUTH reader x");
    assert_eq!(check(&mut reader, "open:k", token), int(1));
    let refused = reader.refused(["LOCK.CHECK", "shut:k", "7"]);
    assert!(refused.starts_with("NOPERM"), "{refused}");
    for (token, error) in [
        ("x", "ERR the token is not a number: 'x'"),
        (
            "-1",
            "ERR the token is out of range, it goes from 0 to 9223372036854775807",
        ),
        (
            "9223372036854775808",
            "ERR the token is out of range, it goes from 0 to 9223372036854775807",
        ),
    ] {
        assert_eq!(admin.refused(["LOCK.CHECK", "open:k", token]), error);
    }
    assert_eq!(check(&mut admin, "open:k", i64::MAX).text()[..6], *"STALE ");
}
