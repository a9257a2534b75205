//! LOCK.WHY: who is to blame for a wait.

use crate::harness::*;
use crate::line::*;
use std::time::{Duration, Instant};

/// Key, client and what it waits for of each holder, and the other causes, in order.
fn why(client: &mut Client, key: &str) -> Vec<String> {
    let told = client.run(["LOCK.WHY", key]).items();
    let text = |frame: Frame| match frame {
        Frame::Null => "?".to_owned(),
        frame => frame.text(),
    };
    let line = |step: &Frame| match &*field(step, "cause").text() {
        "holder" => ["key", "client", "waits-for"]
            .map(|name| text(field(step, name)))
            .join(" "),
        other => other.to_owned(),
    };
    told.iter().map(line).collect()
}

/// So many connections, each of which holds the key of its number and waits for the next one's.
fn chain(server: &Server, count: usize) -> Vec<Client> {
    let mut clients: Vec<_> = (0..count).map(|_| server.resp3()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.run(&format!("LOCK.ACQUIRE k{number}"));
    }
    for (number, client) in clients.iter_mut().enumerate().take(count - 1) {
        let request = format!("LOCK.ACQUIRE k{} WAIT 0", number + 1);
        queue(server, client, &request);
    }
    clients
}

#[test]
fn the_chain_is_followed_to_who_waits_for_nothing() {
    let server = Server::start();
    let mut looker = server.resp3();
    assert_eq!(why(&mut looker, "k0"), [""; 0]);
    let mut ids = Vec::new();
    let mut clients: Vec<_> = (0..3).map(|_| server.resp3()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        ids.push(client.id());
        client.run(&format!("LOCK.ACQUIRE k{number} SHARED"));
    }
    // One waits blocked, one by a push and with a label, of several keys for one that another has.
    queue(&server, &mut clients[0], "LOCK.ACQUIRE k1 WAIT 0");
    clients[1].run("LOCK.ACQUIRE free OWNER job");
    queue_push(
        &mut clients[1],
        "LOCK.MACQUIRE 2 other k2 WAIT 0 PUSH OWNER job",
    );
    let [one, two, three] = [ids[0], ids[1], ids[2]];
    let second = format!("k1 {two} ?");
    assert_eq!(
        why(&mut looker, "k0"),
        [format!("k0 {one} k1"), second.clone()]
    );
    // It waits by another label than holds k1, and so does not keep k1 by that.
    assert_eq!(why(&mut looker, "k1"), [second]);
    assert_eq!(
        why(&mut looker, "free"),
        [format!("free {two} k2"), format!("k2 {three} ?")]
    );
    looker.run("SET plain v");
    assert_eq!(why(&mut looker, "plain"), ["unheld"]);
    looker.run("CLIENT PAUSE 100000 WRITE");
    assert_eq!(
        why(&mut looker, "k2"),
        [format!("k2 {three} ?"), "pause".into()]
    );
    looker.run("CLIENT UNPAUSE");
    looker.run("CONFIG SET min-replicas-to-write 1");
    assert_eq!(why(&mut looker, "none"), ["replicas"]);
}

/// Circles of what ends by itself are not refused.
#[test]
fn circles_and_crowds_come_to_an_end() {
    let server = Server::start();
    let (mut one, mut two, mut looker) = (server.resp3(), server.resp3(), server.resp2());
    one.run("LOCK.ACQUIRE a LEASE 600000");
    two.run("LOCK.ACQUIRE b LEASE 600000");
    queue(&server, &mut one, "LOCK.ACQUIRE b WAIT 0");
    queue(&server, &mut two, "LOCK.ACQUIRE a WAIT 0");
    let told = why(&mut looker, "a");
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(
        told[0].starts_with("a ") && told[0].ends_with(" b"),
        "{told:?}"
    );
    assert!(
        told[1].starts_with("b ") && told[1].ends_with(" a"),
        "{told:?}"
    );
    let mut crowd = server.resp3();
    for number in 0..100 {
        crowd.run(&format!("LOCK.ACQUIRE page SHARED OWNER {number}"));
    }
    assert_eq!(why(&mut looker, "page").len(), 64);
}

#[test]
fn names_and_labels_are_only_for_who_may_read_the_key() {
    let server = Server::start();
    let (mut one, mut two, mut admin) = (server.resp3(), server.resp3(), server.resp2());
    one.run("LOCK.ACQUIRE open:k OWNER secret:job");
    two.run("LOCK.ACQUIRE shut:k OWNER secret:job");
    queue(
        &server,
        &mut one,
        "LOCK.ACQUIRE shut:k OWNER secret:job WAIT 0",
    );
    admin.run("ACL SETUSER reader on nopass +lock.why %R~open:*");
    let mut reader = server.resp3();
    reader.run("AUTH reader x");
    let told = reader.run("LOCK.WHY open:k").items();
    assert_eq!(field(&told[0], "label"), bulk("secret:job"));
    assert_eq!(field(&told[0], "waits-for"), null());
    assert_eq!(
        [field(&told[1], "key"), field(&told[1], "label")],
        [null(), null()]
    );
    assert!(reader.refused("LOCK.WHY shut:k").starts_with("NOPERM"));
}

