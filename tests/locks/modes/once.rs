//! Who has a lock has it once, unless it says REENTRANT each time, the first time included. Who waits for a key waits once.

use crate::harness::*;
use crate::line::*;

fn depth(server: &Server, key: &str) -> i64 {
    let info = server.resp3().run(["LOCK.INFO", key]);
    field(&field(&info, "holders").items()[0], "depth").number()
}

/// Its owner has the lock: a request with WAIT is refused, and the error says why and what to do; one without gets null.
#[track_caller]
fn assert_once(client: &mut Client, request: &str) {
    assert_refused(client, request, &null(), &["itself", "REENTRANT"]);
}

/// Its owner waits for the key, and REENTRANT does not help.
#[track_caller]
fn assert_waits(client: &mut Client, request: &str) {
    let not_granted = match request.starts_with("SETTP") {
        true => int(0),
        false => null(),
    };
    assert_refused(
        client,
        request,
        &not_granted,
        &["waits for the key already"],
    );
}

#[track_caller]
fn assert_refused(client: &mut Client, request: &str, not_granted: &Frame, says: &[&str]) {
    assert_eq!(client.call(request), *not_granted, "{request}");
    client.run_all(&["MULTI", request, &format!("{request} WAIT 0")]);
    let replies = array([not_granted.clone(), not_granted.clone()]);
    assert_eq!(client.call("EXEC"), replies, "{request}");
    for wait in ["WAIT 0", "WAIT 1000", "WAIT 0 PUSH"] {
        let error = client.refused(&format!("{request} {wait}"));
        let says = [&["DEADLOCK this owner "], says].concat();
        assert!(
            says.iter().all(|word| error.contains(word)),
            "{request} {wait}: {error}"
        );
    }
}

const WAYS: [&str; 6] = [
    "LOCK.ACQUIRE k",
    "LOCK.ACQUIRE k SHARED",
    "LOCK.ACQUIRE k PERMITS 1 OF 9",
    "LOCK.ACQUIRE k OWNER label",
    "LOCK.ACQUIRE k LEASE 100000",
    "LOCK.MACQUIRE 1 k",
];

#[test]
fn an_owner_has_a_lock_once_in_whatever_way() {
    for request in WAYS {
        let server = Server::start();
        let mut client = server.resp3();
        let refused = tether(&server, "deadlocks_refused_total");
        let token = client.run(request).number();
        assert_once(&mut client, request);
        assert_eq!(depth(&server, "k"), 1, "{request}");
        assert_eq!(tether(&server, "waiters"), 0, "{request}");
        assert_eq!(tether(&server, "grants_total"), 1, "{request}");
        assert_eq!(
            tether(&server, "deadlocks_refused_total"),
            refused + 3,
            "{request}"
        );
        let label = if request.contains("OWNER") {
            " OWNER label"
        } else {
            ""
        };
        assert_eq!(
            client.call(&format!("LOCK.CANCEL k{label}")),
            int(token),
            "{request}"
        );
        assert_eq!(
            client.call(&format!("LOCK.RELEASE k{label}")),
            int(0),
            "{request}"
        );
        assert!(client.run(request).number() > token, "{request}");
    }
}

#[test]
fn reentrant_on_one_of_two_requests_is_as_on_none() {
    for request in WAYS {
        let server = Server::start();
        let mut client = server.resp3();
        let reentrant = format!("{request} REENTRANT");
        client.run(request);
        assert_once(&mut client, &reentrant);
        client.run("DEL k");
        client.run(&reentrant);
        assert_once(&mut client, request);
        assert!(client.call(&reentrant).number() > 1, "{request}");
        assert_eq!(depth(&server, "k"), 2, "{request}");
    }
}

#[test]
fn any_other_way_is_refused_in_the_same_words() {
    let server = Server::start();
    let (mut reader, mut holder) = (server.resp3(), server.resp3());
    reader.run("LOCK.ACQUIRE k SHARED");
    for request in [
        "LOCK.ACQUIRE k",
        "LOCK.ACQUIRE k PERMITS 1 OF 2",
        "LOCK.MACQUIRE 2 l k",
    ] {
        assert_once(&mut reader, request);
    }
    holder.run("LOCK.ACQUIRE m");
    assert_once(&mut holder, "LOCK.ACQUIRE m SHARED");
    assert_eq!(holder.call("EXISTS l"), int(0));
}

#[test]
fn of_several_keys_one_is_enough() {
    let server = Server::start();
    let (mut client, mut other) = (server.resp3(), server.resp3());
    client.run_all(&["LOCK.ACQUIRE a REENTRANT", "LOCK.ACQUIRE b"]);
    assert_once(&mut client, "LOCK.MACQUIRE 2 c b");
    assert_once(&mut client, "LOCK.MACQUIRE 2 a b REENTRANT");
    other.run("LOCK.ACQUIRE d");
    queue_push(&mut client, "LOCK.MACQUIRE 2 c d WAIT 0 PUSH");
    assert_waits(&mut client, "LOCK.ACQUIRE c");
    assert_waits(&mut client, "LOCK.MACQUIRE 2 d e REENTRANT");
    assert_eq!(
        client.call("LOCK.ACQUIRE c OWNER two"),
        null(),
        "it is waited for"
    );
    assert_eq!(
        client.call("LOCK.ACQUIRE e OWNER two").number(),
        tether(&server, "last_token")
    );
}

