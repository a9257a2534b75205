//! What is due in great numbers at once is done in slices, and each command finds its own keys as they are.

use crate::harness::*;
use crate::line::*;
use std::thread::sleep;
use std::time::{Duration, Instant};

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
    let next_id = next.id();
    let kill = format!("CLIENT KILL ID {}", going.id());
    let info = "INFO tether".to_owned();
    let commands = [kill, info, "SET 4999 v".to_owned()];
    let replies = at_once(&mut other, &commands);
    let info = replies[1].text();
    let tells = |line| assert!(info.contains(line), "{info}");
    tells("tether_waiters:1\r\n");
    tells("tether_watches:0\r\n");
    // Above 1,000 the count may hold places of the ended one for a moment; who is named never does.
    let line = || {
        let info = server.resp3().run("LOCK.INFO line COUNT 1000");
        let named = field(&info, "waiters").items();
        let ids: Vec<_> = named
            .iter()
            .map(|one| field(one, "client").number())
            .collect();
        assert!(ids.iter().all(|id| *id == next_id), "{ids:?}");
        field(&info, "waiter-count").number()
    };
    eventually_equal("places in line", 1, line);
    assert_eq!(waiters(&server, "line"), [next_id]);
    holder.run("LOCK.RELEASE line");
    assert!(next.next_push().starts_with("lock line "));
    drop(next);
    eventually_nothing_is_left(&server);
}

/// The number of a line of INFO.
fn told(info: &Frame, name: &str) -> usize {
    let text = info.text();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.expect("a field of INFO").parse().unwrap()
}

#[test]
fn a_flush_of_very_many_keys() {
    const MANY: usize = 5_000;
    let server = Server::start();
    let (mut holder, mut next) = (server.resp3(), server.resp3());
    let (mut watcher, mut other) = (server.resp3(), server.resp3());
    for some in (0..MANY).collect::<Vec<_>>().chunks(500) {
        let some: Vec<_> = some.iter().map(|n| format!("SETTP {n} v NOTIFY")).collect();
        let some: Vec<_> = some.iter().map(String::as_str).collect();
        holder.pipeline(&some);
        holder.read_replies(some.len());
    }
    queue_push(&mut next, "SETTP 4998 v WAIT 0 PUSH");
    watcher.run("WATCHEX 4997 4996");
    let commands = [
        "FLUSHALL",
        "SETTP 4999 other",
        "SETTP 4998 other",
        "INFO tether",
        "LOCK.INFO 4995",
        "SET 4997 stranger",
        "LOCK.LIST 0 COUNT 1000",
    ];
    let replies = at_once(&mut other, &commands.map(str::to_owned));
    assert_eq!(replies[1], int(1), "nobody has it");
    assert_eq!(replies[2], int(0), "nobody passes who waits");
    let left = told(&replies[3], "tether_temporary_keys:");
    assert!(left > MANY / 2, "{left} were left to be looked after");
    assert_eq!(replies[4], null(), "nobody has it");
    let listed = replies[6].items()[1].items();
    let names = listed.iter().map(|line| field(line, "key").text());
    let is_left = |name: &String| ["4998", "4999"].contains(&name.as_str());
    let others: Vec<_> = names.filter(|name| !is_left(name)).collect();
    assert_eq!(others, [""; 0], "neither held nor waited for");

    assert!(next.next_push().starts_with("settp 4998 "));
    let mut heard = watcher.next_pushes(3);
    heard.sort_unstable();
    let expected = ["watchex 4996 DEL", "watchex 4997 ADD", "watchex 4997 DEL"];
    assert_eq!(heard, expected);
    let mut lost = holder.next_pushes(MANY);
    lost.sort_unstable();
    let all = (0..MANY).map(|n| format!("settp {n} LOST flushed"));
    let mut all: Vec<_> = all.collect();
    all.sort_unstable();
    assert!(lost == all, "each is told of once");
    assert_eq!(holder.run("DELTP 4999 0"), int(0));
    assert_eq!(tether(&server, "temporary_keys"), 2);
}

#[test]
fn a_release_before_very_many_readers() {
    const MANY: usize = 1_000;
    let server = Server::start();
    let (mut writer, mut readers) = (server.resp3(), server.resp3());
    let (mut next, mut other) = (server.resp3(), server.resp3());
    writer.run("LOCK.ACQUIRE book");
    let waits = (0..MANY).map(|n| format!("LOCK.ACQUIRE book SHARED OWNER {n} WAIT 0 PUSH"));
    let waits: Vec<_> = waits.collect();
    for some in waits.chunks(500) {
        readers.pipeline(&some.iter().map(String::as_str).collect::<Vec<_>>());
        readers.read_replies(some.len());
    }
    queue_push(&mut next, "LOCK.ACQUIRE book WAIT 0 PUSH");
    let commands = [
        "LOCK.RELEASE book",
        "LOCK.INFO book COUNT 1",
        "LOCK.ACQUIRE book SHARED",
    ];
    let replies = at_once(&mut writer, &commands.map(str::to_owned));
    assert_eq!(replies[0], int(0));
    let count = |name| field(&replies[1], name).number() as usize;
    let (held, waiting) = (count("holder-count"), count("waiter-count"));
    assert_eq!(held + waiting, MANY + 1);
    assert!((1..MANY / 2).contains(&held), "{held} in one command");
    assert_eq!(replies[2], null(), "nobody passes those who wait");

    let told = readers.next_pushes(MANY);
    let tokens = told.iter().enumerate().map(|(n, push)| {
        let words: Vec<_> = push.split(' ').collect();
        assert_eq!((words[1], words[3]), ("book", &*n.to_string()), "in order");
        words[2].parse::<u64>().unwrap()
    });
    let tokens: Vec<_> = tokens.collect();
    assert!(tokens.is_sorted());
    assert_eq!(tether(&server, "holds"), MANY as i64);
    assert_eq!(waiters(&server, "book"), [next.id()]);
    drop(readers);
    assert!(next.next_push().starts_with("lock book "));
    assert_eq!(other.run("LOCK.ACQUIRE book SHARED"), null());
}

