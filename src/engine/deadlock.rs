//! Circles of waiting, found by the request that would close one.
//!
//! A request is refused when, even if every owner that does not wait released all that it holds,
//! the request could still never be granted. What is taken for granted:
//!
//! - an owner (a connection with a label) that waits releases nothing until it is served; a wait
//!   that blocks its connection stops all the labels of that connection;
//! - a hold with a lease ends by itself, so nobody waits for it for ever;
//! - a wait with a time limit counts all the same: to refuse it now tells more than its time-out.
//!
//! So of a semaphore's holders only those that are stuck count, and where enough permits can still
//! come back nothing is refused.

#[cfg(test)]
mod growth;
mod room;
mod search;

use super::Engine;
use super::arena::Id;
use super::effect::Waits;
use super::queues::Waiter;
use hashbrown::HashMap;
use search::{Obstacle, Search};

impl Engine {
    /// The circle that this waiter, the newest, closes. O(1) while nobody waits for what its
    /// connection holds and its owner has no other wait; otherwise O(what its connection holds and
    /// waits for), while others wait for other labels of it only; and otherwise O(waiters and holders
    /// that it depends on, and the other waits of their connections).
    pub(super) fn circle_of(&self, newest: Id<Waiter>) -> Option<Vec<Waits>> {
        if !self.is_waited_for(newest) {
            return None;
        }
        let mut search = Search::new(self);
        let is_stuck = search.is_stuck(newest);
        is_stuck.then(|| self.describe(newest, &search))
    }

    /// Whether somebody waits for what the waiter's owner holds, or behind another wait of it. (A wait
    /// that blocks its connection stops the owners of all its labels.)
    fn is_waited_for(&self, newest: Id<Waiter>) -> bool {
        let Waiter { client, push, .. } = self.queues[newest];
        let owner = self.clients.owner(client);
        let label = &*self.queues[newest].label;
        if self.clients[owner].contended > 0 {
            // What other labels hold is no matter, unless they stand still with this one: else each of
            // a thousand tasks of one connection that queue for one lock would look at all the others.
            let mut holds = self.holds.of_client(&self.clients, owner);
            let is_in_the_way = |id| {
                let is_wanted = !self.keys[self.holds[id].key].queue.is_empty();
                is_wanted && self.holds.has_label(id, label)
            };
            if !push || holds.any(is_in_the_way) {
                return true;
            }
        }
        if !self.queues.has_other_wait(&self.clients, newest) {
            return false;
        }
        self.queues.of_client(&self.clients, client).any(|id| {
            let other = &self.queues[id];
            let stops = !push || !other.push || &*other.label == label;
            stops && self.queues.is_anyone_behind(&self.keys, id)
        })
    }

    /// Who waits for whom, from the newest on until it comes round. Where the newest only waits for
    /// a circle of others, that circle.
    fn describe(&self, newest: Id<Waiter>, search: &Search<'_>) -> Vec<Waits> {
        let mut path: Vec<Obstacle> = Vec::new();
        let mut places = HashMap::new();
        let mut waiter = newest;
        while let Some(next) = search.obstacle(waiter) {
            places.insert(waiter, path.len());
            let key = next.key;
            path.push(Obstacle { key, waiter });
            waiter = next.waiter;
            if let Some(start) = places.get(&waiter) {
                path.drain(..start);
                break;
            }
        }
        let link = |link: Obstacle| Waits {
            client: self.clients[self.queues[link.waiter].client].id,
            label: self.queues[link.waiter].label.clone(),
            key: self.keys[link.key].key().to_owned(),
        };
        path.into_iter().map(link).collect()
    }
}
