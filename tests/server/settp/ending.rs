//! A temporary key goes with its connection, whatever ends it; and with no other connection.

use crate::harness::*;
use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};

/// A connection that owns `k`, and its id.
fn owner(server: &Server) -> (Client, String) {
    let mut owner = server.resp2();
    let id = owner.id().to_string();
    assert_eq!(owner.call("SETTP k v"), int(1));
    (owner, id)
}

#[test]
fn quitting_frees_the_keys() {
    let server = Server::start();
    let (mut owner, _) = owner(&server);
    assert_eq!(owner.call("QUIT"), ok());
    owner.expect_closed();
    eventually_gone(&mut server.resp2(), "k");
}

#[test]
fn closing_a_client_frees_its_keys() {
    let server = Server::start();
    let (mut owner, _) = owner(&server);
    owner.run_all(&["SETTP second v", "SETTP third v"]);
    let mut other = server.resp2();
    other.run("SET plain v");
    drop(owner);
    eventually_equal("what is left", int(1), || other.call("DBSIZE"));
    assert_eq!(other.call("EXISTS plain"), int(1));
}

#[test]
fn a_reset_connection_frees_its_keys() {
    let server = Server::start().over_tcp();
    let (owner, _) = owner(&server);
    owner.reset();
    eventually_gone(&mut server.resp2(), "k");
}

#[test]
fn killing_a_client_process_with_sigkill_frees_its_keys() {
    let server = Server::start();
    let (owner, _) = owner(&server);
    // From here on only that process holds the connection.
    let socket = OwnedFd::from(owner.into_stream());
    let mut process = Command::new("sleep")
        .arg("600")
        .stdin(Stdio::from(socket))
        .spawn()
        .expect("a process");
    let mut other = server.resp2();
    server.settle();
    assert_eq!(
        other.call("EXISTS k"),
        int(1),
        "it must live as long as the process"
    );
    process.kill().expect("kill -9");
    process.wait().expect("its end");
    eventually_gone(&mut other, "k");
}

#[test]
fn client_kill_by_another_frees_the_keys() {
    let server = Server::start().over_tcp();
    let mut killer = server.resp2();
    let (mut by_id, id) = owner(&server);
    assert_eq!(killer.call(["CLIENT", "KILL", "ID", &id]), int(1));
    eventually_gone(&mut killer, "k");
    by_id.expect_closed();

    let (by_address, _) = owner(&server);
    let address = by_address.into_stream();
    killer.run(["CLIENT", "KILL", &address.local_addr().unwrap().to_string()]);
    eventually_gone(&mut killer, "k");
}

#[test]
fn client_kill_of_many_at_once_frees_all_their_keys() {
    let server = Server::start();
    let mut killer = server.resp2();
    let owners: Vec<_> = (0..20)
        .map(|n| {
            let mut owner = server.resp2();
            owner.run(["SETTP", &format!("k{n}"), "v"]);
            owner
        })
        .collect();
    // Whoever asked whether the server was up may not be gone yet.
    eventually_equal("connections", owners.len() + 1, || {
        killer.run("CLIENT LIST TYPE normal").text().lines().count()
    });
    assert_eq!(
        killer.call("CLIENT KILL TYPE normal SKIPME yes"),
        int(owners.len() as i64)
    );
    eventually_equal("what is left", int(0), || killer.call("DBSIZE"));
}

#[test]
fn client_kill_inside_the_killers_transaction_frees_the_keys_and_leaves_the_reply_whole() {
    let server = Server::start();
    let mut killer = server.resp2();
    let (mut owner, id) = owner(&server);
    killer.run("MULTI");
    for command in [
        "SET before 1",
        &format!("CLIENT KILL ID {id}"),
        "SET after 1",
        "GET before",
    ] {
        assert_eq!(killer.call(command), simple("QUEUED"));
    }
    assert_eq!(killer.call("EXEC"), array([ok(), int(1), ok(), bulk("1")]));
    eventually_gone(&mut killer, "k");
    owner.expect_closed();
    assert_eq!(killer.call("EXISTS before after"), int(2));
}

