//! Rights that may be gone since somebody began to wait.
//!
//! A request comes from a user who may make it; when its turn comes, that may have changed. The engine knows of no users. It
//! is told that rights have changed, and from then on grants nothing to those who waited before that, until it is told what
//! a look at their rights has shown. Only who is about to be served is looked at, so a change costs nothing by itself.

use crate::engine::effect::{Effect, Refusal};
use crate::engine::event::{Event, Raise};
use crate::engine::limits::{HOLDS_PER_RIGHTS_CHECK, WAITERS_PER_RIGHTS_CHECK};
use crate::engine::state::rows::{Client, Hold, Name, Waiter};
use crate::engine::storage::arena::Id;
use crate::engine::tables::Engine;
use crate::engine::types::{ClientId, Form, KeyBuf, NoRight, WaitId};

/// A wait whose rights are to be looked at before it is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// For [`Event::Rights`], which is to be the next event.
    pub wait: WaitId,
    pub client: ClientId,
    /// What it has asked for, and of what keys.
    pub form: Form,
    pub keys: Vec<KeyBuf>,
}

impl Engine {
    /// Whether anybody waits whose rights may be gone. O(1).
    pub fn has_doubts(&self) -> bool {
        self.queues.has_doubts()
    }

    /// Whose rights are to be looked at before this event is told, lest its turn comes by that and it cannot be served in
    /// the same step. (Whoever is missed is served a little later.)
    pub fn doubt(&self, event: &Event<'_>) -> Option<Doubt> {
        if !self.has_doubts() {
            return None;
        }
        match *event {
            Event::Release { key, .. }
            | Event::Extend { key, .. }
            | Event::Raise(Raise { key, .. }) => self.doubt_among(self.keys.find_name(key)),
            Event::Drop { client, keys } => {
                // Its own waits for temporary keys are given up before anybody is served.
                let leaver = self.clients.find(client);
                let mut names = keys.iter().filter_map(|key| self.keys.find_name(*key));
                names.find_map(|name| self.doubt_at(name, leaver))
            }
            Event::LapseOf { keys } => {
                self.doubt_among(keys.iter().filter_map(|key| self.keys.find_name(*key)))
            }
            Event::Acquire(ask) => {
                let known = ask
                    .seen
                    .iter()
                    .filter_map(|seen| self.keys.find_name(seen.key));
                self.doubt_among(known)
            }
            Event::EndSession { client, .. } => {
                let session = self.clients.find(client).map(|id| self.clients.owner(id))?;
                self.doubt_about(session)
            }
            Event::KillSession { session, .. } => {
                self.doubt_about(self.sessions.numbered(session)?)
            }
            Event::Work { .. } | Event::Lapse { .. } => self.doubt_among(self.names_up_next()),
            _ => None,
        }
    }

    /// About the keys that a session holds, which is about to end.
    fn doubt_about(&self, session: Id<Client>) -> Option<Doubt> {
        let holds = self
            .holds
            .of_client(&self.clients, session)
            .take(HOLDS_PER_RIGHTS_CHECK);
        self.doubt_among(holds.filter_map(|hold| self.name_of_hold(hold)))
    }

    fn name_of_hold(&self, hold: Id<Hold>) -> Option<Id<Name>> {
        self.keys.name_of(self.holds[hold].key)
    }

    fn doubt_among(&self, names: impl IntoIterator<Item = Id<Name>>) -> Option<Doubt> {
        let mut names = names.into_iter();
        names.find_map(|name| self.doubt_at(name, None))
    }

    /// The names that are served first by work, or whose keys are freed.
    fn names_up_next(&self) -> impl Iterator<Item = Id<Name>> {
        let over = self.timers.first_lease().map(|(_, hold)| hold);
        let of_session = self.timers.first_grace().map(|(_, session)| session);
        let owners = [of_session, self.clients.first_ended()];
        let left = owners.into_iter().flatten();
        let left = left.filter_map(|owner| self.clients[owner].holding.head());
        let withdrawn = self.holds.acks.first_withdrawn();
        let freed = over.into_iter().chain(left).chain(withdrawn);
        let ready = self.ready.front().copied();
        ready
            .into_iter()
            .chain(freed.filter_map(|hold| self.name_of_hold(hold)))
    }

    /// Who is first in line at this name, or would go with who is, or after it where too few replicas are there for that, once this connection has given its waits for it as a
    /// temporary key up.
    fn doubt_at(&self, name: Id<Name>, leaver: Option<Id<Client>>) -> Option<Doubt> {
        let first = self
            .queues
            .of_name(&self.keys, name)
            .take(WAITERS_PER_RIGHTS_CHECK);
        let leaves = |waiter: &Waiter| {
            Some(waiter.client) == leaver && !waiter.terms.mode.is_lock() && waiter.reply_to.push
        };
        let stays = |id: &Id<Waiter>| !self.is_faded(*id) && !leaves(&self.queues[*id]);
        let mut first = first.filter(stays);
        let goes_alone = |id: &Id<Waiter>| {
            let terms = &self.queues[*id].terms;
            !terms.mode.is_for_many() && terms.acks.is_none()
        };
        let next = first.find(|id| self.queues.is_doubted(*id) || goes_alone(id))?;
        if !self.queues.is_doubted(next) {
            return None;
        }
        let names = self.queues.names_of(next);
        Some(Doubt {
            wait: WaitId(next.number()),
            client: self.queues[next].reply_to.client,
            form: self.queues[next].reply_to.form,
            keys: names.map(|name| self.keys[name].key().to_owned()).collect(),
        })
    }

    /// What a look at a waiter's rights has shown.
    pub(in crate::engine) fn looked_at_rights(
        &mut self,
        WaitId(wait): WaitId,
        lost: Option<NoRight>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(wait) = Id::of_number(wait) else {
            return;
        };
        match lost {
            None => self.queues.trust(wait),
            Some(right) => self.turn_away(wait, Some(Refusal::NoRight(right)), effects),
        }
    }
}
