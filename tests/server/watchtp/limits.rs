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
