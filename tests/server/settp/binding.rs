//! The binding goes where the key goes, and stays when only the value changes.

use crate::harness::*;

fn owner_of(server: &Server, key: &str) -> Client {
    let mut owner = server.resp2();
    assert_eq!(owner.call(["SETTP", key, "v"]), int(1));
    owner
}

#[test]
fn it_follows_a_rename_by_anyone() {
    let server = Server::start();
    let mut other = server.resp2();
    for rename in ["RENAME k new", "RENAMENX k new"] {
        let mut owner = owner_of(&server, "k");
        owner.run(rename);
        drop(owner);
        eventually_gone(&mut other, "new");

        let owner = owner_of(&server, "k");
        other.run(rename);
        other.run("SET k theirs");
        drop(owner);
        eventually_gone(&mut other, "new");
        assert_eq!(other.call("GET k"), bulk("theirs"), "after {rename}");
        other.run("DEL k");
    }
}

#[test]
fn it_follows_a_chain_of_renames_and_survives_one_to_the_same_name() {
    let server = Server::start();
    let owner = owner_of(&server, "k");
    let mut other = server.resp2();
    other.run_all(&[
        "RENAME k k",
        "RENAME k a",
        "RENAME a b",
        "RENAME b k",
        "RENAME k c",
    ]);
    drop(owner);
    eventually_gone(&mut other, "c");
}

#[test]
fn it_follows_a_rename_over_a_plain_key() {
    let server = Server::start();
    let owner = owner_of(&server, "k");
    let mut other = server.resp2();
    other.run_all(&["RPUSH plain x", "RENAME k plain"]);
    drop(owner);
    eventually_gone(&mut other, "plain");
}

#[test]
fn a_refused_rename_changes_nothing() {
    let server = Server::start();
    let owner = owner_of(&server, "k");
    let mut other = server.resp2();
    other.run("SET plain x");
    assert_eq!(other.call("RENAMENX k plain"), int(0));
    drop(owner);
    eventually_gone(&mut other, "k");
    assert_eq!(other.call("GET plain"), bulk("x"));
}

#[test]
fn it_follows_a_rename_over_another_owners_key() {
    let server = Server::start();
    let (first, second) = (owner_of(&server, "a"), owner_of(&server, "b"));
    let mut other = server.resp2();
    other.run("RENAME a b");
    drop(second);
    server.settle();
    assert_eq!(other.call("EXISTS b"), int(1), "b is now the first owner's");
    drop(first);
    eventually_gone(&mut other, "b");
}

#[test]
fn it_follows_a_move_to_another_database() {
    let server = Server::start();
    let owner = owner_of(&server, "k");
    let mut other = server.resp2();
    assert_eq!(other.call("MOVE k 5"), int(1));
    other.run("SET k theirs");
    drop(owner);
    other.run("SELECT 5");
    eventually_gone(&mut other, "k");
    other.run("SELECT 0");
    assert_eq!(other.call("GET k"), bulk("theirs"));
}

#[test]
fn a_refused_move_changes_nothing() {
    let server = Server::start();
    let owner = owner_of(&server, "k");
    let mut other = server.resp2();
    other.run_all(&["SELECT 5", "SET k theirs", "SELECT 0"]);
    assert_eq!(other.call("MOVE k 5"), int(0));
    drop(owner);
    eventually_gone(&mut other, "k");
    other.run("SELECT 5");
    assert_eq!(other.call("GET k"), bulk("theirs"));
}

#[test]
fn it_follows_swapdb() {
    let server = Server::start();
    let owner = owner_of(&server, "k");
    let mut elsewhere = server.resp2();
    elsewhere.run_all(&["SELECT 5", "SETTP fifth v", "SET k theirs"]);
    let mut other = server.resp2();
    other.run("SWAPDB 0 5"); // k is in 5, fifth and their k in 0
    drop(owner);
    other.run("SELECT 5");
    eventually_gone(&mut other, "k");
    other.run("SELECT 0");
    assert_eq!(other.call("GET k"), bulk("theirs"));
    assert_eq!(other.call("EXISTS fifth"), int(1));
    drop(elsewhere);
    eventually_gone(&mut other, "fifth");
    assert_eq!(other.call("GET k"), bulk("theirs"));
}

#[test]
fn it_follows_swapdb_also_where_a_command_was_taken_away_that_looks_at_keys() {
    let server = Server::with(&["rename-command MEMORY \"\""]);
    let owner = owner_of(&server, "k");
    let mut other = server.resp2();
    other.run_all(&["SWAPDB 0 5", "SELECT 5"]);
    assert_eq!(other.call("SETTP k other"), int(0));
    drop(owner);
    eventually_gone(&mut other, "k");
}

#[test]
fn swapping_a_database_with_itself_changes_nothing() {
    let server = Server::start();
    let owner = owner_of(&server, "k");
    let mut other = server.resp2();
    other.run("SWAPDB 0 0");
    drop(owner);
    eventually_gone(&mut other, "k");
}

