//! First come, first served, for all modes.

use crate::harness::*;
use crate::line::*;

const EXCLUSIVE: &str = "LOCK.ACQUIRE k WAIT 0";
const SHARED: &str = "LOCK.ACQUIRE k SHARED WAIT 0";

/// One that stands in line for `k`.
fn in_line(server: &Server, request: &str) -> Client {
    let mut client = server.resp3();
    queue(server, &mut client, request);
    client
}

#[test]
fn a_reader_does_not_pass_a_waiting_writer() {
    let server = Server::start();
    let (mut first, mut late) = (server.resp3(), server.resp3());
    first.run("LOCK.ACQUIRE k SHARED");
    let mut writer = in_line(&server, EXCLUSIVE);
    assert_eq!(late.call("LOCK.ACQUIRE k SHARED"), null());
    assert_eq!(late.call("LOCK.ACQUIRE k SHARED WAIT 40"), null());
    queue(&server, &mut late, SHARED);
    first.run("LOCK.RELEASE k");
    let writing = writer.read_reply().number();
    assert_eq!(holders(&server, "k"), [writer.id()]);
    writer.run("LOCK.RELEASE k");
    assert!(late.read_reply().number() > writing);
}

#[test]
fn neighbouring_readers_are_granted_together() {
    let server = Server::start();
    let mut writer = server.resp3();
    let mut last = writer.run("LOCK.ACQUIRE k").number();
    let mut readers = [SHARED; 3].map(|request| in_line(&server, request));
    let mut second = in_line(&server, EXCLUSIVE);
    let mut late = [SHARED; 2].map(|request| in_line(&server, request));
    writer.run("LOCK.RELEASE k");
    for reader in &mut readers {
        let token = reader.read_reply().number();
        assert!(token > last, "in the order of the line");
        last = token;
    }
    assert_eq!(tether(&server, "waiters"), 3);
    for reader in &mut readers[..2] {
        reader.run("LOCK.RELEASE k");
        assert_eq!(tether(&server, "waiters"), 3, "one reader is left");
    }
    let [_, _, third] = readers;
    drop(third);
    assert!(second.read_reply().number() > last);
    assert_eq!(tether(&server, "waiters"), 2);
    drop(second);
    for reader in &mut late {
        assert!(reader.read_reply().number() > last);
    }
}

#[test]
fn readers_behind_a_writer_that_gives_up_are_let_in_at_once() {
    for ending in ["time", "close", "unblock", "push", "kill"] {
        in_time(|ms| readers_are_let_in_behind_a_writer(ending, ms));
    }
}

/// None where the writer's time was over before they stood in line.
fn readers_are_let_in_behind_a_writer(ending: &str, ms: u64) -> Option<()> {
    let server = Server::start();
    let (mut first, mut writer) = (server.resp3(), server.resp3());
    let id = writer.id();
    first.run("LOCK.ACQUIRE k SHARED");
    match ending {
        "time" => _ = stands_in_line(&server, &mut writer, &format!("LOCK.ACQUIRE k WAIT {ms}")),
        "push" => queue_push(&mut writer, "LOCK.ACQUIRE k WAIT 0 PUSH"),
        _ => queue(&server, &mut writer, EXCLUSIVE),
    }
    let mut readers = [(); 2].map(|()| server.resp3());
    let wait = readers.each_mut();
    if wait.map(|reader| stands_in_line(&server, reader, SHARED)) != [true; 2] {
        return None;
    }
    match ending {
        "time" => assert_eq!(writer.read_reply(), null()),
        "close" => drop(writer),
        "push" => assert_eq!(writer.call("LOCK.CANCEL k"), int(1)),
        "kill" => assert_eq!(first.call(&format!("CLIENT KILL ID {id}")), int(1)),
        _ => assert_eq!(first.call(&format!("CLIENT UNBLOCK {id}")), int(1)),
    }
    for reader in &mut readers {
        assert!(reader.read_reply().number() > 0, "{ending}");
    }
    assert_eq!(holders(&server, "k").len(), 3, "{ending}");
    Some(())
}

#[test]
fn a_small_request_does_not_pass_a_large_one() {
    let server = Server::start();
    let (mut two, mut newcomer) = (server.resp3(), server.resp3());
    two.run("LOCK.ACQUIRE k PERMITS 2 OF 3");
    let mut large = in_line(&server, "LOCK.ACQUIRE k PERMITS 2 OF 3 WAIT 0");
    assert_eq!(newcomer.call("LOCK.ACQUIRE k PERMITS 1 OF 3"), null());
    let mut small = in_line(&server, "LOCK.ACQUIRE k PERMITS 1 OF 3 WAIT 0");
    two.run("LOCK.RELEASE k");
    let token = large.read_reply().number();
    assert!(small.read_reply().number() > token);
    assert_eq!(tether(&server, "waiters"), 0);
}

