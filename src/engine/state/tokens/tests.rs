//! Tokens: examples, and random steps and clocks.

use super::*;
use proptest::prelude::*;

/// A start at this time begins epoch 0.
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

/// Nothing was granted in between, and the clock may stand still.
#[test]
fn each_start_begins_an_epoch_of_its_own() {
    let mut tokens = Tokens::default();
    let clock = Duration::from_secs(1_800_000_000);
    let mut begin = || {
        tokens.begin_epoch(clock);
        tokens.epoch()
    };
    let first = begin();
    assert_eq!((begin(), begin()), (first + 1, first + 2));
}

#[test]
fn tokens_follow_the_clock_within_a_second() {
    let of = |ms| as_token(ZERO + START_AHEAD + Duration::from_millis(ms));
    let second = 1 << SEQUENCE_BITS;
    let parts = [0, 250, 500, 1000, 1750].map(of);
    let expected = [0, second / 4, second / 2, second, second * 7 / 4];
    assert_eq!(parts, expected);
    // However late it is, no second leads back to early tokens.
    for late in [Duration::MAX, EPOCH_ZERO + Duration::from_secs(1 << 43)] {
        assert_eq!(
            as_token(late) >> SEQUENCE_BITS,
            END_OF_CLOCK >> SEQUENCE_BITS
        );
    }
}

/// Outside clusters, where no other server's tokens matter, a clock that was wrong leaves no trace once it is right again.
#[test]
fn a_clock_that_was_behind_for_a_while_does_not_push_epochs_ahead() {
    let mut tokens = Tokens::default();
    let mut begin = |seconds| {
        tokens.begin_epoch(Duration::from_secs(seconds));
        tokens.epoch()
    };
    let first = begin(1_900_000_000);
    assert_eq!(begin(5), first + 1);
    assert_eq!(begin(1_900_000_010), first + 10);
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
    tokens.apply(since_1970);
    tokens.begin_epoch(ZERO + Duration::from_secs(60_000_000));
    assert_eq!(tokens.next().0 >> SEQUENCE_BITS, 1_700_000_001);
}

#[test]
fn an_epoch_is_replicated_once() {
    let mut tokens = Tokens::default();
    tokens.begin_epoch(ZERO + Duration::from_secs(7));
    assert!(tokens.mark_replicated() && !tokens.mark_replicated());
    tokens.apply(Token(9 << SEQUENCE_BITS));
    tokens.next();
    assert!(tokens.mark_replicated() && !tokens.mark_replicated());
}

#[test]
fn an_epoch_is_replicated_again_for_a_later_replica() {
    let mut tokens = Tokens::default();
    tokens.begin_epoch(ZERO + Duration::from_secs(7));
    assert!(tokens.mark_replicated());
    tokens.invalidate_epoch_sync();
    assert!(tokens.mark_replicated() && !tokens.mark_replicated());
}

