//! LOCK.GUARD in a cluster: a guarded command goes where the bare one does, and only where its lock is.

use crate::harness::*;
use crate::nodes::{Cluster, name_in};
use std::cell::RefCell;
use tether_testing::grammar::{Vocabulary, commands_with_keys};
use tether_testing::random::{Random, seed, steps};

/// Where a server sends a command: the error, or none if it takes it. Of what the keys' slots forbid the texts differ.
fn verdict(reply: &Frame) -> String {
    let Frame::Error(text) = reply else {
        return String::new();
    };
    let text = String::from_utf8_lossy(text).into_owned();
    match text.split(' ').next() {
        Some("MOVED") => text,
        Some(code @ ("CROSSSLOT" | "ASK" | "TRYAGAIN" | "CLUSTERDOWN")) => code.to_owned(),
        _ => String::new(),
    }
}

fn guarded(lock: &str, token: i64, words: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let token = token.to_string();
    let guard = ["LOCK.GUARD", lock, &token].map(|word| word.as_bytes().to_vec());
    guard.into_iter().chain(words.iter().cloned()).collect()
}

#[test]
fn a_guarded_command_goes_where_the_bare_one_does_and_only_where_its_lock_is() {
    let cluster = Cluster::of_masters(2, &[]);
    let mut client = cluster.servers[0].resp3();
    // Two slots of this server, and one of the other.
    let [here, beside, there] = [100, 200, 16_000].map(|slot| format!("{{{}}}", name_in(slot)));
    let lock = format!("{here}lock");
    let token = client.run(["LOCK.ACQUIRE", &lock]).number();
    let mut random = Random::new(seed());
    let (mut moved, mut crossed) = (0, 0);
    for command in commands_with_keys(&mut client) {
        // Valkey 9.1 takes MSETEX for keys of any slot.
        let is_left_out = matches!(&*command.name, "migrate" | "msetex");
        if command.has_flag("noscript") || is_left_out {
            continue;
        }
        for _ in 0..steps(8) {
            for tag in [&here, &beside, &there] {
                let has_keys = RefCell::new(false);
                let key = |random: &mut Random, _: &str| {
                    *has_keys.borrow_mut() = true;
                    format!("{tag}{}", random.below(3))
                };
                let vocabulary = Vocabulary {
                    key_of_group: &key,
                    dump: Vec::new(),
                };
                let words = command.words(&mut random, &vocabulary);
                if !has_keys.into_inner() {
                    continue;
                }
                let bare = client.call(&*words);
                // The number of words is looked at before the slots.
                if matches!(&bare, Frame::Error(text) if text.starts_with(b"ERR wrong number of arguments"))
                {
                    continue;
                }
                let bare = verdict(&bare);
                // With a lock in the slot of the keys.
                let own = verdict(&client.call(guarded(&format!("{tag}lock"), token, &words)));
                let line = words.iter().map(|word| word.escape_ascii().to_string());
                let line = line.collect::<Vec<_>>().join(" ");
                // Redis 8.6 runs it wherever it is given.
                let is_run_anywhere = command.name == "pfmerge" && words.len() == 2;
                assert!(own == bare || is_run_anywhere, "{line}: {own}, bare {bare}");
                moved += usize::from(bare.starts_with("MOVED"));
                if *tag != here {
                    let reply = client.call(guarded(&lock, token, &words));
                    let other = verdict(&reply);
                    assert_eq!(other, "CROSSSLOT", "{line}, guarded by {lock}: {reply:?}");
                    crossed += 1;
                }
            }
        }
    }
    say(&format!(
        "{moved} sent elsewhere, {crossed} refused for the lock's slot"
    ));
    assert!(moved > 300 && crossed > 600, "{moved}, {crossed}");
}

