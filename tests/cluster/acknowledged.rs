//! Grants with ACKS outlive their master in a cluster: three shards at once, whose masters are killed in the moment of a grant and
//! replaced by one of their two replicas.

use crate::harness::*;
use crate::nodes::{AGREEMENT, Cluster, SLOTS, name_in};
use crate::random::{self, Random};
use crate::survival::{Outcome, Owner, look, owners, work_until_killed};
use std::thread;

const REPLICAS: usize = 2;
const SHARDS: u16 = 3;

struct Shard {
    /// The master first.
    servers: Vec<Server>,
    owners: Vec<Owner>,
    dice: Random,
}

/// Servers that nobody but the test replaces, and replicas that stay with their masters.
fn shards(seed: u64) -> (Cluster, Vec<Shard>) {
    let lines = ["cluster-migration-barrier 100"];
    let mut cluster = Cluster::with_replicas(&lines);
    for master in 0..usize::from(SHARDS) {
        cluster.add_replica(master, &lines);
    }
    cluster.take_nobody_for_dead();
    let mut servers: Vec<_> = cluster.servers.drain(..).map(Some).collect();
    let shard = |number: u16| {
        let at = usize::from(number);
        let own = [at, 3 + at, 6 + at].map(|at| servers[at].take().expect("each in one shard"));
        own[0].await_replicas(REPLICAS);
        let tag = format!("{{{}}}", name_in(SLOTS / SHARDS * number + 100));
        let seed = seed + u64::from(number);
        Shard {
            owners: owners(&own[0], &tag, 3, Some(REPLICAS), seed),
            servers: own.into(),
            dice: Random::new(seed),
        }
    };
    let shards = (0..SHARDS).map(shard).collect();
    (cluster, shards)
}

impl Shard {
    fn fail_over(&mut self, outcome: &mut Outcome) {
        let pid = self.servers[0].pid();
        let kill = || Server::signal(pid, libc::SIGKILL);
        let requests = 20 + self.dice.below(100);
        work_until_killed(&mut self.owners, requests, &kill, outcome);
        let promoted = 1 + self.dice.below(REPLICAS);
        // No election: the master is gone, and the others need not know it yet.
        let take_over = self.servers[promoted]
            .resp2()
            .call("CLUSTER FAILOVER TAKEOVER");
        assert_eq!(take_over, ok());
        eventually_within(AGREEMENT, "the promotion", || {
            let [role, state] = ["INFO replication", "CLUSTER INFO"];
            let mut client = self.servers[promoted].resp2();
            let (role, state) = (client.run(role).text(), client.run(state).text());
            match role.contains("role:master") && state.contains("cluster_state:ok") {
                true => Ok(()),
                false => Err(role + &state),
            }
        });
        look(&mut self.owners, &self.servers[promoted], outcome);
        self.servers[0].restart_without_files();
        self.servers.swap(0, promoted);
        let (master, replicas) = self.servers.split_first().expect("servers");
        let port = format!("master_port:{}\r\n", master.port());
        for replica in replicas {
            eventually_within(AGREEMENT, "a replica of the new master", || {
                let info = replica.info("replication");
                match info.contains(&port) && info.contains("master_link_status:up") {
                    true => Ok(()),
                    false => Err(info),
                }
            });
        }
        master.await_replicas(REPLICAS);
    }
}

fn fail_over(failovers: usize) -> Outcome {
    let (_cluster, shards) = shards(random::seed());
    let mut outcome = Outcome::default();
    thread::scope(|scope| {
        let shards: Vec<_> = shards
            .into_iter()
            .map(|mut shard| {
                scope.spawn(move || {
                    let mut outcome = Outcome::default();
                    (0..failovers).for_each(|_| shard.fail_over(&mut outcome));
                    // The servers of the other shards still need them.
                    (shard, outcome)
                })
            })
            .collect();
        let ended: Vec<_> = { shards.into_iter() }
            .map(|shard| shard.join().expect("a shard"))
            .collect();
        for (_, own) in &ended {
            outcome += *own;
        }
    });
    say(&format!(
        "with ACKS {REPLICAS}, promoted by CLUSTER FAILOVER TAKEOVER: {outcome:?}"
    ));
    assert!(outcome.held >= outcome.failovers, "{outcome:?}");
    outcome
}

#[test]
fn each_grant_that_all_replicas_acknowledged_outlives_its_master() {
    fail_over(2);
}

#[test]
#[ignore = "150 failovers in three shards at once; some minutes"]
fn each_grant_that_all_replicas_acknowledged_outlives_many_masters() {
    let outcome = fail_over(random::steps(150) / usize::from(SHARDS));
    assert!(outcome.pending > 0, "{outcome:?}");
}
