//! Locks that are overwritten, and keys that change from one kind to the other, before their holder or its server ends.

use crate::harness::*;
use crate::line::*;
use crate::rewriting::wait_for_rewriting;

#[test]
fn an_overwritten_lock_outlives_its_holder_who_ends_in_the_same_step() {
    let server = Server::start();
    let (mut holder, mut other) = (server.resp2(), server.resp2());
    holder.run("LOCK.ACQUIRE k");
    let id = holder.id();
    other.run_all(&["MULTI", "SET k stranger"]);
    other.run(&format!("CLIENT KILL ID {id}"));
    other.run("EXEC");
    holder.expect_closed();
    eventually_nothing_is_left(&server);
    assert_eq!(other.run("GET k"), bulk("stranger"));
}

#[test]
fn an_overwritten_lock_that_is_renamed_at_once_is_not_its_holders_any_more() {
    let server = Server::start();
    let (mut holder, mut other) = (server.resp3(), server.resp2());
    holder.run("LOCK.ACQUIRE k NOTIFY");
    other.run_all(&["MULTI", "SET k stranger", "RENAME k l", "EXEC"]);
    assert!(
        ["lock k LOST overwritten", "lock l LOST overwritten"]
            .contains(&holder.next_push().as_str())
    );
    holder.run("QUIT");
    holder.expect_closed();
    eventually_nothing_is_left(&server);
    assert_eq!(other.run("GET l"), bulk("stranger"));
}

/// The databases change places before it is known that the lock was overwritten.
#[test]
fn an_overwritten_lock_that_is_swapped_at_once_is_not_its_holders_any_more() {
    let mut server = Server::with(&["appendonly yes", "appendfsync always"]);
    let replica = Server::replica_of(&server, &[]);
    let (mut holder, mut other) = (server.resp3(), server.resp2());
    holder.run_all(&["LOCK.ACQUIRE k NOTIFY", "LOCK.ACQUIRE l NOTIFY"]);
    other.pipeline(&["SET k stranger", "SWAPDB 0 1", "SWAPDB 1 2"]);
    other.read_replies(3);
    assert_eq!(holder.next_push(), "lock k LOST overwritten");
    holder.run("QUIT");
    holder.expect_closed();
    eventually_nothing_is_left(&server);
    replica.catch_up(&server);
    replica.resp2().run("REPLICAOF NO ONE");
    let is_there = |server: &Server| {
        eventually_nothing_is_left(server);
        let mut looker = server.resp2();
        looker.run("SELECT 2");
        assert_eq!(looker.run("GET k"), bulk("stranger"));
        assert_eq!(looker.run("DBSIZE"), int(1));
    };
    is_there(&server);
    is_there(&replica);
    server.crash_and_restart();
    is_there(&server);
}

/// Of the lock the file tells as it was, and of the key as it is.
#[test]
fn a_lock_that_is_overwritten_right_before_it_is_saved_is_not_its_sessions_any_more() {
    let rewritten = ["appendonly yes", "aof-use-rdb-preamble yes"];
    let told = ["appendonly yes", "aof-use-rdb-preamble no"];
    for (lines, save) in [
        (&[][..], "SAVE"),
        (&rewritten, "BGREWRITEAOF"),
        (&told, "BGREWRITEAOF"),
    ] {
        let mut server = Server::with(lines);
        let (mut holder, mut other) = (server.resp2(), server.resp2());
        let secret = holder.run("SESSION.START GRACE 600000").text();
        holder.run("LOCK.ACQUIRE k");
        other.pipeline(&["SET k stranger", save]);
        other.read_replies(2);
        if save == "BGREWRITEAOF" {
            wait_for_rewriting(&server, 1);
        }
        server.crash_and_restart();
        let mut holder = server.resp2();
        assert_eq!(holder.run(["SESSION.RESUME", &secret]), int(0));
        holder.run("SESSION.END");
        assert_eq!(holder.run("GET k"), bulk("stranger"), "{lines:?}");
    }
}

#[test]
fn an_overwritten_lock_is_a_plain_key_after_a_restart() {
    let mut server = Server::with(&["appendonly yes", "appendfsync always"]);
    let (mut holder, mut other) = (server.resp2(), server.resp2());
    holder.run_all(&["LOCK.ACQUIRE k", "LOCK.ACQUIRE l"]);
    other.run_all(&["SET k stranger", "DEL l", "SET l stranger"]);
    server.crash_and_restart();
    let mut looker = server.resp2();
    assert_eq!(looker.run("SETTP k newcomer"), int(0));
    eventually_nothing_is_left(&server);
    let stranger = || bulk("stranger");
    assert_eq!(looker.run("MGET k l"), array([stranger(), stranger()]));
    drop((holder, other));
}

