//! WATCHEX and UNWATCHEX: replies, counts, databases, and what happens to a watch when its connection changes.

mod coming_and_going;
mod creating;
mod frames;
mod going;
mod own_writes;
mod replicas;
mod unheard;

use crate::harness::*;

fn exist() -> Frame {
    bulk("EXIST")
}

fn noexist() -> Frame {
    bulk("NOEXIST")
}

#[test]
fn the_reply_is_the_state() {
    let server = Server::start();
    let (mut watcher, mut other) = (server.resp3(), server.resp2());
    other.run_all(&["SET there v", "RPUSH list v"]);
    assert_eq!(watcher.call("WATCHEX there"), exist());
    assert_eq!(watcher.call("WATCHEX list"), exist());
    assert_eq!(watcher.call("WATCHEX absent"), noexist());
    assert_eq!(
        watcher.call("WATCHEX absent there list other"),
        array([noexist(), exist(), exist(), noexist()])
    );
    other.run("SETTP temporary v");
    assert_eq!(watcher.call("WATCHEX temporary"), exist());
    let mut plain = server.resp2();
    assert_eq!(plain.call("WATCHEX there"), exist());
    assert_eq!(
        plain.call("WATCHEX absent there"),
        array([noexist(), exist()])
    );
}

#[test]
fn a_key_whose_time_has_passed_does_not_exist() {
    let server = Server::start();
    let (mut watcher, mut other) = (server.resp3(), server.resp2());
    other.run_all(&["DEBUG SET-ACTIVE-EXPIRE 0", "SET k v"]);
    lapse(&mut other, "k");
    let state = watcher.call("WATCHEX k");
    let mut pushes = server.settled(&mut watcher);
    other.run("GET k");
    pushes.extend(server.settled(&mut watcher));
    assert_eq!((state, pushes), (noexist(), vec![]));
    other.run("SET k v");
    assert_eq!(server.settled(&mut watcher), ["watchex k ADD"]);
}

#[test]
fn each_change_is_told_once_and_in_turn() {
    let server = Server::start();
    let (mut watcher, mut other) = (server.resp3(), server.resp2());
    assert_eq!(watcher.call("WATCHEX k"), noexist());
    for _ in 0..3 {
        other.run_all(&["SET k v", "SET k w", "DEL k", "DEL k"]);
    }
    let expected = ["watchex k ADD", "watchex k DEL"].repeat(3);
    assert_eq!(server.settled(&mut watcher), expected);
}

#[test]
fn the_first_push_is_the_opposite_of_the_reply() {
    let server = Server::start();
    let (mut watcher, mut other) = (server.resp3(), server.resp2());
    other.run("SET there v");
    assert_eq!(
        watcher.call("WATCHEX there absent"),
        array([exist(), noexist()])
    );
    other.run_all(&["SET there w", "DEL absent", "SET absent v", "DEL there"]);
    assert_eq!(
        server.settled(&mut watcher),
        ["watchex absent ADD", "watchex there DEL"]
    );
}

#[test]
fn everyone_who_watches_is_told_and_nobody_else() {
    let server = Server::start();
    let mut watchers: Vec<_> = (0..10)
        .map(|n| {
            if n % 2 == 0 {
                server.resp3()
            } else {
                server.resp2()
            }
        })
        .collect();
    let (mut bystander, mut other) = (server.resp3(), server.resp2());
    bystander.run("WATCHEX unrelated");
    for watcher in &mut watchers {
        watcher.run("WATCHEX k");
    }
    other.run_all(&["SET k v", "DEL k"]);
    for watcher in &mut watchers {
        assert_eq!(server.settled(watcher), ["watchex k ADD", "watchex k DEL"]);
    }
    assert_eq!(server.settled(&mut bystander), [""; 0]);
}

#[test]
fn the_owners_end_is_told() {
    let server = Server::start();
    let (mut watcher, mut owner) = (server.resp3(), server.resp2());
    watcher.run("WATCHEX k");
    owner.run("SETTP k v NOTIFY");
    assert_eq!(server.settled(&mut watcher), ["watchex k ADD"]);
    drop(owner);
    assert_eq!(watcher.next_push(), "watchex k DEL");
    assert_eq!(server.settled(&mut watcher), [""; 0]);
}

#[test]
fn a_settp_that_gets_0_is_no_change() {
    let server = Server::start();
    let (mut watcher, mut other) = (server.resp3(), server.resp2());
    other.run("SET k v");
    watcher.run("WATCHEX k");
    assert_eq!(other.call("SETTP k w"), int(0));
    assert_eq!(server.settled(&mut watcher), [""; 0]);
}

