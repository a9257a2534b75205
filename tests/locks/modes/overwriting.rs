//! Locks that others write over, copy, or try to bring back.

use crate::harness::*;
use crate::line::*;

#[test]
fn a_lock_that_is_written_over_is_lost_and_the_line_waits_for_what_is_there_now() {
    for overwrite in [
        vec!["SET k string"],
        vec!["SET theirs string", "RENAME theirs k"],
        vec!["SET theirs string", "COPY theirs k REPLACE"],
        vec!["MSET k string"],
        vec!["MULTI", "SET k string", "EXEC"],
        vec![
            "SET list 1",
            "DEL list",
            "RPUSH list string",
            "SORT list ALPHA STORE k",
        ],
    ] {
        let server = Server::start();
        let (mut holder, mut waiter) = (server.resp3(), server.resp3());
        let mut other = server.resp3();
        holder.run("LOCK.ACQUIRE k NOTIFY");
        queue(&server, &mut waiter, "LOCK.ACQUIRE k WAIT 0");
        other.run_all(&overwrite);
        assert_eq!(
            holder.next_push(),
            "lock k LOST overwritten",
            "{overwrite:?}"
        );
        let message = other.refused("LOCK.ACQUIRE k");
        assert!(message.starts_with("WRONGTYPE"), "{overwrite:?}: {message}");
        assert!(holder.refused("LOCK.RELEASE k").starts_with("NOTHELD"));
        assert_eq!(other.call("EXISTS k"), int(1), "{overwrite:?}");
        assert_eq!(tether(&server, "waiters"), 1, "{overwrite:?}");
        quit(&server, holder);
        assert_eq!(other.call("EXISTS k"), int(1), "{overwrite:?}");
        assert_eq!(other.call("DEL k"), int(1));
        assert!(waiter.read_reply().number() > 0, "{overwrite:?}");
        assert_eq!(waiter.call("LOCK.RELEASE k"), int(0));
    }
}

#[test]
fn right_after_an_overwrite_nobody_takes_the_lock_for_held() {
    let server = Server::start();
    let (mut holder, mut other) = (server.resp3(), server.resp3());
    holder.run("LOCK.ACQUIRE k");
    other.pipeline(&[
        "SET k string",
        "LOCK.ACQUIRE k",
        "SETTP k v",
        "GET k",
        "LOCK.INFO k",
    ]);
    let replies = other.read_replies(5);
    assert!(matches!(&replies[1], Frame::Error(error) if error.starts_with(b"WRONGTYPE")));
    assert_eq!(replies[2..], [int(0), bulk("string"), null()]);
    // And its holder, in the same write, not for its own.
    holder.run("LOCK.ACQUIRE l");
    holder.pipeline(&["SET l string", "LOCK.RELEASE l", "GET l"]);
    let replies = holder.read_replies(3);
    assert!(matches!(&replies[1], Frame::Error(error) if error.starts_with(b"NOTHELD")));
    assert_eq!(replies[2], bulk("string"));
}

/// By the time anybody looks, what was written over the lock is gone again.
#[test]
fn a_lock_that_is_written_over_and_then_deleted_in_one_step_was_written_over() {
    for lazily in ["no", "yes"] {
        let server = Server::with(&[
            &format!("lazyfree-lazy-user-del {lazily}"),
            &format!("lazyfree-lazy-server-del {lazily}"),
        ]);
        let mut other = server.resp3();
        other.run_all(&["RPUSH list string", "SET theirs string"]);
        for over in [
            "SET k string",
            "MSET k string",
            "SORT list ALPHA STORE k",
            "SET k string EX 1000",
        ] {
            for end in [
                "DEL k",
                "UNLINK k",
                "DEL a k b",
                "EXPIRE k -1",
                "SUNIONSTORE k none",
            ] {
                for script in [false, true] {
                    let steps = [over, end];
                    let mut holder = server.resp3();
                    holder.run("LOCK.ACQUIRE k NOTIFY");
                    in_one_step(&mut other, script, &steps);
                    let lost = ["lock k LOST overwritten"];
                    assert_eq!(server.settled(&mut holder), lost, "{steps:?} {script}");
                    // The holder's own doing it hears as well.
                    holder.run("LOCK.ACQUIRE k NOTIFY");
                    in_one_step(&mut holder, script, &steps);
                    assert_eq!(server.settled(&mut holder), lost, "{steps:?} {script}");
                    assert_eq!(holder.call("EXISTS k"), int(0));
                }
            }
        }
    }
}

