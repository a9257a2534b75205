//! Rights that are taken away while somebody waits.

use crate::harness::*;
use crate::limits::cluster;

/// A connection of a user `u` with these rights.
fn user(server: &Server, rules: &str) -> Client {
    server
        .resp2()
        .run(&format!("ACL SETUSER u reset on >pw {rules}"));
    another(server)
}

/// One more of it.
fn another(server: &Server) -> Client {
    let mut client = server.resp3();
    client.run("AUTH u pw");
    client
}

/// Sends a request that is to wait, and sees that it does.
fn wait(server: &Server, client: &mut Client, request: &str) {
    let before = server.gauge("tether", "tether_waiters");
    client.send(request);
    eventually_equal(request, before + 1, || {
        server.gauge("tether", "tether_waiters")
    });
}

fn assert_granted(push: &str, start: &str) {
    let token = push
        .strip_prefix(start)
        .and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
    assert!(token.is_some(), "{push}");
}

/// How somebody may wait for `k`, the first key of the push, and the command's name.
const WAITS: [(&str, &str, &str); 5] = [
    ("SETTP k v WAIT 0", "settp k", "settp"),
    ("LOCK.ACQUIRE k WAIT 0", "lock k", "lock.acquire"),
    (
        "LOCK.ACQUIRE k SHARED OWNER me WAIT 60000",
        "lock k",
        "lock.acquire",
    ),
    (
        "LOCK.MACQUIRE 2 free k WAIT 0",
        "lock free",
        "lock.macquire",
    ),
    ("LOCK.MACQUIRE 1 k WAIT 0", "lock k", "lock.macquire"),
];

/// What became of `u` when it cannot write `k` any more.
const KEY_LOSSES: [&[&str]; 3] = [
    &["ACL SETUSER u resetkeys ~free"],
    &["acl setuser u resetkeys ~free", "ACL SETUSER other on"],
    &["MULTI", "ACL SETUSER u resetkeys %R~* ~free", "EXEC"],
];

fn nobody_is_granted(server: &Server, request: &str, news: &str, loss: &[&str], error: &str) {
    let mut owner = server.resp3();
    owner.run("LOCK.ACQUIRE k");
    let mut stands = user(server, "+@all ~*");
    let mut pushed = another(server);
    let mut next = server.resp3();
    wait(server, &mut stands, request);
    wait(server, &mut pushed, &format!("{request} PUSH"));
    let reply = pushed.read_reply();
    assert!(matches!(reply, Frame::Integer(0) | Frame::Null));
    wait(server, &mut next, "LOCK.ACQUIRE k WAIT 0");
    let mut watcher = server.resp3();
    watcher.run("WATCHEX k");
    owner.run_all(loss);
    owner.run("LOCK.RELEASE k");
    assert_eq!(stands.read_reply().text(), error, "{request}");
    let label = if request.contains("OWNER me") {
        " me"
    } else {
        ""
    };
    assert_eq!(pushed.next_push(), format!("{news} FAILED NOPERM{label}"));
    assert!(next.read_reply().number() > 0);
    // It is handed over in one step, nothing else is told, and nothing is left.
    for client in [&mut watcher, &mut stands, &mut pushed] {
        assert_eq!(server.settled(client), [""; 0]);
    }
    assert_eq!(server.gauge("tether", "tether_lost_total"), 0);
    next.run("LOCK.RELEASE k");
    assert_eq!(next.call("EXISTS k free"), int(0));
    for gauge in ["tether_waiters", "tether_holds", "tether_temporary_keys"] {
        assert_eq!(server.gauge("tether", gauge), 0);
    }
}

#[test]
fn who_has_lost_the_right_to_the_key_is_not_granted_it_and_the_next_in_line_is() {
    for (place, (request, news, _)) in WAITS.into_iter().enumerate() {
        let loss = KEY_LOSSES[place % KEY_LOSSES.len()];
        let error = "NOPERM No permissions to access a key";
        nobody_is_granted(&Server::start(), request, news, loss, error);
    }
}

