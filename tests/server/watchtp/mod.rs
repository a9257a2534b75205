//! WATCHTP and UNWATCHTP: pages, and what is pushed of temporary keys that come, change and go.

mod limits;
mod reading;
mod replicas;
mod values;

use crate::harness::*;

/// Names with values.
type Shown = Vec<(String, Option<String>)>;

/// The page of a WATCHTP: the name to go on with, and names with values; and the tokens.
fn page(reply: &Frame) -> (String, Shown, Vec<i64>) {
    let parts = reply.items();
    let [next, entries] = &parts[..] else {
        panic!("no page: {reply:?}");
    };
    let entries = entries.items();
    let parts: Vec<Vec<Frame>> = entries.iter().map(Frame::items).collect();
    let text = |frame: &Frame| match frame {
        Frame::Null => None,
        other => Some(other.text()),
    };
    let shown = parts.iter().map(|part| (part[0].text(), text(&part[2])));
    let tokens = parts.iter().map(|part| part[1].number());
    (next.text(), shown.collect(), tokens.collect())
}

/// The only page of it: names with values.
fn whole(watcher: &mut Client, command: &str) -> Shown {
    let (next, shown, _) = page(&watcher.run(command));
    assert_eq!(next, "", "{shown:?}");
    shown
}

fn named(name: &str, value: &str) -> (String, Option<String>) {
    (name.to_owned(), Some(value.to_owned()))
}

/// A temporary key with this value, and its token.
fn settp(owner: &mut Client, key: &str, value: &str) -> i64 {
    owner.run(["SETTP", key, value, "TOKEN"]).number()
}

#[test]
fn it_returns_what_is_there_and_pushes_what_comes_and_goes() {
    let server = Server::start();
    let (mut watcher, mut owner) = (server.resp3(), server.resp2());
    owner.run_all(&["SET m:plain v", "LOCK.ACQUIRE m:lock"]);
    let first = settp(&mut owner, "m:b", "two");
    settp(&mut owner, "n", "other");
    let reply = watcher.run("WATCHTP m:");
    assert_eq!(
        page(&reply),
        (String::new(), vec![named("m:b", "two")], vec![first])
    );
    let second = settp(&mut owner, "m:a", "one");
    owner.run_all(&["SETTP na v", "DELTP m:b", "SET m:plain w"]);
    let third = settp(&mut owner, "m:", "whole");
    owner.run("DEL m:a");
    let mut expected = vec![
        format!("watchtp m:a ADD {second} one"),
        format!("watchtp m:b DEL {first} released"),
        format!("watchtp m: ADD {third} whole"),
        format!("watchtp m:a DEL {second} deleted"),
    ];
    assert_eq!(server.settled(&mut watcher), expected);
    drop(owner);
    expected = vec![format!("watchtp m: DEL {third} died")];
    assert_eq!(watcher.next_pushes(1), expected);
    assert_eq!(watcher.call("UNWATCHTP m:"), int(1));
    server.resp2().run("SETTP m:c v");
    assert_eq!(server.settled(&mut watcher), [""; 0]);
}

#[test]
fn a_handoff_is_one_set_with_the_next_owners_token() {
    let server = Server::start();
    let (mut watcher, mut owner, mut next) = (server.resp3(), server.resp2(), server.resp3());
    let first = settp(&mut owner, "leader", "one");
    watcher.run("WATCHTP leader");
    next.run("SETTP leader two TOKEN WAIT 0 PUSH");
    owner.run("DELTP leader");
    let granted = next.next_push();
    let second: i64 = granted.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(second > first, "{granted}");
    let told = server.settled(&mut watcher);
    assert_eq!(told, [format!("watchtp leader SET {second} two")]);
    drop(next);
    let gone = format!("watchtp leader DEL {second} died");
    assert_eq!(watcher.next_push(), gone);
    assert_eq!(server.settled(&mut watcher), [""; 0]);
}

/// In the queue of a lock a temporary key can be next, and then a lock.
#[test]
fn a_temporary_key_between_two_locks_comes_and_goes() {
    let server = Server::start();
    let (mut watcher, mut first) = (server.resp3(), server.resp3());
    let (mut second, mut third) = (server.resp3(), server.resp3());
    watcher.run("WATCHTP k");
    first.run("LOCK.ACQUIRE k");
    second.run("SETTP k v WAIT 0 PUSH");
    third.run("LOCK.ACQUIRE k WAIT 0 PUSH");
    first.run("LOCK.RELEASE k");
    let granted = second.next_push();
    let token = granted.rsplit(' ').next().unwrap();
    second.run("DELTP k");
    assert!(third.next_push().starts_with("lock k "));
    let expected = [
        format!("watchtp k ADD {token} v"),
        format!("watchtp k DEL {token} released"),
    ];
    assert_eq!(server.settled(&mut watcher), expected);
}

