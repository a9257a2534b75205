//! The tokens of temporary keys that connections hold, as a replica knows them: from a whole copy, from the stream, when they were
//! raised, and from the files of its own. Its log tells them when it is promoted.

use crate::harness::*;
use crate::line::{field, token_of};
use crate::rewriting::wait_for_rewriting;

const KEY: &str = "k";

/// With what token this server believes a key to be held, of which it knows no other; it is a master from then on.
fn token_there(server: &Server, from: &str) -> i64 {
    server.resp2().run("REPLICAOF NO ONE");
    let mut client = server.resp3();
    eventually(&format!("the log, {from}"), || {
        let entries = client.run(["LOCK.LOG", "KEY", KEY]).items();
        let [entry] = &entries[..] else {
            return Err(format!("{entries:?}"));
        };
        assert_eq!(
            field(entry, "reason"),
            bulk("promoted"),
            "{from}: {entry:?}"
        );
        Ok(field(entry, "token").number())
    })
}

/// A master with a key whose token is not its last one.
fn master(lines: &[&str]) -> (Server, Client) {
    let server = Server::with(lines);
    let mut owner = server.resp3();
    owner.run(["SETTP", KEY, "v"]);
    server.resp2().run_all(&["SETTP other v", "DELTP other"]);
    (server, owner)
}

fn raise(master: &Server, owner: &mut Client) {
    let token = owner.run("LOCK.ACQUIRE later").number();
    let raised = owner.run(["LOCK.RAISE", KEY, &token.to_string()]);
    assert_eq!(raised, int(token));
    assert_eq!(token_of(master, KEY), token);
    owner.run_all(&["LOCK.RELEASE later", "SETTP later v", "DELTP later"]);
}

#[test]
fn a_replica_knows_them_from_a_whole_copy_and_from_the_stream() {
    let (master, mut owner) = master(&[]);
    let replica = Server::replica_of(&master, &[]);
    assert_eq!(token_there(&replica, "of a copy"), token_of(&master, KEY));

    let replica = Server::replica_of(&master, &[]);
    raise(&master, &mut owner);
    replica.catch_up(&master);
    assert_eq!(token_there(&replica, "raised"), token_of(&master, KEY));

    let replica = Server::replica_of(&master, &[]);
    assert_eq!(
        token_there(&replica, "raised before"),
        token_of(&master, KEY)
    );

    let replica = Server::replica_of(&master, &[]);
    owner.run_all(&["DELTP k", "SETTP k w", "SETTP other v", "DELTP other"]);
    replica.catch_up(&master);
    assert_eq!(
        token_there(&replica, "of the stream"),
        token_of(&master, KEY)
    );
}

/// What somebody has done to the key meanwhile is as it was: it was not made anew.
#[test]
fn a_raised_token_changes_nothing_but_itself_there() {
    let (master, mut owner) = master(&[]);
    let replica = Server::replica_of(&master, &[]);
    owner.run_all(&["SET k changed", "PEXPIREAT k 4102444800000"]);
    raise(&master, &mut owner);
    replica.catch_up(&master);
    let mut reader = replica.resp2();
    assert_eq!(reader.run("GET k"), bulk("changed"));
    assert_eq!(reader.run("PEXPIRETIME k"), int(4_102_444_800_000));
}

#[test]
fn a_replica_of_a_replica_knows_them_too() {
    let (master, _owner) = master(&[]);
    let between = Server::replica_of(&master, &[]);
    let last = Server::replica_of(&between, &[]);
    assert_eq!(
        token_there(&last, "of a copy's copy"),
        token_of(&master, KEY)
    );
}

/// A replica that finds its own files, and no master.
#[test]
fn they_are_in_files_of_each_form() {
    let aof = ["appendonly yes", "appendfsync always"];
    let forms: [&[&str]; 3] = [
        &[],
        &[aof[0], aof[1], "aof-use-rdb-preamble yes"],
        &[aof[0], aof[1], "aof-use-rdb-preamble no"],
    ];
    for lines in forms {
        for rewritten in [true, false] {
            let (mut master, mut owner) = master(lines);
            if rewritten && !lines.is_empty() {
                let before = master.gauge("persistence", "aof_rewrites");
                owner.run("BGREWRITEAOF");
                wait_for_rewriting(&master, before + 1);
            } else if !rewritten {
                raise(&master, &mut owner);
            }
            let token = token_of(&master, KEY);
            if lines.is_empty() {
                owner.run("SAVE");
            }
            // Not started again as a master, which would end what its connections held while it loads.
            let follows = format!("replicaof 127.0.0.1 {}", free_port());
            master.kill();
            let mut as_replica = lines.to_vec();
            as_replica.push(&follows);
            master.restart(&as_replica);
            let from = format!("of {lines:?}, rewritten {rewritten}");
            assert_eq!(token_there(&master, &from), token);
        }
    }
}
