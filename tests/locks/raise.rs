//! LOCK.RAISE: a hold's token, and by that all later ones, are raised; and never lowered.

use crate::harness::*;
use crate::line::*;
use std::io::Write;

const AHEAD: i64 = 1 << 10;
const TOO_FAR: &str = "ERR the token is more than a second ahead";

/// A start begins ahead of what can be raised to: the clock gets there.
fn raise_as(client: &mut Client, key: &str, token: i64, more: &str) -> Frame {
    let command = format!("LOCK.RAISE {key} {token} {more}");
    eventually("a token within reach of the clock", || {
        match client.call(command.trim_end()) {
            Frame::Error(refusal) if refusal.starts_with(TOO_FAR.as_bytes()) => {
                Err(String::from_utf8_lossy(&refusal).into_owned())
            }
            reply => Ok(reply),
        }
    })
}

fn raise(client: &mut Client, key: &str, token: i64) -> Frame {
    raise_as(client, key, token, "")
}

/// Raises the token of this hold as far as it goes.
fn raise_to_the_edge(client: &mut Client, key: &str) -> i64 {
    let token = client.call(["LOCK.CANCEL", key]).number();
    eventually("an edge beyond what was given", || {
        let refusal = client.refused(["LOCK.RAISE", key, "9007199254740991"]);
        let (_, edge) = refusal.rsplit_once(' ').expect("how far it goes");
        let edge: i64 = edge.parse().expect("a token");
        match client.call(["LOCK.RAISE", key, &edge.to_string()]).number() {
            raised if raised > token => Ok(raised),
            raised => Err(format!("{raised}")),
        }
    })
}

fn is_current(client: &mut Client, key: &str, token: i64) -> bool {
    client.call(["LOCK.CHECK", key, &token.to_string()]) == int(1)
}

#[test]
fn a_hold_has_the_token_to_which_it_was_raised_and_later_grants_have_greater_ones() {
    let server = Server::start();
    let (mut one, mut two) = (server.resp3(), server.resp3());
    for (take, give) in [
        ("SETTP k v TOKEN WAIT 0", "DELTP k"),
        ("LOCK.ACQUIRE k WAIT 0", "LOCK.RELEASE k"),
        ("LOCK.ACQUIRE k SHARED WAIT 0", "LOCK.RELEASE k"),
        ("LOCK.ACQUIRE k PERMITS 1 OF 3 WAIT 0", "LOCK.RELEASE k"),
    ] {
        let first = one.run(take).number();
        assert_eq!(
            raise(&mut one, "k", first + AHEAD),
            int(first + AHEAD),
            "{take}"
        );
        assert!(is_current(&mut two, "k", first + AHEAD), "{take}");
        assert!(!is_current(&mut two, "k", first), "{take}");
        assert_eq!(tether(&server, "last_token"), first + AHEAD);
        // To what it has already, or less: nothing changes.
        for less in [0, first, first + AHEAD] {
            assert_eq!(raise(&mut one, "k", less), int(first + AHEAD), "{take}");
        }
        let other = two.run("LOCK.ACQUIRE other").number();
        assert!(other > first + AHEAD, "{take}: {other} after {first}");
        two.run("LOCK.RELEASE other");
        one.run(give);
    }
}

#[test]
fn only_its_owner_raises_a_hold() {
    let server = Server::start();
    let (mut one, mut two) = (server.resp3(), server.resp3());
    let token = one.run("LOCK.ACQUIRE k OWNER job").number();
    let refusal = two.refused("LOCK.RAISE k 0 OWNER job");
    assert!(refusal.starts_with("NOTHELD"), "{refusal}");
    for command in ["LOCK.RAISE k 0", "LOCK.RAISE other 0 OWNER job"] {
        assert!(one.refused(command).starts_with("NOTHELD"), "{command}");
    }
    let raised = raise_as(&mut one, "k", token + 7, "OWNER job");
    assert_eq!(raised, int(token + 7));
    assert!(is_current(&mut two, "k", token + 7));
}

#[test]
fn nobody_raises_a_token_out_of_reach() {
    let server = Server::start();
    let mut client = server.resp3();
    let token = client.run("LOCK.ACQUIRE k").number();
    let refusal = client.refused(&format!("LOCK.RAISE k {}", token + (60 << 22)));
    assert!(refusal.starts_with(TOO_FAR), "{refusal}");
    for bad in ["9007199254740992", "-1", "many"] {
        let refusal = client.refused(["LOCK.RAISE", "k", bad]);
        assert!(refusal.starts_with("ERR the token is"), "{refusal}");
    }
    assert!(is_current(&mut client, "k", token));
    assert_eq!(tether(&server, "last_token"), token);
    // To the edge it goes; and what was given already is never too far.
    let edge = raise_to_the_edge(&mut client, "k");
    client.run("LOCK.RELEASE k");
    let next = client.run("LOCK.ACQUIRE k").number();
    assert!(next > edge);
    let after = client.run("LOCK.ACQUIRE l").number();
    assert_eq!(raise(&mut client, "k", after), int(after));
}

/// Between its own token and the one asked for another reader may have had the lock.
#[test]
fn beside_others_no_hold_gets_a_token_that_another_may_have_had() {
    let server = Server::start();
    let (mut one, mut two, mut three) = (server.resp3(), server.resp3(), server.resp3());
    let first = one.run("LOCK.ACQUIRE k SHARED").number();
    let stale = two.run("LOCK.ACQUIRE k SHARED").number();
    two.run("LOCK.RELEASE k");
    let raised = raise(&mut one, "k", stale).number();
    assert!(raised > stale && first < stale, "{raised} after {stale}");
    assert!(!is_current(&mut three, "k", stale));
    assert!(is_current(&mut three, "k", raised));
}

