//! LOCK.LOG: how holds ended that their owners did not end.

use crate::harness::*;
use crate::line::*;
use std::time::Duration;

const ENTRY: [&str; 16] = [
    "id",
    "time-ms",
    "db",
    "key",
    "token",
    "label",
    "client",
    "addr",
    "name",
    "user",
    "mode",
    "held-ms",
    "reason",
    "waiters",
    "next-token",
    "count",
];

/// The entries, the latest first.
fn log(client: &mut Client, command: &str) -> Vec<Vec<Frame>> {
    let entries = client.run(command);
    let entries = entries.items().into_iter().map(|entry| {
        let names: Vec<_> = entry.items().iter().step_by(2).map(Frame::text).collect();
        assert_eq!(names, ENTRY);
        entry.items().iter().skip(1).step_by(2).cloned().collect()
    });
    entries.collect()
}

fn field(entry: &[Frame], name: &str) -> Frame {
    let place = ENTRY.iter().position(|known| *known == name);
    entry[place.expect("a field")].clone()
}

/// Key and reason of each entry, the oldest first.
fn reasons(client: &mut Client) -> Vec<String> {
    let mut entries = log(client, "LOCK.LOG COUNT 1000");
    entries.reverse();
    let line = |entry: &Vec<Frame>| {
        let (key, why) = (field(entry, "key").text(), field(entry, "reason").text());
        format!("{key} {why}")
    };
    entries.iter().map(line).collect()
}

#[test]
fn each_way_to_lose_a_hold_is_told() {
    let server = Server::start();
    let (mut owner, mut other) = (server.resp3(), server.resp2());
    owner.run_all(&[
        "LOCK.ACQUIRE lease LEASE 1",
        "LOCK.ACQUIRE deleted",
        "SETTP expired v",
        "LOCK.ACQUIRE overwritten",
        "LOCK.ACQUIRE flushed",
        "LOCK.ACQUIRE own",
    ]);
    eventually_equal("the lease is over", vec!["lease lease".to_owned()], || {
        other.run("LOCK.ACQUIRE nothing WAIT 1");
        other.run("LOCK.RELEASE nothing");
        reasons(&mut other)
    });
    other.run("DEL deleted");
    lapse(&mut other, "expired");
    assert_eq!(other.call("EXISTS expired"), int(0));
    other.run("SET overwritten x");
    other.refused("LOCK.ACQUIRE overwritten");
    owner.run("LOCK.RELEASE own");
    other.run("FLUSHALL");
    server.settle();
    let expected = [
        "lease lease",
        "deleted deleted",
        "expired expired",
        "overwritten overwritten",
        "flushed flushed",
    ];
    eventually_equal("the log", expected.map(str::to_owned).to_vec(), || {
        reasons(&mut other)
    });
}

#[test]
fn an_entry_says_who_what_and_who_came_next() {
    let server = Server::start().over_tcp();
    let (mut owner, mut next, mut operator) = (server.resp3(), server.resp3(), server.resp3());
    operator.run("ACL SETUSER anna on nopass +@all ~*");
    owner.run_all(&["AUTH anna x", "CLIENT SETNAME worker-1", "SELECT 3"]);
    let id = owner.id();
    let token = owner.run("LOCK.ACQUIRE k OWNER job-17").number();
    next.run("SELECT 3");
    queue_push(&mut next, "LOCK.ACQUIRE k WAIT 0 PUSH");
    operator.run_all(&["CLIENT NO-EVICT on", "SELECT 3"]);
    operator.run(["CLIENT", "KILL", "ID", &id.to_string()]);
    let granted: i64 = next.next_push().split(' ').nth(2).unwrap().parse().unwrap();
    let entries = log(&mut operator, "LOCK.LOG");
    let [entry] = &entries[..] else {
        panic!("{entries:?}")
    };
    for (name, expected) in [
        ("id", int(1)),
        ("db", int(3)),
        ("key", bulk("k")),
        ("token", int(token)),
        ("label", bulk("job-17")),
        ("client", int(id)),
        ("name", bulk("worker-1")),
        ("user", bulk("anna")),
        ("mode", bulk("exclusive")),
        ("reason", bulk("killed")),
        ("waiters", int(1)),
        ("next-token", int(granted)),
        ("count", int(1)),
    ] {
        assert_eq!(field(entry, name), expected, "{name}");
    }
    assert!(field(entry, "addr").text().starts_with("127.0.0.1:"));
    let now = operator.run("TIME").items()[0]
        .text()
        .parse::<i64>()
        .unwrap()
        * 1000;
    assert!((now - 60_000..now + 2_000).contains(&field(entry, "time-ms").number()));
}

