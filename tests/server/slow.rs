//! A watcher that never reads costs no more than redis.conf's output-buffer limit, and nobody else anything.

use crate::harness::*;

/// The hard limit for normal clients that redis.conf sets.
fn output_limit(server: &Server) -> i64 {
    let limits = server
        .resp2()
        .run("CONFIG GET client-output-buffer-limit")
        .items()[1]
        .text();
    let words: Vec<_> = limits.split(' ').collect();
    let normal = words
        .iter()
        .position(|word| *word == "normal")
        .expect("a limit for normal clients");
    words[normal + 1].parse().expect("a number of bytes")
}

#[test]
fn a_watcher_that_never_reads_is_cut_off_and_the_others_hear_everything() {
    let server = Server::start();
    let limit = output_limit(&server);
    assert!(
        limit > 0,
        "redis.conf must bound the output buffers of normal clients"
    );

    let name = "k".repeat(64 * 1024);
    let (mut slow, mut quick, mut old, mut other) = (
        server.resp3(),
        server.resp3(),
        server.resp2(),
        server.resp2(),
    );
    let slow_id = slow.id().to_string();
    for watcher in [&mut slow, &mut quick, &mut old] {
        watcher.run(["WATCHEX", &name]);
    }
    let before = server.gauge("memory", "used_memory");
    // More than the limit, what the two kernels buffer on the way, and then as much again.
    let rounds = (limit + (16 << 20)) / (64 * 1024);
    let (mut most, mut cut_off) = (0, false);
    for round in 0..rounds {
        other.run(["SET", &name, "v"]);
        other.run(["DEL", &name]);
        for watcher in [&mut quick, &mut old] {
            assert!(watcher.next_push().ends_with(" ADD"), "round {round}");
            assert!(watcher.next_push().ends_with(" DEL"), "round {round}");
        }
        if round % 16 == 0 {
            most = most.max(server.gauge("memory", "used_memory") - before);
            cut_off = other
                .run(["CLIENT", "LIST", "ID", &slow_id])
                .text()
                .is_empty();
        }
    }
    assert!(
        cut_off,
        "the watcher that never reads is still connected; the server grew by {most} bytes"
    );
    say(&format!(
        "a watcher that never reads: the server grew by {} MB at most, its limit is {} MB",
        most >> 20,
        limit >> 20
    ));
    assert!(
        most < limit + limit / 2 + (8 << 20),
        "the server grew by {most} bytes, the limit is {limit}"
    );
    let after = server.gauge("memory", "used_memory") - before;
    assert!(
        after < 4 << 20,
        "{after} bytes are still in use after the slow watcher was cut off"
    );
    for watcher in [&mut quick, &mut old] {
        assert_eq!(server.settled(watcher), [""; 0]);
    }
    slow.expect_closed();
}

#[test]
fn a_slow_watcher_that_owns_keys_loses_them_when_it_is_cut_off() {
    let server = Server::with(&["client-output-buffer-limit normal 1mb 0 0"]);
    let (mut slow, mut quick, mut other) = (server.resp3(), server.resp3(), server.resp2());
    let name = "k".repeat(64 * 1024);
    slow.run(["WATCHEX", &name]);
    slow.run("SETTP mine v NOTIFY");
    quick.run("WATCHEX mine");
    eventually_equal("the keys of the slow watcher", int(0), || {
        other.run(["SET", &name, "v"]);
        other.run(["DEL", &name]);
        other.run("EXISTS mine")
    });
    assert_eq!(quick.next_push(), "watchex mine DEL");
    assert_eq!(server.settled(&mut quick), [""; 0]);
}

#[test]
fn many_watchers_that_never_read_are_cut_off_in_the_midst_of_a_push_to_all() {
    let server = Server::with(&["client-output-buffer-limit normal 256kb 0 0"]);
    let name = "k".repeat(64 * 1024);
    let mut slow: Vec<_> = (0..20)
        .map(|n| {
            let mut watcher = server.resp3();
            watcher.run(["WATCHEX", &name]);
            watcher.run(["SETTP", &format!("mine{n}"), "v"]);
            watcher
        })
        .collect();
    let (mut quick, mut other) = (server.resp3(), server.resp2());
    quick.run(["WATCHEX", &name]);
    eventually("the end of all slow watchers", || {
        other.run(["SET", &name, "v"]);
        other.run(["DEL", &name]);
        assert!(quick.next_push().ends_with(" ADD"));
        assert!(quick.next_push().ends_with(" DEL"));
        match other.run("DBSIZE").number() {
            0 => Ok(()),
            count => Err(format!("{count} keys are left")),
        }
    });
    assert_eq!(server.settled(&mut quick), [""; 0]);
    slow.iter_mut().for_each(Client::expect_closed);
}
