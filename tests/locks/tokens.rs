//! Fencing tokens: their form, and that they rise.

use crate::harness::*;
use crate::line::*;
use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, SystemTime};

const SEQUENCE: i64 = 1 << 22;
/// A start begins ahead of all that anybody can raise a token to.
const START_AHEAD_S: i64 = 2;

/// The time since 2025, in seconds.
fn wall_clock_s() -> i64 {
    const YEARS_TO_2025: i64 = 1_735_689_600;
    let since_1970 = SystemTime::UNIX_EPOCH
        .elapsed()
        .expect("a clock after 1970");
    since_1970.as_secs() as i64 - YEARS_TO_2025
}

#[test]
fn a_token_is_an_epoch_and_a_sequence() {
    let before = wall_clock_s();
    let server = Server::start();
    let mut client = server.resp3();
    let first = client.run("SETTP a v TOKEN").number();
    let after = wall_clock_s();
    let epoch = first / SEQUENCE - START_AHEAD_S;
    assert!(
        (before..=after).contains(&epoch),
        "{before} {epoch} {after}"
    );
    assert!(first < 1 << 53);
    for (n, request) in [
        "SETTP b v TOKEN",
        "LOCK.ACQUIRE c",
        "LOCK.ACQUIRE d SHARED",
        "LOCK.ACQUIRE e PERMITS 3 OF 4",
        "LOCK.MACQUIRE 3 f g h",
        "LOCK.ACQUIRE i OWNER label LEASE 100000",
    ]
    .into_iter()
    .enumerate()
    {
        // One for each grant, also of several keys.
        assert_eq!(client.call(request), int(first + 1 + n as i64), "{request}");
    }
}

#[test]
fn a_grant_without_token_uses_one_up_and_a_refusal_does_not() {
    let server = Server::start();
    let (mut client, mut other) = (server.resp3(), server.resp3());
    let first = client.run("SETTP a v TOKEN").number();
    assert_eq!(client.call("SETTP b v"), int(1));
    assert_eq!(tether(&server, "last_token"), first + 1);
    for request in ["SETTP a v", "SETTP a v TOKEN", "SETTP a v WAIT 20 TOKEN"] {
        assert_eq!(other.call(request), int(0), "{request}");
    }
    other.refused("LOCK.ACQUIRE a");
    assert!(client.refused("SETTP a v WAIT 0").starts_with("DEADLOCK"));
    client.run_all(&["LOCK.ACQUIRE l", "LOCK.ACQUIRE l", "LOCK.RELEASE l"]);
    assert_eq!(tether(&server, "last_token"), first + 2);
}

#[test]
fn tokens_rise_over_keys_connections_modes_and_kinds_of_grant() {
    let server = Server::start();
    let mut clients = [(); 5].map(|()| server.resp3());
    let mut others = [(); 5].map(|()| server.resp3());
    let mut tokens = Vec::new();
    for round in 0..40 {
        let client = &mut clients[round % 5];
        let other = &mut others[(round / 3) % 5];
        let key = format!("key:{}", round % 7);
        let (take, give) = match round % 4 {
            0 => (format!("SETTP {key} v TOKEN"), format!("DELTP {key}")),
            1 => (
                format!("LOCK.ACQUIRE {key} SHARED"),
                format!("LOCK.RELEASE {key}"),
            ),
            2 => (
                format!("LOCK.ACQUIRE {key} PERMITS 2 OF 2"),
                format!("DEL {key}"),
            ),
            _ => (format!("LOCK.MACQUIRE 2 {key} more"), "FLUSHALL".to_owned()),
        };
        tokens.push(client.run(&take).number());
        match round % 3 {
            0 => {
                queue(&server, other, &format!("SETTP {key} w TOKEN WAIT 0"));
                client.run(&give);
                tokens.push(other.read_reply().number());
            }
            1 => {
                queue_push(other, &format!("SETTP {key} w WAIT 0 PUSH"));
                client.run(&give);
                tokens.push(pushed_token(&other.next_push()));
            }
            _ => {
                client.run(&give);
                tokens.push(other.run(&format!("SETTP {key} w TOKEN")).number());
            }
        }
        other.run(["DELTP", &key]);
        client.run("FLUSHALL");
        server.settle();
    }
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
}

fn pushed_token(push: &str) -> i64 {
    let word = push.rsplit(' ').next().expect("words");
    word.parse()
        .unwrap_or_else(|_| panic!("no token in {push}"))
}

#[test]
fn no_two_grants_of_many_connections_have_the_same() {
    const EACH: usize = 2000;
    let server = Server::start();
    let mut all = BTreeSet::new();
    thread::scope(|scope| {
        let takers: Vec<_> = (0..6)
            .map(|lane| {
                let mut client = server.resp3();
                scope.spawn(move || take_and_give(&mut client, lane, EACH))
            })
            .collect();
        for taker in takers {
            let tokens = taker.join().expect("a taker");
            assert!(tokens.is_sorted_by(|one, next| one < next));
            all.extend(tokens);
        }
    });
    assert_eq!(all.len(), 6 * EACH);
    let (first, last) = (all.first().copied(), all.last().copied());
    assert_eq!(last, first.map(|first| first + 6 * EACH as i64 - 1));
    assert_eq!(last, Some(tether(&server, "last_token")));
}

fn take_and_give(client: &mut Client, lane: usize, rounds: usize) -> Vec<i64> {
    let (take, give) = match lane % 2 {
        0 => (format!("SETTP k{lane} v TOKEN"), format!("DELTP k{lane}")),
        _ => (
            format!("LOCK.ACQUIRE k{lane}"),
            format!("LOCK.RELEASE k{lane}"),
        ),
    };
    let mut tokens = Vec::new();
    for _ in 0..rounds / 50 {
        let batch = [take.as_str(), give.as_str()].repeat(50);
        client.pipeline(&batch);
        let replies = client.read_replies(100);
        tokens.extend(replies.iter().step_by(2).map(Frame::number));
    }
    tokens
}

/// A grant in an epoch, and one after a restart in a later second: what the epoch is worth without anything saved.
#[test]
fn after_a_restart_tokens_go_on_rising() {
    let mut server = Server::start();
    let mut last = 0;
    for _ in 0..3 {
        let mut client = server.resp3();
        for key in ["a", "b", "c"] {
            let token = client.run(["SETTP", key, "v", "TOKEN"]).number();
            assert!(token > last, "{token} after {last}");
            last = token;
        }
        let epoch = last / SEQUENCE;
        eventually_within(
            Duration::from_secs(3),
            "the next second",
            || match wall_clock_s() {
                now if now > epoch => Ok(()),
                now => Err(now.to_string()),
            },
        );
        drop(client);
        server.crash_and_restart();
    }
}

/// With what was saved they rise also when the clock has not moved on.
#[test]
fn after_a_restart_within_the_same_second_tokens_go_on_rising() {
    let mut server = Server::with(&["appendonly yes", "appendfsync always"]);
    let mut last = 0;
    for _ in 0..10 {
        let mut client = server.resp3();
        for key in ["a", "b", "c"] {
            client.run(["DEL", key]);
            let token = client.run(["SETTP", key, "v", "TOKEN"]).number();
            assert!(token > last, "{token} after {last}");
            last = token;
        }
        drop(client);
        server.crash_and_restart();
    }
}
