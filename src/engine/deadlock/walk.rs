//! The walk from the newest wait over "must wait for" edges, until it comes back or has taken its steps.
//!
//! A wait must wait
//! - for each holder of its key that cannot share the key with it, and so for what that owner waits for itself;
//! - for the wait right ahead of it in the queue;
//! - for each wait ahead that cannot share the key with it, to release the key again: and so for what that owner waits for
//!   besides.
//!
//! Holders are followed before queues: behind a thousand who wait for the same key, its holder is what matters.

use crate::engine::limits::WALK_HOLDERS_PER_KEY;
use crate::engine::mode::Mode;
use crate::engine::state::rows::{Client, Hold, Name, QueueEntry, Waiter};
use crate::engine::storage::arena::Id;
use crate::engine::tables::Engine;
use crate::engine::terms::Attributes;
use hashbrown::{HashMap, HashSet};
use std::collections::VecDeque;

/// A wait that must end first at this key: the one that is waited for, or the one that waits for it.
#[derive(Clone, Copy)]
pub(super) struct Link {
    pub at: Id<Name>,
    pub waiter: Id<Waiter>,
}

/// An owner and in what way it has a key, or will have it.
type Way<'a> = (Id<Client>, &'a [u8], Mode, Attributes);

/// What is to be followed.
enum Next {
    Wait(Id<Waiter>),
    /// The waits ahead of this place, for the waiter behind them. The first of them is right ahead of it.
    Ahead(Link, Id<QueueEntry>, bool),
}

pub(super) struct Walk<'a> {
    engine: &'a Engine,
    newest: Id<Waiter>,
    /// For each wait that is reached, which one must wait for it, and at which key.
    reached: HashMap<Id<Waiter>, Link>,
    near: VecDeque<Id<Waiter>>,
    far: VecDeque<Next>,
    /// The keys whose holders were looked at for another owner that asks for it so, and the places.
    seen_keys: HashSet<(Id<Name>, Mode)>,
    seen_places: HashSet<(Id<QueueEntry>, Mode)>,
    steps: usize,
    is_cut: bool,
}

impl<'a> Walk<'a> {
    pub fn new(engine: &'a Engine, newest: Id<Waiter>, steps: usize) -> Self {
        Walk {
            engine,
            newest,
            reached: HashMap::new(),
            near: VecDeque::new(),
            far: VecDeque::new(),
            seen_keys: HashSet::new(),
            seen_places: HashSet::new(),
            steps,
            is_cut: false,
        }
    }

    /// The links of a cycle that the newest wait closes, beginning with it.
    pub fn cycle(&mut self) -> Option<Vec<Link>> {
        let mut next = Some(Next::Wait(self.newest));
        while let Some(step) = next {
            if !self.step() {
                return None;
            }
            let last = match step {
                Next::Wait(waiter) => self.follow(waiter),
                Next::Ahead(link, place, is_first) => self.follow_ahead(link, place, is_first),
            };
            if let Some(last) = last {
                return Some(self.path(last));
            }
            let near = self.near.pop_front().map(Next::Wait);
            next = near.or_else(|| self.far.pop_front());
        }
        None
    }

    /// Whether there was more to look at.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    #[cfg(test)]
    pub fn steps_left(&self) -> usize {
        self.steps
    }

    fn step(&mut self) -> bool {
        let has_more = self.steps > 0;
        self.steps = self.steps.saturating_sub(1);
        self.is_cut |= !has_more;
        has_more
    }

    /// Follows a wait to the holders of its keys, and later to its queues. The link back to the newest, if there is one.
    fn follow(&mut self, waiter: Id<Waiter>) -> Option<Link> {
        for (at, place) in self.engine.queues.places_of(waiter) {
            let link = Link { at, waiter };
            self.far.push_back(Next::Ahead(link, place, true));
            if !self.step() {
                return None;
            }
            if self.reaches_newest_by_holders(link) {
                return Some(link);
            }
        }
        None
    }

    fn reaches_newest_by_holders(&mut self, link: Link) -> bool {
        let engine = self.engine;
        let (client, label) = self.owner_of(link.waiter);
        let mode = engine.queues[link.waiter].terms.mode;
        let owner = engine.clients.owner(client);
        let Some(key) = engine.keys.held_at(link.at) else {
            return false;
        };
        let own = engine.holds.find(&engine.keys, key, owner, label);
        let is_seen = match own {
            Some(_) => self.seen_keys.contains(&(link.at, mode)),
            // Another that asks for it so waits for this owner's hold as well.
            None => !self.seen_keys.insert((link.at, mode)),
        };
        let all = match is_seen {
            true => 0,
            false => WALK_HOLDERS_PER_KEY,
        };
        let mut holds = engine.holds.all_of_key(&engine.keys, key);
        let others = holds.by_ref().take(all).filter(|hold| Some(*hold) != own);
        for hold in own.into_iter().chain(others) {
            if !self.step() {
                return false;
            }
            let (client, label) = holder_of(engine, hold);
            let attributes = engine.holds[hold].header.attributes();
            let way = (client, label, engine.holds.mode(hold), attributes);
            if is_lasting(engine, hold)
                && self.must_go(link.waiter, way)
                && self.reaches_newest_by_waits_of((client, label), link, true)
            {
                return true;
            }
        }
        self.is_cut |= !is_seen && holds.next().is_some();
        false
    }

