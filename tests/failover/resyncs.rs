//! Full resynchronisations at random moments, while keys are bound, watched and waited for; replicas of replicas;
//! promotion and demotion; a coordinated FAILOVER. What tests/server/watchex/replicas.rs and tests/locks/replication.rs
//! show is not shown again here.

use crate::harness::*;
use crate::line::*;
use crate::random::{self, Random};
use crate::sentinel::LONG;
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

const NAMES: usize = 8;

fn name(dice: &mut Random) -> String {
    format!("k:{}", dice.below(NAMES))
}

/// Some changes on the master, of bound keys and plain ones.
fn churn(dice: &mut Random, clients: &mut [Client], steps: usize) {
    for _ in 0..steps {
        let at = dice.below(clients.len());
        let (key, other) = (name(dice), name(dice));
        let request = match dice.below(10) {
            0..3 => format!("SETTP {key} v"),
            3 | 4 => format!("LOCK.ACQUIRE {key} SHARED"),
            5 => format!("DELTP {key} {other}"),
            6 => format!("LOCK.RELEASE {key} ALL"),
            7 => format!("DEL {key}"),
            8 => format!("SET {key} plain"),
            _ => format!("RENAME {key} {other}"),
        };
        clients[at].call(&request);
    }
}

fn exists(client: &mut Client) -> Vec<bool> {
    let mut there = |n| client.run(["EXISTS", &format!("k:{n}")]) == int(1);
    (0..NAMES).map(&mut there).collect()
}

/// Cuts the replica's link at a moment at which its master has gone on so far that only a whole copy can help.
fn resync(dice: &mut Random, master: &Server, replica: &Server, clients: &mut [Client]) {
    let before = master.gauge("stats", "sync_full");
    replica.resp2().run("REPLICAOF NO ONE");
    churn(dice, clients, 30);
    // The master's backlog is small, and another's data are no help: nothing partial is possible.
    replica.follow(master);
    assert!(master.gauge("stats", "sync_full") > before);
}

/// A replica that was cut off, not promoted: its link is closed again and again while much is written.
fn cut(dice: &mut Random, master: &Server, replica: &Server, clients: &mut [Client]) {
    let before = master.gauge("stats", "sync_full");
    let filler = "x".repeat(40_000);
    let mut other = master.resp2();
    eventually_within(Duration::from_secs(30), "a full resynchronisation", || {
        master.resp2().run("CLIENT KILL TYPE replica");
        other.run(["SET", "filler", &filler]);
        churn(dice, clients, 3);
        let after = master.gauge("stats", "sync_full");
        if after > before {
            Ok(())
        } else {
            Err(format!("{after} of them, as before"))
        }
    });
    replica.follow(master);
}

/// What was pushed for each key since the last look is the difference and nothing else: the first push is the opposite
/// of what was, they alternate, the last is what is.
fn assert_difference(pushes: &[String], before: &[bool], after: &[bool], what: &str) {
    let mut state: BTreeMap<String, bool> = BTreeMap::new();
    for (n, there) in before.iter().enumerate() {
        state.insert(format!("k:{n}"), *there);
    }
    for push in pushes {
        let words: Vec<_> = push.split(' ').collect();
        let ["watchex", key, event] = words[..] else {
            panic!("{what}: {push}")
        };
        let there = state.get_mut(key).expect("a watched key");
        assert_ne!(*there, event == "ADD", "{what}: {push} of {pushes:?}");
        *there = event == "ADD";
    }
    let told: Vec<_> = (0..NAMES).map(|n| state[&format!("k:{n}")]).collect();
    assert_eq!(told, after, "{what}: after {pushes:?}");
}

