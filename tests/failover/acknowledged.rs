//! Grants with ACKS outlive their server: masters that are killed in the moment of a grant, replicas that are promoted by hand or
//! by Sentinels, several groups at once. Without ACKS some grants are lost, and with fewer ACKS than replicas some can be.

use crate::harness::*;
use crate::random::{self, Random};
use crate::sentinel::{LONG, Sentinel};
use crate::sentinels::becomes_a_replica;
use crate::survival::{Outcome, Owner, look, owners, work_until_killed};
use std::thread;
use std::time::Duration;

const OWNERS: usize = 3;
const REPLICAS: usize = 2;
/// Sentinels whose attempt fails try again after twice their time for a failover, and wait for half a minute where their own time
/// has jumped.
const RETRIES: Duration = LONG.saturating_mul(3);

/// A master and its replicas, in this order, with a link for each replica.
struct Group {
    servers: Vec<Server>,
    links: Vec<Link>,
    owners: Vec<Owner>,
    dice: Random,
}

impl Group {
    fn new(acks: Option<usize>, seed: u64) -> Group {
        let servers = (0..=REPLICAS).map(|_| Server::start()).collect();
        let mut group = Group {
            servers,
            links: Vec::new(),
            owners: Vec::new(),
            dice: Random::new(seed),
        };
        group.connect();
        group.owners = owners(&group.servers[0], "", OWNERS, acks, seed);
        group
    }

    fn connect(&mut self) {
        let (master, replicas) = self.servers.split_first().expect("servers");
        let links = replicas.iter().map(|_| Link::to(master.port()));
        self.links = links.collect();
        for (replica, link) in replicas.iter().zip(&self.links) {
            replica.follow_through(link.port(), master);
        }
        master.await_replicas(REPLICAS);
    }

    fn fail_over(&mut self, outcome: &mut Outcome) {
        for link in &self.links {
            link.delay(self.dice.below(2500) as u64);
        }
        let (pid, links) = (self.servers[0].pid(), &self.links);
        let kill = || {
            Server::signal(pid, libc::SIGKILL);
            links.iter().for_each(Link::cut);
        };
        let requests = 20 + self.dice.below(100);
        work_until_killed(&mut self.owners, requests, &kill, outcome);
        let promoted = 1 + self.dice.below(REPLICAS);
        self.servers[promoted].resp2().run("REPLICAOF NO ONE");
        look(&mut self.owners, &self.servers[promoted], outcome);
        self.servers[0].restart_without_files();
        self.servers.swap(0, promoted);
        self.connect();
    }
}

/// Several groups at once, each with so many failovers.
fn at_once<G>(
    groups: usize,
    failovers: usize,
    make: impl Fn(u64) -> G + Sync,
    fail_over: impl Fn(&mut G, &mut Outcome) + Sync,
) -> Outcome {
    let first = random::seed();
    let mut outcome = Outcome::default();
    thread::scope(|scope| {
        let groups: Vec<_> = (0..groups)
            .map(|number| {
                let (make, fail_over) = (&make, &fail_over);
                scope.spawn(move || {
                    let mut group = make(first + number as u64);
                    let mut outcome = Outcome::default();
                    for _ in 0..failovers {
                        fail_over(&mut group, &mut outcome);
                    }
                    outcome
                })
            })
            .collect();
        for group in groups {
            outcome += group.join().expect("a group");
        }
    });
    outcome
}

fn by_hand(acks: Option<usize>, groups: usize, failovers: usize) -> Outcome {
    let outcome = at_once(
        groups,
        failovers,
        |seed| Group::new(acks, seed),
        Group::fail_over,
    );
    let with = acks.map_or("without ACKS".to_owned(), |acks| {
        format!("with ACKS {acks}")
    });
    say(&format!(
        "{with}, promoted by REPLICAOF NO ONE: {outcome:?}"
    ));
    outcome
}

/// Three Sentinels, a master and two replicas. Which is the master the Sentinels say.
struct Watched {
    sentinels: Vec<Sentinel>,
    /// The master first.
    servers: Vec<Server>,
    owners: Vec<Owner>,
    dice: Random,
}

impl Watched {
    /// So long may a server stand still that has to share the machine; and so long is one silent that is taken for dead.
    const STILL: u64 = 60_000;
    const DEAD: u64 = 700;

    fn new(seed: u64) -> Watched {
        let master = Server::start();
        let replicas = (0..REPLICAS).map(|_| Server::replica_of(&master, &[]));
        let replicas: Vec<_> = replicas.collect();
        let sentinels: Vec<_> = (0..3).map(|_| Sentinel::watching(&master)).collect();
        for sentinel in &sentinels {
            sentinel.take_for_dead_after(Watched::STILL);
            sentinel.wait_until_it_knows(2);
        }
        master.await_replicas(REPLICAS);
        Watched {
            owners: owners(&master, "", OWNERS, Some(REPLICAS), seed),
            sentinels,
            servers: [master].into_iter().chain(replicas).collect(),
            dice: Random::new(seed),
        }
    }