#[test]
fn what_a_semaphore_gets_back_is_given_out_as_far_as_it_goes() {
    let server = Server::start();
    let (mut three, mut one) = (server.resp3(), server.resp3());
    three.run("LOCK.ACQUIRE k PERMITS 3 OF 4");
    one.run("LOCK.ACQUIRE k PERMITS 1 OF 4");
    let asked = [1, 2, 1, 1];
    let mut line = asked.map(|n| {
        let request = format!("LOCK.ACQUIRE k PERMITS {n} OF 4 WAIT 0");
        in_line(&server, &request)
    });
    one.run("LOCK.RELEASE k");
    line[0].read_reply().number();
    assert_eq!(tether(&server, "waiters"), 3);
    line[0].run("LOCK.RELEASE k");
    assert_eq!(tether(&server, "waiters"), 3, "two permits are not there");
    drop(three);
    for waiter in &mut line[1..] {
        waiter.read_reply().number();
    }
    assert_eq!(holders(&server, "k").len(), 3);
}

#[test]
fn all_modes_stand_in_one_line() {
    let server = Server::start();
    let mut holder = server.resp3();
    holder.run("LOCK.ACQUIRE k");
    let requests = [
        "LOCK.ACQUIRE k SHARED WAIT 0",
        "SETTP k v TOKEN WAIT 0",
        "LOCK.ACQUIRE k PERMITS 1 OF 2 WAIT 0",
        "LOCK.ACQUIRE k PERMITS 2 OF 2 WAIT 0",
        "LOCK.ACQUIRE k PERMITS 1 OF 5 WAIT 0",
        "LOCK.MACQUIRE 2 k l WAIT 0",
        "LOCK.ACQUIRE k SHARED WAIT 0",
        "LOCK.ACQUIRE k WAIT 0",
    ];
    let mut line = requests.map(|request| in_line(&server, request));
    let mut last = token_of(&server, "k");
    drop(holder);
    for (n, next) in line.iter_mut().enumerate() {
        let token = next.read_reply().number();
        assert!(token > last, "{}", requests[n]);
        assert_eq!(holders(&server, "k"), [next.id()], "{}", requests[n]);
        assert_eq!(tether(&server, "waiters"), 7 - n as i64, "{}", requests[n]);
        last = token;
        if requests[n].starts_with("SETTP") {
            assert_eq!(next.call("GET k"), bulk("v"));
            assert_eq!(next.call("DELTP k"), int(1));
        } else {
            assert_eq!(next.call("LOCK.RELEASE k"), int(0), "{}", requests[n]);
        }
    }
    assert_eq!(server.resp2().call("EXISTS k"), int(0));
}

#[test]
fn a_newcomer_does_not_get_a_lock_that_a_foreign_hand_freed() {
    let server = Server::start();
    let (mut holder, mut third) = (server.resp3(), server.resp3());
    holder.run("LOCK.ACQUIRE k SHARED NOTIFY");
    let mut writer = in_line(&server, EXCLUSIVE);
    third.pipeline(&[
        "DEL k",
        "LOCK.ACQUIRE k NOTIFY",
        "LOCK.ACQUIRE k SHARED NOTIFY",
        "SETTP k stolen NOTIFY",
        "LOCK.MACQUIRE 2 k l NOTIFY",
    ]);
    let replies = third.read_replies(5);
    assert_eq!(replies, [int(1), null(), null(), int(0), null()]);
    writer.read_reply().number();
    assert_eq!(holder.next_push(), "lock k LOST deleted");
    assert_eq!(holders(&server, "k"), [writer.id()]);
    assert_eq!(third.call("EXISTS l"), int(0));
}

#[test]
fn when_a_wait_is_over_in_the_middle_of_a_foreign_handoff_all_are_served_once() {
    let server = Server::start();
    for round in 0..20 {
        let (mut holder, mut third) = (server.resp3(), server.resp3());
        holder.run("LOCK.ACQUIRE k");
        let (mut one, mut two) = (server.resp3(), server.resp3());
        let id = one.id();
        queue(&server, &mut one, EXCLUSIVE);
        queue(&server, &mut two, EXCLUSIVE);
        // Free, with the first in line gone before it could be served.
        third.pipeline(&["DEL k", &format!("CLIENT UNBLOCK {id}"), "LOCK.ACQUIRE k"]);
        let replies = third.read_replies(3);
        assert_eq!(replies, [int(1), int(1), null()], "round {round}");
        assert_eq!(one.read_reply(), null(), "round {round}");
        two.read_reply().number();
        assert_eq!(two.call("LOCK.RELEASE k"), int(0), "round {round}");
        assert_eq!(two.call("EXISTS k"), int(0), "round {round}");
    }
}

/// Nobody held what the renamed key takes the place of.
#[test]
fn a_reader_goes_along_with_readers_whose_lock_is_renamed_to_the_key() {
    let server = Server::start();
    let (mut writer, mut reader, mut other) = (server.resp2(), server.resp2(), server.resp2());
    writer.run("LOCK.ACQUIRE k");
    other.run("LOCK.ACQUIRE a SHARED");
    queue(&server, &mut reader, "LOCK.ACQUIRE k SHARED WAIT 0");
    other.run_all(&["SET k theirs", "RENAME a k"]);
    assert!(reader.read_reply().number() > 0);
}
