//! Consistency of queues, waits, keys and connections.

use crate::engine::state::clients::Clients;
use crate::engine::state::keys::Keys;
use crate::engine::state::queues::Queues;
use crate::engine::state::timers::Timers;

impl Queues {
    /// Panics unless the invariant holds. O(everything).
    pub fn check(&self, keys: &Keys, clients: &Clients, timers: &Timers) {
        let mut queued = 0;
        for (name, record) in keys.all_names() {
            let before = queued;
            for place in record.queue.iter(&self.places) {
                assert!(self.places[place].name == name);
                queued += 1;
            }
            assert_eq!(record.queue_length as usize, queued - before);
        }
        let mut placed = 0;
        for (id, waiter) in self.waiters.iter() {
            let places: Vec<_> = waiter.places.iter(&self.places).collect();
            assert!(!places.is_empty());
            assert!(places.iter().all(|place| self.places[*place].waiter == id));
            placed += places.len();
        }
        let all = self.places.len();
        assert_eq!((queued, placed), (all, all));
        let mut counted = 0;
        for (client, record) in clients.iter() {
            let mine: Vec<_> = record.waiting.iter(&self.waiters).collect();
            assert!(mine.iter().all(|id| self.waiters[*id].client == client));
            let blocking: Vec<_> = mine
                .iter()
                .filter(|id| !self.waiters[**id].reply_to.push)
                .collect();
            assert!(blocking.len() <= 1);
            assert!(blocking.first().copied() == record.blocked.as_ref());
            assert_eq!(mine.len(), record.wait_count as usize);
            let places = mine.iter().map(|id| self.names_of(*id).count());
            assert_eq!(places.sum::<usize>(), record.place_count as usize);
            counted += mine.len();
        }
        assert_eq!(counted, self.len());
        let pushed = self
            .waiters
            .iter()
            .filter(|(_, waiter)| waiter.reply_to.push);
        let (mut chained, mut indexed) = (0, 0);
        for ((client, task), chain) in &self.pushed {
            assert!(!chain.is_empty());
            for id in chain.iter(&self.waiters) {
                let waiter = &self.waiters[id];
                assert!(waiter.reply_to.push);
                assert!(waiter.client == *client && waiter.terms.task() == &**task);
                chained += 1;
                for name in self.names_of(id) {
                    assert!(
                        self.find_pushed(name, *client, &waiter.terms.label) == Some(id),
                        "one wait"
                    );
                    indexed += 1;
                }
            }
        }
        assert_eq!(chained, pushed.count());
        assert_eq!(indexed, self.by_owner_and_name.len());
        let deadlines = self.waiters.iter();
        let deadlines = deadlines.filter_map(|(id, waiter)| Some((waiter.deadline?, id)));
        timers.waits.check(deadlines);
    }
}