#[test]
fn it_stays_when_the_value_is_overwritten() {
    let server = Server::start();
    let mut other = server.resp2();
    for overwrite in [
        "SET k new",
        "APPEND k more",
        "SETRANGE k 3 xyz",
        "GETSET k new",
        "SET k 5 GET",
        "MSET k new",
        "SETEX k 100 new",
        "SETBIT k 7 1",
        "PERSIST k",
        "TOUCH k",
    ] {
        let owner = owner_of(&server, "k");
        other.run(overwrite);
        assert_eq!(server.resp2().call("SETTP k w"), int(0));
        drop(owner);
        eventually(overwrite, || match other.call("EXISTS k").number() {
            0 => Ok(()),
            _ => Err("the key outlived its owner".into()),
        });
    }
}

#[test]
fn a_time_to_live_can_be_given_and_taken_as_on_any_key() {
    let server = Server::start();
    let owner = owner_of(&server, "k");
    let mut other = server.resp2();
    assert_eq!(other.call("EXPIREAT k 4000000000"), int(1));
    assert_eq!(other.call("EXPIRETIME k"), int(4_000_000_000));
    assert_eq!(other.call("PERSIST k"), int(1));
    assert_eq!(other.call("EXPIRETIME k"), int(-1));
    assert_eq!(other.call("EXPIRE k 100"), int(1));
    drop(owner);
    eventually_gone(&mut other, "k");
}

#[test]
fn a_copy_is_nobodys() {
    let server = Server::start();
    if server.strays_after_copies() {
        return say("a_copy_is_nobodys: this server does not come back from another database");
    }
    let owner = owner_of(&server, "k");
    let mut other = server.resp2();
    assert_eq!(other.call("COPY k copy"), int(1));
    assert_eq!(other.call("COPY k k DB 5"), int(1));
    drop(owner);
    eventually_gone(&mut other, "k");
    assert_eq!(other.call("GET copy"), bulk("v"));
    other.run("SELECT 5");
    assert_eq!(other.call("GET k"), bulk("v"));
}

#[test]
fn a_dump_restored_elsewhere_is_nobodys() {
    let server = Server::start();
    let owner = owner_of(&server, "k");
    let mut other = server.resp2();
    let dump = other.run("DUMP k").bytes();
    other.run([b"RESTORE".to_vec(), b"copy".to_vec(), b"0".to_vec(), dump]);
    drop(owner);
    eventually_gone(&mut other, "k");
    assert_eq!(other.call("GET copy"), bulk("v"));
}

#[test]
fn what_is_migrated_to_another_server_is_nobodys_and_gone_from_this_one() {
    let (server, there) = (Server::start(), Server::start());
    let mut owner = server.resp3();
    owner.run("SETTP k v");
    let port = there.port().to_string();
    let mut other = server.resp2();
    other.run(["MIGRATE", "127.0.0.1", &port, "k", "0", "10000"]);
    assert_eq!(owner.call("SETTP k again"), int(1));
    drop(owner);
    eventually_gone(&mut other, "k");
    assert_eq!(there.resp2().call("GET k"), bulk("v"));
    assert_eq!(there.resp2().call("PTTL k"), int(-1));
}

#[test]
fn debug_reload_takes_it_from_a_connection_and_not_from_a_session() {
    let server = Server::start();
    let [mut owner, mut elsewhere, mut session, mut watcher] = [(); 4].map(|()| server.resp3());
    owner.run("SETTP k v NOTIFY");
    elsewhere.run_all(&["SELECT 5", "SETTP k v"]);
    session.run_all(&["SESSION.START", "SETTP its v NOTIFY"]);
    watcher.run("WATCHEX k its");
    let mut other = server.resp2();
    other.run("DEBUG RELOAD");
    assert_eq!(owner.next_push(), "settp k LOST flushed");
    assert_eq!(session.next_push(), "settp its LOST flushed");
    eventually_gone(&mut other, "k");
    assert_eq!(server.settled(&mut watcher), ["watchex k DEL"]);
    assert_eq!(owner.call("DELTP k"), int(0));
    assert_eq!(owner.call("SETTP k again"), int(1));
    assert_eq!(other.call("SETTP its w"), int(0));
    assert_eq!(session.call("DELTP its"), int(1));
    other.run("SELECT 5");
    eventually_gone(&mut other, "k");
    drop(elsewhere);
}

/// So many that they are removed in slices, and others write in between.
#[test]
fn what_others_store_there_when_its_owner_has_just_gone_is_theirs() {
    const KEYS: usize = 20_000;
    let server = Server::start();
    let mut other = server.resp2();
    let mut owner = server.resp2();
    let all = |command: fn(usize) -> String| (0..KEYS).map(command).collect::<Vec<_>>();
    let settp = all(|number| format!("SETTP {number} v"));
    for commands in settp.chunks(1000) {
        owner.pipeline(&commands.iter().map(String::as_str).collect::<Vec<_>>());
        owner.read_replies(commands.len());
    }
    drop(owner);
    eventually_equal("its end", true, || {
        server.gauge("tether", "tether_temporary_keys") < KEYS as i64
    });
    // From the end: the oldest are removed first.
    let set = all(|number| format!("SET {} theirs", KEYS - 1 - number));
    for commands in set.chunks(1000) {
        other.pipeline(&commands.iter().map(String::as_str).collect::<Vec<_>>());
        other.read_replies(commands.len());
    }
    eventually_equal("the owner's keys", 0, || {
        server.gauge("tether", "tether_temporary_keys")
    });
    assert_eq!(other.call("DBSIZE"), int(KEYS as i64));
    assert_eq!(other.call("GET 0"), bulk("theirs"));
}
