//! The time, on a clock that never goes back, and on one that says which year it is.
//!
//! To ask a clock for the exact time keeps a processor waiting for longer than many a command takes. The kernel also
//! keeps the time of its own last tick, which is had for the price of reading it.

use crate::engine::Moment;
use libc::{CLOCK_MONOTONIC, clockid_t, timespec};
use std::time::{Duration, Instant, UNIX_EPOCH};

/// The same clock, as it stood at the kernel's last tick: up to ten milliseconds ago. Where there is none, the exact one.
#[cfg(target_os = "linux")]
const LATE: clockid_t = libc::CLOCK_MONOTONIC_COARSE;
#[cfg(not(target_os = "linux"))]
const LATE: clockid_t = CLOCK_MONOTONIC;

/// The exact time.
pub fn now() -> Moment {
    read(CLOCK_MONOTONIC)
}

/// A time that was exact within the last ten milliseconds. Costs a quarter of [`now`].
pub fn coarse_now() -> Moment {
    read(LATE)
}

/// The time since 1970, as the wall clock has it; before that it was 0.
pub fn since_1970() -> Duration {
    UNIX_EPOCH.elapsed().unwrap_or_default()
}

fn read(clock: clockid_t) -> Moment {
    let mut time = timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the kernel fills in what we own. It knows these clocks; would it not, time would stand still.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    Moment(time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_late_time_lags_a_little_and_is_never_ahead() {
        let (before, late, after) = (now(), coarse_now(), now());
        assert!(late <= after);
        assert!(before.ms_since(late) <= 10, "{before:?} {late:?}");
    }
}

/// The time that is left for work that can be deferred.
#[derive(Clone, Copy)]
pub struct Slice(Instant);

impl Slice {
    /// How long such work may keep the server from its clients. With the pushes that it causes that comes to a
    /// millisecond, and a client whose command comes right after one slice began waits for that and the next.
    const LENGTH: Duration = Duration::from_micros(750);

    pub fn begin() -> Self {
        Slice(Instant::now())
    }

    /// The other half is for what writes.
    pub fn is_half_over(self) -> bool {
        self.0.elapsed() >= Self::LENGTH / 2
    }

    pub fn is_over(self) -> bool {
        self.0.elapsed() >= Self::LENGTH
    }
}
