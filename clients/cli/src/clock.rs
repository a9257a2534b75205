//! Moments on the clock that goes on while the machine is suspended (CLOCK_BOOTTIME), the same for all its processes.

use std::ops::Add;
use std::time::Duration;

/// Nanoseconds since the machine started.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct BootTime(pub u64);

impl BootTime {
    /// Later than all that will come.
    pub const NEVER: BootTime = BootTime(u64::MAX);

    #[cfg(target_os = "linux")]
    pub fn now() -> BootTime {
        use rustix::time::{ClockId, clock_gettime};
        let now = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        let nanoseconds = u64::try_from(now.tv_nsec).unwrap_or(0);
        BootTime(seconds * 1_000_000_000 + nanoseconds)
    }
}

impl Add<Duration> for BootTime {
    type Output = BootTime;

    fn add(self, time: Duration) -> BootTime {
        let nanoseconds = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        BootTime(self.0.saturating_add(nanoseconds))
    }
}
