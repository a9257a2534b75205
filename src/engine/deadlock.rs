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

use super::Engine;
use super::arena::Id;
use super::ask::Mode;
use super::clients::Client;
use super::effect::Waits;
use super::holds::Hold;
use super::keys::KeyRecord;
use super::queues::Waiter;
use std::collections::HashSet;

/// Why a waiter cannot go on: another one is stuck that holds this key or is ahead in its queue.
struct Obstacle {
    key: Id<KeyRecord>,
    waiter: Id<Waiter>,
}

type Owner<'a> = (Id<Client>, &'a [u8]);

/// The room that is left for one who asks when all but the stuck have released what they hold.
struct Room<'a> {
    asked: Mode,
    owner: Owner<'a>,
    /// Permits that nobody takes.
    free: i64,
    /// Whose permits are counted: those of one owner once, however deep its hold will be.
    counted: HashSet<Owner<'a>>,
}

impl<'a> Room<'a> {
    fn for_one(asked: Mode, owner: Owner<'a>) -> Self {
        let free = match asked {
            Mode::Permits { count, total } => i64::from(total) - i64::from(count),
            _ => 0,
        };
        let counted = HashSet::new();
        Room {
            asked,
            owner,
            free,
            counted,
        }
    }

    /// Whether there is room still when this one, too, holds the key in this way. An owner does not
    /// go with itself.
    fn suffices(&mut self, other: Owner<'a>, held: Mode) -> bool {
        if held.permits() > 0 && self.counted.insert(other) {
            self.free -= i64::from(held.permits());
        }
        other != self.owner && self.asked.goes_with(held) && self.free >= 0
    }
}

impl Engine {
    /// The circle that this waiter, the newest, closes. O(1) while nobody waits for what its
    /// connection holds and its owner has no other wait; O(what its connection holds) while others wait for
    /// other labels of it; otherwise O(waiters and holders that it depends on, times those ahead of
    /// them, times the waits of their connections, at worst).
    pub(super) fn circle_of(&self, newest: Id<Waiter>) -> Option<Vec<Waits>> {
        if !self.is_waited_for(newest) {
            return None;
        }
        let mut stuck = self.all_it_depends_on(newest);
        loop {
            let all: HashSet<_> = stuck.iter().copied().collect();
            stuck.retain(|waiter| self.obstacle(*waiter, &all).is_some());
            if stuck.len() == all.len() {
                return all.contains(&newest).then(|| self.describe(newest, &all));
            }
        }
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
                is_wanted && self.holds.label(id) == label
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

    /// The waiter, those that it waits for, those that these wait for, and so on.
    fn all_it_depends_on(&self, newest: Id<Waiter>) -> Vec<Id<Waiter>> {
        let mut found = vec![newest];
        let mut known = HashSet::from([newest]);
        let mut next = 0;
        while let Some(&waiter) = found.get(next) {
            next += 1;
            for key in self.queues.keys_of(waiter) {
                let holders = self.holders_in_its_way(waiter, key);
                let owners = holders.map(|hold| (self.holds[hold].client, self.holds.label(hold)));
                let ahead = self.ahead_of(waiter, key);
                let ahead = ahead.map(|id| (self.queues[id].client, &*self.queues[id].label));
                for (client, label) in owners.chain(ahead) {
                    let waits = self.waits_of(client, label);
                    found.extend(waits.filter(|waiter| known.insert(*waiter)));
                }
            }
        }
        found
    }

    /// What keeps the waiter from ever being served while all of these are stuck: a stuck one ahead of
    /// it, or somebody stuck who holds the key, or will, in a way that does not go with its own.
    fn obstacle(&self, waiter: Id<Waiter>, stuck: &HashSet<Id<Waiter>>) -> Option<Obstacle> {
        let asked = self.queues[waiter].mode;
        let owner = self.owner_of(waiter);
        self.queues.keys_of(waiter).find_map(|key| {
            let stuck_of = |(client, label): Owner<'_>| {
                let mut waits = self.waits_of(client, label);
                waits.find(|waiter| stuck.contains(waiter))
            };
            let deepens = self.will_deepen(waiter, key);
            let mut room = Room::for_one(asked, owner);
            let holders = self.holders_in_its_way(waiter, key).find_map(|id| {
                let other = (self.holds[id].client, self.holds.label(id));
                let wait = stuck_of(other)?;
                (!deepens && !room.suffices(other, self.holds.mode(id))).then_some(wait)
            });
            let ahead = || {
                self.ahead_of(waiter, key).find_map(|id| {
                    let other = &self.queues[id];
                    if stuck.contains(&id) {
                        return Some(id);
                    }
                    let owner = self.owner_of(id);
                    let wait = stuck_of(owner)?;
                    let stays = other.lease_ms.is_none() && !deepens;
                    (stays && !room.suffices(owner, other.mode)).then_some(wait)
                })
            };
            let next = holders.or_else(ahead);
            next.map(|waiter| Obstacle { key, waiter })
        })
    }

