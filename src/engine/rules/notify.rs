//! LOST pushes, for holds acquired with NOTIFY only.
//!
//! NOTIFY is an attribute of each hold. A session's new connection is notified of the holds it acquires or re-enters with NOTIFY
//! itself, and of those of earlier connections only if it asked for that when it resumed the session.

use crate::engine::effect::{Effect, Lost, NameFrom, News, Push};
use crate::engine::limits::LOSSES_LOGGED_APART;
use crate::engine::state::rows::{Death, Hold};
use crate::engine::storage::arena::Id;
use crate::engine::tables::Engine;
use crate::engine::types::{ClientId, Kind, Loss, NOBODY, Origin};

impl Engine {
    /// A re-entry with NOTIFY sets it for the hold, in this attachment of the session. O(1).
    pub(in crate::engine) fn notify_on_reentry(&mut self, hold: Id<Hold>, notify: bool) {
        if notify {
            let session = self.sessions.get(self.holds[hold].client);
            let attachment = session.map_or(0, |session| session.attachment);
            self.holds.set_notify_attachment(hold, attachment);
        }
    }

    /// Whether the owner's current connection wants LOST for this hold. O(1).
    fn wants_loss_push(&self, id: Id<Hold>) -> bool {
        let hold = &self.holds[id];
        if !self.holds.is_notified(id) {
            return false;
        }
        let session = self.sessions.get(hold.client);
        session.is_none_or(|session| {
            self.holds.granted_as(id) > session.notify_after
                || self.holds.notify_attachment(id) == session.attachment
        })
    }

    /// Counts and logs a hold that its owner lost, and pushes LOST if the owner asked for it.
    pub(in crate::engine) fn notify_lost(
        &mut self,
        id: Id<Hold>,
        why: Loss,
        effects: &mut Vec<Effect>,
    ) {
        let hold = &self.holds[id];
        let owner = &self.clients[hold.client];
        // A pending hold is nobody's loss, and losses found in a file were reported before.
        if self.is_replica || self.loading || !self.is_settled(id) {
            return;
        }
        if !owner.is_living() && !self.was_flushed_before_owner_ended(id) {
            return self.note_end(id, effects);
        }
        let owner_id = if owner.is_living() { owner.id } else { NOBODY };
        self.note_loss(id, why, effects);
        let hold = &self.holds[id];
        if owner_id == NOBODY || !self.wants_loss_push(id) {
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

    /// Logs the end of an orphaned hold, if its owner's death is a reason for the log. O(1).
    pub(in crate::engine) fn note_end(&mut self, id: Id<Hold>, effects: &mut Vec<Effect>) {
        let death = self.clients[self.holds[id].client].death();
        if let Some(Death::Lost { why, .. }) = death {
            self.note_loss(id, why, effects);
        }
    }

    /// Whether a flush took the hold before its owner ended. O(1).
    fn was_flushed_before_owner_ended(&self, id: Id<Hold>) -> bool {
        let Hold { key, client, .. } = self.holds[id];
        let retired = self.keys.retired_by(key);
        let flushes = match self.clients[client].death() {
            Some(Death::Lost { flushes, .. }) => flushes,
            _ => 0,
        };
        retired.is_some_and(|retired| retired.number <= flushes)
    }

    /// On promotion the foreign client's holds end: logs one entry for all. O(1).
    pub(in crate::engine) fn log_foreign_holds(&mut self, effects: &mut Vec<Effect>) {
        if let Some(hold) = self.clients.first_foreign_hold() {
            let count = self.clients.foreign_holds() as u64;
            self.totals.lost_by[Loss::Promoted as usize] += count;
            self.log_loss(hold, Loss::Promoted, count, effects);
        }
    }

    /// The number of holds of another server's connections. O(1).
    pub fn foreign_holds(&self) -> usize {
        self.clients.foreign_holds()
    }

    /// Counts and logs a lost hold. O(1).
    fn note_loss(&mut self, id: Id<Hold>, why: Loss, effects: &mut Vec<Effect>) {
        self.totals.lost_by[why as usize] += 1;
        self.log_loss(id, why, 1, effects);
    }

    /// Logs the loss of `count` holds, of which `id` is one. O(1).
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
        self.losses_emitted += 1;
        effects.push(Effect::Lost(Box::new(lost)));
    }

    /// Records the origin of a connection that is about to end, and whether it is killed; for the log. O(1).
    pub fn note_origin(&mut self, client: ClientId, origin: Origin, killed: bool) {
        if let Some(client) = self.clients.find(client) {
            let owner = self.clients.owner(client);
            let owner = &mut self.clients[owner];
            owner.origin = Some(Box::new(origin));
            owner.killed = killed;
        }
    }

    /// Whether the log needs this connection's origin: it has a session, or holds something. O(1).
    pub fn wants_origin(&self, client: ClientId) -> bool {
        let logs = self.logs_losses;
        self.clients.find(client).is_some_and(|client| {
            let owner = &self.clients[self.clients.owner(client)];
            owner.is_session() || (logs && owner.hold_count > 0)
        })
    }

    /// Turns [`Effect::Lost`] on or off.
    pub fn set_logs_losses(&mut self, logs: bool) {
        self.logs_losses = logs;
    }

    /// The log has the next holder of each of its first `logged` losses: [`Effect::NextHolder`] is emitted again only after a
    /// further loss, which may have been emitted already.
    pub fn close_log(&mut self, logged: u64) {
        self.losses_closed = logged;
    }
}
