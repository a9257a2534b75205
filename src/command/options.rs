//! Options: the words after a command's fixed arguments, each at most once, in any order. Each is declared here, for the parser and
//! for `COMMAND DOCS`; a command's row in `table.rs` says which of them it takes.

use super::parse::BadInput;
use crate::engine::{AskedAcks, Attributes, MAX_MS, Mode, ModeKind, Terms, Wait};
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

/// An option: its index, its name, the number of the words that follow its name, and its arguments.
#[derive(Clone, Copy, Debug)]
pub struct Word {
    number: usize,
    name: &'static str,
    values: usize,
    pub arguments: &'static [Argument],
}

pub(super) const TOKEN: Word = word(0, &[flag("TOKEN", "token")]);
pub(super) const WAIT: Word = word(1, &[integer("WAIT", "wait-ms")]);
pub(super) const PUSH: Word = word(2, &[flag("PUSH", "push")]);
pub(super) const SHARED: Word = word(3, &[flag(ModeKind::Shared.option(), "shared")]);
pub(super) const PERMITS: Word = word(
    4,
    &[
        integer(ModeKind::Permits.option(), "permits"),
        integer("OF", "total"),
    ],
);
pub(super) const OWNER: Word = word(5, &[string("OWNER", "label")]);
pub(super) const LEASE: Word = word(6, &[integer("LEASE", "lease-ms")]);
pub(super) const ALL: Word = word(7, &[flag("ALL", "all")]);
pub(super) const CLIENT: Word = word(8, &[integer("CLIENT", "client-id")]);
pub(super) const MATCH: Word = word(9, &[option("MATCH", "pattern", ArgumentKind::Pattern)]);
pub(super) const COUNT: Word = word(10, &[integer("COUNT", "count")]);
pub(super) const GRACE: Word = word(11, &[integer("GRACE", "grace-ms")]);
pub(super) const REENTRANT: Word = word(12, &[flag("REENTRANT", "reentrant")]);
pub(super) const NOTIFY: Word = word(13, &[flag("NOTIFY", "notify")]);
pub(super) const KEY: Word = word(14, &[string("KEY", "key")]);
pub(super) const SINCE: Word = word(15, &[integer("SINCE", "id")]);
pub(super) const RESET: Word = word(16, &[flag("RESET", "reset")]);
pub(super) const ACKS: Word = word(17, &[integer("ACKS", "replicas")]);
pub(super) const ACKTIMEOUT: Word = word(18, &[integer("ACKTIMEOUT", "acktimeout-ms")]);
pub(super) const TASK: Word = word(19, &[string("TASK", "task")]);
pub(super) const CURSOR: Word = word(20, &[integer("CURSOR", "cursor")]);
pub(super) const SEQ: Word = word(21, &[flag("SEQ", "seq")]);
pub(super) const AFTER: Word = word(22, &[string("AFTER", "key")]);
pub(super) const KEYSONLY: Word = word(23, &[flag("KEYSONLY", "keysonly")]);

const WORDS: usize = 24;

/// Default of ACKTIMEOUT.
const ACKTIMEOUT_MS: u64 = 1000;

/// One day.
const MAX_ACKTIMEOUT_MS: u64 = 86_400_000;

/// The greatest ACKS. Bounded, since grants are counted separately per number of replicas.
const MAX_ACKS: u64 = 64;

impl Word {
    /// Compares byte by byte: faster than the library's comparison for such short names.
    pub fn is(self, word: &[u8]) -> bool {
        let mut pairs = word.iter().zip(self.name.bytes());
        word.len() == self.name.len() && pairs.all(|(c, own)| c.to_ascii_uppercase() == own)
    }
}

const fn word(number: usize, arguments: &'static [Argument]) -> Word {
    assert!(number < WORDS);
    // The value of each argument, and the names of all but the first.
    let (mut values, mut place) = (arguments.len() - 1, 0);
    while place < arguments.len() {
        values += !matches!(arguments[place].kind, ArgumentKind::Flag) as usize;
        place += 1;
    }
    let Some(name) = arguments[0].token else {
        panic!("an option has a name")
    };
    Word {
        number,
        name,
        values,
        arguments,
    }
}

const fn option(token: &'static str, name: &'static str, kind: ArgumentKind) -> Argument {
    Argument {
        name,
        token: Some(token),
        kind,
        optional: true,
        multiple: false,
    }
}

const fn flag(token: &'static str, name: &'static str) -> Argument {
    option(token, name, ArgumentKind::Flag)
}

const fn integer(token: &'static str, name: &'static str) -> Argument {
    option(token, name, ArgumentKind::Integer)
}

const fn string(token: &'static str, name: &'static str) -> Argument {
    option(token, name, ArgumentKind::String)
}

/// The options of LOCK.MACQUIRE, LOCK.ACQUIRE and SETTP.
pub(super) const OF_LOCKS: &[Word] = &[
    OWNER, TASK, LEASE, REENTRANT, NOTIFY, WAIT, PUSH, ACKS, ACKTIMEOUT,
];
pub(super) const OF_LOCK: &[Word] = &[
    SHARED, PERMITS, OWNER, TASK, LEASE, REENTRANT, NOTIFY, WAIT, PUSH, ACKS, ACKTIMEOUT,
];
pub(super) const OF_TEMPORARY: &[Word] = &[TOKEN, SEQ, NOTIFY, TASK, WAIT, PUSH, ACKS, ACKTIMEOUT];

/// Modes that are an option without values.
const MODES: &[(Word, Mode)] = &[(SHARED, Mode::Shared)];

/// The terms of a request, and whether it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask<'a> {
    pub terms: Terms<&'a [u8]>,
    pub wait: Option<Wait>,
}

