//! Waiters that leave the line before they are served, and what comes to those behind them.

use super::line_of;
use crate::harness::*;
use crate::line::*;
use std::time::Instant;

/// Two in line, of which the first has this id.
fn two_in_line() -> (Server, Client, Client, i64, Client) {
    let (server, owner, _) = line_of(0);
    let (mut first, mut second) = (server.resp3(), server.resp3());
    let id = first.id();
    queue(&server, &mut first, "SETTP k first WAIT 0");
    queue(&server, &mut second, "SETTP k second WAIT 0");
    (server, owner, first, id, second)
}

/// Two commands in one turn of the server's event loop; all replies.
fn run_both(client: &mut Client, [first, second]: [&str; 2], in_transaction: bool) -> Vec<Frame> {
    let commands: &[_] = match in_transaction {
        true => &["MULTI", first, second, "EXEC"],
        false => &[first, second],
    };
    client.pipeline(commands);
    client.read_replies(commands.len())
}

#[test]
fn a_waiter_that_dies_is_skipped() {
    for death in ["close", "reset", "kill"] {
        let (server, mut owner, mut first, id, mut second) = two_in_line();
        match death {
            "close" => drop(first),
            "reset" => first.reset(),
            _ => {
                server.resp2().run(&format!("CLIENT KILL ID {id}"));
                first.expect_closed();
            }
        }
        eventually_equal(death, 1, || tether(&server, "waiters"));
        owner.run("DELTP k");
        assert_eq!(second.read_reply(), int(1), "{death}");
        assert_eq!(second.call("GET k"), bulk("second"), "{death}");
        assert_eq!(second.call("DELTP k"), int(1), "{death}");
        eventually_nothing_is_left(&server);
    }
}

#[test]
fn one_that_dies_in_the_very_moment_of_its_grant_passes_the_key_on() {
    for round in 0..30 {
        let (server, mut owner, first, id, mut second) = two_in_line();
        let mut killer = server.resp2();
        match round % 4 {
            0 => {
                drop(first);
                owner.run("DELTP k");
            }
            1 => {
                owner.send("DELTP k");
                first.reset();
                owner.read_reply();
            }
            2 => {
                owner.pipeline(&[&format!("CLIENT KILL ID {id}"), "DELTP k"]);
                assert_eq!(owner.read_replies(2), [int(1), int(1)]);
            }
            _ => {
                // Granted, and killed before its reply is written.
                killer.run_all(&["MULTI", "DEL k", &format!("CLIENT KILL ID {id}")]);
                killer.run("EXEC");
            }
        }
        assert_eq!(second.read_reply(), int(1), "round {round}");
        assert_eq!(killer.call("GET k"), bulk("second"), "round {round}");
        drop(second);
        eventually_nothing_is_left(&server);
        assert_eq!(killer.call("DBSIZE"), int(0), "round {round}");
    }
}

#[test]
fn a_granted_one_that_is_killed_before_its_reply_passes_the_key_on() {
    let (_server, mut owner, mut first, id, mut second) = two_in_line();
    owner.run_all(&["MULTI", "DELTP k", &format!("CLIENT KILL ID {id}"), "GET k"]);
    let replies = owner.call("EXEC").items();
    assert_eq!(replies[..2], [int(1), int(1)]);
    first.expect_closed();
    assert_eq!(second.read_reply(), int(1));
    assert_eq!(owner.call("GET k"), bulk("second"));
    assert_eq!(second.call("DELTP k"), int(1));
    assert_eq!(owner.call("EXISTS k"), int(0));
}

#[test]
fn client_unblock_is_as_if_the_time_were_over() {
    let (server, mut owner, mut first, id, mut second) = two_in_line();
    let mut other = server.resp2();
    assert_eq!(other.call(&format!("CLIENT UNBLOCK {id}")), int(1));
    assert_eq!(first.read_reply(), int(0));
    assert_eq!(tether(&server, "waiters"), 1);
    assert_eq!(first.call("PING"), simple("PONG"));
    assert_eq!(other.call(&format!("CLIENT UNBLOCK {id}")), int(0));
    owner.run("DELTP k");
    assert_eq!(second.read_reply(), int(1));
    // And it may ask again.
    queue(&server, &mut first, "SETTP k again WAIT 0");
    second.run("DELTP k");
    assert_eq!(first.read_reply(), int(1));
    assert_eq!(first.call("GET k"), bulk("again"));
}

