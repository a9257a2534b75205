//! In which order a connection hears of its own requests and holds, and of what its own command makes of them.

use crate::harness::*;
use crate::line::*;

/// One that held `k`, and one that waited for it.
struct Line {
    server: Server,
    waiter: Client,
    _owner: Client,
}

/// What the waiter hears of its commands where the owner's lease is over and nobody has noticed: they come before the timer.
fn after_the_lease(
    request: &str,
    resp3: bool,
    commands: &[&str],
    arrivals: usize,
) -> (Line, Vec<Arrival>) {
    in_time(|ms| {
        let server = Server::start();
        let mut owner = server.resp3();
        owner.run("LOCK.ACQUIRE k");
        let mut waiter = match resp3 {
            true => server.resp3(),
            false => server.resp2(),
        };
        queue_push(&mut waiter, &format!("{request} WAIT 0 PUSH"));
        // A part of that time does: nothing but the way to the server is in it.
        let lease = ms / 5;
        let sleep = format!("DEBUG SLEEP {}", (lease + 40) as f64 / 1000.0);
        assert_eq!(owner.call(&format!("LOCK.EXTEND k {lease}")), int(1));
        waiter.pipeline(&[&[&*sleep], commands].concat());
        let first = waiter.next();
        if is_grant(&first).is_some() {
            return None;
        }
        assert_eq!(first, reply(ok()));
        let heard = waiter.next_many(arrivals);
        let line = Line {
            server,
            waiter,
            _owner: owner,
        };
        Some((line, heard))
    })
}

fn is_grant(arrival: &Arrival) -> Option<i64> {
    let Arrival::Push(push) = arrival else {
        return None;
    };
    let token = push
        .strip_prefix("settp k ")
        .or_else(|| push.strip_prefix("lock k "));
    token?.parse().ok()
}

#[test]
fn a_grant_that_was_deferred_comes_before_the_reply() {
    for (request, command, holds) in [
        ("SETTP k v NOTIFY", "DELTP k", false),
        ("LOCK.ACQUIRE k NOTIFY", "LOCK.RELEASE k", false),
        ("LOCK.ACQUIRE k NOTIFY", "LOCK.EXTEND k 60000", true),
        ("LOCK.ACQUIRE k NOTIFY", "LOCK.CANCEL k", true),
        (
            "LOCK.ACQUIRE k REENTRANT NOTIFY",
            "LOCK.ACQUIRE k REENTRANT NOTIFY",
            true,
        ),
        ("LOCK.ACQUIRE k NOTIFY", "SESSION.START GRACE 1000", true),
        ("LOCK.ACQUIRE k NOTIFY", "SESSION.END", true),
        ("SETTP k v NOTIFY", "SETTP other v NOTIFY", true),
    ] {
        for resp3 in [false, true] {
            let (mut line, heard) = after_the_lease(request, resp3, &[command], 2);
            let token = is_grant(&heard[0]).unwrap_or_else(|| panic!("{command}: {heard:?}"));
            match (command, heard.into_iter().nth(1).expect("two").into_reply()) {
                ("DELTP k" | "LOCK.EXTEND k 60000" | "SETTP other v NOTIFY", Frame::Integer(1)) => {
                }
                ("LOCK.RELEASE k", Frame::Integer(0)) => {}
                ("LOCK.CANCEL k" | "LOCK.ACQUIRE k REENTRANT NOTIFY", Frame::Integer(told)) => {
                    assert_eq!(told, token)
                }
                ("SESSION.START GRACE 1000" | "SESSION.END", Frame::Error(_)) => {}
                (_, other) => panic!("{command}: {other:?}"),
            }
            assert_eq!(line.server.settled(&mut line.waiter), [""; 0], "{command}");
            assert_eq!(
                holders(&line.server, "k") == [line.waiter.id()],
                holds,
                "{command}"
            );
        }
    }
}

#[test]
fn a_loss_that_was_deferred_comes_before_the_reply() {
    let server = Server::start();
    let mut owner = server.resp3();
    for command in ["LOCK.RELEASE k", "LOCK.EXTEND k 60000"] {
        owner.run("LOCK.ACQUIRE k NOTIFY");
        owner.pipeline(&["LOCK.EXTEND k 50", "DEBUG SLEEP 0.1", command]);
        assert_eq!(owner.next_many(2), [reply(int(1)), reply(ok())]);
        let heard = owner.next_many(2);
        assert_eq!(heard[0], push("lock k LOST lease"), "{command}");
        assert!(
            matches!(&heard[1], Arrival::Reply(Frame::Error(_))),
            "{command}"
        );
        assert_eq!(server.settled(&mut owner), [""; 0]);
    }
}

