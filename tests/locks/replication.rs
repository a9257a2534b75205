//! What replicas and the append-only file have after handoffs, disconnects and leases: the same keys.

mod churn;
mod offsets;

use crate::harness::*;
use crate::line::*;
use std::time::{Duration, Instant};

/// Everything that a server's first databases hold: database, name, type, and a string's value.
type Keyspace = Vec<(u32, String, String, Frame)>;

fn keyspace(server: &Server) -> Keyspace {
    let mut client = server.resp2();
    let mut all = Vec::new();
    for db in 0..4 {
        client.run(["SELECT", &db.to_string()]);
        let names = client.run("KEYS *").items();
        for name in names.iter().map(Frame::text) {
            let kind = client.run(["TYPE", &name]).text();
            if kind == "none" {
                continue; // its time came meanwhile
            }
            let value = match kind.as_str() {
                "string" => client.run(["GET", &name]),
                _ => null(),
            };
            all.push((db, name, kind, value));
        }
    }
    all.sort_by_key(|(db, name, ..)| (*db, name.clone()));
    all
}

fn assert_same(master: &Server, replica: &Server, when: &str) {
    master.settle();
    eventually(&format!("the replica's keys {when}"), || {
        replica.catch_up(master);
        let (here, there) = (keyspace(master), keyspace(replica));
        if here == there {
            Ok(())
        } else {
            let only = |one: &Keyspace, other: &Keyspace| -> Keyspace {
                let missing = one.iter().filter(|key| !other.contains(key));
                missing.cloned().collect()
            };
            let (mine, theirs) = (only(&here, &there), only(&there, &here));
            Err(format!(
                "only the master has {mine:?}, only the replica {theirs:?}"
            ))
        }
    });
}

#[test]
fn a_replica_follows_each_way_of_handing_over() {
    let master = Server::start();
    let replica = Server::replica_of(&master, &[]);
    let (mut one, mut two, mut three) = (master.resp3(), master.resp3(), master.resp3());
    let mut reader = replica.resp2();
    one.run_all(&["SETTP k one", "EXPIRE k 10000"]);
    queue(&master, &mut two, "SETTP k two WAIT 0");
    assert_same(&master, &replica, "with a line");
    assert!(reader.call("TTL k").number() > 9_000);
    one.run("DELTP k");
    two.read_reply();
    assert_same(&master, &replica, "after DELTP");
    assert_eq!(reader.call("GET k"), bulk("two"));
    assert_eq!(reader.call("TTL k"), int(-1));
    two.run_all(&["DELTP k", "LOCK.ACQUIRE k"]);
    queue(&master, &mut one, "SETTP k again WAIT 0");
    queue(&master, &mut three, "LOCK.ACQUIRE k WAIT 0");
    drop(two);
    one.read_reply();
    assert_same(&master, &replica, "from a lock to a temporary key");
    assert_eq!(reader.call("GET k"), bulk("again"));
    one.run("DELTP k");
    three.read_reply();
    assert_same(&master, &replica, "from a temporary key to a lock");
    assert_eq!(reader.call("TYPE k"), master.resp2().call("TYPE k"));
    queue(&master, &mut one, "LOCK.ACQUIRE k WAIT 0");
    three.run("LOCK.RELEASE k");
    one.read_reply();
    queue(&master, &mut three, "SETTP k three WAIT 0");
    one.run("LOCK.EXTEND k 60");
    assert_eq!(three.read_reply(), int(1));
    assert_same(&master, &replica, "from a lease to a temporary key");
    assert_eq!(reader.call("GET k"), bulk("three"));
    three.run_all(&["DELTP k", "LOCK.ACQUIRE k"]);
    queue(&master, &mut one, "LOCK.MACQUIRE 3 k l m WAIT 0");
    master.resp2().run("DEL k");
    one.read_reply().number();
    assert_same(&master, &replica, "after a foreign removal");
    assert_eq!(reader.call("EXISTS k l m"), int(3));
    queue(&master, &mut three, "SETTP l three WAIT 0");
    master.resp2().run("FLUSHALL");
    three.read_reply();
    assert_same(&master, &replica, "after FLUSHALL");
    assert_eq!(reader.call("KEYS *"), array([bulk("l")]));
    drop((one, three));
    eventually_nothing_is_left(&master);
    assert_same(&master, &replica, "in the end");
    assert_eq!(reader.call("DBSIZE"), int(0));
}