fn random_resyncs(seed: u64, rounds: usize) {
    say(&format!("resynchronisations: TETHER_SEED={seed}"));
    let mut dice = Random::new(seed);
    let master = Server::with(&["repl-backlog-size 16kb"]);
    let replica = Server::replica_of(&master, &[]);
    let below = Server::replica_of(&replica, &[]);
    let mut clients = [(); 4].map(|()| master.resp2());
    let mut waiter = master.resp3();
    let mut watchers = [replica.resp3(), below.resp3()];
    for watcher in &mut watchers {
        for n in 0..NAMES {
            watcher.run(["WATCHEX", &format!("k:{n}")]);
        }
    }
    let mut seen = [(); 2].map(|()| vec![false; NAMES]);
    for round in 0..rounds {
        churn(&mut dice, &mut clients, 20);
        let wait = format!("SETTP {} v WAIT 0 PUSH", name(&mut dice));
        waiter.call(&wait);
        let what = format!("TETHER_SEED={seed}, round {round}");
        match dice.per_mille(500) {
            true => cut(&mut dice, &master, &replica, &mut clients),
            false => resync(&mut dice, &master, &replica, &mut clients),
        }
        below.follow(&replica);
        for ((server, watcher), before) in [&replica, &below]
            .into_iter()
            .zip(&mut watchers)
            .zip(&mut seen)
        {
            server.catch_up(&master);
            let pushes = server.settled(watcher);
            let after = exists(watcher);
            assert_difference(&pushes, before, &after, &what);
            *before = after;
        }
        assert_eq!(exists(&mut clients[0]), seen[0], "{what}");
    }
    // The last of them knows still what is bound, though it has it at third hand.
    let plain: Vec<_> = plain_names(&master);
    below.resp2().run("REPLICAOF NO ONE");
    assert_only(&below, &plain);
    replica.resp2().run("REPLICAOF NO ONE");
    assert_only(&replica, &plain);
    drop((clients, waiter));
    eventually_nothing_is_left(&master);
    assert_only(&master, &plain);
}

/// The keys that nobody holds.
fn plain_names(server: &Server) -> Vec<String> {
    let mut client = server.resp3();
    let held = lock_list(&mut client, "");
    let is_held = |line: &&Frame| !field(line, "holders").items().is_empty();
    let held: Vec<_> = held
        .iter()
        .filter(is_held)
        .map(|line| field(line, "key"))
        .collect();
    let names = client.run("KEYS *").items();
    let mut plain: Vec<_> = names
        .iter()
        .filter(|name| !held.contains(name))
        .map(Frame::text)
        .collect();
    plain.sort();
    plain
}

fn assert_only(server: &Server, plain: &[String]) {
    eventually("the end of ghosts", || {
        let names = server.resp2().run("KEYS *").items();
        let mut names: Vec<_> = names.iter().map(Frame::text).collect();
        names.sort();
        match names == plain {
            true => Ok(()),
            false => Err(format!("{names:?}, and plain are {plain:?}")),
        }
    });
}

#[test]
fn resyncs_tell_the_difference_and_forget_no_binding() {
    random_resyncs(random::seed(), 6);
}

#[test]
#[ignore = "many resynchronisations; some minutes"]
fn resyncs_tell_the_difference_again_and_again() {
    for seed in (random::seed()..).take(random::steps(20)) {
        random_resyncs(seed, 20);
    }
}

#[test]
fn what_ends_while_replicas_are_too_few_goes_when_they_are_enough() {
    let lines = ["min-replicas-to-write 1", "min-replicas-max-lag 5"];
    let master = Server::with(&lines);
    let mut replica = Server::replica_of(&master, &[]);
    let is_refused = || master.resp2().call("DEL nothing") != int(0);
    let until = |refused: bool| {
        eventually_within(LONG, "enough replicas, or too few", || {
            match is_refused() == refused {
                true => Ok(()),
                false => Err(master.info("replication")),
            }
        });
    };
    until(false);
    let (mut holder, mut waiter) = (master.resp2(), master.resp2());
    holder.run_all(&["SETTP gone v", "SETTP given v"]);
    queue(&master, &mut waiter, "SETTP given w WAIT 0");
    replica.kill();
    until(true);
    quit(&master, holder);
    assert_eq!(master.resp2().run("EXISTS gone given"), int(2));
    assert_eq!(tether(&master, "waiters"), 1);
    replica.restart_as_it_was();
    replica.follow(&master);
    until(false);
    assert_eq!(waiter.read_reply(), int(1));
    eventually_gone(&mut master.resp2(), "gone");
    assert_eq!(master.resp2().run("GET given"), bulk("w"));
}

