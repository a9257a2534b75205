//! The queue of keys to look up again, with the reasons.

use crate::engine::{Db, Key, KeyBuf};
use std::collections::HashMap;

/// Why a key must be looked up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecheckReason {
    /// It was a lock held here, and may have been overwritten.
    pub overwritten: bool,
    /// It is a lock without a holder on this server.
    pub restored: bool,
    /// It is a temporary key that may have lost its TTL.
    pub untimed: bool,
    /// Its value was written, and somebody watches a prefix of it.
    pub changed: bool,
}

impl RecheckReason {
    const NONE: RecheckReason = RecheckReason {
        overwritten: false,
        restored: false,
        untimed: false,
        changed: false,
    };
    pub const OVERWRITTEN: RecheckReason = RecheckReason {
        overwritten: true,
        ..Self::NONE
    };
    pub const RESTORED: RecheckReason = RecheckReason {
        restored: true,
        ..Self::NONE
    };
    pub const UNTIMED: RecheckReason = RecheckReason {
        untimed: true,
        ..Self::NONE
    };
    pub const CHANGED: RecheckReason = RecheckReason {
        changed: true,
        ..Self::NONE
    };

    fn or(self, other: RecheckReason) -> RecheckReason {
        RecheckReason {
            overwritten: self.overwritten || other.overwritten,
            restored: self.restored || other.restored,
            untimed: self.untimed || other.untimed,
            changed: self.changed || other.changed,
        }
    }
}

struct Entry {
    /// Insertion order.
    seq: u64,
    reason: RecheckReason,
}

/// Keys to look up, each once, under its current name.
///
/// Invariant: no database has an empty map. All but `take_all` is O(1), however many keys wait.
#[derive(Default)]
pub struct Queue {
    keys: HashMap<Db, HashMap<Box<[u8]>, Entry>>,
    /// A queued key was renamed or moved; the event of its new name follows.
    in_transit: Option<(KeyBuf, RecheckReason)>,
    last_seq: u64,
}

impl Queue {
    pub fn add(&mut self, key: Key<'_>, reason: RecheckReason) {
        self.last_seq += 1;
        let seq = self.last_seq;
        let names = self.keys.entry(key.db).or_default();
        match names.get_mut(key.name) {
            Some(entry) => entry.reason = entry.reason.or(reason),
            None => {
                names.insert(key.name.into(), Entry { seq, reason });
            }
        }
    }

    /// Whether the queue must see an event of this key.
    pub fn concerns(&self, key: Key<'_>) -> bool {
        self.in_transit.is_some() || self.reason(key).is_some()
    }

