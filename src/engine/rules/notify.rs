//! Who is told that it lost what it held: nobody who did not ask for it.
//!
//! That is asked for with each hold, and kept with it. A session can change its connection: the new one is told of what
//! it asks for itself, and of what former ones asked for only if it said so when it resumed the session.

use crate::engine::effect::{Effect, Lost, NameFrom, News, Push};
use crate::engine::limits::LOSSES_LOGGED_APART;
use crate::engine::state::rows::Hold;
use crate::engine::storage::arena::Id;
use crate::engine::tables::Engine;
use crate::engine::types::{ClientId, Kind, Loss, NOBODY, Origin};

impl Engine {
    /// A request has made this hold deeper that asks to be told of its loss, or does not. O(1).
    pub(in crate::engine) fn deepen_notice(&mut self, hold: Id<Hold>, notify: bool) {
        if notify {
            let session = self.sessions.get(self.holds[hold].client);
            let attachment = session.map_or(0, |session| session.attachment);
            self.holds.notify_in(hold, attachment);
        }
    }

    /// Whether the connection that speaks for an owner asked to be told of the loss of this hold. O(1).
    fn is_to_hear(&self, id: Id<Hold>) -> bool {
        let hold = &self.holds[id];
        if !self.holds.is_notified(id) {
            return false;
        }
        let session = self.sessions.get(hold.client);
        session.is_none_or(|session| {
            self.holds.granted_as(id) > session.hears_after
                || self.holds.notified_in(id) == session.attachment
        })
    }

    /// Counts a hold that ended other than by its owner, and tells that owner if it asked for it.
    pub(in crate::engine) fn notify_lost(
        &mut self,
        id: Id<Hold>,
        why: Loss,
        effects: &mut Vec<Effect>,
    ) {
        let hold = &self.holds[id];
        let owner = &self.clients[hold.client];
        // What was not acknowledged is nobody's loss, and what a file tells of was lost once.
        if self.is_replica || self.loading || !self.is_settled(id) {
            return;
        }
        if owner.ended && !self.went_before_its_owner(id) {
            return self.note_end(id, effects);
        }
        let owner_id = if owner.ended { NOBODY } else { owner.id };
        self.totals.lost += 1;
        self.note_loss(id, why, effects);
        let hold = &self.holds[id];
        if owner_id == NOBODY || !self.is_to_hear(id) {
            return;
        }
        let kind = match self.holds.mode(id).is_lock() {
            true => Kind::Lock,
            false => Kind::Temporary,
        };
        let key = self.keys.key_of(hold.key).to_owned();
        let name = match self.holds.is_renamed(id) {
            true => NameFrom::Rename,
            false => NameFrom::Request,
        };
        let news = News::Lost(kind, why, name);
        let push = Push::new(key, news, self.holds.label(id));
        let to = vec![owner_id];
        effects.push(Effect::Push { to, push });
    }

    /// A hold ends whose owner has ended: for the reason for which that did. O(1).
    pub(in crate::engine) fn note_end(&mut self, id: Id<Hold>, effects: &mut Vec<Effect>) {
        if let Some(why) = self.clients[self.holds[id].client].ended_by {
            self.note_loss(id, why, effects);
        }
    }

    /// Whether a hold was lost by a flush before its owner ended, and only comes to be looked at now. O(1).
    fn went_before_its_owner(&self, id: Id<Hold>) -> bool {
        let Hold { key, client, .. } = self.holds[id];
        let retired = self.keys.retired_by(key);
        retired.is_some_and(|retired| retired.number <= self.clients[client].ended_after)
    }

    /// This server has no master any more, so what connections of that one held ends: one entry of the log is for all. O(1).
    pub(in crate::engine) fn note_former(&mut self, effects: &mut Vec<Effect>) {
        if let Some(hold) = self.clients.first_held_by_former() {
            let count = self.clients.held_by_former() as u64;
            self.log_loss(hold, Loss::Promoted, count, effects);
        }
    }

    /// How many holds connections of a former master have left. O(1).
    pub fn held_by_former(&self) -> usize {
        self.clients.held_by_former()
    }

    /// Counts a hold that ends for this reason. O(1).
    fn note_loss(&mut self, id: Id<Hold>, why: Loss, effects: &mut Vec<Effect>) {
        self.totals.lost_by[why as usize] += 1;
        self.log_loss(id, why, 1, effects);
    }

    /// Notes in the log that so many holds end for this reason, one of which is this one. O(1).
    fn log_loss(&mut self, id: Id<Hold>, why: Loss, count: u64, effects: &mut Vec<Effect>) {
        if !self.logs_losses {
            return;
        }
        let hold = &self.holds[id];
        let owner = &self.clients[hold.client];
        let key = self.keys.key_of(hold.key);
        let together = matches!(
            why,
            Loss::Flushed | Loss::Moved | Loss::Demoted | Loss::Ended | Loss::Died | Loss::Killed
        );
        let lost = Lost {
            key: key.to_owned(),
            owner: hold.client.number(),
            client: owner.id,
            origin: owner.origin.clone(),
            token: hold.token,
            label: self.holds.label(id).into(),
            mode: self.holds.mode(id),
            since: hold.header.since(),
            why,
            waiters: (self.keys.find_name(key)).map_or(0, |name| self.count_waiting(name)),
            is_one_of_many: together && owner.hold_count > LOSSES_LOGGED_APART,
            count,
        };
        self.losses_told += 1;
        effects.push(Effect::Lost(Box::new(lost)));
    }

    /// What the server says of a connection that is about to end, and whether somebody ends it. Of use where it holds
    /// something. O(1).
    pub fn note_origin(&mut self, client: ClientId, origin: Origin, killed: bool) {
        if let Some(client) = self.clients.find(client) {
            let owner = self.clients.owner(client);
            let owner = &mut self.clients[owner];
            owner.origin = Some(Box::new(origin));
            owner.ended_by = killed.then_some(Loss::Killed);
        }
    }

    /// Whether it is of use to know what this connection is, since it has a session, or holds something. O(1).
    pub fn wants_origin(&self, client: ClientId) -> bool {
        let logs = self.logs_losses;
        self.clients.find(client).is_some_and(|client| {
            let owner = &self.clients[self.clients.owner(client)];
            owner.is_session || (logs && owner.hold_count > 0)
        })
    }

    /// Whether [`Effect::Lost`] is wanted.
    pub fn set_logs_losses(&mut self, logs: bool) {
        self.logs_losses = logs;
    }

    /// So many losses were logged, and none of their keys lacks its next holder: [`Effect::NextHolder`] is wanted again after the
    /// next one, which may be told already.
    pub fn close_log(&mut self, logged: u64) {
        self.losses_closed = logged;
    }
}
