//! Parses arguments. Total: any bytes give a request or an error.

#[cfg(test)]
mod tests;

use super::options::{
    AFTER, ALL, Ask, CLIENT, COUNT, CURSOR, GRACE, KEY, KEYSONLY, MATCH, NOTIFY, Options, RESET,
    SEQ, SINCE, TOKEN, WAIT, number_in, refuse_repeated, wait,
};
use super::table::{self, Verb};
use crate::engine::{MAX_GRACE_MS, MAX_MS, Mode, Token};
use std::fmt;

/// The default grace of a session.
const GRACE_MS: u64 = 10_000;

/// The most keys of one LOCK.MACQUIRE: all are granted in one step, which cannot be split into slices.
const MAX_KEYS: usize = 1024;

/// Defaults of COUNT.
const INFO_COUNT: u64 = 100;
/// The most holders, and waiters, that LOCK.INFO returns in one step.
const MAX_INFO_COUNT: u64 = 1000;
const LIST_COUNT: u64 = 10;
/// The most keys that LOCK.LIST looks at in one step, and the longest pattern, in bytes.
const MAX_LIST_COUNT: u64 = 1000;
const MAX_PATTERN: usize = 1024;
/// The most entries that LOCK.MINE returns in one step, and its default.
const MINE_COUNT: u64 = 1000;
const LOG_COUNT: u64 = 10;

/// A valid command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<'a, 'b> {
    Settp {
        key: &'a [u8],
        value: &'a [u8],
        token: bool,
        /// The key is the beginning of the name to make.
        sequential: bool,
        ask: Ask<'a>,
    },
    Deltp {
        keys: &'b [&'a [u8]],
    },
    Watchex {
        keys: &'b [&'a [u8]],
    },
    /// Without keys: every watch of the connection.
    Unwatchex {
        keys: &'b [&'a [u8]],
    },
    Watchtp {
        prefix: &'a [u8],
        /// With the next page.
        goes_on: bool,
        keys_only: bool,
    },
    /// Without a prefix: every such watch of the connection.
    Unwatchtp {
        prefix: Option<&'a [u8]>,
    },
    /// `LOCK.ACQUIRE` (one key) and `LOCK.MACQUIRE`.
    Acquire {
        keys: &'b [&'a [u8]],
        ask: Ask<'a>,
    },
    Release {
        key: &'a [u8],
        label: &'a [u8],
        all: bool,
    },
    Extend {
        key: &'a [u8],
        lease_ms: u64,
        label: &'a [u8],
    },
    Raise {
        key: &'a [u8],
        token: u64,
        label: &'a [u8],
    },
    Cancel {
        key: &'a [u8],
        label: &'a [u8],
    },
    Check {
        key: &'a [u8],
        token: u64,
    },
    Guard {
        key: &'a [u8],
        token: u64,
    },
    Info {
        key: &'a [u8],
        /// The most holders, and waiters, to return.
        count: u64,
    },
    List(List<'a>),
    Mine {
        cursor: u64,
        count: u64,
    },
    Log(Log<'a>),
    /// `LOCK.LOG RESET`.
    ResetLog,
    Why {
        key: &'a [u8],
    },
    Server,
    Start {
        grace_ms: u64,
    },
    Resume {
        secret: &'a [u8],
        notify: bool,
    },
    EndSession,
    Detach,
    Sessions,
    KillSession {
        id: u64,
    },
}

/// LOCK.LIST: one step of an iteration over the keys that are held or waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct List<'a> {
    pub cursor: u64,
    pub client: Option<u64>,
    pub pattern: Option<&'a [u8]>,
    pub count: u64,
}

/// LOCK.LOG: a query of the log of lost holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Log<'a> {
    pub key: Option<&'a [u8]>,
    pub count: u64,
    /// Only entries with a greater id.
    pub since: u64,
}

