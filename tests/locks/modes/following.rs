//! What is deferred about a lock follows it: a lock can go by another name, in another place, before the server lets anybody
//! look at it.

use crate::harness::*;
use crate::line::*;

/// How several commands come to a server in one step.
#[derive(Clone, Copy, Debug)]
enum Step {
    Transaction,
    Script,
    Pipeline,
}

const STEPS: [Step; 3] = [Step::Transaction, Step::Script, Step::Pipeline];

type Words = Vec<Vec<u8>>;

fn words(command: &str) -> Words {
    let words = command.split(' ');
    words.map(|word| word.as_bytes().to_vec()).collect()
}

fn restore(key: &str, dump: &[u8]) -> Words {
    let words: [&[u8]; 5] = [b"RESTORE", key.as_bytes(), b"0", dump, b"REPLACE"];
    words.map(<[u8]>::to_vec).to_vec()
}

fn dump_of_a_lock(server: &Server) -> Vec<u8> {
    let mut client = server.resp2();
    client.run("LOCK.ACQUIRE model");
    let dump = client.run("DUMP model").bytes();
    client.run("LOCK.RELEASE model");
    dump
}

impl Step {
    fn take(self, client: &mut Client, commands: &[Words]) {
        match self {
            Step::Transaction => {
                client.run("MULTI");
                commands
                    .iter()
                    .for_each(|words| drop(client.run(words.clone())));
                client.run("EXEC");
            }
            Step::Script => {
                let mut words = vec![b"EVAL".to_vec(), SCRIPT.to_vec(), b"0".to_vec()];
                for command in commands {
                    words.push(command.len().to_string().into_bytes());
                    words.extend(command.iter().cloned());
                }
                client.run(words);
            }
            Step::Pipeline => {
                let bytes: Vec<u8> = commands.iter().cloned().flat_map(encode).collect();
                client.send_bytes(&bytes);
                commands.iter().for_each(|_| drop(client.read_reply()));
            }
        }
    }
}

/// Runs what its arguments say: for each command the number of its words, and those.
const SCRIPT: &[u8] = b"local at = 1
while at <= #ARGV do
    local count = tonumber(ARGV[at])
    redis.call(unpack(ARGV, at + 1, at + count))
    at = at + count + 1
end";

/// Where a lock at `k` stands after these commands.
const CARRYING: [(&[&str], u32, &str); 6] = [
    (&["RENAME k l"], 0, "l"),
    (&["MOVE k 5"], 5, "k"),
    (&["RENAMENX k l", "RENAME l m", "RENAME m n"], 0, "n"),
    (
        &["RENAME k l", "MOVE l 5", "SELECT 5", "RENAME l m"],
        5,
        "m",
    ),
    (&["RENAME k l", "SWAPDB 0 5"], 5, "l"),
    (
        &[
            "SET l string",
            "RENAME k l",
            "SELECT 5",
            "SET k string",
            "SELECT 0",
            "MOVE l 6",
        ],
        6,
        "l",
    ),
];

/// Nothing of it is left, wherever it went: also where nobody holds anything, and never did.
#[test]
fn a_lock_that_comes_by_restore_and_is_carried_on_in_one_step_goes() {
    let busy = Server::start();
    let dump = dump_of_a_lock(&busy);
    for (carrying, db, name) in CARRYING {
        let server = Server::start();
        restored_and_carried(&server, &dump, Step::Transaction, carrying, db, name);
    }
    let mut holder = busy.resp3();
    for step in STEPS {
        for (carrying, db, name) in CARRYING {
            holder.run("LOCK.ACQUIRE held NOTIFY");
            restored_and_carried(&busy, &dump, step, carrying, db, name);
            assert_eq!(busy.settled(&mut holder), [""; 0], "{step:?} {carrying:?}");
            assert_eq!(tether(&busy, "holds"), 1, "{step:?} {carrying:?}");
            holder.run("FLUSHALL");
        }
    }
}

