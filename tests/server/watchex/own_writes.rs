//! A watcher's own writes are pushed to it after the reply of the command that caused them, never inside another reply.

use crate::harness::*;

/// For both protocols: a connection that watches `k` (absent), and its server.
fn watchers() -> Vec<(Server, Client)> {
    let make = |connect: fn(&Server) -> Client| {
        let server = Server::start();
        let mut watcher = connect(&server);
        assert_eq!(watcher.call("WATCHEX k"), bulk("NOEXIST"));
        (server, watcher)
    };
    vec![make(Server::resp2), make(Server::resp3)]
}

#[test]
fn the_push_comes_after_the_reply() {
    for (server, mut watcher) in watchers() {
        for _ in 0..3 {
            watcher.send("SET k v");
            assert_eq!(watcher.next_many(2), [reply(ok()), push("watchex k ADD")]);
            watcher.send("DEL k");
            assert_eq!(watcher.next_many(2), [reply(int(1)), push("watchex k DEL")]);
            watcher.send("SETTP k v NOTIFY");
            assert_eq!(watcher.next_many(2), [reply(int(1)), push("watchex k ADD")]);
            watcher.send("DELTP k");
            assert_eq!(watcher.next_many(2), [reply(int(1)), push("watchex k DEL")]);
        }
        assert_eq!(server.settled(&mut watcher), [""; 0]);
    }
}

#[test]
fn after_a_long_reply_too() {
    for (_server, mut watcher) in watchers() {
        let big = "x".repeat(300_000);
        watcher.send(["SET", "k", &big]);
        assert_eq!(watcher.next_many(2), [reply(ok()), push("watchex k ADD")]);
        watcher.send("GETDEL k");
        assert_eq!(
            watcher.next_many(2),
            [reply(bulk(&big)), push("watchex k DEL")]
        );
    }
}

#[test]
fn after_the_whole_reply_of_exec() {
    for (_server, mut watcher) in watchers() {
        watcher.run("MULTI");
        for command in ["SET k v", "GET k", "DEL k", "GET k", "SET k w"] {
            watcher.run(command);
        }
        watcher.send("EXEC");
        assert_eq!(
            watcher.next_many(4),
            [
                reply(array([ok(), bulk("v"), int(1), null(), ok()])),
                push("watchex k ADD"),
                push("watchex k DEL"),
                push("watchex k ADD")
            ]
        );
    }
}

#[test]
fn after_a_pipelined_transaction_byte_by_byte() {
    for (n, (_server, mut watcher)) in watchers().into_iter().enumerate() {
        watcher.pipeline(&["MULTI", "SET k v", "DEL k", "EXEC"]);
        let kind = ["*", ">"][n];
        watcher.expect_bytes("+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n+OK\r\n:1\r\n");
        watcher.expect_bytes(&format!(
            "{kind}3\r\n$7\r\nwatchex\r\n$1\r\nk\r\n$3\r\nADD\r\n"
        ));
        watcher.expect_bytes(&format!(
            "{kind}3\r\n$7\r\nwatchex\r\n$1\r\nk\r\n$3\r\nDEL\r\n"
        ));
    }
}

#[test]
fn after_the_reply_of_a_script() {
    for (_server, mut watcher) in watchers() {
        let script =
            "redis.call('SET', KEYS[1], 'v'); redis.call('DEL', KEYS[1]); return {1, 'done'}";
        watcher.send(["EVAL", script, "1", "k"]);
        assert_eq!(
            watcher.next_many(3),
            [
                reply(array([int(1), bulk("done")])),
                push("watchex k ADD"),
                push("watchex k DEL")
            ]
        );
    }
}

#[test]
fn in_a_pipeline_each_push_comes_after_its_cause_and_none_inside_a_reply() {
    for (_server, mut watcher) in watchers() {
        watcher.pipeline(&[
            "SET k v",
            "LRANGE none 0 -1",
            "DEL k",
            "MGET a b c",
            "SET k w",
            "PING",
        ]);
        let arrivals = watcher.next_many(9);
        let replies: Vec<_> = arrivals
            .iter()
            .filter(|arrival| matches!(arrival, Arrival::Reply(_)))
            .cloned()
            .collect();
        let expected = [
            ok(),
            array([]),
            int(1),
            array([null(), null(), null()]),
            ok(),
            simple("PONG"),
        ];
        assert_eq!(replies, expected.map(reply));
        let pushes: Vec<_> = arrivals
            .iter()
            .enumerate()
            .filter(|(_, a)| matches!(a, Arrival::Push(_)))
            .collect();
        let order: Vec<_> = pushes.iter().map(|(_, a)| (*a).clone()).collect();
        assert_eq!(
            order,
            [
                push("watchex k ADD"),
                push("watchex k DEL"),
                push("watchex k ADD")
            ]
        );
        for ((at, _), cause) in pushes.iter().zip([1, 3, 5]) {
            let before = arrivals[..*at]
                .iter()
                .filter(|arrival| matches!(arrival, Arrival::Reply(_)))
                .count();
            assert!(
                before >= cause,
                "a push before its cause's reply: {arrivals:?}"
            );
        }
    }
}

