//! `tether.quarantine` and `LOCK.SERVER`: a server that was started again grants nothing for a while.

use crate::harness::*;
use crate::line::*;
use std::time::Instant;

/// Longer than a test takes.
const LONG: &str = "tether.quarantine 600000";
const SHORT_MS: u64 = 1500;

fn short() -> String {
    format!("tether.quarantine {SHORT_MS}")
}

/// What LOCK.SERVER says under this name.
fn of_server(client: &mut Client, name: &str) -> Frame {
    field(&client.run("LOCK.SERVER"), name)
}

#[test]
fn nothing_is_granted_to_who_does_not_wait() {
    let server = Server::with(&[LONG]);
    let mut client = server.resp3();
    for request in [
        "SETTP a v",
        "SETTP a v TOKEN",
        "LOCK.ACQUIRE a",
        "LOCK.ACQUIRE a SHARED LEASE 1000",
        "LOCK.ACQUIRE a PERMITS 1 OF 2 OWNER me",
        "LOCK.MACQUIRE 2 a b",
    ] {
        let error = client.refused(request);
        assert!(error.starts_with("QUARANTINE "), "{request}: {error}");
        let left = error.split(' ').nth(1).and_then(|ms| ms.parse().ok());
        assert!(
            left.is_some_and(|ms: u64| (1..=600_000).contains(&ms)),
            "{error}"
        );
    }
    client.run_all(&["MULTI", "SETTP a v WAIT 0", "LOCK.ACQUIRE b WAIT 1 PUSH"]);
    client.send("EXEC");
    let replies = client.read_reply().items();
    for reply in &replies {
        assert!(format!("{reply:?}").contains("QUARANTINE"), "{reply:?}");
    }
    assert_eq!(replies.len(), 2);
    assert_eq!(client.call("EXISTS a b"), int(0));
    // A key that is there is refused as ever, and all else works.
    client.run("SET s v");
    assert_eq!(client.call("SETTP s v"), int(0));
    assert_eq!(client.call("WATCHEX a"), bulk("NOEXIST"));
    assert_eq!(tether(&server, "grants_total"), 0);
}

#[test]
fn who_waits_is_served_in_turn_when_it_is_over() {
    let server = Server::with(&[&short()]);
    let began = Instant::now();
    let (mut first, mut second, mut pushed) = (server.resp3(), server.resp3(), server.resp3());
    if of_server(&mut first, "quarantine-left-ms").number() < 700 {
        return say("who_waits_is_served_in_turn_when_it_is_over: this machine is too slow today");
    }
    queue(&server, &mut first, "SETTP a first WAIT 0");
    queue(&server, &mut second, "LOCK.ACQUIRE a WAIT 0");
    queue_push(&mut pushed, "LOCK.ACQUIRE b WAIT 0 PUSH");
    assert_eq!(waiters(&server, "a").len(), 2);
    assert_eq!(first.read_reply(), int(1));
    assert!(began.elapsed().as_millis() >= 500);
    assert!(pushed.next_push().starts_with("lock b "));
    assert_eq!(first.call("GET a"), bulk("first"));
    assert!(!second.has_reply());
    quit(&server, first);
    assert!(second.read_reply().number() > 0);
    // It is over for newcomers, too.
    assert_eq!(pushed.call("SETTP c v"), int(1));
    assert_eq!(of_server(&mut pushed, "quarantine-left-ms"), int(0));
}

#[test]
fn a_wait_can_end_before_the_quarantine_does() {
    let server = Server::with(&[LONG]).over_tcp();
    let (mut client, mut gone) = (server.resp3(), server.resp3());
    assert_eq!(client.call("SETTP a v WAIT 20"), int(0));
    assert_eq!(client.call("SETTP a v WAIT 20 PUSH"), int(0));
    assert_eq!(client.next_push(), "settp a TIMEOUT");
    queue(&server, &mut gone, "LOCK.ACQUIRE a WAIT 0");
    gone.reset();
    eventually_equal("those who wait", 0, || tether(&server, "waiters"));
    assert_eq!(client.call("EXISTS a"), int(0));
}

