//! What looks like a cycle and can still go on is not refused.

use super::{assert_deadlock, first_waits_for_second};
use crate::harness::*;
use crate::line::*;

#[test]
fn a_semaphore_with_a_holder_outside_the_circle_goes_on() {
    let server = Server::start();
    let (mut one, mut two, mut free) = (server.resp3(), server.resp3(), server.resp3());
    one.run("LOCK.ACQUIRE seats PERMITS 1 OF 2");
    free.run("LOCK.ACQUIRE seats PERMITS 1 OF 2");
    two.run("LOCK.ACQUIRE pen");
    queue(&server, &mut one, "LOCK.ACQUIRE pen WAIT 0");
    queue(
        &server,
        &mut two,
        "LOCK.ACQUIRE seats PERMITS 1 OF 2 WAIT 0",
    );
    free.run("LOCK.RELEASE seats");
    two.read_reply().number();
    assert_eq!(two.call("LOCK.RELEASE pen"), int(0));
    one.read_reply().number();
    assert_eq!(tether(&server, "deadlocks_refused_total"), 0);
}

#[test]
fn a_cycle_through_permits_of_several_holders_together_is_not_searched_for() {
    let server = Server::start();
    let (mut one, mut two, mut third) = (server.resp3(), server.resp3(), server.resp3());
    one.run("LOCK.ACQUIRE seats PERMITS 1 OF 2");
    third.run("LOCK.ACQUIRE seats PERMITS 1 OF 2");
    two.run("LOCK.ACQUIRE pen");
    queue(&server, &mut one, "LOCK.ACQUIRE pen WAIT 0");
    queue(
        &server,
        &mut two,
        "LOCK.ACQUIRE seats PERMITS 1 OF 2 WAIT 0",
    );
    // Neither holder alone keeps the second client waiting, so its time limit ends the third's wait.
    assert_eq!(third.call("LOCK.ACQUIRE pen WAIT 50"), null());
    assert_eq!(tether(&server, "deadlocks_refused_total"), 0);
    assert_eq!(third.call("LOCK.RELEASE seats"), int(0));
    two.read_reply().number();
}

#[test]
fn a_lease_ends_by_itself_and_so_does_the_circle() {
    in_time(|ms| {
        let server = Server::start();
        let (mut one, mut two) = (server.resp3(), server.resp3());
        one.run(&format!("LOCK.ACQUIRE apple LEASE {ms} NOTIFY"));
        two.run("LOCK.ACQUIRE pear NOTIFY");
        queue(&server, &mut one, "LOCK.ACQUIRE pear WAIT 0");
        let waits = stands_in_line(&server, &mut two, "LOCK.ACQUIRE apple WAIT 0");
        two.read_reply().number();
        assert_eq!(two.call("LOCK.RELEASE pear"), int(0));
        let mut told = [one.next(), one.next()];
        if matches!(told[0], Arrival::Push(_)) {
            told.swap(0, 1);
        }
        assert!(
            matches!(&told[0], Arrival::Reply(Frame::Integer(_))),
            "{told:?}"
        );
        assert_eq!(told[1], push("lock apple LOST lease"));
        assert_eq!(tether(&server, "deadlocks_refused_total"), 0);
        waits.then_some(())
    });
}

#[test]
fn a_lease_given_later_counts_as_well() {
    in_time(|ms| {
        let takes = ["LOCK.ACQUIRE apple NOTIFY", "LOCK.ACQUIRE pear NOTIFY"];
        let (server, [mut one, mut two], ids) =
            first_waits_for_second(takes, "LOCK.ACQUIRE pear WAIT 0 PUSH");
        let request = "LOCK.ACQUIRE apple WAIT 0";
        assert_deadlock(&mut two, request, &["apple", "pear"], &ids);
        assert_eq!(one.call(&format!("LOCK.EXTEND apple {ms}")), int(1));
        let waits = stands_in_line(&server, &mut two, request);
        two.read_reply().number();
        assert_eq!(one.next_push(), "lock apple LOST lease");
        assert_eq!(two.call("LOCK.RELEASE pear"), int(0));
        assert!(one.next_push().starts_with("lock pear "));
        waits.then_some(())
    });
}

