//! Fencing tokens: numbers that only rise.
//!
//! `token = epoch * 2^22 + sequence`. An epoch is begun when a server starts or is promoted, above
//! every epoch known; within it the sequence counts grants, and when it is used up the epoch grows
//! by one. So tokens rise without a clock read or a write per grant.

/// Proof of a grant, greater than that of every grant before it, for any key. Below 2^53, so that
/// every client's numbers can hold it, until the year 2038; after that still below 2^63.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Token(pub u64);

const SEQUENCE_BITS: u32 = 22;

/// Invariant: the next token is greater than `last`.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    last: Token,
}

impl Tokens {
    /// Begins a new epoch: the wall clock's seconds, or one more than the last where the clock is
    /// behind. The first token of an epoch has the sequence 1.
    pub fn begin_epoch(&mut self, wall_clock_s: u64) {
        let epoch = wall_clock_s.max((self.last.0 >> SEQUENCE_BITS) + 1);
        self.last = Token(epoch << SEQUENCE_BITS);
    }

    /// O(1). A sequence that is used up runs over into the epoch by itself.
    pub fn next(&mut self) -> Token {
        self.last.0 += 1;
        self.last
    }

    /// The last one given.
    pub fn last(&self) -> Token {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_rise_through_epochs_and_wrong_clocks() {
        let mut tokens = Tokens::default();
        let mut before = Token(0);
        for clock in [1_800_000_000, 1_900_000_000, 5, 1_900_000_001] {
            tokens.begin_epoch(clock);
            for _ in 0..3 {
                let token = tokens.next();
                assert!(token > before, "{token:?} after {before:?}");
                before = token;
            }
        }
        assert_eq!(before.0 >> SEQUENCE_BITS, 1_900_000_002);
        assert_eq!(before.0 & ((1 << SEQUENCE_BITS) - 1), 3);
    }

    #[test]
    fn a_sequence_that_is_used_up_takes_the_next_epoch() {
        let mut tokens = Tokens::default();
        tokens.begin_epoch(7);
        for _ in 0..1 << SEQUENCE_BITS {
            tokens.next();
        }
        assert_eq!(tokens.last(), Token(8 << SEQUENCE_BITS));
    }
}
