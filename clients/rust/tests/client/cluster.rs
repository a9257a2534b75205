//! Clusters on real servers: a connection for each master, which the client finds by itself.

use crate::*;
use futures_util::StreamExt;
use tether_client::{KeyChange, MemberChange};
use tether_testing::harness::{eventually, free_port};

const SLOTS: usize = 16_384;

/// Masters that share the slots evenly.
struct Nodes(Vec<Server>);

impl Nodes {
    fn start(count: usize) -> Nodes {
        let nodes: Vec<_> = (0..count).map(|_| node()).collect();
        for (at, node) in nodes.iter().enumerate() {
            let (first, last) = (SLOTS * at / count, SLOTS * (at + 1) / count - 1);
            let bus = nodes[0].resp2().run("CONFIG GET cluster-port").items()[1].text();
            node.resp2().run_all(&[
                &format!("CLUSTER SET-CONFIG-EPOCH {}", at + 1),
                &format!("CLUSTER ADDSLOTSRANGE {first} {last}"),
                &format!("CLUSTER MEET 127.0.0.1 {} {bus}", nodes[0].port()),
            ]);
        }
        let nodes = Nodes(nodes);
        nodes.agree();
        nodes
    }

    /// Until each knows all, and that all slots are served.
    fn agree(&self) {
        for node in &self.0 {
            let mut client = node.resp2();
            eventually("the cluster is up", || {
                let known = client.run("CLUSTER NODES").text().lines().count();
                let info = client.run("CLUSTER INFO").text();
                match known == self.0.len() && info.contains("cluster_state:ok") {
                    true => Ok(()),
                    false => Err(info),
                }
            });
        }
    }

    /// A name that one of these nodes has, with a hash tag.
    fn name(&self, node: usize) -> String {
        let mut client = self.0[0].resp2();
        let count = self.0.len();
        let names = (0..).map(|number| format!("{{{number}}}"));
        let mut names = names.map(|name| {
            let slot = client.run(&format!("CLUSTER KEYSLOT {name}")).number();
            (name, usize::try_from(slot).unwrap() * count / SLOTS)
        });
        names.find(|(_, at)| *at == node).unwrap().0
    }

    fn id(&self, node: usize) -> String {
        self.0[node].resp2().run("CLUSTER MYID").text()
    }

    /// Begins to move a slot from the first node to the second.
    fn open_slot(&self, slot: i64) {
        let set = |node: usize, state: &str, id: String| {
            let command = format!("CLUSTER SETSLOT {slot} {state} {id}");
            self.0[node].resp2().run(&command);
        };
        set(1, "IMPORTING", self.id(0));
        set(0, "MIGRATING", self.id(1));
    }

    /// The second node has it.
    fn take_slot(&self, slot: i64) {
        let id = self.id(1);
        for node in [1, 0] {
            let command = format!("CLUSTER SETSLOT {slot} NODE {id}");
            self.0[node].resp2().run(&command);
        }
    }
}

fn node() -> Server {
    let bus = format!("cluster-port {}", free_port());
    Server::with(&[
        "cluster-enabled yes",
        "cluster-require-full-coverage no",
        "cluster-node-timeout 60000",
        &bus,
    ])
}