#[test]
fn client_kill_of_oneself_frees_the_keys() {
    let server = Server::start();
    let (mut alone, id) = owner(&server);
    assert_eq!(
        alone.call(["CLIENT", "KILL", "ID", &id, "SKIPME", "no"]),
        int(1)
    );
    alone.expect_closed();
    eventually_gone(&mut server.resp2(), "k");

    let (mut in_exec, id) = owner(&server);
    in_exec.run_all(&[
        "MULTI",
        &format!("CLIENT KILL ID {id} SKIPME no"),
        "SETTP late v",
    ]);
    in_exec.send("EXEC");
    in_exec.expect_closed();
    let mut other = server.resp2();
    eventually_equal("what is left", int(0), || other.call("DBSIZE"));
}

#[test]
fn a_client_that_dies_in_an_open_transaction_leaves_nothing() {
    let server = Server::start();
    let (mut owner, _) = owner(&server);
    owner.run_all(&["MULTI", "SETTP queued v"]);
    drop(owner);
    let mut other = server.resp2();
    eventually_equal("what is left", int(0), || other.call("DBSIZE"));
}

#[test]
fn a_client_that_dies_with_commands_on_their_way_leaves_nothing() {
    let server = Server::start().over_tcp();
    let mut other = server.resp2();
    for round in 0..50 {
        let mut owner = server.resp2();
        let commands: Vec<u8> = (0..200)
            .flat_map(|n| encode(["SETTP", &format!("{round}:{n}"), "v"]))
            .collect();
        owner.send_bytes(&commands);
        owner.reset();
    }
    eventually_equal("what is left", int(0), || other.call("DBSIZE"));
    server.settle();
    assert_eq!(other.call("DBSIZE"), int(0));
}

#[test]
fn a_connection_that_is_idle_for_too_long_loses_its_keys_with_its_life() {
    let server = Server::start();
    let (mut owner, _) = owner(&server);
    server.resp2().run("CONFIG SET timeout 1");
    // Whoever looks for too long may be too idle as well.
    eventually_equal("the end of k", int(0), || server.resp2().call("EXISTS k"));
    owner.expect_closed();
}

#[test]
fn a_client_beyond_its_output_buffer_loses_its_keys() {
    let server = Server::with(&["client-output-buffer-limit normal 1mb 0 0"]);
    let (mut owner, _) = owner(&server);
    let mut other = server.resp2();
    other.run(["SET", "big", &"x".repeat(1 << 20)]);
    owner.try_send_bytes(&encode("GET big").repeat(64)); // and reads none of it
    eventually_gone(&mut other, "k");
}

#[test]
fn a_client_evicted_for_memory_loses_its_keys() {
    let server = Server::start();
    let mut other = server.resp2();
    other.run("CONFIG SET maxmemory-clients 4mb");
    let (mut owner, _) = owner(&server);
    owner.try_send_bytes(b"*3\r\n$3\r\nSET\r\n$1\r\nx\r\n$33554432\r\n");
    owner.try_send_bytes(&vec![b'x'; 16 << 20]); // half of what it announced
    eventually_gone(&mut other, "k");
    assert!(server.gauge("stats", "evicted_clients") >= 1);
}

#[test]
fn a_protocol_error_ends_the_connection_and_frees_the_keys() {
    let server = Server::start();
    let (mut owner, _) = owner(&server);
    owner.send_bytes(b"*1\r\n!broken\r\n");
    owner.expect_closed();
    eventually_gone(&mut server.resp2(), "k");
}

#[test]
fn a_connection_keeps_its_keys_as_long_as_it_lives() {
    let server = Server::start();
    let (owner, _) = owner(&server);
    let mut owner = owner.changing_protocol();
    let mut other = server.resp2();
    let tries = [
        "RESET",
        "HELLO 3",
        "HELLO 2",
        "SELECT 5",
        "CLIENT NO-EVICT on",
        "CLIENT SETNAME n",
        "MULTI",
        "RESET",
    ];
    for command in tries {
        owner.run(command);
        server.settle();
        assert_eq!(other.call("EXISTS k"), int(1), "after {command}");
    }
    drop(owner);
    eventually_gone(&mut other, "k");
}

