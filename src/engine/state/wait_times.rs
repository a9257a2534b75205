//! A histogram of waiting times.

use hdrhistogram::Histogram;

/// The times from request to grant, in microseconds, of requests that had to wait.
pub(in crate::engine) struct WaitTimes(Histogram<u64>);

impl Default for WaitTimes {
    fn default() -> Self {
        // Two significant digits cost 30 KB. Longer waits count as a day.
        const DAY_US: u64 = 24 * 3600 * 1_000_000;
        WaitTimes(Histogram::new_with_max(DAY_US, 2).expect("these bounds are valid"))
    }
}

impl WaitTimes {
    /// O(1).
    pub fn record(&mut self, wait_us: u64) {
        self.0.saturating_record(wait_us);
    }

    /// 0 before the first grant.
    pub fn quantile(&self, share: f64) -> u64 {
        self.0.value_at_quantile(share)
    }
}
