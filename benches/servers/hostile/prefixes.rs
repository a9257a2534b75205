//! Attacks by watches of prefixes, sequences, and questions for one's own holds.

use super::attacks::{Attack, flush_of_plain, many, single, swap_of_watched};
use super::ground::{Ground, Strike};
use std::thread;
use std::time::Duration;
use tether_testing::resp::{encode, parse};

/// How many different lengths the prefixes of a database may have.
const LENGTHS: usize = 32;
/// Connections that watch and do not read.
const WATCHERS: usize = 200;
/// The same, of which each has much to hear.
const FEW_WATCHERS: usize = 20;
/// Those that ask for their first page at once.
const COMERS: usize = 1_000;
const MEMBERS: usize = 100_000;
/// As many prefixes as a connection may watch.
const PREFIXES: usize = 4096;
/// As many keys as a connection may hold by default.
const HOLDS: usize = 65_536;

pub const ATTACKS: &[Attack] = &[
    many("changes below prefixes of every length", |ground| {
        every_length(ground);
        let others = ground.connect();
        // Of the same lengths, and of other keys.
        let prefix = |n| format!("WATCHTP {n:0>width$}", width = n % LENGTHS + 1);
        ground.run_each(others, (0..ground.many / 100).map(prefix));
        let by = ground.connect();
        ground.in_turn(by, &CHANGES)
    }),
    many(
        "changes below prefixes of every length before hundreds of watchers",
        |ground| {
            for _ in 0..WATCHERS {
                every_length(ground);
            }
            let by = ground.connect();
            ground.in_turn(by, &CHANGES)
        },
    )
    .beside(|ground| {
        subscribers(ground, WATCHERS);
        let by = ground.connect();
        ground.again(by, "PUBLISH c some-thirty-bytes-of-words")
    }),
    single("UNWATCHTP of as many prefixes as there may be", |ground| {
        let by = prefixes(ground)[0];
        ground.once(by, "UNWATCHTP")
    }),
    single(
        "the end of a connection with as many prefixes as there may be",
        |ground| {
            let by = prefixes(ground)[0];
            ground.once(by, "QUIT")
        },
    ),
    single(
        "one change after a change of the rights of who watches very many prefixes",
        |ground| {
            let by = seen_otherwise(ground);
            ground.once(by, "SETTP 000000 v")
        },
    ),
    single(
        "a prefix more after a change of the rights of who watches very many",
        |ground| {
            let watchers = prefixes(ground);
            ground.connect_and("ACL SETUSER default resetkeys ~a*");
            ground.once(watchers[0], "WATCHTP a00000")
        },
    ),
    single("SWAPDB with very many prefixes", |ground| {
        let by = ground.connect_and("SETTP 000000 v");
        prefixes(ground);
        ground.once(by, "SWAPDB 0 1")
    })
    .beside(swap_of_watched),
    single(
        "FLUSHALL ASYNC with very many members of very many prefixes",
        |ground| {
            let (by, many) = (ground.connect(), ground.many);
            prefixes(ground);
            members(ground, by, many);
            ground.once(by, "FLUSHALL ASYNC")
        },
    )
    .beside(flush_of_plain),
    single("the first WATCHTP among very many keys", |ground| {
        let by = ground.connect();
        members(ground, by, MEMBERS);
        ground.once(by, "WATCHTP m:")
    }),
    single("a page of very many keys", |ground| {
        let by = ground.connect();
        members(ground, by, MEMBERS);
        index(ground, by);
        ground.once(by, "WATCHTP m:")
    }),
    many("first pages of very many keys again and again", |ground| {
        let by = ground.connect();
        members(ground, by, MEMBERS);
        index(ground, by);
        ground.times(by, "WATCHTP m:", 600)
    })
    .beside(|ground| {
        let by = list(ground);
        // As many elements: a page has names, tokens and values.
        ground.times(by, "LRANGE l 0 2999", 600)
    }),
    many(
        "first pages of very many keys for a thousand at once",
        |ground| {
            let by = ground.connect();
            members(ground, by, MEMBERS);
            index(ground, by);
            all_at_once(ground, "WATCHTP m:")
        },
    )
    .beside(|ground| {
        list(ground);
        all_at_once(ground, "LRANGE l 0 2999")
    }),
    many(
        "a value of 4 KB changed again and again before watchers that do not read",
        |ground| {
            let by = ground.connect();
            let value = "v".repeat(4000);
            ground.run(by, &format!("SETTP m:k {value}"));
            for _ in 0..FEW_WATCHERS {
                ground.connect_and("WATCHTP m:");
            }
            assert!(is_told(ground, by, "tether_watches", FEW_WATCHERS));
            ground.again(by, "SETRANGE m:k 0 x")
        },
    )
    .beside(|ground| {
        let by = ground.connect();
        ground.run(by, &format!("SET k {}", "v".repeat(4000)));
        let watchers: Vec<_> = (0..FEW_WATCHERS).map(|_| ground.connect()).collect();
        // The same bytes to the same connections, which ask for them.
        let gets = ground.again(by, "SETRANGE m:k 0 x").replies;
        let mut strike = all_of(ground, watchers, "GET k");
        strike.bytes = b"GET k\r\n".repeat(gets);
        strike
    }),
    many(
        "members that come and go before watchers that do not read",
        |ground| {
            let by = ground.connect();
            members(ground, by, MEMBERS);
            index(ground, by);
            for _ in 0..WATCHERS {
                ground.connect_and("WATCHTP m:");
            }
            assert!(is_told(ground, by, "tether_watches", WATCHERS));
            ground.in_turn(by, &COMINGS)
        },
    )
    .beside(|ground| {
        // As many pushes in all: one of these commands is longer.
        let by = ground.connect();
        let comings = ground.in_turn(by, &COMINGS).replies;
        let messages = ground.again(by, "PUBLISH c v");
        subscribers(ground, WATCHERS * comings / messages.replies);
        messages
    }),
    single(
        "the end of a connection with very many members before watchers that do not read",
        |ground| {
            let by = ground.connect();
            members(ground, by, MEMBERS);
            index(ground, by);
            watched_whole(ground, "m:");
            ground.once(by, "QUIT")
        },
    ),
    many(
        "a storm of sequences among very many before watchers",
        |ground| {
            let by = ground.connect();
            let nodes = (0..ground.many).map(|_| "SETTP q: v SEQ".to_owned());
            ground.run_each(by, nodes);
            index(ground, by);
            watched_whole(ground, "q:");
            ground.again(by, "SETTP q: v SEQ")
        },
    ),
    many(
        "a storm of sequences whose next names are taken",
        |ground| {
            let by = taken_names(ground);
            ground.again(by, "SETTP q: v SEQ")
        },
    ),
    single("one sequence whose next names are taken", |ground| {
        let by = taken_names(ground);
        ground.once(by, "SETTP q: v SEQ")
    }),
    single("LOCK.MINE of 65,536 locks of a session", |ground| {
        let by = holds_of_session(ground);
        ground.once(by, "LOCK.MINE")
    }),
    many(
        "LOCK.MINE of 65,536 locks of a session from its middle, one at a time",
        |ground| {
            let by = holds_of_session(ground);
            let mut cursor = "0".to_owned();
            for _ in 0..HOLDS / 2 / 1000 {
                let question = format!("LOCK.MINE CURSOR {cursor}");
                let (page, _) = parse(ground.connections[by].run(&question)).expect("a page");
                cursor = page.items()[0].text();
            }
            ground.again(by, &format!("LOCK.MINE CURSOR {cursor} COUNT 1"))
        },
    ),
];

