//! The crash matrix: kill -9 at a random moment of a random workload, then a new start in the same folder. What is there
//! is held against what clients were told:
//!
//! - no ghost: every temporary key and lock of the dead connections goes, and refuses no newcomer before;
//! - plain keys are as the files promise: with `appendfsync always` all that was acknowledged, with RDB files those of
//!   one of the moments at which they were saved;
//! - no token is given twice, and all later tokens are greater;
//! - nothing rises again at a second start.
//!
//! Every history follows from its seed (but for the moment at which the kill falls into it). TETHER_SEED takes
//! another one, TETHER_STEPS so many rounds.

mod answers;
mod workload;

use crate::harness::*;
use crate::random::{self, Random};
use answers::{Answers, State};
use std::time::Duration;
use std::{fs, thread};
use workload::{Workload, key_names};

/// What a server writes to disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Disk {
    Aof,
    Rdb,
    Both,
}

impl Disk {
    fn lines(self, dice: &mut Random) -> Vec<String> {
        let preamble = dice.pick(&["yes", "no"]);
        let mut lines = vec![format!("aof-use-rdb-preamble {preamble}")];
        if self != Disk::Rdb {
            lines.push("appendonly yes".into());
            lines.push("appendfsync always".into());
        }
        lines
    }
}

fn round(seed: u64, disk: Disk) {
    let mut dice = Random::new(seed);
    let lines = disk.lines(&mut dice);
    let lines: Vec<_> = lines.iter().map(String::as_str).collect();
    let mut server = Server::with(&lines);
    let mut answers = Answers::nothing();
    // The second life begins with what the first has left.
    for life in 1..=2 {
        let what = format!("TETHER_SEED={seed}, {disk:?}, life {life}");
        live_and_crash(&server, disk, &mut dice, &mut answers);
        if disk == Disk::Rdb {
            answers.now.clone_from(&answers.saved);
        }
        for start in 1..=2 {
            let what = format!("{what}, start {start}");
            answers.server_ended();
            answers.wait_for_lapses();
            server.crash_and_restart();
            if start == 2 || dice.per_mille(500) {
                newcomers_are_not_refused(&server, &mut answers, &what);
            }
            only_plain_keys_are_left(&server, &mut answers, &what);
        }
    }
}

/// Lets the workload run until the server is killed in the middle of it.
fn live_and_crash(server: &Server, disk: Disk, dice: &mut Random, answers: &mut Answers) {
    let pid = server.pid();
    let after = Duration::from_micros(dice.below(150_000) as u64);
    let killer = thread::spawn(move || {
        thread::sleep(after);
        Server::signal(pid, libc::SIGKILL);
    });
    Workload::new(server, disk, dice, answers).run();
    killer.join().expect("the killer");
    wait_for_orphans(server);
}

/// A child that was saving goes on, and its file may take the place of the last one.
fn wait_for_orphans(server: &Server) {
    let saving = |name: &str| {
        let pid = name.strip_prefix("temp-")?.strip_suffix(".rdb")?;
        let pid: libc::pid_t = pid.parse().ok()?;
        // SAFETY: signal 0 only asks whether there is such a process.
        (pid != server.pid() && unsafe { libc::kill(pid, 0) } == 0).then_some(pid)
    };
    eventually("the end of saving", || {
        let files = fs::read_dir(server.folder()).expect("the server's folder");
        let names = files.map(|file| file.expect("a file").file_name());
        let mut saving = names.filter_map(|name| saving(name.to_str()?));
        saving.next().map_or(Ok(()), |pid| Err(pid.to_string()))
    });
}

/// The first request for each key is granted, unless a plain key stands there.
fn newcomers_are_not_refused(server: &Server, answers: &mut Answers, what: &str) {
    let mut newcomer = server.resp2();
    let keys = key_names();
    let requests: Vec<_> = keys
        .iter()
        .enumerate()
        .map(|(place, key)| match place % 2 {
            0 => format!("SETTP {key} newcomer TOKEN"),
            _ => format!("LOCK.ACQUIRE {key}"),
        })
        .collect();
    // In one piece, so that nothing has time to be cleared away.
    newcomer.pipeline(&requests.iter().map(String::as_str).collect::<Vec<_>>());
    for (request, key) in requests.iter().zip(&keys) {
        let what = format!("{what}: a newcomer's {request}");
        let reply = newcomer.read_reply();
        answers.note(format!(
            "a newcomer's {request} hears {reply:?}, of {:?}",
            answers.now
        ));
        match reply {
            Frame::Integer(token) if token > 0 => {
                answers.granted(token, &format!("{what} on {}", server.pid()), &what);
                answers.now.retain(|state| !state.contains_key(key));
            }
            refused => {
                answers.now.retain(|state| state.contains_key(key));
                assert!(!answers.now.is_empty(), "{what} is answered {refused:?}");
            }
        }
        assert!(!answers.now.is_empty(), "{what}: a plain key is missing");
    }
    newcomer.run("QUIT");
    newcomer.expect_closed();
}

/// In the end exactly the plain keys of one of the states are there.
fn only_plain_keys_are_left(server: &Server, answers: &mut Answers, what: &str) {
    let mut looker = server.resp2();
    let seen = eventually(&format!("{what}: the end of what was bound"), || {
        let seen = plain_keys(&mut looker);
        if answers.now.contains(&seen) {
            Ok(seen)
        } else {
            Err(format!("{seen:?}, of {:?}", answers.now))
        }
    });
    answers.found(seen);
}

fn plain_keys(looker: &mut Client) -> State {
    let names = looker.run("KEYS *").items();
    let names = names.iter().map(Frame::text);
    let value = |name: String| {
        let value = match looker.call(["GET", &name]) {
            Frame::Null => return None,
            Frame::Bulk(bytes) => String::from_utf8(bytes).expect("text"),
            other => other.text(),
        };
        Some((name, value))
    };
    names.filter_map(value).collect()
}

fn rounds(disk: Disk, usual: usize) {
    let first = random::seed();
    for seed in (first..).take(random::steps(usual)) {
        round(seed, disk);
    }
}

#[test]
fn no_ghosts_after_a_crash_with_an_append_only_file() {
    rounds(Disk::Aof, 4);
}

#[test]
fn no_ghosts_after_a_crash_with_snapshots() {
    rounds(Disk::Rdb, 4);
}

#[test]
fn no_ghosts_after_a_crash_with_both() {
    rounds(Disk::Both, 4);
}

#[test]
#[ignore = "200 rounds of two crashes each; some minutes"]
fn no_ghosts_after_hundreds_of_crashes() {
    let first = random::seed();
    say(&format!("crashes from TETHER_SEED={first} on"));
    for (seed, place) in (first..).zip(0..random::steps(200)) {
        round(seed, [Disk::Aof, Disk::Rdb, Disk::Both][place % 3]);
    }
}