#[test]
fn a_watch_is_for_one_database() {
    let server = Server::start();
    let (mut watcher, mut other) = (server.resp3(), server.resp2());
    other.run_all(&["SELECT 3", "SET k v"]);
    assert_eq!(watcher.call("WATCHEX k"), noexist());
    other.run_all(&["DEL k", "SET k v", "FLUSHDB"]);
    assert_eq!(server.settled(&mut watcher), [""; 0]);
    watcher.run("SELECT 3");
    assert_eq!(
        watcher.call("WATCHEX k"),
        noexist(),
        "the same name in another database is another watch"
    );
    watcher.run("SELECT 9");
    other.run("SET k v");
    assert_eq!(server.settled(&mut watcher), ["watchex k ADD"]);
    other.run_all(&["SELECT 0", "SET k v"]);
    assert_eq!(server.settled(&mut watcher), ["watchex k ADD"]);
    watcher.run("SELECT 0");
    assert_eq!(watcher.call("WATCHEX k"), exist());
    assert_eq!(watcher.call("UNWATCHEX"), int(2));
}

#[test]
fn watching_twice_is_watching_once() {
    let server = Server::start();
    let (mut watcher, mut other) = (server.resp3(), server.resp2());
    assert_eq!(watcher.call("WATCHEX k k"), array([noexist(), noexist()]));
    assert_eq!(watcher.call("WATCHEX k"), noexist());
    other.run("SET k v");
    assert_eq!(server.settled(&mut watcher), ["watchex k ADD"]);
    assert_eq!(watcher.call("WATCHEX k"), exist());
    other.run("DEL k");
    assert_eq!(server.settled(&mut watcher), ["watchex k DEL"]);
    assert_eq!(watcher.call("UNWATCHEX k"), int(1));
    assert_eq!(watcher.call("UNWATCHEX k"), int(0));
}

#[test]
fn unwatchex_counts_what_it_removes() {
    let server = Server::start();
    let mut watcher = server.resp3();
    assert_eq!(watcher.call("UNWATCHEX"), int(0));
    assert_eq!(watcher.call("UNWATCHEX a b"), int(0));
    watcher.run("WATCHEX a b c d");
    assert_eq!(watcher.call("UNWATCHEX a x b"), int(2));
    assert_eq!(watcher.call("UNWATCHEX c c"), int(1));
    assert_eq!(watcher.call("UNWATCHEX"), int(1));
    assert_eq!(watcher.call("UNWATCHEX"), int(0));
}

#[test]
fn unwatchex_without_keys_means_every_database_and_with_keys_the_selected_one() {
    let server = Server::start();
    let (mut watcher, mut other) = (server.resp3(), server.resp2());
    watcher.run_all(&["WATCHEX a b", "SELECT 3", "WATCHEX a b c"]);
    assert_eq!(watcher.call("UNWATCHEX a"), int(1));
    watcher.run("SELECT 8");
    assert_eq!(watcher.call("UNWATCHEX a b c"), int(0));
    assert_eq!(watcher.call("UNWATCHEX"), int(4));
    other.run_all(&["MSET a 1 b 1", "SELECT 3", "MSET a 1 b 1 c 1"]);
    assert_eq!(server.settled(&mut watcher), [""; 0]);
}

#[test]
fn one_watchers_unwatchex_leaves_the_others_alone() {
    let server = Server::start();
    let (mut one, mut two, mut other) = (server.resp3(), server.resp3(), server.resp2());
    one.run("WATCHEX k");
    two.run("WATCHEX k");
    assert_eq!(one.call("UNWATCHEX"), int(1));
    other.run("SET k v");
    assert_eq!(server.settled(&mut two), ["watchex k ADD"]);
    assert_eq!(server.settled(&mut one), [""; 0]);
}

#[test]
fn after_unwatchex_no_push_arrives() {
    let server = Server::start();
    let (mut watcher, mut other) = (server.resp3(), server.resp2());
    for round in 0..200 {
        watcher.run("WATCHEX k");
        // The two race; whoever is first, nothing may come after UNWATCHEX's reply.
        other.send(if round % 2 == 0 { "SET k v" } else { "DEL k" });
        assert_eq!(watcher.call("UNWATCHEX k"), int(1));
        let before = watcher.arrived_pushes();
        assert!(before.len() <= 1, "{before:?}");
        other.read_reply();
        assert_eq!(
            server.settled(&mut watcher),
            [""; 0],
            "round {round}, before the reply came {before:?}"
        );
    }
}

