//! What outlives a server: sessions in RDB files, in the append-only file, on replicas.

use crate::harness::*;
use crate::line::*;
use crate::*;
use std::time::{Duration, Instant};

/// Has a session hold something of each kind, partly together with plain connections; says its secret and its tokens.
struct Scene {
    secret: String,
    token: i64,
    /// They live until the scene is over.
    _lines: [Client; 3],
}

const KEPT: [&str; 8] = [
    "temporary",
    "lock",
    "deep",
    "readers",
    "semaphore",
    "given",
    "renamed",
    "turned",
];
const GONE: [&str; 5] = ["plain", "plainlock", "taken", "freed", "ended"];

fn set_up(server: &Server) -> Scene {
    let (mut client, secret) = with_session(server, A_DAY);
    let (mut plain, mut ended) = (server.resp3(), server.resp3());
    plain.run_all(&[
        "SETTP plain v",
        "LOCK.ACQUIRE plainlock",
        "LOCK.ACQUIRE readers SHARED",
        "LOCK.ACQUIRE freed SHARED",
    ]);
    plain.run_all(&[
        "LOCK.ACQUIRE semaphore PERMITS 1 OF 5 OWNER me",
        "LOCK.ACQUIRE given",
    ]);
    client.run_all(&[
        "SETTP temporary v TASK t",
        "LOCK.ACQUIRE readers SHARED OWNER one",
        "LOCK.ACQUIRE readers SHARED OWNER two",
    ]);
    let token = client.run("LOCK.ACQUIRE lock REENTRANT TASK t").number();
    client.run_all(&[
        "LOCK.ACQUIRE deep REENTRANT",
        "LOCK.ACQUIRE deep REENTRANT",
        "LOCK.ACQUIRE deep SHARED REENTRANT",
        "LOCK.ACQUIRE deep OWNER no",
    ]);
    client.run_all(&[
        "LOCK.ACQUIRE semaphore PERMITS 3 OF 5",
        "LOCK.ACQUIRE freed SHARED",
        "LOCK.RELEASE freed",
    ]);
    client.run_all(&[
        "LOCK.ACQUIRE lease LEASE 60000",
        "SETTP old v",
        "RENAME old renamed",
    ]);
    // From hand to hand, in both directions.
    queue_push(&mut client, "LOCK.ACQUIRE given WAIT 0 PUSH");
    plain.run("LOCK.RELEASE given");
    assert!(client.next_push().starts_with("lock given "));
    client.run("LOCK.ACQUIRE taken");
    queue_push(&mut plain, "SETTP taken plain WAIT 0 PUSH");
    client.run("LOCK.RELEASE taken");
    assert!(plain.next_push().starts_with("settp taken "));
    plain.run("LOCK.ACQUIRE turned");
    queue_push(&mut client, "SETTP turned v WAIT 0 PUSH");
    plain.run("LOCK.RELEASE turned");
    assert!(client.next_push().starts_with("settp turned "));
    client.run_all(&[
        "LOCK.ACQUIRE released",
        "LOCK.RELEASE released",
        "SETTP lost v",
        "DEL lost",
    ]);
    start(&mut ended, A_DAY);
    ended.run_all(&["SETTP ended v", "SESSION.END", "SETTP ended v"]);
    Scene {
        secret,
        token,
        _lines: [client, plain, ended],
    }
}

