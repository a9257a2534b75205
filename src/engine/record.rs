//! Records that are replicated and persisted: in the master's stream, the append-only file and RDB files.
//!
//! A session survives its server, so its records have everything. A connection ends with its server, so of a key that one holds
//! the record has only mode and token ([`Event::Inherited`](super::event::Event::Inherited)).
//!
//! A record is a command: its name, fixed arguments, then name-value pairs.
//!
//! ```text
//!   TETHER.SETTP key token value                     ... [name value]...
//!   TETHER.LOCK key token <mode>                     ... [name value]...
//!   TETHER.SESSION START id digest grace-ms          ... [name value]...
//!   TETHER.SESSION END id                            ... [name value]...
//!   TETHER.HOLD key id label mode <mode> token <n>   ... [name value]...      names: below, and in `terms.rs`
//!   TETHER.FREE key id label token <n>               ... [name value]...
//! ```
//!
//! `TETHER.FREE` with the id [`NO_SESSION`] says of a temporary key whose owner was gone that it is another client's now.
//! `TETHER.HOLD` with the id [`NO_SESSION`] has the raised token of a temporary key that a connection holds. `TETHER.TOKEN ...
//! tokens <packed>` has the tokens of the keys of the next `TETHER.BOUND`: see `command/pack.rs`.
//!
//! Unknown names are skipped or refused: see `pairs.rs`. The range of a number is that of the client's argument. A record does not
//! contain its database: that is the selected one, as for any command.
//!
//! To add a field of a hold: add it here, or to [`Terms`] in `terms.rs`. The previous version skips its name, so a record without
//! the name must mean what the previous version does.

#[cfg(test)]
mod tests;

use crate::engine::mode::Mode;
use crate::engine::pairs::{self, MAX_WORDS, Pair, number, read_number, read_pairs, skip_pairs};
use crate::engine::terms::{MODE, NOTIFY, REENTRANT, Terms, read_lease, read_mode};
use crate::engine::types::{Db, Digest, KeyBuf, MAX_GRACE_MS, MAX_MS, SessionId, Token};

/// A change of a session or of its holds. Idempotent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionRecord {
    /// The session exists.
    Session {
        id: SessionId,
        digest: Digest,
        grace_ms: u64,
    },
    /// The session ended. The holds that it has left are orphaned.
    SessionEnded(SessionId),
    /// A session's hold of a key; replaces its previous hold of the key with this label.
    Held(Held),
    /// A session's hold ended, and the key still exists.
    Freed {
        session: SessionId,
        key: KeyBuf,
        label: Box<[u8]>,
        /// The token of that hold: the session may hold the key by a later grant. 0.1.0 did not write it.
        token: Option<Token>,
    },
}

/// A grant that made a key; its owner is a connection or a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantRecord {
    pub mode: Mode,
    pub token: Token,
}

/// A session's hold of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub session: SessionId,
    pub key: KeyBuf,
    /// With the rest of its lease.
    pub terms: Terms<Box<[u8]>>,
    pub depth: u32,
    /// Of an exclusive hold: how often its owner has re-entered it as shared.
    pub shared_below: u32,
    pub token: Token,
    /// A client gave this temporary key a TTL, which takes precedence over the backstop.
    pub timed: bool,
}

pub const HELD_KEY: &str = "TETHER.SETTP";
pub const HELD_LOCK: &str = "TETHER.LOCK";
pub const SESSION: &str = "TETHER.SESSION";
pub const HOLD: &str = "TETHER.HOLD";
pub const FREE: &str = "TETHER.FREE";

/// The id of no session: greater than any token that a server grants.
pub const NO_SESSION: SessionId = SessionId(Token::MAX);

/// The name of the pair with packed tokens.
pub const TOKENS: &[u8] = b"tokens";

/// No record has a greater depth.
pub const MAX_DEPTH_ENCODED: u32 = 3 << 30;

const DEPTH: &[u8] = b"depth";
const BELOW: &[u8] = b"below";
const TOKEN: &[u8] = b"token";
const TIMED: &[u8] = b"timed";

