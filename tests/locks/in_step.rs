//! Nobody is sent what it did not ask for: most client libraries take any frame for the reply to their next command.

use crate::harness::*;
use crate::line::*;

/// What somebody holds who asked to be told of nothing: each is one key's, and all of them are lost together.
const HOLDS: [&str; 7] = [
    "SETTP t v",
    "SETTP u v TOKEN WAIT 0",
    "LOCK.ACQUIRE x",
    "LOCK.ACQUIRE r SHARED WAIT 0",
    "LOCK.ACQUIRE p PERMITS 1 OF 2 OWNER job",
    "LOCK.MACQUIRE 1 m REENTRANT",
    "LOCK.ACQUIRE e REENTRANT LEASE 100000",
];
const KEYS: [&str; 7] = ["t", "u", "x", "r", "p", "m", "e"];

fn connection(server: &Server, resp3: bool) -> Client {
    match resp3 {
        true => server.resp3(),
        false => server.resp2(),
    }
}

/// The next reply is that of the next command, and nothing is behind it, byte for byte.
fn stays_in_step(server: &Server, client: &mut Client, what: &str) {
    server.settle();
    for word in ["one", "other"] {
        client.send(["ECHO", word]);
        client.expect_bytes(&format!("${}\r\n{word}\r\n", word.len()));
    }
    println!("{what}");
}

fn for_each_key(command: impl Fn(&str) -> String) -> Vec<String> {
    KEYS.iter().map(|key| command(key)).collect()
}

#[test]
fn who_asked_for_nothing_stays_in_step_whatever_becomes_of_its_keys() {
    let causes = [
        for_each_key(|key| format!("DEL {key}")),
        vec![format!("UNLINK {}", KEYS.join(" "))],
        for_each_key(|key| format!("EXPIREAT {key} 1")),
        vec!["FLUSHALL".into()],
        vec!["FLUSHDB ASYNC".into()],
        vec![format!(
            "EVAL return(redis.call('DEL',unpack(KEYS))) 7 {}",
            KEYS.join(" ")
        )],
        for_each_key(|key| format!("RENAME theirs:{key} {key}")),
        for_each_key(|key| format!("COPY theirs:{key} {key} REPLACE")),
    ];
    for resp3 in [false, true] {
        for cause in &causes {
            let server = Server::start();
            let (mut holder, mut other) = (connection(&server, resp3), server.resp2());
            for key in KEYS {
                other.run(["SET", &format!("theirs:{key}"), "v"]);
            }
            HOLDS.iter().for_each(|hold| _ = holder.run(*hold));
            cause.iter().for_each(|command| _ = other.run(command));
            stays_in_step(&server, &mut holder, &format!("{resp3} {cause:?}"));
            assert_eq!(tether(&server, "lost_total"), 7, "{cause:?}");
            assert_eq!(tether(&server, "pushes_sent_total"), 0, "{cause:?}");
        }
    }
}

#[test]
fn who_asked_for_nothing_stays_in_step_when_its_keys_lapse_are_evicted_or_written_over() {
    for resp3 in [false, true] {
        let server = Server::start();
        let (mut holder, mut other) = (connection(&server, resp3), server.resp2());
        let mut count = 0;
        for cause in ["lapse", "lease", "overwrite", "evict"] {
            HOLDS.iter().for_each(|hold| _ = holder.run(*hold));
            count += match cause {
                "lapse" => {
                    for_each_key(|key| format!("PEXPIRE {key} 10"))
                        .iter()
                        .for_each(|command| _ = other.run(command));
                    eventually_equal("keys", int(0), || other.run("DBSIZE"));
                    7
                }
                "lease" => {
                    let leased = ["x", "r", "m", "e"];
                    leased.iter().for_each(|key| {
                        holder.run(["LOCK.EXTEND", key, "10"]);
                    });
                    holder.run("LOCK.EXTEND p 10 OWNER job");
                    eventually_equal("keys", int(2), || other.run("DBSIZE"));
                    5
                }
                "overwrite" => {
                    // A temporary key stays bound when it is written over.
                    for_each_key(|key| format!("SET {key} theirs"))
                        .iter()
                        .for_each(|command| _ = other.run(command));
                    5
                }
                _ => {
                    for_each_key(|key| format!("EXPIRE {key} 1000"))
                        .iter()
                        .for_each(|command| _ = other.run(command));
                    other.run("CONFIG SET maxmemory-policy volatile-ttl");
                    other.run("CONFIG SET maxmemory 1");
                    eventually_equal("keys", int(0), || {
                        other.call("PING");
                        other.run("DBSIZE")
                    });
                    7
                }
            };
            stays_in_step(&server, &mut holder, &format!("{resp3} {cause}"));
            assert_eq!(tether(&server, "lost_total"), count, "{cause}");
            assert_eq!(tether(&server, "pushes_sent_total"), 0, "{cause}");
            holder.run("FLUSHALL");
            assert_eq!(
                tether(&server, "holds") + tether(&server, "temporary_keys"),
                0
            );
        }
    }
}

