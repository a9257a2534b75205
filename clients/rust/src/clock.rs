//! The clocks, and moments on the one that goes on while the machine is suspended.

use crate::core::{BootClock, Now};
use rustix::time::{ClockId, clock_gettime};
use std::ops::Add;
use std::time::Duration;

/// Where CLOCK_MONOTONIC goes on during sleep, it is both.
#[cfg(any(target_os = "linux", target_os = "android"))]
const BOOT: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const BOOT: ClockId = ClockId::Monotonic;

/// Which clock this system has that runs on in suspend.
pub const BOOT_CLOCK: BootClock = match cfg!(any(
    target_os = "linux",
    target_os = "android",
    target_vendor = "apple"
)) {
    true => BootClock::Exact,
    false => BootClock::Missing,
};

/// Both clocks, the one that runs on in suspend first: if this is interrupted between the two, it does not look as if the machine had
/// been suspended.
pub fn now() -> Now {
    let boot = read(BOOT);
    let mono = read(ClockId::Monotonic);
    Now { mono, boot }
}

fn read(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or(0);
    Duration::new(seconds, nanoseconds)
}

/// Nanoseconds since some moment before the machine started, on a clock that goes on while it is suspended (Linux:
/// CLOCK_BOOTTIME); the same for all its processes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct BootTime(pub u64);

impl BootTime {
    /// Later than all that will come.
    #[cfg(feature = "internals")]
    pub const NEVER: BootTime = BootTime(u64::MAX);

    /// This moment. O(1), without a system call where the kernel allows.
    pub fn now() -> BootTime {
        BootTime(0) + read(BOOT)
    }

    /// How long it is from an earlier moment to this one; nothing if that is later.
    #[cfg(any(feature = "internals", feature = "quorum"))]
    pub fn since(self, earlier: BootTime) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for BootTime {
    type Output = BootTime;

    fn add(self, time: Duration) -> BootTime {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        BootTime(self.0.saturating_add(nanoseconds))
    }
}
