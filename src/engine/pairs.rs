//! Names, each with its value, in which servers tell each other what may grow from one version to the next.
//!
//! A server that does not know a name skips it if it begins with a small letter, and refuses the whole if it does not. So a
//! newer version begins with a capital what must not be overlooked. Each name comes once.

use std::ops::RangeInclusive;

/// What became of a name and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pair {
    Taken,
    /// The name is not known.
    Unknown,
    /// The name is known, and the value makes no sense.
    Refused,
}

impl Pair {
    pub fn set<T>(field: &mut T, value: Option<T>) -> Pair {
        match value {
            Some(value) => {
                *field = value;
                Pair::Taken
            }
            None => Pair::Refused,
        }
    }
}

/// So many words at most, of whatever version.
pub const MOST_WORDS: usize = 64;

/// Gives each name with its value to `take`. Nothing where they are no pairs or too many, where a name comes twice, and where one
/// is refused.
pub fn read_pairs(words: &[&[u8]], mut take: impl FnMut(&[u8], &[u8]) -> Pair) -> Option<()> {
    let (pairs, rest) = words.as_chunks::<2>();
    if !rest.is_empty() || words.len() > MOST_WORDS {
        return None;
    }
    for (at, [name, value]) in pairs.iter().enumerate() {
        let is_again = pairs[..at].iter().any(|[former, _]| former == name);
        let may_be_skipped = name.first()?.is_ascii_lowercase();
        match take(name, value) {
            Pair::Taken if !is_again => {}
            Pair::Unknown if !is_again && may_be_skipped => {}
            _ => return None,
        }
    }
    Some(())
}

/// The same where no name is known yet.
pub fn skip_pairs(words: &[&[u8]]) -> Option<()> {
    read_pairs(words, |_, _| Pair::Unknown)
}

/// Adds a name with its value.
pub fn push(words: &mut Vec<Vec<u8>>, name: &[u8], value: Vec<u8>) {
    words.extend([name.to_vec(), value]);
}

const YES: &[u8] = b"yes";

/// The value of what is so, or else is not told.
pub fn yes() -> Vec<u8> {
    YES.to_vec()
}

pub fn read_yes(value: &[u8]) -> Option<bool> {
    (value == YES).then_some(true)
}

/// A plain decimal number.
pub fn number(value: u64) -> Vec<u8> {
    value.to_string().into_bytes()
}

pub fn read_number(word: &[u8], range: RangeInclusive<u64>) -> Option<u64> {
    let digits = word.iter().map(|c| c.wrapping_sub(b'0'));
    let mut number: u64 = 0;
    for digit in digits {
        let digit = (digit <= 9).then_some(u64::from(digit))?;
        number = number.checked_mul(10)?.checked_add(digit)?;
    }
    (!word.is_empty() && range.contains(&number)).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_letter_may_be_skipped_and_a_capital_may_not() {
        let read = |words: &str| {
            let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
            let mut seen = 0;
            read_pairs(&words, |name, value| match name {
                b"known" => Pair::set(&mut seen, read_number(value, 0..=9)),
                _ => Pair::Unknown,
            })
            .map(|()| seen)
        };
        assert_eq!(read("known 7"), Some(7));
        assert_eq!(read("new x known 7 other-NEW 9"), Some(7));
        for refused in [
            "known",
            "known 7 new",
            "known 10",
            "known 7 known 7",
            "new 1 new 1",
            "known 7 New 1",
            "NEW 1 known 7",
            "1 1",
            " 1",
        ] {
            assert_eq!(read(refused), None, "{refused}");
        }
        assert_eq!(skip_pairs(&[]), Some(()));
        let many: Vec<_> = (0..=MOST_WORDS).map(|n| format!("n{n}")).collect();
        let many: Vec<&[u8]> = many.iter().map(String::as_bytes).collect();
        assert_eq!(skip_pairs(&many[..64]), Some(()));
        assert_eq!(skip_pairs(&many), None);
    }
}