#[test]
fn in_a_transaction_no_push_contradicts_a_reply() {
    for (request, commands, replies) in [
        ("SETTP k v NOTIFY", &["DELTP k"][..], vec![int(1)]),
        ("LOCK.ACQUIRE k", &["LOCK.RELEASE k"], vec![int(0)]),
        (
            "SETTP k v NOTIFY",
            &["LOCK.CANCEL k", "DEL k"],
            vec![int(0), int(1)],
        ),
    ] {
        let all = [&["MULTI"], commands, &["EXEC"]].concat();
        let (mut line, mut heard) = after_the_lease(request, true, &all, commands.len() + 2);
        let exec = heard.pop().expect("EXEC's").into_reply();
        match request {
            // Without a label it tells of a temporary key's hold, too.
            "SETTP k v NOTIFY" if commands.len() == 2 => assert_eq!(exec.items()[1], replies[1]),
            _ => assert_eq!(exec, array(replies)),
        }
        assert_eq!(
            line.server.settled(&mut line.waiter),
            [""; 0],
            "{commands:?}"
        );
        assert_eq!(line.waiter.call("EXISTS k"), int(0));
    }
}

#[test]
fn in_a_transaction_a_grant_follows_the_whole_reply() {
    let all = ["MULTI", "LOCK.CANCEL k", "PING", "EXEC"];
    let (mut line, mut heard) = after_the_lease("LOCK.ACQUIRE k", true, &all, 5);
    let token = is_grant(&heard.pop().expect("the push")).expect("a grant");
    let exec = heard.pop().expect("EXEC's").into_reply();
    assert_eq!(exec, array([int(token), simple("PONG")]));
    assert_eq!(holders(&line.server, "k"), [line.waiter.id()]);
}

#[test]
fn who_wants_no_reply_hears_its_pushes_once() {
    for word in ["SKIP", "OFF"] {
        let all = [&format!("CLIENT REPLY {word}"), "DELTP k"];
        let (mut line, heard) = after_the_lease("SETTP k v NOTIFY", true, &all, 1);
        assert!(is_grant(&heard[0]).is_some(), "{word}");
        assert_eq!(line.waiter.call("CLIENT REPLY ON"), ok());
        assert_eq!(line.waiter.call("EXISTS k"), int(0));
        assert_eq!(line.server.settled(&mut line.waiter), [""; 0]);
    }
}

/// What it waits for, and what it loses meanwhile: in whatever way both come about at once, it hears of the loss first.
#[test]
fn a_blocked_client_hears_of_an_earlier_loss_before_its_grant() {
    const ROUNDS: usize = 60;
    let script = "redis.call('DEL', 'k', 'm')";
    let ways: [&[&[&str]]; 7] = [
        &[&["DEBUG", "SLEEP", "0.1"], &["LOCK.RELEASE", "m"]],
        &[
            &["DEBUG", "SLEEP", "0.1"],
            &["MULTI"],
            &["LOCK.RELEASE", "m"],
            &["EXEC"],
        ],
        &[&["DEL", "k"], &["LOCK.RELEASE", "m"]],
        &[&["MULTI"], &["DEL", "k"], &["LOCK.RELEASE", "m"], &["EXEC"]],
        &[&["DEL", "k", "m"]],
        &[&["EVAL", script, "0"]],
        &[&["FLUSHALL"]],
    ];
    let server = Server::start();
    for round in 0..ROUNDS {
        let way = ways[round % ways.len()];
        let (mut waiter, mut holder) = (server.resp3(), server.resp3());
        holder.run("LOCK.ACQUIRE m");
        let lease = if way[0][0] == "DEBUG" { "50" } else { "60000" };
        waiter.run([
            "LOCK.ACQUIRE",
            "k",
            "OWNER",
            "one",
            "NOTIFY",
            "LEASE",
            lease,
        ]);
        queue(&server, &mut waiter, "LOCK.ACQUIRE m OWNER two WAIT 0");
        let bytes: Vec<u8> = way.iter().flat_map(|words| encode(*words)).collect();
        holder.send_bytes(&bytes);
        let arrivals = waiter.next_many(2);
        let [Arrival::Push(push), Arrival::Reply(Frame::Integer(_))] = &*arrivals else {
            panic!("{way:?}: {arrivals:?}");
        };
        assert!(push.starts_with("lock k LOST "), "{way:?}: {push}");
        holder.read_replies(way.len());
        waiter.run("LOCK.RELEASE m OWNER two");
    }
}
