//! `tether presence` on a real server. (On a terminal: see inspect.rs.)

#![cfg(unix)]

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use tether_testing::harness::Server;
use tether_testing::process::ended;

fn tether(server: &Server, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tether"));
    let url = format!("redis://127.0.0.1:{}", server.port());
    command
        .arg("presence")
        .args(arguments)
        .env("TETHER_URL", url);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

fn text(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

/// Runs until it is dropped.
struct Running(Child, Lines<BufReader<ChildStdout>>);

impl Running {
    fn start(mut command: Command) -> Running {
        let mut process = command.spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Running(process, lines)
    }

    /// The words of the next line.
    fn words(&mut self) -> Vec<String> {
        let line = self.1.next().expect("a line").unwrap();
        line.split_whitespace().map(str::to_owned).collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_table_is_shown_once() {
    let server = Server::start();
    let output = tether(&server, &["member:", "--once"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(text(&output), "KEY  TOKEN  VALUE\n");
    let mut owner = server.resp3();
    let token = owner.run("SETTP member:b ten TOKEN").number();
    owner.run_all(&["SETTP member:a nine", "SETTP other x", "SET member:c plain"]);
    let output = tether(&server, &["member:", "--once"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let rows: Vec<Vec<_>> = text(&output)
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows[0], ["KEY", "TOKEN", "VALUE"]);
    assert_eq!((rows[1][0], rows[1][2]), ("member:a", "nine"));
    assert_eq!(rows[2], ["member:b", &token.to_string(), "ten"]);
    assert_eq!(rows.len(), 3);
}

#[test]
fn all_pages_are_shown() {
    let server = Server::start();
    let mut owner = server.resp3();
    let settp: Vec<_> = (0..2500).map(|n| format!("SETTP m:{n:04} v")).collect();
    let settp: Vec<_> = settp.iter().map(String::as_str).collect();
    owner.run_all(&settp);
    let long = "x".repeat(5000);
    owner.run(["SETTP", "m:long", &long]);
    let output = tether(&server, &["m:", "--once", "--json"])
        .output()
        .unwrap();
    let lines: Vec<serde_json::Value> = text(&output)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 2501);
    for (number, line) in lines[..2500].iter().enumerate() {
        assert_eq!(line["key"], format!("m:{number:04}"));
        assert_eq!(
            (&line["event"], &line["value"]),
            (&"HERE".into(), &"v".into())
        );
    }
    assert_eq!(lines[2500]["key"], "m:long");
    assert_eq!(lines[2500]["value"], serde_json::Value::Null);
}

#[test]
fn changes_follow_as_they_come_also_after_a_swap() {
    let mut server = Server::start();
    let mut owner = server.resp3();
    let first = owner.run("SETTP m:1 one TOKEN").number().to_string();
    let mut presence = Running::start(tether(&server, &["m:"]));
    assert_eq!(presence.words(), ["KEY", "TOKEN", "VALUE"]);
    assert_eq!(presence.words(), ["m:1", &first, "one"]);
    let token = owner.run("SETTP m:2 two TOKEN").number().to_string();
    assert_eq!(presence.words(), ["ADD", "m:2", &token, "two"]);
    owner.run("SET m:2 other");
    assert_eq!(presence.words(), ["SET", "m:2", &token, "other"]);
    owner.run("DELTP m:1");
    assert_eq!(presence.words(), ["DEL", "m:1", &first, "released"]);
    owner.run("SWAPDB 0 1");
    assert_eq!(presence.words(), ["END", "m:", "swapped"]);
    assert_eq!(presence.words(), ["KEY", "TOKEN", "VALUE"]);
    owner.run("SETTP m:3 a\u{1b}[2J");
    let added = presence.words();
    assert_eq!(
        (&*added[0], &*added[1], &*added[3]),
        ("ADD", "m:3", "a\\u{1b}[2J")
    );
    owner.run("FLUSHDB");
    assert_eq!(presence.words(), ["FLUSHED", "m:"]);
    server.kill();
    assert_eq!(ended(&mut presence.0).code(), Some(69));
}

/// Where its rights end what it watched, it shows what it may still see.
#[test]
fn it_watches_again_after_a_change_of_rights() {
    let server = Server::start();
    let mut owner = server.resp3();
    owner.run_all(&[
        "ACL SETUSER viewer on >secret allkeys +@all",
        "SETTP m:1 one",
        "SETTP m:2 two",
    ]);
    let mut viewer = tether(&server, &["m:", "--json"]);
    let url = format!("redis://viewer:secret@127.0.0.1:{}", server.port());
    viewer.env("TETHER_URL", url);
    let mut presence = Running::start(viewer);
    let mut next = || -> serde_json::Value {
        serde_json::from_str(&presence.1.next().expect("a line").unwrap()).unwrap()
    };
    let seen = |line: serde_json::Value| {
        let word = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        [word("event"), word("key"), word("value"), word("reason")]
    };
    assert_eq!(seen(next()), ["HERE", "m:1", "one", ""]);
    assert_eq!(seen(next()), ["HERE", "m:2", "two", ""]);
    owner.run_all(&["ACL SETUSER viewer resetkeys ~m:2", "SETTP m:3 three"]);
    assert_eq!(seen(next()), ["END", "m:", "", "noperm"]);
    assert_eq!(seen(next()), ["HERE", "m:2", "two", ""]);
    owner.run("ACL SETUSER viewer -watchtp");
    owner.run("DELTP m:2");
    assert_eq!(seen(next()), ["END", "m:", "", "noperm"]);
    assert_eq!(ended(&mut presence.0).code(), Some(78));
}
