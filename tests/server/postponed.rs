//! Commands that the server postpones (`CLIENT PAUSE`), or executes in the middle of another (a slow script).

use crate::harness::*;
use std::time::Duration;

/// Whether a connection stands still, as a line of CLIENT LIST says. Under Redis 8's threads those of ours have the flag of
/// tracking as well.
fn is_held_up(line: &str) -> bool {
    let rest = line.split(" flags=").nth(1).unwrap_or_default();
    rest.split(' ')
        .next()
        .is_some_and(|flags| flags.contains('b'))
}

/// Sends a command and waits until the server has put it off.
fn send_and_see_postponed(client: &mut Client, admin: &mut Client, command: &str) {
    let id = client.id();
    client.send(command);
    eventually(&format!("{command} to be postponed"), || {
        let line = admin.run(format!("CLIENT LIST ID {id}").as_str()).text();
        match is_held_up(&line) {
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
fn an_owner_that_speaks_last_is_told_of_a_loss_by_a_command_that_was_postponed() {
    let server = Server::start();
    let (mut owner, mut other, mut admin) = (server.resp3(), server.resp2(), server.resp2());
    for ends_k in ENDS_K {
        assert_eq!(owner.call("SETTP k v NOTIFY"), int(1));
        admin.run(PAUSE);
        send_and_see_postponed(&mut other, &mut admin, ends_k);
        owner.run("CLIENT UNPAUSE");
        other.read_reply();
        let told = server.settled(&mut owner);
        let losses = losses("settp k", &[ends_k]);
        assert!(
            told.len() == 1 && losses.contains(&told[0]),
            "{ends_k}: {told:?}"
        );
    }
}

#[test]
fn an_owner_is_not_told_of_its_own_command_that_was_postponed() {
    let server = Server::start();
    let (mut owner, mut other) = (server.resp3(), server.resp2());
    for ends_k in ENDS_K {
        if ends_k == "FLUSHDB" && !server.is_at_least((7, 2), (7, 2)) {
            say("Redis 7.0 does not say whose flush it is that was postponed");
            continue;
        }
        assert_eq!(owner.call("SETTP k v NOTIFY"), int(1));
        other.run(PAUSE);
        send_and_see_postponed(&mut owner, &mut other, ends_k);
        other.run("CLIENT UNPAUSE");
        owner.read_reply();
        assert_eq!(server.settled(&mut owner), [""; 0], "{ends_k}");
        assert_eq!(other.call("EXISTS k"), int(0), "{ends_k}");
    }
}

/// Nobody has given a command in the pause but who began it.
#[test]
fn an_owner_that_speaks_first_after_a_pause_is_told_of_a_loss_by_a_command_that_was_postponed() {
    let server = Server::start();
    let (mut owner, mut other) = (server.resp3(), server.resp2());
    for round in 0..20 {
        assert_eq!(owner.call("SETTP k v NOTIFY"), int(1));
        other.pipeline(&["CLIENT PAUSE 20 WRITE", "DEL k"]);
        assert_eq!(other.read_reply(), simple("OK"));
        std::thread::sleep(Duration::from_millis(20));
        owner.run("PING");
        assert_eq!(other.read_reply(), int(1));
        let told = server.settled(&mut owner);
        assert_eq!(told, ["settp k LOST deleted"], "round {round}");
    }
}

/// A thread may have read the owner's next command when another client's is executed, which is then not the only one that seems
/// to be.
#[test]
fn an_owner_whose_next_command_was_read_by_a_thread_is_told_of_a_loss_after_a_pause() {
    let server = Server::with(&["io-threads 4"]);
    let (mut owner, mut other, mut admin) = (server.resp3(), server.resp2(), server.resp2());
    // Threads read even if there is little to do, in the words of Valkey 8 and 9.
    for line in ["events-per-io-thread 0", "io-threads-always-active yes"] {
        admin.call(format!("CONFIG SET {line}").as_str());
    }
    for round in 0..20 {
        assert_eq!(owner.call("SETTP k v NOTIFY"), int(1));
        admin.run(PAUSE);
        let is_postponed = round % 2 == 0;
        if is_postponed {
            send_and_see_postponed(&mut other, &mut admin, "DEL k");
        } else {
            other.run("PING");
            admin.run("CLIENT UNPAUSE");
        }
        // What both send is there when the server goes on.
        Server::signal(server.pid(), libc::SIGSTOP);
        match is_postponed {
            true => admin.send("CLIENT UNPAUSE"),
            false => other.send("DEL k"),
        }
        owner.send("PING");
        Server::signal(server.pid(), libc::SIGCONT);
        if is_postponed {
            admin.read_reply();
        }
        assert_eq!(other.read_reply(), int(1));
        owner.read_reply();
        let told = server.settled(&mut owner);
        assert_eq!(told, ["settp k LOST deleted"], "round {round}");
    }
}

/// The watcher is told of each change without having to speak.
fn assert_told(watcher: &mut Client, writer: &mut Client, after: &str) {
    for _ in 0..3 {
        writer.run_all(&["SET k v", "DEL k"]);
        let told = watcher.next_pushes(2);
        assert_eq!(told, ["watchex k ADD", "watchex k DEL"], "after {after}");
    }
}

#[test]
fn a_watcher_under_threads_is_told_at_once_after_a_command_that_was_postponed() {
    let server = Server::with(&["io-threads 4"]);
    let (mut pauser, mut writer) = (server.resp2(), server.resp2());
    for command in ["CLIENT TRACKING OFF", "RESET"] {
        let mut watcher = server.resp3().changing_protocol();
        watcher.run("WATCHEX k");
        // The second of these is postponed, and executed before the watcher's.
        pauser.pipeline(&["CLIENT PAUSE 500 ALL", "GET k"]);
        assert_eq!(pauser.read_reply(), simple("OK"));
        watcher.run(command);
        pauser.read_reply();
        assert_told(&mut watcher, &mut writer, command);
    }
    let mut watcher = server.resp3();
    watcher.run("WATCHEX k");
    watcher.run_all(&["MULTI", "CLIENT TRACKING OFF", "SET other v"]);
    pauser.run(PAUSE);
    watcher.send("EXEC");
    eventually("EXEC to be postponed", || {
        let list = pauser.run("CLIENT LIST").text();
        match list
            .lines()
            .any(|line| line.contains(" cmd=exec ") && is_held_up(line))
        {
            true => Ok(()),
            false => Err(list),
        }
    });
    pauser.run("CLIENT UNPAUSE");
    watcher.read_reply();
    assert_told(&mut watcher, &mut writer, "EXEC");
}

#[test]
fn a_watcher_under_threads_stays_where_it_is_while_a_script_is_busy() {
    let server = Server::with(&["io-threads 4", "lua-time-limit 20"]);
    if !server.is_at_least((8, 0), (u32::MAX, 0)) {
        return say(
            "a_watcher_under_threads_stays_...: only Redis 8 has threads that own connections",
        );
    }
    let (mut busy, mut other) = (server.resp2(), server.resp2());
    let mut watcher = server.resp3().changing_protocol();
    watcher.run("WATCHEX k");
    busy.send(["EVAL", "while true do end", "0"]);
    eventually("a busy server", || match other.call("PING") {
        Frame::Error(_) => Ok(()),
        reply => Err(format!("{reply:?}")),
    });
    for command in ["RESET", "CLIENT TRACKING OFF"] {
        let message = watcher.refused(command);
        assert!(message.starts_with("BUSY "), "{command}: {message}");
    }
    other.run("SCRIPT KILL");
    busy.read_reply();
    assert_told(&mut watcher, &mut other, "a busy script");
    watcher.run("RESET");
    assert_told(&mut watcher, &mut other, "RESET");
}