#[test]
fn who_asked_for_nothing_stays_in_step_when_its_server_becomes_a_replica() {
    for resp3 in [false, true] {
        let server = Server::start();
        let mut holder = connection(&server, resp3);
        HOLDS.iter().for_each(|hold| _ = holder.run(*hold));
        server
            .resp2()
            .run(["REPLICAOF", "127.0.0.1", &free_port().to_string()]);
        stays_in_step(&server, &mut holder, &format!("{resp3}"));
        assert_eq!(tether(&server, "lost_total"), 7);
        assert_eq!(tether(&server, "pushes_sent_total"), 0);
    }
}

/// In a pipeline, in a transaction, and where a key was handed over to it: there is nothing but replies.
#[test]
fn a_loss_in_the_middle_of_a_pipeline_leaves_its_replies_as_they_are() {
    for resp3 in [false, true] {
        let server = Server::start();
        let (mut giver, mut holder, mut other) =
            (server.resp3(), connection(&server, resp3), server.resp2());
        giver.run("LOCK.ACQUIRE k");
        queue(&server, &mut holder, "LOCK.ACQUIRE k WAIT 0");
        giver.run("LOCK.RELEASE k");
        assert!(holder.read_reply().number() > 0);
        holder.run_all(&["LOCK.ACQUIRE l LEASE 30", "MULTI"]);
        other.run("DEL k");
        // The lease is over meanwhile, and found out by the next commands.
        holder.pipeline(&[
            "GET none",
            "EXEC",
            "DEBUG SLEEP 0.1",
            "LOCK.RELEASE l",
            "ECHO last",
        ]);
        let refused = "-NOTHELD this owner does not hold the lock\r\n";
        let none = if resp3 { "_" } else { "$-1" };
        holder.expect_bytes(&format!(
            "+QUEUED\r\n*1\r\n{none}\r\n+OK\r\n{refused}$4\r\nlast\r\n"
        ));
        stays_in_step(&server, &mut holder, "a pipeline");
        assert_eq!(tether(&server, "lost_total"), 2);
    }
}

/// And who asks is told each of these, with what it was about: the reason, the label, and nothing else.
#[test]
fn a_loss_is_told_with_its_reason_and_its_label() {
    let server = Server::start();
    let mut other = server.resp2();
    for (request, reason) in [
        ("LOCK.ACQUIRE k NOTIFY", "deleted"),
        ("LOCK.ACQUIRE k OWNER job-17 NOTIFY", "deleted job-17"),
        ("LOCK.ACQUIRE k WAIT 0 PUSH", "deleted"),
        ("LOCK.MACQUIRE 1 k OWNER a NOTIFY", "deleted a"),
        ("SETTP k v NOTIFY WAIT 0", "deleted"),
        ("SETTP k v WAIT 0 PUSH", "deleted"),
    ] {
        let kind = if request.starts_with("SETTP") {
            "settp"
        } else {
            "lock"
        };
        let news = format!("LOST {reason}");
        let length = news.len();
        for (resp3, start) in [(true, '>'), (false, '*')] {
            let mut holder = connection(&server, resp3);
            assert!(holder.run(request).number() > 0, "{request}");
            other.run("DEL k");
            holder.expect_bytes(&format!(
                "{start}3\r\n${}\r\n{kind}\r\n$1\r\nk\r\n${length}\r\n{news}\r\n",
                kind.len()
            ));
        }
    }
}

#[test]
fn what_is_told_of_a_wait_ends_with_its_label_byte_for_byte() {
    let server = Server::start();
    let (mut holder, mut client) = (server.resp3(), server.resp3());
    let label = b"\xffjob 17\r\n".to_vec();
    let ask = |wait: &str| {
        let words = ["LOCK.ACQUIRE", "k", "OWNER"].map(|word| word.as_bytes().to_vec());
        let mut words = words.to_vec();
        words.push(label.clone());
        words.extend(["WAIT", wait, "PUSH"].map(|word| word.as_bytes().to_vec()));
        words
    };
    holder.run("LOCK.ACQUIRE k");
    assert_eq!(client.call(ask("20")), null());
    let end = b"TIMEOUT \xffjob 17\r\n".escape_ascii().to_string();
    assert_eq!(client.next_push(), format!("lock k {end}"));
    assert_eq!(client.call(ask("0")), null());
    holder.run("LOCK.RELEASE k");
    let token = token_of(&server, "k");
    let end = [token.to_string().as_bytes(), b" ", &label].concat();
    assert_eq!(client.next_push(), format!("lock k {}", end.escape_ascii()));
    holder.run("DEL k");
    let end = b"LOST deleted \xffjob 17\r\n".escape_ascii().to_string();
    assert_eq!(client.next_push(), format!("lock k {end}"));
}

/// Whoever asked once is told, whatever else makes the hold deeper; and who asks for it while it does, is told as well.
#[test]
fn a_hold_that_is_made_deeper_is_told_of_if_any_request_asked_for_it() {
    let server = Server::start();
    let mut other = server.resp2();
    for (first, second, is_told) in [("", "", false), ("NOTIFY", "", true), ("", "NOTIFY", true)] {
        let mut holder = server.resp3();
        for notify in [first, second] {
            let request = format!("LOCK.ACQUIRE k REENTRANT {notify}");
            assert!(holder.run(&request).number() > 0);
        }
        holder.run("LOCK.RELEASE k");
        other.run("DEL k");
        let expected = if is_told {
            vec!["lock k LOST deleted"]
        } else {
            vec![]
        };
        assert_eq!(server.settled(&mut holder), expected, "{first}, {second}");
    }
}
