//! Circles of waiting are refused by the request that would close one, and nothing else is.

mod bounds;
mod goes_on;
mod modes;
mod tasks;

use crate::harness::*;
use crate::line::*;

/// Asserts that a request is refused since it would close a cycle, of these keys and clients.
pub fn assert_deadlock(client: &mut Client, request: &str, keys: &[&str], ids: &[i64]) {
    let message = client.refused(request);
    assert!(message.starts_with("DEADLOCK "), "{request}: {message}");
    let words = words_of(&message);
    let ids = ids.iter().map(i64::to_string);
    for name in ids.chain(keys.iter().map(|key| (*key).to_owned())) {
        assert!(words.contains(&name), "{request}: no {name} in {message}");
    }
}

/// Two connections, of which the first waits for `pear` that the second holds, and holds `apple`.
fn first_waits_for_second(takes: [&str; 2], wait: &str) -> (Server, [Client; 2], [i64; 2]) {
    let server = Server::start();
    let mut both = [server.resp3(), server.resp3()];
    let ids = both.each_mut().map(Client::id);
    for (client, take) in both.iter_mut().zip(takes) {
        client.run(take);
    }
    match wait.ends_with("PUSH") {
        true => queue_push(&mut both[0], wait),
        false => queue(&server, &mut both[0], wait),
    }
    (server, both, ids)
}

#[test]
fn two_that_wait_for_each_other_s_temporary_keys_are_a_circle() {
    let (server, [mut one, mut two], ids) = first_waits_for_second(
        ["SETTP apple v NOTIFY", "SETTP pear v NOTIFY"],
        "SETTP pear v WAIT 0",
    );
    assert_deadlock(&mut two, "SETTP apple v WAIT 0", &["apple", "pear"], &ids);
    let timed = "SETTP apple v TOKEN WAIT 60000 PUSH";
    assert_deadlock(&mut two, timed, &["apple", "pear"], &ids);
    assert_eq!(tether(&server, "deadlocks_refused_total"), 2);
    // Everything goes on as if it had not asked.
    assert_eq!(waiters(&server, "pear"), [ids[0]]);
    assert_eq!(waiters(&server, "apple"), [0; 0]);
    assert_eq!(holders(&server, "apple"), [ids[0]]);
    assert_eq!(two.call("SETTP apple v"), int(0));
    assert_eq!(two.call("DELTP pear"), int(1));
    assert_eq!(one.read_reply(), int(1));
    queue(&server, &mut two, "SETTP apple v WAIT 0");
    assert_eq!(one.call("DELTP apple pear"), int(2));
    assert_eq!(two.read_reply(), int(1));
    assert_eq!(server.settled(&mut one), [""; 0]);
}

#[test]
fn so_they_are_with_locks_and_with_both_mixed() {
    for (takes, wait, closing) in [
        (
            ["LOCK.ACQUIRE apple", "LOCK.ACQUIRE pear"],
            "LOCK.ACQUIRE pear WAIT 0",
            "LOCK.ACQUIRE apple WAIT 0",
        ),
        (
            ["LOCK.ACQUIRE apple", "SETTP pear v"],
            "SETTP pear v WAIT 0",
            "LOCK.ACQUIRE apple SHARED WAIT 0",
        ),
        (
            ["LOCK.ACQUIRE apple", "LOCK.ACQUIRE pear"],
            "SETTP pear v WAIT 1000000",
            "SETTP apple v WAIT 0 PUSH",
        ),
        (
            [
                "LOCK.ACQUIRE apple PERMITS 2 OF 2",
                "LOCK.ACQUIRE pear SHARED",
            ],
            "LOCK.ACQUIRE pear WAIT 0",
            "LOCK.ACQUIRE apple PERMITS 1 OF 2 WAIT 0",
        ),
        (
            ["LOCK.MACQUIRE 2 apple plum", "LOCK.MACQUIRE 2 cherry pear"],
            "LOCK.MACQUIRE 2 fig pear WAIT 0",
            "LOCK.MACQUIRE 3 lime quince apple WAIT 0",
        ),
    ] {
        let (server, [mut one, mut two], ids) = first_waits_for_second(takes, wait);
        let before = [lock_list(&mut server.resp3(), "").len() as i64, 1];
        assert_deadlock(&mut two, closing, &["apple", "pear"], &ids);
        let list = lock_list(&mut server.resp3(), "").len() as i64;
        assert_eq!([list, tether(&server, "waiters")], before, "{closing}");
        assert_eq!(two.call("PING"), simple("PONG"));
        drop(two);
        assert!(one.read_reply().number() > 0, "{closing}");
        drop(one);
        eventually_nothing_is_left(&server);
    }
}

#[test]
fn three_in_a_circle_are_all_named() {
    let server = Server::start();
    let mut three = [server.resp3(), server.resp3(), server.resp3()];
    let ids = three.each_mut().map(Client::id);
    three[0].run("SETTP apple v");
    three[1].run("LOCK.ACQUIRE pear");
    three[2].run("LOCK.ACQUIRE plum SHARED");
    queue(&server, &mut three[0], "LOCK.ACQUIRE pear WAIT 0");
    queue(&server, &mut three[1], "LOCK.ACQUIRE plum WAIT 0");
    let [one, two, third] = &mut three;
    let keys = ["apple", "pear", "plum"];
    assert_deadlock(third, "SETTP apple v WAIT 0", &keys, &ids);
    assert_eq!(third.call("LOCK.RELEASE plum"), int(0));
    two.read_reply().number();
    assert_eq!(two.call("LOCK.RELEASE pear"), int(0));
    one.read_reply().number();
    // Now that the first waits no more, the last may.
    queue(&server, third, "SETTP apple v WAIT 0");
    assert_eq!(one.call("DELTP apple"), int(1));
    assert_eq!(third.read_reply(), int(1));
}

