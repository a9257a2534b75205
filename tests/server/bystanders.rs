//! Commands that write nothing, and make us write: a server takes a command for a write if anything was written in the middle of
//! it, and then its replicas and its file are given that command. There `CLIENT KILL ID 7` ends somebody else.

use crate::harness::*;
use std::time::{Duration, Instant};

const FILE: [&str; 2] = ["appendonly yes", "appendfsync always"];

#[test]
fn to_kill_a_client_is_not_replicated_whatever_it_held() {
    for (holds, again) in [
        ("SETTP k v", "SETTP k v"),
        ("LOCK.ACQUIRE k", "LOCK.ACQUIRE k"),
        ("LOCK.ACQUIRE k SHARED LEASE 60000", "LOCK.ACQUIRE k"),
    ] {
        for session in [false, true] {
            for handed_on in [false, true] {
                for multi in [false, true] {
                    let server = Server::with(&FILE);
                    let (mut holder, mut waiter) = (server.resp3(), server.resp3());
                    if session {
                        holder.run("SESSION.START GRACE 60000");
                    }
                    holder.run(holds);
                    if handed_on {
                        waiter.run(&format!("{again} WAIT 0 PUSH"));
                    }
                    let mut killer = server.resp2();
                    let id = holder.id();
                    if multi {
                        killer.run("MULTI");
                    }
                    killer.run(&format!("CLIENT KILL ID {id}"));
                    if multi {
                        killer.run("EXEC");
                    }
                    if !session && !handed_on {
                        eventually_gone(&mut killer, "k");
                    }
                    // What comes later is in the file, so what came before is, too.
                    killer.run("SET last v");
                    let text = server.append_only_text();
                    assert!(text.contains("last"), "{text}");
                    let what = (holds, session, handed_on, multi);
                    assert!(!text.contains("KILL"), "{what:?}: {text}");
                }
            }
        }
    }
}

/// What servers differ in: whether functions are called that no API promises, and whether keys have slots.
const SERVERS: [&[&str]; 3] = [
    &["tether.private-functions known"],
    &["tether.private-functions never"],
    &["tether.private-functions never", "cluster-enabled yes"],
];

fn start(lines: &[&str]) -> Server {
    let server = Server::with(&[&FILE, lines].concat());
    if lines.contains(&"cluster-enabled yes") {
        server.resp2().run("CLUSTER ADDSLOTSRANGE 0 16383");
        eventually("the cluster", || {
            let info = server.resp2().run("CLUSTER INFO").text();
            match info.contains("cluster_state:ok") {
                true => Ok(()),
                false => Err(info),
            }
        });
    }
    server
}

/// Each ends the connection with this id, whose user is anna.
const ENDINGS: [&[&str]; 5] = [
    &["CLIENT KILL ID #"],
    &[
        "MULTI",
        "SET {k}a v",
        "CLIENT KILL ID #",
        "SET {k}b v",
        "EXEC",
    ],
    &["MULTI", "CLIENT KILL USER anna", "EXEC"],
    &["ACL DELUSER anna"],
    &[
        "MULTI",
        "SET {k}a v",
        "ACL DELUSER anna",
        "SET {k}b v",
        "EXEC",
    ],
];

/// Replicas are told what was written, whatever ends the holder, and nothing else; whoever waits is granted the key.
#[test]
fn whatever_ends_a_connection_is_not_replicated() {
    for lines in SERVERS {
        for ending in ENDINGS {
            let server = start(lines);
            let (mut killer, mut waiter) = (server.resp2(), server.resp3());
            killer.run("ACL SETUSER anna on nopass +@all ~*");
            let mut holder = server.resp2();
            holder.run("AUTH anna x");
            let id = holder.id();
            holder.run_all(&["SETTP {k}held v", "SETTP {k}gone v"]);
            waiter.send("SETTP {k}held w WAIT 0");
            eventually_equal("waiters", 1, || server.gauge("tether", "tether_waiters"));
            for command in ending {
                killer.call(command.replace('#', &id.to_string()).as_str());
            }
            assert_eq!(waiter.read_reply(), int(1));
            eventually_gone(&mut killer, "{k}gone");
            assert_eq!(killer.call("GET {k}held"), bulk("w"));
            // What comes later is in the file, so what came before is, too.
            killer.run("SET {k}last v");
            let text = server.append_only_text().to_lowercase();
            let what = format!("{lines:?} {ending:?}: {text}");
            let place = |word: &str| {
                text.rfind(word)
                    .unwrap_or_else(|| panic!("{word} in {what}"))
            };
            assert!(place("$7\r\n{k}gone") < place("{k}last"), "{what}");
            if ending.contains(&"SET {k}b v") {
                // What follows from a transaction comes after all that it does.
                assert!(place("{k}b") < place("{k}held"), "{what}");
                assert!(place("{k}b") < place("{k}gone"), "{what}");
            }
            assert!(
                !text.contains("kill") && !text.contains("deluser"),
                "{what}"
            );
        }
    }
}

