//! Leaving queues. A wait for very many keys, and very many waits of one owner for one key, are given up in a moment: from
//! then on they are nobody's, and fade as those of an ended connection do.

use crate::engine::state::queues::Sort;
use crate::engine::state::queues::leaving::Left;
use crate::engine::state::rows::{Client, KeyRecord, Waiter};
use crate::engine::storage::arena::Id;
use crate::engine::tables::Engine;
use crate::engine::types::Key;

impl Engine {
    /// Ends those of an owner's waits for a key that are meant, and says whether there were any. O(those that it has there).
    pub(in crate::engine) fn give_up_waiting(
        &mut self,
        client: Id<Client>,
        name: Key<'_>,
        label: &[u8],
        sorts: &[Sort],
    ) -> bool {
        let most = self.limits.left;
        let mut left = most;
        while left > 0 {
            let key = self.keys.find(name);
            let find = |key| self.queues.find_pushed(key, client, label, sorts);
            let Some(waiter) = key.and_then(find) else {
                return left < most;
            };
            let places = self.queues.keys_of(waiter).take(left).count();
            self.leave_queues(waiter);
            left -= places;
        }
        if let Some(key) = self.keys.find(name) {
            for sort in sorts {
                let owner = (key, client, label);
                self.queues.give_up_all(&mut self.clients, owner, *sort);
            }
        }
        true
    }

    /// Ends a wait of a connection that is here; those behind it may be served now.
    pub(in crate::engine) fn leave_queues(&mut self, waiter: Id<Waiter>) -> Left {
        if self.queues.asks_for_more_than(waiter, self.limits.left) {
            return self.queues.give_up_one(&mut self.clients, waiter);
        }
        let (asked, waiter) = self.dequeue(waiter);
        for key in &*asked {
            self.make_ready(*key);
            self.keys.remove_if_idle(*key);
        }
        Left {
            reply_to: waiter.reply_to,
            label: waiter.terms.label,
        }
    }

    /// A wait of an ended connection leaves one of its queues; who is behind it there may be served now. O(1).
    pub(in crate::engine) fn leave_first_queue(&mut self, waiter: Id<Waiter>) {
        let key = self.queues.keys_of(waiter).next();
        let key = key.expect("who waits waits for something");
        self.leave_queue(waiter, key);
        self.make_ready(key);
        self.keys.remove_if_idle(key);
    }

    /// A wait of an ended connection leaves the queue of this key, in which it is the first, or which is that of the first of
    /// its keys. O(1).
    pub(in crate::engine) fn leave_queue(&mut self, waiter: Id<Waiter>, key: Id<KeyRecord>) {
        if self.queues.asks_for_one(waiter) {
            self.dequeue(waiter);
            return;
        }
        let (keys, clients) = (&mut self.keys, &mut self.clients);
        self.queues.leave_one(keys, clients, (waiter, key));
    }
}
