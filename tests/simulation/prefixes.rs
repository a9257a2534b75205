//! Watches of prefixes where there is very much: indexes that are built in slices, flushes that are told in slices, limits.

use std::collections::{BTreeMap, BTreeSet};
use tether::engine::{
    Acquire, Cause, ClientId, Db, Effect, Engine, Event, Form, Key, KeySnapshot, KeyState, Limits,
    Mode, Moment, News, Over, PresenceChange, Push, Refusal, Reply, SnapshotPage, Terms, Token,
    WatchPrefix,
};

const WATCHER: ClientId = ClientId(1);
const OWNER: ClientId = ClientId(2);

struct World {
    engine: Engine,
    /// What the watcher is told: names and changes.
    told: Vec<(Vec<u8>, PresenceChange)>,
    sight: u64,
    at_most: usize,
}

impl Default for World {
    fn default() -> Self {
        World {
            engine: Engine::default(),
            told: Vec::new(),
            sight: 7,
            at_most: usize::MAX,
        }
    }
}

impl World {
    fn handle(&mut self, event: Event<'_>) -> Option<Reply> {
        let mut effects = Vec::new();
        self.engine.handle(Moment(1), event, &mut effects);
        let mut answer = None;
        for effect in effects {
            match effect {
                Effect::Reply(reply) => answer = Some(reply),
                Effect::Presence(presence) => {
                    assert!(presence.to.iter().all(|viewer| viewer.client == WATCHER));
                    self.told
                        .push((presence.key.name.to_vec(), presence.change));
                }
                Effect::Push { push, .. } => {
                    if let News::Presence(news) = push.news() {
                        self.told.push((push.key.name.to_vec(), news.0));
                    }
                }
                _ => {}
            }
        }
        answer
    }

    fn settp(&mut self, name: &str) -> Token {
        let seen = [KeySnapshot {
            key: key(name),
            state: KeyState::Absent,
        }];
        let reply = self.handle(Event::Acquire(Acquire {
            client: OWNER,
            seen: &seen,
            terms: Terms::of(Mode::Temporary),
            value: b"v",
            wait: None,
            form: Form::SettpToken,
            in_command: true,
        }));
        match reply {
            Some(Reply::Integer(token)) if token > 0 => Token(token as u64),
            other => panic!("{name} gets {other:?}"),
        }
    }

    fn deltp(&mut self, name: &str) {
        let keys = &[key(name)];
        let client = OWNER;
        let reply = self.handle(Event::Drop { client, keys });
        assert_eq!(reply, Some(Reply::Integer(1)));
    }

    fn watch(&mut self, prefix: &str, goes_on: bool) -> Result<SnapshotPage, Refusal> {
        let reply = self.handle(Event::WatchPrefix(WatchPrefix {
            client: WATCHER,
            prefix: key(prefix),
            goes_on,
            keys_only: false,
            sight: self.sight,
            at_most: self.at_most,
        }));
        match reply {
            Some(Reply::Page(page)) => Ok(*page),
            Some(Reply::Refused(refusal)) => Err(refusal),
            other => panic!("{other:?}"),
        }
    }

    /// The watcher watches so many prefixes, of four digits each.
    fn watch_all(&mut self, prefixes: usize) {
        for number in 0..prefixes {
            self.watch(&format!("{number:04}"), false).expect("room");
        }
    }

    /// What the watcher may see is not what it was.
    fn lose_sight(&mut self) {
        let clients = &[WATCHER];
        self.handle(Event::SightLost { clients });
    }

    /// What the rest of the pages have, too.
    fn snapshot(&mut self, prefix: &str) -> BTreeMap<Vec<u8>, Token> {
        let mut all = BTreeMap::new();
        let mut page = self.watch(prefix, false).expect("an index");
        loop {
            let entries = page.entries.iter();
            all.extend(entries.map(|(name, token)| (name.to_vec(), *token)));
            if page.is_last {
                return all;
            }
            page = self.watch(prefix, true).expect("a watch");
        }
    }
}

fn key(name: &str) -> Key<'_> {
    let (db, name) = (Db(0), name.as_bytes());
    Key { db, name }
}

fn limits(steps: usize) -> Limits {
    Limits {
        steps_per_event: steps,
        keys_per_page: 10,
        keys_per_client: u32::MAX,
        watches_per_client: 10_000,
        ..Limits::DEFAULT
    }
}

