//! Masters that are replaced again and again while clients take keys, give them back, wait for them and hold them by
//! sessions: killed, asked to let go, or standing still for so long that they are taken for dead, and then going on.

use crate::failover::{promoted, take_over};
use crate::grants::{Grant, assert_rising};
use crate::harness::*;
use crate::line::{queue, queue_push, tether};
use crate::load::{Line, Owner, STUCK, Taker, Worker, patiently, work_while};
use crate::nodes::{Cluster, name_in};
use crate::random;
use std::collections::BTreeSet;
use std::time::Instant;

/// How a master is made to go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Killed,
    Asked,
    StoodStill,
}

/// A master and its replica, and the clients of their slots.
struct Shard {
    /// Which of the servers: the master first.
    servers: [usize; 2],
    takers: Vec<Taker>,
    owners: Vec<Owner>,
    /// All its keys are in one slot, in which these names begin.
    prefix: String,
    greatest: i64,
}

impl Shard {
    fn new(cluster: &Cluster, number: usize) -> Shard {
        let servers = [number, number + 3];
        let ports = servers.map(|at| cluster.servers[at].port());
        // The masters share the slots evenly.
        let prefix = format!("{{{}}}", name_in(number as u16 * 5461 + 100));
        let names = |who: &str| -> Vec<_> { (0..6).map(|n| format!("{prefix}{who}{n}")).collect() };
        let seed = random::seed() + 100 * number as u64;
        let takers = (0..4).map(|n| Taker::new(&ports, &names("t"), seed + n));
        let owners = (0..2).map(|n| Owner::new(&ports, &names(&format!("s{n}-")), seed + 50 + n));
        let plain = format!("{prefix}plain");
        cluster.servers[number].resp2().run(["SET", &plain, "v"]);
        Shard {
            servers,
            takers: takers.collect(),
            owners: owners.collect(),
            prefix,
            greatest: 0,
        }
    }

    fn workers(&mut self) -> Vec<&mut dyn Worker> {
        let takers = self.takers.iter_mut().map(|it| it as &mut dyn Worker);
        let owners = self.owners.iter_mut().map(|it| it as &mut dyn Worker);
        takers.chain(owners).collect()
    }

    /// Everything that is to be there when nobody is at work.
    fn keys(&self) -> BTreeSet<String> {
        let held = self.owners.iter().flat_map(Owner::held).cloned();
        held.chain([format!("{}plain", self.prefix)]).collect()
    }
}

/// Who does nothing but hold a key, or wait for it.
struct Bystanders {
    key: String,
    holder: Client,
    waiter: Client,
    pushed: Client,
}

impl Bystanders {
    fn new(master: &Server, key: String) -> Bystanders {
        let (mut holder, mut waiter) = (master.resp3(), master.resp2());
        let mut pushed = master.resp3();
        holder.run(["SETTP", &key, "v", "NOTIFY"]);
        queue(master, &mut waiter, &format!("SETTP {key} w WAIT 0"));
        queue_push(&mut pushed, &format!("SETTP {key} w WAIT 0 PUSH"));
        Bystanders {
            key,
            holder,
            waiter,
            pushed,
        }
    }

    /// Who waits does so no longer, and who held the key has heard that it lost it, if its server still is.
    fn assert_know(mut self, end: End) {
        if end == End::Killed {
            return [self.holder, self.waiter, self.pushed]
                .iter_mut()
                .for_each(Client::expect_closed);
        }
        // A server that stood still may read what its successor said as a replica after what it says as a master: then its
        // slots are nobody's until the next heartbeat, and the server itself answers everybody so.
        let told = ["UNBLOCKED", "MOVED", "TRYAGAIN", "CLUSTERDOWN"];
        if let Some(reply) = patiently(&mut self.waiter, "a wait without limit") {
            let is_told = |text: String| told.iter().any(|word| text.starts_with(word));
            assert!(is_told(reply.text()), "{reply:?}");
        }
        let lost = format!("settp {} LOST demoted", self.key);
        assert_eq!(self.holder.next_push_within(STUCK), lost);
        let failed = self.pushed.next_push_within(STUCK);
        let is_told = |word| failed.starts_with(&format!("settp {} FAILED {word}", self.key));
        assert!(told.into_iter().any(is_told), "{failed}");
    }
}

/// How often a server has been elected, as its log tells.
fn elections(server: &Server) -> usize {
    server.log().matches("Failover election won").count()
}

