//! Name-value pairs: the extensible part of records that are replicated and persisted.
//!
//! A reader skips an unknown name that begins with a lower-case letter, and refuses the record otherwise. So a newer version
//! begins a name with a capital if it must not be skipped. Each name occurs once.

use std::ops::RangeInclusive;

/// The result of reading a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pair {
    Taken,
    /// The name is unknown.
    Unknown,
    /// The name is known, and the value is invalid.
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

/// The limit of names and values in a record, for all versions.
pub const MAX_WORDS: usize = 64;

/// Calls `take` for each pair. None if the words are not pairs or too many, a name is repeated, or a pair is refused.
pub fn read_pairs(words: &[&[u8]], mut take: impl FnMut(&[u8], &[u8]) -> Pair) -> Option<()> {
    let (pairs, rest) = words.as_chunks::<2>();
    if !rest.is_empty() || words.len() > MAX_WORDS {
        return None;
    }
    for (at, [name, value]) in pairs.iter().enumerate() {
        let is_repeated = pairs[..at].iter().any(|[earlier, _]| earlier == name);
        let is_optional = name.first()?.is_ascii_lowercase();
        match take(name, value) {
            Pair::Taken if !is_repeated => {}
            Pair::Unknown if !is_repeated && is_optional => {}
            _ => return None,
        }
    }
    Some(())
}

/// The same without known names.
pub fn skip_pairs(words: &[&[u8]]) -> Option<()> {
    read_pairs(words, |_, _| Pair::Unknown)
}

pub fn push(words: &mut Vec<Vec<u8>>, name: &[u8], value: Vec<u8>) {
    words.extend([name.to_vec(), value]);
}

const YES: &[u8] = b"yes";

/// The value of a flag that is set; a flag that is not set has no pair.
pub fn yes() -> Vec<u8> {
    YES.to_vec()
}

pub fn read_yes(value: &[u8]) -> Option<bool> {
    (value == YES).then_some(true)
}

/// In decimal.
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
    fn an_unknown_name_is_skipped_if_lower_case_and_refused_otherwise() {
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
        let many: Vec<_> = (0..=MAX_WORDS).map(|n| format!("n{n}")).collect();
        let many: Vec<&[u8]> = many.iter().map(String::as_bytes).collect();
        assert_eq!(skip_pairs(&many[..64]), Some(()));
        assert_eq!(skip_pairs(&many), None);
    }
}
