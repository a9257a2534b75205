//! Fencing tokens: numbers that only rise.
//!
//! `token = epoch * 2^22 + sequence`. An epoch is begun when a server starts or is promoted, above
//! every epoch known; within it the sequence counts grants, and when it is used up the epoch grows
//! by one. So tokens rise without a clock read or a write per grant.
//!
//! A server can be started twice within one second. So the first sequence of an epoch is the part of
//! the second that has passed: four for each microsecond, more than a server can have granted.
//!
//! A client can raise tokens (LOCK.RAISE), and a server that starts without files knows nothing of that. So a start begins
//! further ahead of the clock than any client can raise: [`START_AHEAD`] against [`RAISE_AHEAD`]. The second between them
//! is for a clock that is set back meanwhile, and for a replica's clock that is behind the master's.
//!
//! The same second keeps servers of a quorum that has just been started from being raised to each other's tokens at once.
//! Their quarantine is longer than that, and a client tries again: the clock gets there. No two constants would do without:
//! what a start may give at once elsewhere, a client may ask for here just before a start.
//!
//! In a cluster keys go from server to server with their slots, and each gives tokens of its own. Whoever gains slots goes
//! on from where a start would begin: nobody has given more, since each began there and gives no more than four for each
//! microsecond. Where others' tokens are ahead of that, the clock is taken to be as far ahead as the furthest heard of.

use crate::engine::types::Token;
use std::time::Duration;

impl Token {
    /// Whether a server can have given it by now (the time since 1970). What a file, a stream or a message says beyond that
    /// is damage: this server would go on from there, and leave none to give that clients can hold. Decades are for clocks
    /// that are wrong; the bound moves on with the clock, faster than tokens are given, so what a server has gone on from
    /// stays credible.
    pub fn is_credible(self, wall_clock: Duration) -> bool {
        let most = by_clock(wall_clock) + (CREDIBLY_AHEAD.as_secs() << SEQUENCE_BITS);
        self.0 <= most.min(Token::MAX - ROOM)
    }
}

const SEQUENCE_BITS: u32 = 22;

/// Epochs count the seconds since the beginning of the year 2025 (UTC).
const EPOCH_ZERO: Duration = Duration::from_secs(1_735_689_600);

/// How far ahead of the clock a client can raise a token.
const RAISE_AHEAD: Duration = Duration::from_secs(1);

/// How far ahead of the clock the epoch of a start begins.
const START_AHEAD: Duration = Duration::from_secs(2);
const _: () = assert!(START_AHEAD.as_secs() > RAISE_AHEAD.as_secs());

/// How far ahead of the clock a token of another server or time is believed: 60 years. The epochs of the first files, of before
/// 0.1.0, counted from 1970.
const CREDIBLY_AHEAD: Duration = Duration::from_secs(60 * 365 * 86_400);

/// What is left below 2^53 for tokens after one that is believed, and twice after the last that a clock says: half a year.
const ROOM: u64 = (1 << 24) << SEQUENCE_BITS;

/// No clock says more.
const END_OF_CLOCK: u64 = Token::MAX - 2 * ROOM;

/// Invariant: the next token is greater than `last`.
#[derive(Debug, Default)]
pub(in crate::engine) struct Tokens {
    last: Token,
    /// The epoch that was replicated.
    replicated: u64,
    /// Tokens were given, here or elsewhere.
    any: bool,
    /// What the clock said when slots may have come: no later token is less. 0 outside of clusters.
    floor: u64,
    /// How far the tokens of this server, or of another, are ahead of the clock.
    ahead: u64,
}

/// Where a start begins, by the clock (the time since 1970).
fn by_clock(wall_clock: Duration) -> u64 {
    as_token(wall_clock + START_AHEAD)
}

/// A moment since 1970 as a token. One before 2025 is 0, and one after 2091 is as at its end.
fn as_token(moment: Duration) -> u64 {
    let since = moment.saturating_sub(EPOCH_ZERO);
    let passed = u64::from(since.subsec_nanos()) * (1 << SEQUENCE_BITS) / 1_000_000_000;
    let seconds = since.as_secs().min(END_OF_CLOCK >> SEQUENCE_BITS);
    ((seconds << SEQUENCE_BITS) + passed).min(END_OF_CLOCK)
}

impl Tokens {
    /// Begins a new epoch, [`START_AHEAD`] of the wall clock (the time since 1970); one after the last epoch where
    /// the clock is behind. A clock before 2025 counts as 0.
    pub fn begin_epoch(&mut self, wall_clock: Duration) {
        let here = Token(self.by_clock(wall_clock));
        let next_epoch = Token((self.epoch() + 1) << SEQUENCE_BITS);
        self.last = if here > self.last { here } else { next_epoch };
        if self.floor > 0 {
            self.ahead = self.last.0.saturating_sub(by_clock(wall_clock));
        }
    }

    /// Slots may have come: no token from now on is less than where a start would begin by this clock (the time since 1970).
    pub fn follow_clock(&mut self, wall_clock: Duration) {
        self.floor = self.by_clock(wall_clock);
    }

    /// Another server of the cluster has come to this token by now. One that makes no sense is not believed.
    pub fn hear(&mut self, token: Token, wall_clock: Duration) {
        if token.is_credible(wall_clock) {
            let ahead = token.0.saturating_sub(by_clock(wall_clock));
            self.ahead = self.ahead.max(ahead);
        }
    }

    /// Where a start begins here: as far ahead of the clock as is known of. That moves on with the clock, and ends where a clock does.
    fn by_clock(&self, wall_clock: Duration) -> u64 {
        (by_clock(wall_clock) + self.ahead).min(END_OF_CLOCK)
    }

    fn epoch(&self) -> u64 {
        self.last.0 >> SEQUENCE_BITS
    }

    /// Notes that the epoch is replicated, and says whether that is still to be done: once for each.
    pub fn mark_replicated(&mut self) -> bool {
        let epoch = self.epoch();
        self.any = true;
        std::mem::replace(&mut self.replicated, epoch) != epoch
    }

    /// A replica has come that may not know the epoch.
    pub fn invalidate_epoch_sync(&mut self) {
        self.replicated = 0;
    }

    /// A token that was given, here or elsewhere; 0 says that none was.
    pub fn know(&mut self, token: Token) {
        self.any |= token > Token(0);
        self.last = self.last.max(token);
    }

    /// O(1). A sequence that is used up runs over into the epoch by itself.
    pub fn next(&mut self) -> Token {
        self.last.0 = (self.last.0 + 1).max(self.floor);
        self.last
    }

    /// The last one given, if any is known to have been.
    pub fn last_given(&self) -> Option<Token> {
        self.any.then_some(self.last)
    }

    /// What it can have come to at this time since 1970, if any is known to have been given.
    pub fn reached(&self, wall_clock: Duration) -> Option<Token> {
        let here = self.by_clock(wall_clock);
        self.any.then_some(Token(self.last.0.max(here)))
    }

    /// The greatest to which one may be raised at this time since 1970.
    pub fn most_to_raise_to(wall_clock: Duration) -> Token {
        Token(as_token(wall_clock + RAISE_AHEAD))
    }

    /// The last one given, or the beginning of the epoch.
    pub fn last(&self) -> Token {
        self.last
    }
}

#[cfg(test)]
mod tests;
