//! The time to live that temporary keys have in a cluster, on a cluster of one server.

use crate::harness::*;
use crate::line::{holders, queue, queue_push, tether};
use crate::nodes::Cluster;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

pub const BACKSTOP_MS: i64 = 2400;
pub const SHORT: &str = "tether.cluster-backstop 2400";

/// However late it is, a key has a sixth of its time left: a server that turns as often keeps all keys.
const STANDSTILL: Duration = Duration::from_millis(BACKSTOP_MS as u64 / 6);

/// What lapses stays away, so it is seen after a pause as well, and others have the processor meanwhile.
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);

fn one(lines: &[&str]) -> Cluster {
    Cluster::of_masters(1, lines)
}

fn left_ms(client: &mut Client, key: &str) -> i64 {
    client.run(["PTTL", key]).number()
}

/// An error is for how long a server did not answer before a key lapsed.
pub type Watched = Result<(), Duration>;

/// A key may lapse while its server stands still, and a busy machine can make it do so for seconds: that proves nothing, and
/// the test begins anew. A server that stands still again and again does it by itself.
pub fn unless_it_stands_still(test: impl Fn() -> Watched) {
    let mut standstills = Vec::new();
    while let Err(standstill) = test() {
        standstills.push(standstill);
        say(&format!("stood still: {standstills:?}"));
        assert!(standstills.len() < 5, "{standstills:?}");
    }
}

/// Looks at a key again and again for so many backstops: it must be there, and have an end. The owner's server renews it.
pub fn watch_it_live(
    client: &mut Client,
    owner: &mut Client,
    key: &str,
    backstops: u32,
) -> Watched {
    let period = Duration::from_millis(BACKSTOP_MS as u64);
    let begin = Instant::now();
    let mut answered = begin;
    let mut standstill = None;
    while begin.elapsed() < period * backstops {
        sleep(BETWEEN_LOOKS);
        owner.run("PING");
        let left = left_ms(client, key);
        let wait = answered.elapsed();
        answered += wait;
        if wait >= STANDSTILL {
            standstill = Some((answered, wait));
        }
        match standstill {
            Some((at, wait)) if matches!(left, -2 | 0) && at.elapsed() < period => {
                return Err(wait);
            }
            _ => assert!(
                (1..=BACKSTOP_MS).contains(&left),
                "{key} has {left} ms left"
            ),
        }
    }
    Ok(())
}

#[test]
fn a_temporary_key_has_an_end_that_is_deferred_while_its_owner_lives() {
    unless_it_stands_still(|| {
        let cluster = one(&[SHORT, "appendonly yes"]);
        let server = &cluster.servers[0];
        let (mut owner, mut other) = (server.resp3(), server.resp2());
        owner.run("SETTP k v NOTIFY");
        assert_eq!(
            owner.call("LOCK.ACQUIRE lock NOTIFY"),
            other_than_null(&mut owner, "lock")
        );
        watch_it_live(&mut other, &mut owner, "k", 2)?;
        assert_eq!(left_ms(&mut other, "lock"), -1);
        assert_eq!(owner.pushes(), [""; 0]);
        // Handed over, it has one too, though its former owner made it end much later.
        queue(server, &mut other, "SETTP k other WAIT 0");
        owner.run("PEXPIRE k 100000");
        owner.run("DELTP k");
        assert_eq!(other.read_reply(), int(1));
        watch_it_live(&mut owner, &mut other, "k", 2)?;
        drop(other);
        eventually_gone(&mut owner, "k");
        let log = server.append_only_text();
        let renewals = log.matches("TETHER.RENEW").count();
        // Both grants, and at most thrice in each of some five backstops.
        assert!((6..=24).contains(&renewals), "{renewals} renewals:\n{log}");
        Ok(())
    });
}

/// The token that a lock's holder got.
fn other_than_null(client: &mut Client, lock: &str) -> Frame {
    let info = client.run(["LOCK.INFO", lock]);
    let holders = crate::line::field(&info, "holders").items();
    crate::line::field(&holders[0], "token")
}

