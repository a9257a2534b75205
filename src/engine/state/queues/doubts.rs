//! Of whom in the queues it is not known whether their rights are still there. See [`rights`](crate::engine::rules::rights).

use crate::engine::state::queues::{Queues, Waiter};
use crate::engine::storage::arena::Id;

/// Of how many changes a waiter's rights are known.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Stamp(u32);

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

impl Queues {
    pub fn has_doubts(&self) -> bool {
        self.doubts.count > 0
    }

    /// Whether a waiter's rights are to be looked at before it is served.
    pub fn is_doubted(&self, id: Id<Waiter>) -> bool {
        self.doubts.is_doubted(self.waiters[id].rights)
    }

    /// From now on everybody's are.
    pub fn doubt_all(&mut self) {
        self.doubts.begin(self.waiters.len());
    }

    /// They were looked at, and are there.
    pub fn trust(&mut self, id: Id<Waiter>) {
        let rights = &mut self.waiters[id].rights;
        let former = std::mem::replace(rights, self.doubts.stamp());
        self.doubts.settle(former);
    }
}
