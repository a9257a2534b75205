//! Fencing tokens of a key whose slot goes from server to server: they rise, whenever each server was started and whatever
//! tokens it has come to know.

use crate::failover::promoted;
use crate::harness::*;
use crate::nodes::{Cluster, name_in};
use crate::random::{Random, seed};
use std::fs::{self, OpenOptions};
use std::io::Write;

const SLOT: u16 = 5000;

/// How a slot comes to be another server's.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// `SETSLOT` and `MIGRATE`.
    KeyByKey,
    /// Valkey 9's `MIGRATESLOTS`, Redis 8.4's `MIGRATION IMPORT`.
    InOneGo,
}

fn ways(cluster: &Cluster) -> &'static [Way] {
    match cluster.servers[0].is_at_least((8, 4), (9, 0)) {
        true => &[Way::KeyByKey, Way::InOneGo],
        false => &[Way::KeyByKey],
    }
}

fn move_slot(cluster: &Cluster, slot: u16, from: usize, to: usize, way: Way) {
    let (source, target) = (&cluster.servers[from], &cluster.servers[to]);
    match way {
        Way::KeyByKey => {
            cluster.open_slot(slot, from, to);
            let mut client = source.resp2();
            let there = client.run(&format!("CLUSTER GETKEYSINSLOT {slot} 100"));
            let names: Vec<_> = there.items().iter().map(Frame::text).collect();
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            if !names.is_empty() {
                cluster.migrate(&names, from, to);
            }
            cluster.close_slot(slot, from, to);
        }
        Way::InOneGo => cluster.begin_to_move(slot, from, to),
    }
    let probe = name_in(slot);
    eventually("the slot's new owner", || {
        match target.resp2().call(["EXISTS", &probe]) {
            refusal @ Frame::Error(_) => Err(refusal.text()),
            _ => Ok(()),
        }
    });
}

/// Takes the key and gives it back: its token.
fn take(server: &Server, key: &str) -> i64 {
    let mut client = server.resp2();
    let token = eventually("a grant", || {
        match client.call(["SETTP", key, "v", "TOKEN"]) {
            Frame::Integer(token) if token > 0 => Ok(token),
            other => Err(format!("{other:?}")),
        }
    });
    client.run(["DELTP", key]);
    token
}

fn start_again(cluster: &mut Cluster, number: usize) {
    cluster.servers[number].restart_as_it_was();
    cluster.agree();
}

#[test]
fn a_server_that_gains_a_slot_gives_greater_tokens_than_a_younger_one() {
    let mut cluster = Cluster::of_masters(3, &[]);
    let key = name_in(SLOT);
    let mut last = take(&cluster.servers[0], &key);
    for way in ways(&cluster) {
        move_slot(&cluster, SLOT, 0, 2, *way);
        start_again(&mut cluster, 2);
        for (from, to) in [(0, 2), (2, 0)] {
            if from == 2 {
                move_slot(&cluster, SLOT, from, to, *way);
            }
            let token = take(&cluster.servers[to], &key);
            assert!(token > last, "{way:?} to {to}: {token} after {last}");
            last = token;
        }
    }
}

/// Its clock was far ahead once. The others learn that from it, those too that were not there when it last gave a token.
#[test]
fn a_server_that_gains_a_slot_gives_greater_tokens_than_one_from_the_future() {
    const FAR: i64 = 4_000_000_000_000_000;
    let mut cluster = Cluster::of_masters(3, &["appendonly yes", "appendfsync always"]);
    let key = name_in(SLOT);
    move_slot(&cluster, SLOT, 0, 2, Way::KeyByKey);
    cluster.servers[2].kill();
    know(&cluster.servers[2], FAR);
    start_again(&mut cluster, 2);
    let mut last = take(&cluster.servers[2], &key);
    assert!(last > FAR, "{last}");
    // Neither this one's files nor its clock say so, and nobody gives a token from now on.
    start_again(&mut cluster, 0);
    eventually("what it hears of the others", || {
        let info = cluster.servers[0].resp2().run("CLUSTER INFO").text();
        let heard = info.contains("cluster_stats_messages_module_received:");
        if heard { Ok(()) } else { Err(info) }
    });
    for (from, to) in [(2, 0), (0, 1), (1, 2)] {
        move_slot(&cluster, SLOT, from, to, Way::KeyByKey);
        let token = take(&cluster.servers[to], &key);
        assert!(token > last, "to {to}: {token} after {last}");
        last = token;
    }
}

