//! LOCK.ACQUIRE in its modes, LOCK.RELEASE, LOCK.EXTEND.

mod expiring;
mod fairness;
mod following;
mod keyspace;
mod lapsing;
mod leases;
mod once;
mod over;
mod overwriting;
mod reentrant;
mod several;

use crate::harness::*;
use crate::line::*;

#[test]
fn an_exclusive_lock_is_one_owner_s() {
    let server = Server::start();
    let (mut one, mut other) = (server.resp3(), server.resp2());
    let token = one.call("LOCK.ACQUIRE k").number();
    assert_eq!(token, tether(&server, "last_token"));
    for request in [
        "LOCK.ACQUIRE k",
        "LOCK.ACQUIRE k SHARED",
        "LOCK.ACQUIRE k PERMITS 1 OF 9",
        "LOCK.ACQUIRE k OWNER somebody",
        "LOCK.ACQUIRE k LEASE 1000",
        "LOCK.MACQUIRE 1 k",
    ] {
        assert_eq!(other.call(request), null(), "{request}");
    }
    assert_eq!(one.call("LOCK.RELEASE k"), int(0));
    assert_eq!(other.call("EXISTS k"), int(0));
    assert!(other.call("LOCK.ACQUIRE k").number() > token);
}

#[test]
fn a_shared_lock_is_many_readers_and_no_writer_s() {
    let server = Server::start();
    let mut readers = [server.resp3(), server.resp3(), server.resp2()];
    let mut writer = server.resp2();
    let mut last = 0;
    for reader in &mut readers {
        let token = reader.call("LOCK.ACQUIRE k SHARED").number();
        assert!(token > last, "a token of its own for each");
        last = token;
    }
    assert_eq!(holders(&server, "k").len(), 3);
    for request in ["LOCK.ACQUIRE k", "LOCK.ACQUIRE k PERMITS 1 OF 9"] {
        assert_eq!(writer.call(request), null(), "{request}");
    }
    for (left, reader) in [2, 1, 0].into_iter().zip(&mut readers) {
        assert_eq!(reader.call("LOCK.RELEASE k"), int(0));
        assert_eq!(holders(&server, "k").len(), left);
        assert_eq!(writer.call("EXISTS k"), int((left > 0).into()));
    }
    assert!(writer.call("LOCK.ACQUIRE k").number() > last);
}

#[test]
fn a_semaphore_gives_out_as_many_permits_as_it_has() {
    let server = Server::start();
    let (mut two, mut one, mut other) = (server.resp3(), server.resp3(), server.resp3());
    two.run("LOCK.ACQUIRE k PERMITS 2 OF 4").number();
    one.run("LOCK.ACQUIRE k PERMITS 1 OF 4").number();
    assert_eq!(other.call("LOCK.ACQUIRE k PERMITS 2 OF 4"), null());
    assert_eq!(other.call("LOCK.ACQUIRE k"), null());
    assert_eq!(other.call("LOCK.ACQUIRE k SHARED"), null());
    other.run("LOCK.ACQUIRE k PERMITS 1 OF 4").number();
    let mut late = server.resp3();
    assert_eq!(late.call("LOCK.ACQUIRE k PERMITS 1 OF 4"), null());
    assert_eq!(two.call("LOCK.RELEASE k"), int(0));
    assert_eq!(late.call("LOCK.ACQUIRE k PERMITS 3 OF 4"), null());
    late.run("LOCK.ACQUIRE k PERMITS 2 OF 4").number();
    drop((one, other, late));
    eventually_gone(&mut two, "k");
}

#[test]
fn the_first_hold_sets_the_total_and_another_one_is_an_error() {
    let server = Server::start();
    let (mut one, mut other) = (server.resp3(), server.resp3());
    one.run("LOCK.ACQUIRE k PERMITS 1 OF 2");
    for request in [
        "LOCK.ACQUIRE k PERMITS 1 OF 3",
        "LOCK.ACQUIRE k PERMITS 1 OF 1",
        "LOCK.ACQUIRE k PERMITS 1 OF 3 WAIT 0",
        "LOCK.ACQUIRE k PERMITS 1 OF 3 WAIT 0 PUSH",
    ] {
        let message = other.refused(request);
        assert!(
            message.starts_with("ERR ") && message.contains("total"),
            "{request}: {message}"
        );
    }
    let message = one.refused("LOCK.ACQUIRE k PERMITS 1 OF 3");
    assert!(message.contains("total"), "its own holder: {message}");
    assert_eq!(tether(&server, "waiters"), 0);
    one.run("LOCK.RELEASE k");
    // The semaphore is gone, and with it its total.
    other.run("LOCK.ACQUIRE k PERMITS 1 OF 3").number();
}

