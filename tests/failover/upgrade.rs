//! Two versions beside each other: today's module and the last release's, each as master and as replica of the other, and with the
//! other one's files. Runs where TETHER_FORMER_MODULE names the other one: `make upgrade`.

use crate::harness::*;
use crate::line::*;
use std::env;
use std::path::PathBuf;

const A_DAY: &str = "SESSION.START GRACE 86400000";
const AOF: [&str; 2] = ["appendonly yes", "appendfsync always"];

/// The module of the last release and today's, in both orders.
fn pairs() -> Vec<[PathBuf; 2]> {
    let Some(former) = env::var_os("TETHER_FORMER_MODULE") else {
        return Vec::new();
    };
    let [former, today] = [PathBuf::from(former), module()];
    assert!(former.is_file(), "{}", former.display());
    vec![[former.clone(), today.clone()], [today, former]]
}

/// What a session holds, by the name of its lock.
struct Scene {
    client: Client,
    secret: String,
    token: i64,
}

fn set_up(server: &Server) -> Scene {
    let mut client = server.resp3();
    let secret = client.run(A_DAY).text();
    client.run_all(&[
        "SETTP temporary v NOTIFY",
        "LOCK.ACQUIRE deep REENTRANT",
        "LOCK.ACQUIRE deep REENTRANT",
        "LOCK.ACQUIRE lease LEASE 86400000",
        "LOCK.ACQUIRE semaphore PERMITS 3 OF 5",
        "LOCK.ACQUIRE freed SHARED",
    ]);
    let token = client.run("LOCK.ACQUIRE lock REENTRANT OWNER job").number();
    Scene {
        client,
        secret,
        token,
    }
}

/// The same on a server that took over; returns the connection that has resumed the session.
fn assert_taken_over(server: &Server, scene: &Scene, holds: i64) -> Client {
    let mut client = server.resp3();
    let resumed = client.run(["SESSION.RESUME", &scene.secret]);
    assert_eq!(resumed, int(holds));
    let again = client.run("LOCK.ACQUIRE lock REENTRANT OWNER job");
    assert_eq!(again, int(scene.token));
    assert_eq!(client.run("LOCK.RELEASE lock OWNER job"), int(1));
    assert_eq!(client.run("LOCK.RELEASE deep"), int(1));
    client.run("LOCK.ACQUIRE deep REENTRANT");
    let mut other = server.resp3();
    assert_eq!(other.run("LOCK.ACQUIRE semaphore PERMITS 3 OF 5"), null());
    assert_eq!(other.run("SETTP temporary w"), int(0));
    let lease = field(&other.run("LOCK.INFO lease"), "holders").items();
    assert!(field(&lease[0], "lease-ms").number() > 80_000_000);
    assert_refused_nothing(server);
    client
}

/// The field has another name in builds before 0.2.0.
fn assert_refused_nothing(server: &Server) {
    let info = server.info("tether");
    let refused: Vec<_> = info
        .lines()
        .filter(|line| line.starts_with("tether_records_refused"))
        .collect();
    assert_eq!(refused.len(), 1, "{info}");
    assert!(refused[0].ends_with(":0"), "{refused:?}");
}

fn fail_over(master: &Server, replica: &Server) {
    master.fail_over_to(replica);
    master.follow(replica);
    replica.await_replicas(1);
}

