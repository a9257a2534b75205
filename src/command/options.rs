//! Options: the words after a command's fixed arguments, each at most once, in any order. Each is declared here, for the parser and
//! for `COMMAND DOCS`; a command's row in `table.rs` says which of them it takes.

use self::ArgumentKind::{Flag, Integer};
use crate::engine::{AskedAcks, Attributes, MAX_MS, Mode, ModeKind, Terms, Wait};
use std::fmt::Display;
use std::num::NonZeroU32;

/// One argument, for `COMMAND DOCS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument {
    pub name: &'static str,
    /// The option's name, if it is one.
    pub token: Option<&'static str>,
    pub kind: ArgumentKind,
    pub optional: bool,
    pub multiple: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgumentKind {
    Key,
    String,
    Integer,
    Pattern,
    /// An option without a value.
    Flag,
}

/// An option: its number, which no other has, and its arguments, of which the first has its name.
#[derive(Clone, Copy, Debug)]
pub struct Word(usize, pub &'static [Argument]);

pub(super) const TOKEN: Word = Word(0, &[option("TOKEN", "token", Flag)]);
pub(super) const WAIT: Word = Word(1, &[option("WAIT", "wait-ms", Integer)]);
pub(super) const PUSH: Word = Word(2, &[option("PUSH", "push", Flag)]);
pub(super) const SHARED: Word = Word(3, &[option(ModeKind::Shared.option(), "shared", Flag)]);
pub(super) const PERMITS: Word = Word(
    4,
    &[
        option(ModeKind::Permits.option(), "permits", Integer),
        option("OF", "total", Integer),
    ],
);
pub(super) const OWNER: Word = Word(5, &[option("OWNER", "label", ArgumentKind::String)]);
pub(super) const LEASE: Word = Word(6, &[option("LEASE", "lease-ms", Integer)]);
pub(super) const ALL: Word = Word(7, &[option("ALL", "all", Flag)]);
pub(super) const CLIENT: Word = Word(8, &[option("CLIENT", "client-id", Integer)]);
pub(super) const MATCH: Word = Word(9, &[option("MATCH", "pattern", ArgumentKind::Pattern)]);
pub(super) const COUNT: Word = Word(10, &[option("COUNT", "count", Integer)]);
pub(super) const GRACE: Word = Word(11, &[option("GRACE", "grace-ms", Integer)]);
pub(super) const REENTRANT: Word = Word(12, &[option("REENTRANT", "reentrant", Flag)]);
pub(super) const NOTIFY: Word = Word(13, &[option("NOTIFY", "notify", Flag)]);
pub(super) const KEY: Word = Word(14, &[option("KEY", "key", ArgumentKind::String)]);
pub(super) const SINCE: Word = Word(15, &[option("SINCE", "id", Integer)]);
pub(super) const RESET: Word = Word(16, &[option("RESET", "reset", Flag)]);
pub(super) const ACKS: Word = Word(17, &[option("ACKS", "replicas", Integer)]);
pub(super) const ACKTIMEOUT: Word = Word(18, &[option("ACKTIMEOUT", "acktimeout-ms", Integer)]);
pub(super) const TASK: Word = Word(19, &[option("TASK", "task", ArgumentKind::String)]);
pub(super) const CURSOR: Word = Word(20, &[option("CURSOR", "cursor", Integer)]);
pub(super) const SEQ: Word = Word(21, &[option("SEQ", "seq", Flag)]);
pub(super) const AFTER: Word = Word(22, &[option("AFTER", "key", ArgumentKind::String)]);
pub(super) const KEYSONLY: Word = Word(23, &[option("KEYSONLY", "keysonly", Flag)]);

/// How many options there are.
const WORDS: usize = 24;

/// The options of LOCK.MACQUIRE, LOCK.ACQUIRE and SETTP.
pub(super) const OF_LOCKS: &[Word] = &[
    OWNER, TASK, LEASE, REENTRANT, NOTIFY, WAIT, PUSH, ACKS, ACKTIMEOUT,
];
pub(super) const OF_LOCK: &[Word] = &[
    SHARED, PERMITS, OWNER, TASK, LEASE, REENTRANT, NOTIFY, WAIT, PUSH, ACKS, ACKTIMEOUT,
];
pub(super) const OF_TEMPORARY: &[Word] = &[TOKEN, SEQ, NOTIFY, TASK, WAIT, PUSH, ACKS, ACKTIMEOUT];

/// Options that need another one.
const NEEDS: [(Word, Word); 2] = [(PUSH, WAIT), (ACKTIMEOUT, ACKS)];

/// Options that exclude each other.
const EXCLUDE: [(Word, Word); 6] = [
    (SHARED, PERMITS),
    (ACKS, REENTRANT),
    (SEQ, WAIT),
    (RESET, KEY),
    (RESET, COUNT),
    (RESET, SINCE),
];

/// Default of ACKTIMEOUT.
const ACKTIMEOUT_MS: u64 = 1000;

/// One day.
const MAX_ACKTIMEOUT_MS: u64 = 86_400_000;

/// The greatest ACKS. Bounded, since grants are counted separately per number of replicas.
const MAX_ACKS: u64 = 64;

const fn option(token: &'static str, name: &'static str, kind: ArgumentKind) -> Argument {
    Argument {
        name,
        token: Some(token),
        kind,
        optional: true,
        multiple: false,
    }
}

impl Word {
    /// Compares byte by byte: faster than the library's comparison for such short names.
    pub fn is(self, word: &[u8]) -> bool {
        let mut pairs = word.iter().zip(self.name().bytes());
        word.len() == self.name().len() && pairs.all(|(c, own)| c.to_ascii_uppercase() == own)
    }

    fn name(self) -> &'static str {
        self.1[0].token.unwrap_or_default()
    }

    /// How many words follow its name: the value of each argument, and the names of all but the first.
    fn values(self) -> usize {
        let with_value = self.1.iter().filter(|argument| argument.kind != Flag);
        with_value.count() + self.1.len() - 1
    }
}

