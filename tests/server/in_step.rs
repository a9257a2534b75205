//! A connection that asked for no pushes is sent its replies and nothing else, whatever becomes of the keys that it holds. To a
//! client which reads no pushes, or takes the next frame for its reply, one frame more is the next caller's answer.
//!
//! `make clients` tries this with clients that a package registry has. Here it is tried with the greetings of those that
//! it has not.

use super::harness::{Client, Frame, Server, bulk, eventually_equal, int, push};

/// What clients say first, as their sources have it.
const GREETINGS: [(&str, &[&str]); 3] = [
    ("Jedis, as it comes", &[]),
    ("Jedis and Lettuce with RESP3", &["HELLO 3"]),
    (
        "rueidis",
        &["HELLO 3 SETNAME rueidis", "CLIENT TRACKING ON OPTIN"],
    ),
];

#[test]
fn when_its_keys_are_deleted() {
    stays_in_step("", |server, _| {
        server.resp2().run("DEL temporary lock labelled several");
    });
}

#[test]
fn when_its_leases_end() {
    stays_in_step("LEASE 60", |server, _| {
        let mut other = server.resp2();
        let locks = "EXISTS lock labelled several";
        eventually_equal("locks", int(0), || other.run(locks));
        other.run("DEL temporary");
    });
}

#[test]
fn when_its_keys_expire() {
    stays_in_step("", |server, _| {
        let mut other = server.resp2();
        for key in ["temporary", "lock", "labelled", "several"] {
            other.run(["PEXPIRE", key, "20"]);
        }
        let keys = "EXISTS temporary lock labelled several";
        eventually_equal("keys", int(0), || other.run(keys));
    });
}

#[test]
fn when_its_keys_are_flushed() {
    stays_in_step("", |server, _| {
        server.resp2().run("FLUSHALL");
    });
}

#[test]
fn when_its_keys_are_overwritten() {
    stays_in_step("", |server, _| {
        let mut other = server.resp2();
        other.run("MSET temporary v lock v labelled v several v");
    });
}

#[test]
fn when_it_ends_them_itself() {
    stays_in_step_when_idle("", |server, client| {
        for command in ["SET lock v", "RENAME labelled other", "DEL temporary"] {
            client.send(command);
        }
        server.settle();
        let frames = client
            .arrived()
            .into_iter()
            .map(|arrival| format!("{arrival:?}"));
        assert_eq!(frames.count(), 3);
    });
}

#[test]
fn when_its_server_becomes_a_replica() {
    stays_in_step_when_idle("", |server, _| {
        let mut other = server.resp2();
        other.run("REPLICAOF 127.0.0.1 1");
        server.settle();
        other.run("REPLICAOF NO ONE");
    });
}

/// Also while it waits for the answer to a command.
fn stays_in_step(lease: &str, harm: impl Fn(&Server, &mut Client)) {
    stays_in_step_when_idle(lease, &harm);
    stays_in_step_when(lease, true, &harm);
}

fn stays_in_step_when_idle(lease: &str, harm: impl Fn(&Server, &mut Client)) {
    stays_in_step_when(lease, false, harm);
}

fn stays_in_step_when(lease: &str, waits: bool, harm: impl Fn(&Server, &mut Client)) {
    for (who, greeting) in GREETINGS {
        let server = Server::start();
        let mut client = server.resp2();
        for word in greeting {
            if word.starts_with("HELLO") {
                client = client.changing_protocol();
            }
            client.call(*word);
        }
        take(&mut client, lease);
        server.settle();
        if waits {
            client.send("BLPOP nothing 0.3");
        }
        harm(&server, &mut client);
        server.settle();
        if waits {
            assert_eq!(client.read_reply(), Frame::Null, "{who}");
        }
        let mut unasked = client.arrived();
        // What it asked for by CLIENT TRACKING.
        unasked.retain(|arrival| *arrival != push("invalidate null"));
        assert!(unasked.is_empty(), "{who} is sent {unasked:?}");
        for number in 0..3 {
            let text = format!("echo-{number}");
            client.send(["ECHO", &text]);
            assert_eq!(client.next().into_reply(), bulk(&text), "{who}");
        }
    }
}

fn take(client: &mut Client, lease: &str) {
    assert_eq!(client.run("SETTP temporary v"), int(1));
    for command in [
        "LOCK.ACQUIRE lock",
        "LOCK.ACQUIRE labelled OWNER job-17",
        "LOCK.MACQUIRE 1 several",
    ] {
        let token = client.run(&format!("{command} {lease}"));
        assert!(matches!(token, Frame::Integer(_)), "{command}: {token:?}");
    }
}
