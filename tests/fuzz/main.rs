//! Whatever clients may say, at random, to real servers: every command of the module with sensible and senseless arguments
//! among those of the server, transactions, scripts, subscriptions, both protocols, `CLIENT REPLY`, users that come and go,
//! kills, loads, broken bytes; with I/O threads.
//!
//! There is no model here. What must hold whatever is said (`storm.rs`): the server lives, the module has no fault, each
//! connection gets whole frames, and as many replies as it sent commands; and when everyone has gone, nothing of theirs is left.
//! Fuzzers that follow the code's branches are in `fuzz/`.
//!
//! `make fuzz` runs them; `TETHER_SEED` and `TETHER_STEPS` choose other storms. A failure prints the seed, and what was said last
//! where it failed. What happens when follows the clock as well, so that a storm is not quite the same the next time.

mod line;
mod presence;
mod settings;
mod spoken;
mod storm;
mod words;

use harness::say;
use std::time::{SystemTime, UNIX_EPOCH};
use tether_testing::{harness, random};

#[test]
#[ignore = "a million times something; some minutes"]
fn a_server_stands_whatever_is_said() {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH);
    let clock = clock.expect("a clock after 1970").as_secs();
    let seed = random::from_environment("TETHER_SEED").unwrap_or(clock);
    say(&format!("TETHER_SEED={seed}"));
    storm::storms(seed, random::steps(1_000_000));
}
