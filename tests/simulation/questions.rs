//! What the shell asks the engine between events, against the model.

use crate::exhaustive::scope;
use crate::model::acks::Ack;
use crate::model::brief::{BLOCK, PUSH, acquire, acquire_as, close, connect, macquire, run};
use crate::model::command::{Mode as Way, PREFIXES, Spot, Who};
use crate::model::generate::Scope;
use crate::model::holds::Owner;
use crate::model::sequence::bytes_of;
use crate::model::world::Limits;
use crate::trial::{Close, Trial, all_spots, try_history};
use crate::words::{key_of, prefix_of, spot_of};
use std::collections::BTreeSet;
use tether::engine::{KeyBuf, Token};

impl Trial {
    pub fn compare_questions(&self, scope: Scope) -> Result<(), String> {
        self.compare_known(scope)?;
        for spot in all_spots(scope) {
            self.compare_questions_of(spot)?;
        }
        for who in 0..scope.places {
            self.compare_origin(who)?;
        }
        let (world, engine) = (&self.world, &self.machine.engine);
        // Waits of ended connections may still be in their queues.
        let is_awaited = !world.waiters.is_empty();
        if engine.is_awaited() != is_awaited && !(engine.is_awaited() && engine.has_dead_waits()) {
            return Err(format!("somebody waits: not {is_awaited}"));
        }
        if !world.prefixes.is_empty() || engine.watches_prefixes() {
            self.compare_prefixes()?;
        }
        match world.holds.is_empty() && !engine.has_temporary_keys() {
            true => Ok(()),
            false => self.compare_temporary(),
        }
    }

    /// The lists of all keys, and of those of somebody here.
    fn compare_known(&self, scope: Scope) -> Result<(), String> {
        let (world, engine) = (&self.world, &self.machine.engine);
        let (known, of_living) = (engine.keys_known(), engine.keys_of_the_living());
        for spot in all_spots(scope) {
            let key = key_of(spot.db, spot.name).to_owned();
            let matters = world.watches.iter().any(|watch| watch.spot == spot)
                || world.is_waited_for(spot)
                || world.is_anyones(spot);
            let is_listed = known.contains(&key) == engine.knows(key.as_key());
            if !is_listed || matters && !of_living.contains(&key) {
                return Err(format!(
                    "{spot:?} is missing among {known:?} and {of_living:?}"
                ));
            }
        }
        for all in [&known, &of_living] {
            let each: BTreeSet<&KeyBuf> = all.iter().collect();
            if each.len() < all.len() || !all.iter().all(|key| engine.knows(key.as_key())) {
                return Err(format!("{all:?} has a key twice, or one that is not known"));
            }
        }
        Ok(())
    }

    /// Whether the log needs to know where a connection is from.
    fn compare_origin(&self, who: Who) -> Result<(), String> {
        let (world, engine) = (&self.world, &self.machine.engine);
        let Some(id) = self.machine.id(who) else {
            return Ok(());
        };
        let is_in_session = matches!(world.owner(who), Owner::Session(_));
        let expected = is_in_session || !world.holds_of(who).is_empty();
        match engine.wants_origin(id) == expected || engine.has_work(self.machine.now) {
            true => Ok(()),
            false => Err(format!("where {who} is from matters: not {expected}")),
        }
    }

    /// The temporary keys that files have.
    fn compare_temporary(&self) -> Result<(), String> {
        let (world, engine) = (&self.world, &self.machine.engine);
        let is_of_connection = |owner| matches!(owner, Owner::Connection(_));
        let temporary = world.holds.iter();
        let temporary = temporary.filter(|hold| hold.mode == Way::Temporary);
        let has_temporary = temporary.clone().next().is_some();
        let for_files = temporary.filter(|hold| is_of_connection(hold.owner));
        let for_files = for_files.filter_map(|hold| self.tokens.of(hold.serial));
        let mut for_files = for_files.map(|token| Token(token as u64));
        let written: Vec<Token> = engine.temporary_keys().map(|(_, token)| token).collect();
        let is_written = for_files.all(|token| written.contains(&token));
        match engine.has_temporary_keys() == has_temporary && is_written {
            true => Ok(()),
            false => Err(format!("files have the temporary keys {written:?}")),
        }
    }

