//! Bugs that were found on servers, each as the shortest history that showed it. Nothing here is
//! ever deleted.

use crate::model::brief::{
    BLOCK, PUSH, acquire, acquire_as, close, connect, del, deltp, exec, multi, pipeline, release,
    resume, run, script, set, settp, settp_wait, start, unwatchex, watchex,
};
use crate::model::command::{Ask, Command, Mode, Name, Past};
use crate::model::rights::Rights;
use crate::model::step::Step;
use crate::model::world::Limits;
use crate::random_histories::try_history;
use crate::trial::Stage;

#[track_caller]
fn holds(steps: &[Step]) {
    if let Some(what) = try_history(&mut Stage::new(Limits::ROOMY), steps) {
        panic!("{what}");
    }
}

/// The same where another module looks at keys between the two names of one that is renamed.
#[track_caller]
fn holds_with_another_module(steps: &[Step]) {
    let mut stage = Stage::with_another_module(Limits::ROOMY);
    if let Some(what) = try_history(&mut stage, steps) {
        panic!("{what}");
    }
}

/// The same where a server appends to a file, in three rounds: whether a connection's end comes to its notice while it
/// reads is a matter of luck.
#[track_caller]
fn hold_while_a_file_is_read(histories: &[&[Step]]) {
    let mut stage = Stage::with_files(Limits::ROOMY);
    for history in histories {
        for _ in 0..3 {
            if let Some(what) = try_history(&mut stage, history) {
                panic!("{what}");
            }
        }
    }
}

/// A file is read, and meanwhile the first connection ends.
const ENDS_WHILE_READING: Step = Step::Reload {
    appended: true,
    goes: Some(0),
    comes: None,
};

/// Redis 8 answers a flush when its memory is freed; its pushes waited longer than what came after.
#[test]
fn pushes_of_a_flush_come_before_what_its_client_causes_next() {
    let flushes = [Command::Flushdb, Command::Flushall];
    for flush in flushes {
        holds(&[
            connect(0),
            run(0, set(0)),
            pipeline(0, [watchex(0), flush.clone(), settp(0)]),
            run(0, set(1)),
            pipeline(0, [watchex(1), watchex(2), flush, set(2), set(1)]),
        ]);
    }
}

/// Only the first of those who share a lock was looked at.
#[test]
fn one_of_several_readers_that_ends_their_lock_itself_loses_nothing() {
    let how = Past::Expire;
    for end in [del(0), Command::Lapse { key: 0, how }] {
        holds(&[
            connect(0),
            connect(1),
            run(0, acquire(0, Mode::Shared, None)),
            run(1, acquire(0, Mode::Shared, None)),
            run(1, end.clone()),
            run(1, acquire(0, Mode::Shared, None)),
            run(0, acquire(0, Mode::Shared, None)),
            run(1, script([end])),
        ]);
    }
}

/// Redis 8: that the flush was not answered yet was forgotten before the key was handed over.
#[test]
fn what_a_flusher_is_granted_by_its_own_flush_comes_after_the_answer() {
    for flush in [Command::Flushdb, Command::Flushall] {
        holds(&[
            connect(0),
            connect(1),
            run(0, set(2)),
            run(0, settp_wait(2, PUSH)),
            run(1, acquire(3, Mode::Exclusive, None)),
            run(0, acquire(3, Mode::Shared, PUSH)),
            run(0, flush),
        ]);
    }
}

/// In a transaction Valkey 9.1 gives keyspace events the database of the client that executes it.
#[test]
fn a_key_carried_or_copied_to_another_database_in_a_transaction_is_known_there() {
    let copy = Command::Copy {
        from: 0,
        to: 1,
        db: 1,
        replace: false,
    };
    holds(&[
        connect(0),
        connect(1),
        run(0, watchex(1)),
        run(1, set(0)),
        multi(1),
        run(1, copy),
        exec(1),
        run(0, settp(2)),
        multi(1),
        run(1, Command::Move { key: 2, db: 1 }),
        exec(1),
        run(0, Command::Select { db: 1 }),
        run(0, del(2)),
    ]);
}

/// The flush is told a moment later, so that there was nothing to be taken back.
#[test]
fn unwatchex_after_a_flush_in_a_transaction_silences_it() {
    holds(&[
        connect(0),
        run(0, watchex(0)),
        run(0, set(0)),
        multi(0),
        run(0, Command::Flushdb),
        run(0, unwatchex()),
        exec(0),
    ]);
}

/// As before, without a transaction.
#[test]
fn a_flush_is_told_before_the_reply_of_the_watchex_or_unwatchex_that_follows() {
    holds(&[
        connect(0),
        run(0, watchex(0)),
        run(0, set(0)),
        pipeline(0, [Command::Flushdb, watchex(0)]),
        run(0, set(0)),
        pipeline(0, [Command::Flushall, unwatchex()]),
    ]);
}

