//! Waiting: always with a deadline, and with the last observation in the message when it passes.

use super::client::Client;
use crate::resp::int;
use std::env;
use std::fmt::Debug;
use std::io::Write;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a test waits for something that ought to happen soon: a minute, or as many seconds as `TETHER_PATIENCE` says, where
/// the servers themselves are slow. A busy machine needs some of it (a second of a server's work takes twenty where ten others
/// want the same processor), and only a test that fails needs all.
pub fn patience() -> Duration {
    static SECONDS: LazyLock<u64> = LazyLock::new(|| match env::var("TETHER_PATIENCE") {
        Ok(seconds) => seconds.parse().expect("TETHER_PATIENCE: whole seconds"),
        Err(_) => 60,
    });
    Duration::from_secs(*SECONDS)
}

/// The shortest and the longest time between two looks at what is waited for.
const BETWEEN_LOOKS: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(20));

/// Looks again and again until `look` has an answer; an `Err` is what it saw instead.
pub fn eventually<T>(what: &str, look: impl FnMut() -> Result<T, String>) -> T {
    eventually_within(patience(), what, look)
}

pub fn eventually_within<T>(
    patience: Duration,
    what: &str,
    mut look: impl FnMut() -> Result<T, String>,
) -> T {
    let begin = Instant::now();
    loop {
        match look() {
            Ok(answer) => return answer,
            Err(seen) if begin.elapsed() > patience => {
                panic!("{what}: not within {patience:?}; last seen: {seen}")
            }
            // What takes long is looked at less often: looks are work for its server too.
            Err(_) => sleep((begin.elapsed() / 20).clamp(BETWEEN_LOOKS.0, BETWEEN_LOOKS.1)),
        }
    }
}

pub fn eventually_equal<T: PartialEq + Debug>(
    what: &str,
    expected: T,
    mut look: impl FnMut() -> T,
) {
    eventually(what, || {
        let seen = look();
        if seen == expected {
            Ok(())
        } else {
            Err(format!("{seen:?} instead of {expected:?}"))
        }
    });
}

/// Gives `key` a time to live, which passes while nobody looks: with DEBUG SET-ACTIVE-EXPIRE 0 the key has lapsed unnoticed.
///
/// Of one millisecond, Redis 7.0 would now and then say that it is over at once (1 of 5,000), and delete the key.
pub fn lapse(client: &mut Client, key: &str) {
    assert_eq!(client.call(["PEXPIRE", key, "10"]), int(1), "{key}");
    client.run("DEBUG SLEEP 0.015");
}

/// For what must be done while a time runs that a server counts: `work` gets it in milliseconds, and says None where it was
/// over too soon, since the machine was busy. Then it begins anew with a longer one, at last with half of what tests wait for.
pub fn in_time<T>(work: impl FnMut(u64) -> Option<T>) -> T {
    let longest = patience().as_millis() as u64 / 2;
    let done = [300, 3_000, longest].into_iter().find_map(work);
    done.unwrap_or_else(|| panic!("{longest} ms were too short"))
}

/// For the tests that keep the whole machine busy, or that measure: no two of them run at once.
pub fn one_at_a_time() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Prints a line that is seen even when the test passes (the test runner swallows what `println!` says).
pub fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "{line}");
}
