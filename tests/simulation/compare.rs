//! What the engine says of a world, against the world.

use crate::mine;
use crate::model::acks::{Ack, PendingGrant};
use crate::model::command::{LABELS, Mode as Way, NAMES, Spot, Who};
use crate::model::generate::Scope;
use crate::model::holds::{Hold, Owner};
use crate::model::queues::Waiter;
use crate::model::world::{REASONS, Value, World};
use crate::trial::{Trial, all_spots};
use crate::words::key_of;
use std::collections::BTreeMap;
use tether::engine::{
    ClientId, Holder, KeyInspection, KeySnapshot, KeyState, Loss, Mode, Moment, Stale, Token,
    Waiting,
};

impl Trial {
    /// Everything.
    pub fn compare_state(&mut self, scope: Scope) -> Result<(), String> {
        for spot in all_spots(scope).chain(self.made()) {
            self.compare_thing(spot)?;
            self.compare_census(spot)?;
            self.compare_notice(spot)?;
        }
        for who in 0..scope.places {
            if self.world.is_blocked(who) != self.machine.is_blocked(who) {
                return Err(format!("{who} stands still on one side only"));
            }
            mine::compare(self, who)?;
            self.compare_blocking_grant(who)?;
        }
        self.compare_numbers()?;
        self.compare_questions(scope)?;
        self.compare_log()
    }

    /// What later comparisons build on: whose token is which, of those that nobody was answered too, and what ended.
    pub fn compare_history(&mut self, scope: Scope) -> Result<(), String> {
        for spot in all_spots(scope).chain(self.made()) {
            if self.world.is_held(spot) {
                self.compare_census(spot)?;
            }
        }
        self.compare_log()
    }

    /// The keys whose names sequences have made.
    fn made(&self) -> Vec<Spot> {
        let things = self.machine.things.keys();
        let made = things.filter(|spot| spot.name >= NAMES.len());
        made.copied().chain(self.world.sequence_keys()).collect()
    }

    fn compare_thing(&self, spot: Spot) -> Result<(), String> {
        let thing = self.machine.things.get(&spot);
        let there = thing.map(|thing| (thing.is_lock, thing.expires));
        let entry = self.world.entry(spot);
        let expected = entry.map(|entry| (entry.value == Value::Lock, entry.expires));
        match there == expected {
            true => Ok(()),
            false => Err(format!(
                "{spot:?} is there as {there:?} and not as {expected:?} (a lock, with a time to live)"
            )),
        }
    }

    /// Who holds a key, how, and with what tokens; and who waits for it, in order.
    fn compare_census(&mut self, spot: Spot) -> Result<(), String> {
        let machine = &self.machine;
        let key = key_of(spot.db, spot.name);
        let inspection = machine.engine.inspect(machine.now, key, usize::MAX);
        let KeyInspection {
            mut holders,
            holder_count,
            waiters,
            waiter_count,
            ..
        } = inspection.unwrap_or_default();
        if (holder_count, waiter_count) != (holders.len(), waiters.len()) {
            return Err(format!(
                "at {spot:?} {holder_count} and {waiter_count} are counted of {holders:?} and {waiters:?}"
            ));
        }
        let held = self.world.holds_at(spot).into_iter();
        let mut held: Vec<Hold> = held
            .filter(|hold| !hold.is_left_behind())
            .cloned()
            .collect();
        let queue = self.world.queue(spot);
        let waits = queue.len() == waiters.len()
            && queue.iter().zip(&waiters).all(|(waiter, waiting)| {
                self.machine.who(waiting.client) == Some(waiter.who) && is_waiter(waiter, waiting)
            });
        if !waits {
            return Err(format!("at {spot:?} wait {waiters:?} and not {queue:?}"));
        }
        // At one key tokens rise with the grants.
        held.sort_by_key(|hold| hold.serial);
        holders.sort_by_key(|holder| holder.token);
        let mut met = held.len() == holders.len();
        for (hold, holder) in held.iter().zip(&holders) {
            let client = self.id_of(hold.owner);
            met &= Some(holder.client) == client && is_holder(hold, holder, &self.world);
            // Those whose commands were not answered with a token have one, too.
            met &= self.tokens.is(hold.serial, holder.token.0 as i64);
        }
        if !met {
            return Err(format!(
                "{spot:?} is held by {holders:?} and not by {held:?}"
            ));
        }
        self.compare_tokens(spot, &held, &holders)
    }