#[test]
#[ignore = "needs another build of the module: make upgrade"]
fn masters_and_replicas_of_two_versions_take_over_from_each_other() {
    for [one, other] in pairs() {
        let lines = [AOF[0], AOF[1]];
        let master = Server::with_module(&one, &lines);
        let replica = Server::with_module(&other, &lines);
        replica.follow(&master);
        master.await_replicas(1);
        let mut scene = set_up(&master);
        let (mut plain, mut waiter) = (master.resp3(), master.resp3());
        plain.run_all(&["SETTP plain v", "SET stranger v"]);
        // The replica hears of a raised token, too.
        let later = plain.run("LOCK.ACQUIRE plainlock");
        let raised = plain.run(["LOCK.RAISE", "plain", &later.number().to_string()]);
        assert_eq!(raised, later);
        // Who waits is served, and the replica is told.
        queue(&master, &mut waiter, "LOCK.ACQUIRE freed WAIT 0");
        scene.client.run("LOCK.RELEASE freed");
        assert!(waiter.read_reply().number() > scene.token);
        let acked = scene
            .client
            .run("LOCK.ACQUIRE acked ACKS 1 ACKTIMEOUT 20000");
        assert!(acked.number() > scene.token);
        queue(&master, &mut waiter, "LOCK.ACQUIRE lock WAIT 0");

        fail_over(&master, &replica);
        let told = waiter.read_reply();
        let is_sent_away =
            matches!(told, Frame::Error(ref text) if text.starts_with(b"UNBLOCKED "));
        assert!(is_sent_away, "{told:?}");
        let mut client = assert_taken_over(&replica, &scene, 6);
        let mut newcomer = replica.resp3();
        for request in [
            "LOCK.ACQUIRE plainlock",
            "LOCK.ACQUIRE freed",
            "SETTP plain w TOKEN",
        ] {
            assert!(newcomer.run(request).number() > acked.number(), "{request}");
        }
        let mut waiter = replica.resp3();
        queue(&replica, &mut waiter, "LOCK.ACQUIRE acked WAIT 0");
        client.run("LOCK.RELEASE acked");
        assert!(waiter.read_reply().number() > acked.number());
        let late = client.run("LOCK.ACQUIRE late ACKS 1 ACKTIMEOUT 20000");
        let ended = with_ended_session(&replica);

        fail_over(&replica, &master);
        let mut client = assert_taken_over(&master, &scene, 6);
        assert_eq!(client.run("LOCK.CANCEL late"), late);
        let gone = master.resp3().refused(["SESSION.RESUME", &ended]);
        assert!(gone.starts_with("NOSESSION"), "{gone}");
        client.run("SESSION.END");
        drop((plain, newcomer, waiter));
        for server in [&master, &replica] {
            eventually_equal("keys", array([bulk("stranger")]), || {
                server.resp2().run("KEYS stranger")
            });
            assert_refused_nothing(server);
        }
    }
}

/// The secret of a session that holds nothing any more.
fn with_ended_session(server: &Server) -> String {
    let mut client = server.resp3();
    let secret = client.run(A_DAY).text();
    client.run_all(&["SETTP ended v", "SESSION.END"]);
    secret
}

#[test]
#[ignore = "needs another build of the module: make upgrade"]
fn each_version_reads_the_files_of_the_other() {
    for [one, other] in pairs() {
        for lines in [
            &[][..],
            &AOF[..],
            &[AOF[0], AOF[1], "aof-use-rdb-preamble no"],
        ] {
            let mut server = Server::with_module(&one, lines);
            let scene = set_up(&server);
            let (mut plain, mut looker) = (server.resp3(), server.resp3());
            plain.run_all(&["LOCK.ACQUIRE plainlock", "SETTP plain v"]);
            match lines {
                [] => looker.run("SAVE"),
                _ => looker.run("BGREWRITEAOF"),
            };
            eventually("the file", || {
                let info = server.info("persistence");
                let names = ["rewrite_in_progress:0", "rewrite_scheduled:0"];
                let mut names = names.iter().map(|name| format!("aof_{name}\r\n"));
                names
                    .all(|name| info.contains(&name))
                    .then_some(())
                    .ok_or(info)
            });
            // There, and back.
            for module in [&other, &one] {
                server.restart_with_module(module);
                let client = assert_taken_over(&server, &scene, 6);
                let mut newcomer = server.resp3();
                let token = newcomer.run("LOCK.ACQUIRE plainlock").number();
                assert!(token > scene.token, "{lines:?}");
                assert_eq!(newcomer.run("SETTP plain w"), int(1), "{lines:?}");
                drop((client, newcomer));
                if lines.is_empty() {
                    server.resp2().run("SAVE");
                }
            }
        }
    }
}