#[test]
fn who_left_its_session_and_a_quarantine_are_told() {
    let server = Server::with(&["tether.quarantine 600000"]);
    let mut looker = server.resp3();
    let told = looker.run("LOCK.WHY k").items();
    assert_eq!(field(&told[0], "cause"), bulk("quarantine"));
    assert!((1..=600_000).contains(&field(&told[0], "left-ms").number()));
    looker.run("CONFIG SET tether.quarantine 0");
    let server = Server::start();
    let (mut one, mut looker) = (server.resp3(), server.resp3());
    one.run("SESSION.START GRACE 60000");
    one.run("LOCK.ACQUIRE k");
    quit(&server, one);
    let told = looker.run("LOCK.WHY k").items();
    assert_eq!(field(&told[0], "session"), bulk("detached"));
    assert_eq!(
        [field(&told[0], "idle-ms"), field(&told[0], "waits-for")],
        [null(), null()]
    );
}

/// However many other keys there are.
#[test]
fn a_chain_of_twenty_takes_no_time() {
    let server = Server::with(&["tether.max-keys-per-client 2000000"]);
    let mut many = server.resp2();
    for first in (0..1_000_000).step_by(1000) {
        let mut request = vec!["LOCK.MACQUIRE".to_owned(), "1000".to_owned()];
        request.extend((first..first + 1000).map(|n| format!("m{n}")));
        many.run(request);
    }
    let mut clients = chain(&server, 20);
    let last = clients[19].id();
    let mut looker = server.resp3();
    let begin = Instant::now();
    let at_work = || server.time_at_work().unwrap_or_else(|| begin.elapsed());
    let shortest = (0..20).map(|_| {
        let before = at_work();
        let told = why(&mut looker, "k0");
        assert_eq!(told.len(), 20);
        assert_eq!(told[19], format!("k19 {last} ?"));
        at_work().saturating_sub(before)
    });
    let shortest = shortest.min().unwrap_or_default();
    say(&format!("a chain of 20 among a million keys: {shortest:?}"));
    assert!(shortest < Duration::from_millis(5), "{shortest:?}");
}

#[test]
fn what_makes_the_server_refuse_is_told() {
    let server = Server::with(&["dbfilename a-folder.rdb"]);
    let mut looker = server.resp3();
    let refused = |looker: &mut Client, code: &str, cause: &str| {
        let refusal = looker.refused("LOCK.ACQUIRE k");
        assert!(refusal.starts_with(code), "{refusal}");
        assert_eq!(why(looker, "k"), [cause], "{refusal}");
    };
    looker.run("CONFIG SET maxmemory 1");
    refused(&mut looker, "OOM", "memory");
    looker.run("CONFIG SET maxmemory 0");
    assert_eq!(why(&mut looker, "k"), [""; 0]);
    std::fs::create_dir(server.folder().join("a-folder.rdb"))
        .expect("a folder in the file's place");
    looker.run(["CONFIG", "SET", "save", "3600 1000000"]);
    looker.run_all(&["SET plain v", "BGSAVE"]);
    eventually("a failure to save", || {
        let info = server.info("persistence");
        match info.contains("rdb_last_bgsave_status:err") {
            true => Ok(()),
            false => Err(info),
        }
    });
    refused(&mut looker, "MISCONF", "misconf");
    looker.run("CONFIG SET stop-writes-on-bgsave-error no");
    assert_eq!(why(&mut looker, "k"), [""; 0]);
}

#[test]
fn a_replica_says_that_it_cannot_know() {
    let server = Server::start();
    let replica = Server::replica_of(&server, &[]);
    let (mut one, mut looker) = (server.resp3(), replica.resp3());
    one.run("LOCK.ACQUIRE k");
    replica.catch_up(&server);
    for key in ["k", "free"] {
        assert_eq!(why(&mut looker, key), ["replica"]);
    }
    let mut two = server.resp3();
    two.run("SESSION.START");
    two.run("SETTP mine v");
    replica.catch_up(&server);
    let told = why(&mut looker, "mine");
    assert!(
        told[0].starts_with("mine 0 ") && told[1..] == ["replica"],
        "{told:?}"
    );
}
