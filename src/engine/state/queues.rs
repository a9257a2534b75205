//! Who waits for what, in what order.
//!
//! A waiter is one request; it has one place in the queue of each key that it asks for. Places are
//! taken at the end and left from anywhere, each in O(1).

mod check;
mod doubts;

use crate::engine::state::clients::Clients;
use crate::engine::state::keys::Keys;
use crate::engine::state::owner::{Owner, OwnerKey};
use crate::engine::state::rows::{Client, Name, QueueEntry, Waiter};
use crate::engine::state::timers::{Timer, Timers};
use crate::engine::storage::arena::{Arena, Id};
use crate::engine::storage::chain::{Chain, Link};
use crate::engine::storage::few::Few;
use crate::engine::storage::index::{self, Index};
use crate::engine::terms::Terms;
use crate::engine::types::{Moment, ReplyTo};
use doubts::Doubts;
use hashbrown::{DefaultHashBuilder, HashMap};
use std::hash::BuildHasher;
use std::ops;

/// A request that is about to wait.
pub(in crate::engine) struct Request<'a> {
    pub client: Id<Client>,
    pub terms: Terms<&'a [u8]>,
    pub value: &'a [u8],
    pub since: Moment,
    pub deadline: Option<Moment>,
    pub reply_to: ReplyTo,
}

/// Invariant: a waiter has at least one place, and stands in its client's chain; a place stands in its
/// name's queue and in its waiter's chain. A connection has
/// at most one waiter that blocks it, and `blocked` of its record names that; every other one stands in its owner's chain in
/// `pushed`, and `by_owner_and_name` has exactly the places of those. An owner has one place in a key's queue.
#[derive(Default)]
pub(in crate::engine) struct Queues {
    waiters: Arena<Waiter>,
    places: Arena<QueueEntry>,
    /// The waits that each owner has that are told by a push.
    pushed: HashMap<OwnerKey, Chain<Waiter, { Waiter::BY_OWNER }>>,
    /// Their places: of a wait that blocks its connection nobody asks.
    by_owner_and_name: Index<QueueEntry>,
    hasher: DefaultHashBuilder,
    doubts: Doubts,
}

impl Queues {
    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    /// How many places there are in all queues.
    pub fn places(&self) -> usize {
        self.places.len()
    }

