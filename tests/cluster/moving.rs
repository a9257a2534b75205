//! Slots that move, key by key or in one go, while keys in them are held, watched and waited for.

use crate::backstop::{BACKSTOP_MS, SHORT, unless_it_stands_still, watch_it_live};
use crate::harness::*;
use crate::line::{holders, queue, queue_push, tether};
use crate::nodes::{AGREEMENT, Cluster, name_in, pushes_at_last, redis_cli};
use std::time::{Duration, Instant};

const SLOT: u16 = 9;

/// Until a key moves its server may stand still for as long as a busy machine makes it.
const NONE_YET: &str = "tether.cluster-backstop 0";

/// Gives a held key a short time to live.
fn back_up(server: &Server, key: &str) {
    let mut client = server.resp2();
    client.run(&format!("CONFIG SET {SHORT}"));
    eventually("a time to live", || {
        match client.run(["PTTL", key]).number() {
            1..=BACKSTOP_MS => Ok(()),
            left => Err(left.to_string()),
        }
    });
}

#[test]
fn a_key_that_moves_is_lost_and_ends_where_nobody_owns_it() {
    unless_it_stands_still(|| {
        let cluster = Cluster::of_masters(2, &[NONE_YET]);
        let (source, target) = (&cluster.servers[0], &cluster.servers[1]);
        let key = name_in(SLOT);
        let (mut owner, mut watcher) = (source.resp3(), source.resp3());
        let (mut blocked, mut pushed, mut newcomer) =
            (source.resp2(), source.resp3(), source.resp3());
        owner.run(["SETTP", &key, "v"]);
        watcher.run(["WATCHEX", &key]);
        queue(source, &mut blocked, &format!("SETTP {key} w WAIT 0"));
        queue_push(&mut pushed, &format!("SETTP {key} w WAIT 0 PUSH"));
        cluster.open_slot(SLOT, 0, 1);
        // As long as the key is here, so are its owners.
        let mut first = source.resp3();
        queue(source, &mut first, &format!("SETTP {key} first WAIT 0"));
        owner.run(["DELTP", &key]);
        assert_eq!(blocked.read_reply(), int(1));
        let (mut owner, blocked) = (blocked, owner);
        drop(blocked);
        back_up(source, &key);
        cluster.migrate(&[&key], 0, 1);
        let there = format!("ASK {SLOT} {}", cluster.address(1));
        assert_eq!(pushed.next_push(), format!("settp {key} FAILED {there}"));
        assert_eq!(first.read_reply().text(), there);
        assert_eq!(newcomer.refused(["SETTP", &key, "n"]), there);
        assert_eq!(watcher.next_push(), format!("watchex {key} DEL"));
        assert_eq!(tether(source, "lost_total"), 1);
        assert_eq!(tether(source, "waiters"), 0);
        // Who follows waits its turn there: until the time of the key that nobody owns is over.
        let mut follower = target.resp3();
        follower.run("ASKING");
        let request = format!("SETTP {key} follower WAIT 0");
        queue(target, &mut follower, &request);
        cluster.close_slot(SLOT, 0, 1);
        let moved = format!("MOVED {SLOT} {}", cluster.address(1));
        assert_eq!(owner.refused(["DELTP", &key]), moved);
        target.resp2().run(&format!("CONFIG SET {SHORT}"));
        assert_eq!(follower.read_reply(), int(1));
        // The follower's is renewed.
        watch_it_live(&mut target.resp2(), &mut follower, &key, 1)?;
        assert_eq!(target.resp2().call(["GET", &key]), bulk("follower"));
        assert_eq!(source.settled(&mut watcher), [""; 0]);
        assert_eq!(tether(source, "temporary_keys"), 0);
        Ok(())
    });
}

