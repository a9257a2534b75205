//! `tether qualify`, on the tested server and on such as do not qualify.

#![cfg(target_os = "linux")]

use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use tempfile::TempDir;
use tether_testing::harness::{
    Posing, Server, bulk, copy_of_server, eventually, module, replace, say, server_binary,
};
use tether_testing::process::ended;

/// With a folder for temporary files, of which none is to be left.
fn qualify(server: &Path, folder: &TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tether"));
    command.args(["qualify", "--server"]).arg(server);
    command.arg("--module").arg(module());
    command.env("TMPDIR", folder.path()).stdin(Stdio::null());
    command
}

fn run(mut command: Command, folder: &TempDir) -> Output {
    let output = command.output().unwrap();
    let left = fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, 0, "{output:?}");
    output
}

/// Its exit code, and what it says why there is no line.
fn refused(command: Command, folder: &TempDir) -> (i32, String) {
    let output = run(command, folder);
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(
        printed.lines().all(|line| line.starts_with("# ")),
        "{printed}"
    );
    let why = String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap(), why)
}

fn folder() -> TempDir {
    TempDir::with_prefix("q-").unwrap()
}

#[test]
fn a_server_that_nobody_has_tried_qualifies_and_has_pushes_from_then_on() {
    let tested = Server::start();
    // What Valkey 8 does differently goes by its number, so it cannot pose as another.
    let can_pose =
        !tested.is_at_least((u32::MAX, 0), (8, 0)) || tested.is_at_least((u32::MAX, 0), (9, 0));
    drop(tested);
    let posing = can_pose.then(Posing::as_unknown);
    let program = posing
        .as_ref()
        .map_or_else(server_binary, |posing| posing.program.clone());
    let folder = folder();
    let output = run(qualify(&program, &folder), &folder);
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let (comments, line) = printed.trim_end().rsplit_once('\n').unwrap();
    assert!(line.starts_with("tether.qualified "), "{printed}");
    assert!(
        comments.lines().all(|line| line.starts_with("# ")),
        "{printed}"
    );
    for tried in ["plain", "threads", "cluster", "tls", "replica and files"] {
        for unused in ["zero", "poison"] {
            let begin = format!("# {tried}, {unused} in unused registers: ");
            assert!(
                comments.lines().any(|line| line.starts_with(&begin)),
                "{printed}"
            );
        }
    }
    // The time that docs/servers.md promises goes by these.
    let pushes = comments.lines().filter_map(|line| {
        let number = line.strip_suffix(" pushes")?.rsplit(' ').next()?;
        number.parse::<u64>().ok()
    });
    let pushes: u64 = pushes.sum();
    assert!((100_000..200_000).contains(&pushes), "{printed}");
    let Some(Posing { version, .. }) = &posing else {
        return say("Valkey 8 cannot pose as another series");
    };
    assert!(
        comments.lines().next().unwrap().contains(version),
        "{printed}"
    );
    // All of it can stand in the file.
    let server = Server::of_program(&program, &[&printed]);
    assert!(
        server
            .info("tether")
            .contains("tether_private_functions:qualified")
    );
    assert_eq!(server.resp3().run("WATCHEX k"), bulk("NOEXIST"));
}

#[test]
#[ignore = "it measures: make nightly"]
fn to_qualify_takes_less_than_half_a_minute() {
    let folder = folder();
    let output = run(qualify(&server_binary(), &folder), &folder);
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let mut seconds = printed.lines().filter_map(|line| {
        let number = line.strip_prefix("# ")?.strip_suffix(" seconds")?;
        number.parse::<f64>().ok()
    });
    let seconds = seconds.next().unwrap_or_else(|| panic!("{printed}"));
    assert!(seconds < 30.0, "{printed}");
}

#[test]
fn a_known_server_needs_not_qualify() {
    let folder = folder();
    let mut command = qualify(&server_binary(), &folder);
    command.arg("--if-needed");
    let output = run(command, &folder);
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = printed.lines().collect();
    assert_eq!(lines.len(), 2, "{printed}");
    assert_eq!(lines[1], "# known to tether: nothing to do");
}

