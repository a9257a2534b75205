//! Locks as keys: what the server's own commands see of them and do to them.

use crate::harness::*;
use crate::line::*;

#[test]
fn a_lock_is_a_key_of_a_type_of_its_own() {
    let server = Server::start();
    let (mut holder, mut other) = (server.resp3(), server.resp2());
    holder.run("LOCK.ACQUIRE k");
    assert_eq!(other.call("EXISTS k"), int(1));
    assert_eq!(other.call("KEYS *"), array([bulk("k")]));
    let type_name = other.call("TYPE k").text();
    assert_eq!(type_name.len(), 9, "{type_name}");
    assert_eq!(
        other.call(["SCAN", "0", "TYPE", &type_name]).items()[1],
        array([bulk("k")])
    );
    assert_eq!(other.call("TTL k"), int(-1));
    for request in [
        "GET k",
        "INCR k",
        "APPEND k x",
        "LPUSH k x",
        "SADD k x",
        "HGETALL k",
        "GETDEL k",
        "GETSET k x",
        "SETRANGE k 0 x",
        "ZADD k 1 x",
    ] {
        let message = other.refused(request);
        assert!(message.starts_with("WRONGTYPE"), "{request}: {message}");
    }
    assert!(other.run("MEMORY USAGE k").number() > 0);
    other.run("OBJECT ENCODING k");
    other.run("DEBUG OBJECT k");
    assert_eq!(holders(&server, "k"), [holder.id()]);
}

#[test]
fn what_is_no_lock_is_of_the_wrong_type() {
    let server = Server::start();
    let (mut owner, mut client) = (server.resp3(), server.resp3());
    owner.run_all(&[
        "SETTP temporary v",
        "SET string v",
        "RPUSH list v",
        "HSET hash f v",
    ]);
    for key in ["temporary", "string", "list", "hash"] {
        for request in [
            format!("LOCK.ACQUIRE {key}"),
            format!("LOCK.ACQUIRE {key} SHARED WAIT 0"),
            format!("LOCK.ACQUIRE {key} PERMITS 1 OF 2 WAIT 0 PUSH"),
            format!("LOCK.MACQUIRE 2 free {key}"),
        ] {
            let message = client.refused(&request);
            assert!(message.starts_with("WRONGTYPE"), "{request}: {message}");
        }
    }
    let message = owner.refused("LOCK.ACQUIRE temporary");
    assert!(message.starts_with("WRONGTYPE"), "its own too: {message}");
    assert_eq!(client.call("EXISTS free"), int(0));
    assert_eq!(tether(&server, "waiters"), 0);
    assert_eq!(client.call("GET temporary"), bulk("v"));
}

#[test]
fn a_lock_that_goes_by_a_foreign_hand_is_lost_and_handed_over() {
    let server = Server::start();
    let mut other = server.resp2();
    for removal in [
        vec!["DEL k"],
        vec!["UNLINK k"],
        vec!["EXPIREAT k 1"],
        vec!["PEXPIRE k 15"],
        vec!["FLUSHDB"],
        vec!["FLUSHALL"],
        vec!["FLUSHALL ASYNC"],
        vec!["MULTI", "DEL k", "PING", "EXEC"],
        vec!["EVAL return(redis.call('DEL',KEYS[1])) 1 k"],
        vec!["SET theirs v", "RENAME theirs k", "DEL k"],
        vec!["SET theirs v", "COPY theirs k REPLACE", "UNLINK k"],
        vec!["SET k v", "DEL k"],
    ] {
        let (mut holder, mut reader) = (server.resp3(), server.resp3());
        let mut waiter = server.resp3();
        let mut tokens = vec![holder.run("LOCK.ACQUIRE k SHARED NOTIFY").number()];
        tokens.push(reader.run("LOCK.ACQUIRE k SHARED NOTIFY").number());
        queue(&server, &mut waiter, "LOCK.ACQUIRE k WAIT 0");
        other.run_all(&removal);
        tokens.push(waiter.read_reply().number());
        assert!(tokens.is_sorted(), "{removal:?}: {tokens:?}");
        for client in [&mut holder, &mut reader] {
            let (told, losses) = (client.next_push(), losses("lock k", &removal));
            assert!(losses.contains(&told), "{removal:?}: {told}");
            assert!(client.refused("LOCK.RELEASE k").starts_with("NOTHELD"));
            assert_eq!(server.settled(client), [""; 0], "{removal:?}");
        }
        assert_eq!(holders(&server, "k"), [waiter.id()], "{removal:?}");
        assert_eq!(waiter.call("LOCK.RELEASE k"), int(0));
    }
}

#[test]
fn an_evicted_lock_is_lost_and_handed_over() {
    let server = Server::start();
    let (mut holder, mut waiter, mut other) = (server.resp3(), server.resp3(), server.resp2());
    holder.run("LOCK.ACQUIRE k NOTIFY");
    queue(&server, &mut waiter, "LOCK.ACQUIRE k WAIT 0");
    other.run_all(&[
        "EXPIRE k 10000",
        "CONFIG SET maxmemory-policy volatile-ttl",
        "CONFIG SET maxmemory 1",
    ]);
    other.call("PING");
    assert!(waiter.read_reply().number() > 0);
    assert_eq!(holder.next_push(), "lock k LOST evicted");
    let message = other.refused("LOCK.ACQUIRE more");
    assert!(message.starts_with("OOM"), "{message}");
    assert_eq!(waiter.call("LOCK.RELEASE k"), int(0));
}

