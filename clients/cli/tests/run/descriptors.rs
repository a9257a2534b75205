//! No child has a descriptor of the connection: the lock of a runner that is gone would live on with it.

use super::World;
use rustix::process::Pid;
use std::collections::BTreeSet;
use std::fs;

/// What a process has open, by the kernel's names: `socket:[1234]`.
fn open_in(process: Pid) -> BTreeSet<String> {
    let folder = format!("/proc/{}/fd", process.as_raw_nonzero());
    let links = fs::read_dir(folder).unwrap().flatten();
    let names = links.filter_map(|link| fs::read_link(link.path()).ok());
    names.map(|name| name.display().to_string()).collect()
}

fn sockets(open: &BTreeSet<String>) -> BTreeSet<&String> {
    open.iter()
        .filter(|name| name.starts_with("socket:"))
        .collect()
}

#[test]
fn neither_the_guard_nor_the_command_has_a_socket_of_the_runner() {
    let world = World::new();
    let script = "ls -l /proc/self/fd > open; echo listed > listed; while :; do sleep 0.1; done";
    let running = world.start(&[], script);
    world.eventually_file("listed");
    let runner = open_in(running.pid());
    // To the server, to the guard, and of signals both ends.
    assert!(sockets(&runner).len() >= 4, "{runner:?}");
    let guard = open_in(running.guard());
    let shared: Vec<_> = sockets(&runner)
        .intersection(&sockets(&guard))
        .cloned()
        .collect();
    assert!(shared.is_empty(), "{shared:?}");
    let listed = fs::read_to_string(world.file("open")).unwrap();
    assert!(listed.contains(" 1 -> "), "{listed}");
    for what in ["socket:", "anon_inode:"] {
        assert!(!listed.contains(what), "{listed}");
    }
}