/// Has a connection hold `k`, and tells what ends it just before the server sleeps.
type Doom = fn(&mut Client, &mut Client) -> &'static str;

const DOOMS: [Doom; 2] = [
    |killer, holder| {
        killer.run("ACL SETUSER anna on nopass +@all ~*");
        holder.run("AUTH anna x");
        holder.run("LOCK.ACQUIRE k");
        "ACL DELUSER anna"
    },
    |killer, holder| {
        const HALF: usize = 4 << 20;
        killer.run("CONFIG SET maxmemory-clients 0");
        holder.run("LOCK.ACQUIRE k");
        let id = holder.id();
        holder.send_bytes(format!("*3\r\n$3\r\nSET\r\n$1\r\nx\r\n${}\r\n", 2 * HALF).as_bytes());
        holder.send_bytes(&vec![b'x'; HALF]);
        let line = format!("CLIENT LIST ID {id}");
        eventually("half a command that is read", || {
            let line = killer.run(line.as_str()).text();
            let word = line.split(' ').find_map(|word| word.strip_prefix("qbuf="));
            match word.and_then(|word| word.parse().ok()) {
                Some(HALF..) => Ok(()),
                _ => Err(line),
            }
        });
        "CONFIG SET maxmemory-clients 1mb"
    },
];

/// A connection can end just before the server sleeps, when it has reckoned already for how long (Redis 7.0), and that may be until
/// its own next turn, which comes once a second here.
#[test]
fn whoever_is_next_need_not_wait_for_the_servers_own_turn() {
    const ROUNDS: usize = 15;
    for (lines, (number, doom)) in SERVERS
        .iter()
        .flat_map(|lines| DOOMS.iter().enumerate().map(move |doom| (lines, doom)))
    {
        let server = start(&[lines, &["hz 1"][..]].concat());
        let mut killer = server.resp2();
        let mut waited: Vec<_> = { 0..ROUNDS }
            .map(|_| {
                let (mut holder, mut waiter) = (server.resp2(), server.resp3());
                let ends = doom(&mut killer, &mut holder);
                waiter.send("LOCK.ACQUIRE k WAIT 0");
                eventually_equal("waiters", 1, || server.gauge("tether", "tether_waiters"));
                let begun = Instant::now();
                killer.run(ends);
                waiter.read_reply();
                let waited = begun.elapsed();
                waiter.run("LOCK.RELEASE k");
                waited
            })
            .collect();
        waited.sort_unstable();
        let median = waited[ROUNDS / 2];
        say(&format!("{lines:?}, end {number}: {median:?}"));
        assert!(
            median < Duration::from_millis(200),
            "{lines:?}, end {number}: {waited:?}"
        );
    }
}

/// What a rewritten file begins with is told to the file alone, and not in the middle of the command that has it rewritten.
#[test]
fn what_has_the_file_rewritten_is_not_replicated() {
    for lines in SERVERS {
        let server = start(&[lines, &["aof-use-rdb-preamble no"]].concat());
        let (mut holder, mut other) = (server.resp2(), server.resp2());
        holder.run_all(&["SESSION.START GRACE 60000", "SETTP k v"]);
        for command in ["BGREWRITEAOF", "MULTI", "BGREWRITEAOF", "EXEC"] {
            other.call(command);
            eventually_equal("rewriting", 0, || {
                server.gauge("persistence", "aof_rewrite_in_progress")
                    + server.gauge("persistence", "aof_rewrite_scheduled")
            });
        }
        let text = server.append_only_text();
        assert!(text.contains("TETHER.HOLD"), "{lines:?}: {text}");
        assert!(!text.contains("BGREWRITEAOF"), "{lines:?}: {text}");
    }
}
