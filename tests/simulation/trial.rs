//! A history, tried: after every step the machine must agree with the model in everything.

use crate::log::Compared;
use crate::machine::Machine;
use crate::model::acks::no_acks;
use crate::model::command::{Command, DATABASES, Mode, PREFIXES, Prefix, Spot, Who};
use crate::model::generate::{Generator, Scope};
use crate::model::presence::{Beliefs, PrefixWatch};
use crate::model::queues::Waiter;
use crate::model::replies::{Arrival, Heard, Reply, Tokens, check};
use crate::model::sequence::bytes_of;
use crate::model::shrink::shortest;
use crate::model::step::Step;
use crate::model::world::{Limits, Outcome, Totals, World};
use crate::twins::Twins;
use crate::words::{key_of, prefix_of};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use tether::engine::Event;

/// A world and the machine that is to behave like it.
pub struct Trial {
    pub world: World,
    pub machine: Machine,
    pub tokens: Tokens,
    pub logged: Compared,
    pub beliefs: Beliefs,
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
            compatible_grants_per_event: limits.together,
            keys_per_page: limits.page,
            ..tether::engine::Limits::default()
        };
        Trial {
            world: World::new(scope.places, limits, true),
            machine: Machine::new(scope.places, engine_limits),
            tokens: Tokens::default(),
            logged: Compared::default(),
            beliefs: Beliefs::default(),
            scope,
            taken: 0,
            check_every,
        }
    }

    /// What the machine is told is told to the twins, too.
    pub fn with_twins(mut self) -> Trial {
        let limits = self.machine.engine.limits();
        self.machine.twins = Some(Twins::new(limits, &self.machine.users));
        self
    }

    /// Takes a step that the world allows; a step that it does not allow is left out.
    pub fn take(&mut self, step: &Step) -> Result<(), String> {
        if !self.world.allows(step) {
            return Ok(());
        }
        self.taken += 1;
        self.begin_step();
        let outcome = self.both_take(step)?;
        self.compare_state(self.scope)?;
        self.world.put_in_order(&self.tokens);
        self.compare_heard(&outcome)?;
        self.compare_beliefs()?;
        self.world.check_rules()?;
        if !self.machine.engine.has_work(self.machine.now) {
            self.world.check_nobody_is_forgotten()?;
        }
        if self.taken.is_multiple_of(self.check_every) {
            self.machine.engine.check_invariants();
            self.machine.losses.check();
            self.machine.twins.iter().for_each(Twins::check_invariants);
        }
        Ok(())
    }

    /// Takes a step that the world allows, and looks only at what later comparisons build on.
    pub fn take_again(&mut self, step: &Step) -> Result<(), String> {
        self.begin_step();
        self.both_take(step)?;
        self.compare_history(self.scope)?;
        self.world.put_in_order(&self.tokens);
        self.machine.heard();
        self.compare_beliefs()
    }

    /// Who watches prefixes knows what there is.
    fn compare_beliefs(&mut self) -> Result<(), String> {
        for who in 0..self.scope.places {
            let seen = std::mem::take(&mut self.machine.seen[who]);
            if self.world.client(who).is_none() {
                self.beliefs.forget(who);
                continue;
            }
            self.beliefs.see(who, &seen)?;
        }
        self.world.totals.sights = self.beliefs.pushes;
        self.beliefs.compare(&mut self.world, &mut self.tokens)
    }

    fn begin_step(&mut self) {
        self.tokens.begin_step(&self.world.living());
    }

    fn both_take(&mut self, step: &Step) -> Result<Outcome, String> {
        let outcome = match step {
            Step::Work { most } => self.work(*most)?,
            _ => self.world.take(step),
        };
        match step {
            Step::Connect { who, .. } => self.machine.connect(*who),
            Step::Rights { user, rights } => self.machine.change_rights(*user, rights),
            _ => {}
        }
        for fact in &outcome.facts {
            self.machine.happen(fact, &mut self.tokens)?;
        }
        Ok(outcome)
    }

    /// Whose turn is first among those that can be served is the engine's choice, so all of them are
    /// served at once; and so is which of two leases ends first that are over at the same time.
    fn work(&mut self, most: usize) -> Result<Outcome, String> {
        self.world.writes_refused = false;
        let world = &self.world;
        let serves = !world.waiters.is_empty() && !world.due().is_empty();
        let due = world.due();
        let ends_with = |at: usize| due[..at].iter().any(|other| other.ends == due[at].ends);
        let ties = (1..due.len()).any(ends_with);
        // A request for several keys is served by whatever is left of the steps.
        let for_several = world.waiters.iter().any(|waiter| waiter.spots.len() > 1);
        // One that is refused when its turn comes takes some steps, too.
        let is_refusable =
            |waiter: &Waiter| waiter.acks.is_some() || world.is_to_be_turned_away(waiter.who);
        let refusable = world.waiters.iter().any(is_refusable);
        // Those who share a key are granted it together, within the steps.
        let may_share =
            |waiter: &&Waiter| !matches!(waiter.mode, Mode::Temporary | Mode::Exclusive);
        let share = world.waiters.iter().filter(may_share).count() > 1;
        let is_plain =
            !(serves || ties || for_several || refusable || share || self.machine.has_more_to_do());
        let most = match world.first_servable() {
            None if is_plain => most,
            _ => usize::MAX,
        };
        let foreseen = self.about_to_be_served(most);
        let order = self.machine.work(most);
        let mut handed_over = self.machine.handed_over.iter();
        match handed_over.all(|spot| foreseen.contains(spot)) {
            true => Ok(self.world.take_in_order(&Step::Work { most }, &order)),
            false => Err(format!(
                "{:?} were handed over, and {foreseen:?} were to be",
                self.machine.handed_over
            )),
        }
    }

    fn compare_heard(&mut self, outcome: &Outcome) -> Result<(), String> {
        let heard = self.machine.heard();
        for (who, (expected, got)) in outcome.heard.iter().zip(&heard).enumerate() {
            if got.is_empty() && expected.is_empty() {
                continue;
            }
            // What commands are answered was looked at already.
            let is_compared = |heard: &&Heard| !matches!(heard, Heard::Reply { late: false, .. });
            let expected: Vec<Heard> = expected.iter().filter(is_compared).cloned().collect();
            check(&expected, got, &mut self.tokens)
                .map_err(|what| format!("client {who}: {what}"))?;
        }
        Ok(())
    }

    /// Without faults everyone who still waits is served, in order.
    fn serve_all(&mut self) -> Result<(), String> {
        loop {
            while self.machine.engine.has_work(self.machine.now) {
                self.take(&Step::Work { most: 64 })?;
            }
            let Some(step) = self.world.closing_step() else {
                return Ok(());
            };
            if !self.world.allows(&step) {
                return Err(format!("nobody can go on: {step:?}"));
            }
            let before = self.world.clone();
            self.take(&step)
                .map_err(|what| format!("at the end, {step:?}: {what}"))?;
            let held = |world: &World| (world.holds.clone(), world.sessions.clone());
            if self.world.waiters == before.waiters && held(&self.world) == held(&before) {
                let moved = matches!(
                    step,
                    Step::Run {
                        command: Command::Select { .. } | Command::Del { .. },
                        ..
                    }
                );
                let came = matches!(
                    step,
                    Step::Connect { .. }
                        | Step::Discard { .. }
                        | Step::Rights { .. }
                        | Step::Pass { .. }
                        | Step::Propagated
                );
                if !moved && !came {
                    return Err(format!("{step:?} changes nothing"));
                }
            }
        }
    }

    fn all_go(&mut self) -> Result<(), String> {
        for who in 0..self.scope.places {
            let how = crate::model::step::Ending::Close;
            let end = Step::End { who, how };
            if self.world.client(who).is_none() {
                continue;
            }
            while !self.world.allows(&end) {
                self.take_again(&Step::Pass { ms: 1 })?;
            }
            self.take_again(&end)?;
        }
        Ok(())
    }

    fn close(&mut self, how: Close) -> Result<(), String> {
        match how {
            Close::Finished => self.finish(),
            Close::Demoted { redirect } => self.be_demoted(redirect),
            Close::Moved { prefix } => self.slot_moves(prefix),
        }
    }

    /// The server becomes a replica in the middle of everything: whoever waits is told so, or in a cluster redirected, once,
    /// and nobody waits there any more. As a master again it owes nobody anything but sessions their grace.
    fn be_demoted(&mut self, redirect: bool) -> Result<(), String> {
        let places = 0..self.scope.places;
        let waited: Vec<_> = places.filter(|who| self.machine.is_blocked(*who)).collect();
        let pushes = |who: Who| self.world.outcomes_of_demotion(who);
        let pushes: Vec<_> = (0..self.scope.places).map(pushes).collect();
        let pending = |who: Who| {
            let mut all = self.world.grants.iter();
            let grant = all.find(|grant| grant.who == who && !grant.push);
            grant.map(|grant| no_acks(grant.got, grant.wanted))
        };
        let pending: Vec<_> = (0..self.scope.places).map(pending).collect();
        self.machine.heard();
        self.machine.tell(None, Event::Demoted { redirect });
        self.machine.engine.check_invariants();
        for (who, heard) in self.machine.heard().iter().enumerate() {
            let is_answer = |arrival: &&Arrival| matches!(arrival, Arrival::Reply(_));
            let answers: Vec<_> = heard.iter().filter(is_answer).collect();
            let count = |word: &str| {
                let is_meant = |arrival: &&Arrival| match arrival {
                    Arrival::Push(sentence) => sentence.contains(word),
                    Arrival::Reply(_) => false,
                };
                heard.iter().filter(is_meant).count()
            };
            let told = [" FAILED ", " FAILED NOACKS ", " LOST demoted"].map(count);
            if self.world.client(who).is_some() && told != pushes[who] {
                let expected = pushes[who];
                return Err(format!(
                    "client {who} hears {heard:?}, of failures and losses {told:?} and not {expected:?}"
                ));
            }
            let expected = match waited.contains(&who) {
                _ if pending[who].is_some() => pending[who]
                    .clone()
                    .map(Arrival::Reply)
                    .into_iter()
                    .collect(),
                true if redirect => vec![Arrival::Reply(Reply::refused("MOVED"))],
                true => vec![Arrival::Reply(Reply::refused("UNBLOCKED"))],
                false => Vec::new(),
            };
            if answers != expected.iter().collect::<Vec<_>>() {
                return Err(format!(
                    "client {who} hears {answers:?} at the end of its wait"
                ));
            }
        }
        self.world.prefixes.clear();
        self.compare_beliefs()?;
        let engine = &self.machine.engine;
        if !engine.is_replica() || engine.next_work(self.machine.now).is_some() {
            return Err("a replica has something to do".into());
        }
        self.machine.tell(None, Event::Promoted);
        self.machine.engine.check_invariants();
        match self.machine.engine.gauges().waiters {
            0 => Ok(()),
            waiters => Err(format!("{waiters} wait at a replica")),
        }
    }

    /// In a cluster the slot of all names with this prefix goes to another server: who watches it or a longer prefix is told that
    /// this is over, after the end of each key; who watches a shorter one is told of the keys alone.
    fn slot_moves(&mut self, prefix: Prefix) -> Result<(), String> {
        const DB: usize = 0;
        let goes = |spot: Spot| spot.db == DB && bytes_of(spot.name).starts_with(PREFIXES[prefix]);
        let keys = self.machine.things.keys().copied();
        for spot in keys.filter(|spot| goes(*spot)).collect::<Vec<_>>() {
            let key = key_of(spot.db, spot.name);
            self.machine.tell(None, Event::Disowned { key });
        }
        let ends = |other: Prefix| PREFIXES[other].starts_with(PREFIXES[prefix]);
        for other in (0..PREFIXES.len()).filter(|other| ends(*other)) {
            let prefix = prefix_of(DB, other);
            self.machine.tell(None, Event::PrefixElsewhere { prefix });
        }
        self.machine.engine.check_invariants();
        self.world.holds.retain(|hold| !goes(hold.spot));
        let is_over = |watch: &PrefixWatch| watch.db == DB && ends(watch.prefix);
        self.world.prefixes.retain(|watch| !is_over(watch));
        self.compare_beliefs()
    }

    /// Everyone goes, and what they left goes; then nothing may be remembered.
    pub fn finish(&mut self) -> Result<(), String> {
        // Who waits for a lease of its own session's is served by nobody, and its session is left.
        for _ in 0..2 {
            self.serve_all()?;
            self.all_go()?;
        }
        self.take(&Step::Work { most: usize::MAX })?;
        self.machine.engine.check_invariants();
        match self.machine.engine.is_idle() {
            true => Ok(()),
            false => Err("everyone is gone, and yet something is remembered".into()),
        }
    }
}

