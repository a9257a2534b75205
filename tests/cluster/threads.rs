//! Servers with I/O threads, some of which ask there already where a command's keys stand: also that of a client that has not
//! said who it is.

use crate::harness::*;
use crate::nodes::Cluster;
use std::thread;

const CLIENTS: usize = 12;
const ROUNDS: usize = 150;
const COMMANDS: usize = 40;

/// What a client pipelines: commands whose keys depend on their arguments, and one write.
fn bunch(client: usize) -> Vec<String> {
    let tag = format!("{{k{client}}}");
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
    let may_not = (0..CLIENTS / 2).map(|_| server.resp2());
    let clients: Vec<_> = may.into_iter().chain(may_not).enumerate().collect();
    thread::scope(|scope| {
        for (number, mut client) in clients {
            scope.spawn(move || {
                let commands = bunch(number);
                let commands: Vec<_> = commands.iter().map(String::as_str).collect();
                for round in 1..=ROUNDS {
                    client.pipeline(&commands);
                    let replies = client.read_replies(commands.len());
                    match number < CLIENTS / 2 {
                        true => assert_eq!(replies[COMMANDS], int(round as i64)),
                        false => assert!(replies.iter().all(is_unknown), "{replies:?}"),
                    }
                }
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

const LINES: &[&str] = &["io-threads 4", "appendonly yes", "appendfsync always"];

#[test]
fn commands_whose_keys_depend_on_their_arguments_do_no_harm_in_io_threads() {
    let _alone = one_at_a_time();
    pipelined_at(&mut Server::with(LINES));
}

#[test]
fn nor_do_they_in_a_cluster() {
    let _alone = one_at_a_time();
    pipelined_at(&mut Cluster::of_masters(1, LINES).servers[0]);
}