#[test]
fn watchers_on_a_replica_see_nothing_of_a_handoff() {
    let master = Server::start();
    let replica = Server::replica_of(&master, &[]);
    let (mut one, mut two, mut three) = (master.resp3(), master.resp3(), master.resp3());
    let mut watcher = replica.resp3();
    watcher.run("WATCHEX k");
    one.run("LOCK.ACQUIRE k NOTIFY");
    assert_eq!(watcher.next_push(), "watchex k ADD");
    queue(&master, &mut two, "SETTP k two WAIT 0");
    queue(&master, &mut three, "LOCK.ACQUIRE k WAIT 0");
    one.run("LOCK.RELEASE k");
    two.read_reply();
    drop(two);
    three.read_reply();
    queue(&master, &mut one, "SETTP k one WAIT 0");
    three.run("LOCK.RELEASE k");
    one.read_reply();
    replica.catch_up(&master);
    assert_eq!(replica.settled(&mut watcher), [""; 0]);
    assert_eq!(replica.resp2().call("GET k"), bulk("one"));
    master.resp2().run("DEL k");
    assert_eq!(watcher.next_push(), "watchex k DEL");
}

#[test]
fn a_replica_takes_no_requests_and_shows_what_is_there() {
    let master = Server::start();
    let replica = Server::replica_of(&master, &[]);
    let mut holder = master.resp3();
    holder.run_all(&["LOCK.ACQUIRE k", "SETTP t v"]);
    replica.catch_up(&master);
    let mut client = replica.resp3();
    for request in [
        "SETTP x v",
        "SETTP t v WAIT 0",
        "DELTP t",
        "LOCK.ACQUIRE k",
        "LOCK.ACQUIRE x WAIT 0",
        "LOCK.MACQUIRE 2 k x",
        "LOCK.RELEASE k",
        "LOCK.EXTEND k 1000",
    ] {
        let message = client.refused(request);
        assert!(message.starts_with("READONLY"), "{request}: {message}");
    }
    assert_eq!(client.call("EXISTS k t x"), int(2));
    client.run("LOCK.INFO k");
    client.run("LOCK.LIST 0");
    drop(client);
    replica.settle();
    assert_eq!(replica.resp2().call("EXISTS k t"), int(2));
}

#[test]
fn a_replica_that_comes_later_has_the_same_keys() {
    let master = Server::start();
    let (mut one, mut two) = (master.resp3(), master.resp3());
    one.run_all(&[
        "LOCK.ACQUIRE k",
        "LOCK.ACQUIRE s PERMITS 1 OF 3",
        "SETTP t one",
    ]);
    queue(&master, &mut two, "SETTP t two WAIT 0");
    let replica = Server::replica_of(&master, &[]);
    assert_same(&master, &replica, "at first");
    one.run("DELTP t");
    two.read_reply();
    drop(one);
    eventually_equal("locks", 0, || tether(&master, "holds"));
    assert_same(&master, &replica, "afterwards");
    assert_eq!(replica.resp2().call("GET t"), bulk("two"));
}

#[test]
fn a_key_that_lapses_as_databases_are_swapped_goes_from_the_right_one() {
    let master = Server::start();
    let replica = Server::replica_of(&master, &[]);
    let (mut other, mut watcher) = (master.resp2(), master.resp3());
    other.run("DEBUG SET-ACTIVE-EXPIRE 0");
    // So that the module knows the key in both.
    watcher.run_all(&["WATCHEX a", "SELECT 1", "WATCHEX a"]);
    other.run_all(&["SET a lapses PX 1", "SELECT 1", "SET a stays"]);
    let begin = Instant::now();
    eventually("the key's time", || match begin.elapsed() {
        passed if passed > Duration::from_millis(20) => Ok(()),
        passed => Err(format!("{passed:?}")),
    });
    other.run("SWAPDB 0 1");
    assert_same(&master, &replica, "after the swap");
    let stays = (0, "a".to_owned(), "string".to_owned(), bulk("stays"));
    assert_eq!(keyspace(&replica), [stays]);
}

