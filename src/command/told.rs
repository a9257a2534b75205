//! What servers tell each other of sessions, in words: for replicas and the append-only file as commands, for RDB files
//! as they are.
//!
//! ```text
//!   TETHER.SESSION START id digest grace-ms
//!   TETHER.SESSION END id
//!   TETHER.HOLD key id label mode depth shared-below token lease-ms [timed]
//!   TETHER.FREE key id label                    mode: temporary, exclusive, shared, permits/2/3
//!                                               lease-ms: - where there is none
//! ```
//!
//! The database is told apart. When you change a word, servers of the former version will not understand it.

use crate::engine::{Db, Digest, Held, KeyBuf, Mode, SessionId, Token, Told};

/// The command's name and its arguments.
pub fn words_of(told: &Told) -> (&'static str, Vec<Vec<u8>>) {
    match told {
        Told::Session {
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
        Told::SessionEnded(id) => (SESSION, vec![b"END".to_vec(), number(id.0)]),
        Told::Held(held) => (HOLD, words_of_held(held)),
        Told::Freed {
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
        held.lease_ms.map_or(b"-".to_vec(), number),
    ];
    words.extend(held.timed.then(|| TIMED.to_vec()));
    words
}

const TIMED: &[u8] = b"timed";

pub const SESSION: &str = "TETHER.SESSION";
pub const HOLD: &str = "TETHER.HOLD";
pub const FREE: &str = "TETHER.FREE";

/// The database whose key it is about, if it is about one.
pub fn db_of(told: &Told) -> Option<Db> {
    match told {
        Told::Held(held) => Some(held.key.db),
        Told::Freed { key, .. } => Some(key.db),
        Told::Session { .. } | Told::SessionEnded(_) => None,
    }
}

/// Understands such words. Total: nothing where they make no sense.
pub fn told(name: &str, db: Db, words: &[&[u8]]) -> Option<Told> {
    let key = |name: &[u8]| KeyBuf {
        db,
        name: name.into(),
    };
    match (name, words) {
        (SESSION, [b"START", id, digest, grace]) => Some(Told::Session {
            id: SessionId(read(id)?),
            digest: Digest(unhex(digest)?),
            grace_ms: read(grace)?,
        }),
        (SESSION, [b"END", id]) => Some(Told::SessionEnded(SessionId(read(id)?))),
        (HOLD, [words @ .., last]) if *last == TIMED => {
            let held = read_held(db, words)?;
            let timed = true;
            Some(Told::Held(Held { timed, ..held }))
        }
        (HOLD, words) => read_held(db, words).map(Told::Held),
        (FREE, [name, id, label]) => Some(Told::Freed {
            session: SessionId(read(id)?),
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
    Some(Held {
        session: SessionId(read(id)?),
        key: KeyBuf {
            db,
            name: (*name).into(),
        },
        label: (*label).into(),
        mode: read_mode(mode)?,
        depth: read(depth).filter(|depth| *depth > 0)?,
        shared_below: read(below)?,
        token: Token(read(token)?),
        lease_ms: match *lease {
            b"-" => None,
            lease => Some(read(lease)?),
        },
        timed: false,
    })
}

fn number(value: u64) -> Vec<u8> {
    value.to_string().into_bytes()
}

/// A number as the stream has it.
pub fn read<T: std::str::FromStr>(word: &[u8]) -> Option<T> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn mode_word(mode: Mode) -> Vec<u8> {
    match mode {
        Mode::Temporary => b"temporary".to_vec(),
        Mode::Exclusive => b"exclusive".to_vec(),
        Mode::Shared => b"shared".to_vec(),
        Mode::Permits { count, total } => format!("permits/{count}/{total}").into_bytes(),
    }
}

fn read_mode(word: &[u8]) -> Option<Mode> {
    match word {
        b"temporary" => Some(Mode::Temporary),
        b"exclusive" => Some(Mode::Exclusive),
        b"shared" => Some(Mode::Shared),
        _ => {
            let rest = word.strip_prefix(b"permits/")?;
            let slash = rest.iter().position(|byte| *byte == b'/')?;
            let (count, total) = (read(&rest[..slash])?, read(&rest[slash + 1..])?);
            (1..=total)
                .contains(&count)
                .then_some(Mode::Permits { count, total })
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes() -> impl Strategy<Value = Box<[u8]>> {
        proptest::collection::vec(any::<u8>(), 0..6).prop_map(Into::into)
    }

    fn modes() -> impl Strategy<Value = Mode> {
        prop_oneof![
            Just(Mode::Temporary),
            Just(Mode::Exclusive),
            Just(Mode::Shared),
            (1..=7_u32, 7..=u32::MAX).prop_map(|(count, total)| Mode::Permits { count, total }),
        ]
    }

    fn anything_told() -> impl Strategy<Value = Told> {
        let key = || {
            (0..16_u32, bytes()).prop_map(|(db, name)| KeyBuf {
                db: Db(db),
                name: name.into(),
            })
        };
        let id = || any::<u64>().prop_map(SessionId);
        prop_oneof![
            (id(), any::<[u8; 32]>(), any::<u64>()).prop_map(|(id, digest, grace_ms)| {
                Told::Session {
                    id,
                    digest: Digest(digest),
                    grace_ms,
                }
            }),
            id().prop_map(Told::SessionEnded),
            (id(), key(), bytes()).prop_map(|(session, key, label)| Told::Freed {
                session,
                key,
                label
            }),
            (
                (id(), key(), bytes(), modes()),
                (
                    1..=u32::MAX,
                    any::<u32>(),
                    any::<u64>(),
                    any::<Option<u64>>(),
                    any::<bool>()
                )
            )
                .prop_map(
                    |((session, key, label, mode), (depth, below, token, lease_ms, timed))| {
                        Told::Held(Held {
                            session,
                            key,
                            label,
                            mode,
                            depth,
                            shared_below: below,
                            token: Token(token),
                            lease_ms,
                            timed,
                        })
                    }
                ),
        ]
    }

    proptest! {
        #[test]
        fn what_is_told_is_understood(said in anything_told()) {
            let (name, words) = words_of(&said);
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let db = db_of(&said).unwrap_or(Db(0));
            prop_assert_eq!(told(name, db, &words), Some(said));
        }

        #[test]
        fn any_words_are_taken_or_not(
            name in proptest::sample::select(vec![SESSION, HOLD, FREE]),
            words in proptest::collection::vec(
                prop_oneof![
                    proptest::collection::vec(any::<u8>(), 0..5),
                    proptest::sample::select(
                        ["START", "END", "permits/1/2", "permits/", "shared", "1", "0", "-", "timed"]
                            .map(|word| word.as_bytes().to_vec())
                            .to_vec()
                    ),
                ],
                0..11,
            )
        ) {
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let _ = told(name, Db(0), &words);
        }
    }
}