#[test]
fn as_many_places_as_one_request_may_have_are_given_up_at_once() {
    let server = Server::start();
    let (mut holder, mut tasks) = (server.resp3(), server.resp3());
    let mut next = server.resp3();
    holder.run("LOCK.ACQUIRE l");
    queue_push(&mut tasks, "LOCK.ACQUIRE l WAIT 0 PUSH");
    // As many as one request may name.
    let keys: Vec<_> = (1..1024).map(|n| format!("k{n}")).collect();
    let keys = keys.join(" ");
    let request = format!("LOCK.MACQUIRE 1024 l {keys} OWNER all WAIT 0 PUSH");
    tasks.run(request.as_str());
    queue_push(&mut next, "LOCK.ACQUIRE l WAIT 0 PUSH");
    queue_push(&mut next, "LOCK.ACQUIRE k1023 OWNER other WAIT 0 PUSH");
    let commands = [
        "LOCK.CANCEL l",
        "LOCK.CANCEL l OWNER all",
        "LOCK.CANCEL l",
        "LOCK.CANCEL k7 OWNER all",
        "INFO tether",
        "LOCK.ACQUIRE k8 OWNER new",
        "LOCK.RELEASE k8 OWNER new",
    ];
    let replies = at_once(&mut tasks, &commands.map(str::to_owned));
    assert_eq!(replies[..4], [1, 1, 0, 0].map(int));
    assert_eq!(told(&replies[4], "tether_waiters:"), 2);
    assert!(replies[5].number() > 1, "it has no place there any more");
    assert!(next.next_push().starts_with("lock k1023 "));
    holder.run("LOCK.RELEASE l");
    assert!(next.next_push().starts_with("lock l "));
    tasks.run("PING");
    assert_eq!(tasks.arrived_pushes(), [""; 0], "it is told of nothing");
    drop((holder, tasks, next));
    eventually_nothing_is_left(&server);
}

/// What ends while the server refuses writes waits for the end of that, and costs a try now and then.
#[test]
fn what_may_not_be_written_yet_is_not_tried_all_the_time() {
    /// The time between two tries, and how many turns of the event loop one may take.
    const RETRY: Duration = Duration::from_millis(20);
    const TURNS_PER_TRY: u128 = 2;
    /// What the server and this test do themselves meanwhile.
    const OTHER_TURNS: u128 = 20;
    let endings: [&[&str]; 4] = [
        &["SETTP k v"],
        &["LOCK.ACQUIRE k"],
        &["LOCK.ACQUIRE k LEASE 50"],
        &["SESSION.START GRACE 50", "LOCK.ACQUIRE k", "SESSION.DETACH"],
    ];
    for (refuse, allow) in [
        (
            "CONFIG SET min-replicas-to-write 1",
            "CONFIG SET min-replicas-to-write 0",
        ),
        ("CLIENT PAUSE 600000 WRITE", "CLIENT UNPAUSE"),
    ] {
        for ending in endings {
            let what = format!("{ending:?}, {refuse}");
            let server = Server::start();
            let (mut owner, mut next) = (server.resp3(), server.resp3());
            let mut admin = server.resp2();
            owner.pipeline(&[ending, &[refuse]].concat());
            owner.read_replies(ending.len() + 1);
            drop(owner);
            sleep(Duration::from_millis(60));
            server.settle();
            let (begin, before) = (Instant::now(), server.turns());
            sleep(10 * RETRY);
            let (took, after) = (begin.elapsed(), server.turns());
            assert_eq!(admin.run("EXISTS k"), int(1), "{what}: it is there still");
            if let Some((before, after)) = before.zip(after) {
                let turns = u128::from(after - before);
                let most = TURNS_PER_TRY * took.as_millis() / RETRY.as_millis() + OTHER_TURNS;
                assert!(turns <= most, "{what}: {turns} turns in {took:?}");
            }
            admin.run(allow);
            assert!(next.run("LOCK.ACQUIRE k WAIT 0").number() > 0, "{what}");
        }
    }
}

/// The last that was to be written expires by itself meanwhile.
#[test]
fn what_is_due_after_a_time_without_writes_is_not_forgotten() {
    let server = Server::with(&["min-replicas-to-write 0"]);
    let (mut owner, mut going) = (server.resp3(), server.resp2());
    let mut admin = server.resp2();
    owner.run("LOCK.ACQUIRE later LEASE 1000 NOTIFY");
    going.run_all(&[
        "SETTP k v",
        "PEXPIRE k 300",
        "CONFIG SET min-replicas-to-write 1",
    ]);
    drop(going);
    eventually_gone(&mut admin, "k");
    server.settle();
    admin.run("CONFIG SET min-replicas-to-write 0");
    assert_eq!(owner.next_push(), "lock later LOST lease");
}
