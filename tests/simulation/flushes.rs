//! A flush, or an exchange of databases, that is done with in slices comes to the same as one that is done with at once.
//!
//! Two engines are told the same. One does what follows from a flush at once, and is told at once what stands at each key
//! after an exchange; the other one does it when a key is named, or when it is told to go on. Whoever asks is answered the
//! same by both, and in the end both have said the same. Of keys that come and go by exchanges alone who watches hears only in
//! the end.

use crate::random::{Random, seed, steps};
use std::collections::{BTreeMap, BTreeSet};
use tether::engine::{
    Acquire, Attributes, Cause, ClientId, Db, Effect, Engine, Event, Form, Key, KeySnapshot,
    KeyState, Limits, Loss, Mode, Moment, News, Reply, Terms, Wait,
};

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const LABELS: [&[u8]; 2] = [b"", b"x"];
const CLIENTS: usize = 4;

type Spot = (u32, usize);

fn key((db, name): Spot) -> Key<'static> {
    let (db, name) = (Db(db), NAMES[name].as_bytes());
    Key { db, name }
}

fn spot(key: Key<'_>) -> Spot {
    let mut names = NAMES.iter();
    let name = names.position(|name| name.as_bytes() == key.name);
    (key.db.0, name.expect("one of the names"))
}

/// An engine, the keyspace as its orders make it, and what was said to whom about what.
struct Side {
    engine: Engine,
    /// As many keys are looked at when databases have exchanged their contents.
    at_once: usize,
    now: Moment,
    /// Whether it is a lock that stands there.
    things: BTreeMap<Spot, bool>,
    said: BTreeMap<(ClientId, Spot), Vec<String>>,
    /// Whether a key is there, as its watchers know.
    watched: BTreeMap<(ClientId, Spot), bool>,
    replies: Vec<String>,
}

impl Side {
    fn new(at_once: usize) -> Side {
        Side {
            engine: Engine::default(),
            at_once,
            now: Moment(1),
            things: BTreeMap::new(),
            said: BTreeMap::new(),
            watched: BTreeMap::new(),
            replies: Vec::new(),
        }
    }

    fn key_state(&self, spot: Spot) -> KeyState {
        match self.things.get(&spot) {
            None => KeyState::Absent,
            Some(true) => KeyState::Lock,
            Some(false) => KeyState::Other,
        }
    }

    fn tell(&mut self, event: Event<'_>) {
        let mut effects = Vec::new();
        let asked = match &event {
            Event::Acquire(ask) => Some((spot(ask.seen[0].key), ask.terms.mode.is_lock())),
            _ => None,
        };
        let watched = match &event {
            Event::Watch { client, seen } => {
                let is_there = seen[0].state.is_present();
                Some(((*client, spot(seen[0].key)), is_there))
            }
            _ => None,
        };
        self.engine.handle(self.now, event, &mut effects);
        for effect in effects {
            match effect {
                Effect::Reply(reply) => self.replies.push(words(&reply)),
                Effect::CreateKey { .. } => {
                    let (spot, is_lock) = asked.expect("a request");
                    assert!(self.things.insert(spot, is_lock).is_none());
                }
                Effect::Make { key, .. } => drop(self.things.insert(spot(key.as_key()), false)),
                Effect::MakeLock { key, .. } => {
                    let former = self.things.insert(spot(key.as_key()), true);
                    assert!(former != Some(true), "{key:?} is made twice");
                }
                Effect::Remove(key) => {
                    let former = self.things.remove(&spot(key.as_key()));
                    assert!(former.is_some(), "{key:?} is removed, and is not there");
                }
                Effect::Push { to, push } => {
                    for client in to {
                        let about = (client, spot(push.key.as_key()));
                        let said = match push.news() {
                            News::Granted(kind, _) => format!("{kind:?} granted"),
                            news @ (News::Added | News::Deleted) => {
                                let is_there = matches!(news, News::Added);
                                let former = self.watched.insert(about, is_there);
                                assert_eq!(former, Some(!is_there), "no news: {push:?}");
                                continue;
                            }
                            news => format!("{news:?}"),
                        };
                        self.said.entry(about).or_default().push(said);
                    }
                }
                Effect::ReplicateToken(_)
                | Effect::Replicate(_)
                | Effect::EnablePush(_)
                | Effect::TrackDisconnect(_) => {}
                other => panic!("{other:?}"),
            }
        }
        self.watched.extend(watched);
        if !self.engine.has_key_in_transit() {
            self.engine.check_invariants();
        }
    }