#[test]
fn a_program_that_does_not_start_is_refused() {
    let folder = folder();
    let own = TempDir::new().unwrap();
    let script = own.path().join("script");
    fs::write(&script, "#!/bin/sh\necho no such thing\nexit 3\n").unwrap();
    fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
    // For another kind of machine: none has this number. Behind a script it is the loader that refuses it.
    let foreign = copy_of_server(own.path(), |program| {
        program[18..20].copy_from_slice(&[0xfe, 0xfe]);
    });
    let foreign_why = match fs::read(&foreign).unwrap().starts_with(b"#!") {
        true => "the server does not start: ended with",
        false => "no program for this kind of machine",
    };
    let no_module = own.path().join("none.so");
    for (server, why) in [
        (own.path().join("none"), "no such file"),
        (script, "ended with exit code 3: no such thing"),
        (foreign, foreign_why),
    ] {
        let (code, said) = refused(qualify(&server, &folder), &folder);
        assert_eq!(code, 69, "{said}");
        assert!(said.contains(why), "{said}");
    }
    fs::write(&no_module, "this is no library").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tether"));
    command.args(["qualify", "--server"]).arg(server_binary());
    command
        .arg("--module")
        .arg(&no_module)
        .env("TMPDIR", folder.path());
    let (code, said) = refused(command, &folder);
    assert_eq!(code, 69, "{said}");
}

#[test]
fn a_server_without_a_function_is_refused() {
    let (folder, own) = (folder(), TempDir::new().unwrap());
    let server = copy_of_server(own.path(), |program| {
        replace(
            program,
            b"\0addReplyPubsubMessage\0",
            b"\0addReplyPubsubMessagX\0",
        );
    });
    let (code, said) = refused(qualify(&server, &folder), &folder);
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("does not show modules the functions that tether needs"),
        "{said}"
    );
}

/// Where in the file the address is that the program's dynamic symbol of this name has; none if there is no such symbol.
fn symbol(program: &[u8], name: &str) -> Option<usize> {
    let number = |at: usize, size: usize| {
        let bytes = &program[at..at + size];
        bytes
            .iter()
            .rev()
            .fold(0, |number, byte| number << 8 | usize::from(*byte))
    };
    let (sections, size, count) = (number(40, 8), number(58, 2), number(60, 2));
    let section = |place: usize| sections + place * size;
    const DYNSYM: usize = 11;
    let symbols = (0..count)
        .map(section)
        .find(|at| number(at + 4, 4) == DYNSYM)
        .unwrap();
    let names = number(section(number(symbols + 40, 4)) + 24, 8);
    let wanted = [name.as_bytes(), b"\0"].concat();
    let (from, length) = (number(symbols + 24, 8), number(symbols + 32, 8));
    let mut entries = (from..from + length).step_by(24);
    let entry = entries.find(|entry| program[names + number(*entry, 4)..].starts_with(&wanted));
    Some(entry? + 8)
}

/// The functions that docs/servers.md says are called.
fn called() -> Vec<String> {
    let page = fs::read_to_string(tether_testing::project().join("docs/servers.md")).unwrap();
    let (_, section) = page.split_once("\n## What is called\n").unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let names = rows.flat_map(|row| row.split(" | ").next().unwrap().split('`').step_by(2));
    names.map(str::to_owned).collect()
}

/// As one that was linked without `-rdynamic`.
#[cfg(target_endian = "little")]
#[test]
fn a_server_that_shows_no_function_is_refused() {
    let (folder, own) = (folder(), TempDir::new().unwrap());
    let server = copy_of_server(own.path(), |program| {
        let names = called();
        let shown = names.iter().filter_map(|name| symbol(program, name));
        let shown: Vec<_> = shown.collect();
        // Each series has most of them.
        assert!(shown.len() >= 10, "{names:?}");
        for at in shown {
            // Its section, and its address: it is declared only.
            program[at - 2..at + 8].fill(0);
        }
    });
    let (code, said) = refused(qualify(&server, &folder), &folder);
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("does not show modules the functions that tether needs"),
        "{said}"
    );
}

