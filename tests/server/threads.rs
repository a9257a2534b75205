//! Servers with I/O threads: thousands of pushes cross pipelined replies, and every frame stays whole.

use crate::harness::*;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;

const WATCHERS: usize = 40;
const WRITERS: usize = 4;
const KEYS_PER_WRITER: usize = 4;

fn key(writer: usize, n: usize) -> String {
    format!("key:{writer}:{n}")
}

fn all_keys() -> Vec<String> {
    (0..WRITERS)
        .flat_map(|writer| (0..KEYS_PER_WRITER).map(move |n| key(writer, n)))
        .collect()
}

/// What the threads of a run share.
struct Run<'a> {
    server: &'a Server,
    start: Barrier,
    /// Set when the writers are done and their pushes handed out.
    over: AtomicBool,
    writers_left: AtomicUsize,
    /// How often each key was toggled.
    toggles: Mutex<HashMap<String, usize>>,
    rounds: usize,
}

impl Run<'_> {
    /// Toggles its keys so many times, in pipelined bunches.
    fn write(&self, writer: usize) {
        let mut client = self.server.resp2();
        self.start.wait();
        for _ in 0..self.rounds {
            let commands: Vec<String> = (0..2 * KEYS_PER_WRITER)
                .map(|n| {
                    format!(
                        "{} {}",
                        if n < KEYS_PER_WRITER { "SET" } else { "DEL" },
                        key(writer, n % KEYS_PER_WRITER)
                    )
                })
                .map(|command| {
                    if command.starts_with("SET") {
                        format!("{command} v")
                    } else {
                        command
                    }
                })
                .collect();
            client.pipeline(&commands.iter().map(String::as_str).collect::<Vec<_>>());
            client.read_replies(commands.len());
        }
        let mut toggles = self.toggles.lock().unwrap();
        toggles.extend((0..KEYS_PER_WRITER).map(|n| (key(writer, n), 2 * self.rounds)));
        drop(toggles);
        if self.writers_left.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.server.settle();
            self.over.store(true, Ordering::SeqCst);
        }
    }

    /// Watches all keys and meanwhile sends bunches of commands, checking each reply and each push. `meanwhile` says
    /// what else it does between the bunches. Returns how many pushes it had for each key.
    fn watch(
        &self,
        number: usize,
        mut client: Client,
        meanwhile: impl Fn(&mut Client, usize),
    ) -> HashMap<String, usize> {
        let mut command = vec!["WATCHEX".to_owned()];
        command.extend(all_keys());
        assert_eq!(
            client.run(command),
            array((0..WRITERS * KEYS_PER_WRITER).map(|_| bulk("NOEXIST")))
        );
        self.start.wait();
        let mut counts: HashMap<String, usize> = HashMap::new();
        let mut bunch = 0;
        loop {
            let last = self.over.load(Ordering::SeqCst);
            bunch += 1;
            meanwhile(&mut client, bunch);
            let marks: Vec<_> = (0..10).map(|n| format!("{number}-{bunch}-{n}")).collect();
            let commands: Vec<_> = marks
                .iter()
                .flat_map(|mark| [format!("ECHO {mark}"), "PING".into(), "GET big".into()])
                .collect();
            client.pipeline(&commands.iter().map(String::as_str).collect::<Vec<_>>());
            for mark in &marks {
                assert_eq!(client.read_reply(), bulk(mark));
                assert_eq!(client.read_reply(), simple("PONG"));
                assert_eq!(client.read_reply(), bulk("x".repeat(5000)));
            }
            for push in client.arrived_pushes() {
                count(&mut counts, &push);
            }
            if last {
                return counts;
            }
        }
    }
}

/// Counts a push, and checks that it is the turn of its event.
fn count(counts: &mut HashMap<String, usize>, push: &str) {
    let words: Vec<_> = push.split(' ').collect();
    let [kind, key, event] = words[..] else {
        panic!("a push of {} words: {push}", words.len())
    };
    if kind == "invalidate" {
        return; // of CLIENT TRACKING
    }
    assert_eq!(kind, "watchex", "{push}");
    let seen = counts.entry(key.to_owned()).or_default();
    assert_eq!(
        event,
        if seen.is_multiple_of(2) { "ADD" } else { "DEL" },
        "push {seen} for {key}"
    );
    *seen += 1;
}

