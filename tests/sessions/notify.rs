//! Who hears of what a session loses: the connection that asked for it, or that resumed the session with NOTIFY.

use crate::harness::*;
use crate::line::*;
use crate::{A_DAY, with_session};

/// A session that holds `plain` without a word, and asked to be told of `asked`, `lock` and `deep`.
fn asked(server: &Server) -> (Client, String) {
    let (mut client, secret) = with_session(server, A_DAY);
    client.run_all(&[
        "SETTP plain v",
        "SETTP asked v NOTIFY",
        "LOCK.ACQUIRE lock OWNER job-17 NOTIFY",
        "LOCK.ACQUIRE deep REENTRANT NOTIFY",
        "LOCK.ACQUIRE deep REENTRANT",
    ]);
    (client, secret)
}

const ALL: &str = "DEL plain asked lock deep";

/// What is told when all of that is deleted.
fn told(server: &Server, client: &mut Client) -> Vec<String> {
    server.resp2().run(ALL);
    let mut told = server.settled(client);
    told.sort();
    told
}

const LOSSES: [&str; 3] = [
    "lock deep LOST deleted",
    "lock lock LOST deleted job-17",
    "settp asked LOST deleted",
];

#[test]
fn who_began_a_session_is_told_of_what_it_asked_for() {
    let server = Server::start();
    let (mut client, _secret) = asked(&server);
    assert_eq!(told(&server, &mut client), LOSSES);
}

#[test]
fn who_resumes_it_with_notify_is_told_of_what_the_former_connection_asked_for() {
    for resp3 in [true, false] {
        let server = Server::start();
        let (former, secret) = asked(&server);
        quit(&server, former);
        let mut client = if resp3 {
            server.resp3()
        } else {
            server.resp2()
        };
        assert_eq!(client.call(["SESSION.RESUME", &secret, "NOTIFY"]), int(4));
        if resp3 {
            assert_eq!(told(&server, &mut client), LOSSES);
        } else {
            server.resp2().run("DEL plain asked");
            client.expect_bytes("*3\r\n$5\r\nsettp\r\n$5\r\nasked\r\n$12\r\nLOST deleted\r\n");
        }
    }
}

#[test]
fn who_resumes_it_without_is_told_only_of_what_it_asks_for_itself() {
    let server = Server::start();
    let (mut former, secret) = asked(&server);
    let mut client = server.resp3();
    // It moves: the former connection hears nothing more of it either.
    assert_eq!(client.call(["SESSION.RESUME", &secret]), int(4));
    assert!(client.run("LOCK.ACQUIRE deep REENTRANT").number() > 0);
    client.run_all(&["SETTP own v NOTIFY", "SETTP silent v"]);
    server.resp2().run("DEL silent own asked lock");
    assert_eq!(server.settled(&mut client), ["settp own LOST deleted"]);
    // A request that makes a hold deeper asks for that hold.
    client.run("LOCK.ACQUIRE deep REENTRANT NOTIFY");
    server.resp2().run("DEL plain deep");
    assert_eq!(server.settled(&mut client), ["lock deep LOST deleted"]);
    assert_eq!(server.settled(&mut former), [""; 0]);
}

#[test]
fn it_can_be_asked_for_afterwards_and_each_resumption_says_it_anew() {
    let server = Server::start();
    let (_former, secret) = asked(&server);
    let (mut one, mut two) = (server.resp3(), server.resp3());
    one.run(["SESSION.RESUME", &secret, "NOTIFY"]);
    two.run(["SESSION.RESUME", &secret]);
    server.resp2().run("DEL asked");
    assert_eq!(server.settled(&mut two), [""; 0]);
    // On the connection that has it already nothing changes, but for this.
    assert_eq!(two.call(["SESSION.RESUME", &secret]), int(3));
    server.resp2().run("DEL lock");
    assert_eq!(server.settled(&mut two), [""; 0]);
    assert_eq!(two.call(["SESSION.RESUME", &secret, "NOTIFY"]), int(2));
    server.resp2().run("DEL plain deep");
    assert_eq!(server.settled(&mut two), ["lock deep LOST deleted"]);
    assert_eq!(server.settled(&mut one), [""; 0]);
}

#[test]
fn what_was_asked_for_is_known_after_a_restart_and_to_replicas() {
    let mut server = Server::with(&["appendonly yes", "appendfsync always"]);
    let replica = Server::replica_of(&server, &[]);
    let (client, secret) = asked(&server);
    drop(client);
    replica.catch_up(&server);
    replica.resp2().run("REPLICAOF NO ONE");
    let mut there = replica.resp3();
    assert_eq!(there.call(["SESSION.RESUME", &secret, "NOTIFY"]), int(4));
    assert_eq!(told(&replica, &mut there), LOSSES);
    // From the file as it was written, as an RDB file, and as commands.
    for preamble in ["", "yes", "no"] {
        let mut client = server.resp3();
        client.run(["SESSION.RESUME", &secret]);
        if !preamble.is_empty() {
            client.run(["CONFIG", "SET", "aof-use-rdb-preamble", preamble]);
            eventually("a rewrite", || match client.call("BGREWRITEAOF") {
                Frame::Error(busy) => Err(format!("{busy:?}")),
                _ => Ok(()),
            });
            eventually_equal("rewrites", 0, || {
                server.gauge("persistence", "aof_rewrite_in_progress")
                    + server.gauge("persistence", "aof_rewrite_scheduled")
            });
        }
        drop(client);
        server.crash_and_restart();
    }
    let mut client = server.resp3();
    assert_eq!(client.call(["SESSION.RESUME", &secret, "NOTIFY"]), int(4));
    assert_eq!(told(&server, &mut client), LOSSES);
}