#[test]
fn nothing_is_handed_over_any_more_once_replicas_are_too_few() {
    let master = Server::start();
    let mut admin = master.resp2();
    // The first time they are enough, as the module knows from then on.
    for wanted in ["0", "1"] {
        let (mut holder, mut waiter) = (master.resp2(), master.resp2());
        holder.run("SETTP k v");
        queue(&master, &mut waiter, "SETTP k w WAIT 0");
        admin.run(["CONFIG", "SET", "min-replicas-to-write", wanted]);
        quit(&master, holder);
        if wanted == "1" {
            let refusal = admin.refused("SET other v");
            assert!(refusal.starts_with("NOREPLICAS"), "{refusal}");
            assert_eq!(admin.run("GET k"), bulk("v"));
            assert_eq!(tether(&master, "waiters"), 1);
            admin.run("CONFIG SET min-replicas-to-write 0");
        }
        assert_eq!(waiter.read_reply(), int(1));
        quit(&master, waiter);
    }
}

#[test]
fn a_lease_that_is_over_while_replicas_are_too_few_ends_when_they_are_enough() {
    let master = Server::start();
    let (mut holder, mut waiter) = (master.resp3(), master.resp2());
    let mut resumed = master.resp2();
    let first = holder.run("LOCK.ACQUIRE lock NOTIFY").number();
    queue(&master, &mut waiter, "LOCK.ACQUIRE lock WAIT 0");
    let secret = resumed.run("SESSION.START GRACE 600000").text();
    resumed.run("SETTP kept v NOTIFY");
    holder.run_all(&["MULTI", "CONFIG SET min-replicas-to-write 1"]);
    holder.run("LOCK.EXTEND lock 100");
    assert_eq!(holder.run("EXEC"), array([ok(), int(1)]));
    let refusal = holder.refused("LOCK.EXTEND lock 60000");
    assert!(refusal.starts_with("NOREPLICAS"), "{refusal}");
    eventually_equal("what is left of the lease", int(0), || {
        let info = master.resp2().run("LOCK.INFO lock");
        field(&field(&info, "holders").items()[0], "lease-ms")
    });
    // To go on with a session writes nothing.
    quit(&master, resumed);
    let mut resumed = master.resp2();
    assert_eq!(resumed.run(["SESSION.RESUME", &secret]), int(1));
    master.settle();
    assert_eq!(token_of(&master, "lock"), first);
    assert_eq!(holder.pushes(), [""; 0]);
    let _replica = Server::replica_of(&master, &[]);
    assert!(waiter.read_reply().number() > first);
    assert_eq!(holder.next_push(), "lock lock LOST lease");
    let refusal = holder.refused("LOCK.EXTEND lock 60000");
    assert!(refusal.starts_with("NOTHELD"), "{refusal}");
    assert_eq!(resumed.run("SESSION.END"), int(1));
}

/// Its copy of the data says nothing of tokens, since nothing is bound, and the clock says less: the master's epoch, or
/// that of a master long before it, was taken from one that was years ahead.
#[test]
fn a_replica_that_came_while_nothing_was_held_gives_greater_tokens() {
    const FAR: &str = "TETHER.TOKEN 4000000000000000";
    let mut master = Server::start();
    let file = master.folder().join("appendonly.aof");
    fs::write(file, encode(FAR)).expect("an append-only file");
    master.restart(&["appendonly yes"]);
    let mut client = master.resp2();
    let given = client.run("SETTP k v TOKEN").number();
    client.run("DELTP k");
    assert!(given > 4_000_000_000_000_000);
    let replicas = [(); 2].map(|()| Server::replica_of(&master, &[]));
    for replica in &replicas {
        eventually("what the replica knows", || {
            match tether(replica, "last_token") {
                known if known >= given => Ok(()),
                known => Err(known.to_string()),
            }
        });
    }
    replicas[0].resp2().run("REPLICAOF NO ONE");
    let next = replicas[0].resp2().run("SETTP k v TOKEN").number();
    assert!(next > given, "{next} after {given}");
}

