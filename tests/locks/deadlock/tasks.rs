//! TASK: requests of one thread under many labels, for which deadlocks are still found.

use super::assert_deadlock;
use crate::harness::*;
use crate::line::*;

/// Takes keys at once.
fn take(client: &mut Client, requests: &[&str]) {
    for request in requests {
        let reply = client.call(*request);
        assert!(
            matches!(reply, Frame::Integer(token) if token > 0),
            "{request}: {reply:?}"
        );
    }
}

/// A request that waits without a cycle, and gives its place up again.
fn may_wait(client: &mut Client, key: &str, request: &str) {
    queue_push(client, &format!("{request} OWNER tried WAIT 0 PUSH"));
    assert_eq!(client.call(["LOCK.CANCEL", key, "OWNER", "tried"]), int(1));
}

#[test]
fn a_task_waits_with_all_that_it_holds_under_whatever_label() {
    let server = Server::start();
    let (mut one, mut two) = (server.resp3(), server.resp3());
    let ids = [one.id(), two.id()];
    take(
        &mut one,
        &[
            "LOCK.ACQUIRE apple OWNER a1 TASK t",
            "LOCK.ACQUIRE plum OWNER a2",
        ],
    );
    take(&mut two, &["LOCK.ACQUIRE pear OWNER b1 TASK u"]);
    queue_push(&mut one, "LOCK.ACQUIRE pear OWNER a3 TASK t WAIT 0 PUSH");
    // Of no task, or another one, it could go on.
    may_wait(&mut two, "apple", "LOCK.ACQUIRE apple");
    may_wait(&mut two, "apple", "LOCK.ACQUIRE apple TASK t");
    may_wait(&mut two, "plum", "LOCK.ACQUIRE plum TASK u");
    for request in [
        "LOCK.ACQUIRE apple OWNER b2 TASK u WAIT 0 PUSH",
        "LOCK.ACQUIRE apple SHARED OWNER b2 TASK u WAIT 0 PUSH",
        "LOCK.MACQUIRE 2 fig apple OWNER b2 TASK u WAIT 0 PUSH",
        "SETTP apple v TASK u WAIT 0 PUSH",
        // It blocks all tasks of its connection.
        "LOCK.ACQUIRE apple OWNER b2 WAIT 0",
    ] {
        assert_deadlock(&mut two, request, &["apple", "pear"], &ids);
    }
    let message = two.refused("LOCK.ACQUIRE apple OWNER b2 TASK u WAIT 0 PUSH");
    assert!(
        message.contains("(task 't')") && message.contains("(task 'u')"),
        "{message}"
    );
    assert_eq!(one.call("LOCK.CANCEL pear OWNER a3"), int(1));
    may_wait(&mut two, "apple", "LOCK.ACQUIRE apple TASK u");
}

#[test]
fn two_tasks_of_one_connection_close_a_circle() {
    let server = Server::start();
    let mut client = server.resp3();
    let id = [client.id()];
    take(
        &mut client,
        &["SETTP apple v TASK t", "LOCK.ACQUIRE pear OWNER b TASK u"],
    );
    queue_push(&mut client, "LOCK.ACQUIRE pear OWNER c TASK t WAIT 0 PUSH");
    assert_deadlock(
        &mut client,
        "SETTP apple v TASK u WAIT 0 PUSH",
        &["apple", "pear"],
        &id,
    );
    // That of no task is another one.
    queue_push(&mut client, "SETTP apple v WAIT 0 PUSH");
    assert_eq!(client.call("DELTP apple"), int(1));
}

#[test]
fn a_task_is_one_of_its_connection() {
    let server = Server::start();
    let (mut one, mut two) = (server.resp3(), server.resp3());
    take(&mut one, &["LOCK.ACQUIRE apple OWNER a TASK t"]);
    take(
        &mut two,
        &[
            "LOCK.ACQUIRE pear OWNER a TASK t",
            "LOCK.ACQUIRE plum OWNER b TASK t",
        ],
    );
    // Each of them waits for the other one's lock as another task than holds the other's.
    queue_push(&mut one, "LOCK.ACQUIRE pear OWNER b TASK u WAIT 0 PUSH");
    queue_push(&mut two, "LOCK.ACQUIRE apple OWNER c TASK t WAIT 0 PUSH");
    assert_eq!(tether(&server, "deadlocks_refused_total"), 0);
    // The first one's task t waits for nothing; the second one's waits for that.
    may_wait(&mut one, "plum", "LOCK.ACQUIRE plum TASK u");
    let message = one.refused("LOCK.ACQUIRE plum OWNER d TASK t WAIT 0 PUSH");
    assert!(message.starts_with("DEADLOCK "), "{message}");
}

