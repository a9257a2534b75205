//! What a waiter costs when others wait: to join the queue, to be granted, to die in the middle of it.
//!
//! About the same number of waiters stands in many short queues or in one long one; that the cost is O(1)
//! shows in figures that do not grow with the length. Waiters share a connection (each has an
//! owner's label), except for those that are to die.

use super::Bench;
use super::measure::{Cost, Spread, cost};
use super::server::{Loaded, Server, field};
use super::table::{Row, Table};
use std::cell::Cell;
use std::ops::Range;
use std::time::{Duration, Instant};
use tether_testing::resp::{Connection, encode};

const LENGTHS: &[usize] = &[10, 1_000, 100_000];
/// In all queues together, at most.
const WAITERS: usize = 100_000;
const VICTIMS: usize = 500;
const ROUNDS: usize = 3;
/// For one step. What is not O(1) would take hours.
const PATIENCE: Duration = Duration::from_secs(10);

pub fn run(bench: &Bench, table: &mut Table) {
    if !bench.start(Loaded::Module).has_command("LOCK.ACQUIRE") {
        return table.note("waiters: there is no LOCK.ACQUIRE yet");
    }
    for &length in LENGTHS {
        let mut costs: [Vec<Cost>; 3] = Default::default();
        for _ in 0..bench.scaled(ROUNDS) {
            for (costs, cost) in costs.iter_mut().zip(Queues::measure(bench, length)) {
                costs.push(cost);
            }
        }
        let steps = [
            "to join a queue",
            "to die amid a queue",
            "to be granted in a queue",
        ];
        for (step, costs) in steps.iter().zip(&costs) {
            if !costs.is_empty() {
                add(table, &format!("{step} of {length}"), costs);
            }
        }
    }
}

fn add(table: &mut Table, what: &str, costs: &[Cost]) {
    let us = |each: fn(&Cost) -> f64| Spread::of(costs.iter().map(|cost| each(cost) / 1000.0));
    let fewest = Spread::of(costs.iter().map(|cost| cost.operations)).lower_quartile;
    table.add(Row {
        what: what.to_owned(),
        figure: "us of server CPU",
        value: us(Cost::cpu_ns_each),
        target: None,
        detail: format!(
            "{:.2} us by the clock, {fewest} times",
            us(Cost::wall_ns_each).median
        ),
    });
}

/// Queues of the same length, all behind one holder.
struct Queues {
    locks: usize,
    length: usize,
    holder: Connection,
    waiting: Connection,
    observer: Connection,
    server: Server,
}

impl Queues {
    /// To join, to die, to be granted; the latter two only if all could join in time.
    fn measure(bench: &Bench, length: usize) -> Vec<Cost> {
        let server = bench.start(Loaded::Module);
        let mut queues = Queues {
            locks: (bench.scaled(WAITERS) / length).clamp(1, VICTIMS),
            length,
            holder: server.connect_resp3(),
            waiting: server.connect_resp3(),
            observer: server.connect(),
            server,
        };
        for lock in 0..queues.locks {
            queues.holder.run(&format!("LOCK.ACQUIRE lock:{lock}"));
        }
        let (first, second) = (0..length / 2, length / 2..length);
        let join = queues.join(first.clone());
        if queues.is_short(&join, &first) {
            return vec![join];
        }
        let victims = queues.victims();
        let join = queues.join(second.clone());
        if queues.is_short(&join, &second) {
            return vec![join];
        }
        let death = queues.bury(victims);
        vec![join, death, queues.grant()]
    }

    fn is_short(&self, cost: &Cost, places: &Range<usize>) -> bool {
        cost.operations < (places.len() * self.locks) as f64
    }

    /// These places of every queue are taken.
    fn join(&mut self, places: Range<usize>) -> Cost {
        self.run_each(places, |lock, place| {
            format!("LOCK.ACQUIRE lock:{lock} OWNER {lock}:{place} WAIT 0 PUSH")
        })
    }

    /// Every lock goes from hand to hand until its queue is empty.
    fn grant(&mut self) -> Cost {
        for lock in 0..self.locks {
            self.holder.run(&format!("LOCK.RELEASE lock:{lock}"));
        }
        self.run_each(0..self.length, |lock, place| {
            format!("LOCK.RELEASE lock:{lock} OWNER {lock}:{place}")
        })
    }

    /// Runs the command for each lock and place, as many as can be in time.
    fn run_each(&mut self, places: Range<usize>, words: impl Fn(usize, usize) -> String) -> Cost {
        const AT_ONCE: usize = 20;
        let locks = self.locks;
        let all: Vec<_> = places
            .flat_map(|place| (0..locks).map(move |lock| (lock, place)))
            .map(|(lock, place)| encode(&words(lock, place)))
            .collect();
        let batches: Vec<_> = all
            .chunks(AT_ONCE)
            .map(|batch| (batch.len(), batch.concat()))
            .collect();
        let waiting = &mut self.waiting;
        let done = Cell::new(0);
        let mut cost = cost(&mut self.observer, 0, || {
            let begin = Instant::now();
            for (count, batch) in &batches {
                if begin.elapsed() > PATIENCE {
                    return;
                }
                waiting.run_all(batch, *count);
                done.set(done.get() + count);
            }
        });
        cost.operations = done.get() as f64;
        cost
    }

    /// Connections with one place each, spread over the queues.
    fn victims(&mut self) -> Vec<Connection> {
        (0..VICTIMS)
            .map(|number| {
                let mut victim = self.server.connect_resp3();
                let lock = number % self.locks;
                victim.run(&format!("LOCK.ACQUIRE lock:{lock} WAIT 0 PUSH"));
                victim
            })
            .collect()
    }

    fn bury(&mut self, victims: Vec<Connection>) -> Cost {
        let count = victims.len();
        let mut watcher = self.server.connect();
        let left = connected(&mut watcher) - count;
        cost(&mut self.observer, count, || {
            drop(victims);
            let deadline = Instant::now() + PATIENCE;
            while connected(&mut watcher) > left {
                assert!(
                    Instant::now() < deadline,
                    "the server does not notice their ends"
                );
                std::thread::sleep(Duration::from_millis(2));
            }
        })
    }
}

fn connected(observer: &mut Connection) -> usize {
    let info = observer.text("INFO clients");
    let count = field(&info, "connected_clients").and_then(|count| count.parse().ok());
    count.expect("INFO clients counts connections")
}