/// Shard channels are in slots, too; keys of commands with many words are looked for by the guard itself.
#[test]
fn what_the_server_is_not_told_of_has_to_be_in_the_slot_as_well() {
    let cluster = Cluster::of_masters(2, &[]);
    let mut client = cluster.servers[0].resp3();
    let [here, beside] = [100, 200].map(|slot| format!("{{{}}}", name_in(slot)));
    let lock = format!("{here}lock");
    let token = client.run(["LOCK.ACQUIRE", &lock]).number();
    let mut call = |words: &str| {
        let words: Vec<_> = words
            .split(' ')
            .map(|word| word.as_bytes().to_vec())
            .collect();
        client.call(guarded(&lock, token, &words))
    };
    let many = |tag: &str| format!("MSET {here}a 1 {here}b 2 {here}c 3 {here}d 4 {tag}e 5");
    assert_eq!(call(&many(&here)), ok());
    assert_eq!(verdict(&call(&many(&beside))), "CROSSSLOT");
    assert_eq!(
        call(&format!(
            "EXISTS {here}a {here}e {here}a {here}a {here}a {here}a {here}b"
        )),
        int(7)
    );
    for beyond in [
        "GET b",
        "SET b 1",
        "MGET {here}a b",
        "PFMERGE b",
        "SPUBLISH b m",
        "spublish b m",
    ] {
        let beyond = beyond
            .replace("{here}", &here)
            .replace(" b", &format!(" {beside}b"));
        assert_eq!(verdict(&call(&beyond)), "CROSSSLOT", "{beyond}");
    }
    // What has a password is not asked for its keys.
    let migrate = format!("MIGRATE 127.0.0.1 1 {here}a 0 100 AUTH secret");
    let refused = "ERR LOCK.GUARD does not run 'migrate' in a cluster";
    assert_eq!(call(&migrate), Frame::Error(refused.into()));
    let far = name_in(16_000);
    let message = call(&format!("SPUBLISH {far} message"));
    assert_eq!(verdict(&message), "CROSSSLOT", "{message:?}");
    assert_eq!(call(&format!("SPUBLISH {here}channel message")), int(0));
}

/// Where the server cannot be asked for a command's keys, none is run.
#[test]
fn nothing_is_guarded_in_a_cluster_that_does_not_tell_keys() {
    let server = Server::with(&["cluster-enabled yes", "rename-command COMMAND \"\""]);
    let mut client = server.resp3();
    client.run("CLUSTER ADDSLOTSRANGE 0 16383");
    eventually("the cluster", || match client.call("LOCK.ACQUIRE k") {
        Frame::Integer(_) => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let token = client.run("LOCK.CANCEL k").number();
    let expected = "ERR LOCK.GUARD needs the server's command COMMAND, which is renamed";
    for command in ["SET {k}a v", "SET other v", "PING"] {
        let words = format!("LOCK.GUARD k {token} {command}");
        assert_eq!(client.refused(&words), expected);
    }
    assert_eq!(client.run("DBSIZE"), int(1));
}

/// Where the server cannot be asked for its slots, what is held and watched there goes on.
#[test]
fn nothing_is_disowned_in_a_cluster_that_does_not_tell_slots() {
    let server = Server::with(&["cluster-enabled yes", "rename-command CLUSTER nodes-of"]);
    let mut owner = server.resp3();
    owner.run("nodes-of ADDSLOTSRANGE 0 16383");
    eventually("the cluster", || {
        match owner.call("LOCK.ACQUIRE k NOTIFY") {
            Frame::Integer(_) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    assert_eq!(owner.run("SETTP {k}temporary v NOTIFY"), int(1));
    let mut watcher = server.resp3();
    watcher.run("WATCHTP {k}");
    // The module looks at its slots once a second.
    std::thread::sleep(std::time::Duration::from_millis(2500));
    assert_eq!(server.settled(&mut owner), [""; 0]);
    assert_eq!(server.settled(&mut watcher), [""; 0]);
    assert!(owner.run("LOCK.CANCEL k").number() > 0);
    assert_eq!(owner.run("EXISTS k {k}temporary"), int(2));
}
