//! SETTP: replies, transactions, and what they refuse.

mod binding;
mod deltp;
mod ending;
pub mod heard;
mod replacing;
mod sequence;
mod traces;
mod unwatched;

use crate::harness::*;

/// Replaces `k` by a copy of this key.
fn restore_over_k(client: &mut Client, from: &str) {
    let dump = client.run(["DUMP", from]).bytes();
    let words: [&[u8]; 5] = [b"RESTORE", b"k", b"0", &dump, b"REPLACE"];
    client.run(words);
}

#[test]
fn the_first_to_ask_gets_the_key_and_the_next_does_not() {
    let server = Server::start();
    let (mut first, mut second) = (server.resp2(), server.resp3());
    assert_eq!(first.call("SETTP k mine"), int(1));
    assert_eq!(second.call("SETTP k yours"), int(0));
    assert_eq!(second.call("GET k"), bulk("mine"));
    assert_eq!(second.call("TYPE k"), simple("string"));
    assert_eq!(second.call("TTL k"), int(-1));
}

#[test]
fn the_owner_itself_gets_0_for_a_key_it_has() {
    let server = Server::start();
    let mut owner = server.resp2();
    assert_eq!(owner.call("SETTP k one"), int(1));
    assert_eq!(owner.call("SETTP k two"), int(0));
    assert_eq!(owner.call("GET k"), bulk("one"));
}

#[test]
fn a_present_key_of_any_type_stays_as_it_is_and_unbound() {
    let server = Server::start();
    let mut other = server.resp2();
    for (kind, make) in [
        ("string", "SET k v"),
        ("list", "RPUSH k v"),
        ("set", "SADD k v"),
        ("zset", "ZADD k 1 v"),
        ("hash", "HSET k f v"),
        ("stream", "XADD k 1-1 f v"),
    ] {
        other.run(make);
        let before = other.run("DUMP k");
        let mut asker = server.resp2();
        assert_eq!(asker.call("SETTP k mine"), int(0), "{kind}");
        asker.run("QUIT");
        asker.expect_closed();
        server.settle();
        assert_eq!(other.call("TYPE k"), simple(kind));
        assert_eq!(other.call("DUMP k"), before, "{kind}");
        other.run("DEL k");
    }
}

#[test]
fn a_key_whose_time_has_passed_can_be_taken() {
    let server = Server::start();
    let (mut owner, mut other) = (server.resp2(), server.resp2());
    other.run("DEBUG SET-ACTIVE-EXPIRE 0");
    other.run("SET k old PX 1");
    eventually_equal("SETTP", int(1), || owner.call("SETTP k new"));
    assert_eq!(other.call("GET k"), bulk("new"));
    assert_eq!(other.call("PTTL k"), int(-1));
}

#[test]
fn names_and_values_are_bytes() {
    let server = Server::start();
    let mut owner = server.resp2();
    let name = b"\0 \r\n\xff\xfe{}\x80".to_vec();
    let value = b"\xff\0\r\n$-1".to_vec();
    assert_eq!(
        owner.call([b"SETTP".to_vec(), name.clone(), value.clone()]),
        int(1)
    );
    assert_eq!(owner.call([b"SETTP".to_vec(), vec![], vec![]]), int(1));
    let mut other = server.resp2();
    assert_eq!(other.call([b"GET".to_vec(), name.clone()]), bulk(&value));
    assert_eq!(other.call([b"GET".to_vec(), vec![]]), bulk(""));
    drop(owner);
    eventually_equal("the number of keys", int(0), || other.call("DBSIZE"));
}

#[test]
fn commands_are_known_in_any_case_of_letters() {
    let server = Server::start();
    let mut owner = server.resp2();
    assert_eq!(owner.call("settp k v"), int(1));
    assert_eq!(owner.call("SeTtP k v"), int(0));
    assert_eq!(owner.call("WatchEx k"), bulk("EXIST"));
    assert_eq!(owner.call("unwatchEX k"), int(1));
}