#[test]
fn options_choose_entries_and_reset_forgets_them() {
    let server = Server::start();
    let (mut owner, mut other) = (server.resp3(), server.resp3());
    for key in ["a", "b", "a"] {
        owner.run(["LOCK.ACQUIRE", key]);
        other.run(["DEL", key]);
    }
    let ids = |other: &mut Client, command: &str| -> Vec<i64> {
        let entries = log(other, command);
        entries
            .iter()
            .map(|entry| field(entry, "id").number())
            .collect()
    };
    assert_eq!(ids(&mut other, "LOCK.LOG"), [3, 2, 1]);
    assert_eq!(ids(&mut other, "LOCK.LOG KEY a"), [3, 1]);
    assert_eq!(ids(&mut other, "LOCK.LOG COUNT 2"), [3, 2]);
    assert_eq!(ids(&mut other, "LOCK.LOG SINCE 1 KEY a"), [3]);
    other.run("SELECT 1");
    assert_eq!(ids(&mut other, "LOCK.LOG KEY a"), [0; 0]);
    assert_eq!(ids(&mut other, "LOCK.LOG"), [3, 2, 1]);
    assert_eq!(other.call("LOCK.LOG RESET"), ok());
    assert_eq!(ids(&mut other, "LOCK.LOG"), [0; 0]);
    owner.run("LOCK.ACQUIRE a");
    other.run_all(&["SELECT 0", "DEL a"]);
    assert_eq!(ids(&mut other, "LOCK.LOG"), [4]);
    assert!(other.refused("LOCK.LOG RESET KEY a").contains("RESET"));
}

#[test]
fn a_user_sees_only_the_keys_that_it_may_read() {
    let server = Server::start();
    let (mut owner, mut other) = (server.resp3(), server.resp3());
    owner.run_all(&["LOCK.ACQUIRE mine:1", "LOCK.ACQUIRE theirs:1"]);
    other.run_all(&["DEL mine:1", "DEL theirs:1"]);
    other.run("ACL SETUSER anna on nopass +@all ~mine:*");
    other.run("AUTH anna x");
    assert_eq!(reasons(&mut other), ["mine:1 deleted"]);
    assert!(log(&mut other, "LOCK.LOG KEY theirs:1").is_empty());
    // Those that it does not see do not count.
    assert_eq!(log(&mut other, "LOCK.LOG COUNT 1").len(), 1);
    // It cannot take them away from others either.
    let refused = other.refused("LOCK.LOG RESET");
    assert!(refused.starts_with("NOPERM "), "{refused}");
    assert_eq!(log(&mut owner, "LOCK.LOG").len(), 2);
    owner.run("LOCK.LOG RESET");
    owner.run("LOCK.ACQUIRE mine:1");
    owner.run("SET mine:1 v");
    assert_eq!(other.call("LOCK.LOG RESET"), ok());
}

#[test]
fn it_is_bounded_in_entries_and_in_bytes_and_can_be_off() {
    let server = Server::with(&["tether.log-max-len 10"]);
    let (mut owner, mut other) = (server.resp3(), server.resp3());
    let mut lose = |key: &str| {
        owner.run(["LOCK.ACQUIRE", key]);
        other.run(["DEL", key]);
    };
    for number in 0..15 {
        lose(&format!("k{number}"));
    }
    let mut operator = server.resp3();
    let last: Vec<_> = (5..15).map(|number| format!("k{number} deleted")).collect();
    assert_eq!(reasons(&mut operator), last);
    // Ten KiB in all.
    for letter in ["u", "v", "w", "x"] {
        lose(&letter.repeat(1024));
        lose(&letter.repeat(4500));
    }
    let left = reasons(&mut operator);
    assert!((2..9).contains(&left.len()), "{}", left.len());
    assert!(left.last().unwrap().starts_with("xxx"));
    for number in 0..9 {
        lose(&format!("k{number}"));
    }
    // A name that would take all of it takes no more than others.
    lose(&"y".repeat(1_100_000));
    lose("k");
    let left = reasons(&mut operator);
    assert!(left.len() >= 8, "{}", left.len());
    assert_eq!(left.last().unwrap(), "k deleted");
    operator.run("CONFIG SET tether.log-max-len 0");
    lose("k");
    assert_eq!(reasons(&mut operator), [""; 0]);
}

