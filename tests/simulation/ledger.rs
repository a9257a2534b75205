//! Bugs that were found, each as the shortest history that showed it. Nothing here is ever deleted.

use crate::model::around::Around;
use crate::model::brief::{
    BLOCK, PUSH, acked, acquire, acquire_as, again, by_task, close, connect, del, deltp, exec,
    macquire, multi, pipeline, raise_as, release, resume, run, set, settp, settp_wait, start,
};
use crate::model::command::{Ask, Command, Kind, Mode, Past, Spot, Wait};
use crate::model::generate::Scope;
use crate::model::step::Step;
use crate::model::world::Limits;
use crate::trial::{Close, try_history};

#[track_caller]
fn holds(steps: &[Step]) {
    let scope = Scope {
        places: 4,
        names: 4,
        server: false,
        locks: 0,
        sessions: 0,
        meetings: 0,
        quiet: 0,
        around: Around::default(),
    };
    if let Err(what) = try_history(scope, Limits::ROOMY, 1, steps, Close::Finished) {
        panic!("{what}");
    }
}

/// The look at the key was taken before what was left there was removed.
#[test]
fn a_key_left_behind_refuses_nobody() {
    holds(&[
        connect(0),
        connect(1),
        run(0, settp(0)),
        close(0),
        run(1, settp(0)),
    ]);
}

/// What somebody else was granted in a transaction, and its session took along to another connection, passed for given back.
#[test]
fn a_grant_is_told_though_its_session_moves_in_the_same_transaction() {
    for gives_back in [false, true] {
        let mut steps = vec![
            connect(0),
            connect(1),
            run(0, acquire(0, Mode::Exclusive, None)),
            run(1, start(1000)),
            run(1, acquire(0, Mode::Exclusive, PUSH)),
            multi(0),
            run(0, release(0)),
            run(0, resume(0, false)),
        ];
        steps.extend(gives_back.then(|| run(0, release(0))));
        steps.push(exec(0));
        holds(&steps);
    }
}

/// Who takes a lock again with a lease has the new lease; who had waited twice did not.
#[test]
fn a_lease_counts_for_who_waited_twice() {
    let second = Ask {
        lease_ms: Some(10),
        reentrant: true,
        wait: BLOCK,
        ..Ask::default()
    };
    let (key, mode, ask) = (0, Mode::Shared, second);
    holds(&[
        connect(0),
        connect(1),
        run(0, acquire(0, Mode::Exclusive, None)),
        run(1, again(acquire(0, Mode::Shared, PUSH))),
        run(1, Command::Acquire { key, mode, ask }),
        run(0, release(0)),
        Step::Pass { ms: 10 },
        Step::Work { most: 1 },
    ]);
}

/// Such a hold became a shared one of a semaphore when a depth of it was released.
#[test]
fn nobody_holds_a_semaphore_with_two_numbers_of_permits() {
    let permits = |count| Mode::Permits { count, total: 3 };
    let leased = Ask {
        lease_ms: Some(10),
        reentrant: true,
        wait: PUSH,
        ..Ask::default()
    };
    let (key, mode, ask) = (0, permits(1), leased);
    for first in [
        again(acquire(0, permits(1), PUSH)),
        Command::Acquire { key, mode, ask },
    ] {
        holds(&[
            connect(0),
            connect(1),
            run(0, acquire(0, permits(3), None)),
            run(1, first),
            run(1, again(acquire(0, permits(2), PUSH))),
            run(0, release(0)),
            run(1, release(0)),
            Step::Work { most: 1 },
            run(1, release(0)),
        ]);
    }
}

/// That a key had a time to live was remembered under its former name.
#[test]
fn a_lock_is_handed_over_without_a_time_to_live_also_under_a_new_name() {
    let ways = [
        Command::Rename { from: 0, to: 1 },
        Command::Move { key: 0, db: 1 },
        Command::Swapdb,
    ];
    for way in ways {
        let (name, db) = match way {
            Command::Rename { .. } => (1, 0),
            _ => (0, 1),
        };
        holds(&[
            connect(0),
            connect(1),
            run(0, acquire(0, Mode::Exclusive, None)),
            run(1, Command::Expire { key: 0 }),
            run(1, way),
            run(0, Command::Select { db }),
            run(1, Command::Select { db }),
            run(1, acquire(name, Mode::Exclusive, BLOCK)),
            run(0, release(name)),
        ]);
    }
}