fn run(
    connect: impl Fn(&Server) -> Client + Sync,
    meanwhile: impl Fn(&mut Client, usize) + Sync,
    Much { threads, rounds }: Much,
) {
    let _alone = one_at_a_time();
    let threads = format!("io-threads {threads}");
    let server = Server::with(&[&threads, "client-output-buffer-limit normal 0 0 0"]);
    server.resp2().run(["SET", "big", &"x".repeat(5000)]);
    let run = Run {
        server: &server,
        start: Barrier::new(WATCHERS + WRITERS),
        over: AtomicBool::new(false),
        writers_left: AtomicUsize::new(WRITERS),
        toggles: Mutex::default(),
        rounds,
    };
    let counts: Vec<_> = thread::scope(|scope| {
        let (run, connect, meanwhile) = (&run, &connect, &meanwhile);
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| scope.spawn(move || run.write(writer)))
            .collect();
        let watchers: Vec<_> = (0..WATCHERS)
            .map(|n| scope.spawn(move || run.watch(n, connect(run.server), meanwhile)))
            .collect();
        for writer in writers {
            writer.join().expect("a writer");
        }
        watchers
            .into_iter()
            .map(|watcher| watcher.join().expect("a watcher"))
            .collect()
    });
    let toggles = run.toggles.into_inner().unwrap();
    for (number, counts) in counts.iter().enumerate() {
        assert_eq!(
            *counts, toggles,
            "the pushes of watcher {number} against the writers' toggles"
        );
    }
    let sum: usize = toggles.values().sum();
    say(&format!(
        "{threads}: {sum} toggles, {} pushes, all whole and in turn",
        sum * WATCHERS
    ));
}

/// How many threads serve connections, and how often each key comes and goes.
#[derive(Clone, Copy)]
struct Much {
    threads: usize,
    rounds: usize,
}

/// More threads than processors mostly wait for each other.
const SHORT: Much = Much {
    threads: 2,
    rounds: 400,
};
const LONG: Much = Much {
    threads: 4,
    rounds: 4_000,
};

fn toggled_while_watchers_talk(much: Much) {
    run(Server::resp3, |_, _| {}, much);
}

fn toggled_while_watchers_turn_tracking_on_and_off(much: Much) {
    let meanwhile = |client: &mut Client, bunch: usize| {
        client.run(if bunch.is_multiple_of(2) {
            "CLIENT TRACKING ON"
        } else {
            "CLIENT TRACKING OFF"
        });
    };
    run(Server::resp3, meanwhile, much);
}

fn toggled_while_watchers_reset_themselves(much: Much) {
    let meanwhile = |client: &mut Client, bunch: usize| match bunch % 3 {
        0 => {
            client.run("RESET");
            client.run("HELLO 3");
        }
        1 => {
            client.pipeline(&["CLIENT TRACKING ON", "GET big", "RESET"]);
            client.read_replies(3);
        }
        _ => {
            client.run("HELLO 3");
        }
    };
    run(|server| server.resp3().changing_protocol(), meanwhile, much);
}

#[test]
fn frames_stay_whole_while_watchers_talk() {
    toggled_while_watchers_talk(SHORT);
}

#[test]
fn frames_stay_whole_while_watchers_turn_tracking_on_and_off() {
    toggled_while_watchers_turn_tracking_on_and_off(SHORT);
}

#[test]
fn frames_stay_whole_while_watchers_reset_themselves() {
    toggled_while_watchers_reset_themselves(SHORT);
}

#[test]
#[ignore = "half a minute each: make soak"]
fn frames_stay_whole_for_long() {
    toggled_while_watchers_talk(LONG);
    toggled_while_watchers_turn_tracking_on_and_off(LONG);
    toggled_while_watchers_reset_themselves(LONG);
}

