//! The files of each release, as a real Redis 7.0 with that release wrote them: `golden/VERSION/`, with what must be known to
//! judge them. To make those of a new release:
//!
//! ```text
//!   TETHER_GOLDEN=0.3.0 TETHER_SERVER=.servers/redis-7.0/redis-server cargo test --test server golden_files_are_made -- --ignored
//! ```
//!
//! TETHER_MODULE takes the module of another version. `0.2.0` is of before that release, and gives no tokens of grants; `0.2.0-grants`
//! gives none of the temporary keys of connections.

use crate::harness::*;
use crate::line;
use std::path::{Path, PathBuf};
use std::{env, fs};

const VERSIONS: [&str; 4] = ["0.1.0", "0.2.0", "0.2.0-grants", "0.2.0-tokens"];

/// An RDB file, an append-only file, and one that was rewritten as commands.
const FILES: [&str; 3] = ["dump.rdb", "appendonly.aof", "rewritten.aof"];

/// The session's secret, and the tokens of `lock` and of the last grant.
const ABOUT: &str = "about";

fn folder(version: &str) -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/server");
    tests.join("formats/golden").join(version)
}

/// A session holds something of each kind; so do connections, partly together with it.
fn fill(server: &Server) -> (String, i64, [Client; 3]) {
    let [mut plain, mut client, mut ended] = [(); 3].map(|()| server.resp3());
    let secret = client.run("SESSION.START GRACE 86400000").text();
    plain.run_all(&[
        "SET stranger v",
        "SETTP plain v",
        "LOCK.ACQUIRE plainlock",
        "LOCK.ACQUIRE readers SHARED",
        "LOCK.ACQUIRE freed SHARED",
        "LOCK.ACQUIRE semaphore PERMITS 1 OF 5",
        "SELECT 3",
        "SETTP plain v",
    ]);
    client.run_all(&[
        "SETTP temporary v NOTIFY",
        "SETTP timed v",
        "PEXPIREAT timed 4102444800000",
        "LOCK.ACQUIRE lease LEASE 86400000",
        "LOCK.ACQUIRE deep REENTRANT",
        "LOCK.ACQUIRE deep REENTRANT",
        "LOCK.ACQUIRE deep SHARED REENTRANT",
        "LOCK.ACQUIRE readers SHARED OWNER reader",
        "LOCK.ACQUIRE semaphore PERMITS 3 OF 5",
        "LOCK.ACQUIRE freed SHARED",
        "LOCK.RELEASE freed",
    ]);
    let token = client.run("LOCK.ACQUIRE lock REENTRANT NOTIFY OWNER job");
    let raised = token.number().to_string();
    assert_eq!(plain.run(["LOCK.RAISE", "plain", &raised]), token);
    client.run_all(&["SELECT 3", "LOCK.ACQUIRE elsewhere"]);
    ended.run_all(&["SESSION.START", "SETTP ended v", "SESSION.END"]);
    (secret, token.number(), [plain, client, ended])
}

#[test]
#[ignore = "makes the files of a release: TETHER_GOLDEN"]
fn golden_files_are_made() {
    let Ok(version) = env::var("TETHER_GOLDEN") else {
        return;
    };
    let lines = [
        "appendonly yes",
        "appendfsync always",
        "aof-use-rdb-preamble no",
    ];
    let server = Server::with(&lines);
    let (secret, token, mut clients) = fill(&server);
    let to = folder(&version);
    fs::create_dir_all(&to).expect("its folder");
    let commands = || {
        let files = fs::read_dir(server.folder().join("appendonlydir")).expect("its folder");
        let mut paths: Vec<_> = files.map(|file| file.expect("a file").path()).collect();
        paths.retain(|path| path.extension().is_some_and(|end| end == "aof"));
        paths.sort();
        let read = |path: &PathBuf| fs::read(path).expect("a file");
        paths.iter().flat_map(read).collect::<Vec<u8>>()
    };
    let keep = |name: &str, bytes: Vec<u8>| fs::write(to.join(name), bytes).expect("written");
    keep(FILES[1], commands());
    clients[0].run("SAVE");
    let file = fs::read(server.folder().join("dump.rdb"));
    keep(FILES[0], file.expect("the file"));
    clients[0].run("BGREWRITEAOF");
    eventually("the rewriting", || {
        let at_work = server.gauge("persistence", "aof_rewrite_in_progress");
        let is_done = commands().windows(12).any(|word| word == b"TETHER.BOUND");
        (at_work == 0 && is_done)
            .then_some(())
            .ok_or(at_work.to_string())
    });
    keep(FILES[2], commands());
    let last = line::tether(&server, "last_token");
    keep(ABOUT, format!("{secret} {token} {last}\n").into_bytes());
}

