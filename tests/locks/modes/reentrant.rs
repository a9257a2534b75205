//! Taking again what one holds, with REENTRANT each time: depth, and from exclusive to shared.

use crate::harness::*;
use crate::line::*;

fn depth(server: &Server, key: &str) -> i64 {
    let info = server.resp3().run(["LOCK.INFO", key]);
    field(&field(&info, "holders").items()[0], "depth").number()
}

#[test]
fn the_same_owner_in_the_same_mode_goes_deeper_and_keeps_its_token() {
    for request in [
        "LOCK.ACQUIRE k REENTRANT",
        "LOCK.ACQUIRE k SHARED REENTRANT",
        "LOCK.ACQUIRE k PERMITS 2 OF 3 REENTRANT",
        "LOCK.ACQUIRE k OWNER label REENTRANT",
        "LOCK.MACQUIRE 1 k REENTRANT",
    ] {
        let server = Server::start();
        let mut client = server.resp3();
        let token = client.run(request).number();
        assert_eq!(client.call(request), int(token), "{request}");
        let waiting = format!("{request} WAIT 0");
        assert_eq!(client.call(&waiting), int(token), "{request}");
        assert_eq!(depth(&server, "k"), 3, "{request}");
        assert_eq!(tether(&server, "grants_total"), 1, "{request}");
        let label = if request.contains("OWNER") {
            " OWNER label"
        } else {
            ""
        };
        let release = format!("LOCK.RELEASE k{label}");
        for left in [2, 1, 0] {
            assert_eq!(client.call(&release), int(left), "{request}");
            assert_eq!(client.call("EXISTS k"), int((left > 0).into()), "{request}");
        }
        assert!(client.refused(&release).starts_with("NOTHELD"), "{request}");
    }
}

#[test]
fn all_at_once_can_be_released_too() {
    let server = Server::start();
    let (mut client, mut waiter) = (server.resp3(), server.resp3());
    for _ in 0..5 {
        client.run("LOCK.ACQUIRE k REENTRANT");
    }
    queue(&server, &mut waiter, "LOCK.ACQUIRE k WAIT 0");
    assert_eq!(client.call("LOCK.RELEASE k"), int(4));
    assert_eq!(tether(&server, "waiters"), 1);
    assert_eq!(client.call("LOCK.RELEASE k ALL"), int(0));
    assert!(waiter.read_reply().number() > 0);
}

#[test]
fn the_owner_s_end_ends_the_whole_depth() {
    let server = Server::start();
    let (mut client, mut waiter) = (server.resp3(), server.resp3());
    client.run_all(&[
        "LOCK.ACQUIRE k REENTRANT",
        "LOCK.ACQUIRE k REENTRANT",
        "LOCK.ACQUIRE k SHARED REENTRANT",
    ]);
    queue(&server, &mut waiter, "LOCK.ACQUIRE k WAIT 0");
    drop(client);
    assert!(waiter.read_reply().number() > 0);
    assert_eq!(depth(&server, "k"), 1);
}

#[test]
fn who_holds_a_lock_goes_deeper_past_those_who_wait() {
    let server = Server::start();
    let (mut reader, mut writer) = (server.resp3(), server.resp3());
    let token = reader.run("LOCK.ACQUIRE k SHARED REENTRANT").number();
    queue(&server, &mut writer, "LOCK.ACQUIRE k WAIT 0");
    assert_eq!(reader.call("LOCK.ACQUIRE k SHARED REENTRANT"), int(token));
    assert_eq!(reader.call("LOCK.RELEASE k"), int(1));
    assert_eq!(reader.call("LOCK.RELEASE k"), int(0));
    assert!(writer.read_reply().number() > token);
    assert_eq!(writer.call("LOCK.CANCEL k"), int(token_of(&server, "k")));
}

