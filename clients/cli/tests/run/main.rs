//! `tether run` on a real server.
//!
//! - signals.rs: signals at every moment    patience.rs: how long it waits, and for what
//! - descriptors.rs: what its processes have open    options.rs: what else can be asked for
//! - failover.rs: another master    elect.rs: `tether elect`

#![cfg(target_os = "linux")]

mod descriptors;
mod elect;
mod failover;
mod options;
mod patience;
mod signals;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::fs;
use std::io::Write;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;
use tempfile::TempDir;
use tether_testing::harness::{Server, eventually, eventually_equal, int, null};
use tether_testing::process::ended;

/// With times so short that a test can wait them out, and no shorter than a busy machine can keep.
const SHORT: [&str; 4] = ["--grace", "5s", "--kill-after", "1s"];

struct World {
    server: Server,
    folder: TempDir,
}

impl World {
    fn new() -> World {
        World::with(&[])
    }

    fn with(lines: &[&str]) -> World {
        World {
            server: Server::with(lines),
            folder: TempDir::with_prefix("tether-run-").unwrap(),
        }
    }

    fn tether(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tether"));
        command.arg("run").args(arguments);
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        let url = format!("redis://127.0.0.1:{}", self.server.port());
        command.env("TETHER_URL", url);
        // So that signals to a group do not reach this test.
        command.process_group(0);
        command
    }