/// Writes into a stopped server's append-only file that this token was given.
fn know(server: &Server, token: i64) {
    let folder = server.folder().join("appendonlydir");
    let files = fs::read_dir(folder).expect("the folder of append-only files");
    let mut paths = files.map(|file| file.expect("a file").path());
    let last = paths.find(|path| path.to_string_lossy().ends_with(".incr.aof"));
    let last = last.expect("an append-only file");
    let mut file = OpenOptions::new().append(true).open(last).expect("it");
    file.write_all(&encode(["TETHER.TOKEN", &token.to_string()]))
        .expect("room");
}

/// While a slot is on its way, its keys still change hands at the old owner, which may gain other slots meanwhile.
#[test]
fn who_imports_a_slot_gives_greater_tokens_than_its_owner_gave_meanwhile() {
    let cluster = Cluster::of_masters(3, &[]);
    let (owner, importer) = (&cluster.servers[0], &cluster.servers[2]);
    let (key, other_key) = (name_in(SLOT), name_in(10_000));
    let mut holder = owner.resp2();
    holder.run(["SETTP", &key, "v"]);
    let mut waiter = owner.resp2();
    waiter.send(["SETTP", &key, "w", "TOKEN", "WAIT", "0"]);
    eventually("the wait", || {
        match owner.gauge("tether", "tether_waiters") {
            1 => Ok(()),
            waiters => Err(waiters.to_string()),
        }
    });
    cluster.open_slot(SLOT, 0, 2);
    take(importer, &name_in(16_000));
    move_slot(&cluster, 10_000, 1, 0, Way::KeyByKey);
    let other = take(owner, &other_key);
    holder.run(["DELTP", &key]);
    let last = waiter.read_reply().number();
    assert!(last > other, "{last} after {other}");
    cluster.migrate(&[&key], 0, 2);
    let mut client = importer.resp2();
    client.run_all(&["ASKING", &format!("DEL {key}"), "ASKING"]);
    let token = client.run(["SETTP", &key, "v", "TOKEN"]).number();
    assert!(token > last, "{token} after {last}");
}

#[test]
fn a_replica_that_takes_over_from_who_gained_a_slot_gives_greater_tokens() {
    let mut cluster = Cluster::of_masters(2, &[]);
    let key = name_in(SLOT);
    let replica = cluster.add_replica(1, &[]);
    let mut last = take(&cluster.servers[0], &key);
    move_slot(&cluster, SLOT, 0, 1, Way::KeyByKey);
    let server = &cluster.servers[replica];
    server.resp2().run("CLUSTER FAILOVER TAKEOVER");
    promoted(server);
    cluster.agree();
    for (from, to) in [(0, replica), (replica, 0)] {
        if from == replica {
            move_slot(&cluster, SLOT, from, to, Way::KeyByKey);
        }
        let token = take(&cluster.servers[to], &key);
        assert!(token > last, "to {to}: {token} after {last}");
        last = token;
    }
}

/// Slots go from server to server in no order, servers crash and come back, and each key's tokens rise.
#[test]
fn tokens_rise_over_random_moves() {
    const SLOTS: [u16; 4] = [1, 2, 5_000, 16_000];
    let mut cluster = Cluster::of_masters(3, &[]);
    let seed = seed();
    let mut random = Random::new(seed);
    let mut owners = [0, 0, 0, 2];
    let mut last = [0; 4];
    for step in 0..60 {
        let one = random.below(SLOTS.len());
        let from = owners[one];
        match random.below(20) {
            0 => start_again(&mut cluster, random.below(3)),
            1..10 => {
                let (to, way) = (
                    (from + 1 + random.below(2)) % 3,
                    random.pick(ways(&cluster)),
                );
                move_slot(&cluster, SLOTS[one], from, to, way);
                owners[one] = to;
            }
            _ => {}
        }
        let token = take(&cluster.servers[owners[one]], &name_in(SLOTS[one]));
        let former = std::mem::replace(&mut last[one], token);
        assert!(
            token > former,
            "seed {seed}, step {step}, slot {}: {token} after {former}",
            SLOTS[one]
        );
    }
}
