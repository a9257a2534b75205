//! The queue itself: names, and what is to be looked at of what stands there.

use crate::engine::{Db, Key, KeyBuf};
use std::collections::HashMap;

/// What is not known of a key before it is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Why {
    /// A lock that is held here stood there: it may have been overwritten.
    pub overwritten: bool,
    /// A lock came there that nobody here holds.
    pub restored: bool,
    /// Somebody may have taken the time to live of a temporary key away.
    pub untimed: bool,
}

impl Why {
    pub const OVERWRITTEN: Why = Why {
        overwritten: true,
        restored: false,
        untimed: false,
    };
    pub const RESTORED: Why = Why {
        overwritten: false,
        restored: true,
        untimed: false,
    };
    pub const UNTIMED: Why = Why {
        overwritten: false,
        restored: false,
        untimed: true,
    };

    fn or(self, other: Why) -> Why {
        Why {
            overwritten: self.overwritten || other.overwritten,
            restored: self.restored || other.restored,
            untimed: self.untimed || other.untimed,
        }
    }
}

struct Entry {
    /// Which of all that were ever put here it is.
    number: u64,
    why: Why,
}

/// Keys that are to be looked at, each once, and each where it stands.
///
/// Invariant: no database has an empty map. All but `take_all` is O(1), however many keys wait.
#[derive(Default)]
pub struct Queue {
    keys: HashMap<Db, HashMap<Box<[u8]>, Entry>>,
    /// One of them has left its place, and its new one is about to be told.
    leaving: Option<(KeyBuf, Why)>,
    last: u64,
}

impl Queue {
    pub fn put(&mut self, key: Key<'_>, why: Why) {
        self.last += 1;
        let number = self.last;
        let names = self.keys.entry(key.db).or_default();
        match names.get_mut(key.name) {
            Some(entry) => entry.why = entry.why.or(why),
            None => {
                names.insert(key.name.into(), Entry { number, why });
            }
        }
    }

    /// Whether an event of this key matters here.
    pub fn concerns(&self, key: Key<'_>) -> bool {
        self.leaving.is_some() || self.why(key).is_some()
    }