/// Whatever comes and goes meanwhile.
#[test]
fn an_index_is_built_in_slices() {
    const KEYS: usize = 3_000;
    let mut world = World::default();
    world.engine.set_limits(limits(64));
    let mut there = BTreeMap::new();
    for number in 0..KEYS {
        let name = format!("k{:05}", number * 7919 % KEYS);
        let token = world.settp(&name);
        there.insert(name.into_bytes(), token);
    }
    assert_eq!(world.watch("k", false), Err(Refusal::IndexIncomplete));
    let mut slices = 0;
    while world.engine.is_building_index() {
        slices += 1;
        world.handle(Event::Reap { steps: 50 });
        let (goes, comes) = (format!("k{slices:05}"), format!("new{slices}"));
        world.deltp(&goes);
        there.remove(goes.as_bytes());
        let token = world.settp(&comes);
        there.insert(comes.into_bytes(), token);
        world.engine.check_invariants();
    }
    assert!(
        (KEYS / 50 - 10..KEYS / 50 + 10).contains(&slices),
        "{slices}"
    );
    let mut shown = world.snapshot("k");
    shown.extend(world.snapshot("n"));
    assert_eq!(shown, there);
    assert_eq!(world.told, []);
}

/// Each prefix is told of it once, before it is told of anything else.
#[test]
fn a_flush_is_told_in_slices_and_before_what_follows() {
    const PREFIXES: usize = 2_000;
    let mut world = World::default();
    world.engine.set_limits(limits(100));
    world.watch_all(PREFIXES);
    world.settp("0007x");
    world.told.clear();
    let (db, by) = (None, Cause::Server);
    world.handle(Event::Flushed { db, by });
    assert!(world.told.len() <= 100 && world.engine.is_flushing());
    world.settp("1999x");
    let place = |told: &[(Vec<u8>, PresenceChange)], name: &str| {
        told.iter().position(|(of, _)| of == name.as_bytes())
    };
    let (flushed, added) = (place(&world.told, "1999"), place(&world.told, "1999x"));
    assert!(
        flushed.is_some() && flushed < added,
        "{flushed:?} {added:?}"
    );
    // A second one, in the middle of the first: once more for those who know of that already.
    world.handle(Event::Flushed { db, by });
    while world.engine.is_flushing() {
        let before = world.told.len();
        world.handle(Event::Reap { steps: 50 });
        assert!(world.told.len() - before <= 50);
    }
    let flushed = world
        .told
        .iter()
        .filter(|(_, told)| *told == PresenceChange::Flushed);
    let mut times = BTreeMap::<_, u32>::new();
    flushed.for_each(|(prefix, _)| *times.entry(prefix.clone()).or_default() += 1);
    assert_eq!(times.len(), PREFIXES);
    assert!(times.values().all(|times| (1..=2).contains(times)));
    world.engine.check_invariants();
}

#[test]
fn after_an_exchange_of_databases_no_prefix_is_watched_and_indexes_go_along() {
    const PREFIXES: usize = 500;
    let mut world = World::default();
    world.engine.set_limits(limits(100));
    world.settp("0001x");
    world.watch_all(PREFIXES);
    let (one, other) = (Db(0), Db(5));
    world.handle(Event::Swapped { one, other });
    while world.engine.is_flushing() {
        world.handle(Event::Reap { steps: 50 });
    }
    let over: BTreeSet<_> = world
        .told
        .iter()
        .map(|(prefix, _)| prefix.clone())
        .collect();
    assert_eq!((over.len(), world.told.len()), (PREFIXES, PREFIXES));
    assert_eq!(world.engine.gauges().watches, 0);
    assert!(world.snapshot("0001").is_empty());
    world.handle(Event::Swapped { one, other });
    assert_eq!(world.snapshot("0001").len(), 1);
    world.engine.check_invariants();
}

