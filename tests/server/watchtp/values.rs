//! What is told of values: each change, by whatever command, once for each step.

use super::{named, page, settp, whole};
use crate::harness::*;
use crate::line::token_of;

#[test]
fn each_write_of_a_value_is_told() {
    let server = Server::start();
    let (mut watcher, mut owner, mut other) = (server.resp3(), server.resp2(), server.resp2());
    let token = settp(&mut owner, "k", "1");
    watcher.run("WATCHTP k");
    for (command, value) in [
        ("APPEND k 2", " 12"),
        ("SET k 7", " 7"),
        ("INCR k", " 8"),
        ("SETRANGE k 0 x", " x"),
        ("SET k w KEEPTTL", " w"),
        ("SETRANGE k 0 new", " new"),
        ("GETSET k x", " x"),
    ] {
        other.run(command);
        let told = server.settled(&mut watcher);
        assert_eq!(told, [format!("watchtp k SET {token}{value}")], "{command}");
    }
    // No change of its value.
    other.run_all(&["GET k", "EXPIRE k 1000", "PERSIST k", "OBJECT ENCODING k"]);
    assert_eq!(server.settled(&mut watcher), [""; 0]);
    // No string any more.
    other.run_all(&["SADD s one two", "SUNIONSTORE k s"]);
    let null = [format!("watchtp k SET {token}")];
    assert_eq!(server.settled(&mut watcher), null);
    other.run("SADD k three");
    assert_eq!(server.settled(&mut watcher), null);
    let mut late = server.resp3();
    assert_eq!(whole(&mut late, "WATCHTP k"), [("k".to_owned(), None)]);
    other.run("SET k text");
    assert_eq!(
        server.settled(&mut watcher),
        [format!("watchtp k SET {token} text")]
    );
}

#[test]
fn a_step_is_told_once_and_a_plain_key_never() {
    let server = Server::start();
    let (mut watcher, mut owner) = (server.resp3(), server.resp2());
    watcher.run("WATCHTP k");
    let token = settp(&mut owner, "k", "v");
    assert_eq!(watcher.next_push(), format!("watchtp k ADD {token} v"));
    owner.run_all(&["MULTI", "APPEND k a", "SET k2 plain", "APPEND k b", "EXEC"]);
    let once = [format!("watchtp k SET {token} vab")];
    assert_eq!(server.settled(&mut watcher), once);
    let script = "redis.call('SET', KEYS[1], 1); return redis.call('INCR', KEYS[1])";
    owner.run(["EVAL", script, "1", "k"]);
    let once = [format!("watchtp k SET {token} 2")];
    assert_eq!(server.settled(&mut watcher), once);
    // The key is gone before anybody could have read it.
    owner.run_all(&["MULTI", "APPEND k c", "DEL k", "EXEC", "APPEND k d"]);
    let gone = [format!("watchtp k DEL {token} deleted")];
    assert_eq!(server.settled(&mut watcher), gone);
}

#[test]
fn a_value_that_is_renamed_after_it_was_changed_is_told_once() {
    let server = Server::start();
    let (mut watcher, mut owner) = (server.resp3(), server.resp2());
    let token = settp(&mut owner, "k", "v");
    watcher.run("WATCHTP k");
    owner.run_all(&["MULTI", "APPEND k a", "RENAME k kk", "EXEC"]);
    let expected = [
        format!("watchtp k DEL {token} renamed"),
        format!("watchtp kk ADD {token} va"),
    ];
    assert_eq!(server.settled(&mut watcher), expected);
}

#[test]
fn long_values_are_not_told() {
    let server = Server::start();
    let (mut watcher, mut owner) = (server.resp3(), server.resp2());
    let (fits, long) = ("x".repeat(4096), "x".repeat(4097));
    let first = settp(&mut owner, "k1", &fits);
    let second = settp(&mut owner, "k2", &long);
    let reply = watcher.run("WATCHTP k");
    let entries = vec![named("k1", &fits), ("k2".to_owned(), None)];
    assert_eq!(page(&reply), (String::new(), entries, vec![first, second]));
    for (key, token, value, told) in [
        ("k2", second, &*fits, format!(" {fits}")),
        ("k1", first, &*long, String::new()),
        // An empty value is one.
        ("k1", first, "", " ".to_owned()),
    ] {
        owner.run(["SET", key, value]);
        let expected = format!("watchtp {key} SET {token}{told}");
        assert_eq!(server.settled(&mut watcher), [expected]);
    }
}

/// A change of the value alone is no news of keys.
#[test]
fn who_watches_keys_only_is_told_of_no_value() {
    let server = Server::start();
    let (mut bare, mut owner, mut next) = (server.resp3(), server.resp2(), server.resp3());
    let first = settp(&mut owner, "k1", "v");
    let entries = [("k1".to_owned(), None)];
    assert_eq!(whole(&mut bare, "WATCHTP k KEYSONLY"), entries);
    owner.run_all(&["SET k1 w", "APPEND k1 x"]);
    let second = settp(&mut owner, "k2", "v");
    next.run("SETTP k1 next WAIT 0 PUSH");
    owner.run("DELTP k1");
    let third = token_of(&server, "k1");
    assert!(third > first);
    owner.run_all(&["SET k2 w", "DELTP k2"]);
    let told = [
        format!("watchtp k2 ADD {second}"),
        format!("watchtp k1 SET {third}"),
        format!("watchtp k2 DEL {second} released"),
    ];
    assert_eq!(server.settled(&mut bare), told);
    // From the page on with values, they are told.
    let fourth = settp(&mut owner, "k2", "v");
    assert_eq!(
        server.settled(&mut bare),
        [format!("watchtp k2 ADD {fourth}")]
    );
    let entries = [named("k1", "next"), named("k2", "v")];
    assert_eq!(whole(&mut bare, "WATCHTP k"), entries);
    owner.run("APPEND k2 x");
    assert_eq!(
        server.settled(&mut bare),
        [format!("watchtp k2 SET {fourth} vx")]
    );
}
