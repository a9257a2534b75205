//! What is pushed to a connection is bounded by the server's limits of output buffers, and what waits to be pushed until a
//! command is over by one of ours: what is within both arrives, in order, and whose pushes are over one is closed.

use crate::harness::*;
use std::time::Duration;

const LIMIT: usize = 256 << 10;
const LIMITED: &str = "client-output-buffer-limit normal 256kb 0 0 pubsub 1mb 0 0";
/// What may wait for a connection, see docs/commands.md.
const MAY_WAIT: usize = 64 << 20;
/// A script that takes long, as on a slow machine, would be interrupted to serve others: who then hears in time what is meant
/// for it is not closed.
const IN_A_SCRIPT: [&str; 2] = [
    "client-output-buffer-limit normal 1mb 0 0",
    "lua-time-limit 0",
];

/// Makes a key and deletes it, so many times, in one command.
const TOGGLE: &str =
    "for _ = 1, ARGV[1] do redis.call('SET', KEYS[1], 'v') redis.call('DEL', KEYS[1]) end";

fn toggle(key: &str, times: usize) -> Vec<String> {
    let times = times.to_string();
    let words = ["EVAL", TOGGLE, "1", key, &times];
    words.map(str::to_owned).to_vec()
}

/// A name for which a frame takes a thousandth of a megabyte or so, and how much that is.
fn long_name() -> (String, usize) {
    let name = "k".repeat(970);
    let frame = format!(">3\r\n$7\r\nwatchex\r\n$970\r\n{name}\r\n$3\r\nADD\r\n");
    (name, frame.len())
}

/// Whether a connection that watches hears of so many toggles, each in its place. If not, it is closed.
fn hears(server: &Server, watcher: &mut Client, id: i64, name: &str, toggles: usize) -> bool {
    server.settle();
    let list = server
        .resp2()
        .run(["CLIENT", "LIST", "ID", &id.to_string()]);
    if list.text().is_empty() {
        watcher.expect_closed();
        return false;
    }
    let pushes = watcher.next_pushes(2 * toggles);
    for (number, push) in pushes.iter().enumerate() {
        let news = ["ADD", "DEL"][number % 2];
        assert_eq!(*push, format!("watchex {name} {news}"), "{number}");
    }
    // Its own command is answered.
    let is_fine = |frame: &Frame| matches!(frame, Frame::Null | Frame::Array(_));
    let rest = watcher.arrived();
    assert!(
        rest.iter()
            .all(|rest| matches!(rest, Arrival::Reply(frame) if is_fine(frame)))
    );
    true
}

/// The most toggles of which somebody hears. One more, and the connection is closed.
fn most_heard(mut hears: impl FnMut(usize) -> bool) -> usize {
    let (mut heard, mut not_heard) = (1, 1000);
    assert!(hears(heard) && !hears(not_heard));
    while heard + 1 < not_heard {
        let middle = (heard + not_heard) / 2;
        match hears(middle) {
            true => heard = middle,
            false => not_heard = middle,
        }
    }
    heard
}

/// The limit, and what servers do not count of a connection's output, or only by whole blocks.
fn assert_is_the_limit(pushes: usize, frame: usize, limit: usize) {
    let bytes = pushes * frame;
    say(&format!("{bytes} bytes of {limit}"));
    assert!(bytes > limit - (64 << 10), "{bytes}");
    assert!(bytes < limit + (64 << 10), "{bytes}");
}

#[test]
fn a_watcher_hears_of_as_much_as_its_limit_allows_and_is_closed_beyond() {
    let server = Server::with(&[LIMITED]);
    let (name, frame) = long_name();
    let most = most_heard(|toggles| {
        let (mut watcher, mut other) = (server.resp3(), server.resp2());
        let id = watcher.id();
        watcher.run(["WATCHEX", &name]);
        other.run(toggle(&name, toggles));
        hears(&server, &mut watcher, id, &name, toggles)
    });
    assert_is_the_limit(2 * most, frame, LIMIT);
}

