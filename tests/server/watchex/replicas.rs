//! Watches on a replica: what the master does is told there, and a full resync tells the difference alone.

use super::{exist, noexist};
use crate::harness::*;

#[test]
fn the_masters_stream_is_told_on_the_replica() {
    let master = Server::start();
    let replica = Server::replica_of(&master, &[]);
    let mut writer = master.resp2();
    let (mut watcher, mut old) = (replica.resp3(), replica.resp2());
    for watcher in [&mut watcher, &mut old] {
        assert_eq!(watcher.call("WATCHEX k l"), array([noexist(), noexist()]));
    }
    writer.run_all(&[
        "SET k v",
        "SET k w",
        "RENAME k l",
        "MULTI",
        "DEL l",
        "SET k v",
        "EXEC",
        "FLUSHALL",
    ]);
    for watcher in [&mut watcher, &mut old] {
        let told = watcher.next_pushes(6);
        assert_eq!(told[0], "watchex k ADD");
        let mut renamed = told[1..3].to_vec();
        renamed.sort();
        assert_eq!(renamed, ["watchex k DEL", "watchex l ADD"]);
        assert_eq!(
            told[3..],
            ["watchex l DEL", "watchex k ADD", "watchex k DEL"]
        );
        assert_eq!(replica.settled(watcher), [""; 0]);
    }
}

#[test]
fn a_temporary_key_of_the_masters_client_is_told_on_the_replica() {
    let master = Server::start();
    let replica = Server::replica_of(&master, &[]);
    let (mut watcher, mut owner) = (replica.resp3(), master.resp2());
    watcher.run("WATCHEX k");
    owner.run("SETTP k v NOTIFY");
    assert_eq!(watcher.next_push(), "watchex k ADD");
    drop(owner);
    assert_eq!(watcher.next_push(), "watchex k DEL");
    assert_eq!(replica.settled(&mut watcher), [""; 0]);
}

#[test]
fn expiry_and_databases_are_told_on_the_replica() {
    let master = Server::start();
    let replica = Server::replica_of(&master, &[]);
    let (mut watcher, mut writer) = (replica.resp3(), master.resp2());
    watcher.run_all(&["SELECT 5", "WATCHEX k"]);
    writer.run_all(&["SET k zeroth", "SELECT 5", "SET k v PX 30"]);
    assert_eq!(watcher.next_pushes(2), ["watchex k ADD", "watchex k DEL"]);
    writer.run_all(&["SELECT 0", "SWAPDB 0 5"]);
    assert_eq!(watcher.next_push(), "watchex k ADD");
    assert_eq!(replica.settled(&mut watcher), [""; 0]);
}

/// A replica with `a` and `b` is told to follow a master with `b` and `c`.
fn resync(lines: &[&str]) {
    let (first, second) = (Server::start(), Server::start());
    first
        .resp2()
        .run_all(&["MSET a v b v", "SELECT 5", "SET a v"]);
    second
        .resp2()
        .run_all(&["MSET b v c v", "SELECT 5", "SET a v"]);
    let replica = Server::replica_of(&first, lines);
    let (mut watcher, mut fifth) = (replica.resp3(), replica.resp3());
    assert_eq!(
        watcher.call("WATCHEX a b c d"),
        array([exist(), exist(), noexist(), noexist()])
    );
    fifth.run_all(&["SELECT 5", "WATCHEX a"]);
    replica.follow(&second);
    let mut told = watcher.next_pushes(2);
    told.sort();
    assert_eq!(told, ["watchex a DEL", "watchex c ADD"]);
    assert_eq!(replica.settled(&mut watcher), [""; 0]);
    assert_eq!(replica.settled(&mut fifth), [""; 0]);
    second.resp2().run_all(&["DEL b", "SET d v"]);
    assert_eq!(watcher.next_pushes(2), ["watchex b DEL", "watchex d ADD"]);
}

#[test]
fn a_full_resync_tells_the_difference_alone() {
    resync(&[]);
}

#[test]
fn a_full_resync_without_disk_tells_the_difference_alone() {
    resync(&["repl-diskless-load swapdb"]);
}

