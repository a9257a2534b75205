//! Whether the owner of a hold is to be told when it loses it.

use crate::engine::state::holds::Holds;
use crate::engine::state::rows::Hold;
use crate::engine::storage::arena::Id;

impl Holds {
    /// Whether that was asked for. O(1).
    pub fn is_notified(&self, id: Id<Hold>) -> bool {
        self.all[id].header.attributes().notify
    }

    /// Its key goes by another name from now on. What nobody is told of needs no note. O(1).
    pub fn rename(&mut self, id: Id<Hold>) {
        if self.is_notified(id) {
            self.extra_mut(id).renamed = true;
        }
    }

    /// Whether the key of a hold that is told of has come to go by another name since it was granted. O(1).
    pub fn is_renamed(&self, id: Id<Hold>) -> bool {
        self.extra(id).is_some_and(|extra| extra.renamed)
    }

    /// It is not to be told any more. O(1).
    pub fn forget_notify(&mut self, id: Id<Hold>) {
        self.all[id].header.set_notify(false);
    }

    /// It was asked for with a request that made the hold deeper, in this attachment of its session. O(1).
    pub fn notify_in(&mut self, id: Id<Hold>, attachment: u32) {
        self.all[id].header.set_notify(true);
        self.extra_mut(id).asked_in = attachment;
    }

    /// The attachment in which that was last so, or 0. O(1).
    pub fn notified_in(&self, id: Id<Hold>) -> u32 {
        self.extra(id).map_or(0, |extra| extra.asked_in)
    }
}