#[test]
fn a_session_keeps_what_it_held_and_gets_nothing_new() {
    let mut server = Server::with(&["appendonly yes", "appendfsync always"]);
    let mut client = server.resp3();
    let secret = client.run("SESSION.START GRACE 60000").text();
    let token = client.run("LOCK.ACQUIRE held").number();
    server.restart(&["appendonly yes", "appendfsync always", LONG]);
    let mut client = server.resp3();
    assert!(of_server(&mut client, "quarantine-left-ms").number() > 0);
    assert_eq!(client.call(["SESSION.RESUME", &secret]), int(1));
    assert_eq!(token_of(&server, "held"), token);
    assert_eq!(client.call("LOCK.EXTEND held 60000"), int(1));
    assert!(client.refused("LOCK.ACQUIRE new").starts_with("QUARANTINE"));
    assert_eq!(client.call("LOCK.RELEASE held ALL"), int(0));
    assert!(
        client
            .refused("LOCK.ACQUIRE held")
            .starts_with("QUARANTINE")
    );
}

#[test]
fn only_a_start_begins_one() {
    let server = Server::start();
    let mut client = server.resp3();
    client.run("CONFIG SET tether.quarantine 600000");
    // The server's event loop has run; this is no start.
    client.run("DEBUG RELOAD");
    assert_eq!(of_server(&mut client, "quarantine-ms"), int(600_000));
    assert_eq!(of_server(&mut client, "quarantine-left-ms"), int(0));
    assert_eq!(client.call("SETTP a v"), int(1));
}

#[test]
fn a_file_that_is_loaded_begins_it_anew() {
    let mut server = Server::start();
    server.resp2().run_all(&["SET s v", "SAVE"]);
    server.restart(&[LONG]);
    let mut client = server.resp3();
    assert_eq!(client.call("GET s"), bulk("v"));
    assert!(client.refused("SETTP a v").starts_with("QUARANTINE"));
}

#[test]
fn a_replica_has_none_and_gets_none_by_its_promotion() {
    let master = Server::start();
    let replica = Server::replica_of(&master, &[LONG]);
    let mut client = replica.resp3();
    assert_eq!(of_server(&mut client, "role"), bulk("replica"));
    assert_eq!(of_server(&mut client, "quarantine-left-ms"), int(0));
    client.run("REPLICAOF NO ONE");
    assert_eq!(of_server(&mut client, "role"), bulk("master"));
    assert_eq!(of_server(&mut client, "quarantine-left-ms"), int(0));
    assert_eq!(client.call("SETTP a v"), int(1));
}

#[test]
fn lock_server_tells_what_is_so() {
    let server = Server::with(&["tether.resp2-push no", "tether.peer-timeout 3500"]).over_tcp();
    let (mut resp3, mut resp2) = (server.resp3(), server.resp2());
    assert_eq!(
        of_server(&mut resp3, "version"),
        bulk(env!("CARGO_PKG_VERSION"))
    );
    let commit = of_server(&mut resp3, "commit").text();
    let info = server.info("tether");
    for line in [
        concat!("tether_version:", env!("CARGO_PKG_VERSION")).to_owned(),
        format!("tether_commit:{commit}"),
    ] {
        assert!(info.contains(&format!("{line}\r\n")), "{line}: {info}");
    }
    let run_id = of_server(&mut resp3, "run-id").text();
    assert!(
        server
            .info("server")
            .contains(&format!("run_id:{run_id}\r\n"))
    );
    assert_eq!(of_server(&mut resp3, "pushes"), int(1));
    assert_eq!(of_server(&mut resp2, "pushes"), int(0));
    // The kernel counts in seconds.
    assert_eq!(of_server(&mut resp3, "peer-timeout-ms"), int(3000));
    resp3.run("CONFIG SET tether.peer-timeout 0");
    assert_eq!(of_server(&mut resp3, "peer-timeout-ms"), int(0));
    resp3.run("CONFIG SET tether.resp2-push yes");
    assert_eq!(of_server(&mut resp2, "pushes"), int(1));
    let other = Server::start();
    assert_ne!(of_server(&mut other.resp3(), "run-id").text(), run_id);
}

#[test]
fn lock_server_needs_no_right_but_its_own() {
    let server = Server::start();
    server
        .resp2()
        .run("ACL SETUSER app on >secret -@all +lock.server");
    let mut client = server.resp2();
    client.run("AUTH app secret");
    assert_eq!(of_server(&mut client, "role"), bulk("master"));
}
