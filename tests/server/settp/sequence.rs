//! SETTP ... SEQ: keys that are named after their token.

use crate::harness::*;
use crate::line::{field, tether, token_of};

fn named(key: &str, token: i64) -> String {
    format!("{key}{token:016}")
}

/// The name and the token of a reply.
fn made(reply: &Frame) -> (String, i64) {
    let [name, token] = &reply.items()[..] else {
        panic!("{reply:?}")
    };
    (name.text(), token.number())
}

/// The next one's token.
fn next_token(client: &mut Client) -> i64 {
    let last = client.run("LOCK.ACQUIRE next_token").number();
    client.run("LOCK.RELEASE next_token");
    last + 1
}

#[test]
fn names_rise_and_are_held_like_any_temporary_key() {
    let server = Server::start();
    let (mut one, mut two) = (server.resp2(), server.resp3());
    let mut last = String::new();
    for round in 0..5 {
        for client in [&mut one, &mut two] {
            let (name, token) = made(&client.run("SETTP n: v SEQ NOTIFY"));
            assert_eq!(name, named("n:", token));
            assert!(name > last, "{round}");
            assert_eq!(token_of(&server, &name), token);
            assert_eq!(
                client.run(["LOCK.CHECK", &name, &token.to_string()]),
                int(1)
            );
            assert_eq!(client.run(["GET", &name]), bulk("v"));
            assert_eq!(client.run(["TTL", &name]), int(-1));
            last = name;
        }
    }
    assert_eq!(one.run("EXISTS n:"), int(0));
    assert_eq!(one.run(["DELTP", &last]), int(0));
    assert_eq!(two.run(["DELTP", &last]), int(1));
    two.run("QUIT");
    eventually_equal("keys that are left", int(5), || one.run("DBSIZE"));
    // The key that is given need not be there, nor be of any type, and stays.
    one.run("RPUSH n: x");
    made(&one.run("SETTP n: v seq token"));
    assert_eq!(one.run("LLEN n:"), int(1));
    // Any bytes, and none.
    let empty = one.run([&b"SETTP"[..], b"", b"v", b"SEQ"]);
    assert_eq!(made(&empty).0.len(), 16);
    let bytes = one.run([&b"SETTP"[..], b"\xff\r\n", b"v", b"SEQ"]).items();
    assert!(bytes[0].clone().bytes().starts_with(b"\xff\r\n0"));
}

#[test]
fn what_it_cannot_be_asked_for_together_with_is_refused() {
    let server = Server::start();
    let mut client = server.resp3();
    for options in ["SEQ WAIT 0", "WAIT 10 SEQ PUSH", "SEQ WAIT 0 PUSH TOKEN"] {
        let refused = client.refused(&format!("SETTP n v {options}"));
        assert_eq!(refused, "ERR options SEQ and WAIT exclude each other");
    }
    assert_eq!(
        client.refused("SETTP n v SEQ SEQ"),
        "ERR option SEQ is repeated"
    );
    assert_eq!(
        client.refused("SETTP n v SEQ PUSH"),
        "ERR option PUSH needs WAIT"
    );
    assert!(
        client
            .refused("SETTP n v SEQ ACKS 1")
            .starts_with("NOSESSION ")
    );
    assert!(
        client
            .refused("LOCK.ACQUIRE n SEQ")
            .starts_with("ERR unknown option 'SEQ', ")
    );
    let script = "EVAL 'return redis.call(\"SETTP\", KEYS[1], \"v\", \"SEQ\")' 1 n";
    assert!(client.refused(script).starts_with("ERR "));
    assert_eq!(client.run("DBSIZE"), int(0));
    client.run("CONFIG SET tether.max-keys-per-client 1");
    made(&client.run("SETTP n v SEQ"));
    let refused = client.refused("SETTP n v SEQ");
    assert!(refused.starts_with("ERR too many keys "), "{refused}");
    client.run("CONFIG SET maxmemory 1");
    assert!(server.resp2().refused("SETTP n v SEQ").starts_with("OOM "));
}

#[test]
fn in_a_transaction_the_reply_is_execs() {
    let server = Server::start();
    let mut client = server.resp3();
    client.run_all(&["MULTI", "SETTP n a SEQ", "SETTP n b SEQ", "LOCK.RELEASE n"]);
    let replies = client.run("EXEC").items();
    let (first, second) = (made(&replies[0]), made(&replies[1]));
    assert!(first < second);
    assert_eq!(client.run(["GET", &second.0]), bulk("b"));
}

