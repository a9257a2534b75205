//! What others see of a temporary key: keyspace events, replicas, the AOF, and the push to an owner who lost it.

use super::restore_over_k;
use crate::harness::*;

/// All that a subscriber to the key events of `database` has heard, as `del k`.
fn key_events(server: &Server, database: u32) -> Client {
    server.resp2().run("CONFIG SET notify-keyspace-events KEA");
    let mut subscriber = server.resp3();
    subscriber.send(["PSUBSCRIBE", &format!("__keyevent@{database}__:*")]);
    subscriber.next_push(); // the confirmation is a push on RESP3
    subscriber
}

fn events(server: &Server, subscriber: &mut Client) -> Vec<String> {
    let heard = server.settled(subscriber);
    heard
        .iter()
        .map(|push| push.rsplit("__:").next().unwrap().to_owned())
        .collect()
}

#[test]
fn a_subscriber_hears_set_and_del_in_the_keys_database() {
    let server = Server::start();
    let mut third = key_events(&server, 3);
    let mut zeroth = key_events(&server, 0);
    let mut owner = server.resp2();
    owner.run_all(&["SELECT 3", "SETTP k v NOTIFY", "SELECT 0"]);
    assert_eq!(events(&server, &mut third), ["set k"]);
    drop(owner);
    eventually_gone_in(&server, 3, "k");
    assert_eq!(events(&server, &mut third), ["del k"]);
    assert_eq!(events(&server, &mut zeroth), [""; 0]);
}

fn eventually_gone_in(server: &Server, database: u32, key: &str) {
    let mut client = server.resp2();
    client.run(["SELECT", &database.to_string()]);
    eventually_gone(&mut client, key);
}

#[test]
fn a_settp_that_gets_0_is_silent() {
    let server = Server::start();
    let mut other = server.resp2();
    other.run("SET k v");
    let mut subscriber = key_events(&server, 0);
    assert_eq!(server.resp2().call("SETTP k w"), int(0));
    assert_eq!(events(&server, &mut subscriber), [""; 0]);
}

#[test]
fn a_replica_sees_the_key_and_its_removal() {
    let master = Server::start();
    let replica = Server::replica_of(&master, &[]);
    let mut owner = master.resp2();
    owner.run_all(&["SETTP k v", "SELECT 3", "SETTP third v", "SET plain v"]);
    replica.catch_up(&master);
    let mut reader = replica.resp2();
    assert_eq!(reader.call("GET k"), bulk("v"));
    reader.run("SELECT 3");
    assert_eq!(reader.call("GET third"), bulk("v"));
    drop(owner);
    eventually_gone_in(&master, 0, "k");
    eventually_gone_in(&master, 3, "third");
    replica.catch_up(&master);
    eventually_gone_in(&replica, 0, "k");
    eventually_gone_in(&replica, 3, "third");
    assert_eq!(reader.call("EXISTS plain"), int(1));
}

/// An owner of a key in database 3 is killed between two writes of a transaction, and its key goes. The killer.
fn kill_in_a_transaction(server: &Server) -> Client {
    let mut owner = server.resp2();
    let id = owner.id();
    owner.run_all(&["SELECT 3", "SETTP k v"]);
    let mut killer = server.resp2();
    killer.run_all(&[
        "MULTI",
        "SET before v",
        &format!("CLIENT KILL ID {id}"),
        "SET after v",
    ]);
    assert_eq!(killer.call("EXEC"), array([ok(), int(1), ok()]));
    eventually_gone_in(server, 3, "k");
    killer
}

#[test]
fn a_replica_follows_what_happens_in_a_killers_transaction() {
    let master = Server::start();
    let replica = Server::replica_of(&master, &[]);
    let mut killer = kill_in_a_transaction(&master);
    killer.run("SET last v");
    replica.catch_up(&master);
    eventually_gone_in(&replica, 3, "k");
    let mut reader = replica.resp2();
    eventually_equal("the killer's keys", int(3), || {
        reader.call("EXISTS before after last")
    });
    reader.run("SELECT 3");
    assert_eq!(reader.call("DBSIZE"), int(0));
}

