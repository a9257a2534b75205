//! Commands that the server puts off (`CLIENT PAUSE`).

use crate::harness::*;

/// Sends a command and waits until the server has put it off.
fn send_and_see_put_off(client: &mut Client, admin: &mut Client, command: &str) {
    let id = client.id();
    client.send(command);
    eventually(&format!("{command} to be put off"), || {
        let line = admin.run(format!("CLIENT LIST ID {id}").as_str()).text();
        match line.contains(" flags=b ") {
            true => Ok(()),
            false => Err(line),
        }
    });
}

const PAUSE: &str = "CLIENT PAUSE 600000 WRITE";
const ENDS_K: [&str; 5] = [
    "DEL k",
    "GETDEL k",
    "EXPIREAT k 1",
    "FLUSHDB",
    "EVAL return(redis.call('del','k')) 0",
];

#[test]
fn an_owner_that_speaks_last_is_told_of_a_loss_by_a_command_that_was_put_off() {
    let server = Server::start();
    let (mut owner, mut other, mut admin) = (server.resp3(), server.resp2(), server.resp2());
    for ends_k in ENDS_K {
        assert_eq!(owner.call("SETTP k v"), int(1));
        admin.run(PAUSE);
        send_and_see_put_off(&mut other, &mut admin, ends_k);
        owner.run("CLIENT UNPAUSE");
        other.read_reply();
        assert_eq!(server.settled(&mut owner), ["settp k LOST"], "{ends_k}");
    }
}

#[test]
fn an_owner_is_not_told_of_its_own_command_that_was_put_off() {
    let server = Server::start();
    let (mut owner, mut other) = (server.resp3(), server.resp2());
    for ends_k in ENDS_K {
        if ends_k == "FLUSHDB" && !server.is_at_least((7, 2), (7, 2)) {
            say("Redis 7.0 does not say whose flush it is that was put off");
            continue;
        }
        assert_eq!(owner.call("SETTP k v"), int(1));
        other.run(PAUSE);
        send_and_see_put_off(&mut owner, &mut other, ends_k);
        other.run("CLIENT UNPAUSE");
        owner.read_reply();
        assert_eq!(server.settled(&mut owner), [""; 0], "{ends_k}");
        assert_eq!(other.call("EXISTS k"), int(0), "{ends_k}");
    }
}
