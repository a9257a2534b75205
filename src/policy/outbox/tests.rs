//! What the outbox decides: when pushes are written, in what order, and which are dropped.

use super::*;
use crate::engine::{Db, Kind, Loss, NameFrom};

const ANN: ClientId = ClientId(1);
const BOB: ClientId = ClientId(2);

/// No client is executing, on a server that delays pushes until after the reply.
const OUTSIDE: Circumstances = Circumstances {
    executing_client: None,
    in_exec: false,
    before_reply: false,
    deferring: false,
};
const IN_EXEC: Circumstances = Circumstances {
    in_exec: true,
    ..OUTSIDE
};
/// Redis 7.0.
const BEFORE_REPLY: Circumstances = Circumstances {
    before_reply: true,
    ..OUTSIDE
};

fn key(name: &str) -> KeyBuf {
    let name = name.as_bytes();
    Key::to_owned(Key { db: Db(0), name })
}

fn said(name: &str, news: News) -> Push {
    Push::new(key(name), news, b"")
}

fn added(name: &str) -> Push {
    said(name, News::Added)
}

fn granted(name: &str, token: u64) -> Push {
    said(name, News::Granted(Kind::Lock, Token(token)))
}

fn lost(name: &str) -> Push {
    said(
        name,
        News::Lost(Kind::Lock, Loss::Deleted, NameFrom::Request),
    )
}

/// The least cost of a push.
fn least() -> usize {
    cost(&added(""))
}

/// A push with this cost, in bytes.
fn of_bytes(bytes: usize) -> Push {
    let push = added(&"k".repeat(bytes - least()));
    assert_eq!(cost(&push), bytes);
    push
}

/// The recipients, in order, each with the names of keys.
fn told(taken: &Taken) -> Vec<(Vec<u64>, Vec<String>)> {
    let name = |push: &Push| String::from_utf8_lossy(&push.key.name).into_owned();
    let run = |run: &Run| {
        let to = run.to.iter().map(|id| id.0).collect();
        (to, run.pushes.iter().map(name).collect())
    };
    taken.runs.iter().map(run).collect()
}

fn is_held(_: ClientId, _: &Push, _: Token) -> bool {
    true
}

fn is_not_held(_: ClientId, _: &Push, _: Token) -> bool {
    false
}

fn take(outbox: &mut Outbox) -> Vec<(Vec<u64>, Vec<String>)> {
    told(&outbox.take(is_held))
}

fn names(pushes: &[Push]) -> Vec<String> {
    let name = |push: &Push| String::from_utf8_lossy(&push.key.name).into_owned();
    pushes.iter().map(name).collect()
}

// ---- queued pushes ----

#[test]
fn what_is_told_is_written_at_once_unless_something_waits() {
    let mut outbox = Outbox::default();
    let post = outbox.post(vec![ANN], added("a"), OUTSIDE);
    assert_eq!(post, Post::Now(vec![ANN], added("a")));
    assert!(outbox.is_empty());
    outbox.enqueue(vec![BOB], added("b"));
    let post = outbox.post(vec![ANN], added("a"), OUTSIDE);
    assert_eq!(post, Post::Queued(Until::Later));
    assert_eq!(
        take(&mut outbox),
        [(vec![2], vec!["b".into()]), (vec![1], vec!["a".into()])]
    );
    assert!(outbox.is_empty());
}

#[test]
fn a_caller_is_told_of_its_holds_in_front_of_its_reply_and_of_watches_after_it() {
    let mut outbox = Outbox::default();
    let executing_client = Some(ANN);
    let now = Circumstances {
        executing_client,
        ..BEFORE_REPLY
    };
    let post = outbox.post(vec![ANN], granted("a", 7), now);
    assert_eq!(post, Post::InFront(ANN, granted("a", 7)));
    let post = outbox.post(vec![ANN], added("a"), now);
    assert_eq!(post, Post::Queued(Until::Later));
    for (to, now) in [
        (vec![BOB], now),
        (vec![ANN, BOB], now),
        (
            vec![ANN],
            Circumstances {
                executing_client,
                ..IN_EXEC
            },
        ),
    ] {
        let post = outbox.post(to, granted("a", 7), now);
        assert_eq!(post, Post::Queued(Until::Later));
    }
}