#[test]
fn a_task_that_is_not_said_is_the_label_s() {
    let server = Server::start();
    let mut client = server.resp3();
    take(
        &mut client,
        &[
            "LOCK.ACQUIRE apple OWNER a",
            "LOCK.ACQUIRE pear",
            "SETTP plum v",
            "SETTP fig v TASK a",
        ],
    );
    for (words, expected) in [
        (
            &["LOCK.ACQUIRE", "apple", "OWNER", "x", "TASK", "a"][..],
            None,
        ),
        (&["LOCK.ACQUIRE", "apple", "OWNER", "x"], Some(null())),
        (&["LOCK.ACQUIRE", "pear", "OWNER", "x", "TASK", ""], None),
        (
            &["LOCK.ACQUIRE", "pear", "OWNER", "x", "TASK", "a"],
            Some(null()),
        ),
        (&["SETTP", "plum", "v"], None),
        (&["SETTP", "plum", "v", "TASK", ""], None),
        (&["SETTP", "plum", "v", "TASK", "b"], Some(int(0))),
        (&["SETTP", "fig", "v", "TASK", "a"], None),
        (&["SETTP", "fig", "v"], Some(int(0))),
    ] {
        let words = [words, &["WAIT", "0", "PUSH"]].concat();
        match client.call(words.clone()) {
            Frame::Error(refused) => {
                assert!(refused.starts_with(b"DEADLOCK "), "{words:?}");
                assert_eq!(expected, None, "{words:?}");
            }
            reply => {
                assert_eq!(Some(reply), expected, "{words:?}");
                let owner = if words[0] == "SETTP" { "" } else { "x" };
                let cancel = ["LOCK.CANCEL", words[1], "OWNER", owner];
                assert_eq!(client.call(cancel), int(1), "{words:?}");
            }
        }
    }
}

#[test]
fn what_a_task_holds_alone_it_cannot_ask_for_and_what_it_shares_it_can() {
    let server = Server::start();
    let (mut client, mut other) = (server.resp3(), server.resp3());
    let id = [client.id()];
    take(
        &mut client,
        &[
            "LOCK.ACQUIRE apple REENTRANT OWNER a TASK t",
            "LOCK.ACQUIRE book SHARED OWNER b TASK t",
            "LOCK.ACQUIRE seats PERMITS 2 OF 3 OWNER c TASK t",
        ],
    );
    for request in [
        "LOCK.ACQUIRE apple OWNER x TASK t WAIT 0 PUSH",
        "LOCK.ACQUIRE apple REENTRANT OWNER x TASK t WAIT 0 PUSH",
        "LOCK.ACQUIRE apple OWNER x TASK t WAIT 0",
        "LOCK.MACQUIRE 2 fig apple OWNER x TASK t WAIT 0 PUSH",
    ] {
        assert_deadlock(&mut client, request, &["apple"], &id);
    }
    assert_eq!(
        client.call("LOCK.ACQUIRE apple OWNER x TASK t"),
        null(),
        "without WAIT"
    );
    assert!(
        client
            .call("LOCK.ACQUIRE apple REENTRANT OWNER a TASK u")
            .number()
            > 0
    );
    // A blocked connection could give nothing back.
    for request in [
        "LOCK.ACQUIRE book OWNER x TASK t WAIT 0",
        "LOCK.ACQUIRE seats PERMITS 2 OF 3 OWNER x TASK t WAIT 0",
    ] {
        let refused = client.refused(request);
        assert!(refused.ends_with("wait with PUSH"), "{refused}");
    }
    queue_push(&mut client, "LOCK.ACQUIRE book OWNER x TASK t WAIT 0 PUSH");
    queue_push(
        &mut client,
        "LOCK.ACQUIRE seats PERMITS 2 OF 3 OWNER x TASK t WAIT 0 PUSH",
    );
    // It did not keep the permits for itself: another task had them, and gives them back.
    assert_eq!(client.call("LOCK.RELEASE seats OWNER c"), int(0));
    assert!(client.next_push().starts_with("lock seats "));
    assert_eq!(client.call("LOCK.RELEASE book OWNER b"), int(0));
    assert!(client.next_push().starts_with("lock book "));
    // Against another task they count.
    take(&mut other, &["LOCK.ACQUIRE pear"]);
    queue_push(&mut client, "LOCK.ACQUIRE pear OWNER y TASK t WAIT 0 PUSH");
    let ids = [id[0], other.id()];
    let request = "LOCK.ACQUIRE seats PERMITS 2 OF 3 WAIT 0";
    assert_deadlock(&mut other, request, &["seats", "pear"], &ids);
}