    /// Whether the waiter's owner holds the key already, or will before it is the waiter's turn, so
    /// that it can make its hold deeper then.
    fn will_deepen(&self, waiter: Id<Waiter>, key: Id<KeyRecord>) -> bool {
        let Waiter {
            client,
            label,
            mode,
            ..
        } = &self.queues[waiter];
        if !self.queues.asks_for_one(waiter) {
            return false;
        }
        let owner = self.clients.owner(*client);
        let held = self.holds.find(&self.keys, key, owner, label);
        let held = held.filter(|hold| self.holds.lease(*hold).is_none());
        let held = held.map(|hold| self.holds.mode(hold));
        let own = self.ahead_of(waiter, key).map(|id| &self.queues[id]);
        let own = own.filter(|other| (other.client, &other.label) == (*client, label));
        let own = own.filter(|other| other.lease_ms.is_none());
        let mut first = held.into_iter().chain(own.map(|other| other.mode));
        first.next().is_some_and(|first| first.deepens_as(*mode))
    }

    /// The holds that do not end by themselves and that the waiter may have to wait for.
    fn holders_in_its_way(
        &self,
        waiter: Id<Waiter>,
        key: Id<KeyRecord>,
    ) -> impl Iterator<Item = Id<Hold>> {
        let mode = self.queues[waiter].mode;
        self.holds.of_key(&self.keys, key).filter(move |id| {
            let held = self.holds.mode(*id);
            let shares = mode.goes_with(held) && held.permits() == 0;
            self.holds.lease(*id).is_none() && !shares
        })
    }

    fn owner_of(&self, waiter: Id<Waiter>) -> Owner<'_> {
        let Waiter { client, label, .. } = &self.queues[waiter];
        (self.clients.owner(*client), label)
    }

    fn ahead_of(&self, waiter: Id<Waiter>, key: Id<KeyRecord>) -> impl Iterator<Item = Id<Waiter>> {
        let queue = self.queues.of_key(&self.keys, key);
        queue.take_while(move |ahead| *ahead != waiter)
    }

    /// The waits that keep an owner from releasing what it holds.
    fn waits_of<'a>(
        &'a self,
        client: Id<Client>,
        label: &'a [u8],
    ) -> impl Iterator<Item = Id<Waiter>> + 'a {
        // A session waits by the connection that is attached to it. While none is, it waits for nothing,
        // and the end of its grace ends what it holds.
        let client = self.clients[client].attached.unwrap_or(client);
        let waits = self.queues.of_client(&self.clients, client);
        waits.filter(move |id| !self.queues[*id].push || &*self.queues[*id].label == label)
    }

    /// Who waits for whom, from the newest on until it comes round. Where the newest only waits for
    /// a circle of others, that circle.
    fn describe(&self, newest: Id<Waiter>, stuck: &HashSet<Id<Waiter>>) -> Vec<Waits> {
        let mut path: Vec<Obstacle> = Vec::new();
        let mut waiter = newest;
        while let Some(next) = self.obstacle(waiter, stuck) {
            let key = next.key;
            path.push(Obstacle { key, waiter });
            waiter = next.waiter;
            if let Some(start) = path.iter().position(|link| link.waiter == waiter) {
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