    /// Which tokens are those of current holds.
    fn compare_tokens(&self, spot: Spot, held: &[Hold], holders: &[Holder]) -> Result<(), String> {
        let machine = &self.machine;
        let state = match machine.things.get(&spot) {
            Some(thing) if thing.is_lock => KeyState::Lock,
            Some(_) => KeyState::Other,
            None => KeyState::Absent,
        };
        let key = key_of(spot.db, spot.name);
        let seen = KeySnapshot { key, state };
        let check = |token| machine.engine.check_token(machine.now, seen, token);
        let current = |hold: &Hold| self.world.is_current(hold);
        let any = held.iter().position(current);
        let expected = match any {
            Some(at) if held.len() == 1 => Stale::HeldWith(holders[at].token),
            Some(_) => check(Token(0)).expect_err("nobody has this token"),
            None => Stale::Nobody,
        };
        let greatest = Token(self.tokens.greatest() as u64 + 1);
        let mut right = [Token(0), greatest]
            .iter()
            .all(|token| check(*token) == Err(expected));
        for (hold, holder) in held.iter().zip(holders) {
            right &= check(holder.token).is_ok() == current(hold);
            let is_pending = hold.ack == Ack::Pending;
            right &= !is_pending || check(holder.token) == Err(Stale::Pending);
            // The token from before it was raised is nobody's.
            let former = Some(hold.granted_as).filter(|former| *former != hold.serial);
            if let Some(former) = former.and_then(|former| self.tokens.of(former)) {
                right &= check(Token(former as u64)) == Err(expected);
            }
        }
        match right {
            true => Ok(()),
            false => Err(format!(
                "at {spot:?} other tokens of {holders:?} are current than of {held:?}; {expected:?}"
            )),
        }
    }

    fn id_of(&self, owner: Owner) -> Option<ClientId> {
        match (owner, self.world.voice(owner)) {
            (_, Some(who)) => self.machine.id(who),
            (Owner::Session(_), None) => Some(ClientId(0)),
            _ => None,
        }
    }

    /// Nothing is known that nobody cares for, and whoever holds or waits is looked after.
    fn compare_notice(&self, spot: Spot) -> Result<(), String> {
        let (world, machine) = (&self.world, &self.machine);
        let matters = world.watches.iter().any(|watch| watch.spot == spot)
            || world.is_held(spot)
            || world.is_waited_for(spot);
        let known = machine.engine.knows(key_of(spot.db, spot.name));
        // Whatever somebody waited for in the quarantine is looked at when that is over.
        let settled = !machine.engine.has_work(machine.now) && world.quarantine_ends.is_none();
        if (matters && !known) || (known && !matters && settled) {
            return Err(format!("{spot:?} is known for nothing, or is not known"));
        }
        let holders = world.holds_at(spot).into_iter();
        let holders = holders.filter_map(|hold| world.voice(hold.owner));
        let waiters = world.queue(spot).into_iter().map(|waiter| waiter.who);
        let mut all: Vec<Who> = holders.chain(waiters).collect();
        all.retain(|who| !machine.is_guarded(*who));
        match all.is_empty() {
            true => Ok(()),
            false => Err(format!("nobody was told to look after {all:?}")),
        }
    }