/// Comes and goes below prefixes of every length.
const CHANGES: [&str; 2] = [
    "SETTP aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa v",
    "DELTP aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
];

/// A member comes and goes.
const COMINGS: [&str; 2] = ["SETTP m: v", "DELTP m:"];

/// Connections that the server pushes to by its own means, and that do not read.
fn subscribers(ground: &mut Ground<'_>, count: usize) {
    for _ in 0..count {
        let subscriber = ground.connect();
        let connection = &mut ground.connections[subscriber];
        connection.send(&encode("SUBSCRIBE c"));
        connection.wait_for_pushes(1);
    }
}

/// A connection that watches prefixes of all the lengths that there may be.
fn every_length(ground: &mut Ground<'_>) {
    let watcher = ground.connect();
    let prefixes = (1..=LENGTHS).map(|length| format!("WATCHTP {}", "a".repeat(length)));
    ground.run_each(watcher, prefixes);
}

/// Connections that watch very many prefixes together, each but the last one as many as it may.
fn prefixes(ground: &mut Ground<'_>) -> Vec<usize> {
    let all: Vec<_> = (0..ground.many).collect();
    let mut watchers = Vec::new();
    for numbers in all.chunks(PREFIXES) {
        let watcher = ground.connect();
        let prefixes = numbers.iter().map(|n| format!("WATCHTP {n:06}"));
        ground.run_each(watcher, prefixes);
        watchers.push(watcher);
    }
    assert!(is_told(ground, watchers[0], "tether_watches", all.len()));
    watchers
}