#[test]
fn in_a_transaction_settp_works_and_exec_answers_in_order() {
    let server = Server::start();
    let (mut owner, mut other) = (server.resp2(), server.resp2());
    owner.run("MULTI");
    for command in [
        "SETTP k v",
        "SETTP k w",
        "GET k",
        "DEL k",
        "SETTP k x",
        "INCR n",
    ] {
        assert_eq!(owner.call(command), simple("QUEUED"));
    }
    assert_eq!(
        owner.call("EXEC"),
        array([int(1), int(0), bulk("v"), int(1), int(1), int(1)])
    );
    assert_eq!(other.call("GET k"), bulk("x"));
    drop(owner);
    eventually_gone(&mut other, "k");
    assert_eq!(other.call("EXISTS n"), int(1));
}

#[test]
fn a_discarded_transaction_takes_nothing() {
    let server = Server::start();
    let mut owner = server.resp2();
    owner.run_all(&["MULTI", "SETTP k v", "DISCARD"]);
    assert_eq!(owner.call("EXISTS k"), int(0));
}

#[test]
fn a_transaction_refused_by_watch_takes_nothing() {
    let server = Server::start();
    let (mut owner, mut other) = (server.resp2(), server.resp2());
    owner.run_all(&["WATCH w", "MULTI", "SETTP k v"]);
    other.run("SET w 1");
    assert_eq!(owner.call("EXEC"), null());
    assert_eq!(other.call("EXISTS k"), int(0));
    assert_eq!(other.call("SETTP k v"), int(1));
}

/// The server's own WATCH must see the module's writes as it sees its own commands'.
#[test]
fn the_servers_optimistic_watch_sees_settp_and_the_owners_end() {
    let server = Server::start();
    let (mut owner, mut other) = (server.resp2(), server.resp2());
    other.run("WATCH k");
    owner.run("SETTP k v");
    other.run_all(&["MULTI", "SET x 1"]);
    assert_eq!(other.call("EXEC"), null(), "after SETTP");
    other.run("WATCH k");
    drop(owner);
    eventually_gone(&mut server.resp2(), "k");
    other.run_all(&["MULTI", "SET x 1"]);
    assert_eq!(other.call("EXEC"), null(), "after the owner's end");
}

#[test]
fn a_script_is_refused_since_it_is_no_connection() {
    let server = Server::start();
    let mut client = server.resp2();
    for command in [
        "'SETTP','k','v'",
        "'DELTP','k'",
        "'WATCHEX','k'",
        "'UNWATCHEX','k'",
        "'UNWATCHEX'",
    ] {
        client.refused(["EVAL", &format!("return redis.call({command})"), "1", "k"]);
        let caught = client.run([
            "EVAL",
            &format!("return redis.pcall({command})['err']"),
            "1",
            "k",
        ]);
        assert!(!caught.text().is_empty(), "{command} in pcall");
    }
    assert_eq!(client.call("DBSIZE"), int(0));
    assert_eq!(client.call("PING"), simple("PONG"));
}

#[test]
fn a_function_is_refused_since_it_is_no_connection() {
    let server = Server::start();
    let mut client = server.resp2();
    let library = "#!lua name=lib\n\
        redis.register_function('take', function(keys) return redis.call('SETTP', keys[1], 'v') end)\n\
        redis.register_function('look', function(keys) return redis.call('WATCHEX', keys[1]) end)";
    client.run(["FUNCTION", "LOAD", library]);
    client.refused("FCALL take 1 k");
    client.refused("FCALL look 1 k");
    assert_eq!(client.call("DBSIZE"), int(0));
}

#[test]
fn what_a_script_may_do_to_a_temporary_key_is_what_anyone_may() {
    let server = Server::start();
    let (mut owner, mut other) = (server.resp2(), server.resp2());
    owner.run("SETTP k v");
    assert_eq!(
        other.call(["EVAL", "return redis.call('GET', KEYS[1])", "1", "k"]),
        bulk("v")
    );
    assert_eq!(
        other.call(["EVAL", "return redis.call('DEL', KEYS[1])", "1", "k"]),
        int(1)
    );
    assert_eq!(other.call("SETTP k w"), int(1));
    drop(owner);
    server.settle();
    assert_eq!(other.call("GET k"), bulk("w"));
}