    fn compare_numbers(&self) -> Result<(), String> {
        let (world, machine) = (&self.world, &self.machine);
        let engine = &machine.engine;
        let gauges = engine.gauges();
        let mut watched: Vec<Spot> = world.watches.iter().map(|watch| watch.spot).collect();
        watched.sort_unstable();
        watched.dedup();
        let temporary = world.holds.iter();
        let temporary = temporary.filter(|hold| hold.mode == Way::Temporary).count();
        let attached = world
            .sessions
            .iter()
            .filter(|s| s.attached.is_some())
            .count();
        let (totals, model) = (engine.totals(), &world.totals);
        for (what, got, expected) in [
            ("temporary keys", gauges.temporary_keys, temporary),
            ("holds", gauges.holds, world.holds.len() - temporary),
            ("waiters", gauges.waiters, world.waiters.len()),
            ("pending grants", gauges.grants_pending, world.grants.len()),
            (
                "watches",
                gauges.watches,
                world.watches.len() + world.prefixes.len(),
            ),
            (
                "watched keys",
                gauges.watched_keys,
                // Those of ended connections are not told apart from others.
                match engine.has_dead_waits() {
                    true => gauges.watched_keys.max(watched.len()),
                    false => watched.len(),
                },
            ),
            ("attached sessions", gauges.sessions_attached, attached),
            (
                "detached sessions",
                gauges.sessions_detached,
                world.sessions.len() - attached,
            ),
        ] {
            if got != expected {
                return Err(format!("{what}: {got} and not {expected}"));
            }
        }
        for (what, got, expected) in [
            ("lost", totals.lost_by_living_owners(), model.lost),
            ("grants", totals.grants, model.grants),
            ("handoffs", totals.handoffs, model.handoffs),
            ("timeouts", totals.timeouts, model.timeouts),
            ("withdrawn grants", totals.grants_withdrawn, model.withdrawn),
            (
                "refused deadlocks",
                totals.deadlocks_refused,
                model.deadlocks_refused,
            ),
        ] {
            if got != expected {
                return Err(format!("{what}: {got} and not {expected}"));
            }
        }
        self.compare_grants()?;
        self.compare_reasons()?;
        self.compare_times()
    }

    /// Whose acknowledgements are counted next.
    fn compare_grants(&self) -> Result<(), String> {
        let (world, engine) = (&self.world, &self.machine.engine);
        let unplaced = world.grants.iter().any(|grant| !grant.placed);
        let mut expected = BTreeMap::new();
        for grant in world.grants.iter().filter(|grant| grant.placed) {
            let token = self.tokens.of(grant.serial).unwrap_or_default() as u64;
            let first = expected.entry(grant.wanted).or_insert(token);
            *first = token.min(*first);
        }
        let counted = engine.grants_to_count().into_iter();
        let got: BTreeMap<u32, u64> = counted
            .map(|counted| (counted.wanted, counted.token.0))
            .collect();
        if engine.has_unplaced_grants() != unplaced || got != expected {
            return Err(format!("{got:?} are counted and not {expected:?}"));
        }
        // Whatever is pending is due at some time.
        let at_last = Moment(u64::MAX);
        let due = [self.machine.now, at_last].map(|end| engine.grants_due(end, usize::MAX).len());
        let is_due = |grant: &&PendingGrant| grant.ends <= world.now;
        let ended = world.grants.iter().filter(is_due).count();
        let pending = (engine.pending_grants(), due);
        let expected = (world.grants.len(), [ended, world.grants.len()]);
        match pending == expected {
            true => Ok(()),
            false => Err(format!(
                "{pending:?} grants are pending and not {expected:?}"
            )),
        }
    }

    /// The grant for which a connection stands still.
    fn compare_blocking_grant(&self, who: Who) -> Result<(), String> {
        let (world, engine) = (&self.world, &self.machine.engine);
        let blocking = self
            .machine
            .id(who)
            .and_then(|id| engine.grant_blocking(id));
        let expected = world.blocking_grant(who).map(|at| world.grants[at].wanted);
        match blocking.map(|counted| counted.wanted) == expected {
            true => Ok(()),
            false => Err(format!(
                "{who} stands still for {blocking:?}, not {expected:?}"
            )),
        }
    }

