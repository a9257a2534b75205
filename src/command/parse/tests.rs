//! Whether arguments are understood as they are meant.

use super::*;
use crate::command::TABLE;

const WRONG_ARITY: &str = "wrong number of arguments";

fn spec(verb: Verb) -> &'static Spec {
    let mut all = TABLE.iter();
    all.find(|spec| spec.verb == verb).expect("each has a row")
}

fn parsed(verb: Verb, line: &str) -> Result<String, String> {
    let words: Vec<&[u8]> = line.split_whitespace().map(str::as_bytes).collect();
    match parse(spec(verb), &words) {
        Ok(request) => Ok(format!("{request:?}")),
        Err(BadInput::WrongArity) => Err(WRONG_ARITY.to_owned()),
        Err(BadInput::Because(why)) => Err(why),
    }
}

#[test]
fn options_come_in_any_order_and_case() {
    let one = parsed(Verb::Settp, "k v TOKEN WAIT 5 PUSH");
    assert_eq!(one, parsed(Verb::Settp, "k v push wait 5 token"));
    assert!(one.is_ok_and(|request| request.contains("limit_ms: Some(5), push: true")));
}

#[test]
fn a_wait_of_zero_has_no_limit() {
    let request = parsed(Verb::Settp, "k v WAIT 0").unwrap();
    assert!(request.contains("limit_ms: None, push: false"));
}

#[test]
fn each_command_is_parsed() {
    for spec in TABLE {
        let words = vec!["1"; spec.arity().unsigned_abs() as usize - 1];
        let refused = parsed(spec.verb, &words.join(" ")).err();
        assert_ne!(refused.as_deref(), Some(WRONG_ARITY), "{}", spec.name);
    }
}

#[test]
fn bad_input_is_named() {
    for (verb, line, words) in [
        (
            Verb::Settp,
            "k v NOW",
            "unknown option 'NOW', the options are TOKEN, SEQ, NOTIFY, TASK, WAIT, PUSH, ACKS, ACKTIMEOUT",
        ),
        (
            Verb::Release,
            "k px 5",
            "unknown option 'px', the options are OWNER, ALL",
        ),
        (Verb::Settp, "k v WAIT", "option WAIT is incomplete"),
        (Verb::Settp, "k v WAIT x", "WAIT is not a number: 'x'"),
        (Verb::Settp, "k v WAIT 1 WAIT 2", "option WAIT is repeated"),
        (Verb::Settp, "k v PUSH", "option PUSH needs WAIT"),
        (
            Verb::Log,
            "RESET COUNT 5",
            "options RESET and COUNT exclude each other",
        ),
        (Verb::Settp, "k", WRONG_ARITY),
        (
            Verb::Acquire,
            "k LEASE 0",
            "LEASE is out of range, it goes from 1 to 9007199254740991",
        ),
        (
            Verb::Acquire,
            "k PERMITS 3 OF 2",
            "the number of permits is out of range, it goes from 1 to 2",
        ),
        (
            Verb::Acquire,
            "k PERMITS 3 2",
            "option PERMITS is incomplete",
        ),
        (
            Verb::Acquire,
            "k SHARED PERMITS 1 OF 2",
            "options SHARED and PERMITS exclude each other",
        ),
        (Verb::Macquire, "2 a a", "key 'a' is repeated"),
        (
            Verb::Macquire,
            "3 a b",
            "numkeys is out of range, it goes from 1 to 2",
        ),
        (
            Verb::Extend,
            "k -5",
            "the lease is out of range, it goes from 1 to 9007199254740991",
        ),
        (
            Verb::Start,
            "GRACE 86400001",
            "GRACE is out of range, it goes from 1 to 86400000",
        ),
        (Verb::Resume, "", WRONG_ARITY),
        (Verb::List, "", WRONG_ARITY),
        (Verb::List, "x", "the cursor is not a number: 'x'"),
        (Verb::End, "now", WRONG_ARITY),
        (
            Verb::List,
            "0 COUNT 0",
            "COUNT is out of range, it goes from 1 to 18446744073709551615",
        ),
    ] {
        assert_eq!(parsed(verb, line), Err(words.to_owned()), "{verb:?} {line}");
    }
}

#[test]
fn acknowledgements_and_raised_tokens_have_their_bounds() {
    for (verb, line, words) in [
        (
            Verb::Raise,
            "k 9007199254740992",
            "the token is out of range, it goes from 0 to 9007199254740991",
        ),
        (
            Verb::Settp,
            "k v WAIT 0 SEQ",
            "options SEQ and WAIT exclude each other",
        ),
        (
            Verb::Settp,
            "k v ACKTIMEOUT 5",
            "option ACKTIMEOUT needs ACKS",
        ),
        (
            Verb::Settp,
            "k v ACKS 0",
            "ACKS is out of range, it goes from 1 to 64",
        ),
        (
            Verb::Acquire,
            "k ACKS 1 REENTRANT",
            "options ACKS and REENTRANT exclude each other",
        ),
    ] {
        assert_eq!(parsed(verb, line), Err(words.to_owned()), "{verb:?} {line}");
    }
    for (line, acks) in [
        ("k v", "acks: None"),
        ("k v acks 2", "replicas: 2, timeout_ms: 1000"),
        (
            "k v ACKTIMEOUT 7 WAIT 0 ACKS 64",
            "replicas: 64, timeout_ms: 7",
        ),
    ] {
        let request = parsed(Verb::Settp, line);
        assert!(
            request.is_ok_and(|request| request.contains(acks)),
            "{line}"
        );
    }
}

