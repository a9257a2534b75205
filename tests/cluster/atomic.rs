//! Valkey 9 moves slots in one go, by sending a snapshot and then what happens to their keys.

use crate::backstop::{Watched, unless_it_stands_still};
use crate::failover::promoted;
use crate::harness::*;
use crate::line::{queue, tether};
use crate::nodes::{Cluster, name_in, pushes_at_last};
use std::time::{Duration, Instant};

const SLOT: u16 = 11;
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
    if !source.is_at_least((u32::MAX, 0), (9, 0)) {
        say("this server has no CLUSTER MIGRATESLOTS");
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
    watcher.run(["WATCHEX", &name(0), &name(100)]);
    queue(source, &mut waiter, &format!("SETTP {} w WAIT 0", name(0)));
    let migrate = format!(
        "CLUSTER MIGRATESLOTS SLOTSRANGE {SLOT} {SLOT} NODE {}",
        cluster.id(1)
    );
    let begin = Instant::now();
    for server in [target, source] {
        server
            .resp2()
            .run("CONFIG SET tether.cluster-backstop 2500");
    }
    source.resp2().run(&migrate);
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
        let keys = client.run("KEYS *").items();
        if keys == [bulk(&stays)] {
            Ok(())
        } else {
            Err(format!("{} keys, such as {:?}", keys.len(), keys.first()))
        }
    });
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
    if !cluster.servers[0].is_at_least((u32::MAX, 0), (9, 0)) {
        say("this server has no CLUSTER MIGRATESLOTS");
        return Ok(());
    }
    let number = cluster.add_replica(1, &lines);
    let (source, target) = (&cluster.servers[0], &cluster.servers[1]);
    let replica = &cluster.servers[number];
    let tag = name_in(SLOT);
    let migrate = format!(
        "CLUSTER MIGRATESLOTS SLOTSRANGE {SLOT} {SLOT} NODE {}",
        cluster.id(1)
    );
    // The session's key is told of in another way.
    let (mut owner, mut session) = (source.resp3(), source.resp3());
    session.run("SESSION.START");
    let mut names = Vec::new();
    let begin = Instant::now();
    source.resp2().run(&migrate);
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
    let all = int(names.len() as i64);
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
