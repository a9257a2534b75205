//! What replicas and the append-only file are told of grants: what came of a command, never what its client asked for. A
//! replica of another version refuses an option that it does not know; its offset counts as acknowledged all the same.

use crate::harness::*;

/// Each way to be granted a key, and what is told of it beside the first token of the epoch.
const GRANTS: [(&str, &[&str]); 10] = [
    ("SETTP k v", &["settp k v"]),
    ("settp k v token notify", &["settp k v"]),
    ("SETTP k v WAIT 5000 PUSH", &["settp k v"]),
    ("LOCK.ACQUIRE k", &["lock.acquire k"]),
    (
        "LOCK.ACQUIRE k WAIT 5000 PUSH OWNER me",
        &["lock.acquire k"],
    ),
    (
        "LOCK.ACQUIRE k OWNER me LEASE 100000 NOTIFY REENTRANT",
        &["lock.acquire k"],
    ),
    ("LOCK.ACQUIRE k SHARED WAIT 0", &["lock.acquire k"]),
    ("LOCK.ACQUIRE k PERMITS 2 OF 3", &["lock.acquire k"]),
    (
        "LOCK.MACQUIRE 2 k l OWNER me LEASE 100000 WAIT 0",
        &["lock.acquire k", "lock.acquire l"],
    ),
    ("LOCK.MACQUIRE 1 k", &["lock.acquire k"]),
];

fn told(tap: &mut Tap, client: &mut Client) -> Vec<String> {
    let told = tap.after(client);
    let is_servers = |name: &str| matches!(name, "multi" | "exec" | "ping" | "replconf");
    let ours = told.iter().filter(|words| !is_servers(&words[0]));
    ours.map(|words| words.join(" ")).collect()
}

#[test]
fn replicas_are_told_what_was_granted_and_never_how_it_was_asked_for() {
    let server = Server::with(&["repl-diskless-sync no"]);
    let (mut one, mut other) = (server.resp3(), server.resp3());
    one.run("LOCK.ACQUIRE first");
    let mut tap = Tap::open(&server);
    one.run("LOCK.ACQUIRE second");
    told(&mut tap, &mut other);
    for (request, expected) in GRANTS {
        for in_transaction in [false, true] {
            if in_transaction {
                one.run_all(&["MULTI", request, "EXEC"]);
            } else {
                one.run(request);
            }
            assert_eq!(told(&mut tap, &mut other), expected, "{request}");
            let keys = if expected.len() > 1 { "k l" } else { "k" };
            other.run(&format!("DEL {keys}"));
            assert_eq!(told(&mut tap, &mut other), [format!("del {keys}")]);
        }
    }
}

/// So does a file that is written from the first grant on.
#[test]
fn the_first_word_of_a_link_says_the_senders_version() {
    let server = Server::with(&["repl-diskless-sync no", "appendonly yes"]);
    let (mut one, mut other) = (server.resp3(), server.resp3());
    one.run("SESSION.START");
    for link in 1..=2 {
        let mut tap = Tap::open(&server);
        server.settle();
        one.run("LOCK.ACQUIRE k");
        let told = told(&mut tap, &mut other);
        let first: Vec<&str> = told[0].split(' ').collect();
        let version = env!("CARGO_PKG_VERSION");
        assert_eq!(first[0], "tether.token", "link {link}: {told:?}");
        assert_eq!(first[2..5], ["version", version, "commit"], "{told:?}");
        one.run("LOCK.RELEASE k");
    }
    let file = server.append_only_text();
    let first = file.find("TETHER.").map(|start| &file[start..]);
    assert!(first.is_some_and(|first| first.starts_with("TETHER.TOKEN")));
}

/// Also of a grant that waits for acknowledgements, and of what a session holds.
#[test]
fn an_acknowledged_grant_is_told_as_any_other_to_replicas_and_files() {
    let files = [
        "appendonly yes",
        "appendfsync always",
        "repl-diskless-sync no",
    ];
    let server = Server::with(&files);
    let replica = Server::replica_of(&server, &files);
    let (mut one, mut other) = (server.resp3(), server.resp3());
    one.run("SESSION.START GRACE 60000");
    let mut tap = Tap::open(&server);
    one.run("LOCK.ACQUIRE first");
    told(&mut tap, &mut other);
    for (request, grant) in [
        (
            "LOCK.ACQUIRE k OWNER me LEASE 100000 WAIT 0 ACKS 1 ACKTIMEOUT 15000",
            "lock.acquire k",
        ),
        (
            "SETTP l v TOKEN WAIT 0 ACKS 1 ACKTIMEOUT 15000",
            "settp l v",
        ),
    ] {
        one.run(request);
        let told = told(&mut tap, &mut other);
        assert_eq!(told[0], grant);
        assert!(told[1].starts_with("tether.hold "), "{told:?}");
        assert_eq!(told.len(), 2, "{told:?}");
    }
    replica.catch_up(&server);
    for server in [&server, &replica] {
        let file = server.append_only_text();
        for word in ["ACKS", "ACKTIMEOUT", "WAIT", "LEASE", "OWNER", "NOTIFY"] {
            assert!(
                !file.contains(&format!("\r\n{word}\r\n")),
                "{word} in {file}"
            );
        }
        assert!(file.contains("ACQUIRE\r\n$1\r\nk\r\n"), "{file}");
    }
}