/// How a history ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Close {
    /// See [`Trial::finish`].
    Finished,
    /// See [`Trial::be_demoted`].
    Demoted { redirect: bool },
    /// See [`Trial::slot_moves`].
    Moved { prefix: Prefix },
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
    close: Close,
) -> Result<(), String> {
    let tried = catch_unwind(AssertUnwindSafe(|| {
        let mut trial = Trial::new(scope, limits, check_every).with_twins();
        for (at, step) in steps.iter().enumerate() {
            trial
                .take(step)
                .map_err(|what| format!("step {at}, {step:?}: {what}"))?;
        }
        let closed = trial.close(close);
        closed.map_err(|what| format!("at the end: {what}"))
    }));
    tried.unwrap_or_else(|panic| Err(words(&*panic)))
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without words").to_owned()
}

/// Takes random steps, and panics with the seed and the shortest history that fails. What came about.
pub fn random_world(
    seed: u64,
    scope: Scope,
    limits: Limits,
    steps: usize,
    check_every: usize,
    close: Close,
) -> Totals {
    let mut generator = Generator::new(seed, scope);
    let mut taken = Vec::with_capacity(steps);
    let tried = catch_unwind(AssertUnwindSafe(|| {
        let mut trial = Trial::new(scope, limits, check_every).with_twins();
        for _ in 0..steps {
            let step = generator.step(&trial.world);
            taken.push(step.clone());
            trial.take(&step)?;
        }
        let totals = trial.world.totals;
        trial.close(close).map(|()| totals)
    }));
    let what = match tried.unwrap_or_else(|panic| Err(words(&*panic))) {
        Ok(totals) => return totals,
        Err(what) => what,
    };
    let fails = |steps: &[Step]| try_history(scope, limits, 1, steps, close).is_err();
    let at = taken.len();
    let shortest = match fails(&taken) {
        true => shortest(taken, Duration::from_secs(20), fails),
        false => taken,
    };
    let now = try_history(scope, limits, 1, &shortest, close);
    let lines: Vec<String> = shortest.iter().map(|step| format!("  {step:?}")).collect();
    panic!(
        "TETHER_SEED={seed} fails at step {at}: {what}\nthe shortest history that fails ({limits:?}):\n{}\n{now:?}",
        lines.join("\n")
    );
}