/// A connection whose change of a key shows that those which watch very many prefixes have other rights now.
fn seen_otherwise(ground: &mut Ground<'_>) -> usize {
    let by = ground.connect_and("ACL SETUSER owner on nopass ~* +@all");
    ground.run(by, "AUTH owner any");
    for (at, watcher) in prefixes(ground).into_iter().enumerate() {
        // All of them watch this one, in place of another.
        let another = format!("UNWATCHTP {:06}", at * PREFIXES + 1);
        ground.run_each(watcher, [another, "WATCHTP 000000".to_owned()].into_iter());
    }
    ground.run(by, "ACL SETUSER default resetkeys ~a*");
    by
}

/// So many keys with a prefix, which this connection makes.
fn members(ground: &mut Ground<'_>, by: usize, count: usize) {
    let members = (0..count).map(|n| format!("SETTP m:{n:06} a-value-of-some-bytes"));
    ground.run_each(by, members);
    assert!(is_told(ground, by, "tether_temporary_keys", count));
}

/// Has the index of the keys built to its end.
fn index(ground: &mut Ground<'_>, by: usize) {
    while !is_told(ground, by, "tether_watches", 1) {
        thread::sleep(Duration::from_millis(1));
        ground.run(by, "WATCHTP m:");
    }
    ground.run(by, "UNWATCHTP");
}

/// Whether INFO says so.
fn is_told(ground: &mut Ground<'_>, by: usize, name: &str, value: usize) -> bool {
    let line = format!("{name}:{value}\r");
    ground.connections[by].text("INFO tether").contains(&line)
}

/// Some connections watch all keys with this prefix, to their last page.
fn watched_whole(ground: &mut Ground<'_>, prefix: &str) {
    for _ in 0..FEW_WATCHERS {
        let watcher = ground.connect();
        let mut question = format!("WATCHTP {prefix} KEYSONLY");
        loop {
            let (page, _) = parse(ground.connections[watcher].run(&question)).expect("a page");
            let next = page.items()[0].text();
            if next.is_empty() {
                break;
            }
            question = format!("WATCHTP {prefix} AFTER {next} KEYSONLY");
        }
    }
}

/// A connection that has made a list, of which a part is as long as a page.
fn list(ground: &mut Ground<'_>) -> usize {
    let by = ground.connect();
    let elements: Vec<_> = (0..3000).map(|n| format!("element:{n:08}")).collect();
    for part in elements.chunks(1000) {
        ground.run(by, &format!("RPUSH l {}", part.join(" ")));
    }
    by
}

/// Very many connections that ask this in one and the same turn of the server.
fn all_at_once(ground: &mut Ground<'_>, question: &str) -> Strike {
    let comers: Vec<_> = (0..COMERS).map(|_| ground.connect()).collect();
    all_of(ground, comers, question)
}

fn all_of(ground: &mut Ground<'_>, comers: Vec<usize>, question: &str) -> Strike {
    let by = ground.connect();
    let mut strike = ground.once(by, question);
    strike.others = comers;
    strike
}

/// A connection that has made keys with the names that a sequence has next.
fn taken_names(ground: &mut Ground<'_>) -> usize {
    let by = ground.connect_and("SETTP first v");
    let token: u64 = ground.connections[by]
        .text("LOCK.CANCEL first")
        .parse()
        .expect("a token");
    let taken = (0..ground.many as u64).map(|n| format!("SET q:{:016} v", token + n));
    ground.run_each(by, taken);
    by
}

/// A connection with a session that holds as many locks as it may.
fn holds_of_session(ground: &mut Ground<'_>) -> usize {
    let by = ground.connect_and("SESSION.START");
    let held = (0..HOLDS).map(|n| format!("LOCK.ACQUIRE {n} OWNER task:{n}"));
    ground.run_each(by, held);
    assert!(is_told(ground, by, "tether_holds", HOLDS));
    by
}
