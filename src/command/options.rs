//! Options: words after a command's fixed arguments, each once, in any order.

use super::parse::BadInput;
use crate::engine::{Mode, Wait};

/// The longest time that can be given: some 285 thousand years.
pub(super) const MOST_MS: u64 = (1 << 53) - 1;

/// An option: its name, and how many words come after it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Word {
    name: &'static str,
    values: usize,
}

pub(super) const TOKEN: Word = word("TOKEN", 0);
pub(super) const WAIT: Word = word("WAIT", 1);
pub(super) const PUSH: Word = word("PUSH", 0);
pub(super) const SHARED: Word = word("SHARED", 0);
/// `PERMITS n OF total`
pub(super) const PERMITS: Word = word("PERMITS", 3);
pub(super) const OWNER: Word = word("OWNER", 1);
pub(super) const LEASE: Word = word("LEASE", 1);
pub(super) const ALL: Word = word("ALL", 0);
pub(super) const CLIENT: Word = word("CLIENT", 1);
pub(super) const MATCH: Word = word("MATCH", 1);
pub(super) const COUNT: Word = word("COUNT", 1);

const fn word(name: &'static str, values: usize) -> Word {
    Word { name, values }
}

/// The options that were given, each once, in any order.
pub(super) struct Options<'a> {
    /// There are few, so looking through them is quickest.
    given: Vec<(Word, [&'a [u8]; 3])>,
}

impl<'a> Options<'a> {
    pub fn read(mut words: &[&'a [u8]], known: &[Word]) -> Result<Self, BadInput> {
        let mut given: Vec<(Word, [&'a [u8]; 3])> = Vec::new();
        while let [first, rest @ ..] = words {
            let option = known
                .iter()
                .find(|option| first.eq_ignore_ascii_case(option.name.as_bytes()))
                .ok_or_else(|| BadInput::UnknownOption((*first).into()))?;
            if given.iter().any(|(earlier, _)| earlier == option) {
                return Err(BadInput::Repeated(option.name));
            }
            if rest.len() < option.values {
                return Err(BadInput::Incomplete(option.name));
            }
            let mut values: [&[u8]; 3] = [&[]; 3];
            values[..option.values].copy_from_slice(&rest[..option.values]);
            given.push((*option, values));
            words = &rest[option.values..];
        }
        Ok(Options { given })
    }

    fn values(&self, option: Word) -> Option<&[&'a [u8]; 3]> {
        let found = self.given.iter().find(|(given, _)| *given == option);
        found.map(|(_, values)| values)
    }

    pub fn has(&self, option: Word) -> bool {
        self.values(option).is_some()
    }

    pub fn value(&self, option: Word) -> Option<&'a [u8]> {
        self.values(option).map(|values| values[0])
    }

    pub fn number(&self, option: Word, least: u64, most: u64) -> Result<Option<u64>, BadInput> {
        let value = self.value(option);
        value
            .map(|value| number_in(option.name, value, least, most))
            .transpose()
    }

    pub fn label(&self) -> &'a [u8] {
        self.value(OWNER).unwrap_or_default()
    }

    pub fn wait(&self) -> Result<Option<Wait>, BadInput> {
        let push = self.has(PUSH);
        let Some(ms) = self.number(WAIT, 0, MOST_MS)? else {
            return if push {
                Err(BadInput::PushWithoutWait)
            } else {
                Ok(None)
            };
        };
        Ok(Some(Wait {
            limit_ms: (ms > 0).then_some(ms),
            push,
        }))
    }

    pub fn permits(&self) -> Result<Option<Mode>, BadInput> {
        let Some([count, of, total]) = self.values(PERMITS) else {
            return Ok(None);
        };
        if !of.eq_ignore_ascii_case(b"OF") {
            return Err(BadInput::Incomplete(PERMITS.name));
        }
        let total = number_in("the semaphore's total", total, 1, u32::MAX.into())?;
        let count = number_in("the number of permits", count, 1, total)?;
        Ok(Some(Mode::Permits {
            count: count as u32,
            total: total as u32,
        }))
    }
}

/// A plain decimal number.
pub(super) fn number_in(
    what: &'static str,
    word: &[u8],
    least: u64,
    most: u64,
) -> Result<u64, BadInput> {
    let text = std::str::from_utf8(word).unwrap_or_default();
    let is_number = !text.is_empty()
        && text
            .trim_start_matches('-')
            .bytes()
            .all(|c| c.is_ascii_digit());
    if !is_number {
        return Err(BadInput::NotANumber {
            what,
            given: word.into(),
        });
    }
    match text.parse() {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(BadInput::OutOfRange { what, least, most }),
    }
}
