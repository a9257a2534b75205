//! The devserver as a client sees it. That it gives the verdicts of real servers is a matter of `conform.py --devserver`.

use std::thread;
use tether_devserver::{Devserver, Options};
use tether_testing::harness::{Client, Frame, array, bulk, eventually, int, null, ok};
use tether_testing::line::field;

/// A server of one's own, for as long as the test program lives.
fn start(options: Options) -> u16 {
    let server = Devserver::bind(Options { port: 0, ..options }).expect("a free port");
    let port = server.port().expect("it listens");
    thread::spawn(|| server.serve());
    port
}

fn connect(port: u16) -> Client {
    Client::connect(("127.0.0.1", port)).expect("it listens")
}

fn resp3(port: u16) -> Client {
    connect(port).hello3()
}

#[test]
fn a_lock_is_handed_over_and_told_by_a_push() {
    let port = start(Options::default());
    let (mut ann, mut bob) = (resp3(port), resp3(port));
    let token = ann.run("LOCK.ACQUIRE k").number();
    assert_eq!(bob.call("LOCK.ACQUIRE k"), Frame::Null);
    assert_eq!(bob.call("LOCK.ACQUIRE k WAIT 0 PUSH"), Frame::Null);
    assert_eq!(ann.call("LOCK.RELEASE k"), int(0));
    let said = bob.next_push();
    let next: i64 = said
        .strip_prefix("lock k ")
        .expect("a grant")
        .parse()
        .expect("its token");
    assert!(next > token, "{next} after {token}");
    assert_eq!(
        ann.refused("LOCK.RELEASE k"),
        "NOTHELD this owner does not hold the lock"
    );
}

#[test]
fn a_blocked_connection_is_answered_when_the_holder_ends() {
    let port = start(Options::default());
    let (mut holder, mut blocked, mut other) = (resp3(port), connect(port), connect(port));
    assert_eq!(holder.call("SETTP k v"), int(1));
    blocked.send("SETTP k w WAIT 0");
    // What follows the blocked command waits with it.
    blocked.send("GET k");
    eventually("it waits", || {
        match other.run("LOCK.INFO k").items()[9].clone() {
            count if count == int(1) => Ok(()),
            count => Err(format!("{count:?}")),
        }
    });
    drop(holder);
    assert_eq!(blocked.read_reply(), int(1));
    assert_eq!(blocked.read_reply(), bulk("w"));
    drop(blocked);
    eventually("its key is gone", || match other.call("EXISTS k") {
        count if count == int(0) => Ok(()),
        count => Err(format!("{count:?}")),
    });
}

#[test]
fn what_others_do_to_a_key_is_a_loss() {
    let port = start(Options::default());
    let (mut holder, mut other) = (resp3(port), connect(port));
    for (how, name, reason) in [
        ("DEL k", "k", "deleted"),
        ("SET k 1", "k", "overwritten"),
        ("FLUSHALL", "k", "flushed"),
        ("PEXPIRE k 1", "k", "expired"),
        ("DEV LOSE k evicted", "k", "evicted"),
        ("RENAME other k", "k", "overwritten"),
    ] {
        other.run("DEL k");
        other.run("SET other 1");
        holder.run("LOCK.ACQUIRE k NOTIFY");
        other.run(how);
        assert_eq!(
            holder.next_push(),
            format!("lock {name} LOST {reason}"),
            "{how}"
        );
    }
    assert_eq!(other.call("GET k"), bulk("1"));
}

#[test]
fn a_lock_goes_with_its_key() {
    let port = start(Options::default());
    let (mut holder, mut other) = (resp3(port), connect(port));
    holder.run("LOCK.ACQUIRE k NOTIFY");
    other.run("RENAME k l");
    assert_eq!(other.run("TYPE l").text(), "tetherloc");
    assert_eq!(holder.call("LOCK.RELEASE l"), int(0));
    assert_eq!(other.call("EXISTS l"), int(0));
}

