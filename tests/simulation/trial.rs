//! A history, tried: after every step the machine must agree with the model in everything.

use crate::machine::{Machine, key_of};
use crate::model::command::{DATABASES, Spot};
use crate::model::generate::{Generator, Scope};
use crate::model::shrink::shortest;
use crate::model::step::Step;
use crate::model::told::{Arrival, Heard, check};
use crate::model::world::{Limits, Outcome, Owner, World};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// A world and the machine that is to behave like it.
pub struct Trial {
    pub world: World,
    machine: Machine,
    scope: Scope,
    taken: usize,
    /// The engine looks through all that it knows after so many steps.
    check_every: usize,
}

impl Trial {
    pub fn new(scope: Scope, limits: Limits, check_every: usize) -> Trial {
        let engine_limits = tether::engine::Limits {
            watches_per_client: limits.watches as u32,
            keys_per_client: limits.keys as u32,
        };
        Trial {
            world: World::new(scope.places, limits, true),
            machine: Machine::new(scope.places, engine_limits),
            scope,
            taken: 0,
            check_every,
        }
    }

    /// Takes a step that the world allows; a step that it does not allow is left out.
    pub fn take(&mut self, step: &Step) -> Result<(), String> {
        if !self.world.allows(step) {
            return Ok(());
        }
        self.taken += 1;
        let outcome = self.both_take(step)?;
        self.compare_pushes(&outcome)?;
        self.compare_state()?;
        if self.taken.is_multiple_of(self.check_every) {
            self.machine.engine.check_invariants();
        }
        Ok(())
    }

    /// Takes a step that the world allows, and looks at nothing.
    pub fn take_again(&mut self, step: &Step) -> Result<(), String> {
        self.both_take(step)?;
        self.machine.heard();
        Ok(())
    }

    fn both_take(&mut self, step: &Step) -> Result<Outcome, String> {
        let outcome = match step {
            Step::Work { most } => self.work(*most)?,
            _ => self.world.take(step),
        };
        if let Step::Connect { who, resp3 } = step {
            self.machine.connect(*who, *resp3);
        }
        for fact in &outcome.facts {
            self.machine.happen(fact)?;
        }
        Ok(outcome)
    }

    /// Which keys go first is the engine's choice; that they are the right ones is checked.
    fn work(&mut self, most: usize) -> Result<Outcome, String> {
        let left = self.world.left_behind();
        let removed = self.machine.work(most);
        if removed.len() != left.len().min(most) {
            return Err(format!(
                "{removed:?} were removed of {left:?}, at most {most}"
            ));
        }
        if let Some(spot) = removed.iter().find(|spot| !left.contains(spot)) {
            return Err(format!("{spot:?} was removed, which nobody had left"));
        }
        Ok(self.world.removed(&removed))
    }

    fn compare_pushes(&mut self, outcome: &Outcome) -> Result<(), String> {
        let heard = self.machine.heard();
        for (who, (expected, got)) in outcome.heard.iter().zip(&heard).enumerate() {
            if got.is_empty() && expected.is_empty() {
                continue;
            }
            let pushes: Vec<Heard> = expected
                .iter()
                .filter(|heard| matches!(heard, Heard::Pushes(_)))
                .cloned()
                .collect();
            assert!(!got.iter().any(|got| matches!(got, Arrival::Reply(_))));
            check(&pushes, got).map_err(|what| format!("client {who}: {what}"))?;
        }
        Ok(())
    }

    fn compare_state(&self) -> Result<(), String> {
        let (world, machine) = (&self.world, &self.machine);
        let mut owned = 0;
        for spot in all_spots(self.scope) {
            let entry = world.entry(spot);
            if entry.is_some() != machine.present.contains(&spot) {
                return Err(format!("{spot:?} is there on one side only"));
            }
            let owner = entry.and_then(|entry| entry.owner);
            owned += usize::from(owner.is_some());
            let key = key_of(spot.db, spot.name);
            let living = match owner {
                Some(Owner::Connection(who)) => machine.id(who),
                _ => None,
            };
            let known = machine.engine.look_up(key);
            let holder = known.flatten();
            if holder != living {
                return Err(format!(
                    "{spot:?} is held by {holder:?} and not by {living:?}"
                ));
            }
            if let Some(Owner::Connection(who)) = owner
                && !machine.is_guarded(who)
            {
                return Err(format!(
                    "nobody was told to look after {who}, who owns a key"
                ));
            }
            let watched = world.watches.iter().any(|watch| watch.spot == spot);
            if known.is_some() != (watched || owner.is_some()) {
                return Err(format!("{spot:?} is known for nothing, or is not known"));
            }
        }
        self.compare_numbers(owned)
    }