    fn compare_prefixes(&self) -> Result<(), String> {
        let (world, engine) = (&self.world, &self.machine.engine);
        let prefixes = world.prefixes.iter();
        let prefixes = prefixes.map(|watch| prefix_of(watch.db, watch.prefix).to_owned());
        let prefixes: BTreeSet<KeyBuf> = prefixes.collect();
        let watched: BTreeSet<KeyBuf> = engine.watched_prefixes().into_iter().collect();
        // Watches of ended connections end in slices.
        let is_as_it_is = match engine.has_work(self.machine.now) {
            true => watched.is_superset(&prefixes),
            false => watched == prefixes,
        };
        if !is_as_it_is || engine.watches_prefixes() == watched.is_empty() {
            return Err(format!("{watched:?} are watched and not {prefixes:?}"));
        }
        Ok(())
    }

    /// The keys that the next work may hand over: those that the engine names, and those of requests for several that one of them is
    /// of, which in a cluster are of its slot.
    pub fn about_to_be_served(&self, most: usize) -> BTreeSet<Spot> {
        let machine = &self.machine;
        let named = machine.engine.keys_about_to_be_served(machine.now, most);
        let mut all: BTreeSet<Spot> = named.iter().map(spot_of).collect();
        let mut known = 0;
        while known < all.len() {
            known = all.len();
            for waiter in &self.world.waiters {
                if waiter.spots.iter().any(|spot| all.contains(spot)) {
                    all.extend(&waiter.spots);
                }
            }
        }
        all
    }

    fn compare_questions_of(&self, spot: Spot) -> Result<(), String> {
        let (world, engine) = (&self.world, &self.machine.engine);
        let key = key_of(spot.db, spot.name);
        if !engine.knows(key) {
            return Ok(());
        }
        let is_waited_for = world.is_waited_for(spot);
        let waits = engine.has_waiters(key);
        if waits != is_waited_for && !(waits && engine.has_dead_waits()) {
            return Err(format!("who waits for {spot:?}: not {is_waited_for}"));
        }
        let held = world.holds_at(spot);
        let expires = (self.machine.things.get(&spot)).is_some_and(|thing| thing.expires);
        let may_expire = (engine.may_be_expired(key), engine.may_any_be_expired());
        // What was left behind goes in any case.
        let is_kept = held.iter().any(|hold| !hold.is_left_behind());
        if expires && is_kept && may_expire != (true, true) {
            return Err(format!("{spot:?} has a time to live: {may_expire:?}"));
        }
        let is_unclaimed = held.is_empty() && !is_waited_for;
        if engine.is_unclaimed(key) != is_unclaimed && !engine.has_work(self.machine.now) {
            return Err(format!("{spot:?} can be made: not {is_unclaimed}"));
        }
        let living = held.iter().filter(|hold| !hold.is_left_behind());
        let living = living.filter_map(|hold| world.voice(hold.owner));
        let mut living: Vec<_> = living.collect();
        let holders = engine.holders(key);
        let mut holders: Vec<_> = holders
            .iter()
            .filter_map(|client| self.machine.who(*client))
            .collect();
        living.sort_unstable();
        holders.sort_unstable();
        if holders != living {
            return Err(format!("{holders:?} hold {spot:?} and not {living:?}"));
        }
        let mut temporary = held.iter().filter(|hold| hold.mode == Way::Temporary);
        let is_shown = temporary.any(|hold| hold.ack != Ack::Pending && !hold.is_left_behind());
        let is_watched = world.prefixes.iter().any(|watch| {
            watch.db == spot.db && bytes_of(spot.name).starts_with(PREFIXES[watch.prefix])
        });
        let expected = is_shown && is_watched;
        let got = engine.is_value_watched(key);
        match got == expected || got && engine.has_work(self.machine.now) {
            true => Ok(()),
            false => Err(format!("a write to {spot:?} is heard of: not {expected}")),
        }
    }
}

/// In a cluster the shell looks at their slots first.
#[test]
fn keys_that_the_waits_of_ended_connections_leave_are_about_to_be_served() {
    let steps = [
        connect(0),
        connect(1),
        run(0, acquire_as(1, 0, Way::Exclusive, PUSH)),
        run(0, macquire([1, 0], PUSH)),
        run(1, acquire_as(1, 1, Way::Exclusive, PUSH)),
        run(1, macquire([1, 0], PUSH)),
        close(0),
        run(1, acquire(0, Way::Exclusive, BLOCK)),
    ];
    let tried = try_history(scope(2), Limits::ROOMY, 1, &steps, Close::Finished);
    assert_eq!(tried, Ok(()));
}