#[test]
fn outside_of_a_cluster_it_has_none() {
    let server = Server::with(&[SHORT]);
    let mut owner = server.resp2();
    owner.run("SETTP k v");
    assert_eq!(left_ms(&mut owner, "k"), -1);
}

#[test]
fn what_users_say_about_a_key_s_time_goes_before() {
    let cluster = one(&[]);
    let server = &cluster.servers[0];
    let (mut owner, mut other) = (server.resp3(), server.resp2());
    owner.run_all(&[
        "SETTP short v NOTIFY",
        "PEXPIRE short 700",
        "SETTP long v NOTIFY",
        "EXPIRE long 500",
    ]);
    assert_eq!(owner.next_push(), "settp short LOST expired");
    assert!(left_ms(&mut other, "long") > 490_000);
    // PERSIST, and SET, which says that the key has no end: then it has ours again.
    for command in ["PERSIST long", "SET long w", "GETEX long PERSIST"] {
        other.run("EXPIRE long 500");
        assert!(left_ms(&mut other, "long") > 490_000);
        other.run(command);
        eventually(command, || match left_ms(&mut owner, "long") {
            1..=60_000 => Ok(()),
            left => Err(left.to_string()),
        });
    }
    for command in ["SET long x KEEPTTL", "APPEND long y"] {
        other.run("EXPIRE long 500");
        other.run(command);
        server.settle();
        assert!(left_ms(&mut other, "long") > 490_000, "{command}");
    }
    // Overwriting its value over and over takes nothing away.
    for _ in 0..300 {
        owner.run("SET long z");
    }
    eventually("the end", || match left_ms(&mut other, "long") {
        1..=60_000 => Ok(()),
        left => Err(left.to_string()),
    });
    assert_eq!(owner.pushes(), [""; 0]);
}

/// A session with a key to which somebody gave 50 of the backstop's 60 seconds, a key that had such a time and lost it, and
/// one that never had.
pub fn session_with_times(server: &Server, name: impl Fn(&str) -> String) -> String {
    let mut owner = server.resp2();
    let secret = owner.run("SESSION.START GRACE 600000").text();
    for key in ["short", "persisted", "overwritten", "ours"] {
        owner.run(["SETTP", &name(key), "v"]);
    }
    for key in ["short", "persisted", "overwritten"] {
        owner.run(["EXPIRE", &name(key), "50"]);
    }
    owner.run(["PERSIST", &name("persisted")]);
    owner.run(["SET", &name("overwritten"), "w"]);
    server.settle();
    secret
}

/// After the server was replaced, all that is as it was: the keys with a backstop were renewed, and so end later.
pub fn assert_times(server: &Server, name: impl Fn(&str) -> String, secret: &str) {
    let mut owner = server.resp2();
    eventually_within(Duration::from_secs(30), "times to live", || {
        let keys = ["short", "persisted", "overwritten", "ours"];
        let left = keys.map(|key| owner.call(["PTTL", &name(key)]));
        let [Frame::Integer(short), backstops @ ..] = &left else {
            return Err(format!("{left:?}"));
        };
        let later = |left: &Frame| matches!(left, Frame::Integer(left) if *left > short + 5000);
        match *short > 0 && backstops.iter().all(later) {
            true => Ok(()),
            false => Err(format!("{left:?}")),
        }
    });
    assert_eq!(owner.run(["SESSION.RESUME", secret]), int(4));
}

#[test]
fn a_restart_forgets_neither_what_users_said_nor_the_backstop() {
    let file = |lines: &[&str], rewrite: Option<&str>| {
        let mut cluster = one(lines);
        let secret = session_with_times(&cluster.servers[0], str::to_owned);
        if let Some(rewrite) = rewrite {
            cluster.servers[0].resp2().run(rewrite);
            eventually(rewrite, || {
                let info = cluster.servers[0].info("persistence");
                let marks = ["aof_rewrite_in_progress:0", "aof_rewrite_scheduled:0"];
                let over = marks.iter().all(|mark| info.contains(mark));
                if over { Ok(()) } else { Err(info) }
            });
        }
        cluster.servers[0].restart_as_it_was();
        assert_times(&cluster.servers[0], str::to_owned, &secret);
    };
    let append_only = ["appendonly yes", "appendfsync always"];
    thread::scope(|scope| {
        scope.spawn(|| file(&append_only, None));
        scope.spawn(|| file(&append_only, Some("BGREWRITEAOF")));
        let in_words = [&append_only[..], &["aof-use-rdb-preamble no"]].concat();
        scope.spawn(move || file(&in_words, Some("BGREWRITEAOF")));
        scope.spawn(|| file(&[], Some("SAVE")));
    });
}

