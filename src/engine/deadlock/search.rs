//! Tries out whether a request would wait for ever: everybody it depends on goes on who can, until
//! nobody can.
//!
//! Each wait, each hold and each place in a queue that is reached is looked at a fixed number of times,
//! however many of them belong to one connection or stand in one queue. Where more are reached than there are steps for,
//! the search is given up.

use super::edges::{Budget, Obstacle, Owner, SEARCH_STEPS, holder_of, is_lasting, living_ahead};
use super::room::Room;
use crate::engine::mode::Mode;
use crate::engine::state::rows::{Client, KeyRecord, Waiter};
use crate::engine::storage::arena::Id;
use crate::engine::tables::Engine;
use hashbrown::HashMap;
use std::mem::{replace, take};

/// One key: who stays there, and those of its queue who are reached, which are its first.
#[derive(Default)]
struct Line<'a> {
    /// Its holders are in the way of somebody who is reached.
    has_holders: bool,
    room: Room<'a>,
    queue: Vec<Id<Waiter>>,
    /// How many of the queue have been served.
    served: usize,
    /// The next of the queue can have the key.
    is_open: bool,
}

/// The waits of a connection.
#[derive(Default)]
struct Connection<'a> {
    /// It is reached that the connection is blocked by a wait that is stuck. That stops all its labels.
    is_blocked: bool,
    labels: HashMap<&'a [u8], Label>,
}

/// The waits of an owner.
#[derive(Default)]
struct Label {
    is_reached: bool,
    /// How many of them are reached and stuck.
    stuck: usize,
    stays_at: Vec<Id<KeyRecord>>,
}

pub(super) struct Search<'a> {
    engine: &'a Engine,
    /// Who is reached and not served, and how many of its keys it cannot have yet.
    stuck: HashMap<Id<Waiter>, usize>,
    reached: Vec<Id<Waiter>>,
    lines: HashMap<Id<KeyRecord>, Line<'a>>,
    connections: HashMap<Id<Client>, Connection<'a>>,
    /// Who can go on and has not been served yet.
    next: Vec<Id<Waiter>>,
    /// For reaching all on whom the newest depends. What comes after that takes no more than a few times as many steps.
    budget: Budget,
}

impl<'a> Search<'a> {
    pub fn new(engine: &'a Engine, steps: usize) -> Self {
        Search {
            engine,
            stuck: HashMap::new(),
            reached: Vec::new(),
            lines: HashMap::new(),
            connections: HashMap::new(),
            next: Vec::new(),
            budget: Budget::of(steps),
        }
    }

    /// Whether this waiter can never be served unless somebody ends a wait; nothing if that cannot be found out in so many
    /// steps. Asked once. O(waiters and holders that it depends on).
    pub fn is_stuck(&mut self, newest: Id<Waiter>) -> Option<bool> {
        self.reach(newest)?;
        self.line_up();
        while let Some(waiter) = self.next.pop() {
            if waiter == newest {
                return Some(false);
            }
            self.serve(waiter);
        }
        for line in self.lines.values_mut() {
            line.room.settle();
        }
        Some(true)
    }

    #[cfg(test)]
    pub fn steps_left(&self) -> usize {
        self.budget.left()
    }

    // ---- who is reached ----

    /// Reaches the waiter, those that it waits for, those that these wait for, and so on. Nothing if the steps do not suffice.
    fn reach(&mut self, newest: Id<Waiter>) -> Option<()> {
        let engine = self.engine;
        let Waiter {
            client,
            terms,
            reply_to,
            ..
        } = &engine.queues[newest];
        let (client, label, push) = (*client, &*terms.label, reply_to.push);
        let mut connection = Connection {
            is_blocked: !push,
            labels: HashMap::new(),
        };
        connection.labels.entry(label).or_default().stuck = usize::from(push);
        self.connections.insert(client, connection);
        self.stuck.insert(newest, 0);
        self.reached.push(newest);
        let mut next = 0;
        while let Some(&waiter) = self.reached.get(next) {
            next += 1;
            let mode = engine.queues[waiter].terms.mode;
            for (key, place) in engine.queues.places_of(waiter) {
                self.budget.take()?;
                *self.stuck.entry(waiter).or_default() += 1;
                self.reach_holders(key, mode, waiter)?;
                // Whoever is further ahead is right ahead of another one.
                if let Some(ahead) = living_ahead(engine, place, &mut self.budget)? {
                    self.reach_owner(self.owner_of(ahead))?;
                }
            }
        }
        Some(())
    }

