//! Lock keys that come from elsewhere: nobody here holds them, so they go.

use crate::harness::*;
use crate::line::tether;
use crate::nodes::{Cluster, name_in};

/// What DUMP says of a lock.
fn dump(server: &Server) -> Vec<u8> {
    let mut client = server.resp2();
    client.run("LOCK.ACQUIRE dumped");
    client.run("DUMP dumped").bytes()
}

fn restore(client: &mut Client, key: &str, ttl: &str, bytes: &[u8]) -> Frame {
    client.call([b"RESTORE", key.as_bytes(), ttl.as_bytes(), bytes])
}

#[test]
fn a_restored_lock_refuses_nobody_and_goes() {
    let server = Server::start();
    let bytes = dump(&server);
    let (mut client, mut other, mut watcher) = (server.resp2(), server.resp2(), server.resp3());
    watcher.run("WATCHEX ghost taken");
    assert_eq!(restore(&mut client, "ghost", "0", &bytes), ok());
    assert_eq!(
        watcher.next_pushes(2),
        ["watchex ghost ADD", "watchex ghost DEL"]
    );
    assert_eq!(client.call("EXISTS ghost"), int(0));
    // Nobody holds it, so it can be had at once, without the time that it was given.
    let multi = [b"RESTORE".as_slice(), b"taken", b"80", &bytes];
    client.run("MULTI");
    client.run(multi);
    client.run("LOCK.ACQUIRE taken NOTIFY");
    let replies = client.run("EXEC").items();
    assert!(replies[1].number() > 0, "{replies:?}");
    assert_eq!(other.call("LOCK.ACQUIRE taken"), null());
    assert_eq!(other.call("PTTL taken"), int(-1));
    assert_eq!(watcher.next_push(), "watchex taken ADD");
    // In place of a lock that is held, it ends that hold.
    let mut owner = server.resp3();
    owner.run("LOCK.ACQUIRE held NOTIFY");
    client.run([b"RESTORE".as_slice(), b"held", b"0", &bytes, b"REPLACE"]);
    assert_eq!(owner.next_push(), "lock held LOST overwritten");
    eventually_gone(&mut other, "held");
    assert_eq!(tether(&server, "holds"), 1);
    let message = client.refused("COPY taken copied");
    assert!(message.contains("not supported"), "{message}");
}

#[test]
fn a_restored_lock_is_no_ghost_after_a_restart_or_on_a_replica() {
    let mut master = Server::with(&["appendonly yes", "appendfsync always"]);
    let bytes = dump(&master);
    let replica = Server::replica_of(&master, &[]);
    let mut client = master.resp2();
    // The removal has to wait, so the server dies with the key.
    client.run("MULTI");
    client.run([b"RESTORE".as_slice(), b"ghost", b"0", &bytes]);
    client.run("CLIENT PAUSE 60000 WRITE");
    client.run("EXEC");
    assert_eq!(client.call("EXISTS ghost"), int(1));
    drop(client);
    master.crash_and_restart();
    eventually_gone(&mut master.resp2(), "ghost");
    replica.catch_up(&master);
    replica.resp2().run("REPLICAOF NO ONE");
    eventually_gone(&mut replica.resp2(), "ghost");
}

#[test]
fn a_lock_s_slot_can_move() {
    let cluster = Cluster::of_masters(2, &[]);
    let key = name_in(5);
    let (source, target) = (&cluster.servers[0], &cluster.servers[1]);
    let (mut owner, mut waiter, mut watcher) = (source.resp3(), source.resp3(), target.resp3());
    owner.run(["LOCK.ACQUIRE", &key, "SHARED", "NOTIFY"]);
    crate::line::queue(source, &mut waiter, &format!("LOCK.ACQUIRE {key} WAIT 0"));
    cluster.open_slot(5, 0, 1);
    watcher.run("ASKING");
    assert_eq!(watcher.call(["WATCHEX", &key]), bulk("NOEXIST"));
    cluster.migrate(&[&key], 0, 1);
    assert_eq!(owner.next_push(), format!("lock {key} LOST moved"));
    assert_eq!(
        waiter.read_reply().text(),
        format!("ASK 5 {}", cluster.address(1))
    );
    assert_eq!(
        watcher.next_pushes(2),
        [format!("watchex {key} ADD"), format!("watchex {key} DEL")]
    );
    cluster.close_slot(5, 0, 1);
    let mut next = target.resp3();
    assert!(next.call(["LOCK.ACQUIRE", &key]).number() > 0);
    for server in [source, target] {
        assert_eq!(tether(server, "waiters"), 0);
    }
    assert_eq!((tether(source, "holds"), tether(target, "holds")), (0, 1));
}
