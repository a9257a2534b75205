//! What an operator sees: LOCK.INFO, INFO tether.

use crate::harness::*;
use crate::line::*;
use std::thread::sleep;
use std::time::Duration;

/// The names of a map's fields, in order.
pub fn names(map: &Frame) -> Vec<String> {
    map.items().iter().step_by(2).map(Frame::text).collect()
}

/// The address from which a connection comes, as CLIENT LIST has it.
fn address(client: &mut Client) -> String {
    let info = client.run("CLIENT INFO").text();
    let field = info
        .split(' ')
        .find_map(|field| field.strip_prefix("addr="));
    field.expect("an address").to_owned()
}

fn assert_between(frame: &Frame, least: i64, most: i64) {
    let number = frame.number();
    assert!((least..=most).contains(&number), "{least} {number} {most}");
}

const INFO: [&str; 6] = [
    "kind",
    "total",
    "holder-count",
    "holders",
    "waiter-count",
    "waiters",
];
const HOLDER: [&str; 12] = [
    "client", "addr", "name", "user", "label", "token", "permits", "depth", "held-ms", "lease-ms",
    "session", "acks",
];
const WAITER: [&str; 6] = ["client", "addr", "name", "label", "mode", "waiting-ms"];

#[test]
fn lock_info_tells_everything_about_holders_and_waiters() {
    for resp3 in [false, true] {
        let server = Server::start();
        let mut operator = if resp3 {
            server.resp3()
        } else {
            server.resp2()
        };
        let (mut one, mut two) = (server.resp3(), server.resp2());
        operator.run("ACL SETUSER anna on nopass +@all ~*");
        one.run_all(&["AUTH anna x", "CLIENT SETNAME worker-1"]);
        let request = "LOCK.ACQUIRE k OWNER job LEASE 60000 REENTRANT";
        let token = one.run(request).number();
        one.run("LOCK.ACQUIRE k OWNER job REENTRANT");
        two.run("CLIENT SETNAME worker-2");
        let (id, addr) = (two.id(), address(&mut two));
        let wait = "LOCK.ACQUIRE k SHARED OWNER reader WAIT 0";
        queue(&server, &mut two, wait);
        let info = operator.run("LOCK.INFO k");
        assert_eq!(matches!(info, Frame::Map(_)), resp3);
        assert_eq!(names(&info), INFO);
        for (name, value) in [
            ("kind", bulk("exclusive")),
            ("total", null()),
            ("holder-count", int(1)),
            ("waiter-count", int(1)),
        ] {
            assert_eq!(field(&info, name), value, "{name}");
        }

        let held = field(&info, "holders").items();
        let [holder] = &held[..] else {
            panic!("{info:?}")
        };
        assert_eq!(matches!(holder, Frame::Map(_)), resp3);
        assert_eq!(names(holder), HOLDER);
        for (name, value) in [
            ("client", int(one.id())),
            ("addr", bulk(address(&mut one))),
            ("name", bulk("worker-1")),
            ("user", bulk("anna")),
            ("label", bulk("job")),
            ("token", int(token)),
            ("permits", int(0)),
            ("depth", int(2)),
            ("session", null()),
            ("acks", null()),
        ] {
            assert_eq!(field(holder, name), value, "{name}");
        }
        assert_between(&field(holder, "held-ms"), 0, 5000);
        assert_between(&field(holder, "lease-ms"), 50_000, 60_000);

        let waiting = field(&info, "waiters").items();
        let [waiter] = &waiting[..] else {
            panic!("{info:?}")
        };
        assert_eq!(names(waiter), WAITER);
        for (name, value) in [
            ("client", int(id)),
            ("addr", bulk(addr)),
            ("name", bulk("worker-2")),
            ("label", bulk("reader")),
            ("mode", bulk("shared")),
        ] {
            assert_eq!(field(waiter, name), value, "{name}");
        }
        assert_between(&field(waiter, "waiting-ms"), 0, 5000);
    }
}

