//! What the core does with watches, in the orders of events that a real server seldom gives.

use super::tests::World;
use super::*;
use KeyChange::{Added, Deleted, Exists, Missing};
use std::collections::BTreeSet;

impl World {
    fn watch(&mut self, keys: &[&str]) -> Id {
        let keys = keys.iter().map(|key| key.as_bytes().to_vec()).collect();
        self.core.watch(self.now, keys)
    }

    /// EXIST or NOEXIST.
    fn answer(&mut self, state: &str) {
        self.reply(Reply::Text(state.into()));
    }

    fn change(&mut self, key: &str, change: &str) {
        self.push_about(Subject::Watch, key, change);
    }

    /// Of the changes that this watch has to tell; a failure if it is over.
    fn news(&mut self, id: Id) -> Vec<(String, KeyChange)> {
        let events = std::iter::from_fn(|| self.core.next_event(id));
        let news = events.map(|event| {
            let WatchEvent { key, change } = event.unwrap();
            (String::from_utf8(key).unwrap(), change)
        });
        news.collect()
    }

    fn changes_of(&mut self, id: Id) -> Vec<KeyChange> {
        self.news(id)
            .into_iter()
            .map(|(_, change)| change)
            .collect()
    }
}

fn of(key: &str, change: KeyChange) -> (String, KeyChange) {
    (key.to_owned(), change)
}

#[test]
fn a_watch_tells_the_state_of_each_key_and_then_changes() {
    let mut world = World::new(false);
    let id = world.watch(&["a", "b"]);
    assert_eq!(world.said(), ["WATCHEX a", "WATCHEX b"]);
    world.answer("EXIST");
    world.answer("NOEXIST");
    assert_eq!(world.news(id), [of("a", Exists), of("b", Missing)]);
    assert_eq!(world.core.woken(), BTreeSet::from([id]));
    world.change("b", "ADD");
    world.change("a", "DEL");
    world.change("unknown", "DEL");
    assert_eq!(world.news(id), [of("b", Added), of("a", Deleted)]);
    world.core.unwatch(id);
    assert_eq!(world.said(), ["UNWATCHEX a", "UNWATCHEX b"]);
    assert_eq!(world.core.next_event(id), None);
}

#[test]
fn a_change_may_be_heard_of_before_the_state_that_it_changes() {
    for (changes, state, heard) in [
        (vec!["DEL"], "EXIST", vec![Exists, Deleted]),
        (vec!["ADD", "DEL"], "NOEXIST", vec![Missing, Added, Deleted]),
    ] {
        let mut world = World::new(false);
        let id = world.watch(&["k"]);
        world.said();
        for change in changes {
            world.change("k", change);
        }
        world.answer(state);
        assert_eq!(world.changes_of(id), heard);
    }
}

#[test]
fn two_watches_of_a_key_share_the_servers_and_the_last_to_go_ends_it() {
    let mut world = World::new(false);
    let first = world.watch(&["k", "k"]);
    let early = world.watch(&["k"]);
    assert_eq!(world.said(), ["WATCHEX k"]);
    world.answer("NOEXIST");
    world.change("k", "ADD");
    let late = world.watch(&["k"]);
    assert!(world.said().is_empty());
    assert_eq!(world.changes_of(first), [Missing, Added]);
    assert_eq!(world.changes_of(early), [Missing, Added]);
    assert_eq!(world.changes_of(late), [Exists]);
    world.core.unwatch(first);
    world.core.unwatch(early);
    assert!(world.said().is_empty());
    world.change("k", "DEL");
    assert_eq!(world.changes_of(late), [Deleted]);
    world.core.unwatch(late);
    assert_eq!(world.said(), ["UNWATCHEX k"]);
}

#[test]
fn who_watches_again_waits_until_the_former_watch_has_ended() {
    let mut world = World::new(false);
    let first = world.watch(&["k"]);
    world.answer("EXIST");
    world.core.unwatch(first);
    world.said();
    let second = world.watch(&["k"]);
    assert!(world.said().is_empty());
    // Of the former watch.
    world.change("k", "DEL");
    world.reply(Reply::Number(1));
    assert_eq!(world.said(), ["WATCHEX k"]);
    assert_eq!(world.changes_of(second), []);
    world.answer("NOEXIST");
    assert_eq!(world.changes_of(second), [Missing]);
    // Gone before the answer, the server's watch ends with it.
    let other = world.watch(&["l"]);
    world.said();
    world.core.unwatch(other);
    assert!(world.said().is_empty());
    world.answer("EXIST");
    assert_eq!(world.said(), ["UNWATCHEX l"]);
    world.reply(Reply::Number(1));
    let other = world.watch(&["l"]);
    assert_eq!(world.said(), ["WATCHEX l"]);
    world.answer("EXIST");
    assert_eq!(world.changes_of(other), [Exists]);
}

#[test]
fn a_key_that_may_not_be_watched_ends_the_watches_of_it() {
    let mut world = World::new(false);
    let both = world.watch(&["a", "b"]);
    let one = world.watch(&["a"]);
    world.answer("EXIST");
    let error = "NOPERM no permissions to access a key";
    world.reply(Reply::Error(error.into()));
    let refused = Error::Refused(error.into());
    let state = WatchEvent {
        key: b"a".to_vec(),
        change: Exists,
    };
    assert_eq!(world.core.next_event(both), Some(Ok(state)));
    for _ in 0..2 {
        assert_eq!(world.core.next_event(both), Some(Err(refused.clone())));
    }
    world.change("a", "DEL");
    assert_eq!(world.changes_of(one), [Exists, Deleted]);
    world.core.unwatch(both);
    world.core.unwatch(one);
    assert_eq!(world.said(), ["UNWATCHEX a"]);
    let none = world.watch(&[]);
    assert!(matches!(
        world.core.next_event(none),
        Some(Err(Error::Refused(_)))
    ));
}

#[test]
fn a_watch_ends_with_the_connection_after_what_it_had_to_tell() {
    let mut world = World::new(false);
    let id = world.watch(&["k"]);
    world.answer("EXIST");
    world.core.woken();
    world.hang_up();
    assert_eq!(world.core.woken(), BTreeSet::from([id]));
    assert!(matches!(world.core.next_event(id), Some(Ok(_))));
    let over = Some(Err(Error::Unreachable("the connection broke".into())));
    assert_eq!(world.core.next_event(id), over);
    let next = world.watch(&["k"]);
    assert_eq!(world.core.next_event(next), over);
    assert!(world.said().is_empty());
    world.core.unwatch(id);
}

#[test]
fn in_a_session_everything_is_watched_anew_and_the_states_are_told_again() {
    let mut world = World::new(true);
    let id = world.watch(&["k"]);
    let gone = world.watch(&["l"]);
    world.answer("EXIST");
    world.answer("EXIST");
    world.core.unwatch(gone);
    world.hang_up();
    let meanwhile = world.watch(&["k", "m"]);
    assert!(world.said().is_empty());
    assert_eq!(world.changes_of(id), [Exists]);
    world.later(100);
    world.core.resumed(world.now, world.now);
    let said: BTreeSet<_> = world.said().into_iter().collect();
    let anew = ["WATCHEX k", "WATCHEX m"].map(str::to_owned);
    assert_eq!(said, BTreeSet::from(anew));
    world.answer("NOEXIST");
    world.answer("NOEXIST");
    assert_eq!(world.changes_of(id), [Missing]);
    // It was told what was known when it began, too.
    let told: Vec<_> = world.news(meanwhile);
    assert_eq!(told.len(), 3);
    assert_eq!(told[0], of("k", Exists));
}