#[test]
fn many_of_one_connection_are_one_entry() {
    let server = Server::start();
    let (mut owner, mut few, mut operator) = (server.resp3(), server.resp3(), server.resp3());
    for number in 0..250 {
        owner.run(["LOCK.ACQUIRE", &format!("k{number}")]);
    }
    few.run("LOCK.ACQUIRE few");
    drop(owner);
    eventually_equal("all are gone", 250, || {
        server.gauge("tether", "tether_lost_died_total")
    });
    let entries = log(&mut operator, "LOCK.LOG");
    assert_eq!(entries.len(), 1);
    assert_eq!(field(&entries[0], "count"), int(250));
    assert_eq!(field(&entries[0], "key"), bulk("k0"));
    drop(few);
    eventually_equal("the last", 251, || {
        server.gauge("tether", "tether_lost_died_total")
    });
    assert_eq!(reasons(&mut operator).last().unwrap(), "few died");
}

#[test]
fn a_session_that_is_not_resumed_is_told_with_its_last_connection() {
    let server = Server::start();
    let (mut owner, mut operator) = (server.resp3(), server.resp3());
    owner.run_all(&[
        "CLIENT SETNAME worker-1",
        "SESSION.START GRACE 1",
        "LOCK.ACQUIRE k",
    ]);
    drop(owner);
    std::thread::sleep(Duration::from_millis(20));
    eventually_equal("it is gone", vec!["k died".to_owned()], || {
        reasons(&mut operator)
    });
    let entries = log(&mut operator, "LOCK.LOG");
    assert_eq!(field(&entries[0], "name"), bulk("worker-1"));
}

/// The entry of the only name in the log that was cut.
fn cut(client: &mut Client, command: &str) -> Vec<Frame> {
    let entries = log(client, command);
    let is_cut = |entry: &&Vec<Frame>| field(entry, "key").text().ends_with(')');
    let cut: Vec<_> = entries.iter().filter(is_cut).collect();
    assert_eq!(cut.len(), 1, "{command}");
    cut[0].clone()
}

#[test]
fn a_long_name_is_cut_and_is_found_by_the_whole_one() {
    let server = Server::start();
    let (mut owner, mut other) = (server.resp3(), server.resp3());
    let long = format!("app:{}", "y".repeat(1_100_000));
    for number in 0..100 {
        owner.run(["LOCK.ACQUIRE", &format!("app:{number}")]);
    }
    other.run("FLUSHALL");
    owner.run(["LOCK.ACQUIRE", &long, "LEASE", "1"]);
    eventually("the end of the lease", || {
        match reasons(&mut other).last() {
            Some(last) if last.ends_with(" lease") => Ok(()),
            last => Err(format!("{:.80?}", last)),
        }
    });
    assert_eq!(log(&mut other, "LOCK.LOG COUNT 1000").len(), 101);
    let entry = cut(&mut other, "LOCK.LOG COUNT 1000");
    let name = field(&entry, "key").text();
    assert!(name.len() <= 1024, "{}", name.len());
    assert!(
        name.starts_with("app:yyy") && name.contains("...(1100004 bytes, "),
        "{name}"
    );
    assert_eq!(field(&entry, "next-token"), null());
    // Its end is told, too, and another name of that beginning and length is another key.
    let token = other.run(["LOCK.ACQUIRE", &long]);
    other.run(["LOCK.ACQUIRE", &(long.clone() + "y")]);
    let of_key = ["LOCK.LOG", "KEY", &long];
    let entries = other.run(of_key).items();
    assert_eq!(entries.len(), 1);
    assert_eq!(crate::line::field(&entries[0], "next-token"), token);
    let like = long[..long.len() - 1].to_owned() + "z";
    assert_eq!(other.run(["LOCK.LOG", "KEY", &like]).items().len(), 0);
    // Who may read some names that begin so cannot be known to read this one.
    other.run("ACL SETUSER anna on nopass +@all ~app:*");
    let mut anna = server.resp3();
    anna.run("AUTH anna x");
    assert_eq!(log(&mut anna, "LOCK.LOG COUNT 1000").len(), 100);
    assert!(anna.refused("LOCK.LOG RESET").starts_with("NOPERM "));
    other.run("ACL SETUSER anna ~*");
    assert_eq!(log(&mut anna, "LOCK.LOG COUNT 1000").len(), 101);
}

/// Valkey gives rights by database since 9.1.
fn gives_rights_by_database(server: &Server) -> bool {
    server.is_at_least((u32::MAX, 0), (9, 1))
}