#[test]
fn every_command_that_acquires_takes_a_task() {
    let task = format!("task: Some({:?})", b"me");
    for (verb, line) in [
        (Verb::Settp, "k v TASK me"),
        (Verb::Acquire, "k TASK me OWNER x"),
        (Verb::Acquire, "k SHARED OWNER x task me WAIT 0"),
        (Verb::Macquire, "1 k TASK me"),
    ] {
        let request = parsed(verb, line);
        assert!(
            request.is_ok_and(|request| request.contains(&task)),
            "{line}"
        );
    }
    for (verb, line, words) in [
        (Verb::Settp, "k v TASK", "option TASK is incomplete"),
        (Verb::Acquire, "k TASK a TASK b", "option TASK is repeated"),
        (
            Verb::Release,
            "k TASK me",
            "unknown option 'TASK', the options are OWNER, ALL",
        ),
    ] {
        assert_eq!(parsed(verb, line), Err(words.to_owned()), "{line}");
    }
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_answered_for(
        verb in 0..TABLE.len(),
        words in proptest::collection::vec(
            proptest::prop_oneof![
                proptest::collection::vec(proptest::num::u8::ANY, 0..6),
                proptest::sample::select(
                    ["WAIT", "PUSH", "PERMITS", "OF", "OWNER", "TASK", "LEASE", "1", "0", "-1", "k"]
                        .map(|word| word.as_bytes().to_vec())
                        .to_vec()
                ),
            ],
            0..8,
        )
    ) {
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let _ = parse(&TABLE[verb], &words);
    }
}

#[test]
fn one_request_names_so_many_keys_and_no_more() {
    let keys: Vec<String> = (0..=1024).map(|n| format!("k{n}")).collect();
    let request = |count: usize, option: &str| {
        let keys = keys[..count].join(" ");
        parsed(Verb::Macquire, &format!("{count} {keys}{option}"))
    };
    let refused = "numkeys is out of range, it goes from 1 to 1024".to_owned();
    for option in ["", " WAIT 0 PUSH"] {
        assert!(request(1024, option).is_ok());
        assert_eq!(request(1025, option), Err(refused.clone()));
    }
}

#[test]
fn a_number_is_digits_within_its_bounds() {
    for (word, refused) in [
        ("+5", "the cursor is not a number: '+5'"),
        ("-", "the cursor is not a number: '-'"),
        ("--5", "the cursor is not a number: '--5'"),
        ("5.", "the cursor is not a number: '5.'"),
        (
            "-1",
            "the cursor is out of range, it goes from 0 to 18446744073709551615",
        ),
        (
            "18446744073709551616",
            "the cursor is out of range, it goes from 0 to 18446744073709551615",
        ),
    ] {
        assert_eq!(parsed(Verb::List, word), Err(refused.to_owned()));
    }
    for (word, cursor) in [
        ("007", "7"),
        ("18446744073709551615", "18446744073709551615"),
    ] {
        let request = parsed(Verb::List, word).unwrap();
        assert!(request.contains(&format!("cursor: {cursor},")), "{request}");
    }
}

#[test]
fn a_list_is_bounded_in_keys_and_pattern() {
    for (line, count) in [
        ("0", 10),
        ("0 COUNT 999", 999),
        ("0 COUNT 1001", 1000),
        ("0 COUNT 18446744073709551615", 1000),
    ] {
        let request = parsed(Verb::List, line).unwrap();
        assert!(request.contains(&format!("count: {count} ")), "{request}");
    }
    let with =
        |bytes: usize| parsed(Verb::List, &format!("0 MATCH {}", "a".repeat(bytes))).map(drop);
    assert_eq!(with(1024), Ok(()));
    let refused = "the pattern is longer than 1024 bytes";
    assert_eq!(with(1025), Err(refused.to_owned()));
}

#[test]
fn a_prefix_is_watched_in_pages() {
    let refused = |why: &str| Err(BadInput::Because(why.to_owned()));
    let watch = |goes_on, keys_only| {
        let prefix = b"p".as_slice();
        Ok(Request::Watchtp {
            prefix,
            goes_on,
            keys_only,
        })
    };
    for (words, expected) in [
        (vec![&b"p"[..]], watch(false, false)),
        (vec![b"p", b"after", b""], watch(true, false)),
        (
            vec![b"p", b"KEYSONLY", b"AFTER", b"KEYSONLY"],
            watch(true, true),
        ),
        (vec![b""], refused("the prefix is empty")),
        (vec![b"p", b"AFTER"], refused("option AFTER is incomplete")),
        (vec![], Err(BadInput::WrongArity)),
    ] {
        assert_eq!(parse(spec(Verb::Watchtp), &words), expected, "{words:?}");
    }
    for (words, expected) in [
        (vec![], Ok(Request::Unwatchtp { prefix: None })),
        (
            vec![&b""[..]],
            Ok(Request::Unwatchtp {
                prefix: Some(&b""[..]),
            }),
        ),
        (vec![b"a", b"b"], Err(BadInput::WrongArity)),
    ] {
        assert_eq!(parse(spec(Verb::Unwatchtp), &words), expected, "{words:?}");
    }
}
