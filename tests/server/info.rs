//! INFO tether tells what is, and counts what was.

use crate::harness::*;

fn gauge(server: &Server, name: &str) -> i64 {
    server.gauge("tether", &format!("tether_{name}"))
}

#[test]
fn info_tells_keys_and_watches_as_they_come_and_go() {
    let server = Server::start();
    let see = || ["temporary_keys", "watches", "watched_keys"].map(|name| gauge(&server, name));
    assert_eq!(see(), [0, 0, 0]);
    let (mut owner, mut one, mut two) = (server.resp2(), server.resp3(), server.resp3());
    owner.run_all(&["SETTP a v", "SETTP b v", "SELECT 3", "SETTP a v"]);
    one.run("WATCHEX a b");
    two.run_all(&["WATCHEX a", "SELECT 3", "WATCHEX a"]);
    assert_eq!(see(), [3, 4, 3]);
    one.run("UNWATCHEX b");
    server.resp2().run("DEL a");
    assert_eq!(see(), [2, 3, 2]);
    drop(two);
    drop(owner);
    eventually_equal("what is left", [0, 1, 1], see);
}

#[test]
fn info_counts_what_happened() {
    let server = Server::start();
    let (mut owner, mut watcher, mut other) = (server.resp3(), server.resp3(), server.resp2());
    watcher.run("WATCHEX a b");
    owner.run_all(&["SETTP a v NOTIFY", "SETTP b v NOTIFY", "SETTP c v NOTIFY"]);
    assert_eq!(owner.call("SETTP a v"), int(0));
    other.run("DEL c");
    assert_eq!(server.settled(&mut owner), ["settp c LOST deleted"]);
    drop(owner);
    assert_eq!(watcher.next_pushes(4).len(), 4);
    for (name, count) in [
        ("removed_by_disconnect_total", 2),
        ("pushes_sent_total", 5),
        ("lost_total", 3),
        ("lost_deleted_total", 1),
        ("lost_died_total", 2),
        ("lost_killed_total", 0),
        ("grants_total", 3),
        ("hold_seconds_count", 3),
        ("pushes_dropped_total", 0),
        ("pushes_waiting", 0),
    ] {
        eventually_equal(name, count, || gauge(&server, name));
    }
}

#[test]
fn every_field_for_keys_and_watches_is_there() {
    let server = Server::start();
    let info = server.info("tether");
    for name in [
        "temporary_keys",
        "watches",
        "watched_keys",
        "pushes_sent_total",
        "removed_by_disconnect_total",
        "lost_total",
        "grants_total",
    ] {
        assert!(
            info.contains(&format!("\r\ntether_{name}:")),
            "{name} is missing in\n{info}"
        );
    }
    assert!(server.info("everything").contains("tether_watches:"));
}

#[test]
fn the_module_is_listed_and_its_commands_are_documented() {
    let server = Server::start();
    let mut client = server.resp2();
    let modules = format!("{:?}", client.run("MODULE LIST"));
    assert!(modules.contains("\"tether\""), "{modules}");
    for name in ["settp", "deltp", "watchex", "unwatchex"] {
        let docs = client.run(["COMMAND", "DOCS", name]).items();
        assert_eq!(docs[0], bulk(name));
        let docs = format!("{:?}", docs[1]);
        assert!(
            docs.contains("\"summary\""),
            "{name} has no summary: {docs}"
        );
    }
}
