//! Of whom in the queues it is not known whether their rights are still there. See [`rights`](crate::engine::rules::rights).

use crate::engine::state::rows::Stamp;

/// Invariant: as many waiters are in doubt as have another stamp than the last.
#[derive(Default)]
pub(super) struct Doubts {
    last: Stamp,
    pub(super) count: usize,
}

impl Doubts {
    /// The stamp of who asks now.
    pub fn stamp(&self) -> Stamp {
        self.last
    }

    pub fn is_doubted(&self, stamp: Stamp) -> bool {
        stamp != self.last
    }

    /// Nothing is known any more of so many who wait.
    pub fn begin(&mut self, waiters: usize) {
        self.last = Stamp(self.last.0.wrapping_add(1));
        self.count = waiters;
    }

    /// One with this stamp waits no longer, or is known.
    pub fn settle(&mut self, stamp: Stamp) {
        self.count -= usize::from(self.is_doubted(stamp));
    }
}