/// Somebody makes the next names itself, by whatever command.
#[test]
fn a_name_that_is_there_is_passed_over() {
    let server = Server::start();
    let (mut client, mut other) = (server.resp3(), server.resp2());
    let next = next_token(&mut client);
    // By these grants the next token moves on by two.
    other.run(["SETTP", &named("n", next + 2), "x"]);
    other.run(["LOCK.ACQUIRE", &named("n", next + 3)]);
    other.run(["SET", &named("n", next + 4), "x"]);
    other.run(["RPUSH", &named("n", next + 5), "x"]);
    let (name, token) = made(&client.run("SETTP n v SEQ"));
    assert_eq!((name, token), (named("n", next + 6), next + 6));
    // Those of another beginning are not in the way.
    other.run(["SET", &named("m", next + 7), "x"]);
    assert_eq!(made(&client.run("SETTP n v SEQ")).1, next + 7);
    // A name that somebody waits for is not given away, even while it is gone.
    let awaited = named("n", next + 9);
    other.run(["SET", &awaited, "x"]);
    let mut waiter = server.resp2();
    crate::line::queue(&server, &mut waiter, &format!("SETTP {awaited} w WAIT 0"));
    other.run(["MULTI"]);
    other.run(["DEL", &awaited]);
    other.run("SETTP n other SEQ");
    other.run("SETTP n other SEQ");
    let replies = other.run("EXEC").items();
    assert_eq!(made(&replies[1]).1, next + 8);
    assert_eq!(made(&replies[2]).1, next + 10);
    assert_eq!(waiter.read_reply(), int(1));
    assert_eq!(other.run(["GET", &awaited]), bulk("w"));
}

/// One request looks at so many names, and the next one at others: who makes them all must make them again.
#[test]
fn of_names_without_end_only_so_many_are_passed_over() {
    let server = Server::start();
    let (mut client, mut other) = (server.resp3(), server.resp2());
    let taken = "ERR the names that this sequence would make next are taken; ask again";
    for (length, names, expected) in [(1, 2500, 2), (100_000, 40, 3)] {
        let key = "n".repeat(length);
        let next = next_token(&mut client);
        let pairs = (0..names).flat_map(|n| [named(&key, next + n), "x".into()]);
        let words: Vec<String> = std::iter::once("MSET".into()).chain(pairs).collect();
        other.run(&words[..]);
        let mut refusals = 0;
        let reply = loop {
            let reply = client.call(["SETTP", &key, "v", "SEQ"]);
            match &reply {
                Frame::Error(text) if text == taken.as_bytes() => refusals += 1,
                _ => break reply,
            }
            assert!(refusals < 10);
        };
        assert_eq!(made(&reply).1, next + names);
        assert_eq!(refusals, expected, "{length}");
        assert_eq!(tether(&server, "last_token"), next + names);
    }
}

#[test]
fn everyone_hears_of_the_key_that_is_made() {
    let server = Server::start();
    server.resp2().run("CONFIG SET notify-keyspace-events KEA");
    let (mut client, mut watcher, mut subscriber) =
        (server.resp3(), server.resp3(), server.resp3());
    let name = named("n", next_token(&mut client));
    subscriber.send("PSUBSCRIBE __keyspace@0__:n*");
    subscriber.next_push();
    assert_eq!(watcher.run(["WATCHEX", &name, "n"]).items().len(), 2);
    watcher.run(["WATCH", &name]);
    watcher.run_all(&["MULTI", "SET witness x"]);
    assert_eq!(made(&client.run("SETTP n v SEQ NOTIFY")).0, name);
    assert_eq!(watcher.call("EXEC"), null());
    assert_eq!(
        server.settled(&mut watcher),
        [format!("watchex {name} ADD")]
    );
    let heard = server.settled(&mut subscriber);
    let set = format!("pmessage __keyspace@0__:n* __keyspace@0__:{name} set");
    assert!(heard.contains(&set), "{heard:?}");
    assert!(heard.iter().all(|push| push.contains(&name)), "{heard:?}");
    // What was given is not touched.
    client.run("SET n plain");
    watcher.run_all(&["WATCH n", "MULTI", "SET witness x"]);
    let (second, _) = made(&client.run("SETTP n v SEQ NOTIFY"));
    assert_eq!(watcher.call("EXEC"), array([ok()]));
    server.settled(&mut watcher);
    watcher.run(["DEL", &name, &second]);
    let lost = [&name, &second].map(|name| format!("settp {name} LOST deleted"));
    assert_eq!(client.next_pushes(2), lost);
}

#[test]
fn who_has_read_that_it_is_not_there_is_told_by_tracking() {
    let server = Server::start();
    let (mut client, mut reader) = (server.resp3(), server.resp3());
    let name = named("n", next_token(&mut client));
    reader.run("CLIENT TRACKING ON");
    assert_eq!(reader.run(["GET", &name]), null());
    assert_eq!(made(&client.run("SETTP n v SEQ")).0, name);
    let heard = server.settled(&mut reader);
    assert!(heard.iter().any(|push| push.contains(&name)), "{heard:?}");
}

