//! What else can be asked of `tether run`.

use super::{World, text};
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use tether_testing::harness::sentinel::{LONG, Sentinel};
use tether_testing::harness::{Server, eventually, eventually_equal, eventually_within, null};

#[test]
fn whose_lock_it_is_is_said_or_not() {
    let world = World::new();
    let mut holder = world.server.resp3();
    holder.run("CLIENT SETNAME web-3");
    holder.run("LOCK.ACQUIRE report");
    let said = |options: &[&str]| {
        let arguments = [options, &["report", "--", "true"]].concat();
        let output = world.run(&arguments);
        (
            output.status.code().unwrap(),
            text(&output.stderr).to_owned(),
        )
    };
    let (code, why) = said(&["--nowait"]);
    let begin = format!(
        "tether: no lock 'report': 127.0.0.1:{}: held by client {} (127.0.0.1:",
        world.server.port(),
        holder.id()
    );
    assert!(code == 75 && why.starts_with(&begin), "{code} {why}");
    assert!(why.contains(", web-3) since "), "{why}");
    let (code, why) = said(&["--nowait", "--taken-exit", "0"]);
    assert!(code == 0 && why.contains("held by"), "{code} {why}");
    assert_eq!(
        said(&["--nowait", "--quiet", "--taken-exit", "9"]),
        (9, String::new())
    );
    assert_eq!(said(&["-q", "--wait", "0.1"]), (75, String::new()));
    // What fails is said all the same.
    let (code, why) = said(&["-q", "--nowait", "--url", "redis://127.0.0.1:1"]);
    assert!(code == 69 && why.contains("127.0.0.1:1: "), "{code} {why}");
}

#[test]
fn a_key_that_begins_with_a_dash_can_be_locked() {
    let world = World::new();
    let output = world.run(&["--key", "-x", "--", "sh", "-c", "echo $TETHER_KEY"]);
    assert_eq!(text(&output.stdout), "-x\n", "{output:?}");
    let output = world.run(&["", "--", "true"]);
    assert_eq!(output.status.code(), Some(64), "{output:?}");
}

#[test]
fn a_lock_is_kept_for_the_least_time() {
    let world = World::new();
    let run = |at_least: &str, key: &str| {
        let output = world.run(&["--at-least", at_least, key, "--", "sh", "-c", "exit 3"]);
        assert_eq!(output.status.code(), Some(3), "{output:?}");
    };
    run("1h", "long");
    run("300ms", "short");
    let mut client = world.server.resp3();
    assert_eq!(client.run("LOCK.ACQUIRE long"), null());
    eventually("the other lock", || {
        match client.run("LOCK.ACQUIRE short") {
            taken if taken == null() => Err("it is kept".to_owned()),
            _ => Ok(()),
        }
    });
    let output = world.run(&["--grace", "20s", "--at-least", "30s", "x", "--", "true"]);
    assert_eq!(output.status.code(), Some(64), "{output:?}");
    assert!(text(&output.stderr).contains("needs a --grace as long"));
}

#[test]
fn what_is_announced_is_there_while_the_command_runs() {
    let world = World::new();
    let mut client = world.server.resp3();
    let script = "while [ ! -e enough ]; do sleep 0.02; done; exit 5";
    let mut running = world.start(&["--announce", "worker:1=10.0.0.3:80"], script);
    assert_eq!(client.run("GET worker:1").text(), "10.0.0.3:80");
    // Its name is taken: nothing is run, and nothing is held.
    let taken = ["--nowait", "--announce", "worker:1", "other", "--", "true"];
    let output = world.run(&taken);
    assert_eq!(output.status.code(), Some(75), "{output:?}");
    assert!(text(&output.stderr).contains("the key 'worker:1' exists already"));
    assert_ne!(client.run("LOCK.ACQUIRE other"), null());
    // Without it the command goes on.
    client.run("DEL worker:1");
    fs::write(world.file("enough"), "").unwrap();
    let (code, said) = running.end();
    assert_eq!(code, 5, "{said}");
    assert_eq!(world.server.gauge("tether", "tether_temporary_keys"), 0);
}

/// Of what a command prints, which is killed then.
fn first_line(mut command: Command) -> String {
    let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    let mut said = BufReader::new(process.stdout.take().unwrap());
    said.read_line(&mut line).unwrap();
    process.kill().unwrap();
    process.wait().unwrap();
    line
}

/// For each command that asks a server; and a wait goes on at the next master.
#[test]
fn sentinels_say_where_the_master_is() {
    let world = World::new();
    let replicas = [
        Server::replica_of(&world.server, &[]),
        Server::replica_of(&world.server, &[]),
    ];
    let sentinel = Sentinel::watching(&world.server);
    let url = format!("redis+sentinel://127.0.0.1:{}/tether", sentinel.port());
    let mut holder = world.server.resp3();
    holder.run_all(&[
        "LOCK.ACQUIRE report",
        "LOCK.ACQUIRE report-2",
        "SETTP workers:1 here",
    ]);
    let mut other = world.server.resp3();
    other.run("SESSION.START GRACE 10000");
    let tether = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tether"));
        command.args(arguments).env("TETHER_URL", &url);
        command
    };
    let look = |arguments: &[&str]| {
        let output = tether(arguments).output().unwrap();
        let said = text(&output.stdout).to_owned() + text(&output.stderr);
        (output.status.code().unwrap(), said)
    };
    let session = format!("\"client\":{}", other.id());
    for (arguments, what) in [
        (&["who", "report"][..], "report"),
        (&["ls"], "report"),
        (&["top", "--once"], "report"),
        (&["why", "report"], "report"),
        (&["sessions", "--json"], &session),
        (&["presence", "--once", "workers:"], "workers:1"),
        (&["kick", "report-2"], "report-2"),
        (&["log"], "report-2"),
        (&["metrics"], "tether_holds 1"),
        (&["elect", "boss", "--", "echo", "leads"], "leads"),
    ] {
        let (code, said) = look(arguments);
        assert!(code == 0 && said.contains(what), "{arguments:?}: {said}");
    }
    assert_eq!(first_line(tether(&["watch", "report"])), "EXIST report\n");
    let (code, said) = look(&["run", "--nowait", "report", "--", "true"]);
    let held = format!("127.0.0.1:{}: held by client ", world.server.port());
    assert!(code == 75 && said.contains(&held), "{said}");
    // One alone cannot replace the master, and is too slow for that grace, of which the work may take five seconds to stop.
    let (code, said) = look(&["doctor", "--grace", "10s"]);
    assert!(code == 1 && said.contains("2 must agree"), "{said}");
    assert!(said.contains("until it replaces a silent master"), "{said}");
    assert!(
        said.contains("SENTINEL SET tether down-after-milliseconds 2000"),
        "{said}"
    );
    let mut waiter = world.tether(&["report", "--", "true"]);
    let mut waiter = waiter
        .env("TETHER_URL", &url)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually_equal("its wait", 1, || world.waiters());
    // It refuses until it knows the replica.
    eventually_equal("a failover", true, || sentinel.fail_over());
    let status = eventually_within(LONG, "its lock", || {
        let status = waiter.try_wait().unwrap();
        status.ok_or_else(|| "it waits".to_owned())
    });
    assert_eq!(status.code(), Some(0));
    let (code, said) = look(&["--url", "redis+sentinel://127.0.0.1:1/x", "ls"]);
    assert!(code == 69 && said.contains("127.0.0.1:1: "), "{said}");
    drop(replicas);
}
