//! Rights: who may read which keys, and what becomes of a watch when that changes.

use super::{named, settp, whole};
use crate::harness::*;

fn user(server: &Server, name: &str, rules: &str) -> Client {
    server
        .resp2()
        .run(&format!("ACL SETUSER {name} reset on >pw {rules}"));
    let mut client = server.resp3();
    client.run(&format!("AUTH {name} pw"));
    client
}

#[test]
fn keys_that_a_user_may_not_read_are_left_out() {
    let server = Server::start();
    let mut owner = server.resp2();
    let mut watcher = user(&server, "reader", "+@all ~none %R~k:a*");
    let tokens = ["k:a1", "k:b1"].map(|key| settp(&mut owner, key, "v"));
    assert_eq!(whole(&mut watcher, "WATCHTP k:"), [named("k:a1", "v")]);
    assert_eq!(whole(&mut watcher, "WATCHTP hidden"), []);
    owner.run_all(&[
        "APPEND k:b1 w",
        "APPEND k:a1 w",
        "DEL k:b1",
        "RENAME k:a1 k:b2",
    ]);
    let expected = [
        format!("watchtp k:a1 SET {} vw", tokens[0]),
        format!("watchtp k:a1 DEL {} renamed", tokens[0]),
    ];
    assert_eq!(server.settled(&mut watcher), expected);
    owner.run("RENAME k:b2 k:a2");
    let come = [format!("watchtp k:a2 ADD {} vw", tokens[0])];
    assert_eq!(server.settled(&mut watcher), come);
}

#[test]
fn a_page_names_no_key_that_may_not_be_read() {
    let server = Server::start();
    let mut owner = server.resp2();
    let mut watcher = user(&server, "reader", "+@all ~none %R~k:z*");
    for number in 0..1500 {
        owner.send(["SETTP", &format!("k:{number:04}"), "v"]);
    }
    owner.read_replies(1500);
    settp(&mut owner, "k:z", "v");
    let (next, shown, _) = super::page(&watcher.run("WATCHTP k:"));
    assert_eq!((&*next, shown), ("k:", vec![]));
    assert_eq!(
        whole(&mut watcher, "WATCHTP k: AFTER k:"),
        [named("k:z", "v")]
    );
}

/// The same transaction has pushed something to the watcher before it takes its rights.
#[test]
fn rights_that_a_transaction_takes_after_a_push_end_the_watch() {
    let server = Server::start();
    let (mut owner, mut admin) = (server.resp2(), server.resp2());
    let mut watcher = user(&server, "one", "+@all ~k*");
    watcher.run("WATCHTP k");
    settp(&mut owner, "k1", "v");
    server.settled(&mut watcher);
    let taken = [
        "MULTI",
        "SETTP k2 v",
        "ACL SETUSER one resetkeys ~other",
        "EXEC",
    ];
    admin.run_all(&taken);
    server.settled(&mut watcher);
    settp(&mut owner, "k3", "v");
    assert_eq!(server.settled(&mut watcher), ["watchtp k END noperm"]);
}

#[test]
fn other_rights_and_another_user_end_the_watch_and_other_changes_do_not() {
    let server = Server::start();
    let (mut owner, mut admin) = (server.resp2(), server.resp2());
    let mut watcher = user(&server, "one", "+@all ~k*");
    let mut other = user(&server, "two", "+@all ~k*");
    let mut plain = server.resp3();
    for watcher in [&mut watcher, &mut other, &mut plain] {
        watcher.run_all(&["WATCHTP k", "WATCHTP l"]);
    }
    // Transactions, other users, the same rights again.
    admin.run_all(&["MULTI", "PING", "EXEC", "ACL SETUSER three on ~x +@all"]);
    admin.run("ACL SETUSER one on ~k* +@all");
    let token = settp(&mut owner, "k1", "v");
    for watcher in [&mut watcher, &mut other, &mut plain] {
        let told = server.settled(watcher);
        assert_eq!(told, [format!("watchtp k1 ADD {token} v")]);
    }
    if !server.is_at_least((7, 2), (7, 2)) {
        // Servers before 7.0.6 do not tell rules; this one does.
        say("Redis 7.0: rules are told since 7.0.6");
    }
    admin.run("ACL SETUSER one ~more");
    let token = settp(&mut owner, "k2", "v");
    let mut told = server.settled(&mut watcher);
    told.sort();
    assert_eq!(told, ["watchtp k END noperm", "watchtp l END noperm"]);
    for watcher in [&mut other, &mut plain] {
        let told = server.settled(watcher);
        assert_eq!(told, [format!("watchtp k2 ADD {token} v")]);
    }
    assert_eq!(watcher.call("UNWATCHTP"), int(0));
    // Another user.
    other.run("AUTH one pw");
    settp(&mut owner, "k3", "v");
    let mut told = server.settled(&mut other);
    told.sort();
    assert_eq!(told, ["watchtp k END noperm", "watchtp l END noperm"]);
    // The rest of a snapshot is another's, too.
    let token = settp(&mut owner, "k4", "v");
    plain.run("AUTH one pw");
    let message = plain.refused("WATCHTP k AFTER k3");
    assert!(message.starts_with("ERR this connection does not watch"));
    let told = server.settled(&mut plain);
    assert!(
        !told.contains(&format!("watchtp k4 ADD {token} w")),
        "{told:?}"
    );
    assert!(
        told.contains(&"watchtp l END noperm".to_owned()),
        "{told:?}"
    );
}
