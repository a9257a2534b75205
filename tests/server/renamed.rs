//! What the loss of a key tells that somebody has given another name.

use crate::harness::*;

/// A connection of a user with these rights, which holds `app:a` twice, as a key and by its label.
fn owner(server: &Server, rules: &str) -> Client {
    let setting = format!("ACL SETUSER u reset on >pw +@all {rules}");
    server.resp2().run(&setting);
    let mut client = server.resp3();
    client.run("AUTH u pw");
    client.run("SETTP app:key v NOTIFY");
    client.run("LOCK.ACQUIRE app:lock OWNER me NOTIFY");
    client
}

/// What an owner with these rights hears after both were renamed, and then deleted.
fn heard(rules: &str, names: [&str; 2]) -> [String; 2] {
    let server = Server::start();
    let mut client = owner(&server, rules);
    let mut other = server.resp3();
    other.run(["RENAME", "app:key", names[0]]);
    other.run(["RENAME", "app:lock", names[1]]);
    other.run(["DEL", names[0], names[1]]);
    [client.next_push(), client.next_push()]
}

#[test]
fn a_name_is_told_to_who_could_ask_for_it_and_to_nobody_else() {
    let names = ["secret:key", "secret:lock"];
    let hidden = ["settp  LOST deleted", "lock  LOST deleted me"];
    assert_eq!(heard("~app:*", names), hidden);
    let named = [
        "settp secret:key LOST deleted",
        "lock secret:lock LOST deleted me",
    ];
    assert_eq!(heard("~app:* %R~secret:*", names), named);
    assert_eq!(heard("~app:* %W~secret:*", names), named);
}

#[test]
fn a_name_that_somebody_else_gave_is_told_unless_it_is_very_long() {
    let long = |length: usize| "x".repeat(length);
    let names = [long(1024), long(1025)];
    let [first, second] = heard("~*", [&*names[0], &*names[1]]);
    assert_eq!(first, format!("settp {} LOST deleted", names[0]));
    assert_eq!(second, "lock  LOST deleted me");
}

#[test]
fn a_name_that_was_asked_for_is_told_whatever_it_is() {
    let server = Server::start();
    let mut client = owner(&server, "~app:* ~xx*");
    let mut other = server.resp3();
    let long = "x".repeat(2000);
    client.run(["SETTP", &*long, "v", "NOTIFY"]);
    // Who loses its rights keeps what it holds, and knows its name. So does who finds it in another database.
    other.run("ACL SETUSER u resetkeys");
    other.run(["MOVE", &*long, "3"]);
    other.run("FLUSHALL");
    let mut heard = client.next_pushes(3);
    heard.sort_unstable();
    let expected = [
        "lock app:lock LOST flushed me".to_owned(),
        "settp app:key LOST flushed".to_owned(),
        format!("settp {long} LOST flushed"),
    ];
    assert_eq!(heard, expected);
}

#[test]
fn who_asks_anew_under_the_new_name_knows_it() {
    let server = Server::start();
    let mut client = owner(&server, "~app:* ~xx*");
    let mut other = server.resp3();
    let long = "x".repeat(2000);
    other.run(["RENAME", "app:lock", &*long]);
    client.run(["LOCK.RELEASE", &*long, "OWNER", "me"]);
    client.run(["LOCK.ACQUIRE", &*long, "OWNER", "me", "NOTIFY"]);
    other.run(["DEL", &*long]);
    let expected = format!("lock {long} LOST deleted me");
    assert_eq!(client.next_push(), expected);
}
