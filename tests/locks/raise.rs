//! LOCK.RAISE: a hold's token, and by that all later ones, are raised; and never lowered.

use crate::harness::*;
use crate::line::*;

const AHEAD: i64 = 1 << 30;

fn raise(client: &mut Client, key: &str, token: i64) -> Frame {
    client.call(["LOCK.RAISE", key, &token.to_string()])
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
    assert_eq!(
        one.call(&format!("LOCK.RAISE k {} OWNER job", token + 7)),
        int(token + 7)
    );
    assert!(is_current(&mut two, "k", token + 7));
}

#[test]
fn nobody_raises_a_token_out_of_reach() {
    let server = Server::start();
    let mut client = server.resp3();
    const A_DAY: i64 = 86_400 << 22;
    let token = client.run("LOCK.ACQUIRE k").number();
    let refusal = client.refused(&format!("LOCK.RAISE k {}", token + A_DAY + (60 << 22)));
    assert!(
        refusal.starts_with("ERR the token is more than a day ahead"),
        "{refusal}"
    );
    for bad in ["9007199254740992", "-1", "many"] {
        let refusal = client.refused(["LOCK.RAISE", "k", bad]);
        assert!(refusal.starts_with("ERR the token is"), "{refusal}");
    }
    assert!(is_current(&mut client, "k", token));
    assert_eq!(tether(&server, "last_token"), token);
    // To the edge it goes; and what was given already is never too far.
    let edge = token + A_DAY - (5 << 22);
    assert_eq!(raise(&mut client, "k", edge), int(edge));
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
        tokens[n] = one.run(&format!("LOCK.RAISE k {to} OWNER {n}")).number();
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