#[test]
fn lock_info_tells_the_kind_and_the_mode_of_each() {
    let server = Server::start();
    let (mut holder, mut waiter) = (server.resp3(), server.resp3());
    for (take, kind, total, permits) in [
        ("SETTP k v", "temporary-key", null(), 0),
        ("LOCK.ACQUIRE k", "exclusive", null(), 0),
        ("LOCK.ACQUIRE k SHARED", "shared", null(), 0),
        ("LOCK.ACQUIRE k PERMITS 3 OF 7", "permits", int(7), 3),
        ("LOCK.MACQUIRE 2 l k", "exclusive", null(), 0),
    ] {
        holder.run(take);
        // A temporary key can be waited for by SETTP only.
        let is_key = take.starts_with("SETTP");
        queue_push(&mut waiter, "SETTP k v WAIT 0 PUSH");
        if !is_key {
            queue_push(&mut waiter, "LOCK.MACQUIRE 2 m k OWNER m WAIT 0 PUSH");
            let request = "LOCK.ACQUIRE k PERMITS 2 OF 7 OWNER p WAIT 0 PUSH";
            queue_push(&mut waiter, request);
        }
        let info = holder.run("LOCK.INFO k");
        assert_eq!(field(&info, "kind"), bulk(kind), "{take}");
        assert_eq!(field(&info, "total"), total, "{take}");
        let one = &field(&info, "holders").items()[0];
        assert_eq!(field(one, "permits"), int(permits), "{take}");
        assert_eq!(field(one, "label"), bulk(""), "{take}");
        assert_eq!(field(one, "lease-ms"), null(), "{take}");
        let modes = field(&info, "waiters").items();
        let modes: Vec<_> = modes.iter().map(|one| field(one, "mode").text()).collect();
        let expected = ["temporary-key", "exclusive", "permits"];
        assert_eq!(modes, expected[..if is_key { 1 } else { 3 }], "{take}");
        for cancel in [
            "LOCK.CANCEL k",
            "LOCK.CANCEL k OWNER m",
            "LOCK.CANCEL k OWNER p",
        ] {
            waiter.run(cancel);
        }
        holder.run_all(&["FLUSHALL", "PING"]);
        server.settle();
    }
}

#[test]
fn lock_info_of_what_nobody_holds_or_waits_for_is_null() {
    let server = Server::start();
    let (mut client, mut watcher) = (server.resp3(), server.resp2());
    watcher.run("WATCHEX watched");
    client.run_all(&["SET string v", "LOCK.ACQUIRE k", "LOCK.RELEASE k"]);
    for key in ["none", "string", "watched", "k"] {
        assert_eq!(client.call(["LOCK.INFO", key]), null(), "{key}");
        assert_eq!(watcher.call(["LOCK.INFO", key]), null(), "{key}");
    }
    client.refused("LOCK.INFO");
    client.refused("LOCK.INFO a b");
    for count in ["0", "1001", "1000000"] {
        let refusal = client.refused(["LOCK.INFO", "a", "COUNT", count]);
        let expected = "ERR COUNT is out of range, it goes from 1 to 1000";
        assert_eq!(refusal, expected, "{count}");
    }
    assert_eq!(client.call("LOCK.INFO a COUNT 1000"), null());
    // A stranger's key that is waited for has no holder, but a line.
    queue_push(&mut client, "SETTP string v WAIT 0 PUSH");
    let info = watcher.run("LOCK.INFO string");
    assert_eq!(field(&info, "holders"), array([]));
    assert_eq!(field(&info, "waiters").items().len(), 1);
}

#[test]
fn times_go_on_while_one_holds_and_waits() {
    let server = Server::start();
    let (mut holder, mut waiter) = (server.resp3(), server.resp3());
    holder.run("LOCK.ACQUIRE k LEASE 100000");
    // How long it is held is told to some ten milliseconds, and for how long one waits to one.
    sleep(Duration::from_millis(10));
    queue_push(&mut waiter, "LOCK.ACQUIRE k WAIT 0 PUSH");
    eventually("the times", || {
        let info = waiter.run("LOCK.INFO k");
        let (held, waiting) = (
            &field(&info, "holders").items()[0],
            &field(&info, "waiters").items()[0],
        );
        let held_ms = field(held, "held-ms").number();
        let waiting_ms = field(waiting, "waiting-ms").number();
        let lease_ms = field(held, "lease-ms").number();
        assert!(waiting_ms <= held_ms && held_ms + lease_ms <= 100_000);
        if waiting_ms >= 30 && held_ms + lease_ms >= 99_998 {
            Ok(())
        } else {
            Err(format!("{info:?}"))
        }
    });
    let line = &lock_list(&mut waiter, "")[0];
    assert!(field(line, "oldest-hold-ms").number() >= 30);
}

