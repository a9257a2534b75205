//! The guard of `tether run`, alone: the tests are its runner.

#![cfg(target_os = "linux")]

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tether_testing::process::ended;

const PATIENCE: Duration = Duration::from_secs(30);

/// A time that no test waits out.
const LONG: Duration = Duration::from_secs(600);

const SHORT: Duration = Duration::from_millis(300);

fn now() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    u64::try_from(now.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap()
}

fn after(time: Duration) -> u64 {
    now() + u64::try_from(time.as_nanos()).unwrap()
}

/// A guard with a command that keeps a pipe open in all its processes, and the runner's end of its socket.
struct Guarded {
    guard: Child,
    socket: BufReader<UnixStream>,
    /// When the last process of the command was gone.
    all_dead: Receiver<Instant>,
    folder: TempDir,
}

impl Guarded {
    /// `script` is for sh, whose descriptor 9 stays open as long as any process of it lives.
    fn start(alive_for: Duration, kill_after: Duration, script: &str) -> Guarded {
        let folder = TempDir::with_prefix("tether-guard-").unwrap();
        let pipe = folder.path().join("pipe");
        let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let script = format!("exec 9>{}; {script}", pipe.display());
        let mut guarded =
            Guarded::with(folder, after(alive_for), kill_after, &["sh", "-c", &script]);
        assert_eq!(guarded.word(), "started");
        // Opening it waits for the other side.
        let (say, all_dead) = mpsc::channel();
        let (opened, is_open) = mpsc::channel();
        thread::spawn(move || {
            let mut pipe = File::open(pipe).unwrap();
            opened.send(()).unwrap();
            let _ = pipe.read_to_end(&mut Vec::new());
            let _ = say.send(Instant::now());
        });
        is_open.recv_timeout(PATIENCE).expect("the command begins");
        guarded.all_dead = all_dead;
        guarded
    }

    fn with(folder: TempDir, until: u64, kill_after: Duration, command: &[&str]) -> Guarded {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(Some(PATIENCE)).unwrap();
        let group = rustix::process::getpgrp().as_raw_nonzero().get();
        let on_loss = Signal::TERM.as_raw();
        let mut guard = Command::new(env!("CARGO_BIN_EXE_tether"));
        guard.arg("--as-guard").args([
            theirs.as_raw_fd().to_string(),
            until.to_string(),
            kill_after.as_nanos().to_string(),
            on_loss.to_string(),
            group.to_string(),
        ]);
        guard.args(command).process_group(0).stdin(Stdio::null());
        guard.current_dir(folder.path());
        // Other tests start programs at the same time, which then have this end too, until they are executed: the guard's
        // copy alone is without the flag for good.
        let guard = {
            let _alone = ONE_AT_A_TIME
                .lock()
                .unwrap_or_else(|poison| poison.into_inner());
            fcntl_setfd(&theirs, FdFlags::empty()).unwrap();
            let guard = guard.spawn().unwrap();
            fcntl_setfd(&theirs, FdFlags::CLOEXEC).unwrap();
            guard
        };
        Guarded {
            guard,
            socket: BufReader::new(ours),
            all_dead: mpsc::channel().1,
            folder,
        }
    }

    fn say(&mut self, word: &str) {
        writeln!(self.socket.get_mut(), "{word}").unwrap();
    }

    /// What the guard says next.
    fn word(&mut self) -> String {
        let mut line = String::new();
        self.socket
            .read_line(&mut line)
            .expect("a word of the guard");
        line.trim_end().to_owned()
    }

    /// All processes are gone, and then the guard goes.
    fn all_gone(&mut self) {
        self.all_dead
            .recv_timeout(PATIENCE)
            .expect("all processes of the command are dead");
        ended(&mut self.guard);
    }

    fn is_running(&self) -> bool {
        self.all_dead.try_recv().is_err()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn eventually_file(&self, name: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match fs::read_to_string(self.file(name)) {
                Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
                other => assert!(Instant::now() < deadline, "{name}: {other:?}"),
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn guards_pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.guard.id()).unwrap()).unwrap()
    }
}

static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = self.guard.kill();
        let _ = self.guard.wait();
    }
}

/// Commands that are hard to end.
const HARD: [(&str, &str); 7] = [
    ("plain", "while :; do sleep 1; done"),
    ("ignores TERM", "trap '' TERM; while :; do sleep 1; done"),
    (
        "forked twice",
        "(trap '' TERM; (while :; do sleep 1; done) & ) & while :; do sleep 1; done",
    ),
    (
        "a session of its own",
        "trap '' TERM; setsid sh -c 'while :; do sleep 1; done' & while :; do sleep 1; done",
    ),
    (
        "leaves a daemon and ends",
        "trap '' TERM; (setsid sh -c '(while :; do sleep 1; done) &' &); while :; do sleep 1; done",
    ),
    (
        "stopped",
        "trap '' TERM; (kill -STOP $$) & while :; do sleep 1; done",
    ),
    (
        "forks all the time",
        "trap '' TERM; echo '[ $1 -gt 0 ] && sh chain $(($1 - 1)) &' > chain; sh chain 20000; while :; do sleep 1; done",
    ),
];

#[test]
fn a_silent_runner_costs_the_command_and_all_its_kin_their_lives() {
    for (name, script) in HARD {
        let mut guarded = Guarded::start(SHORT, SHORT, script);
        assert_eq!(guarded.word().split(' ').next(), Some("done"), "{name}");
        guarded.all_gone();
    }
}

