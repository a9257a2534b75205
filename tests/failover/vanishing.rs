//! Keys that expire or are evicted: the replica and the append-only file lose the same keys as the master, whoever held them.
//!
//! The server removes such keys by itself, in the middle of its own work, and tells modules of each. What a module has it do
//! in there must not keep it from telling its replicas.

use crate::harness::*;
use crate::random::Random;

/// Plain keys that anybody may have, beside those that are held. (All are of one slot.)
const PLAIN: usize = 30;

/// Connections that hold, wait and watch; each stands for one way to be told of what happens.
struct Crowd {
    owners: Vec<Client>,
    waiter: Client,
    watcher: Client,
    keys: Vec<String>,
}

impl Crowd {
    fn of(server: &Server) -> Crowd {
        let mut owners: Vec<_> = (0..4).map(|_| server.resp3()).collect();
        owners[0].run("CLIENT SETNAME worker");
        owners[3].run("SESSION.START GRACE 600000");
        Crowd {
            owners,
            waiter: server.resp3(),
            watcher: server.resp3(),
            keys: Vec::new(),
        }
    }

    /// Each takes some keys that nobody has; some are waited for, and some watched.
    fn take(&mut self, random: &mut Random, round: usize, most: usize) {
        self.keys.clear();
        for (at, owner) in self.owners.iter_mut().enumerate() {
            for number in 0..1 + random.below(most) {
                let key = format!("{{t}}held:{round}:{at}:{number}");
                let ask = random.pick(&[
                    "LOCK.ACQUIRE # NOTIFY",
                    "LOCK.ACQUIRE #",
                    "LOCK.ACQUIRE # SHARED WAIT 0 OWNER job",
                    "SETTP # v NOTIFY",
                    "SETTP # v",
                ]);
                owner.run(ask.replace('#', &key).as_str());
                match random.below(4) {
                    0 => {
                        _ = self
                            .waiter
                            .call(["LOCK.ACQUIRE", &key, "WAIT", "0", "PUSH"])
                    }
                    1 => _ = self.watcher.run(["WATCHEX", &key]),
                    _ => {}
                }
                self.keys.push(key);
            }
        }
    }
}

/// The values of all plain keys. (A reader of a replica does not see a key whose time has come, but an INCR by its master does.)
fn plain(server: &Server) -> Vec<Frame> {
    let mut reader = server.resp2();
    let get = |number| reader.call(["GET", &format!("{{t}}plain:{number}")]);
    (0..PLAIN).map(get).collect()
}

/// Writes once more to each plain key, and compares.
fn is_the_same_everywhere(master: &Server, replica: &Server, what: &str) {
    let mut writer = master.resp2();
    for number in 0..PLAIN {
        writer.run(["INCR", &format!("{{t}}plain:{number}")]);
    }
    replica.catch_up(master);
    assert_eq!(plain(replica), plain(master), "{what}");
    eventually(what, || {
        replica.catch_up(master);
        let sizes = [master, replica].map(|server| server.resp2().run("DBSIZE"));
        match sizes[0] == sizes[1] {
            true => Ok(()),
            false => Err(format!("{sizes:?}")),
        }
    });
}

fn a_crash_changes_nothing(master: &mut Server, what: &str) {
    let before = plain(master);
    master.crash_and_restart();
    if master.info("cluster").contains("cluster_enabled:1") {
        await_cluster(master);
    }
    assert_eq!(plain(master), before, "{what}");
}

fn await_cluster(server: &Server) {
    eventually("the cluster", || {
        let info = server.resp2().run("CLUSTER INFO").text();
        match info.contains("cluster_state:ok") {
            true => Ok(()),
            false => Err(info),
        }
    });
}

/// Gives all held keys and all plain ones a time to live, most of them the same, and waits for the server to remove them.
fn let_all_expire(server: &Server, random: &mut Random, keys: &[String]) {
    let mut writer = server.resp2();
    let expired = server.gauge("stats", "expired_keys");
    writer.run("MULTI");
    let plain = (0..PLAIN).map(|number| format!("{{t}}plain:{number}"));
    for key in plain.clone() {
        writer.call(["SET", &key, "41"]);
    }
    let all: Vec<_> = plain.chain(keys.iter().cloned()).collect();
    for key in &all {
        // Counted from EXEC: a time that is over when it is set would delete the key, and not let it expire.
        let left = 150 + u64::from(random.per_mille(200));
        writer.call(["PEXPIRE", key, &left.to_string()]);
    }
    writer.run("EXEC");
    eventually_equal("expired", expired + all.len() as i64, || {
        server.gauge("stats", "expired_keys")
    });
}

#[test]
fn keys_that_expire_together_are_gone_from_replica_and_file() {
    let mut master = Server::with(&["appendonly yes", "appendfsync always"]);
    let replica = Server::replica_of(&master, &[]);
    for seed in 0..3 {
        let mut random = Random::new(seed);
        let mut crowd = Crowd::of(&master);
        for round in 0..4 {
            let what = format!("seed {seed}, round {round}");
            crowd.take(&mut random, round, 6);
            let_all_expire(&master, &mut random, &crowd.keys);
            is_the_same_everywhere(&master, &replica, &what);
        }
    }
    a_crash_changes_nothing(&mut master, "after all");
}

/// In a cluster whoever waits may have to be sent to another server when the key goes.
#[test]
fn keys_that_expire_in_a_cluster_are_gone_from_its_file() {
    let mut master = Server::with(&[
        "appendonly yes",
        "appendfsync always",
        "cluster-enabled yes",
    ]);
    master.resp2().run("CLUSTER ADDSLOTSRANGE 0 16383");
    await_cluster(&master);
    let mut random = Random::new(0);
    let mut crowd = Crowd::of(&master);
    for round in 0..4 {
        crowd.take(&mut random, round, 6);
        let_all_expire(&master, &mut random, &crowd.keys);
        let mut writer = master.resp2();
        for number in 0..PLAIN {
            writer.run(["INCR", &format!("{{t}}plain:{number}")]);
        }
    }
    a_crash_changes_nothing(&mut master, "in a cluster");
}

#[test]
fn keys_that_are_evicted_are_gone_from_replica_and_file() {
    let mut master = Server::with(&[
        "appendonly yes",
        "appendfsync always",
        "maxmemory-policy allkeys-random",
    ]);
    let replica = Server::replica_of(&master, &[]);
    for seed in 0..3 {
        let mut random = Random::new(seed);
        let mut crowd = Crowd::of(&master);
        crowd.take(&mut random, 0, 100);
        let mut writer = master.resp2();
        for number in 0..300 {
            writer.run(["SET", &format!("filling:{number}"), &"x".repeat(500)]);
        }
        for number in 0..PLAIN {
            writer.run(["SET", &format!("{{t}}plain:{number}"), "41"]);
        }
        let evicted = master.gauge("stats", "evicted_keys");
        for round in 1..=3 {
            eventually("evicted", || {
                let most = master.gauge("memory", "used_memory") - 20_000;
                writer.call(["CONFIG", "SET", "maxmemory", &most.to_string()]);
                writer.call("PING");
                match master.gauge("stats", "evicted_keys") - evicted {
                    count if count >= 20 * round => Ok(()),
                    count => Err(count.to_string()),
                }
            });
            writer.run("CONFIG SET maxmemory 0");
            is_the_same_everywhere(&master, &replica, &format!("seed {seed}, round {round}"));
        }
        writer.run("FLUSHALL");
    }
    a_crash_changes_nothing(&mut master, "after all");
}
