//! Keys that `SETTP ... SEQ` has made. The model numbers them; what they are called the reply says.

use super::command::{Ask, Command, NAMES, Name, Spot};
use super::replies::{Form, Reply};
use super::step::Step;
use super::world::{Turn, World};
use std::cell::RefCell;
use std::collections::BTreeMap;

const DIGITS: usize = 16;

thread_local! {
    /// What those of the world at hand are called.
    static CALLED: RefCell<BTreeMap<Name, &'static [u8]>> = const { RefCell::new(BTreeMap::new()) };
}

/// The name of the key with this number, of which `key` was given.
pub fn made(number: usize, key: Name) -> Name {
    assert!(key < NAMES.len(), "what is given was not made itself");
    NAMES.len() * (1 + number) + key
}

/// What was given for a name that was made; any other one itself.
pub fn given(name: Name) -> Name {
    name % NAMES.len()
}

/// In a world that begins none was made.
pub fn forget() {
    CALLED.with_borrow_mut(BTreeMap::clear);
}

/// A key that was made is called so from now on, if it can be: it ends with its token.
pub fn learn(name: Name, bytes: &[u8], token: i64) -> bool {
    let key = NAMES[given(name)];
    let fits = bytes.strip_prefix(key) == Some(format!("{token:0DIGITS$}").as_bytes());
    if fits && is_known(name).then(|| bytes_of(name)) != Some(bytes) {
        let bytes: &'static [u8] = Vec::leak(bytes.to_vec());
        CALLED.with_borrow_mut(|called| called.insert(name, bytes));
    }
    fits
}

pub fn is_known(name: Name) -> bool {
    name < NAMES.len() || CALLED.with_borrow(|called| called.contains_key(&name))
}

pub fn bytes_of(name: Name) -> &'static [u8] {
    let called = || CALLED.with_borrow(|called| called.get(&name).copied());
    let plain = NAMES.get(name).copied();
    plain.or_else(called).expect("a name that was heard of")
}

/// The name that is called so.
pub fn name_of(bytes: &[u8]) -> Option<Name> {
    let plain = NAMES.iter().position(|name| *name == bytes);
    plain.or_else(|| {
        CALLED.with_borrow(|called| {
            let mut all = called.iter().rev();
            all.find(|(_, name)| **name == bytes).map(|(name, _)| *name)
        })
    })
}

/// The last keys that were made, as far as they were heard of.
pub fn last_made(most: usize) -> Vec<Name> {
    CALLED.with_borrow(|called| called.keys().rev().take(most).copied().collect())
}

impl World {
    pub(super) fn make_next(&mut self, turn: &Turn, command: &Command) -> Reply {
        let Command::Sequence {
            key,
            value,
            notify,
            acks,
        } = command
        else {
            unreachable!()
        };
        let name = made(self.sequences, *key);
        let form = Form::Sequence(name);
        let ask = Ask {
            notify: *notify,
            acks: *acks,
            ..Ask::default()
        };
        let reply = self.ask_for_temporary(turn, (name, *value), ask, form);
        let is_made = matches!(reply, Reply::Made { .. } | Reply::Blocked);
        self.sequences += usize::from(is_made);
        reply
    }

    /// The keys that were made and are there, or are held.
    pub fn sequence_keys(&self) -> Vec<Spot> {
        let there = self.databases.iter().enumerate().flat_map(|(db, entries)| {
            let names = entries.iter().map(|entry| entry.name);
            names.map(move |name| Spot { db, name })
        });
        let held = self.holds.iter().map(|hold| hold.spot);
        let all = there.chain(held).filter(|spot| spot.name >= NAMES.len());
        let mut all: Vec<Spot> = all.collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// What is made is heard of at once, and nothing is said of what was not made.
    pub(super) fn allows_sequences(&self, step: &Step) -> bool {
        let asks = |command: &Command| matches!(command, Command::Sequence { .. });
        if !step.names().into_iter().all(is_known) {
            return false;
        }
        match step {
            Step::Run { who, .. } => !step.has(asks) || !self.is_unanswered(*who),
            Step::Exec { who } => {
                let queued = self.client(*who).and_then(|client| client.queue.as_ref());
                let mut queued = queued.into_iter().flatten();
                !queued.any(|(command, _)| asks(command)) || !self.is_unanswered(*who)
            }
            _ => !step.has(asks),
        }
    }
}
