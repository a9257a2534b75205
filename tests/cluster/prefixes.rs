//! Watches of prefixes in a cluster: routed by their hash tag, and over where their slot is no longer.

use crate::harness::*;
use crate::nodes::{Cluster, name_in};

const SLOT: u16 = 9;

/// A prefix in this slot.
fn prefix() -> String {
    format!("m:{{{}}}:", name_in(SLOT))
}

fn settp(owner: &mut Client, key: &str) -> i64 {
    owner.run(["SETTP", key, "v", "TOKEN"]).number()
}

#[test]
fn a_prefix_holds_a_whole_hash_tag_and_is_routed_by_it() {
    let cluster = Cluster::of_masters(2, &[]);
    let (here, there) = (&cluster.servers[0], &cluster.servers[1]);
    let prefix = prefix();
    let moved = format!("MOVED {SLOT} {}", cluster.address(0));
    assert_eq!(there.resp3().refused(["WATCHTP", &prefix]), moved);
    let mut watcher = here.resp3();
    for name in (0..5).map(name_in) {
        for wrong in [
            name.clone(),
            format!("{name}{{}}x"),
            format!("{{}}{{{name}}}"),
        ] {
            let message = watcher.call(["WATCHTP", &wrong]).text();
            let is_refused = message.starts_with("CROSSSLOT ") || message.starts_with("MOVED ");
            assert!(is_refused, "{wrong}: {message}");
        }
        let message = watcher.refused(["WATCHTP", &name]);
        assert!(message.starts_with("CROSSSLOT "), "{message}");
    }
    watcher.run(["WATCHTP", &prefix]);
    let mut owner = here.resp2();
    let key = format!("{prefix}one");
    let token = settp(&mut owner, &key);
    owner.run(["APPEND", &key, "w"]);
    owner.run(["DEL", &key]);
    let expected = [
        format!("watchtp {key} ADD {token} v"),
        format!("watchtp {key} SET {token} vw"),
        format!("watchtp {key} DEL {token} deleted"),
    ];
    assert_eq!(here.settled(&mut watcher), expected);
    assert_eq!(watcher.call(["UNWATCHTP", &prefix]), int(1));
}

#[test]
fn a_watch_ends_with_its_slot_also_where_there_was_no_key() {
    let cluster = Cluster::of_masters(2, &["tether.cluster-backstop 0"]);
    let (source, target) = (&cluster.servers[0], &cluster.servers[1]);
    let (prefix, stays) = (prefix(), format!("{{{}}}:", name_in(SLOT + 1)));
    let empty = format!("empty:{prefix}");
    let (mut watcher, mut owner) = (source.resp3(), source.resp2());
    let key = format!("{prefix}one");
    let token = settp(&mut owner, &key);
    for prefix in [&prefix, &stays, &empty] {
        watcher.run(["WATCHTP", prefix]);
    }
    cluster.open_slot(SLOT, 0, 1);
    cluster.migrate(&[&key], 0, 1);
    cluster.close_slot(SLOT, 0, 1);
    let mut told = watcher.next_pushes(3);
    assert_eq!(told.remove(0), format!("watchtp {key} DEL {token} moved"));
    told.sort();
    let mut expected = [&prefix, &empty].map(|prefix| format!("watchtp {prefix} END moved"));
    expected.sort();
    assert_eq!(told, expected);
    assert_eq!(watcher.call("UNWATCHTP"), int(1));
    // Where it went there is the key, which nobody holds.
    let reply = target.resp3().run(["WATCHTP", &prefix]).items();
    assert_eq!(reply, [bulk(""), array([])]);
}

#[test]
fn on_a_replica_a_watch_ends_with_its_masters_slot() {
    let mut cluster = Cluster::of_masters(2, &["tether.cluster-backstop 0"]);
    let number = cluster.add_replica(0, &[]);
    let (master, replica) = (&cluster.servers[0], &cluster.servers[number]);
    let prefix = prefix();
    let (mut watcher, mut owner) = (replica.resp3(), master.resp2());
    watcher.run("READONLY");
    watcher.run(["WATCHTP", &prefix]);
    let key = format!("{prefix}one");
    let token = settp(&mut owner, &key);
    assert_eq!(watcher.next_push(), format!("watchtp {key} ADD {token} v"));
    owner.run(["DEL", &key]);
    assert_eq!(
        watcher.next_push(),
        format!("watchtp {key} DEL {token} deleted")
    );
    cluster.open_slot(SLOT, 0, 1);
    cluster.close_slot(SLOT, 0, 1);
    assert_eq!(watcher.next_push(), format!("watchtp {prefix} END moved"));
}
