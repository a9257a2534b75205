//! Servers that do not mean well, or are ill: what they say cannot steer the terminal, and what they do not say is not waited for.

#![cfg(unix)]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};
use tether_testing::harness::{Server, eventually};
use tether_testing::process::ended;

/// Every command that asks a server.
const COMMANDS: [&[&str]; 12] = [
    &["ls"],
    &["who", "report"],
    &["why", "report"],
    &["log"],
    &["sessions"],
    &["top", "--once"],
    &["watch", "report"],
    &["presence", "report"],
    &["kick", "report"],
    &["doctor"],
    &["metrics"],
    &["run", "--nowait", "report", "--", "true"],
];

fn command(port: u16, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tether"));
    command.args(arguments).stdin(Stdio::null());
    command.env("TETHER_URL", format!("redis://127.0.0.1:{port}"));
    command
}

fn tether(port: u16, arguments: &[&str]) -> Output {
    command(port, arguments).output().unwrap()
}

/// Without line ends.
fn steers(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let steering = |letter: char| {
        letter.is_control() && letter != '\n' || ('\u{202a}'..='\u{202e}').contains(&letter)
    };
    text.contains(steering)
}

/// A server whose answer to everything is the same.
fn one_that_says(answer: &'static str) -> u16 {
    one_that_says_to("", answer)
}

/// A server that says OK to commands whose names do not begin so.
fn one_that_says_to(beginning: &'static str, answer: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            thread::spawn(move || {
                let mut bytes = [0; 4096];
                while let Ok(count @ 1..) = stream.read(&mut bytes) {
                    let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
                    let lines: Vec<_> = text.lines().collect();
                    let commands = lines.windows(3).filter(|lines| lines[0].starts_with('*'));
                    let answer = |command: &[&str]| match command[2].starts_with(beginning) {
                        true => answer,
                        false => "+OK\r\n",
                    };
                    let answers: String = commands.map(answer).collect();
                    if stream.write_all(answers.as_bytes()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    port
}

#[test]
fn an_error_cannot_steer_the_terminal() {
    let port = one_that_says("-ERR \x1b]0;owned\x07\u{9b}31m \u{202e}drawkcab\r\n");
    for arguments in COMMANDS {
        let output = tether(port, arguments);
        assert!(!output.status.success(), "{arguments:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            said.contains("\\u{1b}]0;owned\\u{7}"),
            "{arguments:?}: {said}"
        );
        assert!(said.contains("\\u{202e}drawkcab"), "{arguments:?}: {said}");
        for bytes in [&output.stdout, &output.stderr] {
            assert!(!steers(bytes), "{arguments:?}: {bytes:?}");
        }
    }
}

#[test]
fn a_name_cannot_steer_it_either_in_json_too() {
    let server = Server::start();
    let name = "re\u{202e}port\u{9b}2J";
    let mut holder = server.resp3();
    let mut waiter = server.resp3();
    holder.run(["LOCK.ACQUIRE", name, "OWNER", name]);
    waiter.run(["LOCK.ACQUIRE", name, "OWNER", name, "WAIT", "0", "PUSH"]);
    holder.run(["LOCK.ACQUIRE", "lost", "OWNER", name]);
    waiter.run("DEL lost");
    for words in ["ls", "who NAME", "why NAME", "log", "top --once"] {
        for json in [false, true] {
            let mut arguments: Vec<_> = words.split(' ').collect();
            for word in &mut arguments {
                *word = if *word == "NAME" { name } else { word };
            }
            arguments.extend(json.then_some("--json"));
            let output = tether(server.port(), &arguments);
            assert_eq!(output.status.code(), Some(0), "{words}: {output:?}");
            assert!(!steers(&output.stdout), "{words}: {output:?}");
            let said = String::from_utf8(output.stdout).unwrap();
            assert!(said.contains("202e"), "{words}: {said}");
            for line in said.lines().filter(|_| json) {
                serde_json::from_str::<serde_json::Value>(line).unwrap();
            }
            if json && words == "ls" {
                let line: serde_json::Value = serde_json::from_str(&said).unwrap();
                assert_eq!(line["key"], name);
            }
        }
    }
}

/// So slow that a byte comes before a limit for each read is over, and the answer does not come before the test is.
const APART: Duration = Duration::from_secs(2);

/// The way to a server that drips as soon as a command is asked of it whose name begins with one of these words.
fn dripping(to: u16, words: &'static [&'static str]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            let server = TcpStream::connect(("127.0.0.1", to)).unwrap();
            let (from_client, to_server) = (client.try_clone().unwrap(), server.try_clone());
            let (say, asked) = channel();
            thread::spawn(move || pass_on(from_client, to_server.unwrap(), words, &say));
            thread::spawn(move || drip(server, client, &asked));
        }
    });
    port
}