#[test]
fn what_comes_while_the_outbox_holds_waits_for_the_end_of_the_command() {
    let mut outbox = Outbox::default();
    let deferring = true;
    let mut post = |now| {
        let now = Circumstances { deferring, ..now };
        outbox.post(vec![ANN], added("a"), now)
    };
    assert_eq!(post(OUTSIDE), Post::Queued(Until::Soon));
    assert_eq!(post(BEFORE_REPLY), Post::Queued(Until::Soon));
    // EXEC's reply is not written by then.
    assert_eq!(post(IN_EXEC), Post::Queued(Until::Later));
}

#[test]
fn what_goes_to_many_waits_for_more_but_not_for_much_more() {
    let mut outbox = Outbox::default();
    let crowd: Vec<_> = (0..BATCH_RECIPIENTS as u64).map(ClientId).collect();
    for number in 1..=QUEUED_PUSHES_MAX {
        let post = outbox.post(crowd.clone(), added("a"), OUTSIDE);
        let expected = match number {
            QUEUED_PUSHES_MAX => Post::Flush,
            _ => Post::Queued(Until::Later),
        };
        assert_eq!(post, expected, "number {number}");
    }
    let taken = outbox.take(is_held);
    assert_eq!(
        (taken.runs.len(), taken.runs[0].pushes.len()),
        (1, QUEUED_PUSHES_MAX)
    );
    outbox.expect_late_flush_reply();
    let post = outbox.post(crowd.clone(), added("a"), OUTSIDE);
    assert_eq!(post, Post::Now(crowd.clone(), added("a")));
    // A push that must wait does so, whatever the count.
    for _ in 0..2 * QUEUED_PUSHES_MAX {
        let post = outbox.post(crowd.clone(), added("a"), BEFORE_REPLY);
        assert_eq!(post, Post::Queued(Until::Later));
    }
}

#[test]
fn what_goes_to_the_same_ones_is_written_together_and_nothing_overtakes() {
    let mut outbox = Outbox::default();
    for (to, name) in [
        (vec![ANN, BOB], "a"),
        (vec![ANN, BOB], "b"),
        (vec![BOB], "c"),
        (vec![ANN, BOB], "d"),
    ] {
        outbox.enqueue(to, added(name));
    }
    let own = outbox.take_fresh_for(ANN, is_held);
    assert_eq!(names(&own), ["a", "b", "d"]);
    let strings = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let expected: [(Vec<u64>, Vec<String>); 3] = [
        (vec![2], strings(&["a", "b"])),
        (vec![2], strings(&["c"])),
        (vec![2], strings(&["d"])),
    ];
    assert_eq!(take(&mut outbox), expected);
}

// ---- stale pushes ----

#[test]
fn what_was_told_of_a_watch_before_its_end_is_void_and_nothing_else() {
    let mut outbox = Outbox::default();
    let both = || vec![ANN, BOB];
    outbox.enqueue(both(), added("a"));
    outbox.enqueue(both(), added("b"));
    outbox.enqueue(vec![ANN], lost("a"));
    let a = key("a");
    outbox.cancel(ANN, Some(&[a.as_key()]));
    outbox.enqueue(both(), added("a"));
    outbox.enqueue(vec![ANN], added("c"));
    assert_eq!(
        names(&outbox.take_fresh_for(ANN, is_held)),
        ["b", "a", "a", "c"]
    );
    let of_bob: Vec<_> = take(&mut outbox)
        .into_iter()
        .filter(|(to, _)| *to == [2])
        .flat_map(|(_, names)| names)
        .collect();
    assert_eq!(of_bob, ["a", "b", "a"]);
}

#[test]
fn all_watches_can_end_at_once() {
    let mut outbox = Outbox::default();
    outbox.enqueue(vec![ANN, BOB], added("a"));
    outbox.enqueue(vec![ANN], granted("b", 1));
    outbox.cancel(ANN, None);
    outbox.enqueue(vec![ANN], added("c"));
    assert_eq!(names(&outbox.take_fresh_for(ANN, is_held)), ["b", "c"]);
    // It is not cancelled for ever.
    outbox.take(is_held);
    outbox.enqueue(vec![ANN], added("a"));
    assert_eq!(take(&mut outbox), [(vec![1], vec!["a".into()])]);
}

#[test]
fn a_grant_that_was_given_back_is_not_told_and_one_that_was_lost_is() {
    let mut outbox = Outbox::default();
    for push in [granted("a", 1), granted("b", 2), lost("b"), added("c")] {
        let post = outbox.post(vec![ANN], push, IN_EXEC);
        assert_eq!(post, Post::Queued(Until::Later));
    }
    assert_eq!(
        names(&outbox.take_fresh_for(ANN, is_not_held)),
        ["b", "b", "c"]
    );
    // A grant outside of a transaction is sent even if it was released since.
    outbox.take(is_held);
    outbox.enqueue(vec![ANN], granted("a", 1));
    assert_eq!(names(&outbox.take_fresh_for(ANN, is_not_held)), ["a"]);
}

