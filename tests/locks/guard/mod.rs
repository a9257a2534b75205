//! LOCK.GUARD: a command that runs only while a token is current, and is the bare command in all else.

mod twins;

use crate::harness::*;
use crate::line::*;
use std::thread::sleep;
use std::time::Duration;

/// `LOCK.GUARD` of a command.
fn guarded<T: AsRef<[u8]>>(key: &str, token: i64, words: &[T]) -> Vec<Vec<u8>> {
    let guard = ["LOCK.GUARD", key, &token.to_string()].map(|word| word.as_bytes().to_vec());
    let words = words.iter().map(|word| word.as_ref().to_vec());
    guard.into_iter().chain(words).collect()
}

fn guard(client: &mut Client, token: i64, command: &str) -> Frame {
    let words: Vec<_> = command.split(' ').collect();
    client.call(guarded("k", token, &words))
}

fn stale(token: i64, why: &str) -> Frame {
    Frame::Error(format!("STALE token {token} is not current: {why}").into())
}

const NOBODY: &str = "nobody holds the key";

#[test]
fn a_command_runs_while_the_token_is_current_and_not_after_it() {
    let server = Server::start();
    let (mut holder, mut next, mut data) = (server.resp3(), server.resp3(), server.resp2());
    let token = holder.run("LOCK.ACQUIRE k").number();
    assert_eq!(guard(&mut data, token, "SET data one"), simple("OK"));
    assert_eq!(guard(&mut holder, token, "APPEND data !"), int(4));
    let held = format!("the key is held with token {token}");
    let reply = guard(&mut data, token - 1, "SET data two");
    assert_eq!(reply, stale(token - 1, &held));
    queue(&server, &mut next, "LOCK.ACQUIRE k WAIT 0");
    holder.run("LOCK.RELEASE k");
    let second = next.read_reply().number();
    let held = format!("the key is held with token {second}");
    assert_eq!(guard(&mut data, token, "SET data two"), stale(token, &held));
    assert_eq!(guard(&mut data, second, "GET data"), bulk("one!"));
    quit(&server, next);
    assert_eq!(guard(&mut data, second, "DEL data"), stale(second, NOBODY));
    assert_eq!(data.run("GET data"), bulk("one!"));
}

#[test]
fn a_lease_that_is_over_guards_nothing_although_it_could_not_be_ended() {
    in_time(|ms| {
        let server = Server::with(&["min-replicas-to-write 0"]);
        let (mut holder, mut data) = (server.resp3(), server.resp2());
        let lease = format!("LOCK.ACQUIRE k LEASE {ms}");
        let token = holder.run(&lease).number();
        let over = stale(token, NOBODY);
        let one = guard(&mut data, token, "SET data one");
        data.run("CONFIG SET min-replicas-to-write 1");
        let two = guard(&mut data, token, "SET data two");
        let read = guard(&mut data, token, "GET data");
        if [&one, &two, &read].contains(&&over) {
            return None;
        }
        assert_eq!(one, simple("OK"));
        assert!(matches!(two, Frame::Error(text) if text.starts_with(b"NOREPLICAS")));
        assert_eq!(read, bulk("one"));
        sleep(Duration::from_millis(ms + 100));
        assert_eq!(holders(&server, "k"), [holder.id()], "it is there still");
        assert_eq!(guard(&mut data, token, "GET data"), over);
        Some(())
    });
}

