//! Pages, limits and refusals.

use super::{named, page, settp, whole};
use crate::harness::*;

fn many(owner: &mut Client, keys: impl Iterator<Item = String>) -> usize {
    let bytes: Vec<u8> = keys.flat_map(|key| encode(["SETTP", &key, &key])).collect();
    owner.send_bytes(&bytes);
    let count = bytes.windows(5).filter(|five| five == b"SETTP").count();
    owner.read_replies(count);
    count
}

#[test]
fn more_than_a_thousand_keys_come_in_pages() {
    let server = Server::start();
    let (mut watcher, mut owner) = (server.resp3(), server.resp2());
    // Made in another order than that of their names.
    let name = |number: usize| format!("k{:04}", (number * 7) % 2500);
    let count = many(&mut owner, (0..2500).map(name));
    let (next, shown, _) = page(&watcher.run("WATCHTP k"));
    assert_eq!((shown.len(), &*next), (1000, "k0999"));
    // Told of is what was returned; the rest comes with its page.
    owner.run_all(&["DEL k0500", "DEL k1500", "SETTP k0500a v", "SETTP k1500a v"]);
    let told = server.settled(&mut watcher);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].starts_with("watchtp k0500 DEL "), "{told:?}");
    assert!(told[1].starts_with("watchtp k0500a ADD "), "{told:?}");
    let mut all = shown;
    let mut after = next;
    while !after.is_empty() {
        let (next, shown, _) = page(&watcher.run(["WATCHTP", "k", "AFTER", &after]));
        all.extend(shown);
        after = next;
    }
    assert_eq!(all.len(), count);
    assert!(all.is_sorted());
    assert!(all.contains(&named("k1500a", "v")));
    owner.run("DEL k2499");
    let told = server.settled(&mut watcher);
    assert!(told.len() == 1 && told[0].starts_with("watchtp k2499 DEL "));
    // There is no more.
    assert_eq!(whole(&mut watcher, "WATCHTP k AFTER k2499"), []);
}

#[test]
fn a_page_of_long_values_has_fewer_keys() {
    let server = Server::start();
    let (mut watcher, mut owner) = (server.resp3(), server.resp2());
    let value = "v".repeat(4096);
    for number in 0..200 {
        settp(&mut owner, &format!("k{number:03}"), &value);
    }
    let (next, shown, _) = page(&watcher.run("WATCHTP k"));
    assert_eq!((shown.len(), &*next), (64, "k063"));
    owner.run("DEL k063 k064");
    let told = server.settled(&mut watcher);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("watchtp k063 DEL "), "{told:?}");
    let (next, shown, _) = page(&watcher.run("WATCHTP k AFTER k063"));
    assert_eq!((&*shown[0].0, &*next), ("k065", "k128"));
}

#[test]
fn a_large_database_is_indexed_in_slices_and_meanwhile_one_tries_again() {
    let server = Server::start();
    let (mut watcher, mut owner) = (server.resp3(), server.resp2());
    let count = many(
        &mut owner,
        (0..20_000).map(|number| format!("k{number:05}")),
    );
    let message = watcher.refused("WATCHTP k1999");
    assert!(message.starts_with("TRYAGAIN "), "{message}");
    owner.run_all(&["DEL k00001", "SETTP k19999a v"]);
    eventually("an index", || match watcher.call("WATCHTP k1999") {
        Frame::Error(_) => Err("it is being built".to_owned()),
        reply => {
            assert_eq!(page(&reply).1.len(), 11, "{reply:?}");
            Ok(())
        }
    });
    let (_, shown, _) = page(&watcher.run("WATCHTP k00 KEYSONLY"));
    assert_eq!(shown.len(), 999);
    assert_eq!(
        server.gauge("tether", "tether_temporary_keys"),
        count as i64
    );
}

