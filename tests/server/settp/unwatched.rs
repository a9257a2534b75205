//! That a held key was replaced or written over shows whether or not anybody on the server watches or waits: only from
//! then on does the module hear of each key that comes into being.

use super::{heard, restore_over_k};
use crate::harness::*;

/// Puts another key in the place of `k`, which is there.
type Replace = fn(&mut Client);

const WAYS: [(&str, Replace); 7] = [
    ("RENAME", |client| {
        client.run_all(&["SET theirs theirs", "RENAME theirs k"]);
    }),
    ("COPY", |client| {
        client.run_all(&["SET theirs theirs", "COPY theirs k REPLACE"]);
    }),
    ("COPY from another database", |client| {
        client.run_all(&["SELECT 5", "SET k theirs", "COPY k k DB 0 REPLACE"]);
        client.run("SELECT 0");
    }),
    ("RESTORE", |client| {
        client.run("SET theirs theirs");
        restore_over_k(client, "theirs");
    }),
    ("RENAME in a transaction", |client| {
        client.run_all(&["SET theirs theirs", "MULTI", "RENAME theirs k", "EXEC"]);
    }),
    ("COPY in a transaction", |client| {
        client.run_all(&["MULTI", "SELECT 5", "SET k theirs", "COPY k k DB 0 REPLACE"]);
        client.run_all(&["SELECT 0", "EXEC"]);
    }),
    ("COPY in a script", |client| {
        client.run("SET theirs theirs");
        client.run([
            "EVAL",
            "redis.call('COPY', 'theirs', KEYS[1], 'REPLACE')",
            "1",
            "k",
        ]);
    }),
];

/// A server on which nobody ever watched or waited, and one on which somebody does.
fn servers() -> [(Server, Option<Client>); 2] {
    servers_with(&[])
}

fn servers_with(lines: &[&str]) -> [(Server, Option<Client>); 2] {
    let (quiet, watched) = (Server::with(lines), Server::with(lines));
    let mut watcher = watched.resp3();
    watcher.run("WATCHEX something k");
    [(quiet, None), (watched, Some(watcher))]
}

fn tether(server: &Server, name: &str) -> i64 {
    server.gauge("tether", &format!("tether_{name}"))
}

fn nothing_is_held(server: &Server, what: &str) {
    let left = ["temporary_keys", "holds"].map(|name| tether(server, name));
    assert_eq!(left, [0, 0], "{what}");
}

fn end(server: &Server, mut client: Client) {
    client.run("QUIT");
    client.expect_closed();
    server.settle();
}

#[test]
fn what_is_replaced_by_a_foreign_hand_is_lost_and_what_is_there_then_is_nobodys() {
    for (server, _watcher) in servers() {
        let mut other = server.resp2();
        for (ask, kind) in [
            ("SETTP k mine NOTIFY", "settp"),
            ("LOCK.ACQUIRE k NOTIFY", "lock"),
        ] {
            for (way, replace) in WAYS {
                let lost = tether(&server, "lost_total");
                let mut owner = server.resp3();
                assert!(owner.run(ask).number() > 0, "{way}");
                replace(&mut other);
                assert_eq!(
                    owner.next_push(),
                    format!("{kind} k LOST overwritten"),
                    "{way}"
                );
                nothing_is_held(&server, &format!("{way}, {kind}"));
                assert_eq!(tether(&server, "lost_total"), lost + 1, "{way}, {kind}");
                end(&server, owner);
                assert_eq!(other.call("GET k"), bulk("theirs"), "{way}, {kind}");
                other.run("FLUSHALL");
            }
        }
    }
}

