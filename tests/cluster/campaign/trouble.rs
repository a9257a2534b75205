//! What happens to a cluster.

use super::{ON_ITS_WAY, slots};
use crate::harness::*;
use crate::nodes::{AGREEMENT, Cluster, SLOTS};
use crate::random::Random;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

pub struct Trouble<'a> {
    cluster: &'a mut Cluster,
    dice: &'a mut Random,
    ids: Vec<String>,
    killed: Option<usize>,
    done: Vec<String>,
}

#[derive(Clone, Copy)]
enum Kind {
    Atomic,
    Cancel,
    KeyByKey,
    Steal,
    Failover,
    Kill,
    Pause,
    Stop,
}

/// What a server says, if it answers.
fn ask(server: &Server, words: &[&str]) -> Option<Frame> {
    let mut client = Client::connect(("127.0.0.1", server.port())).ok()?;
    if !client.try_send_bytes(&encode(words.to_vec())) {
        return None;
    }
    client.try_read_reply()
}

/// Which server has each slot, as one that runs says.
pub fn owners(cluster: &Cluster) -> BTreeMap<u16, usize> {
    let servers = &cluster.servers;
    let mut running = servers.iter().filter(|server| server.is_running());
    let said = running.find_map(|server| ask(server, &["CLUSTER", "SLOTS"]));
    let mut owners = BTreeMap::new();
    for range in said.expect("a server that answers").items() {
        let range = range.items();
        let port = range[2].items()[1].number();
        let server = servers
            .iter()
            .position(|server| i64::from(server.port()) == port);
        let (first, last) = (range[0].number() as u16, range[1].number() as u16);
        if let Some(server) = server {
            owners.extend((first..=last).map(|slot| (slot, server)));
        }
    }
    owners
}

