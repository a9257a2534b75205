//! ACL changes during a wait.
//!
//! The server checks a user's rights when the command is given; the ACL may change before the wait is served. So a waiter's rights
//! are checked when its turn has come, in the step that grants its keys. The engine knows no users: it asks.

use crate::engine::state::rows::Waiter;
use crate::engine::storage::arena::Id;
use crate::engine::tables::Engine;
use crate::engine::types::{LostRight, NoRight};

impl Engine {
    /// From now on this is asked about each waiter whose turn has come.
    pub fn check_rights_by(&mut self, lost_right: Box<LostRight>) {
        self.lost_right = Some(lost_right);
    }

    /// The right that a waiter's user has lost since it began to wait.
    pub(in crate::engine) fn lost_right(&self, waiter: Id<Waiter>) -> Option<NoRight> {
        let lost_right = self.lost_right.as_ref()?;
        let Waiter {
            since, reply_to, ..
        } = self.queues[waiter];
        let names = self.queues.names_of(waiter);
        let mut keys = names.map(|name| self.keys[name].key());
        lost_right(reply_to.client, reply_to.form, since, &mut keys)
    }
}
