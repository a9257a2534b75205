//! A watcher that wants no replies and writes the keys that it watches.

use crate::harness::*;

/// Each makes `k` and ends it again.
const TOGGLES: [&[&str]; 7] = [
    &["SET k v", "GETDEL k"],
    &["SET k v", "DEL k"],
    &["LPUSH k v", "LPOP k"],
    &["SETTP k v", "DELTP k"],
    &["SET other v", "RENAME other k", "UNLINK k"],
    &["EVAL return{redis.call('SET','k','1'),redis.call('GETDEL','k')} 0"],
    &["MULTI", "SET k v", "GETDEL k", "EXEC"],
];
const TIMES: usize = 60;

/// Pushes and replies, until so many pushes came.
fn pushes(watcher: &mut Client, count: usize) -> Vec<String> {
    let mut pushes = Vec::new();
    while pushes.len() < count {
        if let Arrival::Push(push) = watcher.next_many(1).remove(0) {
            pushes.push(push);
        }
    }
    pushes
}

fn all_are_pushed(quiet: &str, each: bool) {
    let server = Server::start();
    // Within a transaction, CLIENT would be one of its commands.
    let toggles = TOGGLES
        .iter()
        .filter(|toggle| !(each && toggle[0] == "MULTI"));
    for toggle in toggles {
        for connect in [Server::resp2, Server::resp3] {
            let mut watcher = connect(&server);
            watcher.run("WATCHEX k");
            let commands: Vec<&str> = (0..TIMES)
                .flat_map(|_| *toggle)
                .flat_map(|command| {
                    if each {
                        vec![quiet, *command]
                    } else {
                        vec![*command]
                    }
                })
                .collect();
            if !each {
                watcher.send(quiet);
            }
            watcher.pipeline(&commands);
            watcher.send("CLIENT REPLY ON");
            let expected: Vec<_> = ["watchex k ADD", "watchex k DEL"].repeat(TIMES);
            assert_eq!(pushes(&mut watcher, 2 * TIMES), expected, "{toggle:?}");
            watcher.send("QUIT");
            watcher.expect_closed();
        }
    }
    assert_eq!(server.resp2().call("PING"), simple("PONG"));
}

#[test]
fn without_any_reply() {
    all_are_pushed("CLIENT REPLY OFF", false);
}

#[test]
fn without_the_next_reply() {
    all_are_pushed("CLIENT REPLY SKIP", true);
}
