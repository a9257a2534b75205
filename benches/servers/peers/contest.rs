//! Contenders that take a lock, give it back at once, and take it again: how often in a second, at what cost to the
//! servers, and how evenly.
//!
//! All ways take turns, round by round, each with its own servers, while the others' stand idle. Every contender is a
//! thread that speaks to a server in its way's protocol. That no two hold a lock at a time is looked at, too.

use super::{contender, native};
use crate::Bench;
use crate::measure::Spread;
use crate::plot::{Curve, Plot};
use crate::table::{Grid, Table, short};
use std::io;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};
use tether_peers::{Contender, Way, cpu};

/// (contenders, locks)
const SHAPES: &[(usize, usize)] = &[(1, 1), (8, 1), (64, 1), (256, 1), (64, 64)];
/// Once, before all of it.
const WARM_UP_MS: usize = 10_000;
/// Besides one that warms up.
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(600);
const SHORT_ROUND: Duration = Duration::from_millis(150);
/// Whoever needs longer for its rounds has fewer of them.
const PATIENCE: Duration = Duration::from_secs(15);
const HEADER: &[&str] = &[
    "",
    "per second",
    "quartiles",
    "of BLPOP/RPUSH",
    "quartiles",
    "server CPU per 1,000",
    "quartiles",
    "requests each",
    "least and most served",
];
/// The columns that say most, and the table that does.
pub const AT_A_GLANCE: &[usize] = &[1, 3, 5, 7, 8];
pub const CROWD: &str = "64 contenders, 1 lock";

pub fn run(bench: &Bench, table: &mut Table, ways: &[Box<dyn Way>]) {
    let mut curves: Vec<Curve> = Vec::new();
    curves.extend(ways.iter().map(|way| Curve::new(way.name())));
    for way in ways {
        let limit = bench.scaled(WARM_UP_MS) as u64;
        if let Err(error) = way.warm_up(Duration::from_millis(limit)) {
            table.skip(way.name(), &format!("warming up: {error}"));
        }
    }
    for &(contenders, locks) in SHAPES {
        let mut seats = Vec::new();
        for way in ways {
            match Seat::gather(way.as_ref(), contenders, locks) {
                Ok(seat) => seats.push(seat),
                Err(error) => table.skip(way.name(), &error.to_string()),
            }
        }
        let limit = if bench.short { SHORT_ROUND } else { ROUND };
        for round in 0..=bench.scaled(ROUNDS) {
            if round % 2 == 1 {
                seats.iter_mut().rev().for_each(|seat| seat.play(limit));
            } else {
                seats.iter_mut().for_each(|seat| seat.play(limit));
            }
            if round == 0 {
                seats.iter_mut().for_each(|seat| seat.rounds.clear());
            }
        }
        for seat in &seats {
            if let Some(why) = &seat.failed {
                table.skip(seat.way.name(), why);
            }
        }
        let floor = seats.iter().find(|seat| seat.way.name() == native::BLPOP);
        let floor = floor.map_or(Vec::new(), Seat::speeds);
        for seat in seats
            .iter()
            .filter(|seat| locks == 1 && !seat.rounds.is_empty())
        {
            let curve = curves
                .iter_mut()
                .find(|curve| curve.name == seat.way.name());
            let point = (contenders as f64, Spread::of(seat.speeds()).median);
            curve.into_iter().for_each(|curve| curve.points.push(point));
        }
        let plural = |count, what| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        table.grid(Grid {
            title: plural(contenders, "contender") + ", " + &plural(locks, "lock"),
            header: HEADER.to_vec(),
            rows: seats.iter().filter_map(|seat| seat.row(&floor)).collect(),
        });
    }
    table.plot(Plot {
        file: "benchmarks-peers.svg",
        title: "Acquisitions per second of one lock, by contenders",
        x: "contenders",
        y: "per second",
        curves,
    });
}

struct Seat<'a> {
    way: &'a dyn Way,
    contenders: Vec<Box<dyn Contender>>,
    locks: usize,
    rounds: Vec<Round>,
    failed: Option<String>,
    spent: Duration,
}

struct Round {
    seconds: f64,
    acquired: u64,
    cpu: Duration,
    /// Of the whole round, with its end, when all who wait are still served.
    requests: u64,
    served: Vec<u64>,
}