#[test]
fn what_scripts_may_not_call_and_what_belongs_to_a_connection_is_not_run() {
    let server = Server::start();
    let (mut holder, mut data) = (server.resp3(), server.resp3());
    let token = holder.run("LOCK.ACQUIRE k").number();
    let mut refused = |command: &str, name: &str| {
        let expected = format!("ERR LOCK.GUARD does not run '{name}'");
        assert_eq!(
            guard(&mut data, token, command),
            Frame::Error(expected.into())
        );
    };
    for command in [
        "MULTI",
        "EXEC",
        "DISCARD",
        "WATCH a",
        "SUBSCRIBE a",
        "EVAL return 0",
        "FCALL f 0",
        "MONITOR",
        "RESET",
        "HELLO 2",
        "SAVE",
        "SHUTDOWN",
        "SETTP a v",
        "WATCHEX a",
        "LOCK.ACQUIRE a",
        "LOCK.RELEASE k",
        "SESSION.START",
    ] {
        let name = command
            .split(' ')
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase();
        refused(command, &name);
    }
    for (command, name) in [
        ("SELECT 1", "select"),
        ("select 1", "select"),
        ("ASKING", "asking"),
        ("READONLY", "readonly"),
        ("READWRITE", "readwrite"),
        ("WAIT 0 1", "wait"),
        ("WAITAOF 0 0 1", "waitaof"),
        ("CLIENT REPLY OFF", "client|reply"),
        ("CLIENT KILL ID 1", "client|kill"),
        ("lock.guard k 1 GET a", "lock.guard"),
    ] {
        refused(command, name);
    }
    // It blocks nobody: where it may be called at all, it answers as in a transaction.
    let reply = guard(&mut data, token, "BLPOP none 0");
    let refused = Frame::Error("ERR LOCK.GUARD does not run 'blpop'".into());
    assert!(reply == null() || reply == refused, "{reply:?}");
    assert_eq!(data.run("PING"), simple("PONG"));
}

/// What it runs may write, so it waits as long as the server wants no writes: also because of a token that lapses meanwhile.
#[test]
fn it_waits_for_the_end_of_a_pause_and_checks_then() {
    let server = Server::start();
    let (mut holder, mut data, mut admin) = (server.resp3(), server.resp2(), server.resp2());
    let token = holder.run("LOCK.ACQUIRE k").number();
    let lapsing = holder.run("LOCK.ACQUIRE k2 LEASE 200").number();
    admin.run("CLIENT PAUSE 100000 WRITE");
    data.send(guarded("k", token, &["SET", "data", "v"]));
    let mut late = server.resp2();
    late.send(guarded("k2", lapsing, &["SET", "late", "v"]));
    sleep(Duration::from_millis(300));
    assert_eq!(admin.run("EXISTS data late"), int(0));
    assert!(!data.has_reply());
    admin.run("CLIENT UNPAUSE");
    assert_eq!(data.read_reply(), simple("OK"));
    assert_eq!(late.read_reply(), stale(lapsing, NOBODY));
    assert_eq!(admin.run("EXISTS data late"), int(1));
}

/// A guard within a guard, as deep as a command may be, must not be looked into: not for keys either.
#[test]
fn guards_within_guards_are_refused_however_many() {
    let server = Server::start();
    let mut client = server.resp2();
    client.run("ACL SETUSER some on nopass +@all ~some*");
    let mut some = server.resp2();
    some.run("AUTH some x");
    let mut words = Vec::new();
    for _ in 0..100_000 {
        words.extend(["LOCK.GUARD", "some:k", "1"]);
    }
    words.extend(["GET", "some:v"]);
    let expected = "ERR LOCK.GUARD does not run 'lock.guard'";
    assert_eq!(client.refused(words.clone()), expected);
    assert_eq!(some.refused(words.clone()), expected);
    let asked = [vec!["COMMAND", "GETKEYS"], words].concat();
    assert_eq!(client.run(asked), array([bulk("some:k")]));
}

/// Where scripts may call them at all.
#[test]
fn what_would_block_answers_as_in_a_transaction() {
    for resp in [2, 3] {
        let server = Server::start();
        let mut holder = server.resp3();
        let token = holder.run("LOCK.ACQUIRE k").number().to_string();
        let mut data = if resp == 2 {
            server.resp2()
        } else {
            server.resp3()
        };
        for command in [
            "BLMOVE none to LEFT LEFT 1",
            "BRPOPLPUSH none to 1",
            "BLPOP none 1",
            "BZPOPMIN none 1",
            "BLMPOP 1 1 none LEFT",
            "XREAD BLOCK 50 STREAMS none 0-0",
        ] {
            let reply = data.call(&format!("LOCK.GUARD k {token} {command}"));
            if matches!(reply, Frame::Error(_)) {
                continue;
            }
            // Its bytes: the servers have two kinds of nothing.
            let words = |line: &str| {
                let words: Vec<_> = line.split(' ').collect();
                let bulks = words
                    .iter()
                    .map(|word| format!("${}\r\n{word}\r\n", word.len()));
                format!("*{}\r\n{}", words.len(), bulks.collect::<String>())
            };
            let mut nothing = [0, 1].map(|guarded| {
                let given = match guarded {
                    0 => command.to_owned(),
                    _ => format!("LOCK.GUARD k {token} {command}"),
                };
                data.run_all(&["MULTI", &given]);
                data.send_bytes(words("EXEC").as_bytes());
                let begin = data.raw_bytes(4);
                let null = if resp == 3 { 3 } else { 5 };
                (begin, data.raw_bytes(null))
            });
            nothing.sort();
            assert_eq!(nothing[0], nothing[1], "{command}");
        }
    }
}