#[test]
fn what_is_made_after_a_flush_is_nobodys_after_a_restart() {
    let mut server = Server::with(&["appendonly yes", "appendfsync always"]);
    let (mut holder, mut other) = (server.resp2(), server.resp2());
    for flush in ["FLUSHALL", "FLUSHDB"] {
        holder.run_all(&["SETTP k mine", "LOCK.ACQUIRE l"]);
        other.run_all(&[flush, "SET k stranger", "SET l stranger"]);
        server.crash_and_restart();
        eventually_nothing_is_left(&server);
        (holder, other) = (server.resp2(), server.resp2());
        let stranger = || bulk("stranger");
        assert_eq!(other.run("MGET k l"), array([stranger(), stranger()]));
        other.run("FLUSHALL");
    }
}

/// Else a session has again after a restart what was taken from it, as soon as another is told to have held the same.
#[test]
fn what_a_session_held_before_a_flush_is_not_its_own_after_a_restart() {
    let mut server = Server::with(&["appendonly yes", "appendfsync always"]);
    for flush in ["FLUSHALL", "FLUSHDB", "DEL k l s"] {
        let (mut holder, mut other) = (server.resp2(), server.resp2());
        let secret = holder.run("SESSION.START GRACE 600000").text();
        let all = ["SETTP k v", "LOCK.ACQUIRE l", "LOCK.ACQUIRE s SHARED"];
        holder.run_all(&all);
        other.run(flush);
        other.run_all(&all);
        server.crash_and_restart();
        let mut holder = server.resp2();
        let kept = holder.run(["SESSION.RESUME", &secret]);
        assert_eq!(kept, int(0), "{flush}");
        eventually_nothing_is_left(&server);
        assert_eq!(holder.run("DBSIZE"), int(0), "{flush}");
    }
}

/// Where the server tells modules of no command's end, a flush is known only a moment after it.
#[test]
fn a_file_that_is_rewritten_right_after_a_flush_names_nothing_from_before() {
    for preamble in ["yes", "no"] {
        let preamble = format!("aof-use-rdb-preamble {preamble}");
        let mut server = Server::with(&["appendonly yes", "appendfsync always", &preamble]);
        let (mut holder, mut other) = (server.resp2(), server.resp2());
        let secret = holder.run("SESSION.START GRACE 600000").text();
        holder.run("LOCK.ACQUIRE l");
        other.pipeline(&["FLUSHALL", "BGREWRITEAOF", "LOCK.ACQUIRE l"]);
        assert_eq!(other.read_reply(), ok());
        other.read_reply();
        assert!(other.read_reply().number() > 0);
        wait_for_rewriting(&server, 1);
        server.crash_and_restart();
        let kept = server.resp2().run(["SESSION.RESUME", &secret]);
        assert_eq!(kept, int(0), "{preamble}");
        drop((holder, other));
    }
}

/// The file tells what was done to keys of these names before, by whomever. Sessions hold what they held.
#[test]
fn sessions_have_what_they_held_after_their_server_has_loaded_its_file_again() {
    let server = Server::with(&["appendonly yes", "appendfsync always"]);
    let [mut one, mut two, mut session, mut former, mut waiter] = [(); 5].map(|()| server.resp3());
    let mut other = server.resp2();
    let taken = [
        "SETTP again v NOTIFY",
        "LOCK.ACQUIRE lock NOTIFY",
        "SETTP to v NOTIFY",
    ];
    former.run_all(&taken);
    other.run_all(&["FLUSHALL", "SELECT 1"]);
    two.run_all(&["SESSION.START", "SELECT 1"]);
    two.run_all(&taken);
    two.run_all(&["SETTP swapped v NOTIFY", "LOCK.ACQUIRE swapped-lock NOTIFY"]);
    other.run_all(&["SWAPDB 0 1", "SELECT 0", "DEL again lock to"]);
    one.run("SESSION.START");
    one.run_all(&taken);
    one.run_all(&[
        "SETTP from v NOTIFY",
        "RENAME from renamed",
        "SETTP from v NOTIFY",
    ]);
    one.run_all(&["LOCK.ACQUIRE moved NOTIFY", "MOVE moved 2"]);
    session.run_all(&["SESSION.START", "SETTP was v NOTIFY", "RENAME was is"]);
    waiter.run("WATCHEX again is lock moved renamed swapped to");
    queue_push(&mut waiter, "LOCK.ACQUIRE lock WAIT 0 PUSH");
    let mut all = [&mut one, &mut two, &mut session, &mut waiter];
    all.iter_mut().for_each(|one| drop(server.settled(one)));
    let is_held =
        |server: &Server| ["temporary_keys", "holds", "waiters"].map(|name| tether(server, name));
    assert_eq!(is_held(&server), [6, 3, 1]);
    other.run("DEBUG LOADAOF");
    for (one, count) in all.iter_mut().zip([6, 2, 1, 0]) {
        let heard = server.settled(one);
        let lost = heard.iter().filter(|push| push.ends_with(" LOST flushed"));
        assert_eq!((lost.count(), heard.len()), (count, count), "{heard:?}");
    }
    assert_eq!(is_held(&server), [6, 3, 1]);
    assert_eq!(other.run("DBSIZE"), int(8));
    assert_eq!(two.run("EXISTS again swapped"), int(0));
    drop(former);
    for (one, count) in [(&mut one, 6), (&mut two, 2), (&mut session, 1)] {
        assert_eq!(one.run("SESSION.END"), int(count));
    }
    let next = [waiter.id()];
    eventually_equal("who holds the lock", next.to_vec(), || {
        holders(&server, "lock")
    });
    drop(waiter);
    eventually_nothing_is_left(&server);
    assert_eq!(other.run("DBSIZE"), int(0));
}