fn restored_and_carried(
    server: &Server,
    dump: &[u8],
    step: Step,
    carrying: &[&str],
    db: u32,
    name: &str,
) {
    let mut client = server.resp2();
    let carrying = carrying.iter().map(|command| words(command));
    let restore = std::iter::once(restore("k", dump));
    let commands: Vec<_> = restore.chain(carrying).collect();
    step.take(&mut client, &commands);
    client.run(["SELECT", &db.to_string()]);
    let what = format!("{step:?} {commands:?}");
    eventually_equal(&what, int(0), || client.call(["EXISTS", name]));
}

/// In the place of a lock that came without a holder stands one that has one.
#[test]
fn a_held_lock_that_takes_the_place_of_a_restored_one_stays() {
    let server = Server::start();
    let dump = dump_of_a_lock(&server);
    let (mut holder, mut other) = (server.resp3(), server.resp2());
    for step in STEPS {
        holder.run("LOCK.ACQUIRE held NOTIFY");
        let commands = [restore("k", &dump), words("RENAME held k")];
        step.take(&mut other, &commands);
        assert_eq!(server.settled(&mut holder), [""; 0], "{step:?}");
        assert_eq!(holders(&server, "k"), [holder.id()], "{step:?}");
        assert_eq!(holder.call("LOCK.RELEASE k"), int(0));
    }
}

#[test]
fn a_lock_that_is_written_over_and_then_renamed_is_lost_by_the_name_that_it_had() {
    for step in STEPS {
        for (carrying, db, name) in CARRYING {
            let server = Server::start();
            let (mut holder, mut waiter) = (server.resp3(), server.resp3());
            let mut other = server.resp2();
            holder.run("LOCK.ACQUIRE k NOTIFY");
            let what = format!("{step:?} {carrying:?}");
            queue_push(&mut waiter, "LOCK.ACQUIRE k WAIT 0 PUSH");
            let carrying = carrying.iter().map(|command| words(command));
            let commands: Vec<_> = std::iter::once(words("SET k string"))
                .chain(carrying)
                .collect();
            step.take(&mut other, &commands);
            assert_eq!(
                server.settled(&mut holder),
                ["lock k LOST overwritten"],
                "{what}"
            );
            assert_eq!(holders_in(&server, db, name), [0; 0], "{what}");
            other.run(["SELECT", &db.to_string()]);
            assert_eq!(other.call(["GET", name]), bulk("string"), "{what}");
            // Nobody stands at the old name.
            assert!(waiter.next_push().starts_with("lock k "), "{what}");
        }
    }
}

#[test]
fn of_what_one_does_oneself_to_one_s_own_lock_one_hears_nothing() {
    for step in [Step::Transaction, Step::Script] {
        for (carrying, db, _) in CARRYING {
            for flush in ["FLUSHALL", "FLUSHDB", "FLUSHALL ASYNC"] {
                let server = Server::start();
                let mut holder = server.resp3();
                holder.run("LOCK.ACQUIRE k NOTIFY");
                let select = format!("SELECT {db}");
                let carrying = carrying.iter().map(|command| words(command));
                let flush = [words(&select), words(flush)];
                let commands: Vec<_> = carrying.chain(flush).collect();
                step.take(&mut holder, &commands);
                let what = format!("{step:?} {commands:?}");
                assert_eq!(server.settled(&mut holder), [""; 0], "{what}");
                assert_eq!(tether(&server, "holds"), 0, "{what}");
            }
        }
    }
}

/// Somebody else's hand is told all the same, and by the name that the lock had then.
#[test]
fn of_a_lock_that_another_renames_and_flushes_its_holder_is_told_once() {
    for step in STEPS {
        for flush in ["FLUSHALL", "FLUSHDB"] {
            let server = Server::start();
            let (mut holder, mut other) = (server.resp3(), server.resp2());
            holder.run("LOCK.ACQUIRE k NOTIFY");
            step.take(&mut other, &[words("RENAME k l"), words(flush)]);
            assert_eq!(
                server.settled(&mut holder),
                ["lock l LOST flushed"],
                "{step:?} {flush}"
            );
        }
    }
}