#[test]
fn replicas_at_any_distance_remove_nothing_by_themselves() {
    let master = Server::start();
    let replica = Server::replica_of(&master, &[]);
    let below = Server::replica_of(&replica, &[]);
    let mut one = master.resp3();
    one.run_all(&["SETTP streamed v", "LOCK.ACQUIRE streamed-lock"]);
    let later = Server::replica_of(&replica, &[]);
    let all = [&replica, &below, &later];
    // The master ends and takes the connection with it: nobody is there to remove anything.
    let port = master.port();
    all.iter().for_each(|server| server.catch_up(&master));
    drop(master);
    for server in all {
        server.settle();
        assert_eq!(server.resp2().run("DBSIZE"), int(2));
        let refusal = server.resp2().refused("SETTP streamed v");
        assert!(refusal.starts_with("READONLY"), "{refusal}");
    }
    let info = replica.info("replication");
    assert!(info.contains(&format!("master_port:{port}\r\n")), "{info}");
    replica.resp2().run("REPLICAOF NO ONE");
    for server in all {
        eventually_equal("keys", int(0), || server.resp2().run("DBSIZE"));
    }
    drop(one);
}

/// What a flush ends is lost to the flush, although the server is a replica by the time its owners are told.
#[test]
fn a_flush_just_before_a_demotion_is_told_as_a_flush() {
    let (server, master) = (Server::start(), Server::start());
    let (mut holder, mut pushed) = (server.resp3(), server.resp3());
    holder.run_all(&["SETTP held v NOTIFY", "LOCK.ACQUIRE lock NOTIFY"]);
    queue_push(&mut pushed, "SETTP held w WAIT 0 PUSH");
    let mut other = server.resp2();
    let follow = format!("REPLICAOF 127.0.0.1 {}", master.port());
    for request in ["MULTI", "FLUSHALL", &follow] {
        other.run(request);
    }
    other.run("EXEC");
    let mut told = holder.next_pushes(2);
    told.sort();
    assert_eq!(told, ["lock lock LOST flushed", "settp held LOST flushed"]);
    assert_eq!(pushed.next_push(), "settp held FAILED UNBLOCKED");
    server.settle();
    assert_eq!(holder.pushes(), [""; 0]);
    let left = ["tether_temporary_keys", "tether_holds", "tether_waiters"];
    assert_eq!(server.gauges("tether", left), [0; 3]);
}

#[test]
fn a_coordinated_failover_answers_who_waits_and_forgets_no_removal() {
    let master = Server::start();
    let replica = Server::replica_of(&master, &[]);
    let (mut holder, mut leaver) = (master.resp3(), master.resp3());
    let (mut waiter, mut pushed) = (master.resp3(), master.resp3());
    holder.run_all(&["SETTP held v NOTIFY", "SET plain v"]);
    let last = holder.run("LOCK.ACQUIRE lock NOTIFY").number();
    leaver.run_all(&["SETTP left v NOTIFY", "LOCK.ACQUIRE left-lock NOTIFY"]);
    queue(&master, &mut waiter, "LOCK.ACQUIRE lock WAIT 0");
    queue_push(&mut pushed, "SETTP held w WAIT 0 PUSH");
    let mut other = master.resp2();
    // The pause of a failover, at first by itself: what ends now is removed later.
    other.run("CLIENT PAUSE 100000 WRITE");
    quit(&master, leaver);
    assert_eq!(other.run("EXISTS left left-lock"), int(2));
    other.run("CLIENT UNPAUSE");
    master.fail_over_to(&replica);
    // Valkey 9 tells its modules of the new role before it unblocks anyone, the others afterwards.
    let told = waiter.read_reply();
    assert!(
        matches!(told, Frame::Error(ref text) if text.starts_with(b"UNBLOCKED ")),
        "{told:?}"
    );
    let mut told = holder.next_pushes(2);
    told.sort();
    assert_eq!(told, ["lock lock LOST demoted", "settp held LOST demoted"]);
    assert_eq!(pushed.next_push(), "settp held FAILED UNBLOCKED");
    let mut newcomer = replica.resp2();
    assert!(newcomer.run("LOCK.ACQUIRE lock NOTIFY").number() > last);
    assert_eq!(newcomer.run("SETTP held w NOTIFY"), int(1));
    drop(newcomer);
    eventually_equal("keys", array([bulk("plain")]), || {
        replica.resp2().run("KEYS *")
    });
    master.follow(&replica);
    assert_eq!(master.resp2().run("KEYS *"), array([bulk("plain")]));
    drop(holder);
}

