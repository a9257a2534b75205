//! From one to a million: what the next operation costs with so many watches, bound keys or waiters there, and what
//! each of them weighs.

use super::Bench;
use super::measure::{Cost, Spread, cost};
use super::memory::resting_memory;
use super::plot::{Curve, Plot};
use super::server::Loaded;
use super::table::{Grid, Table, short};
use std::collections::VecDeque;
use tether_testing::resp::{Connection, encode};

const MOST: usize = 1_000_000;
/// Connections share the watches, each has the same keys; they also share the bound keys, each with its own.
const CONNECTIONS: usize = 10;
const AT_ONCE: usize = 100;
/// Operations with which the cost is measured, in each round.
const PROBES: usize = 2_000;
const ROUNDS: usize = 5;
/// Fewer weigh less than the server's own buffers.
const WEIGHABLE: usize = 10_000;

/// What there are many of.
struct Kind {
    name: &'static str,
    /// What is measured: one to make, one to take back.
    probe: &'static str,
    /// Makes the `number`th.
    make: fn(usize) -> (usize, String),
    /// Two commands that leave as many as before; the numbers come in the order in which they were made.
    again: fn(usize) -> (usize, [String; 2]),
}

const KINDS: &[Kind] = &[
    Kind {
        name: "watches",
        probe: "WATCHEX, UNWATCHEX",
        make: |number| {
            let (connection, key) = (number % CONNECTIONS, number / CONNECTIONS);
            (connection, format!("WATCHEX watched:{key:012}"))
        },
        again: |number| {
            (
                number % CONNECTIONS,
                pair("WATCHEX other:#", "UNWATCHEX other:#", number),
            )
        },
    },
    Kind {
        name: "bound keys",
        probe: "SETTP, DELTP",
        make: |number| {
            (
                number % CONNECTIONS,
                format!("SETTP bound:{number:014} value"),
            )
        },
        again: |number| {
            (
                number % CONNECTIONS,
                pair("SETTP other:# value", "DELTP other:#", number),
            )
        },
    },
    Kind {
        name: "plain keys, to compare",
        probe: "SETNX, DEL",
        make: |number| {
            (
                number % CONNECTIONS,
                format!("SETNX bound:{number:014} value"),
            )
        },
        again: |number| {
            (
                number % CONNECTIONS,
                pair("SETNX other:# value", "DEL other:#", number),
            )
        },
    },
    Kind {
        // The first of them holds the lock.
        name: "waiters in one queue",
        probe: "LOCK.RELEASE to the next, LOCK.ACQUIRE at the end",
        make: |number| (0, format!("LOCK.ACQUIRE lock OWNER {number} WAIT 0 PUSH")),
        again: |owner| {
            let release = format!("LOCK.RELEASE lock OWNER {owner}");
            (
                0,
                [
                    release,
                    format!("LOCK.ACQUIRE lock OWNER {owner} WAIT 0 PUSH"),
                ],
            )
        },
    },
];

fn pair(first: &str, second: &str, number: usize) -> [String; 2] {
    [first, second].map(|words| words.replace('#', &format!("{:014}", number % 1_000)))
}

pub fn run(bench: &Bench, table: &mut Table) {
    let mut costs = Vec::new();
    let mut weights = Vec::new();
    let mut rows = Vec::new();
    for kind in KINDS {
        let (mut cost, mut weight) = (Curve::new(kind.name), Curve::new(kind.name));
        measure(bench, kind, |size, us, bytes| {
            cost.points.push((size as f64, us.median));
            weight
                .points
                .extend(bytes.map(|bytes| (size as f64, bytes)));
            rows.push(vec![
                kind.name.to_owned(),
                size.to_string(),
                kind.probe.to_owned(),
                format!("{} us ({})", short(us.median), us.quartiles()),
                bytes.map_or(String::new(), |bytes| format!("{bytes:.0} bytes")),
            ]);
        });
        costs.push(cost);
        weights.push(weight);
    }
    table.grid(Grid {
        title: "From one to a million".to_owned(),
        header: vec![
            "of",
            "there are",
            "operation",
            "server CPU each",
            "memory of each",
        ],
        rows,
    });
    table.plot(Plot {
        file: "benchmarks-cost.svg",
        title: "Server CPU of one operation, by how many there are",
        x: "watches, keys or waiters",
        y: "us",
        curves: costs,
    });
    table.plot(Plot {
        file: "benchmarks-memory.svg",
        title: "Memory of each, by how many there are",
        x: "watches, keys or waiters",
        y: "bytes",
        curves: weights,
    });
}

/// Tells for each size what an operation costs in us and what an item weighs in bytes.
fn measure(bench: &Bench, kind: &Kind, mut tell: impl FnMut(usize, Spread, Option<f64>)) {
    let server = bench.start(Loaded::Module);
    let mut observer = server.connect();
    let mut connections: Vec<_> = (0..CONNECTIONS).map(|_| server.connect_resp3()).collect();
    let empty = if bench.short {
        0.0
    } else {
        resting_memory(&mut observer)
    };
    let mut size = 1;
    // The first of it holds the lock, where there is one.
    let mut line_of = VecDeque::new();
    while size <= bench.scaled(MOST) {
        let commands = (line_of.len()..size).map(|number| {
            let (connection, words) = (kind.make)(number);
            (connection, encode(&words), 1)
        });
        run_each(&mut connections, commands);
        line_of.extend(line_of.len()..size);
        let rounds = (0..ROUNDS).map(|_| {
            cost(&mut observer, 2 * PROBES, || {
                let pairs = (0..PROBES).map(|_| {
                    line_of.rotate_left(1);
                    let (connection, words) = (kind.again)(line_of[size - 1]);
                    (connection, words.map(|words| encode(&words)).concat(), 2)
                });
                run_each(&mut connections, pairs);
            })
        });
        let rounds: Vec<Cost> = rounds.collect();
        let us = Spread::of(rounds.iter().map(|cost| cost.cpu_ns_each() / 1e3));
        let weigh = size >= WEIGHABLE && !bench.short;
        let bytes = weigh.then(|| (resting_memory(&mut observer) - empty) / size as f64);
        tell(size, us, bytes);
        size *= 10;
    }
}

/// Connection, bytes, replies.
fn run_each(
    connections: &mut [Connection],
    commands: impl Iterator<Item = (usize, Vec<u8>, usize)>,
) {
    let mut batches: Vec<(Vec<u8>, usize)> = connections.iter().map(|_| (Vec::new(), 0)).collect();
    let mut run = |connection: usize, batch: &mut (Vec<u8>, usize)| {
        connections[connection].run_all(&batch.0, batch.1);
        *batch = (Vec::new(), 0);
    };
    for (connection, bytes, replies) in commands {
        let batch = &mut batches[connection];
        batch.0.extend_from_slice(&bytes);
        batch.1 += replies;
        if batch.1 >= AT_ONCE {
            run(connection, batch);
        }
    }
    for (connection, batch) in batches.iter_mut().enumerate() {
        run(connection, batch);
    }
}
