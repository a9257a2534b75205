//! Fencing tokens outside of events: the wall clock, epochs, and the tokens of other servers.

use crate::engine::state::tokens::Tokens;
use crate::engine::tables::Engine;
use crate::engine::types::Token;
use std::time::Duration;

impl Engine {
    /// Begins a new epoch, when the server starts or is promoted. The wall clock is the time since 1970.
    pub fn begin_epoch(&mut self, wall_clock: Duration) {
        self.tokens.begin_epoch(wall_clock);
    }

    /// Makes all later tokens greater than this one, which was granted here or elsewhere.
    pub fn apply_token(&mut self, token: Token) {
        self.tokens.apply(token);
    }

    /// In a cluster, when slots may have been gained: see `Tokens::follow_clock`.
    pub fn follow_clock(&mut self, wall_clock: Duration) {
        self.tokens.follow_clock(wall_clock);
    }

    /// See `Tokens::reached`.
    pub fn reached_token(&self, wall_clock: Duration) -> Option<Token> {
        self.tokens.reached(wall_clock)
    }

    /// Another server of the cluster has reached this token, at this time (since 1970).
    pub fn observe_token(&mut self, token: Token, wall_clock: Duration) {
        self.tokens.observe(token, wall_clock);
    }

    /// See `Tokens::max_raise`.
    pub fn max_raise(wall_clock: Duration) -> Token {
        Tokens::max_raise(wall_clock)
    }

    /// The token to replicate for a replica that has connected, unless a grant has replicated the epoch since
    /// [`invalidate_epoch_sync`](Self::invalidate_epoch_sync): the copy of the data that it got has no token if no key was held.
    pub fn pending_epoch(&mut self) -> Option<Token> {
        let token = self.tokens.last_given()?;
        self.tokens.mark_replicated().then_some(token)
    }

    /// A replica has connected that may not know the epoch: the next grant replicates it again.
    pub fn invalidate_epoch_sync(&mut self) {
        self.tokens.invalidate_epoch_sync();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_have_gained_slots_continues_from_where_a_start_would_begin() {
        let at = |seconds: u64| Duration::from_secs(1_800_000_000 + seconds);
        let first_token = |seconds| {
            let mut engine = Engine::default();
            engine.begin_epoch(at(seconds));
            engine.tokens.following()
        };
        let mut engine = Engine::default();
        engine.begin_epoch(at(0));
        assert_eq!(engine.tokens.following(), first_token(0));
        engine.follow_clock(at(5));
        let next = engine.tokens.following();
        assert!(first_token(4) < next && next <= first_token(5));
    }

    /// What another server of the cluster has reached, every start from then on is ahead of; unless that is not credible.
    #[test]
    fn who_knows_what_another_server_has_reached_goes_on_above_that() {
        let clock = Duration::from_secs(1_800_000_000);
        let began_with = |observed: Token| {
            let mut engine = Engine::default();
            engine.observe_token(observed, clock);
            engine.follow_clock(clock);
            engine.tokens.following()
        };
        let alone = began_with(Token(0));
        let ahead = Token(alone.0 + 1000);
        assert!(began_with(ahead) >= ahead);
        assert_eq!(began_with(Token(u64::MAX)), alone);
        let mut engine = Engine::default();
        assert_eq!(engine.reached_token(clock), None);
        engine.begin_epoch(clock);
        engine.apply_token(ahead);
        assert_eq!(engine.reached_token(clock), Some(ahead));
    }

    #[test]
    fn tokens_are_raised_no_further_than_the_clock_allows() {
        let at = |seconds: u64| Engine::max_raise(Duration::from_secs(1_800_000_000 + seconds)).0;
        let second = at(1) - at(0);
        assert!(second > 0);
        assert_eq!(at(5), at(0) + 5 * second);
    }

    #[test]
    fn a_new_replica_is_told_the_last_token_once_and_only_if_there_is_one() {
        let mut engine = Engine::default();
        engine.begin_epoch(Duration::from_secs(1_800_000_000));
        assert_eq!(engine.pending_epoch(), None);
        let token = Token(engine.last_token().0 + 7);
        engine.apply_token(token);
        assert_eq!(engine.pending_epoch(), Some(token));
        assert_eq!(engine.pending_epoch(), None);
        engine.invalidate_epoch_sync();
        assert_eq!(engine.pending_epoch(), Some(token));
    }
}