#[test]
fn who_has_lost_the_right_to_the_command_is_not_granted_either() {
    for (request, news, command) in WAITS {
        let loss = format!("ACL SETUSER u -{command}");
        let error = format!("NOPERM User u has no permissions to run the '{command}' command");
        nobody_is_granted(&Server::start(), request, news, &[&loss], &error);
    }
}

/// Valkey gives rights by database since 9.1.
fn gives_rights_by_database(server: &Server) -> bool {
    server.is_at_least((u32::MAX, 0), (9, 1))
}

#[test]
fn who_has_lost_the_right_to_the_database_is_not_granted_either() {
    if !gives_rights_by_database(&Server::start()) {
        return say("who_has_lost_the_right_to_the_database_is_not_...: only Valkey 9.1");
    }
    for (request, _, _) in WAITS {
        for (db, left, is_lost) in [(0, 1, true), (1, 0, true), (0, 0, false), (1, 1, false)] {
            let server = Server::start();
            let select = format!("SELECT {db}");
            let (mut owner, mut next) = (server.resp3(), server.resp3());
            owner.run_all(&[&select, "LOCK.ACQUIRE k"]);
            next.run(&select);
            let mut client = user(&server, "+@all ~*");
            client.run(&select);
            wait(&server, &mut client, request);
            wait(&server, &mut next, "LOCK.ACQUIRE k WAIT 0");
            owner.run(&format!("ACL SETUSER u resetdbs db={left}"));
            owner.run("LOCK.RELEASE k");
            let reply = client.read_reply();
            let what = format!("{request} in {db}, with a right to {left}: {reply:?}");
            let lost = Frame::Error("NOPERM No permissions to access database".into());
            assert_eq!(reply == lost, is_lost, "{what}");
            if is_lost {
                assert!(next.read_reply().number() > 0, "{what}");
            } else {
                assert!(!matches!(reply, Frame::Error(_)), "{what}");
            }
        }
    }
}

#[test]
fn who_may_not_see_a_database_learns_no_name_that_was_given_there() {
    let server = Server::start();
    if !gives_rights_by_database(&server) {
        return say("who_may_not_see_a_database_learns_no_name_...: only Valkey 9.1");
    }
    for (rules, name) in [
        ("", "secret"),
        ("resetdbs db=0", ""),
        ("resetdbs db=0,1", "secret"),
    ] {
        let mut client = user(&server, &format!("+@all ~* {rules}"));
        client.run("SETTP k v NOTIFY");
        let mut other = server.resp3();
        other.run_all(&["MOVE k 1", "SELECT 1", "RENAME k secret", "DEL secret"]);
        assert_eq!(
            client.next_push(),
            format!("settp {name} LOST deleted"),
            "{rules}"
        );
    }
}

#[test]
fn rights_that_change_otherwise_take_nothing_away() {
    let server = Server::start();
    let mut owner = server.resp3();
    owner.run("LOCK.ACQUIRE k");
    let mut client = user(&server, "+@all ~*");
    wait(&server, &mut client, "LOCK.ACQUIRE k WAIT 0");
    let mut pushed = another(&server);
    assert_eq!(pushed.call("SETTP k v WAIT 0 PUSH"), int(0));
    let mut watcher = server.resp3();
    watcher.run("WATCHEX k");
    owner.run("ACL SETUSER u resetkeys -@all +settp +lock.acquire +lock.release +quit %W~k");
    owner.run("LOCK.RELEASE k");
    assert!(client.read_reply().number() > 0);
    assert_eq!(client.call("LOCK.RELEASE k"), int(0));
    assert_granted(&pushed.next_push(), "settp k ");
    assert_eq!(server.settled(&mut watcher), [""; 0]);
}

