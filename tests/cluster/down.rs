//! Slots that a server loses while its cluster is down, or that it never got: keys in them are somebody else's, whoever holds
//! them here and whoever waits.

use crate::harness::*;
use crate::line::{queue, queue_push, tether};
use crate::nodes::{AGREEMENT, Cluster, SLOTS, name_in, pushes_at_last};

const SLOT: u16 = 9;

/// Has a server say that its cluster is down: there is a slot that nobody has.
fn take_down(server: &Server) {
    let mut client = server.resp2();
    client.run(&format!("CLUSTER DELSLOTS {}", SLOTS / 4));
    eventually_within(AGREEMENT, "the end of the cluster", || {
        match client.call("GET k").text() {
            answer if answer.starts_with("CLUSTERDOWN") => Ok(()),
            other => Err(other),
        }
    });
}

/// A client sends its release again, and has lost nothing meanwhile.
#[test]
fn a_release_while_the_cluster_is_down_leaves_the_hold() {
    let cluster = Cluster::of_masters(2, &[]);
    let server = &cluster.servers[0];
    let key = name_in(SLOT);
    let (mut holder, mut waiter) = (server.resp2(), server.resp3());
    for (take, release, answer) in [
        ("SETTP KEY v", "DELTP KEY", 1),
        ("LOCK.ACQUIRE KEY", "LOCK.RELEASE KEY", 0),
        ("LOCK.ACQUIRE KEY SHARED", "LOCK.RELEASE KEY ALL", 0),
    ] {
        let (take, release) = (take.replace("KEY", &key), release.replace("KEY", &key));
        holder.run(&*take);
        let kind = take.split(' ').next().expect("a command");
        let value = if kind == "SETTP" { " w" } else { "" };
        queue_push(&mut waiter, &format!("{kind} {key}{value} WAIT 0 PUSH"));
        take_down(server);
        let refusal = holder.refused(&*release);
        assert!(refusal.starts_with("CLUSTERDOWN"), "{release}: {refusal}");
        let mut admin = server.resp2();
        admin.run(&format!("CLUSTER ADDSLOTS {}", SLOTS / 4));
        eventually_within(AGREEMENT, "a cluster that is up", || {
            match admin.call("GET k") {
                Frame::Error(answer) if answer.starts_with(b"CLUSTERDOWN") => {
                    Err(String::from_utf8_lossy(&answer).into_owned())
                }
                _ => Ok(()),
            }
        });
        assert_eq!(server.settled(&mut waiter), [""; 0], "{release}");
        assert_eq!(holder.call(&*release), int(answer), "{release}");
        let granted = waiter.next_push();
        let beginning = format!("{} {key} ", if kind == "SETTP" { "settp" } else { "lock" });
        assert!(granted.starts_with(&beginning), "{granted}");
        let back = release.split(' ').next().expect("a command");
        assert_eq!(waiter.call([back, &key]), int(answer), "{release}");
    }
}

#[test]
fn what_a_server_loses_while_its_cluster_is_down_is_told_and_granted_to_nobody() {
    let cluster = Cluster::of_masters(2, &[]);
    let (source, target) = (&cluster.servers[0], &cluster.servers[1]);
    let key = name_in(SLOT);
    let lock = format!("{{{key}}}lock");
    let (mut owner, mut pushed) = (source.resp3(), source.resp3());
    owner.run(["LOCK.ACQUIRE", &lock, "NOTIFY"]);
    owner.run(["SETTP", &key, "v", "NOTIFY"]);
    queue_push(&mut pushed, &format!("SETTP {key} w WAIT 0 PUSH"));
    queue_push(&mut pushed, &format!("LOCK.ACQUIRE {lock} WAIT 0 PUSH"));
    take_down(source);
    let (from, to) = (cluster.id(0), cluster.id(1));
    // The last commands before are the owner's: they are not to blame.
    owner.run("PING");
    owner.run("PING");
    let mut client = target.resp2();
    client.run(&format!("CLUSTER SETSLOT {SLOT} IMPORTING {from}"));
    client.run(&format!("CLUSTER SETSLOT {SLOT} NODE {to}"));
    let mut lost = pushes_at_last(&mut owner, 2);
    lost.sort();
    assert_eq!(
        lost,
        [
            format!("lock {lock} LOST moved"),
            format!("settp {key} LOST moved")
        ]
    );
    let mut told = pushes_at_last(&mut pushed, 2);
    told.sort();
    let moved = format!("MOVED {SLOT} {}", cluster.address(1));
    let refused = [
        format!("lock {lock} FAILED {moved}"),
        format!("settp {key} FAILED {moved}"),
    ];
    assert_eq!(told, refused);
    for name in ["temporary_keys", "holds", "waiters"] {
        assert_eq!(tether(source, name), 0, "{name}");
    }
    assert_eq!(source.settled(&mut owner), [""; 0]);
}