#[test]
fn a_watch_and_a_write_in_one_transaction() {
    for (_server, mut watcher) in watchers() {
        watcher.run("UNWATCHEX");
        watcher.run_all(&["MULTI", "WATCHEX k", "SET k v", "WATCHEX l k", "EXISTS k"]);
        watcher.send("EXEC");
        assert_eq!(
            watcher.next_many(2),
            [
                reply(array([
                    bulk("NOEXIST"),
                    ok(),
                    array([bulk("NOEXIST"), bulk("EXIST")]),
                    int(1)
                ])),
                push("watchex k ADD")
            ]
        );
    }
}

#[test]
fn a_write_before_the_watch_in_one_transaction_is_not_told() {
    for (server, mut watcher) in watchers() {
        watcher.run_all(&["UNWATCHEX", "MULTI", "SET k v", "WATCHEX k"]);
        assert_eq!(watcher.run("EXEC"), array([ok(), bulk("EXIST")]));
        assert_eq!(server.settled(&mut watcher), [""; 0]);
    }
}

#[test]
fn unwatchex_in_the_same_transaction_silences_the_write_before_it() {
    for (server, mut watcher) in watchers() {
        watcher.run_all(&["MULTI", "SET k v", "UNWATCHEX k"]);
        watcher.send("EXEC");
        assert_eq!(watcher.next(), reply(array([ok(), int(1)])));
        assert_eq!(
            server.settled(&mut watcher),
            [""; 0],
            "its reply came already"
        );
    }
}

#[test]
fn unwatchex_of_another_key_in_the_same_transaction_silences_nothing() {
    for (server, mut watcher) in watchers() {
        watcher.run_all(&["WATCHEX l", "MULTI", "SET k v", "SET l v", "UNWATCHEX l"]);
        watcher.send("EXEC");
        assert_eq!(
            watcher.next_many(2),
            [reply(array([ok(), ok(), int(1)])), push("watchex k ADD")]
        );
        assert_eq!(server.settled(&mut watcher), [""; 0]);
    }
}

#[test]
fn a_watch_renewed_in_the_same_transaction_tells_only_what_follows() {
    for (server, mut watcher) in watchers() {
        watcher.run_all(&["MULTI", "SET k v", "UNWATCHEX", "WATCHEX k", "DEL k"]);
        watcher.send("EXEC");
        assert_eq!(
            watcher.next_many(2),
            [
                reply(array([ok(), int(1), bulk("EXIST"), int(1)])),
                push("watchex k DEL")
            ]
        );
        assert_eq!(server.settled(&mut watcher), [""; 0]);
    }
}

#[test]
fn unwatchex_in_a_pipeline_comes_after_the_push_for_the_write_before_it() {
    for (server, mut watcher) in watchers() {
        watcher.pipeline(&["SET k v", "UNWATCHEX k"]);
        assert_eq!(
            watcher.next_many(3),
            [reply(ok()), push("watchex k ADD"), reply(int(1))]
        );
        assert_eq!(server.settled(&mut watcher), [""; 0]);
    }
}

#[test]
fn watching_anew_in_a_pipeline_keeps_each_push_with_its_watch() {
    for (server, mut watcher) in watchers() {
        watcher.pipeline(&["SET k v", "UNWATCHEX k", "WATCHEX k", "DEL k"]);
        assert_eq!(
            watcher.next_many(6),
            [
                reply(ok()),
                push("watchex k ADD"),
                reply(int(1)),
                reply(bulk("EXIST")),
                reply(int(1)),
                push("watchex k DEL")
            ]
        );
        assert_eq!(server.settled(&mut watcher), [""; 0]);
    }
}

#[test]
fn the_own_flush_is_told_after_its_reply() {
    for (_server, mut watcher) in watchers() {
        watcher.run("WATCHEX l");
        watcher.pipeline(&["MSET k 1 l 1"]);
        assert_eq!(
            watcher.next_many(3),
            [reply(ok()), push("watchex k ADD"), push("watchex l ADD")]
        );
        watcher.send("FLUSHALL");
        assert_eq!(watcher.next(), reply(ok()));
        let mut gone = watcher.next_pushes(2);
        gone.sort();
        assert_eq!(gone, ["watchex k DEL", "watchex l DEL"]);
    }
}

