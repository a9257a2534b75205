//! What a watch and a binding weigh.

use super::Bench;
use super::measure::Spread;
use super::server::{Loaded, field};
use super::table::{Row, Table, Target};
use std::time::{Duration, Instant};
use tether_testing::resp::{Connection, encode};

/// (connections, keys each)
const SHAPES: &[(usize, usize)] = &[(1, 100_000), (1_000, 100)];
const KEYS: usize = 100_000;

pub fn run(bench: &Bench, table: &mut Table) {
    for &(connections, keys) in SHAPES {
        let keys = bench.scaled(keys);
        let items = connections * keys;
        let watch = weigh(bench, connections, keys, items, "WATCHEX");
        let subscription = weigh(bench, connections, keys, items, "SUBSCRIBE");
        table.add(Row {
            what: format!("memory of a watch, {connections} connections x {keys} keys"),
            figure: "part of SUBSCRIBE",
            value: Spread::of([watch / subscription]),
            target: Some(Target::AtMost(0.5)),
            detail: format!("{watch:.1} bytes against {subscription:.1} bytes each"),
        });
    }
    let keys = bench.scaled(KEYS);
    let bound = weigh(bench, 1, keys, keys, "SETTP");
    let unbound = weigh(bench, 1, keys, keys, "SETNX");
    table.add(Row {
        what: format!("memory of a binding, {keys} keys of 20 bytes"),
        figure: "bytes",
        value: Spread::of([bound - unbound]),
        target: Some(Target::AtMost(120.0)),
        detail: format!("a bound key {bound:.1} bytes, an unbound one {unbound:.1} bytes"),
    });
}

/// Bytes for each of `items` that so many connections make by running `verb` for the same keys.
fn weigh(bench: &Bench, connections: usize, keys: usize, items: usize, verb: &str) -> f64 {
    let server = bench.start(Loaded::Module);
    let mut observer = server.connect();
    let mut owners: Vec<_> = (0..connections).map(|_| server.connect_resp3()).collect();
    let before = resting_memory(&mut observer);
    for owner in &mut owners {
        make(owner, keys, verb);
    }
    let after = resting_memory(&mut observer);
    (after - before) / items as f64
}

fn make(owner: &mut Connection, keys: usize, verb: &str) {
    const AT_ONCE: usize = 100;
    for first in (0..keys).step_by(AT_ONCE) {
        let names: Vec<_> = (first..keys.min(first + AT_ONCE))
            .map(|n| format!("key:{n:016}"))
            .collect();
        match verb {
            "SETTP" | "SETNX" => {
                let commands: Vec<_> = names
                    .iter()
                    .flat_map(|name| encode([verb, name, "value"]))
                    .collect();
                owner.run_all(&commands, names.len());
            }
            _ => {
                let mut words = vec![verb.to_owned()];
                words.extend_from_slice(&names);
                owner.send(&encode(words));
                if verb == "SUBSCRIBE" {
                    owner.wait_for_pushes((first + names.len()) as u64);
                } else {
                    owner.skip_replies(1);
                }
            }
        }
    }
}

/// What the server uses when nothing goes on any more. It gives up the buffers of connections that have
/// been silent for some seconds, and tables that grow are moved bit by bit.
pub fn resting_memory(observer: &mut Connection) -> f64 {
    const STILL: Duration = Duration::from_millis(3500);
    let begin = Instant::now();
    let mut last = (0.0, Instant::now());
    loop {
        let info = observer.text("INFO memory");
        let used = field(&info, "used_memory").and_then(|used| used.parse::<f64>().ok());
        let used = used.expect("INFO memory tells used_memory");
        // The server counts some hundred bytes more or less from one moment to the next.
        if (used - last.0).abs() > 4096.0 {
            last = (used, Instant::now());
        }
        if last.1.elapsed() > STILL || begin.elapsed() > Duration::from_secs(30) {
            return used;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