#[test]
fn client_unblock_with_error_is_an_error_and_gives_the_place_up() {
    let (server, mut owner, mut first, id, mut second) = two_in_line();
    let mut other = server.resp2();
    assert_eq!(other.call(&format!("CLIENT UNBLOCK {id} ERROR")), int(1));
    let Frame::Error(message) = first.read_reply() else {
        panic!("no error")
    };
    assert!(message.starts_with(b"UNBLOCKED "));
    eventually_equal("waiters", 1, || tether(&server, "waiters"));
    owner.run("DELTP k");
    assert_eq!(second.read_reply(), int(1));
    queue(&server, &mut first, "SETTP k again WAIT 0");
    second.run("DELTP k");
    assert_eq!(first.read_reply(), int(1));
}

/// The grant is on its way when the other command comes, in the same turn of the server's event loop.
#[test]
fn client_unblock_of_a_granted_one_takes_nothing_away() {
    let (server, mut owner, mut first, id, _second) = two_in_line();
    owner.run_all(&["MULTI", "DELTP k", &format!("CLIENT UNBLOCK {id}")]);
    owner.run("EXEC");
    assert_eq!(first.read_reply(), int(1));
    assert_eq!(first.call("GET k"), bulk("first"));
    assert_eq!(holders(&server, "k"), [id]);
    assert_eq!(tether(&server, "waiters"), 1);
}

#[test]
fn client_unblock_of_one_whose_owner_died_just_before_takes_nothing_away() {
    let (server, mut owner, mut first, id, mut second) = two_in_line();
    let kill = format!("CLIENT KILL ID {}", owner.id());
    let mut other = server.resp2();
    other.pipeline(&[&kill, &format!("CLIENT UNBLOCK {id} TIMEOUT")]);
    assert_eq!(other.read_reply(), int(1));
    // Where the first one has gone on by then, there is nobody to unblock.
    let unblocked = other.read_reply();
    assert!(unblocked == int(1) || unblocked == int(0));
    let granted = first.read_reply();
    if !server.is_at_least((7, 2), (7, 2)) && granted == int(0) {
        // There a command can come between a CLIENT KILL and what follows from it.
        assert_eq!(second.read_reply(), int(1));
        assert_eq!(first.call("GET k"), bulk("second"));
        return assert_eq!(holders(&server, "k"), [second.id()]);
    }
    assert_eq!(granted, int(1));
    assert_eq!(first.call("GET k"), bulk("first"));
    assert_eq!(holders(&server, "k"), [id]);
}

/// The block is over by the server's own ways, of which a `CLIENT UNBLOCK` in the same turn must not learn: Redis 7.2 ends itself.
#[test]
fn client_unblock_of_a_granted_one_ends_no_server_without_private_functions() {
    for (deed, in_transaction) in [("DELTP k", true), ("DELTP k", false), ("DEL k", false)] {
        let server = Server::with(&["tether.private-functions never"]);
        let (mut owner, mut first) = (server.resp3(), server.resp3());
        owner.run("SETTP k owner");
        let id = first.id();
        queue(&server, &mut first, "SETTP k first WAIT 0");
        let unblock = format!("CLIENT UNBLOCK {id} TIMEOUT");
        let replies = run_both(&mut owner, [deed, &unblock], in_transaction);
        // It was granted, or it was unblocked first, and has nothing.
        match first.read_reply() == int(1) {
            true => assert_eq!(holders(&server, "k"), [id], "{deed}: {replies:?}"),
            false => assert_eq!(holders(&server, "k"), [0i64; 0], "{deed}: {replies:?}"),
        }
        assert_eq!(first.call("PING"), simple("PONG"), "{deed}");
    }
}