#[test]
fn what_is_held_stays_held_and_goes_with_its_connection() {
    let server = Server::start();
    let mut client = user(&server, "+@all ~*");
    client.run("LOCK.ACQUIRE k");
    client.run("WATCHEX w");
    let mut other = server.resp3();
    wait(&server, &mut other, "LOCK.ACQUIRE k WAIT 0");
    server.resp2().run("ACL SETUSER u resetkeys");
    let message = client.refused("LOCK.RELEASE k");
    assert!(message.starts_with("NOPERM "), "{message}");
    assert_eq!(server.gauge("tether", "tether_holds"), 1);
    // A watch lasts as it does when the connection takes another user.
    server.resp2().run("SET w 1");
    assert_eq!(client.next_push(), "watchex w ADD");
    client.run("QUIT");
    assert!(other.read_reply().number() > 0);
}

/// Each way in which a key can come to the next in line.
#[test]
fn however_the_turn_comes_rights_that_are_gone_are_not_granted() {
    const ENDS: [&[&str]; 12] = [
        &["DELTP k"],
        &["DEL k"],
        &["QUIT"],
        &["MULTI", "ACL SETUSER u resetkeys", "DELTP k", "EXEC"],
        &[
            "MULTI",
            "DELTP other",
            "ACL SETUSER u resetkeys",
            "DELTP k",
            "EXEC",
        ],
        &["SESSION.END"],
        &["RENAME k elsewhere"],
        &["FLUSHDB"],
        &["SWAPDB 0 1"],
        &["PEXPIRE k 1"],
        &["MULTI", "DEL k", "ACL SETUSER u resetkeys", "EXEC"],
        &["LOCK.MACQUIRE 1 free LEASE 1", "DELTP k"],
    ];
    for end in ENDS {
        let server = Server::start();
        let mut owner = server.resp3();
        if end == ["SESSION.END"] {
            owner.run("SESSION.START");
        }
        owner.run("SETTP k v");
        owner.run("SETTP other v");
        let mut client = user(&server, "+@all ~*");
        let mut next = server.resp3();
        wait(&server, &mut client, "SETTP other v WAIT 0 PUSH");
        assert_eq!(client.read_reply(), int(0));
        wait(&server, &mut client, "SETTP k v WAIT 0");
        wait(&server, &mut next, "SETTP k next WAIT 0");
        if end[0] != "MULTI" {
            server.resp2().run("ACL SETUSER u resetkeys");
        }
        owner.run_all(end);
        let reply = client.read_reply();
        assert_eq!(
            reply.text(),
            "NOPERM No permissions to access a key",
            "{end:?}"
        );
        assert_eq!(next.read_reply(), int(1), "{end:?}");
        assert_eq!(next.call("GET k"), bulk("next"), "{end:?}");
    }
}

/// There the tick frees what ended connections held, outside any slot.
#[test]
fn in_a_cluster_rights_that_are_gone_are_not_granted_either() {
    for end in [&["DELTP k"][..], &["QUIT"], &["MULTI", "DEL k", "EXEC"]] {
        let server = cluster();
        let mut owner = server.resp3();
        owner.run("SETTP k v");
        let mut client = user(&server, "+@all ~*");
        let mut next = server.resp3();
        wait(&server, &mut client, "SETTP k v WAIT 0");
        wait(&server, &mut next, "SETTP k next WAIT 0");
        server.resp2().run("ACL SETUSER u resetkeys");
        owner.run_all(end);
        let error = "NOPERM No permissions to access a key";
        assert_eq!(client.read_reply().text(), error, "{end:?}");
        assert_eq!(next.read_reply(), int(1), "{end:?}");
    }
}

/// While nobody waits, nothing looks for changes of rights, and what is queued is seen when it is queued.
#[test]
fn a_change_that_was_queued_before_anybody_waited_counts() {
    let server = Server::start();
    let (mut owner, mut admin) = (server.resp3(), server.resp2());
    owner.run("SETTP k v");
    let mut client = user(&server, "+@all ~*");
    admin.run_all(&["MULTI", "ACL SETUSER u resetkeys"]);
    wait(&server, &mut client, "SETTP k v WAIT 0");
    admin.run("EXEC");
    owner.run("DELTP k");
    let error = "NOPERM No permissions to access a key";
    assert_eq!(client.read_reply().text(), error);
}

