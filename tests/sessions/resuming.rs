//! SESSION.RESUME: what is kept, what moves, and who is refused.

use crate::harness::*;
use crate::line::*;
use crate::*;

#[test]
fn a_resumed_session_has_everything_again() {
    let server = Server::start();
    let (mut client, secret) = with_session(&server, A_DAY);
    let token = client.run("LOCK.ACQUIRE b REENTRANT").number();
    client.run_all(&[
        "SETTP a v",
        "LOCK.ACQUIRE b REENTRANT",
        "LOCK.ACQUIRE b SHARED REENTRANT",
        "LOCK.ACQUIRE c PERMITS 2 OF 3 OWNER me LEASE 60000",
        "SELECT 3",
        "LOCK.MACQUIRE 2 d e",
    ]);
    quit(&server, client);
    assert_eq!(sessions(&server), [0, 1]);
    let mut other = server.resp3();
    assert_eq!(other.call("SETTP a w"), int(0));
    assert_eq!(other.call("LOCK.ACQUIRE b SHARED"), null());
    assert_eq!(other.call("LOCK.ACQUIRE c PERMITS 2 OF 3"), null());
    assert!(other.refused("LOCK.RELEASE b").starts_with("NOTHELD"));
    assert_eq!(of_holder(&server, "b", "session"), bulk("detached"));
    assert_eq!(of_holder(&server, "b", "client"), int(0));
    let mut again = server.resp3();
    assert_eq!(again.call(["SESSION.RESUME", &secret]), int(5));
    assert_eq!(sessions(&server), [1, 0]);
    assert_eq!(of_holder(&server, "b", "session"), bulk("attached"));
    assert_eq!(of_holder(&server, "b", "client"), int(again.id()));
    assert_eq!(again.call("LOCK.ACQUIRE b REENTRANT"), int(token));
    assert_eq!(again.call("LOCK.RELEASE b"), int(3));
    assert_eq!(again.call("LOCK.EXTEND c 1000 OWNER me"), int(1));
    assert_eq!(again.call("LOCK.RELEASE c OWNER me"), int(0));
    assert_eq!(again.call("DELTP a"), int(1));
    again.run("SELECT 3");
    assert_eq!(again.call("LOCK.RELEASE d"), int(0));
}

#[test]
fn a_session_that_is_attached_moves() {
    let server = Server::start();
    let (mut one, secret) = with_session(&server, A_DAY);
    let (mut two, mut other) = (server.resp3(), server.resp3());
    other.run("SETTP taken other");
    one.run_all(&["SETTP a v", "WATCHEX a"]);
    queue_push(&mut one, "SETTP taken one WAIT 0 PUSH");
    assert_eq!(two.call(["SESSION.RESUME", &secret]), int(1));
    assert_eq!(sessions(&server), [1, 0]);
    // The former connection is a plain one now, with its watches and waits.
    assert_eq!(one.call("DELTP a"), int(0));
    assert!(one.refused("SESSION.END").starts_with("NOSESSION"));
    other.run("DELTP taken");
    assert!(one.next_push().starts_with("settp taken "));
    assert_eq!(of_holder(&server, "taken", "session"), null());
    quit(&server, one);
    assert_eq!(other.call("EXISTS a taken"), int(1));
    assert_eq!(two.call(["SESSION.RESUME", &secret]), int(1));
    assert_eq!(two.call("DELTP a"), int(1));
}