#[test]
fn while_the_server_must_not_write_no_key_lapses() {
    unless_it_stands_still(|| {
        let cluster = one(&[SHORT]);
        let server = &cluster.servers[0];
        let (mut owner, mut other) = (server.resp3(), server.resp2());
        owner.run("SETTP k v NOTIFY");
        owner.run(&format!("CLIENT PAUSE {} WRITE", 2 * BACKSTOP_MS));
        watch_it_live(&mut other, &mut owner, "k", 3)?;
        owner.run("DELTP k");
        assert_eq!(owner.pushes(), [""; 0]);
        Ok(())
    });
}

/// A master that lacks replicas refuses to write, but its owners are still there.
#[test]
fn while_replicas_are_too_few_no_key_lapses() {
    unless_it_stands_still(|| {
        let cluster = one(&[SHORT]);
        let server = &cluster.servers[0];
        let (mut owner, mut other) = (server.resp3(), server.resp2());
        owner.run("SETTP k v NOTIFY");
        other.run("CONFIG SET min-replicas-to-write 1");
        watch_it_live(&mut other, &mut owner, "k", 2)?;
        let refusal = other.refused("SETTP k w");
        assert!(refusal.starts_with("NOREPLICAS"), "{refusal}");
        assert_eq!(tether(server, "temporary_keys"), 1);
        other.run("CONFIG SET min-replicas-to-write 0");
        assert_eq!(other.call("SETTP k w"), int(0));
        assert_eq!(owner.call("DELTP k"), int(1));
        assert_eq!(owner.pushes(), [""; 0]);
        Ok(())
    });
}

#[test]
fn an_owner_hears_when_the_server_stood_still_for_too_long() {
    let cluster = one(&["tether.cluster-backstop 1000"]);
    let server = &cluster.servers[0];
    let (mut owner, mut waiter) = (server.resp3(), server.resp3());
    let mut other = server.resp2();
    owner.run("SETTP k v NOTIFY");
    queue(server, &mut waiter, "SETTP k w WAIT 0");
    other.run("DEBUG SLEEP 1.6");
    assert_eq!(owner.next_push(), "settp k LOST expired");
    assert_eq!(waiter.read_reply(), int(1));
    assert_eq!(other.call("GET k"), bulk("w"));
    assert_eq!(owner.pushes(), [""; 0]);
    assert_eq!(waiter.pushes(), [""; 0]);
}

/// The end of a session's grace, and a look at its key, which has lapsed, are due at once.
#[test]
fn a_key_of_a_session_that_lapsed_while_its_grace_ended_is_handed_over() {
    let cluster = one(&[]);
    let server = &cluster.servers[0];
    let (mut owner, mut waiter) = (server.resp2(), server.resp3());
    let mut other = server.resp2();
    other.run("DEBUG SET-ACTIVE-EXPIRE 0");
    owner.run("SESSION.START GRACE 300");
    owner.run("SETTP k v NOTIFY");
    queue_push(&mut waiter, "SETTP k next WAIT 0 PUSH");
    other.run("PEXPIRE k 1");
    drop(owner);
    let attached = || tether(server, "sessions_attached");
    eventually_equal("the end of the connection", 0, attached);
    // A changed setting has all keys looked at.
    other.pipeline(&[
        "DEBUG SLEEP 0.4",
        "CONFIG SET tether.cluster-backstop 50000",
    ]);
    assert_eq!(other.read_replies(2), [ok(), ok()]);
    let granted = waiter.next_push();
    assert!(granted.starts_with("settp k "), "{granted}");
    server.settle();
    assert_eq!(waiter.pushes(), [""; 0], "after {granted}");
    assert_eq!(holders(server, "k"), [waiter.id()]);
    assert!(left_ms(&mut other, "k") > 0);
    drop(waiter);
    eventually_gone(&mut other, "k");
}

