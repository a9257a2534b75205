//! SESSION.LIST, SESSION.KILL and SESSION.DETACH.

use crate::harness::*;
use crate::line::*;
use crate::outliving::promote;
use crate::*;

const LINE: [&str; 8] = [
    "id", "client", "user", "addr", "grace-ms", "keys", "holds", "waits",
];

/// What SESSION.LIST says of each session.
fn list(client: &mut Client) -> Vec<[Frame; 8]> {
    let lines = client.run("SESSION.LIST").items();
    let lines = lines.iter().map(|line| {
        let names: Vec<_> = line.items().iter().step_by(2).map(Frame::text).collect();
        assert_eq!(names, LINE);
        LINE.map(|name| field(line, name))
    });
    lines.collect()
}

/// The only session's id.
fn id_of(client: &mut Client) -> String {
    let lines = list(client);
    assert_eq!(lines.len(), 1);
    lines[0][0].number().to_string()
}

fn kill(client: &mut Client, id: &str) -> Frame {
    client.call(["SESSION.KILL", id])
}

#[test]
fn the_list_says_whose_a_session_is_and_what_it_has() {
    let server = Server::start();
    let mut operator = server.resp3();
    assert_eq!(list(&mut operator).len(), 0);
    operator.run("ACL SETUSER anna on nopass +@all ~* &*");
    let mut client = server.resp3();
    client.run("AUTH anna x");
    let id = client.id();
    start(&mut client, 60_000);
    client.run_all(&["SETTP a v", "LOCK.ACQUIRE b", "SELECT 3", "LOCK.ACQUIRE b"]);
    let mut other = server.resp3();
    other.run("LOCK.ACQUIRE c");
    client.run("SELECT 0");
    queue_push(&mut client, "LOCK.ACQUIRE c WAIT 0 PUSH");
    let (mut later, _) = with_session(&server, A_DAY);
    let lines = list(&mut operator);
    let info = client.run("CLIENT INFO").text();
    let addr = info.split(' ').find_map(|word| word.strip_prefix("addr="));
    let addr = addr.expect("its address");
    let expected = [
        int(id),
        bulk("anna"),
        bulk(addr),
        int(60_000),
        int(1),
        int(2),
        int(1),
    ];
    assert_eq!(lines.len(), 2, "the oldest first");
    assert_eq!(lines[0][1..], expected);
    assert!(lines[0][0].number() < lines[1][0].number());
    assert_eq!(lines[1][4..], [int(86_400_000), int(0), int(0), int(0)]);
    // Detached, it has no address, and its grace runs. Whose it was is known, also if it held nothing.
    later.run("AUTH anna x");
    quit(&server, later);
    quit(&server, client);
    let lines = list(&mut operator);
    for line in &lines {
        assert_eq!(line[1..4], [int(0), bulk("anna"), null()]);
    }
    assert!((1..=60_000).contains(&lines[0][4].number()));
    assert_eq!(lines[0][5..], [int(1), int(2), int(0)]);
    server.resp2().run("FLUSHALL");
    assert_eq!(list(&mut operator)[0][5..], [int(0), int(0), int(0)]);
}

#[test]
fn a_killed_session_loses_what_it_holds_and_its_connection_stays() {
    let server = Server::start();
    let (mut client, secret) = with_session(&server, A_DAY);
    let (mut next, mut operator) = (server.resp3(), server.resp3());
    client.run_all(&[
        "SETTP a v NOTIFY",
        "LOCK.ACQUIRE b OWNER job-17 NOTIFY",
        "LOCK.ACQUIRE c",
    ]);
    queue(&server, &mut next, "LOCK.ACQUIRE b WAIT 0");
    let id = id_of(&mut operator);
    assert_eq!(kill(&mut operator, &id), int(3));
    assert!(next.read_reply().number() > 0);
    assert_eq!(
        server.settled(&mut client),
        ["settp a LOST ended", "lock b LOST ended job-17"]
    );
    assert_eq!(operator.call("EXISTS a b c"), int(1));
    assert_eq!(sessions(&server), [0, 0]);
    assert_eq!(tether(&server, "lost_ended_total"), 3);
    let log = operator.run("LOCK.LOG").items();
    assert_eq!(field(&log[0], "reason"), bulk("ended"));
    assert_eq!(log.len(), 3);
    let killed = operator.refused(["SESSION.KILL", &id]);
    assert!(killed.starts_with("NOSESSION"));
    assert!(client.refused("SESSION.END").starts_with("NOSESSION"));
    let resumed = operator.refused(["SESSION.RESUME", &secret]);
    assert!(resumed.starts_with("NOSESSION"));
    // It is a plain connection from now on.
    client.run("SETTP own v");
    quit(&server, client);
    assert_eq!(operator.call("EXISTS own"), int(0));
}