/// That who waited is sent after the key is told between its two names.
#[test]
fn what_is_renamed_while_its_slot_is_on_its_way_is_held_by_its_new_name() {
    let cluster = Cluster::of_masters(2, &[NONE_YET]);
    let source = &cluster.servers[0];
    let tag = name_in(SLOT);
    let [from, to] = ["a", "b"].map(|name| format!("{{{tag}}}{name}"));
    cluster.open_slot(SLOT, 0, 1);
    let there = format!("ASK {SLOT} {}", cluster.address(1));
    let mut other = source.resp2();
    let ways = [
        ("LOCK.ACQUIRE", "", "LOCK.RELEASE", 0, "lock"),
        ("SETTP", " v", "DELTP", 1, "settp"),
    ];
    for (take, value, give_back, given_back, kind) in ways {
        cluster.close_slot(SLOT, 1, 0);
        let (mut owner, mut waiter) = (source.resp3(), source.resp3());
        let token = owner.run(&format!("{take} {from}{value} NOTIFY"));
        assert!(token.number() > 0);
        queue_push(&mut waiter, &format!("{take} {from}{value} WAIT 0 PUSH"));
        other.run(["SET", &to, "x"]);
        cluster.open_slot(SLOT, 0, 1);
        other.run(["RENAME", &from, &to]);
        let failed = format!("{kind} {from} FAILED {there}");
        assert_eq!(waiter.next_push(), failed);
        assert_eq!(holders(source, &to), [owner.id()]);
        let refused = other.call(&format!("{take} {to}{value}"));
        assert!(matches!(refused, Frame::Null | Frame::Integer(0)) || refused == null());
        let reply = owner.call([give_back, &to]);
        assert_eq!(reply, int(given_back));
        assert_eq!(other.call("DBSIZE"), int(0));
        assert_eq!(source.settled(&mut owner), [""; 0]);
        assert_eq!(tether(source, "lost_total"), 0);
    }
}

#[test]
fn an_owner_on_resp3_hears_lost_once() {
    unless_it_stands_still(|| {
        let cluster = Cluster::of_masters(2, &[NONE_YET]);
        let key = name_in(SLOT);
        let mut owner = cluster.servers[0].resp3();
        owner.run(["SETTP", &key, "v", "NOTIFY"]);
        cluster.open_slot(SLOT, 0, 1);
        let begin = Instant::now();
        back_up(&cluster.servers[0], &key);
        cluster.migrate(&[&key], 0, 1);
        cluster.close_slot(SLOT, 0, 1);
        assert_eq!(owner.next_push(), format!("settp {key} LOST moved"));
        let mut other = cluster.servers[1].resp2();
        let left = other.run(["PTTL", &key]).number();
        if left == -2 && begin.elapsed() >= Duration::from_millis(BACKSTOP_MS as u64) {
            return Err(begin.elapsed());
        }
        assert!((1..=BACKSTOP_MS).contains(&left), "{left}");
        eventually_gone(&mut other, &key);
        assert_eq!(cluster.servers[0].settled(&mut owner), [""; 0]);
        Ok(())
    });
}

/// What happens to a master that comes back and finds that another has its slot.
#[test]
fn a_slot_that_is_taken_away_takes_its_keys_along() {
    let cluster = Cluster::of_masters(2, &[]);
    let (source, target) = (&cluster.servers[0], &cluster.servers[1]);
    let key = name_in(SLOT);
    let lock = format!("{{{key}}}lock");
    let stranger = format!("{{{key}}}stranger");
    let (mut owner, mut watcher) = (source.resp3(), source.resp3());
    let (mut blocked, mut other) = (source.resp2(), source.resp2());
    other.run(["SET", &stranger, "v"]);
    watcher.run(["WATCHEX", &key, &stranger]);
    owner.run(["LOCK.ACQUIRE", &lock, "NOTIFY"]);
    queue(source, &mut blocked, &format!("SETTP {stranger} w WAIT 0"));
    // The last command before is the owner's: it is not to blame.
    owner.run(["SETTP", &key, "v", "NOTIFY"]);
    let (from, to) = (cluster.id(0), cluster.id(1));
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
    assert_eq!(watcher.next_push(), format!("watchex {key} ADD"));
    let mut gone = watcher.next_pushes(2);
    gone.sort();
    let mut expected = [
        format!("watchex {key} DEL"),
        format!("watchex {stranger} DEL"),
    ];
    expected.sort();
    assert_eq!(gone, expected);
    let moved = format!("MOVED {SLOT} {}", cluster.address(1));
    assert_eq!(blocked.read_reply().text(), moved);
    for name in ["temporary_keys", "holds", "waiters"] {
        assert_eq!(tether(source, name), 0, "{name}");
    }
    assert_eq!(client.call("DBSIZE"), int(0));
    cluster.agree();
    redis_cli(&["check", &cluster.address(0)]);
}