#[test]
fn the_holds_of_very_many_readers_are_found_by_their_raised_tokens() {
    let server = Server::start();
    let (mut one, mut other) = (server.resp3(), server.resp3());
    let mut tokens: Vec<i64> = (0..40)
        .map(|n| {
            one.run(&format!("LOCK.ACQUIRE k SHARED OWNER {n}"))
                .number()
        })
        .collect();
    for n in (0..40).rev().step_by(3) {
        let to = tokens[n] + AHEAD * (n as i64 + 1);
        tokens[n] = raise_as(&mut one, "k", to, &format!("OWNER {n}")).number();
    }
    for n in (0..40).step_by(4) {
        one.run(&format!("LOCK.RELEASE k OWNER {n}"));
    }
    for (n, token) in tokens.iter().enumerate() {
        assert_eq!(is_current(&mut other, "k", *token), n % 4 != 0, "{n}");
    }
}

/// The new connection has not asked to be told, and a raised token makes its session's holds no newer.
#[test]
fn a_raised_hold_is_told_of_to_no_more_connections_than_before() {
    let server = Server::start();
    let (mut one, mut other) = (server.resp3(), server.resp3());
    let secret = one.run("SESSION.START").text();
    one.run("LOCK.ACQUIRE k NOTIFY");
    let mut again = server.resp3();
    again.run(["SESSION.RESUME", &secret]);
    let token = again.run("LOCK.CANCEL k").number();
    raise(&mut again, "k", token + AHEAD);
    other.run("DEL k");
    assert_eq!(server.settled(&mut again), [""; 0]);
}

#[test]
fn a_promoted_replica_goes_on_above_what_was_raised() {
    let server = Server::start();
    let replica = Server::replica_of(&server, &[]);
    let mut holder = server.resp3();
    let secret = holder.run("SESSION.START GRACE 60000").text();
    let token = holder.run("LOCK.ACQUIRE k").number();
    let raised = raise(&mut holder, "k", token + AHEAD).number();
    replica.catch_up(&server);
    let mut there = replica.resp3();
    there.run("REPLICAOF NO ONE");
    assert_eq!(there.call(["SESSION.RESUME", &secret]), int(1));
    assert_eq!(there.call("LOCK.CANCEL k"), int(raised));
    let next = there.run("LOCK.ACQUIRE other").number();
    assert!(next > raised, "{next} after {raised}");
}

#[test]
fn a_restarted_server_goes_on_above_what_was_raised() {
    let mut server = Server::with(&["appendonly yes", "appendfsync always"]);
    let mut client = server.resp3();
    let token = client.run("SETTP k v TOKEN").number();
    let raised = raise(&mut client, "k", token + AHEAD).number();
    server.crash_and_restart();
    let next = server.resp3().run("SETTP k v TOKEN").number();
    assert!(next > raised, "{next} after {raised}");
}

/// A file knows of no token if it was written before the raise, or while nothing was held.
#[test]
fn no_start_goes_below_what_anybody_raised_whatever_the_files_know() {
    type Restart = fn(&mut Server);
    let starts: [(&str, Restart); 3] = [
        ("without files", Server::restart_without_files),
        ("with a file of nothing", Server::crash_and_restart),
        ("with a file of before", Server::crash_and_restart),
    ];
    for (how, restart) in starts {
        let mut server = Server::start();
        let mut client = server.resp3();
        if how == "with a file of before" {
            client.run("LOCK.ACQUIRE k");
            client.run("SAVE");
        } else {
            client.run("SET plain v");
            client.run("SAVE");
            client.run("LOCK.ACQUIRE k");
        }
        let raised = raise_to_the_edge(&mut client, "k");
        restart(&mut server);
        let next = server.resp3().run("SETTP k v TOKEN").number();
        assert!(next > raised, "{how}: {next} after {raised}");
    }
}

/// What cannot have been given is damage: nobody goes on from there.
#[test]
fn a_token_near_the_end_of_all_in_a_file_is_refused() {
    const END: u64 = (1 << 53) - 1;
    let files = ["appendonly yes", "appendfsync always"];
    for token in [END, END - (3 << 22)] {
        let mut server = Server::with(&files);
        let mut client = server.resp3();
        client.run("SESSION.START");
        let first = client.run("LOCK.ACQUIRE k").number();
        let words = server.append_only_text();
        let words: Vec<&str> = words.split("\r\n").collect();
        let session = words.iter().position(|word| *word == "START");
        let session = words[session.expect("a session") + 2];
        let token = token.to_string();
        let hold = [
            "TETHER.HOLD",
            "l",
            session,
            "",
            "exclusive",
            "1",
            "0",
            &token,
            "-",
        ];
        server.kill();
        append(&server, &["TETHER.TOKEN", &token]);
        append(&server, &["LOCK.ACQUIRE", "l"]);
        append(&server, &hold);
        server.restart(&files);
        let mut last = first;
        for _ in 0..2 {
            let next = server.resp3().run("SETTP other v TOKEN").number();
            assert!(
                next > last && next < first + (60 << 22),
                "{next} after {last}"
            );
            last = next;
            server.crash_and_restart();
        }
    }
}

/// Adds a command to the append-only file of a server that does not run.
fn append(server: &Server, words: &[&str]) {
    let files = std::fs::read_dir(server.folder().join("appendonlydir")).unwrap();
    let mut paths = files.map(|file| file.unwrap().path());
    let path = paths.find(|path| path.to_string_lossy().ends_with(".incr.aof"));
    let mut file = std::fs::File::options()
        .append(true)
        .open(path.expect("a file that grows"))
        .unwrap();
    file.write_all(&encode(words)).unwrap();
}