impl<'a> Trouble<'a> {
    pub fn new(cluster: &'a mut Cluster, dice: &'a mut Random) -> Trouble<'a> {
        let ids = { 0..cluster.servers.len() }.map(|number| cluster.id(number));
        Trouble {
            ids: ids.collect(),
            cluster,
            dice,
            killed: None,
            done: Vec::new(),
        }
    }

    pub fn done(self) -> Vec<String> {
        self.done
    }

    fn note(&mut self, what: String) {
        self.done.push(what);
    }

    fn ask(&mut self, server: usize, words: &[&str]) -> Option<Frame> {
        if self.killed == Some(server) {
            return None;
        }
        let reply = ask(&self.cluster.servers[server], words);
        let said = reply.as_ref().map(|reply| format!("{reply:?}"));
        let said = said.map(|text| text.chars().take(60).collect::<String>());
        self.note(format!("{server}: {words:?} {said:?}"));
        reply
    }

    pub fn make(&mut self) {
        let kind = self.dice.weighted(&[
            (6, Kind::Atomic),
            (2, Kind::Cancel),
            (4, Kind::KeyByKey),
            (4, Kind::Steal),
            (4, Kind::Failover),
            (3, Kind::Kill),
            (3, Kind::Pause),
            (2, Kind::Stop),
        ]);
        match kind {
            Kind::Atomic => self.move_in_one_go(),
            Kind::Cancel => {
                let server = self.any();
                self.cancel(server);
            }
            Kind::KeyByKey => self.move_key_by_key(),
            Kind::Steal => {
                if let Some((slot, from, to)) = self.way(1) {
                    self.unpause_loser(from);
                    self.steal(slot, from, to);
                }
            }
            Kind::Failover => {
                let server = self.any();
                let how: &[&str] = self.dice.pick(&[
                    &["CLUSTER", "FAILOVER"],
                    &["CLUSTER", "FAILOVER", "FORCE"],
                    &["CLUSTER", "FAILOVER", "TAKEOVER"],
                ]);
                self.ask(server, how);
            }
            Kind::Kill => self.kill(),
            Kind::Pause => {
                let ms = 50 + self.dice.below(400);
                let what = self.dice.pick(&["WRITE", "ALL"]);
                let server = self.any();
                self.ask(server, &["CLIENT", "PAUSE", &ms.to_string(), what]);
            }
            Kind::Stop => {
                let server = self.any();
                if self.killed == Some(server) {
                    return;
                }
                let pid = self.cluster.servers[server].pid();
                let ms = 50 + self.dice.below(700) as u64;
                self.note(format!("{server} stands still for {ms} ms"));
                Server::signal(pid, libc::SIGSTOP);
                thread::sleep(Duration::from_millis(ms));
                Server::signal(pid, libc::SIGCONT);
            }
        }
        thread::sleep(Duration::from_millis(10 + self.dice.below(250) as u64));
    }

    fn any(&mut self) -> usize {
        self.dice.below(self.cluster.servers.len())
    }

    /// A slot of a kind, who has it, and another master.
    fn way(&mut self, kind: u16) -> Option<(u16, usize, usize)> {
        let owners = owners(self.cluster);
        let slot = self.dice.pick(&slots(kind));
        let from = *owners.get(&slot)?;
        let mut others: Vec<_> = owners
            .into_values()
            .filter(|other| *other != from)
            .collect();
        others.sort_unstable();
        others.dedup();
        let to = *others.get(self.dice.below(others.len().max(1)))?;
        Some((slot, from, to))
    }

    fn move_in_one_go(&mut self) {
        if let Some((slot, from, to)) = self.way(0) {
            let id = &self.ids[to];
            let (server, command) = self.cluster.move_in_one_go(slot, from, (to, id));
            let words: Vec<_> = command.split(' ').collect();
            self.ask(server, &words);
        }
    }

    /// Gives up what moves in one go, in the words of either server.
    fn cancel(&mut self, server: usize) {
        self.ask(server, &["CLUSTER", "CANCELSLOTMIGRATIONS"]);
        self.ask(server, &["CLUSTER", "MIGRATION", "CANCEL", "ALL"]);
    }

    fn move_key_by_key(&mut self) {
        let Some((slot, from, to)) = self.way(1) else {
            return;
        };
        ON_ITS_WAY.store(slot, Ordering::Relaxed);
        thread::sleep(Duration::from_millis(self.dice.below(100) as u64));
        let (slot, ids) = (slot.to_string(), self.ids.clone());
        let set = ["CLUSTER", "SETSLOT", &slot];
        self.ask(to, &[&set[..], &["IMPORTING", &ids[from]]].concat());
        self.ask(from, &[&set[..], &["MIGRATING", &ids[to]]].concat());
        thread::sleep(Duration::from_millis(self.dice.below(200) as u64));
        ON_ITS_WAY.store(u16::MAX, Ordering::Relaxed);
        let is_whole = self.dice.below(2) == 0;
        let count = if is_whole { "1000" } else { "2" };
        let port = self.cluster.servers[to].port().to_string();
        let keys = self.ask(from, &["CLUSTER", "GETKEYSINSLOT", &slot, count]);
        for key in keys.iter().filter(|keys| matches!(keys, Frame::Array(_))) {
            for key in key.items() {
                self.ask(
                    from,
                    &["MIGRATE", "127.0.0.1", &port, &key.text(), "0", "1000"],
                );
            }
        }
        thread::sleep(Duration::from_millis(self.dice.below(60) as u64));
        self.unpause_loser(from);
        let end = match self.dice.below(3) {
            0 => vec!["STABLE"],
            _ => vec!["NODE", &ids[to]],
        };
        for server in [to, from] {
            self.ask(server, &[&set[..], &end].concat());
        }
    }

    /// Redis since 7.2 ends itself by an assertion where it loses keys while it must not write.
    fn unpause_loser(&mut self, from: usize) {
        if self.cluster.servers[from].is_at_least((7, 2), (u32::MAX, 0)) {
            self.ask(from, &["CLIENT", "UNPAUSE"]);
        }
    }

    /// What happens to a master that comes back and finds that another has its slot.
    fn steal(&mut self, slot: u16, from: usize, to: usize) {
        let (slot, ids) = (slot.to_string(), self.ids.clone());
        self.ask(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &ids[from]]);
        self.ask(to, &["CLUSTER", "SETSLOT", &slot, "NODE", &ids[to]]);
    }

    fn kill(&mut self) {
        if let Some(killed) = self.killed.take() {
            self.note(format!("{killed} starts again"));
            self.cluster.servers[killed].restart_as_it_was();
            return;
        }
        let server = self.any();
        self.note(format!("{server} is killed"));
        self.cluster.servers[server].kill();
        self.killed = Some(server);
    }

    /// Lets everything come to rest.
    pub fn end(&mut self) {
        if let Some(killed) = self.killed.take() {
            self.note(format!("{killed} starts again"));
            self.cluster.servers[killed].restart_as_it_was();
        }
        for server in 0..self.ids.len() {
            self.ask(server, &["CLIENT", "UNPAUSE"]);
            self.cancel(server);
        }
        // Also for the replicas of these, which remember what is under way.
        for slot in slots(1) {
            for server in owners(self.cluster).into_values().collect::<BTreeSet<_>>() {
                self.ask(server, &["CLUSTER", "SETSLOT", &slot.to_string(), "STABLE"]);
            }
        }
        self.close_slots();
        self.cluster.agree();
        let owners = owners(self.cluster);
        assert_eq!(owners.len(), usize::from(SLOTS));
    }

    /// Ends what was begun and left open, since one of the two was replaced meanwhile, or did not answer.
    fn close_slots(&mut self) {
        eventually_within(AGREEMENT, "closed slots", || {
            let mut open = Vec::new();
            for server in 0..self.ids.len() {
                let own = self.cluster.nodes(server);
                // What a replica remembers of such is its master's affair.
                let line = own.lines().find(|line| line.contains("myself,master"));
                let words = line.unwrap_or_default().split(' ').skip(8);
                for word in words.filter(|word| word.starts_with('[')) {
                    let slot = word[1..].split('-').next().unwrap_or_default().to_owned();
                    self.ask(server, &["CLUSTER", "SETSLOT", &slot, "STABLE"]);
                    open.push(word.to_owned());
                }
            }
            let is_moving = (0..self.ids.len()).any(|server| {
                let server = &self.cluster.servers[server];
                let moves = [
                    ask(server, &["CLUSTER", "GETSLOTMIGRATIONS"]),
                    ask(server, &["CLUSTER", "MIGRATION", "STATUS", "ALL"]),
                ];
                moves.iter().flatten().any(is_any_under_way)
            });
            match open.is_empty() && !is_moving {
                true => Ok(()),
                false => Err(format!("{open:?} {is_moving}")),
            }
        });
    }
}

fn is_any_under_way(moves: &Frame) -> bool {
    let Frame::Array(moves) = moves else {
        return false;
    };
    moves.iter().any(|of| {
        let state = crate::line::field(of, "state").text();
        let over = ["success", "completed", "failed", "cancelled", "canceled"];
        !over.contains(&state.as_str())
    })
}
