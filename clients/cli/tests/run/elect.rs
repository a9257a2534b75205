//! `tether elect` on a real server.

use super::{Running, World};
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use tether_testing::harness::{eventually, eventually_equal};

/// Stands with a name of its own, and says in a file of that name when it leads.
fn stand(world: &World, name: &str, options: &[&str]) -> Running {
    let script = format!(
        "echo $TETHER_KEY $TETHER_TOKEN >> {name}; while [ ! -e enough ]; do sleep 0.02; done; exit 6"
    );
    let mut command = Command::new(env!("CARGO_BIN_EXE_tether"));
    command
        .current_dir(world.folder.path())
        .stdin(Stdio::null());
    let url = format!("redis://127.0.0.1:{}", world.server.port());
    command.env("TETHER_URL", url);
    command.args(["elect", "--value", name]).args(options);
    command.args(["boss", "--", "sh", "-c", &script]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let runner = Some(command.spawn().unwrap());
    Running { runner }
}

/// How often it has led.
fn terms(world: &World, name: &str) -> usize {
    fs::read_to_string(world.file(name)).map_or(0, |text| text.lines().count())
}

#[test]
fn one_leads_and_who_loses_the_lead_stands_again() {
    let world = World::new();
    let mut client = world.server.resp3();
    let mut one = stand(&world, "one", &[]);
    eventually_equal("the first term", 1, || terms(&world, "one"));
    assert_eq!(client.run("GET boss").text(), "one");
    let mut two = stand(&world, "two", &[]);
    eventually_equal("the second's wait", 1, || world.waiters());
    client.run("DEL boss");
    eventually_equal("the second's term", 1, || terms(&world, "two"));
    assert_eq!(client.run("GET boss").text(), "two");
    eventually_equal("the first's wait", 1, || world.waiters());
    two.signal(Signal::TERM);
    assert_eq!(two.end().0, -15);
    eventually_equal("the first's next term", 2, || terms(&world, "one"));
    let tokens = fs::read_to_string(world.file("one")).unwrap();
    let tokens: Vec<u64> = tokens
        .lines()
        .map(|line| line.strip_prefix("boss ").unwrap().parse().unwrap())
        .collect();
    assert!(tokens[0] < tokens[1], "{tokens:?}");
    // Whose command ends has resigned.
    fs::write(world.file("enough"), "").unwrap();
    let (code, said) = one.end();
    assert_eq!(code, 6, "{said}");
    let lost = format!("lost the lead 'boss': {}: LOST deleted", world.address());
    assert!(said.contains(&lost), "{said}");
    assert!(said.contains("it stands again"), "{said}");
    eventually("its resignation", || {
        match client.run("EXISTS boss").number() {
            0 => Ok(()),
            _ => Err("it leads".to_owned()),
        }
    });
}

#[test]
fn a_candidate_outlives_restarts_of_the_server() {
    let mut world = World::new();
    world.server.kill();
    let mut one = stand(&world, "one", &[]);
    let runner = one.runner.as_mut().unwrap();
    let mut said = BufReader::new(runner.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.starts_with("tether: no lead 'boss' yet: "), "{line}");
    runner.stderr = Some(said.into_inner());
    world.server.restart_as_it_was();
    eventually_equal("its term", 1, || terms(&world, "one"));
    let mut two = stand(&world, "two", &[]);
    eventually_equal("the second's wait", 1, || world.waiters());
    // The lead is lost with the data, and both stand again.
    world.server.restart_without_files();
    eventually_equal("a term after the restart", 2, || {
        terms(&world, "one") + terms(&world, "two")
    });
    eventually_equal("a wait after the restart", 1, || world.waiters());
    fs::write(world.file("enough"), "").unwrap();
    for candidate in [&mut one, &mut two] {
        let (code, said) = candidate.end();
        assert_eq!(code, 6, "{said}");
    }
}

#[test]
fn once_is_one_term() {
    let world = World::new();
    let mut one = stand(&world, "one", &["--once"]);
    eventually_equal("its term", 1, || terms(&world, "one"));
    world.server.resp3().run("DEL boss");
    let (code, said) = one.end();
    assert_eq!(code, 79, "{said}");
}

#[test]
fn what_a_term_has_started_is_gone_with_it() {
    let world = World::new();
    let mut client = world.server.resp3();
    let mut one = stand(&world, "one", &[]);
    for term in 1..=4 {
        eventually_equal("its term", term, || terms(&world, "one"));
        client.run("DEL boss");
    }
    eventually_equal("its last term", 5, || terms(&world, "one"));
    // The guard of this term.
    eventually_equal("children", 1, || children(&one));
    fs::write(world.file("enough"), "").unwrap();
    assert_eq!(one.end().0, 6);
}

/// How many it has, those that have ended too.
fn children(runner: &Running) -> usize {
    let pid = runner.pid().as_raw_nonzero();
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.split_whitespace().count()
}
