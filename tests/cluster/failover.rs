//! Masters that are replaced by their replicas.

use crate::backstop::{assert_times, session_with_times};
use crate::harness::*;
use crate::line::{queue, tether};
use crate::nodes::{AGREEMENT, Cluster, SLOTS, name_in};
use std::time::{Duration, Instant};

/// The first master's slots, in which the tests' keys are.
fn names(count: u16) -> Vec<String> {
    (0..count).map(name_in).collect()
}

/// Waits until a replica has taken its master's place.
pub fn promoted(server: &Server) {
    eventually_within(AGREEMENT, "the promotion", || {
        let info = server.info("replication");
        let is_master = info.contains("role:master");
        if is_master { Ok(()) } else { Err(info) }
    });
}

/// Has a replica take its master's place, while both go on. A server gives such an attempt up after five seconds, on
/// a busy machine before the others have answered, and refuses it where a link to the master is not up at the moment.
pub fn take_over(cluster: &Cluster, number: usize) {
    const ATTEMPT: Duration = Duration::from_secs(6);
    let server = &cluster.servers[number];
    let mut client = server.resp2();
    let mut tried = None::<(Instant, Frame)>;
    eventually_within(AGREEMENT, "the promotion", || {
        let info = server.info("replication");
        if info.contains("role:master") {
            return Ok(());
        }
        match &tried {
            Some((at, answer)) if *answer == ok() && at.elapsed() < ATTEMPT => {}
            _ => tried = Some((Instant::now(), client.call("CLUSTER FAILOVER"))),
        }
        Err(format!("{tried:?}, {info}"))
    });
}

#[test]
fn when_a_master_dies_its_replica_has_no_ghosts_and_gives_greater_tokens() {
    let mut cluster = Cluster::with_replicas(&[]);
    let names = names(20);
    let (old, new) = (&cluster.servers[0], &cluster.servers[3]);
    let mut owner = old.resp3();
    let mut token = 0;
    for name in &names {
        token = owner.run(["SETTP", name, "v", "TOKEN"]).number();
        token = owner
            .run(["LOCK.ACQUIRE", &format!("{{{name}}}lock")])
            .number()
            .max(token);
    }
    new.catch_up(old);
    let mut watcher = new.resp3();
    watcher.run("READONLY");
    assert_eq!(watcher.call(["WATCHEX", &names[7]]), bulk("EXIST"));
    assert_eq!(new.resp2().call("DBSIZE"), int(40));
    cluster.servers[0].kill();
    promoted(&cluster.servers[3]);
    cluster.agree();
    let new = &cluster.servers[3];
    assert_eq!(watcher.next_push(), format!("watchex {} DEL", names[7]));
    let mut client = new.resp3();
    for name in &names {
        let next = client.run(["SETTP", name, "w", "TOKEN"]).number();
        assert!(
            next > token,
            "{name} is a ghost's, or {next} is not after {token}"
        );
        let lock = format!("{{{name}}}lock");
        token = client.run(["LOCK.ACQUIRE", &lock]).number();
    }
    assert_eq!(new.resp2().call("DBSIZE"), int(40));
    // The old master comes back as a replica, and knows nothing better.
    let servers = &mut cluster.servers;
    servers[0].restart_as_it_was();
    eventually_within(AGREEMENT, "the old master's new role", || {
        let info = servers[0].info("replication");
        if info.contains("master_link_status:up") {
            Ok(())
        } else {
            Err(info)
        }
    });
    servers[0].catch_up(&servers[3]);
    assert_eq!(servers[0].resp2().call("DBSIZE"), int(40));
    drop(client);
    eventually("the end of all keys", || {
        match servers[3].resp2().run("DBSIZE").number() {
            0 => Ok(()),
            left => Err(left.to_string()),
        }
    });
    servers[0].catch_up(&servers[3]);
    assert_eq!(servers[0].resp2().call("DBSIZE"), int(0));
}

#[test]
fn when_a_replica_is_asked_to_take_over_everyone_at_the_old_master_hears() {
    let cluster = Cluster::with_replicas(&[]);
    let (old, new) = (&cluster.servers[0], &cluster.servers[3]);
    let key = name_in(SLOTS / 6);
    let (mut owner, mut waiter, mut watcher) = (old.resp3(), old.resp2(), old.resp3());
    let token = owner.run(["SETTP", &key, "v", "TOKEN", "NOTIFY"]).number();
    watcher.run(["WATCHEX", &key]);
    queue(old, &mut waiter, &format!("SETTP {key} w WAIT 0"));
    let of_session = |name: &str| format!("{{{key}}}{name}");
    let secret = session_with_times(old, of_session);
    new.catch_up(old);
    take_over(&cluster, 3);
    cluster.agree();
    assert_times(new, of_session, &secret);
    assert_eq!(
        owner.next_push_within(AGREEMENT),
        format!("settp {key} LOST demoted")
    );
    // Redis says UNBLOCKED and hangs up, Valkey 9 leaves it to the module.
    let said = waiter.read_reply().text();
    let moved = format!("MOVED {} {}", SLOTS / 6, cluster.address(3));
    assert!(
        said.starts_with("UNBLOCKED ") || said == moved || said.starts_with("TRYAGAIN "),
        "{said}"
    );
    let mut client = new.resp3();
    let next = client.run(["SETTP", &key, "w", "TOKEN"]).number();
    assert!(next > token, "{next} after {token}");
    // The watcher at the old master, a replica now, hears of the end and of the new beginning.
    let pushes = [
        watcher.next_push_within(AGREEMENT),
        watcher.next_push_within(AGREEMENT),
    ];
    assert_eq!(
        pushes,
        [format!("watchex {key} DEL"), format!("watchex {key} ADD")]
    );
    assert_eq!(old.settled(&mut owner), [""; 0]);
    assert_eq!(
        (tether(old, "waiters"), tether(old, "temporary_keys")),
        (0, 5)
    );
    drop(client);
    assert_eq!(watcher.next_push(), format!("watchex {key} DEL"));
}

/// Until its first cron a replica has no master that a module could ask for, but its timers run.
#[test]
fn a_replica_that_starts_alone_keeps_what_sessions_hold() {
    let mut cluster = Cluster::of_masters(1, &["tether.cluster-backstop 0"]);
    cluster.add_replica(0, &["tether.cluster-backstop 0"]);
    let mut owner = cluster.servers[0].resp2();
    let secret = owner.run("SESSION.START GRACE 600000").text();
    let token = owner.run("LOCK.ACQUIRE k").number();
    owner.run("SETTP temporary v");
    let mut plain = cluster.servers[0].resp2();
    plain.run("LOCK.ACQUIRE plain");
    let [old, new] = &mut cluster.servers[..] else {
        panic!("two servers");
    };
    new.catch_up(old);
    assert_eq!(new.resp2().call("SAVE"), ok());
    old.kill();
    new.restart_as_it_was();
    let mut client = new.resp2();
    assert_eq!(client.run("DBSIZE"), int(3));
    assert_eq!(client.call("CLUSTER FAILOVER TAKEOVER"), ok());
    promoted(new);
    let resume = ["SESSION.RESUME", &secret];
    let held = eventually_within(AGREEMENT, "the session", || match client.call(resume) {
        Frame::Integer(held) => Ok(held),
        reply => Err(reply.text()),
    });
    assert_eq!(held, 2);
    assert_eq!(client.run("LOCK.CANCEL k").number(), token);
    for (key, there) in [("k", 1), ("temporary", 1), ("plain", 0)] {
        assert_eq!(client.run(["EXISTS", key]), int(there), "{key}");
    }
}
