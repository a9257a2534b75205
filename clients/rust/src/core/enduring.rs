//! A core that goes on: connections that break, servers that are no masters any more, and what they refuse for a moment.

use super::tests::{FENCE, World, not_held, told};
use super::*;

const LONG: Option<Duration> = Some(Duration::ZERO);
/// Longer than any delay before something is sent again.
const LATER: u64 = 1001;

fn error(text: &str) -> Reply {
    Reply::Error(text.into())
}

fn unreachable(why: &str) -> Change {
    Change::Refused(Error::Unreachable(why.into()))
}

/// Another connection without what the former had.
fn renew(world: &mut World) {
    world.core.renewed(world.now, world.now, FENCE, false);
}

/// What is sent but for pings, which nobody answers.
fn said_but_pings(world: &mut World) -> Vec<String> {
    let said = world.said();
    world.sent.retain(|(tag, _)| *tag != Tag::Ping);
    said.into_iter().filter(|it| it != "PING").collect()
}

fn holding(world: &mut World, key: &str) -> Id {
    let id = world.ask(key, "x");
    world.reply(Reply::Number(7));
    assert_eq!(world.changes(), [(id, Change::Granted(7))]);
    id
}

#[test]
fn a_break_loses_what_is_held_and_a_wait_goes_on_at_the_next_connection() {
    let mut world = World::going_on(false);
    let held = holding(&mut world, "held");
    let waits = world.ask("waits", "x");
    let asked = world.ask("asked", "x");
    let at_once = world.ask_for(&["at-once"], "x", None).unwrap();
    world.reply(Reply::Null);
    world.hang_up();
    let why = "the connection broke";
    let lost = Change::Lost(Loss::Connection);
    assert_eq!(world.changes(), [(held, lost), (at_once, unreachable(why))]);
    assert!(world.core.ended().is_none() && !world.core.is_up());
    let later = world.ask("later", "x");
    assert!(world.said().is_empty());
    world.later(60_000);
    renew(&mut world);
    assert!(world.core.is_up() && !world.core.is_stuck());
    let ask = |key: &str| format!("LOCK.ACQUIRE {key} OWNER x NOTIFY WAIT 0 PUSH");
    assert_eq!(world.said(), ["waits", "asked", "later"].map(ask));
    for token in [8, 9, 10].map(Reply::Number) {
        world.reply(token);
    }
    let granted = [(waits, 8), (asked, 9), (later, 10)];
    let granted = granted.map(|(id, token)| (id, Change::Granted(token)));
    assert_eq!(world.changes(), granted);
}

#[test]
fn a_fence_that_falls_loses_what_is_held_and_leaves_the_connection() {
    for has_session in [false, true] {
        let mut world = World::going_on(has_session);
        let held = holding(&mut world, "held");
        world.ask("waits", "x");
        world.reply(Reply::Null);
        world.later(FENCE.as_millis() as u64);
        assert_eq!(world.changes(), [(held, Change::Lost(Loss::Silence))]);
        assert!(world.core.is_stuck() && !world.core.has_session());
        world.hang_up();
        // Too late.
        world.core.resumed(world.now, world.now);
        assert!(!world.core.is_up());
        renew(&mut world);
        assert_eq!(
            world.said(),
            ["LOCK.ACQUIRE waits OWNER x NOTIFY WAIT 0 PUSH"]
        );
        assert_eq!(world.core.alive_until(), world.now + FENCE);
    }
}

#[test]
fn a_wait_is_bounded_by_the_clock_here_whether_there_is_a_server_or_not() {
    let time = Duration::from_secs(1);
    let second = Some(time);
    let mut world = World::going_on(false);
    let unanswered = world.ask_for(&["a"], "x", second).unwrap();
    let waiting = world.ask_for(&["b"], "x", second).unwrap();
    let behind = world.ask_for(&["b"], "y", second).unwrap();
    world.core.give_up(world.now, behind);
    let behind = world.ask_for(&["b"], "y", second).unwrap();
    world.said();
    let (tag, _) = world.sent.remove(1).unwrap();
    world.core.replied(world.now, world.now, tag, Reply::Null);
    world.later(1099);
    assert_eq!(said_but_pings(&mut world), [""; 0]);
    assert_eq!(world.changes(), []);
    world.later(1);
    let taken = Change::Refused(Error::Taken);
    let changes = [
        (unanswered, unreachable("no answer in time")),
        (waiting, taken.clone()),
        (behind, taken),
    ];
    assert_eq!(world.changes(), changes);
    let said = ["a", "b"].map(|k| {
        [
            format!("LOCK.CANCEL {k} OWNER x"),
            format!("LOCK.RELEASE {k} OWNER x"),
        ]
    });
    assert_eq!(said_but_pings(&mut world), said.concat());
    // The same where there is no connection: why is what was said last.
    let mut world = World::going_on(false);
    world.hang_up();
    let id = world.ask_for(&["a"], "x", second).unwrap();
    world
        .core
        .not_reached(world.now, &Error::Unreachable("no route".into()));
    assert_eq!(world.changes(), []);
    assert_eq!(world.core.next_tick(), world.now + time + SERVERS_WORD);
    world.later(1100);
    assert_eq!(world.changes(), [(id, unreachable("no route"))]);
    assert!(world.core.is_idle());
    // What was granted in time is not ended.
    let mut world = World::going_on(false);
    world.ask_for(&["a"], "x", second).unwrap();
    world.reply(Reply::Number(7));
    world.changes();
    world.later(2000);
    assert_eq!(world.changes(), []);
}

