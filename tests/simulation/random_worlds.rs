//! Seeded random worlds, small enough that everything meets everything.

use crate::model::around::Around;
use crate::model::command::PREFIXES;
use crate::model::generate::Scope;
use crate::model::world::{DIED, Floor, Limits, Totals};
use crate::random;
use crate::trial::{Close, random_world};

const PER_WORLD: usize = 2_000;

/// Worlds of different sizes, `steps` in all.
fn worlds(first_seed: u64, steps: usize, check_every: usize) {
    const SIZES: [(usize, usize, Limits); 4] = [
        (2, 2, Limits::ROOMY),
        (4, 3, Limits::ROOMY),
        (6, 5, NARROW),
        // More watchers of a key than are simply looked through.
        (14, 2, Limits::ROOMY),
    ];
    const NARROW: Limits = Limits {
        watches: 3,
        keys: 2,
        together: 1,
        page: 2,
    };
    let count = steps.div_ceil(PER_WORLD).max(1);
    let mut all = Totals::default();
    for (seed, n) in (first_seed..).zip(0..count) {
        // The size follows from the seed, so that the seed is the whole story.
        let (places, names, limits) = SIZES[seed as usize % SIZES.len()];
        let page = if seed.is_multiple_of(2) { 1 } else { 1000 };
        let limits = Limits { page, ..limits };
        let scope = Scope {
            places,
            names,
            server: false,
            locks: if seed.is_multiple_of(3) { 0 } else { 650 },
            sessions: if seed % 5 < 2 { 0 } else { 120 },
            meetings: if seed % 11 < 4 { 300 } else { 0 },
            quiet: if seed % 7 < 2 { PER_WORLD / 2 } else { 0 },
            around: Around {
                rights: if seed % 5 < 3 { 0 } else { 30 },
                ..Around::default()
            },
        };
        let left = steps - n * PER_WORLD;
        let totals = random_world(
            seed,
            scope,
            limits,
            left.min(PER_WORLD),
            check_every,
            Close::Finished,
        );
        all = all.plus(&totals);
    }
    println!("{steps} steps, in which came about {all:?}");
    if steps >= 50_000 {
        all.check_floors(steps as u64, &FLOORS);
    }
}

/// Worlds in which nothing happens prove nothing.
const FLOORS: [Floor; 19] = [
    ("handoffs", |all| all.handoffs, 600),
    ("lost", |all| all.lost, 1_000),
    ("died", |all| all.reasons[DIED], 300),
    ("deadlocks refused", |all| all.deadlocks_refused, 200),
    ("timeouts", |all| all.timeouts, 150),
    ("quarantined", |all| all.quarantined, 100),
    ("re-entries", |all| all.reentries, 40),
    ("cancels", |all| all.cancels, 40),
    ("raises", |all| all.raises, 60),
    ("acknowledged", |all| all.acknowledged, 60),
    ("withdrawn", |all| all.withdrawn, 60),
    ("too few replicas", |all| all.unacked, 60),
    ("resumed", |all| all.resumed, 50),
    ("moved", |all| all.moved, 50),
    ("graces over", |all| all.graces_over, 30),
    ("loads", |all| all.loads, 80),
    ("waits lost", |all| all.waits_lost, 20),
    ("pages", |all| all.pages, 100),
    ("sights", |all| all.sights, 1_000),
];

#[test]
fn the_engine_does_what_the_model_says() {
    worlds(random::seed(), random::steps(100_000), 7);
}

#[test]
#[ignore = "ten million steps; for release builds"]
fn the_engine_does_what_the_model_says_for_long() {
    let seed = random::from_environment("TETHER_SEED").unwrap_or(1_000_000);
    worlds(seed, random::steps(10_000_000), 50);
}

/// Many short ones: which keys there are at that moment, and who waits for what, makes the difference.
#[test]
fn nobody_waits_at_a_server_that_has_become_a_replica() {
    const STEPS: usize = 100;
    const WORLDS: u64 = 1_000;
    let first = random::seed();
    for seed in first..first + WORLDS {
        let scope = Scope {
            places: 6,
            names: 4,
            locks: 650,
            sessions: 120,
            ..Scope::default()
        };
        let redirect = seed % 2 == 0;
        let close = Close::Demoted { redirect };
        random_world(seed, scope, Limits::ROOMY, STEPS, STEPS, close);
    }
}

/// Short ones, in which most of what happens is about temporary keys and watches of their prefixes, and rights and sessions come and
/// go. In the end all leave, or a slot moves, or the server becomes a replica.
fn prefixes(first: u64, worlds: u64) {
    const STEPS: usize = 40;
    let mut all = Totals::default();
    for seed in first..first + worlds {
        let scope = Scope {
            places: 4,
            names: 4,
            sessions: 100,
            around: Around {
                rights: if seed % 2 == 0 { 0 } else { 40 },
                prefixes: 200,
                ..Around::default()
            },
            ..Scope::default()
        };
        let close = match seed % 5 {
            0 => Close::Finished,
            1 => Close::Demoted { redirect: true },
            at => Close::Moved {
                prefix: (at as usize - 2) % PREFIXES.len(),
            },
        };
        let limits = Limits {
            page: if seed % 3 == 0 { 1 } else { 1000 },
            ..Limits::ROOMY
        };
        all = all.plus(&random_world(seed, scope, limits, STEPS, STEPS, close));
    }
    println!("{worlds} histories, in which came about {all:?}");
    all.check_floors(
        worlds,
        &[
            ("pages", |all| all.pages, 50_000),
            ("sights", |all| all.sights, 200_000),
        ],
    );
}

#[test]
fn who_watches_prefixes_knows_what_is_so_until_told_that_it_is_over() {
    prefixes(random::seed(), 2_000);
}

#[test]
#[ignore = "half a million histories; for release builds"]
fn who_watches_prefixes_knows_what_is_so_in_half_a_million_histories() {
    prefixes(random::seed(), 500_000);
}

/// By itself, for another processor.
#[test]
#[ignore = "half a million histories; for release builds"]
fn who_watches_prefixes_knows_what_is_so_in_half_a_million_other_histories() {
    prefixes(random::seed() + 500_000, 500_000);
}
