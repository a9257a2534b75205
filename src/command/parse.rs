//! Parses arguments. Total: any bytes give a request or an error.

#[cfg(test)]
mod tests;

use super::options::{
    AFTER, ALL, Ask, CLIENT, COUNT, CURSOR, GRACE, KEY, KEYSONLY, MATCH, NOTIFY, Options, RESET,
    SEQ, SINCE, TOKEN, WAIT, number_in, shown, wait,
};
use super::table::{Spec, Verb};
use crate::engine::{MAX_GRACE_MS, MAX_MS, Mode, Terms, Token};

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

/// Why a command is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadInput {
    /// Reported in the server's own wording.
    WrongArity,
    /// As the client sees it after the error code.
    Because(String),
}

impl From<String> for BadInput {
    fn from(why: String) -> Self {
        BadInput::Because(why)
    }
}

/// Parses a command's arguments, without its name. O(arguments).
#[inline]
pub fn parse<'a, 'b>(spec: &Spec, arguments: &'b [&'a [u8]]) -> Result<Request<'a, 'b>, BadInput> {
    let ask = |mode, wait| Ask {
        terms: Terms::of(mode),
        wait,
    };
    let settp = |key, value, wait| Request::Settp {
        key,
        value,
        token: false,
        sequential: false,
        ask: ask(Mode::Temporary, wait),
    };
    let acquire = |keys, wait| Request::Acquire {
        keys,
        ask: ask(Mode::Exclusive, wait),
    };
    match (spec.verb, arguments) {
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
        _ => parse_any(spec, arguments),
    }
}

fn parse_any<'a, 'b>(spec: &Spec, arguments: &'b [&'a [u8]]) -> Result<Request<'a, 'b>, BadInput> {
    let read = |options| Options::read(options, spec.options);
    Ok(match (spec.verb, arguments) {
        (Verb::Settp, [key, value, options @ ..]) => {
            let options = read(options)?;
            Request::Settp {
                key,
                value,
                token: options.has(TOKEN),
                sequential: options.has(SEQ),
                ask: options.ask(Mode::Temporary)?,
            }
        }
        (Verb::Watchex, keys @ [_, ..]) => Request::Watchex { keys },
        (Verb::Unwatchex, keys) => Request::Unwatchex { keys },
        (Verb::Watchtp, [prefix, options @ ..]) => watchtp(prefix, &read(options)?)?,
        (Verb::Unwatchtp, []) => Request::Unwatchtp { prefix: None },
        (Verb::Unwatchtp, [prefix]) => Request::Unwatchtp {
            prefix: Some(prefix),
        },
        (Verb::Acquire, [_, options @ ..]) => {
            let options = read(options)?;
            Request::Acquire {
                keys: &arguments[..1],
                ask: options.ask(options.mode()?)?,
            }
        }
        (Verb::Macquire, [number, rest @ ..]) => macquire(number, rest, spec)?,
        (Verb::Release, [key, options @ ..]) => {
            let options = read(options)?;
            Request::Release {
                key,
                label: options.label(),
                all: options.has(ALL),
            }
        }
        (Verb::Extend, [key, ms, options @ ..]) => Request::Extend {
            key,
            lease_ms: number_in("the lease", ms, 1, MAX_MS)?,
            label: read(options)?.label(),
        },
        (Verb::Raise, [key, token, options @ ..]) => Request::Raise {
            key,
            token: number_in("the token", token, 0, Token::MAX)?,
            label: read(options)?.label(),
        },
        (Verb::Cancel, [key, options @ ..]) => Request::Cancel {
            key,
            label: read(options)?.label(),
        },
        (Verb::Check, [key, token]) => Request::Check {
            key,
            token: number_in("the token", token, 0, i64::MAX as u64)?,
        },
        (Verb::Guard, [key, token, command, ..]) => guard(key, token, command)?,
        _ => parse_other(spec, arguments)?,
    })
}

