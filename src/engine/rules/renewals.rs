//! The backstop of temporary keys in a cluster: a time to live, which is renewed while the owner lives.
//!
//! A slot that moves takes copies of its keys along to a server that knows no owner of them. There
//! nobody renews them, so they end by themselves.
//!
//! All holds are visited in turn, a few at a time, in passes of a sixth of the backstop; a key is
//! written where less than half of its time is left. Two visits of a key lie at most two passes
//! apart, however many others come and go meanwhile. So a key has a sixth of its time left at least,
//! as a rule a third, and nothing has to be remembered for each key. What users say about a key's
//! time goes before: a key that they gave one ([`Event::Timed`](crate::engine::Event::Timed)) is not renewed.

use crate::engine::effect::Effect;
use crate::engine::mode::Mode;
use crate::engine::state::rows::{HeldKey, Hold};
use crate::engine::state::timers::Timer;
use crate::engine::storage::arena::Id;
use crate::engine::tables::Engine;
use crate::engine::types::{Key, Moment};

impl Engine {
    /// Gives temporary keys this backstop from now on, or with 0 none.
    pub fn set_backstop(&mut self, backstop_ms: u64) {
        self.renewals.backstop_ms = backstop_ms;
    }

    /// Whether somebody holds this as a temporary key, and it has a backstop. O(1).
    pub fn has_backstop(&self, key: Key<'_>) -> bool {
        self.renewals.backstop_ms > 0
            && self.keys.find_held(key).is_some_and(|key| {
                let hold = self.keys[key].holds.head();
                hold.is_some_and(|hold| self.is_to_renew(hold))
            })
    }

    /// Whether keys are to be renewed, or to lose their backstop, by now. O(1).
    pub fn has_renewals(&self, now: Moment) -> bool {
        let due = self.timers.renewal();
        due.is_some_and(|due| due <= now)
    }

    /// Nothing is renewed from now on.
    pub(in crate::engine) fn stop_renewals(&mut self) {
        self.renewals.pass = None;
        self.set_renewal();
    }

    /// Follows each change of the pass.
    fn set_renewal(&mut self) {
        let (former, end) = (self.timers.renewal(), self.renewals.deadline());
        self.timers.set(Timer::Renewal, former, end);
    }

    /// Renews every temporary key as soon as may be.
    pub(in crate::engine) fn renew_all(&mut self) {
        if self.holds.temporary() > 0 {
            let places = self.holds.places();
            self.renewals.begin_whole(self.now, places);
            self.set_renewal();
        }
    }

    /// Visits up to so many places that are due.
    pub(in crate::engine) fn renew(&mut self, most: usize, effects: &mut Vec<Effect>) {
        let due = self.has_renewals(self.now);
        let Some(pass) = self.renewals.pass.as_mut().filter(|_| due) else {
            return;
        };
        let whole = pass.whole;
        let places = pass.next..pass.due(self.now).min(pass.next.saturating_add(most));
        pass.next = places.end;
        let is_over = pass.next >= pass.places;
        for place in places {
            if let Some(hold) = self.holds.at(place)
                && self.is_to_renew(hold)
            {
                self.order_renewal(hold, whole, effects);
            }
        }
        if is_over && self.holds.temporary() > 0 {
            let places = self.holds.places();
            self.renewals.begin_next(self.now, places);
        } else if is_over {
            self.renewals.pass = None;
        }
        self.set_renewal();
    }

    /// Whether a key has a time to live that somebody gave it.
    pub(in crate::engine) fn set_timed(&mut self, key: Key<'_>, timed: bool) {
        if let Some(key) = self.keys.find_held(key) {
            self.mark_timed(key, timed);
        }
    }

    pub(in crate::engine) fn mark_timed(&mut self, key: Id<HeldKey>, timed: bool) {
        self.has_times |= timed;
        self.keys[key].set_timed(timed);
    }

    /// A key has no time to live, whoever took it away: it has its backstop again.
    pub(in crate::engine) fn untimed(&mut self, key: Key<'_>, effects: &mut Vec<Effect>) {
        let Some(key) = self.keys.find_held(key) else {
            return;
        };
        self.keys[key].set_timed(false);
        if let Some(hold) = self.keys[key].holds.head()
            && self.is_to_renew(hold)
            && self.renewals.backstop_ms > 0
        {
            self.order_renewal(hold, true, effects);
        }
    }

    /// A temporary key was made: it has its backstop from the same step on.
    #[inline]
    pub(in crate::engine) fn back_up(&mut self, key: Id<HeldKey>, effects: &mut Vec<Effect>) {
        if self.renewals.backstop_ms > 0 {
            self.begin_to_back_up(key, effects);
        }
    }

    #[cold]
    fn begin_to_back_up(&mut self, key: Id<HeldKey>, effects: &mut Vec<Effect>) {
        if let Some(hold) = self.keys[key].holds.head()
            && self.is_to_renew(hold)
        {
            self.order_renewal(hold, true, effects);
            if self.timers.renewal().is_none() {
                self.renewals.begin(self.now, self.holds.places());
                self.set_renewal();
            }
        }
    }

    fn is_to_renew(&self, hold: Id<Hold>) -> bool {
        self.holds.mode(hold) == Mode::Temporary && self.is_living(hold)
    }

    fn order_renewal(&self, hold: Id<Hold>, whole: bool, effects: &mut Vec<Effect>) {
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
