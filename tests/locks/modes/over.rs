//! A key whose time to live is over, and that the server has not removed yet: it is lost for every command alike, and its owner is
//! told, whoever is the first to meet it.

use crate::harness::*;
use crate::line::*;

/// The server removes nothing by itself.
fn quiet_server() -> Server {
    let server = Server::start();
    server.resp2().run("DEBUG SET-ACTIVE-EXPIRE 0");
    server
}

/// How the owner of `k` holds it.
const HELD: [&str; 2] = ["SETTP k v TOKEN NOTIFY", "LOCK.ACQUIRE k NOTIFY"];

/// A token of `k`, whose time is over. Nobody has met it since.
fn held_and_over(owner: &mut Client, other: &mut Client, request: &str) -> i64 {
    let token = owner.run(request).number();
    lapse(other, "k");
    token
}

fn lost(request: &str) -> String {
    let kind = if request.starts_with("SETTP") {
        "settp"
    } else {
        "lock"
    };
    format!("{kind} k LOST expired")
}

#[test]
fn every_command_says_that_it_is_lost() {
    let server = quiet_server();
    let (mut owner, mut other) = (server.resp3(), server.resp3());
    for request in HELD {
        for asks in [
            "LOCK.CANCEL k",
            "LOCK.RAISE k 1",
            "LOCK.EXTEND k 1000",
            "LOCK.RELEASE k",
            "LOCK.RELEASE k ALL",
            "DELTP k",
            "LOCK.INFO k",
            "LOCK.WHY k",
        ] {
            held_and_over(&mut owner, &mut other, request);
            let reply = owner.call(asks);
            let is_right = match asks.split(' ').next() {
                Some("LOCK.CANCEL" | "DELTP") => reply == int(0),
                Some("LOCK.INFO") => reply == null(),
                Some("LOCK.WHY") => reply == array([]),
                _ => matches!(&reply, Frame::Error(error) if error.starts_with(b"NOTHELD")),
            };
            assert!(is_right, "{request}: {asks}: {reply:?}");
            assert_eq!(server.settled(&mut owner), [lost(request)], "{asks}");
            assert_eq!(other.call("EXISTS k"), int(0), "{request}: {asks}");
        }
        for asks in ["LOCK.CHECK k", "LOCK.GUARD k"] {
            let token = held_and_over(&mut owner, &mut other, request);
            let asks = match asks {
                "LOCK.CHECK k" => format!("{asks} {token}"),
                _ => format!("{asks} {token} SET x y"),
            };
            let error = owner.refused(asks.as_str());
            assert!(error.starts_with("STALE "), "{request}: {asks}: {error}");
            assert_eq!(server.settled(&mut owner), [lost(request)], "{asks}");
        }
    }
}

#[test]
fn in_a_pause_it_is_lost_too() {
    let server = quiet_server();
    let (mut owner, mut other) = (server.resp3(), server.resp3());
    for request in HELD {
        let token = owner.run(request).number();
        other.run("CLIENT PAUSE 100000 WRITE");
        other.run("CLIENT UNPAUSE");
        assert_eq!(owner.call("LOCK.CANCEL k"), int(token));
        lapse(&mut other, "k");
        other.run("CLIENT PAUSE 100000 WRITE");
        let stale = other.refused(["LOCK.CHECK", "k", &token.to_string()]);
        assert!(stale.starts_with("STALE "), "{stale}");
        assert_eq!(owner.call("LOCK.CANCEL k"), int(0), "{request}");
        other.run("CLIENT UNPAUSE");
        assert_eq!(server.settled(&mut owner), [lost(request)]);
        assert_eq!(owner.call("EXISTS k"), int(0));
    }
}