/// Otherwise who asks anew would be told of changes that its last page does not have.
#[test]
fn one_that_is_refused_ends_the_watch_that_there_was() {
    let server = Server::start();
    let (mut watcher, mut owner) = (server.resp3(), server.resp2());
    watcher.run_all(&["WATCHTP a", "WATCHTP b", "WATCHTP c"]);
    owner.run("CONFIG SET tether.max-watches-per-client 2");
    let message = watcher.refused("WATCHTP a");
    assert!(message.starts_with("ERR too many watches"), "{message}");
    owner.run("SETTP a v");
    let token = settp(&mut owner, "b", "v");
    let told = server.settled(&mut watcher);
    assert_eq!(told, [format!("watchtp b ADD {token} v")]);
    assert_eq!(watcher.call("UNWATCHTP a"), int(0));
    assert_eq!(watcher.call("UNWATCHTP"), int(2));
}

#[test]
fn what_is_refused() {
    let server = Server::with(&["tether.max-watches-per-client 40"]);
    let mut watcher = server.resp3();
    for (command, begin) in [
        ("WATCHTP", "ERR wrong number"),
        ("WATCHTP k AFTER", "ERR option AFTER is incomplete"),
        (
            "WATCHTP k KEYSONLY KEYSONLY",
            "ERR option KEYSONLY is repeated",
        ),
        ("WATCHTP k 3", "ERR unknown option '3'"),
        (
            "WATCHTP k AFTER k",
            "ERR this connection does not watch the prefix",
        ),
        ("UNWATCHTP a b", "ERR wrong number"),
    ] {
        let message = watcher.refused(command);
        assert!(message.starts_with(begin), "{command}: {message}");
    }
    assert_eq!(watcher.refused(["WATCHTP", ""]), "ERR the prefix is empty");
    for length in 1..=32 {
        watcher.run(["WATCHTP", &"x".repeat(length)]);
    }
    let message = watcher.refused(["WATCHTP", &"x".repeat(33)]);
    assert!(message.starts_with("ERR too many lengths of prefixes"));
    for number in 0..8 {
        watcher.run(["WATCHTP", &format!("y{number}")]);
    }
    let message = watcher.refused("WATCHTP z");
    assert!(message.starts_with("ERR too many watches"), "{message}");
    assert!(
        watcher
            .refused("WATCHEX k")
            .starts_with("ERR too many watches")
    );
    // The same one again is no more.
    watcher.run("WATCHTP y1");
    assert_eq!(server.gauge("tether", "tether_watches"), 40);
    assert_eq!(watcher.call("UNWATCHTP y1"), int(1));
    assert_eq!(watcher.call("UNWATCHTP"), int(39));
    watcher.run(["WATCHTP", &"x".repeat(33)]);
    drop(watcher);
    eventually("the end of the watches", || {
        match server.gauge("tether", "tether_watches") {
            0 => Ok(()),
            left => Err(left.to_string()),
        }
    });
    let mut full = server.resp3();
    full.run("CONFIG SET maxmemory 1");
    assert!(full.refused("WATCHTP k").starts_with("OOM "));
}

/// What one connection has sent in so few bytes happens in one turn of the event loop, as what a thousand clients ask at once may.
#[test]
fn the_pages_of_one_turn_share_a_budget_of_keys_and_memory() {
    const PAGES: usize = 1000;
    const KEYS: usize = 10_000 + PAGES * 10;
    let server = Server::start();
    let (mut watcher, mut owner) = (server.resp3(), server.resp2());
    let count = many(&mut owner, (0..3000).map(|number| format!("k{number:04}")));
    // Once more before it, so that nothing is made for the first time within.
    watcher.run("WATCHTP k");
    watcher.run("UNWATCHTP");
    let question = "INFO memory\r\n";
    let all = [question, &"WATCHTP k\r\n".repeat(PAGES), question].concat();
    assert!(all.len() < 16 << 10, "what a server reads at once");
    watcher.send_bytes(all.as_bytes());
    let replies = watcher.read_replies(PAGES + 2);
    let sizes: Vec<_> = replies[1..=PAGES]
        .iter()
        .map(|reply| page(reply).1.len())
        .collect();
    assert_eq!(sizes[..3], [1000; 3], "the first ones are whole");
    assert!(sizes.iter().all(|size| *size >= 10), "{sizes:?}");
    let keys: usize = sizes.iter().sum();
    assert!(keys <= KEYS, "{keys}");
    let used = |reply: &Frame| -> i64 {
        let text = reply.text();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("used_memory:"));
        line.and_then(|bytes| bytes.parse().ok()).expect("a number")
    };
    let taken = used(&replies[PAGES + 1]) - used(&replies[0]);
    // Each key has some fifty bytes in the reply. The server's buffers grow by halves.
    assert!(
        (0..4 << 20).contains(&taken),
        "{taken} bytes for {keys} keys"
    );
    // The next turn has its own.
    let (next, shown, _) = page(&watcher.run("WATCHTP k"));
    assert_eq!((shown.len(), &*next), (1000, "k0999"));
    assert_eq!(count, 3000);
}

