//! The TTL backstop of temporary keys in a cluster, refreshed while the owner lives.
//!
//! A migrating slot copies its keys to a server that does not know their owners. Nobody refreshes them there, so they expire.
//!
//! A cursor visits all holds in passes of 1/6 of the backstop, and refreshes a key when less than half of its TTL is left. Two
//! visits of a key are at most two passes apart, however many keys come and go meanwhile: a key has at least 1/6 of its TTL
//! left, usually 1/3, and needs no state of its own. A TTL set by a client takes precedence
//! ([`Event::Timed`](crate::engine::Event::Timed)): such a key is not refreshed.

use crate::engine::effect::Effect;
use crate::engine::mode::Mode;
use crate::engine::state::rows::{HeldKey, Hold};
use crate::engine::storage::arena::Id;
use crate::engine::tables::Engine;
use crate::engine::types::{Key, Moment};

impl Engine {
    /// Sets the backstop; 0 turns it off.
    pub fn set_backstop(&mut self, backstop_ms: u64) {
        self.renewals.backstop_ms = backstop_ms;
    }

    /// Whether this is a held temporary key with a backstop. O(1).
    pub fn has_backstop(&self, key: Key<'_>) -> bool {
        self.renewals.backstop_ms > 0
            && self.keys.find_held(key).is_some_and(|key| {
                let hold = self.keys[key].holds.head();
                hold.is_some_and(|hold| self.has_refreshable_ttl(hold))
            })
    }

    /// Whether a refresh is due. O(1).
    pub fn has_renewals(&self, now: Moment) -> bool {
        let due = self.timers.renewal;
        due.is_some_and(|due| due <= now)
    }

    /// Stops the refresh.
    pub(in crate::engine) fn stop_renewals(&mut self) {
        self.renewals.pass = None;
        self.set_renewal();
    }

    /// Sets the timer after a change of the pass.
    fn set_renewal(&mut self) {
        self.timers.renewal = self.renewals.deadline();
    }

    /// Starts a pass that refreshes every temporary key at once.
    pub(in crate::engine) fn renew_all(&mut self) {
        if self.holds.temporary() > 0 {
            let slots = self.holds.slot_count();
            self.renewals.begin_whole(self.now, slots);
            self.set_renewal();
        }
    }

    /// Visits slots that are due.
    pub(in crate::engine) fn renew(&mut self, effects: &mut Vec<Effect>) {
        let due = self.has_renewals(self.now);
        let Some(pass) = self.renewals.pass.as_mut().filter(|_| due) else {
            return;
        };
        let whole = pass.whole;
        let most = pass.next.saturating_add(self.budget.left());
        let slots = pass.next..pass.due(self.now).min(most);
        self.budget.spend(slots.len());
        pass.next = slots.end;
        let is_over = pass.next >= pass.slots;
        for slot in slots {
            if let Some(hold) = self.holds.at(slot)
                && self.has_refreshable_ttl(hold)
            {
                self.refresh_ttl(hold, whole, effects);
            }
        }
        if is_over && self.holds.temporary() > 0 {
            let slots = self.holds.slot_count();
            self.renewals.begin_next(self.now, slots);
        } else if is_over {
            self.renewals.pass = None;
        }
        self.set_renewal();
    }

    /// Notes whether a client gave a key a TTL.
    pub(in crate::engine) fn set_timed(&mut self, key: Key<'_>, timed: bool) {
        if let Some(key) = self.keys.find_held(key) {
            self.mark_timed(key, timed);
        }
    }

    pub(in crate::engine) fn mark_timed(&mut self, key: Id<HeldKey>, timed: bool) {
        self.has_times |= timed;
        self.keys[key].set_timed(timed);
    }

    /// A key has lost its TTL: restores its backstop.
    pub(in crate::engine) fn untimed(&mut self, key: Key<'_>, effects: &mut Vec<Effect>) {
        let Some(key) = self.keys.find_held(key) else {
            return;
        };
        self.keys[key].set_timed(false);
        if let Some(hold) = self.keys[key].holds.head()
            && self.has_refreshable_ttl(hold)
            && self.renewals.backstop_ms > 0
        {
            self.refresh_ttl(hold, true, effects);
        }
    }

    /// A temporary key was created: sets its backstop in the same step.
    #[inline]
    pub(in crate::engine) fn start_ttl_backstop(
        &mut self,
        key: Id<HeldKey>,
        effects: &mut Vec<Effect>,
    ) {
        if self.renewals.backstop_ms > 0 {
            self.start_ttl_backstop_of(key, effects);
        }
    }

    #[cold]
    fn start_ttl_backstop_of(&mut self, key: Id<HeldKey>, effects: &mut Vec<Effect>) {
        if let Some(hold) = self.keys[key].holds.head()
            && self.has_refreshable_ttl(hold)
        {
            self.refresh_ttl(hold, true, effects);
            if self.timers.renewal.is_none() {
                self.renewals.begin(self.now, self.holds.slot_count());
                self.set_renewal();
            }
        }
    }

    fn has_refreshable_ttl(&self, hold: Id<Hold>) -> bool {
        self.holds.mode(hold) == Mode::Temporary && self.is_living(hold)
    }

    fn refresh_ttl(&self, hold: Id<Hold>, whole: bool, effects: &mut Vec<Effect>) {
        let key = self.holds[hold].key;
        let record = &self.keys[key];
        let key = self.keys.key_of(key).to_owned();
        let most_ms = self.renewals.backstop_ms;
        effects.push(match (most_ms, record.is_timed(), whole) {
            (0, true, _) => return,
            (0, false, _) => Effect::Persist(key),
            (_, timed, whole) => Effect::Renew {
                key,
                least_ms: match (timed, whole) {
                    (true, _) => 0,
                    (false, true) => most_ms,
                    (false, false) => most_ms / 2,
                },
                most_ms,
            },
        });
    }
}
