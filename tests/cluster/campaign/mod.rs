//! A cluster in trouble: slots move in all the ways that there are, moves are given up, masters are replaced, killed and
//! stopped, while clients take keys, wait for them, watch them and their prefixes, rename them and give them back. After each round, when
//! all is quiet, what each client knows must be so: whoever was granted a key and was not told that it lost it has it, and nobody else
//! does; and whoever follows a prefix, and was not told that this is over, has what a fresh page has.
//!
//! `TETHER_SEED` and `TETHER_STEPS` (rounds) choose other campaigns; the seed decides what is done, and the machine when.

mod player;
mod trouble;

use crate::harness::*;
use crate::nodes::{Cluster, name_in, slot};
use crate::random::{self, Random};
use player::{Belief, Player};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::Duration;
use trouble::Trouble;

const PLAYERS: usize = 6;
/// Slots that move in one go, where the server can do that; and as many others that move key by key, or are stolen. Not both
/// ways in one slot: Valkey 9 ends itself by an assertion then.
const SLOTS_OF_A_KIND: u16 = 4;
const KEYS_IN_A_SLOT: usize = 3;

/// The slot that is on its way key by key, if one is: there clients meet most.
static ON_ITS_WAY: AtomicU16 = AtomicU16::new(u16::MAX);

/// How long it may take until everybody has been told.
const QUIET: Duration = Duration::from_secs(30);

/// The slots of both kinds, of all masters.
fn slots(kind: u16) -> Vec<u16> {
    { 0..SLOTS_OF_A_KIND }
        .map(|number| 1000 + kind * 10 + number * 4000)
        .collect()
}

/// Temporary keys and locks.
fn names() -> Vec<String> {
    let tags = { 0..2 }.flat_map(slots).map(name_in);
    let of_tag = |tag: String| {
        let numbers = 0..KEYS_IN_A_SLOT;
        numbers.flat_map(move |number| ["t", "l"].map(|kind| format!("{{{tag}}}{kind}{number}")))
    };
    tags.flat_map(of_tag).collect()
}

/// The hash tag that a name begins with.
fn tag(name: &str) -> &str {
    let end = name.find('}').expect("a name with a tag");
    &name[..=end]
}

fn is_lock(name: &str) -> bool {
    name[tag(name).len()..].starts_with('l')
}

#[test]
fn what_clients_know_is_so_whatever_happened_to_the_cluster() {
    campaign(random::seed(), 2, 8);
}

#[test]
#[ignore = "takes long"]
fn what_clients_know_is_so_after_many_troubles() {
    campaign(random::seed(), random::steps(12), 30);
}

fn campaign(seed: u64, rounds: usize, troubles: usize) {
    let mut cluster = Cluster::with_replicas(&["tether.cluster-backstop 5000"]);
    let ports: Vec<_> = cluster.servers.iter().map(Server::port).collect();
    let names = names();
    let players: Vec<_> = { 0..PLAYERS as u64 }
        .map(|number| Player::new(&ports, &names, seed * 100 + number))
        .map(Mutex::new)
        .collect();
    let (stop, pause) = (AtomicBool::new(false), AtomicBool::new(false));
    let mut dice = Random::new(seed);
    thread::scope(|scope| {
        let _stop = StopAtEnd(&stop);
        for player in &players {
            let (stop, pause) = (&stop, &pause);
            scope.spawn(move || play(player, stop, pause));
        }
        for round in 0..rounds {
            let mut trouble = Trouble::new(&mut cluster, &mut dice);
            for _ in 0..troubles {
                trouble.make();
            }
            trouble.end();
            let done = trouble.done();
            pause.store(true, Ordering::Relaxed);
            let is_well = players.iter().all(|player| !player.is_poisoned());
            assert!(
                is_well,
                "seed {seed}, round {round}: a client failed after {done:#?}"
            );
            let all: Vec<_> = players.iter().map(lock).collect();
            let what = format!("seed {seed}, round {round}, after {done:#?}: what clients know");
            check(&cluster, all, &what);
            pause.store(false, Ordering::Relaxed);
        }
    });
    let granted: usize = players.iter().map(|player| lock(player).granted).sum();
    assert!(granted > rounds * 20, "only {granted} grants");
    let renamed: usize = players.iter().map(|player| lock(player).renamed).sum();
    let seen: usize = players.iter().map(|player| lock(player).seen()).sum();
    assert!(seen > rounds * 20, "only {seen} pushes about prefixes");
    say(&format!(
        "seed {seed}: {granted} grants, {renamed} renamed, {seen} pushes about prefixes"
    ));
}

/// Ends the players also where the campaign fails.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn lock(player: &Mutex<Player>) -> MutexGuard<'_, Player> {
    player.lock().expect("a player that has not failed")
}

fn play(player: &Mutex<Player>, stop: &AtomicBool, pause: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        if !pause.load(Ordering::Relaxed) {
            lock(player).step();
        }
        thread::sleep(Duration::from_millis(3));
    }
}