/// A push may have waited while its connection ended watches, or began them anew.
#[test]
fn a_push_that_has_waited_is_wanted_by_who_still_watches() {
    let mut world = World::default();
    world.watch("k", false).expect("an index");
    let wants = |world: &World, name: &str, change: PresenceChange| {
        let push = Push::new(key(name).to_owned(), News::of_presence(change, None), b"");
        world.engine.wants(WATCHER, &push)
    };
    let changes = [
        ("k1", PresenceChange::Added(Token(1))),
        ("other", PresenceChange::Added(Token(1))),
        ("k", PresenceChange::Flushed),
        ("k", PresenceChange::Over(Over::Moved)),
    ];
    let all = |world: &World| changes.map(|(name, change)| wants(world, name, change));
    assert_eq!(all(&world), [true, false, true, false]);
    let (client, prefix) = (WATCHER, None);
    world.handle(Event::UnwatchPrefix { client, prefix });
    assert_eq!(all(&world), [false, false, false, true]);
    let push = Push::new(key("k1").to_owned(), News::Added, b"");
    assert!(world.engine.wants(WATCHER, &push), "of another watch");
    // A flush is told of each prefix that is watched, not of others that begin as one of them does.
    world.watch("k", false).expect("an index");
    assert!(!wants(&world, "k1", PresenceChange::Flushed));
}

/// Its master says who holds a key: only what changes is told.
#[test]
fn a_replicas_watchers_are_told_when_a_key_passes_on() {
    let mut world = World::default();
    world.handle(Event::Demoted { redirect: false });
    world.watch("k", false).expect("an index");
    for token in [5, 5, 9].map(Token) {
        world.handle(Event::Inherited {
            key: key("k"),
            mode: Mode::Temporary,
            token: Some(token),
        });
    }
    let told = [
        PresenceChange::Added(Token(5)),
        PresenceChange::Set(Token(9)),
    ];
    assert_eq!(world.told, told.map(|change| (b"k".to_vec(), change)));
}

/// A write to a key is told once to each connection of which a watch has values.
#[test]
fn a_write_is_told_to_who_watches_the_value() {
    let watch = |engine: &mut Engine, watcher: u64, prefix: &str, keys_only: bool| {
        let ask = Event::WatchPrefix(WatchPrefix {
            client: ClientId(watcher),
            prefix: key(prefix),
            goes_on: false,
            keys_only,
            sight: 7,
            at_most: usize::MAX,
        });
        engine.handle(Moment(1), ask, &mut Vec::new());
    };
    let mut world = World::default();
    let token = world.settp("k1");
    let mut engine = world.engine;
    for (watcher, prefix, keys_only) in [
        (11, "k", true),
        (11, "k1", false),
        (12, "k", true),
        (12, "k1", true),
        (13, "k", false),
        (13, "k1", true),
        (14, "other", false),
    ] {
        watch(&mut engine, watcher, prefix, keys_only);
    }
    let mut written = |name: &str| {
        let mut effects = Vec::new();
        let key = key(name);
        assert_eq!(engine.is_value_watched(key), name == "k1");
        engine.handle(Moment(1), Event::Changed { key }, &mut effects);
        effects
    };
    for nobodys in ["k2", "other"] {
        assert_eq!(written(nobodys), []);
    }
    let [Effect::Presence(presence)] = &written("k1")[..] else {
        panic!("one change is told");
    };
    assert_eq!(presence.change, PresenceChange::Set(token));
    let viewers = presence.to.iter();
    let mut viewers: Vec<_> = viewers
        .map(|viewer| (viewer.client.0, viewer.keys_only))
        .collect();
    viewers.sort_unstable();
    assert_eq!(viewers, [(11, false), (13, false)]);
    // With its next page it watches the value no longer.
    watch(&mut engine, 11, "k1", true);
    watch(&mut engine, 13, "k", true);
    let key = key("k1");
    let mut effects = Vec::new();
    engine.handle(Moment(1), Event::Changed { key }, &mut effects);
    assert_eq!(effects, []);
}

/// Nothing is left to visit for it: it is empty, and built.
#[test]
fn a_flush_ends_the_building_of_an_index_of_its_database_only() {
    for (flushed, is_built) in [(Db(0), true), (Db(1), false)] {
        let mut world = World::default();
        world.engine.set_limits(limits(16));
        for number in 0..2_000 {
            world.settp(&format!("k{number}"));
        }
        assert_eq!(world.watch("k", false), Err(Refusal::IndexIncomplete));
        let (db, by) = (Some(flushed), Cause::Server);
        world.handle(Event::Flushed { db, by });
        assert_eq!(world.engine.is_building_index(), !is_built);
        world.engine.check_invariants();
        if is_built {
            assert!(
                world
                    .watch("k", false)
                    .expect("an index")
                    .entries
                    .is_empty()
            );
        }
    }
}