#[test]
fn the_beginning_of_an_epoch_is_no_granted_token() {
    let mut tokens = Tokens::default();
    tokens.begin_epoch(ZERO + Duration::from_secs(7));
    tokens.apply(Token(0));
    assert_eq!(tokens.last_given(), None);
    tokens.apply(Token(3));
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

/// The clock of one server is an hour behind; it has observed the other's token once.
#[test]
fn tokens_of_two_that_follow_their_clocks_rise_from_one_to_the_other() {
    let right = |ms| ZERO + Duration::from_millis(ms) + Duration::from_secs(3600);
    let behind = |ms| ZERO + Duration::from_millis(ms);
    let (mut one, mut other) = (Tokens::default(), Tokens::default());
    one.begin_epoch(right(1000));
    one.follow_clock(right(60_000));
    let mut last = one.next();
    other.begin_epoch(behind(50_000));
    other.observe(last, behind(60_000));
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
fn an_observed_token_is_not_granted_here_and_must_be_credible() {
    let mut tokens = Tokens::default();
    tokens.observe(Token(u64::MAX), ZERO);
    tokens.follow_clock(ZERO + Duration::from_secs(7));
    tokens.observe(Token(9 << SEQUENCE_BITS), ZERO);
    assert_eq!(tokens.last_given(), None);
    assert_eq!(tokens.next(), Token(7 << SEQUENCE_BITS));
}

#[test]
fn tokens_continue_from_one_ahead_of_the_clock_and_rise_with_the_clock() {
    let at = |ms| ZERO + Duration::from_millis(ms);
    let mut tokens = Tokens::default();
    tokens.apply(Token(9 << SEQUENCE_BITS));
    tokens.follow_clock(at(7000));
    tokens.begin_epoch(at(7000));
    assert_eq!(tokens.next(), Token((10 << SEQUENCE_BITS) + 1));
    assert_eq!(tokens.reached(at(8000)), Some(Token(11 << SEQUENCE_BITS)));
    tokens.follow_clock(at(8000));
    assert_eq!(tokens.next(), Token(11 << SEQUENCE_BITS));
}

/// The clock may be set back by less than `START_AHEAD - RAISE_AHEAD`.
#[test]
fn a_start_without_files_begins_above_all_raises() {
    let (now, a_moment) = (Duration::from_secs(1_800_000_000), Duration::from_millis(1));
    let mut server = Tokens::default();
    server.begin_epoch(now - START_AHEAD);
    server.apply(Tokens::max_raise(now));
    server.apply(Tokens::max_raise(now + 9 * a_moment));
    let last = server.next();
    for back in [Duration::ZERO, START_AHEAD - RAISE_AHEAD - 9 * a_moment] {
        let mut without_files = Tokens::default();
        without_files.begin_epoch(now + 10 * a_moment - back);
        assert!(without_files.next() > last);
    }
}

/// The quarantine of a quorum's servers is longer than a second: a token granted after it can be raised on a server whose clock is
/// behind by less than the rest.
#[test]
fn a_token_granted_after_the_quarantine_can_be_raised_on_another_server() {
    let now = Duration::from_secs(1_800_000_000);
    let (quarantine, behind) = (Duration::from_millis(1100), Duration::from_millis(99));
    let mut other = Tokens::default();
    other.begin_epoch(now);
    let token = other.next();
    assert!(token <= Tokens::max_raise(now + quarantine - behind));
    // Before that, the client retries.
    assert!(token > Tokens::max_raise(now + quarantine - 2 * behind));
}

#[test]
fn damaged_tokens_are_ignored_by_any_clock_and_later_tokens_stay_below_2_to_the_53() {
    let at = |year: u64| EPOCH_ZERO + Duration::from_secs((year - 2025) * 31_556_952);
    for (clock, credible) in [
        (Duration::ZERO, true),
        (at(2026), true),
        (at(2100), true),
        (at(2026) * 1000, true),
    ] {
        assert!(!Token(Token::MAX).is_credible(clock));
        assert!(!Token(Token::MAX - HEADROOM + 1).is_credible(clock));
        assert_eq!(Token(as_token(at(2055))).is_credible(clock), credible);
        let mut tokens = Tokens::default();
        tokens.begin_epoch(clock);
        assert!(tokens.last().is_credible(clock));
        tokens.observe(Token(Token::MAX), clock);
        tokens.observe(Token(Token::MAX - HEADROOM), clock);
        tokens.apply(Tokens::max_raise(clock));
        tokens.follow_clock(clock);
        for _ in 0..1000 {
            tokens.begin_epoch(clock);
        }
        assert!(tokens.next() < Token(Token::MAX - HEADROOM / 2));
    }
    assert!(!Token(as_token(at(2091))).is_credible(at(2026)));
}

/// Tokens continue from those of a server whose clock was 59 years ahead.
#[test]
fn what_is_far_ahead_of_the_clock_ends_below_2_to_the_53_all_the_same() {
    let at = |year: u64| EPOCH_ZERO + Duration::from_secs((year - 2025) * 31_556_952);
    let mut tokens = Tokens::default();
    tokens.begin_epoch(at(2026));
    tokens.observe(Token(as_token(at(2085))), at(2026));
    let mut last = Token(0);
    for year in 2026..2100 {
        tokens.follow_clock(at(year));
        let token = tokens.next();
        tokens.mark_replicated();
        let reached = tokens.reached(at(year)).unwrap();
        assert!(last < token && token <= reached && reached.is_credible(at(year)));
        last = token;
    }
}

/// A step in the life of a server; some tokens are granted after each.
#[derive(Clone, Debug)]
enum Step {
    /// Loads its files before the epoch begins, or after.
    Start {
        files_first: bool,
    },
    Promotion,
    /// Relative to the last token.
    Apply(i64),
    ApplyAny(u64),
    /// Relative to, and below, the greatest raise.
    Raise(u64),
    FollowClock,
    Observe(u64),
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        any::<bool>().prop_map(|files_first| Step::Start { files_first }),
        Just(Step::Promotion),
        (-1000..1_i64 << 30).prop_map(Step::Apply),
        (0..=1_u64 << 54).prop_map(Step::ApplyAny),
        (0..1000_u64).prop_map(Step::Raise),
        Just(Step::FollowClock),
        (0..=1_u64 << 54).prop_map(Step::Observe),
    ]
}

/// From 1970 to 2160, to the nanosecond.
fn clocks() -> impl Strategy<Value = Duration> {
    (0..6_000_000_000_u64, 0..1_000_000_000_u32)
        .prop_map(|(secs, nanos)| Duration::new(secs, nanos))
}

/// Grants tokens, and asserts that each is greater than all before it.
fn grant(tokens: &mut Tokens, count: u64, last: &mut Token) -> Result<(), TestCaseError> {
    for _ in 0..count {
        let token = tokens.next();
        prop_assert!(token > *last, "{token:?} after {last:?}: {tokens:?}");
        prop_assert!(token <= Token(Token::MAX));
        *last = token;
    }
    Ok(())
}

/// A server of a cluster, whose clock is ahead by this much.
struct Server {
    tokens: Tokens,
    wrong_us: u64,
    last: Token,
}

impl Server {
    fn clock(&self, now_us: u64) -> Duration {
        Duration::from_micros(now_us + self.wrong_us)
    }

    /// As the shell does.
    fn start(&mut self, now_us: u64) {
        self.tokens = Tokens::default();
        self.tokens.follow_clock(self.clock(now_us));
        self.tokens.begin_epoch(self.clock(now_us));
        self.tokens.apply(self.last);
        self.tokens.mark_replicated();
    }

    fn hear(&mut self, now_us: u64, reached: &[Option<Token>]) {
        let clock = self.clock(now_us);
        for token in reached.iter().flatten() {
            self.tokens.observe(*token, clock);
        }
    }
}

/// Each server observes the tokens that all have reached.
fn exchange(servers: &mut [Server], now_us: u64) {
    let reached: Vec<_> = { servers.iter() }
        .map(|server| server.tokens.reached(server.clock(now_us)))
        .collect();
    for server in servers {
        server.hear(now_us, &reached);
    }
}

proptest! {
    #[test]
    fn no_token_is_granted_twice_and_later_ones_are_greater_whatever_the_clock(
        steps in proptest::collection::vec((steps(), clocks(), 0..4_u64), 1..100)
    ) {
        let (mut tokens, mut last) = (Tokens::default(), Token(0));
        for (step, clock, count) in steps {
            match step {
                Step::Start { files_first } => {
                    tokens = Tokens::default();
                    if files_first {
                        tokens.apply(last);
                    }
                    tokens.begin_epoch(clock);
                    tokens.apply(last);
                }
                Step::Promotion => tokens.begin_epoch(clock),
                Step::Apply(_) | Step::ApplyAny(_) | Step::Raise(_) => {
                    let token = Token(match step {
                        Step::Apply(beyond) => last.0.saturating_add_signed(beyond),
                        Step::ApplyAny(token) => token,
                        Step::Raise(below) => Tokens::max_raise(clock).0.saturating_sub(below),
                        _ => unreachable!(),
                    });
                    if token.is_credible(clock) {
                        tokens.apply(token);
                        last = last.max(token);
                    }
                }
                Step::FollowClock => tokens.follow_clock(clock),
                Step::Observe(token) => tokens.observe(Token(token), clock),
            }
            let reached = tokens.reached(clock);
            prop_assert!(reached.is_none_or(|reached| (last..=Token(Token::MAX)).contains(&reached)));
            prop_assert!(tokens.last_given().is_none_or(|given| given >= last));
            grant(&mut tokens, count, &mut last)?;
        }
    }

    /// At most four tokens are granted per microsecond. The clock is set back by at most `START_AHEAD - RAISE_AHEAD`, and not
    /// before the time by which as many tokens could have been granted.
    #[test]
    fn a_start_without_files_begins_above_all_that_was_granted_or_raised(
        start_us in 0..2_000_000_000_000_000_u64,
        steps in proptest::collection::vec((1..30_u64, 0..3_000_000_u64, any::<bool>(), 0..120_u64), 1..20),
        back_us in 0..=(START_AHEAD - RAISE_AHEAD).as_micros() as u64,
    ) {
        let clock = |us| EPOCH_ZERO + Duration::from_micros(start_us + us);
        let (mut now_us, mut given, mut last) = (0, 0, Token(0));
        let mut tokens = Tokens::default();
        tokens.begin_epoch(clock(0));
        for (busy_us, idle_us, is_raised, count) in steps {
            now_us += busy_us;
            let count = count.min(4 * busy_us);
            given += count;
            grant(&mut tokens, count, &mut last)?;
            if is_raised && last > Token(0) {
                let most = Tokens::max_raise(clock(now_us));
                tokens.apply(most);
                last = last.max(most);
            }
            now_us += idle_us;
        }
        let back_us = back_us.min(now_us - given.div_ceil(4));
        let mut without_files = Tokens::default();
        without_files.begin_epoch(clock(now_us - back_us));
        grant(&mut without_files, 1, &mut last)?;
    }

    /// A slot migrates between servers; the one that gains it follows its clock. Clocks run at the same speed and may be an hour
    /// apart. All servers have observed each other since the last start.
    #[test]
    fn tokens_rise_wherever_a_slot_migrates(
        wrong_us in proptest::collection::vec(0..3_600_000_000_u64, 2..5),
        turns in proptest::collection::vec((any::<usize>(), 1..20_u64, 0..3_000_000_u64, 0..8_u8), 1..60),
    ) {
        let mut now_us = 1_800_000_000_000_000;
        let servers = wrong_us.into_iter().map(|wrong_us| {
            let tokens = Tokens::default();
            Server { tokens, wrong_us, last: Token(0) }
        });
        let mut servers: Vec<_> = servers.collect();
        servers.iter_mut().for_each(|server| server.start(now_us));
        exchange(&mut servers, now_us);
        let (mut owner, mut last) = (0, Token(0));
        for (which, count, idle_us, what) in turns {
            let which = which % servers.len();
            let server = &mut servers[which];
            match what {
                0 => server.start(now_us),
                1 => server.tokens.begin_epoch(server.clock(now_us)),
                _ => {
                    if owner != which {
                        server.tokens.follow_clock(server.clock(now_us));
                    }
                    owner = which;
                    grant(&mut server.tokens, count, &mut last)?;
                    server.last = last;
                }
            }
            // The time for the grants and a message.
            now_us += count.div_ceil(4) + 2;
            if what < 3 {
                exchange(&mut servers, now_us);
            }
            now_us += idle_us;
        }
    }
}
