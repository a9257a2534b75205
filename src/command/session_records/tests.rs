//! What is written is understood, and nothing else is.

use super::*;
use crate::engine::Attributes;
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

fn any_record() -> impl Strategy<Value = SessionRecord> {
    let key = || {
        (0..16_u32, bytes()).prop_map(|(db, name)| KeyBuf {
            db: Db(db),
            name: name.into(),
        })
    };
    let id = || (1..=Token::MOST).prop_map(SessionId);
    prop_oneof![
        (id(), any::<[u8; 32]>(), 1..=LONGEST_GRACE_MS).prop_map(|(id, digest, grace_ms)| {
            SessionRecord::Session {
                id,
                digest: Digest(digest),
                grace_ms,
            }
        }),
        id().prop_map(SessionRecord::SessionEnded),
        (id(), key(), bytes()).prop_map(|(session, key, label)| SessionRecord::Freed {
            session,
            key,
            label
        }),
        ((id(), key(), bytes(), modes()), extras()).prop_map(held),
    ]
}

type Extras = (u32, u32, u64, Option<u64>, [bool; 3]);

fn extras() -> impl Strategy<Value = Extras> {
    let half = MOST_DEPTH_TOLD / 2;
    let lease = proptest::option::of(0..=MOST_MS);
    (
        1..=half,
        0..=half,
        1..=Token::MOST,
        lease,
        any::<[bool; 3]>(),
    )
}

type Whose = (SessionId, KeyBuf, Box<[u8]>, Mode);

fn held(((session, key, label, mode), extras): (Whose, Extras)) -> SessionRecord {
    let (depth, below, token, lease_ms, [timed, reentrant, notify]) = extras;
    let is_temporary = mode == Mode::Temporary;
    SessionRecord::Held(Held {
        session,
        key,
        terms: Terms {
            label: if is_temporary { [].into() } else { label },
            attributes: Attributes {
                reentrant: reentrant && !is_temporary,
                notify,
            },
            lease_ms: lease_ms.filter(|_| !is_temporary),
            ..Terms::of(mode)
        },
        depth: if is_temporary { 1 } else { depth },
        shared_below: if mode == Mode::Exclusive { below } else { 0 },
        token: Token(token),
        timed,
    })
}

/// The words of a hold, with one of them in another one's place.
fn held_but(place: usize, word: &str) -> Option<SessionRecord> {
    let words = ["k", "5", "job", "exclusive", "1", "0", "9", "100"];
    let mut words = words.map(str::as_bytes);
    words[place] = word.as_bytes();
    read_record(HOLD, Db(0), &words)
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
        read_record(SESSION, Db(0), &words)
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
    assert_eq!(
        read_record(SESSION, Db(0), &[b"END", most.as_bytes()]),
        None
    );
    assert_eq!(
        read_record(FREE, Db(0), &[b"k", most.as_bytes(), b""]),
        None
    );
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
        read_record(HOLD, Db(0), &words)
    };
    assert!(with(0, b"other").is_some());
    for (place, word) in [(2, "job"), (4, "2"), (5, "1"), (7, "100")] {
        assert_eq!(with(place, word.as_bytes()), None, "{word}");
    }
}

proptest! {
    #[test]
    fn what_is_written_is_understood(record in any_record()) {
        let (name, words) = words_of(&record);
        prop_assert!(words.len() <= MOST_WORDS);
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let db = db_of(&record).unwrap_or(Db(0));
        prop_assert_eq!(read_record(name, db, &words), Some(record));
    }

    #[test]
    fn any_words_are_taken_or_not(
        name in proptest::sample::select(vec![SESSION, HOLD, FREE]),
        words in proptest::collection::vec(
            prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..5),
                proptest::sample::select(
                    ["START", "END", "permits/1/2", "permits/", "shared", "1", "0", "-", "timed", "reentrant", "notify"]
                        .map(|word| word.as_bytes().to_vec())
                        .to_vec()
                ),
            ],
            0..12,
        )
    ) {
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let _ = read_record(name, Db(0), &words);
    }
}
