//! A stranger gives a held key a time to live, and it lapses while nobody looks: the server comes upon that only when the
//! next owner's key is made there, in the middle of the handoff, and what it then tells is of the former owner's key.

use crate::harness::*;
use crate::line::*;

/// How a hold ends whose key has lapsed.
#[derive(Clone, Copy, Debug)]
enum End {
    /// The holder's connection does.
    Death,
    /// The hold has a lease, whose end comes later than the key's.
    Lease,
    /// The holder gives it back.
    Release,
    /// A newcomer asks for the key.
    Newcomer,
}

#[test]
fn a_key_that_lapsed_unnoticed_is_handed_over() {
    let server = Server::start();
    let mut other = server.resp2();
    other.run("DEBUG SET-ACTIVE-EXPIRE 0");
    let locks = [
        "LOCK.ACQUIRE k",
        "LOCK.ACQUIRE k SHARED",
        "LOCK.MACQUIRE 2 k l",
    ];
    let ends = [End::Death, End::Lease, End::Release, End::Newcomer];
    for end in ends {
        for hold in locks {
            for wait in ["SETTP k next WAIT 0 PUSH", "LOCK.ACQUIRE k WAIT 0 PUSH"] {
                handed_over(&server, &mut other, hold, wait, end);
            }
        }
        // It has no leases, and is no lock.
        if !matches!(end, End::Lease) {
            handed_over(
                &server,
                &mut other,
                "SETTP k v",
                "SETTP k next WAIT 0 PUSH",
                end,
            );
        }
    }
}

fn handed_over(server: &Server, other: &mut Client, hold: &str, wait: &str, end: End) {
    let what = format!("{hold}, {wait}, {end:?}");
    let (mut holder, mut waiter) = (server.resp3(), server.resp3());
    assert!(holder.call(hold).number() > 0, "{what}");
    queue_push(&mut waiter, wait);
    if matches!(end, End::Lease) {
        // In one piece, so that the lease is not over before the key.
        let several = ["LOCK.EXTEND l 30"];
        let mut commands = several[usize::from(!hold.contains(" l"))..].to_vec();
        commands.extend(["LOCK.EXTEND k 30", "PEXPIRE k 10", "DEBUG SLEEP 0.015"]);
        holder.pipeline(&commands);
        let mut replies = holder.read_replies(commands.len());
        assert_eq!(replies.pop(), Some(ok()), "{what}");
        assert!(replies.iter().all(|reply| *reply == int(1)), "{what}");
    } else {
        lapse(other, "k");
    }
    match end {
        End::Death => drop(holder),
        End::Lease => {}
        End::Release if hold.starts_with("SETTP") => _ = holder.call("DELTP k"),
        End::Release => _ = holder.call("LOCK.RELEASE k"),
        End::Newcomer => _ = other.call("SETTP k newcomer"),
    }
    let granted = waiter.next_push();
    assert_eq!(granted.split(' ').nth(1), Some("k"), "{what}: {granted}");
    // Longer than the lease.
    other.run("DEBUG SLEEP 0.03");
    server.settle();
    assert_eq!(holders(server, "k"), [waiter.id()], "{what}");
    assert_eq!(other.call("PTTL k"), int(-1), "{what}");
    drop(waiter);
    eventually_gone(other, "k");
    // What several keys were asked for together is given back one by one.
    other.run("DEL l");
}

/// It is the others' lock, and lapses with their time.
#[test]
fn who_is_let_in_beside_others_has_no_more_time_than_they() {
    let server = Server::start();
    let mut other = server.resp2();
    other.run("DEBUG SET-ACTIVE-EXPIRE 0");
    for way in ["SHARED", "PERMITS 1 OF 2"] {
        let (mut first, mut next) = (server.resp3(), server.resp3());
        let mut between = server.resp3();
        first.run(&*format!("LOCK.ACQUIRE k {way} NOTIFY"));
        let all = ["PERMITS 2 OF 2", ""][usize::from(way == "SHARED")];
        queue_push(&mut between, &format!("LOCK.ACQUIRE k {all} WAIT 0 PUSH"));
        queue_push(&mut next, &format!("LOCK.ACQUIRE k {way} WAIT 0 PUSH"));
        lapse(&mut other, "k");
        drop(between);
        let granted = next.next_push();
        assert!(!granted.contains("LOST"), "{way}: {granted}");
        // Now it is noticed.
        assert_eq!(other.call("EXISTS k"), int(0), "{way}");
        for holder in [&mut first, &mut next] {
            assert_eq!(holder.next_push(), "lock k LOST expired", "{way}");
        }
        assert_eq!(holders(&server, "k"), [0; 0], "{way}");
    }
}
