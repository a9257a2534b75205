//! `WAIT` and `WAITAOF` right after a handoff: they are about the grant, not about what the waiter saw before it stood still.

use crate::harness::*;
use crate::line::*;

/// Who holds, and who waits for it.
struct Pair {
    holder: Client,
    waiter: Client,
}

impl Pair {
    fn of(server: &Server) -> Pair {
        let (mut holder, mut waiter) = (server.resp3(), server.resp3());
        assert_eq!(holder.run("SETTP k v WAIT 0"), int(1));
        queue(server, &mut waiter, "SETTP k w WAIT 0");
        Pair { holder, waiter }
    }

    /// The former waiter, who has been told of its grant.
    fn hand_over(mut self) -> Client {
        self.holder.run("DELTP k");
        assert_eq!(self.waiter.read_reply(), int(1));
        self.waiter
    }
}

#[test]
fn wait_counts_the_replicas_that_know_of_the_grant() {
    let master = Server::start();
    // Before there is any replica, so that the first of them changes something.
    Pair::of(&master).hand_over();
    let replica = Server::replica_of(&master, &[]);
    let mut pair = Pair::of(&master);
    assert_eq!(pair.holder.call("WAIT 1 0"), int(1));
    Server::signal(replica.pid(), libc::SIGSTOP);
    let mut granted = pair.hand_over();
    let unknown = granted.call("WAIT 1 20");
    Server::signal(replica.pid(), libc::SIGCONT);
    assert_eq!(unknown, int(0));
    assert_eq!(granted.call("WAIT 1 0"), int(1));
    assert_eq!(replica.resp2().call("GET k"), bulk("w"));
}

#[test]
fn waitaof_is_about_the_file_that_has_the_grant() {
    let server = Server::with(&["appendonly yes", "appendfsync everysec"]);
    if !server.is_at_least((7, 2), (7, 2)) {
        return say("WAITAOF after a grant: SKIPPED, this server has none");
    }
    let mut pair = Pair::of(&server);
    assert_eq!(pair.holder.call("WAITAOF 1 0 0").items()[0], int(1));
    // From now on the server writes, but does not ask the system whether that is on the disk.
    pair.holder.run("CONFIG SET appendfsync no");
    let mut granted = pair.hand_over();
    assert_eq!(granted.call("WAITAOF 1 0 20").items()[0], int(0));
    granted.run("CONFIG SET appendfsync everysec");
    assert_eq!(granted.call("WAITAOF 1 0 0").items()[0], int(1));
}

#[test]
fn waitaof_is_about_a_file_that_is_to_be_begun_later() {
    let server = Server::start();
    if !server.is_at_least((7, 2), (7, 2)) {
        return say("WAITAOF after a grant: SKIPPED, this server has none");
    }
    let mut other = server.resp2();
    for number in 0..50 {
        other.run(["SET", &format!("other:{number}"), "v"]);
    }
    // Files take half a second.
    other.run("CONFIG SET rdb-key-save-delay 10000");
    let pair = Pair::of(&server);
    // Handed over before anything is to be counted, so that the setting changes something.
    let mut former = server.resp3();
    former.run("SETTP former v");
    let mut next = server.resp3();
    queue(&server, &mut next, "SETTP former w WAIT 0");
    other.run("BGSAVE");
    former.run("DELTP former");
    // It can only be begun when the other file is done.
    other.run("CONFIG SET appendonly yes");
    let mut granted = pair.hand_over();
    assert_eq!(granted.call("WAITAOF 1 0 0").items()[0], int(1));
    let rewriting = server.gauge("persistence", "aof_rewrite_in_progress");
    assert_eq!(rewriting, 0, "there is no file yet");
}
