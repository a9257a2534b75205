//! Moments on a clock that goes on while the machine is suspended, the same for all its processes.

use rustix::time::{ClockId, clock_gettime};
use std::ops::Add;
use std::time::Duration;

/// Nanoseconds since some moment before the machine started. On Linux it is CLOCK_BOOTTIME; elsewhere CLOCK_MONOTONIC, which
/// on macOS goes on during sleep, too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct BootTime(pub u64);

impl BootTime {
    /// Later than all that will come.
    pub const NEVER: BootTime = BootTime(u64::MAX);

    /// This moment. O(1), without a system call where the kernel allows.
    pub fn now() -> BootTime {
        #[cfg(target_os = "linux")]
        let clock = ClockId::Boottime;
        #[cfg(not(target_os = "linux"))]
        let clock = ClockId::Monotonic;
        let now = clock_gettime(clock);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanoseconds = u64::try_from(now.tv_nsec).unwrap_or(0);
        BootTime(seconds * 1_000_000_000 + nanoseconds)
    }

    /// How long it is from an earlier moment to this one; nothing if that is later.
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