impl Seat<'_> {
    fn gather(way: &dyn Way, size: usize, locks: usize) -> io::Result<Seat<'_>> {
        let ports = way.ports();
        let join = |number| contender(way.name(), &ports, number % locks, number);
        Ok(Seat {
            way,
            contenders: (0..size).map(join).collect::<io::Result<_>>()?,
            locks,
            rounds: Vec::new(),
            failed: None,
            spent: Duration::ZERO,
        })
    }

    fn play(&mut self, limit: Duration) {
        if self.failed.is_none() && (self.spent < PATIENCE || self.rounds.is_empty()) {
            let begin = Instant::now();
            match self.round(limit) {
                Ok(round) => self.rounds.push(round),
                Err(error) => self.failed = Some(error.to_string()),
            }
            self.spent += begin.elapsed();
        }
    }

    fn round(&mut self, limit: Duration) -> io::Result<Round> {
        const STACK: usize = 256 * 1024;
        let size = self.contenders.len();
        let (ready, start) = (Barrier::new(size + 1), Barrier::new(size + 1));
        let stop = AtomicBool::new(false);
        let held: Vec<_> = (0..self.locks).map(|_| AtomicBool::new(false)).collect();
        let served: Vec<_> = (0..size).map(|_| AtomicU64::new(0)).collect();
        let servers = self.way.servers();
        thread::scope(|scope| {
            let (ready, start, stop, held, served) = (&ready, &start, &stop, &held, &served);
            let mut threads = Vec::new();
            for (number, contender) in self.contenders.iter_mut().enumerate() {
                let (held, served) = (&held[number % held.len()], &served[number]);
                let work = move || {
                    let prepared = contender.prepare();
                    let before = contender.requests();
                    ready.wait();
                    start.wait();
                    prepared?;
                    while !stop.load(SeqCst) {
                        contender.acquire()?;
                        assert!(!held.swap(true, SeqCst), "two hold a lock");
                        served.fetch_add(1, SeqCst);
                        held.store(false, SeqCst);
                        contender.release()?;
                    }
                    io::Result::Ok(contender.requests() - before)
                };
                let builder = thread::Builder::new().stack_size(STACK);
                threads.push(builder.spawn_scoped(scope, work)?);
            }
            ready.wait();
            let cpu_before = cpu(&servers);
            let begin = Instant::now();
            start.wait();
            thread::sleep(limit);
            let seconds = begin.elapsed().as_secs_f64();
            let acquired = served.iter().map(|served| served.load(SeqCst)).sum();
            let used = cpu(&servers).saturating_sub(cpu_before);
            stop.store(true, SeqCst);
            let mut requests = 0;
            for thread in threads {
                let sent = thread
                    .join()
                    .map_err(|_| io::Error::other("a contender failed"))?;
                requests += sent?;
            }
            Ok(Round {
                seconds,
                acquired,
                cpu: used,
                requests,
                served: served.iter().map(|served| served.load(SeqCst)).collect(),
            })
        })
    }

    fn speeds(&self) -> Vec<f64> {
        let speed = |round: &Round| round.acquired as f64 / round.seconds;
        self.rounds.iter().map(speed).collect()
    }

    /// As [`HEADER`] has it.
    fn row(&self, floor: &[f64]) -> Option<Vec<String>> {
        if self.rounds.is_empty() {
            return None;
        }
        let speed = Spread::of(self.speeds());
        let sum = |part: fn(&Round) -> f64| self.rounds.iter().map(part).sum::<f64>();
        let requests = sum(|round| round.requests as f64)
            / sum(|round| round.served.iter().sum::<u64>() as f64);
        let mut row = vec![
            self.way.name().to_owned(),
            short(speed.median),
            speed.quartiles(),
        ];
        // Who had fewer rounds had the first of them.
        if floor.len() >= self.rounds.len() {
            let ratios = self
                .speeds()
                .into_iter()
                .zip(floor)
                .map(|(ours, floor)| ours / floor);
            let ratio = Spread::of(ratios);
            row.extend([short(ratio.median), ratio.quartiles()]);
        } else {
            row.extend(["?".to_owned(), "?".to_owned()]);
        }
        let cpu_ms = |round: &Round| round.cpu.as_secs_f64() * 1e3;
        let per_1000 = |round: &Round| cpu_ms(round) * 1e3 / round.acquired.max(1) as f64;
        let cpu = Spread::of(self.rounds.iter().map(per_1000));
        row.extend([format!("{} ms", short(cpu.median)), cpu.quartiles()]);
        row.push(format!("{requests:.1}"));
        row.push(self.fairness());
        Some(row)
    }

    /// In parts of what each would have had if all had had the same.
    fn fairness(&self) -> String {
        let size = self.contenders.len();
        let of = |number: usize| {
            self.rounds
                .iter()
                .map(|round| round.served[number])
                .sum::<u64>()
        };
        let served: Vec<_> = (0..size).map(of).collect();
        let even = served.iter().sum::<u64>() as f64 / size as f64;
        let part = |count: Option<&u64>| count.map_or(0.0, |count| *count as f64 / even);
        format!(
            "{:.2} .. {:.2}",
            part(served.iter().min()),
            part(served.iter().max())
        )
    }
}