/// What the session has on a server that took over.
fn assert_taken_over(server: &Server, scene: &Scene) {
    let mut other = server.resp3();
    assert_eq!(sessions(server), [0, 1]);
    for key in KEPT {
        assert!(
            of_any_holder(server, key, "session").contains(&bulk("detached")),
            "{key}"
        );
        let reply = match key {
            "temporary" | "renamed" | "turned" => other.call(["SETTP", key, "w"]),
            _ => other.call(["LOCK.ACQUIRE", key]),
        };
        assert!(
            [int(0), null()].contains(&reply),
            "{key} was taken away: {reply:?}"
        );
    }
    for key in GONE {
        assert!(
            other.call(["LOCK.ACQUIRE", key]).number() > scene.token,
            "{key}"
        );
        other.run(["LOCK.RELEASE", key]);
    }
    assert_eq!(holders(server, "readers"), [0, 0]);
    assert_eq!(other.call("EXISTS released lost old"), int(0));
    let mut again = server.resp3();
    assert_eq!(
        again.call(["SESSION.RESUME", &scene.secret]),
        int(KEPT.len() as i64 + 2)
    );
    assert_tasks(&mut again, &mut other);
    let token = int(scene.token);
    assert_eq!(again.call("LOCK.CANCEL lock"), token);
    assert_eq!(again.call("LOCK.ACQUIRE lock"), null());
    assert_eq!(again.call("LOCK.ACQUIRE lock REENTRANT"), token);
    // What was taken without it is taken once.
    assert_eq!(again.call("LOCK.ACQUIRE lease REENTRANT"), null());
    assert_eq!(again.call("LOCK.RELEASE deep"), int(2));
    assert_eq!(again.call("LOCK.RELEASE deep"), int(1));
    assert!(other.call("LOCK.ACQUIRE deep SHARED").number() > scene.token);
    let lease = of_holder(server, "lease", "lease-ms").number();
    assert!((1..=60_000).contains(&lease), "{lease}");
    assert_eq!(other.call("LOCK.ACQUIRE semaphore PERMITS 3 OF 5"), null());
    assert_eq!(again.call("LOCK.RELEASE semaphore"), int(0));
    assert_eq!(again.call("DELTP temporary renamed turned"), int(3));
    for owner in ["one", "two"] {
        assert_eq!(
            again.call(["LOCK.RELEASE", "readers", "OWNER", owner]),
            int(0)
        );
    }
    assert!(again.call("LOCK.ACQUIRE fresh").number() > scene.token);
    again.run("SESSION.END");
    drop(other);
    eventually_nothing_is_left(server);
    assert_eq!(server.resp2().call("KEYS *"), array([]));
}

/// What one task of the session holds waits for what a new request of that task waits for.
fn assert_tasks(again: &mut Client, other: &mut Client) {
    other.run("LOCK.ACQUIRE pen");
    queue_push(again, "LOCK.ACQUIRE pen OWNER o TASK t WAIT 0 PUSH");
    for request in [
        "LOCK.ACQUIRE lock WAIT 0 PUSH",
        "SETTP temporary w WAIT 0 PUSH",
    ] {
        let refused = other.refused(request);
        assert!(refused.starts_with("DEADLOCK "), "{request}: {refused}");
    }
    queue_push(other, "SETTP renamed w WAIT 0 PUSH");
    other.run("DELTP renamed");
    again.run("LOCK.CANCEL pen OWNER o");
    other.run("LOCK.RELEASE pen");
}

fn of_any_holder(server: &Server, key: &str, name: &str) -> Vec<Frame> {
    let info = server.resp3().run(["LOCK.INFO", key]);
    let holders = field(&info, "holders").items();
    holders.iter().map(|holder| field(holder, name)).collect()
}

#[test]
fn an_rdb_file_has_sessions() {
    let mut server = Server::start();
    let scene = set_up(&server);
    server.resp2().run("SAVE");
    server.crash_and_restart();
    assert_taken_over(&server, &scene);
}

const AOF: [&str; 2] = ["appendonly yes", "appendfsync always"];

#[test]
fn the_append_only_file_has_sessions() {
    let mut server = Server::with(&AOF);
    let scene = set_up(&server);
    server.crash_and_restart();
    assert_taken_over(&server, &scene);
}

#[test]
fn a_rewritten_append_only_file_has_sessions() {
    for preamble in ["yes", "no"] {
        let line = format!("aof-use-rdb-preamble {preamble}");
        let mut server = Server::with(&[AOF[0], AOF[1], &line]);
        let scene = set_up(&server);
        server.resp2().run("BGREWRITEAOF");
        eventually("the rewriting", || {
            let info = server.info("persistence");
            let done = ["in_progress", "scheduled"]
                .iter()
                .all(|word| info.contains(&format!("aof_rewrite_{word}:0")));
            if done { Ok(()) } else { Err(info) }
        });
        server.crash_and_restart();
        assert_taken_over(&server, &scene);
    }
}

