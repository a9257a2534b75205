//! A module that nobody has used says nothing: replicas, files and those that load them are as without it.

use super::rewriting::wait_for_rewriting;
use crate::harness::*;
use std::fs;

const LIVE: [&str; 5] = [
    "SET plain v",
    "SET brief v PX 1",
    "RPUSH list a b",
    "RENAME plain other",
    "FLUSHALL",
];

/// Servers follow each other, load what others wrote and take over, and nobody gives a command of ours. Redis 7.0 lets no
/// module leave its part out of an RDB file; to have read that is no use of the module either.
#[test]
fn replicas_are_told_nothing_by_a_module_that_was_never_used() {
    let first = Server::start();
    first.resp2().run_all(&LIVE);
    first.resp2().run("DEBUG RELOAD");
    let second = Server::replica_of(&first, &[]);
    second.resp2().run("DEBUG RELOAD");
    let third = Server::replica_of(&second, &[]);
    first.resp2().run_all(&LIVE);
    second.catch_up(&first);
    second.resp2().run("REPLICAOF NO ONE");
    second.resp2().run_all(&LIVE);
    third.catch_up(&second);
    first.follow(&second);
    let fourth = Server::replica_of(&first, &[]);
    second.resp2().run_all(&LIVE);
    first.catch_up(&second);
    for server in [&first, &second, &third, &fourth] {
        server.settle();
        let calls = server.info("commandstats").to_lowercase();
        assert!(!calls.contains("tether"), "{calls}");
    }
}

#[test]
fn files_are_told_nothing_by_a_module_that_was_never_used() {
    for preamble in ["yes", "no"] {
        let preamble = format!("aof-use-rdb-preamble {preamble}");
        let mut server = Server::with(&["appendonly yes", &preamble]);
        for times in 1..=2 {
            let _replica = Server::replica_of(&server, &[]);
            server.resp2().run_all(&LIVE);
            server.resp2().run_all(&["DEBUG RELOAD", "SET kept v"]);
            server.resp2().run("BGREWRITEAOF");
            wait_for_rewriting(&server, times);
            server.resp2().run("SET later v");
        }
        let all = server.append_only_text();
        assert!(all.contains("later") && !all.contains("TETHER"), "{all}");
        server.crash_and_restart();
        server.resp2().run_all(&["GET kept", "SAVE"]);
        if server.is_at_least((7, 2), (7, 2)) {
            let saved = server.folder().join("dump.rdb");
            let without = Server::with(&[WITHOUT_MODULE]);
            fs::copy(saved, without.folder().join("dump.rdb")).expect("a file to load");
            without.resp2().run("DEBUG RELOAD NOSAVE");
            assert_eq!(without.resp2().run("GET kept"), bulk("v"));
        }
    }
}