/// The file says that it was held, and has what was written over it.
#[test]
fn a_lock_that_was_overwritten_once_is_not_lost_again_by_a_load() {
    let server = Server::with(&["appendonly yes", "appendfsync always"]);
    let (mut session, mut other) = (server.resp3(), server.resp2());
    session.run_all(&["SESSION.START", "LOCK.ACQUIRE l NOTIFY"]);
    other.run("SET l stranger");
    assert_eq!(session.next_push(), "lock l LOST overwritten");
    other.run("DEBUG LOADAOF");
    assert_eq!(server.settled(&mut session), [""; 0]);
    assert_eq!(tether(&server, "lost_total"), 1);
    assert_eq!(other.run("GET l"), bulk("stranger"));
    assert_eq!(session.run("SESSION.END"), int(0));
}

/// What connections held is nobody's after that, and goes; the file may tell of it under another name by then.
#[test]
fn connections_lose_what_they_hold_when_their_server_loads_its_file_again() {
    let server = Server::with(&["appendonly yes", "appendfsync always"]);
    let [mut one, mut two, mut waiter] = [(); 3].map(|()| server.resp3());
    let mut other = server.resp2();
    one.run_all(&["SETTP a v NOTIFY", "RENAME a b", "LOCK.ACQUIRE l NOTIFY"]);
    two.run_all(&["SELECT 1", "LOCK.ACQUIRE l NOTIFY", "SETTP moved v NOTIFY"]);
    other.run_all(&["SELECT 1", "MOVE moved 2", "SWAPDB 0 1", "SET plain v"]);
    waiter.run("SELECT 1");
    queue_push(&mut waiter, "LOCK.ACQUIRE l WAIT 0 PUSH");
    queue_push(&mut waiter, "SETTP b w WAIT 0 PUSH");
    other.run("DEBUG LOADAOF");
    let lost = |client: &mut Client| {
        let mut lost = client.next_pushes(2);
        lost.sort();
        lost
    };
    assert_eq!(
        lost(&mut one),
        ["lock l LOST flushed", "settp b LOST flushed"]
    );
    assert_eq!(
        lost(&mut two),
        ["lock l LOST flushed", "settp moved LOST flushed"]
    );
    let mut granted = waiter.next_pushes(2);
    granted.sort();
    assert!(granted[0].starts_with("lock l ") && granted[1].starts_with("settp b "));
    assert_eq!(waiter.run("GET b"), bulk("w"));
    drop(waiter);
    eventually_nothing_is_left(&server);
    assert_eq!(other.run("DBSIZE"), int(1));
    for (db, size) in [(0, 0), (2, 0)] {
        other.run(["SELECT", &db.to_string()]);
        assert_eq!(other.run("DBSIZE"), int(size));
    }
}

/// A file says that a key is held that has lapsed meanwhile, and is not loaded. It is made anew before its turn comes.
#[test]
fn what_is_made_in_the_place_of_a_lapsed_key_right_after_a_restart_is_nobodys() {
    const OTHERS: usize = 100_000;
    let mut server = Server::with(&["tether.max-keys-per-client 1000000"]);
    let mut holder = server.resp2();
    let names: Vec<_> = (0..OTHERS)
        .map(|n| format!("SETTP other:{n} mine"))
        .collect();
    for names in names.chunks(1000) {
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        holder.pipeline(&names);
        names.iter().for_each(|_| drop(holder.read_reply()));
    }
    holder.run_all(&["SETTP k mine", "PEXPIRE k 500", "SAVE"]);
    let mut other = server.resp2();
    eventually_gone(&mut other, "k");
    server.crash_and_restart();
    let mut other = server.resp2();
    other.run("SET k stranger");
    eventually_nothing_is_left(&server);
    assert_eq!(other.run("GET k"), bulk("stranger"));
}