#[test]
fn info_counts_grants_handoffs_time_outs_deadlocks_and_losses() {
    let server = Server::start();
    let (mut one, mut two) = (server.resp3(), server.resp3());
    let totals =
        |names: &[&str]| -> Vec<i64> { names.iter().map(|name| tether(&server, name)).collect() };
    let all = [
        "temporary_keys",
        "holds",
        "waiters",
        "grants_total",
        "handoffs_total",
        "removed_by_disconnect_total",
        "timeouts_total",
        "deadlocks_refused_total",
        "lost_total",
    ];
    assert_eq!(totals(&all), [0; 9]);
    assert_eq!(
        totals(&["wait_seconds_count", "hold_seconds_count"]),
        [0, 0]
    );
    one.run_all(&[
        "SETTP a v NOTIFY",
        "LOCK.ACQUIRE b NOTIFY",
        "LOCK.ACQUIRE b NOTIFY",
        "LOCK.MACQUIRE 2 c d NOTIFY",
    ]);
    assert_eq!(totals(&all), [1, 3, 0, 3, 0, 0, 0, 0, 0]);
    queue(&server, &mut two, "LOCK.ACQUIRE b WAIT 0");
    assert_eq!(totals(&all), [1, 3, 1, 3, 0, 0, 0, 0, 0]);
    one.run("LOCK.RELEASE b ALL");
    let token = two.read_reply().number();
    assert_eq!(totals(&all), [1, 3, 0, 4, 1, 0, 0, 0, 0]);
    assert_eq!(tether(&server, "last_token"), token);
    assert_eq!(two.call("SETTP a v WAIT 20"), int(0));
    queue_push(&mut two, "SETTP a v WAIT 20 PUSH");
    assert_eq!(two.next_push(), "settp a TIMEOUT");
    assert_eq!(totals(&all), [1, 3, 0, 4, 1, 0, 2, 0, 0]);
    two.refused("LOCK.ACQUIRE b OWNER other WAIT 0");
    assert_eq!(totals(&all), [1, 3, 0, 4, 1, 0, 2, 1, 0]);
    two.run("DEL c");
    assert_eq!(one.next_push(), "lock c LOST deleted");
    assert_eq!(totals(&all), [1, 2, 0, 4, 1, 0, 2, 1, 1]);
    let sent = tether(&server, "pushes_sent_total");
    assert_eq!(sent, 2, "a time-out and a loss");
    queue(&server, &mut two, "SETTP a v WAIT 0");
    quit(&server, one);
    assert_eq!(two.read_reply(), int(1));
    assert_eq!(totals(&all), [1, 1, 0, 5, 2, 2, 2, 1, 3]);
    quit(&server, two);
    assert_eq!(totals(&all), [0, 0, 0, 5, 2, 4, 2, 1, 5]);
}

#[test]
fn info_tells_how_long_grants_were_waited_for_and_keys_held() {
    let server = Server::start();
    let (mut one, mut two) = (server.resp3(), server.resp3());
    one.run("LOCK.ACQUIRE k");
    queue(&server, &mut two, "LOCK.ACQUIRE k WAIT 0");
    one.run("LOCK.EXTEND k 100");
    two.read_reply().number();
    // The lease was over after 100 ms: of the waits and the holds one took longer than 50 ms.
    for what in ["wait", "hold"] {
        let buckets = buckets(&server, what);
        assert_eq!(at(&buckets, "0.05"), 0, "{what}: {buckets:?}");
        assert_eq!(at(&buckets, "60"), 1, "{what}: {buckets:?}");
        let sum = seconds(&server, &format!("{what}_seconds_sum"));
        assert!((0.05..60.0).contains(&sum), "{what}: {sum}");
    }
    two.run("LOCK.RELEASE k");
    for _ in 0..20 {
        one.run("LOCK.ACQUIRE k OWNER a");
        queue_push(&mut one, "LOCK.ACQUIRE k OWNER b WAIT 0 PUSH");
        one.run_all(&["LOCK.RELEASE k OWNER a", "LOCK.RELEASE k OWNER b"]);
    }
    one.run_all(&["SETTP t v", "SETTP t v", "DELTP t", "SETTP d v", "DEL d"]);
    assert_eq!(at(&buckets(&server, "wait"), "60"), 21);
    assert_eq!(at(&buckets(&server, "hold"), "60"), 1 + 1 + 40 + 2);
    // Of a key in an own space of its own, and of an owner that goes.
    one.run_all(&["SELECT 3", "LOCK.ACQUIRE a", "FLUSHDB", "LOCK.ACQUIRE b"]);
    quit(&server, one);
    eventually_equal("all holds", 46, || at(&buckets(&server, "hold"), "+Inf"));
}