#[test]
fn a_half_closed_connection_is_an_ended_one() {
    let server = Server::start();
    let (owner, _) = owner(&server);
    let stream = owner.into_stream();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    eventually_gone(&mut server.resp2(), "k");
}

#[test]
fn each_connection_takes_only_its_own_keys_with_it() {
    let server = Server::start();
    let mut other = server.resp2();
    let mut owners: Vec<_> = (0..10)
        .map(|n| {
            let mut owner = server.resp2();
            owner.run_all(&[
                &format!("SETTP k{n} v"),
                "SELECT 3",
                &format!("SETTP k{n} v"),
            ]);
            owner
        })
        .collect();
    for left in (0..10).rev() {
        drop(owners.remove(left / 2));
        for database in ["SELECT 0", "SELECT 3"] {
            other.run(database);
            eventually_equal("what is left", int(left as i64), || other.call("DBSIZE"));
        }
    }
}

#[test]
fn the_end_reaches_the_database_in_which_the_key_was_made() {
    let server = Server::start();
    let (mut owner, mut other) = (server.resp2(), server.resp2());
    owner.run_all(&["SELECT 3", "SETTP k v", "SELECT 7"]);
    for database in ["SELECT 0", "SELECT 7"] {
        other.run_all(&[database, "SET k theirs"]);
    }
    drop(owner);
    other.run("SELECT 3");
    eventually_gone(&mut other, "k");
    for database in ["SELECT 0", "SELECT 7"] {
        other.run(database);
        assert_eq!(other.call("GET k"), bulk("theirs"), "{database}");
    }
}

#[test]
fn while_the_server_must_not_write_the_end_waits_and_is_not_lost() {
    let master = Server::start();
    let replica = Server::replica_of(&master, &[]);
    let mut other = master.resp3();
    let (owner, _) = owner(&master);
    other.run_all(&["WATCHEX k", "CLIENT PAUSE 600000 WRITE"]);
    drop(owner);
    assert_eq!(
        master.settled(&mut other),
        [""; 0],
        "nothing is written during the pause"
    );
    assert_eq!(other.call("EXISTS k"), int(1));
    other.run("CLIENT UNPAUSE");
    assert_eq!(other.next_push(), "watchex k DEL");
    replica.catch_up(&master);
    eventually_gone(&mut replica.resp2(), "k");
}

#[test]
fn an_end_while_a_script_is_busy_is_seen_by_replicas_and_the_aof_after_the_script() {
    let lines = ["appendonly yes", "appendfsync always", "lua-time-limit 20"];
    let mut master = Server::with(&lines);
    let replica = Server::replica_of(&master, &[]);
    let (owner, id) = owner(&master);
    let (mut watcher, mut busy, mut other) = (master.resp3(), master.resp2(), master.resp2());
    watcher.run("WATCHEX k");
    // On a busy machine it may be over before anybody sees that it is slow.
    let is_slow = [1e8, 1e9].into_iter().any(|rounds: f64| {
        let script = format!(
            "redis.call('SET', 'before', 1); for i = 1, {rounds} do end; return redis.call('EXISTS', 'k')"
        );
        busy.send(["EVAL", &script, "0"]);
        // The server takes in what happens to connections once the script is slower than it should be.
        eventually("the slow script", || match other.call("PING") {
            Frame::Error(_) => Ok(true),
            _ if busy.has_reply() => {
                assert_eq!(busy.read_reply(), int(1));
                Ok(false)
            }
            reply => Err(format!("{reply:?}")),
        })
    });
    assert!(is_slow);
    drop(owner);
    assert_eq!(
        busy.read_reply(),
        int(1),
        "the script sees no change in its midst"
    );
    assert_eq!(watcher.next_push(), "watchex k DEL");
    assert!(other.run(["CLIENT", "LIST", "ID", &id]).text().is_empty());
    replica.catch_up(&master);
    let mut reader = replica.resp2();
    eventually_gone(&mut reader, "k");
    assert_eq!(reader.call("EXISTS before"), int(1));
    master.crash_and_restart();
    assert_eq!(master.resp2().call("EXISTS before k"), int(1));
}
