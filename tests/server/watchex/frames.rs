//! The very bytes of the pushes, in both protocols.

use crate::harness::*;

#[test]
fn resp3_gets_push_frames() {
    let server = Server::start();
    let (mut watcher, mut other) = (server.resp3(), server.resp2());
    watcher.send("WATCHEX k");
    watcher.expect_bytes("$7\r\nNOEXIST\r\n");
    other.run_all(&["SET k v", "DEL k"]);
    watcher.expect_bytes(">3\r\n$7\r\nwatchex\r\n$1\r\nk\r\n$3\r\nADD\r\n>3\r\n$7\r\nwatchex\r\n$1\r\nk\r\n$3\r\nDEL\r\n");
    watcher.send("WATCHEX k l");
    watcher.expect_bytes("*2\r\n$7\r\nNOEXIST\r\n$7\r\nNOEXIST\r\n");
    watcher.send("UNWATCHEX");
    watcher.expect_bytes(":2\r\n");
}

#[test]
fn resp2_gets_arrays_out_of_band() {
    let server = Server::start();
    let (mut watcher, mut other) = (server.resp2(), server.resp2());
    watcher.send("WATCHEX k");
    watcher.expect_bytes("$7\r\nNOEXIST\r\n");
    other.run_all(&["SET k v", "DEL k"]);
    watcher.expect_bytes("*3\r\n$7\r\nwatchex\r\n$1\r\nk\r\n$3\r\nADD\r\n*3\r\n$7\r\nwatchex\r\n$1\r\nk\r\n$3\r\nDEL\r\n");
    watcher.send("PING");
    watcher.expect_bytes("+PONG\r\n");
}

#[test]
fn a_keys_name_is_sent_byte_by_byte() {
    let server = Server::start();
    let (mut watcher, mut other) = (server.resp3(), server.resp2());
    let long = vec![0xE9; 70_000];
    for name in [
        &b""[..],
        b"\r\n$1\r\n",
        b"\0",
        b"a b",
        b"\xff\xfe",
        b"12345",
        b"-7",
        &long,
    ] {
        watcher.run([b"WATCHEX", name]);
        other.run([b"SET", name, b"v"]);
        let expected = [
            format!(">3\r\n$7\r\nwatchex\r\n${}\r\n", name.len()).as_bytes(),
            name,
            b"\r\n$3\r\nADD\r\n",
        ]
        .concat();
        let bytes = watcher.raw_bytes(expected.len());
        assert!(
            bytes == expected,
            "for a name of {} bytes: {}",
            name.len(),
            bytes[..bytes.len().min(200)].escape_ascii()
        );
        watcher.run("UNWATCHEX");
    }
}

#[test]
fn the_form_of_a_push_is_that_of_the_connections_present_protocol() {
    let server = Server::start();
    let (watcher, mut other) = (server.resp2(), server.resp2());
    let mut watcher = watcher.changing_protocol();
    watcher.run("WATCHEX k");
    other.run("SET k v");
    watcher.expect_bytes("*3\r\n$7\r\nwatchex\r\n$1\r\nk\r\n$3\r\nADD\r\n");
    watcher.run("HELLO 3");
    other.run("DEL k");
    watcher.expect_bytes(">3\r\n$7\r\nwatchex\r\n$1\r\nk\r\n$3\r\nDEL\r\n");
    watcher.run("HELLO 2");
    other.run("SET k v");
    watcher.expect_bytes("*3\r\n$7\r\nwatchex\r\n$1\r\nk\r\n$3\r\nADD\r\n");
}

#[test]
fn client_reply_off_does_not_swallow_pushes() {
    let server = Server::start();
    for mut watcher in [server.resp2(), server.resp3()] {
        let mut other = server.resp2();
        watcher.run("WATCHEX k");
        watcher.send("CLIENT REPLY OFF");
        watcher.send("PING");
        server.settle();
        other.run_all(&["SET k v", "DEL k"]);
        assert_eq!(
            watcher.next_many(2),
            [push("watchex k ADD"), push("watchex k DEL")]
        );
        watcher.send("SET k own");
        assert_eq!(watcher.next(), push("watchex k ADD"), "its own write");
        watcher.send("DEL k");
        assert_eq!(watcher.next(), push("watchex k DEL"), "its own write");
        watcher.send("CLIENT REPLY ON");
        assert_eq!(watcher.next(), reply(ok()));
    }
}