#[test]
fn a_wait_beside_own_permits_still_waits_for_what_blocks_its_connection() {
    let server = Server::start();
    let (mut one, mut two) = (server.resp3(), server.resp3());
    let ids = [one.id(), two.id()];
    take(
        &mut one,
        &["LOCK.ACQUIRE seats PERMITS 1 OF 2 OWNER a TASK t"],
    );
    take(&mut two, &["LOCK.ACQUIRE pear"]);
    queue_push(
        &mut one,
        "LOCK.ACQUIRE seats PERMITS 2 OF 2 OWNER b TASK t WAIT 0 PUSH",
    );
    queue_push(&mut two, "LOCK.ACQUIRE seats PERMITS 1 OF 2 WAIT 0 PUSH");
    assert_deadlock(
        &mut one,
        "LOCK.ACQUIRE pear WAIT 0",
        &["pear", "seats"],
        &ids,
    );
    queue_push(&mut one, "LOCK.ACQUIRE pear WAIT 0 PUSH");
}

#[test]
fn a_hold_stays_its_first_task_s() {
    let server = Server::start();
    let (mut one, mut two) = (server.resp3(), server.resp3());
    let ids = [one.id(), two.id()];
    take(
        &mut one,
        &[
            "LOCK.ACQUIRE apple REENTRANT OWNER a TASK t",
            "LOCK.ACQUIRE apple REENTRANT OWNER a TASK u",
            "LOCK.MACQUIRE 2 kiwi lime OWNER m TASK t",
        ],
    );
    take(&mut two, &["LOCK.ACQUIRE pear"]);
    queue_push(&mut one, "LOCK.ACQUIRE pear OWNER b TASK u WAIT 0 PUSH");
    queue_push(&mut two, "LOCK.ACQUIRE apple WAIT 0 PUSH");
    assert_eq!(two.call("LOCK.CANCEL apple"), int(1));
    assert_eq!(one.call("LOCK.CANCEL pear OWNER b"), int(1));
    // So is one that it waited for, at another name too.
    queue_push(&mut one, "LOCK.ACQUIRE pear OWNER b TASK t WAIT 0 PUSH");
    for key in ["apple", "kiwi", "lime"] {
        assert_deadlock(
            &mut two,
            &format!("LOCK.ACQUIRE {key} WAIT 0"),
            &[key, "pear"],
            &ids,
        );
    }
    server.resp2().run("RENAME lime lemon");
    assert_deadlock(
        &mut two,
        "LOCK.ACQUIRE lemon WAIT 0",
        &["lemon", "pear"],
        &ids,
    );
    two.run("LOCK.RELEASE pear");
    assert!(one.next_push().starts_with("lock pear "));
    take(&mut two, &["LOCK.ACQUIRE plum"]);
    queue_push(&mut one, "LOCK.ACQUIRE plum OWNER c TASK t WAIT 0 PUSH");
    assert_deadlock(
        &mut two,
        "LOCK.ACQUIRE pear WAIT 0",
        &["pear", "plum"],
        &ids,
    );
}

#[test]
fn a_session_s_holds_keep_their_tasks() {
    let server = Server::start();
    let (mut one, mut two) = (server.resp3(), server.resp3());
    let secret = one.run("SESSION.START GRACE 86400000").text();
    take(
        &mut one,
        &[
            "SETTP apple v TASK t",
            "LOCK.ACQUIRE lime OWNER a TASK t",
            "LOCK.ACQUIRE fig OWNER t",
        ],
    );
    let resumed = |how: &str, one: Client, two: &mut Client| {
        quit(&server, one);
        server.resp2().run(how);
        let mut one = server.resp3();
        one.run(["SESSION.RESUME", &secret]);
        take(two, &["LOCK.ACQUIRE pear"]);
        queue_push(&mut one, "LOCK.ACQUIRE pear OWNER b TASK t WAIT 0 PUSH");
        let ids = [one.id(), two.id()];
        for key in ["apple", "lime", "fig"] {
            let request = format!("LOCK.ACQUIRE {key} WAIT 0");
            let request = if key == "apple" {
                "SETTP apple w WAIT 0"
            } else {
                &request
            };
            assert_deadlock(two, request, &[key, "pear"], &ids);
        }
        two.run("LOCK.RELEASE pear");
        assert!(one.next_push().starts_with("lock pear "));
        one.run("LOCK.RELEASE pear OWNER b");
        one
    };
    let one = resumed("PING", one, &mut two);
    resumed("DEBUG RELOAD", one, &mut two);
}

#[test]
fn why_follows_the_task_of_a_hold() {
    let server = Server::start();
    let (mut one, mut two) = (server.resp3(), server.resp3());
    take(
        &mut one,
        &[
            "LOCK.ACQUIRE apple OWNER a TASK t",
            "LOCK.ACQUIRE plum OWNER b TASK u",
        ],
    );
    take(&mut two, &["LOCK.ACQUIRE pear"]);
    queue_push(&mut one, "LOCK.ACQUIRE pear OWNER b TASK t WAIT 0 PUSH");
    let waits_for = |key: &str| {
        let told = server.resp3().run(["LOCK.WHY", key]).items();
        field(&told[0], "waits-for")
    };
    assert_eq!(waits_for("apple"), bulk("pear"));
    assert_eq!(waits_for("plum"), null());
}