impl GrantRecord {
    /// Parses the arguments after the key. Any bytes give a record or none; the value is not read.
    pub fn read(command: &str, words: &[&[u8]]) -> Option<Self> {
        let [token, value_or_mode, pairs @ ..] = words else {
            return None;
        };
        skip_pairs(pairs)?;
        let token = read_token(token)?;
        let mode = match command {
            HELD_KEY => Mode::Temporary,
            HELD_LOCK => read_mode(value_or_mode).filter(|mode| mode.is_lock())?,
            _ => return None,
        };
        Some(GrantRecord { mode, token })
    }
}

impl SessionRecord {
    /// The command's name and its arguments.
    pub fn words(&self) -> (&'static str, Vec<Vec<u8>>) {
        match self {
            SessionRecord::Session {
                id,
                digest,
                grace_ms,
            } => {
                let start = b"START".to_vec();
                let words = vec![start, number(id.0), hex(&digest.0), number(*grace_ms)];
                (SESSION, words)
            }
            SessionRecord::SessionEnded(id) => (SESSION, vec![b"END".to_vec(), number(id.0)]),
            SessionRecord::Held(held) => (HOLD, held.words()),
            SessionRecord::Freed {
                session,
                key,
                label,
                token,
            } => {
                let mut words = vec![key.name.to_vec(), number(session.0), label.to_vec()];
                if let Some(token) = token {
                    pairs::push(&mut words, TOKEN, number(token.0));
                }
                (FREE, words)
            }
        }
    }

    /// The database of its key, if it has one.
    pub fn db(&self) -> Option<Db> {
        match self {
            SessionRecord::Held(held) => Some(held.key.db),
            SessionRecord::Freed { key, .. } => Some(key.db),
            SessionRecord::Session { .. } | SessionRecord::SessionEnded(_) => None,
        }
    }

    /// Parses [`words`](Self::words), also those of the previous version. Any bytes give a record or none.
    pub fn read(command: &str, db: Db, words: &[&[u8]]) -> Option<Self> {
        if words.len() > MAX_WORDS {
            return None;
        }
        match (command, words) {
            (SESSION, [b"START", id, digest, grace, pairs @ ..]) => {
                skip_pairs(pairs)?;
                Some(SessionRecord::Session {
                    id: read_id(id)?,
                    digest: Digest(unhex(digest)?),
                    grace_ms: read_number(grace, 1..=MAX_GRACE_MS)?,
                })
            }
            (SESSION, [b"END", id, pairs @ ..]) => {
                skip_pairs(pairs)?;
                read_id(id).map(SessionRecord::SessionEnded)
            }
            (HOLD, words) => {
                let held = Held::read_former(db, words).or_else(|| Held::read(db, words));
                held.map(SessionRecord::Held)
            }
            (FREE, [name, id, label, pairs @ ..]) => {
                let mut token = None;
                read_pairs(pairs, |name, value| match name {
                    TOKEN => Pair::set(&mut token, read_token(value).map(Some)),
                    _ => Pair::Unknown,
                })?;
                Some(SessionRecord::Freed {
                    session: read_id(id)?,
                    key: key(db, name),
                    label: (*label).into(),
                    token,
                })
            }
            _ => None,
        }
    }
}

impl Held {
    fn words(&self) -> Vec<Vec<u8>> {
        let (id, label) = (number(self.session.0), self.terms.label.to_vec());
        let mut words = vec![self.key.name.to_vec(), id, label];
        self.terms.write(&mut words);
        pairs::push(&mut words, TOKEN, number(self.token.0));
        if self.depth != 1 {
            pairs::push(&mut words, DEPTH, number(self.depth.into()));
        }
        if self.shared_below > 0 {
            pairs::push(&mut words, BELOW, number(self.shared_below.into()));
        }
        if self.timed {
            pairs::push(&mut words, TIMED, pairs::yes());
        }
        words
    }

    /// A record with the fixed arguments, and defaults for all else.
    fn begin(db: Db, [name, id, label]: [&[u8]; 3]) -> Option<Held> {
        Some(Held {
            session: read_id(id)?,
            key: key(db, name),
            terms: Terms {
                label: label.into(),
                ..Terms::of(Mode::Exclusive)
            },
            depth: 1,
            shared_below: 0,
            token: Token::default(),
            timed: false,
        })
    }