#[test]
fn nobody_gives_back_what_another_was_granted_in_its_transaction() {
    let mut outbox = Outbox::default();
    outbox.post(vec![ANN], granted("a", 1), IN_EXEC);
    outbox.post(vec![BOB], granted("b", 2), IN_EXEC);
    outbox.note_command_in_exec(BOB);
    assert_eq!(names(&outbox.take_fresh_for(ANN, is_not_held)), ["a"]);
    assert!(outbox.take_fresh_for(BOB, is_not_held).is_empty());
    // In the next transaction it may.
    outbox.post(vec![ANN], granted("a", 3), IN_EXEC);
    outbox.note_command_in_exec(ANN);
    assert!(outbox.take_fresh_for(ANN, is_not_held).is_empty());
}

// ---- limits ----

/// An outbox with so many bytes queued for another client that shares are counted.
fn counting() -> Outbox {
    let mut outbox = Outbox::default();
    outbox.enqueue(vec![BOB], of_bytes(UNCOUNTED_BYTES + 1));
    assert_eq!(outbox.take_limit_unknown(), [BOB]);
    outbox.limit(BOB, None);
    outbox
}

#[test]
fn nobodys_share_is_asked_for_before_it_is_much() {
    let mut outbox = Outbox::default();
    outbox.enqueue(vec![ANN], of_bytes(UNCOUNTED_BYTES));
    outbox.enqueue(vec![BOB], of_bytes(UNCOUNTED_BYTES));
    assert!(!outbox.is_any_limit_unknown());
    let mut outbox = counting();
    outbox.enqueue(vec![ANN], of_bytes(UNCOUNTED_BYTES));
    assert!(!outbox.is_any_limit_unknown());
    outbox.enqueue(vec![ANN], of_bytes(least()));
    assert!(outbox.is_any_limit_unknown());
    assert_eq!(outbox.take_limit_unknown(), [ANN]);
    outbox.enqueue(vec![ANN], of_bytes(least()));
    assert!(!outbox.is_any_limit_unknown());
}

#[test]
fn what_waits_up_to_the_limit_is_told_and_one_byte_more_is_dropped() {
    const LIMIT: usize = 1 << 20;
    for is_over in [false, true] {
        let mut outbox = counting();
        outbox.enqueue(vec![ANN], of_bytes(LIMIT));
        assert_eq!(outbox.take_limit_unknown(), [ANN]);
        outbox.limit(ANN, Some(LIMIT));
        outbox.enqueue(vec![ANN], of_bytes(UNCOUNTED_BYTES - 200 - RUN_BYTES));
        outbox.enqueue(vec![ANN, BOB], of_bytes(200 + usize::from(is_over)));
        if is_over {
            // Pushes after a dropped one are dropped, however small, or there would be a gap.
            outbox.enqueue(vec![ANN, BOB], of_bytes(least()));
        }
        let taken = outbox.take(is_held);
        let count_of = |id| {
            let runs = taken.runs.iter().filter(|run| run.to.contains(&id));
            runs.map(|run| run.pushes.len()).sum::<usize>()
        };
        let (counts, over_limit) = match is_over {
            false => ((3, 2), vec![]),
            true => ((2, 3), vec![ANN]),
        };
        assert_eq!((count_of(ANN), count_of(BOB)), counts);
        assert_eq!(taken.over_limit, over_limit);
    }
}

#[test]
fn what_waits_is_no_more_than_the_limits_however_much_is_told() {
    const LIMIT: usize = 100_000;
    let crowd: Vec<_> = (10..30).map(ClientId).collect();
    let mut outbox = Outbox::default();
    for _ in 0..20_000 {
        outbox.enqueue(crowd.clone(), of_bytes(200));
        for client in outbox.take_limit_unknown() {
            outbox.limit(client, Some(LIMIT));
        }
    }
    let most = (LIMIT + UNCOUNTED_BYTES - RUN_BYTES) / 200;
    assert_eq!(outbox.count, most);
    let taken = outbox.take(is_held);
    assert_eq!(taken.runs.len(), 1);
    assert_eq!(taken.runs[0].pushes.len(), most);
    assert_eq!(taken.over_limit, crowd);
    // The next command begins anew.
    outbox.enqueue(crowd.clone(), of_bytes(200));
    let taken = outbox.take(is_held);
    assert_eq!((taken.runs.len(), taken.over_limit), (1, vec![]));
}

