//! A cluster that belongs to one test.

use crate::harness::*;
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long the servers may take to agree on something. On a busy machine a replica can miss an election, and tries again
/// after eight seconds only.
pub const AGREEMENT: Duration = Duration::from_secs(60);

/// How long a server is silent until the others take it for dead.
const NODE_TIMEOUT: &str = "cluster-node-timeout 2000";

/// However long a replica has not heard of its master, it goes on trying to take its place.
const ALWAYS_VALID: &str = "cluster-replica-validity-factor 0";

pub const SLOTS: u16 = 16_384;

/// The servers in the order in which they were started: the masters, then one replica of each, if any.
pub struct Cluster {
    pub servers: Vec<Server>,
    _turn: Option<MutexGuard<'static, ()>>,
}

/// For clusters of six servers: one at a time, since they take each other for dead when they get no time to answer.
pub fn one_cluster_at_a_time() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has a server look for another. Once more does no harm.
fn meet(client: &mut Client, other: &Server) {
    let (port, bus) = (other.port(), bus_port(other));
    client.run(&format!("CLUSTER MEET 127.0.0.1 {port} {bus}"));
}

impl Cluster {
    /// Masters that share the slots evenly, in their order.
    pub fn of_masters(count: usize, lines: &[&str]) -> Cluster {
        let cluster = Cluster::unconnected(count, lines);
        let all = &cluster.servers;
        for (number, server) in all.iter().enumerate() {
            let mut client = server.resp2();
            let share = |number: usize| usize::from(SLOTS) * number / count;
            let slots = format!("{} {}", share(number), share(number + 1) - 1);
            client.run(&format!("CLUSTER SET-CONFIG-EPOCH {}", number + 1));
            client.run(&format!("CLUSTER ADDSLOTSRANGE {slots}"));
            meet(&mut client, &all[0]);
        }
        cluster.agree();
        // Nobody is to be replaced, however busy the machine; but to begin with, a short silence makes them agree sooner.
        cluster.take_nobody_for_dead();
        // One may have been taken for dead meanwhile.
        cluster.agree();
        cluster
    }

    /// From now on nobody is, for a minute of silence.
    pub fn take_nobody_for_dead(&self) {
        for server in &self.servers {
            let mut client = server.resp2();
            assert_eq!(client.run("CONFIG SET cluster-node-timeout 60000"), ok());
        }
    }

    /// Three masters with a replica each, as `redis-cli --cluster create` makes them.
    pub fn with_replicas(lines: &[&str]) -> Cluster {
        let turn = one_cluster_at_a_time();
        let mut cluster = Cluster::unconnected(6, lines);
        cluster._turn = Some(turn);
        let addresses: Vec<_> = cluster
            .servers
            .iter()
            .map(|server| format!("127.0.0.1:{}@{}", server.port(), bus_port(server)))
            .collect();
        let mut words = vec!["create"];
        words.extend(addresses.iter().map(String::as_str));
        words.extend(["--cluster-replicas", "1"]);
        redis_cli(&words);
        cluster.agree();
        // The masters first, and the replicas in the order of their masters.
        let ids: Vec<_> = (0..6).map(|number| cluster.id(number)).collect();
        let nodes = eventually_within(AGREEMENT, "three known replicas", || {
            let nodes = cluster.nodes(0);
            match nodes.matches(" slave ").count() {
                3 => Ok(nodes),
                _ => Err(nodes),
            }
        });
        let master = |id: &String| {
            let line = nodes.lines().find(|line| line.starts_with(id)).unwrap();
            let master = line.split(' ').nth(3).unwrap();
            ids.iter().position(|id| id == master)
        };
        let mut places: Vec<_> = (0..6).collect();
        places.sort_by_key(|number| match master(&ids[*number]) {
            None => *number,
            Some(master) => 6 + master,
        });
        let mut servers: Vec<_> = cluster.servers.drain(..).map(Some).collect();
        cluster.servers = { places.iter().map(|n| servers[*n].take().unwrap()) }.collect();
        for number in 0..3 {
            let (master, replica) = (&cluster.servers[number], &cluster.servers[3 + number]);
            wait_for_link(replica, master);
        }
        cluster
    }

    fn unconnected(count: usize, lines: &[&str]) -> Cluster {
        let servers = (0..count).map(|_| unconnected(lines, Server::with));
        let servers = servers.collect();
        let _turn = None;
        Cluster { servers, _turn }
    }

    /// Gives one of the masters a replica: its number, once it has all that its master has.
    pub fn add_replica(&mut self, of: usize, lines: &[&str]) -> usize {
        self.add(of, unconnected(lines, Server::with))
    }

    /// One that goes by this wall clock.
    #[cfg(target_os = "linux")]
    pub fn add_replica_by_clock(&mut self, of: usize, clock: &Clock) -> usize {
        let start = |lines: &[&str]| Server::by_clock(clock, lines);
        self.add(of, unconnected(&[], start))
    }

