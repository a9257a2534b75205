//! What the shell says and asks of fencing tokens that is no event: the clock, epochs, and what other servers have given.

use crate::engine::state::tokens::Tokens;
use crate::engine::tables::Engine;
use crate::engine::types::Token;
use std::time::Duration;

impl Engine {
    /// Begins a new epoch of fencing tokens: when the server starts or is promoted.
    /// The wall clock is the time since 1970.
    pub fn begin_epoch(&mut self, wall_clock: Duration) {
        self.tokens.begin_epoch(wall_clock);
    }

    /// Makes all tokens from now on greater than one that is known to have been given.
    pub fn apply_token(&mut self, token: Token) {
        self.tokens.know(token);
    }

    /// No token from now on is less than this clock says (the time since 1970): in a cluster, where slots may have come.
    pub fn follow_clock(&mut self, wall_clock: Duration) {
        self.tokens.follow_clock(wall_clock);
    }

    /// What this server's tokens can have come to at this time since 1970, if any is known to have been given.
    pub fn reached_token(&self, wall_clock: Duration) -> Option<Token> {
        self.tokens.reached(wall_clock)
    }

    /// Another server of the cluster has come to this token, at this time since 1970.
    pub fn observe_token(&mut self, token: Token, wall_clock: Duration) {
        self.tokens.hear(token, wall_clock);
    }

    /// The greatest token to which one may be raised at this time since 1970.
    pub fn most_to_raise_to(wall_clock: Duration) -> Token {
        Tokens::most_to_raise_to(wall_clock)
    }

    /// What must be told to a replica that has come: it may have been made while nothing was bound, of which its copy of the
    /// data says nothing. Unless a grant has told it meanwhile, see [`invalidate_epoch_sync`](Self::invalidate_epoch_sync).
    pub fn pending_epoch(&mut self) -> Option<Token> {
        let token = self.tokens.last_given()?;
        self.tokens.mark_replicated().then_some(token)
    }

    /// The next grant tells replicas the epoch again: one has come that may not know it.
    pub fn invalidate_epoch_sync(&mut self) {
        self.tokens.invalidate_epoch_sync();
    }
}
