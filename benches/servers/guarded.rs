//! What a guard costs: commands of the server inside LOCK.GUARD, against the same ones bare, on a server without the module.

use super::Bench;
use super::measure::{Side, Turns};
use super::pairs::{batches, round};
use super::place::OnOne;
use super::server::Loaded;
use super::table::{Table, Target};

/// Commands sent at once, and commands in one round.
const DEPTHS: &[(usize, usize)] = &[(1, 2_000), (16, 16_000)];
const COMMANDS: &[(&str, &str)] = &[("SET", "SET KEY value"), ("GET", "GET KEY")];
const STARTS: usize = 3;
const ROUNDS: usize = 10;
/// At most 1.5 times the bare command, where requests come several at once.
const TARGET: Target = Target::AtLeast(0.667);

pub fn run(bench: &Bench, table: &mut Table) {
    let _place = OnOne::new(false);
    for (name, command) in COMMANDS {
        let mut all_turns: Vec<Turns> = DEPTHS.iter().map(|_| Turns::new()).collect();
        for _ in 0..bench.scaled(STARTS) {
            let (ours, floor) = (bench.start(Loaded::Module), bench.start(Loaded::Nothing));
            let mut holder = ours.connect();
            let token = holder.text("LOCK.ACQUIRE bench:lock");
            let guarded = format!("LOCK.GUARD bench:lock {token} {command}");
            let mut our_seat = (ours.connect(), ours.connect());
            let mut floor_seat = (floor.connect(), floor.connect());
            for ((depth, commands), turns) in DEPTHS.iter().zip(&mut all_turns) {
                let our_batches = batches([&guarded; 2], *depth, *commands);
                let floor_batches = batches([command; 2], *depth, *commands);
                turns.take(bench.scaled(ROUNDS), |side| {
                    let ((connection, observer), batches) = match side {
                        Side::Ours => (&mut our_seat, &our_batches),
                        Side::Floor => (&mut floor_seat, &floor_batches),
                    };
                    round(connection, observer, batches, *depth)
                });
            }
        }
        for ((depth, _), turns) in DEPTHS.iter().zip(&all_turns) {
            let what = format!("a guarded {name} against a bare one, {depth} at once");
            table.add_speed(&what, turns, (*depth > 1).then_some(TARGET));
        }
    }
}