#[test]
fn a_session_is_killed_whose_connection_is_gone_waits_or_kills_it_itself() {
    let server = Server::start();
    let mut operator = server.resp3();
    let (mut gone, _) = with_session(&server, A_DAY);
    gone.run_all(&["SETTP gone v NOTIFY", "LOCK.ACQUIRE gone2"]);
    quit(&server, gone);
    let id = id_of(&mut operator);
    assert_eq!(kill(&mut operator, &id), int(2));
    assert_eq!(operator.call("EXISTS gone gone2"), int(0));
    // Its wait goes on, and what it is granted is its own.
    let (mut waits, _) = with_session(&server, A_DAY);
    operator.run("LOCK.ACQUIRE k");
    waits.run("LOCK.ACQUIRE held");
    queue(&server, &mut waits, "LOCK.ACQUIRE k WAIT 0");
    let id = id_of(&mut operator);
    assert_eq!(kill(&mut operator, &id), int(1));
    operator.run("LOCK.RELEASE k");
    assert!(waits.read_reply().number() > 0);
    assert_eq!(of_holder(&server, "k", "session"), null());
    // One's own, also for the place behind what it held.
    let (mut own, _) = with_session(&server, A_DAY);
    own.run("LOCK.ACQUIRE o OWNER one NOTIFY");
    queue_push(&mut own, "LOCK.ACQUIRE o OWNER two WAIT 0 PUSH");
    let id = id_of(&mut operator);
    assert_eq!(kill(&mut own, &id), int(1));
    let pushes = own.pushes();
    assert_eq!(pushes[0], "lock o LOST ended one");
    assert!(pushes[1].starts_with("lock o ") && pushes[1].ends_with(" two"));
    assert_eq!(of_holder(&server, "o", "session"), null());
}

/// It asked to be told of nothing. So whoever kills its session kills the connection, too.
#[test]
fn a_connection_whose_session_held_nothing_is_not_told_and_is_killed_along() {
    let server = Server::start();
    let (mut operator, mut next) = (server.resp3(), server.resp3());
    let (mut client, secret) = with_session(&server, A_DAY);
    operator.run("LOCK.ACQUIRE k");
    queue_push(&mut client, "LOCK.ACQUIRE k NOTIFY WAIT 0 PUSH");
    let id = id_of(&mut operator);
    assert_eq!(kill(&mut operator, &id), int(0));
    assert_eq!(server.settled(&mut client), [""; 0]);
    // What it is granted is not its session's, and goes with it.
    operator.run("LOCK.RELEASE k");
    assert!(client.next_push().starts_with("lock k "));
    assert_eq!(of_holder(&server, "k", "session"), null());
    queue(&server, &mut next, "LOCK.ACQUIRE k WAIT 0");
    quit(&server, client);
    assert!(next.read_reply().number() > 0);
    assert!(
        operator
            .refused(["SESSION.RESUME", &secret])
            .starts_with("NOSESSION")
    );
    next.run("LOCK.RELEASE k");
    // The connection is killed in the same step: it is granted nothing in between.
    let (mut client, secret) = with_session(&server, A_DAY);
    operator.run("LOCK.ACQUIRE k");
    queue_push(&mut client, "LOCK.ACQUIRE k NOTIFY WAIT 0 PUSH");
    let line = &list(&mut operator)[0];
    let (id, connection) = (line[0].number(), line[1].number());
    operator.run_all(&["MULTI"]);
    operator.run(["SESSION.KILL", &id.to_string()]);
    operator.run(["CLIENT", "KILL", "ID", &connection.to_string()]);
    operator.run("LOCK.RELEASE k");
    let replies = operator.run("EXEC").items();
    assert_eq!(replies[..2], [int(0), int(1)]);
    client.expect_closed();
    assert_eq!(operator.call("EXISTS k"), int(0));
    let mut again = server.resp3();
    assert!(
        again
            .refused(["SESSION.RESUME", &secret])
            .starts_with("NOSESSION")
    );
    start(&mut again, A_DAY);
    again.run("LOCK.ACQUIRE k");
    assert_ne!(of_holder(&server, "k", "session"), null());
}

