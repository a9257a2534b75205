//! Databases that exchange very many keys which are watched or waited for: who watches and who waits hears of each of them, if
//! not of all at once.

use crate::harness::*;
use std::collections::{BTreeMap, BTreeSet};

/// More than are looked at in the step itself.
const MANY: usize = 5000;

/// A command for all keys.
fn all(command: &str) -> Vec<String> {
    let names = (0..MANY).map(|number| number.to_string());
    [command.to_owned()].into_iter().chain(names).collect()
}

fn make(client: &mut Client, is_there: impl Fn(usize) -> bool) {
    let there = (0..MANY).filter(|number| is_there(*number));
    client.run_many(there.map(|number| format!("SET {number} v")));
}

/// Database 0 has the even ones, database 5 every third; a connection watches all of database 0.
fn watched() -> (Server, Client, Client) {
    let server = Server::start();
    let (mut other, mut watcher) = (server.resp2(), server.resp3());
    make(&mut other, |number| number.is_multiple_of(2));
    other.run("SELECT 5");
    make(&mut other, |number| number.is_multiple_of(3));
    other.run("SELECT 0");
    watcher.run(all("WATCHEX"));
    (server, other, watcher)
}

/// What was told of each key, in its order.
fn by_key(pushes: &[String]) -> BTreeMap<usize, Vec<&str>> {
    let mut by_key: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for push in pushes {
        let words: Vec<_> = push.split(' ').collect();
        let number = words[1].parse().expect("one of the keys");
        by_key.entry(number).or_default().push(words[2]);
    }
    by_key
}

#[test]
fn a_watcher_hears_of_each_key_that_came_or_went() {
    let (server, mut other, mut watcher) = watched();
    // Nobody has looked at these when it happens.
    let (removed, made, replaced) = (MANY - 5, MANY - 4, MANY - 2);
    let removes = format!("DEL {removed}");
    let makes = format!("SET {made} v");
    let replaces = [format!("SET {MANY} v"), format!("RENAME {MANY} {replaced}")];
    other.run_all(&[
        "MULTI",
        "SWAPDB 0 5",
        &removes,
        &makes,
        &replaces[0],
        &replaces[1],
        "EXEC",
    ]);
    let mut expected = BTreeMap::new();
    for number in 0..MANY {
        let told = match (number.is_multiple_of(2), number.is_multiple_of(3)) {
            // The server does not say whether what is made takes another's place.
            (true, false) if number == made => continue,
            (false, true) if number == removed => vec!["ADD", "DEL"],
            (true, false) => vec!["DEL"],
            (false, true) => vec!["ADD"],
            _ => continue,
        };
        expected.insert(number, told);
    }
    assert_eq!(expected[&removed].len(), 2);
    assert!(!expected.contains_key(&made) && !expected.contains_key(&replaced));
    let count = expected.values().map(Vec::len).sum();
    let pushes = watcher.next_pushes(count);
    let told = by_key(&pushes);
    for (number, expected) in &expected {
        assert_eq!(told.get(number), Some(expected), "{number}");
    }
    assert_eq!(server.settled(&mut watcher), [""; 0]);
}

#[test]
fn what_went_there_and_back_is_as_it_was() {
    let (server, mut other, mut watcher) = watched();
    other.run_all(&["MULTI", "SWAPDB 0 5", "SWAPDB 5 0", "EXEC"]);
    // Here each key is looked at before its command.
    let there = (0..MANY).filter(|number| number.is_multiple_of(2));
    let states = watcher.run(all("WATCHEX"));
    let is_there = |state: &&Frame| state.text() == "EXIST";
    let present = states.items().iter().filter(is_there).count();
    assert_eq!(present, there.count());
    server.settle();
    for (number, told) in by_key(&watcher.pushes()) {
        let expected = match number.is_multiple_of(2) {
            true => ["DEL", "ADD"],
            false => ["ADD", "DEL"],
        };
        assert_eq!(told, expected, "{number}");
    }
}

#[test]
fn who_waits_has_each_key_that_is_free_then() {
    let server = Server::start();
    let (mut holder, mut waiter) = (server.resp2(), server.resp3());
    holder.run_many((0..MANY).map(|number| format!("SETTP {number} first")));
    waiter.run_many((0..MANY).map(|number| format!("SETTP {number} second WAIT 0 PUSH")));
    let mut other = server.resp2();
    other.run("SWAPDB 0 5");
    let granted = waiter.next_pushes(MANY);
    assert!(
        granted.iter().all(|push| push.starts_with("settp ")),
        "{granted:?}"
    );
    for (db, value) in [(0, "second"), (5, "first")] {
        other.run(&format!("SELECT {db}"));
        assert_eq!(other.run("DBSIZE"), int(MANY as i64));
        let values = other.run(all("MGET"));
        assert!(values.items().iter().all(|it| *it == bulk(value)), "{db}");
    }
    holder.run("SELECT 5");
    assert_eq!(holder.run(all("DELTP")), int(MANY as i64));
    assert_eq!(waiter.run(all("DELTP")), int(MANY as i64));
}

#[test]
fn a_flush_of_very_many_locks_is_settled_by_their_new_names() {
    let server = Server::start();
    let (mut holder, mut twin) = (server.resp3(), server.resp2());
    let (mut watcher, mut other) = (server.resp3(), server.resp2());
    holder.run_many((0..MANY).map(|number| format!("LOCK.ACQUIRE {number} NOTIFY")));
    watcher.run(["WATCHEX", "7"]);
    twin.run("SELECT 5");
    twin.run("LOCK.ACQUIRE 8");
    other.send_bytes(b"FLUSHDB\r\nSWAPDB 0 5\r\nSELECT 5\r\nLOCK.ACQUIRE 9\r\n");
    { 0..3 }.for_each(|_| assert_eq!(other.read_reply(), ok()));
    assert!(other.read_reply().number() > 0, "nobody holds it any more");
    let lost = holder.next_pushes(MANY);
    let names: BTreeSet<_> = lost.iter().map(String::as_str).collect();
    let expected: Vec<_> = { 0..MANY }
        .map(|number| format!("lock {number} LOST flushed"))
        .collect();
    assert_eq!(names, expected.iter().map(String::as_str).collect());
    assert_eq!(watcher.next_push(), "watchex 7 DEL");
    // What was not flushed has gone with its key.
    other.run("SELECT 0");
    assert_eq!(other.run("LOCK.ACQUIRE 8"), null());
    assert_eq!(other.run("DBSIZE"), int(1));
}