/// Waits until all that clients know is so.
fn check(cluster: &Cluster, mut players: Vec<MutexGuard<'_, Player>>, what: &str) {
    eventually_within(QUIET, what, || {
        let truth = Truth::of(cluster);
        let mut wrong = Vec::new();
        let mut known = BTreeSet::new();
        for player in &mut players {
            for (server, client, key, belief) in player.beliefs() {
                known.insert((key.clone(), client));
                if let Some(why) = truth.contradicts(server, client, &key, belief) {
                    wrong.push(format!("{client} at {server} {belief:?} {key}: {why}"));
                }
            }
            for (server, prefix, view) in player.views() {
                let there = fresh(&cluster.servers[server], &prefix);
                if there.as_ref() != Ok(&view.members) {
                    let view = view.members;
                    wrong.push(format!(
                        "{prefix} at {server} is {there:?} and not {view:?}"
                    ));
                }
            }
        }
        for (key, at) in &truth.keys {
            for holder in at.holders.keys() {
                if *holder != 0 && !known.contains(&(key.clone(), *holder)) {
                    wrong.push(format!("{holder} does not know that it holds {key}"));
                }
            }
        }
        for (server, tag) in truth.tags() {
            let page = fresh(&cluster.servers[server], &tag).unwrap_or_default();
            let shown = page.into_iter().map(|(name, (token, _))| (name, token));
            let (shown, held): (BTreeMap<_, _>, _) = (shown.collect(), truth.temporary(&tag));
            if shown != held {
                wrong.push(format!("{server} shows {shown:?}, and held are {held:?}"));
            }
        }
        thread::sleep(Duration::from_millis(50));
        match wrong.is_empty() {
            true => Ok(()),
            false => Err(format!("{wrong:#?}")),
        }
    });
}

/// The keys with a prefix that a server shows to somebody who has just come; its refusal, if it shows none.
fn fresh(server: &Server, prefix: &str) -> Result<Members, String> {
    let mut client = server.resp3();
    client.run("READONLY");
    match client.call(["WATCHTP", prefix]) {
        page @ Frame::Array(_) => Ok(View::of(prefix, &page).members),
        refusal => Err(refusal.text()),
    }
}

/// What the servers say.
struct Truth {
    keys: BTreeMap<String, Key>,
    /// What is at each server, be it only a replica.
    present: Vec<BTreeSet<String>>,
    /// What is at each server in slots of others, which Redis since 8.4 neither lists nor expires: it may have lapsed or not.
    hidden: Vec<BTreeSet<String>>,
}

struct Key {
    /// The server that has its slot.
    server: usize,
    /// Their tokens.
    holders: BTreeMap<i64, i64>,
    waiters: BTreeSet<i64>,
}

impl Truth {
    fn of(cluster: &Cluster) -> Truth {
        let owner = trouble::owners(cluster);
        let mut clients: Vec<_> = cluster.servers.iter().map(Server::resp2).collect();
        let mut look = |name: String| {
            let server = owner[&slot(&name)];
            let info = clients[server].run(["LOCK.INFO", &name]);
            let field = |map: &Frame, name| crate::line::field(map, name);
            let rows = |name| match info == null() {
                true => Vec::new(),
                false => field(&info, name).items(),
            };
            let id = |row: &Frame| field(row, "client").number();
            let token = |row: &Frame| field(row, "token").number();
            let holders = rows("holders");
            let key = Key {
                server,
                holders: holders.iter().map(|row| (id(row), token(row))).collect(),
                waiters: rows("waiters").iter().map(id).collect(),
            };
            (name, key)
        };
        let keys = names().into_iter().map(&mut look).collect();
        let hides = cluster.servers[0].is_at_least((8, 4), (u32::MAX, 0));
        let hiding = clients.iter_mut().filter(|_| hides);
        let hidden = hiding.map(all_keys_at).collect();
        let present = clients.iter_mut().map(keys_at).collect();
        Truth {
            keys,
            present,
            hidden,
        }
    }

    /// Those of the slots, with the server that has each.
    fn tags(&self) -> BTreeSet<(usize, String)> {
        let keys = self.keys.iter();
        keys.map(|(name, key)| (key.server, tag(name).to_owned()))
            .collect()
    }

    /// The temporary keys of a slot that are held, with their tokens.
    fn temporary(&self, tag: &str) -> BTreeMap<String, i64> {
        let meant = |name: &&String| name.starts_with(tag) && !is_lock(name);
        let token = |name: &String| self.keys[name].holders.values().next().copied();
        let names = self.keys.keys().filter(meant);
        names
            .filter_map(|name| Some((name.clone(), token(name)?)))
            .collect()
    }

    fn hides(&self, at: usize, name: &str) -> bool {
        let keys = self.hidden.get(at);
        self.keys[name].server != at && keys.is_some_and(|keys| keys.contains(name))
    }

    fn contradicts(&self, at: usize, client: i64, name: &str, belief: Belief) -> Option<String> {
        let key = &self.keys[name];
        let is_so = match belief {
            Belief::Holds(token) => key.server == at && key.holders.get(&client) == Some(&token),
            Belief::Waits => key.server == at && key.waiters.contains(&client),
            Belief::Sees(true) if self.hides(at, name) => true,
            Belief::Sees(there) => there == self.present[at].contains(name),
        };
        let Key {
            server, holders, ..
        } = key;
        (!is_so).then(|| format!("server {server} has it, held by {holders:?}"))
    }
}

/// Those that are listed.
fn keys_at(client: &mut Client) -> BTreeSet<String> {
    let slots = { 0..2 }.flat_map(slots);
    let mut of = |slot: u16| client.run(&format!("CLUSTER GETKEYSINSLOT {slot} 1000"));
    let keys = slots.flat_map(|slot| of(slot).items());
    keys.map(|key| key.text()).collect()
}

/// Those that are listed, and those that are not.
fn all_keys_at(client: &mut Client) -> BTreeSet<String> {
    let mut is_there = |name: &String| {
        let object = client.call(["DEBUG", "OBJECT", name]);
        !matches!(object, Frame::Error(_))
    };
    names().into_iter().filter(|name| is_there(name)).collect()
}
