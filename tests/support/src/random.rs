//! Numbers that follow from a seed and nothing else (SplitMix64).

use std::env;
use std::fmt::Debug;
use std::str::FromStr;

pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    #[allow(clippy::should_implement_trait)] // it has no end
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Below `limit`, which is not zero.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    /// True in so many of a thousand cases.
    pub fn per_mille(&mut self, cases: usize) -> bool {
        self.below(1000) < cases
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// One of these, each as often as its weight says.
    pub fn weighted<T: Copy>(&mut self, from: &[(usize, T)]) -> T {
        let total = from.iter().map(|(weight, _)| weight).sum();
        let mut at = self.below(total);
        for (weight, choice) in from {
            if at < *weight {
                return *choice;
            }
            at -= weight;
        }
        unreachable!("the weights add up to the total")
    }
}

/// `TETHER_SEED`, or a fixed seed: the same worlds on every machine.
pub fn seed() -> u64 {
    from_environment("TETHER_SEED").unwrap_or(1)
}

/// `TETHER_STEPS`, or as many as said.
pub fn steps(otherwise: usize) -> usize {
    from_environment("TETHER_STEPS").unwrap_or(otherwise)
}

pub fn from_environment<T: FromStr<Err: Debug>>(name: &str) -> Option<T> {
    let text = env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|error| panic!("{name}={text:?}: {error:?}")),
    )
}