    fn fail_over(&mut self, outcome: &mut Outcome) {
        let pid = self.servers[0].pid();
        let kill = || Server::signal(pid, libc::SIGKILL);
        let requests = 20 + self.dice.below(100);
        work_until_killed(&mut self.owners, requests, &kill, outcome);
        let silence = |ms| {
            self.sentinels
                .iter()
                .for_each(|it| it.take_for_dead_after(ms))
        };
        silence(Watched::DEAD);
        let promoted = eventually_within(RETRIES, "the failover", || {
            let seen: Vec<_> = self.sentinels.iter().map(Sentinel::master_port).collect();
            let replicas = 1..=REPLICAS;
            let mut replicas = replicas.filter(|at| seen[0] == Some(self.servers[*at].port()));
            let one = replicas
                .next()
                .filter(|_| seen.iter().all(|port| *port == seen[0]));
            one.ok_or(format!("{seen:?}"))
        });
        silence(Watched::STILL);
        look(&mut self.owners, &self.servers[promoted], outcome);
        self.servers[0].restart_without_files();
        // The Sentinels would say so as well, after some seconds.
        let port = self.servers[promoted].port().to_string();
        self.servers[0]
            .resp2()
            .run(["REPLICAOF", "127.0.0.1", &port]);
        self.servers.swap(0, promoted);
        let (master, replicas) = self.servers.split_first().expect("servers");
        for replica in replicas {
            becomes_a_replica(replica, master);
        }
        master.await_replicas(REPLICAS);
        for sentinel in &self.sentinels {
            sentinel.wait_until_it_knows(2);
        }
    }
}

fn by_sentinels(groups: usize, failovers: usize) -> Outcome {
    let outcome = at_once(groups, failovers, Watched::new, Watched::fail_over);
    let what = format!("with ACKS {REPLICAS}, promoted by Sentinels");
    say(&format!("{what}: {outcome:?}"));
    outcome
}

#[test]
fn each_grant_that_all_replicas_acknowledged_outlives_its_master_under_sentinels() {
    let outcome = by_sentinels(1, 1);
    assert!(outcome.held > 0, "{outcome:?}");
}

#[test]
#[ignore = "700 failovers in four groups at once; some minutes"]
fn each_grant_that_all_replicas_acknowledged_outlives_hundreds_of_masters() {
    let outcome = by_hand(Some(REPLICAS), 4, random::steps(700) / 4);
    assert!(outcome.held > outcome.failovers, "{outcome:?}");
    // A kill comes after the answer now and then, and mostly before it.
    assert!(outcome.unanswered > outcome.failovers / 2, "{outcome:?}");
    assert!(outcome.pending > 0, "{outcome:?}");
}

#[test]
#[ignore = "150 failovers by Sentinels in four groups at once; some minutes"]
fn each_grant_that_all_replicas_acknowledged_outlives_many_masters_under_sentinels() {
    let outcome = by_sentinels(4, random::steps(150).div_ceil(4));
    assert!(outcome.held > outcome.failovers, "{outcome:?}");
    assert!(outcome.pending > 0, "{outcome:?}");
}

/// What the reference says of fewer acknowledgements than replicas.
#[test]
fn a_grant_of_one_acknowledgement_is_unknown_to_a_replica_that_did_not_acknowledge_it() {
    for knows_session in [false, true] {
        let mut master = Server::start();
        let mut acknowledging = Server::replica_of(&master, &[]);
        let (behind, link) = (Server::start(), Link::to(master.port()));
        behind.follow_through(link.port(), &master);
        master.await_replicas(2);
        let mut owner = master.resp3();
        // What is said of a session that holds nothing yet is the same stream: it is held back as well.
        if !knows_session {
            link.hold();
        }
        let secret = owner.run("SESSION.START GRACE 60000").text();
        if knows_session {
            owner.run("LOCK.ACQUIRE before ACKS 2");
            link.hold();
        }
        let refusal = owner.refused("LOCK.ACQUIRE k ACKS 2 ACKTIMEOUT 2000");
        assert_eq!(refusal, "NOACKS 1 of 2");
        let token = owner.run("LOCK.ACQUIRE k ACKS 1").number();
        assert!(token > 0);
        master.kill();
        acknowledging.kill();
        link.cut();
        behind.resp2().run("REPLICAOF NO ONE");
        let mut there = behind.resp3();
        let resumed = there.call(["SESSION.RESUME", &secret]);
        if knows_session {
            assert_eq!(resumed, int(1));
            assert_eq!(there.call("LOCK.CANCEL k"), int(0));
        } else {
            assert!(resumed.text().starts_with("NOSESSION"), "{resumed:?}");
        }
        // Another can have it, with a later token.
        let next = behind.resp3().run("LOCK.ACQUIRE k").number();
        assert!(next > token, "{next} after {token}");
    }
}

#[test]
fn each_grant_that_all_replicas_acknowledged_outlives_its_master() {
    let outcome = by_hand(Some(REPLICAS), 3, 3);
    assert!(outcome.held >= outcome.failovers, "{outcome:?}");
}

#[test]
fn grants_that_no_replica_acknowledged_are_lost_with_their_master() {
    // That a master dies in such a moment is likely, but not certain.
    const TRIES: usize = 10;
    let finds = (0..TRIES).any(|_| by_hand(None, 2, 3).missing > 0);
    assert!(finds, "the test finds nothing");
}
