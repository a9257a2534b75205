//! What servers tell each other of sessions, in words: for replicas and the append-only file as commands, for RDB files
//! as they are.
//!
//! ```text
//!   TETHER.SESSION START id digest grace-ms
//!   TETHER.SESSION END id
//!   TETHER.HOLD key id label mode depth shared-below token lease-ms [timed] [reentrant]
//!     [notify]
//!   TETHER.FREE key id label                    mode: temporary, exclusive, shared, permits/2/3
//!                                               lease-ms: - where there is none
//! ```
//!
//! A number is in the range that it has when a client gives it, or the words make no sense. The database is told apart. When you change a word, servers of the former version will not understand it.

#[cfg(test)]
mod tests;

use super::options::{MOST_MS, number_in};
use super::parse::LONGEST_GRACE_MS;
use crate::engine::{
    Attributes, Db, Digest, Held, KeyBuf, MOST_DEPTH_TOLD, Mode, ModeKind, SessionId,
    SessionRecord, Token,
};

/// The command's name and its arguments.
pub fn words_of(record: &SessionRecord) -> (&'static str, Vec<Vec<u8>>) {
    match record {
        SessionRecord::Session {
            id,
            digest,
            grace_ms,
        } => (
            SESSION,
            vec![
                b"START".to_vec(),
                number(id.0),
                hex(&digest.0),
                number(*grace_ms),
            ],
        ),
        SessionRecord::SessionEnded(id) => (SESSION, vec![b"END".to_vec(), number(id.0)]),
        SessionRecord::Held(held) => (HOLD, words_of_held(held)),
        SessionRecord::Freed {
            session,
            key,
            label,
        } => (
            FREE,
            vec![key.name.to_vec(), number(session.0), label.to_vec()],
        ),
    }
}

fn words_of_held(held: &Held) -> Vec<Vec<u8>> {
    let mut words = vec![
        held.key.name.to_vec(),
        number(held.session.0),
        held.label.to_vec(),
        mode_word(held.mode),
        number(held.depth.into()),
        number(held.shared_below.into()),
        number(held.token.0),
        held.lease_ms.map_or(NO_LEASE.to_vec(), number),
    ];
    words.extend(held.timed.then(|| TIMED.to_vec()));
    words.extend(held.attributes.reentrant.then(|| REENTRANT.to_vec()));
    words.extend(held.attributes.notify.then(|| NOTIFY.to_vec()));
    words
}

/// So many words say how a key is held; after them may stand:
const HELD: usize = 8;
const TIMED: &[u8] = b"timed";
const REENTRANT: &[u8] = b"reentrant";
const NOTIFY: &[u8] = b"notify";
const NO_LEASE: &[u8] = b"-";

pub const SESSION: &str = "TETHER.SESSION";
pub const HOLD: &str = "TETHER.HOLD";
pub const FREE: &str = "TETHER.FREE";

/// No command has more.
pub const MOST_WORDS: usize = HELD + 3;

/// The database whose key it is about, if it is about one.
pub fn db_of(record: &SessionRecord) -> Option<Db> {
    match record {
        SessionRecord::Held(held) => Some(held.key.db),
        SessionRecord::Freed { key, .. } => Some(key.db),
        SessionRecord::Session { .. } | SessionRecord::SessionEnded(_) => None,
    }
}

/// Understands such words. Total: nothing where they make no sense.
pub fn read_record(name: &str, db: Db, words: &[&[u8]]) -> Option<SessionRecord> {
    let key = |name: &[u8]| KeyBuf {
        db,
        name: name.into(),
    };
    match (name, words) {
        (SESSION, [b"START", id, digest, grace]) => Some(SessionRecord::Session {
            id: read_id(id)?,
            digest: Digest(unhex(digest)?),
            grace_ms: read(grace, 1, LONGEST_GRACE_MS)?,
        }),
        (SESSION, [b"END", id]) => Some(SessionRecord::SessionEnded(read_id(id)?)),
        (HOLD, words) => {
            let (words, besides) = words.split_at_checked(HELD)?;
            let mut held = read_held(db, words)?;
            for word in besides {
                match *word {
                    TIMED if !held.timed => held.timed = true,
                    REENTRANT if held.mode.is_lock() && !held.attributes.reentrant => {
                        held.attributes.reentrant = true;
                    }
                    NOTIFY if !held.attributes.notify => held.attributes.notify = true,
                    _ => return None,
                }
            }
            Some(SessionRecord::Held(held))
        }
        (FREE, [name, id, label]) => Some(SessionRecord::Freed {
            session: read_id(id)?,
            key: key(name),
            label: (*label).into(),
        }),
        _ => None,
    }
}

fn read_held(db: Db, words: &[&[u8]]) -> Option<Held> {
    let [name, id, label, mode, depth, below, token, lease] = words else {
        return None;
    };
    let mode = read_mode(mode)?;
    let (depth, shared_below) = read_depths(depth, below)?;
    let may_have_below = mode != Mode::Shared && mode.reenters_as(Mode::Shared);
    let has_below = shared_below > 0 && !may_have_below;
    let is_more = !label.is_empty() || depth > 1 || *lease != NO_LEASE;
    if has_below || mode == Mode::Temporary && is_more {
        return None;
    }
    Some(Held {
        session: read_id(id)?,
        key: KeyBuf {
            db,
            name: (*name).into(),
        },
        label: (*label).into(),
        mode,
        attributes: Attributes::default(),
        depth,
        shared_below,
        token: read_token(token)?,
        lease_ms: match *lease {
            NO_LEASE => None,
            lease => Some(read(lease, 0, MOST_MS)?),
        },
        timed: false,
    })
}

fn number(value: u64) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn read(word: &[u8], least: u64, most: u64) -> Option<u64> {
    number_in("", word, least, most).ok()
}

/// The word of a token.
pub fn read_token(word: &[u8]) -> Option<Token> {
    Token::checked(read(word, 1, u64::MAX)?)
}

/// The word of a moment, in milliseconds since 1970.
pub fn read_moment_ms(word: &[u8]) -> Option<i64> {
    read(word, 1, MOST_MS)?.try_into().ok()
}

/// Sessions have the numbers of tokens.
fn read_id(word: &[u8]) -> Option<SessionId> {
    read_token(word).map(|token| SessionId(token.0))
}

fn read_depths(depth: &[u8], below: &[u8]) -> Option<(u32, u32)> {
    let most = u64::from(MOST_DEPTH_TOLD);
    let depth = read(depth, 1, most)?;
    let below = read(below, 0, most - depth)?;
    Some((depth.try_into().ok()?, below.try_into().ok()?))
}

fn mode_word(mode: Mode) -> Vec<u8> {
    let word = mode.kind().word();
    match mode {
        Mode::Permits { count, total } => format!("{word}/{count}/{total}").into_bytes(),
        _ => word.into(),
    }
}

fn read_mode(word: &[u8]) -> Option<Mode> {
    let mut parts = word.splitn(3, |byte| *byte == b'/');
    let kind = ModeKind::with_word(parts.next()?)?;
    let permits = match (parts.next(), parts.next()) {
        (None, _) => None,
        (Some(count), total) => {
            let total = read(total?, 1, u32::MAX.into())?;
            let count = read(count, 1, total)?;
            Some((count.try_into().ok()?, total.try_into().ok()?))
        }
    };
    Mode::of(kind, permits)
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