    fn read(db: Db, words: &[&[u8]]) -> Option<Held> {
        let [name, id, label, pairs @ ..] = words else {
            return None;
        };
        let mut held = Held::begin(db, [name, id, label])?;
        let mut has_mode = false;
        read_pairs(pairs, |name, value| {
            has_mode |= name == MODE;
            held.read_pair(name, value)
        })?;
        (has_mode && held.token != Token::default() && held.makes_sense()).then_some(held)
    }

    /// Parses the format of 0.1.0: eight arguments, then flags. None if they are not in that format, or invalid.
    ///
    /// ```text
    ///   key id label mode depth shared-below token lease-ms [timed] [reentrant] [notify]
    /// ```
    fn read_former(db: Db, words: &[&[u8]]) -> Option<Held> {
        const NO_LEASE: &[u8] = b"-";
        let [
            name,
            id,
            label,
            mode,
            depth,
            below,
            token,
            lease,
            flags @ ..,
        ] = words
        else {
            return None;
        };
        let mut held = Held {
            depth: read_depth(depth, 1)?,
            shared_below: read_depth(below, 0)?,
            token: read_token(token)?,
            ..Held::begin(db, [name, id, label])?
        };
        // In today's format this word is the name of a pair, and no such name is a mode.
        held.terms.mode = read_mode(mode)?;
        if *lease != NO_LEASE {
            held.terms.lease_ms = Some(read_lease(lease)?);
        }
        for word in flags {
            let mark = match *word {
                TIMED => &mut held.timed,
                REENTRANT => &mut held.terms.attributes.reentrant,
                NOTIFY => &mut held.terms.attributes.notify,
                _ => return None,
            };
            if std::mem::replace(mark, true) {
                return None;
            }
        }
        held.makes_sense().then_some(held)
    }

    fn read_pair(&mut self, name: &[u8], value: &[u8]) -> Pair {
        match name {
            TOKEN => Pair::set(&mut self.token, read_token(value)),
            DEPTH => Pair::set(&mut self.depth, read_depth(value, 1)),
            BELOW => Pair::set(&mut self.shared_below, read_depth(value, 0)),
            TIMED => Pair::set(&mut self.timed, pairs::read_yes(value)),
            name => self.terms.read_pair(name, value),
        }
    }

    /// Whether such a hold can exist.
    fn makes_sense(&self) -> bool {
        let mode = self.terms.mode;
        let may_have_below = mode != Mode::Shared && mode.reenters_as(Mode::Shared);
        let depths = u64::from(self.depth) + u64::from(self.shared_below);
        self.terms.make_sense()
            && (self.shared_below == 0 || may_have_below)
            && (self.depth == 1 || mode.is_lock())
            && depths <= MAX_DEPTH_ENCODED.into()
    }
}

fn key(db: Db, name: &[u8]) -> KeyBuf {
    KeyBuf {
        db,
        name: name.into(),
    }
}

/// Parses a token.
pub fn read_token(word: &[u8]) -> Option<Token> {
    Token::checked(read_number(word, 1..=u64::MAX)?)
}

/// Parses a time in milliseconds since 1970.
pub fn read_moment_ms(word: &[u8]) -> Option<i64> {
    read_number(word, 1..=MAX_MS)?.try_into().ok()
}

/// Session ids are in the range of tokens.
fn read_id(word: &[u8]) -> Option<SessionId> {
    read_token(word).map(|token| SessionId(token.0))
}

fn read_depth(word: &[u8], least: u64) -> Option<u32> {
    let depth = read_number(word, least..=MAX_DEPTH_ENCODED.into())?;
    depth.try_into().ok()
}

/// Encodes bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> Vec<u8> {
    let digit = |half: u8| b"0123456789abcdef"[usize::from(half)];
    let digits = bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]);
    digits.collect()
}

fn unhex(word: &[u8]) -> Option<[u8; 32]> {
    let text = std::str::from_utf8(word).ok()?;
    if text.len() != 64 || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; 32];
    for (place, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * place..2 * place + 2], 16).ok()?;
    }
    Some(bytes)
}
