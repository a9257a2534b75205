//! Contenders that take a lock, give it back at once, and take it again: how often in a second, at what cost to the
//! servers, and how evenly.
//!
//! All ways take turns, round by round, each with its own servers, while the others' stand idle.

use super::native;
use super::seat::{Round, Seat, take_turns};
use crate::Bench;
use crate::measure::Spread;
use crate::plot::{Curve, Plot};
use crate::table::{Grid, Table, short};
use std::time::Duration;
use tether_peers::Way;

/// (contenders, locks)
const SHAPES: &[(usize, usize)] = &[(1, 1), (8, 1), (64, 1), (256, 1), (64, 64)];
/// Once, before all of it.
const WARM_UP_MS: usize = 10_000;
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
        take_turns(bench, &mut seats);
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

impl Seat<'_> {
    /// As [`HEADER`] has it.
    fn row(&self, floor: &[f64]) -> Option<Vec<String>> {
        if self.rounds.is_empty() {
            return None;
        }
        let speed = Spread::of(self.speeds());
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
        row.push(format!("{:.1}", self.requests_each()));
        row.push(self.fairness());
        Some(row)
    }
}
