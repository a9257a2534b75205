//! What the outbox decides: when pushes are written, in what order, and which are dropped.

use super::*;
use crate::engine::{Bytes, Db, Kind, Loss, NameFrom, PresenceChange};
use std::cell::Cell;

const ANN: ClientId = ClientId(1);
const BOB: ClientId = ClientId(2);

/// No client is executing, on a server that delays pushes until after the reply.
const OUTSIDE: Circumstances = Circumstances {
    executing_client: None,
    in_exec: false,
    must_wait: false,
};
const IN_EXEC: Circumstances = Circumstances {
    in_exec: true,
    ..OUTSIDE
};
/// Redis 7.0, or an event on Valkey 9.
const WAITING: Circumstances = Circumstances {
    must_wait: true,
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

/// A push with this cost, in bytes.
fn of_bytes(bytes: usize) -> Push {
    let push = added(&"k".repeat(bytes - PUSH_BYTES));
    assert_eq!(cost(&push), bytes);
    push
}

/// The recipients, in order, each with the names of keys.
fn told(taken: &VecDeque<Run>) -> Vec<(Vec<u64>, Vec<String>)> {
    let name = |push: &Push| String::from_utf8_lossy(&push.key.name).into_owned();
    let run = |run: &Run| {
        let to = run.to.iter().map(|id| id.0).collect();
        (to, run.pushes.iter().map(name).collect())
    };
    taken.iter().map(run).collect()
}

/// Clients for which `are` is true have what they were granted and want what they are told.
struct Known<F> {
    are: F,
    /// What they have by other names.
    granted: HashSet<Token>,
    /// How often that was looked at.
    looks: Cell<usize>,
}

impl<F: Fn(ClientId, &Push) -> bool> Facts for Known<F> {
    fn wants(&self, client: ClientId, push: &Push) -> bool {
        (self.are)(client, push)
    }

    fn holds(&self, client: ClientId, push: &Push, _: Token) -> bool {
        (self.are)(client, push)
    }

    fn granted(&self, _: ClientId) -> HashSet<Token> {
        self.looks.set(self.looks.get() + 1);
        self.granted.clone()
    }
}

fn known<F: Fn(ClientId, &Push) -> bool>(are: F) -> Known<F> {
    let (granted, looks) = (HashSet::new(), Cell::new(0));
    Known {
        are,
        granted,
        looks,
    }
}

fn held() -> impl Facts {
    known(|_, _| true)
}

fn not_held() -> impl Facts {
    known(|_, _| false)
}

fn take(outbox: &mut Outbox) -> Vec<(Vec<u64>, Vec<String>)> {
    told(&outbox.take(&held()))
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
        ..WAITING
    };
    let post = outbox.post(vec![ANN], granted("a", 7), now);
    assert_eq!(post, Post::InFront(ANN, granted("a", 7)));
    let post = outbox.post(vec![ANN], added("a"), now);
    assert_eq!(post, Post::Queued(Until::Soon));
    for to in [vec![BOB], vec![ANN, BOB]] {
        let post = outbox.post(to, granted("a", 7), now);
        assert_eq!(post, Post::Queued(Until::Soon));
    }
    let now = Circumstances {
        executing_client,
        ..IN_EXEC
    };
    let post = outbox.post(vec![ANN], granted("a", 7), now);
    assert_eq!(post, Post::Queued(Until::Later));
}

