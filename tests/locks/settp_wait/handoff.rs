//! How a key passes from its owner to the next in line.

use super::line_of;
use crate::harness::*;
use crate::line::*;

#[test]
fn the_owner_s_end_hands_over_however_it_ends() {
    for ending in ["close", "reset", "quit", "kill", "a killer's transaction"] {
        let (server, mut owner, mut waiting) = line_of(2);
        let first = token_of(&server, "k");
        let (id, mut other) = (owner.id(), server.resp2());
        match ending {
            "close" => drop(owner),
            "reset" => owner.reset(),
            "quit" => quit(&server, owner),
            "kill" => {
                other.run(&format!("CLIENT KILL ID {id}"));
                owner.expect_closed();
            }
            _ => {
                other.run_all(&["MULTI", &format!("CLIENT KILL ID {id}"), "SETTP k stolen"]);
                assert_eq!(other.call("EXEC").items()[1], int(0), "{ending}");
            }
        }
        let token = waiting[0].read_reply().number();
        assert!(token > first, "{ending}: {token} after {first}");
        assert_eq!(other.call("GET k"), bulk("w0"), "{ending}");
        assert_eq!(token_of(&server, "k"), token, "{ending}");
        assert_eq!(tether(&server, "waiters"), 1, "{ending}");
    }
}

#[test]
fn a_key_that_goes_by_a_foreign_hand_is_handed_over() {
    let server = Server::start();
    let mut other = server.resp2();
    for removal in [
        vec!["DEL k"],
        vec!["UNLINK k"],
        vec!["GETDEL k"],
        vec!["EXPIREAT k 1"],
        vec!["PEXPIRE k 1"],
        vec!["FLUSHDB"],
        vec!["FLUSHALL"],
        vec!["RENAME k away"],
        vec!["MOVE k 5"],
        vec!["SWAPDB 0 5"],
        vec!["MULTI", "DEL k", "PING", "EXEC"],
        vec!["EVAL return(redis.call('DEL',KEYS[1])) 1 k"],
    ] {
        let (mut owner, mut waiter) = (server.resp3(), server.resp3());
        let first = owner.run("SETTP k mine TOKEN").number();
        queue(&server, &mut waiter, "SETTP k next TOKEN WAIT 0");
        other.run_all(&removal);
        let token = waiter.read_reply().number();
        assert!(token > first, "{removal:?}: {token} after {first}");
        assert_eq!(holders(&server, "k"), [waiter.id()], "{removal:?}");
        // The first owner's end does not touch what is the next one's now.
        quit(&server, owner);
        assert_eq!(other.call("GET k"), bulk("next"), "{removal:?}");
        drop(waiter);
        eventually_gone(&mut other, "k");
        other.run("FLUSHALL");
    }
}

#[test]
fn an_evicted_key_is_handed_over() {
    let server = Server::start();
    let (mut owner, mut waiter, mut other) = (server.resp3(), server.resp3(), server.resp2());
    owner.run("SETTP k mine NOTIFY");
    queue(&server, &mut waiter, "SETTP k next WAIT 0");
    // Only a key with a time to live can be evicted, and the next owner's has none.
    other.run_all(&[
        "EXPIRE k 10000",
        "CONFIG SET maxmemory-policy volatile-ttl",
        "CONFIG SET maxmemory 1",
    ]);
    other.call("PING");
    assert_eq!(waiter.read_reply(), int(1));
    assert_eq!(owner.next_push(), "settp k LOST evicted");
    other.run("CONFIG SET maxmemory 0");
    assert_eq!(other.call("GET k"), bulk("next"));
    assert_eq!(holders(&server, "k"), [waiter.id()]);
}

#[test]
fn the_key_of_the_next_owner_is_new() {
    let (server, mut owner, mut waiting) = line_of(1);
    let mut other = server.resp2();
    other.run_all(&["SET k changed", "EXPIRE k 10000"]);
    owner.run("DELTP k");
    waiting[0].read_reply();
    assert_eq!(other.call("GET k"), bulk("w0"));
    assert_eq!(other.call("TTL k"), int(-1));
    assert_eq!(server.settled(&mut owner), [""; 0], "it was its own hand");
}