#[test]
fn a_killed_runner_does_too() {
    for (name, script) in HARD {
        let mut guarded = Guarded::start(LONG, SHORT, script);
        assert!(guarded.is_running(), "{name}");
        guarded
            .socket
            .get_mut()
            .shutdown(std::net::Shutdown::Both)
            .unwrap();
        guarded.all_gone();
    }
}

#[test]
fn so_does_a_loss_that_is_told() {
    for (name, script) in HARD {
        let mut guarded = Guarded::start(LONG, SHORT, script);
        guarded.say("lost");
        let word = guarded.word();
        assert!(word.starts_with("done lost 1"), "{name}: {word}");
        guarded.all_gone();
    }
}

#[test]
fn promises_keep_the_command_alive_and_its_code_comes_back() {
    let script = "while [ ! -e enough ]; do sleep 0.05; done; exit 7";
    let mut guarded = Guarded::start(Duration::from_secs(2), LONG, script);
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(3) {
        guarded.say(&format!("alive {}", after(Duration::from_secs(30))));
        thread::sleep(Duration::from_millis(50));
    }
    assert!(guarded.is_running());
    fs::write(guarded.file("enough"), "").unwrap();
    assert_eq!(guarded.word(), "done command 7");
    guarded.all_gone();
}

#[test]
fn a_command_that_ends_by_a_signal_is_told_from_one_that_exits() {
    let mut guarded = Guarded::start(LONG, LONG, "kill -USR1 $$");
    assert_eq!(guarded.word(), "done command 138 signal");
    let mut guarded = Guarded::start(LONG, LONG, "exit 138");
    assert_eq!(guarded.word(), "done command 138");
}

#[test]
fn what_a_command_leaves_behind_is_ended_before_the_guard_says_done() {
    let script = "trap '' TERM; setsid sh -c 'while :; do sleep 1; done' & exit 3";
    let mut guarded = Guarded::start(LONG, SHORT, script);
    assert_eq!(guarded.word(), "done command 3");
    guarded.all_gone();
}

#[test]
fn the_signal_comes_first_and_to_all_processes() {
    let script = "
        trap 'echo ended > parent; exit 5' TERM
        sh -c 'trap \"echo ended > child; exit\" TERM; echo ready > ready; while :; do sleep 0.05; done' &
        while :; do sleep 0.05; done";
    let mut guarded = Guarded::start(LONG, LONG, script);
    guarded.eventually_file("ready");
    guarded.say("lost");
    assert_eq!(guarded.word(), "done lost 5");
    assert_eq!(guarded.eventually_file("parent"), "ended");
    assert_eq!(guarded.eventually_file("child"), "ended");
    guarded.all_gone();
}

#[test]
fn signals_are_passed_on_to_the_command() {
    let script =
        "trap 'echo heard > heard; exit 9' USR1; echo ready > ready; while :; do sleep 0.05; done";
    let mut guarded = Guarded::start(LONG, LONG, script);
    guarded.eventually_file("ready");
    guarded.say(&format!("signal {}", Signal::USR1.as_raw()));
    assert_eq!(guarded.word(), "done command 9");
    assert_eq!(guarded.eventually_file("heard"), "heard");
}

#[test]
fn a_stop_from_the_terminal_is_reported() {
    let script = "kill -TSTP $$; while :; do sleep 1; done";
    let mut guarded = Guarded::start(LONG, SHORT, script);
    assert_eq!(guarded.word(), "stopped");
    guarded.say("lost");
    assert!(guarded.word().starts_with("done lost"));
    guarded.all_gone();
}

#[test]
fn a_command_that_cannot_be_executed_is_told() {
    let not_there = ["/nowhere/at-all"];
    for (command, errno) in [(not_there, "2"), (["/etc/passwd"], "13")] {
        let folder = TempDir::with_prefix("tether-guard-").unwrap();
        let mut guarded = Guarded::with(folder, after(LONG), SHORT, &command);
        assert_eq!(guarded.word(), format!("not-started {errno}"));
        assert!(ended(&mut guarded.guard).success());
    }
}

#[test]
fn nothing_is_started_once_the_deadline_has_passed() {
    let folder = TempDir::with_prefix("tether-guard-").unwrap();
    let command = ["sh", "-c", "echo started > started"];
    let mut guarded = Guarded::with(folder, now(), LONG, &command);
    assert_eq!(guarded.word(), "done deadline 0");
    assert!(ended(&mut guarded.guard).success());
    assert!(!guarded.file("started").exists());
}

#[test]
fn a_guard_that_is_asked_to_end_ends_the_command_first() {
    let mut guarded = Guarded::start(LONG, SHORT, HARD[2].1);
    kill_process(guarded.guards_pid(), Signal::TERM).unwrap();
    assert!(guarded.word().starts_with("done runner"));
    guarded.all_gone();
}

#[test]
fn signals_of_the_terminal_do_not_stop_a_guard() {
    let mut guarded = Guarded::start(LONG, SHORT, HARD[0].1);
    for signal in [
        Signal::TSTP,
        Signal::TTIN,
        Signal::TTOU,
        Signal::USR1,
        Signal::USR2,
    ] {
        kill_process(guarded.guards_pid(), signal).unwrap();
    }
    guarded.say("lost");
    assert!(guarded.word().starts_with("done lost"));
    guarded.all_gone();
}

#[test]
fn the_command_has_no_descriptors_of_the_guard() {
    let script = "ls -l /proc/self/fd | grep -cE 'socket|timerfd' > found; exit 0";
    let mut guarded = Guarded::start(LONG, SHORT, script);
    assert_eq!(guarded.word(), "done command 0");
    assert_eq!(guarded.eventually_file("found"), "0");
}