/// Nobody watches or waits there, so all is told by the commands that replace.
#[test]
fn what_replaced_a_held_key_is_nobodys_on_a_promoted_replica_and_after_a_restart() {
    let mut master = Server::with(&["appendonly yes", "appendfsync always"]);
    let replica = Server::replica_of(&master, &[]);
    let (mut holder, mut other) = (master.resp2(), master.resp2());
    let names = ["renamed", "copied", "restored"];
    for kind in ["key", "lock"] {
        for name in names {
            holder.run(&match kind {
                "key" => format!("SETTP {name}-key mine"),
                _ => format!("LOCK.ACQUIRE {name}-lock"),
            });
        }
        other.run_all(&[
            "SET theirs stranger",
            &format!("RENAME theirs renamed-{kind}"),
        ]);
        other.run_all(&[
            "SET theirs stranger",
            &format!("COPY theirs copied-{kind} REPLACE"),
        ]);
        let dump = other.run("DUMP theirs").bytes();
        let restored = format!("restored-{kind}");
        let words: [&[u8]; 5] = [b"RESTORE", restored.as_bytes(), b"0", &dump, b"REPLACE"];
        other.run(words);
    }
    // And one that is held still takes the place of another.
    holder.run_all(&["SETTP one 1", "SETTP two 2"]);
    other.run_all(&["RENAME one two", "DEL theirs"]);
    replica.catch_up(&master);
    replica.resp2().run("REPLICAOF NO ONE");
    master.crash_and_restart();
    for server in [&replica, &master] {
        eventually_nothing_is_left(server);
        let mut looker = server.resp2();
        assert_eq!(looker.run("DBSIZE"), int(6));
        for name in names {
            let both = looker.run(["MGET", &format!("{name}-key"), &format!("{name}-lock")]);
            assert_eq!(both, array([bulk("stranger"), bulk("stranger")]), "{name}");
        }
    }
}

/// A replica and a file see a value that changes, as when the owner lives. The value is not deleted when they take the owner for gone.
#[test]
fn what_was_stored_over_a_key_whose_owner_was_gone_stays_on_a_promoted_replica_and_after_a_restart()
{
    let mut master = Server::with(&["appendonly yes", "appendfsync always"]);
    let replica = Server::replica_of(&master, &[]);
    let (mut gone, mut living, mut other) = (master.resp2(), master.resp2(), master.resp2());
    gone.run_all(&["SETTP k mine", "SETTP l mine"]);
    living.run("SETTP m mine");
    other.run("MULTI");
    other.run(&format!("CLIENT KILL ID {}", gone.id()));
    other.run_all(&["SET k stranger", "SET m stranger", "EXEC"]);
    eventually_equal("temporary keys", 1, || tether(&master, "temporary_keys"));
    replica.catch_up(&master);
    replica.resp2().run("REPLICAOF NO ONE");
    master.crash_and_restart();
    for server in [&replica, &master] {
        eventually_nothing_is_left(server);
        let mut looker = server.resp2();
        let left = looker.run("MGET k l m");
        assert_eq!(left, array([bulk("stranger"), null(), null()]));
    }
}

/// Which kind a key is, a replica must know after each handover: a look at it (as after SWAPDB) would otherwise find
/// something else than it remembers, and take it for a stranger's.
#[test]
fn what_was_handed_over_to_the_other_kind_is_no_ghost_on_a_promoted_replica() {
    let master = Server::start();
    let replica = Server::replica_of(&master, &[]);
    let [mut one, mut two, mut three] = [(); 3].map(|()| master.resp2());
    one.run_all(&["LOCK.ACQUIRE to-key", "LOCK.ACQUIRE to-lock"]);
    queue(&master, &mut two, "SETTP to-key v WAIT 0");
    one.run("LOCK.RELEASE to-key");
    assert_eq!(two.read_reply(), int(1));
    queue(&master, &mut two, "SETTP to-lock v WAIT 0");
    queue(&master, &mut three, "LOCK.ACQUIRE to-lock WAIT 0");
    one.run("LOCK.RELEASE to-lock");
    assert_eq!(two.read_reply(), int(1));
    two.run("DELTP to-lock");
    three.read_reply().number();
    one.run_all(&["SWAPDB 0 1", "SWAPDB 0 1"]);
    replica.catch_up(&master);
    let mut newcomer = replica.resp2();
    newcomer.pipeline(&["REPLICAOF NO ONE", "LOCK.ACQUIRE to-key", "SETTP to-lock v"]);
    assert_eq!(newcomer.read_reply(), ok());
    assert!(newcomer.read_reply().number() > 0);
    assert_eq!(newcomer.read_reply(), int(1));
    drop((one, two, three, newcomer));
    eventually_nothing_is_left(&replica);
    assert_eq!(replica.resp2().run("DBSIZE"), int(0));
}
