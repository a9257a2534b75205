//! What replicas and the append-only file are told of grants: what came of a command, never what its client asked for. A
//! replica of another version refuses an option that it does not know; its offset counts as acknowledged all the same.

use crate::harness::*;
use crate::line::{queue, tether};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Each way to be granted a key, and what is told of it beside the first token of the epoch. `T` is the grant's token.
const GRANTS: [(&str, &[&str]); 10] = [
    ("SETTP k v", &["tether.settp k T v"]),
    ("settp k v token notify", &["tether.settp k T v"]),
    ("SETTP k v WAIT 5000 PUSH", &["tether.settp k T v"]),
    ("LOCK.ACQUIRE k", &["tether.lock k T exclusive"]),
    (
        "LOCK.ACQUIRE k WAIT 5000 PUSH OWNER me",
        &["tether.lock k T exclusive"],
    ),
    (
        "LOCK.ACQUIRE k OWNER me LEASE 100000 NOTIFY REENTRANT",
        &["tether.lock k T exclusive"],
    ),
    ("LOCK.ACQUIRE k SHARED WAIT 0", &["tether.lock k T shared"]),
    (
        "LOCK.ACQUIRE k PERMITS 2 OF 3",
        &["tether.lock k T permits/2/3"],
    ),
    (
        "LOCK.MACQUIRE 2 k l OWNER me LEASE 100000 WAIT 0",
        &["tether.lock k T exclusive", "tether.lock l T exclusive"],
    ),
    ("LOCK.MACQUIRE 1 k", &["tether.lock k T exclusive"]),
];

fn told(tap: &mut Tap, client: &mut Client) -> Vec<String> {
    let told = tap.after(client);
    let is_servers = |name: &str| matches!(name, "multi" | "exec" | "ping" | "replconf");
    let ours = told.iter().filter(|words| !is_servers(&words[0]));
    ours.map(|words| words.join(" ")).collect()
}

/// The same with T for each token, and the last token of them.
fn told_with_token(tap: &mut Tap, client: &mut Client) -> (Vec<String>, i64) {
    let mut last = 0;
    let told = told(tap, client).into_iter().map(|words| {
        let words = words.split(' ').map(|word| match word.parse() {
            Ok(token) if token > 1 << 22 => {
                last = token;
                "T"
            }
            _ => word,
        });
        words.collect::<Vec<_>>().join(" ")
    });
    let told = told.collect();
    (told, last)
}

/// A server, and a tap that has heard of its epoch.
fn tapped() -> (Server, Tap, [Client; 2]) {
    let server = Server::with(&["repl-diskless-sync no"]);
    let (mut one, mut other) = (server.resp3(), server.resp3());
    one.run("LOCK.ACQUIRE first");
    let mut tap = Tap::open(&server);
    one.run("LOCK.ACQUIRE second");
    told(&mut tap, &mut other);
    (server, tap, [one, other])
}

#[test]
fn replicas_are_told_what_was_granted_and_never_how_it_was_asked_for() {
    let (_server, mut tap, [mut one, mut other]) = tapped();
    let mut last = 0;
    for (request, expected) in GRANTS {
        for in_transaction in [false, true] {
            let reply = if in_transaction {
                one.run_all(&["MULTI", request, "EXEC"]);
                0
            } else {
                one.run(request).number()
            };
            let (told_of, token) = told_with_token(&mut tap, &mut other);
            assert_eq!(told_of, expected, "{request}");
            assert!(token > last && (reply < 2 || token == reply), "{request}");
            last = token;
            let keys = if expected.len() > 1 { "k l" } else { "k" };
            other.run(&format!("DEL {keys}"));
            assert_eq!(told(&mut tap, &mut other), [format!("del {keys}")]);
        }
    }
}

/// Who waits is told of as who does not.
#[test]
fn replicas_are_told_who_is_served_and_what_becomes_of_the_name() {
    let (server, mut tap, [mut one, mut other]) = tapped();
    let mut next = server.resp3();
    for (request, waits, release, expected) in [
        (
            "SETTP k v",
            "SETTP k w WAIT 0 TOKEN",
            "DELTP k",
            "tether.settp k T w",
        ),
        (
            "LOCK.ACQUIRE k",
            "LOCK.ACQUIRE k SHARED WAIT 0",
            "LOCK.RELEASE k",
            "",
        ),
    ] {
        one.run(request);
        queue(&server, &mut next, waits);
        told(&mut tap, &mut other);
        one.run(release);
        let token = next.read_reply().number();
        let told_of = told_with_token(&mut tap, &mut other);
        match expected {
            // The lock stays as it is.
            "" => assert_eq!(told_of, (vec![], 0)),
            _ => assert_eq!(told_of, (vec![expected.to_owned()], token), "{waits}"),
        }
        for (command, words) in [("RENAME k l", "rename k l"), ("MOVE l 1", "move l 1")] {
            other.run(command);
            assert_eq!(told(&mut tap, &mut other), [words]);
        }
        next.run("SELECT 1");
        next.run(&format!(
            "{} l",
            release.split(' ').next().unwrap_or_default()
        ));
        next.run("SELECT 0");
        assert_eq!(told(&mut tap, &mut other), ["del l"]);
    }
}

struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Begins to read, and returns what it has read once it has read of grants of both kinds.
type Reader = fn(&Server) -> String;

const READERS: [Reader; 4] = [
    |server| {
        let mut tap = Tap::open(server);
        let mut read = String::new();
        of_both_kinds(|| {
            read += &told(&mut tap, &mut server.resp3()).join("\r\n");
            read.clone()
        })
    },
    |server| {
        // The file cannot begin before this ends.
        server
            .resp3()
            .run_all(&["BGSAVE", "CONFIG SET appendonly yes"]);
        eventually("the file", || {
            let rewrites = server.gauge("persistence", "aof_rewrites");
            (rewrites > 0).then_some(()).ok_or(rewrites.to_string())
        });
        of_both_kinds(|| server.append_only_text())
    },
    |server| {
        server.resp3().run("CONFIG SET repl-diskless-sync yes");
        replicated(server)
    },
    // One link for what is there and one for what follows, where the server knows that.
    |server| {
        server.resp3().run("CONFIG SET repl-diskless-sync yes");
        set_two_channels(server);
        replicated(server)
    },
];

fn set_two_channels(server: &Server) {
    for setting in ["repl-rdb-channel", "dual-channel-replication-enabled"] {
        _ = server.resp3().call(["CONFIG", "SET", setting, "yes"]);
    }
}

/// What a replica writes to its file.
fn replicated(server: &Server) -> String {
    let replica = Server::with(&["appendonly yes"]);
    set_two_channels(&replica);
    replica.follow(server);
    let told = of_both_kinds(|| replica.append_only_text());
    assert_eq!(tether(&replica, "records_refused_total"), 0);
    told
}

fn of_both_kinds(mut read: impl FnMut() -> String) -> String {
    let mut told = String::new();
    eventually("grants of both kinds", || {
        told = read().to_ascii_lowercase();
        let kinds = ["tether.settp", "tether.lock"];
        let has_all = kinds.iter().all(|kind| told.contains(kind));
        has_all.then_some(()).ok_or(told.clone())
    });
    told
}

/// Whoever begins to read, while grants are made that nobody has read of before, reads of none in its client's words.
#[test]
fn whoever_begins_to_read_is_told_of_each_grant_from_then_on() {
    for begin in READERS {
        let server = Server::with(&["repl-diskless-sync no"]);
        let is_over = AtomicBool::new(false);
        let told = thread::scope(|scope| {
            scope.spawn(|| {
                let mut client = server.resp3();
                while !is_over.load(Ordering::Relaxed) {
                    client.run_all(&["SETTP k v TOKEN NOTIFY", "DELTP k", "SETTP k v", "DELTP k"]);
                    client.run_all(&["LOCK.ACQUIRE l OWNER me", "LOCK.RELEASE l OWNER me"]);
                }
            });
            let _end = SetAtEnd(&is_over);
            eventually("grants", || {
                let grants = tether(&server, "grants_total");
                (grants > 100).then_some(()).ok_or(grants.to_string())
            });
            begin(&server)
        });
        let words: Vec<&str> = told.split_whitespace().collect();
        for command in ["settp", "deltp", "lock.acquire", "lock.release"] {
            let mut words = words.iter();
            assert!(
                !words.any(|word| word.eq_ignore_ascii_case(command)),
                "{command}: {told}"
            );
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
            "tether.lock k T exclusive",
        ),
        (
            "SETTP l v TOKEN WAIT 0 ACKS 1 ACKTIMEOUT 15000",
            "tether.settp l T v",
        ),
    ] {
        let reply = one.run(request).number();
        let (told, token) = told_with_token(&mut tap, &mut other);
        assert_eq!((&*told[0], token), (grant, reply));
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
        assert!(file.contains("TETHER.LOCK\r\n$1\r\nk\r\n"), "{file}");
        assert!(file.contains("\r\n$9\r\nexclusive\r\n"), "{file}");
    }
}
