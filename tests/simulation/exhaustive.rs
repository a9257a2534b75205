//! Every history of a few steps in the smallest world: two connections, two keys.
//!
//! Left out is what differs only by who is called 0 and what is called 0; and a step that leaves
//! the world as it was is tried, but nothing is tried after it. `TETHER_DEPTH` goes deeper.

use crate::model::brief::{close, connect, del, run, settp, unwatchex, watchex};
use crate::model::command::{Command, Kind, Spot, Who};
use crate::model::generate::Scope;
use crate::model::random::from_environment;
use crate::model::step::Step;
use crate::model::world::{Limits, World};
use crate::trial::Trial;

const SCOPE: Scope = Scope {
    places: 2,
    names: 2,
    server: false,
    locks: 0,
};
const LIMITS: Limits = Limits {
    watches: 65_536,
    keys: 65_536,
};

struct Search {
    alphabet: Vec<Step>,
    depth: usize,
    tried: usize,
}

/// Tries all histories of up to so many of these steps, after both connections are made.
fn try_all(alphabet: Vec<Step>, depth: usize) {
    let depth = from_environment("TETHER_DEPTH").unwrap_or(depth);
    let tried = 0;
    let mut search = Search {
        alphabet,
        depth,
        tried,
    };
    let mut history: Vec<Step> = (0..SCOPE.places).map(connect).collect();
    let world = world_after(&history);
    search.extend(&mut history, &world, 0);
    println!("{} histories", search.tried);
}

fn world_after(history: &[Step]) -> World {
    let mut world = World::new(SCOPE.places, LIMITS, true);
    for step in history {
        world.take(step);
    }
    world
}

impl Search {
    fn extend(&mut self, history: &mut Vec<Step>, world: &World, depth: usize) {
        for at in 0..self.alphabet.len() {
            let step = &self.alphabet[at];
            if !world.allows(step) || !is_canonical(history, step) {
                continue;
            }
            history.push(step.clone());
            let is_last = depth + 1 == self.depth;
            let world_now = try_last(history, is_last);
            self.tried += 1;
            if !is_last && state(&world_now) != state(world) {
                self.extend(history, &world_now, depth + 1);
            }
            history.pop();
        }
    }
}

/// Tries a history whose beginning was tried before; the world after it.
fn try_last(history: &[Step], to_the_end: bool) -> World {
    let noted = Noted(history);
    let (last, before) = history.split_last().expect("at least one step");
    let mut trial = Trial::new(SCOPE, LIMITS, 1);
    let mut tried = before.iter().try_for_each(|step| trial.take_again(step));
    tried = tried.and_then(|()| trial.take(last));
    let world = trial.world.clone();
    if to_the_end {
        tried = tried.and_then(|()| trial.finish());
    }
    tried.unwrap_or_else(|what| panic!("{what}"));
    std::mem::forget(noted);
    world
}

/// Prints the history if there is a panic in it.
struct Noted<'a>(&'a [Step]);

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        println!("in the history {:#?}", self.0);
    }
}

/// What counts as a change.
fn state(world: &World) -> impl PartialEq + use<'_> {
    let connected: Vec<bool> = world.clients.iter().map(Option::is_some).collect();
    (
        &world.databases,
        &world.holds,
        &world.waiters,
        &world.watches,
        connected,
    )
}

// ---- the steps ----

/// What one connection may do to one key.
fn of_both(what: impl Fn(usize) -> Command) -> Vec<Step> {
    let pairs = [(0, 0), (0, 1), (1, 0), (1, 1)];
    pairs.map(|(who, key)| run(who, what(key))).into()
}

fn of_each(what: impl Fn(Who) -> Step) -> Vec<Step> {
    (0..SCOPE.places).map(what).collect()
}

fn usual() -> Vec<Step> {
    let to = |from| Command::Rename { from, to: 1 - from };
    let mut steps = vec![Step::Work { most: 1 }];
    steps.extend(of_both(settp));
    steps.extend(of_both(watchex));
    steps.extend(of_both(del));
    steps.extend(of_both(to));
    steps.extend(of_each(close));
    steps.extend(of_each(connect));
    steps.extend(of_each(|who| run(who, unwatchex())));
    steps
}

fn unusual() -> Vec<Step> {
    let kind = Kind::Text;
    let mut steps = usual();
    steps.extend(of_both(|key| Command::Deltp { keys: vec![key] }));
    steps.extend(of_both(|key| Command::Set { key, value: 2 }));
    steps.extend(of_both(|key| Command::Restore {
        key,
        kind,
        replace: true,
    }));
    steps.extend(of_both(|key| Command::Move { key, db: 1 }));
    steps.extend(of_each(|who| run(who, Command::Flushall)));
    steps.extend(of_each(|who| run(who, Command::Swapdb)));
    steps.extend([0, 1].map(|name| Step::Evict {
        spot: Spot { db: 0, name },
    }));
    steps
}

/// Who and what was never named before is named 0 first.
fn is_canonical(history: &[Step], step: &Step) -> bool {
    let named = |name: fn(&Step) -> (bool, bool)| {
        let mut all = history.iter().chain([step]).map(name);
        all.find(|(zero, one)| *zero || *one)
            .is_none_or(|(zero, _)| zero)
    };
    named(clients_of) && named(keys_of)
}

/// Whether connection 0, and whether connection 1, is named. (That both are made at first says nothing.)
fn clients_of(step: &Step) -> (bool, bool) {
    match step {
        Step::Run { who, .. } | Step::End { who, .. } => (*who == 0, *who == 1),
        _ => (false, false),
    }
}

fn keys_of(step: &Step) -> (bool, bool) {
    let key = match step {
        Step::Evict { spot } => spot.name,
        Step::Run { command, .. } => match command {
            Command::Settp { key, .. }
            | Command::Set { key, .. }
            | Command::Restore { key, .. }
            | Command::Rename { from: key, .. }
            | Command::Move { key, .. } => *key,
            Command::Watchex { keys } | Command::Del { keys } | Command::Deltp { keys } => keys[0],
            _ => return (false, false),
        },
        _ => return (false, false),
    };
    (key == 0, key == 1)
}

#[test]
fn all_histories_of_five_usual_steps() {
    try_all(usual(), 5);
}

#[test]
fn all_histories_of_four_steps_of_any_kind() {
    try_all(unusual(), 4);
}

#[test]
#[ignore = "half a minute; for release builds"]
fn all_histories_of_seven_usual_steps() {
    try_all(usual(), 7);
}

#[test]
#[ignore = "ten seconds; for release builds"]
fn all_histories_of_five_steps_of_any_kind() {
    try_all(unusual(), 5);
}
