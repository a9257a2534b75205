//! `SETTP ... SEQ`: keys that are named after their token, as ZooKeeper's sequential nodes are numbered.
//!
//! The shell asks which token is next and whether the name that it makes is free, and then requests the key of that name. So the
//! name says which token the grant is to have, and nothing else does.

use crate::engine::effect::{Effect, Refusal};
use crate::engine::event::Acquire;
use crate::engine::rules::acquire::Outcome;
use crate::engine::state::rows::Name;
use crate::engine::storage::arena::Id;
use crate::engine::tables::Engine;
use crate::engine::types::{Key, Token};

/// The digits of a token in a name, so that names sort as tokens do.
const DIGITS: usize = 16;
const _: () = assert!(Token::MAX < 10_u64.pow(DIGITS as u32));

/// A name of a sequence: what the client gave, and a token.
pub struct SequenceName(Vec<u8>);

impl SequenceName {
    pub fn new(key: &[u8], token: Token) -> Self {
        let mut name = Vec::with_capacity(key.len() + DIGITS);
        name.extend(key);
        name.extend(format!("{:0DIGITS$}", token.0).into_bytes());
        SequenceName(name)
    }

    /// The same with another token.
    pub fn set(&mut self, token: Token) {
        let digits = self.0.len() - DIGITS;
        self.0.truncate(digits);
        self.0.extend(format!("{:0DIGITS$}", token.0).into_bytes());
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    fn token(name: &[u8]) -> Option<Token> {
        let digits = name.last_chunk::<DIGITS>()?;
        let digits = std::str::from_utf8(digits).ok()?;
        Token::checked(digits.parse().ok()?)
    }
}

impl Engine {
    /// The token that the next grant gets.
    pub fn next_token_of_sequence(&self) -> Token {
        self.tokens.following()
    }

    /// Whether a key that is absent can be made: nobody holds it, or waits for it. O(1).
    pub fn is_unclaimed(&self, key: Key<'_>) -> bool {
        let lookup = self.keys.lookup(key);
        let is_awaited = |name: Id<Name>| !self.keys[name].queue.is_empty();
        lookup.held.is_none() && !lookup.name.is_some_and(is_awaited)
    }

    /// Grants a key with the token that its name ends with. Where that cannot be, the tokens up to it are used up, so that the next
    /// request gets further.
    #[cold]
    pub(super) fn make_next(
        &mut self,
        ask: &Acquire<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<Outcome, Refusal> {
        if self.is_quarantined() {
            let left_ms = self.quarantine_left_ms(self.now);
            return Err(Refusal::Quarantine { left_ms });
        }
        let seen = ask.seen[0];
        let asked = self.observe(seen, effects);
        let token = SequenceName::token(seen.key.name).unwrap_or_default();
        let is_free = !seen.state.is_present() && self.is_unclaimed(seen.key);
        if !is_free || token < self.tokens.following() {
            self.tokens.skip_to(token);
            return Err(Refusal::SequenceTaken);
        }
        self.tokens.skip_to(Token(token.0 - 1));
        self.grant_now(ask, &[asked], effects)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{
        ClientId, Db, Event, Form, KeySnapshot, KeyState, Mode, Moment, Reply, Terms,
    };

    /// The next request gets further; and a name that was made for a later token is granted with that one.
    #[test]
    fn a_token_whose_name_is_taken_is_used_up() {
        let mut engine = Engine::default();
        let mut ask = |ahead: u64, state: KeyState| {
            let token = Token(engine.next_token_of_sequence().0 + ahead);
            let name = SequenceName::new(b"n", token);
            let (db, name) = (Db(0), name.bytes());
            let key = Key { db, name };
            let asked = Event::Acquire(Acquire {
                client: ClientId(1),
                seen: &[KeySnapshot { key, state }],
                terms: Terms::of(Mode::Temporary),
                value: b"",
                wait: None,
                form: Form::Sequence,
                in_command: true,
            });
            let mut effects = Vec::new();
            engine.handle(Moment(1), asked, &mut effects);
            let reply = effects.pop();
            let further = engine.next_token_of_sequence().0 - token.0;
            match reply {
                Some(Effect::Reply(Reply::Made { token: made, .. })) => {
                    Ok((made == token, further))
                }
                Some(Effect::Reply(Reply::Refused(Refusal::SequenceTaken))) => Err(further),
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(ask(0, KeyState::Other), Err(1));
        assert_eq!(ask(0, KeyState::Absent), Ok((true, 1)));
        assert_eq!(ask(5, KeyState::Absent), Ok((true, 1)));
        assert_eq!(ask(7, KeyState::Other), Err(1));
    }

    #[test]
    fn names_sort_as_tokens_do_and_tell_their_token() {
        let tokens = [1, 9, 10, 4_194_304, Token::MAX].map(Token);
        for key in [b"n".as_slice(), b"", b"a key with more than sixteen bytes"] {
            let mut name = SequenceName::new(key, Token(0));
            let mut names = Vec::new();
            for token in tokens {
                name.set(token);
                assert_eq!(name.bytes(), SequenceName::new(key, token).bytes());
                assert_eq!(SequenceName::token(name.bytes()), Some(token));
                names.push(name.bytes().to_vec());
            }
            assert!(names.is_sorted());
            assert_eq!(names[0], [key, b"0000000000000001"].concat());
        }
        for other in [
            b"n".as_slice(),
            b"",
            b"n000000000000000",
            b"n-000000000000001",
        ] {
            assert_eq!(SequenceName::token(other), None);
        }
    }
}