#[test]
fn a_session_outlives_its_connection() {
    let port = start(Options::default());
    let mut first = resp3(port);
    let secret = first.run("SESSION.START GRACE 60000").text();
    let token = first.run("LOCK.ACQUIRE k").number();
    let mut other = resp3(port);
    assert_eq!(other.run("DEV DROP"), ok());
    first.expect_closed();
    let mut second = resp3(port);
    second.run(["SESSION.RESUME", &secret, "NOTIFY"]);
    assert_eq!(second.run(["LOCK.CHECK", "k", &token.to_string()]), int(1));
    drop(second);
    // Nobody resumes it in time.
    assert_eq!(other.call("LOCK.ACQUIRE k WAIT 0 PUSH"), Frame::Null);
    other.run("DEV ADVANCE 60001");
    assert!(other.next_push().starts_with("lock k "));
}

#[test]
fn the_clock_ends_leases_and_waits() {
    let port = start(Options::default());
    let (mut holder, mut other) = (resp3(port), resp3(port));
    holder.run("LOCK.ACQUIRE k LEASE 60000 NOTIFY");
    assert_eq!(other.call("LOCK.ACQUIRE k WAIT 30000 PUSH"), Frame::Null);
    other.run("DEV ADVANCE 30000");
    assert_eq!(other.next_push(), "lock k TIMEOUT");
    other.run("DEV ADVANCE 30000");
    assert_eq!(holder.next_push(), "lock k LOST lease");
}

#[test]
fn a_server_that_refuses_writes_takes_releases() {
    let port = start(Options::default());
    let (mut holder, mut other) = (resp3(port), resp3(port));
    holder.run("LOCK.ACQUIRE k");
    assert_eq!(other.call("LOCK.ACQUIRE k WAIT 0 PUSH"), Frame::Null);
    other.run("DEV REFUSE NOREPLICAS");
    assert!(other.refused("LOCK.ACQUIRE l").starts_with("NOREPLICAS "));
    assert_eq!(holder.call("LOCK.RELEASE k"), int(0));
    assert_eq!(other.arrived_pushes(), [""; 0]);
    other.run("DEV ACCEPT");
    assert!(other.next_push().starts_with("lock k "));
    other.run("DEV REFUSE BUSY");
    assert!(holder.refused("PING").starts_with("BUSY "));
}

#[test]
fn a_demoted_server_ends_waits_and_holds() {
    let port = start(Options::default());
    let (mut holder, mut waiter) = (resp3(port), resp3(port));
    holder.run("LOCK.ACQUIRE k NOTIFY");
    assert_eq!(waiter.call("LOCK.ACQUIRE k WAIT 0 PUSH"), Frame::Null);
    waiter.run("DEV DEMOTE 127.0.0.1 7777");
    assert_eq!(waiter.next_push(), "lock k FAILED UNBLOCKED");
    assert_eq!(holder.next_push(), "lock k LOST demoted");
    assert!(holder.refused("LOCK.ACQUIRE k").starts_with("READONLY "));
    let role = [
        bulk("slave"),
        bulk("127.0.0.1"),
        int(7777),
        bulk("connected"),
        int(0),
    ];
    assert_eq!(holder.call("ROLE"), array(role));
    holder.run("DEV PROMOTE");
    holder.run("LOCK.ACQUIRE k");
}

#[test]
fn watches_and_prefixes_are_told() {
    let port = start(Options::default());
    let (mut watcher, mut other) = (resp3(port), resp3(port));
    assert_eq!(watcher.call("WATCHEX k"), bulk("NOEXIST"));
    other.run("SET k 1");
    other.run("DEL k");
    assert_eq!(watcher.next_pushes(2), ["watchex k ADD", "watchex k DEL"]);
    assert_eq!(watcher.call("WATCHTP p:"), array([bulk(""), array([])]));
    let token = other.run("SETTP p:1 here TOKEN").number();
    assert_eq!(watcher.next_push(), format!("watchtp p:1 ADD {token} here"));
    other.run("SET p:1 there");
    assert_eq!(
        watcher.next_push(),
        format!("watchtp p:1 SET {token} there")
    );
    other.run("DELTP p:1");
    assert_eq!(
        watcher.next_push(),
        format!("watchtp p:1 DEL {token} released")
    );
}