#[test]
fn what_is_void_is_not_counted() {
    const LIMIT: usize = 1000;
    let mut outbox = counting();
    for round in 0..1000 {
        outbox.enqueue(vec![ANN], of_bytes(1000));
        for client in outbox.take_limit_unknown() {
            outbox.limit(client, Some(LIMIT));
        }
        if round % 10 == 9 {
            outbox.cancel(ANN, None);
        }
    }
    outbox.enqueue(vec![ANN], added("a"));
    let taken = outbox.take(is_held);
    assert_eq!(taken.over_limit, []);
    assert_eq!(told(&taken).last(), Some(&(vec![1], vec!["a".into()])));
}

#[test]
fn the_servers_setting_is_read_by_classes() {
    let limits =
        Limits::read("normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60");
    assert_eq!(
        (limits.of(false), limits.of(true)),
        (None, Some(33_554_432))
    );
    let limits = Limits::read("pubsub 0 0 0 normal 1048576 0 0");
    assert_eq!((limits.of(false), limits.of(true)), (Some(1 << 20), None));
    assert_eq!(Limits::read(""), Limits::default());
    assert_eq!(Limits::read("normal"), Limits::default());
}

// ---- withheld pushes ----

#[test]
fn what_is_kept_back_comes_in_its_order_when_the_flush_is_answered() {
    let mut outbox = Outbox::default();
    outbox.expect_late_flush_reply();
    assert!(!outbox.is_withheld(ANN));
    assert!(outbox.withhold(ANN, &[added("a"), added("b")]));
    assert!(outbox.withhold(ANN, &[added("c")]));
    assert!(outbox.is_withheld(ANN) && !outbox.is_empty());
    outbox.flush_replied();
    assert!(outbox.is_flushing());
    assert_eq!(outbox.all_withheld(), [ANN]);
    assert_eq!(names(&outbox.take_withheld(ANN)), ["a", "b", "c"]);
    outbox.flush_replied();
    assert!(!outbox.is_flushing() && outbox.is_empty());
}

#[test]
fn what_is_kept_back_is_bounded_too() {
    const LIMIT: usize = 1 << 20;
    let mut outbox = Outbox::default();
    assert!(outbox.withhold(ANN, &[of_bytes(UNCOUNTED_BYTES)]));
    assert_eq!(outbox.take_limit_unknown(), []);
    assert!(outbox.withhold(ANN, &[of_bytes(LIMIT - 200)]));
    assert_eq!(outbox.take_limit_unknown(), [ANN]);
    outbox.limit(ANN, Some(LIMIT));
    assert!(outbox.withhold(ANN, &[of_bytes(200)]));
    assert!(!outbox.withhold(ANN, &[of_bytes(least())]));
    // Reported once.
    assert!(outbox.withhold(ANN, &[of_bytes(least())]));
    assert_eq!(outbox.take_withheld(ANN), []);
}

#[test]
fn nothing_is_kept_for_who_is_being_closed() {
    let mut outbox = Outbox::default();
    outbox.drop_all(ANN);
    assert!(outbox.withhold(ANN, &[added("a")]));
    assert_eq!(outbox.take_withheld(ANN), []);
    assert!(outbox.withhold(ANN, &[added("b")]));
    assert_eq!(names(&outbox.take_withheld(ANN)), ["b"]);
    outbox.retry_close(ANN);
    assert_eq!(outbox.take_closing(), [ANN]);
    assert_eq!(outbox.take_closing(), []);
}

#[test]
fn runs_are_counted_where_the_next_push_goes_to_others_than_the_last() {
    const LIMIT: usize = 100_000;
    let mut outbox = Outbox::default();
    for number in 0..20_000 {
        outbox.enqueue(vec![[ANN, BOB][number % 2]], of_bytes(200));
        for client in outbox.take_limit_unknown() {
            outbox.limit(client, Some(LIMIT));
        }
    }
    // The overhead of the last run is charged when it begins.
    let each = (LIMIT + UNCOUNTED_BYTES).div_ceil(200 + RUN_BYTES);
    assert!(outbox.count.abs_diff(2 * each) <= 2, "{}", outbox.count);
    assert_eq!(outbox.take(is_held).over_limit, [ANN, BOB]);
}