#[test]
fn a_connection_to_a_replica_ends_without_touching_anything() {
    let master = Server::start();
    let replica = Server::replica_of(&master, &[]);
    let mut owner = master.resp2();
    owner.run("SETTP k v");
    replica.catch_up(&master);
    let mut visitor = replica.resp2();
    assert_eq!(visitor.call("GET k"), bulk("v"));
    drop(visitor);
    replica.settle();
    assert_eq!(replica.resp2().call("GET k"), bulk("v"));
    assert_eq!(master.resp2().call("GET k"), bulk("v"));
}

#[test]
fn the_aof_knows_the_removal() {
    let mut server = Server::with(&["appendonly yes", "appendfsync always"]);
    let mut owner = server.resp2();
    owner.run_all(&["SETTP k v", "SELECT 3", "SETTP third v", "SET plain v"]);
    drop(owner);
    eventually_gone_in(&server, 0, "k");
    eventually_gone_in(&server, 3, "third");
    server.crash_and_restart();
    let mut client = server.resp2();
    assert_eq!(client.call("EXISTS k"), int(0));
    client.run("SELECT 3");
    assert_eq!(client.call("EXISTS third"), int(0));
    assert_eq!(client.call("GET plain"), bulk("v"));
}

#[test]
fn the_aof_knows_the_removal_in_a_killers_transaction() {
    let mut server = Server::with(&["appendonly yes", "appendfsync always"]);
    kill_in_a_transaction(&server);
    server.crash_and_restart();
    let mut client = server.resp2();
    assert_eq!(client.call("EXISTS before after"), int(2));
    client.run("SELECT 3");
    assert_eq!(client.call("DBSIZE"), int(0));
}

// ---- LOST ----

#[test]
fn a_resp3_owner_is_told_when_a_foreign_hand_removes_its_key() {
    for removal in [
        vec!["DEL k"],
        vec!["UNLINK k"],
        vec!["GETDEL k"],
        vec!["EXPIREAT k 1"],
        vec!["PEXPIRE k 1"],
        vec!["FLUSHDB"],
        vec!["FLUSHALL"],
        vec!["SET theirs v", "RENAME theirs k"],
        vec!["SET theirs v", "COPY theirs k REPLACE"],
        vec!["MULTI", "DEL k", "EXEC"],
    ] {
        let server = Server::start();
        let (mut owner, mut other) = (server.resp3(), server.resp2());
        owner.run_all(&["SETTP k v NOTIFY", "SETTP kept v NOTIFY"]);
        other.run_all(&removal);
        let (told, losses) = (owner.next_push(), losses("settp k", &removal));
        assert!(losses.contains(&told), "{removal:?}: {told}");
        let rest = server.settled(&mut owner);
        if removal[0].starts_with("FLUSH") {
            assert_eq!(rest, ["settp kept LOST flushed"], "{removal:?}");
        } else {
            assert_eq!(rest, [""; 0], "{removal:?}");
        }
    }
}

#[test]
fn the_push_to_an_owner_is_a_push_frame() {
    let server = Server::start();
    let mut owner = server.resp3();
    owner.run("SETTP k v NOTIFY");
    server.resp2().run("DEL k");
    owner.expect_bytes(">3\r\n$5\r\nsettp\r\n$1\r\nk\r\n$12\r\nLOST deleted\r\n");
}

#[test]
fn a_restore_over_the_key_is_a_loss() {
    let server = Server::start();
    let (mut owner, mut other) = (server.resp3(), server.resp2());
    owner.run("SETTP k v NOTIFY");
    restore_over_k(&mut other, "k");
    assert_eq!(server.settled(&mut owner), ["settp k LOST overwritten"]);
}

#[test]
fn a_script_of_another_is_a_foreign_hand() {
    let server = Server::start();
    let mut owner = server.resp3();
    owner.run("SETTP k v NOTIFY");
    server
        .resp2()
        .run(["EVAL", "return redis.call('DEL', KEYS[1])", "1", "k"]);
    assert_eq!(server.settled(&mut owner), ["settp k LOST deleted"]);
}

#[test]
fn an_owner_is_not_told_of_its_own_commands() {
    for removal in [
        vec!["DEL k"],
        vec!["UNLINK k"],
        vec!["GETDEL k"],
        vec!["DELTP k"],
        vec!["EXPIREAT k 1"],
        vec!["FLUSHDB"],
        vec!["FLUSHALL"],
        vec!["SET own v", "RENAME own k"],
        vec!["SET own v", "COPY own k REPLACE"],
        vec!["MULTI", "DEL k", "EXEC"],
    ] {
        let server = Server::start();
        let mut owner = server.resp3();
        owner.run("SETTP k v NOTIFY");
        owner.run_all(&removal);
        assert_eq!(server.settled(&mut owner), [""; 0], "{removal:?}");
    }
    let server = Server::start();
    let mut owner = server.resp3();
    owner.run("SETTP k v NOTIFY");
    owner.run(["EVAL", "return redis.call('DEL', KEYS[1])", "1", "k"]);
    assert_eq!(server.settled(&mut owner), [""; 0], "its own script");
}

