//! Valkey 9 and Redis 8.4 move slots in one go, by sending a snapshot and then what happens to their keys.

use crate::backstop::{Watched, unless_it_stands_still};
use crate::failover::promoted;
use crate::harness::*;
use crate::line::{holders, queue, queue_push, tether};
use crate::nodes::{Cluster, name_in, pushes_at_last};
use std::time::{Duration, Instant};

const SLOT: u16 = 11;
/// Keys of nobody's in the slot, so that its move takes some time.
const PLAIN: i64 = 40_000;
const BACKSTOP: Duration = Duration::from_millis(2500);

#[test]
fn slots_that_move_in_one_go_leave_nothing_behind_that_nobody_owns() {
    unless_it_stands_still(moves_and_leaves_nothing);
}

fn moves_and_leaves_nothing() -> Watched {
    // Until the slot moves its server may stand still for as long as a busy machine makes it.
    let lines = ["tether.cluster-backstop 0", "appendonly yes"];
    let cluster = Cluster::of_masters(2, &lines);
    let (source, target) = (&cluster.servers[0], &cluster.servers[1]);
    if !cluster.can_move_in_one_go() {
        return Ok(());
    }
    let tag = name_in(SLOT);
    let name = |number: usize| format!("{{{tag}}}{number}");
    let (mut owner, mut busy) = (source.resp3(), source.resp3());
    let (mut watcher, mut waiter) = (source.resp3(), source.resp3());
    for number in 0..50 {
        owner.run(["SETTP", &name(number), "v", "NOTIFY"]);
        owner.run(["LOCK.ACQUIRE", &name(100 + number), "NOTIFY"]);
    }
    source.resp2().run(["SET", &name(999), "stays"]);
    source
        .resp2()
        .run(&format!("DEBUG POPULATE {PLAIN} {{{tag}}}plain"));
    watcher.run(["WATCHEX", &name(0), &name(100)]);
    queue(source, &mut waiter, &format!("SETTP {} w WAIT 0", name(0)));
    let begin = Instant::now();
    for server in [target, source] {
        server
            .resp2()
            .run("CONFIG SET tether.cluster-backstop 2500");
    }
    cluster.begin_to_move(SLOT, 0, 1);
    let (rounds, refused) = be_busy(&mut busy, &name);
    let moved = format!("MOVED {SLOT} {}", cluster.address(1));
    assert_eq!(refused, moved);
    let waited = waiter.read_reply();
    if rounds <= 1 || (waited == int(1) && begin.elapsed() >= BACKSTOP / 6) {
        // It moved while this process stood still, or a key ended while the server did.
        return Err(begin.elapsed());
    }
    assert_eq!(waited.text(), moved);
    let mut lost = pushes_at_last(&mut owner, 100);
    lost.sort();
    lost.dedup();
    assert_eq!(lost.len(), 100, "each once");
    assert!(lost.iter().all(|push| push.ends_with(" LOST moved")));
    assert_eq!(source.settled(&mut owner), [""; 0]);
    let mut gone = watcher.next_pushes(2);
    gone.sort();
    assert_eq!(
        gone,
        [0, 100].map(|number| format!("watchex {} DEL", name(number)))
    );
    for gauge in ["temporary_keys", "holds", "waiters"] {
        assert_eq!(tether(source, gauge), 0, "{gauge}");
    }
    let mut client = target.resp2();
    let stays = name(999);
    eventually("the end of what nobody owns", || {
        let keys = client.run("DBSIZE");
        match keys == int(PLAIN + 1) {
            true => Ok(()),
            false => Err(format!("{keys:?}")),
        }
    });
    assert_eq!(client.run(["EXISTS", &stays]), int(1));
    assert_eq!(
        tether(target, "holds") + tether(target, "temporary_keys"),
        0
    );
    Ok(())
}

#[test]
fn whoever_makes_a_key_of_its_own_of_one_that_moved_keeps_it() {
    unless_it_stands_still(moves_and_is_made_anew);
}

fn moves_and_is_made_anew() -> Watched {
    let lines = ["appendonly yes"];
    let mut cluster = Cluster::of_masters(2, &lines);
    if !cluster.can_move_in_one_go() {
        return Ok(());
    }
    let number = cluster.add_replica(1, &lines);
    let (source, target) = (&cluster.servers[0], &cluster.servers[1]);
    let replica = &cluster.servers[number];
    let tag = name_in(SLOT);
    // The session's key is told of in another way.
    let (mut owner, mut session) = (source.resp3(), source.resp3());
    session.run("SESSION.START");
    source
        .resp2()
        .run(&format!("DEBUG POPULATE {PLAIN} {{{tag}}}plain"));
    let mut names = Vec::new();
    let begin = Instant::now();
    cluster.begin_to_move(SLOT, 0, 1);
    loop {
        let name = format!("{{{tag}}}{}", names.len());
        let by = [&mut owner, &mut session][names.len() % 2].call(["SETTP", &name, "v"]);
        if by != int(1) {
            break;
        }
        names.push(name);
    }
    if names.len() <= 1 {
        return Err(begin.elapsed());
    }
    let mut client = target.resp2();
    for name in &names {
        client.run(["SET", name, "mine"]);
    }
    replica.catch_up(target);
    assert_eq!(tether(replica, "temporary_keys"), 0);
    let all = int(PLAIN + names.len() as i64);
    client.run("DEBUG LOADAOF");
    let held = |server: &Server| tether(server, "temporary_keys");
    eventually_equal("what was left behind", 0, || held(target));
    assert_eq!(client.run("DBSIZE"), all, "after a restart");
    replica.catch_up(target);
    let mut client = replica.resp2();
    client.run("CLUSTER FAILOVER TAKEOVER");
    promoted(replica);
    eventually_equal("what was left behind", 0, || held(replica));
    assert_eq!(client.run("DBSIZE"), all, "after a failover");
    Ok(())
}