impl Ask<'_> {
    /// With no other options.
    #[inline]
    pub fn of(mode: Mode, wait: Option<Wait>) -> Self {
        let terms = Terms::of(mode);
        Ask { terms, wait }
    }
}

/// The options of a command.
pub(super) struct Options<'a, 'b> {
    words: &'b [&'a [u8]],
    /// For each option, by its index: the position of its values among the words; 0 if the option is absent.
    after: [u8; WORDS],
}

impl<'a, 'b> Options<'a, 'b> {
    pub fn read(words: &'b [&'a [u8]], known: &[Word]) -> Result<Self, BadInput> {
        let mut after = [0; WORDS];
        let mut left = words;
        while let [first, rest @ ..] = left {
            let option = known
                .iter()
                .find(|option| option.is(first))
                .ok_or_else(|| BadInput::UnknownOption((*first).into()))?;
            let place = &mut after[option.number];
            if *place > 0 {
                return Err(BadInput::Repeated(option.name));
            }
            // Each option occurs once, so the position is small.
            *place = (words.len() - rest.len()) as u8;
            let Some(rest) = rest.get(option.values..) else {
                return Err(BadInput::Incomplete(option.name));
            };
            left = rest;
        }
        Ok(Options { words, after })
    }

    pub fn has(&self, option: Word) -> bool {
        self.after[option.number] > 0
    }

    pub fn value(&self, option: Word) -> Option<&'a [u8]> {
        self.values(option)?.first().copied()
    }

    fn values(&self, option: Word) -> Option<&'b [&'a [u8]]> {
        let after = usize::from(self.after[option.number]);
        (after > 0).then(|| &self.words[after..after + option.values])
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
        match self.value(WAIT) {
            Some(ms) => wait(ms, push).map(Some),
            None if push => Err(BadInput::PushWithoutWait),
            None => Ok(None),
        }
    }

    pub fn acks(&self) -> Result<Option<AskedAcks>, BadInput> {
        let timeout_ms = self.number(ACKTIMEOUT, 1, MAX_ACKTIMEOUT_MS)?;
        let replicas = self.number(ACKS, 1, MAX_ACKS)?;
        let Some(replicas) = replicas.and_then(|number| NonZeroU32::new(number as u32)) else {
            return match timeout_ms {
                Some(_) => Err(BadInput::AcktimeoutWithoutAcks),
                None => Ok(None),
            };
        };
        if self.has(REENTRANT) {
            return Err(BadInput::ReentrantAcks);
        }
        let timeout_ms = timeout_ms.unwrap_or(ACKTIMEOUT_MS) as u32;
        Ok(Some(AskedAcks {
            replicas,
            timeout_ms,
        }))
    }

    /// PUSH implies NOTIFY: a client that gets the grant as a push gets a loss as one.
    pub fn attributes(&self) -> Attributes {
        Attributes {
            reentrant: self.has(REENTRANT),
            notify: self.has(NOTIFY) || self.has(PUSH),
        }
    }

    /// Parses the options of LOCK.ACQUIRE, with a mode.
    pub fn ask_for_lock(&self) -> Result<Ask<'a>, BadInput> {
        let permits = self.permits()?.map(|permits| (PERMITS, permits));
        let words = MODES.iter().copied().filter(|(word, _)| self.has(*word));
        let mut modes = words.chain(permits);
        match (modes.next(), modes.next()) {
            (Some((one, _)), Some((other, _))) => Err(BadInput::Exclude(one.name, other.name)),
            (only, _) => self.ask(only.map_or(Mode::Exclusive, |(_, mode)| mode)),
        }
    }

    pub fn ask(&self, mode: Mode) -> Result<Ask<'a>, BadInput> {
        let lease_ms = self.number(LEASE, 1, MAX_MS)?;
        let wait = self.wait()?;
        let terms = Terms {
            mode,
            label: self.label(),
            task: self.value(TASK),
            attributes: self.attributes(),
            lease_ms,
            acks: self.acks()?,
        };
        Ok(Ask { terms, wait })
    }

    fn permits(&self) -> Result<Option<Mode>, BadInput> {
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

/// Parses the value of WAIT.
pub(super) fn wait(ms: &[u8], push: bool) -> Result<Wait, BadInput> {
    let ms = number_in(WAIT.name, ms, 0, MAX_MS)?;
    let limit_ms = (ms > 0).then_some(ms);
    Ok(Wait { limit_ms, push })
}

/// Parses a decimal number within bounds.
pub(super) fn number_in(
    what: &'static str,
    word: &[u8],
    least: u64,
    most: u64,
) -> Result<u64, BadInput> {
    // Fast path for one digit, mostly WAIT 0.
    if let [digit @ b'0'..=b'9'] = word
        && (least..=most).contains(&u64::from(digit - b'0'))
    {
        return Ok(u64::from(digit - b'0'));
    }
    // A number of this many digits fits the type.
    const SHORT: usize = 19;
    let digits = word.iter().map(|c| u64::from(c.wrapping_sub(b'0')));
    if (1..=SHORT).contains(&word.len()) && digits.clone().all(|digit| digit <= 9) {
        let number = digits.fold(0, |number, digit| number * 10 + digit);
        return if (least..=most).contains(&number) {
            Ok(number)
        } else {
            Err(BadInput::OutOfRange { what, least, most })
        };
    }
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

/// Refuses a key that is named twice.
pub(super) fn refuse_repeated(keys: &[&[u8]]) -> Result<(), BadInput> {
    let mut sorted = keys.to_vec();
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(BadInput::RepeatedKey(pair[0].into())),
        None => Ok(()),
    }
}