#[test]
fn what_a_connection_causes_itself_is_bounded_as_well() {
    let server = Server::with(&[LIMITED]);
    let (name, frame) = long_name();
    let most = most_heard(|toggles| {
        let mut watcher = server.resp3();
        let id = watcher.id();
        watcher.run(["WATCHEX", &name]);
        watcher.send(toggle(&name, toggles));
        hears(&server, &mut watcher, id, &name, toggles)
    });
    assert_is_the_limit(2 * most, frame, LIMIT);
    let most = most_heard(|toggles| {
        let mut watcher = server.resp3();
        let id = watcher.id();
        watcher.run_all(&[&format!("WATCHEX {name}"), "MULTI"]);
        watcher.run(toggle(&name, toggles));
        watcher.send("EXEC");
        hears(&server, &mut watcher, id, &name, toggles)
    });
    assert_is_the_limit(2 * most, frame, LIMIT);
}

#[test]
fn who_is_subscribed_has_the_limit_of_those() {
    let server = Server::with(&[LIMITED]);
    let (name, frame) = long_name();
    let most = most_heard(|toggles| {
        let (mut watcher, mut other) = (server.resp3(), server.resp2());
        let id = watcher.id();
        watcher.run(["WATCHEX", &name]);
        watcher.send("SUBSCRIBE channel");
        assert_eq!(watcher.next_push(), "subscribe channel :1");
        other.run(toggle(&name, toggles));
        hears(&server, &mut watcher, id, &name, toggles)
    });
    assert_is_the_limit(2 * most, frame, 1 << 20);
}

#[test]
fn what_waits_is_bounded_also_where_output_buffers_are_not() {
    let server = Server::with(&[
        "client-output-buffer-limit normal 0 0 0",
        "lua-time-limit 0",
    ]);
    let (name, frame) = long_name();
    let (mut watcher, mut modest) = (server.resp3(), server.resp3());
    watcher.run(["WATCHEX", &name]);
    modest.run("WATCHEX k");
    let more = most_more(&server, || {
        let mut other = server.resp2();
        other.run_all(&["MULTI", "SET k v"]);
        other.run(toggle(&name, MAY_WAIT / frame));
        other.run_all(&["DEL k", "EXEC"]);
        watcher.expect_closed();
    });
    // Once in the queue, and what was written of it.
    assert!(more < 2 * MAY_WAIT + (16 << 20), "{more} bytes more");
    assert_eq!(modest.next_pushes(2), ["watchex k ADD", "watchex k DEL"]);
    // Half as much is told.
    let mut watcher = server.resp3();
    let id = watcher.id();
    watcher.run(["WATCHEX", &name]);
    let mut other = server.resp2();
    other.run("MULTI");
    let toggles = MAY_WAIT / frame / 4;
    other.run(toggle(&name, toggles));
    other.run("EXEC");
    assert!(hears(&server, &mut watcher, id, &name, toggles));
}

#[test]
fn what_waits_is_measured_by_the_limit_of_the_time_when_it_is_written() {
    let server = Server::with(&[LIMITED]);
    let (name, _) = long_name();
    let (mut watcher, mut other) = (server.resp3(), server.resp2());
    let id = watcher.id();
    watcher.run(["WATCHEX", &name]);
    for limit in ["normal 0 0 0", "normal 256kb 0 0"] {
        other.run("MULTI");
        other.run(toggle(&name, 400));
        other.run(["CONFIG", "SET", "client-output-buffer-limit", limit]);
        other.run("EXEC");
        let is_unlimited = limit == "normal 0 0 0";
        assert_eq!(hears(&server, &mut watcher, id, &name, 400), is_unlimited);
    }
}

/// How much more memory the server took at most while something was done.
fn most_more(server: &Server, act: impl FnOnce()) -> usize {
    server.settle();
    let before = server.gauge("memory", "used_memory");
    act();
    let more = server.gauge("memory", "used_memory_peak") - before;
    say(&format!("{} kB more at most", more >> 10));
    usize::try_from(more).unwrap_or_default()
}

/// What so many connections with this limit may take, with what servers do not count, and what so many others may have
/// waiting for them.
fn allowed(connections: usize, limit: usize, waiting: usize) -> usize {
    connections * (limit + (128 << 10)) + waiting * MAY_WAIT + (2 << 20)
}

#[test]
fn many_watchers_of_what_is_toggled_in_a_script_take_no_more_than_their_limits_allow() {
    const WATCHERS: usize = 100;
    let server = Server::with(&IN_A_SCRIPT);
    let mut watchers: Vec<_> = { 0..WATCHERS }.map(|_| server.resp3()).collect();
    for watcher in &mut watchers {
        watcher.run("WATCHEX k");
    }
    let more = most_more(&server, || {
        server.resp2().run(toggle("k", 200_000));
        watchers.iter_mut().for_each(Client::expect_closed);
    });
    // All wait for the same.
    assert!(more < allowed(WATCHERS, 1 << 20, 1), "{more} bytes more");
}

