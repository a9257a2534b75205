//! Wait queues, one per name.
//!
//! A waiter is one request, with an entry in the queue of each of its keys. Append and removal are O(1).

mod check;

use crate::engine::state::clients::Clients;
use crate::engine::state::keys::Keys;
use crate::engine::state::rows::{Client, Name, QueueEntry, Waiter};
use crate::engine::state::task::{Task, TaskKey};
use crate::engine::state::timers::Timers;
use crate::engine::storage::arena::{Arena, Id};
use crate::engine::storage::bytes::Bytes;
use crate::engine::storage::chain::{Chain, Link};
use crate::engine::storage::few::Few;
use crate::engine::storage::index::{self, Index};
use crate::engine::terms::Terms;
use crate::engine::types::{Moment, ReplyTo};
use hashbrown::HashMap;
use std::ops;

/// The parameters of a new waiter.
pub(in crate::engine) struct Request<'a> {
    pub client: Id<Client>,
    pub terms: Terms<&'a [u8]>,
    pub value: &'a [u8],
    pub since: Moment,
    pub deadline: Option<Moment>,
    pub reply_to: ReplyTo,
}

/// Invariant: a waiter has at least one entry, and is in its client's list; an entry is in its name's queue and in its waiter's
/// list. A connection has at most one waiter that blocks it, its `blocked`; every other waiter is in its task's list in
/// `pushed`, and `by_owner_and_name` has exactly their entries. An owner has at most one entry in a queue.
#[derive(Default)]
pub(in crate::engine) struct Queues {
    waiters: Arena<Waiter>,
    places: Arena<QueueEntry>,
    /// List heads of each task's waits that are answered by a push.
    pushed: HashMap<TaskKey, Chain<Waiter, { Waiter::BY_TASK }>>,
    /// Their entries by (owner, name). Blocking waits need no lookup.
    by_owner_and_name: Index<QueueEntry>,
}

impl Queues {
    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    /// The number of entries in all queues.
    pub fn places(&self) -> usize {
        self.places.len()
    }

    /// Appends a waiter to the queue of each of these names. O(names), with a deadline also O(log deadlines).
    pub fn add(
        &mut self,
        keys: &mut Keys,
        clients: &mut Clients,
        timers: &mut Timers,
        asked: &[Id<Name>],
        request: &Request<'_>,
    ) -> Id<Waiter> {
        let id = self.waiters.insert(Waiter {
            client: request.client,
            terms: request.terms.owned(),
            value: request.value.into(),
            since: request.since,
            deadline: request.deadline,
            reply_to: request.reply_to,
            places: Chain::default(),
            by_client: Link::default(),
            by_task: Link::default(),
        });
        for name in asked {
            let place = self.places.insert(QueueEntry {
                waiter: id,
                name: *name,
                by_name: Link::default(),
                by_waiter: Link::default(),
            });
            let record = &mut keys[*name];
            record.queue.push(&mut self.places, place);
            record.queue_length += 1;
            self.waiters[id].places.push(&mut self.places, place);
            if request.reply_to.push {
                let key = (*name, request.client, request.terms.label);
                self.by_owner_and_name.insert(key, place);
            }
        }
        timers.waits.set(id, None, request.deadline);
        let client = &mut clients[request.client];
        client.waiting.push(&mut self.waiters, id);
        client.wait_count += 1;
        client.place_count += asked.len() as u32;
        if request.reply_to.push {
            let task = (request.client, request.terms.task().into());
            let chain = self.pushed.entry(task).or_default();
            chain.push(&mut self.waiters, id);
        } else {
            client.blocked = Some(id);
        }
        id
    }

    /// Removes an entry from its queue. O(1).
    fn remove_entry(&mut self, keys: &mut Keys, place: Id<QueueEntry>) {
        let QueueEntry { waiter, name, .. } = self.places[place];
        let Waiter {
            client,
            terms,
            reply_to,
            ..
        } = &self.waiters[waiter];
        if reply_to.push {
            let key = (name, *client, &*terms.label);
            self.by_owner_and_name.remove(key, place);
        }
        let record = &mut keys[name];
        record.queue.remove(&mut self.places, place);
        record.queue_length -= 1;
        let places = &mut self.waiters[waiter].places;
        places.remove(&mut self.places, place);
        self.places.remove(place);
    }

    /// Removes the head of this queue, an entry of a multi-key waiter, which keeps its others. O(1).
    pub fn remove_first_entry(&mut self, keys: &mut Keys, clients: &mut Clients, name: Id<Name>) {
        let first = keys[name].queue.head().expect("the queue has a head");
        let waiter = self.places[first].waiter;
        clients[self.waiters[waiter].client].place_count -= 1;
        self.remove_entry(keys, first);
    }

    /// Removes a waiter from all its queues, and returns their names. O(names), with a deadline also O(log deadlines).
    pub fn remove(
        &mut self,
        keys: &mut Keys,
        clients: &mut Clients,
        timers: &mut Timers,
        id: Id<Waiter>,
    ) -> (Few<Id<Name>>, Waiter) {
        let asked = self.asked_by(id);
        while let Some(place) = self.waiters[id].places.head() {
            self.remove_entry(keys, place);
        }
        let client = &mut clients[self.waiters[id].client];
        client.waiting.remove(&mut self.waiters, id);
        client.wait_count -= 1;
        client.place_count -= asked.len() as u32;
        if client.blocked == Some(id) {
            client.blocked = None;
        }
        if self.waiters[id].reply_to.push {
            self.leave_task(id);
        }
        let waiter = self.waiters.remove(id);
        timers.waits.set(id, waiter.deadline, None);
        (asked, waiter)
    }