/// An invalid command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadInput {
    /// Reported in the server's own wording.
    WrongArity,
    UnknownOption(Box<[u8]>),
    Repeated(&'static str),
    RepeatedKey(Box<[u8]>),
    /// An option without its values.
    Incomplete(&'static str),
    NotANumber {
        what: &'static str,
        given: Box<[u8]>,
    },
    OutOfRange {
        what: &'static str,
        least: u64,
        most: u64,
    },
    PushWithoutWait,
    AcktimeoutWithoutAcks,
    ReentrantAcks,
    Exclude(&'static str, &'static str),
    EmptyPrefix,
    LongPattern,
    /// A command that `LOCK.GUARD` refuses to run.
    Unguarded(&'static str),
}

impl fmt::Display for BadInput {
    /// As the client sees it after the error code.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadInput::WrongArity => write!(f, "wrong number of arguments"),
            BadInput::UnknownOption(word) => {
                write!(f, "unknown option '{}'", shown(word))?;
                match &*table::commands_with(word) {
                    [] if is_time_to_live(word) => {
                        write!(f, "; for a time limit, LOCK.ACQUIRE has LEASE milliseconds")
                    }
                    [] => Ok(()),
                    [others @ .., last] if !others.is_empty() => {
                        write!(f, ", which {} and {last} know", others.join(", "))
                    }
                    [only, ..] => write!(f, ", which {only} knows"),
                }
            }
            BadInput::Repeated(option) => write!(f, "option {option} is repeated"),
            BadInput::RepeatedKey(key) => write!(f, "key '{}' is repeated", shown(key)),
            BadInput::Incomplete(option) => write!(f, "option {option} is incomplete"),
            BadInput::NotANumber { what, given } if is_time(what) => {
                write!(f, "{what} takes milliseconds, got '{}'", shown(given))
            }
            BadInput::NotANumber { what, given } => {
                write!(f, "{what} is not a number: '{}'", shown(given))
            }
            BadInput::OutOfRange { what, least, most } => {
                write!(f, "{what} is out of range, it goes from {least} to {most}")
            }
            BadInput::PushWithoutWait => write!(f, "option PUSH needs WAIT"),
            BadInput::AcktimeoutWithoutAcks => write!(f, "option ACKTIMEOUT needs ACKS"),
            BadInput::EmptyPrefix => write!(f, "the prefix is empty"),
            BadInput::LongPattern => {
                write!(f, "the pattern is longer than {MAX_PATTERN} bytes")
            }
            BadInput::ReentrantAcks => write!(f, "options ACKS and REENTRANT exclude each other"),
            BadInput::Unguarded(command) => write!(f, "LOCK.GUARD does not run '{command}'"),
            BadInput::Exclude(one, other) => {
                write!(f, "options {one} and {other} exclude each other")
            }
        }
    }
}

/// What is given in milliseconds.
fn is_time(what: &str) -> bool {
    matches!(
        what,
        "WAIT" | "LEASE" | "the lease" | "GRACE" | "ACKTIMEOUT"
    )
}

/// Options of SET by which other locks end.
fn is_time_to_live(word: &[u8]) -> bool {
    let names = ["EX", "PX", "TTL"];
    names
        .iter()
        .any(|name| word.eq_ignore_ascii_case(name.as_bytes()))
}

/// Escapes and truncates a client's bytes for an error message.
pub fn shown(word: &[u8]) -> impl fmt::Display + '_ {
    const MOST: usize = 64;
    word[..word.len().min(MOST)].escape_ascii()
}

/// Parses a command's arguments, without its name. O(arguments).
#[inline]
pub fn parse<'a, 'b>(verb: Verb, arguments: &'b [&'a [u8]]) -> Result<Request<'a, 'b>, BadInput> {
    let settp = |key, value, wait| Request::Settp {
        key,
        value,
        token: false,
        sequential: false,
        ask: Ask::of(Mode::Temporary, wait),
    };
    let acquire = |keys, wait| Request::Acquire {
        keys,
        ask: Ask::of(Mode::Exclusive, wait),
    };
    match (verb, arguments) {
        // Fast paths for the most frequent forms.
        (Verb::Settp, [key, value]) => Ok(settp(key, value, None)),
        (Verb::Settp, [key, value, option, ms]) if WAIT.is(option) => {
            Ok(settp(key, value, Some(wait(ms, false)?)))
        }
        (Verb::Acquire, [_]) => Ok(acquire(arguments, None)),
        (Verb::Acquire, [_, option, ms]) if WAIT.is(option) => {
            Ok(acquire(&arguments[..1], Some(wait(ms, false)?)))
        }
        (Verb::Deltp, keys @ [_, ..]) => Ok(Request::Deltp { keys }),
        (Verb::Release, [key]) => Ok(Request::Release {
            key,
            label: b"",
            all: false,
        }),
        _ => parse_any(verb, arguments),
    }
}

