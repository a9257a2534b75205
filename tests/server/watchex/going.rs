//! Every command that can end a key pushes DEL once.

use super::creating::{Case, assert_each_is_told_in_groups, assert_each_is_told_once, heard};
use crate::harness::*;

const ENDING: &[Case] = &[
    (&["SET k v"], "DEL k"),
    (&["SET k v"], "DEL k k"),
    (&["SET k v"], "UNLINK k"),
    (&["SET k v"], "GETDEL k"),
    (&["SET k v"], "EXPIRE k -1"),
    (&["SET k v"], "PEXPIRE k -1"),
    (&["SET k v"], "EXPIREAT k 1"),
    (&["SET k v"], "PEXPIREAT k 1"),
    (&["SET k v"], "GETEX k EXAT 1"),
    (&["SET k v"], "RENAME k new"),
    (&["SET k v"], "RENAMENX k new"),
    (&["SET k v", "SET new v"], "RENAME k new"),
    (&["SET k v"], "MOVE k 5"),
    (&["RPUSH k v"], "LPOP k"),
    (&["RPUSH k v"], "RPOP k"),
    (&["RPUSH k v v"], "LPOP k 2"),
    (&["RPUSH k v"], "BLPOP k 1"),
    (&["RPUSH k v"], "LMPOP 1 k LEFT"),
    (&["RPUSH k v"], "LREM k 0 v"),
    (&["RPUSH k v"], "LTRIM k 1 0"),
    (&["RPUSH k v"], "RPOPLPUSH k new"),
    (&["RPUSH k v"], "LMOVE k new LEFT LEFT"),
    (&["SADD k v"], "SREM k v"),
    (&["SADD k v"], "SPOP k"),
    (&["SADD k v w"], "SPOP k 2"),
    (&["SADD k v"], "SMOVE k new v"),
    (&["ZADD k 1 v"], "ZREM k v"),
    (&["ZADD k 1 v"], "ZPOPMIN k"),
    (&["ZADD k 1 v"], "BZPOPMAX k 1"),
    (&["ZADD k 1 v"], "ZMPOP 1 k MIN"),
    (&["ZADD k 1 v"], "ZREMRANGEBYRANK k 0 -1"),
    (&["ZADD k 1 v"], "ZREMRANGEBYSCORE k -inf +inf"),
    (&["ZADD k 1 v"], "ZREMRANGEBYLEX k - +"),
    (&["HSET k f v"], "HDEL k f"),
    (&["GEOADD k 1 1 v"], "ZREM k v"),
    (&["SET k v"], "SUNIONSTORE k nothing"),
    (&["SET k v"], "SINTERSTORE k nothing"),
    (&["SET k v"], "ZUNIONSTORE k 1 nothing"),
    (&["SET k v"], "ZRANGESTORE k nothing 0 -1"),
    (&["SET k v"], "SORT nothing STORE k"),
    (&["SET k v"], "BITOP AND k nothing"),
    (
        &["SET k v"],
        "GEOSEARCHSTORE k nothing FROMLONLAT 1 1 BYRADIUS 10 km",
    ),
    (&["SET k v"], "FLUSHDB"),
    (&["SET k v"], "FLUSHDB ASYNC"),
    (&["SET k v"], "FLUSHALL"),
    (&["SET k v"], "SWAPDB 0 5"),
];

#[test]
fn every_ending_command_is_told_once() {
    assert_each_is_told_once(ENDING, "watchex k DEL");
}

#[test]
fn the_same_in_a_transaction_and_in_a_script() {
    assert_each_is_told_in_groups(ENDING, "watchex k DEL", |command| {
        command.starts_with('B') && command.contains("POP")
    });
}

#[test]
fn a_key_that_loses_a_part_stays_in_being() {
    let server = Server::start();
    for (setup, command) in [
        ("RPUSH k v w", "LPOP k"),
        ("SADD k v w", "SREM k v"),
        ("ZADD k 1 v 2 w", "ZPOPMIN k"),
        ("HSET k f v g w", "HDEL k f"),
        ("XADD k 1-1 f v", "XDEL k 1-1"),
        ("XADD k 1-1 f v", "XTRIM k MAXLEN 0"),
        ("SET k v", "DEL other"),
        ("SET k v", "COPY k other"),
        ("SET k v", "MOVE other 5"),
    ] {
        assert_eq!(heard(&server, &[setup], &[command]), [""; 0], "{command}");
    }
}