#[test]
fn files_of_each_release_are_read() {
    for version in VERSIONS {
        for file in FILES {
            let from = folder(version);
            let about = fs::read_to_string(from.join(ABOUT)).expect("what is known");
            let about: Vec<&str> = about.split_whitespace().collect();
            let [secret, token, last] = about[..] else {
                panic!("{about:?}");
            };
            let [token, last] = [token, last].map(|word| word.parse().expect("a token"));
            let mut server = Server::start();
            server.kill();
            let (name, lines) = match file {
                "dump.rdb" => (file, &[][..]),
                _ => ("appendonly.aof", &["appendonly yes"][..]),
            };
            fs::copy(from.join(file), server.folder().join(name)).expect("copied");
            server.restart(lines);
            assert_is_read(&server, secret, token, last, &format!("{version} {file}"));
            // And in the files of today.
            if !lines.is_empty() {
                server.crash_and_restart();
                let resumed = server.resp3().run(["SESSION.RESUME", secret]);
                assert!(resumed.number() > 0, "{version} {file}");
            }
        }
    }
}

fn assert_is_read(server: &Server, secret: &str, token: i64, last: i64, what: &str) {
    let (mut other, mut client) = (server.resp3(), server.resp3());
    let sessions = ["tether_sessions_attached", "tether_sessions_detached"];
    assert_eq!(server.gauges("tether", sessions), [0, 1], "{what}");
    assert_eq!(line::tether(server, "records_refused_total"), 0, "{what}");
    // What connections had refuses nobody, and what came later has greater tokens.
    for request in [
        "LOCK.ACQUIRE plainlock",
        "SETTP plain w TOKEN",
        "SETTP ended w TOKEN",
    ] {
        let given = other.run(request).number();
        assert!(given > last, "{what}: {request}: {given} after {last}");
    }
    assert_eq!(other.run("GET stranger"), bulk("v"), "{what}");
    assert_eq!(other.run("SETTP temporary w"), int(0), "{what}");
    let held = client.run(["SESSION.RESUME", secret, "NOTIFY"]);
    assert_eq!(held, int(8), "{what}");
    let job = line::field(&other.run("LOCK.INFO lock"), "holders").items();
    assert_eq!(line::field(&job[0], "label"), bulk("job"), "{what}");
    assert_eq!(line::field(&job[0], "token"), int(token), "{what}");
    assert_eq!(
        client.run("LOCK.ACQUIRE lock REENTRANT OWNER job"),
        int(token),
        "{what}"
    );
    let lease = line::field(&other.run("LOCK.INFO lease"), "holders").items();
    let lease = line::field(&lease[0], "lease-ms").number();
    assert!((1..=86_400_000).contains(&lease), "{what}: {lease}");
    assert_eq!(client.run("LOCK.RELEASE deep"), int(2), "{what}");
    assert_eq!(client.run("LOCK.RELEASE deep"), int(1), "{what}");
    assert!(other.run("LOCK.ACQUIRE deep SHARED").number() > last);
    let permits = other.run("LOCK.ACQUIRE semaphore PERMITS 3 OF 5");
    assert_eq!(permits, null(), "{what}");
    let readers = client.run("LOCK.RELEASE readers OWNER reader");
    assert_eq!(readers, int(0), "{what}");
    assert!(other.run("LOCK.ACQUIRE freed").number() > last, "{what}");
    assert!(other.run("PTTL timed").number() > 0, "{what}");
    assert_eq!(other.run("DEL temporary"), int(1));
    let pushes = server.settled(&mut client);
    assert_eq!(pushes, ["settp temporary LOST deleted"], "{what}");
    other.run("SELECT 3");
    assert_eq!(other.run("LOCK.ACQUIRE elsewhere"), null(), "{what}");
    client.run("SELECT 3");
    assert_eq!(client.run("LOCK.RELEASE elsewhere"), int(0), "{what}");
}