#[test]
fn what_must_wait_is_sent_before_the_next_command() {
    let mut outbox = Outbox::default();
    let mut post = |now| outbox.post(vec![ANN], added("a"), now);
    assert_eq!(post(WAITING), Post::Queued(Until::Soon));
    // EXEC's reply is not written by then.
    let in_exec = true;
    let now = Circumstances { in_exec, ..WAITING };
    assert_eq!(post(now), Post::Queued(Until::Later));
    assert_eq!(post(IN_EXEC), Post::Queued(Until::Later));
    assert_eq!(post(OUTSIDE), Post::Queued(Until::Later));
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
    let taken = outbox.take(&held());
    assert_eq!((taken.len(), taken[0].pushes.len()), (1, QUEUED_PUSHES_MAX));
    // A push that must wait does so, whatever the count.
    for number in 1..=2 * QUEUED_PUSHES_MAX {
        let post = outbox.post(crowd.clone(), added("a"), WAITING);
        let until = match number >= QUEUED_PUSHES_MAX {
            true => Until::Soon,
            false => Until::Later,
        };
        assert_eq!(post, Post::Queued(until), "number {number}");
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
    let own = outbox.take_fresh_for(ANN, &held());
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
        names(&outbox.take_fresh_for(ANN, &held())),
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
    assert_eq!(names(&outbox.take_fresh_for(ANN, &held())), ["b", "c"]);
    // It is not cancelled for ever.
    outbox.take(&held());
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
        names(&outbox.take_fresh_for(ANN, &not_held())),
        ["b", "b", "c"]
    );
    // A grant outside of a transaction is sent even if it was released since.
    outbox.take(&held());
    outbox.enqueue(vec![ANN], granted("a", 1));
    assert_eq!(names(&outbox.take_fresh_for(ANN, &not_held())), ["a"]);
}

#[test]
fn nobody_gives_back_what_another_was_granted_in_its_transaction() {
    let mut outbox = Outbox::default();
    outbox.post(vec![ANN], granted("a", 1), IN_EXEC);
    outbox.post(vec![BOB], granted("b", 2), IN_EXEC);
    outbox.note_command_in_exec(BOB);
    assert_eq!(names(&outbox.take_fresh_for(ANN, &not_held())), ["a"]);
    assert!(outbox.take_fresh_for(BOB, &not_held()).is_empty());
    // In the next transaction it may.
    outbox.post(vec![ANN], granted("a", 3), IN_EXEC);
    outbox.note_command_in_exec(ANN);
    assert!(outbox.take_fresh_for(ANN, &not_held()).is_empty());
}

/// It may be there by another name. All that a client has is looked at once, however often it was granted something.
#[test]
fn who_has_no_longer_what_it_was_granted_is_looked_at_once() {
    let mut outbox = Outbox::default();
    for token in 0..1000 {
        outbox.post(vec![ANN], granted("a", token), IN_EXEC);
        outbox.post(vec![BOB], granted("b", token), IN_EXEC);
    }
    let mut facts = known(|_, _| false);
    facts.granted.extend([Token(7), Token(400)]);
    let of_ann = outbox.take_fresh_for(ANN, &facts);
    assert_eq!(of_ann, [granted("a", 7), granted("a", 400)]);
    assert_eq!(facts.looks.get(), 2);
}

// ---- limits ----

const MB: usize = 1 << 20;

#[test]
fn what_waits_up_to_the_limit_is_told_and_one_byte_more_is_dropped() {
    for is_over in [false, true] {
        let mut outbox = Outbox::default();
        for _ in 0..BYTES_MAX / MB - 1 {
            outbox.enqueue(vec![ANN], of_bytes(MB));
        }
        // What waits for another counts for nobody else.
        outbox.enqueue(vec![BOB], of_bytes(2 * MB));
        outbox.enqueue(vec![ANN, BOB], of_bytes(MB + usize::from(is_over)));
        if is_over {
            // Pushes after a dropped one are dropped, however small, or there would be a gap.
            outbox.enqueue(vec![ANN, BOB], added(""));
        }
        let taken = outbox.take(&held());
        let count_of = |id| {
            let runs = taken.iter().filter(|run| run.to.contains(&id));
            runs.map(|run| run.pushes.len()).sum::<usize>()
        };
        let (counts, over_limit) = match is_over {
            false => ((64, 2), vec![]),
            true => ((63, 3), vec![ANN]),
        };
        assert_eq!((count_of(ANN), count_of(BOB)), counts);
        // Nor is it told anything between then and its end.
        let post = outbox.post(vec![ANN], added("a"), OUTSIDE);
        assert_eq!(matches!(post, Post::Now(..)), !is_over);
        assert_eq!(take(&mut outbox), []);
        assert_eq!(Vec::from_iter(outbox.take_over_limit()), over_limit);
        let post = outbox.post(vec![ANN], added("a"), OUTSIDE);
        assert!(matches!(post, Post::Now(..)));
    }
}

