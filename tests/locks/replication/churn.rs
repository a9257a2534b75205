//! Random histories: connections that take, wait, release, remove each other's keys and die. TETHER_SEED takes another
//! seed than the usual one.

use super::{AOF, assert_nothing_comes_back, assert_same, keyspace};
use crate::harness::*;
use crate::line::*;

const CLIENTS: usize = 12;
const STEPS: usize = 1500;

struct Dice(u64);

impl Dice {
    fn below(&mut self, count: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % count
    }

    fn one_of<'a>(&mut self, words: &[&'a str]) -> &'a str {
        words[self.below(words.len() as u64) as usize]
    }

    fn key(&mut self) -> &'static str {
        self.one_of(&["a", "b", "c", "d", "e"])
    }

    /// A command for any connection. None blocks.
    fn command(&mut self) -> String {
        let (key, other) = (self.key(), self.key());
        let wait = self.one_of(&["", "WAIT 0 PUSH", "WAIT 15 PUSH"]);
        let lease = self.one_of(&["", "", "LEASE 10", "LEASE 1000"]);
        let mode = self.one_of(&["", "SHARED", "PERMITS 1 OF 2", "OWNER label"]);
        let label = self.one_of(&["", "OWNER label"]);
        match self.below(20) {
            0..5 => format!("SETTP {key} {} {wait}", self.below(1000)),
            5..9 => format!("LOCK.ACQUIRE {key} {mode} {lease} {wait}"),
            9 if key != other => format!("LOCK.MACQUIRE 2 {key} {other} {lease} {wait}"),
            9 | 10 => format!("LOCK.RELEASE {key} ALL {label}"),
            11 => format!("LOCK.RELEASE {key}"),
            12 | 13 => format!("DELTP {key} {other}"),
            14 => format!("{} {key}", self.one_of(&["DEL", "UNLINK", "PERSIST"])),
            15 => format!("SET {key} stranger"),
            16 => format!("RENAME {key} {other}"),
            17 => format!("PEXPIRE {key} {}", self.below(20)),
            18 => self
                .one_of(&["SWAPDB 0 1", "SELECT 0", "SELECT 1"])
                .to_owned(),
            _ => match self.below(6) {
                0 => "FLUSHDB".to_owned(),
                1 => format!("MOVE {key} 1"),
                2 => format!("COPY {key} {other} REPLACE"),
                _ => format!("LOCK.EXTEND {key} 5 {label}"),
            },
        }
    }
}

fn seed() -> u64 {
    let wished = std::env::var("TETHER_SEED").ok();
    wished.map_or(0x7e74_e44e, |seed| {
        seed.parse().expect("TETHER_SEED is a number")
    })
}

/// A random history; `look` is called from time to time. In the end some keys and holds stay, for whose owners it
/// gives the connections back.
fn churn(server: &Server, seed: u64, look: impl Fn(&str)) -> Vec<Client> {
    let mut dice = Dice(seed);
    let mut clients: Vec<_> = (0..CLIENTS).map(|_| server.resp3()).collect();
    for step in 1..=STEPS {
        let at = dice.below(CLIENTS as u64) as usize;
        match dice.below(40) {
            0 => clients[at] = server.resp3(),
            1 => {
                let dying = std::mem::replace(&mut clients[at], server.resp3());
                dying.reset();
            }
            _ => {
                let command = dice.command();
                clients[at].call(&command);
            }
        }
        if step % 300 == 0 {
            look(&format!("at step {step} of seed {seed}"));
        }
    }
    clients.truncate(4);
    let mut other = server.resp2();
    other.run("FLUSHALL");
    for (n, client) in clients.iter_mut().enumerate() {
        client.run("SELECT 2");
        client.run(["SETTP", &format!("temporary:{n}"), "v"]);
        client.run(["LOCK.ACQUIRE", &format!("lock:{n}")]);
    }
    let expected = 2 * clients.len() as i64;
    eventually("the end of the others", || {
        for db in ["0", "1"] {
            other.run(["SELECT", db]);
            other.run("FLUSHDB");
        }
        // Of one moment: what ends between two looks may let a waiter in.
        let gauges = ["tether_holds", "tether_temporary_keys", "tether_waiters"];
        let [holds, keys, waiters] = server.gauges("tether", gauges);
        let seen = holds + keys;
        if seen == expected && waiters == 0 {
            Ok(())
        } else {
            clients.iter_mut().for_each(give_up_all);
            Err(format!("{seen} held of {expected}"))
        }
    });
    clients
}

/// Leaves every line of the first two databases.
fn give_up_all(client: &mut Client) {
    for db in ["0", "1"] {
        client.run(["SELECT", db]);
        client.run("DELTP a b c d e");
    }
    client.run("SELECT 2");
}

#[test]
fn a_replica_has_the_same_keys_through_a_random_history() {
    let seed = seed();
    let master = Server::start().over_tcp();
    let replica = Server::replica_of(&master, &[]);
    let kept = churn(&master, seed, |when| assert_same(&master, &replica, when));
    assert_same(&master, &replica, &format!("in the end of seed {seed}"));
    let keys = keyspace(&master);
    assert_eq!(keys.len(), 8, "{keys:?}");
    drop(kept);
    eventually_nothing_is_left(&master);
    assert_same(&master, &replica, "when all have gone");
    assert_eq!(keyspace(&replica), []);
}

#[test]
fn nothing_comes_back_from_the_append_only_file_after_a_random_history() {
    let seed = seed();
    say(&format!(
        "a random history in the append-only file: seed {seed}"
    ));
    let mut server = Server::with(&AOF).over_tcp();
    let kept = churn(&server, seed, |_| {});
    assert_nothing_comes_back(&mut server);
    drop(kept);
}
