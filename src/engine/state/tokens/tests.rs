//! Tokens by examples, and by whatever steps and clocks.

use super::*;
use proptest::prelude::*;

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
        assert!(!Token(Token::MAX).is_credible(clock));
        assert!(!Token(Token::MAX - ROOM + 1).is_credible(clock));
        assert_eq!(Token(as_token(at(2055))).is_credible(clock), believed);
        let mut tokens = Tokens::default();
        tokens.begin_epoch(clock);
        assert!(tokens.last().is_credible(clock));
        tokens.hear(Token(Token::MAX), clock);
        tokens.hear(Token(Token::MAX - ROOM), clock);
        tokens.know(Tokens::most_to_raise_to(clock));
        tokens.follow_clock(clock);
        for _ in 0..1000 {
            tokens.begin_epoch(clock);
        }
        assert!(tokens.next() < Token(Token::MAX - ROOM / 2));
    }
    assert!(!Token(as_token(at(2091))).is_credible(at(2026)));
}

/// A server whose clock was 59 years ahead has given tokens, and all go on from there.
#[test]
fn what_is_far_ahead_of_the_clock_ends_below_2_to_the_53_all_the_same() {
    let at = |year: u64| EPOCH_ZERO + Duration::from_secs((year - 2025) * 31_556_952);
    let mut tokens = Tokens::default();
    tokens.begin_epoch(at(2026));
    tokens.hear(Token(as_token(at(2085))), at(2026));
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

/// What happens to a server's tokens. Some are given after each.
#[derive(Clone, Debug)]
enum Step {
    /// With its files, which are read before the epoch begins or after it.
    Start {
        files_first: bool,
    },
    Promotion,
    /// Somewhere below or above the last token, or any.
    Know(i64),
    KnowAny(u64),
    /// So far below the greatest to which one may be raised.
    Raise(u64),
    FollowClock,
    Hear(u64),
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        any::<bool>().prop_map(|files_first| Step::Start { files_first }),
        Just(Step::Promotion),
        (-1000..1_i64 << 30).prop_map(Step::Know),
        (0..=1_u64 << 54).prop_map(Step::KnowAny),
        (0..1000_u64).prop_map(Step::Raise),
        Just(Step::FollowClock),
        (0..=1_u64 << 54).prop_map(Step::Hear),
    ]
}

/// From 1970 to 2160, to the nanosecond.
fn clocks() -> impl Strategy<Value = Duration> {
    (0..6_000_000_000_u64, 0..1_000_000_000_u32)
        .prop_map(|(secs, nanos)| Duration::new(secs, nanos))
}

/// Gives so many, which must be greater than the last of all.
fn give(tokens: &mut Tokens, count: u64, last: &mut Token) -> Result<(), TestCaseError> {
    for _ in 0..count {
        let token = tokens.next();
        prop_assert!(token > *last, "{token:?} after {last:?}: {tokens:?}");
        prop_assert!(token <= Token(Token::MAX));
        *last = token;
    }
    Ok(())
}

/// A server of a cluster, whose clock is wrong by so much.
struct Server {
    tokens: Tokens,
    wrong_us: u64,
    last: Token,
}

impl Server {
    fn clock(&self, now_us: u64) -> Duration {
        Duration::from_micros(now_us + self.wrong_us)
    }

    /// As the shell starts it.
    fn start(&mut self, now_us: u64) {
        self.tokens = Tokens::default();
        self.tokens.follow_clock(self.clock(now_us));
        self.tokens.begin_epoch(self.clock(now_us));
        self.tokens.know(self.last);
        self.tokens.mark_replicated();
    }

    fn hear(&mut self, now_us: u64, reached: &[Option<Token>]) {
        let clock = self.clock(now_us);
        for token in reached.iter().flatten() {
            self.tokens.hear(*token, clock);
        }
    }
}

/// Each hears what all have come to.
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
    fn no_token_is_given_twice_and_later_ones_are_greater_whatever_the_clock(
        steps in proptest::collection::vec((steps(), clocks(), 0..4_u64), 1..100)
    ) {
        let (mut tokens, mut last) = (Tokens::default(), Token(0));
        for (step, clock, count) in steps {
            match step {
                Step::Start { files_first } => {
                    tokens = Tokens::default();
                    if files_first {
                        tokens.know(last);
                    }
                    tokens.begin_epoch(clock);
                    tokens.know(last);
                }
                Step::Promotion => tokens.begin_epoch(clock),
                Step::Know(_) | Step::KnowAny(_) | Step::Raise(_) => {
                    let token = Token(match step {
                        Step::Know(beyond) => last.0.saturating_add_signed(beyond),
                        Step::KnowAny(token) => token,
                        Step::Raise(below) => Tokens::most_to_raise_to(clock).0.saturating_sub(below),
                        _ => unreachable!(),
                    });
                    if token.is_credible(clock) {
                        tokens.know(token);
                        last = last.max(token);
                    }
                }
                Step::FollowClock => tokens.follow_clock(clock),
                Step::Hear(token) => tokens.hear(Token(token), clock),
            }
            let reached = tokens.reached(clock);
            prop_assert!(reached.is_none_or(|reached| (last..=Token(Token::MAX)).contains(&reached)));
            prop_assert!(tokens.last_given().is_none_or(|given| given >= last));
            give(&mut tokens, count, &mut last)?;
        }
    }

    /// At most four are given in a microsecond. The clock is set back by no more than the room between the bounds of raises and
    /// starts, and not so far that more was given than it says.
    #[test]
    fn a_start_without_files_begins_above_all_that_was_given_or_raised(
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
            give(&mut tokens, count, &mut last)?;
            if is_raised && last > Token(0) {
                let most = Tokens::most_to_raise_to(clock(now_us));
                tokens.know(most);
                last = last.max(most);
            }
            now_us += idle_us;
        }
        let back_us = back_us.min(now_us - given.div_ceil(4));
        let mut without_files = Tokens::default();
        without_files.begin_epoch(clock(now_us - back_us));
        give(&mut without_files, 1, &mut last)?;
    }

    /// A slot goes around; whoever gains it follows its clock, which goes on as all do, but may be wrong by an hour. All have heard of
    /// each other since the last start.
    #[test]
    fn tokens_rise_wherever_a_slot_goes(
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
                    give(&mut server.tokens, count, &mut last)?;
                    server.last = last;
                }
            }
            // For what is given meanwhile, and a message.
            now_us += count.div_ceil(4) + 2;
            if what < 3 {
                exchange(&mut servers, now_us);
            }
            now_us += idle_us;
        }
    }
}
