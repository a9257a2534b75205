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

use super::parse::LONGEST_GRACE_MS;
use crate::engine::{
    Db, Digest, Held, KeyBuf, MOST_DEPTH_TOLD, MOST_MARKS, MOST_MS, Mode, SessionId, SessionRecord,
    Terms, Token, read_number,
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
    let [label, mode, lease] = held.terms.words();
    let mut words = vec![
        held.key.name.to_vec(),
        number(held.session.0),
        label,
        mode,
        number(held.depth.into()),
        number(held.shared_below.into()),
        number(held.token.0),
        lease,
    ];
    words.extend(held.timed.then(|| TIMED.to_vec()));
    words.extend(held.terms.marks());
    words
}

/// So many words say how a key is held; after them may stand this one, and marks of its terms.
const HELD: usize = 8;
const TIMED: &[u8] = b"timed";

pub const SESSION: &str = "TETHER.SESSION";
pub const HOLD: &str = "TETHER.HOLD";
pub const FREE: &str = "TETHER.FREE";

/// No command has more.
pub const MOST_WORDS: usize = HELD + 1 + MOST_MARKS;

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
            grace_ms: read_number(grace, 1..=LONGEST_GRACE_MS)?,
        }),
        (SESSION, [b"END", id]) => Some(SessionRecord::SessionEnded(read_id(id)?)),
        (HOLD, words) => {
            let (words, besides) = words.split_at_checked(HELD)?;
            let mut held = read_held(db, words)?;
            for word in besides {
                match *word {
                    TIMED if !held.timed => held.timed = true,
                    mark => held.terms.read_mark(mark)?,
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
    let terms: Terms<Box<[u8]>> = Terms::read([label, mode, lease])?;
    let (depth, shared_below) = read_depths(depth, below)?;
    let may_have_below = terms.mode != Mode::Shared && terms.mode.reenters_as(Mode::Shared);
    if shared_below > 0 && !may_have_below || depth > 1 && !terms.mode.is_lock() {
        return None;
    }
    Some(Held {
        session: read_id(id)?,
        key: KeyBuf {
            db,
            name: (*name).into(),
        },
        terms,
        depth,
        shared_below,
        token: read_token(token)?,
        timed: false,
    })
}

fn number(value: u64) -> Vec<u8> {
    value.to_string().into_bytes()
}

/// The word of a token.
pub fn read_token(word: &[u8]) -> Option<Token> {
    Token::checked(read_number(word, 1..=u64::MAX)?)
}

/// The word of a moment, in milliseconds since 1970.
pub fn read_moment_ms(word: &[u8]) -> Option<i64> {
    read_number(word, 1..=MOST_MS)?.try_into().ok()
}

/// Sessions have the numbers of tokens.
fn read_id(word: &[u8]) -> Option<SessionId> {
    read_token(word).map(|token| SessionId(token.0))
}

fn read_depths(depth: &[u8], below: &[u8]) -> Option<(u32, u32)> {
    let most = u64::from(MOST_DEPTH_TOLD);
    let depth = read_number(depth, 1..=most)?;
    let below = read_number(below, 0..=most - depth)?;
    Some((depth.try_into().ok()?, below.try_into().ok()?))
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
