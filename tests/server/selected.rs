//! A connection stays in the database that it has selected, whatever is written on its turn in others. Some servers select the
//! database of each keyspace event for the connection whose command is executing, and leave it selected.

use crate::harness::*;
use crate::settp::heard::listener;

/// The database that this connection has selected.
fn selected(client: &mut Client) -> String {
    let info = client.run("CLIENT INFO").text();
    let db = info.split(' ').find_map(|field| field.strip_prefix("db="));
    db.expect("a database").to_owned()
}

/// Servers by who listens to keyspace events beside us. None of them expires a key by itself.
fn servers() -> [(&'static str, Server); 3] {
    let (_folder, library) = listener();
    let servers = [
        ("nobody", Server::start()),
        ("clients", Server::with(&["notify-keyspace-events KEA"])),
        (
            "a module",
            Server::with(&[&format!("loadmodule {library}")]),
        ),
    ];
    for (_, server) in &servers {
        server.resp2().run("DEBUG SET-ACTIVE-EXPIRE 0");
    }
    servers
}

#[test]
fn who_ends_a_connection_stays_in_its_database() {
    for (listening, server) in servers() {
        for (holds, waits, lapses) in [
            ("SETTP k v", None, false),
            ("SETTP k v", None, true),
            ("SETTP k v", Some("SETTP k w WAIT 0"), false),
            ("LOCK.ACQUIRE k", None, false),
            ("LOCK.ACQUIRE k", Some("LOCK.ACQUIRE k WAIT 0"), false),
            ("LOCK.ACQUIRE k", Some("LOCK.ACQUIRE k WAIT 0"), true),
            ("LOCK.ACQUIRE k SHARED LEASE 60000", None, false),
        ] {
            for multi in [false, true] {
                let what = (listening, holds, waits, lapses, multi);
                let (mut owner, mut waiter) = (server.resp2(), server.resp2());
                let mut killer = server.resp2();
                owner.run_all(&["SELECT 3", holds]);
                waiter.run("SELECT 3");
                if let Some(waits) = waits {
                    waiter.send(waits);
                    server.settle();
                }
                if lapses {
                    lapse(&mut owner, "k");
                }
                let kill = format!("CLIENT KILL ID {}", owner.id());
                let commands: &[&str] = match multi {
                    false => &[&kill, "SET mine v", "DEL mine"],
                    true => &["MULTI", &kill, "EXEC", "SET mine v", "DEL mine"],
                };
                killer.pipeline(commands);
                killer.read_replies(commands.len());
                assert_eq!(selected(&mut killer), "0", "{what:?}");
                if waits.is_some() {
                    waiter.read_reply();
                    assert_eq!(waiter.call("EXISTS k"), int(1), "{what:?}");
                    drop(waiter);
                }
                let mut other = server.resp2();
                other.run("SELECT 3");
                eventually_gone(&mut other, "k");
                assert_eq!(selected(&mut killer), "0", "{what:?}");
                assert_eq!(killer.call("SET mine v"), ok());
                assert_eq!(other.call("EXISTS mine"), int(0), "{what:?}");
                assert_eq!(killer.call("DEL mine"), int(1), "{what:?}");
            }
        }
    }
}

/// It is not the last one that spoke before its command is executed.
#[test]
fn so_does_who_ends_it_after_a_pause() {
    for (listening, server) in servers() {
        for others in [0, 6, 80] {
            let what = (listening, others);
            let (mut owner, mut killer) = (server.resp2(), server.resp2());
            let mut others: Vec<_> = (0..others).map(|_| server.resp2()).collect();
            owner.run_all(&["SELECT 3", "SETTP k v"]);
            let kill = format!("CLIENT KILL ID {}", owner.id());
            killer.run("CLIENT PAUSE 50 ALL");
            killer.pipeline(&[&kill, "SET mine v"]);
            for other in &mut others {
                other.send("PING");
            }
            assert_eq!(killer.read_replies(2), [int(1), ok()], "{what:?}");
            assert_eq!(selected(&mut killer), "0", "{what:?}");
            let mut other = server.resp2();
            other.run("SELECT 3");
            eventually_gone(&mut other, "k");
            assert_eq!(other.call("EXISTS mine"), int(0), "{what:?}");
            assert_eq!(killer.call("DEL mine"), int(1), "{what:?}");
            assert_eq!(selected(&mut killer), "0", "{what:?}");
        }
    }
}

#[test]
fn a_request_is_for_the_database_of_its_connection_though_leases_end_in_others() {
    for (listening, server) in servers() {
        for request in ["SETTP k v", "LOCK.ACQUIRE k", "LOCK.MACQUIRE 1 k"] {
            for (waits, multi) in [(false, false), (false, true), (true, false), (true, true)] {
                let what = (listening, request, waits, multi);
                let (mut owner, mut waiter) = (server.resp2(), server.resp2());
                let mut client = server.resp2();
                owner.run_all(&["SELECT 1", "LOCK.ACQUIRE x LEASE 20"]);
                if waits {
                    waiter.run("SELECT 1");
                    waiter.send("LOCK.ACQUIRE x WAIT 0");
                    server.settle();
                }
                let commands: &[&str] = match multi {
                    false => &["DEBUG SLEEP 0.04", request, "EXISTS k"],
                    true => &[
                        "DEBUG SLEEP 0.04",
                        "MULTI",
                        request,
                        "EXISTS k",
                        "SET mine v",
                        "EXEC",
                    ],
                };
                client.pipeline(commands);
                client.read_replies(commands.len());
                assert_eq!(selected(&mut client), "0", "{what:?}");
                assert_eq!(client.call("EXISTS k"), int(1), "{what:?}");
                owner.run("SELECT 1");
                for key in ["k", "mine"] {
                    assert_eq!(owner.call(["EXISTS", key]), int(0), "{what:?}: {key}");
                }
                assert_eq!(owner.call("EXISTS x"), int(waits.into()), "{what:?}");
                drop((client, waiter));
                owner.run("SELECT 0");
                eventually_gone(&mut owner, "k");
            }
        }
    }
}

#[test]
fn the_end_of_a_session_takes_its_keys_in_each_database_and_leaves_nobody_there() {
    for (listening, server) in servers() {
        for (by_itself, lapses) in [(false, false), (false, true), (true, false), (true, true)] {
            let (mut owner, mut operator) = (server.resp2(), server.resp2());
            owner.run("SESSION.START GRACE 60000");
            let session = &operator.run("SESSION.LIST").items()[0];
            let id = session.items()[1].number().to_string();
            // The operator's command names the session where others name a key.
            for (db, key) in [("5", "b"), ("0", &*id), ("7", "b")] {
                owner.run_all(&[&format!("SELECT {db}"), &format!("SETTP {key} v")]);
            }
            if lapses {
                lapse(&mut owner, "b");
            }
            owner.run("SELECT 0");
            match by_itself {
                true => owner.run("SESSION.END"),
                false => operator.run(["SESSION.KILL", &id]),
            };
            let what = (listening, by_itself, lapses);
            for client in [&mut owner, &mut operator] {
                assert_eq!(selected(client), "0", "{what:?}");
            }
            for db in ["0", "5", "7"] {
                operator.run(["SELECT", db]);
                eventually_equal(&format!("{what:?}: {db}"), int(0), || {
                    operator.call("DBSIZE")
                });
            }
        }
    }
}
