//! Who is told that it lost what it held: nobody who did not ask for it.
//!
//! That is asked for with each hold, and kept with it. A session can change its connection: the new one is told of what
//! it asks for itself, and of what former ones asked for only if it said so when it resumed the session.

use crate::engine::Engine;
use crate::engine::effect::{Effect, Kind, Loss, Name, News, Push};
use crate::engine::state::clients::NOBODY;
use crate::engine::state::holds::Hold;
use crate::engine::storage::arena::Id;

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
            hold.token > session.hears_after || self.holds.notified_in(id) == session.attachment
        })
    }

    /// Counts a hold that ended by another hand than its owner's, and tells that owner if it asked for it.
    pub(in crate::engine) fn notify_lost(
        &mut self,
        id: Id<Hold>,
        why: Loss,
        effects: &mut Vec<Effect>,
    ) {
        let hold = &self.holds[id];
        let owner = &self.clients[hold.client];
        if self.is_replica {
            return;
        }
        if owner.ended {
            return self.note_end(id);
        }
        let owner_id = owner.id;
        self.totals.lost += 1;
        self.note_loss(id, why);
        let hold = &self.holds[id];
        if owner_id == NOBODY || !self.is_to_hear(id) {
            return;
        }
        let kind = match self.holds.mode(id).is_lock() {
            true => Kind::Lock,
            false => Kind::Temporary,
        };
        let key = self.keys[hold.key].key().to_owned();
        let name = match self.holds.is_renamed(id) {
            true => Name::Given,
            false => Name::Asked,
        };
        let news = News::Lost(kind, why, name);
        let push = Push::new(key, news, self.holds.label(id));
        let to = vec![owner_id];
        effects.push(Effect::Push { to, push });
    }

    /// A hold ends whose owner has ended: for the reason for which that did. O(1).
    pub(in crate::engine) fn note_end(&mut self, id: Id<Hold>) {
        if let Some(why) = self.clients[self.holds[id].client].ended_by {
            self.note_loss(id, why);
        }
    }

    /// Counts a hold that ends for this reason. O(1).
    fn note_loss(&mut self, _id: Id<Hold>, why: Loss) {
        self.totals.lost_by[why as usize] += 1;
    }
}
