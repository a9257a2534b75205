//! One command ends very many keys of its own connection: nobody tells that connection that it lost them, and the cost grows
//! with their number only.

use crate::harness::*;
use std::time::Duration;

const KEYS: usize = 10_000;

fn names(of: &str, keys: std::ops::Range<usize>) -> Vec<String> {
    keys.map(|n| format!("{of}:{n}")).collect()
}

fn own(owner: &mut Client, names: &[String]) {
    let replies = owner.run_many(names.iter().map(|name| format!("SETTP {name} v")));
    assert!(replies.iter().all(|reply| *reply == int(1)));
}

/// The server's main thread is at work for so long while these are deleted, so many by each command.
fn work(server: &Server, owner: &mut Client, names: &[String], each: usize) -> Option<Duration> {
    let before = server.time_at_work();
    for names in names.chunks(each) {
        delete(owner, names);
    }
    server
        .time_at_work()
        .zip(before)
        .map(|(now, then)| now - then)
}

fn del(names: &[String]) -> Vec<u8> {
    let words: Vec<_> = std::iter::once("DEL")
        .chain(names.iter().map(String::as_str))
        .collect();
    encode(words)
}

fn delete(client: &mut Client, names: &[String]) {
    client.send_bytes(&del(names));
    assert_eq!(client.read_reply(), int(names.len() as i64));
}

#[test]
fn to_delete_many_of_its_own_keys_costs_no_more_by_one_command_than_by_many() {
    let server = Server::start();
    let mut owner = server.resp3();
    let names = names("key", 0..KEYS);
    own(&mut owner, &names);
    let by_many = work(&server, &mut owner, &names, 50);
    own(&mut owner, &names);
    let by_one = work(&server, &mut owner, &names, KEYS);
    let (Some(by_many), Some(by_one)) = (by_many, by_one) else {
        return;
    };
    let most = 3 * by_many + Duration::from_millis(30);
    assert!(
        by_one < most,
        "{by_one:?} at once, {by_many:?} a few at a time"
    );
    assert_eq!(server.gauge("tether", "tether_lost_total"), 0);
}

#[test]
fn whose_command_names_many_keys_is_known_each_time() {
    let server = Server::start();
    let (mut owner, mut other) = (server.resp3(), server.resp3());
    let names = names("key", 0..600);
    let mut lost = 0;
    for (round, names) in names.chunks(100).enumerate() {
        own(&mut owner, names);
        if round % 2 == 0 {
            delete(&mut owner, names);
        } else {
            delete(&mut other, names);
            lost += 100;
        }
        assert_eq!(server.gauge("tether", "tether_lost_total"), lost);
    }
    // In a transaction, too.
    own(&mut owner, &names[..300]);
    owner.send_bytes(&encode(["MULTI"]));
    for names in names[..300].chunks(100) {
        owner.send_bytes(&del(names));
    }
    owner.send_bytes(&encode(["EXEC"]));
    let replies = owner.read_replies(5);
    assert_eq!(replies[4].items().len(), 3);
    assert_eq!(server.gauge("tether", "tether_lost_total"), lost);
}