#[test]
fn labels_are_owners_of_their_own_on_one_connection() {
    let server = Server::start();
    let (mut client, mut other) = (server.resp3(), server.resp3());
    let first = client.run("LOCK.ACQUIRE k OWNER one").number();
    assert_eq!(client.call("LOCK.ACQUIRE k OWNER two"), null());
    assert_eq!(client.call("LOCK.ACQUIRE k"), null());
    assert_eq!(other.call("LOCK.ACQUIRE k OWNER one"), null());
    assert_eq!(client.call("LOCK.CANCEL k OWNER one"), int(first));
    for request in [
        "LOCK.RELEASE k",
        "LOCK.RELEASE k OWNER two",
        "LOCK.RELEASE k OWNER ONE",
        "LOCK.EXTEND k 1000 OWNER two",
    ] {
        assert!(client.refused(request).starts_with("NOTHELD"), "{request}");
    }
    let refusal = other.refused("LOCK.RELEASE k OWNER one");
    assert!(refusal.starts_with("NOTHELD"));
    assert_eq!(client.call("LOCK.RELEASE k OWNER one ALL"), int(0));

    // Readers and permits of many labels.
    for label in ["one", "two", "three"] {
        client.run(["LOCK.ACQUIRE", "r", "SHARED", "OWNER", label]);
        client.run([
            "LOCK.ACQUIRE",
            "s",
            "PERMITS",
            "1",
            "OF",
            "3",
            "OWNER",
            label,
        ]);
    }
    assert_eq!(client.call("LOCK.ACQUIRE s PERMITS 1 OF 3"), null());
    assert_eq!(client.call("LOCK.RELEASE s OWNER two"), int(0));
    other
        .run("LOCK.ACQUIRE s PERMITS 1 OF 3 OWNER two")
        .number();
    let id = client.id();
    assert_eq!(holders(&server, "r"), [id, id, id]);
    drop(client);
    eventually_equal("readers", 0, || holders(&server, "r").len());
}

#[test]
fn labels_of_one_connection_wait_for_each_other_by_push() {
    let server = Server::start();
    let mut client = server.resp3();
    let first = client.run("LOCK.ACQUIRE k OWNER one NOTIFY").number();
    queue_push(&mut client, "LOCK.ACQUIRE k OWNER two WAIT 0 PUSH");
    queue_push(&mut client, "LOCK.ACQUIRE k OWNER three WAIT 0 PUSH");
    client.send("LOCK.RELEASE k OWNER one");
    let granted = client.next();
    let second = token_of(&server, "k");
    assert_eq!(granted, push(&format!("lock k {second} two")));
    assert_eq!(
        client.next(),
        reply(int(0)),
        "the reply comes after the push"
    );
    assert_eq!(client.call("LOCK.RELEASE k OWNER two"), int(0));
    let third = token_of(&server, "k");
    assert_eq!(client.next_push(), format!("lock k {third} three"));
    assert!(first < second && second < third);
    assert_eq!(client.call("LOCK.RELEASE k OWNER three"), int(0));
    assert_eq!(server.settled(&mut client), [""; 0]);
}

