//! The cursor of the TTL backstop's refresh. See `rules/renewals.rs`.

use crate::engine::limits::SLOTS_PER_RENEWAL;
use crate::engine::types::Moment;

/// Invariant: a pass runs from the first grant of a temporary key until a pass finds none; never on a replica.
#[derive(Default)]
pub(in crate::engine) struct Renewals {
    /// 0: off.
    pub backstop_ms: u64,
    pub pass: Option<Pass>,
}

/// One pass over all slots of holds that existed when it began.
pub(in crate::engine) struct Pass {
    began: Moment,
    length_us: u64,
    pub next: usize,
    pub slots: usize,
    /// Refreshes every key, whatever its remaining TTL.
    pub whole: bool,
}

impl Pass {
    /// When the next batch of slots is due.
    fn deadline(&self) -> Moment {
        let goal = (self.next + SLOTS_PER_RENEWAL).min(self.slots);
        let (goal, slots) = (goal as u128, self.slots.max(1) as u128);
        let share = (u128::from(self.length_us) * goal).div_ceil(slots);
        Moment(self.began.0.saturating_add(share as u64))
    }

    /// The slot that this pass should have reached by now.
    pub fn due(&self, now: Moment) -> usize {
        let elapsed = u128::from(now.us_since(self.began));
        if elapsed >= u128::from(self.length_us) {
            return self.slots;
        }
        (self.slots as u128 * elapsed / u128::from(self.length_us)) as usize
    }
}

impl Renewals {
    /// When the next refresh is due. O(1).
    pub fn deadline(&self) -> Option<Moment> {
        self.pass.as_ref().map(Pass::deadline)
    }

    fn pass_length_us(&self) -> u64 {
        self.backstop_ms.saturating_mul(1000) / 6
    }

    /// Begins a pass, unless one is running.
    pub fn begin(&mut self, now: Moment, slots: usize) {
        if self.backstop_ms > 0 && self.pass.is_none() {
            self.pass = Some(Pass {
                began: now,
                length_us: self.pass_length_us(),
                next: 0,
                slots,
                whole: false,
            });
        }
    }

    /// Begins a pass that is due at once and refreshes every key.
    pub fn begin_whole(&mut self, now: Moment, slots: usize) {
        self.pass = Some(Pass {
            began: now,
            length_us: 0,
            next: 0,
            slots,
            whole: true,
        });
    }

    /// Begins the next pass; due at once if the server was stopped for longer than a pass.
    pub fn begin_next(&mut self, now: Moment, slots: usize) {
        let Some(previous) = self.pass.take() else {
            return;
        };
        let length_us = self.pass_length_us();
        let on_time = Moment(previous.began.0.saturating_add(previous.length_us));
        let earliest = Moment(now.0.saturating_sub(length_us));
        self.begin(on_time.max(earliest), slots);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slots_of_a_pass_are_due_evenly() {
        let at = |ms: u64| Moment(ms * 1000);
        let mut renewals = Renewals {
            backstop_ms: 6_000,
            pass: None,
        };
        renewals.begin(at(10), 400);
        let pass = renewals.pass.expect("a pass");
        let due = [10, 11, 260, 510, 1_009, 1_010, 5_000].map(|ms| pass.due(at(ms)));
        assert_eq!(due, [0, 0, 100, 200, 399, 400, 400]);
    }
}