#[test]
fn keys_go_by_rename_and_move_and_come_by_them() {
    let server = Server::start();
    let (mut watcher, mut owner) = (server.resp3(), server.resp2());
    let mut fifth = server.resp3();
    fifth.run_all(&["SELECT 5", "WATCHTP x"]);
    let token = settp(&mut owner, "xa", "v");
    watcher.run_all(&["WATCHTP x", "WATCHTP y"]);
    owner.run_all(&["RENAME xa xb", "RENAME xb y", "RENAME y z", "RENAME z xc"]);
    owner.run("MOVE xc 5");
    let told = server.settled(&mut watcher);
    let expected = [
        format!("watchtp xa DEL {token} renamed"),
        format!("watchtp xb ADD {token} v"),
        format!("watchtp xb DEL {token} renamed"),
        format!("watchtp y ADD {token} v"),
        format!("watchtp y DEL {token} renamed"),
        format!("watchtp xc ADD {token} v"),
        format!("watchtp xc DEL {token} renamed"),
    ];
    assert_eq!(told, expected);
    assert_eq!(
        server.settled(&mut fifth),
        [format!("watchtp xc ADD {token} v")]
    );
    // One that replaces another.
    let (one, other) = (settp(&mut owner, "x1", "1"), settp(&mut owner, "x2", "2"));
    owner.run("RENAME x1 x2");
    let told = server.settled(&mut watcher);
    let expected = [
        format!("watchtp x1 ADD {one} 1"),
        format!("watchtp x2 ADD {other} 2"),
        format!("watchtp x1 DEL {one} renamed"),
        format!("watchtp x2 DEL {other} overwritten"),
        format!("watchtp x2 ADD {one} 1"),
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_flush_is_one_push_and_an_exchange_of_databases_the_end() {
    let server = Server::start();
    let (mut watcher, mut owner) = (server.resp3(), server.resp2());
    for key in 0..50 {
        settp(&mut owner, &format!("k{key}"), "v");
    }
    watcher.run_all(&["WATCHTP k", "WATCHTP j"]);
    owner.run("FLUSHALL");
    let token = settp(&mut owner, "k1", "again");
    let mut told = server.settled(&mut watcher);
    let last = told.pop();
    told.sort();
    assert_eq!(told, ["watchtp j FLUSHED", "watchtp k FLUSHED"]);
    assert_eq!(last, Some(format!("watchtp k1 ADD {token} again")));
    owner.run("SWAPDB 0 3");
    let mut told = server.settled(&mut watcher);
    told.sort();
    assert_eq!(told, ["watchtp j END swapped", "watchtp k END swapped"]);
    assert_eq!(watcher.call("UNWATCHTP"), int(0));
    assert_eq!(whole(&mut watcher, "WATCHTP k"), []);
    watcher.run("SELECT 3");
    assert_eq!(whole(&mut watcher, "WATCHTP k"), [named("k1", "again")]);
}

#[test]
fn expiry_and_eviction_have_their_reasons() {
    let server = Server::start();
    let (mut watcher, mut owner) = (server.resp3(), server.resp2());
    let token = settp(&mut owner, "k", "v");
    watcher.run("WATCHTP k");
    owner.run("PEXPIRE k 20");
    assert_eq!(
        watcher.next_push(),
        format!("watchtp k DEL {token} expired")
    );
    let token = settp(&mut owner, "k", "v");
    owner.run_all(&[
        "CONFIG SET maxmemory-policy allkeys-random",
        "CONFIG SET maxmemory 1",
    ]);
    assert_eq!(watcher.next_push(), format!("watchtp k ADD {token} v"));
    eventually("the eviction of a key", || match watcher.pushes().pop() {
        Some(told) if told == format!("watchtp k DEL {token} evicted") => Ok(()),
        told => Err(format!("{told:?}")),
    });
}

#[test]
fn one_push_for_each_change_where_several_prefixes_match() {
    let server = Server::start();
    let (mut watcher, mut owner) = (server.resp3(), server.resp2());
    watcher.run_all(&["WATCHTP a", "WATCHTP ab KEYSONLY", "WATCHTP abc"]);
    let (one, two) = (settp(&mut owner, "abc", "v"), settp(&mut owner, "ab", "w"));
    owner.run_all(&["APPEND abc x", "DEL ab abc"]);
    let told = server.settled(&mut watcher);
    let (mut ends, begin) = (told[3..].to_vec(), &told[..3]);
    let expected = [
        format!("watchtp abc ADD {one} v"),
        format!("watchtp ab ADD {two} w"),
        format!("watchtp abc SET {one} vx"),
    ];
    assert_eq!(begin, expected);
    ends.sort();
    let expected = [
        format!("watchtp ab DEL {two} deleted"),
        format!("watchtp abc DEL {one} deleted"),
    ];
    assert_eq!(ends, expected);
    watcher.run_all(&["UNWATCHTP a", "UNWATCHTP abc"]);
    let token = settp(&mut owner, "abd", "v");
    // That one wants no values.
    assert_eq!(
        server.settled(&mut watcher),
        [format!("watchtp abd ADD {token}")]
    );
}

#[test]
fn in_a_transaction_the_pushes_follow_its_reply_and_what_it_no_longer_watches_is_not_told() {
    let server = Server::start();
    let (mut watcher, mut other) = (server.resp3(), server.resp3());
    watcher.run_all(&["WATCHTP k", "WATCHTP l"]);
    other.run("WATCHTP k");
    watcher.run_all(&["MULTI", "SETTP k v", "SETTP l v", "UNWATCHTP k", "EXEC"]);
    let told = server.settled(&mut watcher);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("watchtp l ADD "), "{told:?}");
    assert!(other.next_push().starts_with("watchtp k ADD "));
    // Of a page within one, the pushes for what was before it would come after it.
    watcher.run_all(&["MULTI", "SETTP k2 v", "WATCHTP k"]);
    let replies = watcher.run("EXEC").items();
    let refusal = "ERR WATCHTP cannot be used in a transaction";
    assert_eq!(replies[1].text(), refusal);
    assert_eq!(server.settled(&mut watcher), [""; 0]);
}

#[test]
fn resp2_connections_are_told_the_same() {
    let server = Server::start();
    let (mut watcher, mut owner) = (server.resp2(), server.resp3());
    assert_eq!(whole(&mut watcher, "WATCHTP k"), []);
    let token = settp(&mut owner, "k", "v");
    assert_eq!(
        server.settled(&mut watcher),
        [format!("watchtp k ADD {token} v")]
    );
    let mut third = server.resp2();
    third.run("CONFIG SET tether.resp2-push no");
    assert!(third.refused("WATCHTP k").contains("switched off"));
}