/// Has the shard's master replaced.
fn replace_master(cluster: &mut Cluster, [old, new]: [usize; 2], end: End) {
    match end {
        End::Killed => cluster.servers[old].kill(),
        End::Asked => return take_over(cluster, new),
        End::StoodStill => Server::signal(cluster.servers[old].pid(), libc::SIGSTOP),
    }
    promoted(&cluster.servers[new]);
}

fn fail_over(cluster: &mut Cluster, shard: &mut Shard, end: End) {
    let [old, new] = shard.servers;
    let ports = shard.servers.map(|at| cluster.servers[at].port());
    let before = shard.servers.map(|at| elections(&cluster.servers[at]));
    let key = format!("{}held", shard.prefix);
    let bystanders = Bystanders::new(&cluster.servers[old], key.clone());
    cluster.servers[new].catch_up(&cluster.servers[old]);
    let mut probe = Line::to(&[ports[1]]);
    work_while(shard.workers(), || {
        replace_master(cluster, [old, new], end);
        // Nobody is refused because of what the dead held: whoever is answered is granted the key.
        let begin = Instant::now();
        let token = loop {
            match probe.take(&format!("SETTP {key} probe TOKEN")) {
                Some(token) => break token,
                None => assert!(begin.elapsed() < STUCK, "the new master does not answer"),
            }
        };
        assert!(token > 0, "refused because of who is gone");
        match end {
            End::Killed => cluster.servers[old].restart_as_it_was(),
            End::Asked => {}
            End::StoodStill => Server::signal(cluster.servers[old].pid(), libc::SIGCONT),
        }
    });
    bystanders.assert_know(end);
    let mut grants: Vec<Grant> = probe.grants.drain(..).collect();
    for worker in shard.workers() {
        grants.append(&mut worker.line().grants);
    }
    let after = shard.servers.map(|at| elections(&cluster.servers[at]));
    assert_eq!(after, [before[0], before[1] + 1], "elections");
    shard.greatest = assert_rising(grants, &ports, shard.greatest);
    drop(probe);
    shard.servers.reverse();
    nothing_is_left(cluster, shard);
}

/// The new master has what sessions hold, the plain keys, and nothing else; the old one follows it and has the same.
fn nothing_is_left(cluster: &Cluster, shard: &Shard) {
    let [master, replica] = shard.servers.map(|at| &cluster.servers[at]);
    let expected = shard.keys();
    let there = |server: &Server| -> BTreeSet<String> {
        let keys = server.resp2().run("KEYS *").items();
        keys.iter().map(Frame::text).collect()
    };
    eventually_within(STUCK, "the end of what is nobody's", || {
        let names = there(master);
        let gauges = ["temporary_keys", "holds", "waiters"].map(|name| tether(master, name));
        let held = expected.len() as i64 - 1;
        match names == expected && gauges[0] + gauges[1] == held && gauges[2] == 0 {
            true => Ok(()),
            false => Err(format!("{names:?} and not {expected:?}; {gauges:?}")),
        }
    });
    eventually_within(STUCK, "the former master as a replica", || {
        let info = replica.info("replication");
        let follows = format!("master_port:{}\r\n", master.port());
        match info.contains(&follows) && info.contains("master_link_status:up") {
            true => Ok(()),
            false => Err(info),
        }
    });
    cluster.agree();
    replica.catch_up(master);
    assert_eq!(there(replica), expected);
}

/// So many failovers, of one shard after another.
fn matrix(count: usize) {
    let mut cluster = Cluster::with_replicas(&[]);
    let mut shards = [0, 1, 2].map(|number| Shard::new(&cluster, number));
    let ends = [End::Asked, End::StoodStill, End::Killed];
    for number in 0..count {
        let end = ends[number % ends.len()];
        let shard = &mut shards[number / ends.len() % 3];
        let begin = Instant::now();
        fail_over(&mut cluster, shard, end);
        say(&format!(
            "failover {number}, {end:?}: {} ms",
            begin.elapsed().as_millis()
        ));
    }
    for shard in &shards {
        let server = &cluster.servers[shard.servers[0]];
        assert_eq!(tether(server, "sessions_attached"), 2);
    }
    let resumed = shards.iter().flat_map(|shard| &shard.owners);
    let resumed: usize = resumed.map(Owner::resumed).sum();
    assert!(resumed >= 2 * count, "{resumed} times");
}

#[test]
fn masters_are_replaced_under_load() {
    matrix(2);
}

#[test]
#[ignore = "50 failovers; some minutes"]
fn masters_are_replaced_under_load_again_and_again() {
    matrix(random::steps(50));
}