#[test]
fn while_no_server_is_reached_who_does_not_wait_is_told_and_who_waits_if_it_refuses() {
    let mut world = World::going_on(false);
    world.hang_up();
    let waits = world.ask("a", "x");
    let at_once = world.ask_for(&["b"], "x", None).unwrap();
    let away = Error::Unreachable("nobody there".into());
    world.core.not_reached(world.now, &away);
    assert_eq!(world.changes(), [(at_once, Change::Refused(away))]);
    world.core.not_reached(world.now, &Error::NoModule);
    assert_eq!(world.changes(), [(waits, Change::Refused(Error::NoModule))]);
}

#[test]
fn what_is_not_taken_back_for_a_moment_is_sent_again_and_nothing_else_is_lost() {
    for (refusal, has_session) in [
        ("NOREPLICAS Not enough good replicas to write.", false),
        ("MISCONF Redis is configured to save RDB snapshots", true),
        ("BUSY Redis is busy running a script.", false),
        ("OOM command not allowed", true),
        ("LOADING Redis is loading the dataset in memory", false),
    ] {
        let mut world = World::going_on(has_session);
        let other = holding(&mut world, "other");
        let id = holding(&mut world, "k");
        world.core.release(world.now, id);
        world.reply(error(refusal));
        // Its owner asks for it again behind that.
        let next = world.ask("k", "x");
        for _ in 0..20 {
            assert_eq!(said_but_pings(&mut world), [""; 0]);
            world.later(LATER);
            let said = ["LOCK.CANCEL k OWNER x", "LOCK.RELEASE k OWNER x"];
            assert_eq!(said_but_pings(&mut world), said);
            world.reply(Reply::Number(7));
            world.reply(error(refusal));
        }
        assert_eq!(world.changes(), []);
        world.later(LATER);
        said_but_pings(&mut world);
        world.reply(Reply::Number(7));
        world.reply(Reply::Number(0));
        assert_eq!(world.changes(), [(id, Change::Over)]);
        said_but_pings(&mut world);
        world.reply(Reply::Number(8));
        assert_eq!(world.changes(), [(next, Change::Granted(8))]);
        world.core.release(world.now, other);
        world.reply(Reply::Number(0));
        assert_eq!(world.changes(), [(other, Change::Over)]);
    }
}

#[test]
fn what_is_not_taken_back_for_good_is_told_and_asked_of_the_server_all_the_same() {
    let mut world = World::going_on(false);
    let id = holding(&mut world, "k");
    world.core.release(world.now, id);
    let refusal = "NOPERM this user has no right to LOCK.RELEASE";
    world.reply(error(refusal));
    let lost = Change::Lost(Loss::Unreleased(refusal.into()));
    assert_eq!(world.changes(), [(id, lost)]);
    world.later(LATER);
    assert_eq!(said_but_pings(&mut world).len(), 2);
    world.reply(Reply::Number(7));
    world.reply(Reply::Number(0));
    assert_eq!(world.changes(), []);
    assert!(world.core.is_idle());
}

#[test]
fn a_cancel_and_its_release_are_sent_again_together() {
    // The server is busy until between the two; the grant comes after the release.
    let mut world = World::going_on(false);
    let id = world.ask("k", "x");
    world.reply(Reply::Null);
    world.core.give_up(world.now, id);
    world.reply(error("BUSY"));
    world.reply(not_held());
    assert!(!world.core.is_idle());
    world.push("k", "7 x");
    world.later(LATER);
    let said = ["LOCK.CANCEL k OWNER x", "LOCK.RELEASE k OWNER x"];
    assert_eq!(said_but_pings(&mut world), said);
    world.reply(Reply::Number(7));
    world.reply(Reply::Number(0));
    assert_eq!(world.changes(), [(id, Change::Over)]);
}