#[test]
fn a_chain_is_no_circle() {
    let server = Server::start();
    let (mut one, mut two, mut third) = (server.resp3(), server.resp3(), server.resp3());
    one.run("SETTP apple v");
    two.run("SETTP pear v");
    queue(&server, &mut two, "SETTP apple v WAIT 0");
    queue(&server, &mut third, "SETTP pear v WAIT 0");
    // And who holds nothing can wait for anything.
    let mut fourth = server.resp3();
    queue_push(&mut fourth, "SETTP apple v WAIT 0 PUSH");
    queue_push(&mut fourth, "SETTP pear v WAIT 0 PUSH");
    one.run("DELTP apple");
    assert_eq!(two.read_reply(), int(1));
    two.run("DELTP pear");
    assert_eq!(third.read_reply(), int(1));
    assert_eq!(tether(&server, "deadlocks_refused_total"), 0);
}

#[test]
fn a_stranger_s_key_can_go_at_any_time() {
    let server = Server::start();
    let (mut one, mut two) = (server.resp3(), server.resp3());
    server.resp2().run("SET apple stranger");
    two.run("SETTP pear v");
    queue(&server, &mut one, "SETTP pear v WAIT 0");
    queue(&server, &mut two, "SETTP apple v WAIT 0");
    server.resp2().run("DEL apple");
    assert_eq!(two.read_reply(), int(1));
    two.run("DELTP pear");
    assert_eq!(one.read_reply(), int(1));
}

#[test]
fn a_neighbour_in_line_that_will_be_granted_together_is_no_obstacle() {
    let server = Server::start();
    let (mut writer, mut one, mut two) = (server.resp3(), server.resp3(), server.resp3());
    writer.run("LOCK.ACQUIRE book");
    two.run("LOCK.ACQUIRE pen");
    queue_push(&mut one, "LOCK.ACQUIRE book SHARED WAIT 0 PUSH");
    queue_push(&mut one, "LOCK.ACQUIRE pen WAIT 0 PUSH");
    // It is behind `one`, who waits for its pen; but the writer's release lets both read.
    queue_push(&mut two, "LOCK.ACQUIRE book SHARED WAIT 0 PUSH");
    writer.run("LOCK.RELEASE book");
    assert!(one.next_push().starts_with("lock book "));
    assert!(two.next_push().starts_with("lock book "));
    assert_eq!(two.call("LOCK.RELEASE pen"), int(0));
    assert!(one.next_push().starts_with("lock pen "));
}

#[test]
fn after_a_wait_has_ended_its_circle_is_none() {
    for ending in ["time", "kill", "unblock", "deltp"] {
        in_time(|ms| a_circle_ends_with_a_wait(ending, ms));
    }
}

/// None where the time was over before the cycle could be closed.
fn a_circle_ends_with_a_wait(ending: &str, ms: u64) -> Option<()> {
    let server = Server::start();
    let (mut one, mut two) = (server.resp3(), server.resp3());
    let id = one.id();
    one.run("SETTP apple v");
    two.run("SETTP pear v");
    match ending {
        "time" => _ = stands_in_line(&server, &mut one, &format!("SETTP pear v WAIT {ms}")),
        "deltp" => queue_push(&mut one, "SETTP pear v WAIT 0 PUSH"),
        _ => queue(&server, &mut one, "SETTP pear v WAIT 0"),
    }
    if stands_in_line(&server, &mut two, "SETTP apple v WAIT 0") {
        return None;
    }
    assert!(two.read_reply().text().starts_with("DEADLOCK"));
    match ending {
        "time" => assert_eq!(one.read_reply(), int(0)),
        "deltp" => assert_eq!(one.call("DELTP pear"), int(0)),
        "kill" => assert_eq!(two.call(&format!("CLIENT KILL ID {id}")), int(1)),
        _ => assert_eq!(two.call(&format!("CLIENT UNBLOCK {id}")), int(1)),
    }
    two.send("SETTP apple v WAIT 0");
    if ending != "kill" {
        eventually_equal("waiters", 1, || tether(&server, "waiters"));
        drop(one);
    }
    assert_eq!(two.read_reply(), int(1), "{ending}");
    Some(())
}

#[test]
fn a_thousand_tasks_of_one_connection_on_one_lock_are_asked_about_themselves_only() {
    const TASKS: usize = 1_000;
    let server = Server::start();
    let mut tasks = server.resp3();
    let acquire = |task: usize| format!("LOCK.ACQUIRE lock OWNER {task} WAIT 0 PUSH");
    tasks.run(acquire(0).as_str()).number();
    // Each release hands over to another task of the connection, and the first queues again: a look at
    // all who wait, for each of them, would take hours.
    for task in 1..TASKS {
        assert_eq!(tasks.call(acquire(task).as_str()), null());
    }
    for task in 0..TASKS {
        let release = format!("LOCK.RELEASE lock OWNER {task}");
        assert_eq!(tasks.call(release.as_str()), int(0));
        assert_eq!(tasks.call(acquire(task).as_str()), null());
    }
}