#[test]
fn a_lock_that_is_deleted_in_one_step_with_other_writes_was_deleted() {
    let server = Server::start();
    let (mut holder, mut other) = (server.resp3(), server.resp3());
    for (steps, losses) in [
        (&["DEL k"][..], &["k deleted"][..]),
        (&["DEL k", "SET k string"], &["k deleted"]),
        (&["SET a x", "DEL k", "DEL a"], &["k deleted"]),
        (
            &["SET l string", "DEL k l"],
            &["k deleted", "l overwritten"],
        ),
        (
            &["SET l string", "UNLINK k", "SET a x", "DEL l"],
            &["k deleted", "l overwritten"],
        ),
        (
            &["SET l string", "SET k string", "DEL l k"],
            &["k overwritten", "l overwritten"],
        ),
        (&["SUNIONSTORE k none"], &["k deleted"]),
        (&["SORT none STORE k"], &["k deleted"]),
        (&["ZUNIONSTORE k 1 none"], &["k deleted"]),
        (&["GET a", "UNLINK a k l"], &["k deleted", "l deleted"]),
    ] {
        for script in [false, true] {
            holder.run_all(&["LOCK.ACQUIRE k NOTIFY", "LOCK.ACQUIRE l NOTIFY"]);
            in_one_step(&mut other, script, steps);
            let mut told = server.settled(&mut holder);
            told.sort_unstable();
            let losses = losses.iter().map(|loss| {
                let (key, why) = loss.split_once(' ').expect("a key and why");
                format!("lock {key} LOST {why}")
            });
            assert_eq!(told, losses.collect::<Vec<_>>(), "{steps:?} {script}");
            other.run("DEL k l a");
            server.settled(&mut holder);
        }
    }
}

/// In a transaction, or in a script.
fn in_one_step(client: &mut Client, script: bool, steps: &[&str]) {
    if !script {
        client.run("MULTI");
        client.run_all(steps);
        client.run("EXEC");
        return;
    }
    let call = |step: &&str| format!("redis.call('{}')", step.replace(' ', "','"));
    let calls: Vec<_> = steps.iter().map(call).collect();
    client.run(["EVAL", &calls.join(" "), "0"]);
}

#[test]
fn a_lock_renamed_over_another_takes_its_place() {
    let server = Server::start();
    let (mut one, mut two, mut waiter) = (server.resp3(), server.resp3(), server.resp3());
    one.run("LOCK.ACQUIRE a NOTIFY");
    two.run("LOCK.ACQUIRE b NOTIFY");
    queue(&server, &mut waiter, "LOCK.ACQUIRE b WAIT 0");
    server.resp2().run("RENAME a b");
    assert_eq!(two.next_push(), "lock b LOST overwritten");
    assert_eq!(holders(&server, "b"), [one.id()]);
    assert_eq!(holders(&server, "a"), [0; 0]);
    assert_eq!(tether(&server, "waiters"), 1);
    assert_eq!(one.call("LOCK.RELEASE b"), int(0));
    assert!(waiter.read_reply().number() > 0);
    assert_eq!(server.settled(&mut one), [""; 0]);
}

#[test]
fn a_lock_cannot_be_copied() {
    let server = Server::start();
    let (mut holder, mut other) = (server.resp3(), server.resp3());
    holder.run("LOCK.ACQUIRE k NOTIFY");
    other.refused("COPY k copy");
    other.refused("COPY k k DB 3");
    other.run("SET string v");
    other.refused("COPY k string REPLACE");
    assert_eq!(other.call("GET string"), bulk("v"));
    assert_eq!(other.call("EXISTS copy"), int(0));
    assert_eq!(holders(&server, "k"), [holder.id()]);
    assert_eq!(server.settled(&mut holder), [""; 0]);
}