    fn go_on(&mut self, most: usize) {
        self.tell(Event::Reap { steps: most });
        self.look(most);
    }

    fn flush(&mut self, db: Option<u32>, by: ClientId) {
        self.things
            .retain(|(of, _), _| db.is_some_and(|db| db != *of));
        let (db, by) = (db.map(Db), Cause::Client(by));
        self.engine.set_limits(Limits {
            steps_per_event: self.at_once,
            ..Limits::default()
        });
        self.tell(Event::Flushed { db, by });
        self.engine.set_limits(Limits::default());
    }

    fn swap(&mut self) {
        let things = std::mem::take(&mut self.things);
        let swapped = |((db, name), is_lock)| ((1 - db, name), is_lock);
        self.things = things.into_iter().map(swapped).collect();
        let (one, other) = (Db(0), Db(1));
        self.tell(Event::Swapped { one, other });
        self.look(self.at_once);
    }

    fn look(&mut self, most: usize) {
        for _ in 0..most {
            // Few places at a time, as the shell.
            let Some(key) = self.engine.next_stale_name(3) else {
                match self.engine.has_stale_names() {
                    true => continue,
                    false => return,
                }
            };
            let (key, gone) = (key.as_key(), Loss::Deleted);
            let state = self.key_state(spot(key));
            let seen = KeySnapshot { key, state };
            self.tell(Event::Found { seen, gone });
        }
    }

    fn settle(&mut self) {
        while self.engine.is_flushing()
            || self.engine.has_dead_waits()
            || self.engine.has_stale_names()
        {
            self.go_on(3);
        }
        while self.engine.has_work(self.now) {
            self.tell(Event::Work { steps: 64 });
        }
    }

    /// Who holds and who waits; tokens depend on who is served first.
    fn state(&self) -> Vec<String> {
        let spots = (0..2).flat_map(|db| (0..NAMES.len()).map(move |name| (db, name)));
        let state = spots.map(|spot| {
            let inspection = self.engine.inspect(self.now, key(spot), usize::MAX);
            let inspection = inspection.map(|inspection| {
                let holders = inspection.holders.iter();
                let holders = holders.map(|one| (one.client, one.terms.label.clone(), one.depth));
                let waiters = inspection.waiters.iter();
                let waiters = waiters.map(|one| (one.client, one.terms.label.clone()));
                let counts = (inspection.holder_count, inspection.waiter_count);
                (
                    holders.collect::<Vec<_>>(),
                    waiters.collect::<Vec<_>>(),
                    counts,
                )
            });
            let holders: Vec<_> = self.engine.holders(key(spot)).to_vec();
            format!("{inspection:?} {holders:?} {:?}", self.things.get(&spot))
        });
        state.collect()
    }
}

fn words(reply: &Reply) -> String {
    match reply {
        // A token: which one depends on who was served before.
        Reply::Integer(number) if *number > 1 => "granted".to_owned(),
        reply => format!("{reply:?}"),
    }
}

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum What {
    Ask,
    Release,
    Drop,
    Cancel,
    Watch,
    Unwatch,
    Set,
    Del,
    Rename,
    Flush,
    Swap,
    End,
    Pass,
    Work,
    GoOn,
}

const WHAT: [(usize, What); 15] = [
    (30, What::Ask),
    (6, What::Release),
    (6, What::Drop),
    (3, What::Cancel),
    (8, What::Watch),
    (3, What::Unwatch),
    (6, What::Set),
    (6, What::Del),
    (5, What::Rename),
    (9, What::Flush),
    (9, What::Swap),
    (2, What::End),
    (3, What::Pass),
    (6, What::Work),
    (6, What::GoOn),
];

