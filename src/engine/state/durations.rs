//! A histogram of durations, as Prometheus has them.

/// The upper bounds of the buckets, in microseconds: 1 ms to 1 day. Longer durations count in one more bucket.
const BOUNDS_US: [u64; 19] = [
    MS,
    5 * MS,
    10 * MS,
    50 * MS,
    100 * MS,
    500 * MS,
    SECOND,
    5 * SECOND,
    10 * SECOND,
    30 * SECOND,
    MINUTE,
    5 * MINUTE,
    10 * MINUTE,
    30 * MINUTE,
    HOUR,
    3 * HOUR,
    6 * HOUR,
    12 * HOUR,
    24 * HOUR,
];

const MS: u64 = 1000;
const SECOND: u64 = 1000 * MS;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

#[derive(Clone, Copy, Debug, Default)]
pub struct Durations {
    /// Not cumulative.
    buckets: [u64; BOUNDS_US.len() + 1],
    sum_us: u64,
}

impl Durations {
    /// Not inlined: three places call it.
    #[inline(never)]
    pub(in crate::engine) fn record(&mut self, us: u64) {
        let bucket = BOUNDS_US.partition_point(|bound| *bound < us);
        self.buckets[bucket] += 1;
        // A million locks held for a year each exceed it.
        self.sum_us = self.sum_us.saturating_add(us);
    }

    /// For each bucket its upper bound, and how many durations are not longer. The last has no bound: it counts all.
    pub fn cumulative(&self) -> impl Iterator<Item = (Option<u64>, u64)> {
        let bounds = BOUNDS_US.iter().map(|bound| Some(*bound)).chain([None]);
        let mut sum = 0;
        bounds.zip(self.buckets).map(move |(bound, count)| {
            sum += count;
            (bound, sum)
        })
    }

    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    pub fn sum_us(&self) -> u64 {
        self.sum_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_in_each_bucket_that_is_not_shorter() {
        let mut durations = Durations::default();
        for us in [0, MS, MS + 1, 4 * SECOND, 24 * HOUR, 24 * HOUR + 1] {
            durations.record(us);
        }
        let counts: Vec<_> = durations.cumulative().collect();
        assert_eq!(
            counts[..3],
            [(Some(MS), 2), (Some(5 * MS), 3), (Some(10 * MS), 3)]
        );
        assert_eq!(counts[7], (Some(5 * SECOND), 4));
        assert_eq!(counts[18..], [(Some(24 * HOUR), 5), (None, 6)]);
        assert_eq!(durations.count(), 6);
        assert_eq!(durations.sum_us(), 48 * HOUR + 4 * SECOND + 2 * MS + 2);
        // As they are told, so that a day is 86400.
        let milliseconds = BOUNDS_US.map(|bound| bound / 1000);
        let expected = [
            1, 5, 10, 50, 100, 500, 1_000, 5_000, 10_000, 30_000, 60_000, 300_000, 600_000,
            1_800_000, 3_600_000, 10_800_000, 21_600_000, 43_200_000, 86_400_000,
        ];
        assert_eq!(milliseconds, expected);
        assert!(BOUNDS_US.iter().all(|bound| bound % 1000 == 0));
    }

    #[test]
    fn a_sum_that_does_not_fit_stays_at_its_end() {
        let mut durations = Durations::default();
        durations.record(u64::MAX);
        durations.record(1);
        assert_eq!((durations.sum_us(), durations.count()), (u64::MAX, 2));
    }
}
