//! SESSION.START: who may, what belongs to a session, what is shown of its secret.

use crate::harness::*;
use crate::line::*;
use crate::*;

#[test]
fn a_secret_has_128_random_bits() {
    let server = Server::start();
    let secrets = [0; 4].map(|_| with_session(&server, A_DAY).1);
    for (place, secret) in secrets.iter().enumerate() {
        assert_eq!(secret.len(), 32, "{secret}");
        let is_digit = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        assert!(secret.chars().all(is_digit), "{secret}");
        assert!(!secrets[..place].contains(secret));
    }
}

#[test]
fn only_a_connection_that_owns_nothing_may_start_one() {
    let server = Server::start();
    let mut client = server.resp3();
    let bad = [
        ("SESSION.START GRACE 0", "ERR GRACE is out of range"),
        ("SESSION.START GRACE 86400001", "ERR GRACE is out of range"),
        (
            "SESSION.START GRACE soon",
            "ERR GRACE is not a number: 'soon'",
        ),
        ("SESSION.START GRACE", "ERR option GRACE is incomplete"),
        ("SESSION.START 5", "ERR unknown option '5'"),
        ("SESSION.RESUME", "ERR wrong number of arguments"),
        ("SESSION.END 1", "ERR wrong number of arguments"),
        ("SESSION.END", "NOSESSION"),
    ];
    for (command, words) in bad {
        let error = client.refused(command);
        assert!(error.starts_with(words), "{command}: {error}");
    }
    client.run("SETTP a v");
    assert!(
        client
            .refused("SESSION.START")
            .contains("holds keys already")
    );
    client.run_all(&["DELTP a", "LOCK.ACQUIRE a OWNER me"]);
    assert!(
        client
            .refused("SESSION.START")
            .contains("holds keys already")
    );
    client.run_all(&["LOCK.RELEASE a OWNER me", "WATCHEX a"]);
    start(&mut client, 1);
    assert!(
        client
            .refused("SESSION.START")
            .contains("has a session already")
    );
    assert_eq!(sessions(&server), [1, 0]);
}

#[test]
fn what_was_waited_for_belongs_to_the_session_too() {
    let server = Server::start();
    let (mut client, mut other) = (server.resp3(), server.resp3());
    other.run("SETTP a other");
    queue_push(&mut client, "SETTP a client WAIT 0 PUSH");
    let secret = start(&mut client, A_DAY);
    other.run("DELTP a");
    assert!(client.next_push().starts_with("settp a "));
    quit(&server, client);
    assert_eq!(server.resp2().call("GET a"), bulk("client"));
    let mut again = server.resp3();
    assert_eq!(again.call(["SESSION.RESUME", &secret]), int(1));
}

#[test]
fn they_work_in_a_transaction_and_not_in_a_script() {
    let server = Server::start();
    let mut client = server.resp3();
    client.run("MULTI");
    client.run_all(&["SESSION.START GRACE 60000", "SETTP a v", "LOCK.ACQUIRE b"]);
    let replies = client.run("EXEC").items();
    let secret = replies[0].text();
    quit(&server, client);
    assert_eq!(server.resp2().call("EXISTS a b"), int(2));
    let mut again = server.resp3();
    again.run("MULTI");
    again.run(["SESSION.RESUME", &secret]);
    again.run("SESSION.END");
    assert_eq!(again.run("EXEC"), array([int(2), int(2)]));
    assert_eq!(server.resp2().call("EXISTS a b"), int(0));
    for call in ["'SESSION.START'", "'SESSION.RESUME','x'", "'SESSION.END'"] {
        let script = format!("return redis.call({call})");
        let error = again.refused(["EVAL", &script, "0"]);
        assert!(error.contains("not allowed from script"), "{error}");
    }
}

#[test]
fn the_limit_is_the_sessions() {
    let server = Server::with(&["tether.max-keys-per-client 2"]);
    let (mut client, secret) = with_session(&server, A_DAY);
    client.run_all(&["SETTP a v", "LOCK.ACQUIRE b OWNER me"]);
    assert!(client.refused("SETTP c v").contains("too many keys"));
    quit(&server, client);
    let mut again = server.resp3();
    again.run(["SESSION.RESUME", &secret]);
    assert!(again.refused("SETTP c v").contains("too many keys"));
    assert!(
        again
            .refused("LOCK.ACQUIRE c WAIT 0 PUSH")
            .contains("too many keys")
    );
    again.run_all(&["DELTP a", "SETTP c v"]);
}