/// Two servers would grant the same key.
#[test]
fn nobody_is_granted_what_is_in_a_slot_that_was_taken_away() {
    let cluster = Cluster::of_masters(2, &[]);
    let (source, target) = (&cluster.servers[0], &cluster.servers[1]);
    let key = name_in(SLOT);
    let lock = format!("{{{key}}}lock");
    let (mut owner, mut dying) = (source.resp3(), source.resp3());
    let (mut next, mut heir) = (source.resp3(), source.resp3());
    owner.run(["LOCK.ACQUIRE", &lock]);
    dying.run(["SETTP", &key, "v"]);
    queue_push(&mut next, &format!("LOCK.ACQUIRE {lock} WAIT 0 PUSH"));
    queue_push(&mut heir, &format!("SETTP {key} heir WAIT 0 PUSH"));
    let (from, to) = (cluster.id(0), cluster.id(1));
    let mut client = target.resp2();
    client.run(&format!("CLUSTER SETSLOT {SLOT} IMPORTING {from}"));
    client.run(&format!("CLUSTER SETSLOT {SLOT} NODE {to}"));
    let moved = format!("MOVED {SLOT} {}", cluster.address(1));
    let mut stranger = source.resp2();
    eventually_within(AGREEMENT, "the loss of the slot", || {
        match stranger.call(["GET", &key]).text() {
            answer if answer == moved => Ok(()),
            other => Err(other),
        }
    });
    drop(dying);
    assert_eq!(next.next_push(), format!("lock {lock} FAILED {moved}"));
    assert_eq!(heir.next_push(), format!("settp {key} FAILED {moved}"));
    for name in ["temporary_keys", "holds", "waiters"] {
        assert_eq!(tether(source, name), 0, "{name}");
    }
}

/// What is not there would be granted here and, to who asks there, by the server that the slot goes to.
#[test]
fn a_request_for_several_keys_of_a_slot_on_its_way_is_granted_only_what_is_here() {
    let cluster = Cluster::of_masters(2, &[]);
    let (source, target) = (&cluster.servers[0], &cluster.servers[1]);
    for (slot, is_held_first) in [(SLOT, false), (SLOT + 1, true)] {
        let [held, other] = ["held", "other"].map(|name| format!("{{{}}}{name}", name_in(slot)));
        let (mut holder, mut pushed) = (source.resp2(), source.resp3());
        let (mut behind, mut there) = (source.resp2(), target.resp2());
        holder.run(["LOCK.ACQUIRE", &held]);
        if is_held_first {
            holder.run(["LOCK.ACQUIRE", &other]);
        }
        let both = format!("LOCK.MACQUIRE 2 {held} {other} WAIT 0 PUSH");
        queue_push(&mut pushed, &both);
        queue(source, &mut behind, &format!("LOCK.ACQUIRE {other} WAIT 0"));
        let (from, to) = (cluster.id(0), cluster.id(1));
        there.run(&format!("CLUSTER SETSLOT {slot} IMPORTING {from}"));
        let leaves = format!("CLUSTER SETSLOT {slot} MIGRATING {to}");
        let release = [&other, &held].map(|key| format!("LOCK.RELEASE {key}"));
        // In one go: whatever becomes of the slot, nothing of ours comes between.
        let mut commands = vec![leaves.as_str()];
        commands.extend(release[usize::from(!is_held_first)..].iter().map(|c| &**c));
        holder.pipeline(&commands);
        holder.read_replies(commands.len());
        let ask = format!("ASK {slot} {}", cluster.address(1));
        assert!(pushed.next_push().ends_with(&format!("FAILED {ask}")));
        assert_eq!(behind.read_reply().text(), ask);
        there.run("ASKING");
        there.run(["LOCK.ACQUIRE", &other]);
        for gauge in ["holds", "waiters"] {
            assert_eq!(tether(source, gauge), 0, "{gauge}");
        }
    }
}
