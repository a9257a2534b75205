//! Three real servers and three clients, each in a network namespace of its own, in random trouble while the clients hold and
//! wait for one lock. No two clients believe that they hold the lock, tokens rise, and every wait ends within the bound.
//!
//! - stage.rs: servers, clients and the cables between them     client.rs: the process that is a client
//! - harm.rs: what happens to them
//!
//! A failure prints its seed; `TETHER_SEED` chooses another, `TETHER_STEPS` how many faults.

mod client;
mod harm;
mod stage;

use stage::Stage;
use std::time::Duration;
use tether_testing::harness::namespace::Cable;
use tether_testing::harness::say;
use tether_testing::random::{seed, steps};

/// The quarantine is as long.
const GRACE: Duration = Duration::from_secs(2);
const SERVERS: usize = 3;
const CLIENTS: usize = 3;

/// The stage, once each client has had the lock on it. None, said aloud, where there are no namespaces.
fn stage(overstay: Duration) -> Option<Stage> {
    if let Some(reason) = Cable::impossible_here() {
        say(&format!("faults of a quorum: SKIPPED: {reason}"));
        return None;
    }
    let seed = seed();
    say(&format!("TETHER_SEED={seed}"));
    let mut stage = Stage::set(seed, overstay);
    stage.everyone_gets_it();
    Some(stage)
}

fn trouble(faults: usize) {
    let Some(mut stage) = stage(Duration::ZERO) else {
        return;
    };
    for fault in 1..=faults {
        stage.fail();
        if fault % 10 == 0 || fault == faults {
            stage.everyone_gets_it();
        }
    }
    stage.end();
    let report = stage.report();
    say(&format!("{faults} faults: {report}"));
    let found = (report.overlaps, report.token_falls);
    assert_eq!(found, (0, 0), "TETHER_SEED={}: {report}", seed());
}

#[test]
fn faults_let_nobody_hold_the_lock_twice_and_nobody_wait_for_ever() {
    trouble(steps(8));
}

#[test]
#[ignore = "takes twenty minutes"]
fn the_same_with_five_hundred_faults() {
    assert_eq!(Cable::impossible_here(), None, "asked for by name");
    trouble(steps(500));
}

/// So the test above would see it.
#[test]
fn clients_that_go_on_after_their_time_are_seen_to_overlap() {
    let Some(mut stage) = stage(GRACE * 3) else {
        return;
    };
    let found = (1..=40).find(|_| {
        stage.fail();
        stage.report().overlaps > 0
    });
    let faults = found.expect("an overlap");
    say(&format!("an overlap after {faults} faults"));
}
