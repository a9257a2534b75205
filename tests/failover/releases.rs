//! A release is taken while the server refuses writes: it takes nothing from anybody. Only the grant to the next in line may wait.

use crate::harness::*;
use crate::line::{queue, queue_push};

/// What its owner has, how it gives it back, and what it is answered; `a` is waited for, and `b` is not.
const RELEASES: [(&str, &str, i64); 3] = [
    ("SETTP a v", "DELTP a", 1),
    ("LOCK.ACQUIRE a", "LOCK.RELEASE a", 0),
    ("LOCK.ACQUIRE a SHARED", "LOCK.RELEASE a ALL", 0),
];

#[test]
fn with_too_few_replicas_nobody_is_granted_what_a_release_frees() {
    for (take, release, answer) in RELEASES {
        let master = Server::start();
        let replica = Server::replica_of(&master, &[]);
        let (mut holder, mut waiter) = taken_and_waited_for(&master, take);
        holder.run(&*take.replace(" a", " b"));
        let mut admin = master.resp2();
        admin.run("CONFIG SET min-replicas-to-write 2");
        let refusal = holder.refused("SETTP other v");
        assert!(refusal.starts_with("NOREPLICAS"), "{refusal}");
        assert_eq!(holder.call(release), int(answer), "{release}");
        let other = release.replace(" a", " b");
        assert_eq!(holder.call(&*other), int(answer), "{other}");
        assert_eq!(admin.run("EXISTS a b"), int(0));
        replica.catch_up(&master);
        assert_eq!(replica.resp2().run("EXISTS a b"), int(0));
        master.settle();
        assert!(!waiter.has_reply(), "{release}");
        admin.run("CONFIG SET min-replicas-to-write 1");
        assert!(waiter.read_reply().number() > 0);
        replica.catch_up(&master);
        assert_eq!(replica.resp2().run("EXISTS a"), int(1));
    }
}

/// That it refused an earlier one is over.
#[test]
fn once_the_server_takes_writes_again_a_release_hands_over_at_once() {
    for (take, release, answer) in RELEASES {
        let server = Server::start();
        let (mut admin, mut watcher) = (server.resp2(), server.resp3());
        let mut other = server.resp2();
        other.run(&*take.replace(" a", " b"));
        admin.run("CONFIG SET min-replicas-to-write 1");
        assert_eq!(other.call(&*release.replace(" a", " b")), int(answer));
        admin.run("CONFIG SET min-replicas-to-write 0");
        let (mut holder, mut waiter) = taken_and_waited_for(&server, take);
        watcher.run("WATCHEX a");
        holder.pipeline(&[release, "EXISTS a"]);
        assert_eq!(holder.read_replies(2), [int(answer), int(1)], "{release}");
        assert!(!matches!(waiter.read_reply(), Frame::Error(_)));
        assert_eq!(server.settled(&mut watcher), [""; 0], "{release}");
    }
}

#[test]
fn so_does_the_end_of_a_session_by_its_operator() {
    let server = Server::start();
    let (mut admin, mut watcher) = (server.resp2(), server.resp3());
    let (mut other, mut holder, mut waiter) = (server.resp2(), server.resp2(), server.resp2());
    other.run("LOCK.ACQUIRE b");
    admin.run("CONFIG SET min-replicas-to-write 1");
    other.run("LOCK.RELEASE b");
    admin.run("CONFIG SET min-replicas-to-write 0");
    holder.run("SESSION.START GRACE 60000");
    holder.run("LOCK.ACQUIRE a");
    let session = admin.run("SESSION.LIST").items()[0].items()[1].number();
    queue(&server, &mut waiter, "LOCK.ACQUIRE a WAIT 0");
    watcher.run("WATCHEX a");
    admin.pipeline(&[&format!("SESSION.KILL {session}"), "EXISTS a"]);
    assert_eq!(admin.read_replies(2), [int(1), int(1)]);
    assert!(waiter.read_reply().number() > 0);
    assert_eq!(server.settled(&mut watcher), [""; 0]);
}

#[test]
fn with_too_few_replicas_a_session_ends_and_so_does_a_wait() {
    let master = Server::start();
    let replica = Server::replica_of(&master, &[]);
    let (mut owner, mut waiter, mut leaver) = (master.resp3(), master.resp3(), master.resp3());
    let mut admin = master.resp2();
    owner.run("SESSION.START GRACE 60000");
    owner.run_all(&["SETTP a v", "LOCK.ACQUIRE b", "LOCK.ACQUIRE c"]);
    queue_push(&mut leaver, "LOCK.ACQUIRE b WAIT 0 PUSH");
    queue_push(&mut waiter, "LOCK.ACQUIRE b WAIT 0 PUSH");
    queue_push(&mut waiter, "SETTP a w WAIT 0 PUSH");
    admin.run("CONFIG SET min-replicas-to-write 2");
    assert_eq!(leaver.call("LOCK.RELEASE b ALL"), int(0));
    assert_eq!(owner.call("SESSION.END"), int(3));
    assert_eq!(admin.run("EXISTS a b c"), int(0));
    replica.catch_up(&master);
    assert_eq!(replica.resp2().run("EXISTS a b c"), int(0));
    master.settle();
    assert_eq!(waiter.arrived_pushes(), [""; 0]);
    admin.run("CONFIG SET min-replicas-to-write 0");
    let mut granted = waiter.next_pushes(2);
    granted.sort();
    assert!(granted[0].starts_with("lock b ") && granted[1].starts_with("settp a "));
    assert_eq!(leaver.pushes(), [""; 0]);
}