/// The shell returns fewer keys than the engine gave it: of the others the watcher is told when it has their page.
#[test]
fn who_was_given_a_part_of_a_page_is_told_of_the_keys_on_it() {
    let mut world = World::default();
    for name in ["k1", "k2", "k3"] {
        world.settp(name);
    }
    assert!(world.watch("k", false).expect("an index").is_last);
    let (client, prefix, last) = (WATCHER, key("k"), b"k2".as_slice());
    world.handle(Event::PageCut {
        client,
        prefix,
        last,
    });
    for name in ["k1", "k3"] {
        world.deltp(name);
    }
    for name in ["k1", "k3", "k4"] {
        world.settp(name);
    }
    let told: Vec<_> = world
        .told
        .iter()
        .map(|(name, _)| name.escape_ascii().to_string())
        .collect();
    assert_eq!(told, ["k1", "k1"]);
    let page = world.watch("k", true).expect("it is watched");
    let names: Vec<_> = page
        .entries
        .iter()
        .map(|(name, _)| name.escape_ascii().to_string())
        .collect();
    assert_eq!(names, ["k3", "k4"]);
}

/// Up to which name it was told counts, too: those can be long.
#[test]
fn the_names_of_pages_count_towards_the_limit_of_bytes() {
    let mut world = World::default();
    world.engine.set_limits(Limits {
        watch_bytes_per_client: 1000,
        ..limits(100)
    });
    for number in 0..30 {
        world.settp(&format!("a{}{number:02}", "x".repeat(600)));
    }
    assert!(!world.watch("a", false).expect("room").is_last);
    let refused = world.watch("ax", false);
    assert!(
        matches!(refused, Err(Refusal::TooManyWatchBytes { .. })),
        "{refused:?}"
    );
    world.engine.set_limits(Limits {
        watch_bytes_per_client: 500,
        ..limits(100)
    });
    while !world.watch("a", true).expect("no more than before").is_last {}
    world.engine.set_limits(Limits {
        watch_bytes_per_client: 1000,
        ..limits(100)
    });
    assert!(!world.watch("ax", false).expect("room").is_last);
    let (client, prefix) = (WATCHER, None);
    world.handle(Event::UnwatchPrefix { client, prefix });
    assert_eq!(world.engine.gauges().watches, 0);
    world.engine.check_invariants();
}

/// A longer name takes the shorter one's place, so that only the difference counts.
#[test]
fn a_watch_that_goes_on_has_one_name_at_a_time() {
    for (limit, fits) in [(7, true), (6, false)] {
        let mut world = World::default();
        world.engine.set_limits(Limits {
            keys_per_page: 1,
            watch_bytes_per_client: limit,
            ..limits(100)
        });
        for name in ["a1", "a22222", "a3"] {
            world.settp(name);
        }
        assert!(!world.watch("a", false).expect("room").is_last);
        let next = world.watch("a", true);
        assert_eq!(next.is_ok(), fits, "{next:?}");
    }
}

#[test]
fn who_sees_otherwise_watches_no_longer() {
    let mut world = World::default();
    for prefix in ["a", "ab", "b"] {
        world.watch(prefix, false).expect("room");
    }
    world.lose_sight();
    assert_eq!(world.told.len(), 3);
    world.settp("abc");
    assert_eq!((world.told.len(), world.engine.gauges().watches), (3, 0));
    world.watch("a", false).expect("room");
    world.watch("b", false).expect("room");
    let reply = world.handle(Event::WatchPrefix(WatchPrefix {
        client: WATCHER,
        prefix: key("b"),
        goes_on: true,
        keys_only: false,
        sight: 8,
        at_most: usize::MAX,
    }));
    assert_eq!(reply, Some(Reply::Refused(Refusal::NotWatched)));
    assert_eq!((world.told.len(), world.engine.gauges().watches), (5, 0));
}