fn parse_any<'a, 'b>(verb: Verb, arguments: &'b [&'a [u8]]) -> Result<Request<'a, 'b>, BadInput> {
    let read = |options| Options::read(options, verb.options());
    match (verb, arguments) {
        (Verb::Settp, [key, value, options @ ..]) => settp(key, value, read(options)?),
        (Verb::Watchex, keys @ [_, ..]) => Ok(Request::Watchex { keys }),
        (Verb::Unwatchex, keys) => Ok(Request::Unwatchex { keys }),
        (Verb::Watchtp, [prefix, options @ ..]) => watchtp(prefix, options),
        (Verb::Unwatchtp, []) => Ok(Request::Unwatchtp { prefix: None }),
        (Verb::Unwatchtp, [prefix]) => Ok(Request::Unwatchtp {
            prefix: Some(prefix),
        }),
        (Verb::Acquire, [_, options @ ..]) => {
            let ask = read(options)?.ask_for_lock()?;
            let keys = &arguments[..1];
            Ok(Request::Acquire { keys, ask })
        }
        (Verb::Macquire, [number, rest @ ..]) => macquire(number, rest),
        (Verb::Release, [key, options @ ..]) => {
            let options = read(options)?;
            Ok(Request::Release {
                key,
                label: options.label(),
                all: options.has(ALL),
            })
        }
        (Verb::Extend, [key, ms, options @ ..]) => extend(key, ms, options),
        (Verb::Raise, [key, token, options @ ..]) => raise(key, token, options),
        (Verb::Cancel, [key, options @ ..]) => {
            let label = read(options)?.label();
            Ok(Request::Cancel { key, label })
        }
        (Verb::Check, [key, token]) => check(key, token),
        (Verb::Guard, [key, token, command, ..]) => guard(key, token, command),
        (Verb::Info, [key, options @ ..]) => info(key, read(options)?),
        (Verb::List, [cursor, options @ ..]) => list(cursor, read(options)?),
        (Verb::Mine, options) => mine(read(options)?),
        (Verb::Log, [option]) if RESET.is(option) => Ok(Request::ResetLog),
        (Verb::Log, options) => log(Options::read(options, &[KEY, COUNT, SINCE])?),
        (Verb::Why, [key]) => Ok(Request::Why { key }),
        (Verb::Server, []) => Ok(Request::Server),
        (Verb::Start, options) => start(read(options)?),
        (Verb::Resume, [secret, options @ ..]) => {
            let notify = read(options)?.has(NOTIFY);
            Ok(Request::Resume { secret, notify })
        }
        (Verb::End, []) => Ok(Request::EndSession),
        (Verb::Detach, []) => Ok(Request::Detach),
        (Verb::Sessions, []) => Ok(Request::Sessions),
        (Verb::KillSession, [id]) => {
            let id = number_in("the session's id", id, 0, u64::MAX)?;
            Ok(Request::KillSession { id })
        }
        _ => Err(BadInput::WrongArity),
    }
}

fn settp<'a, 'b>(
    key: &'a [u8],
    value: &'a [u8],
    options: Options<'a, 'b>,
) -> Result<Request<'a, 'b>, BadInput> {
    let ask = options.ask(Mode::Temporary)?;
    let sequential = options.has(SEQ);
    if sequential && ask.wait.is_some() {
        return Err(BadInput::Exclude("SEQ", "WAIT"));
    }
    Ok(Request::Settp {
        key,
        value,
        token: options.has(TOKEN),
        sequential,
        ask,
    })
}

/// The server knows with which name a page goes on.
fn watchtp<'a, 'b>(prefix: &'a [u8], options: &'b [&'a [u8]]) -> Result<Request<'a, 'b>, BadInput> {
    if prefix.is_empty() {
        return Err(BadInput::EmptyPrefix);
    }
    let options = Options::read(options, Verb::Watchtp.options())?;
    Ok(Request::Watchtp {
        prefix,
        goes_on: options.has(AFTER),
        keys_only: options.has(KEYSONLY),
    })
}

fn macquire<'a, 'b>(number: &[u8], rest: &'b [&'a [u8]]) -> Result<Request<'a, 'b>, BadInput> {
    let most = rest.len().clamp(1, MAX_KEYS) as u64;
    // The server checks the ACL of this many keys, and does not parse leading zeros.
    if number.starts_with(b"0") && number.len() > 1 {
        return Err(BadInput::NotANumber {
            what: "numkeys",
            given: number.into(),
        });
    }
    let count = number_in("numkeys", number, 1, most)? as usize;
    if rest.len() < count {
        return Err(BadInput::WrongArity);
    }
    let (keys, options) = rest.split_at(count);
    refuse_repeated(keys)?;
    let ask = Options::read(options, Verb::Macquire.options())?.ask(Mode::Exclusive)?;
    Ok(Request::Acquire { keys, ask })
}

