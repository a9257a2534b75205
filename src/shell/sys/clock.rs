//! The monotonic clock and the wall clock.
//!
//! Reading the exact time stalls the processor for longer than some commands take. The kernel's coarse clock, the time of
//! its last tick, costs one memory read.

use crate::engine::Moment;
use libc::{CLOCK_MONOTONIC, clockid_t, timespec};
use std::time::{Duration, Instant, UNIX_EPOCH};

/// The monotonic clock as of the kernel's last tick, at most ten milliseconds ago. The exact clock on systems without one.
#[cfg(target_os = "linux")]
const COARSE_CLOCK: clockid_t = libc::CLOCK_MONOTONIC_COARSE;
#[cfg(not(target_os = "linux"))]
const COARSE_CLOCK: clockid_t = CLOCK_MONOTONIC;

/// The exact time.
pub fn now() -> Moment {
    read(CLOCK_MONOTONIC)
}

/// The time with a lag of at most ten milliseconds. Costs a quarter of [`now`].
pub fn coarse_now() -> Moment {
    read(COARSE_CLOCK)
}

/// The wall clock's time since 1970; 0 before that.
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

/// The time budget of deferrable work.
#[derive(Clone, Copy)]
pub struct Slice(Instant);

impl Slice {
    /// How long deferrable work may delay clients. With the pushes that it causes this makes a millisecond; a command that
    /// arrives right after a slice began waits for this one and the next.
    const DURATION: Duration = Duration::from_micros(750);

    pub fn begin() -> Self {
        Slice(Instant::now())
    }

    /// The second half is for writes.
    pub fn is_half_over(self) -> bool {
        self.0.elapsed() >= Self::DURATION / 2
    }

    pub fn is_over(self) -> bool {
        self.0.elapsed() >= Self::DURATION
    }
}
