//! Watches on replicas, and what becomes of them and of those of a master when roles change.

use super::{named, settp, whole};
use crate::harness::*;

#[test]
fn a_replica_tells_what_its_masters_stream_says() {
    let master = Server::start();
    let replica = Server::replica_of(&master, &[]);
    let (mut owner, mut next, mut watcher) = (master.resp2(), master.resp3(), replica.resp3());
    let first = settp(&mut owner, "k1", "v");
    replica.catch_up(&master);
    assert_eq!(whole(&mut watcher, "WATCHTP k"), [named("k1", "v")]);
    owner.run("APPEND k1 w");
    assert_eq!(watcher.next_push(), format!("watchtp k1 SET {first} vw"));
    owner.run("RENAME k1 k2");
    next.run("SETTP k2 next TOKEN WAIT 0 PUSH");
    owner.run("DELTP k2");
    let granted = next.next_push();
    let second: i64 = granted.rsplit(' ').next().unwrap().parse().unwrap();
    drop(next);
    let expected = [
        format!("watchtp k1 DEL {first} renamed"),
        format!("watchtp k2 ADD {first} vw"),
        format!("watchtp k2 SET {second} next"),
        format!("watchtp k2 DEL {second} deleted"),
    ];
    assert_eq!(watcher.next_pushes(4), expected);
    let flushed = settp(&mut owner, "k4", "v");
    owner.run("FLUSHALL");
    let third = settp(&mut owner, "k3", "v");
    let expected = [
        format!("watchtp k4 ADD {flushed} v"),
        "watchtp k FLUSHED".to_owned(),
        format!("watchtp k3 ADD {third} v"),
    ];
    assert_eq!(watcher.next_pushes(3), expected);
    assert_eq!(replica.settled(&mut watcher), [""; 0]);
}

#[test]
fn what_a_session_holds_is_told_once() {
    let master = Server::start();
    let replica = Server::replica_of(&master, &[]);
    let (mut owner, mut watcher) = (master.resp2(), replica.resp3());
    watcher.run("WATCHTP k");
    owner.run("SESSION.START");
    let token = settp(&mut owner, "k", "v");
    assert_eq!(watcher.next_push(), format!("watchtp k ADD {token} v"));
    owner.run("SESSION.END");
    assert_eq!(
        watcher.next_push(),
        format!("watchtp k DEL {token} deleted")
    );
    assert_eq!(replica.settled(&mut watcher), [""; 0]);
}

#[test]
fn a_master_that_is_demoted_ends_watches_and_a_promoted_replica_keeps_them() {
    let master = Server::start();
    let replica = Server::replica_of(&master, &[]);
    let (mut here, mut there, mut owner) = (master.resp3(), replica.resp3(), master.resp2());
    let mut session = master.resp2();
    session.run("SESSION.START");
    let kept = settp(&mut session, "k:session", "v");
    let lost = settp(&mut owner, "k:connection", "v");
    replica.catch_up(&master);
    for watcher in [&mut here, &mut there] {
        assert_eq!(whole(watcher, "WATCHTP k").len(), 2);
    }
    replica.resp2().run("REPLICAOF NO ONE");
    assert_eq!(
        there.next_push(),
        format!("watchtp k:connection DEL {lost} promoted")
    );
    assert_eq!(
        whole(&mut replica.resp3(), "WATCHTP k"),
        [named("k:session", "v")]
    );
    master.follow(&replica);
    assert_eq!(here.next_push(), "watchtp k END demoted");
    let mut watcher = master.resp3();
    eventually("the data of the new master", || {
        match watcher.call("WATCHTP k") {
            Frame::Error(what) => Err(format!("{what:?}")),
            reply => match &*super::page(&reply).1 {
                [only] if *only == named("k:session", "v") => Ok(()),
                other => Err(format!("{other:?}")),
            },
        }
    });
    let _ = kept;
}

#[test]
fn a_load_ends_watches() {
    let server = Server::start();
    let (mut watcher, mut owner) = (server.resp3(), server.resp2());
    owner.run("SESSION.START");
    let token = settp(&mut owner, "k", "v");
    watcher.run("WATCHTP k");
    server.resp2().run("DEBUG RELOAD");
    assert_eq!(server.settled(&mut watcher), ["watchtp k END loaded"]);
    let (_, shown, tokens) = super::page(&watcher.run("WATCHTP k"));
    assert_eq!((shown, tokens), (vec![named("k", "v")], vec![token]));
}