/// Each gets on, and nobody gets more than fits into a turn.
#[test]
fn watchers_that_come_back_at_once_know_everything_in_the_end() {
    const WATCHERS: usize = 100;
    let server = Server::start();
    let mut owner = server.resp2();
    let count = many(&mut owner, (0..3000).map(|number| format!("k{number:04}")));
    let mut watchers: Vec<_> = (0..WATCHERS).map(|_| server.resp3()).collect();
    let ask = |watcher: &mut Client, after: &str| {
        watcher.send_bytes(&match after {
            "" => encode("WATCHTP k"),
            after => encode(["WATCHTP", "k", "AFTER", after]),
        });
    };
    let mut known: Vec<Vec<String>> = vec![Vec::new(); WATCHERS];
    let mut going: Vec<_> = (0..WATCHERS).map(|at| (at, String::new())).collect();
    while !going.is_empty() {
        for (at, after) in &going {
            ask(&mut watchers[*at], after);
        }
        going.retain_mut(|(at, after)| {
            let (next, shown, _) = page(&watchers[*at].read_reply());
            known[*at].extend(shown.into_iter().map(|(name, _)| name));
            *after = next;
            !after.is_empty()
        });
    }
    for names in known {
        assert_eq!(names.len(), count);
        assert!(names.is_sorted());
    }
}

#[test]
fn a_connection_watches_4096_prefixes_at_most() {
    let server = Server::start();
    let mut watcher = server.resp3();
    let prefixes = (0..4096).flat_map(|number| encode(["WATCHTP", &format!("{number:04}")]));
    watcher.send_bytes(&prefixes.collect::<Vec<_>>());
    watcher.read_replies(4096);
    let message = watcher.refused("WATCHTP more");
    assert_eq!(
        message,
        "ERR this connection watches too many prefixes (at most 4096)"
    );
    // The same again is no more, and keys have a limit of their own.
    watcher.run_all(&["WATCHTP 0007", "WATCHEX k"]);
    server.resp3().run("WATCHTP more");
    assert_eq!(watcher.call("UNWATCHTP"), int(4096));
    watcher.run("WATCHTP more");
}

/// More than one step tells of: the rest follows, and no key in between.
#[test]
fn very_many_watches_whose_rights_are_others_end_in_slices() {
    let server = Server::start();
    let (mut watcher, mut owner) = (server.resp3(), server.resp2());
    owner.run("ACL SETUSER viewer on nopass ~* +@all");
    watcher.run("AUTH viewer any");
    let prefixes = (0..3000).flat_map(|number| encode(["WATCHTP", &format!("{number:04}")]));
    watcher.send_bytes(&prefixes.collect::<Vec<_>>());
    watcher.read_replies(3000);
    owner.run("ACL SETUSER viewer resetkeys ~a*");
    owner.run_all(&["SETTP 0007x v", "SETTP 2999x v", "DELTP 0007x"]);
    let mut told: Vec<_> = (0..3000).map(|_| watcher.next_push()).collect();
    told.sort();
    for (number, told) in told.iter().enumerate() {
        assert_eq!(told, &format!("watchtp {number:04} END noperm"));
    }
    assert_eq!(server.settled(&mut watcher), [""; 0]);
    assert_eq!(server.gauge("tether", "tether_watches"), 0);
    assert_eq!(watcher.call("UNWATCHTP"), int(0));
}