/// The tested server, in which one function of this name is another one; and what is said of it.
fn with_another(name: &str, other: &str) -> (i32, String) {
    let (folder, own) = (folder(), TempDir::new().unwrap());
    let server = copy_of_server(own.path(), |program| {
        let [at, from] = [name, other]
            .map(|name| symbol(program, name).unwrap_or_else(|| panic!("{name} is no symbol")));
        program.copy_within(from..from + 8, at);
    });
    refused(qualify(&server, &folder), &folder)
}

#[cfg(target_endian = "little")]
#[test]
fn a_push_function_with_fewer_arguments_is_refused() {
    // It takes a client and one string.
    let (code, said) = with_another("addReplyPubsubMessage", "addReplyBulk");
    assert_eq!(code, 1, "{said}");
    assert!(
        said.contains("plain, zero in unused registers: a client that is idle"),
        "{said}"
    );
}

#[cfg(target_endian = "little")]
#[test]
fn a_server_that_crashes_is_refused_and_nothing_else_crashes() {
    // It ends the server.
    let (code, said) = with_another("addReplyPubsubMessage", "_serverAssert");
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("the server ended by signal "), "{said}");
}

/// One that has begun, and the rest of what it prints.
fn begun(folder: &TempDir) -> (Child, BufReader<ChildStdout>) {
    let mut command = qualify(&server_binary(), folder);
    let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut printed = BufReader::new(process.stdout.take().unwrap());
    let mut line = String::new();
    printed.read_line(&mut line).unwrap();
    assert!(line.starts_with("# "), "{line}");
    (process, printed)
}

#[test]
fn a_signal_leaves_neither_files_nor_servers() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let folder = folder();
        let (mut process, _printed) = begun(&folder);
        kill_process(Pid::from_child(&process), signal).unwrap();
        let status = ended(&mut process);
        assert_eq!(status.signal(), Some(signal.as_raw()));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}

#[test]
fn its_servers_end_with_it() {
    let folder = folder();
    let (mut process, mut printed) = begun(&folder);
    process.kill().unwrap();
    process.wait().unwrap();
    // A server has inherited nothing of the output, so what is left of it is named by its folder.
    printed.read_to_string(&mut String::new()).unwrap();
    let path = folder.path().display().to_string();
    eventually("an end of all servers", || {
        let running = fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(|entry| {
                let line = fs::read_to_string(entry.path().join("cmdline")).ok()?;
                line.contains(&path).then_some(line)
            });
        match running.count() {
            0 => Ok(()),
            count => Err(count.to_string()),
        }
    });
}

/// docs/servers.md names what was found on each server of the matrix.
#[test]
fn the_page_names_each_server_of_the_matrix() {
    let project = tether_testing::project();
    let page = fs::read_to_string(project.join("docs/servers.md")).unwrap();
    let matrix = fs::read_to_string(project.join("scripts/servers.sh")).unwrap();
    let servers = matrix.lines().filter_map(|line| {
        let name = line.strip_prefix("fetch_")?.split_once("()")?.0;
        let (name, series) = name.split_once('_')?;
        let name = match name {
            "redis" => "Redis",
            "valkey" => "Valkey",
            _ => return None,
        };
        Some(format!(
            "| qualified | {name} {}.",
            series.replace('_', ".")
        ))
    });
    let servers: Vec<_> = servers.collect();
    assert!(servers.len() >= 9, "{servers:?}");
    for row in &servers {
        assert_eq!(page.matches(row.as_str()).count(), 1, "{row}");
    }
    assert_eq!(page.matches("| qualified | ").count(), servers.len());
}
