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

/// Waits until no more is used than before, but for some room. The server shrinks its table of keys and its pool of clients for
/// modules in its own time.
fn eventually_used(server: &Server, before: i64, what: &str) {
    eventually(&format!("the memory of {what}"), || {
        match used(server) - before {
            kept if kept < ROOM => {
                say(&format!("{what}: {kept:+} bytes afterwards"));
                Ok(())
            }
            kept => Err(format!("{kept} bytes are kept")),
        }
    });
}

fn assert_no_growth(
    server: &Server,
    what: &str,
    rounds: usize,
    round: impl Fn(usize, usize) + Sync,
) {
    const LANES: usize = 2;
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
    eventually_used(server, before, &format!("{rounds} rounds of {what}"));
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
    let server = Server::start().over_unix();
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
                }
            }
        },
    );
    assert_eq!(
        server.gauge("tether", "tether_removed_by_disconnect_total"),
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
    let server = Server::start().over_tcp();
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
        const AT_ONCE: usize = 50;
        let mut holders: Vec<_> = (0..AT_ONCE).map(|_| server.resp2()).collect();
        let mut waiters: Vec<_> = (0..AT_ONCE).map(|_| server.resp2()).collect();
        let acquire = |n| format!("LOCK.ACQUIRE lock:{lane}:{n} WAIT 0");
        for (n, holder) in holders.iter_mut().enumerate() {
            holder.run(&acquire(n));
        }
        for _ in 0..rounds / AT_ONCE {
            for (n, waiter) in waiters.iter_mut().enumerate() {
                waiter.send(&acquire(n));
            }
            for (n, holder) in holders.iter_mut().enumerate() {
                holder.send(&format!("LOCK.RELEASE lock:{lane}:{n}"));
            }
            for (holder, waiter) in holders.iter_mut().zip(&mut waiters) {
                assert_eq!(holder.read_reply(), int(0));
                assert!(waiter.read_reply().number() > 0);
            }
            std::mem::swap(&mut holders, &mut waiters);
        }
    });
}

/// Has very many of something at once, and not any more: does the memory come back with it?
fn assert_comes_back(server: &Server, what: &str, have: impl FnOnce()) {
    let before = used(server);
    have();
    eventually(&format!("the end of {what}"), || {
        let names = ["tether_holds", "tether_waiters", "tether_sessions_detached"];
        let counts = server.gauges("tether", names);
        match counts {
            [0, 0, 0] => Ok(()),
            _ => Err(format!("{names:?}: {counts:?}")),
        }
    });
    eventually_used(server, before, what);
}

#[test]
fn a_hundred_thousand_waits_at_once_are_forgotten_when_they_are_over() {
    let server = Server::with(&["tether.max-keys-per-client 1000000"]).over_tcp();
    let many = 100_000;
    assert_comes_back(&server, "waits with PUSH", || {
        let (mut holder, mut waiter) = (server.resp3(), server.resp3());
        holder.run("LOCK.ACQUIRE a");
        let wait = |n| format!("LOCK.ACQUIRE a OWNER {n} WAIT 0 PUSH");
        let replies = waiter.run_many((0..many).map(wait));
        assert!(replies.iter().all(|reply| *reply == Frame::Null));
        waiter.reset();
        holder.reset();
    });
}

#[test]
fn a_hundred_thousand_semaphores_at_once_are_forgotten_when_they_are_over() {
    let server = Server::with(&["tether.max-keys-per-client 1000000"]).over_tcp();
    let many = 120_000;
    assert_comes_back(&server, "semaphores", || {
        let mut client = server.resp3();
        let acquire = |n| format!("LOCK.ACQUIRE a:{n} PERMITS 1 OF 2");
        client.run_many((0..many).map(acquire));
        client.reset();
    });
}

#[test]
fn many_sessions_at_once_are_forgotten_when_they_are_over() {
    const AT_ONCE: usize = 100;
    let server = Server::start().over_tcp();
    let many = 15_000;
    assert_comes_back(&server, "detached sessions", || {
        let mut secrets = Vec::new();
        while secrets.len() < many {
            let mut clients: Vec<_> = (0..AT_ONCE).map(|_| server.resp2()).collect();
            let start = "SESSION.START GRACE 600000";
            clients.iter_mut().for_each(|client| client.send(start));
            for mut client in clients {
                secrets.push(client.reply_to(start).text());
                client.reset();
            }
        }
        let end = |secret| [format!("SESSION.RESUME {secret}"), "SESSION.END".into()];
        let replies = server.resp2().run_many(secrets.into_iter().flat_map(end));
        assert!(replies.iter().all(|reply| *reply == int(0)));
    });
}

fn usage(client: &mut Client, key: &str) -> i64 {
    client.call(format!("MEMORY USAGE {key}").as_str()).number()
}

#[test]
fn what_a_lock_takes_grows_with_its_holders_and_waiters() {
    const MANY: i64 = 2000;
    let server = Server::start();
    let (mut one, mut other) = (server.resp3(), server.resp3());
    one.run("LOCK.ACQUIRE k SHARED");
    let alone = usage(&mut one, "k");
    one.run_many((0..MANY).map(|number| format!("LOCK.ACQUIRE k SHARED OWNER {number:0100}")));
    let crowd = usage(&mut one, "k");
    assert!(crowd > alone + MANY * 150, "{alone} and then {crowd}");
    assert!(crowd < alone + MANY * 1000, "{alone} and then {crowd}");
    let wait = |number| format!("LOCK.ACQUIRE k OWNER {number:0100} WAIT 0 PUSH");
    other.run_many((0..MANY).map(wait));
    let queue = usage(&mut one, "k");
    assert!(queue > crowd + MANY * 150, "{crowd} and then {queue}");
    // However few are looked at; the first one here has no label.
    let one_look = one.call("MEMORY USAGE k SAMPLES 2").number();
    let all = one.call("MEMORY USAGE k SAMPLES 0").number();
    assert!((one_look - all).abs() < all / 3, "{one_look} and {all}");
    let (holders, waiters) = (
        server.gauge("tether", "tether_holds"),
        server.gauge("tether", "tether_waiters"),
    );
    assert_eq!((holders, waiters), (MANY + 1, MANY));
    // Another key of that name is none of it.
    one.run_all(&["SELECT 1", "LOCK.ACQUIRE k"]);
    assert!(usage(&mut one, "k") < alone + 100);
}
