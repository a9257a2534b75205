//! All watchers come back at once after a failover: a new master, that was a replica until then, has no index of its keys yet, and
//! each watcher wants all of its pages.

use super::ours::{Owner, Page, question};
use super::{Bench, MEMBERS, PATIENCE, WATCHERS};
use crate::death::{Ping, ms};
use crate::measure::Spread;
use crate::replicated::follow;
use crate::server::{Loaded, Server, field};
use crate::table::{Row, Table, Target};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};
use tether_peers::{Link, Member, await_any};
use tether_testing::resp::encode;

/// A page for each watcher, and as much again: more is not needed at a time.
const TARGET_MB: f64 = 200.0;
/// How long until a server that sorts its keys is asked again.
const AGAIN: Duration = Duration::from_millis(20);

pub fn run(bench: &Bench, table: &mut Table) {
    let settings = "repl-diskless-sync-delay 0\n";
    let master = bench.start_with(Loaded::Module, settings);
    let replica = bench.start_with(Loaded::Module, settings);
    follow(&replica, &master);
    let count = bench.scaled(MEMBERS);
    let names: Vec<_> = (0..count).map(|number| format!("{number:06}")).collect();
    let mut owner = Owner::with_session(master.port()).expect("the server takes connections");
    owner.add(&names).expect("the server takes members");
    let mut observer = replica.connect();
    let begin = Instant::now();
    while observer.run("DBSIZE") != format!(":{count}\r\n").as_bytes() {
        assert!(begin.elapsed() < PATIENCE, "the replica does not follow");
        thread::sleep(AGAIN);
    }
    drop((owner, master));
    observer.run("REPLICAOF NO ONE");
    let before = Memory::of(&replica);
    let is_over = AtomicBool::new(false);
    let (took, longest) = thread::scope(|scope| {
        let pings = scope.spawn(|| pings(&replica, &is_over));
        let took = all_come(&replica, bench.scaled(WATCHERS), count);
        is_over.store(true, SeqCst);
        (took, pings.join().expect("the bystander is answered"))
    });
    let after = Memory::of(&replica);
    table.add(Row {
        what: format!("{WATCHERS} watchers come back at once after a failover"),
        figure: "MB at the peak",
        value: Spread::of([after.peak - before.used]),
        target: Some(Target::AtMost(TARGET_MB)),
        detail: format!(
            "used_memory {:.0} before, {:.0} at the peak, {:.0} after; RSS {:.0} before, {:.0} at the peak; \
             all know {count} members after {:.1} s; longest PING {:.1} ms of server CPU, {:.1} ms by the clock",
            before.used,
            after.peak,
            after.used,
            before.rss,
            after.rss_peak,
            took.as_secs_f64(),
            ms(longest.cpu),
            ms(longest.clock)
        ),
    });
}

/// In MB.
struct Memory {
    used: f64,
    peak: f64,
    rss: f64,
    rss_peak: f64,
}

impl Memory {
    fn of(server: &Server) -> Memory {
        let info = server.connect().text("INFO memory");
        let bytes = |name| field(&info, name).and_then(|value| value.parse::<f64>().ok());
        let mb = |name| bytes(name).expect("INFO memory tells it") / 1e6;
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.id()));
        let status = status.unwrap_or_default();
        let kb = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().trim_end_matches(" kB").parse::<f64>().ok()
        };
        Memory {
            used: mb("used_memory"),
            peak: mb("used_memory_peak"),
            rss: mb("used_memory_rss"),
            rss_peak: kb("VmHWM:").unwrap_or(f64::NAN) / 1e3,
        }
    }
}

/// What a bystander waits for, at most.
fn pings(server: &Server, is_over: &AtomicBool) -> Ping {
    let mut bystander = server.connect();
    let mut longest = Ping::default();
    while !is_over.load(SeqCst) {
        let (before, begin) = (server.cpu(), Instant::now());
        bystander.run("PING");
        let clock = begin.elapsed();
        longest = longest.max(Ping::between(before, server.cpu(), clock));
    }
    longest
}

/// How long until all of them know all.
fn all_come(server: &Server, count: usize, members: usize) -> Duration {
    let mut links: Vec<_> = (0..count).map(|_| Link::open(server.port())).collect();
    for link in &mut links {
        link.run("HELLO 3");
    }
    let begin = Instant::now();
    let mut known = vec![0; count];
    links
        .iter_mut()
        .for_each(|link| link.send(&encode(&question(""))));
    let mut later: Vec<(Instant, usize)> = Vec::new();
    while known.iter().any(|known| *known < members) {
        assert!(begin.elapsed() < PATIENCE * 5, "some do not know all");
        let sockets: Vec<_> = links
            .iter()
            .map(|link| link.descriptor().expect("the server closes none"))
            .collect();
        for at in await_any(&sockets, AGAIN) {
            links[at].receive();
            while let Some(bytes) = links[at].buffered_bytes() {
                let Some(page) = Page::of(bytes) else {
                    later.push((Instant::now() + AGAIN, at));
                    continue;
                };
                known[at] += page.entries;
                if !page.next.is_empty() {
                    links[at].send(&encode(&question(&page.next)));
                }
            }
        }
        let now = Instant::now();
        let due = later.iter().filter(|(when, _)| *when <= now);
        due.for_each(|(_, at)| links[*at].send(&encode(&question(""))));
        later.retain(|(when, _)| *when > now);
    }
    begin.elapsed()
}