/// A flush that was not yet told was forgotten for the next one.
#[test]
fn two_flushes_in_a_transaction_are_both_told() {
    let select = |db| Command::Select { db };
    holds(&[
        connect(0),
        connect(1),
        run(0, watchex(0)),
        run(0, settp(0)),
        run(0, select(1)),
        run(0, watchex(1)),
        run(0, settp(1)),
        multi(1),
        run(1, Command::Flushdb),
        run(1, select(1)),
        run(1, Command::Flushdb),
        exec(1),
    ]);
}

/// Telling the one owner made the module ask the server, which hid the other's hand.
#[test]
fn an_owner_whose_script_deletes_anothers_key_and_its_own_loses_nothing() {
    holds(&[
        connect(0),
        connect(1),
        run(0, settp(0)),
        run(1, settp(1)),
        run(1, script([del(0), del(1)])),
    ]);
}

/// As before: the first key of a connection makes the module ask the server, too.
#[test]
fn an_owner_that_replaces_its_key_after_a_script_loses_nothing() {
    holds(&[
        connect(0),
        multi(0),
        run(0, settp(0)),
        run(0, script([set(1)])),
        run(0, Command::Rename { from: 1, to: 0 }),
        exec(0),
    ]);
}

/// Valkey since 8.1 says `expired` where others say `del`.
#[test]
fn an_owner_that_gives_its_key_a_time_in_the_past_loses_nothing() {
    use Past::{Expire, Expireat, Getex, Pexpire, Pexpireat};
    let mut steps = vec![connect(0), connect(1), run(0, watchex(0))];
    for how in [Expire, Expireat, Getex, Pexpire, Pexpireat] {
        for who in [0, 1] {
            let lapse = Command::Lapse { key: 0, how };
            steps.extend([run(0, settp(0)), run(who, lapse.clone())]);
            steps.extend([run(0, settp(0)), run(who, script([lapse]))]);
        }
    }
    holds(&steps);
}

/// On Redis 7.0 the module looks for the key among the arguments of what the owner executes.
#[test]
fn an_owner_whose_script_names_the_key_itself_loses_nothing() {
    let commands = vec![del(0)];
    let written = true;
    holds(&[
        connect(0),
        run(0, settp(0)),
        run(0, Command::Script { commands, written }),
    ]);
}

/// Valkey 9 tells the database that a transaction has selected so far, not the one it is in.
#[test]
fn an_owner_that_ends_in_multi_after_a_queued_select_leaves_nothing() {
    let select = |db| run(0, Command::Select { db });
    holds(&[
        connect(0),
        select(1),
        run(0, settp(0)),
        select(0),
        multi(0),
        select(1),
        close(0),
    ]);
}

/// The look at swapped databases was deferred, and came too late.
#[test]
fn a_swap_in_a_transaction_keeps_what_is_held() {
    holds(&[
        connect(0),
        run(0, settp(0)),
        multi(0),
        run(0, Command::Swapdb),
        exec(0),
        run(0, Command::Select { db: 1 }),
        run(0, del(0)),
    ]);
}

/// As before.
#[test]
fn what_follows_a_swap_at_once_is_told_after_it() {
    let swap_and = |then: Command| [Command::Swapdb, then];
    holds(&[
        connect(0),
        connect(1),
        run(0, watchex(0)),
        run(1, set(0)),
        pipeline(1, swap_and(set(0))),
        pipeline(1, swap_and(Command::Flushdb)),
        run(1, set(0)),
        run(1, script(swap_and(set(0)))),
        run(1, Command::Flushall),
        run(1, Command::Select { db: 1 }),
        run(1, set(0)),
        multi(1),
        run(1, Command::Swapdb),
        run(1, Command::Flushall),
        exec(1),
    ]);
}

/// That rights have changed was noticed between the two events of a key that goes by another name, and it was forgotten whose
/// it is.
#[test]
fn what_is_carried_in_a_transaction_stays_held_after_rights_have_changed() {
    let carry = [
        Command::Rename { from: 0, to: 1 },
        Command::Move { key: 0, db: 1 },
    ];
    for carried in carry {
        let (user, rights) = (0, Rights::default());
        holds(&[
            connect(0),
            connect(1),
            run(0, settp(2)),
            run(1, settp_wait(2, BLOCK)),
            run(0, deltp(2)),
            run(1, settp(0)),
            Step::Rights { user, rights },
            multi(0),
            run(0, carried),
            exec(0),
        ]);
    }
}