#[test]
fn what_was_told_twice_comes_back_once() {
    let mut server = Server::with(&AOF);
    let scene = set_up(&server);
    server.crash_and_restart();
    assert_eq!(sessions(&server), [0, 1]);
    server.crash_and_restart();
    assert_taken_over(&server, &scene);
    server.crash_and_restart();
    assert_eq!(sessions(&server), [0, 0]);
    assert_eq!(server.resp2().call("KEYS *"), array([]));
}

#[test]
fn a_promoted_replica_has_sessions_from_the_stream() {
    let master = Server::start();
    let replica = Server::replica_of(&master, &[]);
    let scene = set_up(&master);
    replica.catch_up(&master);
    promote(&replica);
    assert_taken_over(&replica, &scene);
}

#[test]
fn a_promoted_replica_has_sessions_from_a_full_resynchronisation() {
    let master = Server::start();
    let scene = set_up(&master);
    let replica = Server::replica_of(&master, &[]);
    replica.catch_up(&master);
    promote(&replica);
    assert_taken_over(&replica, &scene);
}

#[test]
fn a_replica_of_a_replica_and_a_replicas_restart() {
    let master = Server::start();
    let mut first = Server::replica_of(&master, &AOF);
    let second = Server::replica_of(&first, &[]);
    let scene = set_up(&master);
    first.catch_up(&master);
    second.catch_up(&first);
    promote(&second);
    assert_taken_over(&second, &scene);
    drop(master);
    first.crash_and_restart();
    assert_taken_over(&first, &scene);
}

/// Its new master tells it nothing anew.
#[test]
fn a_replica_that_follows_another_replica_from_now_on_has_sessions() {
    let master = Server::start();
    let [first, second] = [(); 2].map(|()| Server::replica_of(&master, &[]));
    let scene = set_up(&master);
    first.catch_up(&master);
    second.catch_up(&master);
    drop(master);
    promote(&first);
    second.follow(&first);
    assert_eq!(first.gauge("stats", "sync_partial_ok"), 1);
    promote(&second);
    assert_taken_over(&second, &scene);
}

#[test]
fn a_demoted_server_learns_all_anew() {
    let (old, new) = (Server::start(), Server::start());
    let (mut lost, secret) = with_session(&old, A_DAY);
    lost.run_all(&["SETTP a v NOTIFY", "LOCK.ACQUIRE b NOTIFY"]);
    let scene = set_up(&new);
    old.follow(&new);
    let mut told = server_pushes(&old, &mut lost);
    told.sort();
    assert_eq!(told, ["lock b LOST demoted", "settp a LOST demoted"]);
    assert!(lost.refused("SESSION.END").starts_with("READONLY"));
    assert!(
        lost.refused(["SESSION.RESUME", &scene.secret])
            .starts_with("READONLY")
    );
    assert_eq!(sessions(&old), [0, 1]);
    promote(&old);
    assert!(
        lost.refused(["SESSION.RESUME", &secret])
            .starts_with("NOSESSION")
    );
    assert_taken_over(&old, &scene);
}

fn server_pushes(server: &Server, client: &mut Client) -> Vec<String> {
    server.settle();
    client.pushes()
}

