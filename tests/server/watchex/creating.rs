//! Every command that can bring a key into being pushes ADD once, and none does for a key that is there already.

use crate::harness::*;

/// What a watcher of `k` in database 0 hears of `commands` after `setup`.
pub fn heard(server: &Server, setup: &[&str], commands: &[&str]) -> Vec<String> {
    let mut other = server.resp2();
    other.run("FLUSHALL");
    other.run_all(setup);
    let mut watcher = server.resp3();
    watcher.run("WATCHEX k");
    other.run_all(commands);
    server.settled(&mut watcher)
}

/// A setting, and the command that is to be told.
pub type Case = (&'static [&'static str], &'static str);

/// Each of these commands makes a watcher of `k` hear this, once.
pub fn assert_each_is_told_once(cases: &[Case], expected: &str) {
    let server = Server::start();
    for (setup, command) in cases {
        assert_eq!(
            heard(&server, setup, &[command]),
            [expected],
            "{setup:?} {command}"
        );
    }
}

/// The same in a transaction; and in a script, where it is not refused there.
pub fn assert_each_is_told_in_groups(
    cases: &[Case],
    expected: &str,
    is_refused_in_scripts: impl Fn(&str) -> bool,
) {
    let server = Server::start();
    for (setup, command) in cases {
        assert_eq!(
            heard(&server, setup, &["MULTI", command, "EXEC"]),
            [expected],
            "in MULTI: {command}"
        );
        if is_refused_in_scripts(command) {
            continue;
        }
        let mut other = server.resp2();
        other.run("FLUSHALL");
        other.run_all(setup);
        let mut watcher = server.resp3();
        watcher.run("WATCHEX k");
        let words: Vec<_> = command.split(' ').map(|word| format!("'{word}'")).collect();
        let script = format!("return redis.call({})", words.join(","));
        other.run(["EVAL", &script, "0"]);
        assert_eq!(
            server.settled(&mut watcher),
            [expected],
            "in a script: {command}"
        );
    }
}

const CREATING: &[Case] = &[
    (&[], "SET k v"),
    (&[], "SET k v EX 100"),
    (&[], "SETNX k v"),
    (&[], "SETEX k 100 v"),
    (&[], "PSETEX k 100000 v"),
    (&[], "GETSET k v"),
    (&[], "MSET other v k v"),
    (&[], "MSETNX other v k v"),
    (&[], "SETTP k v"),
    (&[], "APPEND k v"),
    (&[], "SETRANGE k 3 v"),
    (&[], "SETBIT k 7 1"),
    (&[], "BITFIELD k SET u8 0 1"),
    (&[], "INCR k"),
    (&[], "DECRBY k 5"),
    (&[], "INCRBYFLOAT k 1.5"),
    (&[], "PFADD k v"),
    (&[], "LPUSH k v"),
    (&[], "RPUSH k v"),
    (&[], "SADD k v"),
    (&[], "ZADD k 1 v"),
    (&[], "ZINCRBY k 1 v"),
    (&[], "HSET k f v"),
    (&[], "HSETNX k f v"),
    (&[], "HINCRBY k f 1"),
    (&[], "HINCRBYFLOAT k f 1.5"),
    (&[], "GEOADD k 1 1 v"),
    (&[], "XADD k * f v"),
    (&[], "XGROUP CREATE k g $ MKSTREAM"),
    (&["SET a v"], "RENAME a k"),
    (&["SET a v"], "RENAMENX a k"),
    (&["SET a v"], "COPY a k"),
    (&["SET a v"], "BITOP NOT k a"),
    (&["PFADD a v"], "PFMERGE k a"),
    (&["RPUSH a v"], "RPOPLPUSH a k"),
    (&["RPUSH a v"], "LMOVE a k LEFT LEFT"),
    (&["RPUSH a v"], "BLMOVE a k LEFT LEFT 1"),
    (&["RPUSH a v"], "SORT a ALPHA STORE k"),
    (&["SADD a v"], "SMOVE a k v"),
    (&["SADD a v"], "SUNIONSTORE k a"),
    (&["SADD a v"], "SINTERSTORE k a a"),
    (&["SADD a v"], "SDIFFSTORE k a b"),
    (&["ZADD a 1 v"], "ZUNIONSTORE k 1 a"),
    (&["ZADD a 1 v"], "ZINTERSTORE k 1 a"),
    (&["ZADD a 1 v"], "ZDIFFSTORE k 1 a"),
    (&["ZADD a 1 v"], "ZRANGESTORE k a 0 -1"),
    (
        &["GEOADD a 1 1 v"],
        "GEOSEARCHSTORE k a FROMLONLAT 1 1 BYRADIUS 10 km",
    ),
];

