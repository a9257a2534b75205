//! The quarantine: nothing is granted for a while after a start.
//!
//! A server that starts without files has forgotten all holds, but a client believes in its locks until its next read or write
//! fails. Meanwhile requests wait or are refused.

use crate::engine::limits::READY_KEYS_KEPT;
use crate::engine::tables::Engine;
use crate::engine::types::Moment;

impl Engine {
    /// Begins a quarantine of this many milliseconds; 0 ends it.
    pub(in crate::engine) fn begin_quarantine(&mut self, ms: u64) {
        self.timers.quarantine = (ms > 0).then(|| self.now.after_ms(ms));
    }

    /// Ends the quarantine when it has expired. The next work serves its waiters.
    pub(in crate::engine) fn end_quarantine(&mut self) {
        if !self.is_quarantined() {
            self.timers.quarantine = None;
        }
    }

    /// Sees to it that in a quarantine, in which nobody is served, no more is remembered than what somebody waits for.
    /// O(1) on average.
    pub(in crate::engine) fn forget_unawaited(&mut self) {
        if !self.is_quarantined() || self.ready.len() < READY_KEYS_KEPT + 2 * self.queues.places() {
            return;
        }
        for name in std::mem::take(&mut self.ready) {
            if !self.keys[name].queue.is_empty() {
                self.ready.push_back(name);
                continue;
            }
            self.keys[name].set_ready(false);
            self.keys.remove_name_if_unreferenced(name);
        }
    }

    pub(in crate::engine) fn is_quarantined(&self) -> bool {
        let end = self.timers.quarantine;
        end.is_some_and(|end| end > self.now)
    }

    /// The milliseconds left of the quarantine; 0 without one. O(1).
    pub fn quarantine_left_ms(&self, now: Moment) -> u64 {
        let end = self.timers.quarantine.filter(|end| *end > now);
        end.map_or(0, |end| end.us_since(now).div_ceil(1000))
    }
}

#[cfg(test)]
mod tests {
    use crate::engine::tables::Engine;
    use crate::engine::{
        Acquire, ClientId, Db, Effect, Event, Form, Key, KeySnapshot, KeyState, Mode, Moment,
        Refusal, Reply, Terms, Wait,
    };

    /// What the request for a lock that is not there comes to.
    fn ask(engine: &mut Engine, now_ms: u64, name: &str, wait_ms: Option<u64>) -> Vec<Effect> {
        let name = name.as_bytes();
        let key = Key { db: Db(0), name };
        let state = KeyState::Absent;
        let seen = [KeySnapshot { key, state }];
        let acquire = Event::Acquire(Acquire {
            client: ClientId(7),
            seen: &seen,
            terms: Terms::of(Mode::Exclusive),
            value: b"",
            wait: wait_ms.map(|ms| Wait {
                limit_ms: Some(ms),
                push: true,
            }),
            form: Form::Lock,
            in_command: false,
        });
        let mut effects = Vec::new();
        engine.handle(Moment(now_ms * 1000), acquire, &mut effects);
        effects
    }

    fn tell(engine: &mut Engine, now_ms: u64, event: Event<'_>) -> Vec<Effect> {
        let mut effects = Vec::new();
        engine.handle(Moment(now_ms * 1000), event, &mut effects);
        effects
    }

    #[test]
    fn who_does_not_wait_is_told_how_long_it_takes() {
        let mut engine = Engine::default();
        tell(&mut engine, 0, Event::Quarantine { ms: 100 });
        let refused = |left_ms| Effect::Reply(Reply::Refused(Refusal::Quarantine { left_ms }));
        assert_eq!(ask(&mut engine, 1, "k", None).pop(), Some(refused(99)));
        assert_eq!(ask(&mut engine, 99, "k", None).pop(), Some(refused(1)));
        let granted = ask(&mut engine, 100, "k", None);
        assert!(granted.contains(&Effect::Reply(Reply::Integer(1))));
    }

    #[test]
    fn what_nobody_waits_for_any_more_is_forgotten_on_the_way() {
        let mut engine = Engine::default();
        tell(&mut engine, 0, Event::Quarantine { ms: 1_000_000 });
        ask(&mut engine, 0, "awaited", Some(2_000_000));
        for n in 0..10_000 {
            ask(&mut engine, n * 2, &n.to_string(), Some(1));
            tell(&mut engine, n * 2 + 1, Event::Tick);
        }
        assert!(engine.ready.len() < 100, "{}", engine.ready.len());
        assert!(
            engine.keys.name_count() < 100,
            "{}",
            engine.keys.name_count()
        );
        tell(&mut engine, 1_000_000, Event::Tick);
        tell(&mut engine, 1_000_000, Event::Work { steps: 1000 });
        assert_eq!(
            engine.gauges().waiters,
            0,
            "it is granted what it waits for"
        );
        assert_eq!(engine.gauges().holds, 1);
        let client = ClientId(7);
        tell(&mut engine, 1_000_000, Event::Ended { client });
        tell(&mut engine, 1_000_000, Event::Work { steps: 1000 });
        assert!(engine.is_idle());
    }
}