#[test]
fn a_holder_that_removes_its_own_lock_is_not_told_and_it_is_handed_over() {
    for removal in [
        vec!["DEL k"],
        vec!["FLUSHALL"],
        vec!["MULTI", "UNLINK k", "EXEC"],
    ] {
        let server = Server::start();
        let (mut holder, mut waiter) = (server.resp3(), server.resp3());
        holder.run_all(&["LOCK.ACQUIRE k NOTIFY", "LOCK.ACQUIRE k NOTIFY"]);
        queue(&server, &mut waiter, "LOCK.ACQUIRE k WAIT 0");
        holder.run_all(&removal);
        assert!(waiter.read_reply().number() > 0, "{removal:?}");
        assert_eq!(server.settled(&mut holder), [""; 0], "{removal:?}");
        assert!(holder.refused("LOCK.RELEASE k").starts_with("NOTHELD"));
    }
}

#[test]
fn a_lock_that_is_carried_to_another_place_keeps_its_holders() {
    for (carry, db, name) in [
        (vec!["RENAME k new"], 0, "new"),
        (vec!["MOVE k 5"], 5, "k"),
        (vec!["SWAPDB 0 5"], 5, "k"),
        (vec!["RENAMENX k new", "MOVE new 5", "SWAPDB 5 6"], 6, "new"),
    ] {
        let server = Server::start();
        let (mut holder, mut reader) = (server.resp3(), server.resp3());
        let (mut waiter, mut other) = (server.resp3(), server.resp3());
        let token = holder.run("LOCK.ACQUIRE k SHARED NOTIFY").number();
        reader
            .run("LOCK.ACQUIRE k SHARED LEASE 100000 NOTIFY")
            .number();
        queue(&server, &mut waiter, "LOCK.ACQUIRE k WAIT 0");
        other.run_all(&carry);
        // The line stays with the name, which is free now.
        assert!(waiter.read_reply().number() > token, "{carry:?}");
        let ids = [holder.id(), reader.id()];
        assert_eq!(holders_in(&server, db, name), ids, "{carry:?}");
        assert!(holder.refused("LOCK.RELEASE k").starts_with("NOTHELD"));
        holder.run(&format!("SELECT {db}"));
        assert_eq!(holder.call(["LOCK.CANCEL", name]), int(token));
        assert_eq!(holder.call(["LOCK.RELEASE", name, "ALL"]), int(0));
        reader.run(&format!("SELECT {db}"));
        assert_eq!(reader.call(["LOCK.EXTEND", name, "20"]), int(1));
        assert_eq!(reader.next_push(), format!("lock {name} LOST lease"));
        assert_eq!(reader.call(["EXISTS", name]), int(0), "{carry:?}");
    }
}

#[test]
fn watchers_see_a_lock_come_and_go_and_nothing_between() {
    let server = Server::start();
    let (mut one, mut two, mut watcher) = (server.resp3(), server.resp3(), server.resp3());
    assert_eq!(watcher.call("WATCHEX k"), bulk("NOEXIST"));
    one.run("LOCK.ACQUIRE k REENTRANT NOTIFY");
    assert_eq!(watcher.next_push(), "watchex k ADD");
    queue(&server, &mut two, "LOCK.ACQUIRE k SHARED WAIT 0");
    let deeper = [
        "LOCK.ACQUIRE k REENTRANT NOTIFY",
        "LOCK.RELEASE k",
        "LOCK.RELEASE k",
    ];
    one.run_all(&deeper);
    two.read_reply();
    one.run_all(&["LOCK.ACQUIRE k SHARED NOTIFY", "LOCK.RELEASE k"]);
    assert_eq!(server.settled(&mut watcher), [""; 0]);
    drop(two);
    assert_eq!(watcher.next_push(), "watchex k DEL");
    assert_eq!(server.settled(&mut watcher), [""; 0]);
}

#[test]
fn a_reload_of_the_data_ends_holds_and_keeps_queues() {
    let server = Server::start();
    let (mut holder, mut owner) = (server.resp3(), server.resp3());
    let (mut waiter, mut pushed) = (server.resp3(), server.resp3());
    holder.run("LOCK.ACQUIRE k NOTIFY");
    owner.run("SETTP t v NOTIFY");
    queue(&server, &mut waiter, "LOCK.ACQUIRE k WAIT 0");
    queue_push(&mut pushed, "SETTP t w WAIT 0 PUSH");
    // Also to who ordered it.
    holder.run("DEBUG RELOAD");
    assert_eq!(holder.next_push(), "lock k LOST flushed");
    assert_eq!(owner.next_push(), "settp t LOST flushed");
    assert!(waiter.read_reply().number() > 0);
    assert!(pushed.next_push().starts_with("settp t "));
    assert_eq!(holders(&server, "k"), [waiter.id()]);
    assert!(holder.refused("LOCK.RELEASE k").starts_with("NOTHELD"));
    assert_eq!(owner.call("GET t"), bulk("w"));
    for client in [&mut holder, &mut owner, &mut pushed] {
        assert_eq!(server.settled(client), [""; 0]);
    }
}