/// Takes the temporary key `key` and the lock `lock` in a slot that this server imports.
fn take_by_asking(owner: &mut Client, name: impl Fn(&str) -> String) {
    for request in [
        format!("SETTP {} v NOTIFY", name("key")),
        format!("LOCK.ACQUIRE {} NOTIFY", name("lock")),
    ] {
        owner.run("ASKING");
        assert!(owner.run(request.as_str()).number() > 0);
    }
}

/// Both are lost with their slot.
fn expect_both_moved(owner: &mut Client, name: impl Fn(&str) -> String) {
    let mut lost = pushes_at_last(owner, 2);
    lost.sort();
    let expected = [
        format!("lock {} LOST moved", name("lock")),
        format!("settp {} LOST moved", name("key")),
    ];
    assert_eq!(lost, expected);
}

/// It was to be handed over when the other server took it: a server does not say that it imports such a slot.
#[test]
fn a_slot_that_was_taken_and_never_came_back_takes_who_holds_in_it_along() {
    let cluster = Cluster::of_masters(2, &[]);
    let loser = &cluster.servers[0];
    let tag = name_in(SLOT);
    let name = |name: &str| format!("{{{tag}}}{name}");
    let mut owner = loser.resp3();
    owner.run(["SETTP", &name("former"), "v", "NOTIFY"]);
    cluster.open_slot(SLOT, 0, 1);
    let set = |server: usize, what: &str| {
        let words = format!("CLUSTER SETSLOT {SLOT} {what}");
        cluster.servers[server].resp2().run(words.as_str());
    };
    set(1, &format!("NODE {}", cluster.id(1)));
    cluster.agree();
    let lost = format!("settp {} LOST moved", name("former"));
    assert_eq!(pushes_at_last(&mut owner, 1), [lost]);
    set(0, &format!("IMPORTING {}", cluster.id(1)));
    take_by_asking(&mut owner, name);
    set(0, "STABLE");
    expect_both_moved(&mut owner, name);
}

/// Both servers would grant the same keys.
#[test]
fn a_slot_that_never_came_takes_who_holds_and_who_waits_in_it_along() {
    let cluster = Cluster::of_masters(2, &[]);
    let (source, target) = (&cluster.servers[0], &cluster.servers[1]);
    let tag = name_in(SLOT);
    let name = |name: &str| format!("{{{tag}}}{name}");
    let (mut owner, mut waiter) = (target.resp3(), target.resp2());
    let (mut pushed, mut watcher) = (target.resp3(), target.resp3());
    let mut other = target.resp2();
    // One that stays, in a slot of this server's own.
    let stays = name_in(SLOTS - 1);
    owner.run(["SETTP", &stays, "v", "NOTIFY"]);
    cluster.open_slot(SLOT, 0, 1);
    take_by_asking(&mut owner, name);
    watcher.run("ASKING");
    watcher.run(["WATCHEX", &name("key")]);
    waiter.run("ASKING");
    queue(
        target,
        &mut waiter,
        &format!("LOCK.ACQUIRE {} WAIT 0", name("lock")),
    );
    // And a key that is no owner's.
    other.run("ASKING");
    other.run(["SET", &name("stranger"), "v"]);
    for key in ["key", "stranger"] {
        pushed.run("ASKING");
        queue_push(&mut pushed, &format!("SETTP {} w WAIT 0 PUSH", name(key)));
    }
    for server in [target, source] {
        let stable = format!("CLUSTER SETSLOT {SLOT} STABLE");
        server.resp2().run(stable.as_str());
    }
    expect_both_moved(&mut owner, name);
    let mut told = pushes_at_last(&mut pushed, 2);
    told.sort();
    let moved = format!("MOVED {SLOT} {}", cluster.address(0));
    let failed = |key: &str| format!("settp {} FAILED {moved}", name(key));
    assert_eq!(told, ["key", "stranger"].map(failed));
    assert_eq!(waiter.read_reply().text(), moved);
    assert_eq!(watcher.next_push(), format!("watchex {} DEL", name("key")));
    other.run("FLUSHALL");
    assert_eq!(owner.next_push(), format!("settp {stays} LOST flushed"));
    assert_eq!(target.settled(&mut pushed), [""; 0]);
    for gauge in ["temporary_keys", "holds", "waiters"] {
        assert_eq!(tether(target, gauge), 0, "{gauge}");
    }
    assert_eq!(source.resp2().call(["SETTP", &name("key"), "v"]), int(1));
}

