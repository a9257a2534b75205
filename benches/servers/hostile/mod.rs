//! An adversary's workbench: one client builds whatever makes ours slow, strikes, and another one's PING waits.
//!
//! A strike is a single command, or as many as 16 KB hold (what the server reads of one client before it serves the next).
//! What is asked for is the processor time that the server used between question and answer of the longest PING, as in
//! `death.rs`; by the clock a PING waits for other processes, too.

mod attacks;
pub mod curve;
mod ground;

use super::Bench;
use super::death::{Ping, ms};
use super::measure::Spread;
use super::server::Loaded;
use super::table::{Row, Table, Target};
use attacks::ATTACKS;
use ground::{Ground, Strike};
use std::time::{Duration, Instant};
use tether_testing::resp::encode;

/// As many of something as an attack makes.
const MANY: usize = 60_000;
const ROUNDS: usize = 3;
/// What the longest PING may take, in ms of server CPU.
const MOST_FOR_ONE: f64 = 5.0;
const MOST_FOR_16_KB: f64 = 100.0;
/// Where the server's own commands make a command slower than that, ours may make it so many times as slow. Measured was one to
/// five times: the server's part (1 to 20 ms) depends on what the processor's caches hold.
const TIMES: f64 = 4.0;
/// What is sliced comes later than the strike.
const AFTERMATH: Duration = Duration::from_millis(150);

pub fn run(bench: &Bench, table: &mut Table) {
    for attack in ATTACKS {
        let most = match attack.single {
            true => MOST_FOR_ONE,
            false => MOST_FOR_16_KB,
        };
        let native = attack.native.map(|build| ms(strike(bench, build).cpu));
        let most = native.map_or(most, |native| most.max((TIMES * native).round()));
        let mut pings = vec![strike(bench, attack.build)];
        // A short run only repeats what was too slow, perhaps by chance.
        let is_enough = |pings: &[Ping]| {
            let least = pings
                .iter()
                .map(|ping| ms(ping.cpu))
                .fold(f64::MAX, f64::min);
            pings.len() == ROUNDS || (bench.short && least <= most)
        };
        while !is_enough(&pings) {
            pings.push(strike(bench, attack.build));
        }
        if bench.short {
            pings.sort_by_key(|ping| ping.cpu);
            pings.truncate(1);
        }
        let spread = |part: fn(&Ping) -> f64| Spread::of(pings.iter().map(part));
        let cpu = spread(|ping| ms(ping.cpu));
        let native = native.map_or(String::new(), |native| {
            format!("; {native:.1} ms by the server's own means")
        });
        table.add(Row {
            what: attack.name.to_owned(),
            figure: "ms of server CPU",
            target: Some(Target::AtMost(most)),
            detail: format!(
                "{:.1} ms by the clock; {}{native}",
                spread(|ping| ms(ping.clock)).median,
                if attack.single {
                    "one command"
                } else {
                    "16 KB of commands"
                },
            ),
            value: cpu,
        });
    }
}

/// The longest PING from the strike on.
fn strike(bench: &Bench, build: fn(&mut Ground<'_>) -> Strike) -> Ping {
    let server = bench.start_with(Loaded::Module, "enable-debug-command yes\n");
    let mut bystander = server.connect();
    let mut ground = Ground::new(&server, if bench.short { MANY / 3 } else { MANY });
    let Strike { by, bytes, replies } = build(&mut ground);
    let begin = Instant::now();
    let mut longest = Ping::default();
    // From before the strike on: all that the server does counts for the PING that is answered next.
    let mut last = (server.cpu(), begin);
    ground.connections[by].send(&bytes);
    while begin.elapsed() < AFTERMATH {
        bystander.send(&encode("PING"));
        bystander.reply();
        let next = (server.cpu(), Instant::now());
        let clock = next.1 - last.1;
        let used = next.0.zip(last.0).map(|(now, then)| now - then);
        longest.cpu = longest.cpu.max(used.unwrap_or(clock));
        longest.clock = longest.clock.max(clock);
        last = next;
    }
    ground.connections[by].skip_any_replies(replies);
    longest
}