struct World {
    sides: [Side; 2],
    random: Random,
    clients: [u64; CLIENTS],
    /// Nothing is written while there is something to do of a flush, so that both serve in the same moments.
    is_strict: bool,
}

impl World {
    fn new(seed: u64) -> World {
        World {
            sides: [Side::new(usize::MAX), Side::new(0)],
            random: Random::new(seed),
            clients: [1, 2, 3, 4],
            is_strict: seed.is_multiple_of(2),
        }
    }

    fn both(&mut self, tell: impl Fn(&mut Side)) {
        self.sides.iter_mut().for_each(tell);
    }

    fn step(&mut self) {
        let place = self.random.below(CLIENTS);
        let client = ClientId(self.clients[place]);
        let at: Spot = (self.random.below(2) as u32, self.random.below(NAMES.len()));
        let label = self.random.pick(&LABELS);
        let what = self.random.weighted(&WHAT);
        match what {
            What::Ask => self.ask(client, at, label),
            What::Release => self.both(|side| {
                side.tell(Event::Release {
                    client,
                    key: key(at),
                    label,
                    all: true,
                });
            }),
            What::Drop => self.both(|side| {
                let keys = &[key(at)];
                side.tell(Event::Drop { client, keys });
            }),
            What::Cancel => self.both(|side| {
                let key = key(at);
                side.tell(Event::Cancel { client, key, label });
            }),
            What::Watch => self.both(|side| {
                let (key, state) = (key(at), side.key_state(at));
                let seen = &[KeySnapshot { key, state }];
                side.tell(Event::Watch { client, seen });
            }),
            What::Unwatch => self.both(|side| {
                let keys = &[key(at)];
                side.tell(Event::Unwatch { client, keys });
                side.watched.remove(&(client, at));
            }),
            What::Set => self.both(|side| set(side, at)),
            What::Del => self.both(|side| {
                if side.things.remove(&at).is_some() && side.engine.knows(key(at)) {
                    let (key, by, why) = (key(at), Cause::Client(client), Loss::Deleted);
                    side.tell(Event::Gone { key, by, why });
                }
            }),
            What::Rename => {
                let to = (at.0, self.random.below(NAMES.len()));
                self.both(|side| rename(side, client, at, to));
            }
            What::Flush => {
                let db = self.random.per_mille(500).then_some(at.0);
                self.both(|side| side.flush(db, client));
            }
            What::Swap => self.both(Side::swap),
            What::End => self.end(place),
            What::Pass => {
                // Which of several ends first is not said, and one that went by a flush counts as one.
                let most = if self.is_strict { usize::MAX } else { 3 };
                self.both(|side| {
                    side.now = side.now.after_ms(5);
                    side.tell(Event::Tick);
                    side.tell(Event::Lapse { steps: most });
                });
            }
            What::Work if self.is_strict => self.both(Side::settle),
            What::Work => self.both(|side| side.tell(Event::Work { steps: 2 })),
            What::GoOn => {
                let most = 1 + self.random.below(3);
                self.both(|side| side.go_on(most));
            }
        }
        self.compare(&format!("{what:?} of {client:?} at {at:?}"));
    }

    fn end(&mut self, place: usize) {
        let client = ClientId(self.clients[place]);
        self.clients[place] += CLIENTS as u64;
        self.both(|side| {
            side.tell(Event::Ended { client });
            // It hears nothing any more.
            side.said.retain(|(to, _), _| *to != client);
            side.watched.retain(|(who, _), _| *who != client);
        });
    }

    fn ask(&mut self, client: ClientId, at: Spot, label: &[u8]) {
        let (mode, form) = self.random.pick(&[
            (Mode::Temporary, Form::Settp),
            (Mode::Exclusive, Form::Lock),
            (Mode::Shared, Form::Lock),
        ]);
        let label = if mode.is_lock() { label } else { b"" };
        let (waits, leased) = (self.random.per_mille(400), self.random.per_mille(200));
        self.both(|side| {
            // As the shell: what is over at the key ends first.
            side.tell(Event::LapseOf { keys: &[key(at)] });
            let (key, state) = (key(at), side.key_state(at));
            side.tell(Event::Acquire(Acquire {
                client,
                seen: &[KeySnapshot { key, state }],
                terms: Terms {
                    attributes: Attributes {
                        notify: true,
                        ..Attributes::default()
                    },
                    label,
                    lease_ms: (leased && mode.is_lock()).then_some(12),
                    ..Terms::of(mode)
                },
                value: b"",
                wait: waits.then_some(Wait {
                    limit_ms: Some(1000),
                    push: true,
                }),
                form,
                in_command: true,
            }));
        });
    }