#[test]
fn very_many_holds_of_a_killed_session_go_in_slices() {
    const MANY: i64 = 5000;
    let server = Server::with(&["tether.max-keys-per-client 100000"]);
    let (mut client, _) = with_session(&server, A_DAY);
    for at in 0..MANY {
        client.run(["LOCK.ACQUIRE", &format!("k{at}"), "NOTIFY"]);
    }
    let mut operator = server.resp3();
    let id = id_of(&mut operator);
    assert_eq!(kill(&mut operator, &id), int(MANY));
    assert_eq!(tether(&server, "lost_ended_total"), MANY);
    // None of them refuses anybody from now on.
    assert!(operator.call("LOCK.ACQUIRE k4999").number() > 0);
    assert_eq!(client.next_pushes(MANY as usize).len(), MANY as usize);
    operator.run("LOCK.RELEASE k4999");
    eventually_nothing_is_left(&server);
    assert_eq!(operator.call("DBSIZE"), int(0));
}

#[test]
fn replicas_and_the_append_only_file_know_no_killed_session() {
    let mut master = Server::with(&["appendonly yes", "appendfsync always"]);
    let replica = Server::replica_of(&master, &[]);
    let (mut killed, secret) = with_session(&master, A_DAY);
    killed.run_all(&["SETTP a v", "LOCK.ACQUIRE b"]);
    let mut operator = master.resp3();
    let id = id_of(&mut operator);
    replica.catch_up(&master);
    assert_eq!(id_of(&mut replica.resp3()), id, "a replica lists them, too");
    assert!(
        replica
            .resp3()
            .refused(["SESSION.KILL", &id])
            .starts_with("READONLY")
    );
    assert_eq!(kill(&mut operator, &id), int(2));
    let (mut kept, kept_secret) = with_session(&master, A_DAY);
    kept.run_all(&["SETTP c v", "LOCK.ACQUIRE d"]);
    assert_eq!(kept.call("SESSION.DETACH"), int(2));
    replica.catch_up(&master);
    promote(&replica);
    master.crash_and_restart();
    for server in [&replica, &master] {
        assert_eq!(sessions(server), [0, 1]);
        let mut client = server.resp3();
        assert_eq!(client.call("EXISTS a b c d"), int(2));
        let resumed = client.refused(["SESSION.RESUME", &secret]);
        assert!(resumed.starts_with("NOSESSION"));
        assert_eq!(client.call(["SESSION.RESUME", &kept_secret]), int(2));
    }
}

#[test]
fn only_administrators_list_and_kill_sessions() {
    let server = Server::start();
    let (mut client, _) = with_session(&server, A_DAY);
    client.run("LOCK.ACQUIRE k");
    let mut operator = server.resp3();
    let id = id_of(&mut operator);
    // Redis 7.0 puts the commands of modules into no category.
    let refused = match server.is_at_least((7, 2), (7, 2)) {
        true => ["-@admin", "-@dangerous"],
        false => ["-session.list -session.kill"; 2],
    };
    for refused in refused {
        operator.run(&*format!(
            "ACL SETUSER user reset on nopass +@all {refused} ~* &*"
        ));
        let mut other = server.resp3();
        other.run("AUTH user x");
        for command in ["SESSION.LIST".to_owned(), format!("SESSION.KILL {id}")] {
            assert!(other.refused(&*command).starts_with("NOPERM"), "{command}");
        }
        assert!(other.refused("SESSION.DETACH").starts_with("NOSESSION"));
    }
    for id in ["", "x", "-1", "18446744073709551616"] {
        assert!(operator.refused(["SESSION.KILL", id]).starts_with("ERR"));
    }
    assert!(operator.refused("SESSION.KILL 0").starts_with("NOSESSION"));
    assert_eq!(kill(&mut operator, &id), int(1));
}

