//! Waits that end a part at a time: one may be for very many keys, and an owner may have very many for one key.

use crate::engine::state::clients::Clients;
use crate::engine::state::keys::Keys;
use crate::engine::state::owner::Owner;
use crate::engine::state::queues::piles::PileOf;
use crate::engine::state::queues::{Queues, Sort};
use crate::engine::state::rows::{Client, KeyRecord, Waiter};
use crate::engine::state::timers::{Timer, Timers};
use crate::engine::storage::arena::Id;
use crate::engine::storage::bytes::Bytes;
use crate::engine::storage::index;
use crate::engine::types::ReplyTo;

/// What must be known of a wait that is over, to tell of it.
pub(in crate::engine) struct Left {
    pub reply_to: ReplyTo,
    pub label: Bytes,
}

impl Queues {
    /// Gives all waits of an owner up that are for this key, of this sort, and told by a push: from now on they are those of
    /// a connection that has ended. O(their places), each in a moment.
    pub fn give_up_all(
        &mut self,
        clients: &mut Clients,
        (key, client, label): (Id<KeyRecord>, Id<Client>, &[u8]),
        sort: Sort,
    ) {
        let waiters = self.take_pile(PileOf {
            key,
            client,
            label,
            sort,
        });
        self.give_up(clients, Owner(client, label), &waiters);
    }

    /// The same with one wait, of whichever sort. O(places).
    pub fn give_up_one(&mut self, clients: &mut Clients, id: Id<Waiter>) -> Left {
        let Waiter {
            client, reply_to, ..
        } = self.waiters[id];
        let label = self.waiters[id].terms.label.clone();
        self.give_up(clients, Owner(client, &label), &[id]);
        Left { reply_to, label }
    }

    /// Waits of one owner. They keep their places, which share no pile with those of others any more.
    fn give_up(&mut self, clients: &mut Clients, owner: Owner<'_>, waiters: &[Id<Waiter>]) {
        if waiters.is_empty() {
            return;
        }
        let Owner(client, label) = owner;
        let nobody = clients.leavers(waiters.len());
        let mut pushed = index::take(&mut self.pushed, &owner).unwrap_or_default();
        let mut places = 0;
        for id in waiters {
            places += self.part_from_others(*id);
            self.waiters[*id].client = nobody;
            if std::mem::replace(&mut self.waiters[*id].reply_to.push, false) {
                pushed.remove(&mut self.waiters, *id);
            }
            let former = &mut clients[client];
            former.blocked.take_if(|blocked| blocked == id);
            former.waiting.remove(&mut self.waiters, *id);
            clients[nobody].waiting.push(&mut self.waiters, *id);
        }
        if !pushed.is_empty() {
            self.pushed.insert((client, label.into()), pushed);
        }
        let count = waiters.len() as u32;
        clients[client].wait_count -= count;
        clients[client].place_count -= places;
        clients[nobody].wait_count += count;
        clients[nobody].place_count += places;
    }

    /// Takes those of a waiter's places from their piles that are not alone there: nobody looks at one who is. How many places
    /// it has.
    fn part_from_others(&mut self, id: Id<Waiter>) -> u32 {
        let mut next = self.waiters[id].places.head();
        let mut count = 0;
        while let Some(place) = next {
            count += 1;
            if self.is_piled(place) && self.is_piled_with_others(place) {
                self.unpile(place);
            }
            next = self.waiters[id].places.after(&self.places, place);
        }
        count
    }

    /// Who asks for several keys leaves the queue of this one, where it is the first, or which is the first of its keys. O(1).
    pub fn leave_one(
        &mut self,
        keys: &mut Keys,
        clients: &mut Clients,
        (id, key): (Id<Waiter>, Id<KeyRecord>),
    ) {
        let mut places = [keys[key].queue.head(), self.waiters[id].places.head()].into_iter();
        let place = places.find_map(|place| {
            let place = place?;
            let entry = &self.places[place];
            (entry.waiter == id && entry.key == key).then_some(place)
        });
        self.take_place(keys, clients, place.expect("it is there"));
    }

    /// Whether a waiter asks for more than so many keys. O(that many).
    pub fn asks_for_more_than(&self, id: Id<Waiter>, most: usize) -> bool {
        !self.asks_for_one(id) && self.keys_of(id).nth(most).is_some()
    }

    /// A waiter's time does not matter any more. O(log of deadlines).
    pub fn forget_deadline(&mut self, timers: &mut Timers, id: Id<Waiter>) {
        let former = self.waiters[id].deadline.take();
        timers.set(Timer::Wait(id), former, None);
    }
}
