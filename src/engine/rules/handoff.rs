//! The usual handoff by the shortest way: from a key's only holder to the first in line, who waits for this key alone.
//!
//! Neither has anything that only few have (a label, a lease, permits, a session), so most of what the longer way in
//! [`serve`](crate::engine::rules::serve) asks for cannot be, and the hold need not end and begin: it changes its owner. What is done here
//! is what the longer way would come to.

use crate::engine::Engine;
use crate::engine::effect::Effect;
use crate::engine::event::Standing;
use crate::engine::mode::Mode;
use crate::engine::state::holds::{Grant, Hold};
use crate::engine::state::keys::KeyRecord;
use crate::engine::state::queues::Waiter;
use crate::engine::storage::arena::Id;

impl Engine {
    /// Hands a hold's key over in this way, if that can be. O(1), with a deadline O(log of deadlines).
    pub(in crate::engine) fn hand_over(
        &mut self,
        hold: Id<Hold>,
        effects: &mut Vec<Effect>,
    ) -> bool {
        let key = self.holds[hold].key;
        let Some(waiter) = self.usual_waiter(key, hold) else {
            return false;
        };
        let (keys, clients) = (&mut self.keys, &mut self.clients);
        let mut waiter = self.queues.remove(keys, clients, waiter);
        let token = self.next_token(effects);
        self.waits.note(self.now.us_since(waiter.since));
        let record = &mut self.keys[key];
        let stays =
            waiter.mode.is_lock() && record.stands() == Standing::Lock && !record.is_timed();
        record.set_stands(waiter.mode.stands());
        if !stays {
            record.set_timed(false);
            let key = record.key().to_owned();
            effects.push(match waiter.mode.is_lock() {
                true => Effect::MakeLock { key },
                false => Effect::Make {
                    key,
                    value: std::mem::take(&mut waiter.value),
                },
            });
        }
        let grant = Grant {
            client: waiter.client,
            label: b"",
            mode: waiter.mode,
            attributes: waiter.attributes,
            token,
            since: self.now,
            lease: None,
        };
        self.holds.hand_over(&mut self.clients, hold, &grant);
        self.back_up(key, effects);
        self.set_present(key, true, effects);
        self.tell_granted(key, &waiter, token, effects);
        self.totals.handoffs += 1;
        // Another reader can go with this one, or another request of the same owner.
        let next = self.queues.head(&self.keys, key);
        let may_go_with =
            |next| waiter.mode.goes_with(waiter.mode) || self.queues[next].client == waiter.client;
        if next.is_some_and(|next| may_go_with(next) || self.is_fading()) {
            self.serve(key, effects);
        }
        true
    }

    /// Who is next in line for a key with this one hold, if both are as most are. O(1).
    fn usual_waiter(&self, key: Id<KeyRecord>, hold: Id<Hold>) -> Option<Id<Waiter>> {
        let record = &self.keys[key];
        let id = self.queues.head(&self.keys, key)?;
        if !self.sessions.is_empty()
            || self.quarantine.is_set()
            || !self.holds.is_lone(record, hold)
            || (self.is_fading() && self.is_faded(id))
        {
            return None;
        }
        let waiter = &self.queues[id];
        let is_usual = waiter.label.is_empty()
            && waiter.lease_ms.is_none()
            && !matches!(waiter.mode, Mode::Permits { .. })
            && self.queues.asks_for_one(id)
            && !self.queues.is_doubted(id);
        is_usual.then_some(id)
    }
}
