//! The attacks. Each builds its world with an adversary's own connections, and tells what it strikes with.

use super::ground::{Ground, Strike};
use tether_testing::resp::encode;

pub struct Attack {
    pub name: &'static str,
    /// The strike is one command, not as many as are read at once.
    pub single: bool,
    pub build: fn(&mut Ground<'_>) -> Strike,
    /// The server's own way to make the same command slow, where there is one: ours may take [`TIMES`](super::TIMES) as long.
    pub native: Option<fn(&mut Ground<'_>) -> Strike>,
}

/// A strike with as much as is read at once.
pub const fn many(name: &'static str, build: fn(&mut Ground<'_>) -> Strike) -> Attack {
    Attack {
        name,
        single: false,
        build,
        native: None,
    }
}

pub const fn single(name: &'static str, build: fn(&mut Ground<'_>) -> Strike) -> Attack {
    let single = true;
    Attack {
        single,
        ..many(name, build)
    }
}

pub const ATTACKS: &[Attack] = &[
    many("searches behind a line of tasks", |ground| {
        let by = wanted(ground);
        ground.connect_and("LOCK.ACQUIRE l");
        let tasks = ground.connect();
        let waits = (0..ground.many).map(|n| format!("LOCK.ACQUIRE l OWNER {n} WAIT 0 PUSH"));
        ground.run_each(tasks, waits);
        ground.again(by, "SETTP l v WAIT 0 PUSH")
    }),
    many("searches along a chain", |ground| {
        let by = wanted(ground);
        let tasks = chain(ground);
        let last = ground.many - 1;
        ground.run(tasks, &format!("LOCK.ACQUIRE own OWNER {last} WAIT 0 PUSH"));
        ground.again(by, "SETTP 0 v WAIT 0 PUSH")
    }),
    many("searches along a chain that does not close", |ground| {
        let by = wanted(ground);
        chain(ground);
        ground.again(by, "SETTP 0 v WAIT 0 PUSH")
    }),
    many(
        "searches by an owner whose every key is waited for",
        |ground| {
            let by = ground.connect();
            let held = (0..ground.many).map(|n| format!("LOCK.ACQUIRE {n}"));
            ground.run_each(by, held);
            let tasks = ground.connect();
            let waits = (0..ground.many).map(|n| format!("LOCK.ACQUIRE {n} OWNER {n} WAIT 0 PUSH"));
            ground.run_each(tasks, waits);
            ground.connect_and("SETTP x v");
            ground.again(by, "SETTP x v WAIT 0 PUSH")
        },
    ),
    many(
        "searches among readers who wait for each other's writer",
        |ground| {
            let by = wanted(ground);
            ground.connect_and("LOCK.ACQUIRE pen");
            let readers = readers(ground);
            let waits = (0..ground.many).map(|n| format!("LOCK.ACQUIRE pen OWNER {n} WAIT 0 PUSH"));
            ground.run_each(readers, waits);
            ground.again(by, "SETTP b v WAIT 0 PUSH")
        },
    ),
    many("searches in a grid of requests for many keys", |ground| {
        const SIDE: usize = 50;
        let by = wanted(ground);
        let holder = ground.connect();
        let held = (0..SIDE).map(|n| format!("LOCK.ACQUIRE g{n}"));
        ground.run_each(holder, held);
        let keys: Vec<_> = (0..SIDE).map(|n| format!("g{n}")).collect();
        let keys = keys.join(" ");
        let tasks = ground.connect();
        let waits = (0..ground.many / SIDE)
            .map(|n| format!("LOCK.MACQUIRE {SIDE} {keys} OWNER {n} WAIT 0 PUSH"));
        ground.run_each(tasks, waits);
        ground.again(by, "SETTP g0 v WAIT 0 PUSH")
    }),
    many(
        "searches among sessions that wait for one another",
        |ground| {
            const SESSIONS: usize = 300;
            let by = wanted(ground);
            let sessions: Vec<_> = (0..SESSIONS)
                .map(|_| ground.connect_and("SESSION.START"))
                .collect();
            let each = ground.many / SESSIONS;
            for (n, session) in sessions.iter().enumerate() {
                let held = (0..each).map(|k| format!("LOCK.ACQUIRE {n}:{k} OWNER {k}"));
                ground.run_each(*session, held);
            }
            for (n, session) in sessions.iter().enumerate() {
                let next = (n + 1) % SESSIONS;
                let waits = (0..each).map(|k| {
                    let other = (k + 1) % each;
                    format!("LOCK.ACQUIRE {next}:{other} OWNER {k} WAIT 0 PUSH")
                });
                ground.run_each(*session, waits);
            }
            ground.again(by, "SETTP 0:0 v WAIT 0 PUSH")
        },
    ),
    many("requests by an owner that waits for very much", |ground| {
        let by = much_waited_for(ground, false);
        ground.connect_and("SETTP x v");
        ground.again(by, "SETTP x v WAIT 0 PUSH")
    }),
    many(
        "requests by an owner behind whose every wait is another",
        |ground| {
            let by = much_waited_for(ground, true);
            ground.connect_and("SETTP x v");
            ground.again(by, "SETTP x v WAIT 0 PUSH")
        },
    ),
    many("requests for the same key by the same owner", |ground| {
        let by = waits_again(ground);
        ground.again(by, AGAIN)
    }),
    single(
        "one LOCK.CANCEL of very many requests for one key",
        |ground| {
            let by = waits_again(ground);
            ground.once(by, "LOCK.CANCEL l")
        },
    ),
    single(
        "a transaction that gives back what it is granted, by who has very many locks",
        |ground| {
            const LABELS: usize = 200;
            let by = locks(ground);
            ground.run(by, "LOCK.ACQUIRE own OWNER 0");
            let waits = (1..LABELS).map(|n| format!("LOCK.ACQUIRE own OWNER {n} WAIT 0 PUSH"));
            ground.run_each(by, waits);
            ground.run(by, "MULTI");
            let releases = (0..LABELS).map(|n| format!("LOCK.RELEASE own OWNER {n}"));
            ground.run_each(by, releases);
            ground.once(by, "EXEC")
        },
    ),
    single("LOCK.CANCEL of one request for 1,024 keys", |ground| {
        let [_, by] = waits_for_many_keys(ground);
        ground.once(by, "LOCK.CANCEL 0:0")
    }),
    many("LOCK.CANCEL of requests for 1,024 keys each", |ground| {
        let [_, by] = waits_for_many_keys(ground);
        ground.full(by, (0..).map(|n| format!("LOCK.CANCEL {n}:0")))
    }),
    single(
        "the end of a connection with requests for 1,024 keys each",
        |ground| {
            let [_, by] = waits_for_many_keys(ground);
            ground.once(by, "QUIT")
        },
    ),
    many("DELTP by an owner that waits for very much", |ground| {
        let by = much_waited_for(ground, false);
        ground.again(by, "DELTP x")
    }),
    many(
        "one DELTP of many keys by an owner that waits for them",
        |ground| {
            let by = much_waited_for(ground, false);
            ground.long(by, "DELTP", (0..).map(|n| format!("w{n}")))
        },
    ),
    many("one DEL of many keys of its own", |ground| {
        let by = ground.connect();
        let held = (0..ground.many).map(|n| format!("SETTP {n} v"));
        ground.run_each(by, held);
        ground.long(by, "DEL", (0..).map(|n| n.to_string()))
    }),
    many(
        "a queue that comes and goes on a lock with very many readers",
        |ground| {
            readers(ground);
            let by = ground.connect();
            ground.in_turn(by, &["SETTP b v WAIT 0 PUSH", "DELTP b"])
        },
    ),
    single("LOCK.RELEASE before very many readers", |ground| {
        let by = ground.connect_and("LOCK.ACQUIRE b");
        let tasks = ground.connect();
        let waits =
            (0..ground.many).map(|n| format!("LOCK.ACQUIRE b SHARED OWNER {n} WAIT 0 PUSH"));
        ground.run_each(tasks, waits);
        ground.once(by, "LOCK.RELEASE b")
    }),
    single("one command when very many leases are over", |ground| {
        let by = ground.connect();
        let held = (0..ground.many).map(|n| format!("LOCK.ACQUIRE {n} LEASE 2000"));
        ground.run_each(by, held);
        // All of them end while the server cannot notice.
        ground.run(by, "DEBUG SLEEP 2.1");
        ground.once(by, "SETTP x v")
    }),
    many("commands when very many leases are over", |ground| {
        let by = ground.connect();
        let held = (0..ground.many).map(|n| format!("LOCK.ACQUIRE {n} LEASE 2000"));
        ground.run_each(by, held);
        ground.run(by, "DEBUG SLEEP 2.1");
        ground.full(by, (0..).map(|n| format!("LOCK.RELEASE {n}")))
    }),
    single("SESSION.END with very many locks", |ground| {
        let by = ground.connect_and("SESSION.START");
        let held = (0..ground.many).map(|n| format!("LOCK.ACQUIRE {n}"));
        ground.run_each(by, held);
        ground.once(by, "SESSION.END")
    }),
    single("UNWATCHEX of very many watches", |ground| {
        let by = watches(ground);
        ground.once(by, "UNWATCHEX")
    })
    .beside(|ground| {
        let by = watches_of(ground, "WATCH");
        ground.once(by, "UNWATCH")
    }),
    single("SWAPDB with very many locks", |ground| {
        let by = locks(ground);
        ground.once(by, "SWAPDB 0 1")
    }),
    single("SWAPDB with very many watches", |ground| {
        let by = plain_keys(ground, &[1, 0]);
        let watcher = watches(ground);
        ground.run(watcher, "LOCK.ACQUIRE l");
        ground.once(by, "SWAPDB 0 1")
    }),
    single(
        "SWAPDB with very many watches here and locks there",
        |ground| {
            let by = plain_keys(ground, &[0]);
            watches(ground);
            let holder = ground.connect_and("SELECT 1");
            let held = (0..ground.many).map(|n| format!("LOCK.ACQUIRE {n}"));
            ground.run_each(holder, held);
            ground.once(by, "SWAPDB 0 1")
        },
    )
    .beside(swap_of_watched),
    single("SWAPDB with very many keys that are waited for", |ground| {
        let by = much_waited_for(ground, false);
        ground.once(by, "SWAPDB 0 1")
    })
    .beside(swap_of_watched),
    many("SWAPDB while very many locks are flushed", |ground| {
        let by = locks(ground);
        ground.in_turn(by, &["FLUSHALL ASYNC", "SWAPDB 0 1"])
    }),
    single(
        "one SWAPDB in the middle of a flush of very many locks",
        |ground| {
            let by = locks(ground);
            let both = ["FLUSHALL ASYNC", "SWAPDB 0 1"].map(str::to_owned);
            ground.full(by, both.into_iter())
        },
    )
    .beside(flush_of_plain),
    single(
        "CLIENT UNBLOCK of who waits and holds very much",
        |ground| {
            ground.connect_and("LOCK.ACQUIRE x");
            let holder = locks(ground);
            let id = ground.connections[holder].text("CLIENT ID");
            ground.connections[holder].send(&encode("LOCK.ACQUIRE x WAIT 0"));
            let by = ground.connect();
            ground.await_waiters(by, 1);
            ground.once(by, &format!("CLIENT UNBLOCK {id} ERROR"))
        },
    ),
    single("LOCK.RELEASE before one request for 1,024 keys", |ground| {
        let [by, _] = waits_for_many_keys(ground);
        ground.once(by, "LOCK.RELEASE 0:0")
    }),
    many(
        "LOCK.RELEASE before requests for 1,024 keys each",
        |ground| {
            let [by, _] = waits_for_many_keys(ground);
            ground.full(by, (0..).map(|n| format!("LOCK.RELEASE {n}:0")))
        },
    ),
    single("one DEL before requests for 1,024 keys each", |ground| {
        let [by, _] = waits_for_many_keys(ground);
        ground.long(by, "DEL", (0..).map(|n| format!("{n}:0")))
    }),
    single(
        "the end of a connection before requests for 1,024 keys each",
        |ground| {
            let [by, _] = waits_for_many_keys(ground);
            ground.once(by, "QUIT")
        },
    ),
    single("FLUSHALL ASYNC with very many locks", |ground| {
        let by = locks(ground);
        ground.once(by, "FLUSHALL ASYNC")
    })
    .beside(flush_of_plain),
    many(
        "FLUSHALL ASYNC again and again between new keys",
        |ground| {
            let by = locks(ground);
            let both = |n: usize| match n % 4 {
                0 => "FLUSHALL ASYNC".to_owned(),
                1 => "FLUSHDB ASYNC".to_owned(),
                _ => format!("SETTP new:{n} v"),
            };
            ground.full(by, (0..).map(both))
        },
    ),
    single("the end of a connection with very many waits", |ground| {
        let by = much_waited_for(ground, false);
        ground.once(by, "QUIT")
    }),
    single(
        "the end of a connection with very many places in one line",
        |ground| {
            ground.connect_and("LOCK.ACQUIRE l");
            let by = ground.connect();
            let waits = (0..ground.many).map(|n| format!("LOCK.ACQUIRE l OWNER {n} WAIT 0 PUSH"));
            ground.run_each(by, waits);
            ground.once(by, "QUIT")
        },
    ),
    single("the end of a connection with very many watches", |ground| {
        let by = watches(ground);
        ground.once(by, "QUIT")
    }),
    single(
        "the end of a connection with very many grants that no replica acknowledges",
        |ground| once_pending(ground, 60_000, "QUIT"),
    ),
    single(
        "SESSION.END with very many grants that no replica acknowledges",
        |ground| once_pending(ground, 60_000, "SESSION.END"),
    ),
    single(
        "SESSION.DETACH with very many grants that no replica acknowledges",
        |ground| once_pending(ground, 60_000, "SESSION.DETACH"),
    ),
    single(
        "SWAPDB with very many grants that no replica acknowledges",
        |ground| once_pending(ground, 60_000, "SWAPDB 0 1"),
    ),
    single(
        "the end of a replica that does not acknowledge very many grants",
        |ground| once_pending(ground, 60_000, "CLIENT KILL TYPE replica"),
    ),
    single(
        "one command when very many grants were not acknowledged in time",
        |ground| once_pending(ground, 2_000, "DEBUG SLEEP 2.1"),
    ),
    single("LOCK.LIST of a client among very many locks", |ground| {
        let by = locks(ground);
        ground.once(by, "LOCK.LIST 0 CLIENT 1")
    }),
    single("LOCK.LIST of one key among very many watches", |ground| {
        let by = watches(ground);
        ground.once(by, "LOCK.LIST 0 COUNT 1")
    }),
    single("LOCK.MINE of very many locks", |ground| {
        let by = locks(ground);
        ground.once(by, "LOCK.MINE")
    }),
    many("LOCK.MINE of very many locks, one at a time", |ground| {
        let by = locks(ground);
        ground.again(by, "LOCK.MINE COUNT 1")
    }),
    many("LOCK.MINE of very many locks again and again", |ground| {
        let by = locks(ground);
        ground.times(by, "LOCK.MINE", 100)
    })
    .beside(|ground| {
        let by = ground.connect();
        // As many elements as a page has, with the maps' names.
        let elements: Vec<_> = (0..22_000).map(|n| format!("name:{n}")).collect();
        for part in elements.chunks(1000) {
            ground.run(by, &format!("RPUSH list {}", part.join(" ")));
        }
        ground.times(by, "LRANGE list 0 -1", 100)
    }),
    many("a wait that is given up whole again and again", |ground| {
        ground.connect_and("LOCK.ACQUIRE l");
        let tasks = ground.connect();
        let waits = (0..ground.many).map(|n| format!("LOCK.ACQUIRE l OWNER {n} WAIT 0 PUSH"));
        ground.run_each(tasks, waits);
        ground.in_turn(tasks, &["LOCK.ACQUIRE l WAIT 0 PUSH", "LOCK.RELEASE l ALL"])
    }),
    single("LOCK.RELEASE ALL of one request for 1,024 keys", |ground| {
        let [_, by] = waits_for_many_keys(ground);
        ground.once(by, "LOCK.RELEASE 0:0 ALL")
    }),
    single("LOCK.INFO of a lock with very many readers", |ground| {
        let by = readers(ground);
        ground.once(by, "LOCK.INFO b")
    }),
    single(
        "LOCK.INFO of a lock with readers among very many connections",
        |ground| {
            for reader in crowd(ground).take(READERS) {
                ground.run(reader, "LOCK.ACQUIRE b SHARED");
            }
            ground.once(0, "LOCK.INFO b")
        },
    ),
    many(
        "FLUSHALL of a lock again and again among very many connections",
        |ground| {
            let by = crowd(ground).start;
            ground.in_turn(by, &["SETTP k v", "FLUSHALL"])
        },
    ),
    many(
        "a time to live for a lock again and again among very many connections",
        |ground| {
            let by = crowd(ground).start;
            ground.in_turn(by, &["SETTP k v", "PEXPIRE k 0"])
        },
    ),
    many(
        "CLIENT UNBLOCK of who was just granted among very many connections",
        |ground| {
            // With a replica, who is granted goes on a turn of the server's loop later.
            ground.join_silent_replica();
            let mut crowd = crowd(ground);
            let by = crowd.next().expect("there are many");
            let mut granted = Vec::new();
            for (n, waiter) in crowd.take(UNBLOCKED).enumerate() {
                ground.run(by, &format!("SETTP {n} v"));
                let id = ground.connections[waiter].text("CLIENT ID");
                ground.connections[waiter].send(&encode(&format!("SETTP {n} v WAIT 0")));
                let both = [format!("DELTP {n}"), format!("CLIENT UNBLOCK {id}")];
                granted.extend(both);
            }
            ground.full(by, granted.into_iter())
        },
    ),
    single("the end of very many owners", |ground| {
        end_of_crowd(ground, "LOCK.ACQUIRE")
    })
    .beside(|ground| end_of_crowd(ground, "INCR")),
];

