//! Commands find the server that has their keys.

use crate::harness::*;
use crate::line::{queue, queue_push, tether};
use crate::nodes::{Cluster, name_in};

#[test]
fn commands_are_sent_to_the_server_that_has_their_key() {
    let cluster = Cluster::of_masters(3, &[]);
    let key = name_in(16_000);
    let moved = format!("MOVED 16000 {}", cluster.address(2));
    let mut wrong = cluster.servers[0].resp3();
    let mut right = cluster.servers[2].resp3();
    for command in [
        format!("SETTP {key} v"),
        format!("SETTP {key} v WAIT 0"),
        format!("DELTP {key}"),
        format!("WATCHEX {key}"),
        format!("UNWATCHEX {key}"),
        format!("LOCK.ACQUIRE {key}"),
        format!("LOCK.MACQUIRE 1 {key}"),
        format!("LOCK.RELEASE {key}"),
        format!("LOCK.EXTEND {key} 1000"),
        format!("LOCK.INFO {key}"),
    ] {
        assert_eq!(wrong.refused(&command), moved, "{command}");
    }
    assert_eq!(right.call(&format!("WATCHEX {key}")), bulk("NOEXIST"));
    let both = format!("LOCK.MACQUIRE 2 {key} {{{key}}}b WAIT 0");
    assert!(right.call(&both).number() > 0);
    assert_eq!(right.next_push(), format!("watchex {key} ADD"));
    assert_eq!(lock_list(&mut wrong, ""), []);
    assert_eq!(lock_list(&mut right, "").len(), 2);
    // Of two slots, on the server that has the first one. (Redis 8.6 routes by all.)
    for command in [
        format!("LOCK.MACQUIRE 2 {key} b"),
        format!("LOCK.MACQUIRE 2 {key} b WAIT 0"),
    ] {
        let message = wrong.refused(&command);
        let is_refused = message == moved || message.starts_with("CROSSSLOT ");
        assert!(is_refused, "{command}: {message}");
        let message = right.refused(&command);
        assert!(message.starts_with("CROSSSLOT "), "{command}: {message}");
    }
    // Keys of two slots, on any server.
    for command in ["DELTP a b", "WATCHEX a b", "UNWATCHEX a b"] {
        for client in [&mut wrong, &mut right] {
            let message = client.refused(command);
            assert!(message.starts_with("CROSSSLOT "), "{command}: {message}");
        }
    }
}

/// The server routes by the first key, so the module looks at the others: also where all of the slots are this server's, which
/// would store them in the slot of the first.
#[test]
fn keys_of_two_slots_of_one_server_are_refused_and_nothing_is_done_there() {
    let cluster = Cluster::of_masters(1, &[]);
    let server = &cluster.servers[0];
    let (mut client, mut holder) = (server.resp3(), server.resp3());
    let [here, beside] = [100, 200].map(|slot| format!("{{{}}}", name_in(slot)));
    client.run(["SET", &format!("{beside}plain"), "v"]);
    // Its lease is over when a command names it that is not for its slot.
    client.run("DEBUG SET-ACTIVE-EXPIRE 0");
    let due = format!("{beside}due");
    for words in [
        format!("LOCK.MACQUIRE 2 {here}a {due}"),
        format!("LOCK.MACQUIRE 2 {here}a {beside}b WAIT 0 PUSH"),
        format!("LOCK.MACQUIRE 3 {here}a {here}b {beside}plain"),
    ] {
        holder.pipeline(&[
            &format!("LOCK.ACQUIRE {due} LEASE 1"),
            "DEBUG SLEEP 0.01",
            &words,
        ]);
        let reply = holder.read_replies(3).remove(2).text();
        assert_eq!(
            reply, "CROSSSLOT Keys in request don't hash to the same slot",
            "{words}"
        );
        eventually_gone(&mut client, &due);
    }
    // What stands behind the keys is none, whatever it is called.
    assert!(
        client
            .run(&format!("LOCK.MACQUIRE 1 {here}a OWNER {beside}plain"))
            .number()
            > 0
    );
    client.run(&format!("LOCK.RELEASE {here}a OWNER {beside}plain"));
    assert_eq!(client.run("DBSIZE"), int(1));
    assert_eq!(lock_list(&mut client, ""), []);
    let both = format!("LOCK.MACQUIRE 2 {here}a {here}b");
    assert!(client.run(&both).number() > 0);
    let in_slot = |client: &mut Client, slot: u16| {
        client
            .run(&format!("CLUSTER COUNTKEYSINSLOT {slot}"))
            .number()
    };
    assert_eq!(
        (in_slot(&mut client, 100), in_slot(&mut client, 200)),
        (2, 1)
    );
}

