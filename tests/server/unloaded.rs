//! A module that is not loaded says why, in one line of the log.

use crate::harness::*;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use tether_testing::process::end_with_us;

/// What does nothing but load a module, and refuses it something; see `refusing.c`.
struct Refusing {
    folder: tempfile::TempDir,
}

impl Refusing {
    fn new() -> Refusing {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/server/refusing.c");
        let mut cc = Command::new("cc");
        cc.arg("-o").arg(folder.path().join("refusing"));
        let built = cc.args([source, "-ldl"]).status();
        assert!(built.expect("a C compiler").success());
        Refusing { folder }
    }

    /// Whether the module is loaded, and what it logs, where these calls of a function are refused.
    fn load(&self, function: &str, from: u32) -> (bool, Vec<String>) {
        let mut program = Command::new(self.folder.path().join("refusing"));
        // A module that was compiled for a sanitizer (scripts/sanitize.sh) needs its runtime.
        if let Some(runtime) = std::env::var_os("TETHER_PRELOAD") {
            program.env("LD_PRELOAD", runtime);
        }
        let run = program.arg(module()).args([function, &from.to_string()]);
        let run = run.output().expect("it runs");
        assert!(run.status.success(), "{function} {from}: {run:?}");
        let said = String::from_utf8_lossy(&run.stdout).into_owned();
        let mut lines: Vec<_> = said.lines().map(str::to_owned).collect();
        let outcome = lines.pop();
        lines.retain(|line| line.starts_with("warning: "));
        (outcome.as_deref() == Some("loaded"), lines)
    }
}

#[test]
fn whatever_the_server_refuses_it_is_named_in_one_line() {
    let server = Refusing::new();
    let mut places = 0;
    for (function, names) in [
        ("GetDetachedThreadSafeContext", "context"),
        ("CreateDataType", "the data type \"tetherloc\""),
        ("CreateCommand", "the command "),
        ("GetCommand", "the command "),
        ("SetCommandACLCategories", "the ACL categories of "),
        ("SetCommandInfo", "the description of "),
        ("RegisterNumericConfig", "the setting tether."),
        ("RegisterBoolConfig", "the setting tether.resp2-push"),
        ("RegisterEnumConfig", "the setting tether.private-functions"),
        ("RegisterStringConfig", "the setting tether.qualified"),
        ("LoadConfigs", "the value of a tether.* setting"),
    ] {
        for from in 1.. {
            let (is_loaded, lines) = server.load(function, from);
            if is_loaded {
                assert!(from > 1, "{function} is never called");
                break;
            }
            let [line] = &lines[..] else {
                panic!("{function} {from}: {lines:?}")
            };
            assert!(
                line.starts_with("warning: tether is not loaded: "),
                "{line}"
            );
            assert!(line.contains(names), "{function} {from}: {line}");
            places += 1;
        }
    }
    assert!(places > 100, "{places}");
}

#[test]
fn without_a_category_of_its_own_the_module_is_loaded_and_says_so() {
    let (is_loaded, lines) = Refusing::new().load("AddACLCategory", 1);
    assert!(is_loaded, "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("@lock")), "{lines:?}");
    let (is_loaded, lines) = Refusing::new().load("AddACLCategory", 0);
    assert!(is_loaded, "{lines:?}");
    assert!(
        !lines.iter().any(|line| line.contains("@lock")),
        "{lines:?}"
    );
}

#[test]
fn an_older_server_is_told_apart_before_the_module_begins() {
    let (is_loaded, lines) = Refusing::new().load("RegisterNumericConfig", 0);
    assert!(!is_loaded);
    assert_eq!(
        lines,
        ["warning: tether is not loaded: it needs Redis 7.0 or Valkey 7.2, or later"]
    );
}

/// A server that does not start with these lines: its log.
fn refused_start(lines: &[&str]) -> String {
    let sound = Server::start();
    let config = std::fs::read_to_string(sound.folder().join("redis.conf"));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let place = folder.path().display();
    let more = format!(
        "dir {place}\nport 0\nunixsocket {place}/s\n{}\n",
        lines.join("\n")
    );
    let file = folder.path().join("redis.conf");
    std::fs::write(&file, config.expect("its settings") + &more).expect("a file");
    start(&file)
}

fn start(file: &Path) -> String {
    let log = file.with_extension("log");
    let mut command = Command::new(server_binary());
    command
        .arg(file)
        .stdout(File::create(&log).expect("a file"));
    end_with_us(&mut command);
    let mut server = command.spawn().expect("a server");
    let said = || std::fs::read_to_string(&log).expect("its log");
    let status = eventually("the end of a server that is to refuse this", || {
        let status = server.try_wait().expect("its state");
        status.ok_or_else(said)
    });
    assert!(!status.success(), "{}", said());
    assert!(status.code().is_some(), "it crashed: {}", said());
    said()
}

#[test]
fn a_server_that_does_not_start_names_what_it_was_told_wrongly() {
    let library = module().display().to_string();
    for (line, why) in [
        (
            format!("loadmodule {library}"),
            "tether is loaded already: the configuration names it twice",
        ),
        (
            "tether.peer-timeout soon".to_owned(),
            "the server refuses the value of a tether.* setting, which it names in the line before",
        ),
        (
            "tether.qualified x".to_owned(),
            "the server refuses the value of a tether.* setting, which it names in the line before",
        ),
    ] {
        let log = refused_start(&[&line]);
        let ours: Vec<_> = log
            .lines()
            .filter(|line| line.contains("tether is "))
            .collect();
        assert_eq!(ours.len(), 1, "{line}: {log}");
        assert!(ours[0].contains(why), "{line}: {log}");
        if why.contains("the line before") {
            let before = log.lines().zip(log.lines().skip(1));
            let mut before = before.filter(|(_, line)| line.contains("tether is "));
            let (before, _) = before.next().expect("a line before");
            let name = line.split(' ').next().unwrap_or_default();
            assert!(before.contains(name), "{before}");
        }
    }
}

#[test]
fn arguments_are_refused_with_the_way_to_give_settings() {
    let server = Server::with(&[WITHOUT_MODULE, "enable-module-command yes"]);
    let library = module().display().to_string();
    let mut client = server.resp2();
    client.refused(["MODULE", "LOAD", &library, "peer-timeout", "5000"]);
    let log = server.log();
    let why = "tether is not loaded: it takes no arguments after loadmodule";
    assert_eq!(log.matches(why).count(), 1, "{log}");
    assert_eq!(client.call("PING"), simple("PONG"));
}