/// The bare command would store a number as one.
#[test]
fn a_number_is_stored_as_text_and_is_the_same_value() {
    let server = Server::start();
    let (mut holder, mut data) = (server.resp3(), server.resp2());
    let token = holder.run("LOCK.ACQUIRE k").number();
    data.run("SET bare 10");
    assert_eq!(guard(&mut data, token, "SET guarded 10"), ok());
    assert_eq!(data.run("OBJECT ENCODING bare"), bulk("int"));
    assert_eq!(data.run("OBJECT ENCODING guarded"), bulk("embstr"));
    let digests = data.run("DEBUG DIGEST-VALUE bare guarded").items();
    assert_eq!(digests[0], digests[1]);
    assert_eq!(guard(&mut data, token, "INCR guarded"), int(11));
    assert_eq!(data.run("OBJECT ENCODING guarded"), bulk("int"));
}

/// The guard is given all that its command keeps from those who look on.
#[test]
fn nothing_shows_the_secrets_of_guarded_commands() {
    let server = Server::with(&["slowlog-log-slower-than 0", "slowlog-max-len 1000"]);
    let mut monitor = server.resp2();
    monitor.send("MONITOR");
    assert_eq!(monitor.read_reply(), ok());
    let (mut holder, mut data) = (server.resp3(), server.resp3());
    let token = holder.run("LOCK.ACQUIRE k").number();
    data.run("SET data v");
    for token in [token, 7] {
        for command in [
            "MIGRATE 127.0.0.1 1 data 0 10 AUTH hushed",
            "MIGRATE 127.0.0.1 1 data 0 10 AUTH2 one hushed",
            "MIGRATE 127.0.0.1 1 data 0 no AUTH hushed",
            "SESSION.RESUME hushed",
            "HELLO 3 AUTH one hushed",
            "AUTH hushed",
            "CONFIG SET requirepass hushed",
            "ACL SETUSER one >hushed",
        ] {
            let reply = guard(&mut data, token, command);
            assert!(matches!(reply, Frame::Error(_)), "{command}: {reply:?}");
            data.run("MULTI");
            guard(&mut data, token, command);
            data.run("EXEC");
        }
    }
    guard(&mut data, token, "STRLEN data");
    let shown = format!("{:?}", data.run("SLOWLOG GET 1000"));
    data.run("SET the end");
    let mut seen = String::new();
    while !seen.contains("\"the\" \"end\"") {
        seen += &monitor.read_reply().text();
        seen += "\n";
    }
    for (name, text) in [("MONITOR", &seen), ("SLOWLOG", &shown)] {
        assert!(
            text.contains("STRLEN") && text.contains("MIGRATE"),
            "{name}: {text}"
        );
        assert!(!text.contains("hushed"), "{name} shows the secret: {text}");
    }
    assert!(!server.log().contains("hushed"));
}