/// Fewer than LOCK.INFO tells of at a time.
const READERS: usize = 100;
/// Fewer than 16 KB of commands take.
const UNBLOCKED: usize = 400;

impl Attack {
    pub const fn beside(mut self, native: fn(&mut Ground<'_>) -> Strike) -> Self {
        self.native = Some(native);
        self
    }
}

/// A connection that holds something that another one waits for, so that its requests are searched for a cycle.
fn wanted(ground: &mut Ground<'_>) -> usize {
    let by = ground.connect_and("LOCK.ACQUIRE own");
    ground.connect_and("LOCK.ACQUIRE own WAIT 0 PUSH");
    by
}

/// Tasks of one connection, each of which holds a key and waits for the next one's.
fn chain(ground: &mut Ground<'_>) -> usize {
    let tasks = ground.connect();
    let held = (0..ground.many).map(|n| format!("LOCK.ACQUIRE {n} OWNER {n}"));
    ground.run_each(tasks, held);
    let last = ground.many - 1;
    let waits = (0..last).map(|n| format!("LOCK.ACQUIRE {} OWNER {n} WAIT 0 PUSH", n + 1));
    ground.run_each(tasks, waits);
    tasks
}

/// Connections that do nothing, as many as the server takes by default, with some to spare.
fn crowd(ground: &mut Ground<'_>) -> std::ops::Range<usize> {
    let first = ground.connections.len();
    for _ in 0..ground.many / 100 * 15 {
        ground.connect();
    }
    first..ground.connections.len()
}

/// Very many connections, each of which has said this of a key of its own, and one that ends all of them.
fn end_of_crowd(ground: &mut Ground<'_>, verb: &str) -> Strike {
    let by = ground.connect_and("ACL SETUSER crowd on nopass ~* +@all");
    for member in crowd(ground) {
        ground.run(member, "AUTH crowd any");
        ground.run(member, &format!("{verb} {member}"));
    }
    ground.once(by, "CLIENT KILL USER crowd")
}

/// Tasks of one connection that all have the same book.
pub fn readers(ground: &mut Ground<'_>) -> usize {
    let readers = ground.connect();
    let held = (0..ground.many).map(|n| format!("LOCK.ACQUIRE b SHARED OWNER {n}"));
    ground.run_each(readers, held);
    readers
}

/// May be asked for again while it is waited for.
const AGAIN: &str = "LOCK.ACQUIRE l SHARED REENTRANT WAIT 0 PUSH";

/// A connection that has asked for the same lock very often.
fn waits_again(ground: &mut Ground<'_>) -> usize {
    ground.connect_and("LOCK.ACQUIRE l");
    let by = ground.connect();
    let waits = (0..ground.many).map(|_| AGAIN.to_owned());
    ground.run_each(by, waits);
    by
}

/// As many keys as one request may name.
const MAX_KEYS: usize = 1024;

/// A connection that holds the first key of each of the other one's requests, each of which is for as many keys as may be.
fn waits_for_many_keys(ground: &mut Ground<'_>) -> [usize; 2] {
    let requests = ground.many / MAX_KEYS;
    let holder = ground.connect();
    ground.run_each(holder, (0..requests).map(|n| format!("LOCK.ACQUIRE {n}:0")));
    let by = ground.connect();
    for n in 0..requests {
        let keys: Vec<_> = (0..MAX_KEYS).map(|k| format!("{n}:{k}")).collect();
        let keys = keys.join(" ");
        let request = format!("LOCK.MACQUIRE {MAX_KEYS} {keys} WAIT 0 PUSH");
        let connection = &mut ground.connections[by];
        connection.send(&encode(&request));
        connection.skip_any_replies(1);
    }
    [holder, by]
}

fn locks(ground: &mut Ground<'_>) -> usize {
    let by = ground.connect();
    let held = (0..ground.many).map(|n| format!("LOCK.ACQUIRE {n}"));
    ground.run_each(by, held);
    by
}

/// A command of a connection with very many locks that a replica is to acknowledge within so many milliseconds, and does not.
fn once_pending(ground: &mut Ground<'_>, timeout_ms: u32, command: &str) -> Strike {
    ground.join_silent_replica();
    let by = ground.connect_and("SESSION.START");
    let ask = |n| format!("LOCK.ACQUIRE {n} WAIT 0 PUSH ACKS 1 ACKTIMEOUT {timeout_ms}");
    ground.run_each(by, (0..ground.many).map(ask));
    let info = ground.connections[by].text("INFO tether");
    let pending = format!("tether_grants_pending:{}\r", ground.many);
    assert!(info.contains(&pending), "{info}");
    ground.once(by, command)
}

fn watches(ground: &mut Ground<'_>) -> usize {
    watches_of(ground, "WATCHEX")
}

/// A connection that watches very many keys, each by a command of its own.
fn watches_of(ground: &mut Ground<'_>, verb: &str) -> usize {
    let by = ground.connect();
    let watches = (0..ground.many).map(|n| format!("{verb} {n}"));
    ground.run_each(by, watches);
    by
}

/// A connection that has made very many plain keys in each of these databases. Where they are in both, it is no news to those
/// who watch them that the databases are exchanged.
fn plain_keys(ground: &mut Ground<'_>, dbs: &[u32]) -> usize {
    let by = ground.connect();
    for db in dbs {
        ground.run(by, &format!("SELECT {db}"));
        let sets = (0..ground.many).map(|n| format!("SET {n} v"));
        ground.run_each(by, sets);
    }
    by
}

/// In SWAPDB the server looks at each key that WATCH watches in either database.
pub fn swap_of_watched(ground: &mut Ground<'_>) -> Strike {
    let by = plain_keys(ground, &[1, 0]);
    watches_of(ground, "WATCH");
    ground.once(by, "SWAPDB 0 1")
}

/// As many plain keys as there are locks in [`locks`].
pub fn flush_of_plain(ground: &mut Ground<'_>) -> Strike {
    let by = plain_keys(ground, &[0]);
    ground.once(by, "FLUSHALL ASYNC")
}

/// A connection that waits for very many keys of another one; and perhaps somebody is behind it in each line.
pub fn much_waited_for(ground: &mut Ground<'_>, followed: bool) -> usize {
    let holder = ground.connect();
    let held = (0..ground.many).map(|n| format!("SETTP w{n} v"));
    ground.run_each(holder, held);
    let waits = |n| format!("SETTP w{n} v WAIT 0 PUSH");
    let by = ground.connect();
    ground.run_each(by, (0..ground.many).map(waits));
    if followed {
        let other = ground.connect();
        ground.run_each(other, (0..ground.many).map(waits));
    }
    by
}
