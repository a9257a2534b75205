//! Seeded random histories, and what becomes of one that fails.

use crate::harness::say;
use crate::model::around::Around;
use crate::model::generate::{Generator, Scope};
use crate::model::shrink::shortest;
use crate::model::step::Step;
use crate::model::world::{DIED, Floor, Limits, Totals};
use crate::random;
use crate::trial::{PLACES, Stage, Trial, USED_NAMES};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Some histories are about all that happens to keys, most about locks.
fn scope(seed: u64) -> Scope {
    Scope {
        places: PLACES,
        names: USED_NAMES,
        server: true,
        locks: if is_about_keys(seed) { 0 } else { 600 },
        meetings: if is_about_keys(seed) { 0 } else { 600 },
        sessions: if seed % 5 < 2 { 0 } else { 120 },
        quiet: if is_quiet(seed) { PER_HISTORY / 2 } else { 0 },
        around: Around {
            rights: if seed % 5 < 3 { 20 } else { 0 },
            hearing: if seed % 7 < 4 { 25 } else { 0 },
            overdue: 25,
            between: if has_another_module(seed) { 80 } else { 0 },
            prefixes: 0,
            files: has_files(seed),
        },
    }
}

fn is_about_keys(seed: u64) -> bool {
    seed.is_multiple_of(3)
}

/// Whether nobody watches or waits in the first half, of all that its server sees.
fn is_quiet(seed: u64) -> bool {
    seed % 4 == 1
}

/// Whether its server writes down what is done.
fn has_files(seed: u64) -> bool {
    seed % 4 == 3
}

/// Whether its server has a module that looks at keys while others are renamed.
fn has_another_module(seed: u64) -> bool {
    seed % 4 == 2
}

pub const NARROW: Limits = Limits {
    watches: 4,
    keys: 2,
    ..Limits::ROOMY
};
const PER_HISTORY: usize = 500;

fn histories(first_seed: u64, steps: usize) {
    let mut meddling = Stage::with_another_module(Limits::ROOMY);
    let mut narrow = Stage::new(NARROW);
    let mut files = Stage::with_files(Limits::ROOMY);
    let mut quiet = Stage::anew_each_time(Limits::ROOMY);
    let count = steps.div_ceil(PER_HISTORY).max(1);
    let mut all = Totals::default();
    for (seed, n) in (first_seed..).zip(0..count) {
        let left = steps - n * PER_HISTORY;
        // Which of them follows from the seed, so that the seed is the whole story.
        let stage = match seed % 4 {
            0 => &mut narrow,
            _ if is_quiet(seed) => &mut quiet,
            _ if has_files(seed) => &mut files,
            _ => &mut meddling,
        };
        all = all.plus(&random_history(stage, seed, left.min(PER_HISTORY)));
    }
    println!("{steps} steps, in which came about {all:?}");
    if steps >= 10_000 {
        let mut floors = FLOORS.to_vec();
        floors.retain(|(what, ..)| *what != "between" || meddling.has_another_module());
        all.check_floors(steps as u64, &floors);
    }
}

/// Histories in which nothing happens prove nothing.
const FLOORS: [Floor; 21] = [
    ("handoffs", |all| all.handoffs, 3_000),
    ("lost", |all| all.lost, 1_000),
    ("deadlocks refused", |all| all.deadlocks_refused, 150),
    ("re-entries", |all| all.reentries, 150),
    ("cancels", |all| all.cancels, 100),
    ("rights lost", |all| all.rights_lost, 100),
    ("waits lost", |all| all.waits_lost, 20),
    ("quarantined", |all| all.quarantined, 50),
    ("timeouts", |all| all.timeouts, 50),
    ("resumed", |all| all.resumed, 50),
    ("moved", |all| all.moved, 50),
    ("graces over", |all| all.graces_over, 50),
    ("overdue", |all| all.overdue, 150),
    ("overdue in EXEC", |all| all.overdue_in_exec, 20),
    ("between", |all| all.between, 200),
    ("loads", |all| all.loads, 50),
    ("restarts", |all| all.restarts, 20),
    ("died", |all| all.reasons[DIED], 1_000),
    ("lists", |all| all.lists, 300),
    ("pages", |all| all.pages, 100),
    ("sights", |all| all.sights, 200),
];

/// Takes random steps, and panics with the seed and the shortest history that fails. What came about.
fn random_history(stage: &mut Stage, seed: u64, steps: usize) -> Totals {
    let mut generator = Generator::new(seed, scope(seed));
    let mut taken = Vec::with_capacity(steps);
    let mut totals = Totals::default();
    let what = failure(|| {
        let mut trial = Trial::new(stage);
        for _ in 0..steps {
            let step = generator.step(&trial.world);
            taken.push(step.clone());
            trial.take(&step)?;
        }
        totals = trial.world.totals;
        trial.finish()
    });
    let Some(what) = what else { return totals };
    let (at, last) = (taken.len(), taken.last().cloned());
    say(&format!(
        "TETHER_SEED={seed} fails at step {at}, {last:?}: {what}\nlooking for a shorter history"
    ));
    let shortest = shortest(taken, Duration::from_secs(90), |steps| {
        try_history(stage, steps).is_some()
    });
    let lines: Vec<String> = shortest.iter().map(|step| format!("  {step:?}")).collect();
    panic!(
        "TETHER_SEED={seed} fails at step {at}: {what}\nthe shortest history that fails:\n{}\nnow: {:?}",
        lines.join("\n"),
        try_history(stage, &shortest)
    );
}

/// What is wrong with a history, if anything is.
pub fn try_history(stage: &mut Stage, steps: &[Step]) -> Option<String> {
    failure(|| {
        let mut trial = Trial::new(stage);
        for (at, step) in steps.iter().enumerate() {
            trial
                .take(step)
                .map_err(|what| format!("step {at}, {step:?}: {what}"))?;
        }
        trial.finish().map_err(|what| format!("at the end: {what}"))
    })
}

/// A panic is a failure like others.
fn failure(tried: impl FnOnce() -> Result<(), String>) -> Option<String> {
    let words = |panic: Box<dyn Any + Send>| match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => format!("a panic: {:?}", panic.downcast_ref::<&str>()),
    };
    let result = catch_unwind(AssertUnwindSafe(tried));
    result.unwrap_or_else(|panic| Err(words(panic))).err()
}

#[test]
fn a_server_does_what_the_model_says() {
    histories(random::seed(), random::steps(10_000));
}

#[test]
#[ignore = "many new histories; some minutes"]
fn a_server_does_what_the_model_says_for_long() {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH);
    let clock = clock.expect("a clock after 1970").as_secs();
    let seed = random::from_environment("TETHER_SEED").unwrap_or(clock);
    say(&format!("TETHER_SEED={seed}"));
    histories(seed, random::steps(300_000));
}