/// Connections with a name of this client.
fn connections(server: &Server) -> usize {
    let list = server.resp2().run("CLIENT LIST").text();
    list.matches(" name=tether:").count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_master_has_one_connection_for_all_that_is_there() {
    let nodes = Nodes::start(3);
    let locks = connect(&nodes.0[0]).await;
    for (at, node) in nodes.0.iter().enumerate() {
        let name = nodes.name(at);
        let guard = soon(locks.lock(&name).acquire()).await.unwrap();
        assert_eq!(holds(node), 1);
        assert_eq!(soon(guard.release()).await, Ok(()));
        let key = format!("{name}key");
        let mut watch = locks.watch([&key]);
        assert_eq!(soon(watch.next()).await.unwrap().change, KeyChange::Missing);
        let mut members = locks.presence(&key);
        let kept = soon(locks.temporary_key(&key, "x").acquire())
            .await
            .unwrap();
        assert_eq!(soon(watch.next()).await.unwrap().change, KeyChange::Added);
        let added = soon(members.next()).await.unwrap().change;
        assert!(matches!(added, MemberChange::Added(_)), "{added:?}");
        drop(kept);
        let mut leaders = locks.observe(format!("{name}lead"));
        assert_eq!(soon(leaders.next()).await, Ok(None));
        let mut election = locks.elect(format!("{name}lead"), "here");
        let term = soon(election.term()).await.unwrap();
        let leader = soon(leaders.next()).await.unwrap();
        assert_eq!(leader.unwrap().token, term.token());
        assert_eq!(soon(term.resign()).await, Ok(()));
    }
    for node in &nodes.0 {
        assert_eq!(connections(node), 1);
    }
    eventually_equal("unanswered requests", true, || locks.is_idle());
    soon(locks.close()).await;
    for node in &nodes.0 {
        eventually_equal("connections", 0, || connections(node));
    }
    let name = nodes.name(2);
    let closed = soon(locks.lock(name).acquire()).await;
    assert_eq!(closed.err(), Some(Error::Closed));
}

/// Before the first connection nobody knows that it is a cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_of_several_slots_is_refused_before_it_is_sent() {
    let nodes = Nodes::start(2);
    for is_connected in [false, true] {
        let locks = Locks::builder(&url(&nodes.0[0])).build().unwrap();
        if is_connected {
            soon(locks.open()).await.unwrap();
        }
        let both = locks.all([nodes.name(0), nodes.name(1)]);
        assert_eq!(soon(both.acquire()).await.err(), Some(Error::CrossSlot));
        let several = locks.temporary_key("member:", "x").sequence().acquire();
        assert_eq!(soon(several).await.err(), Some(Error::CrossSlot));
        let mut watch = locks.watch(["a", "b"]);
        assert_eq!(soon(watch.next()).await, Err(Error::CrossSlot));
        let mut members = locks.presence("member:");
        assert_eq!(
            soon(StreamExt::next(&mut members)).await,
            Some(Err(Error::CrossSlot))
        );
        assert_eq!(soon(StreamExt::next(&mut members)).await, None);
        let of_one_slot = locks.all(["{a}b", "{a}c"]).acquire();
        assert!(soon(of_one_slot).await.is_ok());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_loses_what_is_held_and_takes_along_who_waits() {
    let nodes = Nodes::start(2);
    let [from, to] = [&nodes.0[0], &nodes.0[1]];
    let name = nodes.name(0);
    let slot = from
        .resp2()
        .run(&format!("CLUSTER KEYSLOT {name}"))
        .number();
    let locks = connect(from).await;
    let held = soon(locks.lock(&name).acquire()).await.unwrap();
    let mut election = locks.elect(format!("{name}lead"), "here");
    let term = soon(election.term()).await.unwrap();
    let waits = tokio::spawn(locks.lock(&name).acquire());
    eventually_equal("waiters", 1, || waiters(from));
    // On its way, what is not there is at the new node.
    nodes.open_slot(slot);
    let asked = locks.lock(format!("{name}new")).acquire();
    let asked = soon(asked).await.unwrap();
    assert_eq!(holds(to), 1);
    assert_eq!(soon(asked.release()).await, Ok(()));
    assert_eq!(holds(to), 0);
    assert_eq!(held.check(), Ok(()));
    for key in [name.clone(), format!("{name}lead")] {
        from.resp2()
            .run(&format!("MIGRATE 127.0.0.1 {} {key} 0 5000", to.port()));
    }
    nodes.take_slot(slot);
    assert_eq!(soon(held.lost()).await.reason(), "moved");
    assert_eq!(soon(term.lost()).await.reason(), "moved");
    let next = soon(waits).await.unwrap().unwrap();
    assert_eq!(next.check(), Ok(()));
    assert!(holds(to) >= 1);
    // What the old node left there has nobody, until it ends by itself.
    to.resp2().run(&format!("DEL {name}lead"));
    let term = soon(election.term()).await.unwrap();
    assert_eq!(term.check(), Ok(()));
}
