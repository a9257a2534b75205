//! Circles in which each can only go on after the next, whatever all others do: looked for where there is too much for
//! trying out what everybody will do.
//!
//! Holders are looked at before waiters: behind a thousand who wait for the same key, its holder is what matters.

use super::edges::{Budget, Obstacle, holder_of, is_lasting, living_ahead};
use crate::engine::mode::Mode;
use crate::engine::state::rows::{Client, Waiter};
use crate::engine::storage::arena::Id;
use crate::engine::tables::Engine;
use hashbrown::HashMap;
use std::collections::VecDeque;

/// So many of a key's holders are looked at: each of them alone is in the way.
const HOLDERS: usize = 32;

/// Who waits for whom, from the newest on.
pub(super) struct Walk<'a> {
    engine: &'a Engine,
    /// For each that is reached, who waits for it and at which key.
    reached: HashMap<Id<Waiter>, Obstacle>,
    near: VecDeque<Id<Waiter>>,
    far: VecDeque<Id<Waiter>>,
    budget: Budget,
}

impl<'a> Walk<'a> {
    pub fn new(engine: &'a Engine, steps: usize) -> Self {
        Walk {
            engine,
            reached: HashMap::new(),
            near: VecDeque::new(),
            far: VecDeque::new(),
            budget: Budget::of(steps),
        }
    }

    /// The links of a cycle that the newest closes, beginning with it; nothing if there is none, or none in so many steps.
    pub fn cycle(&mut self, newest: Id<Waiter>) -> Option<Vec<Obstacle>> {
        let mut next = Some(newest);
        while let Some(waiter) = next {
            if let Some(last) = self.follow(waiter, newest) {
                return Some(self.path(newest, last));
            }
            if self.budget.is_spent() {
                return None;
            }
            next = self.near.pop_front().or_else(|| self.far.pop_front());
        }
        None
    }

    /// Reaches all for whom this one must wait. The link back to the newest, if there is one.
    fn follow(&mut self, id: Id<Waiter>, newest: Id<Waiter>) -> Option<Obstacle> {
        let engine = self.engine;
        for (key, place) in engine.queues.places_of(id) {
            self.budget.take()?;
            let link = || Obstacle { key, waiter: id };
            for hold in engine.holds_at(key).take(HOLDERS) {
                self.budget.take()?;
                if !is_lasting(engine, hold) {
                    continue;
                }
                let owner = holder_of(engine, hold);
                if must_go(engine, id, (owner.0, owner.1, engine.holds.mode(hold)))
                    && self.reach_waits_of(owner, link, newest, true)
                {
                    return Some(link());
                }
            }
            if let Some(ahead) = living_ahead(engine, place, &mut self.budget)? {
                if self.reach(ahead, link, newest, false) {
                    return Some(link());
                }
                let Waiter { client, terms, .. } = &engine.queues[ahead];
                let (client, label) = (*client, &*terms.label);
                if terms.lease_ms.is_none()
                    && must_go(engine, id, (client, label, terms.mode))
                    && self.reach_waits_of((client, label), link, newest, false)
                {
                    return Some(link());
                }
            }
        }
        None
    }

    /// Whether the newest is among the waits of this owner.
    fn reach_waits_of(
        &mut self,
        (client, label): (Id<Client>, &[u8]),
        link: impl Fn() -> Obstacle,
        newest: Id<Waiter>,
        is_near: bool,
    ) -> bool {
        let engine = self.engine;
        if engine.clients[client].ended {
            return false;
        }
        let blocking = engine.clients[client].blocked;
        let waits = blocking
            .into_iter()
            .chain(engine.queues.of_owner(client, label));
        for wait in waits {
            if self.budget.take().is_none() {
                return false;
            }
            if self.reach(wait, &link, newest, is_near) {
                return true;
            }
        }
        false
    }

    fn reach(
        &mut self,
        wait: Id<Waiter>,
        link: impl Fn() -> Obstacle,
        newest: Id<Waiter>,
        is_near: bool,
    ) -> bool {
        if wait == newest {
            return true;
        }
        if self.reached.try_insert(wait, link()).is_ok() {
            let queue = if is_near {
                &mut self.near
            } else {
                &mut self.far
            };
            queue.push_back(wait);
        }
        false
    }

    fn path(&self, newest: Id<Waiter>, last: Obstacle) -> Vec<Obstacle> {
        let mut path = vec![last];
        while let Some(link) = path.last()
            && link.waiter != newest
        {
            let Obstacle { key, waiter } = self.reached[&link.waiter];
            path.push(Obstacle { key, waiter });
        }
        path.reverse();
        path
    }
}

/// Whether a waiter can only have its key when this one does not have it any more. (Of a semaphore others may give
/// permits back.)
fn must_go(
    engine: &Engine,
    id: Id<Waiter>,
    (client, label, mode): (Id<Client>, &[u8], Mode),
) -> bool {
    let waiter = &engine.queues[id];
    let asked = waiter.terms.mode;
    let is_own = waiter.client == client && *waiter.terms.label == *label;
    is_own || !mode.is_compatible_with(asked)
}