/// The server takes a release for no write, and lets a replica's readers give one.
#[test]
fn a_replica_sends_releases_to_its_master() {
    let mut cluster = Cluster::of_masters(1, &[]);
    let key = name_in(16_000);
    let moved = format!("MOVED 16000 {}", cluster.address(0));
    let replica = cluster.add_replica(0, &[]);
    let mut reader = cluster.servers[replica].resp2();
    for readonly in [false, true] {
        if readonly {
            reader.run("READONLY");
        }
        for command in ["DELTP", "LOCK.RELEASE"] {
            let command = format!("{command} {key}");
            assert_eq!(reader.refused(&command), moved, "{command}");
        }
    }
    let refusal = reader.refused("SESSION.END");
    assert!(refusal.starts_with("READONLY"), "{refusal}");
}

/// While their slot moves, some keys may be here and some not.
#[test]
fn keys_of_which_some_have_moved_are_to_be_asked_for_again() {
    const SLOT: u16 = 9;
    let cluster = Cluster::of_masters(2, &[]);
    let (source, target) = (&cluster.servers[0], &cluster.servers[1]);
    let tag = format!("{{{}}}", name_in(SLOT));
    let [held, plain, moved, none] =
        ["held", "plain", "moved", "none"].map(|n| format!("{tag}{n}"));
    let (mut holder, mut client) = (source.resp3(), source.resp3());
    let token = holder.run(["LOCK.ACQUIRE", &held, "REENTRANT"]).number();
    client.run(["MSET", &plain, "1", &moved, "2"]);
    cluster.open_slot(SLOT, 0, 1);
    cluster.migrate(&[&moved], 0, 1);
    let again = "TRYAGAIN Multiple keys request during rehashing of slot";
    let ask = format!("ASK {SLOT} {}", cluster.address(1));
    for (command, expected) in [
        (format!("LOCK.MACQUIRE 2 {held} {moved} REENTRANT"), again),
        (format!("LOCK.MACQUIRE 2 {held} {none} REENTRANT"), again),
        (format!("LOCK.GUARD {held} {token} GET {moved}"), again),
        (
            format!("LOCK.GUARD {held} {token} MGET {plain} {moved}"),
            again,
        ),
        (format!("LOCK.GUARD {none} 1 GET {plain}"), &ask),
    ] {
        assert_eq!(holder.refused(&command), *expected, "{command}");
    }
    let missing_first = holder.refused(&format!("LOCK.MACQUIRE 2 {none} {held}"));
    assert!(
        missing_first == ask || missing_first == again,
        "{missing_first}"
    );
    let guarded = format!("LOCK.GUARD {held} {token} GET {plain}");
    assert_eq!(holder.run(&guarded), bulk("1"));
    let mut there = target.resp3();
    there.run("ASKING");
    let both = format!("LOCK.MACQUIRE 2 {moved} {none}");
    assert_eq!(there.refused(&both), again);
    assert_eq!(lock_list(&mut there, ""), []);
}

/// Servers since Redis 7.2 look for every key in the slot of the command that is being executed.
#[test]
fn what_is_due_for_keys_of_other_slots_is_done_after_a_command() {
    let cluster = Cluster::of_masters(1, &[]);
    let server = &cluster.servers[0];
    let (mut holder, mut waiter, mut client) = (server.resp3(), server.resp2(), server.resp2());
    // A lease whose time is over when a command for another key is executed.
    client.run("LOCK.ACQUIRE handed LEASE 100000");
    client.run("LOCK.ACQUIRE ends LEASE 100000");
    queue(server, &mut waiter, "LOCK.ACQUIRE handed WAIT 0");
    client.pipeline(&[
        "LOCK.EXTEND handed 1",
        "LOCK.EXTEND ends 1",
        "DEBUG SLEEP 0.01",
        "LOCK.ACQUIRE other",
        "EXISTS handed ends",
    ]);
    let replies = client.read_replies(5);
    assert_eq!(replies[..3], [int(1), int(1), ok()]);
    assert!(replies[3].number() > 0, "{replies:?}");
    assert!(waiter.read_reply().number() > 0);
    eventually_gone(&mut client, "ends");
    assert_eq!(client.call("TYPE handed"), simple("tetherloc"));
    assert_eq!(waiter.call("LOCK.RELEASE handed"), int(0));
    eventually_gone(&mut client, "handed");
    // The end of a connection, in the middle of a transaction for another key.
    let owner = holder.id().to_string();
    holder.run("SETTP owned v");
    queue(server, &mut waiter, "SETTP owned w WAIT 0");
    holder.run("SETTP alone v");
    client.run_all(&["MULTI", "SET other2 x"]);
    client.run(["CLIENT", "KILL", "ID", &owner]);
    client.run("EXEC");
    assert_eq!(waiter.read_reply(), int(1));
    assert_eq!(client.call("GET owned"), bulk("w"));
    eventually_gone(&mut client, "alone");
    drop(waiter);
    eventually_gone(&mut client, "owned");
    client.run("DEL other2");
    client.run("LOCK.RELEASE other");
    assert_eq!(client.call("DBSIZE"), int(0));
    assert_eq!(client.call("RANDOMKEY"), null());
    assert_eq!(
        tether(server, "temporary_keys") + tether(server, "holds"),
        0
    );
}