#[test]
fn who_lets_go_of_its_session_resumes_it_elsewhere() {
    let server = Server::start();
    let (mut client, secret) = with_session(&server, A_DAY);
    client.run_all(&["SETTP a v NOTIFY", "LOCK.ACQUIRE b", "WATCHEX w"]);
    let mut holder = server.resp3();
    holder.run("LOCK.ACQUIRE c");
    queue_push(&mut client, "LOCK.ACQUIRE c WAIT 0 PUSH");
    // Behind what its own session holds, as another's from now on.
    queue_push(&mut client, "LOCK.ACQUIRE b OWNER x WAIT 0 PUSH");
    let id = client.id();
    assert_eq!(client.call("SESSION.DETACH"), int(2));
    assert_eq!(sessions(&server), [0, 1]);
    assert!(client.refused("SESSION.DETACH").starts_with("NOSESSION"));
    assert_eq!(client.call("DELTP a"), int(0));
    assert!(client.refused("LOCK.RELEASE b").starts_with("NOTHELD"));
    let mut next = server.resp3();
    assert_eq!(next.call(["SESSION.RESUME", &secret, "NOTIFY"]), int(2));
    // Its watches and waits stay, and what it is granted is its own.
    holder.run_all(&["SET w x", "LOCK.RELEASE c"]);
    assert_eq!(client.next_push(), "watchex w ADD");
    assert!(client.next_push().starts_with("lock c "));
    assert_eq!(of_holder(&server, "c", "session"), null());
    next.run("LOCK.RELEASE b");
    assert!(client.next_push().starts_with("lock b "));
    assert_eq!(holders(&server, "b"), [id]);
    holder.run("DEL a");
    assert_eq!(server.settled(&mut next), ["settp a LOST deleted"]);
    assert_eq!(server.settled(&mut client), [""; 0]);
    quit(&server, client);
    assert_eq!(holder.call("EXISTS b c"), int(0));
}

#[test]
fn letting_go_within_a_transaction_takes_effect_in_it() {
    let server = Server::start();
    let (mut client, secret) = with_session(&server, A_DAY);
    client.run_all(&[
        "SETTP a v",
        "MULTI",
        "SESSION.DETACH",
        "SETTP own v",
        "DELTP a",
    ]);
    assert_eq!(client.call("EXEC"), array([int(1), int(1), int(0)]));
    quit(&server, client);
    let mut next = server.resp3();
    assert_eq!(next.call("EXISTS a own"), int(1));
    assert_eq!(next.call(["SESSION.RESUME", &secret]), int(1));
    next.run_all(&["MULTI", "SESSION.DETACH"]);
    next.run(["SESSION.RESUME", &secret]);
    assert_eq!(next.call("EXEC"), array([int(1), int(1)]));
    assert_eq!(sessions(&server), [1, 0]);
}

#[test]
fn what_was_let_go_of_goes_when_its_grace_is_over() {
    let server = Server::start();
    let (mut client, secret) = with_session(&server, 30);
    client.run_all(&["CLIENT SETNAME worker-1", "LOCK.ACQUIRE k"]);
    assert_eq!(client.call("SESSION.DETACH"), int(1));
    eventually_equal("the lock", int(0), || client.call("EXISTS k"));
    let resumed = client.refused(["SESSION.RESUME", &secret]);
    assert!(resumed.starts_with("NOSESSION"));
    let log = client.run("LOCK.LOG").items();
    assert_eq!(field(&log[0], "reason"), bulk("died"));
    assert_eq!(field(&log[0], "name"), bulk("worker-1"));
}

#[test]
fn who_is_no_administrator_sees_and_kills_no_sessions() {
    let server = Server::start();
    let (_client, _) = with_session(&server, A_DAY);
    let mut operator = server.resp3();
    let id = id_of(&mut operator);
    for rules in [
        "+@all -@admin -@dangerous",
        "-@all +session.list +session.kill -@admin -@dangerous",
    ] {
        operator.run(&format!("ACL SETUSER anna reset on nopass ~* {rules}"));
        let mut anna = server.resp3();
        anna.run("AUTH anna x");
        for command in ["SESSION.LIST".to_owned(), format!("SESSION.KILL {id}")] {
            let refused = anna.refused(&command);
            assert!(
                refused.starts_with("NOPERM "),
                "{rules}: {command}: {refused}"
            );
        }
    }
    let words = "+session.list +session.kill +client|list +client|kill";
    operator.run(&format!("ACL SETUSER anna reset on nopass {words}"));
    let mut anna = server.resp3();
    anna.run("AUTH anna x");
    assert_eq!(id_of(&mut anna), id);
    assert_eq!(kill(&mut anna, &id), int(0));
}
