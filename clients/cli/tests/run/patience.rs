//! How long `tether run` waits for the lock and for the server, by its own clock.

use super::{World, text};
use rustix::process::Signal;
use std::fs::{self, File};
use std::net::TcpListener;
use std::process::Child;
use std::time::{Duration, Instant};
use tether_testing::harness::{Server, eventually, eventually_equal};
use tether_testing::process::ended;

/// A fence of half a second, and no less than a busy machine can keep.
const SHORT: [&str; 4] = ["--grace", "4s", "--kill-after", "1s"];

/// It wants the lock, with its standard error in a file.
fn start(world: &World, options: &[&str]) -> Child {
    let arguments = [options, &["report", "--", "true"]].concat();
    let said = File::create(world.file("said")).unwrap();
    world.tether(&arguments).stderr(said).spawn().unwrap()
}

fn eventually_says(world: &World, what: &str) {
    eventually(what, || {
        let said = fs::read_to_string(world.file("said")).unwrap();
        said.contains(what).then_some(()).ok_or(said)
    });
}

fn lost_before_start(world: &World) -> String {
    let server = world.address();
    format!("tether: lost the lock 'report': {server}: LOST deleted; 'true' was not started")
}

fn eventually_succeeds(mut process: Child) {
    assert_eq!(ended(&mut process).code(), Some(0));
}

#[test]
fn no_time_to_wait_is_not_for_ever() {
    let world = World::new();
    let mut holder = world.server.resp3();
    holder.run("LOCK.ACQUIRE report");
    let mut process = start(&world, &["--wait", "0"]);
    assert_eq!(ended(&mut process).code(), Some(75));
}

#[test]
fn a_server_that_is_away_at_the_start_is_waited_for() {
    for options in [&[][..], &["--wait", "1h"]] {
        let mut world = World::new();
        world.server.kill();
        let process = start(&world, options);
        eventually_says(&world, "tether: no lock 'report' yet: ");
        world.server.restart_as_it_was();
        eventually_succeeds(process);
    }
}

/// What is in the server's place takes two connections, and ends each of them.
#[test]
fn who_is_quiet_says_nothing_of_a_server_that_is_away() {
    for (options, is_quiet) in [(&["--quiet"][..], true), (&[], false)] {
        let mut world = World::new();
        world.server.kill();
        let place = TcpListener::bind(("127.0.0.1", world.server.port())).unwrap();
        let process = start(&world, options);
        for _ in 0..2 {
            drop(place.accept().unwrap());
        }
        drop(place);
        world.server.restart_as_it_was();
        eventually_succeeds(process);
        let said = fs::read_to_string(world.file("said")).unwrap();
        assert_eq!(said.is_empty(), is_quiet, "{said}");
    }
}

#[test]
fn one_that_restarts_meanwhile_too() {
    let mut world = World::new();
    let mut holder = world.server.resp3();
    holder.run("LOCK.ACQUIRE report");
    let process = start(&world, &["--wait", "1h"]);
    eventually_equal("its wait", 1, || world.waiters());
    world.server.crash_and_restart();
    eventually_succeeds(process);
}

/// The lock was granted, and goes with the server's data.
#[test]
fn one_that_restarts_while_the_announced_name_is_waited_for_too() {
    let mut world = World::new();
    let mut holder = world.server.resp3();
    holder.run("SETTP worker:1 theirs");
    let process = start(&world, &["--announce", "worker:1=ours"]);
    eventually_equal("its wait", 1, || world.waiters());
    world.server.restart_without_files();
    eventually_succeeds(process);
}

#[test]
fn one_that_grants_nothing_after_its_start_too() {
    let mut world = World::new();
    world.server.restart(&["tether.quarantine 1500"]);
    let mut process = start(&world, &["--nowait"]);
    assert_eq!(ended(&mut process).code(), Some(75));
    eventually_succeeds(start(&world, &["--wait", "1h"]));
}

#[test]
fn one_that_stops_for_longer_than_it_is_relied_on_too() {
    let world = World::new();
    let mut holder = world.server.resp3();
    holder.run("LOCK.ACQUIRE report");
    let process = start(&world, &SHORT);
    eventually_equal("its wait", 1, || world.waiters());
    Server::signal(world.server.pid(), Signal::STOP.as_raw());
    eventually_says(&world, "yet: ");
    Server::signal(world.server.pid(), Signal::CONT.as_raw());
    holder.run("LOCK.RELEASE report");
    eventually_succeeds(process);
}

/// With a grace for which the server would be relied on far longer than that.
#[test]
fn the_time_to_wait_is_over_whatever_the_server_does() {
    let world = World::new();
    let mut holder = world.server.resp3();
    holder.run("LOCK.ACQUIRE report");
    let mut process = start(&world, &["--grace", "1h", "--wait", "1s"]);
    eventually_equal("its wait", 1, || world.waiters());
    Server::signal(world.server.pid(), Signal::STOP.as_raw());
    let stopped = Instant::now();
    let code = ended(&mut process).code();
    Server::signal(world.server.pid(), Signal::CONT.as_raw());
    assert!(stopped.elapsed() < Duration::from_secs(15));
    // If it was stopped too late, the server has said so itself.
    assert!(matches!(code, Some(69 | 75)), "{code:?}");
}

#[test]
fn what_is_lost_before_the_start_is_lost() {
    let world = World::new();
    let mut holder = world.server.resp3();
    holder.run("LOCK.ACQUIRE report");
    let process = start(&world, &[]);
    eventually_equal("its wait", 1, || world.waiters());
    holder.pipeline(&["MULTI", "LOCK.RELEASE report", "DEL report", "EXEC"]);
    let output = process.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(79));
    eventually_says(&world, &lost_before_start(&world));
    assert_eq!(text(&output.stdout), "");
}

#[test]
fn a_name_is_not_waited_for_without_the_lock() {
    let world = World::new();
    let mut holder = world.server.resp3();
    holder.run("SETTP worker:1 theirs");
    let mut process = start(&world, &["--announce", "worker:1=ours"]);
    eventually_equal("its wait", 1, || world.waiters());
    holder.run("DEL report");
    assert_eq!(ended(&mut process).code(), Some(79));
    eventually_says(&world, &lost_before_start(&world));
}