#[test]
fn errors_come_as_of_the_bare_command() {
    let server = Server::start();
    let (mut holder, mut data) = (server.resp3(), server.resp2());
    let token = holder.run("LOCK.ACQUIRE k").number();
    data.run("RPUSH list a");
    for command in [
        "GET list",
        "INCR k",
        "SET a v EX 0",
        "GET",
        "NOSUCH a",
        "XINFO NOSUCH a",
        "HELP",
    ] {
        let bare = data.call(command);
        assert_eq!(guard(&mut data, token, command), bare, "{command}");
    }
    data.run("CONFIG SET maxmemory 1");
    let refused = |frame: Frame| match frame {
        Frame::Error(text) => String::from_utf8_lossy(&text)
            .split(' ')
            .next()
            .unwrap_or_default()
            .to_owned(),
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(guard(&mut data, token, "SET a v")), "OOM");
    assert_eq!(guard(&mut data, token, "STRLEN a"), int(0));
    data.run("CONFIG SET maxmemory 0");
    let replica = Server::replica_of(&server, &[]);
    replica.catch_up(&server);
    let reply = guard(&mut replica.resp2(), token, "GET list");
    assert_eq!(reply, stale(token, "this server is a replica"));
}

/// No right but those to both commands is looked at.
#[test]
fn errors_come_so_to_who_may_run_nothing_else() {
    let server = Server::start();
    let (mut admin, mut holder) = (server.resp2(), server.resp3());
    let token = holder.run("LOCK.ACQUIRE k").number();
    admin.run("RPUSH list a");
    for (name, command) in [
        ("getdel", "GETDEL list"),
        ("getex", "GETEX list PERSIST"),
        ("getset", "GETSET list v"),
        ("incr", "INCR list"),
        ("set", "SET list v GET"),
        ("spop", "SPOP list"),
    ] {
        admin.run("ACL DELUSER one");
        let rights = format!("on nopass ~* +lock.guard +{name}");
        admin.run(&format!("ACL SETUSER one {rights}"));
        for mut one in [server.resp2(), server.resp3()] {
            one.run("AUTH one x");
            let bare = one.refused(command);
            assert!(bare.starts_with("WRONGTYPE "), "{command}: {bare}");
            let reply = guard(&mut one, token, command);
            assert_eq!(reply, Frame::Error(bare.into()), "{command}");
        }
    }
    assert_eq!(admin.run("ACL LOG"), array([]));
}

/// The caller needs the right to give the guard, to read its key, and all that the command itself needs.
#[test]
fn it_takes_the_rights_of_both_commands() {
    let server = Server::start();
    let (mut admin, mut holder) = (server.resp2(), server.resp3());
    let token = holder.run("LOCK.ACQUIRE k").number();
    for (rights, command, allowed) in [
        ("+lock.guard +set ~data %R~k", "SET data v", true),
        ("+set ~data %R~k", "SET data v", false),
        ("+lock.guard ~data %R~k", "SET data v", false),
        ("+lock.guard +set ~data", "SET data v", false),
        ("+lock.guard +set %R~data %R~k", "SET data v", false),
        ("+lock.guard +mset ~data %R~k", "MSET data v other w", false),
        (
            "+lock.guard +mset ~data %R~k",
            "MSET data v a 1 b 2 c 3 d 4 e 5 f 6 g 7",
            false,
        ),
        ("+lock.guard +publish ~* &ones", "PUBLISH ones m", true),
        ("+lock.guard +publish ~* &ones", "PUBLISH others m", false),
        ("+lock.guard +config|get ~*", "CONFIG GET maxmemory", false),
    ] {
        admin.run("ACL DELUSER one");
        admin.run(&format!("ACL SETUSER one on nopass resetchannels {rights}"));
        let mut one = server.resp2();
        one.run("AUTH one x");
        let reply = guard(&mut one, token, command);
        let is_refused = matches!(&reply, Frame::Error(text) if text.starts_with(b"NOPERM"));
        let is_unrun = matches!(&reply, Frame::Error(text) if text.ends_with(b"'config|get'"));
        assert_eq!(
            is_refused || is_unrun,
            !allowed,
            "{rights}: {command}: {reply:?}"
        );
    }
    assert_eq!(admin.run("EXISTS data other a"), int(1));
}

/// The guarding key alone is what servers are told of: where a command tells its keys by itself, they ask in threads of their own.
#[test]
fn the_guarding_key_alone_is_told() {
    let server = Server::start();
    let mut client = server.resp2();
    for command in ["GET a", "LMOVE a b LEFT LEFT", "PING", "NOSUCH a"] {
        let words = format!("COMMAND GETKEYSANDFLAGS LOCK.GUARD k 1 {command}");
        let pairs = client.run(&words).items();
        assert_eq!(pairs.len(), 1, "{command}");
        let flags: Vec<_> = pairs[0].items()[1]
            .items()
            .iter()
            .map(Frame::text)
            .collect();
        assert_eq!(
            (pairs[0].items()[0].text(), flags.join(" ")),
            ("k".into(), "RO access".into())
        );
    }
}

