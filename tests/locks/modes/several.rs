//! LOCK.MACQUIRE: all the keys or none, in one step.

use crate::harness::*;
use crate::line::*;

#[test]
fn all_are_taken_with_one_token_and_released_one_by_one() {
    let server = Server::start();
    let (mut client, mut other) = (server.resp3(), server.resp3());
    let token = client.run("LOCK.MACQUIRE 3 a b c").number();
    for key in ["a", "b", "c"] {
        assert_eq!(token_of(&server, key), token);
        assert_eq!(other.call(["LOCK.ACQUIRE", key]), null());
    }
    assert_eq!(token, tether(&server, "last_token"));
    assert_eq!(client.call("LOCK.RELEASE b"), int(0));
    assert!(other.run("LOCK.ACQUIRE b").number() > token);
    assert_eq!(client.call("EXISTS a b c"), int(3));
    drop(client);
    eventually_equal("keys", int(1), || other.call("DBSIZE"));
}

#[test]
fn none_is_taken_where_one_cannot_be_had() {
    let server = Server::start();
    let (mut client, mut other) = (server.resp3(), server.resp3());
    other.run("LOCK.ACQUIRE b SHARED");
    assert_eq!(client.call("LOCK.MACQUIRE 3 a b c"), null());
    assert_eq!(client.call("LOCK.MACQUIRE 3 a b c WAIT 40"), null());
    assert_eq!(client.call("EXISTS a b c"), int(1));
    assert_eq!(tether(&server, "holds"), 1);
    other.run_all(&["LOCK.RELEASE b", "SET b string"]);
    let message = client.refused("LOCK.MACQUIRE 3 a b c WAIT 0");
    assert!(message.starts_with("WRONGTYPE"), "{message}");
    assert_eq!(client.call("EXISTS a c"), int(0));
    assert_eq!(tether(&server, "waiters"), 0);
}

#[test]
fn a_waiter_for_several_stands_in_each_queue_and_is_served_when_all_are_free() {
    let server = Server::start();
    let (mut one, mut two, mut late) = (server.resp3(), server.resp3(), server.resp3());
    one.run("LOCK.ACQUIRE a");
    two.run("LOCK.ACQUIRE b");
    let mut waiter = server.resp3();
    let id = waiter.id();
    queue(&server, &mut waiter, "LOCK.MACQUIRE 3 a b c WAIT 0");
    for key in ["a", "b", "c"] {
        assert_eq!(waiters(&server, key), [id], "{key}");
    }
    // What it waits for in part is not to be had by a newcomer.
    assert_eq!(late.call("LOCK.ACQUIRE c"), null());
    assert_eq!(late.call("SETTP c v"), int(0));
    queue(&server, &mut late, "LOCK.ACQUIRE c WAIT 0");
    two.run("LOCK.RELEASE b");
    assert_eq!(two.call("LOCK.ACQUIRE b"), null());
    assert_eq!(two.call("EXISTS b c"), int(0));
    one.run("LOCK.RELEASE a");
    let token = waiter.read_reply().number();
    for key in ["a", "b", "c"] {
        assert_eq!(token_of(&server, key), token);
    }
    assert_eq!(tether(&server, "waiters"), 1);
    assert_eq!(waiter.call("LOCK.RELEASE c"), int(0));
    assert!(late.read_reply().number() > token);
}

#[test]
fn with_push_one_push_names_the_first_key() {
    let server = Server::start();
    let (mut holder, mut waiter) = (server.resp3(), server.resp3());
    holder.run_all(&["LOCK.ACQUIRE z NOTIFY", "LOCK.ACQUIRE a NOTIFY"]);
    queue_push(&mut waiter, "LOCK.MACQUIRE 3 z a m WAIT 0 PUSH");
    holder.run("LOCK.RELEASE z");
    assert_eq!(server.settled(&mut waiter), [""; 0]);
    holder.run("LOCK.RELEASE a");
    let granted = format!("lock z {}", token_of(&server, "m"));
    assert_eq!(waiter.next_push(), granted);
    assert_eq!(server.settled(&mut waiter), [""; 0]);
    queue_push(&mut holder, "LOCK.MACQUIRE 2 m a WAIT 40 PUSH");
    assert_eq!(holder.next_push(), "lock m TIMEOUT");
}

#[test]
fn a_waiter_for_several_that_leaves_frees_all_its_queues() {
    for ending in ["close", "time", "unblock", "cancel"] {
        in_time(|ms| leaves_and_frees(ending, ms));
    }
}

