//! A network that is parted, without a word to anyone: a master with its clients on one side, its replicas and Sentinels
//! on the other. Both sides have a master then, until the network is whole again.

use crate::harness::namespace::{CLIENT_ADDRESS, Cable, SERVER_ADDRESS};
use crate::harness::*;
use crate::line::*;
use crate::sentinel::{LONG, Sentinel};
use std::io::{ErrorKind, Read};

/// A master here, all others there, and a cable between them. What talks to a server must be on its side.
struct Sides {
    sentinels: Vec<Sentinel>,
    replicas: [Server; 2],
    master: Server,
    cable: Cable,
}

impl Sides {
    fn new(lines: &[&str]) -> Sides {
        let cable = Cable::lay();
        let server = |address: &str| {
            let bind = format!("bind 127.0.0.1 {address}");
            let mut all = vec![bind.as_str(), "protected-mode no"];
            all.extend(lines);
            Server::with(&all)
        };
        let master = cable.client_side.enter(|| server(CLIENT_ADDRESS));
        let port = master.port();
        let (replicas, sentinels) = cable.server_side.enter(|| {
            let replicas = [(); 2].map(|()| server(SERVER_ADDRESS));
            for replica in &replicas {
                let port = port.to_string();
                let mut client = replica.resp2();
                client.run(["REPLICAOF", CLIENT_ADDRESS, &port]);
            }
            for replica in &replicas {
                follows(replica, CLIENT_ADDRESS, port);
            }
            let sentinel = |_| Sentinel::at(SERVER_ADDRESS, CLIENT_ADDRESS, port);
            let sentinels: Vec<_> = (0..3).map(sentinel).collect();
            sentinels.iter().for_each(|it| it.wait_until_it_knows(2));
            (replicas, sentinels)
        });
        Sides {
            sentinels,
            replicas,
            master,
            cable,
        }
    }

    fn here<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.cable.client_side.enter(work)
    }

    fn there<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.cable.server_side.enter(work)
    }

    /// The one that Sentinels have put in the master's place.
    fn promoted(&self) -> &Server {
        let port = self.there(|| {
            eventually_within(LONG, "the failover", || {
                let seen: Vec<_> = self.sentinels.iter().map(Sentinel::master_port).collect();
                let port = seen[0].filter(|port| *port != self.master.port());
                let agreed = port.filter(|_| seen.iter().all(|port| *port == seen[0]));
                agreed.ok_or(format!("{seen:?}"))
            })
        });
        let mut replicas = self.replicas.iter();
        let promoted = replicas.find(|it| it.port() == port);
        promoted.expect("one of the replicas")
    }
}

/// In the end a server follows this master.
fn follows(server: &Server, address: &str, port: u16) {
    let expected = format!("master_host:{address}\r\nmaster_port:{port}\r\n");
    eventually_within(LONG, "the link to a master", || {
        // Sentinels close connections to a server that they make a replica.
        let client = Client::connect(("127.0.0.1", server.port())).ok();
        let mut client = client.ok_or("no connection")?;
        let sent = client.try_send_bytes(&encode("INFO replication"));
        let info = client.try_read_reply().filter(|_| sent);
        let info = info.ok_or("it closes connections")?.text();
        match info.contains(&expected) && info.contains("master_link_status:up") {
            true => Ok(()),
            false => Err(info),
        }
    });
}

/// Takes a key at the master that is cut off, or hears why not.
fn take(client: &mut Client, key: &str) -> Result<i64, String> {
    match client.call(["SETTP", key, "v", "TOKEN"]) {
        Frame::Integer(token) => Ok(token),
        other => Err(other.text()),
    }
}

/// A command that is carried out as soon as the server has enough replicas.
fn insist(client: &mut Client, request: &str) -> Frame {
    eventually_within(LONG, request, || match client.call(request) {
        Frame::Error(text) if text.starts_with(b"NOREPLICAS") => Err("too few replicas".into()),
        reply => Ok(reply),
    })
}

/// Everything that comes until the server hangs up.
fn last_words(client: Client) -> String {
    let mut stream = client.into_stream();
    let limit = stream.set_read_timeout(Some(LONG));
    limit.expect("a read timeout");
    let mut bytes = Vec::new();
    let end = stream.read_to_end(&mut bytes);
    let words = bytes.escape_ascii().to_string();
    let late = [ErrorKind::WouldBlock, ErrorKind::TimedOut];
    assert!(
        !matches!(end, Err(error) if late.contains(&error.kind())),
        "not closed: {words}"
    );
    words
}

