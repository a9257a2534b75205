//! Nothing is left behind: memory after very many rounds is what it was before.

use crate::harness::*;
use std::thread;

const ROOM: i64 = 1 << 20;

/// `used_memory` when nothing is going on.
fn used(server: &Server) -> i64 {
    eventually("the end of all other connections", || {
        match server.gauge("clients", "connected_clients") {
            1 => Ok(()),
            count => Err(format!("{count} clients")),
        }
    });
    server.gauge("memory", "used_memory")
}

fn assert_no_growth(
    server: &Server,
    what: &str,
    rounds: usize,
    round: impl Fn(usize, usize) + Sync,
) {
    const LANES: usize = 2;
    let _alone = one_at_a_time();
    let run = |rounds: usize| {
        thread::scope(|scope| {
            for lane in 0..LANES {
                let round = &round;
                scope.spawn(move || round(lane, rounds / LANES));
            }
        });
    };
    run(10_000); // the server's own tables find their size
    let before = used(server);
    run(rounds);
    let growth = used(server) - before;
    say(&format!("{what}: {rounds} rounds, memory {growth:+} bytes"));
    assert!(
        growth < ROOM,
        "{what}: {growth} bytes more after {rounds} rounds"
    );
    assert_eq!(server.resp2().run("DBSIZE"), int(0));
    for name in ["temporary_keys", "watches", "watched_keys"] {
        assert_eq!(
            server.gauge("tether", &format!("tether_{name}")),
            0,
            "{name}"
        );
    }
}

#[test]
fn a_hundred_thousand_connections_that_take_a_key_and_go_leave_nothing() {
    let server = Server::start();
    assert_no_growth(
        &server,
        "connect, SETTP, disconnect",
        100_000,
        |lane, rounds| {
            const AT_ONCE: usize = 50;
            for batch in 0..rounds / AT_ONCE {
                let mut clients: Vec<_> = (0..AT_ONCE).map(|_| server.resp2()).collect();
                for (n, client) in clients.iter_mut().enumerate() {
                    client.send(["SETTP", &format!("key:{lane}:{batch}:{n}"), "v"]);
                }
                for mut client in clients {
                    assert_eq!(client.read_reply(), int(1));
                    client.reset(); // a FIN would leave this side's port in use for a minute
                }
            }
        },
    );
    assert_eq!(
        server.gauge("tether", "tether_keys_removed_by_disconnect"),
        110_000
    );
}

#[test]
fn a_million_watches_that_come_and_go_leave_nothing() {
    let server = Server::start();
    assert_no_growth(&server, "WATCHEX, UNWATCHEX", 1_000_000, |lane, rounds| {
        let mut client = server.resp3();
        for start in (0..rounds).step_by(500) {
            let mut commands = Vec::new();
            for n in start..start + 500 {
                let name = format!("key:{lane}:{n}");
                commands.extend(encode(["WATCHEX", &name]));
                commands.extend(encode(["UNWATCHEX", &name]));
            }
            client.send_bytes(&commands);
            for _ in 0..500 {
                assert_eq!(client.read_reply(), bulk("NOEXIST"));
                assert_eq!(client.read_reply(), int(1));
            }
        }
    });
}

#[test]
fn watchers_that_end_with_all_their_watches_leave_nothing() {
    let server = Server::start();
    assert_no_growth(
        &server,
        "connect, WATCHEX of 100, SETTP, disconnect",
        20_000,
        |lane, rounds| {
            for n in 0..rounds / 100 {
                let mut client = server.resp3();
                let mut command = vec!["WATCHEX".to_owned()];
                command.extend((0..100).map(|key| format!("key:{lane}:{n}:{key}")));
                client.run(command);
                client.run(["SETTP", &format!("key:{lane}:{n}:0"), "v"]);
                client.reset();
            }
        },
    );
}

#[test]
fn a_hundred_thousand_handoffs_leave_nothing() {
    let server = Server::start();
    assert_no_growth(&server, "handoffs", 100_000, |lane, rounds| {
        let acquire = format!("LOCK.ACQUIRE lock:{lane} WAIT 0");
        let release = format!("LOCK.RELEASE lock:{lane}");
        let (mut holder, mut waiter) = (server.resp2(), server.resp2());
        holder.run(&acquire);
        for _ in 0..rounds {
            waiter.send(&acquire);
            assert_eq!(holder.run(&release), int(0));
            assert!(waiter.read_reply().number() > 0);
            std::mem::swap(&mut holder, &mut waiter);
        }
    });
}
