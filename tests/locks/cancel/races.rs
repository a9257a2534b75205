//! A place is given up in the moment in which it is served: one of the two happens, and the client can tell which.

use crate::harness::*;
use crate::line::*;

/// How often each of both was quicker.
#[derive(Debug, Default)]
struct Outcomes {
    cancelled: usize,
    granted: usize,
}

/// So many rounds, each with a lock that is given back while who waits for it gives up.
fn race(rounds: usize) -> Outcomes {
    let server = Server::start();
    let (mut holder, mut waiter) = (server.resp3(), server.resp3());
    let mut outcomes = Outcomes::default();
    for round in 0..rounds {
        let (take, give, ask, kind) = match round % 3 {
            0 => (
                "SETTP k v NOTIFY",
                "DELTP k",
                "SETTP k v WAIT 0 PUSH",
                "settp",
            ),
            1 => (
                "LOCK.ACQUIRE k NOTIFY",
                "LOCK.RELEASE k",
                "LOCK.ACQUIRE k WAIT 0 PUSH",
                "lock",
            ),
            _ => (
                "LOCK.ACQUIRE k NOTIFY",
                "DEL k",
                "LOCK.ACQUIRE k WAIT 0 PUSH",
                "lock",
            ),
        };
        holder.run(take);
        queue_push(&mut waiter, ask);
        // Who comes first, and by how much, is different each time.
        match round % 2 {
            0 => {
                holder.send(give);
                linger(round);
                waiter.send("LOCK.CANCEL k");
            }
            _ => {
                waiter.send("LOCK.CANCEL k");
                linger(round);
                holder.send(give);
            }
        }
        match waiter.next() {
            Arrival::Reply(reply) => {
                assert_eq!(reply, int(1), "round {round}");
                outcomes.cancelled += 1;
            }
            Arrival::Push(told) => {
                let token = waiter.read_reply().number();
                assert_eq!(told, format!("{kind} k {token}"), "round {round}");
                assert_eq!(waiter.call("LOCK.CANCEL k"), int(token), "round {round}");
                outcomes.granted += 1;
                let back = if kind == "lock" {
                    "LOCK.RELEASE k ALL"
                } else {
                    "DELTP k"
                };
                waiter.run(back);
            }
        }
        assert!(holder.read_reply().number() <= 1, "round {round}");
        // Nothing else is heard of it.
        assert_eq!(waiter.call("LOCK.CANCEL k"), int(0), "round {round}");
        assert_eq!(waiter.call("EXISTS k"), int(0), "round {round}");
    }
    assert_eq!(server.settled(&mut waiter), [""; 0]);
    assert_eq!(tether(&server, "waiters"), 0);
    outcomes
}

/// For some microseconds, up to as long as a command takes.
fn linger(round: usize) {
    let began = std::time::Instant::now();
    let us = (round / 6 % 8 * 10) as u128;
    while began.elapsed().as_micros() < us {
        std::hint::spin_loop();
    }
}

#[test]
fn either_the_place_is_given_up_or_the_grant_was_heard_before() {
    let outcomes = race(3_000);
    assert!(
        outcomes.cancelled > 0 && outcomes.granted > 0,
        "{outcomes:?}"
    );
}

#[test]
#[ignore = "100,000 races; half a minute"]
fn it_is_so_in_very_many_races() {
    let outcomes = race(100_000);
    say(&format!("cancel against grant: {outcomes:?}"));
    assert!(
        outcomes.cancelled >= 1_000 && outcomes.granted >= 1_000,
        "{outcomes:?}"
    );
}