#[test]
fn what_an_owner_replaces_itself_is_its_own_no_more_and_it_is_not_told() {
    for (server, _watcher) in servers() {
        for (ask, kind) in [
            ("SETTP k mine NOTIFY", "settp"),
            ("LOCK.ACQUIRE k NOTIFY", "lock"),
        ] {
            for (way, replace) in WAYS {
                let lost = tether(&server, "lost_total");
                let mut owner = server.resp3();
                assert!(owner.run(ask).number() > 0, "{way}");
                replace(&mut owner);
                assert_eq!(server.settled(&mut owner), [""; 0], "{way}, {kind}");
                nothing_is_held(&server, &format!("{way}, {kind}"));
                assert_eq!(tether(&server, "lost_total"), lost, "{way}, {kind}");
                end(&server, owner);
                let mut other = server.resp2();
                assert_eq!(other.call("GET k"), bulk("theirs"), "{way}, {kind}");
                other.run("FLUSHALL");
            }
        }
    }
}

/// Its own command it is, however many calls of another module the server has begun in the middle of it.
#[test]
fn what_an_owner_ends_itself_while_another_module_acts_it_is_not_told_of() {
    let (_folder, library) = built(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/history/between.c"
    ));
    let server = Server::with(&[&format!("loadmodule {library}")]);
    if server.strays_after_copies() {
        return;
    }
    let mut other = server.resp3();
    for (ask, kind) in [
        ("SETTP k mine NOTIFY", "settp"),
        ("LOCK.ACQUIRE k NOTIFY", "lock"),
    ] {
        for (way, why) in [
            ("RENAME theirs k", "overwritten"),
            ("RENAME theirs there,DEL k", "deleted"),
            ("RENAME theirs there,RENAME there k", "overwritten"),
            ("RENAME theirs there,RENAME there again,UNLINK k", "deleted"),
        ] {
            for script in [false, true] {
                let what = format!("{way} {kind} {script}");
                let mut owner = server.resp3();
                let calls: Vec<&str> = way.split(',').collect();
                for own in [true, false] {
                    other.run_all(&["DEL k", "SET theirs theirs", "SET a x", "SET b x"]);
                    other.run("BETWEEN 0 a b");
                    assert!(owner.run(ask).number() > 0, "{what}");
                    let who = if own { &mut owner } else { &mut other };
                    if script {
                        let calls = calls.iter().map(|call| call.replace(' ', "','"));
                        let calls = calls.map(|call| format!("redis.call('{call}')"));
                        let script = calls.collect::<Vec<_>>().join(" ");
                        who.run(["EVAL", &script, "0"]);
                    } else {
                        who.run("MULTI");
                        who.run_all(&calls);
                        who.run("EXEC");
                    }
                    let lost = format!("{kind} k LOST {why}");
                    let told: &[&str] = if own { &[] } else { &[&lost] };
                    assert_eq!(server.settled(&mut owner), told, "{what}");
                    assert_eq!(other.call("EXISTS a b"), int(0), "{what}");
                }
                end(&server, owner);
            }
        }
    }
}

#[test]
fn a_held_key_that_takes_the_place_of_another_is_its_own_owners_still() {
    for (server, _watcher) in servers() {
        let mut other = server.resp2();
        for (ask, kind) in [("SETTP", "settp"), ("LOCK.ACQUIRE", "lock")] {
            let value = if ask == "SETTP" { "v" } else { "" };
            let (mut one, mut two) = (server.resp3(), server.resp3());
            one.run(&format!("{ask} a {value} NOTIFY"));
            two.run(&format!("{ask} k {value} NOTIFY"));
            other.run("RENAME a k");
            assert_eq!(two.next_push(), format!("{kind} k LOST overwritten"));
            let held = ["temporary_keys", "holds"].map(|name| tether(&server, name));
            assert_eq!(held.iter().sum::<i64>(), 1);
            end(&server, two);
            assert_eq!(other.call("EXISTS k"), int(1), "{kind}");
            assert_eq!(server.settled(&mut one), [""; 0], "{kind}");
            end(&server, one);
            eventually_gone(&mut other, "k");
        }
    }
}

