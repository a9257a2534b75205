//! While a data set is loaded the server attends to other connections in the middle of it: they come, ask and go.

use crate::harness::*;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// So many that the file takes some thousand steps to read, between any two of which the server looks around.
const KEYS: usize = 40_000;
const LINES: [&str; 2] = [
    "loading-process-events-interval-bytes 1024",
    "tether.max-keys-per-client 100000",
];
/// So many connections are to have come and gone in the middle of loads.
const ENOUGH: usize = 20;

fn settp_all(owner: &mut Client, keys: usize) {
    for first in (0..keys).step_by(10_000) {
        let numbers = first..(first + 10_000).min(keys);
        let commands: Vec<u8> = numbers
            .clone()
            .flat_map(|n| encode(["SETTP", &format!("key:{n}"), "v"]))
            .collect();
        owner.send_bytes(&commands);
        let replies = owner.read_replies(numbers.len());
        assert!(replies.iter().all(|reply| *reply == int(1)));
    }
}

/// A connection that comes, asks for all settings and all numbers, and goes. Whether it was served while data was loaded.
fn come_and_go(port: u16) -> bool {
    let Ok(mut visitor) = Client::connect(("127.0.0.1", port)) else {
        return false;
    };
    let mut is_loading = false;
    for command in ["CONFIG GET *", "INFO EVERYTHING", "LOCK.LIST 0 COUNT 1"] {
        if !visitor.try_send_bytes(&encode(command)) {
            return false;
        }
        let Some(reply) = visitor.try_read_reply() else {
            return false;
        };
        if command.starts_with("INFO") {
            let info = reply.text();
            is_loading = info.contains("\nloading:1");
            assert!(info.contains("\ntether_temporary_keys:"), "{info}");
            assert!(!info.contains("tether_fault"), "{info}");
        }
    }
    is_loading
}

/// Has connections come and go until `loads` have been gone through with enough of them in their middle.
fn with_visitors(server: &Server, mut load: impl FnMut()) {
    let (served, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let port = server.port();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    served.fetch_add(usize::from(come_and_go(port)), Ordering::Relaxed);
                }
            });
        }
        let _stops = Stops(&is_over);
        let deadline = Instant::now() + Duration::from_secs(60);
        while served.load(Ordering::Relaxed) < ENOUGH {
            load();
            assert!(Instant::now() < deadline, "{served:?} were served in time");
        }
    });
    assert_whole(server);
}

/// Lets the visitors go home, also when a load fails.
struct Stops<'a>(&'a AtomicBool);

impl Drop for Stops<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn assert_whole(server: &Server) {
    let info = server.info("tether");
    assert!(!info.contains("tether_fault"), "{info}");
    assert!(!server.log().contains("fault, commands are refused"));
}

#[test]
fn connections_come_and_go_while_a_data_set_is_loaded_anew() {
    let server = Server::with(&LINES);
    let mut owner = server.resp2();
    owner.run("SESSION.START GRACE 600000");
    settp_all(&mut owner, KEYS);
    let mut locker = server.resp3();
    let mut holder = server.resp2();
    holder.run("SESSION.START GRACE 600000");
    for n in 0..1000 {
        holder.run(["LOCK.ACQUIRE", &format!("held:{n}")]);
    }
    let mut admin = server.resp2();
    with_visitors(&server, || {
        let token = locker.run("LOCK.ACQUIRE lock LEASE 600000 NOTIFY").number();
        assert!(token > 0, "it was lost, and is nobody's");
        assert_eq!(admin.run("DEBUG RELOAD"), ok());
        assert_eq!(locker.next_push(), "lock lock LOST flushed");
    });
    // What sessions held they hold.
    assert_eq!(admin.run("SETTP key:7 v"), int(0));
    assert_eq!(admin.run("LOCK.ACQUIRE held:999"), null());
    eventually_gone(&mut admin, "lock");
    let held = ["tether_temporary_keys", "tether_holds"];
    assert_eq!(server.gauges("tether", held), [KEYS as i64, 1000]);
    assert_eq!(owner.run("SESSION.END"), int(KEYS as i64));
    eventually_equal("the keys that are left", int(1000), || admin.run("DBSIZE"));
    assert_whole(&server);
}

#[test]
fn connections_come_and_go_while_a_replica_takes_over_its_masters_data() {
    let master = Server::with(&LINES);
    let replica = Server::with(&LINES);
    let mut owner = master.resp2();
    settp_all(&mut owner, KEYS);
    let mut watcher = replica.resp3();
    watcher.run("WATCHEX key:7 key:none");
    with_visitors(&replica, || {
        replica.resp2().run("REPLICAOF NO ONE");
        eventually_equal("what is left of it", int(0), || {
            replica.resp2().run("DBSIZE")
        });
        replica.follow(&master);
    });
    let gauge = || replica.gauge("tether", "tether_temporary_keys");
    assert_eq!(gauge(), KEYS as i64);
    drop(owner);
    eventually_equal("the keys that are left", 0, gauge);
    assert_whole(&replica);
}

/// A time to live that a client gave to a temporary key is the client's, wherever the key goes, and through a load.
#[test]
fn a_time_to_live_of_a_client_outlasts_a_load() {
    const LEFT: std::ops::RangeInclusive<i64> = 500_000..=600_000;
    for moved in ["RENAME from k", "MOVE k 1", "SWAPDB 0 1"] {
        let server = Server::with(&["appendonly yes"]);
        let (mut owner, mut other) = (server.resp3(), server.resp2());
        owner.run("SESSION.START");
        let (name, db) = match moved {
            "RENAME from k" => ("from", 0),
            _ => ("k", 1),
        };
        owner.run(format!("SETTP {name} v").as_str());
        other.run(format!("PEXPIRE {name} 600000").as_str());
        other.run(moved);
        other.run(format!("SELECT {db}").as_str());
        for load in ["DEBUG RELOAD", "DEBUG LOADAOF"] {
            other.run("CLIENT PAUSE 600000 WRITE");
            other.run(load);
            // What a load has deferred is done when two of the server's rounds are over.
            server.settle();
            server.settle();
            other.run("CLIENT UNPAUSE");
            server.settle();
            let left = other.call("PTTL k").number();
            assert!(LEFT.contains(&left), "{left} after {moved}, {load}");
        }
        assert_eq!(server.settled(&mut owner), [""; 0], "{moved}");
        assert_eq!(owner.run("SESSION.END"), int(1));
        eventually_equal("the key's end", int(0), || other.call("EXISTS k"));
    }
}
