//! What is written is understood, and nothing else is.

use super::*;
use crate::engine::terms::Attributes;
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
    let id = || (1..=Token::MAX).prop_map(SessionId);
    prop_oneof![
        (id(), any::<[u8; 32]>(), 1..=MAX_GRACE_MS).prop_map(|(id, digest, grace_ms)| {
            SessionRecord::Session {
                id,
                digest: Digest(digest),
                grace_ms,
            }
        }),
        id().prop_map(SessionRecord::SessionEnded),
        (id(), key(), bytes(), id()).prop_map(|(session, key, label, token)| {
            SessionRecord::Freed {
                session,
                key,
                label,
                token: Some(Token(token.0)),
            }
        }),
        ((id(), key(), [bytes(), bytes()], modes()), extras()).prop_map(held),
    ]
}

type Extras = (u32, u32, u64, Option<u64>, [bool; 3]);

fn extras() -> impl Strategy<Value = Extras> {
    let half = MAX_DEPTH_ENCODED / 2;
    let lease = proptest::option::of(0..=MAX_MS);
    (
        1..=half,
        0..=half,
        1..=Token::MAX,
        lease,
        any::<[bool; 3]>(),
    )
}

type Whose = (SessionId, KeyBuf, [Box<[u8]>; 2], Mode);

