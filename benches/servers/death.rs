//! How long others wait while a connection dies that owns a million keys.
//!
//! On a machine where other processes run, a PING also waits for a processor. So each is measured twice:
//! by the clock, and by the processor time that the server used between question and answer, which
//! is what it would have taken on a processor of the server's own.

use super::Bench;
use super::measure::Spread;
use super::server::{Loaded, Server};
use super::table::{Row, Table, Target};
use super::wire::{Connection, line};
use std::time::{Duration, Instant};

const KEYS: usize = 1_000_000;
const DEATHS: usize = 5;

pub fn run(bench: &Bench, table: &mut Table) {
    let server = bench.start(Loaded::Module);
    let keys = bench.scaled(KEYS);
    let mut longest = Vec::new();
    let mut lasted_ms = Vec::new();
    for _ in 0..bench.scaled(DEATHS) {
        drop(owner_of(&server, keys));
        let begin = Instant::now();
        longest.push(longest_ping(&server));
        lasted_ms.push(ms(begin.elapsed()));
    }
    let spread =
        |part: fn(&Ping) -> Duration| Spread::of(longest.iter().map(|ping| ms(part(ping))));
    table.add(Row {
        what: format!("longest PING while the owner of {keys} keys dies"),
        figure: "ms of server CPU",
        value: spread(|ping| ping.cpu),
        target: Some(Target::AtMost(20.0)),
        detail: format!(
            "{:.1} ms by the clock; all gone after {:.0} ms",
            spread(|ping| ping.clock).median,
            Spread::of(lasted_ms).median
        ),
    });
}

pub fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

pub fn owner_of(server: &Server, keys: usize) -> Connection {
    const AT_ONCE: usize = 1000;
    let mut owner = server.connect();
    for first in (0..keys).step_by(AT_ONCE) {
        let last = keys.min(first + AT_ONCE);
        let commands: Vec<_> = (first..last)
            .flat_map(|n| line(&format!("SETTP key:{n:016} value")))
            .collect();
        owner.run_all(&commands, last - first);
    }
    owner
}

/// From question to answer.
#[derive(Default)]
pub struct Ping {
    pub cpu: Duration,
    pub clock: Duration,
}

/// Pings until all keys have gone; the longest by either measure.
pub fn longest_ping(server: &Server) -> Ping {
    let mut bystander = server.connect();
    let (ping, size) = (line("PING"), line("DBSIZE"));
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut longest = Ping::default();
    for number in 1.. {
        let is_look = number % 20 == 0;
        let cpu_before = server.cpu();
        let begin = Instant::now();
        bystander.send(if is_look { &size } else { &ping });
        let empty = bystander.reply() == b":0\r\n";
        let clock = begin.elapsed();
        let used = server
            .cpu()
            .zip(cpu_before)
            .map(|(now, before)| now - before);
        longest.clock = longest.clock.max(clock);
        longest.cpu = longest.cpu.max(used.unwrap_or(clock));
        if empty {
            break;
        }
        assert!(begin < deadline, "the dead owner's keys do not go");
    }
    longest
}