#[test]
fn a_watcher_that_kills_an_owner_is_told_after_the_reply() {
    for (server, mut watcher) in watchers() {
        let mut owner = server.resp2();
        let id = owner.id();
        owner.run("SETTP k v");
        assert_eq!(watcher.next_push(), "watchex k ADD");
        watcher.send(&format!("CLIENT KILL ID {id}"));
        assert_eq!(watcher.next_many(2), [reply(int(1)), push("watchex k DEL")]);

        let mut owner = server.resp2();
        let id = owner.id();
        owner.run("SETTP k v");
        watcher.run_all(&["MULTI", "PING", &format!("CLIENT KILL ID {id}"), "PING"]);
        assert_eq!(watcher.next_push(), "watchex k ADD");
        watcher.send("EXEC");
        assert_eq!(
            watcher.next_many(2),
            [
                reply(array([simple("PONG"), int(1), simple("PONG")])),
                push("watchex k DEL")
            ]
        );
    }
}

#[test]
fn an_owner_that_watches_its_own_key_hears_both_pushes() {
    let server = Server::start();
    let (mut owner, mut other) = (server.resp3(), server.resp2());
    owner.run("WATCHEX k");
    owner.run("SETTP k v NOTIFY");
    other.run("DEL k");
    let mut heard = server.settled(&mut owner);
    assert_eq!(heard.remove(0), "watchex k ADD");
    heard.sort();
    assert_eq!(heard, ["settp k LOST deleted", "watchex k DEL"]);
}

/// Its own command comes upon a key that has lapsed, before it has anything to reply: what that tells it comes after the
/// reply, and the server has not lost count of what there is to send.
#[test]
fn after_the_reply_of_a_command_that_comes_upon_a_lapsed_key() {
    let server = Server::start();
    let (mut own, mut other) = (server.resp3(), server.resp2());
    other.run("DEBUG SET-ACTIVE-EXPIRE 0");
    for (command, replaces) in [
        ("GETDEL k", false),
        ("SET k w GET", true),
        ("GETSET k w", true),
        ("GET k", false),
    ] {
        for owns in [false, true] {
            assert_eq!(own.call("WATCHEX k"), bulk("NOEXIST"), "{command}");
            if owns {
                own.run("SETTP k v NOTIFY");
            } else {
                other.run("SET k v");
            }
            assert_eq!(own.next_push(), "watchex k ADD", "{command}");
            lapse(&mut other, "k");
            let mut expected = vec![reply(null()), push("watchex k DEL")];
            expected.extend(owns.then(|| push("settp k LOST expired")));
            expected.extend(replaces.then(|| push("watchex k ADD")));
            // And before that of the next command.
            expected.push(reply(int(1)));
            own.pipeline(&[command, "UNWATCHEX"]);
            assert_eq!(own.next_many(expected.len()), expected, "{command}");
            for line in other.run("CLIENT LIST").text().lines() {
                assert!(line.contains(" omem=0 "), "{command}: {line}");
            }
            own.run("DEL k");
        }
    }
}

#[test]
fn before_the_reply_of_a_pipelined_unwatchex() {
    // More watchers than are told at once, the second time.
    for others in [0, 100] {
        for (server, mut watcher) in watchers() {
            let mut crowd: Vec<_> = (0..others).map(|_| server.resp3()).collect();
            for other in &mut crowd {
                other.run("WATCHEX k");
            }
            watcher.pipeline(&["MULTI", "SET k v", "EXEC", "UNWATCHEX k", "PING"]);
            let told = watcher.next_many(6);
            let before = [reply(array([ok()])), push("watchex k ADD"), reply(int(1))];
            assert_eq!(told[2..5], before, "{others} others");
            watcher.run("WATCHEX k");
            watcher.pipeline(&["DEL k", "UNWATCHEX k", "PING"]);
            let told = watcher.next_many(4);
            let before = [reply(int(1)), push("watchex k DEL"), reply(int(1))];
            assert_eq!(told[..3], before, "{others} others");
            assert_eq!(server.settled(&mut watcher), [""; 0]);
            for other in &mut crowd {
                assert_eq!(other.next_push(), "watchex k ADD");
                assert_eq!(other.next_push(), "watchex k DEL");
            }
        }
    }
}