    fn compare(&mut self, what: &str) {
        let [at_once, in_slices] = &mut self.sides;
        let replies = [at_once, in_slices].map(|side| std::mem::take(&mut side.replies));
        if self.is_strict {
            assert_eq!(replies[0], replies[1], "{what}");
            assert_eq!(self.sides[0].state(), self.sides[1].state(), "{what}");
        }
    }

    /// Everybody goes, and nothing is left but what strangers have made.
    fn close(&mut self) {
        self.both(Side::settle);
        for side in &self.sides {
            for ((_, at), is_there) in &side.watched {
                assert_eq!(side.things.contains_key(at), *is_there, "{at:?}");
            }
        }
        if self.is_strict {
            // Of two holds of one name that went by flushes of two databases, which were exchanged in between, either is told first.
            for side in &mut self.sides {
                side.said.values_mut().for_each(|said| said.sort());
            }
            assert_eq!(self.sides[0].said, self.sides[1].said);
            // What went by a flush before its owner ended was lost by that, whenever it is looked after.
            let totals = |side: &Side| side.engine.totals();
            assert_eq!(totals(&self.sides[0]), totals(&self.sides[1]));
            assert_eq!(self.sides[0].engine.gauges(), self.sides[1].engine.gauges());
        }
        for client in self.clients {
            let client = ClientId(client);
            self.both(|side| side.tell(Event::Ended { client }));
        }
        self.both(Side::settle);
        for side in &self.sides {
            assert!(side.engine.is_idle());
        }
    }
}

/// Somebody writes a string there.
fn set(side: &mut Side, at: Spot) {
    let former = side.things.insert(at, false);
    if !side.engine.knows(key(at)) {
        return;
    }
    let key = key(at);
    match former {
        None => made(side, key),
        Some(true) => side.tell(Event::Found {
            seen: KeySnapshot {
                key,
                state: KeyState::Other,
            },
            gone: Loss::Deleted,
        }),
        Some(false) => {}
    }
}

/// A server says this of a key that takes another's place, too.
fn made(side: &mut Side, key: Key<'_>) {
    if side.engine.knows(key) {
        let by = Cause::Server;
        side.tell(match side.engine.holders(key).is_empty() {
            true => Event::Replaced { key, by },
            false => Event::Made { key },
        });
    }
}

fn rename(side: &mut Side, client: ClientId, from: Spot, to: Spot) {
    if from == to {
        return;
    }
    let Some(thing) = side.things.remove(&from) else {
        return;
    };
    side.things.insert(to, thing);
    made(side, key(to));
    let (known, by) = (side.engine.knows(key(from)), Cause::Client(client));
    if known {
        side.tell(Event::MovedFrom { key: key(from) });
    }
    if side.engine.knows(key(to)) || side.engine.has_key_in_transit() {
        side.tell(Event::MovedTo { key: key(to), by });
    }
}

#[test]
fn a_flush_in_slices_comes_to_the_same_as_one_at_once() {
    const STEPS: usize = 200;
    let worlds = steps(100_000).div_ceil(STEPS) as u64;
    let first = seed();
    let mut kinds = BTreeSet::new();
    for seed in first..first + worlds {
        let tried = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            (0..STEPS).for_each(|_| world.step());
            world.close();
            let [_, in_slices] = world.sides;
            let said = in_slices.said.into_values().flatten();
            said.collect::<BTreeSet<_>>()
        });
        match tried {
            Ok(said) => kinds.extend(said),
            Err(panic) => {
                println!("TETHER_SEED={seed} fails");
                std::panic::resume_unwind(panic);
            }
        }
    }
    // Worlds in which nothing happens prove nothing.
    assert!(kinds.len() >= 10, "{kinds:?}");
}