#[test]
fn who_has_no_right_to_a_database_is_told_of_none_of_its_keys() {
    let server = Server::start();
    if !gives_rights_by_database(&server) {
        return say("who_has_no_right_to_a_database_is_told_of_none_of_its_keys: only Valkey 9.1");
    }
    let (mut owner, mut other) = (server.resp3(), server.resp3());
    other.run("ACL SETUSER anna on nopass +@all ~* resetdbs db=0");
    other.run_all(&["SELECT 1", "LOCK.ACQUIRE hidden"]);
    owner.run("LOCK.ACQUIRE shown");
    let mut anna = server.resp3();
    anna.run("AUTH anna x");
    assert!(anna.refused("SELECT 1").starts_with("NOPERM "));
    // What a holder waits for in another database, and what stands there.
    owner.run_all(&["SELECT 1", "LOCK.ACQUIRE secret"]);
    queue_push(&mut owner, "LOCK.ACQUIRE hidden WAIT 0 PUSH");
    let why = anna.run("LOCK.WHY shown").items();
    assert_eq!(why.len(), 2);
    let of = |step: &Frame, name| crate::line::field(step, name);
    assert_eq!(
        [of(&why[0], "key"), of(&why[0], "waits-for")],
        [bulk("shown"), null()]
    );
    assert_eq!([of(&why[1], "key"), of(&why[1], "label")], [null(), null()]);
    let why = other.call("LOCK.WHY hidden").items();
    assert_eq!(of(&why[0], "key"), bulk("hidden"));
    // Of a cycle through it.
    anna.run("LOCK.ACQUIRE anna");
    other.run("SELECT 0");
    queue_push(&mut other, "LOCK.ACQUIRE anna WAIT 0 PUSH");
    let refused = anna.refused("LOCK.ACQUIRE shown WAIT 0");
    assert!(
        refused.starts_with("DEADLOCK ") && refused.contains("'shown'"),
        "{refused}"
    );
    assert!(!refused.contains("hidden"), "{refused}");
    // Of what was lost there, which it cannot take away from others either.
    other.run_all(&["SELECT 1", "DEL secret", "SELECT 0", "DEL shown"]);
    assert_eq!(reasons(&mut anna), ["shown deleted"]);
    assert!(anna.refused("LOCK.LOG RESET").starts_with("NOPERM "));
    assert_eq!(
        reasons(&mut other).len(),
        2,
        "but hidden's own owner ended that itself"
    );
}

/// A command that only removes a key asks no clock of its own; still it is told when that was.
#[test]
fn losses_with_a_second_between_them_are_not_one() {
    let server = Server::start();
    let (mut owner, mut other) = (server.resp3(), server.resp3());
    for number in 0..106 {
        owner.run(["LOCK.ACQUIRE", &format!("k{number}")]);
    }
    for number in 0..105 {
        other.run(["DEL", &format!("k{number}")]);
    }
    std::thread::sleep(Duration::from_millis(1200));
    other.run("DEL k105");
    let entries = log(&mut other, "LOCK.LOG COUNT 2");
    let told = |entry: &[Frame]| (field(entry, "key"), field(entry, "count"));
    assert_eq!(told(&entries[0]), (bulk("k105"), int(1)));
    assert_eq!(told(&entries[1]), (bulk("k100"), int(5)));
}

#[test]
fn a_promoted_server_says_how_many_holds_of_its_former_master_ended() {
    let master = Server::start();
    let replica = Server::replica_of(&master, &[]);
    let mut owner = master.resp3();
    owner.run_all(&["LOCK.ACQUIRE a", "LOCK.ACQUIRE b", "SETTP c v"]);
    replica.catch_up(&master);
    let mut operator = replica.resp3();
    operator.run("REPLICAOF NO ONE");
    let entries = log(&mut operator, "LOCK.LOG");
    let [entry] = &entries[..] else {
        panic!("{entries:?}")
    };
    for (name, expected) in [
        ("reason", bulk("promoted")),
        ("count", int(3)),
        ("client", int(0)),
    ] {
        assert_eq!(field(entry, name), expected, "{name}");
    }
    let line = "promoted: 3 holds of the former master ended";
    assert!(replica.log().contains(line));
    eventually_equal("holds", 0, || replica.gauge("tether", "tether_holds"));
    let lost = ["tether_lost_total", "tether_lost_promoted_total"];
    assert_eq!(replica.gauges("tether", lost), [3, 3]);
}

/// Also where its peer has gone in a way that leaves no address.
#[test]
fn an_entry_has_the_address_of_a_connection_that_is_no_more() {
    let server = Server::start().over_tcp();
    let mut operator = server.resp3();
    let mut owner = server.resp3();
    owner.run_all(&["CLIENT SETNAME worker", "LOCK.ACQUIRE k"]);
    let list = format!("CLIENT LIST ID {}", owner.id());
    let list = operator.run(list.as_str()).text();
    let addr = list
        .split(' ')
        .find_map(|field| field.strip_prefix("addr="));
    owner.reset();
    eventually_equal("it is gone", 1, || {
        server.gauge("tether", "tether_lost_died_total")
    });
    let entries = log(&mut operator, "LOCK.LOG");
    assert_eq!(field(&entries[0], "addr").text(), addr.expect("an address"));
    assert_eq!(field(&entries[0], "name"), bulk("worker"));
}