    fn add(&mut self, of: usize, added: Server) -> usize {
        let number = self.servers.len();
        let master = self.id(of);
        let mut client = added.resp2();
        meet(&mut client, &self.servers[of]);
        eventually_within(AGREEMENT, "the replica's master", || {
            match client.call(["CLUSTER", "REPLICATE", &master]) {
                reply if reply == ok() => Ok(()),
                reply => Err(reply.text()),
            }
        });
        wait_for_link(&added, &self.servers[of]);
        self.servers.push(added);
        self.agree();
        number
    }

    /// Waits until every server sees all slots served, by the same masters, and no replica of a replica.
    pub fn agree(&self) {
        let running: Vec<_> = (0..self.servers.len())
            .filter(|number| self.servers[*number].is_running())
            .collect();
        eventually_within(AGREEMENT, "the servers' agreement", || {
            let mut maps = Vec::new();
            for number in &running {
                let mut client = self.servers[*number].resp2();
                let info = client.run("CLUSTER INFO").text();
                if !info.contains("cluster_state:ok") {
                    // It gives a handshake up that takes too long, and then knows nobody.
                    if info.contains("cluster_known_nodes:1\r\n") && *number != running[0] {
                        meet(&mut client, &self.servers[running[0]]);
                    }
                    return Err(format!("server {number}: {info}"));
                }
                let nodes = self.nodes(*number);
                if !replicas_follow_masters(&nodes) {
                    return Err(format!("server {number}: {nodes}"));
                }
                maps.push(slots_by_id(&nodes));
            }
            if maps.iter().all(|map| *map == maps[0]) {
                Ok(())
            } else {
                Err(format!("{maps:?}"))
            }
        });
    }

    /// Servers that take over at once may choose the same epoch. One of the two chooses again when it hears that, and if it has
    /// been replaced meanwhile, takes its slots back: its epoch is the greater one then.
    pub fn await_distinct_epochs(&self) {
        eventually_within(AGREEMENT, "epochs that are distinct and known", || {
            let epochs: Vec<_> = (0..self.servers.len())
                .map(|number| epochs_by_id(&self.nodes(number)))
                .collect();
            let distinct: BTreeSet<_> = epochs[0].values().collect();
            let is_known = epochs.iter().all(|known| *known == epochs[0]);
            match is_known && distinct.len() == epochs[0].len() {
                true => Ok(()),
                false => Err(format!("{epochs:?}")),
            }
        });
    }

    pub fn nodes(&self, number: usize) -> String {
        self.servers[number].resp2().run("CLUSTER NODES").text()
    }

    pub fn id(&self, number: usize) -> String {
        self.servers[number].resp2().run("CLUSTER MYID").text()
    }

    pub fn address(&self, number: usize) -> String {
        format!("127.0.0.1:{}", self.servers[number].port())
    }

    /// Lets each of these servers know that a slot is on its way.
    pub fn open_slot(&self, slot: u16, from: usize, to: usize) {
        let (source, target) = (self.id(from), self.id(to));
        let mut client = self.servers[to].resp2();
        client.run(&format!("CLUSTER SETSLOT {slot} IMPORTING {source}"));
        let mut client = self.servers[from].resp2();
        client.run(&format!("CLUSTER SETSLOT {slot} MIGRATING {target}"));
    }

    /// Whether the servers can move a slot with all its keys in one step.
    pub fn can_move_in_one_go(&self) -> bool {
        let can = self.servers[0].is_at_least((8, 4), (9, 0));
        if !can {
            say("this server moves slots key by key only");
        }
        can
    }

    /// At which of the servers such a move begins, and how.
    pub fn move_in_one_go(
        &self,
        slot: u16,
        from: usize,
        (to, id): (usize, &str),
    ) -> (usize, String) {
        match self.servers[from].is_at_least((u32::MAX, 0), (9, 0)) {
            true => {
                let command = format!("CLUSTER MIGRATESLOTS SLOTSRANGE {slot} {slot} NODE {id}");
                (from, command)
            }
            false => (to, format!("CLUSTER MIGRATION IMPORT {slot} {slot}")),
        }
    }

    /// Begins such a move.
    pub fn begin_to_move(&self, slot: u16, from: usize, to: usize) {
        let (server, command) = self.move_in_one_go(slot, from, (to, &self.id(to)));
        self.servers[server].resp2().run(&command);
    }

    pub fn migrate(&self, keys: &[&str], from: usize, to: usize) {
        let port = self.servers[to].port().to_string();
        let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        words.extend(keys);
        assert_eq!(self.servers[from].resp2().call(words), ok(), "{keys:?}");
    }

    pub fn close_slot(&self, slot: u16, from: usize, to: usize) {
        let target = self.id(to);
        for number in [to, from] {
            let mut client = self.servers[number].resp2();
            client.run(&format!("CLUSTER SETSLOT {slot} NODE {target}"));
        }
    }
}

/// A server of a cluster that knows no other yet.
fn unconnected(lines: &[&str], start: impl Fn(&[&str]) -> Server) -> Server {
    let bus = format!("cluster-port {}", free_port());
    let mut all = vec!["cluster-enabled yes", NODE_TIMEOUT, ALWAYS_VALID, &bus];
    all.extend(lines);
    start(&all)
}