    /// Follows a wait to the next one ahead of a place in a queue, and later further on.
    fn follow_ahead(&mut self, link: Link, place: Id<QueueEntry>, is_first: bool) -> Option<Link> {
        let engine = self.engine;
        let (place, ahead) = engine.queues.ahead_of(&engine.keys, place)?;
        if engine.is_dead_wait(ahead) {
            self.far.push_front(Next::Ahead(link, place, is_first));
            return None;
        }
        if is_first && self.reaches_newest(ahead, link, false) {
            return Some(link);
        }
        let mode = engine.queues[link.waiter].terms.mode;
        if !self.seen_places.insert((place, mode)) {
            return None;
        }
        // Somebody else: an owner waits once for a key.
        let (client, label) = self.owner_of(ahead);
        let terms = &engine.queues[ahead].terms;
        let way = (client, label, terms.mode, terms.attributes);
        if terms.lease_ms.is_none()
            && self.must_go(link.waiter, way)
            && self.reaches_newest_by_waits_of((client, label), link, false)
        {
            return Some(link);
        }
        self.far.push_back(Next::Ahead(link, place, false));
        None
    }

    /// Whether the newest is among the waits that keep this owner from releasing what it has.
    fn reaches_newest_by_waits_of(
        &mut self,
        (client, label): (Id<Client>, &[u8]),
        link: Link,
        is_near: bool,
    ) -> bool {
        let engine = self.engine;
        if !engine.clients[client].is_living() {
            return false;
        }
        let blocking = engine.clients[client].blocked.into_iter();
        for wait in blocking.chain(engine.queues.of_owner(client, label)) {
            if !self.step() {
                return false;
            }
            if self.reaches_newest(wait, link, is_near) {
                return true;
            }
        }
        false
    }

    fn reaches_newest(&mut self, wait: Id<Waiter>, link: Link, is_near: bool) -> bool {
        if wait != self.newest && self.reached.try_insert(wait, link).is_ok() {
            match is_near {
                true => self.near.push_back(wait),
                false => self.far.push_back(Next::Wait(wait)),
            }
        }
        wait == self.newest
    }

    fn path(&self, last: Link) -> Vec<Link> {
        let mut path = vec![last];
        while let Some(link) = path.last()
            && link.waiter != self.newest
        {
            path.push(self.reached[&link.waiter]);
        }
        path.reverse();
        path
    }

    fn owner_of(&self, waiter: Id<Waiter>) -> (Id<Client>, &'a [u8]) {
        let waiter = &self.engine.queues[waiter];
        (waiter.client, &waiter.terms.label)
    }

    /// Whether a waiter can only have its key when this owner does not have it any more.
    fn must_go(&self, id: Id<Waiter>, (client, label, mode, attributes): Way<'_>) -> bool {
        let asked = &self.engine.queues[id].terms;
        if self.owner_of(id) == (client, label) {
            let reenters = attributes.reentrant && asked.attributes.reentrant;
            let asks_for_one = self.engine.queues.asks_for_one(id);
            return !(reenters && asks_for_one && mode.reenters_as(asked.mode));
        }
        let are_too_many = match (mode, asked.mode) {
            (Mode::Permits { count, total }, Mode::Permits { count: more, .. }) => {
                u64::from(count) + u64::from(more) > u64::from(total)
            }
            _ => false,
        };
        are_too_many || !mode.is_compatible_with(asked.mode)
    }
}

/// A session waits by the connection that is attached to it. While none is, it waits for nothing,
/// and the end of its grace ends what it holds.
fn holder_of(engine: &Engine, hold: Id<Hold>) -> (Id<Client>, &[u8]) {
    let client = engine.holds[hold].client;
    let attached = engine.clients[client].attached();
    (attached.unwrap_or(client), engine.holds.label(hold))
}

/// Whether a hold does not end by itself. A lease can begin with the acknowledgement of its grant.
fn is_lasting(engine: &Engine, hold: Id<Hold>) -> bool {
    let pending = engine.holds.pending_grant(hold);
    engine.holds.lease(hold).is_none() && pending.is_none_or(|grant| grant.lease_ms.is_none())
}