    /// Reaches the key's holders, unless they are not in the way of one who asks for it so.
    fn reach_holders(&mut self, key: Id<KeyRecord>, asked: Mode, waiter: Id<Waiter>) -> Option<()> {
        // Its own hold, which came by another name, is in its way.
        let shares = asked.permits() == 0 && asked.goes_with(self.engine.keys[key].held());
        let has_it = shares && self.has(waiter, key);
        let line = self.lines.entry(key).or_default();
        let is_held = self.engine.holds_at(key).next().is_some();
        if line.has_holders || !is_held || (shares && !has_it) {
            return Some(());
        }
        line.has_holders = true;
        for hold in self.engine.holds.all_of_key(&self.engine.keys, key) {
            self.budget.take()?;
            if is_lasting(self.engine, hold) {
                self.reach_owner(holder_of(self.engine, hold))?;
            }
        }
        Some(())
    }

    fn has(&self, waiter: Id<Waiter>, key: Id<KeyRecord>) -> bool {
        let (client, label) = self.owner_of(waiter);
        let owner = self.engine.clients.owner(client);
        let hold = self.engine.holds.find(&self.engine.keys, key, owner, label);
        hold.is_some()
    }

    /// Reaches the waits that keep an owner from letting go what it holds.
    fn reach_owner(&mut self, (client, name): Owner<'a>) -> Option<()> {
        let engine = self.engine;
        if engine.clients[client].ended {
            // What it holds goes, whatever it waited for.
            return Some(());
        }
        let connection = self.connections.entry(client).or_default();
        let label = connection.labels.entry(name).or_default();
        if replace(&mut label.is_reached, true) {
            return Some(());
        }
        for wait in engine.queues.of_owner(client, name) {
            self.budget.take()?;
            if self.stuck.try_insert(wait, 0).is_ok() {
                self.reached.push(wait);
                label.stuck += 1;
            }
        }
        let blocking = engine.clients[client].blocked;
        if let Some(wait) = blocking.filter(|wait| !self.stuck.contains_key(wait)) {
            self.stuck.insert(wait, 0);
            self.reached.push(wait);
            connection.is_blocked = true;
        }
        Some(())
    }

    // ---- who goes on ----

    /// Puts everybody in place, and finds those who can go on at once.
    fn line_up(&mut self) {
        let engine = self.engine;
        let keys: Vec<_> = self.lines.keys().copied().collect();
        for key in keys {
            if let Some(line) = self.lines.get_mut(&key) {
                let queue = engine.queues.of_key(&engine.keys, key);
                // No more of ended connections have been passed by on the way to those who are reached.
                let mut faded = 0;
                let first = queue.take_while(|id| {
                    let is_faded = engine.is_faded(*id);
                    faded += usize::from(is_faded);
                    (is_faded && faded <= SEARCH_STEPS) || self.stuck.contains_key(id)
                });
                line.queue = first.filter(|id| !engine.is_faded(*id)).collect();
            }
            if self.lines[&key].has_holders {
                let holds = engine.holds.all_of_key(&engine.keys, key);
                for hold in holds.filter(|hold| is_lasting(engine, *hold)) {
                    self.stay(holder_of(engine, hold), key, engine.holds.mode(hold));
                }
            }
            self.look(key);
        }
    }

    /// An owner has the key from now on, as long as it is stuck.
    fn stay(&mut self, owner: Owner<'a>, key: Id<KeyRecord>, mode: Mode) {
        let (client, name) = owner;
        let Some(connection) = self.connections.get_mut(&client) else {
            return;
        };
        let label = connection.labels.entry(name).or_default();
        let line = self.lines.get_mut(&key);
        if (connection.is_blocked || label.stuck > 0)
            && line.is_some_and(|line| line.room.enter(owner, mode))
        {
            label.stays_at.push(key);
        }
    }

