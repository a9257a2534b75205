//! Faults around `tether run` and programs of the Python client, in network namespaces: whatever happens to the holder, its work is
//! dead before the next grant.
//!
//! - fault.rs: what happens    lane.rs: to whom
//!
//! The long form (`make campaign`) is for a quiet machine and some minutes: TETHER_STEPS says how many faults with short
//! settings (900), and a ninth as many each come with the defaults, without the fence, and to programs of the Python client, if
//! TETHER_PYTHON names a Python that has it. TETHER_SEED makes other ones.

#![cfg(target_os = "linux")]

mod fault;
mod lane;

use fault::{FAULTS, Fault, WORKS};
use lane::{Holder, Lane, Outcome, Times, python_path};
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use tether_testing::harness::namespace::Cable;
use tether_testing::random::{Random, seed, steps};

const LANES: usize = 16;

const fn ms(number: u64) -> Duration {
    Duration::from_millis(number)
}

const SHORT: Times = Times {
    grace: ms(2200),
    kill_after: ms(500),
    fence: ms(700),
    peer_timeout: ms(2000),
};

const DEFAULTS: Times = Times {
    grace: ms(10_000),
    kill_after: ms(5000),
    fence: ms(4000),
    peer_timeout: ms(10_000),
};

#[derive(Default)]
struct Count {
    faults: usize,
    led_to_grant: usize,
    overlaps: usize,
    smallest_margin: Option<Duration>,
}

impl Count {
    fn add(&mut self, outcome: &Outcome) {
        self.faults += 1;
        self.led_to_grant += usize::from(outcome.led_to_grant);
        match outcome.margin {
            Some(margin) => {
                let least = self
                    .smallest_margin
                    .map_or(margin, |least| least.min(margin));
                self.smallest_margin = Some(least);
            }
            None => self.overlaps += 1,
        }
    }
}

/// So many faults on all lanes at once, each kind as often as the others. The number of overlaps.
fn campaign(what: &str, faults: usize, times: Times, holder: Holder) -> usize {
    let kinds: Vec<Fault> = FAULTS
        .into_iter()
        .filter(|fault| fault.is_for(holder))
        .collect();
    let next = AtomicUsize::new(0);
    let counts: Mutex<BTreeMap<Fault, Count>> = Mutex::default();
    thread::scope(|scope| {
        for _ in 0..LANES.min(faults) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= faults {
                        return;
                    }
                    let mut random = Random::new(seed().wrapping_mul(1_000_003) + at as u64);
                    let fault = kinds[at % kinds.len()];
                    let work = random.pick(&WORKS);
                    let outcome = Lane::play(fault, work, times, holder, &mut random);
                    if holder != Holder::Unfenced && outcome.margin.is_none() {
                        println!("overlap: fault {at}, {fault:?}, work that {}", work.0);
                    }
                    let mut counts = counts.lock().unwrap();
                    counts.entry(fault).or_default().add(&outcome);
                }
            });
        }
    });
    let counts = counts.into_inner().unwrap();
    let total = |field: fn(&Count) -> usize| counts.values().map(field).sum::<usize>();
    let (led, overlaps) = (
        total(|count| count.led_to_grant),
        total(|count| count.overlaps),
    );
    println!(
        "{what}: {faults} faults, {led} led to the next grant by themselves, {overlaps} overlaps"
    );
    for (fault, count) in &counts {
        println!(
            "  {fault:?}: {}, {} led to a grant, {} overlaps, least margin {:?}",
            count.faults, count.led_to_grant, count.overlaps, count.smallest_margin
        );
    }
    overlaps
}

/// Says why, where it is not. The long tests do not ask: they fail.
fn is_possible_here() -> bool {
    let reason = Cable::impossible_here();
    if let Some(reason) = &reason {
        println!("skipped: {reason}");
    }
    reason.is_none()
}

#[test]
fn whatever_happens_the_work_is_dead_before_the_next_grant() {
    if is_possible_here() {
        let faults = FAULTS.len() * 2;
        assert_eq!(campaign("short settings", faults, SHORT, Holder::Tether), 0);
    }
}

#[test]
fn without_the_fence_there_would_be_two_at_work() {
    if is_possible_here() {
        let faults = FAULTS.len();
        assert!(campaign("without the fence", faults, SHORT, Holder::Unfenced) > 3);
    }
}

#[test]
#[ignore = "minutes: make campaign"]
fn many_faults_with_short_settings() {
    let faults = steps(900);
    assert_eq!(campaign("short settings", faults, SHORT, Holder::Tether), 0);
}

#[test]
#[ignore = "minutes: make campaign"]
fn some_faults_with_the_defaults() {
    let faults = steps(900) / 9;
    assert_eq!(campaign("defaults", faults, DEFAULTS, Holder::Tether), 0);
}

#[test]
#[ignore = "minutes: make campaign"]
fn some_faults_to_programs_of_the_python_client() {
    if python_path().is_none() {
        println!("skipped: TETHER_PYTHON names no Python that has the package");
    } else {
        let faults = steps(900) / 9;
        assert_eq!(campaign("Python", faults, SHORT, Holder::Python), 0);
    }
}

#[test]
#[ignore = "minutes: make campaign"]
fn some_faults_without_the_fence() {
    let faults = steps(900) / 9;
    let overlaps = campaign("without the fence", faults, SHORT, Holder::Unfenced);
    assert!(overlaps > faults / 2, "{overlaps}");
}