    fn compare_numbers(&self, owned: usize) -> Result<(), String> {
        let (world, engine) = (&self.world, &self.machine.engine);
        let gauges = engine.gauges();
        let mut watched: Vec<Spot> = world.watches.iter().map(|watch| watch.spot).collect();
        watched.sort_unstable();
        watched.dedup();
        let totals = engine.totals();
        for (what, got, expected) in [
            ("temporary keys", gauges.temporary_keys, owned),
            ("watches", gauges.watches, world.watches.len()),
            ("watched keys", gauges.watched_keys, watched.len()),
            ("holds", gauges.holds, 0),
            ("waiters", gauges.waiters, 0),
            ("lost", totals.lost as usize, world.totals.lost as usize),
            (
                "removed by disconnect",
                totals.keys_removed_by_disconnect as usize,
                world.totals.removed_by_disconnect as usize,
            ),
        ] {
            if got != expected {
                return Err(format!("{what}: {got} and not {expected}"));
            }
        }
        let has_work = !world.left_behind().is_empty();
        if engine.has_work(tether::engine::Moment(0)) != has_work {
            return Err("it has work that nobody left, or none where there is some".into());
        }
        Ok(())
    }

    /// Everyone goes, and what they left goes; then nothing may be remembered.
    pub fn finish(&mut self) -> Result<(), String> {
        for who in 0..self.scope.places {
            let how = crate::model::step::Ending::Close;
            let end = Step::End { who, how };
            if self.world.allows(&end) {
                self.take_again(&end)?;
            }
        }
        self.take(&Step::Work { most: usize::MAX })?;
        self.machine.engine.check_invariants();
        match self.machine.engine.is_idle() {
            true => Ok(()),
            false => Err("everyone is gone, and yet something is remembered".into()),
        }
    }
}

pub fn all_spots(scope: Scope) -> impl Iterator<Item = Spot> {
    (0..DATABASES).flat_map(move |db| (0..scope.names).map(move |name| Spot { db, name }))
}

/// What a whole history comes to; a panic is a failure like others.
pub fn try_history(
    scope: Scope,
    limits: Limits,
    check_every: usize,
    steps: &[Step],
) -> Result<(), String> {
    let tried = catch_unwind(AssertUnwindSafe(|| {
        let mut trial = Trial::new(scope, limits, check_every);
        for (at, step) in steps.iter().enumerate() {
            trial
                .take(step)
                .map_err(|what| format!("step {at}, {step:?}: {what}"))?;
        }
        trial.finish().map_err(|what| format!("at the end: {what}"))
    }));
    tried.unwrap_or_else(|panic| Err(words(&*panic)))
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without words").to_owned()
}

/// Takes random steps, and panics with the seed and the shortest history that fails.
pub fn random_world(seed: u64, scope: Scope, limits: Limits, steps: usize, check_every: usize) {
    let mut generator = Generator::new(seed, scope);
    let mut taken = Vec::with_capacity(steps);
    let tried = catch_unwind(AssertUnwindSafe(|| {
        let mut trial = Trial::new(scope, limits, check_every);
        for _ in 0..steps {
            let step = generator.step(&trial.world);
            taken.push(step.clone());
            trial.take(&step)?;
        }
        trial.finish()
    }));
    let Err(what) = tried.unwrap_or_else(|panic| Err(words(&*panic))) else {
        return;
    };
    let fails = |steps: &[Step]| try_history(scope, limits, 1, steps).is_err();
    let at = taken.len();
    let shortest = match fails(&taken) {
        true => shortest(taken, Duration::from_secs(20), fails),
        false => taken,
    };
    let now = try_history(scope, limits, 1, &shortest);
    let lines: Vec<String> = shortest.iter().map(|step| format!("  {step:?}")).collect();
    panic!(
        "TETHER_SEED={seed} fails at step {at}: {what}\nthe shortest history that fails ({limits:?}):\n{}\n{now:?}",
        lines.join("\n")
    );
}