/// None where its time was over before others stood in line.
fn leaves_and_frees(ending: &str, ms: u64) -> Option<()> {
    let server = Server::start();
    let (mut holder, mut waiter) = (server.resp3(), server.resp3());
    let id = waiter.id();
    holder.run("LOCK.ACQUIRE a");
    let timed = format!("LOCK.MACQUIRE 3 a b c WAIT {ms}");
    match ending {
        "time" => _ = stands_in_line(&server, &mut waiter, &timed),
        "cancel" => queue_push(&mut waiter, "LOCK.MACQUIRE 3 a b c WAIT 0 PUSH"),
        _ => queue(&server, &mut waiter, "LOCK.MACQUIRE 3 a b c WAIT 0"),
    }
    let (mut b, mut c) = (server.resp3(), server.resp3());
    if !stands_in_line(&server, &mut b, "LOCK.ACQUIRE b WAIT 0")
        || !stands_in_line(&server, &mut c, "SETTP c v WAIT 0")
    {
        return None;
    }
    match ending {
        "close" => drop(waiter),
        "time" => assert_eq!(waiter.read_reply(), null()),
        "cancel" => assert_eq!(waiter.call("LOCK.CANCEL b"), int(1)),
        _ => assert_eq!(holder.call(&format!("CLIENT UNBLOCK {id}")), int(1)),
    }
    b.read_reply().number();
    assert_eq!(c.read_reply(), int(1), "{ending}");
    assert_eq!(waiters(&server, "a"), [0; 0], "{ending}");
    Some(())
}

#[test]
fn crossing_requests_are_served_in_turn_and_not_stuck() {
    let server = Server::start();
    let (mut a, mut b) = (server.resp3(), server.resp3());
    a.run("LOCK.ACQUIRE a");
    b.run("LOCK.ACQUIRE b");
    let requests = [
        "LOCK.MACQUIRE 2 a b WAIT 0",
        "LOCK.MACQUIRE 2 b c WAIT 0",
        "LOCK.MACQUIRE 2 b a WAIT 0",
        "LOCK.MACQUIRE 3 c b a WAIT 0",
    ];
    let mut line = requests.map(|request| {
        let mut client = server.resp3();
        queue(&server, &mut client, request);
        client
    });
    b.run("LOCK.RELEASE b");
    assert_eq!(tether(&server, "waiters"), 4);
    a.run("LOCK.RELEASE a");
    let mut last = 0;
    for (n, client) in line.iter_mut().enumerate() {
        let token = client.read_reply().number();
        assert!(token > last, "{}", requests[n]);
        last = token;
        assert_eq!(tether(&server, "waiters"), 3 - n as i64, "{}", requests[n]);
        let keys = requests[n]
            .split(' ')
            .skip(2)
            .take_while(|word| *word != "WAIT");
        for key in keys {
            assert_eq!(client.call(["LOCK.RELEASE", key]), int(0));
        }
    }
    assert_eq!(a.call("DBSIZE"), int(0));
}

#[test]
fn the_same_keys_again_go_deeper_and_a_part_of_them_is_refused() {
    let server = Server::start();
    let mut client = server.resp3();
    let token = client.run("LOCK.MACQUIRE 2 a b REENTRANT").number();
    assert_eq!(client.call("LOCK.MACQUIRE 2 b a REENTRANT"), int(token));
    assert_eq!(client.call("LOCK.ACQUIRE a REENTRANT"), int(token));
    for request in [
        "LOCK.MACQUIRE 2 b c REENTRANT",
        "LOCK.MACQUIRE 2 c b REENTRANT WAIT 0",
    ] {
        let message = client.refused(request);
        assert!(message.contains("'b'"), "{request}: {message}");
    }
    assert_eq!(client.call("EXISTS c"), int(0));
    assert_eq!(client.call("LOCK.RELEASE a"), int(2));
    assert_eq!(client.call("LOCK.RELEASE b"), int(1));
}