fn held(((session, key, [label, task], mode), extras): (Whose, Extras)) -> SessionRecord {
    let (depth, below, token, lease_ms, [timed, reentrant, notify]) = extras;
    let is_temporary = mode == Mode::Temporary;
    let label = if is_temporary { [].into() } else { label };
    SessionRecord::Held(Held {
        session,
        key,
        terms: Terms {
            task: Some(task).filter(|task| *task != label),
            label,
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

/// Reads a hold in the words of 0.1.0, and in today's, which mean the same.
fn read_hold(words: [&str; 8]) -> Option<SessionRecord> {
    let read = |words: &[&str]| {
        let words: Vec<_> = words.iter().map(|word| word.as_bytes()).collect();
        SessionRecord::read(HOLD, Db(0), &words)
    };
    let [key, id, label, mode, depth, below, token, lease] = words;
    let mut today = vec![key, id, label, "below", below, "mode", mode];
    today.extend(["token", token, "depth", depth]);
    if lease != "-" {
        today.extend(["lease", lease]);
    }
    let held = read(&today);
    assert_eq!(read(&words), held, "{words:?}");
    held
}

/// The words of a hold, with one of them in another one's place.
fn held_but(place: usize, word: &str) -> Option<SessionRecord> {
    let mut words = ["k", "5", "job", "exclusive", "1", "0", "9", "100"];
    words[place] = word;
    read_hold(words)
}

#[test]
fn a_grant_says_its_token_and_in_what_mode() {
    let read = |command: &str, line: &str| {
        let words: Vec<_> = line.split(' ').map(str::as_bytes).collect();
        GrantRecord::read(command, &words)
    };
    let token = Token(9);
    for (command, line, mode) in [
        (HELD_KEY, "9 v", Mode::Temporary),
        (HELD_KEY, "9 exclusive more 1", Mode::Temporary),
        (HELD_LOCK, "9 shared task Job", Mode::Shared),
        (
            HELD_LOCK,
            "9 permits/2/3",
            Mode::Permits { count: 2, total: 3 },
        ),
    ] {
        assert_eq!(read(command, line), Some(GrantRecord { mode, token }));
    }
    for refused in [
        "9",
        "0 shared",
        "x shared",
        "9 shared more",
        "9 shared TASK job",
    ] {
        assert_eq!(read(HELD_KEY, refused), None, "{refused}");
        assert_eq!(read(HELD_LOCK, refused), None, "{refused}");
    }
    assert_eq!(read(HOLD, "9 shared"), None);
    for refused in ["9 temporary", "9 v", "9 permits/4/3"] {
        assert_eq!(read(HELD_LOCK, refused), None, "{refused}");
    }
}

/// A newer version says more, of each kind of record.
#[test]
fn what_a_newer_version_adds_is_skipped_unless_it_is_in_capitals() {
    let digest = "ab".repeat(32);
    for (command, words) in [
        (SESSION, vec!["START", "5", &digest, "1000"]),
        (SESSION, vec!["END", "5"]),
        (HOLD, vec!["k", "5", "", "mode", "shared", "token", "9"]),
        (FREE, vec!["k", "5", "job"]),
    ] {
        let read = |more: &[&str]| {
            let words = words.iter().chain(more);
            let words: Vec<_> = words.map(|word| word.as_bytes()).collect();
            SessionRecord::read(command, Db(1), &words)
        };
        let record = read(&[]);
        assert!(record.is_some(), "{words:?}");
        assert_eq!(read(&["more", "", "job", "Task"]), record, "{words:?}");
        for refused in [&["more"][..], &["TASK", "job"], &["more", "1", "more", "2"]] {
            assert_eq!(read(refused), None, "{words:?} {refused:?}");
        }
    }
}

#[test]
fn a_hold_says_its_mode_and_its_token_and_0_1_0_marked_what_is_so() {
    let read = |line: &str| {
        let words: Vec<_> = line.split(' ').map(str::as_bytes).collect();
        SessionRecord::read(HOLD, Db(0), &words)
    };
    assert!(read("k 5 job mode shared token 9").is_some());
    for refused in [
        "k 5 job",
        "k 5 job mode shared",
        "k 5 job token 9",
        "k 5 job mode other token 9",
        "k 5 job mode shared token 9 timed no",
        "k 5 job mode temporary token 9",
        "k 5 job exclusive 1 0 9 - timed timed",
        "k 5 job exclusive 1 0 9 - other",
    ] {
        assert_eq!(read(refused), None, "{refused}");
    }
    let former = read("k 5 job shared 2 0 9 70 reentrant notify");
    let today = "k 5 job mode shared lease 70 token 9 depth 2 reentrant yes notify yes";
    assert_eq!(former, read(today));
    let former = former.expect("a hold");
    let (command, words) = former.words();
    let words: Vec<_> = words.iter().map(Vec::as_slice).collect();
    assert_eq!(SessionRecord::read(command, Db(0), &words), Some(former));
}

#[test]
fn a_hold_has_a_task_of_its_own_if_that_is_not_the_label_s() {
    let read = |more: &str| {
        let line = format!("k 5 job mode shared token 9 {more}");
        let words: Vec<_> = line.trim().split(' ').map(str::as_bytes).collect();
        match SessionRecord::read(HOLD, Db(0), &words) {
            Some(SessionRecord::Held(held)) => held.terms.task().to_vec(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(read(""), b"job");
    assert_eq!(read("task other"), b"other");
    assert_eq!(read("notify yes task job"), b"job");
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
        SessionRecord::read(SESSION, Db(0), &words)
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
        SessionRecord::read(SESSION, Db(0), &[b"END", most.as_bytes()]),
        None
    );
    assert_eq!(
        SessionRecord::read(FREE, Db(0), &[b"k", most.as_bytes(), b""]),
        None
    );
    assert_eq!(read_token(b"9007199254740991"), Some(Token(Token::MAX)));
    assert_eq!(read_token(b"9007199254740992"), None);
    assert_eq!(
        (read_moment_ms(b"7"), read_moment_ms(b"-7")),
        (Some(7), None)
    );
    assert_eq!(read_moment_ms(most.as_bytes()), None);
}

#[test]
fn a_temporary_key_is_held_once_and_by_nobody_else() {
    let with = |place: usize, word| {
        let mut words = ["k", "5", "", "temporary", "1", "0", "9", "-"];
        words[place] = word;
        read_hold(words)
    };
    assert!(with(0, "other").is_some());
    for (place, word) in [(2, "job"), (4, "2"), (5, "1"), (7, "100")] {
        assert_eq!(with(place, word), None, "{word}");
    }
}

proptest! {
    #[test]
    fn what_is_written_is_understood(record in any_record()) {
        let (name, words) = record.words();
        prop_assert!(words.len() <= MAX_WORDS);
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let db = record.db().unwrap_or(Db(0));
        prop_assert_eq!(SessionRecord::read(name, db, &words), Some(record));
    }

    #[test]
    fn any_words_are_taken_or_not(
        name in proptest::sample::select(vec![SESSION, HOLD, FREE]),
        words in proptest::collection::vec(
            prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..5),
                proptest::sample::select(
                    ["START", "END", "permits/1/2", "permits/", "shared", "1", "0", "-", "timed", "reentrant", "notify", "yes", "mode", "token", "depth", "below", "lease", "task", "TASK"]
                        .map(|word| word.as_bytes().to_vec())
                        .to_vec()
                ),
            ],
            0..12,
        )
    ) {
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let _ = SessionRecord::read(name, Db(0), &words);
    }
}