/// The terms of a request, and whether it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask<'a> {
    pub terms: Terms<&'a [u8]>,
    pub wait: Option<Wait>,
}

/// The options that a command is given: the values of each, by its number.
pub(super) struct Options<'a, 'b>([Option<Values<'a, 'b>>; WORDS]);

type Values<'a, 'b> = &'b [&'a [u8]];

impl<'a, 'b> Options<'a, 'b> {
    pub fn read(mut words: &'b [&'a [u8]], known: &[Word]) -> Result<Self, String> {
        let mut options = Options([None; WORDS]);
        while let [first, rest @ ..] = words {
            let Some(option) = known.iter().find(|option| option.is(first)) else {
                return Err(unknown(first, known));
            };
            if options.has(*option) {
                return Err(format!("option {} is repeated", option.name()));
            }
            let Some((values, rest)) = rest.split_at_checked(option.values()) else {
                return Err(incomplete(*option));
            };
            options.0[option.0] = Some(values);
            words = rest;
        }
        options.check_together()?;
        Ok(options)
    }

    fn check_together(&self) -> Result<(), String> {
        for (one, other) in NEEDS {
            if self.has(one) && !self.has(other) {
                let (one, other) = (one.name(), other.name());
                return Err(format!("option {one} needs {other}"));
            }
        }
        for (one, other) in EXCLUDE {
            if self.has(one) && self.has(other) {
                let (one, other) = (one.name(), other.name());
                return Err(format!("options {one} and {other} exclude each other"));
            }
        }
        Ok(())
    }

    pub fn has(&self, option: Word) -> bool {
        self.values(option).is_some()
    }

    pub fn value(&self, option: Word) -> Option<&'a [u8]> {
        self.values(option)?.first().copied()
    }

    fn values(&self, option: Word) -> Option<Values<'a, 'b>> {
        self.0[option.0]
    }

    pub fn number(&self, option: Word, least: u64, most: u64) -> Result<Option<u64>, String> {
        let number = |value| number_in(option.name(), value, least, most);
        self.value(option).map(number).transpose()
    }

    pub fn label(&self) -> &'a [u8] {
        self.value(OWNER).unwrap_or_default()
    }

    fn acks(&self) -> Result<Option<AskedAcks>, String> {
        let timeout_ms = self.number(ACKTIMEOUT, 1, MAX_ACKTIMEOUT_MS)?;
        let replicas = self.number(ACKS, 1, MAX_ACKS)?;
        let replicas = replicas.and_then(|number| NonZeroU32::new(number as u32));
        Ok(replicas.map(|replicas| AskedAcks {
            replicas,
            timeout_ms: timeout_ms.unwrap_or(ACKTIMEOUT_MS) as u32,
        }))
    }

    pub fn ask(&self, mode: Mode) -> Result<Ask<'a>, String> {
        let lease_ms = self.number(LEASE, 1, MAX_MS)?;
        let wait = self.value(WAIT).map(|ms| wait(ms, self.has(PUSH)));
        let terms = Terms {
            mode,
            label: self.label(),
            task: self.value(TASK),
            attributes: Attributes {
                reentrant: self.has(REENTRANT),
                // A client that gets the grant as a push gets a loss as one.
                notify: self.has(NOTIFY) || self.has(PUSH),
            },
            lease_ms,
            acks: self.acks()?,
        };
        let wait = wait.transpose()?;
        Ok(Ask { terms, wait })
    }

    /// The mode of a lock.
    pub fn mode(&self) -> Result<Mode, String> {
        let Some([count, of, total]) = self.values(PERMITS) else {
            return Ok(match self.has(SHARED) {
                true => Mode::Shared,
                false => Mode::Exclusive,
            });
        };
        if !of.eq_ignore_ascii_case(b"OF") {
            return Err(incomplete(PERMITS));
        }
        let total = number_in("the semaphore's total", total, 1, u32::MAX.into())?;
        let count = number_in("the number of permits", count, 1, total)?;
        Ok(Mode::Permits {
            count: count as u32,
            total: total as u32,
        })
    }
}