/// The module's commands, and INFO.
const ASKED: [&str; 5] = ["LOCK.", "SESSION.", "INFO", "WATCHEX", "WATCHTP"];

fn pass_on(mut from: TcpStream, mut to: TcpStream, words: &[&str], asked: &Sender<()>) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
        // Of the client library, not of its user.
        let text = text.replace("SETINFO", "");
        if words.iter().any(|word| text.contains(word)) {
            let _ = asked.send(());
        }
        if to.write_all(&bytes[..count]).is_err() {
            return;
        }
    }
}

fn drip(mut from: TcpStream, mut to: TcpStream, asked: &Receiver<()>) {
    let mut bytes = [0; 4096];
    let mut is_asked = false;
    while let Ok(count @ 1..) = from.read(&mut bytes) {
        is_asked = is_asked || asked.try_recv().is_ok();
        let step = if is_asked { 1 } else { count };
        for piece in bytes[..count].chunks(step) {
            if to.write_all(piece).is_err() {
                return;
            }
            if is_asked {
                thread::sleep(APART);
            }
        }
    }
}

#[test]
fn an_answer_that_drips_is_not_waited_for() {
    let server = Server::start();
    let mut holder = server.resp3();
    let mut other = server.resp3();
    holder.run("LOCK.ACQUIRE lost");
    other.run("DEL lost");
    holder.run("SESSION.START GRACE 60000");
    holder.run("LOCK.ACQUIRE report");
    let port = dripping(server.port(), &ASKED);
    let commands = COMMANDS.map(|arguments| {
        let output = thread::spawn(move || tether(port, arguments));
        (arguments, output)
    });
    for (arguments, output) in commands {
        eventually("its end", || match output.is_finished() {
            true => Ok(()),
            false => Err(format!("{arguments:?} runs")),
        });
        let output = output.join().unwrap();
        assert_eq!(output.status.code(), Some(69), "{arguments:?}: {output:?}");
    }
}

#[test]
fn nor_is_one_that_never_begins() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let commands = COMMANDS.map(|arguments| {
        let output = thread::spawn(move || tether(port, arguments));
        (arguments, output)
    });
    for (arguments, output) in commands {
        let output = output.join().unwrap();
        assert_eq!(output.status.code(), Some(69), "{arguments:?}: {output:?}");
    }
}

/// Also with a grace for which the server would be relied on far longer.
#[test]
fn whoever_does_not_wait_for_the_lock_does_not_wait_for_its_answer() {
    let server = Server::start();
    let port = dripping(server.port(), &["LOCK.ACQUIRE"]);
    let begun = Instant::now();
    let arguments = ["run", "--nowait", "--grace", "1h", "report", "--", "true"];
    let output = tether(port, &arguments);
    assert_eq!(output.status.code(), Some(69), "{output:?}");
    assert!(begun.elapsed() < Duration::from_secs(15));
}

#[test]
fn one_that_is_never_ready_is_not_waited_for() {
    let port = one_that_says_to("WATCHTP", "-TRYAGAIN the index is being built\r\n");
    let mut presence = command(port, &["presence", "--once", "worker:"]);
    let mut presence = presence.stderr(Stdio::piped()).spawn().unwrap();
    assert_eq!(ended(&mut presence).code(), Some(78));
    let mut said = String::new();
    presence.stderr.unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("TRYAGAIN the index is being built"), "{said}");
}
