//! `tether devserver`, and the other commands against it.

#![cfg(target_os = "linux")]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};
use tether_testing::harness::Client;

/// One of the test's own.
struct Devserver {
    child: Child,
    port: u16,
}

impl Drop for Devserver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Devserver {
    fn start(options: &[&str]) -> Devserver {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tether"))
            .args(["devserver", "--port", "0"])
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .expect("tether");
        let mut line = String::new();
        let said = child.stdout.take().expect("its output");
        BufReader::new(said).read_line(&mut line).expect("a line");
        let port = line.strip_prefix("ready on port ").expect("its port");
        let port = port.trim_end().parse().expect("a number");
        Devserver { child, port }
    }

    fn tether(&self, words: &[&str]) -> Output {
        let output = Command::new(env!("CARGO_BIN_EXE_tether"))
            .args(["--url", &format!("redis://127.0.0.1:{}", self.port)])
            .args(words)
            .output();
        output.expect("tether")
    }
}

#[test]
fn it_says_its_port_once_it_listens() {
    let server = Devserver::start(&["--peer-timeout", "2s"]);
    let mut client = Client::connect(("127.0.0.1", server.port)).expect("it listens");
    let report = client.run("LOCK.SERVER").items();
    let at = report
        .iter()
        .position(|item| item.text() == "peer-timeout-ms");
    assert_eq!(report[at.expect("the setting") + 1].number(), 2000);
}

#[test]
fn the_other_commands_work_there() {
    let server = Devserver::start(&[]);
    let run = server.tether(&["run", "k", "--", "sh", "-c", "echo $TETHER_TOKEN"]);
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(run.status.success(), "{run:?}");
    assert!(said.trim_end().parse::<u64>().is_ok(), "{said}");
    let mut holder = Client::connect(("127.0.0.1", server.port)).expect("it listens");
    holder.run("LOCK.ACQUIRE k");
    assert_eq!(
        server
            .tether(&["run", "--nowait", "k", "--", "true"])
            .status
            .code(),
        Some(75)
    );
    let who = server.tether(&["who", "k"]);
    assert!(who.status.success(), "{who:?}");
    holder.run("DEL k");
    assert_eq!(server.tether(&["who", "k"]).status.code(), Some(1));
}

#[test]
fn a_port_that_is_taken_is_a_failure() {
    let server = Devserver::start(&[]);
    let again = server.tether(&["devserver", "--port", &server.port.to_string()]);
    assert_eq!(again.status.code(), Some(125), "{again:?}");
    assert!(String::from_utf8_lossy(&again.stderr).starts_with("tether: devserver: "));
}
