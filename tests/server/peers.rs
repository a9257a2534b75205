//! Dead peers: a host that vanishes sends no FIN, and is noticed within `tether.peer-timeout` all the same.

#![cfg(target_os = "linux")]

use crate::harness::namespace::{Cable, SERVER_ADDRESS};
use crate::harness::*;
use std::time::{Duration, Instant};

const TIMEOUT_MS: u64 = 3000;

/// A server that is reached over a cable, in a network of its own. None, said aloud, where that cannot be.
fn with_cable(test: &str, work: impl FnOnce(&Cable, &Server, &dyn Fn() -> Client) + Send) {
    if let Some(reason) = Cable::impossible_here() {
        return say(&format!("{test}: SKIPPED: {reason}"));
    }
    let cable = Cable::lay();
    cable.server_side.enter(|| {
        let server = Server::with(&[
            &format!("bind 127.0.0.1 {SERVER_ADDRESS}"),
            "protected-mode no",
            &format!("tether.peer-timeout {TIMEOUT_MS}"),
            "tcp-keepalive 300",
        ]);
        let connect = || {
            let stream = cable
                .client_side
                .enter(|| std::net::TcpStream::connect((SERVER_ADDRESS, server.port())));
            Client::over(stream.expect("a connection over the cable"))
        };
        work(&cable, &server, &connect);
    });
}

/// How long it takes until `key` is gone; no longer than the timeout and two seconds more.
fn assert_gone_in_time(server: &Server, key: &str) {
    let cut = Instant::now();
    let patience = Duration::from_millis(TIMEOUT_MS + 2000);
    let mut other = server.resp2();
    eventually_within(patience, &format!("the end of {key}"), || {
        match other.run(["EXISTS", key]).number() {
            0 => Ok(()),
            _ => Err("it exists".into()),
        }
    });
    say(&format!(
        "{key}: gone {} ms after the cable was cut (timeout {TIMEOUT_MS} ms)",
        cut.elapsed().as_millis()
    ));
}

#[test]
fn a_host_that_vanishes_loses_its_keys_in_time() {
    with_cable(
        "a_host_that_vanishes_loses_its_keys_in_time",
        |cable, server, connect| {
            let mut owner = connect();
            assert_eq!(owner.call("SETTP silent v"), int(1));
            cable.cut();
            assert_gone_in_time(server, "silent");
        },
    );
}

#[test]
fn so_does_one_with_pushes_on_their_way_to_it() {
    with_cable(
        "so_does_one_with_pushes_on_their_way_to_it",
        |cable, server, connect| {
            let mut owner = connect().hello3();
            assert_eq!(owner.call("SETTP busy v"), int(1));
            owner.run("WATCHEX toggled");
            cable.cut();
            // Unacknowledged bytes: the kernel retransmits instead of probing.
            let mut other = server.resp2();
            for _ in 0..10 {
                other.run_all(&["SET toggled v", "DEL toggled"]);
            }
            assert_gone_in_time(server, "busy");
        },
    );
}

#[test]
fn so_does_one_that_is_sent_pushes_again_and_again() {
    with_cable(
        "so_does_one_that_is_sent_pushes_again_and_again",
        |cable, server, connect| {
            let mut owner = connect().hello3();
            assert_eq!(owner.call("SETTP k v"), int(1));
            owner.run("WATCHEX toggled");
            cable.cut();
            let cut = Instant::now();
            let patience = Duration::from_millis(TIMEOUT_MS + 2000);
            let mut other = server.resp2();
            eventually_within(patience, "the end of k", || {
                other.run_all(&["SET toggled v", "DEL toggled"]);
                match other.run("EXISTS k").number() {
                    0 => Ok(()),
                    _ => Err("it exists".into()),
                }
            });
            say(&format!(
                "with a stream of pushes: gone {} ms after the cable was cut",
                cut.elapsed().as_millis()
            ));
        },
    );
}

#[test]
fn a_host_that_answers_keeps_its_keys() {
    with_cable(
        "a_host_that_answers_keeps_its_keys",
        |_, server, connect| {
            let mut owner = connect();
            owner.run("SETTP k v");
            // Silent for longer than the timeout, on a cable that works: the two kernels keep it alive.
            std::thread::sleep(Duration::from_millis(TIMEOUT_MS + 2000));
            assert_eq!(server.resp2().call("EXISTS k"), int(1));
            assert_eq!(owner.call("PING"), simple("PONG"));
        },
    );
}

#[test]
fn with_a_timeout_of_0_the_socket_is_left_alone() {
    with_cable(
        "with_a_timeout_of_0_the_socket_is_left_alone",
        |cable, server, connect| {
            server.resp2().run("CONFIG SET tether.peer-timeout 0");
            let mut owner = connect();
            owner.run("SETTP k v");
            cable.cut();
            std::thread::sleep(Duration::from_millis(TIMEOUT_MS + 2000));
            assert_eq!(
                server.resp2().call("EXISTS k"),
                int(1),
                "tcp-keepalive is 300 s here"
            );
        },
    );
}