#[test]
fn what_waits_is_no_more_than_the_limit_however_much_is_told() {
    let crowd: Vec<_> = (10..30).map(ClientId).collect();
    let mut outbox = Outbox::default();
    for _ in 0..2 * BYTES_MAX / MB {
        outbox.enqueue(crowd.clone(), of_bytes(MB));
    }
    assert_eq!(outbox.count, BYTES_MAX / MB);
    let taken = outbox.take(&held());
    assert_eq!((taken.len(), taken[0].pushes.len()), (1, BYTES_MAX / MB));
    let mut over_limit = Vec::from_iter(outbox.take_over_limit());
    over_limit.sort_unstable();
    assert_eq!(over_limit, crowd);
    // The next command begins anew.
    outbox.enqueue(crowd.clone(), of_bytes(MB));
    assert_eq!(outbox.take(&held()).len(), 1);
    assert!(!outbox.is_any_over_limit());
}

// ---- withheld pushes ----

#[test]
fn what_is_kept_back_comes_in_its_order_when_the_flush_is_answered() {
    let mut outbox = Outbox::default();
    outbox.expect_late_flush_reply();
    assert!(!outbox.is_withheld(ANN));
    outbox.withhold(ANN, &[added("a"), added("b")]);
    outbox.withhold(ANN, &[added("c")]);
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
    let mut outbox = Outbox::default();
    for _ in 0..BYTES_MAX / MB {
        outbox.withhold(ANN, &[of_bytes(MB)]);
    }
    assert!(!outbox.is_any_over_limit());
    outbox.withhold(ANN, &[added("a"), added("b")]);
    outbox.withhold(ANN, &[added("c")]);
    assert_eq!(Vec::from_iter(outbox.take_over_limit()), [ANN]);
    assert_eq!(outbox.take_withheld(ANN).len(), BYTES_MAX / MB);
}

fn sight(name: &str) -> Push {
    let change = PresenceChange::Added(Token(7));
    said(
        name,
        News::of_presence(change, Some(Bytes::from(&b"v"[..]))),
    )
}

#[test]
fn what_a_transaction_tells_of_prefixes_is_sent_to_who_still_wants_it() {
    let mut outbox = Outbox::default();
    for push in [sight("k"), added("k"), sight("l")] {
        outbox.post(vec![ANN, BOB], push, IN_EXEC);
    }
    let wanted = known(|client, push| client == BOB || *push.key.name == *b"l");
    let taken = told(&outbox.take(&wanted));
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let expected: Vec<(Vec<u64>, Vec<String>)> =
        vec![(vec![2], names(&["k"])), (vec![1, 2], names(&["k", "l"]))];
    assert_eq!(taken, expected);
}

#[test]
fn what_is_told_of_prefixes_follows_the_reply_and_is_cancelled_with_no_key() {
    let mut outbox = Outbox::default();
    let executing = Circumstances {
        executing_client: Some(ANN),
        must_wait: true,
        ..OUTSIDE
    };
    let post = outbox.post(vec![ANN], sight("k"), executing);
    assert_eq!(post, Post::Queued(Until::Soon));
    let name = b"k".as_slice();
    outbox.cancel(ANN, Some(&[Key { db: Db(0), name }]));
    assert_eq!(take(&mut outbox).len(), 1);
}

#[test]
fn a_value_counts_towards_the_limit() {
    let value = Bytes::from(&*vec![b'v'; 4096]);
    let push = said(
        "k",
        News::of_presence(PresenceChange::Set(Token(7)), Some(value)),
    );
    assert_eq!(cost(&push), PUSH_BYTES + 1 + 4096);
}

#[test]
fn a_client_gets_what_was_queued_for_it_since_its_last_pushes_were_taken() {
    let mut outbox = Outbox::default();
    let queue = |outbox: &mut Outbox, to: &[ClientId], name| {
        outbox.post(to.to_vec(), added(name), IN_EXEC);
    };
    queue(&mut outbox, &[ANN], "a");
    assert_eq!(outbox.take_for(BOB), []);
    queue(&mut outbox, &[ANN, BOB], "b");
    assert_eq!(outbox.take_for(BOB), [added("b")]);
    assert_eq!(outbox.take_for(BOB), []);
    queue(&mut outbox, &[BOB], "c");
    assert_eq!(outbox.take_for(ANN), [added("a"), added("b")]);
    assert_eq!(outbox.take_for(BOB), [added("c")]);
}
