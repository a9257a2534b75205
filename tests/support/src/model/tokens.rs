//! The model counts grants; a server gives tokens. Which belongs to which, and that they rise. So with sessions and
//! their secrets.

use super::replies::Serial;
use super::sessions::Number;
use std::collections::BTreeMap;

/// Invariant: no two grants have the same token, and every token of this step is greater than all
/// that were heard of before it.
#[derive(Clone, Default)]
pub struct Tokens {
    known: BTreeMap<Serial, i64>,
    /// The greatest of the steps before.
    floor: i64,
    secrets: BTreeMap<Number, Vec<u8>>,
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

    /// The same for a grant that may be older than this step: nobody heard of the token of one whose connection ended in the
    /// same step.
    pub fn was(&self, serial: Serial, token: i64) -> bool {
        let is_anothers = self.known.values().any(|known| *known == token);
        match self.known.get(&serial) {
            Some(known) => *known == token,
            None => !is_anothers,
        }
    }

    /// Whether this can be the secret of that session; if so it is from now on.
    pub fn is_secret(&mut self, session: Number, text: &[u8]) -> bool {
        if let Some(known) = self.secrets.get(&session) {
            return known == text;
        }
        let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_new = !self.secrets.values().any(|known| known == text);
        let can_be = is_new && text.len() == 32 && text.iter().all(is_hex);
        if can_be {
            self.secrets.insert(session, text.to_owned());
        }
        can_be
    }

    /// The secret of a session that was heard of.
    pub fn secret(&self, session: Number) -> Option<&[u8]> {
        self.secrets.get(&session).map(|secret| &**secret)
    }

    /// The token of a grant, as far as it was heard of.
    pub fn of(&self, serial: Serial) -> Option<i64> {
        self.known.get(&serial).copied()
    }

    /// The same; if it was not heard of, the greatest of the grants before it.
    pub fn at_least_of(&self, serial: Serial) -> i64 {
        let before = || self.known.range(..serial).map(|(_, token)| *token).max();
        self.of(serial).or_else(before).unwrap_or(0)
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