    /// Why holds ended, as it is counted and as the log has it.
    fn compare_reasons(&self) -> Result<(), String> {
        let engine = &self.machine.engine;
        let counted = by_reason(engine.totals().lost_by);
        let mut logged = [0; Loss::ALL.len()];
        for entry in self.machine.losses.iter() {
            logged[entry.lost.why as usize] += entry.lost.count;
        }
        let logged = by_reason(logged);
        for (at, names) in REASONS.iter().enumerate() {
            let expected = self.world.totals.reasons[at];
            let (counted, logged) = (counted[at], logged[at]);
            if counted != expected {
                return Err(format!("lost by {names:?}: {counted} and not {expected}"));
            }
            if logged != expected {
                return Err(format!("{logged} logged by {names:?} and not {expected}"));
            }
        }
        Ok(())
    }

    fn compare_times(&self) -> Result<(), String> {
        let (world, machine) = (&self.world, &self.machine);
        let deadline = machine.engine.deadline().map(|end| end.0 / 1000);
        let is_early = machine.engine.has_dead_waits()
            && world
                .next_end()
                .is_none_or(|end| deadline.is_some_and(|at| at < end));
        if deadline != world.next_end() && !is_early {
            let expected = world.next_end();
            return Err(format!(
                "it is to be woken at {deadline:?} and not at {expected:?}"
            ));
        }
        let last = machine.engine.last_token().0 as i64;
        if last < self.tokens.greatest() {
            return Err(format!("{last} was not the last token"));
        }
        let must_work = world.is_anything_left_behind()
            || world.first_servable().is_some()
            || !world.due().is_empty()
            || world.is_any_grace_over();
        match must_work && !machine.engine.has_work(machine.now) {
            true => Err(format!(
                "it has no work, and yet there is some: {:?}, {:?}, {:?}",
                world.first_servable(),
                world.due(),
                world.holds
            )),
            false => Ok(()),
        }
    }
}

/// How many there are of each reason, of so many of each [`Loss`]; for others the model has no count.
fn by_reason(losses: [u64; Loss::ALL.len()]) -> [u64; REASONS.len()] {
    let mut counts = [0; REASONS.len()];
    for (loss, count) in Loss::ALL.into_iter().zip(losses) {
        let mut reasons = REASONS.iter();
        if let Some(at) = reasons.position(|names| names.contains(&loss.name())) {
            counts[at] += count;
        }
    }
    counts
}

fn is_waiter(waiter: &Waiter, waiting: &Waiting) -> bool {
    let terms = &waiting.terms;
    LABELS[waiter.label] == &*terms.label && is_mode(waiter.mode, terms.mode)
}

fn is_holder(hold: &Hold, holder: &Holder, world: &World) -> bool {
    let lease = hold.ends.map(|ends| ends.saturating_sub(world.now));
    let session = match hold.owner {
        Owner::Session(_) => Some(world.voice(hold.owner).is_some()),
        _ => None,
    };
    let mut grants = world.grants.iter();
    let grant = grants.find(|grant| grant.serial == hold.serial);
    LABELS[hold.label] == &*holder.terms.label
        && grant.map(|grant| (grant.got, grant.wanted)) == holder.acks
        && session == holder.session
        && is_mode(hold.mode, holder.terms.mode)
        && (hold.whole_depth(), lease) == (holder.depth, holder.terms.lease_ms)
}

pub fn is_mode(way: Way, mode: Mode) -> bool {
    match (way, mode) {
        (Way::Temporary, Mode::Temporary)
        | (Way::Exclusive, Mode::Exclusive)
        | (Way::Shared, Mode::Shared) => true,
        (Way::Permits { count, total }, Mode::Permits { count: c, total: t }) => {
            (count, total) == (c, t)
        }
        _ => false,
    }
}