#[test]
fn a_replica_ends_nothing_and_follows_the_end() {
    let master = Server::start();
    let replica = Server::replica_of(&master, &[]);
    let (mut client, _) = with_session(&master, 300);
    client.run_all(&[
        "SETTP a v",
        "LOCK.ACQUIRE b LEASE 60000",
        "SETTP c v",
        "MOVE c 2",
    ]);
    replica.catch_up(&master);
    assert_eq!(sessions(&replica), [0, 1]);
    assert_eq!(replica.resp2().call("EXISTS a b"), int(2));
    assert_eq!(holders_in(&replica, 2, "c"), [0]);
    quit(&master, client);
    eventually("the end of the session", || {
        replica.catch_up(&master);
        match sessions(&replica) {
            [0, 0] => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    eventually_nothing_is_left(&master);
    replica.catch_up(&master);
    eventually_nothing_is_left(&replica);
    assert_eq!(replica.resp2().call("KEYS *"), array([]));
}

#[test]
fn keys_that_go_by_other_names_take_their_sessions_along_on_a_replica() {
    let master = Server::start();
    let replica = Server::replica_of(&master, &[]);
    let (mut client, secret) = with_session(&master, A_DAY);
    client.run_all(&[
        "SETTP a v",
        "LOCK.ACQUIRE b",
        "SETTP c v",
        "LOCK.ACQUIRE d",
        "SETTP e v",
    ]);
    let mut other = master.resp2();
    other.run_all(&[
        "RENAME a a2",
        "MOVE b 1",
        "SET x v",
        "RENAME x c",
        "SWAPDB 0 3",
        "SELECT 3",
        "COPY e f",
    ]);
    other.run_all(&["SELECT 1", "FLUSHDB", "SELECT 3", "SET d overwritten"]);
    replica.catch_up(&master);
    promote(&replica);
    let mut again = replica.resp3();
    assert_eq!(again.call(["SESSION.RESUME", &secret]), int(2));
    again.run("SELECT 3");
    assert_eq!(again.call("DELTP a2 e c f"), int(2));
    let mut left: Vec<_> = again
        .call("KEYS *")
        .items()
        .iter()
        .map(Frame::text)
        .collect();
    left.sort();
    assert_eq!(left, ["c", "d", "f"]);
}

#[test]
fn the_grace_is_counted_from_the_promotion_and_from_the_start() {
    in_time(|ms| {
        let mut master = Server::with(&AOF);
        let replica = Server::replica_of(&master, &[]);
        let (mut client, secret) = with_session(&master, ms);
        client.run("SETTP a v");
        replica.catch_up(&master);
        let longer = format!("BLPOP nothing {}", ms as f64 / 1000.0 + 0.1);
        assert_eq!(client.call(&longer), null());
        let resume = format!("SESSION.RESUME {secret}");
        let mut client = replica.resp3();
        client.pipeline(&["REPLICAOF NO ONE", &resume]);
        assert_eq!(client.read_replies(2), [ok(), int(1)]);
        drop(client);
        let begin = Instant::now();
        master.crash_and_restart();
        let resumed = master.resp3().call(&resume);
        if begin.elapsed() >= Duration::from_millis(ms) {
            return None;
        }
        assert_eq!(resumed, int(1));
        for server in [&master, &replica] {
            eventually_nothing_is_left(server);
            assert_eq!(server.resp2().call("EXISTS a"), int(0));
        }
        Some(())
    });
}

#[test]
fn a_replica_that_reloads_its_own_data_knows_the_same() {
    let master = Server::start();
    let replica = Server::replica_of(&master, &[]);
    let scene = set_up(&master);
    replica.catch_up(&master);
    replica.resp2().run("DEBUG RELOAD");
    promote(&replica);
    assert_taken_over(&replica, &scene);
}

#[test]
fn only_a_master_and_files_may_tell() {
    let server = Server::start();
    let mut client = server.resp2();
    for command in [
        "TETHER.SESSION END 1",
        "TETHER.HOLD k 1 x exclusive 1 0 5 -",
        "TETHER.FREE k 1 x",
        "TETHER.TOKEN 5",
        "TETHER.BOUND k",
        "TETHER.RENEW k 5",
        "TETHER.SETTP k 5 v",
        "TETHER.LOCK k 5 exclusive",
    ] {
        let error = client.refused(command);
        let expected = server.refusal_of_internal_commands();
        assert!(error.contains(expected), "{command}: {error}");
    }
}

pub fn promote(replica: &Server) {
    replica.resp2().run("REPLICAOF NO ONE");
    replica.settle();
}