#[test]
fn client_reply_skip_swallows_the_reply_and_not_the_push() {
    let server = Server::start();
    let mut watcher = server.resp3();
    watcher.run("WATCHEX k");
    watcher.pipeline(&["CLIENT REPLY SKIP", "SET k v", "ECHO next"]);
    assert_eq!(
        sorted(watcher.next_many(2)),
        sorted(vec![push("watchex k ADD"), reply(bulk("next"))])
    );
    assert_eq!(server.settled(&mut watcher), [""; 0]);
}

#[test]
fn client_reply_off_and_skip_swallow_no_push_that_had_to_wait() {
    let server = Server::start();
    for mut watcher in [server.resp2(), server.resp3()] {
        let added = push("watchex k ADD");
        // What a transaction or a flush causes is sent by the connection's next command of ours, if that comes at once.
        for next in ["DELTP none", "UNWATCHEX other", "UNWATCHEX k"] {
            watcher.run("WATCHEX k");
            watcher.pipeline(&["CLIENT REPLY OFF", "MULTI", "SET k v", "EXEC", next]);
            assert_eq!(watcher.next(), added, "{next}");
            watcher.run("CLIENT REPLY ON");
            watcher.run_all(&["UNWATCHEX k", "DEL k"]);
        }
        watcher.run_all(&["SET k v", "WATCHEX k"]);
        watcher.pipeline(&["CLIENT REPLY OFF", "FLUSHALL", "DELTP none"]);
        assert_eq!(watcher.next(), push("watchex k DEL"), "its own flush");
        watcher.run("CLIENT REPLY ON");
        watcher.pipeline(&[
            "MULTI",
            "SET k v",
            "EXEC",
            "CLIENT REPLY SKIP",
            "DELTP none",
            "ECHO next",
        ]);
        let heard = watcher.next_many(5);
        assert!(heard.contains(&added), "{heard:?}");
        assert_eq!(heard.last(), Some(&reply(bulk("next"))));
        watcher.run_all(&["UNWATCHEX", "DEL k"]);
    }
}

fn sorted(mut arrivals: Vec<Arrival>) -> Vec<Arrival> {
    arrivals.sort_by_key(|arrival| format!("{arrival:?}"));
    arrivals
}

#[test]
fn resp2_push_no_refuses_watchex_on_resp2_alone() {
    let server = Server::with(&["tether.resp2-push no"]);
    let (mut old, mut new, mut other) = (server.resp2(), server.resp3(), server.resp2());
    let message = old.refused("WATCHEX k");
    assert!(
        message.contains("RESP2") || message.contains("RESP3"),
        "it must say why: {message}"
    );
    old.run_all(&["MULTI", "WATCHEX k"]);
    assert!(matches!(&old.run("EXEC").items()[..], [Frame::Error(_)]));
    assert_eq!(new.call("WATCHEX k"), bulk("NOEXIST"));
    other.run("SET k v");
    assert_eq!(server.settled(&mut new), ["watchex k ADD"]);
    assert_eq!(server.settled(&mut old), [""; 0]);
    assert_eq!(old.call("UNWATCHEX"), int(0));
    for asks in [
        "SETTP mine v NOTIFY",
        "SETTP mine v WAIT 0 PUSH",
        "LOCK.ACQUIRE mine NOTIFY",
        "LOCK.MACQUIRE 2 mine own NOTIFY",
        "SESSION.RESUME 00000000000000000000000000000000 NOTIFY",
    ] {
        let message = old.refused(asks);
        assert!(message.contains("say HELLO 3 first"), "{asks}: {message}");
        old.run_all(&["MULTI", asks]);
        let refused = old.run("EXEC").items();
        assert!(
            matches!(&refused[..], [Frame::Error(_)]),
            "{asks}: {refused:?}"
        );
    }
    assert_eq!(old.call("EXISTS mine own"), int(0));
    assert_eq!(old.call("SETTP mine v"), int(1), "all else works");
    other.run("CONFIG SET tether.resp2-push yes");
    assert_eq!(old.call("WATCHEX k"), bulk("EXIST"));
}

#[test]
fn a_resp2_subscriber_gets_its_pushes_between_messages() {
    let server = Server::start();
    let (mut watcher, mut other) = (server.resp2(), server.resp2());
    watcher.run("WATCHEX k");
    assert_eq!(
        watcher.call("SUBSCRIBE channel"),
        array([bulk("subscribe"), bulk("channel"), int(1)])
    );
    other.run_all(&["SET k v", "PUBLISH channel m", "DEL k"]);
    assert_eq!(watcher.next_push(), "watchex k ADD");
    assert_eq!(
        watcher.read_reply(),
        array([bulk("message"), bulk("channel"), bulk("m")])
    );
    assert_eq!(watcher.next_push(), "watchex k DEL");
}
