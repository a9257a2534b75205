//! Every history of a few steps in the smallest worlds: two or three connections, one or two keys.
//!
//! Left out is what differs only by who is called 0 and what is called 0; and a step that leaves
//! the world as it was is tried, but nothing is tried after it. `TETHER_DEPTH` goes deeper.

use crate::model::around::Around;
use crate::model::brief::{
    BLOCK, PUSH, acquire, acquire_as, again, by_task, close, connect, del, deltp, macquire,
    notified, release, resume, run, settp, settp_wait, start, unwatchex, watchex,
};
use crate::model::command::{Command, Kind, Mode, Spot, Who};
use crate::model::generate::Scope;
use crate::model::step::Step;
use crate::model::world::{Limits, World};
use crate::random::from_environment;
use crate::trial::Trial;

/// Of a world of so many connections.
pub fn scope(places: usize) -> Scope {
    Scope {
        places,
        names: 2,
        server: false,
        locks: 0,
        sessions: 0,
        meetings: 0,
        quiet: 0,
        around: Around::default(),
    }
}

struct Search {
    places: usize,
    alphabet: Vec<Step>,
    depth: usize,
    tried: usize,
}

/// Tries all histories of up to so many of these steps, after so many connections are made.
fn try_all(places: usize, alphabet: Vec<Step>, depth: usize) {
    let depth = from_environment("TETHER_DEPTH").unwrap_or(depth);
    let tried = 0;
    let mut search = Search {
        places,
        alphabet,
        depth,
        tried,
    };
    let mut history: Vec<Step> = (0..places).map(connect).collect();
    let world = world_after(places, &history);
    search.extend(&mut history, &world, 0);
    println!("{} histories", search.tried);
}

fn world_after(places: usize, history: &[Step]) -> World {
    let mut world = World::new(places, Limits::ROOMY, true);
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
            let world_now = try_last(self.places, history, is_last);
            self.tried += 1;
            if !is_last && state(&world_now) != state(world) {
                self.extend(history, &world_now, depth + 1);
            }
            history.pop();
        }
    }
}

/// Tries a history whose beginning was tried before; the world after it.
fn try_last(places: usize, history: &[Step], to_the_end: bool) -> World {
    let noted = Noted(history);
    let (last, before) = history.split_last().expect("at least one step");
    let mut trial = Trial::new(scope(places), Limits::ROOMY, 1);
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
        (&world.sessions, world.now),
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
    (0..2).map(what).collect()
}

/// What each of three may do to one key.
fn of_three(what: impl Fn() -> Command) -> Vec<Step> {
    (0..3).map(|who| run(who, what())).collect()
}

/// One key, three connections: who comes after whom.
fn in_line() -> Vec<Step> {
    let permit = Mode::Permits { count: 1, total: 2 };
    let mut steps = vec![Step::Work { most: 64 }, run(0, del(0))];
    steps.extend(of_three(|| settp_wait(0, BLOCK)));
    steps.extend(of_three(|| acquire(0, Mode::Exclusive, PUSH)));
    steps.extend(of_three(|| again(acquire(0, Mode::Shared, BLOCK))));
    steps.extend(of_three(|| acquire(0, permit, PUSH)));
    steps.extend(of_three(|| release(0)));
    steps.extend(of_three(|| deltp(0)));
    steps.extend((0..3).map(close));
    steps
}

/// Two keys, two connections with two owners each: who waits for whom.
fn crosswise() -> Vec<Step> {
    let mut steps = vec![Step::Work { most: 1 }, run(0, del(0))];
    steps.extend(of_both(|key| acquire(key, Mode::Exclusive, BLOCK)));
    steps.extend(of_both(|key| again(acquire(key, Mode::Shared, PUSH))));
    steps.extend(of_both(|key| acquire_as(1, key, Mode::Exclusive, PUSH)));
    steps.extend(of_both(release));
    steps.extend(of_each(|who| run(who, macquire([0, 1], BLOCK))));
    steps.extend(of_each(|who| run(who, macquire([1, 0], PUSH))));
    steps.extend(of_each(close));
    let error = true;
    let unblock = |who| Command::Unblock { who, error };
    steps.extend(of_each(|who| run(1 - who, unblock(who))));
    steps
}

