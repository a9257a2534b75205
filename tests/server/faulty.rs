//! A fault of the module itself: a panic in a command.

use crate::harness::*;

#[test]
fn whose_command_fails_is_disconnected_and_whom_it_has_answered_is_not_left_waiting() {
    let server = Server::with_fault("lock.release");
    let (mut owner, mut waiter) = (server.resp3(), server.resp3());
    owner.run("LOCK.ACQUIRE k");
    let before = server.gauge("tether", "tether_waiters");
    waiter.send("LOCK.ACQUIRE k WAIT 0");
    eventually_equal("the wait", before + 1, || {
        server.gauge("tether", "tether_waiters")
    });
    // The next command's reply would be taken for that of the one that failed.
    owner.send_bytes(b"LOCK.RELEASE k\r\nECHO next\r\n");
    let replies: Vec<_> = std::iter::from_fn(|| owner.try_read_reply())
        .take(2)
        .collect();
    if replies.last() == Some(&bulk("next")) {
        return say("whose_command_fails_...: only builds with debug assertions");
    }
    assert_eq!(replies[0], int(0));
    assert!(
        replies[1]
            .text()
            .starts_with("ERR tether has stopped after a fault")
    );
    assert_eq!(owner.try_read_reply(), None, "it is closed");
    assert!(waiter.read_reply().number() > 0);
    let refused = waiter.refused("LOCK.CANCEL k");
    assert!(refused.contains("TETHER_FAULT"), "{refused}");
    assert_eq!(server.resp2().call("PING"), simple("PONG"));
}
