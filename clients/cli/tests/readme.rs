//! The sessions that README.md shows, run in a shell on a real server.

#![cfg(target_os = "linux")]

use std::env;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;
use tether_testing::harness::Server;
use tether_testing::transcript::blocks;

/// What is typed, and what is shown below it.
struct Entry {
    typed: String,
    shown: Vec<String>,
}

fn entries() -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let page = blocks("clients/cli/README.md").into_iter();
    for line in page
        .filter(|block| block.tag == "console")
        .flat_map(|block| block.lines)
    {
        match line.strip_prefix("$ ") {
            Some(typed) => entries.push(Entry {
                typed: typed.to_owned(),
                shown: Vec::new(),
            }),
            None => entries
                .last_mut()
                .expect("a command before it")
                .shown
                .push(line),
        }
    }
    entries
}

/// The same for two lines that differ in numbers, times, widths of columns and the name of the server only.
fn essence(line: &str) -> String {
    let is_time = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_digit())
            && word.ends_with(|c: char| "msh".contains(c))
            && word
                .chars()
                .all(|c| c.is_ascii_digit() || ".msh".contains(c))
    };
    let word = |word: &str| match word {
        "Valkey" => "Redis".to_owned(),
        _ if is_time(word) => "5s".to_owned(),
        _ => {
            let digits = word.split(|c: char| !c.is_ascii_digit());
            let mut numbers: Vec<_> = digits.filter(|digits| !digits.is_empty()).collect();
            numbers.sort_by_key(|number| std::cmp::Reverse(number.len()));
            let zeros = |text: String, number: &&str| text.replace(*number, "0");
            numbers.iter().fold(word.to_owned(), zeros)
        }
    };
    line.split_whitespace()
        .map(word)
        .collect::<Vec<_>>()
        .join(" ")
}

/// A program of this name that does nothing.
fn stub(folder: &Path, name: &str) {
    let file = folder.join(name);
    fs::write(&file, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
}

/// PATH with our own program, and what stands in for the work of examples.
fn path_with_stubs(folder: &Path) -> OsString {
    for name in ["make-report", "lp", "schedule"] {
        stub(folder, name);
    }
    let tether = Path::new(env!("CARGO_BIN_EXE_tether"));
    let mut path = vec![folder.to_owned(), tether.parent().unwrap().to_owned()];
    path.extend(env::split_paths(&env::var_os("PATH").unwrap()));
    env::join_paths(path).unwrap()
}

/// Each help begins with one. `tether qualify` is run by its own tests.
#[test]
fn the_examples_of_the_help_work() {
    let server = Server::start();
    let folder = TempDir::with_prefix("tether-examples-").unwrap();
    let path = path_with_stubs(folder.path());
    let example = |name: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tether"));
        let output = command.args([name, "--help"]).output().unwrap();
        let help = String::from_utf8(output.stdout).unwrap();
        let line = help.lines().next().unwrap_or_default();
        line.strip_prefix("Example: ").expect(line).to_owned()
    };
    let shell = |name: &str| {
        let mut shell = Command::new("sh");
        let typed = format!("exec {}", example(name));
        shell.args(["-c", &typed]).current_dir(folder.path());
        shell.env("PATH", &path).stdin(Stdio::null());
        shell.env("TETHER_URL", format!("redis://127.0.0.1:{}", server.port()));
        shell
    };
    let succeed = |name: &str| {
        let output = shell(name).output().unwrap();
        assert!(output.status.success(), "{name}: {output:?}");
    };
    succeed("run");
    succeed("elect");
    let mut holder = server.resp3();
    holder.run("LOCK.ACQUIRE report");
    server.resp3().run("DEL report");
    holder.run_all(&["LOCK.ACQUIRE report", "SETTP workers:1 here"]);
    for name in [
        "ls",
        "who",
        "why",
        "log",
        "sessions",
        "top",
        "presence",
        "kick",
        "doctor",
        "metrics",
        "completions",
        "man",
    ] {
        succeed(name);
    }
    for name in ["watch", "devserver"] {
        let mut process = shell(name).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
        assert!(!line.is_empty(), "{name}");
    }
}

/// As cron does: its environment, and `sh -c` for what follows the five fields.
#[test]
fn the_job_of_the_crontab_runs_once_and_the_next_machine_is_silent() {
    let server = Server::start();
    let folder = TempDir::with_prefix("tether-cron-").unwrap();
    let bin = folder.path().display().to_string();
    stub(folder.path(), "make-report");
    fs::write(folder.path().join("make-report"), "#!/bin/sh\necho run\n").unwrap();
    symlink(env!("CARGO_BIN_EXE_tether"), folder.path().join("tether")).unwrap();
    let page = blocks("clients/cli/README.md").into_iter();
    let mut crontab = page.filter(|block| block.tag == "crontab");
    let lines = crontab.next().expect("a crontab").lines;
    let (setting, job) = (&lines[0], &lines[1]);
    let (name, url) = setting.split_once('=').expect("a setting");
    assert_eq!(url, "redis://10.0.0.1:6379");
    let line = job.splitn(6, ' ').nth(5).expect("a command");
    let line = line.replace("/usr/local/bin", &bin);
    let machine = || {
        let mut shell = Command::new("/bin/sh");
        shell
            .args(["-c", &line])
            .env_clear()
            .env("PATH", "/usr/bin:/bin");
        shell.env(name, format!("redis://127.0.0.1:{}", server.port()));
        let output = shell.stdin(Stdio::null()).output().unwrap();
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{output:?}"
        );
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(machine(), "run\n");
    assert_eq!(machine(), "");
    assert!(crontab.next().is_none(), "nothing runs the second one");
}

#[test]
fn the_sessions_of_the_readme_are_what_one_sees() {
    let server = Server::start();
    let folder = TempDir::with_prefix("tether-readme-").unwrap();
    let path = path_with_stubs(folder.path());
    let (mut holder, mut waiter) = (server.resp3(), server.resp3());
    holder.run("CLIENT SETNAME tether:web1:4711:worker");
    let entries = entries();
    for Entry { typed, shown } in &entries {
        if typed == "tether ls" {
            holder.run("LOCK.ACQUIRE report");
            waiter.run("LOCK.ACQUIRE report WAIT 0 PUSH");
            holder.run("CONFIG SET timeout 300");
        }
        let mut shell = Command::new("sh");
        shell.args(["-c", typed]).current_dir(folder.path());
        shell.env("PATH", &path);
        shell.env("TETHER_URL", format!("redis://127.0.0.1:{}", server.port()));
        let output = shell.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{typed}: {output:?}");
        let printed = String::from_utf8(output.stdout).unwrap();
        let printed: Vec<_> = printed.lines().map(essence).collect();
        let shown: Vec<_> = shown.iter().map(|line| essence(line)).collect();
        // It has more to say than the page has room for.
        let is_shown = match typed.as_str() {
            "tether doctor" => shown.iter().all(|line| printed.contains(line)),
            _ => shown == printed,
        };
        assert!(is_shown, "{typed}: {printed:#?}\ninstead of {shown:#?}");
    }
    assert!(entries.len() >= 10, "only {} commands", entries.len());
}
