//! How long the lock is waited for, and how soon it is asked for again where no server answers.

use std::time::Duration;
use tether_client::BootTime;

/// Between two attempts, at first; it doubles with each.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Patience {
    /// Neither for the lock nor for a server.
    None,
    Until(Duration),
    ForEver,
}

/// The attempts to get one lock.
pub struct Attempts {
    deadline: Option<BootTime>,
    failed: u32,
}

impl Attempts {
    pub fn begin(patience: Patience) -> Attempts {
        let wait = match patience {
            Patience::None => Some(Duration::ZERO),
            Patience::Until(wait) => Some(wait),
            Patience::ForEver => None,
        };
        Attempts {
            deadline: wait.map(|wait| BootTime::now() + wait),
            failed: 0,
        }
    }

    /// What is left of the time to wait, and not nothing, which a server would take for ever; None is for ever.
    pub fn left(&self) -> Option<Duration> {
        let left = self.deadline?.since(BootTime::now());
        Some(left.max(Duration::from_millis(1)))
    }

    /// How long to pause before the next attempt; None if the time is over.
    pub fn pause(&mut self) -> Option<Duration> {
        let now = BootTime::now();
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            return None;
        }
        let pause = pause(self.failed, now.0);
        self.failed = self.failed.saturating_add(1);
        Some(self.left().map_or(pause, |left| left.min(pause)))
    }
}

/// Between half of the time and all of it, by chance: many that lost one server do not come back in step.
fn pause(failed: u32, chance: u64) -> Duration {
    let whole = SHORTEST_PAUSE * 2_u32.pow(failed.min(10));
    let half = whole.min(LONGEST_PAUSE) / 2;
    // The clock's last digits differ between processes.
    let part = u32::try_from(chance / 1000 % 1000).unwrap_or(0);
    half + half * part / 1000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound() {
        let ms = Duration::from_millis;
        assert_eq!(pause(0, 0), ms(25));
        assert!(pause(0, 999_000) < ms(50));
        assert_eq!(pause(3, 500_000), ms(300));
        for failed in [20, u32::MAX] {
            assert_eq!(pause(failed, 0), ms(1000));
            assert!(pause(failed, u64::MAX) < ms(2000));
        }
    }

    #[test]
    fn no_patience_is_one_attempt() {
        assert_eq!(Attempts::begin(Patience::None).pause(), None);
        let mut attempts = Attempts::begin(Patience::ForEver);
        assert!(attempts.pause().is_some() && attempts.pause().is_some());
        assert_eq!(attempts.left(), None);
    }
}