#[test]
fn a_ring_of_thirty_is_found() {
    let server = Server::start();
    let mut ring: Vec<_> = (0..30).map(|_| server.resp3()).collect();
    let ids: Vec<_> = ring.iter_mut().map(Client::id).collect();
    let keys: Vec<_> = (0..30).map(|n| format!("key-{n}")).collect();
    for (client, key) in ring.iter_mut().zip(&keys) {
        client.run(["SETTP", key, "v"]);
    }
    for n in 0..29 {
        let request = format!("SETTP {} v WAIT 0", keys[n + 1]);
        queue(&server, &mut ring[n], &request);
    }
    let names: Vec<_> = keys.iter().map(String::as_str).collect();
    assert_deadlock(&mut ring[29], "SETTP key-0 v WAIT 0", &names, &ids);
    for n in (0..29).rev() {
        ring[n + 1].run("DELTP key-29 key-0");
        let own = format!("DELTP {}", keys[n + 1]);
        ring[n + 1].call(&own);
        assert_eq!(ring[n].read_reply(), int(1), "{n}");
    }
}

#[test]
fn a_connection_that_would_wait_for_itself_is_refused() {
    let server = Server::start();
    let mut client = server.resp3();
    let id = client.id();
    client.run_all(&[
        "SETTP apple v",
        "LOCK.ACQUIRE pear",
        "LOCK.ACQUIRE plum OWNER one",
    ]);
    for (request, key) in [
        ("SETTP apple w WAIT 0", "apple"),
        ("SETTP apple w WAIT 1000 TOKEN", "apple"),
        ("SETTP apple w WAIT 0 PUSH", "apple"),
        ("SETTP pear w WAIT 0", "pear"),
        // A wait that blocks stops all its labels.
        ("LOCK.ACQUIRE plum OWNER two WAIT 0", "plum"),
        ("LOCK.ACQUIRE plum WAIT 0", "plum"),
        ("LOCK.MACQUIRE 2 fig plum OWNER two WAIT 0", "plum"),
    ] {
        assert_deadlock(&mut client, request, &[key], &[id]);
    }
    assert_eq!(tether(&server, "waiters"), 0);
    assert_eq!(client.call("GET apple"), bulk("v"));
    // With PUSH it can go on releasing.
    queue_push(&mut client, "LOCK.ACQUIRE plum OWNER two WAIT 0 PUSH");
    assert_eq!(client.call("LOCK.RELEASE plum OWNER one"), int(0));
    assert!(client.next_push().starts_with("lock plum "));
}

#[test]
fn waits_by_push_close_circles_too() {
    let takes = ["LOCK.ACQUIRE apple NOTIFY", "LOCK.ACQUIRE pear NOTIFY"];
    let (server, [mut one, mut two], ids) =
        first_waits_for_second(takes, "LOCK.ACQUIRE pear WAIT 0 PUSH");
    let keys = ["apple", "pear"];
    for request in [
        "LOCK.ACQUIRE apple WAIT 0",
        "LOCK.ACQUIRE apple WAIT 0 PUSH",
        "LOCK.MACQUIRE 2 fig apple WAIT 0 PUSH",
    ] {
        assert_deadlock(&mut two, request, &keys, &ids);
    }
    assert_eq!(
        server.settled(&mut two),
        [""; 0],
        "a refusal is no time-out"
    );
    assert_eq!(one.call("LOCK.CANCEL pear"), int(1), "gives its place up");
    queue(&server, &mut two, "LOCK.ACQUIRE apple WAIT 0");
    assert_eq!(one.call("LOCK.RELEASE apple"), int(0));
    two.read_reply().number();
}

#[test]
fn labels_and_their_connections_are_named() {
    let takes = [
        "LOCK.ACQUIRE apple OWNER anna",
        "LOCK.ACQUIRE pear OWNER bert",
    ];
    let wait = "LOCK.ACQUIRE pear OWNER anna WAIT 0 PUSH";
    let (_server, [_one, mut two], ids) = first_waits_for_second(takes, wait);
    let request = "LOCK.ACQUIRE apple OWNER bert WAIT 0 PUSH";
    assert_deadlock(&mut two, request, &["apple", "pear", "anna", "bert"], &ids);
}

#[test]
fn a_circle_in_a_transaction_is_no_circle_since_nobody_waits_there() {
    let (server, [mut one, mut two], _) =
        first_waits_for_second(["SETTP apple v", "SETTP pear v"], "SETTP pear v WAIT 0");
    two.run_all(&["MULTI", "SETTP apple v WAIT 0", "LOCK.ACQUIRE pear"]);
    let replies = two.run("EXEC").items();
    assert_eq!(replies[0], int(0));
    assert_eq!(tether(&server, "deadlocks_refused_total"), 0);
    two.run("DELTP pear");
    assert_eq!(one.read_reply(), int(1));
}