/// Its place in the queue is the former connection's, until that ends.
#[test]
fn who_resumes_waits_behind_the_place_of_the_former_connection() {
    let server = Server::start();
    let (mut one, secret) = with_session(&server, A_DAY);
    let (mut two, mut other) = (server.resp3(), server.resp3());
    other.run("LOCK.ACQUIRE k");
    queue_push(&mut one, "LOCK.ACQUIRE k OWNER .1 NOTIFY WAIT 0 PUSH");
    assert_eq!(two.call(["SESSION.RESUME", &secret, "NOTIFY"]), int(0));
    let mine = two.run("LOCK.MINE").items();
    assert_eq!(mine[1], Frame::Array(vec![]), "it is not the session's");
    queue_push(&mut two, "LOCK.ACQUIRE k OWNER .1 NOTIFY WAIT 0 PUSH");
    other.run("LOCK.RELEASE k");
    assert!(one.next_push().starts_with("lock k "));
    assert_eq!(of_holder(&server, "k", "session"), null());
    assert_eq!(server.settled(&mut two), [""; 0]);
    quit(&server, one);
    assert!(two.next_push().starts_with("lock k "));
    assert_ne!(of_holder(&server, "k", "session"), null());
    assert_eq!(sessions(&server), [1, 0]);
}

#[test]
fn a_loss_is_told_to_the_connection_that_is_attached() {
    let server = Server::start();
    let (mut one, secret) = with_session(&server, A_DAY);
    one.run_all(&["SETTP a v NOTIFY", "SETTP b v NOTIFY", "SETTP c v NOTIFY"]);
    let mut two = server.resp3();
    two.run(["SESSION.RESUME", &secret, "NOTIFY"]);
    server.resp2().run("DEL a");
    assert_eq!(two.next_push(), "settp a LOST deleted");
    assert_eq!(server.settled(&mut one), [""; 0]);
    two.run("DEL b");
    assert_eq!(server.settled(&mut two), [""; 0]);
    quit(&server, two);
    server.resp2().run("FLUSHALL");
    server.settle();
    assert_eq!(tether(&server, "lost_total"), 2);
    let mut three = server.resp3();
    assert_eq!(three.call(["SESSION.RESUME", &secret]), int(0));
}

#[test]
fn who_has_something_to_lose_is_refused() {
    let server = Server::start();
    let (_held, secret) = with_session(&server, A_DAY);
    let mut client = server.resp3();
    client.run("SETTP a v");
    assert!(
        client
            .refused(["SESSION.RESUME", &secret])
            .contains("holds keys already")
    );
    let mut other = server.resp3();
    queue_push(&mut other, "SETTP a v WAIT 0 PUSH");
    assert!(
        other
            .refused(["SESSION.RESUME", &secret])
            .contains("waits for keys")
    );
    assert_eq!(other.call("DELTP a"), int(0));
    start(&mut other, A_DAY);
    assert!(
        other
            .refused(["SESSION.RESUME", &secret])
            .contains("has a session already")
    );
    assert_eq!(sessions(&server), [2, 0]);
    let mut third = server.resp3();
    for wrong in [
        &secret[1..],
        "",
        &secret.to_uppercase(),
        &format!("{secret}0"),
    ] {
        let error = third.refused(["SESSION.RESUME", wrong]);
        assert!(error.starts_with("NOSESSION"), "{wrong}: {error}");
    }
}

#[test]
fn waits_and_watches_end_with_their_connection() {
    let server = Server::start();
    let (mut client, secret) = with_session(&server, A_DAY);
    let mut other = server.resp3();
    other.run("SETTP taken other NOTIFY");
    client.run_all(&["SETTP a v NOTIFY", "WATCHEX a b"]);
    queue_push(&mut client, "SETTP taken client WAIT 0 PUSH");
    quit(&server, client);
    assert_eq!(
        ["waiters", "watches"].map(|name| tether(&server, name)),
        [0, 0]
    );
    let mut again = server.resp3();
    assert_eq!(again.call(["SESSION.RESUME", &secret]), int(1));
    other.run("DELTP taken");
    assert_eq!(server.settled(&mut again), [""; 0]);
    assert_eq!(server.resp2().call("EXISTS taken"), int(0));
}

