//! The short ways against the long ones: two engines are told the same, of which one takes only the long ways. Both must give
//! the same orders, among them what replicas are told and how the times that keys have to live are renewed.

use crate::model::around::Around;
use crate::model::generate::{Generator, Scope};
use crate::model::world::Limits as WorldLimits;
use crate::random;
use crate::trial::Trial;
use crate::users::Users;
use tether::engine::{Effect, Engine, Event, Limits, Moment};

/// As long as some steps of a random world take.
const BACKSTOP_MS: u64 = 60;

/// What is looked for, as often as it has come about.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeySnapshot {
    /// Orders to tell replicas what sessions hold.
    pub told: u64,
    /// Orders to renew a key.
    pub renewed: u64,
    /// Events before which somebody held something.
    pub held: u64,
}

pub struct Twins {
    short: Engine,
    long: Engine,
    pub seen: KeySnapshot,
}

impl Twins {
    pub fn new(limits: Limits, users: &Users) -> Twins {
        let engine = || {
            let mut engine = Engine::default();
            engine.set_limits(limits);
            engine.set_backstop(BACKSTOP_MS);
            users.answer(&mut engine);
            engine
        };
        let mut long = engine();
        long.disable_fast_paths();
        Twins {
            short: engine(),
            long,
            seen: KeySnapshot::default(),
        }
    }

    pub fn tell(&mut self, now: Moment, event: Event<'_>) {
        let gauges = self.long.gauges();
        self.seen.held += u64::from(gauges.temporary_keys + gauges.holds > 0);
        let orders = handle(&mut self.short, now, event);
        let expected = handle(&mut self.long, now, event);
        assert_eq!(orders, expected, "by the short way and by the long one");
        let next = |engine: &Engine| (engine.deadline(), engine.next_work(now));
        assert_eq!(next(&self.short), next(&self.long));
        for order in orders {
            self.seen.told += u64::from(matches!(order, Effect::Replicate(_)));
            self.seen.renewed += u64::from(matches!(order, Effect::Renew { .. }));
        }
    }

    pub fn check_invariants(&self) {
        self.short.check_invariants();
        self.long.check_invariants();
    }
}

fn handle(engine: &mut Engine, now: Moment, event: Event<'_>) -> Vec<Effect> {
    let mut effects = Vec::new();
    engine.handle(now, event, &mut effects);
    effects
}

/// Other random worlds have twins, too; in these all that is looked for comes about.
#[test]
fn the_short_ways_come_to_what_the_long_ones_do() {
    const WORLDS: u64 = 25;
    const STEPS: u64 = 4_000;
    let scope = Scope {
        places: 5,
        names: 3,
        server: false,
        locks: 300,
        sessions: 120,
        meetings: 0,
        quiet: 0,
        around: Around::default(),
    };
    let first = random::seed();
    for seed in first..first + WORLDS {
        let mut generator = Generator::new(seed, scope);
        let mut trial = Trial::new(scope, WorldLimits::ROOMY, 50).with_twins();
        for _ in 0..STEPS {
            let step = generator.step(&trial.world);
            let taken = trial.take(&step);
            taken.unwrap_or_else(|what| panic!("TETHER_SEED={seed}, {step:?}: {what}"));
        }
        let seen = trial.machine.twins.expect("it was made with twins").seen;
        assert!(
            seen.told.min(seen.renewed).min(seen.held) > STEPS / 100,
            "worlds in which nothing happens prove nothing: {seen:?}"
        );
    }
}