/// Who has `a` by this command, and who waits for it.
fn taken_and_waited_for(server: &Server, take: &str) -> (Client, Client) {
    let (mut holder, mut waiter) = (server.resp2(), server.resp2());
    holder.run(take);
    let wait = match take.starts_with("SETTP") {
        true => "SETTP a w WAIT 0",
        false => "LOCK.ACQUIRE a WAIT 0",
    };
    queue(server, &mut waiter, wait);
    (holder, waiter)
}

#[test]
fn a_server_that_cannot_save_or_has_no_memory_takes_releases() {
    let server = Server::with(&["dbfilename a-folder.rdb"]);
    std::fs::create_dir(server.folder().join("a-folder.rdb"))
        .expect("a folder in the file's place");
    let mut admin = server.resp2();
    admin.run("BGSAVE");
    eventually("a failure to save", || {
        let info = server.info("persistence");
        match info.contains("rdb_last_bgsave_status:err") {
            true => Ok(()),
            false => Err(info),
        }
    });
    for code in ["OOM", "MISCONF"] {
        for (take, release, answer) in RELEASES {
            let (mut holder, mut waiter) = taken_and_waited_for(&server, take);
            match code {
                "OOM" => assert_eq!(admin.run("CONFIG SET maxmemory 1"), ok()),
                _ => assert_eq!(admin.run(["CONFIG", "SET", "save", "3600 1"]), ok()),
            }
            let refusal = holder.refused("SETTP other v");
            assert!(refusal.starts_with(code), "{refusal}");
            assert_eq!(holder.call(release), int(answer), "{code}, {release}");
            assert!(waiter.read_reply().number() > 0);
            waiter.run("QUIT");
            waiter.expect_closed();
            admin.run("CONFIG SET maxmemory 0");
            admin.run(["CONFIG", "SET", "save", ""]);
            eventually_gone(&mut admin, "a");
        }
    }
}

#[test]
fn a_pause_postpones_a_release() {
    let server = Server::start();
    let (mut holder, mut admin) = (server.resp2(), server.resp2());
    for (take, release, answer) in RELEASES {
        holder.run(take);
        admin.run("CLIENT PAUSE 100000 WRITE");
        holder.send(release);
        server.settle();
        assert!(!holder.has_reply(), "{release}");
        assert_eq!(admin.run("EXISTS a"), int(1));
        admin.run("CLIENT UNPAUSE");
        assert_eq!(holder.read_reply(), int(answer));
    }
}

/// A client sends its release again, and has lost nothing meanwhile.
#[test]
fn a_busy_server_leaves_what_is_to_be_released() {
    let server = Server::with(&["busy-reply-threshold 20"]);
    let (mut script, mut admin) = (server.resp2(), server.resp2());
    for (take, release, answer) in RELEASES {
        let (mut holder, mut waiter) = taken_and_waited_for(&server, take);
        script.send(["EVAL", "while true do end", "0"]);
        eventually("a busy server", || match admin.call("PING") {
            Frame::Error(_) => Ok(()),
            reply => Err(format!("{reply:?}")),
        });
        let refusal = holder.refused(release);
        assert!(refusal.starts_with("BUSY "), "{release}: {refusal}");
        admin.run("SCRIPT KILL");
        script.read_reply();
        server.settle();
        assert!(!waiter.has_reply(), "{release}");
        assert_eq!(holder.call(release), int(answer), "{release}");
        assert!(waiter.read_reply().number() > 0);
        waiter.run("QUIT");
        waiter.expect_closed();
        eventually_gone(&mut admin, "a");
    }
}

/// Only a session has anything while another data set is loaded.
#[test]
fn a_loading_server_leaves_what_is_to_be_released() {
    let server = Server::with(&["loading-process-events-interval-bytes 1024"]);
    let (mut admin, mut loader) = (server.resp2(), server.resp2());
    for (take, release, answer) in RELEASES {
        let mut holder = server.resp2();
        holder.run("SESSION.START GRACE 60000");
        holder.run(take);
        admin.run("DEBUG POPULATE 1000");
        // Each key takes a millisecond.
        admin.run("CONFIG SET key-load-delay 1000");
        loader.send("DEBUG RELOAD");
        eventually("a load", || {
            let info = admin.run("INFO persistence").text();
            match info.contains("\nloading:1") {
                true => Ok(()),
                false => Err(info),
            }
        });
        let refusal = holder.refused(release);
        assert!(refusal.starts_with("LOADING "), "{release}: {refusal}");
        assert_eq!(loader.read_reply(), ok());
        assert_eq!(admin.run("EXISTS a"), int(1));
        assert_eq!(holder.call(release), int(answer), "{release}");
        assert_eq!(admin.run("EXISTS a"), int(0));
        admin.run("CONFIG SET key-load-delay 0");
    }
}

#[test]
fn a_replica_refuses_releases() {
    let master = Server::start();
    let replica = Server::replica_of(&master, &[]);
    let mut client = replica.resp2();
    for command in [
        "DELTP a",
        "LOCK.RELEASE a",
        "LOCK.RELEASE a ALL",
        "SESSION.END",
    ] {
        let refusal = client.refused(command);
        assert!(refusal.starts_with("READONLY"), "{command}: {refusal}");
    }
}