/// Who holds and who waits in a slot that moves, what they hear, and that it is over for them where they are.
fn nobody_is_granted_where_the_slot_was(is_tracked: bool) {
    let mut cluster = Cluster::of_masters(2, &["tether.cluster-backstop 0"]);
    if !cluster.can_move_in_one_go() {
        return;
    }
    let number = cluster.add_replica(0, &["tether.cluster-backstop 0"]);
    let (source, target) = (&cluster.servers[0], &cluster.servers[1]);
    let replica = &cluster.servers[number];
    let mut tracking = source.resp3();
    if is_tracked {
        // Then Redis deletes key by key what has moved.
        tracking.run("CLIENT TRACKING ON BCAST");
    }
    let tag = name_in(SLOT);
    let name = |what: &str| format!("{{{tag}}}{what}");
    let (lock, temporary, plain) = (name("lock"), name("temporary"), name("plain"));
    let (mut owner, mut dying, mut blocked) = (source.resp3(), source.resp3(), source.resp2());
    let (mut pushed, mut late) = (source.resp3(), source.resp3());
    let mut watchers = [source.resp3(), replica.resp3()];
    source.resp2().run(["SET", &plain, "v"]);
    owner.run(["LOCK.ACQUIRE", &lock, "NOTIFY"]);
    owner.run(["SETTP", &temporary, "v", "NOTIFY"]);
    dying.run(["LOCK.ACQUIRE", &name("dying")]);
    queue(source, &mut blocked, &format!("LOCK.ACQUIRE {lock} WAIT 0"));
    queue_push(&mut pushed, &format!("SETTP {temporary} w WAIT 0 PUSH"));
    queue_push(
        &mut late,
        &format!("LOCK.ACQUIRE {} WAIT 0 PUSH", name("dying")),
    );
    replica.catch_up(source);
    watchers[1].run("READONLY");
    for watcher in &mut watchers {
        watcher.run(["WATCHEX", &lock, &temporary, &plain]);
    }
    let grants = tether(source, "grants_total");
    cluster.begin_to_move(SLOT, 0, 1);
    let moved = format!("MOVED {SLOT} {}", cluster.address(1));
    let mut lost = pushes_at_last(&mut owner, 2);
    lost.sort();
    let expected = [
        format!("lock {lock} LOST moved"),
        format!("settp {temporary} LOST moved"),
    ];
    assert_eq!(lost, expected);
    assert_eq!(blocked.read_reply().text(), moved);
    assert_eq!(
        pushed.next_push(),
        format!("settp {temporary} FAILED {moved}")
    );
    assert_eq!(
        late.next_push(),
        format!("lock {} FAILED {moved}", name("dying"))
    );
    // At its new server each is free, or soon so; and whoever has it there is the only one.
    let mut next = target.resp3();
    for name in [&lock, &name("dying")] {
        let token = next.run(["LOCK.ACQUIRE", name, "WAIT", "0"]).number();
        assert!(token > 0);
    }
    drop((owner, dying));
    for watcher in &mut watchers {
        hears_of_the_end(watcher, [&lock, &plain, &temporary]);
    }
    for client in [&mut blocked, &mut pushed, &mut late] {
        assert_eq!(source.settled(client), [""; 0]);
    }
    assert_eq!(tether(source, "grants_total"), grants);
    assert_eq!(holders(target, &lock), [next.id()]);
    nothing_is_known(source, replica);
}

fn hears_of_the_end(watcher: &mut Client, names: [&String; 3]) {
    let mut gone = pushes_at_last(watcher, 3);
    gone.sort();
    let mut expected = names.map(|name| format!("watchex {name} DEL"));
    expected.sort();
    assert_eq!(gone, expected);
}

/// Nothing is held or waited for any more, and three holds have ended because their slot moved.
fn nothing_is_known(source: &Server, replica: &Server) {
    for gauge in ["temporary_keys", "holds", "waiters"] {
        assert_eq!(tether(source, gauge), 0, "{gauge}");
        eventually_equal("what the replica knows", 0, || tether(replica, gauge));
    }
    let log = format!("{:?}", source.resp2().run("LOCK.LOG"));
    assert_eq!(log.matches("\"moved\"").count(), 3, "{log}");
}

#[test]
fn whoever_holds_or_waits_in_a_slot_that_moves_hears_it_and_is_granted_nothing_there() {
    nobody_is_granted_where_the_slot_was(false);
}

#[test]
fn so_it_is_where_what_has_moved_is_deleted_key_by_key() {
    nobody_is_granted_where_the_slot_was(true);
}

/// Makes keys, overwrites them, gives them back, until the slot has moved: how often, and what the server said then.
fn be_busy(client: &mut Client, name: &dyn Fn(usize) -> String) -> (usize, String) {
    for round in 0..100_000 {
        let commands = [
            format!("SETTP {} v", name(200 + round)),
            format!("SET {} w", name(200 + round)),
            format!("LOCK.ACQUIRE {}", name(5000)),
            format!("LOCK.RELEASE {}", name(5000)),
            format!("LOCK.ACQUIRE {}", name(110_000 + round)),
        ];
        let replies = commands.map(|command| client.call(&command));
        if let Some(error) = replies
            .iter()
            .find(|reply| matches!(reply, Frame::Error(_)))
        {
            return (round, error.text());
        }
    }
    panic!("the slot does not move");
}
