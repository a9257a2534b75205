//! An adversary's workbench: one client builds whatever makes ours slow, strikes, and another one's PING waits.
//!
//! A strike is a single command, or as many as 16 KB hold (what the server reads of one client before it serves the next).
//! What is asked for is the processor time that the server used between question and answer of the longest PING, as in
//! `death.rs`; by the clock a PING waits for other processes, too. Bounds are for a machine of a known pace (`pace.rs`).

mod attacks;
pub mod curve;
mod ground;
mod pace;
mod prefixes;

use super::Bench;
use super::death::{Ping, ms};
use super::measure::Spread;
use super::server::Loaded;
use super::table::{Row, Table, Target};
use attacks::{ATTACKS, Attack};
use ground::{Ground, Strike};
use std::time::{Duration, Instant};
use tether_testing::resp::encode;

/// As many of something as an attack makes.
const MANY: usize = 60_000;
const ROUNDS: usize = 3;
/// What the longest PING may take, in ms of server CPU, on a machine of the usual pace.
const MAX_FOR_ONE: f64 = 5.0;
const MOST_FOR_16_KB: f64 = 100.0;
/// A short run is for what costs many times as much as before. It measures once, and within a second the pace changes by about
/// as much as this allows.
const SHORT_MAY: f64 = 1.3;
/// Where the server's own commands make a command slower than that, ours may make it so many times as slow. Measured was one to
/// five times: the server's part (1 to 20 ms) depends on what the processor's caches hold.
const TIMES: f64 = 4.0;
/// What is sliced comes later than the strike.
const AFTERMATH: Duration = Duration::from_millis(150);
/// How long the server sleeps, which takes no processor time, while several connections send what it is to find at once.
const SLEEP: Duration = Duration::from_millis(500);

pub fn run(bench: &Bench, table: &mut Table) {
    let wanted = std::env::var("TETHER_ATTACKS").unwrap_or_default();
    let all = ATTACKS.iter().chain(prefixes::ATTACKS);
    for attack in all.filter(|attack| attack.name.contains(&wanted)) {
        let mut most = match attack.single {
            true => MAX_FOR_ONE,
            false => MOST_FOR_16_KB,
        };
        if bench.short {
            most *= SHORT_MAY;
        }
        let native = attack.native.map(|build| strike(bench, build).cpu_ms());
        table.add(row(bench, attack, most, native));
    }
}

fn row(bench: &Bench, attack: &Attack, most: f64, native: Option<f64>) -> Row {
    // What the server's own means took was measured at about the same pace.
    let most = |pace: f64| {
        let most = most * pace;
        let most = native.map_or(most, |native| most.max(TIMES * native));
        (most * 10.0).round() / 10.0
    };
    let part = |round: &Round| round.cpu_ms() / most(round.pace);
    let mut rounds = vec![strike(bench, attack.build)];
    // A short run only repeats what was too slow, perhaps by chance.
    while rounds.len() < ROUNDS && !(bench.short && rounds.iter().any(|round| part(round) <= 1.0)) {
        rounds.push(strike(bench, attack.build));
    }
    if bench.short {
        rounds.sort_by(|one, other| part(one).total_cmp(&part(other)));
        rounds.truncate(1);
    }
    let spread = |part: fn(&Round) -> f64| Spread::of(rounds.iter().map(part));
    let pace = spread(|round| round.pace).median;
    let clock = spread(|round| ms(round.longest.clock)).median;
    let much = match attack.single {
        true => "one command",
        false => "16 KB of commands",
    };
    let mut detail = format!("{clock:.1} ms by the clock; {much}");
    if let Some(native) = native {
        detail += &format!("; {native:.1} ms by the server's own means");
    }
    if pace > pace::WORTH_TELLING {
        detail += &format!("; on a machine {pace:.1} times as slow as usual");
    }
    Row {
        what: attack.name.to_owned(),
        figure: "ms of server CPU",
        target: Some(Target::AtMost(most(pace))),
        detail,
        value: spread(Round::cpu_ms),
    }
}

struct Round {
    longest: Ping,
    /// Of the machine, right before.
    pace: f64,
}

impl Round {
    fn cpu_ms(&self) -> f64 {
        ms(self.longest.cpu)
    }
}

/// The longest PING from the strike on.
fn strike(bench: &Bench, build: fn(&mut Ground<'_>) -> Strike) -> Round {
    let server = bench.start_with(Loaded::Module, "enable-debug-command yes\n");
    let mut bystander = server.connect();
    let mut ground = Ground::new(&server, if bench.short { MANY / 3 } else { MANY });
    let Strike {
        by,
        bytes,
        replies,
        others,
    } = build(&mut ground);
    let pace = pace::of(&server);
    let begin = Instant::now();
    let mut longest = Ping::default();
    // From before the strike on: all that the server does counts for the PING that is answered next.
    let mut last = (server.cpu(), begin);
    let mut end = begin + AFTERMATH;
    if !others.is_empty() {
        let mut sleeper = server.connect();
        sleeper.send(&encode(&format!("DEBUG SLEEP {}", SLEEP.as_secs_f64())));
        end += SLEEP;
        for other in others {
            ground.connections[other].send(&bytes);
        }
        assert!(begin.elapsed() < SLEEP, "the server has awoken before");
    }
    ground.connections[by].send(&bytes);
    while Instant::now() < end {
        bystander.send(&encode("PING"));
        bystander.reply();
        let next = (server.cpu(), Instant::now());
        let clock = next.1 - last.1;
        longest = longest.max(Ping::between(last.0, next.0, clock));
        last = next;
    }
    ground.connections[by].skip_any_replies(replies);
    Round { longest, pace }
}
