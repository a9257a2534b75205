//! Flushes of very many keys that are still being done, key by key: which they are, and how far that is. See
//! `rules/flushes.rs`.

use crate::engine::state::rows::Client;
use crate::engine::types::{Cause, Db};

/// Invariant: `all` is empty between two rounds. In a round, each key whose record is of an earlier one went by the first of
/// `all` that is for its database, if one is. No record before `next` is such a key.
#[derive(Default)]
pub(in crate::engine) struct Flushes {
    all: Vec<Flush>,
    /// How many have ever been noted here.
    count: u32,
    /// Which of them is being looked after at a key; none where it is one that is done with at once.
    pub number: Option<u32>,
    /// At which place to go on.
    pub next: usize,
    /// So many places there were when the round began.
    pub places: usize,
}

/// A flush that is done with key by key.
#[derive(Clone, Copy)]
pub(in crate::engine) struct Flush {
    /// Of all where it names none.
    pub db: Option<Db>,
    pub by: Cause,
    /// How many there were with it.
    pub number: u32,
}

impl Flushes {
    /// How many flushes have been done with key by key, or are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Whether the flush that is being looked after came before the end of this owner, which has ended. O(1).
    pub fn is_before_end_of(&self, owner: &Client) -> bool {
        self.number
            .is_some_and(|number| number <= owner.ended_after)
    }

    /// Whether a round goes on. O(1).
    pub fn is_any(&self) -> bool {
        !self.all.is_empty()
    }

    /// Of so many places nothing is left to be done.
    pub fn passed(&self) -> usize {
        self.next
    }

    /// The first that is for this database. O(flushes).
    pub fn first_of(&self, db: Db) -> Option<Flush> {
        let mut all = self.all.iter();
        all.find(|flush| flush.db.is_none_or(|of| of == db))
            .copied()
    }

    /// Unless an earlier one is for the same keys.
    pub fn add(&mut self, db: Option<Db>, by: Cause) {
        let is_for = |of: Option<Db>| of.is_none() || of == db;
        if !self.all.iter().any(|flush| is_for(flush.db)) {
            self.count += 1;
            let number = self.count;
            self.all.push(Flush { db, by, number });
            self.next = 0;
        }
    }

    /// The round is over. O(1).
    pub fn end(&mut self) {
        *self = Flushes {
            count: self.count,
            ..Flushes::default()
        };
    }

    /// Databases have exchanged their contents, and the keys that are still to be worked off their names. O(flushes).
    pub fn exchange(&mut self, one: Db, other: Db) {
        for flush in &mut self.all {
            flush.db = flush.db.map(|of| of.exchanged(one, other));
        }
    }
}
