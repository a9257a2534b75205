//! A breadth-first search from the newest wait over "must wait for" edges, until it reaches the newest wait again or has used up
//! its steps.
//!
//! A wait must wait
//! - for each holder of its key in an incompatible mode, and so for the waits of that hold's task;
//! - for the wait right ahead of it in the queue;
//! - for each wait ahead in an incompatible mode: its task will get the key and must release it, and so must end its other waits.
//!
//! Holders are followed before queues: behind a thousand waits for one key, its holder is what matters.

use crate::engine::limits::WALK_HOLDERS_PER_KEY;
use crate::engine::mode::Mode;
use crate::engine::state::rows::{Client, Hold, Name, QueueEntry, Waiter};
use crate::engine::storage::arena::Id;
use crate::engine::tables::Engine;
use crate::engine::terms::Terms;
use hashbrown::{HashMap, HashSet};
use std::collections::VecDeque;

/// A wait, and one of the keys it waits for.
#[derive(Clone, Copy)]
pub(super) struct Link {
    pub at: Id<Name>,
    pub waiter: Id<Waiter>,
}

/// A connection, and the terms on which it holds a key or will hold it.
type Claim<'a> = (Id<Client>, Terms<&'a [u8]>);

/// A connection's task.
type Task<'a> = (Id<Client>, &'a [u8]);

/// A step of the search.
enum Next<'a> {
    Wait(Id<Waiter>),
    /// The waits ahead of a queue entry, which the link's waiter must wait for.
    Ahead(Ahead<'a>),
}

#[derive(Clone, Copy)]
struct Ahead<'a> {
    link: Link,
    entry: Id<QueueEntry>,
    /// The first of them is right ahead of the waiter.
    is_adjacent: bool,
    /// The waiter's task, if it has other waits, which may be passed over: what it finds in the queue is not all that others would.
    by: Option<Task<'a>>,
}