    pub fn reason(&self, key: Key<'_>) -> Option<RecheckReason> {
        let entry = self.keys.get(&key.db)?.get(key.name)?;
        Some(entry.reason)
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Removes a key: it was looked up, or is gone.
    pub fn take(&mut self, key: Key<'_>) -> Option<RecheckReason> {
        let names = self.keys.get_mut(&key.db)?;
        let entry = names.remove(key.name)?;
        if names.is_empty() {
            self.keys.remove(&key.db);
        }
        Some(entry.reason)
    }

    /// Who watches a prefix of this key was told of its value.
    pub fn value_told(&mut self, key: Key<'_>) {
        if let Some(reason) = self.take(key) {
            let changed = false;
            let other = RecheckReason { changed, ..reason };
            if other != RecheckReason::NONE {
                self.add(key, other);
            }
        }
    }

    /// A key is renamed or moved away from this name.
    pub fn moved_from(&mut self, key: Key<'_>) {
        self.in_transit = self.take(key).map(|reason| (key.to_owned(), reason));
    }

    /// The key in transit has this name now, and replaces any key queued here. Returns its old name if it may have been
    /// overwritten there: that must be looked up now; the other reasons stay queued.
    pub fn moved_to(&mut self, key: Key<'_>) -> Option<KeyBuf> {
        self.take(key);
        let (from, reason) = self.in_transit.take()?;
        let overwritten = false;
        let later = RecheckReason {
            overwritten,
            ..reason
        };
        if later != RecheckReason::default() {
            self.add(key, later);
        }
        reason.overwritten.then_some(from)
    }

    pub fn swapped(&mut self, one: Db, other: Db) {
        let (first, second) = (self.keys.remove(&one), self.keys.remove(&other));
        self.keys.extend(first.map(|names| (other, names)));
        self.keys.extend(second.map(|names| (one, names)));
    }

    /// Empties one database, or all.
    pub fn flushed(&mut self, db: Option<Db>) {
        self.keys.retain(|at, _| db.is_some_and(|db| db != *at));
    }

    /// Takes all keys, in insertion order.
    pub fn take_all(&mut self) -> Vec<(KeyBuf, RecheckReason)> {
        let mut all = Vec::new();
        for (db, names) in self.keys.drain() {
            for (name, entry) in names {
                let key = Key { db, name: &name };
                all.push((entry.seq, key.to_owned(), entry.reason));
            }
        }
        all.sort_unstable_by_key(|(seq, ..)| *seq);
        all.into_iter()
            .map(|(_, key, reason)| (key, reason))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(db: u32, name: &str) -> Key<'_> {
        let (db, name) = (Db(db), name.as_bytes());
        Key { db, name }
    }

    fn queue(keys: &[(u32, &str, RecheckReason)]) -> Queue {
        let mut queue = Queue::default();
        for (db, name, reason) in keys {
            queue.add(key(*db, name), *reason);
        }
        queue
    }

    fn all(mut queue: Queue) -> Vec<(u32, String, RecheckReason)> {
        let all = queue.take_all();
        assert!(queue.is_empty());
        let name = |key: &KeyBuf| String::from_utf8_lossy(&key.name).into_owned();
        all.iter()
            .map(|(key, reason)| (key.db.0, name(key), *reason))
            .collect()
    }

    fn at(db: u32, name: &str, reason: RecheckReason) -> (u32, String, RecheckReason) {
        (db, name.to_owned(), reason)
    }

    #[test]
    fn keys_come_out_once_each_in_the_order_in_which_they_came() {
        let queue = queue(&[
            (0, "b", RecheckReason::RESTORED),
            (1, "a", RecheckReason::OVERWRITTEN),
            (0, "a", RecheckReason::UNTIMED),
            (0, "b", RecheckReason::OVERWRITTEN),
        ]);
        let both = RecheckReason::RESTORED.or(RecheckReason::OVERWRITTEN);
        assert!(both.restored && both.overwritten && !both.untimed);
        let expected = [
            at(0, "b", both),
            at(1, "a", RecheckReason::OVERWRITTEN),
            at(0, "a", RecheckReason::UNTIMED),
        ];
        assert_eq!(all(queue), expected);
    }

    #[test]
    fn a_value_that_was_told_is_not_looked_at_for_that() {
        let mut queue = queue(&[
            (0, "a", RecheckReason::CHANGED),
            (0, "b", RecheckReason::CHANGED.or(RecheckReason::UNTIMED)),
        ]);
        for name in ["a", "b", "c"] {
            queue.value_told(key(0, name));
        }
        assert_eq!(all(queue), [at(0, "b", RecheckReason::UNTIMED)]);
    }

    #[test]
    fn a_key_is_followed_to_its_new_name_and_database() {
        let mut queue = queue(&[(0, "a", RecheckReason::RESTORED)]);
        for (from, to) in [((0, "a"), (0, "b")), ((0, "b"), (5, "b"))] {
            let (from, to) = (key(from.0, from.1), key(to.0, to.1));
            assert!(queue.concerns(from) && !queue.concerns(to));
            queue.moved_from(from);
            assert!(queue.concerns(to));
            assert_eq!(queue.moved_to(to), None);
            assert!(queue.concerns(to) && !queue.concerns(from));
        }
        assert_eq!(all(queue), [at(5, "b", RecheckReason::RESTORED)]);
    }

    #[test]
    fn one_that_may_have_been_overwritten_is_looked_at_where_it_arrives() {
        let mut queue = queue(&[
            (0, "a", RecheckReason::OVERWRITTEN),
            (0, "a", RecheckReason::UNTIMED),
        ]);
        queue.moved_from(key(0, "a"));
        assert_eq!(queue.moved_to(key(5, "a")), Some(key(0, "a").to_owned()));
        assert_eq!(all(queue), [at(5, "a", RecheckReason::UNTIMED)]);
    }

    #[test]
    fn what_a_key_takes_the_place_of_is_forgotten() {
        let mut one = queue(&[
            (0, "a", RecheckReason::RESTORED),
            (0, "b", RecheckReason::OVERWRITTEN),
        ]);
        one.moved_from(key(0, "a"));
        one.moved_to(key(0, "b"));
        assert_eq!(all(one), [at(0, "b", RecheckReason::RESTORED)]);
        let mut by_one_of_no_interest = queue(&[(0, "b", RecheckReason::RESTORED)]);
        by_one_of_no_interest.moved_from(key(0, "a"));
        assert_eq!(by_one_of_no_interest.moved_to(key(0, "b")), None);
        assert_eq!(all(by_one_of_no_interest), []);
        let mut onto_itself = queue(&[(0, "a", RecheckReason::UNTIMED)]);
        onto_itself.moved_from(key(0, "a"));
        onto_itself.moved_to(key(0, "a"));
        assert_eq!(all(onto_itself), [at(0, "a", RecheckReason::UNTIMED)]);
    }

    #[test]
    fn one_that_left_and_never_arrived_is_not_taken_for_the_next() {
        let mut queue = queue(&[(0, "a", RecheckReason::RESTORED)]);
        queue.moved_from(key(0, "a"));
        queue.moved_from(key(0, "other"));
        assert_eq!(queue.moved_to(key(0, "b")), None);
        assert_eq!(all(queue), []);
    }

    #[test]
    fn keys_go_with_their_databases() {
        let mut queue = queue(&[
            (0, "a", RecheckReason::RESTORED),
            (5, "b", RecheckReason::UNTIMED),
            (6, "c", RecheckReason::UNTIMED),
        ]);
        queue.swapped(Db(0), Db(5));
        queue.swapped(Db(6), Db(7));
        queue.swapped(Db(1), Db(1));
        let expected = [
            at(5, "a", RecheckReason::RESTORED),
            at(0, "b", RecheckReason::UNTIMED),
            at(7, "c", RecheckReason::UNTIMED),
        ];
        assert_eq!(all(queue), expected);
    }

    #[test]
    fn a_swap_of_a_database_with_itself_changes_nothing() {
        let mut queue = queue(&[(1, "a", RecheckReason::RESTORED)]);
        queue.swapped(Db(1), Db(1));
        assert_eq!(all(queue), [at(1, "a", RecheckReason::RESTORED)]);
    }

    #[test]
    fn what_is_flushed_is_forgotten() {
        let keys = [
            (0, "a", RecheckReason::RESTORED),
            (1, "b", RecheckReason::OVERWRITTEN),
        ];
        let mut one = queue(&keys);
        one.flushed(Some(Db(0)));
        assert!(!one.is_empty());
        assert_eq!(all(one), [at(1, "b", RecheckReason::OVERWRITTEN)]);
        let mut each = queue(&keys);
        each.flushed(None);
        assert!(each.is_empty() && each.reason(key(1, "b")).is_none());
    }
}