/// Of what a data set brought along nobody had told that it had one.
#[test]
fn a_lock_of_a_former_server_is_handed_over_without_its_time_to_live() {
    let spot = Spot { db: 0, name: 0 };
    holds(&[
        connect(0),
        connect(1),
        run(0, acquire(0, Mode::Exclusive, None)),
        run(1, acquire(0, Mode::Exclusive, BLOCK)),
        Step::Evict { spot },
        Step::Resync {
            present: vec![spot],
            held: vec![spot],
            locks: vec![spot],
        },
        Step::Work { most: 1 },
    ]);
}

/// They waited for what had stood there before.
#[test]
fn readers_join_a_lock_that_comes_with_a_swap_of_databases() {
    let select = |db| Command::Select { db };
    holds(&[
        connect(0),
        connect(1),
        connect(2),
        run(0, acquire(0, Mode::Shared, None)),
        run(1, select(1)),
        run(1, acquire(0, Mode::Exclusive, None)),
        run(2, select(1)),
        run(2, acquire(0, Mode::Shared, BLOCK)),
        pipeline(1, [del(0), set(0)]),
        Step::Work { most: 1 },
        run(0, Command::Swapdb),
        Step::Work { most: 1 },
    ]);
}

/// The look at the second key was older than the grant that followed from the first, which was taken
/// for lost.
#[test]
fn who_is_handed_several_keys_keeps_them_when_another_asks_for_the_same() {
    holds(&[
        connect(0),
        connect(1),
        connect(2),
        run(0, acquire(0, Mode::Exclusive, None)),
        run(1, macquire([0, 1], PUSH)),
        close(0),
        run(2, macquire([0, 1], None)),
        run(1, release(1)),
    ]);
}

/// Each of them was counted, and the third refused.
#[test]
fn who_waits_often_for_the_same_permits_takes_them_once() {
    let permit = |count| Mode::Permits { count, total: 2 };
    holds(&[
        connect(0),
        connect(1),
        run(0, acquire(0, Mode::Exclusive, None)),
        run(1, again(acquire(0, permit(1), PUSH))),
        run(1, again(acquire(0, permit(1), PUSH))),
        run(1, again(acquire(0, permit(1), PUSH))),
        run(0, release(0)),
        run(0, acquire(0, permit(1), None)),
        run(1, release(0)),
        run(1, release(0)),
        run(0, acquire(0, permit(1), PUSH)),
        run(1, release(0)),
    ]);
}

/// With several keys, and then with one of them: only the first key's queue was looked at.
#[test]
fn who_waits_for_a_key_that_it_is_granted_with_others_has_it_deeper() {
    holds(&[
        connect(0),
        connect(1),
        run(0, acquire(0, Mode::Exclusive, None)),
        run(1, again(macquire([1, 0], PUSH))),
        run(1, again(acquire(1, Mode::Exclusive, BLOCK))),
        run(0, release(0)),
        Step::Work { most: 1 },
    ]);
}

/// The model took it for handed over, and its time to live for gone.
#[test]
fn who_is_let_in_beside_others_leaves_their_lock_its_time_to_live() {
    holds(&[
        connect(0),
        connect(1),
        connect(2),
        run(0, acquire(0, Mode::Shared, None)),
        run(1, acquire(0, Mode::Exclusive, PUSH)),
        run(2, acquire(0, Mode::Shared, PUSH)),
        run(0, Command::Expire { key: 0 }),
        close(1),
        Step::Work { most: 1 },
    ]);
}

/// Only the first in line was looked at after a change of rights: behind the caller's own wait, which it gives up with the key.
#[test]
fn who_is_next_after_a_wait_that_is_given_up_with_the_key_is_handed_it() {
    let waits = |limit_ms, push| Some(Wait { limit_ms, push });
    let ask = Ask {
        label: 2,
        task: None,
        lease_ms: None,
        reentrant: false,
        notify: false,
        wait: None,
        acks: None,
    };
    let keys = vec![1];
    let then = Some((0, settp(1)));
    holds(&[
        connect(0),
        connect(2),
        connect(3),
        run(2, Command::Macquire { keys, ask }),
        run(2, settp(2)),
        run(2, settp_wait(1, waits(40, true))),
        run(3, settp_wait(1, waits(12, false))),
        Step::Expiry {
            who: 0,
            key: 1,
            then,
        },
        Step::Pass { ms: 2 },
        run(0, Command::Renamenx { from: 2, to: 1 }),
        run(2, deltp(1)),
    ]);
}