/// Reports and sessions.
fn parse_other<'a, 'b>(
    spec: &Spec,
    arguments: &'b [&'a [u8]],
) -> Result<Request<'a, 'b>, BadInput> {
    let read = |options| Options::read(options, spec.options);
    Ok(match (spec.verb, arguments) {
        (Verb::Info, [key, options @ ..]) => {
            let count = read(options)?.number(COUNT, 1, MAX_INFO_COUNT)?;
            let count = count.unwrap_or(INFO_COUNT);
            Request::Info { key, count }
        }
        (Verb::List, [cursor, options @ ..]) => list(cursor, &read(options)?)?,
        (Verb::Mine, options) => {
            let options = read(options)?;
            Request::Mine {
                cursor: options.number(CURSOR, 0, u64::MAX)?.unwrap_or(0),
                count: options.number(COUNT, 1, MINE_COUNT)?.unwrap_or(MINE_COUNT),
            }
        }
        (Verb::Log, options) => log(&read(options)?)?,
        (Verb::Why, [key]) => Request::Why { key },
        (Verb::Server, []) => Request::Server,
        (Verb::Start, options) => {
            let grace_ms = read(options)?.number(GRACE, 1, MAX_GRACE_MS)?;
            let grace_ms = grace_ms.unwrap_or(GRACE_MS);
            Request::Start { grace_ms }
        }
        (Verb::Resume, [secret, options @ ..]) => Request::Resume {
            secret,
            notify: read(options)?.has(NOTIFY),
        },
        (Verb::End, []) => Request::EndSession,
        (Verb::Detach, []) => Request::Detach,
        (Verb::Sessions, []) => Request::Sessions,
        (Verb::KillSession, [id]) => Request::KillSession {
            id: number_in("the session's id", id, 0, u64::MAX)?,
        },
        _ => return Err(BadInput::WrongArity),
    })
}

/// The server knows with which name a page goes on.
fn watchtp<'a, 'b>(prefix: &'a [u8], options: &Options) -> Result<Request<'a, 'b>, String> {
    if prefix.is_empty() {
        return Err("the prefix is empty".to_owned());
    }
    Ok(Request::Watchtp {
        prefix,
        goes_on: options.has(AFTER),
        keys_only: options.has(KEYSONLY),
    })
}

fn macquire<'a, 'b>(
    number: &[u8],
    rest: &'b [&'a [u8]],
    spec: &Spec,
) -> Result<Request<'a, 'b>, BadInput> {
    let most = rest.len().clamp(1, MAX_KEYS) as u64;
    // The server checks the ACL of this many keys, and does not parse leading zeros.
    if number.starts_with(b"0") && number.len() > 1 {
        return Err(format!("numkeys is not a number: '{}'", shown(number)).into());
    }
    let count = number_in("numkeys", number, 1, most)? as usize;
    let Some((keys, options)) = rest.split_at_checked(count) else {
        return Err(BadInput::WrongArity);
    };
    let mut sorted = keys.to_vec();
    sorted.sort_unstable();
    if let Some(pair) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(format!("key '{}' is repeated", shown(pair[0])).into());
    }
    let ask = Options::read(options, spec.options)?.ask(Mode::Exclusive)?;
    Ok(Request::Acquire { keys, ask })
}

/// These commands change the state of the client's connection, which an inner command does not have, or wait for its
/// writes. (The server itself refuses the other such commands in scripts.) And nested guards could be as deep as a command
/// is long.
fn guard<'a, 'b>(key: &'a [u8], token: &[u8], command: &[u8]) -> Result<Request<'a, 'b>, String> {
    const REFUSED: &str = "asking lock.guard readonly readwrite select wait waitaof";
    let is_it = |name: &&str| command.eq_ignore_ascii_case(name.as_bytes());
    if let Some(name) = REFUSED.split(' ').find(is_it) {
        return Err(format!("LOCK.GUARD does not run '{name}'"));
    }
    let token = number_in("the token", token, 0, i64::MAX as u64)?;
    Ok(Request::Guard { key, token })
}

fn log<'a, 'b>(options: &Options<'a, 'b>) -> Result<Request<'a, 'b>, String> {
    if options.has(RESET) {
        return Ok(Request::ResetLog);
    }
    Ok(Request::Log(Log {
        key: options.value(KEY),
        count: options.number(COUNT, 1, u64::MAX)?.unwrap_or(LOG_COUNT),
        since: options.number(SINCE, 0, u64::MAX)?.unwrap_or(0),
    }))
}

fn list<'a, 'b>(cursor: &[u8], options: &Options<'a, 'b>) -> Result<Request<'a, 'b>, String> {
    let count = options.number(COUNT, 1, u64::MAX)?;
    let pattern = options.value(MATCH);
    if pattern.is_some_and(|pattern| pattern.len() > MAX_PATTERN) {
        return Err(format!("the pattern is longer than {MAX_PATTERN} bytes"));
    }
    Ok(Request::List(List {
        cursor: number_in("the cursor", cursor, 0, u64::MAX)?,
        client: options.number(CLIENT, 0, u64::MAX)?,
        pattern,
        // It is about so many, so a greater number is no mistake.
        count: count.unwrap_or(LIST_COUNT).min(MAX_LIST_COUNT),
    }))
}