/// What the guarded command does to keys is the caller's own doing, the guarding key included.
#[test]
fn what_it_does_is_the_callers_own_act() {
    let server = Server::start();
    let (mut holder, mut other) = (server.resp3(), server.resp3());
    let token = holder.run("LOCK.ACQUIRE k NOTIFY").number();
    assert_eq!(guard(&mut holder, token, "DEL k"), int(1));
    assert_eq!(guard(&mut holder, token, "PING"), stale(token, NOBODY));
    assert_eq!(server.settled(&mut holder), [""; 0], "its own doing");
    let token = holder.run("LOCK.ACQUIRE k NOTIFY").number();
    assert_eq!(guard(&mut holder, token, "RENAME k to"), simple("OK"));
    assert_eq!(server.settled(&mut holder), [""; 0]);
    holder.run("LOCK.RELEASE to");
    let token = holder.run("LOCK.ACQUIRE k NOTIFY").number();
    assert_eq!(guard(&mut other, token, "DEL k"), int(1));
    assert_eq!(holder.next_push(), "lock k LOST deleted");
    // A waiter is served, and a watcher told, as after any DEL.
    let token = holder.run("LOCK.ACQUIRE k").number();
    other.run("WATCHEX k data");
    queue_push(&mut other, "LOCK.ACQUIRE k WAIT 0 PUSH");
    assert_eq!(guard(&mut holder, token, "SET data v"), simple("OK"));
    assert_eq!(other.next_push(), "watchex data ADD");
    assert_eq!(guard(&mut holder, token, "DEL k"), int(1));
    assert!(other.next_push().starts_with("watchex k") || tether(&server, "tether_holds") == 1);
}

/// The caller's own watches and requests are told as of a bare command.
#[test]
fn the_callers_own_pushes_are_those_of_the_bare_command() {
    for resp in [2, 3] {
        let server = Server::start();
        let connect = || {
            if resp == 2 {
                server.resp2()
            } else {
                server.resp3()
            }
        };
        let (mut bare, mut guards) = (connect(), connect());
        let token = guards.run("LOCK.ACQUIRE k").number();
        let told = |client: &mut Client, key: &str, token: Option<i64>| {
            client.run(&format!("WATCHEX {key}"));
            let mut heard = Vec::new();
            for command in ["SET", "GETDEL", "SET", "SWAPDB"] {
                let words = match command {
                    "SET" => format!("SET {key} v"),
                    "SWAPDB" => "SWAPDB 0 0".to_owned(),
                    other => format!("{other} {key}"),
                };
                match token {
                    Some(token) => guard(client, token, &words),
                    None => client.call(&words),
                };
                heard.extend(server.settled(client));
            }
            client.run(&format!("DEL {key}"));
            server.settled(client);
            heard
        };
        let expected: Vec<_> = told(&mut bare, "a", None);
        let heard: Vec<_> = told(&mut guards, "b", Some(token));
        let as_a: Vec<_> = heard
            .iter()
            .map(|push| push.replace(" b ", " a "))
            .collect();
        assert_eq!(as_a, expected);
        assert_eq!(expected.len(), 3, "{expected:?}");
    }
}

#[test]
fn in_a_transaction_a_stale_token_stops_only_its_own_command() {
    let server = Server::start();
    let mut client = server.resp3();
    let token = client.run("LOCK.ACQUIRE k").number();
    let guarded = |token: i64| format!("LOCK.GUARD k {token} SET data {token}");
    client.run_all(&[
        "MULTI",
        &guarded(token),
        &guarded(7),
        "LOCK.RELEASE k",
        &guarded(token),
    ]);
    let held = format!("the key is held with token {token}");
    assert_eq!(
        client.run("EXEC"),
        array([simple("OK"), stale(7, &held), int(0), stale(token, NOBODY)])
    );
    assert_eq!(client.run("GET data").text(), token.to_string());
}