/// Toggles all keys in turn, so many times, in one command.
const TOGGLE_IN_TURN: &str = "for _ = 1, ARGV[1] do for _, key in ipairs(KEYS) do \
    redis.call('SET', key, 'v') redis.call('DEL', key) end end";

#[test]
fn watchers_of_short_keys_of_their_own_take_no_more_than_their_limits_allow() {
    const WATCHERS: usize = 2;
    let server = Server::with(&IN_A_SCRIPT);
    let keys: Vec<_> = { 0..WATCHERS }.map(|number| number.to_string()).collect();
    let mut watchers: Vec<_> = { 0..WATCHERS }.map(|_| server.resp3()).collect();
    for (watcher, key) in watchers.iter_mut().zip(&keys) {
        watcher.run(["WATCHEX", key]);
    }
    let more = most_more(&server, || {
        let count = WATCHERS.to_string();
        let mut script = vec!["EVAL", TOGGLE_IN_TURN, &count];
        script.extend(keys.iter().map(String::as_str));
        script.push("150000");
        server.resp2().run(script);
        watchers.iter_mut().for_each(Client::expect_closed);
    });
    let allowed = allowed(WATCHERS, 1 << 20, WATCHERS);
    assert!(more < allowed, "{more} bytes more");
}

/// Redis 8 answers a flush only when its memory is freed, and what it tells the flusher waits for that.
#[test]
fn who_flushes_what_it_watches_hears_of_as_much_as_its_limit_allows() {
    let server = Server::with(&[LIMITED]);
    let (name, frame) = long_name();
    let most = most_heard(|keys| {
        let mut watcher = server.resp3();
        let names: Vec<_> = { 0..keys }
            .map(|number| format!("{number:04}{}", &name[4..]))
            .collect();
        let mut flusher = server.resp3();
        let id = flusher.id();
        watcher.run_many(names.iter().map(|name| format!("SET {name} v")));
        flusher.run_many(names.iter().map(|name| format!("WATCHEX {name}")));
        flusher.send("FLUSHALL");
        // What is told is written after its reply.
        let _ = flusher.try_next();
        eventually_equal("keys", 0, || server.resp2().run("DBSIZE").number());
        server.settle();
        let list = server
            .resp2()
            .run(["CLIENT", "LIST", "ID", &id.to_string()]);
        if list.text().is_empty() {
            flusher.expect_closed();
            return false;
        }
        let mut told = flusher.next_pushes(keys);
        told.sort_unstable();
        let expected = names.iter().map(|name| format!("watchex {name} DEL"));
        assert!(told.into_iter().eq(expected));
        true
    });
    assert_is_the_limit(most, frame, LIMIT);
}

const HANDOVERS: usize = 2000;

/// How long the server is at work for a transaction in which a lock goes from label to label of one connection, each of which
/// gives it back, while that connection has so many other locks.
fn work_of_given_back_grants(others: usize) -> Duration {
    let server = Server::start();
    let mut client = server.resp3();
    client.run_many({ 0..others }.map(|n| format!("LOCK.ACQUIRE {n}")));
    client.run_many({ 0..HANDOVERS }.map(|n| match n {
        0 => "LOCK.ACQUIRE l OWNER 0".to_owned(),
        _ => format!("LOCK.ACQUIRE l OWNER {n} WAIT 0 PUSH"),
    }));
    client.run("MULTI");
    client.run_many({ 0..HANDOVERS }.map(|n| format!("LOCK.RELEASE l OWNER {n}")));
    let before = server.time_at_work();
    let replies = client.run("EXEC");
    assert_eq!(replies.items(), vec![int(0); HANDOVERS]);
    let after = server.time_at_work();
    assert_eq!(server.settled(&mut client), [""; 0]);
    after
        .zip(before)
        .map_or(Duration::ZERO, |(after, before)| after - before)
}

#[test]
fn what_a_transaction_gives_back_of_its_grants_costs_no_more_for_who_has_much() {
    let [without, with] = [0, 32_000].map(work_of_given_back_grants);
    say(&format!("{without:?} at work; {with:?} with many locks"));
    assert!(
        with < 4 * without + Duration::from_millis(10),
        "{without:?}, {with:?}"
    );
}