#[test]
fn who_waits_gets_it_when_its_owner_finds_it_lost() {
    let server = quiet_server();
    let (mut owner, mut other) = (server.resp3(), server.resp3());
    let mut waiter = server.resp3();
    for asks in [
        "LOCK.CANCEL k",
        "LOCK.EXTEND k 1000",
        "DELTP k",
        "LOCK.RELEASE k",
    ] {
        for request in HELD {
            owner.run(request);
            let (waits, kind, gives) = match request.starts_with("SETTP") {
                true => ("SETTP k v WAIT 0 PUSH", "settp k ", "DELTP k"),
                false => ("LOCK.ACQUIRE k WAIT 0 PUSH", "lock k ", "LOCK.RELEASE k"),
            };
            queue_push(&mut waiter, waits);
            lapse(&mut other, "k");
            owner.call(asks);
            assert!(waiter.next_push().starts_with(kind), "{asks}");
            assert_eq!(holders(&server, "k"), [waiter.id()]);
            assert_eq!(server.settled(&mut owner), [lost(request)], "{asks}");
            waiter.run(gives);
        }
    }
}

/// Expiry is never an owner's own.
#[test]
fn its_owner_is_told_whose_own_command_meets_it_first() {
    let server = quiet_server();
    let (mut owner, mut other) = (server.resp3(), server.resp3());
    let script = "redis.call('EXISTS', KEYS[1])";
    let meetings: [Vec<Vec<&str>>; 8] = [
        vec![vec!["EXISTS", "k"]],
        vec![vec!["MULTI"], vec!["EXISTS", "k"], vec!["EXEC"]],
        vec![vec!["EVAL", script, "1", "k"]],
        vec![vec!["MULTI"], vec!["EVAL", script, "1", "k"], vec!["EXEC"]],
        vec![vec!["EXPIRE", "k", "100"]],
        vec![vec!["PEXPIREAT", "k", "1"]],
        vec![vec!["GETEX", "k", "PX", "100"]],
        vec![vec!["DEL", "k"]],
    ];
    for request in HELD {
        for meeting in &meetings {
            if meeting[0][0] == "GETEX" && request.starts_with("LOCK") {
                continue;
            }
            held_and_over(&mut owner, &mut other, request);
            for command in meeting {
                owner.run(command.as_slice());
            }
            let told = server.settled(&mut owner);
            assert_eq!(told, [lost(request)], "{request}: {meeting:?}");
        }
        let guarded = other.run("LOCK.ACQUIRE g").number().to_string();
        for command in [["EXISTS", "k"].as_slice(), &["PEXPIREAT", "k", "1"]] {
            held_and_over(&mut owner, &mut other, request);
            owner.run(
                [&["LOCK.GUARD", "g", &guarded], command]
                    .concat()
                    .as_slice(),
            );
            let told = server.settled(&mut owner);
            assert_eq!(told, [lost(request)], "{request}: LOCK.GUARD {command:?}");
        }
        other.run("LOCK.RELEASE g");
    }
}

/// That is a deletion, or on Valkey since 8.1 an expiry: its own in any case, whatever time the key had before.
#[test]
fn its_owner_is_not_told_of_a_time_in_the_past_that_it_gives_itself() {
    let server = quiet_server();
    let (mut owner, mut other) = (server.resp3(), server.resp3());
    let script = "redis.call('PEXPIREAT', KEYS[1], 1)";
    let ends: [Vec<Vec<&str>>; 3] = [
        vec![vec!["PEXPIREAT", "k", "1"]],
        vec![vec!["MULTI"], vec!["EXPIRE", "k", "-1"], vec!["EXEC"]],
        vec![vec!["EVAL", script, "1", "k"]],
    ];
    for request in HELD {
        for before in ["PING", "EXPIRE k 1000", "PERSIST k", "EXPIRE k 1000"] {
            for end in &ends {
                owner.run(request);
                other.run(before);
                for command in end {
                    owner.run(command.as_slice());
                }
                let told = server.settled(&mut owner);
                assert_eq!(told, [""; 0], "{request}: {before}: {end:?}");
                assert_eq!(other.call("EXISTS k"), int(0));
            }
        }
    }
}
