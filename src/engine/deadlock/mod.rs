//! Deadlock detection: a request that would close a cycle of waits is refused.
//!
//! In a cycle each wait can only end after the next. Assumptions:
//!
//! - a task (one thread of a client, by default what has one label) that waits releases nothing until it is served; a wait
//!   that blocks its connection stops all the tasks of that connection;
//! - what a task holds beside others (shared, or permits) under another label does not keep the task itself waiting: it may have
//!   given that to another task;
//! - a hold with a lease ends by itself, so no wait for it lasts for ever;
//! - a wait with a timeout counts: a refusal now is more useful than the timeout later;
//! - a semaphore's holder counts only if its permits alone leave too few; sums over several holders are ignored.
//!
//! ```text
//!   walk.rs     the search     growth.rs   tests: its cost grows linearly, and is bounded
//! ```

#[cfg(test)]
mod growth;
mod walk;

use super::effect::Waits;
use crate::engine::limits::{LOOKS_BEFORE_WALK, WALK_STEPS};
use crate::engine::state::rows::Waiter;
use crate::engine::storage::arena::Id;
use crate::engine::tables::Engine;
use walk::{Link, Walk};

/// The result of a search.
pub(super) enum Verdict {
    /// There is no cycle: the request may wait.
    Open,
    /// The request would wait for ever: the cycle, beginning with its own link.
    Cycle(Vec<Waits>),
    /// The search hit its step limit. The request may wait.
    Cut,
}

impl Engine {
    /// Whether this waiter, the newest, closes a cycle. O(1): at most [`LOOKS_BEFORE_WALK`] steps if no client waits for a hold of
    /// its connection and its task has no other wait, otherwise at most [`WALK_STEPS`].
    pub(super) fn find_cycle(&self, newest: Id<Waiter>) -> Verdict {
        if !self.is_waited_for(newest) {
            return Verdict::Open;
        }
        let mut walk = Walk::new(self, newest, WALK_STEPS);
        match walk.cycle() {
            Some(path) => Verdict::Cycle(self.describe(path)),
            None if walk.is_cut() => Verdict::Cut,
            None => Verdict::Open,
        }
    }

    /// Whether anybody waits for a hold of the waiter's task, or behind another wait of it. May return false positives. (A blocking
    /// wait stops all tasks of its connection.)
    fn is_waited_for(&self, newest: Id<Waiter>) -> bool {
        let Waiter {
            client,
            terms,
            reply_to,
            ..
        } = &self.queues[newest];
        let (client, task, push) = (*client, terms.task(), reply_to.push);
        let owner = self.clients.owner(client);
        let has_waiters = |id| {
            let name = self.keys.name_of(self.holds[id].key);
            name.is_some_and(|name| !self.keys[name].queue.is_empty())
        };
        // Holds of other tasks matter only if this wait blocks them, too.
        let blocks_others = match push && !task.is_empty() {
            true => any_or_too_many(self.holds.of_task(owner, task).map(has_waiters)),
            false => {
                let holds = self.holds.of_client(&self.clients, owner);
                let matters = |id| !push || self.holds.task(id).is_empty();
                any_or_too_many(holds.map(|id| has_waiters(id) && matters(id)))
            }
        };
        if blocks_others || !self.queues.has_other_wait(&self.clients, newest) {
            return blocks_others;
        }
        let behind = |id| self.queues.is_anyone_behind(&self.keys, id);
        if !push {
            let waits = self.queues.of_client(&self.clients, client);
            return any_or_too_many(waits.flat_map(behind));
        }
        let blocking = self.clients[client].blocked;
        let waits = self.queues.of_task(client, task).chain(blocking);
        any_or_too_many(waits.flat_map(behind))
    }

    fn describe(&self, path: Vec<Link>) -> Vec<Waits> {
        let link = |link: Link| {
            let Waiter { client, terms, .. } = &self.queues[link.waiter];
            Waits {
                client: self.clients[*client].id,
                label: terms.label[..].into(),
                task: terms.other_task().map(Into::into),
                key: self.keys[link.at].key().to_owned(),
            }
        };
        path.into_iter().map(link).collect()
    }
}

/// Whether any item is true; also true beyond [`LOOKS_BEFORE_WALK`] items.
fn any_or_too_many(mut all: impl Iterator<Item = bool>) -> bool {
    all.by_ref().take(LOOKS_BEFORE_WALK).any(|is_so| is_so) || all.next().is_some()
}