#[test]
fn owners_and_watchers_come_and_go_under_threads() {
    let _alone = one_at_a_time();
    let server = Server::with(&[io_threads()]).over_tcp();
    thread::scope(|scope| {
        for lane in 0..8 {
            let server = &server;
            scope.spawn(move || {
                for round in 0..100 {
                    let key = format!("key:{lane}:{round}");
                    let (mut watcher, mut owner) = (server.resp3(), server.resp3());
                    assert_eq!(
                        watcher.run(["WATCHEX", &key, "shared"]).items()[0],
                        bulk("NOEXIST")
                    );
                    owner.pipeline(&[&format!("SETTP {key} v"), "SETTP shared v", "PING"]);
                    owner.read_replies(3);
                    if round % 2 == 0 {
                        drop(owner)
                    } else {
                        owner.reset()
                    }
                    let mut told = Vec::new();
                    while told
                        .last()
                        .is_none_or(|last| *last != format!("watchex {key} DEL"))
                    {
                        told.push(watcher.next_push());
                    }
                    assert!(told.contains(&format!("watchex {key} ADD")), "{told:?}");
                }
            });
        }
    });
    eventually_equal("the number of keys", int(0), || {
        server.resp2().run("DBSIZE")
    });
}

#[test]
fn a_watcher_of_a_replica_keeps_its_watches_through_transactions() {
    let master = Server::start();
    let replica = Server::replica_of(&master, &["io-threads 4"]);
    let (mut watcher, mut writer) = (replica.resp3(), master.resp2());
    watcher.run("WATCHEX k");
    for _ in 0..3 {
        watcher.run_all(&["MULTI", "PING", "EXEC"]);
        writer.run_all(&["SET k v", "DEL k"]);
        assert_eq!(
            watcher.next_pushes(2),
            ["watchex k ADD", "watchex k DEL"],
            "after a transaction"
        );
        assert_eq!(replica.settled(&mut watcher), [""; 0]);
    }
    assert_eq!(watcher.call("UNWATCHEX"), int(1));
}

/// What docs/commands.md says of it: there the server offers no moment at which the connection could be kept from the
/// threads again, so its watches end.
#[test]
fn on_a_replica_with_threads_tracking_and_reset_end_the_watches() {
    let master = Server::start();
    let replica = Server::replica_of(&master, &["io-threads 4"]);
    if !replica.is_at_least((8, 0), (u32::MAX, 0)) {
        return say("on_a_replica_with_threads_...: only Redis 8 has threads that own connections");
    }
    for commands in [
        &["WATCHEX k", "CLIENT TRACKING ON", "CLIENT TRACKING OFF"][..],
        &["WATCHEX k", "RESET", "HELLO 3"],
        &["WATCHEX k", "MULTI", "CLIENT TRACKING OFF", "EXEC"],
        &["MULTI", "WATCHEX k", "CLIENT TRACKING OFF", "EXEC"],
    ] {
        let (mut watcher, mut writer) = (replica.resp3().changing_protocol(), master.resp2());
        watcher.run_all(commands);
        // The replica has taken in what the master has told it.
        writer.run_all(&["SET k v", "DEL k", "WAIT 1 0"]);
        assert_eq!(replica.settled(&mut watcher), [""; 0], "after {commands:?}");
        assert_eq!(watcher.call("UNWATCHEX"), int(0), "after {commands:?}");
        assert_eq!(watcher.call("WATCHEX k"), bulk("NOEXIST"));
        writer.run("SET k v");
        assert_eq!(watcher.next_push(), "watchex k ADD");
        writer.run_all(&["DEL k", "WAIT 1 0"]);
    }
}

/// The server may refuse it, or queue it: the connection is kept from the threads all the same.
#[test]
fn a_refused_tracking_leaves_a_watcher_where_pushes_reach_it() {
    let server = Server::with(&["io-threads 4"]);
    let mut admin = server.resp2();
    admin.run("ACL SETUSER one on nopass +@all -client|tracking ~*");
    for commands in [
        &["CLIENT TRACKING"][..],
        &["CLIENT TRACKING MAYBE"],
        &["CLIENT TRACKING ON BCAST OPTIN"],
        &["client tracking on redirect none"],
        &["AUTH one x", "CLIENT TRACKING ON"],
        &["MULTI", "CLIENT TRACKING ON"],
        &["MULTI", "CLIENT TRACKING", "EXEC"],
        &["MULTI", "NOSUCH", "RESET nonsense", "EXEC"],
        &["RESET nonsense"],
        &["EXEC"],
    ] {
        let mut watcher = server.resp3().changing_protocol();
        watcher.run("WATCHEX k");
        for command in commands {
            watcher.call(*command);
        }
        admin.run_all(&["SET k v", "DEL k"]);
        assert_eq!(
            watcher.next_pushes(2),
            ["watchex k ADD", "watchex k DEL"],
            "after {commands:?}"
        );
    }
}