#[test]
fn nothing_shows_the_secret() {
    let server = Server::with(&["slowlog-log-slower-than 0", "slowlog-max-len 1000"]);
    let mut monitor = server.resp2();
    monitor.send("MONITOR");
    assert_eq!(monitor.read_reply(), ok());
    let (mut client, secret) = with_session(&server, A_DAY);
    client.run("SETTP a v");
    quit(&server, client);
    let mut again = server.resp3();
    again.run(["SESSION.RESUME", &secret]);
    again.run("MULTI");
    again.run(["SESSION.RESUME", &secret]);
    again.run("EXEC");
    again.refused(["SESSION.RESUME", &secret, "and", "more"]);
    again.refused(["EVAL", "return redis.call('SESSION.RESUME', 'x')", "0"]);
    let mut shown = String::new();
    for command in [
        "LOCK.INFO a",
        "LOCK.LIST 0",
        "INFO everything",
        "CLIENT LIST",
        "SLOWLOG GET 1000",
    ] {
        shown += &format!("{:?}", again.run(command));
    }
    again.run("SET the end");
    let mut seen = String::new();
    while !seen.contains("\"the\" \"end\"") {
        seen += &monitor.read_reply().text();
        seen += "\n";
    }
    assert!(
        seen.contains("SESSION.START") && seen.contains("SETTP"),
        "{seen}"
    );
    assert!(shown.to_lowercase().contains("session.start"), "{shown}");
    for (name, text) in [("MONITOR", &seen), ("the rest", &shown)] {
        assert!(!text.contains(&secret), "{name} shows the secret: {text}");
    }
    assert!(!server.log().contains(&secret));
}

/// A connection of a user with these rights.
fn of_user(server: &Server, name: &str, rules: &str) -> Client {
    let mut administrator = server.resp2();
    administrator.run(&format!("ACL SETUSER {name} reset on nopass {rules}"));
    let mut client = server.resp3();
    client.run(["AUTH", name, "x"]);
    client
}

#[test]
fn no_user_makes_more_sessions_than_it_may_and_all_users_no_more_than_all_may() {
    let server = Server::with(&["tether.max-sessions 5", "tether.max-sessions-per-user 3"]);
    let mut ann = of_user(&server, "ann", "+@all ~*");
    let begin = |client: &mut Client| {
        client.run("SESSION.START GRACE 60000");
        client.run("SESSION.DETACH");
    };
    for _ in 0..3 {
        begin(&mut ann);
    }
    let of_user_words = "ERR too many sessions of one user (tether.max-sessions-per-user is 3)";
    assert_eq!(ann.refused("SESSION.START"), of_user_words);
    let mut same = of_user(&server, "ann", "+@all ~*");
    assert_eq!(
        same.refused("SESSION.START"),
        of_user_words,
        "attached or not, on whatever connection"
    );
    let mut bob = of_user(&server, "bob", "+@all ~*");
    let secret = start(&mut bob, 60_000);
    let mut other = server.resp3();
    start(&mut other, 60_000);
    let mut late = server.resp3();
    let words = "ERR too many sessions (tether.max-sessions is 5)";
    assert_eq!(late.refused("SESSION.START"), words);
    // One that is over makes room, and one that is resumed is no new one.
    other.run("SESSION.END");
    bob.run("SESSION.DETACH");
    assert_eq!(bob.call(["SESSION.RESUME", &secret]), int(0));
    assert_eq!(ann.refused("SESSION.START"), of_user_words);
    start(&mut late, 60_000);
    late.run("SESSION.END");
    let ids = late.run("SESSION.LIST").items();
    let oldest = field(&ids[0], "id").number().to_string();
    late.run(["SESSION.KILL", &oldest]);
    begin(&mut ann);
    assert_eq!(sessions(&server), [1, 3]);
    late.run("CONFIG SET tether.max-sessions 0");
    assert!(late.refused("SESSION.START").contains("is 0)"));
    assert_eq!(sessions(&server), [1, 3], "nothing is taken away");
}

#[test]
fn a_grace_that_is_over_makes_room_for_its_user() {
    let server = Server::with(&["tether.max-sessions-per-user 1"]);
    let mut client = server.resp3();
    start(&mut client, 1);
    client.run("SESSION.DETACH");
    eventually("room for one more", || match client.call("SESSION.START") {
        Frame::Error(words) => Err(String::from_utf8_lossy(&words).into_owned()),
        _ => Ok(()),
    });
}

#[test]
fn graces_are_no_longer_than_the_administrator_allows() {
    let server = Server::with(&["tether.max-grace 20000"]);
    let mut client = server.resp3();
    let refused = client.refused("SESSION.START GRACE 20001");
    assert_eq!(
        refused,
        "ERR GRACE is out of range, it goes from 1 to 20000 (tether.max-grace)"
    );
    start(&mut client, 20_000);
    client.run("SESSION.END");
    client.run("CONFIG SET tether.max-grace 10000");
    assert_eq!(client.run("SESSION.START").text().len(), 32);
}

/// Redis 7.0 knows no categories of modules' commands: there a user needs each of them by name in any case.
#[test]
fn who_may_only_connect_makes_no_sessions() {
    let server = Server::start();
    let mut client = of_user(&server, "ann", "+@connection");
    for command in [
        "SESSION.START",
        "SESSION.RESUME x",
        "SESSION.END",
        "SESSION.DETACH",
    ] {
        let refused = client.refused(command);
        assert!(refused.starts_with("NOPERM "), "{command}: {refused}");
    }
    assert_eq!(sessions(&server), [0, 0]);
}
