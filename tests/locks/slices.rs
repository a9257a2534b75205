//! What is due in great numbers at once is done in slices, and each command finds its own keys as they are.

use crate::harness::*;
use crate::line::*;

/// So many commands in one transaction, between which no timer of the server's fires. Their replies.
fn at_once(client: &mut Client, commands: &[String]) -> Vec<Frame> {
    let all = commands.iter().map(String::as_str);
    let all: Vec<_> = ["MULTI"].into_iter().chain(all).chain(["EXEC"]).collect();
    client.pipeline(&all);
    let replies = client.read_replies(all.len());
    replies[all.len() - 1].items()
}

/// When a TIME was answered, in microseconds.
fn moment(time: &Frame) -> i64 {
    let parts: Vec<i64> = time
        .items()
        .iter()
        .map(|part| part.text().parse().unwrap())
        .collect();
    parts[0] * 1_000_000 + parts[1]
}

fn lost(info: &Frame) -> usize {
    let text = info.text();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("tether_lost_total:"));
    line.expect("a field of INFO").parse().unwrap()
}

#[test]
fn leases_that_are_over_all_at_once() {
    const MANY: usize = 200;
    let held = (0..MANY).map(|n| format!("LOCK.ACQUIRE {n} LEASE 300"));
    let after = [
        "TIME",
        "DEBUG SLEEP 0.35",
        "SETTP x v",
        "LOCK.ACQUIRE 199 OWNER other",
        "LOCK.RELEASE 198",
        "LOCK.CANCEL 197",
        "INFO tether",
    ];
    let all = ["TIME".to_owned()].into_iter().chain(held);
    let all: Vec<_> = all.chain(after.map(str::to_owned)).collect();
    loop {
        let server = Server::start();
        let mut client = server.resp2();
        let replies = at_once(&mut client, &all);
        // Begun anew where some were over before all were held.
        if moment(&replies[MANY + 1]) - moment(&replies[0]) > 250_000 {
            continue;
        }
        let [made, granted, released, cancelled, info] = &replies[MANY + 3..] else {
            panic!("{replies:?}");
        };
        assert_eq!(*made, int(1));
        assert!(granted.number() > 0, "its lease is over");
        assert!(
            matches!(released, Frame::Error(what) if what.starts_with(b"NOTHELD")),
            "{released:?}"
        );
        assert_eq!(*cancelled, int(0));
        let ended = lost(info);
        assert!(
            (3..MANY / 2).contains(&ended),
            "{ended} of {MANY} ended at once"
        );
        eventually("the ends of the others", || {
            match tether(&server, "lost_total") {
                200 => Ok(()),
                ended => Err(format!("{ended}")),
            }
        });
        assert_eq!(tether(&server, "holds"), 1);
        return;
    }
}

#[test]
fn the_end_of_a_connection_with_very_many_waits_and_watches() {
    const MANY: usize = 5_000;
    let server = Server::start();
    let (mut holder, mut going) = (server.resp3(), server.resp3());
    let (mut next, mut other) = (server.resp3(), server.resp3());
    holder.run("LOCK.ACQUIRE line");
    let waits = (0..MANY).map(|n| format!("LOCK.ACQUIRE line OWNER {n} WAIT 0 PUSH"));
    let watches = (0..MANY).map(|n| format!("WATCHEX {n}"));
    let all: Vec<_> = waits.chain(watches).collect();
    for some in all.chunks(500) {
        let some: Vec<_> = some.iter().map(String::as_str).collect();
        going.pipeline(&some);
        going.read_replies(some.len());
    }
    queue_push(&mut next, "LOCK.ACQUIRE line WAIT 0 PUSH");
    let kill = format!("CLIENT KILL ID {}", going.id());
    let info = "INFO tether".to_owned();
    let commands = [kill, info, "SET 4999 v".to_owned()];
    let replies = at_once(&mut other, &commands);
    let info = replies[1].text();
    let tells = |line| assert!(info.contains(line), "{info}");
    tells("tether_waiters:1\r\n");
    tells("tether_watches:0\r\n");
    assert_eq!(waiters(&server, "line"), [next.id()]);
    holder.run("LOCK.RELEASE line");
    assert!(next.next_push().starts_with("lock line "));
    drop(next);
    eventually_nothing_is_left(&server);
}