#[test]
fn the_other_keys_of_one_that_was_lost_are_given_back_until_they_are_taken() {
    let mut world = World::going_on(false);
    let id = world.ask_for(&["a", "b", "c"], "x", LONG).unwrap();
    world.reply(Reply::Number(7));
    world.push("b", "LOST deleted x");
    assert_eq!(
        world.changes(),
        [(id, Change::Granted(7)), (id, told("deleted"))]
    );
    let said = ["LOCK.RELEASE a OWNER x", "LOCK.RELEASE c OWNER x"];
    assert_eq!(world.said(), said);
    // The lost one may be asked for at once, another one behind its release.
    world.ask("b", "x");
    world.ask("c", "x");
    assert_eq!(world.said().len(), 1);
    world.reply(Reply::Number(0));
    world.reply(error("NOREPLICAS"));
    world.reply(Reply::Null);
    world.later(LATER);
    let said = [
        "LOCK.CANCEL a OWNER x",
        "LOCK.RELEASE a OWNER x",
        "LOCK.RELEASE c OWNER x",
    ];
    assert_eq!(said_but_pings(&mut world), said);
    for reply in [Reply::Number(0), not_held(), Reply::Number(0)] {
        world.reply(reply);
    }
    assert_eq!(
        said_but_pings(&mut world),
        ["LOCK.ACQUIRE c OWNER x NOTIFY WAIT 0 PUSH"]
    );
    assert_eq!(world.changes(), []);
}

#[test]
fn a_master_that_is_none_any_more_is_left_and_the_session_goes_on() {
    let mut world = World::going_on(true);
    let held = holding(&mut world, "held");
    let waits = world.ask("waits", "x");
    world.reply(Reply::Null);
    world.push("held", "LOST demoted x");
    world.push("waits", "FAILED UNBLOCKED x");
    assert!(world.core.is_stuck() && world.core.has_session());
    world.hang_up();
    world.later(500);
    assert!(!world.core.is_stuck());
    world.core.resumed(world.now, world.now);
    let said = [
        "LOCK.CANCEL held OWNER x",
        "LOCK.ACQUIRE waits OWNER x NOTIFY WAIT 0 PUSH",
    ];
    assert_eq!(world.said(), said);
    world.reply(Reply::Number(7));
    world.reply(Reply::Number(8));
    assert_eq!(world.changes(), [(waits, Change::Granted(8))]);
    world.core.release(world.now, held);
    world.reply(error(
        "READONLY You can't write against a read only replica.",
    ));
    assert!(world.core.is_stuck());
    world.hang_up();
    world.core.resumed(world.now, world.now);
    let said = ["LOCK.CANCEL held OWNER x", "LOCK.RELEASE held OWNER x"];
    assert_eq!(world.said()[..2], said);
    world.reply(Reply::Number(7));
    world.reply(Reply::Number(0));
    assert_eq!(world.changes(), [(held, Change::Over)]);
}

#[test]
fn a_replica_that_says_readonly_is_left_and_what_was_asked_is_asked_elsewhere() {
    for wait in [None, LONG] {
        let mut world = World::going_on(false);
        let id = world.ask_for(&["k"], "x", wait).unwrap();
        world.reply(error(
            "READONLY You can't write against a read only replica.",
        ));
        assert_eq!(world.changes(), []);
        assert!(world.core.is_stuck());
        world.hang_up();
        assert_eq!(world.changes(), []);
        renew(&mut world);
        assert_eq!(world.said().len(), 1);
        world.reply(Reply::Number(7));
        assert_eq!(world.changes(), [(id, Change::Granted(7))]);
    }
}

#[test]
fn without_a_session_a_demotion_loses_what_is_held() {
    let mut world = World::going_on(false);
    let held = holding(&mut world, "held");
    world.push("held", "LOST demoted x");
    assert_eq!(world.changes(), [(held, told("demoted"))]);
    assert!(world.core.is_stuck());
}

#[test]
fn a_busy_server_is_asked_again_and_what_it_refuses_for_good_is_told() {
    let mut world = World::going_on(true);
    holding(&mut world, "held");
    world.ask("waits", "x");
    let busy = || error("BUSY Redis is busy running a script.");
    world.reply(busy());
    world.later(LATER);
    let ask = "LOCK.ACQUIRE waits OWNER x NOTIFY WAIT 0 PUSH";
    assert_eq!(said_but_pings(&mut world), [ask]);
    world.reply(Reply::Null);
    // What is looked up on the next connection is, too.
    world.hang_up();
    world.core.resumed(world.now, world.now);
    world.reply(busy());
    world.reply(busy());
    assert_eq!(world.changes(), []);
    world.later(LATER);
    let said = ["LOCK.CANCEL held OWNER x", "LOCK.CANCEL waits OWNER x"];
    assert_eq!(said_but_pings(&mut world), said);
    world.reply(Reply::Number(7));
    world.reply(Reply::Number(0));
    // Who waited already waits on; who is new is told.
    let noreplicas = "NOREPLICAS Not enough good replicas to write.";
    world.said();
    world.reply(error(noreplicas));
    let new = world.ask("new", "x");
    world.reply(error(noreplicas));
    let refused = Change::Refused(Error::Refused(noreplicas.into()));
    assert_eq!(world.changes(), [(new, refused)]);
    world.later(LATER);
    assert_eq!(said_but_pings(&mut world), [ask]);
    assert!(world.core.ended().is_none());
}
