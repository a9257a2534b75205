//! Keys that a stranger made, and that nobody owns: they can be waited for like others.

use crate::harness::*;
use crate::line::*;

#[test]
fn a_stranger_s_key_is_granted_when_it_goes() {
    let server = Server::start();
    let mut other = server.resp2();
    for (make, end) in [
        (vec!["SET k v"], vec!["DEL k"]),
        (vec!["SET k v"], vec!["GETDEL k"]),
        (vec!["SET k v"], vec!["PEXPIRE k 20"]),
        (vec!["SET k v"], vec!["FLUSHALL"]),
        (vec!["RPUSH k v"], vec!["LPOP k"]),
        (vec!["SADD k v"], vec!["SREM k v"]),
        (vec!["HSET k f v"], vec!["HDEL k f"]),
        (vec!["ZADD k 1 v"], vec!["ZPOPMIN k"]),
        (vec!["XADD k 1-1 f v"], vec!["UNLINK k"]),
        (vec!["SADD k v"], vec!["SINTERSTORE k none none"]),
        (vec!["SET k v"], vec!["RENAME k away"]),
        (vec!["SET k v"], vec!["MOVE k 4"]),
        (vec!["SET k v"], vec!["SWAPDB 0 4"]),
    ] {
        let mut waiter = server.resp3();
        other.run_all(&make);
        queue(&server, &mut waiter, "SETTP k mine TOKEN WAIT 0");
        assert_eq!(holders(&server, "k"), [0; 0], "{make:?}");
        other.run_all(&end);
        let token = waiter.read_reply().number();
        assert_eq!(other.call("GET k"), bulk("mine"), "{make:?} {end:?}");
        assert_eq!(token_of(&server, "k"), token, "{make:?} {end:?}");
        drop(waiter);
        eventually_gone(&mut other, "k");
        other.run("FLUSHALL");
    }
}

#[test]
fn a_key_that_comes_into_being_before_the_handoff_is_waited_for() {
    let server = Server::start();
    let (mut owner, mut waiter, mut other) = (server.resp3(), server.resp3(), server.resp2());
    owner.run("SETTP k mine");
    queue(&server, &mut waiter, "SETTP k next WAIT 0");
    // SET is no newcomer's SETTP: it may write where it likes.
    other.pipeline(&["DEL k", "SET k stranger"]);
    assert_eq!(other.read_replies(2), [int(1), ok()]);
    server.settle();
    assert_eq!(other.call("GET k"), bulk("stranger"));
    assert_eq!(tether(&server, "waiters"), 1);
    assert_eq!(other.call("DEL k"), int(1));
    assert_eq!(waiter.read_reply(), int(1));
    assert_eq!(other.call("GET k"), bulk("next"));
}

#[test]
fn a_key_renamed_over_the_one_waited_for_is_a_stranger_s() {
    let server = Server::start();
    let (mut owner, mut waiter, mut other) = (server.resp3(), server.resp3(), server.resp2());
    owner.run("SETTP k mine NOTIFY");
    queue(&server, &mut waiter, "SETTP k next WAIT 0");
    for (make, replace) in [
        ("SET theirs v", "RENAME theirs k"),
        ("SET theirs w", "COPY theirs k REPLACE"),
    ] {
        other.run_all(&[make, replace]);
        server.settle();
        assert_eq!(tether(&server, "waiters"), 1, "{replace}");
    }
    assert_eq!(owner.next_push(), "settp k LOST overwritten");
    assert_eq!(owner.call("DELTP k"), int(0));
    assert_eq!(other.call("GET k"), bulk("w"));
    assert_eq!(other.call("DEL k"), int(1));
    assert_eq!(waiter.read_reply(), int(1));
}

#[test]
fn another_owner_s_key_renamed_over_it_is_waited_for_in_turn() {
    let server = Server::start();
    let (mut owner, mut waiter, mut mover) = (server.resp3(), server.resp3(), server.resp3());
    owner.run("SETTP k mine NOTIFY");
    mover.run("SETTP theirs v NOTIFY");
    queue(&server, &mut waiter, "SETTP k next WAIT 0");
    mover.run("RENAME theirs k");
    assert_eq!(owner.next_push(), "settp k LOST overwritten");
    assert_eq!(holders(&server, "k"), [mover.id()]);
    assert_eq!(tether(&server, "waiters"), 1);
    assert_eq!(mover.call("DELTP k"), int(1));
    assert_eq!(waiter.read_reply(), int(1));
    assert_eq!(server.resp2().call("GET k"), bulk("next"));
}

#[test]
fn a_lock_can_be_waited_for_by_settp_and_a_temporary_key_stays_in_its_queue() {
    let server = Server::start();
    let (mut locker, mut setter) = (server.resp3(), server.resp3());
    let mut last = server.resp3();
    let first = locker.run("LOCK.ACQUIRE k NOTIFY").number();
    assert_eq!(setter.call("SETTP k v"), int(0));
    queue(&server, &mut setter, "SETTP k v TOKEN WAIT 0");
    queue(&server, &mut last, "LOCK.ACQUIRE k WAIT 0");
    let mut watcher = server.resp3();
    watcher.run("WATCHEX k");
    assert_eq!(locker.call("LOCK.RELEASE k"), int(0));
    let second = setter.read_reply().number();
    assert_eq!(server.resp2().call("GET k"), bulk("v"));
    setter.run("DELTP k");
    let third = last.read_reply().number();
    assert!(first < second && second < third);
    assert_ne!(server.resp2().call("TYPE k"), simple("string"));
    assert_eq!(server.settled(&mut watcher), [""; 0], "one key all along");
    assert_eq!(last.call("LOCK.RELEASE k"), int(0));
    assert_eq!(watcher.next_push(), "watchex k DEL");
}