/// A grant whose token was raised in the transaction that caused it passed for given back, and was never told.
#[test]
fn a_grant_is_told_though_its_token_is_raised_in_the_same_transaction() {
    holds(&[
        connect(0),
        run(0, acquire(0, Mode::Exclusive, None)),
        run(0, acquire_as(1, 0, Mode::Exclusive, PUSH)),
        multi(0),
        run(0, release(0)),
        run(0, raise_as(1, 0)),
        exec(0),
    ]);
}

/// Nobody told the connection for which the session had been granted the key that another one gave the grant up.
#[test]
fn a_blocked_request_is_answered_when_its_session_moves_before_the_acknowledgement() {
    for leave in [resume(0, false), Command::Detach] {
        let (blocked, other) = match leave {
            Command::Detach => (PUSH, 0),
            _ => (BLOCK, 1),
        };
        holds(&[
            connect(0),
            connect(1),
            Step::Replicas { count: 1 },
            run(0, start(1000)),
            run(0, acked(acquire(0, Mode::Exclusive, blocked), 1, 1000)),
            run(other, leave),
            run(other, Command::Cancel { key: 0, label: 0 }),
            Step::Work { most: 1 },
        ]);
    }
}

/// Nobody was there any more to whom it could be granted, and it kept others waiting until its time was over.
#[test]
fn what_was_not_acknowledged_goes_with_its_connection() {
    holds(&[
        connect(0),
        connect(1),
        Step::Replicas { count: 1 },
        run(0, start(1000)),
        run(0, acked(acquire(0, Mode::Exclusive, PUSH), 1, 1000)),
        run(1, acquire(0, Mode::Exclusive, BLOCK)),
        close(0),
        Step::Work { most: 1 },
    ]);
}

/// The model ended those in the order in which they were granted; and where replicas went, the engine those first that wanted few.
#[test]
fn grants_that_are_withdrawn_end_in_the_order_in_which_their_times_are_over_or_in_their_own() {
    for (withdrawn, [first, second]) in [
        (Step::Pass { ms: 20 }, [(1, 12), (1, 4)]),
        (Step::Replicas { count: 0 }, [(2, 1000), (1, 1000)]),
    ] {
        let ask = |key, (replicas, timeout_ms)| {
            let command = acquire(key, Mode::Exclusive, PUSH);
            run(0, acked(command, replicas, timeout_ms))
        };
        let keys = vec![0, 1];
        holds(&[
            connect(0),
            connect(1),
            Step::Replicas { count: 2 },
            run(0, start(1000)),
            ask(0, first),
            ask(1, second),
            run(1, Command::Watchex { keys }),
            withdrawn,
            Step::Work { most: 64 },
        ]);
    }
}

/// It counted a hold that it did not show.
#[test]
fn a_withdrawn_hold_is_counted_no_more_where_the_key_is_looked_at() {
    holds(&[
        connect(0),
        Step::Replicas { count: 1 },
        run(0, start(1000)),
        run(0, acked(acquire(0, Mode::Exclusive, None), 1, 1)),
        Step::Pass { ms: 1 },
    ]);
}

/// Only the first in line was looked at after a change of rights: behind one that too few replicas are there for.
#[test]
fn who_is_next_after_one_that_is_not_acknowledged_is_served_in_the_same_step() {
    holds(&[
        connect(0),
        connect(1),
        connect(2),
        run(0, acquire(0, Mode::Exclusive, None)),
        run(1, start(1000)),
        run(1, acked(acquire(0, Mode::Exclusive, PUSH), 1, 1000)),
        run(2, acquire(0, Mode::Exclusive, PUSH)),
        Step::Pass { ms: 1 },
        run(0, release(0)),
    ]);
}

/// A lease that begins with the acknowledgement passed for none, and the request for a cycle.
#[test]
fn nobody_waits_for_ever_for_a_pending_hold_with_a_lease() {
    let leased = Ask {
        lease_ms: Some(10),
        wait: PUSH,
        ..Ask::default()
    };
    let (key, mode, ask) = (0, Mode::Exclusive, leased);
    holds(&[
        connect(0),
        connect(1),
        Step::Replicas { count: 1 },
        run(0, start(1000)),
        run(0, acked(Command::Acquire { key, mode, ask }, 1, 1000)),
        run(1, acquire(1, Mode::Exclusive, None)),
        run(0, acquire(1, Mode::Exclusive, PUSH)),
        run(1, acquire(0, Mode::Exclusive, BLOCK)),
    ]);
}