    fn leave_task(&mut self, id: Id<Waiter>) {
        let Waiter { client, terms, .. } = &self.waiters[id];
        let (client, name) = (*client, Bytes::from(terms.task()));
        let task = Task(client, &name);
        if let Some(chain) = self.pushed.get_mut(&task) {
            chain.remove(&mut self.waiters, id);
            if chain.is_empty() {
                index::take(&mut self.pushed, &task);
            }
        }
    }

    /// The owner's wait at this name, if it is answered by a push. O(1).
    pub fn find_pushed(
        &self,
        name: Id<Name>,
        client: Id<Client>,
        label: &[u8],
    ) -> Option<Id<Waiter>> {
        let found = self.by_owner_and_name.find((name, client, label), |place| {
            let entry = &self.places[place];
            let waiter = &self.waiters[entry.waiter];
            entry.name == name && waiter.client == client && *waiter.terms.label == *label
        });
        found.map(|place| self.places[place].waiter)
    }

    /// The next waiter to serve. O(1).
    pub fn head(&self, keys: &Keys, name: Id<Name>) -> Option<Id<Waiter>> {
        keys[name]
            .queue
            .head()
            .map(|place| self.places[place].waiter)
    }

    /// The waiters of a queue, in order.
    pub fn of_name(&self, keys: &Keys, name: Id<Name>) -> impl Iterator<Item = Id<Waiter>> {
        let places = keys[name].queue.iter(&self.places);
        places.map(|place| self.places[place].waiter)
    }

    /// A connection's waits, oldest first.
    pub fn of_client(
        &self,
        clients: &Clients,
        client: Id<Client>,
    ) -> impl Iterator<Item = Id<Waiter>> {
        self.of_client_after(clients, client, None)
    }

    /// Those after `last`, or all.
    pub fn of_client_after(
        &self,
        clients: &Clients,
        client: Id<Client>,
        last: Option<Id<Waiter>>,
    ) -> impl Iterator<Item = Id<Waiter>> {
        clients[client].waiting.iter_after(&self.waiters, last)
    }

    pub fn name_of(&self, entry: Id<QueueEntry>) -> Id<Name> {
        self.places[entry].name
    }

    /// The entry in a slot, if any, and its waiter. O(1).
    pub fn entry_at(&self, slot: usize) -> Option<(Id<Waiter>, Id<QueueEntry>)> {
        let entry = self.places.at(slot)?;
        Some((self.places[entry].waiter, entry))
    }

    /// Whether another wait keeps the waiter's task from releasing anything. O(1).
    pub fn has_other_wait(&self, clients: &Clients, id: Id<Waiter>) -> bool {
        let waiter = &self.waiters[id];
        let client = &clients[waiter.client];
        if !waiter.reply_to.push {
            return client.wait_count > 1;
        }
        let mut own = self.of_task(waiter.client, waiter.terms.task());
        client.blocked.is_some() || own.any(|other| other != id)
    }

    /// A task's waits that are answered by a push, oldest first. O(1) to begin.
    pub fn of_task(&self, client: Id<Client>, name: &[u8]) -> impl Iterator<Item = Id<Waiter>> {
        let chain = self.pushed.get(&Task(client, name));
        chain
            .into_iter()
            .flat_map(|chain| chain.iter(&self.waiters))
    }

    /// For each of the waiter's queues, whether another waiter is behind it.
    pub fn is_anyone_behind(&self, keys: &Keys, id: Id<Waiter>) -> impl Iterator<Item = bool> {
        let places = self.waiters[id].places.iter(&self.places);
        places.map(|place| {
            let queue = &keys[self.places[place].name].queue;
            queue.tail(&self.places) != Some(place)
        })
    }

    /// Whether the request names a single key. O(1).
    pub fn asks_for_one(&self, id: Id<Waiter>) -> bool {
        let places = &self.waiters[id].places;
        places.head() == places.tail(&self.places)
    }

    /// All names of a request.
    fn asked_by(&self, id: Id<Waiter>) -> Few<Id<Name>> {
        match self.waiters[id].places.head() {
            Some(only) if self.asks_for_one(id) => Few::from_buf([self.places[only].name]),
            _ => self.names_of(id).collect(),
        }
    }

    /// The names of a request, in its order.
    pub fn names_of(&self, id: Id<Waiter>) -> impl Iterator<Item = Id<Name>> {
        let places = self.waiters[id].places.iter(&self.places);
        places.map(|place| self.places[place].name)
    }

    /// The same, each with its queue entry.
    pub fn places_of(&self, id: Id<Waiter>) -> impl Iterator<Item = (Id<Name>, Id<QueueEntry>)> {
        self.places_after(id, None)
    }

    /// Those after `last`, or all.
    pub fn places_after(
        &self,
        id: Id<Waiter>,
        last: Option<Id<QueueEntry>>,
    ) -> impl Iterator<Item = (Id<Name>, Id<QueueEntry>)> {
        let places = self.waiters[id].places.iter_after(&self.places, last);
        places.map(|place| (self.places[place].name, place))
    }

    /// The entry directly ahead in the queue, and its waiter. O(1).
    pub fn ahead_of(
        &self,
        keys: &Keys,
        place: Id<QueueEntry>,
    ) -> Option<(Id<QueueEntry>, Id<Waiter>)> {
        let queue = &keys[self.places[place].name].queue;
        let ahead = queue.before(&self.places, place)?;
        Some((ahead, self.places[ahead].waiter))
    }
}

impl ops::Index<Id<Waiter>> for Queues {
    type Output = Waiter;
    #[inline]
    fn index(&self, id: Id<Waiter>) -> &Waiter {
        &self.waiters[id]
    }
}