#[test]
fn an_owner_in_the_midst_of_its_next_command_is_told_too() {
    for (begun, rest, reply) in [
        ("*2\r\n$4\r\nECHO\r\n", "$4\r\nrest\r\n", bulk("rest")),
        ("*3\r\n$3\r\nDEL\r\n$1\r\nk\r\n", "$1\r\nl\r\n", int(0)),
        ("*2\r\n$8\r\nFLUSHALL\r\n", "$4\r\nSYNC\r\n", ok()),
    ] {
        for (removal, lost) in [("DEL k", "deleted"), ("FLUSHALL", "flushed")] {
            let server = Server::start();
            let (mut owner, mut other) = (server.resp3(), server.resp2());
            owner.run_all(&["SETTP k v NOTIFY", "DEL unrelated"]);
            owner.send_bytes(begun.as_bytes()); // the rest of it is still on its way
            server.settle();
            other.run(removal);
            assert_eq!(owner.next_push(), format!("settp k LOST {lost}"));
            owner.send_bytes(rest.as_bytes());
            assert_eq!(owner.read_reply(), reply);
        }
    }
}

#[test]
fn an_owner_whose_last_command_was_its_own_removal_is_told_of_a_foreign_one() {
    let server = Server::start();
    let (mut owner, mut other) = (server.resp3(), server.resp2());
    for last in [
        "DEL unrelated",
        "FLUSHDB",
        "RENAME a b",
        "MULTI",
        "EVAL return{} 0",
    ] {
        owner.run_all(&["SET a v", "SETTP k v NOTIFY"]);
        owner.run(last);
        if last == "FLUSHDB" {
            owner.run("SETTP k v NOTIFY");
        }
        if last == "MULTI" {
            owner.run_all(&["PING", "EXEC"]);
        }
        other.run("DEL k");
        assert_eq!(
            server.settled(&mut owner),
            ["settp k LOST deleted"],
            "after {last}"
        );
    }
}

#[test]
fn a_key_that_is_carried_along_or_overwritten_is_not_lost() {
    let server = Server::start();
    let (mut owner, mut other) = (server.resp3(), server.resp2());
    owner.run("SETTP k v NOTIFY");
    other.run_all(&[
        "SET k w",
        "RENAME k new",
        "MOVE new 5",
        "SWAPDB 0 5",
        "EXPIRE new 100",
        "PERSIST new",
    ]);
    assert_eq!(server.settled(&mut owner), [""; 0]);
    other.run("DEL new");
    assert_eq!(server.settled(&mut owner), ["settp new LOST deleted"]);
}

#[test]
fn a_resp2_owner_that_asked_is_told_in_an_array() {
    let server = Server::start();
    let mut owner = server.resp2();
    owner.run("SETTP k v NOTIFY");
    server.resp2().run("DEL k");
    owner.expect_bytes("*3\r\n$5\r\nsettp\r\n$1\r\nk\r\n$12\r\nLOST deleted\r\n");
}

#[test]
fn a_loss_is_told_once_and_the_key_can_be_taken_again() {
    let server = Server::start();
    let (mut owner, mut other) = (server.resp3(), server.resp2());
    for _ in 0..3 {
        assert_eq!(owner.call("SETTP k v NOTIFY"), int(1));
        other.run_all(&["DEL k", "SET k x", "DEL k"]);
        assert_eq!(server.settled(&mut owner), ["settp k LOST deleted"]);
    }
}

#[test]
fn a_removal_is_a_change_that_calls_for_an_rdb_file() {
    let server = Server::start();
    let mut owner = server.resp3();
    owner.run_all(&["SETTP k v", "SAVE"]);
    let is_saved = || {
        server
            .info("persistence")
            .contains("rdb_changes_since_last_save:0\r\n")
    };
    assert!(is_saved());
    owner.run("DELTP k");
    assert!(!is_saved());
}
