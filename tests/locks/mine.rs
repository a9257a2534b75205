//! LOCK.MINE: what a connection and its session hold and wait for.

use crate::harness::*;
use crate::line::{field, queue_push, quit};

/// The entries of one page, each as its key, state, label, depth and kind; and the next cursor.
fn mine(client: &mut Client, arguments: &str) -> (String, Vec<String>) {
    let page = client.run(&*format!("LOCK.MINE {arguments}")).items();
    let entry = |entry: &Frame| {
        let text = |name: &str| field(entry, name).text();
        let number = |name: &str| field(entry, name).number();
        let key = match field(entry, "key") {
            key if key == null() => "?".to_owned(),
            key => key.text(),
        };
        let (state, label, kind, mode) = (text("state"), text("label"), text("kind"), text("mode"));
        let (db, depth) = (number("db"), number("depth"));
        format!("{db}:{key} {kind} {mode} '{label}' {depth} {state}")
    };
    let mut entries: Vec<_> = page[1].items().iter().map(entry).collect();
    entries.sort();
    (page[0].text(), entries)
}

fn all(client: &mut Client) -> Vec<String> {
    let (cursor, entries) = mine(client, "");
    assert_eq!(cursor, "0");
    entries
}

#[test]
fn it_has_what_the_connection_holds_and_waits_for_in_every_database() {
    let server = Server::start();
    let (mut client, mut other) = (server.resp3(), server.resp3());
    assert_eq!(all(&mut client), [""; 0]);
    other.run_all(&["LOCK.ACQUIRE taken", "SETTP key v"]);
    client.run_all(&[
        "SETTP leader v",
        "LOCK.ACQUIRE twice REENTRANT",
        "LOCK.ACQUIRE twice REENTRANT",
        "LOCK.ACQUIRE some PERMITS 2 OF 3 OWNER x",
        "SELECT 1",
        "LOCK.ACQUIRE read SHARED",
        "LOCK.ACQUIRE short LEASE 1",
        "SELECT 0",
    ]);
    queue_push(
        &mut client,
        "LOCK.MACQUIRE 2 taken free OWNER y WAIT 0 PUSH",
    );
    queue_push(&mut client, "SETTP key w WAIT 0 PUSH");
    let expected = [
        "0:free lock exclusive 'y' 0 waiting",
        "0:key temporary exclusive '' 0 waiting",
        "0:leader temporary exclusive '' 1 held",
        "0:some lock permits 'x' 1 held",
        "0:taken lock exclusive 'y' 0 waiting",
        "0:twice lock exclusive '' 2 held",
        "1:read lock shared '' 1 held",
    ];
    eventually_equal("its list", expected.map(str::to_owned).to_vec(), || {
        all(&mut client)
    });
    client.run("RENAME leader chief");
    assert!(all(&mut client)[0].starts_with("0:chief temporary"));
    for release in ["LOCK.RELEASE free OWNER y ALL", "LOCK.RELEASE twice ALL"] {
        assert_eq!(client.call(release), int(0));
    }
    client.run("DELTP chief key");
    assert_eq!(
        all(&mut client),
        [
            "0:some lock permits 'x' 1 held",
            "1:read lock shared '' 1 held"
        ]
    );
    assert_eq!(all(&mut other).len(), 2);
}

#[test]
fn a_session_that_goes_on_says_what_it_has() {
    let server = Server::start();
    let (mut client, mut other) = (server.resp2(), server.resp2());
    let secret = client.run("SESSION.START GRACE 60000").text();
    let token = client.run("LOCK.ACQUIRE kept LEASE 100000").number();
    client.run_all(&["SETTP key v", "SETTP lost v"]);
    quit(&server, client);
    other.run("DEL lost");
    let mut client = server.resp2();
    assert_eq!(all(&mut client), [""; 0]);
    assert_eq!(client.run(["SESSION.RESUME", &secret]), int(2));
    let entries = client.run("LOCK.MINE").items()[1].items();
    assert_eq!(entries.len(), 2);
    let kept = entries
        .iter()
        .find(|entry| field(entry, "key") == bulk("kept"));
    let kept = kept.expect("the lock");
    assert_eq!(field(kept, "token"), int(token));
    assert!((1..=100_000).contains(&field(kept, "lease-ms").number()));
    assert_eq!(field(kept, "acks"), null());
}

#[test]
fn pages_have_everything_once() {
    let server = Server::start();
    let (mut client, mut other) = (server.resp3(), server.resp3());
    client.run_many((0..1500).map(|n| format!("LOCK.ACQUIRE h{n:04}")));
    let waits = "LOCK.MACQUIRE 3 w0 w1 w2 WAIT 0 PUSH";
    other.run("LOCK.ACQUIRE w1");
    queue_push(&mut client, waits);
    for count in ["", "COUNT 7", "COUNT 1000"] {
        let (mut cursor, mut got) = ("0".to_owned(), Vec::new());
        loop {
            let (next, page) = mine(&mut client, &format!("CURSOR {cursor} {count}"));
            let most = if count == "COUNT 7" { 7 } else { 1000 };
            assert!(page.len() == most || next == "0");
            got.extend(page);
            cursor = next;
            if cursor == "0" {
                break;
            }
        }
        assert_eq!(got.len(), 1503);
        got.sort();
        got.dedup();
        assert_eq!(got.len(), 1503);
    }
    for (arguments, error) in [
        (
            "COUNT 1001",
            "ERR COUNT is out of range, it goes from 1 to 1000",
        ),
        (
            "COUNT 0",
            "ERR COUNT is out of range, it goes from 1 to 1000",
        ),
        ("CURSOR x", "ERR CURSOR is not a number: 'x'"),
        (
            "KEY k",
            "ERR unknown option 'KEY', the options are CURSOR, COUNT",
        ),
    ] {
        assert_eq!(client.refused(&*format!("LOCK.MINE {arguments}")), error);
    }
}

#[test]
fn a_name_that_its_user_may_not_read_is_null() {
    let server = Server::start();
    let (mut client, mut admin) = (server.resp3(), server.resp3());
    admin.run("ACL SETUSER anna on nopass +@all ~*");
    client.run("AUTH anna x");
    client.run_all(&["LOCK.ACQUIRE mine:a", "LOCK.ACQUIRE other:a"]);
    admin.run("ACL SETUSER anna resetkeys ~mine:*");
    let expected = [
        "0:? lock exclusive '' 1 held",
        "0:mine:a lock exclusive '' 1 held",
    ];
    assert_eq!(all(&mut client), expected);
}