/// Names the options that the command takes.
fn unknown(word: &[u8], known: &[Word]) -> String {
    let known: Vec<_> = known.iter().map(|option| option.name()).collect();
    let (word, known) = (shown(word), known.join(", "));
    format!("unknown option '{word}', the options are {known}")
}

fn incomplete(option: Word) -> String {
    format!("option {} is incomplete", option.name())
}

/// Parses the value of WAIT.
pub(super) fn wait(ms: &[u8], push: bool) -> Result<Wait, String> {
    let ms = number_in(WAIT.name(), ms, 0, MAX_MS)?;
    let limit_ms = (ms > 0).then_some(ms);
    Ok(Wait { limit_ms, push })
}

/// Parses a decimal number within bounds.
pub(super) fn number_in(what: &str, word: &[u8], least: u64, most: u64) -> Result<u64, String> {
    let number = str::from_utf8(word).ok().and_then(|word| word.parse().ok());
    // `parse` takes a plus sign, too.
    match number {
        Some(number) if (least..=most).contains(&number) && word[0] != b'+' => Ok(number),
        _ => Err(refused_number(what, word, least, most)),
    }
}

fn refused_number(what: &str, word: &[u8], least: u64, most: u64) -> String {
    let digits = word.strip_prefix(b"-").unwrap_or(word);
    match !digits.is_empty() && digits.iter().all(u8::is_ascii_digit) {
        true => format!("{what} is out of range, it goes from {least} to {most}"),
        false => format!("{what} is not a number: '{}'", shown(word)),
    }
}

/// Escapes and truncates a client's bytes for an error message.
pub fn shown(word: &[u8]) -> impl Display + '_ {
    const MOST: usize = 64;
    word[..word.len().min(MOST)].escape_ascii()
}