#[test]
fn who_waits_once_is_served_once() {
    let server = Server::start();
    let (mut holder, mut reader) = (server.resp3(), server.resp3());
    holder.run("LOCK.ACQUIRE k NOTIFY");
    queue_push(&mut reader, "LOCK.ACQUIRE k SHARED WAIT 0 PUSH");
    assert_waits(&mut reader, "LOCK.ACQUIRE k SHARED NOTIFY");
    assert_waits(&mut reader, "LOCK.ACQUIRE k SHARED REENTRANT NOTIFY");
    assert_waits(&mut reader, "LOCK.MACQUIRE 2 free k REENTRANT");
    assert_waits(&mut reader, "SETTP k v");
    queue_push(
        &mut reader,
        "LOCK.ACQUIRE k SHARED OWNER two REENTRANT WAIT 0 PUSH",
    );
    for request in [
        "LOCK.ACQUIRE k SHARED OWNER two NOTIFY",
        "LOCK.ACQUIRE k SHARED OWNER two REENTRANT",
        "LOCK.ACQUIRE k SHARED OWNER two REENTRANT LEASE 100000",
        "LOCK.ACQUIRE k PERMITS 1 OF 2 OWNER two REENTRANT",
    ] {
        assert_waits(&mut reader, request);
    }
    holder.run("LOCK.RELEASE k");
    assert_eq!(reader.next_pushes(2).len(), 2);
    assert_eq!(reader.call("LOCK.RELEASE k"), int(0));
    assert_eq!(reader.call("LOCK.RELEASE k OWNER two"), int(0));
    assert_eq!(server.settled(&mut reader), [""; 0]);
}

/// Whatever it waits for, and with a lease, after which it could be granted the next one.
#[test]
fn who_waits_for_a_temporary_key_waits_once_too() {
    for first in [
        "SETTP k v WAIT 0 PUSH",
        "LOCK.ACQUIRE k LEASE 100 WAIT 0 PUSH",
    ] {
        let server = Server::start();
        let (mut holder, mut client) = (server.resp3(), server.resp3());
        let kind = match first.starts_with("SETTP") {
            true => "SETTP k w",
            false => "LOCK.ACQUIRE k",
        };
        holder.run(kind);
        queue_push(&mut client, first);
        assert_waits(&mut client, "SETTP k v");
        // Which a lock is not, where a temporary key is.
        if first.starts_with("LOCK") {
            assert_waits(&mut client, "LOCK.ACQUIRE k REENTRANT");
        }
        assert_eq!(tether(&server, "waiters"), 1, "{first}");
        assert_eq!(client.call("LOCK.CANCEL k"), int(1), "{first}");
        queue_push(&mut client, first);
    }
}

#[test]
fn a_hold_that_comes_by_another_name_is_held_once_too() {
    let server = Server::start();
    let (mut reader, mut other) = (server.resp3(), server.resp3());
    other.run("LOCK.ACQUIRE new");
    reader.run("LOCK.ACQUIRE old SHARED");
    queue_push(&mut reader, "LOCK.ACQUIRE new SHARED WAIT 0 PUSH");
    other.run("RENAME old new");
    server.settle();
    assert_eq!(depth(&server, "new"), 1);
    assert_eq!(tether(&server, "waiters"), 1);
    assert_eq!(reader.call("LOCK.RELEASE new"), int(0));
    assert!(reader.next_push().starts_with("lock new "));
}

#[test]
fn eight_askers_on_one_connection_get_a_lock_once() {
    let server = Server::start();
    let mut client = server.resp3();
    client.pipeline(&["LOCK.ACQUIRE k"; 8]);
    let replies = client.read_replies(8);
    assert!(replies[0].number() > 0);
    assert_eq!(replies[1..], vec![null(); 7]);
}

#[test]
fn who_would_stand_still_behind_its_own_connection_is_told_so() {
    let server = Server::start();
    let mut client = server.resp3();
    let id = client.id().to_string();
    client.run_all(&[
        "LOCK.ACQUIRE held OWNER one",
        "LOCK.ACQUIRE shared SHARED OWNER one",
    ]);
    server.resp3().run("SET stranger v");
    queue_push(&mut client, "SETTP stranger v WAIT 0 PUSH");
    for request in [
        "LOCK.ACQUIRE held OWNER two WAIT 0",
        "LOCK.ACQUIRE shared WAIT 0",
        "LOCK.MACQUIRE 2 free held WAIT 0",
        "SETTP held v WAIT 0",
    ] {
        let error = client.refused(request);
        let says = ["DEADLOCK client ", &id, "block", "own connection", "PUSH"];
        assert!(
            says.iter().all(|word| error.contains(word)),
            "{request}: {error}"
        );
        let key = if request.contains("shared") {
            "'shared'"
        } else {
            "'held'"
        };
        assert!(error.contains(key), "{request}: {error}");
        queue_push(&mut client, &format!("{request} PUSH"));
        let key = key.trim_matches('\'');
        let label = if request.contains("two") {
            " OWNER two"
        } else {
            ""
        };
        assert_eq!(
            client.call(&format!("LOCK.CANCEL {key}{label}")),
            int(1),
            "{request}"
        );
    }
    // Behind its own temporary key PUSH would not help.
    client.run("SETTP own v");
    let error = client.refused("SETTP own v WAIT 0");
    assert!(!error.contains("PUSH"), "{error}");
}
