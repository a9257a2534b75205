//! When the key goes, the binding goes: the end of a former owner never touches what came after.

use super::restore_over_k;
use crate::harness::*;

/// A server, the first owner of `k`, and somebody else.
fn scene() -> (Server, Client, Client) {
    let server = Server::start();
    let mut first = server.resp2();
    assert_eq!(first.call("SETTP k first"), int(1));
    let other = server.resp2();
    (server, first, other)
}

/// `k` is gone. A second owner makes it again; the first one's end leaves it alone, the second one's takes it.
fn the_next_owner_is_safe(server: &Server, first: Client, other: &mut Client) {
    let mut second = server.resp2();
    eventually_equal("the second SETTP", int(1), || second.call("SETTP k second"));
    drop(first);
    server.settle();
    assert_eq!(
        other.call("GET k"),
        bulk("second"),
        "the first owner's end took the second one's key"
    );
    drop(second);
    eventually_gone(other, "k");
}

/// `k` is there, made by somebody else. The first owner's end leaves it alone, and so the next owner's key.
fn what_replaced_it_is_safe(server: &Server, first: Client, other: &mut Client, value: &str) {
    let mut second = server.resp2();
    assert_eq!(second.call("SETTP k second"), int(0));
    drop(first);
    server.settle();
    assert_eq!(
        other.call("GET k"),
        bulk(value),
        "the first owner's end took a stranger's key"
    );
    other.run("DEL k");
    assert_eq!(second.call("SETTP k second"), int(1));
    drop(second);
    eventually_gone(other, "k");
}

#[test]
fn after_del() {
    let (server, first, mut other) = scene();
    assert_eq!(other.call("DEL k"), int(1));
    the_next_owner_is_safe(&server, first, &mut other);
}

#[test]
fn after_the_owners_own_del() {
    let (server, mut first, mut other) = scene();
    assert_eq!(first.call("DEL k"), int(1));
    the_next_owner_is_safe(&server, first, &mut other);
}

#[test]
fn after_the_owners_own_deltp() {
    let (server, mut first, mut other) = scene();
    assert_eq!(first.call("DELTP k"), int(1));
    the_next_owner_is_safe(&server, first, &mut other);
}

#[test]
fn after_unlink() {
    let (server, first, mut other) = scene();
    assert_eq!(other.call("UNLINK k"), int(1));
    the_next_owner_is_safe(&server, first, &mut other);
}

#[test]
fn after_getdel() {
    let (server, first, mut other) = scene();
    assert_eq!(other.call("GETDEL k"), bulk("first"));
    the_next_owner_is_safe(&server, first, &mut other);
}

#[test]
fn after_a_del_in_a_transaction_that_makes_it_again() {
    let (server, first, mut other) = scene();
    other.run_all(&["MULTI", "DEL k", "SET k theirs", "EXEC"]);
    what_replaced_it_is_safe(&server, first, &mut other, "theirs");
}

#[test]
fn after_a_script_that_deletes_it_and_makes_it_again() {
    let (server, first, mut other) = scene();
    other.run([
        "EVAL",
        "redis.call('DEL', KEYS[1]); redis.call('SET', KEYS[1], 'theirs')",
        "1",
        "k",
    ]);
    what_replaced_it_is_safe(&server, first, &mut other, "theirs");
}

#[test]
fn after_expiry() {
    let (server, first, mut other) = scene();
    other.run("PEXPIRE k 20");
    eventually_gone(&mut other, "k");
    the_next_owner_is_safe(&server, first, &mut other);
}

#[test]
fn after_an_expiry_that_nobody_noticed_before_the_next_settp() {
    let (server, first, mut other) = scene();
    other.run("DEBUG SET-ACTIVE-EXPIRE 0");
    lapse(&mut other, "k");
    the_next_owner_is_safe(&server, first, &mut other);
}

#[test]
fn after_an_expire_in_the_past() {
    let (server, first, mut other) = scene();
    other.run("EXPIREAT k 1");
    the_next_owner_is_safe(&server, first, &mut other);
}

#[test]
fn after_flushdb() {
    for flush in ["FLUSHDB", "FLUSHDB ASYNC", "FLUSHDB SYNC"] {
        let (server, first, mut other) = scene();
        other.run(flush);
        the_next_owner_is_safe(&server, first, &mut other);
    }
}

#[test]
fn after_flushall() {
    for flush in ["FLUSHALL", "FLUSHALL ASYNC", "FLUSHALL SYNC"] {
        let (server, first, mut other) = scene();
        other.run_all(&["SELECT 3", flush, "SELECT 0"]);
        the_next_owner_is_safe(&server, first, &mut other);
    }
}

#[test]
fn flushing_another_database_changes_nothing() {
    let (_server, first, mut other) = scene();
    other.run_all(&["SELECT 3", "SET x y", "FLUSHDB", "SELECT 0"]);
    assert_eq!(other.call("GET k"), bulk("first"));
    drop(first);
    eventually_gone(&mut other, "k");
}

#[test]
fn after_a_rename_over_it() {
    let (server, first, mut other) = scene();
    other.run_all(&["SET theirs theirs", "RENAME theirs k"]);
    what_replaced_it_is_safe(&server, first, &mut other, "theirs");
}

#[test]
fn after_a_restore_over_it() {
    let (server, first, mut other) = scene();
    other.run("SET theirs theirs");
    restore_over_k(&mut other, "theirs");
    what_replaced_it_is_safe(&server, first, &mut other, "theirs");
}

#[test]
fn after_a_copy_over_it() {
    let (server, first, mut other) = scene();
    other.run_all(&["SET theirs theirs", "COPY theirs k REPLACE"]);
    what_replaced_it_is_safe(&server, first, &mut other, "theirs");
}

#[test]
fn after_a_copy_of_another_owners_key_over_it() {
    let (server, first, mut other) = scene();
    let mut third = server.resp2();
    third.run("SETTP source theirs");
    other.run("COPY source k REPLACE");
    drop(third);
    eventually_gone(&mut other, "source");
    what_replaced_it_is_safe(&server, first, &mut other, "theirs");
}

#[test]
fn after_an_eviction() {
    let server = Server::with(&["maxmemory-policy allkeys-lru"]);
    let (mut first, mut other) = (server.resp2(), server.resp2());
    first.run("SETTP k first");
    other.run("CONFIG SET maxmemory 1"); // everything must go
    eventually("the eviction", || {
        let refused = other.call("SET x y");
        match other.call("EXISTS k").number() {
            0 => Ok(()),
            _ => Err(format!("it exists; a write says {refused:?}")),
        }
    });
    other.run("CONFIG SET maxmemory 0");
    the_next_owner_is_safe(&server, first, &mut other);
}

#[test]
fn after_many_changes_of_hands() {
    let server = Server::start();
    let mut other = server.resp2();
    let mut former = Vec::new();
    for round in 0..20 {
        let mut owner = server.resp2();
        assert_eq!(owner.call(["SETTP", "k", &round.to_string()]), int(1));
        if round < 19 {
            other.run("DEL k");
        }
        former.push(owner);
    }
    let last = former.pop().unwrap();
    drop(former);
    server.settle();
    assert_eq!(other.call("GET k"), bulk("19"));
    drop(last);
    eventually_gone(&mut other, "k");
}
