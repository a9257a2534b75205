//! Fencing tokens: monotonic numbers.
//!
//! `token = epoch * 2^22 + sequence`. A server begins an epoch when it starts or is promoted, above every known epoch. Within the
//! epoch the sequence counts grants; its overflow increments the epoch. So a grant needs neither the clock nor a write.
//!
//! Epochs are seconds of the wall clock. A server can start twice within a second, so an epoch's first sequence is the fraction of
//! the second that has passed, at four per microsecond: more than a server can grant.
//!
//! A client can raise tokens (LOCK.RAISE), and a server that starts without files does not know the raised ones. So a start begins
//! further ahead of the clock than a client can raise: [`START_AHEAD`] against [`RAISE_AHEAD`]. The second in between allows for a
//! clock that is set back meanwhile, and for a replica's clock behind the master's.
//!
//! Because of that second, the servers of a quorum that was just started cannot be raised to each other's tokens immediately.
//! Their quarantine is longer, and clients retry until the clock gets there. No choice of the constants avoids this: a token that
//! a starting server may grant immediately could also be raised on another server right before that one starts.
//!
//! In a cluster, keys migrate with their slots, and each server grants tokens of its own. A server that gains slots continues from
//! where a start would begin: no server has granted more, since each began there and grants at most four per microsecond. If
//! another server's tokens are ahead of that, the clock counts as that much ahead.

use crate::engine::types::Token;
use std::time::Duration;

impl Token {
    /// Whether a server can have granted this token by now (time since 1970). A greater one in a file, a stream or a message is
    /// damage: this server would continue from there and run out of tokens below [`Token::MAX`]. The margin of decades allows for
    /// wrong clocks. The bound rises with the clock, faster than tokens are granted, so a token once accepted stays credible.
    pub fn is_credible(self, wall_clock: Duration) -> bool {
        let bound = by_clock(wall_clock) + (CREDIBLY_AHEAD.as_secs() << SEQUENCE_BITS);
        self.0 <= bound.min(Token::MAX - HEADROOM)
    }
}

const SEQUENCE_BITS: u32 = 22;

/// Epochs count seconds since 2025-01-01 UTC.
const EPOCH_ZERO: Duration = Duration::from_secs(1_735_689_600);

/// How far ahead of the clock a client can raise a token.
const RAISE_AHEAD: Duration = Duration::from_secs(1);

/// How far ahead of the clock the epoch of a start begins.
const START_AHEAD: Duration = Duration::from_secs(2);
const _: () = assert!(START_AHEAD.as_secs() > RAISE_AHEAD.as_secs());

/// How far ahead of the clock a token from elsewhere is credible: 60 years. In files from before 0.1.0, epochs count from 1970.
const CREDIBLY_AHEAD: Duration = Duration::from_secs(60 * 365 * 86_400);

/// The tokens left below [`Token::MAX`] after the greatest credible one: half a year.
const HEADROOM: u64 = (1 << 24) << SEQUENCE_BITS;

/// The clock's last token.
const END_OF_CLOCK: u64 = Token::MAX - 2 * HEADROOM;

/// Invariant: the next token is greater than `last`.
#[derive(Debug, Default)]
pub(in crate::engine) struct Tokens {
    last: Token,
    /// The epoch last replicated.
    replicated: u64,
    /// Some token was granted, here or elsewhere.
    any_granted: bool,
    /// The clock's token when slots may last have been gained: no later token is less. 0 outside clusters.
    floor: u64,
    /// How far this server's tokens, or another's, are ahead of the clock.
    ahead: u64,
}

/// Where a start at this time (since 1970) begins.
fn by_clock(wall_clock: Duration) -> u64 {
    as_token(wall_clock + START_AHEAD)
}

/// A time since 1970 as a token; 0 before 2025, and constant after 2091.
fn as_token(moment: Duration) -> u64 {
    let since = moment.saturating_sub(EPOCH_ZERO);
    let passed = u64::from(since.subsec_nanos()) * (1 << SEQUENCE_BITS) / 1_000_000_000;
    let seconds = since.as_secs().min(END_OF_CLOCK >> SEQUENCE_BITS);
    ((seconds << SEQUENCE_BITS) + passed).min(END_OF_CLOCK)
}

impl Tokens {
    /// Begins a new epoch, [`START_AHEAD`] of the wall clock (time since 1970), or the one after the last epoch if the clock is
    /// behind.
    pub fn begin_epoch(&mut self, wall_clock: Duration) {
        let here = Token(self.by_clock(wall_clock));
        let next_epoch = Token((self.epoch() + 1) << SEQUENCE_BITS);
        self.last = if here > self.last { here } else { next_epoch };
        if self.floor > 0 {
            self.ahead = self.last.0.saturating_sub(by_clock(wall_clock));
        }
    }

    /// Slots may have been gained: from now on, no token is less than where a start at this time (since 1970) would begin.
    pub fn follow_clock(&mut self, wall_clock: Duration) {
        self.floor = self.by_clock(wall_clock);
    }

    /// Another server of the cluster has reached this token by now. Ignored if not credible.
    pub fn observe(&mut self, token: Token, wall_clock: Duration) {
        if token.is_credible(wall_clock) {
            let ahead = token.0.saturating_sub(by_clock(wall_clock));
            self.ahead = self.ahead.max(ahead);
        }
    }

    /// Where a start at this time begins on this server: [`by_clock`], plus `ahead`.
    fn by_clock(&self, wall_clock: Duration) -> u64 {
        (by_clock(wall_clock) + self.ahead).min(END_OF_CLOCK)
    }

    fn epoch(&self) -> u64 {
        self.last.0 >> SEQUENCE_BITS
    }

    /// Marks the epoch as replicated; returns true if it was not, so the caller must replicate it.
    pub fn mark_replicated(&mut self) -> bool {
        let epoch = self.epoch();
        self.any_granted = true;
        std::mem::replace(&mut self.replicated, epoch) != epoch
    }

    /// A replica has connected that may not know the epoch.
    pub fn invalidate_epoch_sync(&mut self) {
        self.replicated = 0;
    }

    /// A token that was granted, here or elsewhere; 0: none was.
    pub fn apply(&mut self, token: Token) {
        self.any_granted |= token > Token(0);
        self.last = self.last.max(token);
    }

    /// O(1).
    pub fn next(&mut self) -> Token {
        self.last = self.following();
        self.last
    }

    /// What [`next`](Self::next) would return.
    pub fn following(&self) -> Token {
        Token((self.last.0 + 1).max(self.floor))
    }

    /// Tokens up to this one are not granted.
    pub fn skip_to(&mut self, token: Token) {
        self.last = self.last.max(token);
    }

    /// The last token granted, if any is known.
    pub fn last_given(&self) -> Option<Token> {
        self.any_granted.then_some(self.last)
    }

    /// An upper bound of the tokens granted by this time (since 1970), if any is known.
    pub fn reached(&self, wall_clock: Duration) -> Option<Token> {
        let here = self.by_clock(wall_clock);
        self.any_granted.then_some(Token(self.last.0.max(here)))
    }

    /// The greatest token to which LOCK.RAISE may raise at this time (since 1970).
    pub fn max_raise(wall_clock: Duration) -> Token {
        Token(as_token(wall_clock + RAISE_AHEAD))
    }

    /// The last token granted, or the beginning of the epoch.
    pub fn last(&self) -> Token {
        self.last
    }
}

#[cfg(test)]
mod tests;