#[test]
fn a_value_as_long_as_the_former_replaces_it_like_any_other() {
    let (server, mut owner, waiting) = line_of(4);
    let mut other = server.resp2();
    let mut former = "mine".to_owned();
    for (n, mut next) in waiting.into_iter().enumerate() {
        other.run_all(&["DEL copy", "COPY k copy", "WATCH k", "MULTI", "PING"]);
        owner.run("DELTP k");
        next.read_reply();
        assert_eq!(other.call("EXEC"), null(), "the key was touched");
        assert_eq!(other.call("GET k"), bulk(format!("w{n}")));
        assert_eq!(other.call("GET copy"), bulk(former));
        if n == 1 {
            other.run("EXPIRE k 10000");
        }
        assert_eq!(other.call("TTL k").number() > 0, n == 1);
        former = if n == 2 {
            other.run("SETRANGE k 1 x");
            "wx".to_owned()
        } else {
            format!("w{n}")
        };
        owner = next;
    }
}

#[test]
fn a_key_that_became_another_type_is_handed_over_as_a_string() {
    let (server, mut owner, mut waiting) = line_of(1);
    let mut other = server.resp2();
    // Written over in one step, it keeps its owner.
    other.run_all(&["RPUSH list 1 2", "SORT list STORE k"]);
    assert_eq!(other.call("TYPE k"), simple("list"));
    assert_eq!(owner.call("DELTP k"), int(1));
    waiting[0].read_reply();
    assert_eq!(other.call("TYPE k"), simple("string"));
    assert_eq!(other.call("GET k"), bulk("w0"));
}

#[test]
fn watchers_see_nothing_of_a_handoff_and_the_end_when_nobody_waits() {
    let (server, owner, mut waiting) = line_of(3);
    let mut watcher = server.resp3();
    assert_eq!(watcher.call("WATCHEX k"), bulk("EXIST"));
    quit(&server, owner);
    waiting[0].read_reply();
    assert_eq!(waiting[0].call("DELTP k"), int(1));
    waiting[1].read_reply();
    waiting.remove(1).reset();
    waiting[1].read_reply();
    assert_eq!(server.settled(&mut watcher), [""; 0]);
    assert_eq!(waiting[1].call("DELTP k"), int(1));
    assert_eq!(server.settled(&mut watcher), ["watchex k DEL"]);
}

#[test]
fn watchers_see_a_foreign_removal_and_the_next_owner_s_key() {
    let (server, _owner, mut waiting) = line_of(1);
    let mut watcher = server.resp3();
    watcher.run("WATCHEX k");
    server.resp2().run("DEL k");
    waiting[0].read_reply();
    assert_eq!(watcher.next_pushes(2), ["watchex k DEL", "watchex k ADD"]);
    assert_eq!(server.settled(&mut watcher), [""; 0]);
}

#[test]
fn a_handoff_is_a_set_to_subscribers() {
    let (server, mut owner, mut waiting) = line_of(1);
    server.resp2().run("CONFIG SET notify-keyspace-events KEA");
    let mut subscriber = server.resp3();
    subscriber.send("PSUBSCRIBE __keyevent@0__:*");
    subscriber.next_push();
    owner.run("DELTP k");
    waiting[0].read_reply();
    let heard = server.settled(&mut subscriber);
    assert_eq!(heard, ["pmessage __keyevent@0__:* __keyevent@0__:set k"]);
}

#[test]
fn queues_are_per_database() {
    let server = Server::start();
    let (mut zeroth, mut third) = (server.resp3(), server.resp3());
    zeroth.run_all(&["SETTP k zero"]);
    third.run_all(&["SELECT 3", "SETTP k three"]);
    let (mut one, mut two) = (server.resp3(), server.resp3());
    two.run("SELECT 3");
    let first = one.id();
    queue(&server, &mut one, "SETTP k one WAIT 0");
    queue(&server, &mut two, "SETTP k two WAIT 0");
    assert_eq!(third.call("DELTP k"), int(1));
    assert_eq!(two.read_reply(), int(1));
    assert_eq!(two.call("GET k"), bulk("two"));
    assert_eq!(zeroth.call("GET k"), bulk("zero"));
    assert_eq!(waiters(&server, "k"), [first]);
    assert_eq!(holders_in(&server, 3, "k"), [two.id()]);
}