#[test]
fn watching_again_after_unwatchex_begins_anew() {
    let server = Server::start();
    let (mut watcher, mut other) = (server.resp3(), server.resp2());
    watcher.run_all(&["WATCHEX k", "UNWATCHEX k"]);
    other.run("SET k v");
    assert_eq!(watcher.call("WATCHEX k"), exist());
    other.run("DEL k");
    assert_eq!(server.settled(&mut watcher), ["watchex k DEL"]);
}

#[test]
fn the_connection_stays_free_for_every_other_command() {
    let server = Server::start();
    let (mut watcher, mut other) = (server.resp3(), server.resp2());
    watcher.run("WATCHEX k");
    other.run("SET k v");
    watcher.run_all(&[
        "SET x 1",
        "INCR x",
        "MULTI",
        "GET x",
        "EXEC",
        "CLIENT SETNAME me",
        "SCAN 0",
        "WAIT 0 1",
    ]);
    watcher.send("SUBSCRIBE channel");
    other.run_all(&["PUBLISH channel hello", "DEL k"]);
    assert_eq!(watcher.next_push(), "watchex k ADD");
    assert_eq!(watcher.next_push(), "subscribe channel :1");
    assert_eq!(watcher.next_push(), "message channel hello");
    assert_eq!(watcher.next_push(), "watchex k DEL");
    assert_eq!(watcher.call("GET x"), bulk("2"), "while subscribed");
}

#[test]
fn every_mode_of_client_tracking_works_beside_a_watch() {
    let server = Server::start();
    let (mut watcher, mut other) = (server.resp3(), server.resp2());
    watcher.run("WATCHEX k");
    for mode in ["", "BCAST", "OPTIN", "OPTOUT", "NOLOOP"] {
        watcher.run(&format!("CLIENT TRACKING ON {mode}"));
        if mode == "OPTIN" {
            watcher.run("CLIENT CACHING YES");
        }
        watcher.run("GET cached");
        other.run_all(&["SET cached v", "SET k v", "DEL k"]);
        let heard = server.settled(&mut watcher);
        assert_eq!(heard[0], "invalidate [\"cached\"]", "{mode}: {heard:?}");
        let watched: Vec<_> = heard
            .iter()
            .filter(|push| push.starts_with("watchex"))
            .collect();
        assert_eq!(watched, ["watchex k ADD", "watchex k DEL"], "{mode}");
        watcher.run("CLIENT TRACKING OFF");
        other.run_all(&["SET cached w", "SET k v", "DEL k"]);
        assert_eq!(
            server.settled(&mut watcher),
            ["watchex k ADD", "watchex k DEL"],
            "after {mode}"
        );
    }
}

#[test]
fn a_watcher_that_blocks_hears_pushes_meanwhile() {
    let server = Server::start();
    let (mut watcher, mut other) = (server.resp3(), server.resp2());
    watcher.run("WATCHEX k");
    watcher.send("BLPOP list 0");
    other.run("SET k v");
    assert_eq!(watcher.next(), push("watchex k ADD"));
    other.run("RPUSH list element");
    assert_eq!(watcher.read_reply(), array([bulk("list"), bulk("element")]));
}

#[test]
fn a_watcher_whose_own_blocking_pop_takes_the_watched_list_hears_both() {
    let server = Server::start();
    let (mut watcher, mut other) = (server.resp3(), server.resp2());
    watcher.run("WATCHEX list");
    watcher.send("BLPOP list 0");
    server.settle();
    other.run("RPUSH list element");
    assert_eq!(watcher.read_reply(), array([bulk("list"), bulk("element")]));
    assert_eq!(
        watcher.next_pushes(2),
        ["watchex list ADD", "watchex list DEL"]
    );
}

#[test]
fn a_watchers_end_leaves_nothing_behind() {
    let server = Server::start();
    let mut watcher = server.resp3();
    watcher.run_all(&["WATCHEX a b", "SELECT 3", "WATCHEX a"]);
    assert_eq!(server.gauge("tether", "tether_watches"), 3);
    assert_eq!(server.gauge("tether", "tether_watched_keys"), 3);
    drop(watcher);
    eventually_equal("watches", 0, || server.gauge("tether", "tether_watches"));
    assert_eq!(server.gauge("tether", "tether_watched_keys"), 0);
    server.resp2().run_all(&["SET a v", "DEL a", "FLUSHALL"]);
}