/// When its commands were queued, nobody knew the connection yet.
#[test]
fn a_first_watch_beside_tracking_in_a_transaction_is_kept_from_the_threads() {
    let server = Server::with(&["io-threads 4"]);
    if !server.is_at_least((8, 0), (u32::MAX, 0)) {
        return say("a_first_watch_...: only Redis 8 has threads that own connections");
    }
    for commands in [
        &["WATCHEX k", "CLIENT TRACKING OFF"][..],
        &["CLIENT TRACKING OFF", "WATCHEX k"],
        &["CLIENT TRACKING ON", "WATCHEX k", "CLIENT TRACKING OFF"],
    ] {
        let mut watcher = server.resp3().changing_protocol();
        let id = watcher.run("CLIENT ID").number();
        watcher.run_all(&[&["MULTI"], commands, &["EXEC"]].concat());
        // A connection that is given to a thread is given after its command.
        watcher.run_all(&["PING"; 3]);
        let line = server.resp2().run(&format!("CLIENT LIST ID {id}")).text();
        let is_kept = line.split_whitespace().any(|field| field == "io-thread=0");
        assert!(is_kept, "{commands:?}: {line}");
    }
}

/// Both want to be told of each turn of the server's event loop.
#[test]
fn grants_are_acknowledged_while_connections_are_kept_from_threads() {
    let server = Server::with(&["io-threads 4"]);
    let replica = Server::replica_of(&server, &[]);
    server.await_replicas(1);
    let (mut owner, mut watcher) = (server.resp3(), server.resp3().changing_protocol());
    let mut admin = server.resp2();
    owner.run("SESSION.START GRACE 60000");
    watcher.run("WATCHEX k");
    for round in 0..3 {
        Server::signal(replica.pid(), libc::SIGSTOP);
        owner.send("LOCK.ACQUIRE lock ACKS 1 ACKTIMEOUT 600000");
        eventually_equal("a grant that waits", 1, || {
            server.gauge("tether", "tether_grants_pending")
        });
        // What is postponed is looked after in the event loop.
        admin.run("CLIENT PAUSE 100000 WRITE");
        watcher.send("RESET");
        watcher.send("CLIENT TRACKING OFF");
        admin.run("CLIENT UNPAUSE");
        watcher.read_replies(2);
        Server::signal(replica.pid(), libc::SIGCONT);
        assert!(owner.read_reply().number() > 0, "round {round}");
        owner.run("LOCK.RELEASE lock");
        watcher.run_all(&["HELLO 3", "WATCHEX k"]);
        // Nobody waits for acknowledgements any more, and the other one is told still.
        admin.run_all(&["SET k v", "DEL k"]);
        assert_eq!(watcher.next_pushes(2), ["watchex k ADD", "watchex k DEL"]);
    }
}

#[test]
fn a_flush_under_threads_is_told_by_watchex_pushes_alone() {
    for connect in [Server::resp2, Server::resp3] {
        let server = Server::with(&["io-threads 4"]);
        let (mut watcher, mut other) = (connect(&server), server.resp2());
        watcher.run("WATCHEX k");
        for flush in ["FLUSHALL", "FLUSHDB ASYNC", "DEBUG RELOAD", "SWAPDB 1 2"] {
            other.run_all(&["SET k v", flush, "DEL k"]);
            assert_eq!(
                server.settled(&mut watcher),
                ["watchex k ADD", "watchex k DEL"],
                "{flush}"
            );
        }
        watcher.send("FLUSHALL");
        assert_eq!(watcher.next(), reply(ok()), "its own flush of nothing");
        assert_eq!(server.settled(&mut watcher), [""; 0]);
    }
}
