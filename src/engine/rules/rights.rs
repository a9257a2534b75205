//! ACL changes during a wait.
//!
//! The server checks a user's rights when the command is given; the ACL may change before the wait is served. The engine knows no
//! users. After `RightsChanged` it grants nothing to earlier waiters until the shell has checked their rights. Only waiters that
//! are about to be served are checked, so a change costs nothing by itself.

use crate::engine::effect::{Effect, Refusal};
use crate::engine::event::{Event, Raise};
use crate::engine::limits::{HOLDS_PER_RIGHTS_CHECK, WAITERS_PER_RIGHTS_CHECK};
use crate::engine::state::rows::{Client, Hold, Name, Waiter};
use crate::engine::storage::arena::Id;
use crate::engine::tables::Engine;
use crate::engine::types::{ClientId, Form, KeyBuf, NoRight, WaitId};

/// A wait whose rights must be checked before it is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// For [`Event::Rights`], which must be the next event.
    pub wait: WaitId,
    pub client: ClientId,
    /// Which command it gave.
    pub form: Form,
    pub keys: Vec<KeyBuf>,
}

impl Engine {
    /// Whether any waiter's rights are unchecked since the ACL changed. O(1).
    pub fn has_doubts(&self) -> bool {
        self.queues.has_unchecked()
    }

    /// The wait whose rights must be checked before this event, so that the event can serve it in the same step. (A wait that is
    /// missed is served a little later.)
    pub fn doubt(&self, event: &Event<'_>) -> Option<Doubt> {
        if !self.has_doubts() {
            return None;
        }
        match *event {
            Event::Release { key, .. }
            | Event::Extend { key, .. }
            | Event::Raise(Raise { key, .. }) => self.doubt_among(self.keys.find_name(key)),
            Event::Drop { client, keys } => {
                // DELTP removes the caller's own waits for temporary keys first.
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

    /// The same for the keys of a session that is about to end.
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

    /// The names that the next work serves first.
    fn names_up_next(&self) -> impl Iterator<Item = Id<Name>> {
        let over = self.timers.first_lease().map(|(_, hold)| hold);
        let of_session = self.timers.first_grace().map(|(_, session)| session);
        let owners = [of_session, self.clients.first_orphaner()];
        let left = owners.into_iter().flatten();
        let left = left.filter_map(|owner| self.clients[owner].holding.head());
        let freed = over.into_iter().chain(left);
        let ready = self.ready.front().copied();
        ready
            .into_iter()
            .chain(freed.filter_map(|hold| self.name_of_hold(hold)))
    }

    /// The first of the next [`WAITERS_PER_RIGHTS_CHECK`] waiters that this event could serve and whose rights are unchecked;
    /// `leaver`'s own temporary-key waits are skipped (DELTP removes them first).
    fn doubt_at(&self, name: Id<Name>, leaver: Option<Id<Client>>) -> Option<Doubt> {
        let first = self
            .queues
            .of_name(&self.keys, name)
            .take(WAITERS_PER_RIGHTS_CHECK);
        let leaves = |waiter: &Waiter| {
            Some(waiter.client) == leaver && !waiter.terms.mode.is_lock() && waiter.reply_to.push
        };
        let stays = |id: &Id<Waiter>| !self.is_dead_wait(*id) && !leaves(&self.queues[*id]);
        let mut first = first.filter(stays);
        let goes_alone = |id: &Id<Waiter>| {
            let terms = &self.queues[*id].terms;
            !terms.mode.admits_others() && terms.acks.is_none()
        };
        let next = first.find(|id| self.queues.needs_acl_check(*id) || goes_alone(id))?;
        if !self.queues.needs_acl_check(next) {
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

    /// The result of a rights check.
    pub(in crate::engine) fn apply_acl_check(
        &mut self,
        WaitId(wait): WaitId,
        lost: Option<NoRight>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(wait) = Id::of_number(wait) else {
            return;
        };
        match lost {
            None => self.queues.mark_acl_checked(wait),
            Some(right) => self.fail_wait(wait, Some(Refusal::NoRight(right)), effects),
        }
    }
}