#[test]
fn a_lock_that_is_restored_is_nobodys_and_goes() {
    let server = Server::start();
    let (mut holder, mut other) = (server.resp3(), server.resp3());
    holder.run("LOCK.ACQUIRE k NOTIFY");
    other.run("SET string v");
    let dump = other.run("DUMP k").bytes();
    let restore = |name: &str, options: &[&str]| {
        let mut words = vec![b"RESTORE".to_vec(), name.into(), b"0".to_vec()];
        words.push(dump.clone());
        words.extend(options.iter().map(|option| option.as_bytes().to_vec()));
        words
    };
    let busy = other.refused(restore("string", &[]));
    assert!(busy.starts_with("BUSYKEY"), "{busy}");
    for (name, options) in [("new", &[][..]), ("string", &["REPLACE"])] {
        assert_eq!(other.call(restore(name, options)), ok());
        assert!(other.run(["LOCK.ACQUIRE", name]).number() > 0, "{name}");
        assert_eq!(other.call(["LOCK.RELEASE", name]), int(0));
        assert_eq!(other.call(restore(name, &[])), ok());
        eventually_gone(&mut other, name);
    }
    // In the place of a lock that is held.
    assert_eq!(other.call(restore("k", &["REPLACE"])), ok());
    assert_eq!(holder.next_push(), "lock k LOST overwritten");
    eventually_gone(&mut other, "k");
    assert_eq!(server.settled(&mut holder), [""; 0]);
}

/// Before anybody has looked at what was written over, or brought back.
#[test]
fn a_lock_that_changes_databases_at_once_is_looked_at_there() {
    let server = Server::start();
    let (mut holder, mut other) = (server.resp3(), server.resp2());
    holder.run("LOCK.ACQUIRE k NOTIFY");
    let dump = other.run("DUMP k").bytes();
    other.run_all(&["MULTI", "SET k string", "SWAPDB 0 5", "EXEC"]);
    assert_eq!(holder.next_push(), "lock k LOST overwritten");
    assert_eq!(holders_in(&server, 5, "k"), [0; 0]);
    quit(&server, holder);
    other.run("SELECT 5");
    assert_eq!(other.call("GET k"), bulk("string"));
    other.run("MULTI");
    let restore: [&[u8]; 4] = [b"RESTORE", b"new", b"0", &dump];
    other.run(restore);
    other.run_all(&["SWAPDB 5 0", "EXEC", "SELECT 0"]);
    eventually_gone(&mut other, "new");
    assert_eq!(other.call("GET k"), bulk("string"));
}

#[test]
fn a_temporary_key_cannot_be_made_in_place_of_a_lock() {
    let server = Server::start();
    let (mut holder, mut other) = (server.resp3(), server.resp3());
    holder.run("LOCK.ACQUIRE k");
    assert_eq!(other.call("SETTP k v"), int(0));
    assert_eq!(holder.call("SETTP k v"), int(0), "its holder neither");
    assert_eq!(other.call("DELTP k"), int(0));
    assert_eq!(
        holder.call("DELTP k"),
        int(0),
        "a lock is released, not dropped"
    );
    assert_eq!(holders(&server, "k"), [holder.id()]);
}

/// What replicas and the append-only file are told beyond the commands for everyone.
#[test]
fn internal_commands_are_for_the_server_alone() {
    let server = Server::start();
    let mut client = server.resp3();
    let names = client.run("COMMAND LIST FILTERBY PATTERN tether*").items();
    for name in names.iter().map(Frame::text) {
        for arguments in [
            vec![],
            vec!["k"],
            vec!["1"],
            vec!["k", "1"],
            vec!["k", "v", "1"],
        ] {
            let mut words = vec![name.as_str()];
            words.extend(arguments);
            client.refused(words.clone());
            let listed: Vec<_> = words.iter().map(|word| format!("'{word}'")).collect();
            let script = format!("return redis.call({})", listed.join(","));
            client.refused(["EVAL", &script, "0"]);
        }
    }
    let token = client.run("SETTP other v TOKEN").number();
    assert!(token >> 22 < 1 << 32, "{token}");
    assert_eq!(client.call("DBSIZE"), int(1));
}

#[test]
fn locks_are_refused_to_scripts() {
    let server = Server::start();
    let mut client = server.resp3();
    for command in [
        "'LOCK.ACQUIRE','k'",
        "'LOCK.MACQUIRE','1','k'",
        "'LOCK.RELEASE','k'",
        "'LOCK.EXTEND','k','1'",
        "'SETTP','k','v','WAIT','0'",
        "'DELTP','k'",
    ] {
        client.refused(["EVAL", &format!("return redis.call({command})"), "1", "k"]);
    }
    assert_eq!(client.call("DBSIZE"), int(0));
}