#[test]
fn a_detached_session_closes_no_circle_and_an_attached_one_does() {
    let server = Server::start();
    let (mut one, secret) = with_session(&server, A_DAY);
    let mut two = server.resp3();
    one.run("LOCK.ACQUIRE a");
    two.run("LOCK.ACQUIRE b");
    queue_push(&mut one, "LOCK.ACQUIRE b WAIT 0 PUSH");
    assert!(two.refused("LOCK.ACQUIRE a WAIT 0").starts_with("DEADLOCK"));
    quit(&server, one);
    queue_push(&mut two, "LOCK.ACQUIRE a WAIT 0 PUSH");
    let mut again = server.resp3();
    again.run(["SESSION.RESUME", &secret]);
    assert!(
        again
            .refused("LOCK.ACQUIRE b WAIT 0")
            .starts_with("DEADLOCK")
    );
    again.run("SESSION.END");
    assert!(two.next_push().starts_with("lock a "));
}

#[test]
fn debug_reload_keeps_sessions_and_what_they_hold() {
    let server = Server::start();
    let (mut attached, _) = with_session(&server, A_DAY);
    let (mut detached, secret) = with_session(&server, A_DAY);
    let token = attached.run("LOCK.ACQUIRE a SHARED REENTRANT").number();
    attached.run_all(&["LOCK.ACQUIRE a SHARED REENTRANT", "SETTP b v"]);
    detached.run_all(&["LOCK.ACQUIRE a SHARED", "SETTP c v"]);
    quit(&server, detached);
    let mut plain = server.resp3();
    plain.run_all(&["LOCK.ACQUIRE a SHARED", "DEBUG RELOAD"]);
    server.settle();
    assert_eq!(sessions(&server), [1, 1]);
    assert_eq!(holders(&server, "a").len(), 2);
    assert_eq!(server.resp2().call("EXISTS a b c"), int(3));
    assert_eq!(attached.call("LOCK.ACQUIRE a SHARED REENTRANT"), int(token));
    assert_eq!(attached.call("LOCK.RELEASE a ALL"), int(0));
    assert_eq!(attached.call("DELTP b"), int(1));
    assert_eq!(server.resp3().call(["SESSION.RESUME", &secret]), int(2));
    assert!(plain.refused("LOCK.RELEASE a").starts_with("NOTHELD"));
}

#[test]
fn a_session_that_a_file_does_not_have_is_over_and_what_the_file_has_is_there() {
    let server = Server::start();
    let (mut kept, _) = with_session(&server, A_DAY);
    let (mut ended, secret) = with_session(&server, A_DAY);
    kept.run_all(&["SETTP a v", "LOCK.ACQUIRE b NOTIFY"]);
    ended.run("SETTP c v");
    ended.run("SESSION.DETACH");
    let mut other = server.resp2();
    other.run("SAVE");
    kept.run_all(&["DELTP a", "LOCK.ACQUIRE later NOTIFY"]);
    let mut ended = server.resp3();
    ended.run(["SESSION.RESUME", &secret]);
    ended.run("SESSION.END");
    let (mut new, secret_of_new) = with_session(&server, A_DAY);
    new.run("SETTP d v NOTIFY");
    other.run("DEBUG RELOAD NOSAVE");
    assert_eq!(new.next_push(), "settp d LOST flushed");
    let mut lost = kept.next_pushes(2);
    lost.sort();
    assert_eq!(lost, ["lock b LOST flushed", "lock later LOST flushed"]);
    // It has what it held then; so has the one that is over since.
    assert_eq!(sessions(&server), [1, 1]);
    assert_eq!(kept.call("DELTP a"), int(1));
    assert_eq!(kept.call("LOCK.RELEASE b"), int(0));
    assert!(kept.refused("LOCK.RELEASE later").starts_with("NOTHELD"));
    assert_eq!(ended.call(["SESSION.RESUME", &secret]), int(1));
    // No connection speaks for one that there was not.
    assert!(new.refused("SESSION.END").starts_with("NOSESSION"));
    let again = server.resp3().refused(["SESSION.RESUME", &secret_of_new]);
    assert!(again.starts_with("NOSESSION"));
    assert_eq!(new.call("SETTP d v"), int(1));
    drop(new);
    eventually_gone(&mut other, "d");
}
