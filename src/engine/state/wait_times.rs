//! How long grants were waited for.

use hdrhistogram::Histogram;

/// The times from request to grant, in microseconds, of those that had to wait.
pub(in crate::engine) struct WaitTimes(Histogram<u64>);

impl Default for WaitTimes {
    fn default() -> Self {
        // Two digits are enough to tell 1 ms from 1 s, and cost 30 KB; a day is long for a lock.
        const DAY_US: u64 = 24 * 3600 * 1_000_000;
        WaitTimes(Histogram::new_with_max(DAY_US, 2).expect("these bounds are valid"))
    }
}

impl WaitTimes {
    /// O(1).
    pub fn note(&mut self, wait_us: u64) {
        self.0.saturating_record(wait_us);
    }

    /// The time within which this share of the grants came; 0 before the first.
    pub fn quantile(&self, share: f64) -> u64 {
        self.0.value_at_quantile(share)
    }
}
