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
//! A number is in the range that it has when a client gives it, or the words make no sense. The database is told apart. When you change a word, servers of the former version will not understand it.

use super::options::{MOST_MS, number_in};
use super::parse::LONGEST_GRACE_MS;
use crate::engine::{Db, Digest, Held, KeyBuf, MOST_DEPTH_TOLD, Mode, SessionId, Token, Told};

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
        held.lease_ms.map_or(NO_LEASE.to_vec(), number),
    ];
    words.extend(held.timed.then(|| TIMED.to_vec()));
    words
}

const TIMED: &[u8] = b"timed";
const NO_LEASE: &[u8] = b"-";

pub const SESSION: &str = "TETHER.SESSION";
pub const HOLD: &str = "TETHER.HOLD";
pub const FREE: &str = "TETHER.FREE";

/// No command has more.
pub const MOST_WORDS: usize = 9;

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
            id: read_id(id)?,
            digest: Digest(unhex(digest)?),
            grace_ms: read(grace, 1, LONGEST_GRACE_MS)?,
        }),
        (SESSION, [b"END", id]) => Some(Told::SessionEnded(read_id(id)?)),
        (HOLD, [words @ .., last]) if *last == TIMED => {
            let held = read_held(db, words)?;
            let timed = true;
            Some(Told::Held(Held { timed, ..held }))
        }
        (HOLD, words) => read_held(db, words).map(Told::Held),
        (FREE, [name, id, label]) => Some(Told::Freed {
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
    let has_below = shared_below > 0 && mode != Mode::Exclusive;
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
            let total = read(&rest[slash + 1..], 1, u32::MAX.into())?;
            let count = read(&rest[..slash], 1, total)?;
            let (count, total) = (count.try_into().ok()?, total.try_into().ok()?);
            Some(Mode::Permits { count, total })
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
        let id = || (1..=Token::MOST).prop_map(SessionId);
        prop_oneof![
            (id(), any::<[u8; 32]>(), 1..=LONGEST_GRACE_MS).prop_map(|(id, digest, grace_ms)| {
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
            ((id(), key(), bytes(), modes()), extras()).prop_map(held),
        ]
    }

    type Extras = (u32, u32, u64, Option<u64>, bool);

    fn extras() -> impl Strategy<Value = Extras> {
        let half = MOST_DEPTH_TOLD / 2;
        let lease = proptest::option::of(0..=MOST_MS);
        (1..=half, 0..=half, 1..=Token::MOST, lease, any::<bool>())
    }

    type Whose = (SessionId, KeyBuf, Box<[u8]>, Mode);

    fn held(((session, key, label, mode), extras): (Whose, Extras)) -> Told {
        let (depth, below, token, lease_ms, timed) = extras;
        let is_temporary = mode == Mode::Temporary;
        Told::Held(Held {
            session,
            key,
            label: if is_temporary { [].into() } else { label },
            mode,
            depth: if is_temporary { 1 } else { depth },
            shared_below: if mode == Mode::Exclusive { below } else { 0 },
            token: Token(token),
            lease_ms: lease_ms.filter(|_| !is_temporary),
            timed,
        })
    }

    /// The words of a hold, with one of them in another one's place.
    fn held_but(place: usize, word: &str) -> Option<Told> {
        let words = ["k", "5", "job", "exclusive", "1", "0", "9", "100"];
        let mut words = words.map(str::as_bytes);
        words[place] = word.as_bytes();
        told(HOLD, Db(0), &words)
    }

    #[test]
    fn a_number_is_in_the_range_that_a_client_has() {
        let most = u64::MAX.to_string();
        for (place, fine, bad) in [
            (
                1,
                vec!["1", "9007199254740991"],
                vec!["0", "9007199254740992"],
            ),
            (
                3,
                vec!["shared", "permits/1/4294967295"],
                vec!["permits/0/1", "permits/2/1", "permits/1/4294967296"],
            ),
            (
                4,
                vec!["1", "3221225472"],
                vec!["0", "3221225473", "4294967296"],
            ),
            (5, vec!["0", "3221225471"], vec!["3221225472", "4294967295"]),
            (
                6,
                vec!["1", "9007199254740991"],
                vec!["0", "9007199254740992", "9223372036854775808"],
            ),
            (
                7,
                vec!["-", "0", "9007199254740991"],
                vec!["9007199254740992"],
            ),
        ] {
            for word in fine {
                assert!(held_but(place, word).is_some(), "{place}: {word}");
            }
            for word in bad.into_iter().chain(["", "+1", "-1", "1.0", &most]) {
                assert!(held_but(place, word).is_none(), "{place}: {word}");
            }
        }
        let digest = "0".repeat(64);
        let session = |id: &str, grace: &str| {
            let words = ["START", id, &digest, grace].map(str::as_bytes);
            told(SESSION, Db(0), &words)
        };
        assert!(session("5", "1").is_some() && session("5", "86400000").is_some());
        for (id, grace) in [
            ("5", "0"),
            ("5", "86400001"),
            ("5", &*most),
            (&*most, "1"),
            ("0", "1"),
        ] {
            assert_eq!(session(id, grace), None, "{id} {grace}");
        }
        assert_eq!(told(SESSION, Db(0), &[b"END", most.as_bytes()]), None);
        assert_eq!(told(FREE, Db(0), &[b"k", most.as_bytes(), b""]), None);
        assert_eq!(read_token(b"9007199254740991"), Some(Token(Token::MOST)));
        assert_eq!(read_token(b"9007199254740992"), None);
        assert_eq!(
            (read_moment_ms(b"7"), read_moment_ms(b"-7")),
            (Some(7), None)
        );
        assert_eq!(read_moment_ms(most.as_bytes()), None);
    }

    #[test]
    fn a_temporary_key_is_held_once_and_by_nobody_else() {
        let plain = ["k", "5", "", "temporary", "1", "0", "9", "-"];
        let with = |place: usize, word| {
            let mut words = plain.map(str::as_bytes);
            words[place] = word;
            told(HOLD, Db(0), &words)
        };
        assert!(with(0, b"other").is_some());
        for (place, word) in [(2, "job"), (4, "2"), (5, "1"), (7, "100")] {
            assert_eq!(with(place, word.as_bytes()), None, "{word}");
        }
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