/// The reply is one token, which counts for each key.
#[test]
fn several_keys_go_deeper_together_where_they_are_held_with_one_token() {
    let server = Server::start();
    let mut client = server.resp3();
    let first = client.run("LOCK.ACQUIRE a REENTRANT").number();
    let second = client.run("LOCK.ACQUIRE b REENTRANT").number();
    let apart =
        "ERR this owner holds these locks with different tokens; acquire each of them again";
    for request in [
        "LOCK.MACQUIRE 2 a b REENTRANT",
        "LOCK.MACQUIRE 2 b a REENTRANT WAIT 0",
        "LOCK.MACQUIRE 2 a b REENTRANT WAIT 0 PUSH",
    ] {
        assert_eq!(client.refused(request), apart, "{request}");
    }
    assert_eq!(client.call("LOCK.MACQUIRE 1 a REENTRANT"), int(first));
    assert_eq!(client.call("LOCK.MACQUIRE 1 b REENTRANT"), int(second));
    let raise = ["LOCK.RAISE", "a", &second.to_string()];
    assert_eq!(client.call(raise), int(second));
    let together = client.call("LOCK.MACQUIRE 2 a b REENTRANT");
    assert_eq!(together, int(second));
    for key in ["a", "b"] {
        let check = ["LOCK.CHECK", key, &second.to_string()];
        assert_eq!(client.call(check), int(1), "{key}");
        assert_eq!(client.call(["LOCK.RELEASE", key]), int(2), "{key}");
    }
    // Of what one request granted a part, too; and not with what another one did.
    let third = client.run("LOCK.MACQUIRE 3 c d e REENTRANT").number();
    assert_eq!(client.call("LOCK.MACQUIRE 2 e c REENTRANT"), int(third));
    assert_eq!(client.refused("LOCK.MACQUIRE 2 c a REENTRANT"), apart);
    assert_eq!(client.call("LOCK.MACQUIRE 2 c d"), null());
}

#[test]
fn a_foreign_removal_of_one_key_leaves_the_others_held() {
    let server = Server::start();
    let (mut client, mut other) = (server.resp3(), server.resp3());
    client.run("LOCK.MACQUIRE 2 a b LEASE 100000 NOTIFY");
    other.run("DEL a");
    assert_eq!(client.next_push(), "lock a LOST deleted");
    assert_eq!(other.call("LOCK.ACQUIRE b"), null());
    assert_eq!(client.call("LOCK.EXTEND b 1"), int(1));
    assert_eq!(client.next_push(), "lock b LOST lease");
    assert_eq!(other.call("EXISTS b"), int(0));
}

#[test]
fn each_key_counts_under_the_limit_also_while_it_is_waited_for() {
    let server = Server::with(&["tether.max-keys-per-client 4"]);
    let (mut client, mut other) = (server.resp3(), server.resp3());
    let message = client.refused("LOCK.MACQUIRE 5 a b c d e");
    assert!(message.contains("max-keys-per-client"), "{message}");
    assert_eq!(client.call("DBSIZE"), int(0));
    other.run_all(&["LOCK.ACQUIRE a", "LOCK.ACQUIRE x"]);
    queue_push(&mut client, "LOCK.MACQUIRE 3 a b c WAIT 0 PUSH");
    let message = client.refused("LOCK.MACQUIRE 3 x y z WAIT 0 PUSH");
    assert!(message.contains("max-keys-per-client"), "{message}");
    queue_push(&mut client, "LOCK.ACQUIRE x WAIT 0 PUSH");
    other.run_all(&["LOCK.RELEASE a", "LOCK.RELEASE x"]);
    let _ = client.next_pushes(2);
    assert_eq!(tether(&server, "holds"), 4);
}

#[test]
fn one_request_names_at_most_1024_keys() {
    let server = Server::start();
    let (mut holder, mut client) = (server.resp3(), server.resp3());
    let request = |count: usize, options: &str| {
        let keys: Vec<_> = (0..count).map(|n| format!("k{n}")).collect();
        format!("LOCK.MACQUIRE {count} {}{options}", keys.join(" "))
    };
    for options in ["", " WAIT 40", " WAIT 0 PUSH"] {
        let message = client.refused(request(1025, options).as_str());
        assert!(message.contains("numkeys is out of range"), "{message}");
        assert!(message.contains("1024"), "{message}");
    }
    assert_eq!(client.call("DBSIZE"), int(0));
    holder.run("LOCK.ACQUIRE k0");
    queue_push(&mut client, &request(1024, " WAIT 0 PUSH"));
    holder.run("LOCK.RELEASE k0");
    assert!(client.next_push().starts_with("lock k0 "));
    assert_eq!(tether(&server, "holds"), 1024);
    drop(client);
    eventually_nothing_is_left(&server);
    holder.run(request(1024, "").as_str()).number();
}

#[test]
fn what_makes_no_sense_is_refused_and_takes_nothing() {
    let server = Server::start();
    let mut client = server.resp3();
    for request in [
        "LOCK.MACQUIRE 0 a",
        "LOCK.MACQUIRE -1 a",
        "LOCK.MACQUIRE 3 a b",
        "LOCK.MACQUIRE two a b",
        "LOCK.MACQUIRE 2 a a",
        "LOCK.MACQUIRE 2 a b SHARED",
        "LOCK.MACQUIRE 1 a b",
        "LOCK.MACQUIRE 2 a b PUSH",
    ] {
        client.refused(request);
    }
    assert_eq!(client.call("DBSIZE"), int(0));
}
