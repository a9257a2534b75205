//! NOTIFY: whether a hold's owner asked for a push when it loses it.

use crate::engine::state::holds::Holds;
use crate::engine::state::rows::Hold;
use crate::engine::storage::arena::Id;

impl Holds {
    /// O(1).
    pub fn is_notified(&self, id: Id<Hold>) -> bool {
        self.all[id].header.attributes().notify
    }

    /// Notes that its key was renamed, for the push. O(1).
    pub fn rename(&mut self, id: Id<Hold>) {
        if self.is_notified(id) {
            self.extra_mut(id).renamed = true;
        }
    }

    /// Whether its key was renamed since the grant; known only with NOTIFY. O(1).
    pub fn is_renamed(&self, id: Id<Hold>) -> bool {
        self.extra(id).is_some_and(|extra| extra.renamed)
    }

    /// A re-entry in this attachment of its session asked for NOTIFY. O(1).
    pub fn set_notify_attachment(&mut self, id: Id<Hold>, attachment: u32) {
        self.all[id].header.set_notify();
        self.extra_mut(id).notify_attachment = attachment;
    }

    /// The attachment of the last such re-entry, or 0. O(1).
    pub fn notify_attachment(&self, id: Id<Hold>) -> u32 {
        self.extra(id).map_or(0, |extra| extra.notify_attachment)
    }
}