/// Two keys, one connection with two tasks and another one: who is stuck with whom under whatever label.
fn with_tasks() -> Vec<Step> {
    let permits = |count| Mode::Permits { count, total: 2 };
    let both_keys = |what: &dyn Fn(usize) -> Command| [0, 1].map(|key| run(0, what(key)));
    let mut steps = vec![Step::Work { most: 1 }];
    for (task, label) in [(1, 0), (1, 1), (0, 2)] {
        let ask = |key| by_task(task, acquire_as(label, key, Mode::Exclusive, PUSH));
        steps.extend(both_keys(&ask));
        let all = true;
        steps.extend(both_keys(&|key| Command::Release { key, label, all }));
        let some = |count| by_task(task, acquire_as(label, 0, permits(count), PUSH));
        steps.extend([1, 2].map(|count| run(0, some(count))));
    }
    steps.extend(both_keys(&|key| by_task(1, settp_wait(key, PUSH))));
    steps.extend(both_keys(&|key| acquire_as(1, key, Mode::Exclusive, BLOCK)));
    let two_keys = by_task(1, macquire([1, 0], PUSH));
    steps.extend([run(0, two_keys), run(0, deltp(0))]);
    steps.extend([0, 1].map(|key| run(1, acquire(key, Mode::Exclusive, BLOCK))));
    steps.extend([1, 2].map(|count| run(1, acquire(0, permits(count), PUSH))));
    let error = true;
    steps.extend([close(1), run(1, Command::Unblock { who: 0, error })]);
    steps
}

/// One key, two connections, their sessions: who has what when somebody dies, and when it is too late.
fn with_sessions() -> Vec<Step> {
    let mut steps = vec![Step::Work { most: 1 }, Step::Pass { ms: 2 }];
    steps.extend(of_each(|who| run(who, start(1 + who as u64))));
    steps.extend(of_each(|who| run(who, resume(0, who == 0))));
    steps.extend(of_each(|who| run(who, Command::EndSession)));
    steps.extend(of_each(|who| run(who, settp_wait(0, PUSH))));
    steps.extend(of_each(|who| {
        let command = again(acquire(0, Mode::Shared, None));
        run(who, if who == 0 { notified(command) } else { command })
    }));
    steps.push(run(1, acquire(0, Mode::Exclusive, BLOCK)));
    steps.extend(of_each(close));
    steps.extend(of_each(connect));
    steps
}

fn usual() -> Vec<Step> {
    let to = |from| Command::Rename { from, to: 1 - from };
    let mut steps = vec![Step::Work { most: 1 }];
    steps.extend(of_both(|key| match key {
        0 => notified(settp(key)),
        _ => settp(key),
    }));
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

/// Who and what was never named before is the next that has no name yet.
fn is_canonical(history: &[Step], step: &Step) -> bool {
    let in_order = |named: fn(&Step) -> Option<usize>| {
        let mut next = 0;
        history.iter().chain([step]).filter_map(named).all(|name| {
            let known = name <= next;
            next = next.max(name + 1);
            known
        })
    };
    in_order(client_of) && in_order(key_of)
}

/// Who does it. (That all are made at first says nothing.)
fn client_of(step: &Step) -> Option<usize> {
    match step {
        Step::Run { who, .. } | Step::End { who, .. } => Some(*who),
        _ => None,
    }
}

fn key_of(step: &Step) -> Option<usize> {
    match step {
        Step::Evict { spot } => Some(spot.name),
        Step::Run { command, .. } => match command {
            Command::Settp { key, .. }
            | Command::Set { key, .. }
            | Command::Restore { key, .. }
            | Command::Rename { from: key, .. }
            | Command::Acquire { key, .. }
            | Command::Release { key, .. }
            | Command::Move { key, .. } => Some(*key),
            Command::Watchex { keys }
            | Command::Del { keys }
            | Command::Deltp { keys }
            | Command::Macquire { keys, .. } => keys.first().copied(),
            _ => None,
        },
        _ => None,
    }
}

#[test]
fn all_histories_of_five_usual_steps() {
    try_all(2, usual(), 5);
}

#[test]
fn all_histories_of_four_steps_of_any_kind() {
    try_all(2, unusual(), 4);
}

#[test]
#[ignore = "half a minute; for release builds"]
fn all_histories_of_seven_usual_steps() {
    try_all(2, usual(), 7);
}

#[test]
#[ignore = "ten seconds; for release builds"]
fn all_histories_of_five_steps_of_any_kind() {
    try_all(2, unusual(), 5);
}

#[test]
fn all_histories_of_three_in_line() {
    try_all(3, in_line(), 4);
}

#[test]
fn all_histories_of_two_that_wait_crosswise() {
    try_all(2, crosswise(), 4);
}

#[test]
fn all_histories_of_two_with_tasks() {
    try_all(2, with_tasks(), 4);
}

#[test]
#[ignore = "half a minute; for release builds"]
fn all_histories_of_two_with_tasks_for_long() {
    try_all(2, with_tasks(), 5);
}

#[test]
fn all_histories_of_two_with_sessions() {
    try_all(2, with_sessions(), 5);
}

#[test]
#[ignore = "half a minute; for release builds"]
fn all_histories_of_two_with_sessions_for_long() {
    try_all(2, with_sessions(), 6);
}

#[test]
#[ignore = "half a minute; for release builds"]
fn all_histories_of_three_in_line_for_long() {
    try_all(3, in_line(), 6);
}

#[test]
#[ignore = "half a minute; for release builds"]
fn all_histories_of_two_that_wait_crosswise_for_long() {
    try_all(2, crosswise(), 6);
}
