//! ACL epochs: which waiters' rights must be checked before they are served. See [`rights`](crate::engine::rules::rights).

use crate::engine::state::rows::AclEpoch;

/// Invariant: `outdated` counts the waiters whose epoch is not the current one.
#[derive(Default)]
pub(super) struct AclEpochs {
    current: AclEpoch,
    pub(super) outdated: usize,
}

impl AclEpochs {
    /// The epoch of a new waiter.
    pub fn current(&self) -> AclEpoch {
        self.current
    }

    pub fn is_outdated(&self, epoch: AclEpoch) -> bool {
        epoch != self.current
    }

    /// The ACL changed while this many requests wait.
    pub fn begin(&mut self, waiters: usize) {
        self.current = AclEpoch(self.current.0.wrapping_add(1));
        self.outdated = waiters;
    }

    /// A waiter of this epoch was removed or checked.
    pub fn forget(&mut self, epoch: AclEpoch) {
        self.outdated -= usize::from(self.is_outdated(epoch));
    }
}