    pub fn why(&self, key: Key<'_>) -> Option<Why> {
        let entry = self.keys.get(&key.db)?.get(key.name)?;
        Some(entry.why)
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Takes a key out: it has been looked at, or is no more.
    pub fn take(&mut self, key: Key<'_>) -> Option<Why> {
        let names = self.keys.get_mut(&key.db)?;
        let entry = names.remove(key.name)?;
        if names.is_empty() {
            self.keys.remove(&key.db);
        }
        Some(entry.why)
    }

    /// A key leaves its place, and goes by another name from now on.
    pub fn leaves(&mut self, key: Key<'_>) {
        self.leaving = self.take(key).map(|why| (key.to_owned(), why));
    }

    /// The key that has just left its place stands here now, and nothing that stood here before. Says where it came from, if
    /// it may have been overwritten there: that is to be looked at now, and the rest later.
    pub fn arrives(&mut self, key: Key<'_>) -> Option<KeyBuf> {
        self.take(key);
        let (from, why) = self.leaving.take()?;
        let overwritten = false;
        let later = Why { overwritten, ..why };
        if later != Why::default() {
            self.put(key, later);
        }
        why.overwritten.then_some(from)
    }

    pub fn swapped(&mut self, one: Db, other: Db) {
        let (first, second) = (self.keys.remove(&one), self.keys.remove(&other));
        self.keys.extend(first.map(|names| (other, names)));
        self.keys.extend(second.map(|names| (one, names)));
    }

    /// One database, or each, is empty.
    pub fn flushed(&mut self, db: Option<Db>) {
        self.keys.retain(|at, _| db.is_some_and(|db| db != *at));
    }

    /// All of them, in the order in which they came here.
    pub fn take_all(&mut self) -> Vec<(KeyBuf, Why)> {
        let mut all = Vec::new();
        for (db, names) in self.keys.drain() {
            for (name, entry) in names {
                let key = Key { db, name: &name };
                all.push((entry.number, key.to_owned(), entry.why));
            }
        }
        all.sort_unstable_by_key(|(number, ..)| *number);
        all.into_iter().map(|(_, key, why)| (key, why)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(db: u32, name: &str) -> Key<'_> {
        let (db, name) = (Db(db), name.as_bytes());
        Key { db, name }
    }

    fn queue(keys: &[(u32, &str, Why)]) -> Queue {
        let mut queue = Queue::default();
        for (db, name, why) in keys {
            queue.put(key(*db, name), *why);
        }
        queue
    }

    fn all(mut queue: Queue) -> Vec<(u32, String, Why)> {
        let all = queue.take_all();
        assert!(queue.is_empty());
        let name = |key: &KeyBuf| String::from_utf8_lossy(&key.name).into_owned();
        all.iter()
            .map(|(key, why)| (key.db.0, name(key), *why))
            .collect()
    }

    fn at(db: u32, name: &str, why: Why) -> (u32, String, Why) {
        (db, name.to_owned(), why)
    }

    #[test]
    fn keys_come_out_once_each_in_the_order_in_which_they_came() {
        let queue = queue(&[
            (0, "b", Why::RESTORED),
            (1, "a", Why::OVERWRITTEN),
            (0, "a", Why::UNTIMED),
            (0, "b", Why::OVERWRITTEN),
        ]);
        let both = Why::RESTORED.or(Why::OVERWRITTEN);
        assert!(both.restored && both.overwritten && !both.untimed);
        let expected = [
            at(0, "b", both),
            at(1, "a", Why::OVERWRITTEN),
            at(0, "a", Why::UNTIMED),
        ];
        assert_eq!(all(queue), expected);
    }

    #[test]
    fn a_key_is_followed_to_its_new_name_and_database() {
        let mut queue = queue(&[(0, "a", Why::RESTORED)]);
        for (from, to) in [((0, "a"), (0, "b")), ((0, "b"), (5, "b"))] {
            let (from, to) = (key(from.0, from.1), key(to.0, to.1));
            assert!(queue.concerns(from) && !queue.concerns(to));
            queue.leaves(from);
            assert!(queue.concerns(to));
            assert_eq!(queue.arrives(to), None);
            assert!(queue.concerns(to) && !queue.concerns(from));
        }
        assert_eq!(all(queue), [at(5, "b", Why::RESTORED)]);
    }

    #[test]
    fn one_that_may_have_been_overwritten_is_looked_at_where_it_arrives() {
        let mut queue = queue(&[(0, "a", Why::OVERWRITTEN), (0, "a", Why::UNTIMED)]);
        queue.leaves(key(0, "a"));
        assert_eq!(queue.arrives(key(5, "a")), Some(key(0, "a").to_owned()));
        assert_eq!(all(queue), [at(5, "a", Why::UNTIMED)]);
    }

    #[test]
    fn what_a_key_takes_the_place_of_is_forgotten() {
        let mut one = queue(&[(0, "a", Why::RESTORED), (0, "b", Why::OVERWRITTEN)]);
        one.leaves(key(0, "a"));
        one.arrives(key(0, "b"));
        assert_eq!(all(one), [at(0, "b", Why::RESTORED)]);
        let mut by_one_of_no_interest = queue(&[(0, "b", Why::RESTORED)]);
        by_one_of_no_interest.leaves(key(0, "a"));
        assert_eq!(by_one_of_no_interest.arrives(key(0, "b")), None);
        assert_eq!(all(by_one_of_no_interest), []);
        let mut onto_itself = queue(&[(0, "a", Why::UNTIMED)]);
        onto_itself.leaves(key(0, "a"));
        onto_itself.arrives(key(0, "a"));
        assert_eq!(all(onto_itself), [at(0, "a", Why::UNTIMED)]);
    }

    #[test]
    fn one_that_left_and_never_arrived_is_not_taken_for_the_next() {
        let mut queue = queue(&[(0, "a", Why::RESTORED)]);
        queue.leaves(key(0, "a"));
        queue.leaves(key(0, "other"));
        assert_eq!(queue.arrives(key(0, "b")), None);
        assert_eq!(all(queue), []);
    }

    #[test]
    fn keys_go_with_their_databases() {
        let mut queue = queue(&[
            (0, "a", Why::RESTORED),
            (5, "b", Why::UNTIMED),
            (6, "c", Why::UNTIMED),
        ]);
        queue.swapped(Db(0), Db(5));
        queue.swapped(Db(6), Db(7));
        queue.swapped(Db(1), Db(1));
        let expected = [
            at(5, "a", Why::RESTORED),
            at(0, "b", Why::UNTIMED),
            at(7, "c", Why::UNTIMED),
        ];
        assert_eq!(all(queue), expected);
    }

    #[test]
    fn a_swap_of_a_database_with_itself_changes_nothing() {
        let mut queue = queue(&[(1, "a", Why::RESTORED)]);
        queue.swapped(Db(1), Db(1));
        assert_eq!(all(queue), [at(1, "a", Why::RESTORED)]);
    }

    #[test]
    fn what_is_flushed_is_forgotten() {
        let keys = [(0, "a", Why::RESTORED), (1, "b", Why::OVERWRITTEN)];
        let mut one = queue(&keys);
        one.flushed(Some(Db(0)));
        assert!(!one.is_empty());
        assert_eq!(all(one), [at(1, "b", Why::OVERWRITTEN)]);
        let mut each = queue(&keys);
        each.flushed(None);
        assert!(each.is_empty() && each.why(key(1, "b")).is_none());
    }
}