    /// Lets a waiter go on that can: its owner, if it has no other wait, lets go of all that it has.
    fn serve(&mut self, id: Id<Waiter>) {
        let engine = self.engine;
        let waiter = &engine.queues[id];
        let owner = self.owner_of(id);
        self.stuck.remove(&id);
        let free = self.owners_freed_by(waiter);
        for key in engine.queues.keys_of(id) {
            if waiter.terms.lease_ms.is_none() {
                self.stay(owner, key, waiter.terms.mode);
            }
            if let Some(line) = self.lines.get_mut(&key) {
                line.served += 1;
                line.is_open = false;
            }
            self.look(key);
        }
        for (owner, keys) in free {
            for key in keys {
                if let Some(line) = self.lines.get_mut(&key) {
                    line.room.leave(owner);
                }
                self.look(key);
            }
        }
    }

    /// The owners that have no wait any more that is stuck, now that this one is served, and where they
    /// stay until now.
    fn owners_freed_by(&mut self, waiter: &'a Waiter) -> Vec<(Owner<'a>, Vec<Id<KeyRecord>>)> {
        let client = waiter.client;
        let Some(connection) = self.connections.get_mut(&client) else {
            return Vec::new();
        };
        if !waiter.reply_to.push {
            connection.is_blocked = false;
            let labels = connection.labels.iter_mut();
            let free = labels.filter(|(_, label)| label.stuck == 0);
            let free = free.map(|(name, label)| ((client, *name), take(&mut label.stays_at)));
            return free.collect();
        }
        let name = &*waiter.terms.label;
        let label = connection.labels.entry(name).or_default();
        label.stuck -= 1;
        if connection.is_blocked || label.stuck > 0 {
            return Vec::new();
        }
        vec![((client, name), take(&mut label.stays_at))]
    }

    /// Looks whether the next in a queue can have its key.
    fn look(&mut self, key: Id<KeyRecord>) {
        let Some(line) = self.lines.get_mut(&key).filter(|line| !line.is_open) else {
            return;
        };
        let Some(&id) = line.queue.get(line.served) else {
            return;
        };
        let Waiter { client, terms, .. } = &self.engine.queues[id];
        line.is_open = line.room.admits((*client, &terms.label), terms.mode);
        if line.is_open
            && let Some(left) = self.stuck.get_mut(&id)
        {
            *left -= 1;
            if *left == 0 {
                self.next.push(id);
            }
        }
    }

    // ---- who is in whose way ----

    /// What keeps a stuck waiter from ever being served: somebody stuck who has its key or will, in a
    /// way that does not go with its own, or the first of those ahead of it who are stuck.
    pub fn obstacle(&self, waiter: Id<Waiter>) -> Option<Obstacle> {
        let owner = self.owner_of(waiter);
        let asked = self.engine.queues[waiter].terms.mode;
        self.engine.queues.keys_of(waiter).find_map(|key| {
            let line = self.lines.get(&key)?;
            let other = if line.room.admits(owner, asked) {
                let first = line.queue.get(line.served).copied();
                first.filter(|first| *first != waiter)
            } else {
                let other = line.room.who_is_too_many(owner, asked);
                other.and_then(|other| self.stuck_wait_of(other))
            };
            other.map(|waiter| Obstacle { key, waiter })
        })
    }

    fn stuck_wait_of(&self, (client, name): Owner<'a>) -> Option<Id<Waiter>> {
        let blocking = self.engine.clients[client].blocked;
        let mut waits = self.engine.queues.of_owner(client, name).chain(blocking);
        waits.find(|wait| self.stuck.contains_key(wait))
    }

    fn owner_of(&self, waiter: Id<Waiter>) -> Owner<'a> {
        let Waiter { client, terms, .. } = &self.engine.queues[waiter];
        (*client, &terms.label)
    }
}