#[test]
fn a_slot_that_is_taken_from_a_server_by_hand_takes_who_holds_and_who_waits_in_it_along() {
    let cluster = Cluster::of_masters(1, &[]);
    let server = &cluster.servers[0];
    let (gone, stays) = (name_in(SLOT), name_in(SLOT + 1));
    let (mut owner, mut pushed) = (server.resp3(), server.resp3());
    owner.run(["LOCK.ACQUIRE", &gone, "NOTIFY"]);
    owner.run(["LOCK.ACQUIRE", &stays, "NOTIFY"]);
    queue_push(&mut pushed, &format!("LOCK.ACQUIRE {gone} WAIT 0 PUSH"));
    owner.run(&format!("CLUSTER DELSLOTS {SLOT}"));
    assert_eq!(owner.next_push(), format!("lock {gone} LOST moved"));
    assert_eq!(
        pushed.next_push(),
        format!("lock {gone} FAILED CLUSTERDOWN")
    );
    assert_eq!(owner.call("DBSIZE"), int(1));
    let holds = ["holds", "waiters"].map(|gauge| tether(server, gauge));
    assert_eq!(holds, [1, 0]);
    assert_eq!(server.settled(&mut owner), [""; 0]);
}

/// The second server takes the slot of this key, which does not exist, from the first one. Returns the first one's answer since then.
fn take_slot(cluster: &Cluster, look: &mut Client, key: &str) -> String {
    let (from, to) = (cluster.id(0), cluster.id(1));
    let mut thief = cluster.servers[1].resp2();
    thief.run(&format!("CLUSTER SETSLOT {SLOT} IMPORTING {from}"));
    thief.run(&format!("CLUSTER SETSLOT {SLOT} NODE {to}"));
    let moved = format!("MOVED {SLOT} {}", cluster.address(1));
    eventually_within(AGREEMENT, "the loss of the slot", || {
        // Until then it is null.
        match look.call(["GET", key]) {
            Frame::Error(answer) if answer == moved.as_bytes() => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    moved
}

/// A key that is not there is not deleted with its slot.
#[test]
fn who_was_about_to_be_served_when_the_slot_went_is_sent_after_it() {
    let cluster = Cluster::of_masters(2, &[]);
    let source = &cluster.servers[0];
    let key = name_in(SLOT);
    let (mut owner, mut blocked) = (source.resp3(), source.resp2());
    let (mut pushed, mut other) = (source.resp3(), source.resp2());
    owner.run(["SETTP", &key, "v", "NOTIFY"]);
    queue(source, &mut blocked, &format!("SETTP {key} w WAIT 0"));
    queue_push(&mut pushed, &format!("SETTP {key} x WAIT 0 PUSH"));
    // In one step: nothing may be written after that.
    other.pipeline(&[&format!("DEL {key}"), "CLIENT PAUSE 600000 WRITE"]);
    assert_eq!(other.read_replies(2), [int(1), ok()]);
    assert_eq!(owner.next_push(), format!("settp {key} LOST deleted"));
    let moved = take_slot(&cluster, &mut other, &key);
    other.run("CLIENT UNPAUSE");
    assert_eq!(blocked.read_reply().text(), moved);
    assert_eq!(pushed.next_push(), format!("settp {key} FAILED {moved}"));
    for gauge in ["temporary_keys", "waiters"] {
        assert_eq!(tether(source, gauge), 0, "{gauge}");
    }
}

/// Only the first key is about to be served: who waits for the second one is next to the request for both.
#[test]
fn who_waits_behind_a_request_for_several_is_sent_after_the_slot_too() {
    let cluster = Cluster::of_masters(2, &[]);
    let source = &cluster.servers[0];
    let key = name_in(SLOT);
    let second = format!("{{{key}}}second");
    let (mut owner, mut pushed) = (source.resp3(), source.resp3());
    let (mut behind, mut other) = (source.resp2(), source.resp2());
    owner.run(["LOCK.ACQUIRE", &key, "NOTIFY"]);
    queue_push(
        &mut pushed,
        &format!("LOCK.MACQUIRE 2 {key} {second} WAIT 0 PUSH"),
    );
    queue(
        source,
        &mut behind,
        &format!("LOCK.ACQUIRE {second} WAIT 0"),
    );
    // In one step: nothing may be written after that.
    other.pipeline(&[&format!("DEL {key}"), "CLIENT PAUSE 600000 WRITE"]);
    assert_eq!(other.read_replies(2), [int(1), ok()]);
    assert_eq!(owner.next_push(), format!("lock {key} LOST deleted"));
    let moved = take_slot(&cluster, &mut other, &key);
    other.run("CLIENT UNPAUSE");
    assert_eq!(behind.read_reply().text(), moved);
    assert!(pushed.next_push().ends_with(&format!("FAILED {moved}")));
    for gauge in ["holds", "waiters"] {
        assert_eq!(tether(source, gauge), 0, "{gauge}");
    }
}

#[test]
fn who_sends_its_own_key_to_another_server_is_not_told_of_it() {
    let cluster = Cluster::of_masters(2, &[]);
    let (source, target) = (&cluster.servers[0], &cluster.servers[1]);
    let key = name_in(SLOT);
    let other = format!("{{{key}}}other");
    let mut owner = source.resp3();
    owner.run(["SETTP", &key, "v", "NOTIFY"]);
    owner.run(["SETTP", &other, "v", "NOTIFY"]);
    cluster.open_slot(SLOT, 0, 1);
    let port = target.port().to_string();
    owner.run(["MIGRATE", "127.0.0.1", &port, &key, "0", "5000"]);
    assert_eq!(source.settled(&mut owner), [""; 0]);
    // And by another's hand.
    cluster.migrate(&[&other], 0, 1);
    assert_eq!(owner.next_push(), format!("settp {other} LOST moved"));
    assert_eq!(source.settled(&mut owner), [""; 0]);
}

/// Redis 7.0 deletes what is in a stolen slot without a word, and a replica does not ask which slots it has.
#[test]
fn who_becomes_a_replica_after_a_slot_was_stolen_counts_nothing_that_was_in_it() {
    let cluster = Cluster::with_replicas(&["tether.cluster-backstop 0"]);
    let (source, target, replica) = (
        &cluster.servers[0],
        &cluster.servers[1],
        &cluster.servers[3],
    );
    let (stolen, kept) = (name_in(SLOT), name_in(SLOT + 1));
    let mut owner = source.resp3();
    owner.run(["SETTP", &stolen, "v"]);
    owner.run(["SETTP", &kept, "v"]);
    eventually_equal("keys of the replica", 2, || {
        tether(replica, "temporary_keys")
    });
    let (from, to) = (cluster.id(0), cluster.id(1));
    let (mut thief, mut look) = (target.resp2(), source.resp2());
    thief.run(&format!("CLUSTER SETSLOT {SLOT} IMPORTING {from}"));
    thief.run(&format!("CLUSTER SETSLOT {SLOT} NODE {to}"));
    eventually_within(AGREEMENT, "the slot is gone", || {
        match look.run("DBSIZE").number() {
            2 => Err("it is there".into()),
            _ => Ok(()),
        }
    });
    replica.resp2().run("CLUSTER FAILOVER TAKEOVER");
    // The new master ends what connections of the old one held.
    eventually_within(AGREEMENT, "nothing is left of either key", || {
        let left = (
            source.info("replication").contains("role:slave"),
            look.run("DBSIZE").number(),
            tether(source, "temporary_keys"),
        );
        match left {
            (true, 0, 0) => Ok(()),
            left => Err(format!("{left:?}")),
        }
    });
}
