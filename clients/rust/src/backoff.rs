//! How long to wait before something is tried again: a connection, or what the server refused for a moment.

use std::time::Duration;

/// Before the first retry, at most.
const FIRST: Duration = Duration::from_millis(20);

/// Before any retry, at most.
pub const LONGEST: Duration = Duration::from_secs(1);

/// After so many attempts that failed: a random time between half and all of `FIRST` doubled as often, of `longest` at most. So
/// a server that comes back is found soon, one that is away costs little, and many clients do not come all at once.
pub fn delay(failed: u32, random: u64, longest: Duration) -> Duration {
    let whole = FIRST.saturating_mul(1 << failed.min(16)).min(longest);
    // 10 bits of a number whose low bits are enough to be random.
    let part = random.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54;
    whole / 2 + (whole / 2).mul_f64(part as f64 / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_doubles_up_to_its_bound_and_differs() {
        for failed in 0..40 {
            let whole = FIRST.saturating_mul(1 << failed.min(16)).min(LONGEST);
            let delays: Vec<_> = (0..100).map(|r| delay(failed, r, LONGEST)).collect();
            assert!(delays.iter().all(|d| (whole / 2..=whole).contains(d)));
            assert!(delays.iter().any(|d| *d != delays[0]));
        }
        let short = Duration::from_millis(5);
        assert!(delay(40, u64::MAX, short) <= short);
    }
}