#[test]
fn a_resync_with_the_same_master_is_no_change() {
    let master = Server::start();
    master.resp2().run_all(&["MSET a v b v"]);
    let replica = Server::replica_of(&master, &[]);
    let mut watcher = replica.resp3();
    watcher.run("WATCHEX a b c");
    replica.resp2().run("REPLICAOF NO ONE");
    assert_eq!(replica.settled(&mut watcher), [""; 0]);
    replica.follow(&master);
    assert_eq!(replica.settled(&mut watcher), [""; 0]);
    master.resp2().run("SET c v");
    assert_eq!(watcher.next_push(), "watchex c ADD");
}

/// The master does this with `k`, whose time is nearly over; where it is over on the replica, but the news is still to come,
/// somebody watches it there. Gives back that watcher, what it was told, and one who has watched for longer.
fn watched_late(master: &Server, replica: &Server, command: &str) -> (Client, Frame, Client) {
    let mut writer = master.resp2();
    // On a busy machine the command can come too late, or its news too early.
    for ms in [50, 100, 200, 400, 800, 1600] {
        writer.run(&format!("SET k v PX {ms}"));
        replica.catch_up(master);
        let (mut early, mut late) = (replica.resp3(), replica.resp3());
        let was_there = early.call("WATCHEX k") == exist();
        let busy = format!("DEBUG SLEEP {}", f64::from(2 * ms) / 1000.0);
        late.pipeline(&[&busy, "EXISTS k", "WATCHEX k"]);
        let in_time = ![null(), int(0)].contains(&writer.run(command));
        let mut replies = late.read_replies(3);
        let told = replies.remove(2);
        if was_there && in_time && replies[1] == int(0) {
            replica.catch_up(master);
            return (late, told, early);
        }
    }
    panic!("never in time");
}

#[test]
fn what_has_lapsed_on_a_replica_is_there_until_the_master_says_that_it_has_gone() {
    let master = Server::start();
    let replica = Server::replica_of(&master, &[]);
    for command in ["PERSIST k", "PEXPIRE k 100000", "SET k w XX"] {
        let (mut late, told, mut early) = watched_late(&master, &replica, command);
        assert_eq!(told, exist(), "{command}");
        for watcher in [&mut late, &mut early] {
            assert_eq!(replica.settled(watcher), [""; 0], "{command}");
        }
        master.resp2().run("DEL k");
        for watcher in [&mut late, &mut early] {
            assert_eq!(watcher.next_push(), "watchex k DEL");
        }
    }
}

#[test]
fn what_lapses_during_a_full_resync_is_there_until_the_master_says_that_it_has_gone() {
    let (first, second) = (Server::start(), Server::start());
    let replica = Server::replica_of(&first, &[]);
    first.resp2().run("SET k v");
    replica.catch_up(&first);
    let (mut watcher, mut writer) = (replica.resp3(), second.resp2());
    assert_eq!(watcher.call("WATCHEX k"), exist());
    // To save it takes as long as the keys are many.
    writer.run_all(&[
        "MSET a v b v c v d v e v f v",
        "CONFIG SET rdb-key-save-delay 100000",
        "SET k v PX 500",
    ]);
    replica
        .resp2()
        .run(["REPLICAOF", "127.0.0.1", &second.port().to_string()]);
    eventually("a snapshot", || {
        match second.gauge("persistence", "rdb_bgsave_in_progress") {
            0 => Err("none yet".to_owned()),
            _ => Ok(()),
        }
    });
    // Where the machine is too busy for that, the key goes, and there is nothing to see.
    let is_there = writer.run("PERSIST k") == int(1);
    replica.follow(&second);
    let told: &[&str] = if is_there { &[] } else { &["watchex k DEL"] };
    assert_eq!(replica.settled(&mut watcher), told);
}

#[test]
fn a_masters_flush_is_told_before_unwatchex_is_answered() {
    let master = Server::start();
    let replica = Server::replica_of(&master, &[]);
    let (mut writer, mut watcher, mut busy) = (master.resp2(), replica.resp3(), replica.resp2());
    for _ in 0..5 {
        writer.run("SET k v");
        replica.catch_up(&master);
        assert_eq!(watcher.call("WATCHEX k"), exist());
        // The flush and UNWATCHEX come while the replica is busy; so it takes one right after the other.
        busy.send("DEBUG SLEEP 0.05");
        writer.run("FLUSHALL");
        watcher.send("UNWATCHEX k");
        busy.read_reply();
        assert_eq!(watcher.read_reply(), int(1));
        watcher.arrived_pushes();
        assert_eq!(replica.settled(&mut watcher), [""; 0]);
    }
}
