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
        self.0 <= most.min(Token::MOST - ROOM)
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
    let most = Token::MOST - 2 * ROOM;
    let seconds = since.as_secs().min(most >> SEQUENCE_BITS);
    ((seconds << SEQUENCE_BITS) + passed).min(most)
}

impl Tokens {
    /// Begins a new epoch, [`START_AHEAD`] of the wall clock (the time since 1970); one after the last epoch where
    /// the clock is behind. A clock before 2025 counts as 0.
    pub fn begin_epoch(&mut self, wall_clock: Duration) {
        let clock = by_clock(wall_clock);
        let by_clock = Token(clock + self.ahead);
        let next_epoch = Token((self.epoch() + 1) << SEQUENCE_BITS);
        self.last = if by_clock > self.last {
            by_clock
        } else {
            next_epoch
        };
        if self.floor > 0 {
            self.ahead = self.last.0.saturating_sub(clock);
        }
    }

    /// Slots may have come: no token from now on is less than where a start would begin by this clock (the time since 1970).
    pub fn follow_clock(&mut self, wall_clock: Duration) {
        self.floor = by_clock(wall_clock) + self.ahead;
    }

    /// Another server of the cluster has come to this token by now. One that makes no sense is not believed.
    pub fn hear(&mut self, token: Token, wall_clock: Duration) {
        if token.is_credible(wall_clock) {
            let ahead = token.0.saturating_sub(by_clock(wall_clock));
            self.ahead = self.ahead.max(ahead);
        }
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
        let by_clock = by_clock(wall_clock) + self.ahead;
        self.any.then_some(Token(self.last.0.max(by_clock)))
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
mod tests {
    use super::*;

    /// By this clock a start begins the epoch 0.
    const ZERO: Duration = EPOCH_ZERO.saturating_sub(START_AHEAD);

    #[test]
    fn tokens_rise_through_epochs_and_wrong_clocks() {
        let mut tokens = Tokens::default();
        let mut before = Token(0);
        for clock_ms in [
            1_800_000_000_000,
            1_800_000_000_001,
            1_900_000_000_000,
            5,
            7_000,
        ] {
            tokens.begin_epoch(Duration::from_millis(clock_ms));
            for _ in 0..3 {
                let token = tokens.next();
                assert!(token > before, "{token:?} after {before:?}");
                before = token;
            }
        }
        assert_eq!(before.0 >> SEQUENCE_BITS, 1_900_000_002 - ZERO.as_secs());
        assert_eq!(before.0 & ((1 << SEQUENCE_BITS) - 1), 3);
    }

    #[test]
    fn tokens_stay_below_2_to_the_53_until_2093() {
        let mut tokens = Tokens::default();
        tokens.begin_epoch(Duration::from_secs(3_881_520_000)); // 2092-12-31
        assert!(tokens.next() < Token(1 << 53));
    }

    #[test]
    fn a_higher_epoch_of_an_older_count_stays_in_force() {
        let mut tokens = Tokens::default();
        let since_1970 = Token(1_700_000_000 << SEQUENCE_BITS);
        tokens.know(since_1970);
        tokens.begin_epoch(ZERO + Duration::from_secs(60_000_000));
        assert_eq!(tokens.next().0 >> SEQUENCE_BITS, 1_700_000_001);
    }

    #[test]
    fn an_epoch_is_news_once() {
        let mut tokens = Tokens::default();
        tokens.begin_epoch(ZERO + Duration::from_secs(7));
        assert!(tokens.mark_replicated() && !tokens.mark_replicated());
        tokens.know(Token(9 << SEQUENCE_BITS));
        tokens.next();
        assert!(tokens.mark_replicated() && !tokens.mark_replicated());
    }

    #[test]
    fn an_epoch_is_news_again_to_who_comes_later() {
        let mut tokens = Tokens::default();
        tokens.begin_epoch(ZERO + Duration::from_secs(7));
        assert!(tokens.mark_replicated());
        tokens.invalidate_epoch_sync();
        assert!(tokens.mark_replicated() && !tokens.mark_replicated());
    }

    #[test]
    fn what_begins_an_epoch_was_not_given() {
        let mut tokens = Tokens::default();
        tokens.begin_epoch(ZERO + Duration::from_secs(7));
        tokens.know(Token(0));
        assert_eq!(tokens.last_given(), None);
        tokens.know(Token(3));
        assert_eq!(tokens.last_given(), Some(Token(7 << SEQUENCE_BITS)));
    }

    #[test]
    fn a_sequence_that_is_used_up_takes_the_next_epoch() {
        let mut tokens = Tokens::default();
        tokens.begin_epoch(ZERO + Duration::from_secs(7));
        for _ in 0..1 << SEQUENCE_BITS {
            tokens.next();
        }
        assert_eq!(tokens.last(), Token(8 << SEQUENCE_BITS));
    }

    /// The clock of one is an hour behind; it has heard of the other once.
    #[test]
    fn tokens_of_two_that_follow_their_clocks_rise_from_one_to_the_other() {
        let right = |ms| ZERO + Duration::from_millis(ms) + Duration::from_secs(3600);
        let behind = |ms| ZERO + Duration::from_millis(ms);
        let (mut one, mut other) = (Tokens::default(), Tokens::default());
        one.begin_epoch(right(1000));
        one.follow_clock(right(60_000));
        let mut last = one.next();
        other.begin_epoch(behind(50_000));
        other.hear(last, behind(60_000));
        for ms in 60_001..60_100 {
            other.follow_clock(behind(ms));
            let token = other.next();
            assert!(token > last, "{token:?} after {last:?}");
            one.follow_clock(right(ms));
            last = one.next();
            assert!(last >= token, "{last:?} after {token:?}");
        }
    }

    #[test]
    fn what_another_server_came_to_was_not_given_here_and_must_make_sense() {
        let mut tokens = Tokens::default();
        tokens.hear(Token(u64::MAX), ZERO);
        tokens.follow_clock(ZERO + Duration::from_secs(7));
        tokens.hear(Token(9 << SEQUENCE_BITS), ZERO);
        assert_eq!(tokens.last_given(), None);
        assert_eq!(tokens.next(), Token(7 << SEQUENCE_BITS));
    }

    #[test]
    fn who_knows_of_a_token_from_the_future_goes_on_from_there_with_the_time() {
        let at = |ms| ZERO + Duration::from_millis(ms);
        let mut tokens = Tokens::default();
        tokens.know(Token(9 << SEQUENCE_BITS));
        tokens.follow_clock(at(7000));
        tokens.begin_epoch(at(7000));
        assert_eq!(tokens.next(), Token((10 << SEQUENCE_BITS) + 1));
        assert_eq!(tokens.reached(at(8000)), Some(Token(11 << SEQUENCE_BITS)));
        tokens.follow_clock(at(8000));
        assert_eq!(tokens.next(), Token(11 << SEQUENCE_BITS));
    }

    /// The clock may be set back by less than the room between the two bounds.
    #[test]
    fn no_raise_and_no_start_go_below() {
        let (now, a_moment) = (Duration::from_secs(1_800_000_000), Duration::from_millis(1));
        let mut server = Tokens::default();
        server.begin_epoch(now - START_AHEAD);
        server.know(Tokens::most_to_raise_to(now));
        server.know(Tokens::most_to_raise_to(now + 9 * a_moment));
        let last = server.next();
        for back in [Duration::ZERO, START_AHEAD - RAISE_AHEAD - 9 * a_moment] {
            let mut without_files = Tokens::default();
            without_files.begin_epoch(now + 10 * a_moment - back);
            assert!(without_files.next() > last);
        }
    }

    /// Quorums want a quarantine that is longer than a second: what another server gives after it can be written back to this
    /// one, whose clock is behind by the rest.
    #[test]
    fn what_is_given_after_a_start_and_its_quarantine_can_be_raised_to_elsewhere() {
        let now = Duration::from_secs(1_800_000_000);
        let (quarantine, behind) = (Duration::from_millis(1100), Duration::from_millis(99));
        let mut other = Tokens::default();
        other.begin_epoch(now);
        let token = other.next();
        assert!(token <= Tokens::most_to_raise_to(now + quarantine - behind));
        // Before that it is the client's to try again.
        assert!(token > Tokens::most_to_raise_to(now + quarantine - 2 * behind));
    }

    #[test]
    fn damage_is_not_believed_whatever_the_clock_and_what_follows_stays_below_2_to_the_53() {
        let at = |year: u64| EPOCH_ZERO + Duration::from_secs((year - 2025) * 31_556_952);
        for (clock, believed) in [
            (Duration::ZERO, true),
            (at(2026), true),
            (at(2100), true),
            (at(2026) * 1000, true),
        ] {
            assert!(!Token(Token::MOST).is_credible(clock));
            assert!(!Token(Token::MOST - ROOM + 1).is_credible(clock));
            assert_eq!(Token(as_token(at(2055))).is_credible(clock), believed);
            let mut tokens = Tokens::default();
            tokens.begin_epoch(clock);
            assert!(tokens.last().is_credible(clock));
            tokens.hear(Token(Token::MOST), clock);
            tokens.hear(Token(Token::MOST - ROOM), clock);
            tokens.know(Tokens::most_to_raise_to(clock));
            tokens.follow_clock(clock);
            for _ in 0..1000 {
                tokens.begin_epoch(clock);
            }
            assert!(tokens.next() < Token(Token::MOST - ROOM / 2));
        }
        assert!(!Token(as_token(at(2091))).is_credible(at(2026)));
    }
}
