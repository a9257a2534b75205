//! What is persisted, and told from one server to the next: by a master's stream, the append-only file, an RDB file.
//!
//! Only sessions go on at another server, so of these all is told. Of other keys it is told that they are held, in what
//! mode and with what token ([`Event::Inherited`](super::event::Event::Inherited)), for their owners are connections, which end
//! with their server.
//!
//! A record in words: a command's name, fixed words, and then names, each with its value.
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
//! A `TETHER.HOLD` of a session that there is not ([`NO_SESSION`]) tells the raised token of a temporary key that a connection holds.
//! `TETHER.TOKEN ... tokens <packed>` tells those of the keys of the next `TETHER.BOUND`: see `command/pack.rs`.
//!
//! What a server does not know it skips or refuses: see `pairs.rs`. A number is in the range that it has when a client gives it.
//! The database is told apart.
//!
//! When you add a field of a hold: here, or of [`Terms`] in `terms.rs`. The version before skips its name, so without it must be
//! meant what that version does.

#[cfg(test)]
mod tests;

use crate::engine::mode::Mode;
use crate::engine::pairs::{self, MAX_WORDS, Pair, number, read_number, read_pairs, skip_pairs};
use crate::engine::terms::{MODE, NOTIFY, REENTRANT, Terms, read_lease, read_mode};
use crate::engine::types::{Db, Digest, KeyBuf, MAX_GRACE_MS, MAX_MS, SessionId, Token};

/// What sessions hold. Each can be told again without harm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionRecord {
    /// There is a session.
    Session {
        id: SessionId,
        digest: Digest,
        grace_ms: u64,
    },
    /// There is no such session any more. What it still holds is orphaned.
    SessionEnded(SessionId),
    /// A session holds a key, in this way and no other.
    Held(Held),
    /// A session does not hold a key any more, and the key is still there.
    Freed {
        session: SessionId,
        key: KeyBuf,
        label: Box<[u8]>,
        /// Of the hold that ended: the session may have the key by a later one. The version before did not tell it.
        token: Option<Token>,
    },
}

/// A grant that made a key; its owner is a connection or a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantRecord {
    pub mode: Mode,
    pub token: Token,
}

/// How a session holds a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub session: SessionId,
    pub key: KeyBuf,
    /// With what is left of its lease.
    pub terms: Terms<Box<[u8]>>,
    pub depth: u32,
    /// Below an exclusive hold: how often its owner has also taken it shared.
    pub shared_below: u32,
    pub token: Token,
    /// Somebody gave this temporary key a time to live, which goes before its backstop.
    pub timed: bool,
}

pub const HELD_KEY: &str = "TETHER.SETTP";
pub const HELD_LOCK: &str = "TETHER.LOCK";
pub const SESSION: &str = "TETHER.SESSION";
pub const HOLD: &str = "TETHER.HOLD";
pub const FREE: &str = "TETHER.FREE";

/// The number of no session: greater than any token that a server gives.
pub const NO_SESSION: SessionId = SessionId(Token::MAX);

/// The name of packed tokens.
pub const TOKENS: &[u8] = b"tokens";

/// No server tells of a deeper hold.
pub const MAX_DEPTH_ENCODED: u32 = 3 << 30;

const DEPTH: &[u8] = b"depth";
const BELOW: &[u8] = b"below";
const TOKEN: &[u8] = b"token";
const TIMED: &[u8] = b"timed";

impl GrantRecord {
    /// Understands the words after the key, and leaves the value to its reader. Total.
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

    /// The database whose key it is about, if it is about one.
    pub fn db(&self) -> Option<Db> {
        match self {
            SessionRecord::Held(held) => Some(held.key.db),
            SessionRecord::Freed { key, .. } => Some(key.db),
            SessionRecord::Session { .. } | SessionRecord::SessionEnded(_) => None,
        }
    }

    /// Understands [`words`](Self::words), those of the former version too. Total: nothing where they make no sense.
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

    /// What the fixed words say, and nothing yet of how the key is held.
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

    /// As 0.1.0 told of it: eight words, and flags of what is so. Nothing where it is told in another way, or makes no sense.
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
        // No name of today's is a mode's.
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

    /// Whether a key can be held so.
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

/// The word of a token.
pub fn read_token(word: &[u8]) -> Option<Token> {
    Token::checked(read_number(word, 1..=u64::MAX)?)
}

/// The word of a moment, in milliseconds since 1970.
pub fn read_moment_ms(word: &[u8]) -> Option<i64> {
    read_number(word, 1..=MAX_MS)?.try_into().ok()
}

/// Sessions have the numbers of tokens.
fn read_id(word: &[u8]) -> Option<SessionId> {
    read_token(word).map(|token| SessionId(token.0))
}

fn read_depth(word: &[u8], least: u64) -> Option<u32> {
    let depth = read_number(word, least..=MAX_DEPTH_ENCODED.into())?;
    depth.try_into().ok()
}

/// Bytes in lower-case hexadecimal digits.
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