    /// Takes the last place in the queue of each of these keys. O(their number), with a deadline
    /// also O(log of those).
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
            rights: self.doubts.stamp(),
            places: Chain::default(),
            by_client: Link::default(),
            by_owner: Link::default(),
        });
        for name in asked {
            let place = self.places.insert(QueueEntry {
                waiter: id,
                name: *name,
                length: 0,
                by_name: Link::default(),
                by_waiter: Link::default(),
            });
            keys[*name].queue.push(&mut self.places, place);
            let head = keys[*name].queue.head().unwrap_or(place);
            self.places[head].length += 1;
            self.waiters[id].places.push(&mut self.places, place);
            if request.reply_to.push {
                let hash = self.hash(*name, request.client, request.terms.label);
                self.by_owner_and_name.insert(hash, place);
            }
        }
        timers.set(Timer::Wait(id), None, request.deadline);
        let client = &mut clients[request.client];
        client.waiting.push(&mut self.waiters, id);
        client.wait_count += 1;
        client.place_count += asked.len() as u32;
        if request.reply_to.push {
            let owner = (request.client, request.terms.label.into());
            let chain = self.pushed.entry(owner).or_default();
            chain.push(&mut self.waiters, id);
        } else {
            client.blocked = Some(id);
        }
        id
    }

    /// Leaves one queue. O(1).
    fn take_place(&mut self, keys: &mut Keys, place: Id<QueueEntry>) {
        let QueueEntry { waiter, name, .. } = self.places[place];
        let Waiter {
            client,
            terms,
            reply_to,
            ..
        } = &self.waiters[waiter];
        if reply_to.push {
            let hash = self.hash(name, *client, &terms.label);
            self.by_owner_and_name.remove(hash, place);
        }
        let queue = &mut keys[name].queue;
        let length = queue.head().map_or(0, |head| self.places[head].length);
        queue.remove(&mut self.places, place);
        if let Some(head) = queue.head() {
            self.places[head].length = length - 1;
        }
        let places = &mut self.waiters[waiter].places;
        places.remove(&mut self.places, place);
        self.places.remove(place);
    }

    /// Who is first in line for a key, and asks for others, too, leaves this queue. O(1).
    pub fn leave_first(&mut self, keys: &mut Keys, clients: &mut Clients, name: Id<Name>) {
        let first = keys[name].queue.head().expect("somebody is first");
        let waiter = self.places[first].waiter;
        clients[self.waiters[waiter].client].place_count -= 1;
        self.take_place(keys, first);
    }

    /// Leaves all queues, those of these keys. O(places), with a deadline also O(log of those).
    pub fn remove(
        &mut self,
        keys: &mut Keys,
        clients: &mut Clients,
        timers: &mut Timers,
        id: Id<Waiter>,
    ) -> (Few<Id<Name>>, Waiter) {
        let asked = self.asked_by(id);
        while let Some(place) = self.waiters[id].places.head() {
            self.take_place(keys, place);
        }
        let client = &mut clients[self.waiters[id].client];
        client.waiting.remove(&mut self.waiters, id);
        client.wait_count -= 1;
        client.place_count -= asked.len() as u32;
        if client.blocked == Some(id) {
            client.blocked = None;
        }
        let Waiter {
            client, reply_to, ..
        } = self.waiters[id];
        let label = std::mem::take(&mut self.waiters[id].terms.label);
        let owner = Owner(client, &label);
        if reply_to.push
            && let Some(chain) = self.pushed.get_mut(&owner)
        {
            chain.remove(&mut self.waiters, id);
            if chain.is_empty() {
                index::take(&mut self.pushed, &owner);
            }
        }
        let mut waiter = self.waiters.remove(id);
        waiter.terms.label = label;
        self.doubts.settle(waiter.rights);
        timers.set(Timer::Wait(id), waiter.deadline, None);
        (asked, waiter)
    }

    /// The wait of this owner for this key, if it is told by a push. O(1).
    pub fn find_pushed(
        &self,
        name: Id<Name>,
        client: Id<Client>,
        label: &[u8],
    ) -> Option<Id<Waiter>> {
        if self.by_owner_and_name.is_empty() {
            return None;
        }
        let hash = self.hash(name, client, label);
        let found = self.by_owner_and_name.find(hash, |place| {
            let entry = &self.places[place];
            let waiter = &self.waiters[entry.waiter];
            entry.name == name && waiter.client == client && *waiter.terms.label == *label
        });
        found.map(|place| self.places[place].waiter)
    }

    fn hash(&self, name: Id<Name>, client: Id<Client>, label: &[u8]) -> u32 {
        index::fold(self.hasher.hash_one((name, client, label)))
    }

    /// Who is served next. O(1).
    pub fn head(&self, keys: &Keys, name: Id<Name>) -> Option<Id<Waiter>> {
        keys[name]
            .queue
            .head()
            .map(|place| self.places[place].waiter)
    }

    /// How many wait for a key. O(1).
    pub fn count(&self, keys: &Keys, name: Id<Name>) -> usize {
        let head = keys[name].queue.head();
        head.map_or(0, |head| self.places[head].length as usize)
    }

    /// Who waits at a name, in order.
    pub fn of_name(&self, keys: &Keys, name: Id<Name>) -> impl Iterator<Item = Id<Waiter>> {
        let places = keys[name].queue.iter(&self.places);
        places.map(|place| self.places[place].waiter)
    }

    /// What a connection waits for, the oldest wait first.
    pub fn of_client(
        &self,
        clients: &Clients,
        client: Id<Client>,
    ) -> impl Iterator<Item = Id<Waiter>> {
        clients[client].waiting.iter(&self.waiters)
    }

    /// Whether the waiter's owner has another wait that keeps it from going on. O(1).
    pub fn has_other_wait(&self, clients: &Clients, id: Id<Waiter>) -> bool {
        let waiter = &self.waiters[id];
        let client = &clients[waiter.client];
        if !waiter.reply_to.push {
            return client.wait_count > 1;
        }
        let mut own = self.of_owner(waiter.client, &waiter.terms.label);
        client.blocked.is_some() || own.any(|other| other != id)
    }

    /// What an owner waits for and is told of by a push, the oldest wait first. To find it O(1).
    pub fn of_owner(&self, client: Id<Client>, label: &[u8]) -> impl Iterator<Item = Id<Waiter>> {
        let chain = self.pushed.get(&Owner(client, label));
        chain
            .into_iter()
            .flat_map(|chain| chain.iter(&self.waiters))
    }

    /// For each of the waiter's queues, whether anybody is behind it there.
    pub fn is_anyone_behind(&self, keys: &Keys, id: Id<Waiter>) -> impl Iterator<Item = bool> {
        let places = self.waiters[id].places.iter(&self.places);
        places.map(|place| {
            let queue = &keys[self.places[place].name].queue;
            queue.tail(&self.places) != Some(place)
        })
    }

    /// Whether a waiter asks for one key only. O(1).
    pub fn asks_for_one(&self, id: Id<Waiter>) -> bool {
        let places = &self.waiters[id].places;
        places.head() == places.tail(&self.places)
    }

    /// All keys that a waiter asks for.
    fn asked_by(&self, id: Id<Waiter>) -> Few<Id<Name>> {
        match self.waiters[id].places.head() {
            Some(only) if self.asks_for_one(id) => Few::from_buf([self.places[only].name]),
            _ => self.names_of(id).collect(),
        }
    }

    /// The keys that a waiter asks for, as they stood in its request.
    pub fn names_of(&self, id: Id<Waiter>) -> impl Iterator<Item = Id<Name>> {
        let places = self.waiters[id].places.iter(&self.places);
        places.map(|place| self.places[place].name)
    }

    /// The same, each with the place in its queue.
    pub fn places_of(&self, id: Id<Waiter>) -> impl Iterator<Item = (Id<Name>, Id<QueueEntry>)> {
        let places = self.waiters[id].places.iter(&self.places);
        places.map(|place| (self.places[place].name, place))
    }

    /// The place right ahead in a queue, and who has it. O(1).
    pub fn ahead_of(
        &self,
        keys: &Keys,
        place: Id<QueueEntry>,
    ) -> Option<(Id<QueueEntry>, Id<Waiter>)> {
        let queue = &keys[self.places[place].name].queue;
        let ahead = queue.before(&self.places, place)?;
        Some((ahead, self.places[ahead].waiter))
    }

    pub fn has_doubts(&self) -> bool {
        self.doubts.count > 0
    }

    /// Whether a waiter's rights are to be looked at before it is served.
    pub fn is_doubted(&self, id: Id<Waiter>) -> bool {
        self.doubts.is_doubted(self.waiters[id].rights)
    }

    /// From now on everybody's are.
    pub fn doubt_all(&mut self) {
        self.doubts.begin(self.waiters.len());
    }

    /// They were looked at, and are there.
    pub fn trust(&mut self, id: Id<Waiter>) {
        let rights = &mut self.waiters[id].rights;
        let former = std::mem::replace(rights, self.doubts.stamp());
        self.doubts.settle(former);
    }

    /// The deadlines, for tests.
    pub fn deadlines(&self) -> impl Iterator<Item = (Moment, Timer)> {
        let waiters = self.waiters.iter();
        waiters.filter_map(|(id, waiter)| Some((waiter.deadline?, Timer::Wait(id))))
    }
}

impl ops::Index<Id<Waiter>> for Queues {
    type Output = Waiter;
    fn index(&self, id: Id<Waiter>) -> &Waiter {
        &self.waiters[id]
    }
}