pub(super) struct Walk<'a> {
    engine: &'a Engine,
    newest: Id<Waiter>,
    /// For each wait reached, the wait that must wait for it, and at which key.
    reached: HashMap<Id<Waiter>, Link>,
    /// Reached by a holder: followed first.
    by_holder: VecDeque<Id<Waiter>>,
    by_queue: VecDeque<Next<'a>>,
    /// Keys whose holders, and queue entries whose owners, were visited for a wait of this mode; with a task: of this task, some of
    /// whose own claims were or may be passed over.
    seen_keys: HashSet<(Id<Name>, Mode, Option<Task<'a>>)>,
    seen_entries: HashSet<(Id<QueueEntry>, Mode, Option<Task<'a>>)>,
    /// The steps left.
    steps: usize,
    is_cut: bool,
}

impl<'a> Walk<'a> {
    pub fn new(engine: &'a Engine, newest: Id<Waiter>, steps: usize) -> Self {
        Walk {
            engine,
            newest,
            reached: HashMap::new(),
            by_holder: VecDeque::new(),
            by_queue: VecDeque::new(),
            seen_keys: HashSet::new(),
            seen_entries: HashSet::new(),
            steps,
            is_cut: false,
        }
    }

    /// The links of a cycle that the newest wait closes, beginning with its own.
    pub fn cycle(&mut self) -> Option<Vec<Link>> {
        let mut next = Some(Next::Wait(self.newest));
        while let Some(step) = next {
            if !self.step() {
                return None;
            }
            let last = match step {
                Next::Wait(waiter) => self.follow(waiter),
                Next::Ahead(ahead) => self.follow_ahead(ahead),
            };
            if let Some(last) = last {
                return Some(self.path(last));
            }
            let next_wait = self.by_holder.pop_front().map(Next::Wait);
            next = next_wait.or_else(|| self.by_queue.pop_front());
        }
        None
    }

    /// Whether the search hit a limit.
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

    /// Follows a wait to the holders of its keys, and schedules its queues. Returns the link to the newest wait, if reached.
    fn follow(&mut self, waiter: Id<Waiter>) -> Option<Link> {
        let by = self
            .engine
            .queues
            .has_other_wait(&self.engine.clients, waiter);
        let by = by.then(|| self.task_of(waiter));
        for (at, entry) in self.engine.queues.places_of(waiter) {
            let link = Link { at, waiter };
            self.by_queue.push_back(Next::Ahead(Ahead {
                link,
                entry,
                is_adjacent: true,
                by,
            }));
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
        let (client, terms) = self.claim_of(link.waiter);
        let (mode, task) = (terms.mode, self.task_of(link.waiter));
        let owner = engine.clients.owner(client);
        let Some(key) = engine.keys.held_at(link.at) else {
            return false;
        };
        let own = engine.holds.find(&engine.keys, key, owner, terms.label);
        let is_seen = [None, Some(task)]
            .iter()
            .any(|by| self.seen_keys.contains(&(link.at, mode, *by)));
        let mut is_any_passed_over = false;
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
            // A detached session's holds end with its grace.
            let holder = engine.clients.connection_of(engine.holds[hold].client);
            let claim = (holder, engine.holds.terms(hold));
            if !is_lasting(engine, hold) || !self.must_release(link.waiter, &claim) {
                continue;
            }
            is_any_passed_over |= self.passes_over(link.waiter, &claim);
            if self.reaches_newest_by_waits_of(&claim, link, true) {
                return true;
            }
        }
        self.is_cut |= !is_seen && holds.next().is_some();
        // Another owner that asks for this mode waits for this owner's hold, too.
        if own.is_none() && !is_seen {
            let by = is_any_passed_over.then_some(task);
            self.seen_keys.insert((link.at, mode, by));
        }
        false
    }

    /// Follows a wait to the next one ahead of a queue entry, and schedules the rest of the queue.
    fn follow_ahead(&mut self, from: Ahead<'a>) -> Option<Link> {
        let (engine, link, by) = (self.engine, from.link, from.by);
        let (entry, ahead) = engine.queues.ahead_of(&engine.keys, from.entry)?;
        if engine.is_dead_wait(ahead) {
            self.by_queue
                .push_front(Next::Ahead(Ahead { entry, ..from }));
            return None;
        }
        if from.is_adjacent && self.reaches_newest(ahead, link, false) {
            return Some(link);
        }
        let mode = engine.queues[link.waiter].terms.mode;
        let is_seen = self.seen_entries.contains(&(entry, mode, None));
        if is_seen || !self.seen_entries.insert((entry, mode, by)) {
            return None;
        }
        // Another owner: an owner waits once for a key.
        let claim = self.claim_of(ahead);
        if claim.1.lease_ms.is_none()
            && self.must_release(link.waiter, &claim)
            && self.reaches_newest_by_waits_of(&claim, link, false)
        {
            return Some(link);
        }
        self.by_queue.push_back(Next::Ahead(Ahead {
            entry,
            is_adjacent: false,
            ..from
        }));
        None
    }

    /// Whether the newest wait is among those that keep the link's waiter from getting what is claimed; schedules the others.
    fn reaches_newest_by_waits_of(
        &mut self,
        claim: &Claim<'_>,
        link: Link,
        is_by_holder: bool,
    ) -> bool {
        let engine = self.engine;
        let client = claim.0;
        if !engine.clients[client].is_living() {
            return false;
        }
        let blocking = engine.clients[client].blocked.into_iter();
        let pushed = match self.passes_over(link.waiter, claim) {
            true => None,
            false => Some(engine.queues.of_task(client, claim.1.task())),
        };
        for wait in blocking.chain(pushed.into_iter().flatten()) {
            if !self.step() {
                return false;
            }
            if self.reaches_newest(wait, link, is_by_holder) {
                return true;
            }
        }
        false
    }

    fn reaches_newest(&mut self, wait: Id<Waiter>, link: Link, is_by_holder: bool) -> bool {
        if wait != self.newest && self.reached.try_insert(wait, link).is_ok() {
            match is_by_holder {
                true => self.by_holder.push_back(wait),
                false => self.by_queue.push_back(Next::Wait(wait)),
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

    fn claim_of(&self, waiter: Id<Waiter>) -> Claim<'a> {
        let waiter = &self.engine.queues[waiter];
        (waiter.client, waiter.terms.borrowed())
    }

    fn task_of(&self, waiter: Id<Waiter>) -> Task<'a> {
        let waiter = &self.engine.queues[waiter];
        (waiter.client, waiter.terms.task())
    }

    /// Whether a claim is one of the waiter's own task, under another label, beside others: only a wait that blocks the connection
    /// keeps it, since the task may have given it to another one.
    fn passes_over(&self, id: Id<Waiter>, (client, terms): &Claim<'_>) -> bool {
        let Waiter {
            client: asker,
            terms: asked,
            ..
        } = &self.engine.queues[id];
        asker == client
            && terms.mode.admits_others()
            && terms.label != &*asked.label
            && terms.task() == asked.task()
    }

    /// Whether a waiter can only get its key after its owner has released this claim.
    fn must_release(&self, id: Id<Waiter>, (client, terms): &Claim<'_>) -> bool {
        let waiter = &self.engine.queues[id];
        let (asked, mode) = (&waiter.terms, terms.mode);
        if (waiter.client, &*asked.label) == (*client, terms.label) {
            let reenters = terms.attributes.reentrant && asked.attributes.reentrant;
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

/// Whether a hold does not end by itself. A pending grant's lease begins at its acknowledgement.
fn is_lasting(engine: &Engine, hold: Id<Hold>) -> bool {
    let pending = engine.holds.pending_grant(hold);
    engine.holds.lease(hold).is_none() && pending.is_none_or(|grant| grant.lease_ms.is_none())
}