/// What the module's own command grants may be answered at once; any other grant is answered in the server's next turn, and the
/// error comes first.
#[test]
fn one_that_is_told_an_error_instead_of_its_grant_does_not_have_the_key() {
    for (deed, in_transaction) in [
        ("DELTP k", true),
        ("DELTP k", false),
        ("DEL k", true),
        ("DEL k", false),
        ("CLIENT KILL ID", true),
        ("CLIENT KILL ID", false),
    ] {
        let (server, mut owner, mut first, id, mut second) = two_in_line();
        let mut other = server.resp2();
        let (doer, deed) = match deed {
            "CLIENT KILL ID" => (&mut other, format!("{deed} {}", owner.id())),
            _ => (&mut owner, deed.to_string()),
        };
        let unblock = format!("CLIENT UNBLOCK {id} ERROR");
        run_both(doer, [&deed, &unblock], in_transaction);
        match first.read_reply() {
            Frame::Error(_) => {
                assert_eq!(second.read_reply(), int(1), "{deed}");
                assert_eq!(other.call("GET k"), bulk("second"), "{deed}");
                assert_eq!(first.call("DELTP k"), int(0), "{deed}");
            }
            granted => {
                assert_eq!(granted, int(1), "{deed}");
                assert_eq!(first.call("DELTP k"), int(1), "{deed}");
                assert_eq!(second.read_reply(), int(1), "{deed}");
            }
        }
        assert_eq!(second.call("DELTP k"), int(1), "{deed}");
        eventually_nothing_is_left(&server);
    }
}

#[test]
fn nothing_of_the_line_moves_while_writes_are_paused() {
    in_time(|ms| {
        let (server, owner, mut first, id, mut second) = two_in_line();
        let mut other = server.resp3();
        let mut hasty = server.resp3();
        stands_in_line(&server, &mut hasty, &format!("SETTP k hasty WAIT {ms}"));
        other.run("CLIENT PAUSE 100000 WRITE");
        let before = waiters(&server, "k").len();
        quit(&server, owner);
        assert_eq!(hasty.read_reply(), int(0), "time goes on");
        assert_eq!(other.call("GET k"), bulk("mine"));
        assert_eq!(waiters(&server, "k")[0], id);
        other.run("CLIENT UNPAUSE");
        assert_eq!(first.read_reply(), int(1));
        assert_eq!(other.call("GET k"), bulk("first"));
        first.run("DELTP k");
        assert_eq!(second.read_reply(), int(1));
        (before == 3).then_some(())
    });
}

#[test]
fn when_the_server_becomes_a_replica_every_waiter_is_answered_or_closed() {
    let (server, mut owner, mut blocked) = line_of(20);
    let (mut locker, mut pushed) = (server.resp3(), server.resp3());
    locker.run("LOCK.ACQUIRE l");
    let mut readers: Vec<_> = (0..20).map(|_| server.resp3()).collect();
    for reader in &mut readers {
        queue(&server, reader, "LOCK.ACQUIRE l SHARED WAIT 0");
    }
    queue_push(&mut pushed, "SETTP k v WAIT 0 PUSH");
    queue_push(&mut pushed, "LOCK.ACQUIRE l WAIT 0 PUSH");
    let mut other = server.resp2();
    other.run(["REPLICAOF", "127.0.0.1", &free_port().to_string()]);
    for waiter in blocked.iter_mut().chain(&mut readers) {
        let begin = Instant::now();
        match waiter.try_read_reply() {
            None => waiter.expect_closed(),
            Some(Frame::Error(message)) => assert!(message.starts_with(b"UNBLOCKED ")),
            Some(answer) => assert!(answer == int(0) || answer == null(), "{answer:?}"),
        }
        assert!(begin.elapsed().as_secs() < 4);
    }
    let mut told = pushed.next_pushes(2);
    told.sort();
    assert_eq!(
        told,
        ["lock l FAILED UNBLOCKED", "settp k FAILED UNBLOCKED"]
    );
    assert_eq!(tether(&server, "waiters"), 0);
    assert!(pushed.refused("SETTP x v WAIT 0").starts_with("READONLY"));
    other.run("REPLICAOF NO ONE");
    let token = pushed.run("SETTP x v WAIT 0 TOKEN").number();
    assert!(token > owner.run("SETTP y v").number());
    drop((owner, locker, pushed));
    eventually_nothing_is_left(&server);
}
