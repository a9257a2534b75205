//! ACKS: a grant that so many replicas acknowledge before its owner is told of it.

use crate::harness::*;
use crate::line::*;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A master and its replicas, which are there.
struct Line {
    master: Server,
    replicas: Vec<Server>,
}

impl Line {
    fn with(count: usize, lines: &[&str]) -> Line {
        let master = Server::with(lines);
        let replicas = (0..count).map(|_| Server::replica_of(&master, &[]));
        let line = Line {
            replicas: replicas.collect(),
            master,
        };
        line.master.await_replicas(count);
        line
    }

    /// A connection with a session of a long grace.
    fn owner(&self) -> Client {
        let mut client = self.master.resp3();
        client.run("SESSION.START GRACE 60000");
        client
    }

    /// The replicas get what is replicated, and cannot say so.
    fn silence(&self) {
        for replica in &self.replicas {
            Server::signal(replica.pid(), libc::SIGSTOP);
        }
    }

    fn go_on(&self) {
        for replica in self.replicas.iter().filter(|one| one.is_running()) {
            Server::signal(replica.pid(), libc::SIGCONT);
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.go_on();
    }
}

fn pending(server: &Server) -> i64 {
    tether(server, "grants_pending")
}

fn until_pending(server: &Server, count: i64) {
    eventually_equal("grants that wait for acknowledgements", count, || {
        pending(server)
    });
}

const FORMS: [(&str, &str); 5] = [
    ("SETTP k v TOKEN ACKS", "DELTP k"),
    ("LOCK.ACQUIRE k ACKS", "LOCK.RELEASE k"),
    ("LOCK.ACQUIRE k SHARED ACKS", "LOCK.RELEASE k"),
    ("LOCK.ACQUIRE k PERMITS 2 OF 3 ACKS", "LOCK.RELEASE k"),
    ("LOCK.MACQUIRE 2 k l ACKS", "LOCK.RELEASE k"),
];

#[test]
fn a_grant_is_told_once_so_many_replicas_have_it() {
    let line = Line::with(2, &[]);
    let mut owner = line.owner();
    for (request, give) in FORMS {
        for replicas in [1, 2] {
            let token = owner.run(&format!("{request} {replicas}")).number();
            assert!(token > 1, "{request}");
            for replica in line.replicas.iter().take(2) {
                if replicas == 2 {
                    assert_eq!(replica.resp2().call("EXISTS k"), int(1), "{request}");
                }
            }
            owner.run(give);
            if request.contains("MACQUIRE") {
                owner.run("LOCK.RELEASE l");
            }
        }
    }
    assert_eq!(owner.call("SETTP k v ACKS 2"), int(1));
    assert_eq!(pending(&line.master), 0);
    assert_eq!(tether(&line.master, "grants_withdrawn_total"), 0);
}

#[test]
fn a_promoted_replica_keeps_what_it_acknowledged_with_the_same_token() {
    let line = Line::with(1, &[]);
    let mut owner = line.master.resp3();
    let secret = owner.run("SESSION.START GRACE 60000").text();
    let token = owner
        .run("LOCK.ACQUIRE k ACKS 1 OWNER job LEASE 60000")
        .number();
    Server::signal(line.master.pid(), libc::SIGSTOP);
    let mut there = line.replicas[0].resp3();
    there.run("REPLICAOF NO ONE");
    assert_eq!(there.call(["SESSION.RESUME", &secret]), int(1));
    assert_eq!(there.call("LOCK.CANCEL k OWNER job"), int(token));
    assert_eq!(there.call(["LOCK.CHECK", "k", &token.to_string()]), int(1));
    Server::signal(line.master.pid(), libc::SIGCONT);
}

#[test]
fn what_is_not_acknowledged_in_time_is_withdrawn() {
    let line = Line::with(1, &[]);
    let (mut owner, mut watcher) = (line.owner(), line.master.resp3());
    watcher.run("WATCHEX k");
    line.silence();
    for (request, _) in FORMS {
        let begin = Instant::now();
        let refusal = owner.refused(&format!("{request} 1 ACKTIMEOUT 60"));
        assert_eq!(refusal, "NOACKS 0 of 1", "{request}");
        assert!(begin.elapsed() >= Duration::from_millis(55), "{request}");
        let pushes = ["watchex k ADD", "watchex k DEL"];
        assert_eq!(watcher.next_pushes(2), pushes, "{request}");
        assert_eq!(watcher.call("EXISTS k l"), int(0), "{request}");
    }
    assert_eq!(
        tether(&line.master, "grants_withdrawn_total"),
        FORMS.len() as i64
    );
    assert_eq!(tether(&line.master, "lost_total"), 0);
    assert_eq!(
        tether(&line.master, "holds") + tether(&line.master, "temporary_keys"),
        0
    );
}

#[test]
fn a_withdrawn_grant_is_handed_on_in_one_step() {
    in_time(|ms| {
        let line = Line::with(1, &[]);
        let (mut owner, mut next, mut watcher) =
            (line.owner(), line.master.resp3(), line.master.resp3());
        watcher.run("WATCHEX k");
        line.silence();
        let first = format!("SETTP k first ACKS 1 ACKTIMEOUT {ms}");
        if !stands_in_line(&line.master, &mut owner, &first)
            || !stands_in_line(&line.master, &mut next, "SETTP k second WAIT 0")
        {
            return None;
        }
        assert_eq!(owner.read_reply(), Frame::Error("NOACKS 0 of 1".into()));
        assert_eq!(next.read_reply(), int(1));
        assert_eq!(next.call("GET k"), bulk("second"));
        assert_eq!(line.master.settled(&mut watcher), ["watchex k ADD"]);
        Some(())
    });
}

#[test]
fn a_pending_hold_is_taken_for_others_shown_and_stale() {
    let line = Line::with(1, &[]);
    let (mut owner, mut other) = (line.owner(), line.master.resp3());
    line.silence();
    owner.send("LOCK.ACQUIRE k ACKS 1 ACKTIMEOUT 60000");
    until_pending(&line.master, 1);
    assert_eq!(other.call("LOCK.ACQUIRE k"), Frame::Null);
    let mut holder = || field(&other.run("LOCK.INFO k"), "holders").items()[0].clone();
    assert_eq!(field(&holder(), "acks"), array([int(0), int(1)]));
    let token = field(&holder(), "token").number();
    let refusal = other.refused(["LOCK.CHECK", "k", &token.to_string()]);
    assert!(
        refusal.ends_with("it waits for acknowledgements of replicas"),
        "{refusal}"
    );
    line.go_on();
    assert_eq!(owner.read_reply(), int(token));
    let holder = field(&other.run("LOCK.INFO k"), "holders").items()[0].clone();
    assert_eq!(field(&holder, "acks"), null());
    assert_eq!(other.call(["LOCK.CHECK", "k", &token.to_string()]), int(1));
}

#[test]
fn with_push_the_reply_is_at_once_and_the_grant_or_its_failure_comes_as_a_push() {
    let line = Line::with(1, &[]);
    let mut owner = line.owner();
    for (request, give) in FORMS {
        let reply = owner.run(&format!("{request} 1 WAIT 0 PUSH"));
        assert!(
            matches!(reply, Frame::Null | Frame::Integer(0)),
            "{request}"
        );
        let push = owner.next_push();
        let token: i64 = push.rsplit(' ').next().unwrap().parse().expect("a token");
        assert!(token > 0);
        owner.run(give);
        owner.run("LOCK.CANCEL l");
        if request.contains("MACQUIRE") {
            owner.run("LOCK.RELEASE l");
        }
    }
    line.silence();
    for (request, _) in FORMS {
        owner.run(&format!("{request} 1 ACKTIMEOUT 50 WAIT 0 PUSH"));
        let push = owner.next_push();
        assert!(push.ends_with(" k FAILED NOACKS 0 of 1"), "{push}");
    }
    owner.run("LOCK.ACQUIRE k OWNER job ACKS 1 ACKTIMEOUT 50 WAIT 0 PUSH");
    assert_eq!(owner.next_push(), "lock k FAILED NOACKS 0 of 1 job");
}

#[test]
fn a_wait_ends_with_the_grant_and_then_the_time_for_acknowledgements_begins() {
    let line = Line::with(1, &[]);
    let (mut first, mut owner) = (line.master.resp3(), line.owner());
    first.run("LOCK.ACQUIRE k");
    owner.send("LOCK.ACQUIRE k WAIT 60000 ACKS 1 ACKTIMEOUT 100");
    sleep(Duration::from_millis(150));
    line.silence();
    let begin = Instant::now();
    first.run("LOCK.RELEASE k");
    assert_eq!(owner.read_reply(), Frame::Error("NOACKS 0 of 1".into()));
    assert!(begin.elapsed() >= Duration::from_millis(95));
    line.go_on();
    assert!(owner.run("LOCK.ACQUIRE k WAIT 60000 ACKS 1").number() > 0);
}

#[test]
fn too_few_replicas_are_no_reason_to_wait() {
    let line = Line::with(1, &[]);
    let (mut owner, mut other) = (line.owner(), line.master.resp3());
    let begin = Instant::now();
    assert_eq!(
        owner.refused("SETTP k v ACKS 2 ACKTIMEOUT 60000"),
        "NOACKS 0 of 2"
    );
    assert_eq!(other.call("EXISTS k"), int(0));
    // Whoever waits is told when its turn comes, and the next in line is served.
    other.run("LOCK.ACQUIRE k");
    let (mut next, mut last) = (line.owner(), line.master.resp3());
    queue(&line.master, &mut owner, "LOCK.ACQUIRE k WAIT 0 ACKS 2");
    queue(&line.master, &mut next, "LOCK.ACQUIRE k WAIT 0 ACKS 3");
    queue(&line.master, &mut last, "LOCK.ACQUIRE k WAIT 0");
    other.run("LOCK.RELEASE k");
    assert_eq!(owner.read_reply(), Frame::Error("NOACKS 0 of 2".into()));
    assert_eq!(next.read_reply(), Frame::Error("NOACKS 0 of 3".into()));
    assert!(last.read_reply().number() > 0);
    assert!(begin.elapsed() < Duration::from_secs(10));
}

/// How many there are when its turn comes is what counts.
#[test]
fn replicas_may_come_and_go_while_a_request_waits() {
    let mut line = Line::with(0, &[]);
    let (mut owner, mut other) = (line.owner(), line.master.resp3());
    let ask = "LOCK.ACQUIRE k WAIT 0 PUSH ACKS 1 ACKTIMEOUT 86400000";
    other.run("LOCK.ACQUIRE k");
    queue_push(&mut owner, ask);
    line.replicas.push(Server::replica_of(&line.master, &[]));
    line.master.await_replicas(1);
    line.master.settle();
    other.run("LOCK.RELEASE k");
    let granted = owner.next_push();
    assert!(
        granted.starts_with("lock k ") && !granted.contains("FAILED"),
        "{granted}"
    );
    owner.run("LOCK.RELEASE k");

    other.run("LOCK.ACQUIRE k");
    queue_push(&mut owner, ask);
    line.replicas[0].kill();
    line.master.await_replicas(0);
    line.master.settle();
    other.run("LOCK.RELEASE k");
    let refused = owner.next_push();
    assert!(refused.ends_with(" FAILED NOACKS 0 of 1"), "{refused}");
}

/// More than one event of the engine withdraws.
#[test]
fn of_very_many_each_is_withdrawn() {
    const MANY: usize = 1000;
    let mut line = Line::with(1, &[]);
    for ends_by in ["SWAPDB 0 1", "SESSION.DETACH", "the end of the replica"] {
        let (mut owner, mut other) = (line.master.resp3(), line.master.resp3());
        let secret = owner.run("SESSION.START GRACE 60000").text();
        line.silence();
        for key in 0..MANY {
            owner.send(&format!(
                "LOCK.ACQUIRE {key} WAIT 0 PUSH ACKS 1 ACKTIMEOUT 60000"
            ));
        }
        owner.read_replies(MANY);
        until_pending(&line.master, MANY as i64);
        if ends_by == "the end of the replica" {
            line.replicas[0].kill();
        } else {
            owner.run(ends_by);
            line.go_on();
        }
        for push in owner.next_pushes(MANY) {
            assert!(push.ends_with(" FAILED NOACKS 0 of 1"), "{ends_by}: {push}");
        }
        until_pending(&line.master, 0);
        eventually_equal("holds", 0, || tether(&line.master, "holds"));
        if ends_by == "SESSION.DETACH" {
            other.run(&format!("SESSION.RESUME {secret}"));
            assert_eq!(other.call("SESSION.END"), int(0));
        }
        owner.call("SESSION.END");
    }
}

#[test]
fn a_replica_that_leaves_ends_what_waits_for_it() {
    let mut line = Line::with(2, &[]);
    let mut owner = line.owner();
    Server::signal(line.replicas[1].pid(), libc::SIGSTOP);
    owner.send("LOCK.ACQUIRE k ACKS 2 ACKTIMEOUT 60000");
    let mut other = line.master.resp3();
    eventually_equal("acknowledgements", array([int(1), int(2)]), || {
        let holders = field(&other.run("LOCK.INFO k"), "holders").items();
        field(&holders[0], "acks")
    });
    line.replicas[1].kill();
    assert_eq!(owner.read_reply(), Frame::Error("NOACKS 1 of 2".into()));
    assert!(owner.run("LOCK.ACQUIRE k ACKS 1").number() > 0);
}

#[test]
fn it_needs_a_session_and_is_refused_in_transactions() {
    let line = Line::with(1, &[]);
    let mut client = line.master.resp3();
    assert!(
        client
            .refused("LOCK.ACQUIRE k ACKS 1")
            .starts_with("NOSESSION ")
    );
    assert!(
        client
            .refused("SETTP k v ACKS 1 WAIT 0")
            .starts_with("NOSESSION ")
    );
    client.run("SESSION.START");
    client.run("MULTI");
    client.run("SETTP k v ACKS 1");
    let replies = client.run("EXEC");
    let Frame::Error(text) = &replies.items()[0] else {
        panic!("{replies:?}");
    };
    assert!(text.starts_with(b"ERR option ACKS cannot be used in a transaction"));
    // A session that is over before its turn comes is none any more.
    let mut holder = line.master.resp3();
    holder.run("LOCK.ACQUIRE k");
    client.run("LOCK.ACQUIRE k ACKS 1 WAIT 0 PUSH");
    client.run("SESSION.END");
    holder.run("LOCK.RELEASE k");
    assert_eq!(client.next_push(), "lock k FAILED NOSESSION");
    assert_eq!(holder.call("EXISTS k"), int(0));
}

/// To its owner a grant that is not acknowledged is a wait.
#[test]
fn whoever_gives_up_or_goes_leaves_nothing() {
    let line = Line::with(1, &[]);
    let (mut owner, mut other) = (line.owner(), line.master.resp3());
    line.silence();
    let request = "LOCK.ACQUIRE k ACKS 1 ACKTIMEOUT 60000 WAIT 0 PUSH";
    let gone = |other: &mut Client, why: &str| {
        eventually(why, || match other.run("EXISTS k") {
            Frame::Integer(0) => Ok(()),
            reply => Err(format!("{reply:?}")),
        });
        assert_eq!(pending(&line.master), 0, "{why}");
    };
    owner.run(request);
    assert!(owner.refused("LOCK.RELEASE k").starts_with("NOTHELD"));
    assert!(owner.refused("LOCK.EXTEND k 5").starts_with("NOTHELD"));
    assert!(owner.refused("LOCK.RAISE k 5").starts_with("NOTHELD"));
    assert_eq!(owner.call("LOCK.ACQUIRE k"), Frame::Null);
    assert!(
        owner
            .refused("LOCK.ACQUIRE k WAIT 0 REENTRANT")
            .starts_with("DEADLOCK")
    );
    assert_eq!(owner.call("LOCK.CANCEL k"), int(1));
    gone(&mut other, "LOCK.CANCEL");
    owner.run("SETTP k v ACKS 1 ACKTIMEOUT 60000 WAIT 0 PUSH");
    assert_eq!(owner.call("DELTP k"), int(0));
    gone(&mut other, "DELTP");
    owner.run(request);
    assert_eq!(owner.call("SESSION.END"), int(1));
    gone(&mut other, "SESSION.END");
    assert_eq!(owner.pushes(), ["lock k FAILED NOACKS 0 of 1"]);
    let mut blocked = line.owner();
    let id = blocked.id();
    blocked.send("LOCK.ACQUIRE k ACKS 1 ACKTIMEOUT 60000");
    until_pending(&line.master, 1);
    other.run(&format!("CLIENT UNBLOCK {id}"));
    assert_eq!(blocked.read_reply(), Frame::Error("NOACKS 0 of 1".into()));
    gone(&mut other, "CLIENT UNBLOCK");
    blocked.send("LOCK.ACQUIRE k ACKS 1 ACKTIMEOUT 60000");
    until_pending(&line.master, 1);
    drop(blocked);
    gone(&mut other, "the end of a blocked connection");
    assert_eq!(tether(&line.master, "lost_total"), 0);
}

/// Sends `CLIENT UNBLOCK` so that it comes in one turn of the server's event loop with the acknowledgement, and behind it. False if
/// the machine was too busy for that.
fn unblocks_beside_the_acknowledgement(line: &Line, ids: &[i64], ms: u64) -> bool {
    let [mut busy, mut witness, mut other] = [(); 3].map(|()| line.master.resp2());
    let offset = line.master.gauge("replication", "master_repl_offset");
    busy.send(&format!("DEBUG SLEEP {}", ms as f64 / 1000.0));
    // It sleeps if it does not answer; and it reads first who was first to say something.
    sleep(Duration::from_millis(ms / 20));
    witness.send("PING");
    sleep(Duration::from_millis(ms / 20));
    let is_asleep = !witness.has_reply();
    line.go_on();
    let replica = &line.replicas[0];
    eventually("what the replica has", || {
        let got = replica.gauge("replication", "slave_repl_offset");
        (got >= offset).then_some(()).ok_or(format!("{got}"))
    });
    // Its acknowledgement leaves within two turns of its own event loop.
    replica.settle();
    for id in ids {
        other.send(&format!("CLIENT UNBLOCK {id}"));
    }
    let is_in_time = is_asleep && !busy.has_reply();
    busy.read_reply();
    other.read_replies(ids.len());
    is_in_time
}

/// What was granted is what it is told, and not what a wait that ends in vain returns.
#[test]
fn who_is_unblocked_beside_the_acknowledgement_is_told_of_the_grant() {
    in_time(|ms| {
        let line = Line::with(1, &[]);
        let requests = ["SETTP a v TOKEN", "LOCK.ACQUIRE b", "LOCK.MACQUIRE 2 c d"];
        let mut owners = requests.map(|_| line.owner());
        let ids: Vec<_> = owners.iter_mut().map(Client::id).collect();
        line.silence();
        for (owner, request) in owners.iter_mut().zip(requests) {
            owner.send(&format!("{request} ACKS 1 ACKTIMEOUT 60000"));
        }
        until_pending(&line.master, requests.len() as i64);
        if !unblocks_beside_the_acknowledgement(&line, &ids, ms) {
            return None;
        }
        for (owner, key) in owners.iter_mut().zip(["a", "b", "c"]) {
            let token = owner.read_reply().number().to_string();
            assert_eq!(owner.call(["LOCK.CHECK", key, &token]), int(1), "{key}");
        }
        assert_eq!(tether(&line.master, "grants_withdrawn_total"), 0);
        Some(())
    });
}

/// Its session has gone to another connection, which withdraws a grant at the latest with its acknowledgement.
#[test]
fn who_is_unblocked_beside_the_acknowledgement_is_told_that_it_was_withdrawn() {
    const MANY: usize = 1000;
    in_time(|ms| {
        let line = Line::with(1, &[]);
        let (mut owner, mut other) = (line.master.resp3(), line.master.resp3());
        let secret = owner.run("SESSION.START GRACE 60000").text();
        let id = owner.id();
        line.silence();
        for key in 0..MANY {
            owner.send(&format!(
                "LOCK.ACQUIRE {key} WAIT 0 PUSH ACKS 1 ACKTIMEOUT 60000"
            ));
        }
        owner.read_replies(MANY);
        owner.send("SETTP k v ACKS 1 ACKTIMEOUT 60000");
        until_pending(&line.master, 1 + MANY as i64);
        other.run(["SESSION.RESUME", &secret]);
        assert!(pending(&line.master) > 0, "some are left for later");
        if !unblocks_beside_the_acknowledgement(&line, &[id], ms) {
            return None;
        }
        assert_eq!(owner.read_reply(), Frame::Error("NOACKS 0 of 1".into()));
        eventually_equal("keys", 0, || other.call("EXISTS k").number());
        Some(())
    });
}

#[test]
fn another_who_deletes_the_key_withdraws_the_grant() {
    let line = Line::with(1, &[]);
    let (mut owner, mut other) = (line.owner(), line.master.resp3());
    line.silence();
    for removal in ["DEL k", "SET k v", "FLUSHALL", "RENAME k m"] {
        owner.send("LOCK.MACQUIRE 2 k l ACKS 1 ACKTIMEOUT 2000 NOTIFY");
        until_pending(&line.master, 1);
        other.run(removal);
        assert_eq!(
            owner.read_reply(),
            Frame::Error("NOACKS 0 of 1".into()),
            "{removal}"
        );
        assert_eq!(line.master.settled(&mut owner), [""; 0], "{removal}");
        assert_eq!(tether(&line.master, "holds"), 0, "{removal}");
        other.run("FLUSHALL");
    }
    assert_eq!(tether(&line.master, "lost_total"), 0);
}

/// Its owner was told later, by a name that somebody else had been granted meanwhile.
#[test]
fn a_grant_is_withdrawn_when_its_key_goes_by_another_name() {
    let line = Line::with(1, &[]);
    let (mut owner, mut other) = (line.owner(), line.master.resp3());
    let mut blocked = line.owner();
    line.silence();
    let mut hold = |request: &str, moving: &str, watched: bool| {
        let what = format!("{request}, {moving}, watched: {watched}");
        let mut watcher = line.master.resp3();
        if watched {
            watcher.run("WATCHEX k m");
        }
        owner.run(&format!("{request} 1 ACKTIMEOUT 60000 WAIT 0 PUSH"));
        other.run(moving);
        let pushes = line.master.settled(&mut owner);
        assert!(
            matches!(&pushes[..], [push] if push.ends_with(" k FAILED NOACKS 0 of 1")),
            "{what}: {pushes:?}"
        );
        other.run("LOCK.ACQUIRE k").number();
        eventually_equal("the holds of others", 1, || {
            tether(&line.master, "holds") + tether(&line.master, "temporary_keys")
        });
        other.run("LOCK.RELEASE k");
        blocked.send(&format!("{request} 1 ACKTIMEOUT 60000"));
        until_pending(&line.master, 1);
        other.run(moving);
        assert_eq!(
            blocked.read_reply(),
            Frame::Error("NOACKS 0 of 1".into()),
            "{what}"
        );
        eventually_equal("keys", "".to_owned(), || {
            let keyspace = line.master.info("keyspace");
            keyspace.lines().skip(1).collect()
        });
        assert_eq!(line.master.settled(&mut owner), [""; 0], "{what}");
    };
    for (request, _) in FORMS {
        for moving in ["RENAME k m", "MOVE k 1", "SWAPDB 0 1"] {
            hold(request, moving, false);
            hold(request, moving, true);
        }
    }
    hold("LOCK.MACQUIRE 2 k l ACKS", "RENAME l m", false);
    assert_eq!(tether(&line.master, "lost_total"), 0);
}

/// It begins with the acknowledgement.
#[test]
fn a_lease_lasts_from_when_its_owner_may_know_of_the_grant() {
    let line = Line::with(1, &[]);
    let mut owner = line.owner();
    line.silence();
    owner.send("LOCK.ACQUIRE k LEASE 300 NOTIFY ACKS 1 ACKTIMEOUT 60000");
    until_pending(&line.master, 1);
    sleep(Duration::from_millis(400));
    let begin = Instant::now();
    line.go_on();
    let token = owner.read_reply().number();
    assert_eq!(owner.next_push(), "lock k LOST lease");
    assert!(token > 0 && begin.elapsed() >= Duration::from_millis(300));
}

/// Nothing is written meanwhile.
#[test]
fn a_paused_server_withdraws_and_hands_on_when_it_may() {
    in_time(|ms| {
        let line = Line::with(1, &[]);
        let (mut owner, mut next) = (line.owner(), line.master.resp3());
        let mut admin = line.master.resp3();
        line.silence();
        let first = format!("SETTP k v ACKS 1 ACKTIMEOUT {ms}");
        let are_both = stands_in_line(&line.master, &mut owner, &first)
            && stands_in_line(&line.master, &mut next, "SETTP k w WAIT 0");
        admin.pipeline(&["CLIENT PAUSE 600000 WRITE", "INFO tether"]);
        let paused = admin.read_replies(2)[1].text();
        if !are_both || !paused.contains("tether_grants_pending:1\r\n") {
            return None;
        }
        assert_eq!(owner.read_reply(), Frame::Error("NOACKS 0 of 1".into()));
        sleep(Duration::from_millis(50));
        assert!(!next.has_reply());
        assert_eq!(admin.call("GET k"), bulk("v"));
        admin.run("CLIENT UNPAUSE");
        assert_eq!(next.read_reply(), int(1));
        assert_eq!(admin.call("GET k"), bulk("w"));
        Some(())
    });
}

#[test]
fn a_demoted_server_withdraws_what_is_pending() {
    let line = Line::with(1, &[]);
    let (mut owner, mut admin) = (line.owner(), line.master.resp3());
    line.silence();
    owner.run("LOCK.ACQUIRE k ACKS 1 ACKTIMEOUT 60000 WAIT 0 PUSH");
    admin.run("REPLICAOF 127.0.0.1 1");
    assert_eq!(owner.next_push(), "lock k FAILED NOACKS 0 of 1");
    assert_eq!(pending(&line.master), 0);
    admin.run("REPLICAOF NO ONE");
    assert_eq!(tether(&line.master, "lost_total"), 0);
}

/// Many at once, of different numbers, are each told once.
#[test]
fn each_of_many_is_told_once() {
    let line = Line::with(2, &["tether.max-keys-per-client 100000"]);
    let mut owner = line.owner();
    const MANY: usize = 2000;
    for n in 0..MANY {
        let acks = 1 + n % 2;
        owner.send(&format!(
            "LOCK.ACQUIRE k{n} ACKS {acks} ACKTIMEOUT 60000 WAIT 0 PUSH"
        ));
    }
    owner.read_replies(MANY);
    let mut pushes = owner.next_pushes(MANY);
    pushes.sort();
    pushes.dedup_by_key(|push| push.split(' ').nth(1).unwrap().to_owned());
    assert_eq!(pushes.len(), MANY);
    assert_eq!(pending(&line.master), 0);
    assert_eq!(tether(&line.master, "holds"), MANY as i64);
    assert_eq!(line.master.settled(&mut owner), [""; 0]);
}

/// The right to ask for acknowledgements is the session's, and is looked at once more when the turn comes.
#[test]
fn who_has_no_session_any_more_when_its_turn_comes_is_told_so() {
    let line = Line::with(1, &[]);
    let mut holder = line.master.resp3();
    for way in [
        "SESSION.END",
        "SESSION.DETACH",
        "SESSION.RESUME",
        "SESSION.KILL",
    ] {
        let (mut waiter, mut blocked) = (line.master.resp3(), line.master.resp3());
        let secret = waiter.run("SESSION.START GRACE 60000").text();
        let blocks = blocked.run("SESSION.START GRACE 60000").text();
        holder.run_all(&["LOCK.ACQUIRE k", "SETTP t v", "LOCK.ACQUIRE m"]);
        for request in [
            "LOCK.ACQUIRE k OWNER job ACKS 1 WAIT 0 PUSH",
            "SETTP t w ACKS 1 WAIT 0 PUSH",
            "LOCK.MACQUIRE 2 m n ACKS 1 WAIT 0 PUSH",
        ] {
            queue_push(&mut waiter, request);
        }
        queue(&line.master, &mut blocked, "LOCK.ACQUIRE k WAIT 0 ACKS 1");
        let (mut one, mut other) = (line.master.resp3(), line.master.resp3());
        match way {
            "SESSION.KILL" => end_all(&mut one),
            "SESSION.RESUME" => drop(one.run([way, &secret])),
            own => drop(waiter.run(own)),
        }
        if way != "SESSION.KILL" {
            other.run(["SESSION.RESUME", &blocks]);
        }
        holder.run_all(&["LOCK.RELEASE k", "DELTP t", "LOCK.RELEASE m"]);
        assert_eq!(
            waiter.next_pushes(3),
            [
                "lock k FAILED NOSESSION job",
                "settp t FAILED NOSESSION",
                "lock m FAILED NOSESSION"
            ],
            "{way}"
        );
        let refused = "NOSESSION option ACKS needs a session: a promoted replica keeps nothing else (SESSION.START)";
        assert_eq!(blocked.read_reply().text(), refused, "{way}");
        assert_eq!(tether(&line.master, "waiters"), 0, "{way}");
        assert_eq!(holder.call("EXISTS k t m n"), int(0), "{way}");
        assert_eq!(line.master.settled(&mut waiter), [""; 0], "{way}");
    }
}

/// Another hand ends the sessions, also those that nobody has resumed.
fn end_all(operator: &mut Client) {
    for row in operator.run("SESSION.LIST").items() {
        operator.run(["SESSION.KILL", &row.items()[1].number().to_string()]);
    }
}