#[test]
fn a_holder_of_exclusive_may_take_shared_and_let_readers_in() {
    let server = Server::start();
    let (mut client, mut writer) = (server.resp3(), server.resp3());
    let (mut one, mut two) = (server.resp3(), server.resp3());
    let token = client.run("LOCK.ACQUIRE k REENTRANT").number();
    assert_eq!(client.call("LOCK.ACQUIRE k SHARED REENTRANT"), int(token));
    assert_eq!(depth(&server, "k"), 2);
    assert_eq!(one.call("LOCK.ACQUIRE k SHARED"), null(), "still exclusive");
    queue(&server, &mut one, "LOCK.ACQUIRE k SHARED WAIT 0");
    queue(&server, &mut two, "LOCK.ACQUIRE k SHARED WAIT 0");
    queue(&server, &mut writer, "LOCK.ACQUIRE k WAIT 0");
    assert_eq!(client.call("LOCK.RELEASE k"), int(1));
    assert!(one.read_reply().number() > token);
    assert!(two.read_reply().number() > token);
    assert_eq!(holders(&server, "k").len(), 3);
    assert_eq!(token_of(&server, "k"), token);
    let info = server.resp3().run("LOCK.INFO k");
    assert_eq!(field(&info, "kind"), bulk("shared"));
    assert_eq!(client.call("LOCK.RELEASE k"), int(0));
    drop((one, two));
    assert!(writer.read_reply().number() > token);
}

#[test]
fn a_holder_of_shared_that_asks_for_exclusive_gets_an_error_and_keeps_what_it_has() {
    let server = Server::start();
    let (mut client, mut other) = (server.resp3(), server.resp3());
    let token = client.run("LOCK.ACQUIRE k SHARED REENTRANT").number();
    for request in [
        "LOCK.ACQUIRE k REENTRANT",
        "LOCK.ACQUIRE k REENTRANT WAIT 0",
        "LOCK.ACQUIRE k REENTRANT WAIT 0 PUSH",
        "LOCK.MACQUIRE 1 k REENTRANT",
        "LOCK.ACQUIRE k PERMITS 1 OF 2 REENTRANT",
    ] {
        let message = client.refused(request);
        assert!(message.starts_with("ERR "), "{request}: {message}");
    }
    assert_eq!(client.call("LOCK.ACQUIRE k SHARED REENTRANT"), int(token));
    assert_eq!(depth(&server, "k"), 2);
    other.run("LOCK.ACQUIRE k SHARED").number();
    // Once it was exclusive and is not any more, it is the same.
    let mut third = server.resp3();
    third.run_all(&[
        "LOCK.ACQUIRE l REENTRANT",
        "LOCK.ACQUIRE l SHARED REENTRANT",
        "LOCK.RELEASE l",
    ]);
    third.refused("LOCK.ACQUIRE l REENTRANT");
    assert_eq!(tether(&server, "waiters"), 0);
}

#[test]
fn other_ways_to_hold_what_one_holds_are_errors() {
    let server = Server::start();
    let mut client = server.resp3();
    client.run_all(&[
        "LOCK.ACQUIRE x REENTRANT",
        "LOCK.ACQUIRE s PERMITS 1 OF 3 REENTRANT",
    ]);
    for request in [
        "LOCK.ACQUIRE x PERMITS 1 OF 3 REENTRANT",
        "LOCK.ACQUIRE s REENTRANT",
        "LOCK.ACQUIRE s SHARED REENTRANT",
        "LOCK.ACQUIRE s PERMITS 2 OF 3 REENTRANT",
    ] {
        let message = client.refused(request);
        assert!(message.starts_with("ERR "), "{request}: {message}");
    }
    assert_eq!((depth(&server, "x"), depth(&server, "s")), (1, 1));
}

/// What it holds came to go by the name for which it waits.
#[test]
fn who_holds_a_lock_goes_deeper_past_its_own_wait() {
    let server = Server::start();
    let (mut reader, mut other) = (server.resp3(), server.resp3());
    other.run("LOCK.ACQUIRE new");
    let token = reader.run("LOCK.ACQUIRE old SHARED REENTRANT").number();
    queue_push(&mut reader, "LOCK.ACQUIRE new SHARED REENTRANT WAIT 0 PUSH");
    other.run("RENAME old new");
    server.settle();
    assert_eq!(reader.call("LOCK.ACQUIRE new SHARED REENTRANT"), int(token));
    assert_eq!(reader.call("LOCK.ACQUIRE new SHARED"), null());
    assert_eq!(depth(&server, "new"), 2);
    assert_eq!(tether(&server, "waiters"), 1);
    for left in [1, 0] {
        assert_eq!(reader.call("LOCK.RELEASE new"), int(left));
    }
    let granted = format!("lock new {}", token_of(&server, "new"));
    assert_eq!(reader.next_push(), granted);
    assert_eq!(depth(&server, "new"), 1);
}
