//! DELTP: deletes what the caller owns, and nothing else.

use crate::harness::*;

#[test]
fn deltp_deletes_and_counts_only_what_the_caller_owns() {
    let server = Server::start();
    let (mut owner, mut other) = (server.resp3(), server.resp3());
    owner.run_all(&[
        "SETTP a 1 NOTIFY",
        "SETTP b 1 NOTIFY",
        "SETTP c 1 NOTIFY",
        "SET plain 1",
    ]);
    other.run("SETTP theirs 1 NOTIFY");
    assert_eq!(owner.call("DELTP a b theirs plain nothing"), int(2));
    assert_eq!(other.call("EXISTS a b"), int(0));
    assert_eq!(other.call("EXISTS theirs plain c"), int(3));
    assert_eq!(owner.call("DELTP c c"), int(1));
    assert_eq!(other.call("DELTP c"), int(0));
    assert_eq!(
        server.settled(&mut owner),
        [""; 0],
        "no LOST for what one deletes oneself"
    );
    assert_eq!(server.settled(&mut other), [""; 0]);
}

#[test]
fn deltp_looks_only_at_the_selected_database() {
    let server = Server::start();
    let mut owner = server.resp2();
    owner.run_all(&["SELECT 3", "SETTP k v", "SELECT 0"]);
    assert_eq!(owner.call("DELTP k"), int(0));
    owner.run("SELECT 3");
    assert_eq!(owner.call("DELTP k"), int(1));
}

#[test]
fn deltp_follows_a_key_that_was_carried_to_another_name() {
    let server = Server::start();
    let (mut owner, mut other) = (server.resp2(), server.resp2());
    owner.run("SETTP k v");
    other.run_all(&["RENAME k new", "SET k theirs"]);
    assert_eq!(owner.call("DELTP k"), int(0));
    assert_eq!(other.call("GET k"), bulk("theirs"));
    assert_eq!(owner.call("DELTP new"), int(1));
    assert_eq!(other.call("EXISTS new"), int(0));
}

#[test]
fn deltp_leaves_a_key_that_replaced_ones_own() {
    let server = Server::start();
    let (mut owner, mut other) = (server.resp2(), server.resp2());
    owner.run("SETTP k v");
    other.run_all(&["SET theirs theirs", "RENAME theirs k"]);
    assert_eq!(owner.call("DELTP k"), int(0));
    assert_eq!(other.call("GET k"), bulk("theirs"));
}

#[test]
fn deltp_is_an_ordinary_del_to_others() {
    let master = Server::start();
    let replica = Server::replica_of(&master, &[]);
    let (mut owner, mut watcher) = (master.resp2(), replica.resp3());
    watcher.run("WATCHEX k");
    owner.run_all(&["SETTP k v NOTIFY", "DELTP k"]);
    assert_eq!(watcher.next_pushes(2), ["watchex k ADD", "watchex k DEL"]);
    owner.run_all(&["MULTI", "SETTP k v NOTIFY", "DELTP k", "EXEC"]);
    assert_eq!(watcher.next_pushes(2), ["watchex k ADD", "watchex k DEL"]);
    assert_eq!(replica.settled(&mut watcher), [""; 0]);
}
