//! How sessions end: SESSION.END, and the end of their grace.

use crate::harness::*;
use crate::line::*;
use crate::*;
use std::time::{Duration, Instant};

#[test]
fn ending_a_session_hands_everything_over() {
    let server = Server::start();
    let (mut client, secret) = with_session(&server, A_DAY);
    let (mut next, mut watcher) = (server.resp3(), server.resp3());
    watcher.run("WATCHEX a b");
    client.run_all(&[
        "SETTP a v NOTIFY",
        "LOCK.ACQUIRE b REENTRANT NOTIFY",
        "LOCK.ACQUIRE b REENTRANT NOTIFY",
        "LOCK.ACQUIRE c OWNER me NOTIFY",
    ]);
    assert_eq!(watcher.next_pushes(2).len(), 2);
    queue(&server, &mut next, "SETTP a next WAIT 0");
    assert_eq!(client.call("SESSION.END"), int(3));
    assert_eq!(next.read_reply(), int(1));
    assert_eq!(watcher.next_push(), "watchex b DEL");
    assert_eq!(server.settled(&mut watcher), [""; 0]);
    assert_eq!(server.resp2().call("EXISTS a b c"), int(1));
    assert_eq!(sessions(&server), [0, 0]);
    assert!(client.refused("SESSION.END").starts_with("NOSESSION"));
    assert!(
        client
            .refused(["SESSION.RESUME", &secret])
            .starts_with("NOSESSION")
    );
    // It is a plain connection from now on.
    client.run("SETTP d v NOTIFY");
    quit(&server, client);
    assert_eq!(server.resp2().call("EXISTS d"), int(0));
}

#[test]
fn a_connections_own_wait_is_granted_to_itself_when_its_session_ends() {
    let server = Server::start();
    let (mut client, _) = with_session(&server, A_DAY);
    client.run("LOCK.ACQUIRE a LEASE 60000 OWNER one");
    queue_push(&mut client, "LOCK.ACQUIRE a OWNER two WAIT 0 PUSH");
    assert_eq!(client.call("SESSION.END"), int(1));
    assert!(client.next_push().starts_with("lock a "));
    assert_eq!(of_holder(&server, "a", "label"), bulk("two"));
    assert_eq!(of_holder(&server, "a", "session"), null());
}

#[test]
fn when_the_grace_is_over_everything_goes() {
    let server = Server::start();
    let (mut client, secret) = with_session(&server, 50);
    let mut next = server.resp3();
    client.run_all(&["SETTP a v", "LOCK.ACQUIRE b", "SELECT 2", "SETTP c v"]);
    queue(&server, &mut next, "LOCK.ACQUIRE b WAIT 0");
    quit(&server, client);
    assert!(next.read_reply().number() > 0);
    eventually_equal("temporary keys", 0, || tether(&server, "temporary_keys"));
    assert_eq!(sessions(&server), [0, 0]);
    assert_eq!(server.resp2().call("KEYS *"), array([bulk("b")]));
    assert!(
        next.refused(["SESSION.RESUME", &secret])
            .contains("holds keys")
    );
    next.run("LOCK.RELEASE b");
    assert!(
        next.refused(["SESSION.RESUME", &secret])
            .starts_with("NOSESSION")
    );
    assert_eq!(tether(&server, "removed_by_disconnect_total"), 3);
}

#[test]
fn a_grace_begins_anew_with_each_detachment() {
    in_time(|ms| {
        let server = Server::start();
        let (mut client, secret) = with_session(&server, ms);
        client.run("SETTP a v");
        let third = format!("BLPOP nothing {}", ms as f64 / 3000.0);
        for _ in 0..4 {
            let begin = Instant::now();
            quit(&server, client);
            let seen = sessions(&server);
            client = server.resp3();
            let resumed = client.call(["SESSION.RESUME", &secret]);
            if begin.elapsed() >= Duration::from_millis(ms) {
                return None;
            }
            assert_eq!((seen, resumed), ([0, 1], int(1)));
            assert_eq!(client.call(&third), null());
        }
        Some(())
    });
}

#[test]
fn however_a_connection_ends_its_session_stays() {
    let server = Server::start().over_tcp();
    let (mut client, secret) = with_session(&server, A_DAY);
    client.run("SETTP a v");
    let mut admin = server.resp2();
    for way in ["kill", "reset", "drop", "move"] {
        match way {
            "kill" => {
                let id = client.id().to_string();
                admin.run(["CLIENT", "KILL", "ID", &id]);
            }
            "reset" => client.reset(),
            "drop" => drop(client),
            _ => {}
        }
        client = server.resp3();
        assert_eq!(client.call(["SESSION.RESUME", &secret]), int(1), "{way}");
    }
    client.run("RESET");
    assert_eq!(sessions(&server), [1, 0]);
    assert_eq!(client.call("DELTP a"), int(1));
}

#[test]
fn while_nothing_may_be_written_a_session_is_resumed_and_a_lapsed_one_waits() {
    let server = Server::start();
    let (mut lapses, gone) = with_session(&server, 20);
    let (mut stays, secret) = with_session(&server, A_DAY);
    lapses.run("SETTP a v");
    stays.run("SETTP b v");
    let mut admin = server.resp2();
    admin.run("CLIENT PAUSE 60000 WRITE");
    quit(&server, lapses);
    quit(&server, stays);
    let mut client = server.resp3();
    let begin = Instant::now();
    eventually("the end of its grace", || match begin.elapsed() {
        passed if passed > Duration::from_millis(40) => Ok(()),
        passed => Err(format!("{passed:?}")),
    });
    assert!(
        client
            .refused(["SESSION.RESUME", &gone])
            .starts_with("NOSESSION")
    );
    assert_eq!(client.call(["SESSION.RESUME", &secret]), int(1));
    assert_eq!(admin.call("EXISTS a b"), int(2));
    admin.run("CLIENT UNPAUSE");
    eventually_gone(&mut admin, "a");
    assert_eq!(admin.call("EXISTS b"), int(1));
}

#[test]
fn a_lease_of_a_session_ends_while_it_is_detached() {
    let server = Server::start();
    let (mut client, secret) = with_session(&server, A_DAY);
    client.run_all(&["LOCK.ACQUIRE a LEASE 30", "LOCK.ACQUIRE b LEASE 60000"]);
    quit(&server, client);
    eventually_gone(&mut server.resp2(), "a");
    assert_eq!(server.resp3().call(["SESSION.RESUME", &secret]), int(1));
}
