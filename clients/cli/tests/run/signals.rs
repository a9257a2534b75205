//! Signals: whatever is sent, at whatever moment, reaches the command or ends `tether run`, and whoever waits for that sees it.

use super::{Running, World, eventually_over, text};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tether_testing::harness::{Client, Server, eventually, eventually_equal, null};
use tether_testing::process::ended;

/// How a process has ended that is to end by a signal soon: its exit code, -n if signal n ended it.
fn end_of(process: &mut Child) -> i32 {
    let status = ended(process);
    status.code().unwrap_or_else(|| -status.signal().unwrap())
}

/// Ends a process that a test has given up.
struct Waiting(Child);

impl Waiting {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// It waits for the lock, which this client holds.
fn waiting(world: &World, options: &[&str]) -> (Client, Waiting) {
    let mut holder = world.server.resp3();
    eventually("the lock", || match holder.run("LOCK.ACQUIRE report") {
        reply if reply == null() => Err("it is held".to_owned()),
        _ => Ok(()),
    });
    let arguments = [options, &["report", "--", "sleep", "1000"]].concat();
    let process = world.tether(&arguments).spawn().unwrap();
    eventually_equal("its wait", 1, || world.waiters());
    (holder, Waiting(process))
}

/// A terminal that is a session's own, as `setsid --ctty` makes it of its standard input.
struct Terminal {
    ours: File,
    name: std::ffi::OsString,
}

impl Terminal {
    fn open() -> Terminal {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        Terminal {
            ours: File::from(ours),
            name: std::ffi::OsStr::from_bytes(name.as_bytes()).to_owned(),
        }
    }

    /// The command in a session of its own, on this terminal. Its process is the command's.
    fn start(&self, world: &World, arguments: &[&str]) -> Waiting {
        let screen = OpenOptions::new().read(true).write(true).open(&self.name);
        let mut command = Command::new("setsid");
        command.arg("--ctty").args(arguments);
        command.current_dir(world.folder.path());
        command.env(
            "TETHER_URL",
            format!("redis://127.0.0.1:{}", world.server.port()),
        );
        let process = command.stdin(screen.unwrap()).stdout(Stdio::null()).spawn();
        Waiting(process.unwrap())
    }

    fn interrupt(&mut self) {
        self.ours.write_all(b"\x03").unwrap();
    }
}

const TETHER: &str = env!("CARGO_BIN_EXE_tether");

#[test]
fn signals_for_the_runner_reach_the_command() {
    let world = World::new();
    let mut running = world.start_heeding(&[], "echo usr1 > heard", "USR1");
    running.signal(Signal::USR1);
    assert_eq!(world.eventually_file("heard"), "usr1");
    running.signal(Signal::INT);
    assert_eq!(running.end().0, -2);
    assert_eq!(world.holds(), 0);
}

/// The lock is granted while the process is stopped, and the signal comes before it goes on: it finds both.
#[test]
fn a_signal_that_comes_with_the_grant_is_not_swallowed() {
    let world = World::new();
    for signal in [Signal::TERM, Signal::USR1, Signal::HUP, Signal::INT].repeat(4) {
        let (mut holder, mut waiting) = waiting(&world, &[]);
        waiting.signal(Signal::STOP);
        holder.run("LOCK.RELEASE report");
        eventually_equal("its hold", 1, || world.holds());
        waiting.signal(signal);
        waiting.signal(Signal::CONT);
        assert_eq!(end_of(&mut waiting.0), -signal.as_raw());
    }
}

/// As long after the release as a grant and a start may take, in small steps.
fn moments() -> impl Iterator<Item = Duration> {
    (0..30).map(|step| Duration::from_micros(step * 400))
}

fn pass(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        std::hint::spin_loop();
    }
}

#[test]
fn nor_is_one_at_any_moment_after_it() {
    let world = World::new();
    for moment in moments() {
        let (mut holder, mut waiting) = waiting(&world, &[]);
        holder.run("LOCK.RELEASE report");
        pass(moment);
        waiting.signal(Signal::TERM);
        assert_eq!(end_of(&mut waiting.0), -15, "{moment:?}");
    }
}

#[test]
fn nor_is_one_of_the_terminal() {
    let world = World::new();
    let mut terminal = Terminal::open();
    for moment in moments() {
        let mut holder = world.server.resp3();
        eventually("the lock", || match holder.run("LOCK.ACQUIRE report") {
            reply if reply == null() => Err("it is held".to_owned()),
            _ => Ok(()),
        });
        let words = [TETHER, "run", "report", "--", "sleep", "1000"];
        let mut waiting = terminal.start(&world, &words);
        eventually_equal("its wait", 1, || world.waiters());
        holder.run("LOCK.RELEASE report");
        pass(moment);
        terminal.interrupt();
        assert_eq!(end_of(&mut waiting.0), -2, "{moment:?}");
        terminal = Terminal::open();
    }
}

/// A shell ends a script where a command has ended by the signal, and not where that has exited with a code.
#[test]
fn an_interrupted_script_does_not_go_on() {
    let script = "\"$1\" run report -- sh -c 'echo $$ > began; exec sleep 1000'; echo next > next";
    let world = World::new();
    let mut terminal = Terminal::open();
    let mut shell = terminal.start(&world, &["bash", "-c", script, "script", TETHER]);
    world.eventually_file("began");
    terminal.interrupt();
    end_of(&mut shell.0);
    assert!(!world.file("next").exists());
    assert_eq!(world.holds(), 0);
}

#[test]
fn how_the_command_ended_is_how_it_ends() {
    let world = World::new();
    let end = |script: &str| {
        let output = world.run(&["report", "--", "sh", "-c", script]);
        assert_eq!(text(&output.stderr), "");
        (output.status.code(), output.status.signal())
    };
    assert_eq!(end("exit 143"), (Some(143), None));
    for (name, number) in [("TERM", 15), ("KILL", 9), ("SEGV", 11), ("USR2", 12)] {
        assert_eq!(end(&format!("kill -{name} $$")), (None, Some(number)));
    }
}

/// With a grace that nobody waits out.
#[test]
fn who_is_interrupted_while_it_waits_leaves_nothing() {
    let world = World::new();
    for signal in [Signal::INT, Signal::USR1] {
        let (mut holder, mut waiting) = waiting(&world, &["--grace", "1h"]);
        waiting.signal(signal);
        assert_eq!(end_of(&mut waiting.0), -signal.as_raw());
        eventually_equal("no wait", 0, || world.waiters());
        let sessions = ["tether_sessions_attached", "tether_sessions_detached"];
        eventually_equal("no session", [0, 0], || {
            world.server.gauges("tether", sessions)
        });
        holder.run("LOCK.RELEASE report");
        let mut next = world.server.resp3();
        assert_ne!(next.run("LOCK.ACQUIRE report"), null());
    }
}

#[test]
fn who_is_told_to_end_does_not_wait_for_a_server_that_is_silent() {
    let world = World::new();
    let script = "while [ ! -e enough ]; do sleep 0.02; done; echo done > done; exit 3";
    let mut running: Running = world.start(&["--grace", "1h"], script);
    let guard = running.guard();
    Server::signal(world.server.pid(), Signal::STOP.as_raw());
    fs::write(world.file("enough"), "").unwrap();
    world.eventually_file("done");
    // Until the command has ended, it is the command that gets it.
    eventually_over("the guard", guard);
    running.signal(Signal::TERM);
    assert_eq!(running.end().0, 3);
    Server::signal(world.server.pid(), Signal::CONT.as_raw());
}