    /// As texts name the server.
    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.server.port())
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.tether(arguments).output().unwrap()
    }

    /// Starts it with a script that says in a file when it runs.
    fn start(&self, options: &[&str], script: &str) -> Running {
        self.await_began(options, &format!("echo $$ > began; {script}"))
    }

    /// Starts it with a script that does this at a signal, and nothing else; it is ready for the signal then.
    fn start_heeding(&self, options: &[&str], action: &str, signal: &str) -> Running {
        let script =
            format!("trap '{action}' {signal}; echo $$ > began; while :; do sleep 0.02; done");
        self.await_began(options, &script)
    }

    fn await_began(&self, options: &[&str], script: &str) -> Running {
        let mut arguments = options.to_vec();
        arguments.extend(["report", "--", "sh", "-c", script]);
        let mut command = self.tether(&arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let runner = command.spawn().unwrap();
        self.eventually_file("began");
        Running {
            runner: Some(runner),
        }
    }

    /// Starts it with [`WORK`], which is at work then.
    fn start_work(&self, options: &[&str]) -> Running {
        let running = self.start(options, WORK);
        self.eventually_file("work");
        running
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn eventually_file(&self, name: &str) -> String {
        eventually(name, || match fs::read_to_string(self.file(name)) {
            Ok(text) if text.ends_with('\n') => Ok(text.trim().to_owned()),
            other => Err(format!("{other:?}")),
        })
    }

    fn waiters(&self) -> i64 {
        self.server.gauge("tether", "tether_waiters")
    }

    fn holds(&self) -> i64 {
        self.server.gauge("tether", "tether_holds")
    }

    /// The script of [`WORK`] writes, sooner or later.
    fn eventually_at_work(&self) {
        eventually("work", || match self.is_at_work() {
            true => Ok(()),
            false => Err("nothing is written".to_owned()),
        });
    }

    /// Whether the script of [`WORK`] is at work: it writes all the time.
    fn is_at_work(&self) -> bool {
        let size = || fs::metadata(self.file("work")).map_or(0, |about| about.len());
        let before = size();
        sleep(Duration::from_millis(200));
        size() != before
    }
}

/// Works in a process that was forked twice and does not listen.
const WORK: &str = "trap '' TERM HUP; (setsid sh -c 'while :; do echo x >> work; sleep 0.02; done' &); while :; do sleep 0.1; done";

struct Running {
    runner: Option<Child>,
}

impl Running {
    fn pid(&self) -> Pid {
        let runner = self.runner.as_ref().unwrap();
        Pid::from_raw(i32::try_from(runner.id()).unwrap()).unwrap()
    }

    /// The guard is its only child.
    fn guard(&self) -> Pid {
        let pid = self.pid().as_raw_nonzero();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        Pid::from_raw(children.trim().parse().unwrap()).unwrap()
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Its exit code, -n if signal n ended it, and what it wrote to its standard error.
    fn end(&mut self) -> (i32, String) {
        let mut runner = self.runner.take().unwrap();
        let status = ended(&mut runner);
        let mut said = String::new();
        std::io::Read::read_to_string(&mut runner.stderr.take().unwrap(), &mut said).unwrap();
        (
            status.code().unwrap_or_else(|| -status.signal().unwrap()),
            said,
        )
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(runner) = &mut self.runner {
            let _ = runner.kill();
            let _ = runner.wait();
        }
    }
}

/// The process has ended, whether somebody has asked how or not.
fn eventually_over(what: &str, process: Pid) {
    let stat = format!("/proc/{}/stat", process.as_raw_nonzero());
    eventually(what, || match fs::read_to_string(&stat) {
        Ok(stat) if !stat.contains(") Z ") => Err(stat),
        _ => Ok(()),
    });
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

// ---- the ordinary course ----

#[test]
fn a_command_runs_with_the_lock_and_its_token_and_its_code_comes_back() {
    let world = World::new();
    let script = "echo $TETHER_KEY $TETHER_TOKEN; cat; echo error >&2; exit 3";
    let mut runner = world.tether(&["a key", "--", "sh", "-c", script]);
    runner
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut runner = runner.spawn().unwrap();
    let mut input = runner.stdin.take().unwrap();
    eventually_equal("its hold", 1, || world.holds());
    let token = world.server.resp3().run(["LOCK.INFO", "a key"]);
    input.write_all(b"input\n").unwrap();
    drop(input);
    let output = runner.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(text(&output.stderr), "error\n");
    let (first, rest) = text(&output.stdout).split_once('\n').unwrap();
    assert_eq!(rest, "input\n");
    let shown: i64 = first.strip_prefix("a key ").unwrap().parse().unwrap();
    assert!(
        format!("{token:?}").contains(&shown.to_string()),
        "{token:?}"
    );
}

#[test]
fn the_lock_is_free_and_no_session_is_left_when_it_ends() {
    let world = World::new();
    for command in ["true", "false", "/nowhere/at-all", "/etc/passwd"] {
        world.run(&["report", "--", command]);
        let mut client = world.server.resp3();
        assert_ne!(client.run("LOCK.ACQUIRE report"), null(), "{command}");
        assert_eq!(client.run("LOCK.RELEASE report"), int(0));
        let sessions = ["tether_sessions_attached", "tether_sessions_detached"];
        assert_eq!(world.server.gauges("tether", sessions), [0, 0]);
    }
}

#[test]
fn who_comes_second_waits_as_long_as_it_wants() {
    let world = World::new();
    let mut first = world.start(&[], "while [ ! -e enough ]; do sleep 0.02; done");
    let nowait = world.run(&["--nowait", "report", "--", "true"]);
    assert_eq!(nowait.status.code(), Some(75));
    let server = format!("127.0.0.1:{}", world.server.port());
    let begin = format!("tether: no lock 'report': {server}: held by client ");
    let said = text(&nowait.stderr);
    assert!(said.starts_with(&begin), "{said}");
    assert!(said.ends_with("; wait for it with --wait\n"), "{said}");
    let wait = world.run(&["--wait", "100ms", "report", "--", "true"]);
    assert_eq!(wait.status.code(), Some(75));
    assert!(text(&wait.stderr).contains("the time to wait is over"));
    let second = world
        .tether(&["report", "--", "echo", "mine"])
        .stdout(Stdio::piped())
        .spawn();
    eventually_equal("the second's wait", 1, || world.waiters());
    fs::write(world.file("enough"), "").unwrap();
    let second = second.unwrap().wait_with_output().unwrap();
    assert_eq!(text(&second.stdout), "mine\n");
    assert_eq!(first.end().0, 0);
}

#[test]
fn a_lock_can_be_shared_and_permits_can_be_had() {
    let world = World::new();
    for options in [["--shared", "--nowait"], ["--permits=1/2", "--nowait"]] {
        let mut arguments = options.to_vec();
        arguments.extend(["report", "--"]);
        let mut holder = arguments.clone();
        holder.extend(["sleep", "1000"]);
        let mut holder = world.tether(&holder).spawn().unwrap();
        eventually_equal("its hold", 1, || world.holds());
        arguments.push("true");
        assert_eq!(world.run(&arguments).status.code(), Some(0), "{options:?}");
        let alone = world.run(&["--nowait", "report", "--", "true"]);
        assert_eq!(alone.status.code(), Some(75), "{options:?}");
        kill_process(Pid::from_child(&holder), Signal::TERM).unwrap();
        assert_eq!(ended(&mut holder).signal(), Some(15));
    }
}

#[test]
fn each_way_to_fail_has_its_code() {
    let world = World::new();
    world.server.resp3().run("SET text hello");
    let three = "redis://127.0.0.1:1,redis://127.0.0.1:2,redis://127.0.0.1:3";
    let sentinels = three.replace("redis://127.0.0.1:1", "redis+sentinel://127.0.0.1/m");
    let of_sentinels = format!("--quorum {sentinels} report -- true");
    let without_grace = format!("--grace 0 --quorum {three} report -- true");
    #[rustfmt::skip]
    let cases = [
        ("report -- /nowhere/at-all", 127, "cannot start '/nowhere/at-all'"),
        ("report -- /etc/passwd", 126, "cannot start '/etc/passwd'"),
        ("text -- true", 78, "WRONGTYPE"),
        ("--nowait --url redis://127.0.0.1:1 report -- true", 69, "refused"),
        ("--url nonsense report -- true", 64, "--url: a URL is "),
        ("report true", 64, "Usage"),
        ("--quorum redis://a,redis://b report -- true", 64, "--quorum: "),
        (&of_sentinels, 64, "--quorum: each server has a URL of its own"),
        (&without_grace, 64, "--grace 0 is too short"),
        ("--grace 6s report -- true", 64, "at least 6100ms"),
        ("--grace 0 --kill-after 9s report -- true", 78, "peer-timeout"),
        ("--grace 25h report -- true", 78, "GRACE"),
    ];
    for (arguments, code, said) in cases {
        let output = world.run(&arguments.split(' ').collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(code), "{arguments}: {output:?}");
        let told = text(&output.stderr);
        assert!(told.contains(said), "{arguments}: {output:?}");
    }
    let plain = World::with(&[tether_testing::harness::WITHOUT_MODULE]);
    let output = plain.run(&["report", "--", "true"]);
    assert_eq!(output.status.code(), Some(78));
    assert!(text(&output.stderr).contains("does not have the module"));
}

// ---- signals: see also signals.rs ----

#[test]
fn what_nohup_ignores_stays_ignored() {
    let world = World::new();
    let began = "echo $$ > began; while [ ! -e enough ]; do sleep 0.02; done; exit 4";
    let mut command = Command::new("nohup");
    command
        .arg(env!("CARGO_BIN_EXE_tether"))
        .args(["run", "report", "--", "sh", "-c", began]);
    command.current_dir(world.folder.path()).process_group(0);
    command.env(
        "TETHER_URL",
        format!("redis://127.0.0.1:{}", world.server.port()),
    );
    let mut runner = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    world.eventually_file("began");
    kill_process_group(Pid::from_child(&runner), Signal::HUP).unwrap();
    sleep(Duration::from_millis(100));
    assert!(runner.try_wait().unwrap().is_none());
    fs::write(world.file("enough"), "").unwrap();
    assert_eq!(ended(&mut runner).code(), Some(4));
}

// ---- the lock is lost ----

#[test]
fn a_lock_that_is_taken_away_ends_the_command() {
    let world = World::new();
    let mut running = world.start_work(&SHORT);
    world.eventually_at_work();
    world.server.resp3().run("DEL report");
    let (code, said) = running.end();
    assert_eq!(code, 79);
    let server = world.address();
    let lost = format!("lost the lock 'report': {server}: LOST deleted");
    assert!(said.contains(&lost), "{said}");
    assert!(!world.is_at_work());
}

#[test]
fn the_signal_of_on_loss_comes_first() {
    let world = World::new();
    let action = "echo asked > asked; exit 0";
    let mut running = world.start_heeding(&["--on-loss", "USR2"], action, "USR2");
    world.server.resp3().run("DEL report");
    assert_eq!(running.end().0, 79);
    assert_eq!(world.eventually_file("asked"), "asked");
}

#[test]
fn a_lease_that_is_over_ends_the_command() {
    let world = World::new();
    let mut running = world.start(&["--lease", "300ms"], "while :; do sleep 0.02; done");
    let (code, said) = running.end();
    assert_eq!(code, 79);
    assert!(said.contains("lease"), "{said}");
}

/// The connections of `tether run`, which are the only ones with a session or a hold.
fn kill_its_connection(world: &World) {
    let mut client = world.server.resp3();
    let own = client.id().to_string();
    client.run(["CLIENT", "KILL", "SKIPME", "yes", "TYPE", "normal"]);
    assert_eq!(client.id().to_string(), own);
}

#[test]
fn a_connection_that_breaks_costs_nothing_with_a_grace() {
    let world = World::new();
    let mut running = world.start(&[], "while [ ! -e enough ]; do sleep 0.02; done; exit 5");
    for _ in 0..3 {
        kill_its_connection(&world);
        let attached = || world.server.gauge("tether", "tether_sessions_attached");
        eventually_equal("its session", 1, attached);
    }
    fs::write(world.file("enough"), "").unwrap();
    assert_eq!(running.end().0, 5);
}

#[test]
fn without_a_grace_it_ends_the_command() {
    let world = World::new();
    let mut running = world.start_work(&["--grace", "0", "--kill-after", "1s"]);
    kill_its_connection(&world);
    let (code, said) = running.end();
    assert_eq!(code, 79);
    assert!(said.contains("there is no --grace"), "{said}");
    assert!(!world.is_at_work());
}

#[test]
fn a_server_that_comes_back_with_its_files_costs_nothing_and_one_without_costs_the_lock() {
    for (lines, expected) in [
        (["appendonly yes", "appendfsync always"], 0),
        (["", ""], 79),
    ] {
        let mut world = World::with(&lines);
        let mut running = world.start(
            &["--grace", "20s"],
            "while [ ! -e enough ]; do sleep 0.02; done",
        );
        world.server.crash_and_restart();
        if expected == 0 {
            let attached = || world.server.gauge("tether", "tether_sessions_attached");
            eventually_equal("its session", 1, attached);
            fs::write(world.file("enough"), "").unwrap();
        }
        let (code, said) = running.end();
        assert_eq!(code, expected, "{said}");
    }
}

// ---- the runner or the guard is struck ----

/// The next grant comes, and by then nothing works any more.
fn next_grant_finds_nobody_at_work(world: &World) {
    let mut next = world.server.resp3();
    next.run("LOCK.ACQUIRE report WAIT 0");
    assert!(!world.is_at_work(), "two at work");
}

#[test]
fn a_runner_that_is_killed_takes_the_work_along() {
    let world = World::new();
    let running = world.start_work(&SHORT);
    world.eventually_at_work();
    running.signal(Signal::KILL);
    next_grant_finds_nobody_at_work(&world);
}

#[test]
fn a_runner_that_is_stopped_too_and_it_says_so_when_it_goes_on() {
    let world = World::with(&["tether.peer-timeout 2000"]);
    let mut running = world.start_work(&SHORT);
    let guard = running.guard();
    running.signal(Signal::STOP);
    eventually_over("the guard", guard);
    assert!(!world.is_at_work());
    running.signal(Signal::CONT);
    let (code, said) = running.end();
    assert_eq!(code, 79);
    assert!(said.contains("lost the lock 'report'"), "{said}");
    next_grant_finds_nobody_at_work(&world);
}

#[test]
fn so_does_a_process_group_that_is_killed() {
    let world = World::new();
    let running = world.start_work(&SHORT);
    kill_process_group(running.pid(), Signal::KILL).unwrap();
    next_grant_finds_nobody_at_work(&world);
}

#[test]
fn a_guard_that_is_killed_is_replaced_by_the_runner() {
    let world = World::new();
    let mut running = world.start_work(&SHORT);
    world.eventually_at_work();
    kill_process(running.guard(), Signal::KILL).unwrap();
    let (code, said) = running.end();
    assert_eq!(
        (code, said.as_str()),
        (
            125,
            "tether: the guard was killed, so tether killed the command\n"
        )
    );
    assert!(!world.is_at_work());
    assert_eq!(world.holds(), 0);
}

#[test]
fn what_the_command_leaves_behind_ends_before_the_lock_is_released() {
    let world = World::new();
    let script = "trap '' TERM; (setsid sh -c 'while :; do echo x >> work; sleep 0.02; done' &); while [ ! -s work ]; do sleep 0.02; done; exit 6";
    let mut running = world.start(&["--kill-after", "300ms"], script);
    let mut next = world.server.resp3();
    next.run("LOCK.ACQUIRE report WAIT 0");
    assert!(!world.is_at_work());
    assert_eq!(running.end().0, 6);
}

// ---- the other words ----

#[test]
fn man_pages_and_completions_know_every_option() {
    let folder = TempDir::with_prefix("tether-man-").unwrap();
    let tether = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_tether"))
            .args(arguments)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    tether(&["man", folder.path().to_str().unwrap()]);
    let page = fs::read_to_string(folder.path().join("tether-run.1")).unwrap();
    let help = tether(&["run", "--help"]);
    let completions = ["bash", "zsh", "fish"].map(|shell| tether(&["completions", shell]));
    for option in [
        "shared",
        "permits",
        "wait",
        "nowait",
        "lease",
        "grace",
        "on-loss",
        "kill-after",
        "url",
    ] {
        let dashed = option.replace('-', "\\-");
        assert!(page.contains(&dashed), "the page lacks {option}");
        assert!(help.contains(option), "the help lacks {option}");
        for text in &completions {
            assert!(text.contains(option), "completions lack {option}");
        }
    }
    for code in ["64", "69", "75", "78", "79", "125", "126"] {
        assert!(page.contains(code) && help.contains(code), "{code}");
    }
}

#[test]
fn the_server_is_told_whose_lock_it_is() {
    let world = World::new();
    let running = world.start_work(&[]);
    let name = format!(":{}:sh ", running.pid().as_raw_nonzero());
    let clients = format!("{:?}", world.server.resp3().call("CLIENT LIST"));
    assert!(clients.contains(" name=tether:"), "{clients}");
    assert!(clients.contains(&name), "{name} is not in {clients}");
}

/// Each line with a prompt, with programs of these names that say what they were given.
#[test]
fn the_commands_of_the_readme_work() {
    let world = World::new();
    let bin = world.file("bin");
    fs::create_dir(&bin).unwrap();
    let stand_in = |path: PathBuf| {
        fs::write(&path, "#!/bin/sh\necho done $*\n").unwrap();
        let made = Command::new("chmod").arg("+x").arg(path).status().unwrap();
        assert!(made.success());
    };
    stand_in(bin.join("lp"));
    stand_in(world.file("make-report"));
    stand_in(world.file("schedule"));
    let built = PathBuf::from(env!("CARGO_BIN_EXE_tether"));
    let path = std::env::var("PATH").unwrap();
    let path = format!(
        "{}:{}:{path}",
        bin.display(),
        built.parent().unwrap().display()
    );
    let readme = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = fs::read_to_string(readme).unwrap();
    let lines: Vec<_> = readme
        .lines()
        .filter_map(|line| line.strip_prefix("$ "))
        .collect();
    let mut holder = world.server.resp3();
    let holds = |line: &str| line.starts_with("tether who") || line.starts_with("tether kick");
    let expected = [
        "I hold report with token ",
        "done\n",
        "done page.ps\n",
        "done\n",
        "done\n",
        "KEY  HOLDERS  WAITERS  HELD\n",
        "report: an exclusive lock, 1 holder, 0 waiters\nHOLDER",
        "127.0.0.1:",
        "report: client ",
        "ok      127.0.0.1:",
    ];
    assert_eq!(lines.len(), expected.len());
    for (line, said) in lines.into_iter().zip(expected) {
        if holds(line) {
            holder.run("LOCK.ACQUIRE report REENTRANT");
        }
        let mut shell = Command::new("sh");
        shell
            .args(["-c", line])
            .current_dir(world.folder.path())
            .env("PATH", &path);
        shell.env(
            "TETHER_URL",
            format!("redis://127.0.0.1:{}", world.server.port()),
        );
        let output = shell.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{line}: {output:?}");
        assert!(text(&output.stdout).starts_with(said), "{line}: {output:?}");
    }
}