/// The upper bounds and counts of a histogram: cumulative, to `+Inf`, which is the count.
fn buckets(server: &Server, what: &str) -> Vec<(String, i64)> {
    let buckets = info_text(server, &format!("{what}_seconds_bucket"));
    let buckets: Vec<_> = buckets
        .split(',')
        .map(|bucket| {
            let (bound, count) = bucket.split_once('=').expect("a bound and a count");
            (bound.to_owned(), count.parse().expect("a number"))
        })
        .collect();
    assert!(buckets.is_sorted_by_key(|(_, count)| *count), "{buckets:?}");
    assert_eq!(
        buckets.last().unwrap(),
        &(
            "+Inf".to_owned(),
            tether(server, &format!("{what}_seconds_count"))
        )
    );
    let bounds = ["0.001", "0.5", "1", "3600", "86400"];
    for bound in bounds {
        at(&buckets, bound);
    }
    buckets
}

fn at(buckets: &[(String, i64)], bound: &str) -> i64 {
    let found = buckets.iter().find(|(known, _)| known == bound);
    found
        .unwrap_or_else(|| panic!("{bound} is no bound: {buckets:?}"))
        .1
}

fn info_text(server: &Server, name: &str) -> String {
    let [text] = info_texts(server, [name]);
    text
}

/// As one INFO has them.
fn info_texts<const N: usize>(server: &Server, names: [&str; N]) -> [String; N] {
    let info = server.info("tether");
    names.map(|name| {
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix(&format!("tether_{name}:")));
        line.unwrap_or_else(|| panic!("{name} is missing in\n{info}"))
            .to_owned()
    })
}

fn seconds(server: &Server, name: &str) -> f64 {
    info_text(server, name).parse().expect("seconds")
}

#[test]
fn info_tells_the_oldest_wait_the_oldest_hold_and_the_longest_queue() {
    let server = Server::start();
    let gauges = |names: [&str; 2]| names.map(|name| tether(&server, name));
    let oldest = || {
        info_texts(&server, ["oldest_hold_seconds", "oldest_waiter_seconds"])
            .map(|text| text.parse::<f64>().expect("seconds"))
    };
    assert_eq!(oldest(), [0.0, 0.0]);
    assert_eq!(gauges(["held_keys", "longest_queue"]), [0, 0]);
    let (mut one, mut two, mut three) = (server.resp3(), server.resp3(), server.resp3());
    one.run_all(&["LOCK.ACQUIRE k", "SETTP t v", "LOCK.ACQUIRE s SHARED"]);
    two.run("LOCK.ACQUIRE s SHARED");
    queue(&server, &mut two, "LOCK.ACQUIRE k WAIT 0");
    queue(&server, &mut three, "LOCK.ACQUIRE k WAIT 0");
    assert_eq!(gauges(["held_keys", "longest_queue"]), [3, 2]);
    eventually("both grow", || match oldest() {
        [hold, wait] if hold >= 0.05 && wait >= 0.05 => Ok(()),
        oldest => Err(format!("{oldest:?}")),
    });
    let [hold, wait] = oldest();
    assert!(wait <= hold, "{wait} {hold}");
    quit(&server, one);
    two.read_reply().number();
    assert_eq!(gauges(["held_keys", "longest_queue"]), [2, 1]);
    drop(three);
    eventually_equal("nobody waits", 0.0, || {
        seconds(&server, "oldest_waiter_seconds")
    });
    quit(&server, two);
    eventually_equal("nothing is held", [0.0, 0.0], oldest);
    assert_eq!(gauges(["held_keys", "longest_queue"]), [0, 0]);
}