/// Very many watches that are over are told of in slices. Until then their connection is told of nothing else.
#[test]
fn who_sees_otherwise_is_told_in_slices_and_of_no_key_meanwhile() {
    const PREFIXES: usize = 2_000;
    let mut world = World::default();
    world.engine.set_limits(limits(100));
    world.watch_all(PREFIXES);
    world.lose_sight();
    assert_eq!(world.told.len(), 100);
    assert!(world.engine.is_any_blind());
    world.settp("1999x");
    world.settp("0001x");
    assert_eq!(
        world.told.len(),
        100,
        "it hears of a key that it may not see"
    );
    // Once more, as a shell may: nothing is told twice.
    world.lose_sight();
    assert_eq!(world.told.len(), 200);
    world.engine.check_invariants();
    // What is given up meanwhile ends without a word.
    let (client, prefix) = (WATCHER, Some(key("1998")));
    let reply = world.handle(Event::UnwatchPrefix { client, prefix });
    assert_eq!(reply, Some(Reply::Integer(1)));
    while world.engine.is_any_blind() {
        let before = world.told.len();
        world.handle(Event::Reap { steps: 50 });
        assert!(world.told.len() - before <= 50);
    }
    let over = PresenceChange::Over(Over::NoPermission);
    assert!(world.told.iter().all(|(_, told)| *told == over));
    let told: BTreeSet<_> = world.told.iter().map(|(prefix, _)| prefix).collect();
    assert_eq!((told.len(), world.told.len()), (PREFIXES - 1, PREFIXES - 1));
    assert_eq!(world.engine.gauges().watches, 0);
    world.engine.check_invariants();
}

/// It is told first of all that is over, and sees again.
#[test]
fn who_watches_anew_while_it_is_told_of_ends_hears_the_rest_before() {
    const PREFIXES: usize = 300;
    let mut world = World::default();
    world.engine.set_limits(limits(100));
    world.watch_all(PREFIXES);
    world.lose_sight();
    world.sight = 8;
    world.watch("0299", false).expect("room");
    // Of what it watches again, it is told no end.
    assert_eq!(world.told.len(), PREFIXES - 1);
    assert_eq!(world.engine.gauges().watches, 1);
    world.settp("0299x");
    assert_eq!(world.told.len(), PREFIXES);
    world.handle(Event::Reap { steps: 50 });
    assert!(!world.engine.is_any_blind());
    assert_eq!(world.engine.gauges().watches, 1);
    world.engine.check_invariants();
}

/// A connection that ends, or gives its watches up, while it is to be told of them.
#[test]
fn who_is_gone_is_told_of_no_end() {
    for ends in [true, false] {
        let mut world = World::default();
        world.engine.set_limits(limits(100));
        world.watch_all(300);
        world.lose_sight();
        let (client, prefix) = (WATCHER, None);
        if ends {
            world.handle(Event::Ended { client });
        } else {
            let reply = world.handle(Event::UnwatchPrefix { client, prefix });
            assert_eq!(reply, Some(Reply::Integer(200)));
        }
        while world.engine.is_any_blind() || world.engine.has_dead_waits() {
            world.handle(Event::Reap { steps: 50 });
        }
        assert_eq!(world.told.len(), 100);
        assert_eq!(world.engine.gauges().watches, 0);
        world.engine.check_invariants();
    }
}

#[test]
fn a_connection_watches_so_many_prefixes_at_most() {
    let mut world = World::default();
    world.engine.set_limits(Limits {
        prefixes_per_client: 3,
        ..limits(100)
    });
    for prefix in ["a", "b", "c", "a"] {
        world.watch(prefix, false).expect("room");
    }
    let refused = Err(Refusal::TooManyPrefixes { limit: 3 });
    assert_eq!(world.watch("d", false), refused);
    assert!(world.watch("c", true).expect("a watch").is_last);
    let (client, prefix) = (WATCHER, Some(key("b")));
    world.handle(Event::UnwatchPrefix { client, prefix });
    world.watch("d", false).expect("room");
    assert_eq!(world.engine.gauges().watches, 3);
}

/// A page can have fewer keys than others. What it lacks comes with the next, and is told of from then on.
#[test]
fn a_page_has_no_more_keys_than_it_may() {
    let mut world = World::default();
    world.engine.set_limits(limits(100));
    for number in 0..8 {
        world.settp(&format!("k{number}"));
    }
    for (at_most, keys) in [(3, 3), (0, 1), (2, 2)] {
        world.at_most = at_most;
        let page = world.watch("k", false).expect("an index");
        assert_eq!((page.entries.len(), page.is_last), (keys, false));
    }
    world.deltp("k1");
    world.deltp("k2");
    assert_eq!(world.told.len(), 1);
    world.at_most = 4;
    let page = world.watch("k", true).expect("a watch");
    assert_eq!(&*page.entries[0].0, b"k3");
    assert_eq!((page.entries.len(), page.is_last), (4, false));
    let page = world.watch("k", true).expect("a watch");
    assert_eq!((page.entries.len(), page.is_last), (1, true));
}
