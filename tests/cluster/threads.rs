//! Servers with I/O threads, some of which ask there already where a command's keys stand: also that of a client that has not
//! said who it is.

use crate::harness::*;
use crate::line::tether;
use crate::nodes::{AGREEMENT, Cluster, name_in};
use std::thread;

const CLIENTS: usize = 12;
const ROUNDS: usize = 150;
const COMMANDS: usize = 40;
/// Servers hang up on a client that has not said who it is and leaves 1 kB of replies unread, by their own count: with I/O threads
/// also on one that reads each. It connects anew.
const UNKNOWN_AT_ONCE: usize = 20;

/// What a client pipelines, with keys that begin like this: commands whose keys depend on their arguments, and one write.
fn bunch(tag: &str) -> Vec<String> {
    let mut commands: Vec<_> = (0..COMMANDS)
        .map(|number| match number % 4 {
            0 => format!("LOCK.MACQUIRE 2 {tag}a {tag}b"),
            1 => format!("LOCK.GUARD {tag}a 1 GET {tag}x"),
            2 => format!("LOCK.GUARD {tag}a 1 MSET {tag}x 1 {tag}y 2"),
            _ => format!("LOCK.RELEASE {tag}a"),
        })
        .collect();
    commands.push(format!("INCR {tag}count"));
    commands
}

/// Clients of whom half may give no command, and what becomes of the writes of the others.
fn pipelined_at(server: &mut Server) {
    let mut admin = server.resp2();
    let mut may: Vec<_> = (0..CLIENTS / 2).map(|_| server.resp2()).collect();
    for client in &mut may {
        client.run("PING"); // it is there before a password is wanted
    }
    admin.run("CONFIG SET requirepass secret");
    let port = server.port();
    thread::scope(|scope| {
        for (number, mut client) in may.into_iter().enumerate() {
            scope.spawn(move || {
                let commands = bunch(&format!("{{k{number}}}"));
                let commands: Vec<_> = commands.iter().map(String::as_str).collect();
                for round in 1..=ROUNDS {
                    client.pipeline(&commands);
                    let replies = client.read_replies(commands.len());
                    assert_eq!(replies[COMMANDS], int(round as i64));
                }
            });
        }
        for number in CLIENTS / 2..CLIENTS {
            scope.spawn(move || {
                let commands = bunch(&format!("{{k{number}}}"));
                let connect = || Client::connect(("127.0.0.1", port)).expect("connects");
                let mut client = connect();
                let mut refused = 0;
                for _ in 0..ROUNDS {
                    for commands in commands.chunks(UNKNOWN_AT_ONCE) {
                        let is_sent =
                            client.try_send_bytes((commands.join("\r\n") + "\r\n").as_bytes());
                        let replies = (0..commands.len()).map_while(|_| client.try_read_reply());
                        let replies: Vec<_> = replies.collect();
                        assert!(replies.iter().all(is_unknown), "{replies:?}");
                        refused += replies.len();
                        if !is_sent || replies.len() < commands.len() {
                            client = connect();
                        }
                    }
                }
                assert!(refused > ROUNDS, "{refused} were refused");
            });
        }
    });
    admin.run("CONFIG SET requirepass \"\"");
    // What was written is in the file.
    server.crash_and_restart();
    let mut client = server.resp2();
    for number in 0..CLIENTS / 2 {
        // A cluster may be down for a moment.
        eventually_equal("the counter", bulk(ROUNDS.to_string()), || {
            client.call(&format!("GET {{k{number}}}count"))
        });
    }
}

fn is_unknown(reply: &Frame) -> bool {
    matches!(reply, Frame::Error(text) if text.starts_with(b"NOAUTH"))
}

fn lines() -> [&'static str; 3] {
    [io_threads(), "appendonly yes", "appendfsync always"]
}

#[test]
fn commands_whose_keys_depend_on_their_arguments_do_no_harm_in_io_threads() {
    let _alone = one_at_a_time();
    pipelined_at(&mut Server::with(&lines()));
}

#[test]
fn nor_do_they_in_a_cluster() {
    let _alone = one_at_a_time();
    pipelined_at(&mut Cluster::of_masters(1, &lines()).servers[0]);
}

const SLOT: u16 = 11;
/// Keys of nobody's in the slot, so that its move takes some time.
const PLAIN: usize = 40_000;

/// Pipelines until the slot is another server's: how often it has counted.
fn count_until_moved(mut client: Client, tag: &str) -> i64 {
    let commands = bunch(tag);
    let commands: Vec<_> = commands.iter().map(String::as_str).collect();
    for round in 1.. {
        client.pipeline(&commands);
        match client.read_replies(commands.len()).pop() {
            Some(Frame::Integer(count)) => assert_eq!(count, round),
            Some(Frame::Error(text)) if text.starts_with(b"MOVED") => return round - 1,
            other => panic!("{other:?}"),
        }
    }
    unreachable!("the slot moves")
}

/// What was counted before is where the slot is, and whoever held something there has heard of it.
#[test]
fn a_slot_moves_in_one_go_under_their_traffic() {
    let _alone = one_at_a_time();
    let cluster = Cluster::of_masters(2, &lines());
    if !cluster.can_move_in_one_go() {
        return;
    }
    let (source, target) = (&cluster.servers[0], &cluster.servers[1]);
    let tag = name_in(SLOT);
    let held = format!("{{{tag}}}held");
    let mut owner = source.resp3();
    owner.run(["LOCK.ACQUIRE", &held, "NOTIFY"]);
    source
        .resp2()
        .run(&format!("DEBUG POPULATE {PLAIN} {{{tag}}}plain"));
    let tags = { 0..CLIENTS }.map(|client| format!("{{{tag}}}{client}"));
    let tags: Vec<_> = tags.collect();
    let counts: Vec<_> = thread::scope(|scope| {
        let counting: Vec<_> = { tags.iter() }
            .map(|tag| {
                let client = source.resp2();
                scope.spawn(move || count_until_moved(client, tag))
            })
            .collect();
        cluster.begin_to_move(SLOT, 0, 1);
        let counts = counting.into_iter().map(|one| one.join());
        counts.map(|count| count.expect("it has counted")).collect()
    });
    assert_eq!(
        owner.next_push_within(AGREEMENT),
        format!("lock {held} LOST moved")
    );
    let mut client = target.resp2();
    for (tag, count) in tags.iter().zip(counts) {
        let expected = if count == 0 {
            null()
        } else {
            bulk(count.to_string())
        };
        eventually_equal("the counter", expected, || {
            client.call(&format!("GET {tag}count"))
        });
    }
    eventually_equal("holds", 0, || tether(source, "holds"));
    assert_eq!(tether(target, "holds"), 0);
}