/// A stranger's key, and the free one of several: nothing is known of them but who waits.
#[test]
fn who_waits_for_keys_that_nobody_holds_is_turned_away_by_a_server_that_becomes_a_replica() {
    let (master, server) = (Server::start(), Server::start());
    let (mut holder, mut waiter) = (server.resp2(), server.resp3());
    holder.run_all(&["SET plain v", "LOCK.ACQUIRE held"]);
    queue_push(&mut waiter, "SETTP plain v WAIT 0 PUSH");
    queue_push(&mut waiter, "LOCK.MACQUIRE 2 free held WAIT 0 PUSH");
    server.follow(&master);
    let mut pushes = waiter.next_pushes(2);
    pushes.sort();
    let expected = ["lock free FAILED UNBLOCKED", "settp plain FAILED UNBLOCKED"];
    assert_eq!(pushes, expected);
    assert_eq!(server.resp2().run("WATCHEX plain"), bulk("NOEXIST"));
}

/// A master whose files nobody can read, as those of a later version; its port, and a word for each file that it sends, of a few.
fn master_from_the_future() -> (u16, Receiver<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let (sent, received) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming().take(3) {
            let mut stream = stream.expect("a replica");
            let lines = BufReader::new(stream.try_clone().expect("the same")).lines();
            for line in lines.map_while(Result::ok) {
                let line = line.to_ascii_uppercase();
                let reply = match &*line {
                    "PING" => "+PONG\r\n".to_owned(),
                    "REPLCONF" => "+OK\r\n".to_owned(),
                    "PSYNC" => {
                        let file = format!("REDIS9999{:64}", "");
                        let (id, length) = ("a".repeat(40), file.len());
                        format!("+FULLRESYNC {id} 0\r\n${length}\r\n{file}")
                    }
                    _ => continue,
                };
                let is_gone = stream.write_all(reply.as_bytes()).is_err();
                if line == "PSYNC" && !is_gone && sent.send(()).is_err() {
                    return;
                }
            }
        }
    });
    (port, received)
}

/// Valkey since 9.1 keeps its data then; other servers have emptied them.
#[test]
fn what_a_server_keeps_though_its_master_s_file_is_refused_is_still_held() {
    let server = Server::start();
    let (mut owner, mut plain, mut other) = (server.resp2(), server.resp2(), server.resp2());
    let secret = owner.run("SESSION.START GRACE 600000").text();
    owner.run_all(&["LOCK.ACQUIRE l", "SETTP s mine"]);
    plain.run("SETTP k mine");
    let (port, sent) = master_from_the_future();
    other.run(&format!("REPLICAOF 127.0.0.1 {port}"));
    for what in ["a file is sent", "another one, after the first is refused"] {
        sent.recv_timeout(patience()).expect(what);
    }
    other.run("REPLICAOF NO ONE");
    eventually_equal("what the connection held", int(0), || other.run("EXISTS k"));
    let mut again = server.resp2();
    let resumed = again.call(&format!("SESSION.RESUME {secret}"));
    match other.run("EXISTS l s").number() {
        0 => assert!(resumed.text().starts_with("NOSESSION"), "{resumed:?}"),
        _ => {
            assert_eq!(other.run("LOCK.ACQUIRE l"), null());
            assert_eq!(again.run("LOCK.RELEASE l"), int(0));
            assert_eq!(again.run("DELTP s"), int(1));
        }
    }
}