/// Waits until a replica has all that its master has.
pub fn wait_for_link(replica: &Server, master: &Server) {
    eventually_within(AGREEMENT, "the replica's link", || {
        let info = replica.info("replication");
        let is_up = info.contains("master_link_status:up");
        if is_up { Ok(()) } else { Err(info) }
    });
    replica.catch_up(master);
}

/// The bus port of a server, as its own CLUSTER NODES tells.
fn bus_port(server: &Server) -> u16 {
    let mut client = server.resp2();
    let port = client.run("CONFIG GET cluster-port").items()[1].text();
    port.parse().expect("a port")
}

/// For a moment after a failover two servers can be each other's replicas, as one of them sees it. Then Redis 8.6 hangs in
/// `KEYS` (docs/servers.md).
fn replicas_follow_masters(nodes: &str) -> bool {
    let words: Vec<Vec<&str>> = nodes
        .lines()
        .map(|line| line.split(' ').collect())
        .collect();
    let is_master = |id| {
        let found = words.iter().find(|node| node[0] == id);
        found.is_some_and(|node| node[3] == "-")
    };
    words
        .iter()
        .all(|node| node[3] == "-" || is_master(node[3]))
}

fn slots_by_id(nodes: &str) -> Vec<String> {
    let own = |line: &&str| line.split(' ').count() > 8;
    let mut lines: Vec<_> = nodes
        .lines()
        .filter(own)
        .filter_map(|line| {
            let words: Vec<_> = line.split(' ').collect();
            let slots = words[8..].iter().filter(|word| !word.starts_with('['));
            let slots: Vec<_> = slots.collect();
            // A server that has none may still remember that one was to come.
            (!slots.is_empty()).then(|| format!("{} {slots:?}", words[0]))
        })
        .collect();
    lines.sort();
    lines
}

/// Of each master that has slots.
fn epochs_by_id(nodes: &str) -> BTreeMap<String, String> {
    nodes
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .filter(|words| words.len() > 8)
        .map(|words| (words[0].to_owned(), words[6].to_owned()))
        .collect()
}

/// Runs `redis-cli --cluster`, saying yes to everything.
pub fn redis_cli(words: &[&str]) -> String {
    let mut command = Command::new(cli_binary());
    command.arg("--cluster").args(words).arg("--cluster-yes");
    let output = command.output().expect("redis-cli");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "redis-cli --cluster {words:?}: {}\n{said}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    said
}

/// The one beside the server, or the one on PATH.
fn cli_binary() -> PathBuf {
    let beside =
        env::var_os("TETHER_SERVER").map(|path| PathBuf::from(path).with_file_name("redis-cli"));
    let beside = beside.filter(|path| path.is_file());
    beside.unwrap_or_else(|| PathBuf::from("redis-cli"))
}

/// So many pushes, which may take as long as the servers take to agree.
pub fn pushes_at_last(client: &mut Client, count: usize) -> Vec<String> {
    (0..count)
        .map(|_| client.next_push_within(AGREEMENT))
        .collect()
}

/// The slot of a name without braces, or of what stands in its first ones.
pub fn slot(name: &str) -> u16 {
    let tag = name
        .split_once('{')
        .and_then(|(_, rest)| rest.split_once('}'));
    let hashed = tag.map_or(name, |(tag, _)| tag);
    let mut crc = 0_u16;
    for byte in hashed.bytes() {
        crc ^= u16::from(byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x1021
            };
        }
    }
    crc % SLOTS
}

/// Names that begin so, one in each of the first so many slots.
pub fn names_in_first_slots(prefix: &str, count: u16) -> Vec<String> {
    let mut names = vec![None; usize::from(count)];
    for number in 0.. {
        let name = format!("{prefix}{number}");
        if let Some(place @ None) = names.get_mut(usize::from(slot(&name))) {
            *place = Some(name);
            if names.iter().all(Option::is_some) {
                break;
            }
        }
    }
    names.into_iter().flatten().collect()
}

/// A name in this slot.
pub fn name_in(wanted: u16) -> String {
    { 0.. }
        .map(|number| format!("k{number}"))
        .find(|name| slot(name) == wanted)
        .expect("there are many names")
}

#[test]
fn the_slots_are_those_of_the_server() {
    let server = Server::with(&[
        "cluster-enabled yes",
        &format!("cluster-port {}", free_port()),
    ]);
    let mut client = server.resp2();
    for name in ["a", "123456789", "{tag}x", "x{}y", "name-17"] {
        if name != "x{}y" {
            assert_eq!(
                client.run(["CLUSTER", "KEYSLOT", name]),
                int(slot(name).into())
            );
        }
    }
    assert_eq!(slot(&name_in(7)), 7);
    let names = names_in_first_slots("n", 3);
    assert_eq!(
        names.iter().map(|name| slot(name)).collect::<Vec<_>>(),
        [0, 1, 2]
    );
}