#[test]
fn every_creating_command_is_told_once() {
    assert_each_is_told_once(CREATING, "watchex k ADD");
}

#[test]
fn the_same_in_a_transaction_and_in_a_script() {
    assert_each_is_told_in_groups(CREATING, "watchex k ADD", |command| {
        command.starts_with("SETTP") || command.starts_with("BLMOVE")
    });
}

#[test]
fn a_function_is_told_like_a_command() {
    let server = Server::start();
    server.resp2().run([
        "FUNCTION",
        "LOAD",
        "#!lua name=lib\nredis.register_function('toggle', function(keys)\n\
         redis.call('SET', keys[1], 'v'); redis.call('DEL', keys[1]); return redis.call('SET', keys[1], 'v') end)",
    ]);
    let told = heard(&server, &[], &["FCALL toggle 1 k"]);
    assert_eq!(told, ["watchex k ADD", "watchex k DEL", "watchex k ADD"]);
}

#[test]
fn an_overwritten_key_stays_in_being() {
    let server = Server::start();
    let make_string: &[&str] = &[
        "SET k v",
        "SET a v",
        "SADD set v",
        "ZADD zset 1 v",
        "RPUSH list v",
        "PFADD hll v",
    ];
    for command in [
        "SET k w",
        "SET k w KEEPTTL",
        "SETEX k 100 w",
        "GETSET k w",
        "MSET k w x y",
        "APPEND k w",
        "SETRANGE k 2 w",
        "SETNX k w",
        "SETTP k w NOTIFY",
        "EXPIRE k 100",
        "GETEX k EX 100",
        "PERSIST k",
        "RENAME a k",
        "RENAME list k",
        "RENAMENX a k",
        "COPY a k REPLACE",
        "COPY set k REPLACE",
        "BITOP NOT k a",
        "SUNIONSTORE k set",
        "ZUNIONSTORE k 1 zset",
        "ZRANGESTORE k zset 0 -1",
        "SORT list ALPHA STORE k",
        "RENAME k k",
        "TOUCH k",
    ] {
        assert_eq!(
            heard(&server, make_string, &[command]),
            [""; 0],
            "{command}"
        );
    }
}

#[test]
fn a_restored_key_is_new_or_replaced() {
    let server = Server::start();
    let (mut watcher, mut other) = (server.resp3(), server.resp2());
    other.run("SET source v");
    let dump = other.run("DUMP source").bytes();
    let restore = |option: &[&[u8]]| -> Vec<Vec<u8>> {
        let words: [&[u8]; 4] = [b"RESTORE", b"k", b"0", &dump];
        words
            .iter()
            .chain(option)
            .map(|word| word.to_vec())
            .collect()
    };
    watcher.run("WATCHEX k");
    other.run(restore(&[]));
    assert_eq!(server.settled(&mut watcher), ["watchex k ADD"]);
    other.run(restore(&[b"REPLACE"]));
    other.run(restore(&[b"REPLACE", b"IDLETIME", b"5"]));
    other.refused(restore(&[]));
    assert_eq!(
        server.settled(&mut watcher),
        [""; 0],
        "replaced in one step"
    );
    other.run(vec![
        &b"RESTORE"[..],
        b"k",
        b"1",
        &dump,
        b"REPLACE",
        b"ABSTTL",
    ]); // its time passed long ago
    eventually_gone(&mut other, "k");
    assert_eq!(server.settled(&mut watcher), ["watchex k DEL"]);
}