#[test]
fn fields_that_expire_take_their_hash_with_them() {
    let server = Server::start();
    if !server.is_at_least((7, 4), (9, 0)) {
        return say(
            "fields_that_expire_take_their_hash_with_them: this server's hash fields do not expire",
        );
    }
    let mut other = server.resp2();
    let mut watcher = server.resp3();
    watcher.run("WATCHEX k");
    other.run_all(&["HSET k f v", "HPEXPIRE k 20 FIELDS 1 f"]);
    assert_eq!(watcher.next_pushes(2), ["watchex k ADD", "watchex k DEL"]);
    other.run_all(&["HSET k f v", "HPEXPIREAT k 1 FIELDS 1 f"]);
    assert_eq!(watcher.next_pushes(2), ["watchex k ADD", "watchex k DEL"]);
    assert_eq!(server.settled(&mut watcher), [""; 0]);
    assert_eq!(other.call("EXISTS k"), int(0));
}

#[test]
fn a_key_whose_time_is_up_is_told_without_any_access() {
    let server = Server::start();
    let (mut watcher, mut other) = (server.resp3(), server.resp2());
    watcher.run("WATCHEX k");
    other.run("SET k v PX 30");
    assert_eq!(watcher.next_push(), "watchex k ADD");
    assert_eq!(watcher.next_push(), "watchex k DEL");
    assert_eq!(server.settled(&mut watcher), [""; 0]);
}

#[test]
fn a_key_whose_time_is_up_is_told_when_someone_looks() {
    let server = Server::start();
    let (mut watcher, mut other) = (server.resp3(), server.resp2());
    watcher.run("WATCHEX k");
    other.run("DEBUG SET-ACTIVE-EXPIRE 0");
    for look in ["GET k", "SET k w", "SETTP k w"] {
        other.run("SET k v");
        lapse(&mut other, "k");
        other.run(look);
        let expected: &[&str] = match look {
            "GET k" => &["watchex k ADD", "watchex k DEL"],
            // Gone and made again in one command: two changes, both true.
            _ => &["watchex k ADD", "watchex k DEL", "watchex k ADD"],
        };
        let told = server.settled(&mut watcher);
        let overwritten_in_place = look == "SET k w" && told == ["watchex k ADD"];
        assert!(told == expected || overwritten_in_place, "{look}: {told:?}");
        other.run("DEL k");
        server.settled(&mut watcher);
    }
}

#[test]
fn a_set_with_a_time_in_the_past_keeps_the_turns() {
    let server = Server::start();
    let (mut watcher, mut other) = (server.resp3(), server.resp2());
    watcher.run("WATCHEX k");
    other.run_all(&["SET k v", "SET k v PXAT 1"]);
    assert_eq!(watcher.next_pushes(2), ["watchex k ADD", "watchex k DEL"]);
    other.run("SET k v PXAT 1");
    eventually_gone(&mut other, "k");
    let told = server.settled(&mut watcher);
    assert!(
        told.is_empty() || told == ["watchex k ADD", "watchex k DEL"],
        "{told:?}"
    );
}

#[test]
fn an_eviction_is_told() {
    let server = Server::with(&["maxmemory-policy allkeys-lru"]);
    let (mut watcher, mut other) = (server.resp3(), server.resp2());
    let names: Vec<_> = (0..100).map(|n| format!("k{n}")).collect();
    for name in &names {
        other.run(["SET", name, &"x".repeat(1000)]);
        watcher.run(["WATCHEX", name]);
    }
    other.run("CONFIG SET maxmemory 1");
    eventually("the eviction of all keys", || {
        other.call("SET one more");
        let all = ["EXISTS"]
            .into_iter()
            .chain(names.iter().map(String::as_str));
        match other.call(all.collect::<Vec<_>>()).number() {
            0 => Ok(()),
            count => Err(format!("{count} keys are left")),
        }
    });
    let mut told = server.settled(&mut watcher);
    told.sort();
    let mut expected: Vec<_> = names
        .iter()
        .map(|name| format!("watchex {name} DEL"))
        .collect();
    expected.sort();
    assert_eq!(told, expected);
}

#[test]
fn an_element_pushed_and_popped_by_a_blocked_client_is_told_twice() {
    let server = Server::start();
    let (mut watcher, mut blocked, mut other) = (server.resp3(), server.resp2(), server.resp2());
    watcher.run("WATCHEX k");
    blocked.send("BLPOP k 0");
    server.settle();
    other.run("RPUSH k v");
    assert_eq!(blocked.read_reply(), array([bulk("k"), bulk("v")]));
    assert_eq!(
        server.settled(&mut watcher),
        ["watchex k ADD", "watchex k DEL"]
    );
}