fn part(lines: &[&str], refuses: bool) {
    if let Some(reason) = Cable::impossible_here() {
        return say(&format!("a parted network: SKIPPED: {reason}"));
    }
    let sides = Sides::new(lines);
    let master = &sides.master;
    let [mut holder, mut waiter, mut pushed, mut busy] =
        sides.here(|| [(); 4].map(|()| master.resp3()));
    let [mut owner, mut leaver, mut next] = sides.here(|| [(); 3].map(|()| master.resp2()));
    insist(&mut leaver, "SETTP left v");
    insist(&mut holder, "SET plain v");
    insist(&mut holder, "LOCK.ACQUIRE lock");
    let before = insist(&mut holder, "SETTP held v TOKEN").number();
    let secret = insist(&mut owner, "SESSION.START GRACE 600000").text();
    let kept = insist(&mut owner, "SETTP kept v TOKEN").number();
    sides.here(|| queue(master, &mut waiter, "SETTP held w WAIT 0"));
    sides.here(|| queue(master, &mut next, "SETTP left w WAIT 0"));
    queue_push(&mut pushed, "LOCK.ACQUIRE lock WAIT 0 PUSH");
    assert_eq!(owner.run("WAIT 2 0"), int(2));

    sides.cable.cut();
    let first = take(&mut busy, "late:0");
    assert!(refuses || first.is_ok(), "{first:?}");
    let mut last = first.unwrap_or(before);
    if refuses {
        let mut number = 0;
        let refusal = eventually_within(LONG, "a refusal", || {
            number += 1;
            match take(&mut busy, &format!("late:{number}")) {
                Ok(token) => Err(token.to_string()),
                Err(refusal) => Ok(refusal),
            }
        });
        assert!(refusal.starts_with("NOREPLICAS"), "{refusal}");
        // Nor does it hand a key over to who waits for it already.
        sides.here(|| quit(master, leaver));
    }
    let promoted = sides.promoted();
    let (mut other, mut heir) = sides.there(|| (promoted.resp3(), promoted.resp2()));
    let after = insist(&mut other, "SETTP held x TOKEN").number();
    assert!(after > before.max(kept), "{after} after {before}, {kept}");
    assert!(insist(&mut other, "LOCK.ACQUIRE lock").number() > after);
    assert_eq!(insist(&mut other, "SETTP kept x"), int(0));
    let resume = format!("SESSION.RESUME {secret}");
    assert_eq!(insist(&mut heir, &resume), int(1));
    assert_eq!(sides.there(|| token_of(promoted, "kept")), kept);
    // The former master is still at work for its side, the session's first connection among it.
    match take(&mut busy, "late:last") {
        Ok(token) if !refuses => last = last.max(token),
        Err(refusal) if refuses => assert!(refusal.starts_with("NOREPLICAS"), "{refusal}"),
        other => panic!("{other:?}"),
    }
    assert!(last < after, "{last} of the old master, {after} of the new");
    assert_eq!(sides.here(|| token_of(master, "held")), before);
    assert!(!next.has_reply(), "a key was handed over");

    sides.cable.mend();
    // Sentinels end all connections in the step in which they make it a replica.
    for client in [holder, waiter, pushed, owner, busy] {
        assert_eq!(last_words(client), "");
    }
    // What its replicas had sent until they left it comes now, by which they count until it notices the end of their
    // connections: so long it may write, and hand over.
    let handed_over = refuses.then_some(":1\\r\\n");
    let words = last_words(next);
    assert!(words.is_empty() || handed_over == Some(&*words), "{words}");
    whole_again(&sides, promoted, other, heir);
}

/// The former master follows the new one, and has its keys; and no ghost is left.
fn whole_again(sides: &Sides, promoted: &Server, mut other: Client, mut heir: Client) {
    let (master, port) = (&sides.master, promoted.port());
    sides.here(|| follows(master, SERVER_ADDRESS, port));
    let names = |server: &Server| {
        let mut names: Vec<_> = server.resp2().run("KEYS *").items();
        names.sort_by_key(Frame::text);
        names
    };
    let expected = ["held", "kept", "lock", "plain"].map(bulk);
    assert_eq!(sides.there(|| names(promoted)), expected);
    assert_eq!(other.run("WAIT 2 10000"), int(2));
    assert_eq!(sides.here(|| names(master)), expected);
    assert_eq!(insist(&mut heir, "SESSION.END"), int(1));
    drop(other);
    sides.there(|| eventually_nothing_is_left(promoted));
    assert_eq!(sides.there(|| names(promoted)), [bulk("plain")]);
}

#[test]
fn a_master_that_is_cut_off_goes_on_below_the_tokens_of_the_new_one() {
    part(&[], false);
}

#[test]
fn one_that_wants_replicas_refuses_after_a_while() {
    part(&["min-replicas-to-write 1", "min-replicas-max-lag 5"], true);
}