#[test]
fn a_guarded_write_runs_while_the_token_is_current() {
    let port = start(Options::default());
    let (mut holder, mut other) = (resp3(port), connect(port));
    let token = holder.run("LOCK.ACQUIRE k").number();
    assert_eq!(
        other.call(format!("LOCK.GUARD k {token} INCR x").as_str()),
        int(1)
    );
    holder.run("LOCK.RELEASE k");
    let refused = other.refused(format!("LOCK.GUARD k {token} INCR x").as_str());
    assert_eq!(
        refused,
        format!("STALE token {token} is not current: nobody holds the key")
    );
    assert_eq!(other.call("GET x"), bulk("1"));
}

#[test]
fn nobody_speaks_without_the_password() {
    let password = Some("secret".to_owned());
    let port = start(Options {
        password,
        ..Options::default()
    });
    let mut client = connect(port);
    assert!(client.refused("PING").starts_with("NOAUTH "));
    assert!(
        client
            .refused("HELLO 3 AUTH default wrong")
            .starts_with("WRONGPASS ")
    );
    client.run("HELLO 3 AUTH default secret");
    assert_eq!(client.call("GET nothing"), Frame::Null);
}

#[test]
fn it_can_be_a_server_without_pushes_or_without_the_module() {
    let can_push = false;
    let mut client = resp3(start(Options {
        can_push,
        ..Options::default()
    }));
    assert!(
        client
            .refused("WATCHEX k")
            .starts_with("ERR pushes are off")
    );
    client.run("LOCK.ACQUIRE k");
    let has_module = false;
    let mut client = connect(start(Options {
        has_module,
        ..Options::default()
    }));
    assert!(
        client
            .refused("LOCK.SERVER")
            .starts_with("ERR unknown command")
    );
    assert_eq!(client.call("GET k"), null());
}

#[test]
fn reports_say_who_holds_and_who_lost() {
    let port = start(Options::default());
    let (mut holder, mut other) = (resp3(port), connect(port));
    holder.run("CLIENT SETNAME ann");
    let token = holder.run("LOCK.ACQUIRE k").number();
    let why = other.run("LOCK.WHY k").items()[0].clone();
    assert_eq!(field(&why, "token"), int(token));
    assert_eq!(field(&why, "name"), bulk("ann"));
    other.run("DEL k");
    let entry = other.run("LOCK.LOG KEY k").items()[0].clone();
    assert_eq!(field(&entry, "reason"), bulk("deleted"));
    assert_eq!(field(&entry, "name"), bulk("ann"));
    let page = other.run("LOCK.LIST 0").items();
    assert_eq!(page[1], array([]));
    other.run("SET k 1");
    let why = other.run("LOCK.WHY k").items()[0].clone();
    assert_eq!(field(&why, "cause"), bulk("unheld"));
}

#[test]
fn an_error_names_what_is_wrong() {
    let mut client = connect(start(Options::default()));
    assert_eq!(
        client.refused("LOCK.ACQUIRE"),
        "ERR wrong number of arguments for 'lock.acquire' command"
    );
    assert_eq!(
        client.refused("GET"),
        "ERR wrong number of arguments for 'get' command"
    );
    assert_eq!(client.refused("DEV NOTHING"), "ERR no such lever: DEV HELP");
    let help = client.run("DEV HELP").items();
    assert!(help.iter().any(|line| line.text().starts_with("DEV LOSE ")));
}

#[test]
fn silence_is_nothing_for_anybody_until_it_is_over() {
    let port = start(Options::default());
    let (mut one, mut other) = (connect(port), connect(port));
    one.run("SET k 1 PX 60000");
    one.run("DEV SILENT 300");
    let left = other.run("PTTL k").number();
    assert!(left <= 59_700, "{left} ms are left");
}