fn extend<'a, 'b>(
    key: &'a [u8],
    ms: &[u8],
    options: &'b [&'a [u8]],
) -> Result<Request<'a, 'b>, BadInput> {
    Ok(Request::Extend {
        key,
        lease_ms: number_in("the lease", ms, 1, MAX_MS)?,
        label: Options::read(options, Verb::Extend.options())?.label(),
    })
}

fn raise<'a, 'b>(
    key: &'a [u8],
    token: &[u8],
    options: &'b [&'a [u8]],
) -> Result<Request<'a, 'b>, BadInput> {
    Ok(Request::Raise {
        key,
        token: number_in("the token", token, 0, Token::MAX)?,
        label: Options::read(options, Verb::Raise.options())?.label(),
    })
}

fn check<'a, 'b>(key: &'a [u8], token: &[u8]) -> Result<Request<'a, 'b>, BadInput> {
    let token = number_in("the token", token, 0, i64::MAX as u64)?;
    Ok(Request::Check { key, token })
}

/// These commands change the state of the client's connection, which an inner command does not have, or wait for its
/// writes. (The server itself refuses the other such commands in scripts.) And nested guards could be as deep as a command
/// is long.
fn guard<'a, 'b>(key: &'a [u8], token: &[u8], command: &[u8]) -> Result<Request<'a, 'b>, BadInput> {
    const REFUSED: [&str; 7] = [
        "asking",
        "lock.guard",
        "readonly",
        "readwrite",
        "select",
        "wait",
        "waitaof",
    ];
    let is_it = |name: &&&str| name.as_bytes().eq_ignore_ascii_case(command);
    if let Some(name) = REFUSED.iter().find(is_it) {
        return Err(BadInput::Unguarded(name));
    }
    let token = number_in("the token", token, 0, i64::MAX as u64)?;
    Ok(Request::Guard { key, token })
}

fn info<'a, 'b>(key: &'a [u8], options: Options<'a, 'b>) -> Result<Request<'a, 'b>, BadInput> {
    let count = options.number(COUNT, 1, MAX_INFO_COUNT)?;
    let count = count.unwrap_or(INFO_COUNT);
    Ok(Request::Info { key, count })
}

fn mine<'a, 'b>(options: Options<'a, 'b>) -> Result<Request<'a, 'b>, BadInput> {
    let count = options.number(COUNT, 1, MINE_COUNT)?;
    Ok(Request::Mine {
        cursor: options.number(CURSOR, 0, u64::MAX)?.unwrap_or(0),
        count: count.unwrap_or(MINE_COUNT),
    })
}

fn log<'a, 'b>(options: Options<'a, 'b>) -> Result<Request<'a, 'b>, BadInput> {
    Ok(Request::Log(Log {
        key: options.value(KEY),
        count: options.number(COUNT, 1, u64::MAX)?.unwrap_or(LOG_COUNT),
        since: options.number(SINCE, 0, u64::MAX)?.unwrap_or(0),
    }))
}

fn list<'a, 'b>(cursor: &[u8], options: Options<'a, 'b>) -> Result<Request<'a, 'b>, BadInput> {
    let count = options.number(COUNT, 1, u64::MAX)?;
    let pattern = options.value(MATCH);
    if pattern.is_some_and(|pattern| pattern.len() > MAX_PATTERN) {
        return Err(BadInput::LongPattern);
    }
    Ok(Request::List(List {
        cursor: number_in("the cursor", cursor, 0, u64::MAX)?,
        client: options.number(CLIENT, 0, u64::MAX)?,
        pattern,
        // It is about so many, so a greater number is no mistake.
        count: count.unwrap_or(LIST_COUNT).min(MAX_LIST_COUNT),
    }))
}

fn start<'a, 'b>(options: Options<'a, 'b>) -> Result<Request<'a, 'b>, BadInput> {
    let grace_ms = options.number(GRACE, 1, MAX_GRACE_MS)?;
    Ok(Request::Start {
        grace_ms: grace_ms.unwrap_or(GRACE_MS),
    })
}