#[test]
fn the_name_that_is_made_needs_its_right() {
    let server = Server::start();
    let mut client = server.resp3();
    let mut as_user = |keys: &str| {
        let rules = format!("ACL SETUSER u reset on >pw +@all {keys}");
        server.resp2().run(&rules);
        client.run("AUTH u pw");
        client.call("SETTP n v SEQ")
    };
    for keys in ["~n", "~m*", "%R~n*", "~n %R~n*", "~n ~n1*"] {
        let Frame::Error(text) = as_user(keys) else {
            panic!("{keys}")
        };
        assert!(text.starts_with(b"NOPERM "), "{keys}");
    }
    assert_eq!(server.resp2().run("DBSIZE"), int(0));
    made(&as_user("~n*"));
    made(&as_user("~n ~n0*"));
}

#[test]
fn a_session_has_it_and_replicas_are_told_an_ordinary_grant() {
    let server = Server::start();
    let mut tap = Tap::open(&server);
    let mut client = server.resp3();
    let secret = client.run("SESSION.START GRACE 60000").text();
    let (name, token) = made(&client.run("SETTP n v SEQ"));
    let told = tap.after(&mut server.resp2());
    let grant: Vec<_> = ["TETHER.SETTP", &name, &token.to_string(), "v"]
        .map(str::to_owned)
        .to_vec();
    assert!(told.iter().any(|words| is_said(words, &grant)), "{told:?}");
    assert!(!told.concat().iter().any(|word| word == "SEQ"), "{told:?}");
    client.run("QUIT");
    let mut other = server.resp3();
    assert_eq!(other.run(["SESSION.RESUME", &secret]), int(1));
    assert_eq!(other.run(["LOCK.CANCEL", &name]), int(token));
    assert_eq!(other.run("SESSION.END"), int(1));
    assert_eq!(other.run(["EXISTS", &name]), int(0));
}

fn is_said(words: &[String], grant: &[String]) -> bool {
    words.len() == grant.len()
        && words[0].eq_ignore_ascii_case(&grant[0])
        && words[1..] == grant[1..]
}

#[test]
fn with_acknowledgements_the_reply_comes_with_them() {
    let master = Server::start();
    let replica = Server::replica_of(&master, &[]);
    master.await_replicas(1);
    let mut owner = master.resp3();
    owner.run("SESSION.START GRACE 60000");
    let (name, token) = made(&owner.run("SETTP n v SEQ ACKS 1 ACKTIMEOUT 60000"));
    assert_eq!(name, named("n", token));
    assert_eq!(replica.resp2().run(["GET", &name]), bulk("v"));
    let refused = owner.refused("SETTP n v SEQ ACKS 2");
    assert_eq!(refused, "NOACKS 0 of 2");
    Server::signal(replica.pid(), libc::SIGSTOP);
    let refused = owner.refused("SETTP n v SEQ ACKS 1 ACKTIMEOUT 50");
    Server::signal(replica.pid(), libc::SIGCONT);
    assert_eq!(refused, "NOACKS 0 of 1");
    eventually_equal("keys that are left", vec![bulk(&name)], || {
        owner.run("KEYS n*").items()
    });
    owner.run("MULTI");
    owner.run("SETTP n v SEQ ACKS 1");
    let Frame::Error(text) = &owner.run("EXEC").items()[0] else {
        panic!("ACKS in a transaction")
    };
    assert!(text.starts_with(b"ERR option ACKS cannot be used"));
}

#[test]
fn nothing_is_made_in_the_quarantine_or_on_a_replica() {
    let master = Server::with(&["tether.quarantine 3600000"]);
    let refused = master.resp2().refused("SETTP n v SEQ");
    assert!(refused.starts_with("QUARANTINE "), "{refused}");
    let replica = Server::replica_of(&master, &[]);
    let refused = replica.resp2().refused("SETTP n v SEQ");
    assert!(refused.starts_with("READONLY "), "{refused}");
}

/// The database is the caller's.
#[test]
fn each_database_has_its_names() {
    let server = Server::start();
    let (mut client, mut other) = (server.resp3(), server.resp2());
    let next = next_token(&mut client);
    other.run(["SET", &named("n", next), "x"]);
    client.run("SELECT 3");
    let (name, token) = made(&client.run("SETTP n v SEQ"));
    assert_eq!(token, next);
    assert_eq!(client.run(["GET", &name]), bulk("v"));
    assert_eq!(other.run(["GET", &name]), bulk("x"));
    let info = client.run(["LOCK.INFO", &name]);
    assert_eq!(field(&info, "kind"), bulk("temporary-key"));
    drop(client);
    eventually_equal("keys of database 3", int(0), || {
        let mut looker = server.resp2();
        looker.run("SELECT 3");
        looker.run("DBSIZE")
    });
    assert_eq!(other.run("DBSIZE"), int(1));
}