/// The same for a session that ends in a transaction.
#[test]
fn a_session_that_ends_in_a_transaction_leaves_nothing_in_other_slots() {
    let cluster = Cluster::of_masters(1, &[]);
    let server = &cluster.servers[0];
    let (mut holder, mut waiter) = (server.resp3(), server.resp2());
    holder.run("SESSION.START");
    holder.run_all(&["SETTP owned v", "SETTP alone v", "LOCK.ACQUIRE lock"]);
    queue(server, &mut waiter, "SETTP owned w WAIT 0");
    holder.run_all(&["MULTI", "SET other x", "SESSION.END", "SETTP {other}2 x"]);
    let replies = holder.run("EXEC");
    assert_eq!(replies.items()[1], int(3), "{replies:?}");
    assert_eq!(waiter.read_reply(), int(1));
    for key in ["alone", "lock"] {
        eventually_gone(&mut waiter, key);
    }
    assert_eq!(holder.call("GET owned"), bulk("w"));
    assert_eq!(tether(server, "sessions_attached"), 0);
}

/// The name that is made is in the slot of the key by which the server routes.
#[test]
fn a_sequence_has_a_hash_tag() {
    const SLOT: u16 = 9;
    let cluster = Cluster::of_masters(2, &[]);
    let (source, target) = (&cluster.servers[0], &cluster.servers[1]);
    let tag = name_in(SLOT);
    let mut client = source.resp3();
    for key in [tag.clone(), format!("{{}}{tag}")] {
        let refused = source.resp3().refused(["SETTP", &key, "v", "SEQ"]);
        assert!(
            refused.starts_with("CROSSSLOT ") || refused.starts_with("MOVED "),
            "{key}: {refused}"
        );
    }
    assert!(
        client
            .refused(["SETTP", &tag, "v", "SEQ"])
            .starts_with("CROSSSLOT ")
    );
    assert_eq!(client.run("DBSIZE"), int(0));
    let key = format!("{{{tag}}}n");
    assert_eq!(
        target.resp3().refused(["SETTP", &key, "v", "SEQ"]),
        format!("MOVED {SLOT} {}", cluster.address(0))
    );
    let name = client.run(["SETTP", &key, "v", "SEQ"]).items()[0].text();
    assert!(name.starts_with(&key));
    let count = format!("CLUSTER COUNTKEYSINSLOT {SLOT}");
    assert_eq!(client.run(&count), int(1));
    // While the slot moves: the server asks for the key that is given, and the module for the one that is made.
    client.run(["SET", &key, "plain"]);
    cluster.open_slot(SLOT, 0, 1);
    let again = client.refused(["SETTP", &key, "v", "SEQ"]);
    assert!(again.starts_with("TRYAGAIN "), "{again}");
    let asked = client.refused(["SETTP", &format!("{key}2"), "v", "SEQ"]);
    assert_eq!(asked, format!("ASK {SLOT} {}", cluster.address(1)));
    assert_eq!(client.run(&count), int(2));
}

/// How often the server was asked whether a key is to be served here.
fn looks(server: &Server) -> usize {
    let stats = server.info("commandstats");
    let exists = stats.split("cmdstat_exists:calls=").nth(1);
    exists.map_or(0, |rest| {
        let calls = rest.split(',').next().expect("a number");
        calls.parse().expect("a number")
    })
}

/// The server is asked about one of them, since all have the same request first.
#[test]
fn what_a_request_for_many_keys_leaves_is_looked_at_once() {
    const MANY: usize = 500;
    let cluster = Cluster::of_masters(1, &[]);
    let server = &cluster.servers[0];
    let (mut holder, mut first, mut second) = (server.resp2(), server.resp3(), server.resp3());
    let keys: Vec<_> = (0..MANY).map(|number| format!("{{t}}{number}")).collect();
    holder.run(&format!("LOCK.ACQUIRE {}", keys[MANY - 1]));
    let all = format!("LOCK.MACQUIRE {MANY} {} WAIT 0 PUSH", keys.join(" "));
    queue_push(&mut first, &all);
    queue_push(&mut second, &all);
    let before = looks(server);
    first.run(&format!("LOCK.CANCEL {}", keys[0]));
    let mut seen = before;
    let all = eventually("the end of the looks", || {
        server.settle();
        let now = looks(server);
        match std::mem::replace(&mut seen, now) == now {
            true => Ok(now - before),
            false => Err(now.to_string()),
        }
    });
    assert!((1..MANY / 10).contains(&all), "{all}");
}