#[test]
fn names_and_labels_are_bytes() {
    let server = Server::start();
    let mut client = server.resp3();
    let name = b"\0 \r\n\xff'{}".to_vec();
    let ask = |label: &[u8]| [&b"LOCK.ACQUIRE"[..], &name, b"OWNER", label].map(<[u8]>::to_vec);
    let token = client.run(ask(b"\xfe\r\n")).number();
    let own = [&b"LOCK.CANCEL"[..], &name, b"OWNER", b"\xfe\r\n"];
    assert_eq!(client.call(own), int(token));
    assert_eq!(client.call(ask(b"\xfe")), null());
    assert_eq!(client.call(ask(b"")), null());
    let info = client.run([b"LOCK.INFO".to_vec(), name.clone()]);
    let holder = &field(&info, "holders").items()[0];
    assert_eq!(field(holder, "label"), bulk(b"\xfe\r\n"));
    // An error is one line, whatever it names.
    let mut wait = ask(b"other").to_vec();
    wait.extend([b"WAIT".to_vec(), b"0".to_vec()]);
    let message = client.refused(wait);
    assert!(
        message.starts_with("DEADLOCK ") && message.is_ascii(),
        "{message}"
    );
    let list = lock_list(&mut client, "");
    assert_eq!(field(&list[0], "key"), bulk(&name));
    let release = [&b"LOCK.RELEASE"[..], &name, b"ALL", b"OWNER", b"\xfe\r\n"];
    assert_eq!(client.call(release), int(0));
}

#[test]
fn whoever_holds_nothing_is_told_so() {
    let server = Server::start();
    let (mut client, mut other) = (server.resp3(), server.resp3());
    other.run_all(&[
        "LOCK.ACQUIRE theirs",
        "LOCK.ACQUIRE read SHARED",
        "LOCK.ACQUIRE waited",
        "SETTP temporary v",
    ]);
    client.run_all(&["SETTP mine v", "SET string v", "LOCK.ACQUIRE gone"]);
    other.run("DEL gone");
    queue_push(&mut client, "LOCK.ACQUIRE waited WAIT 0 PUSH");
    let message = client.refused("LOCK.RELEASE waited");
    assert!(message.starts_with("NOTHELD "), "{message}");
    for key in [
        "none",
        "theirs",
        "read",
        "temporary",
        "mine",
        "string",
        "gone",
    ] {
        for request in [
            format!("LOCK.RELEASE {key}"),
            format!("LOCK.RELEASE {key} ALL"),
            format!("LOCK.EXTEND {key} 1000"),
        ] {
            let message = client.refused(&request);
            assert!(message.starts_with("NOTHELD"), "{request}: {message}");
        }
    }
    assert_eq!(
        client.call("EXISTS theirs read temporary mine string"),
        int(5)
    );
    assert_eq!(waiters(&server, "waited"), [client.id()]);
}

#[test]
fn a_lock_s_wait_ends_with_null_or_a_push() {
    let server = Server::start();
    let (mut holder, mut waiter) = (server.resp3(), server.resp3());
    holder.run("LOCK.ACQUIRE k NOTIFY");
    assert_eq!(waiter.call("LOCK.ACQUIRE k WAIT 40"), null());
    assert_eq!(waiter.call("LOCK.ACQUIRE k SHARED WAIT 40"), null());
    assert_eq!(waiter.call("LOCK.MACQUIRE 2 k l WAIT 40"), null());
    queue_push(&mut waiter, "LOCK.ACQUIRE k WAIT 40 PUSH");
    assert_eq!(waiter.next_push(), "lock k TIMEOUT");
    assert_eq!(tether(&server, "timeouts_total"), 4);
    waiter.run_all(&[
        "MULTI",
        "LOCK.ACQUIRE k WAIT 0",
        "LOCK.ACQUIRE k WAIT 0 PUSH",
    ]);
    assert_eq!(waiter.call("EXEC"), array([null(), null()]));
    let id = waiter.id();
    queue(&server, &mut waiter, "LOCK.ACQUIRE k WAIT 0");
    holder.run(&format!("CLIENT UNBLOCK {id}"));
    assert_eq!(waiter.read_reply(), null());
    queue(&server, &mut waiter, "LOCK.ACQUIRE k WAIT 0");
    holder.run(&format!("CLIENT UNBLOCK {id} ERROR"));
    assert!(matches!(waiter.read_reply(), Frame::Error(_)));
    assert_eq!(tether(&server, "waiters"), 0);
    assert_eq!(holder.call("LOCK.RELEASE k"), int(0));
    assert_eq!(server.settled(&mut waiter), [""; 0]);
    assert_eq!(waiter.call("EXISTS k l"), int(0));
}