/// A restarted server must not have what was gone before.
fn assert_nothing_comes_back(server: &mut Server) {
    server.settle();
    let before = keyspace(server);
    server.crash_and_restart();
    let after = keyspace(server);
    for key in &after {
        assert!(
            before.contains(key),
            "{key:?} came back; there was {before:?}"
        );
    }
}

const AOF: [&str; 2] = ["appendonly yes", "appendfsync always"];

#[test]
fn what_was_removed_does_not_come_back_from_the_append_only_file() {
    let mut server = Server::with(&AOF);
    let (mut one, mut two, mut stays) = (server.resp3(), server.resp3(), server.resp3());
    stays.run_all(&[
        "SETTP kept v NOTIFY",
        "LOCK.ACQUIRE held NOTIFY",
        "SET plain v",
    ]);
    one.run_all(&[
        "SETTP a v NOTIFY",
        "LOCK.ACQUIRE b NOTIFY",
        "LOCK.MACQUIRE 2 c d NOTIFY",
        "SELECT 3",
    ]);
    one.run_all(&[
        "LOCK.ACQUIRE e SHARED NOTIFY",
        "SELECT 0",
        "LOCK.ACQUIRE f LEASE 30 NOTIFY",
    ]);
    assert_eq!(one.next_push(), "lock f LOST lease");
    queue(&server, &mut two, "SETTP a w WAIT 0");
    one.run("DELTP a");
    two.read_reply();
    queue(
        &server,
        &mut two,
        "LOCK.MACQUIRE 3 d c g LEASE 100 NOTIFY WAIT 0",
    );
    drop(one);
    two.read_reply();
    let mut told = two.next_pushes(3);
    told.sort();
    assert_eq!(
        told,
        [
            "lock c LOST lease",
            "lock d LOST lease",
            "lock g LOST lease"
        ]
    );
    drop(two);
    eventually_equal("holds", 1, || tether(&server, "holds"));
    eventually_equal("keys", 1, || tether(&server, "temporary_keys"));
    assert_nothing_comes_back(&mut server);
    assert_eq!(server.resp2().call("GET plain"), bulk("v"));
}

#[test]
fn a_rewritten_append_only_file_can_be_loaded() {
    for preamble in ["yes", "no"] {
        let line = format!("aof-use-rdb-preamble {preamble}");
        let mut server = Server::with(&[AOF[0], AOF[1], &line]);
        let (mut one, mut two) = (server.resp3(), server.resp3());
        one.run_all(&[
            "LOCK.ACQUIRE a",
            "SETTP b v",
            "SELECT 2",
            "LOCK.ACQUIRE c SHARED",
        ]);
        two.run("BGREWRITEAOF");
        eventually("the rewriting", || {
            let info = server.info("persistence");
            let done = ["in_progress", "scheduled"]
                .iter()
                .all(|word| info.contains(&format!("aof_rewrite_{word}:0")));
            if done { Ok(()) } else { Err(info) }
        });
        assert!(
            server
                .info("persistence")
                .contains("aof_last_bgrewrite_status:ok")
        );
        one.run("LOCK.RELEASE c");
        queue(&server, &mut two, "LOCK.ACQUIRE a WAIT 0");
        drop(one);
        two.read_reply();
        two.run("SET plain v");
        eventually_equal("keys", 0, || tether(&server, "temporary_keys"));
        assert_nothing_comes_back(&mut server);
        assert_eq!(server.resp2().call("GET plain"), bulk("v"), "{preamble}");
    }
}