#[test]
fn a_key_that_was_written_over_is_its_owners_and_goes_with_it() {
    for (server, _watcher) in servers() {
        let mut other = server.resp2();
        other.run_all(&[
            "SADD {k}set x",
            "ZADD {k}scores 1 x",
            "RPUSH {k}list 1",
            "SET {k}bits 1",
        ]);
        for write in [
            "SUNIONSTORE k {k}set {k}nothing",
            "SINTERSTORE k {k}set",
            "ZUNIONSTORE k 1 {k}scores",
            "ZRANGESTORE k {k}scores 0 -1",
            "SORT {k}list STORE k",
            "BITOP NOT k {k}bits",
            "SET k new",
            "SETEX k 1000 new",
        ] {
            let mut owner = server.resp3();
            assert_eq!(owner.call("SETTP k v NOTIFY"), int(1), "{write}");
            other.run(write);
            assert_eq!(server.settled(&mut owner), [""; 0], "{write}");
            assert_eq!(tether(&server, "temporary_keys"), 1, "{write}");
            end(&server, owner);
            eventually_gone(&mut other, "k");
        }
    }
}

#[test]
fn a_key_that_another_module_writes_over_is_its_owners_and_a_lock_is_lost() {
    let (_folder, library) = heard::listener();
    for (server, _watcher) in servers_with(&[&format!("loadmodule {library}")]) {
        let (mut owner, mut other) = (server.resp3(), server.resp2());
        owner.run_all(&["SETTP k v NOTIFY", "LOCK.ACQUIRE l NOTIFY"]);
        other.run_all(&["OVERWRITE k new", "OVERWRITE l new"]);
        assert_eq!(owner.next_push(), "lock l LOST overwritten");
        assert_eq!(server.settled(&mut owner), [""; 0]);
        assert_eq!(other.call("GET k"), bulk("new"));
        end(&server, owner);
        eventually_gone(&mut other, "k");
        assert_eq!(other.call("GET l"), bulk("new"));
    }
}

#[test]
fn of_a_key_that_another_module_removes_its_owner_hears_when_it_is_next_asked_for() {
    let (_folder, library) = heard::listener();
    for (server, _watcher) in servers_with(&[&format!("loadmodule {library}")]) {
        let (mut owner, mut next, mut other) = (server.resp3(), server.resp2(), server.resp2());
        owner.run("SETTP k v NOTIFY");
        other.run("SNATCH k");
        assert_eq!(server.settled(&mut owner), [""; 0]);
        assert_eq!(next.call("SETTP k w NOTIFY"), int(1));
        assert_eq!(owner.next_push(), "settp k LOST deleted");
        end(&server, owner);
        assert_eq!(other.call("GET k"), bulk("w"));
        end(&server, next);
        eventually_gone(&mut other, "k");
    }
}

/// Whoever comes first to watch or wait hears of all that is made from then on.
#[test]
fn the_first_watch_and_the_first_wait_hear_of_what_is_made_next() {
    let server = Server::start();
    let (mut watcher, mut other) = (server.resp3(), server.resp2());
    watcher.run("SETTP held v NOTIFY");
    assert_eq!(watcher.call("WATCHEX k"), bulk("NOEXIST"));
    other.run("SET k v");
    assert_eq!(watcher.next_push(), "watchex k ADD");

    let server = Server::start();
    let (mut owner, mut waiter, mut other) = (server.resp3(), server.resp3(), server.resp2());
    owner.run("SETTP k v NOTIFY");
    assert_eq!(waiter.call("SETTP k w WAIT 0 PUSH"), int(0));
    // A stranger's key stands there before the next in line can have it.
    other.run_all(&["MULTI", "DEL k", "SET k theirs", "EXEC"]);
    assert_eq!(owner.next_push(), "settp k LOST deleted");
    server.settle();
    assert_eq!(other.call("GET k"), bulk("theirs"));
    assert_eq!(tether(&server, "waiters"), 1);
    other.run("DEL k");
    assert!(waiter.next_push().starts_with("settp k "));
    assert_eq!(other.call("GET k"), bulk("w"));
}