/// It passed for given back.
#[test]
fn what_somebody_was_granted_in_anothers_transaction_is_told_though_its_session_moves_there() {
    for gives_back in [false, true] {
        let mut steps = vec![
            connect(0),
            connect(1),
            run(0, acquire(0, Mode::Exclusive, None)),
            run(1, start(86_400_000)),
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

fn acquire_notified(key: Name) -> Command {
    let (mode, notify) = (Mode::Exclusive, true);
    let ask = Ask {
        notify,
        ..Ask::default()
    };
    Command::Acquire { key, mode, ask }
}

fn settp_notified(key: Name) -> Command {
    Command::Settp {
        key,
        value: 1,
        token: true,
        notify: true,
        task: None,
        wait: None,
        acks: None,
    }
}

/// What the file tells of the past befell what the connection held until it ended in the middle of the load.
#[test]
fn a_connection_that_ends_while_a_file_is_read_leaves_nothing() {
    let mode = Mode::Exclusive;
    let exchanged = [
        connect(0),
        connect(1),
        run(0, acquire(0, mode, None)),
        run(1, Command::Swapdb),
        run(1, acquire(0, mode, None)),
        ENDS_WHILE_READING,
    ];
    let flushed = [
        connect(0),
        run(0, Command::Flushall),
        run(0, acquire(0, Mode::Shared, None)),
        run(0, acquire_as(2, 0, Mode::Shared, None)),
        ENDS_WHILE_READING,
    ];
    hold_while_a_file_is_read(&[&exchanged[..], &flushed]);
}

/// The file tells of a temporary key in the place of the lock that such a connection held, and the lock was forgotten uncounted.
#[test]
fn a_lock_whose_connection_ends_while_a_file_is_read_that_had_a_temporary_key_there_is_counted() {
    let was_connections = [
        connect(0),
        run(0, settp(0)),
        run(0, deltp(0)),
        run(0, acquire(0, Mode::Exclusive, None)),
        ENDS_WHILE_READING,
    ];
    let was_sessions = [
        connect(0),
        connect(1),
        run(1, start(86_400_000)),
        run(1, settp(0)),
        run(1, deltp(0)),
        run(0, acquire(0, Mode::Exclusive, None)),
        ENDS_WHILE_READING,
    ];
    hold_while_a_file_is_read(&[&was_connections[..], &was_sessions]);
}

/// The file tells that it was made by another name, which somebody else's lock has now.
#[test]
fn a_session_whose_connection_ends_while_a_file_is_read_keeps_what_was_renamed() {
    let mode = Mode::Exclusive;
    let history = [
        connect(0),
        connect(1),
        run(0, start(86_400_000)),
        run(0, acquire(0, mode, None)),
        run(1, Command::Rename { from: 0, to: 1 }),
        run(1, acquire(0, mode, None)),
        ENDS_WHILE_READING,
    ];
    hold_while_a_file_is_read(&[&history]);
}

/// It was counted once more that the one has ended, which left the lock to the other.
#[test]
fn a_session_that_ended_beside_another_one_is_not_counted_again_when_a_file_is_read() {
    let history = [
        connect(0),
        connect(1),
        run(0, start(5)),
        run(0, acquire(0, Mode::Shared, None)),
        run(1, start(86_400_000)),
        run(1, acquire(0, Mode::Shared, None)),
        close(0),
        connect(0),
        ENDS_WHILE_READING,
    ];
    let beside_a_connection = [
        connect(1),
        connect(2),
        run(1, acquire(0, Mode::Shared, None)),
        run(2, start(5)),
        run(2, acquire(0, Mode::Shared, None)),
        close(2),
        connect(0),
        ENDS_WHILE_READING,
    ];
    hold_while_a_file_is_read(&[&history, &beside_a_connection]);
}

/// What a lock was overwritten by stands in the file, and it was lost again.
#[test]
fn what_was_handed_to_a_session_and_overwritten_is_not_lost_again_when_a_file_is_read() {
    let history = [
        connect(0),
        connect(1),
        run(1, start(86_400_000)),
        run(0, acquire(0, Mode::Exclusive, None)),
        run(1, acquire(0, Mode::Exclusive, PUSH)),
        run(0, release(0)),
        run(0, set(0)),
        ENDS_WHILE_READING,
    ];
    hold_while_a_file_is_read(&[&history]);
}

/// Where a held key ended between the two names of a second one, nobody held that any more.
#[test]
fn what_ends_between_two_names_is_lost_and_what_is_renamed_is_not() {
    let rename = Command::Rename { from: 0, to: 1 };
    let moved = Command::Move { key: 0, db: 1 };
    let twice = script([rename.clone(), Command::Rename { from: 1, to: 3 }]);
    for command in [rename, moved, twice] {
        for (is_over, is_lock) in [(true, true), (true, false), (false, true), (false, false)] {
            let asks = |key| match is_lock {
                true => acquire_notified(key),
                false => settp_notified(key),
            };
            let mut steps = vec![connect(0), connect(1), connect(2)];
            steps.extend([0, 1, 2].map(|who| run(who, asks(who))));
            steps.extend([
                run(2, watchex(0)),
                run(0, watchex(2)),
                run(2, settp_wait(0, PUSH)),
            ]);
            let mut over = match &command {
                Command::Move { .. } => Vec::new(),
                _ => vec![1],
            };
            over.extend(is_over.then_some(2));
            let deleted = (!is_over).then_some(2);
            steps.push(Step::Between {
                who: 1,
                over,
                deleted: deleted.into_iter().collect(),
                command: command.clone(),
            });
            holds_with_another_module(&steps);
        }
    }
}

/// Who cleaned up after the owner removed what somebody else had stored there by then.
#[test]
fn what_is_stored_over_a_key_whose_owner_has_just_been_killed_stays() {
    let history = [
        connect(0),
        connect(1),
        run(1, settp(0)),
        multi(0),
        run(0, Command::Kill { who: 1 }),
        run(0, set(0)),
        exec(0),
    ];
    holds(&history);
}
