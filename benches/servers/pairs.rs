//! Taking and giving back without contention, against the server's own commands for the same on a server
//! without the module.

use super::Bench;
use super::measure::{Cost, Side, Turns, cost};
use super::place::OnOne;
use super::server::{Loaded, Server};
use super::table::{Table, Target};
use tether_testing::resp::{Connection, encode};

/// Two commands that undo each other; `KEY` stands for the key.
pub(super) struct Pair {
    what: &'static str,
    ours: [&'static str; 2],
    floor: [&'static str; 2],
}

pub(super) const PAIRS: &[Pair] = &[
    Pair {
        what: "SETTP + DEL against SETNX + DEL",
        ours: ["SETTP KEY value", "DEL KEY"],
        floor: ["SETNX KEY value", "DEL KEY"],
    },
    Pair {
        what: "SETTP + DELTP against SET NX + DEL",
        ours: ["SETTP KEY value", "DELTP KEY"],
        floor: ["SET KEY value NX", "DEL KEY"],
    },
    Pair {
        what: "LOCK.ACQUIRE + LOCK.RELEASE against SET NX + DEL",
        ours: ["LOCK.ACQUIRE KEY", "LOCK.RELEASE KEY"],
        floor: ["SET KEY value NX", "DEL KEY"],
    },
];

/// Commands sent at once, and commands in one round.
const DEPTHS: &[(usize, usize)] = &[(1, 2_000), (16, 16_000), (64, 32_000)];
const STARTS: usize = 5;
const ROUNDS: usize = 12;
const TARGET: Target = Target::AtLeast(0.9);

pub fn run(bench: &Bench, table: &mut Table) {
    let _place = OnOne::new(false);
    let probe = bench.start(Loaded::Module);
    for pair in PAIRS {
        let mut commands = pair
            .ours
            .iter()
            .map(|line| line.split(' ').next().unwrap_or(line));
        if let Some(missing) = commands.find(|name| !probe.has_command(name)) {
            table.note(&format!("{}: there is no {missing} yet", pair.what));
            continue;
        }
        for (what, turns) in measure(bench, pair, Loaded::Module, STARTS) {
            table.add_speed(&what, &turns, TARGET);
        }
    }
}

/// What a pair costs where this is loaded, against a server without any module: with so many commands at once.
pub(super) fn measure(
    bench: &Bench,
    pair: &Pair,
    loaded: Loaded,
    starts: usize,
) -> Vec<(String, Turns)> {
    let mut all_turns: Vec<Turns> = DEPTHS.iter().map(|_| Turns::new()).collect();
    for _ in 0..bench.scaled(starts) {
        let mut ours = Seat::on(bench.start(loaded));
        let mut floor = Seat::on(bench.start(Loaded::Nothing));
        for ((depth, commands), turns) in DEPTHS.iter().zip(&mut all_turns) {
            let our_batches = batches(pair.ours, *depth, *commands);
            let floor_batches = batches(pair.floor, *depth, *commands);
            turns.take(bench.scaled(ROUNDS), |side| match side {
                Side::Ours => ours.round(&our_batches, *depth),
                Side::Floor => floor.round(&floor_batches, *depth),
            });
        }
    }
    let whats = DEPTHS
        .iter()
        .map(|(depth, _)| format!("{}, {depth} at once", pair.what));
    whats.zip(all_turns).collect()
}

/// Pairs of commands for key after key, cut into pieces of so many commands.
pub(super) fn batches(pair: [&str; 2], depth: usize, commands: usize) -> Vec<Vec<u8>> {
    let all: Vec<_> = (0..commands)
        .map(|number| {
            let key = format!("bench:{:014}", number / 2 % 1000);
            encode(&pair[number % 2].replace("KEY", &key))
        })
        .collect();
    all.chunks(depth).map(<[Vec<u8>]>::concat).collect()
}

struct Seat {
    connection: Connection,
    observer: Connection,
    _server: Server,
}

impl Seat {
    fn on(server: Server) -> Seat {
        Seat {
            connection: server.connect(),
            observer: server.connect(),
            _server: server,
        }
    }

    fn round(&mut self, batches: &[Vec<u8>], depth: usize) -> Cost {
        round(&mut self.connection, &mut self.observer, batches, depth)
    }
}

/// What it costs the observed server to run these commands, so many at once.
pub(super) fn round(
    connection: &mut Connection,
    observer: &mut Connection,
    batches: &[Vec<u8>],
    depth: usize,
) -> Cost {
    cost(observer, batches.len() * depth, || {
        for batch in batches {
            connection.run_all(batch, depth);
        }
    })
}