#[test]
fn the_setting_holds_for_keys_that_there_are() {
    let cluster = one(&[]);
    let mut owner = cluster.servers[0].resp3();
    owner.run("SETTP k v NOTIFY");
    let settled = |owner: &mut Client, what: &str, range: std::ops::RangeInclusive<i64>| {
        eventually(what, || match left_ms(owner, "k") {
            left if range.contains(&left) => Ok(()),
            left => Err(left.to_string()),
        });
    };
    owner.run("CONFIG SET tether.cluster-backstop 0");
    settled(&mut owner, "no end", -1..=-1);
    owner.run("CONFIG SET tether.cluster-backstop 60000");
    settled(&mut owner, "a late end", 50_000..=60_000);
    // A time that is too short to be kept counts as a second.
    owner.pipeline(&[
        "CONFIG SET tether.cluster-backstop 1",
        "SETTP other v NOTIFY",
        "PTTL other",
        "CONFIG SET tether.cluster-backstop 60000",
    ]);
    let replies = owner.read_replies(4);
    assert!((1..=1000).contains(&replies[2].number()), "{replies:?}");
    let limit = "ERR CONFIG SET failed (possibly related to argument 'tether.cluster-backstop')";
    let message = owner.refused("CONFIG SET tether.cluster-backstop 86400001");
    assert!(message.starts_with(limit), "{message}");
    assert_eq!(owner.pushes(), [""; 0]);
}

/// Redis 7.0 and Valkey end themselves if anything is propagated while they are paused.
#[test]
fn while_the_server_is_paused_keys_lose_their_end_and_replicas_are_told_later() {
    let cluster = one(&["tether.cluster-backstop 2000", "appendonly yes"]);
    let server = &cluster.servers[0];
    let (mut owner, mut other) = (server.resp3(), server.resp2());
    owner.run_all(&["SESSION.START", "SETTP k v"]);
    other.run("CLIENT PAUSE 600000 WRITE");
    other.run("CONFIG SET tether.cluster-backstop 0");
    eventually("an end that is far away", || {
        match left_ms(&mut other, "k") {
            left if left > 3_600_000 => Ok(()),
            left => Err(left.to_string()),
        }
    });
    other.run("CLIENT UNPAUSE");
    eventually_equal("no end", -1, || left_ms(&mut other, "k"));
    // What is in the append-only file is what replicas are told.
    other.run("DEBUG LOADAOF");
    assert_eq!(left_ms(&mut other, "k"), -1);
    assert_eq!(server.settled(&mut owner), [""; 0]);
    assert_eq!(owner.call("DELTP k"), int(1));
}

#[test]
fn a_server_with_a_master_renews_nothing_and_is_told_the_renewals() {
    unless_it_stands_still(|| {
        let cluster = Cluster::with_replicas(&[SHORT]);
        // The key lapses later than a master that stands still would be taken for dead.
        cluster.take_nobody_for_dead();
        let master = &cluster.servers[0];
        let replica = &cluster.servers[3];
        let key = crate::nodes::name_in(1);
        let mut owner = master.resp3();
        owner.run(["SETTP", &key, "v"]);
        let mut reader = replica.resp2();
        reader.run("READONLY");
        replica.catch_up(master);
        watch_it_live(&mut reader, &mut owner, &key, 2)?;
        // Without its master's word a replica lets a key be: it only hides what has lapsed.
        Server::signal(master.pid(), libc::SIGSTOP);
        replica.settle();
        let before = replica.gauge("replication", "master_repl_offset");
        eventually("the end of its time", || match left_ms(&mut reader, &key) {
            left if left < 0 => Ok(()),
            left => Err(left.to_string()),
        });
        assert_eq!(reader.call(["WATCHEX", &key]), bulk("EXIST"));
        assert_eq!(replica.gauge("replication", "master_repl_offset"), before);
        Server::signal(master.pid(), libc::SIGCONT);
        sleep(Duration::from_millis(1));
        assert_eq!(tether(replica, "lost_total"), 0);
        Ok(())
    });
}