#[test]
fn a_lease_that_ends_grants_nothing_to_who_has_lost_the_right() {
    let server = Server::start();
    let mut owner = server.resp3();
    let mut client = user(&server, "+@all ~*");
    let mut next = server.resp3();
    owner.run("LOCK.ACQUIRE k LEASE 60000");
    wait(&server, &mut client, "LOCK.ACQUIRE k WAIT 0");
    wait(&server, &mut next, "LOCK.ACQUIRE k WAIT 0");
    server.resp2().run("ACL SETUSER u resetkeys");
    owner.run("LOCK.EXTEND k 1");
    assert!(client.read_reply().text().starts_with("NOPERM "));
    assert!(next.read_reply().number() > 0);
}

#[test]
fn of_very_many_who_have_lost_the_right_none_is_granted() {
    const MANY: usize = 3000;
    let server = Server::start();
    let mut owner = server.resp3();
    owner.run("LOCK.ACQUIRE k");
    let mut client = user(&server, "+@all ~*");
    for number in 0..MANY {
        let request = format!("LOCK.ACQUIRE k OWNER {number} WAIT 0 PUSH");
        client.send(&request);
    }
    for _ in 0..MANY {
        assert_eq!(client.read_reply(), null());
    }
    let mut next = server.resp3();
    wait(&server, &mut next, "LOCK.ACQUIRE k WAIT 0");
    owner.run("ACL SETUSER u resetkeys");
    owner.run("LOCK.RELEASE k");
    for number in 0..MANY {
        assert_eq!(client.next_push(), format!("lock k FAILED NOPERM {number}"));
    }
    assert!(next.read_reply().number() > 0);
}

#[test]
fn readers_who_have_their_rights_are_let_in_together() {
    const MANY: usize = 100;
    let server = Server::start();
    let mut owner = server.resp3();
    owner.run("LOCK.ACQUIRE k");
    let mut client = user(&server, "+@all ~*");
    for number in 0..MANY {
        client.send(&format!("LOCK.ACQUIRE k SHARED OWNER {number} WAIT 0 PUSH"));
    }
    for _ in 0..MANY {
        assert_eq!(client.read_reply(), null());
    }
    owner.run("ACL SETUSER u -config");
    owner.run("LOCK.RELEASE k");
    for _ in 0..MANY {
        assert_granted(&client.next_push(), "lock k ");
    }
    assert_eq!(server.gauge("tether", "tether_holds"), MANY as i64);
}

/// In a transaction, that rights have changed is noticed at any event, so also between the two of a key that is carried.
#[test]
fn what_a_transaction_carries_stays_held_after_rights_have_changed() {
    for (carried, db) in [("RENAME k other", 0), ("MOVE k 1", 1)] {
        for (taken, given_back) in [
            ("SETTP k v", "DELTP"),
            ("LOCK.ACQUIRE k SHARED", "LOCK.RELEASE"),
        ] {
            let server = Server::start();
            let (mut owner, mut other) = (server.resp3(), server.resp2());
            owner.run("SETTP first v");
            assert_eq!(other.call("SETTP first v WAIT 1"), int(0));
            assert!(owner.run(taken).number() > 0);
            other.run_all(&["ACL SETUSER u on", "MULTI", carried, "EXEC"]);
            owner.run(&format!("SELECT {db}"));
            let name = if db == 0 { "other" } else { "k" };
            let left = owner.call([given_back, name]).number();
            assert_eq!(left, i64::from(given_back == "DELTP"), "{carried} {taken}");
            assert_eq!(owner.call(["EXISTS", name]), int(0));
        }
    }
}