/// It was in nobody's way any more, and yet the request was refused as a cycle.
#[test]
fn nobody_waits_for_ever_for_a_withdrawn_hold() {
    holds(&[
        connect(0),
        connect(1),
        Step::Replicas { count: 1 },
        run(0, start(1000)),
        run(0, acked(acquire(0, Mode::Exclusive, None), 1, 1000)),
        run(1, macquire([0, 1], BLOCK)),
        Step::Replicas { count: 0 },
        run(0, acquire(1, Mode::Shared, PUSH)),
    ]);
}

/// It was told by its old name later, which another had been granted meanwhile.
#[test]
fn a_grant_is_withdrawn_when_its_key_goes_by_another_name() {
    for moves in [
        Command::Rename { from: 0, to: 2 },
        Command::Rename { from: 1, to: 2 },
        Command::Move { key: 0, db: 1 },
        Command::Swapdb,
    ] {
        for (form, watches) in [(BLOCK, false), (PUSH, false), (PUSH, true)] {
            let mut steps = vec![
                connect(0),
                connect(1),
                Step::Replicas { count: 1 },
                run(0, start(1000)),
            ];
            let keys = vec![0, 2];
            steps.extend(watches.then(|| run(1, Command::Watchex { keys })));
            steps.extend([
                run(0, acked(macquire([0, 1], form), 1, 1000)),
                run(1, moves.clone()),
                run(1, acquire(0, Mode::Exclusive, PUSH)),
                Step::Work { most: 1 },
                Step::Work { most: 1 },
                Step::Work { most: 1 },
            ]);
            holds(&steps);
        }
    }
}

/// Nobody had held what was in its way, and nothing else told the reader that it could go along.
#[test]
fn a_reader_goes_along_with_a_lock_that_is_renamed_to_the_key_that_it_waits_for() {
    let (shared, to) = (Mode::Shared, 1);
    holds(&[
        connect(0),
        connect(1),
        connect(2),
        connect(3),
        run(
            2,
            Command::Restore {
                key: to,
                kind: Kind::List,
                replace: false,
            },
        ),
        run(3, settp_wait(to, PUSH)),
        run(
            0,
            Command::Lapse {
                key: to,
                how: Past::Pexpire,
            },
        ),
        run(1, acquire(to, shared, PUSH)),
        run(2, acquire(0, shared, PUSH)),
        Step::Work { most: 64 },
        Step::Expiry {
            who: 2,
            key: to,
            then: Some((0, set(to))),
        },
        Step::Work { most: 2 },
        run(0, Command::Rename { from: 0, to }),
    ]);
}

/// What is left of a connection is a hold and a wait. The release of the hold serves a request for both keys, for which the wait is
/// removed: the record went with the wait, and was removed once more after the hold.
#[test]
fn the_last_hold_of_the_dead_and_their_last_wait_go_in_one_step() {
    holds(&[
        connect(0),
        connect(1),
        run(1, start(10)),
        run(1, acquire(1, Mode::Shared, PUSH)),
        close(1),
        run(0, acquire(0, Mode::Shared, None)),
        run(0, settp_wait(1, PUSH)),
        connect(1),
        run(1, macquire([0, 1], BLOCK)),
        close(0),
        connect(0),
        run(0, settp_wait(0, BLOCK)),
    ]);
}

/// Behind waits that another request had passed on its way through the queue, nobody was looked at again: also not at one that only
/// that request's own task passes over.
#[test]
fn a_task_whose_reader_is_first_in_line_closes_a_circle_behind_a_writer() {
    holds(&[
        connect(0),
        connect(1),
        connect(2),
        connect(3),
        run(3, acquire(0, Mode::Exclusive, None)),
        run(0, by_task(1, acquire_as(0, 0, Mode::Shared, PUSH))),
        run(1, acquire(0, Mode::Shared, PUSH)),
        run(2, acquire(0, Mode::Exclusive, PUSH)),
        run(0, by_task(1, acquire_as(1, 0, Mode::Exclusive, PUSH))),
    ]);
}

/// A fault of the model: a hold whose token nobody has heard of, since it was raised at once, passed for the youngest.
#[test]
fn what_is_raised_before_its_token_is_heard_of_is_the_older_hold() {
    let sequence = Command::Sequence {
        key: 3,
        value: 2,
        notify: false,
        acks: None,
    };
    holds(&[
        connect(0),
        pipeline(0, [settp(3), raise_as(0, 3)]),
        run(0, sequence),
        close(0),
        Step::Work { most: 1 },
    ]);
}
