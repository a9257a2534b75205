//! A wall clock that is set while somebody waits: what ends by itself ends when its time is over by a clock that goes on evenly,
//! neither early nor late.

use crate::harness::*;
use std::time::{Duration, Instant};

const AN_HOUR: Duration = Duration::from_secs(3600);

/// Long enough that the clock is set before it is over, even on a slow machine.
const TERM: Duration = Duration::from_millis(1500);

type Set = fn(&Clock);

/// Set back, set ahead, and set back after that.
const SETS: [Set; 3] = [
    |clock| clock.behind(AN_HOUR),
    |clock| clock.ahead(AN_HOUR),
    |clock| {
        clock.ahead(AN_HOUR);
        clock.behind(Duration::from_secs(5));
    },
];

/// `begin` begins a term, whose end `next` hears of; meanwhile the clock is set, and nobody gives a command.
fn ends_in_its_time(begin: impl Fn(&Server, &mut Client), next: fn(&mut Client)) {
    for set in SETS {
        let clock = Clock::new();
        let server = Server::by_clock(&clock, &[]);
        let mut waiter = server.resp3();
        let began = Instant::now();
        begin(&server, &mut waiter);
        set(&clock);
        // If it never came this would end after much less than an hour.
        next(&mut waiter);
        assert!(began.elapsed() >= TERM, "after {:?}", began.elapsed());
    }
}

fn is_granted(waiter: &mut Client) {
    let push = waiter.next_push();
    assert!(push.starts_with("lock k "), "{push}");
    assert!(
        push.split(' ')
            .nth(2)
            .is_some_and(|token| token.parse::<u64>().is_ok())
    );
}

fn wait_for_k(waiter: &mut Client) {
    assert_eq!(waiter.call("LOCK.ACQUIRE k WAIT 0 PUSH"), null());
}

#[test]
fn a_lease_ends_when_its_time_is_over_whatever_the_wall_clock_says() {
    let begin = |server: &Server, waiter: &mut Client| {
        let mut holder = server.resp3();
        holder.run(format!("LOCK.ACQUIRE k LEASE {}", TERM.as_millis()).as_str());
        wait_for_k(waiter);
        // Its connection stays until the server ends.
        std::mem::forget(holder);
    };
    ends_in_its_time(begin, is_granted);
}

#[test]
fn a_wait_ends_when_its_time_is_over_whatever_the_wall_clock_says() {
    let begin = |server: &Server, waiter: &mut Client| {
        let mut holder = server.resp3();
        holder.run("LOCK.ACQUIRE k");
        let wait = format!("LOCK.ACQUIRE k WAIT {}", TERM.as_millis());
        crate::line::queue(server, waiter, &wait);
        std::mem::forget(holder);
    };
    ends_in_its_time(begin, |waiter| assert_eq!(waiter.read_reply(), null()));
}

#[test]
fn a_grace_ends_when_its_time_is_over_whatever_the_wall_clock_says() {
    let begin = |server: &Server, waiter: &mut Client| {
        let mut holder = server.resp3();
        holder.run(format!("SESSION.START GRACE {}", TERM.as_millis()).as_str());
        holder.run("LOCK.ACQUIRE k");
        wait_for_k(waiter);
        holder.run("SESSION.DETACH");
        std::mem::forget(holder);
    };
    ends_in_its_time(begin, is_granted);
}

#[test]
fn a_quarantine_ends_when_its_time_is_over_whatever_the_wall_clock_says() {
    for set in SETS {
        let clock = Clock::new();
        let quarantine = format!("tether.quarantine {}", TERM.as_millis());
        let server = Server::by_clock(&clock, &[&quarantine]);
        let mut waiter = server.resp3();
        waiter.send("LOCK.ACQUIRE k WAIT 0");
        set(&clock);
        assert!(waiter.read_reply().number() > 0);
    }
}

/// Before its lease is over it is current, and after that it is not, whoever looks first.
#[test]
fn a_token_is_current_until_its_lease_is_over_whatever_the_wall_clock_says() {
    for set in SETS {
        let clock = Clock::new();
        let server = Server::by_clock(&clock, &[]);
        let (mut holder, mut other) = (server.resp3(), server.resp3());
        let began = Instant::now();
        let lease = format!("LOCK.ACQUIRE k LEASE {}", TERM.as_millis());
        let token = holder.run(lease.as_str()).number();
        set(&clock);
        let check = format!("LOCK.CHECK k {token}");
        eventually("the end of the lease", || {
            match other.call(check.as_str()) {
                Frame::Error(_) => Ok(()),
                reply => Err(format!("{reply:?}")),
            }
        });
        assert!(began.elapsed() >= TERM, "after {:?}", began.elapsed());
        assert!(holder.refused("LOCK.EXTEND k 1000").starts_with("NOTHELD"));
    }
}
