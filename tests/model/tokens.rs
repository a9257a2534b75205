//! The model counts grants; a server gives tokens. Which belongs to which, and that they rise.

use super::told::Serial;
use std::collections::BTreeMap;

/// Invariant: no two grants have the same token, and every token of this step is greater than all
/// that were heard of before it.
#[derive(Default)]
pub struct Tokens {
    known: BTreeMap<Serial, i64>,
    /// The greatest of the steps before.
    floor: i64,
}

impl Tokens {
    /// Whether this can be the token of that grant; if so it is from now on.
    pub fn is(&mut self, serial: Serial, token: i64) -> bool {
        if let Some(known) = self.known.get(&serial) {
            return *known == token;
        }
        let rises = token > self.floor && !self.known.values().any(|known| *known == token);
        if rises {
            self.known.insert(serial, token);
        }
        rises
    }

    /// The token of a grant, as far as it was heard of.
    pub fn of(&self, serial: Serial) -> Option<i64> {
        self.known.get(&serial).copied()
    }

    /// The greatest that was heard of.
    pub fn greatest(&self) -> i64 {
        let last = self.known.values().max();
        last.map_or(self.floor, |last| self.floor.max(*last))
    }

    /// From now on tokens are greater than all that were heard of; those of `living` grants can be
    /// heard of again.
    pub fn begin_step(&mut self, living: &[Serial]) {
        self.floor = self.greatest();
        self.known.retain(|serial, _| living.contains(serial));
    }
}
