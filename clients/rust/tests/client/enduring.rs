//! Servers that restart, are away, stop, are replaced by another master, or refuse for a moment: what is lost by that, and what not.

use crate::*;
use std::sync::Arc;
use std::time::Instant;
use tether_client::Guard;
use tether_testing::harness::{Client, Link, eventually};
use tokio::task::{JoinHandle, spawn_blocking};

type Waits = JoinHandle<Result<Guard, Error>>;

fn waits(locks: &Locks, key: &str, owner: &str) -> Waits {
    tokio::spawn(locks.lock(key).owner(owner).acquire())
}

fn errors(server: &Server, code: &str) -> bool {
    let stats = server.info("errorstats");
    stats.contains(&format!("errorstat_{code}:"))
}

/// Whether it is still held, for as long as a retry may take.
async fn is_kept(held: &Guard) {
    tokio::time::sleep(A_MOMENT * 4).await;
    assert_eq!(held.check(), Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restart_of_the_server_locks_can_be_had_again() {
    let mut server = Server::start();
    for grace in [None, Some(Duration::from_secs(5))] {
        let mut builder = Locks::builder(&url(&server));
        if let Some(grace) = grace {
            builder = builder.grace(grace);
        }
        let locks = soon(builder.connect()).await.unwrap();
        let held = soon(locks.lock("report").acquire()).await.unwrap();
        server.kill();
        server.restart_without_files();
        assert_eq!(soon(held.lost()).await, Loss::Connection);
        for round in 0..2 {
            let again = locks.lock(format!("report {round}")).acquire();
            assert_eq!(soon(again).await.unwrap().check(), Ok(()));
            hang_up(&server);
        }
        soon(locks.close()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_goes_on_while_the_server_is_away_and_restarts() {
    let mut server = Server::start();
    let locks = connect(&server).await;
    let held = soon(locks.lock("report").acquire()).await.unwrap();
    let next = waits(&locks, "report", "next");
    eventually_equal("waiters", 1, || waiters(&server));
    server.kill();
    assert_eq!(soon(held.lost()).await, Loss::Connection);
    // Asked for meanwhile: to wait is to wait for the server, too; at once is within what one attempt takes.
    let meanwhile = waits(&locks, "other", "next");
    let at_once = soon(locks.lock("third").no_wait().acquire()).await;
    assert!(matches!(at_once.err(), Some(Error::Unreachable(_))));
    server.restart_without_files();
    assert!(soon(next).await.unwrap().unwrap().token() > 0);
    drop(soon(meanwhile).await.unwrap().unwrap());
}

/// The fence is five seconds, and nothing here waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_time_to_wait_is_kept_whatever_the_server_does() {
    let mut server = Server::start();
    let locks = connect(&server).await;
    let _held = soon(locks.lock("report").acquire()).await.unwrap();
    let wait = |key: &str| {
        // Long enough for the client to hear that it waits.
        let request = locks.lock(key).owner("next").wait(A_MOMENT * 20);
        tokio::spawn(request.acquire())
    };
    let waiting = wait("report");
    eventually_equal("waiters", 1, || waiters(&server));
    // A server that is asked by two at once writes their replies in any order, but before it hears the next request.
    assert_eq!(waiters(&server), 1);
    let began = Instant::now();
    Server::signal(server.pid(), libc::SIGSTOP);
    let unanswered = wait("other");
    let refused = soon(waiting).await.unwrap().err();
    assert_eq!(refused, Some(Error::Taken));
    let refused = soon(unanswered).await.unwrap().err();
    assert!(matches!(refused, Some(Error::Unreachable(_))));
    assert!(
        began.elapsed() < Duration::from_secs(4),
        "not for the fence"
    );
    Server::signal(server.pid(), libc::SIGCONT);
    eventually_equal("holds", 1, || holds(&server));
    eventually_equal("waiters", 0, || waiters(&server));
    server.kill();
    let refused = soon(wait("report")).await.unwrap().err();
    assert!(matches!(refused, Some(Error::Unreachable(_))));
}

/// The fence falls, and the work needs its time to stop: until then nobody else may have the lock, though the server is there again
/// and the client, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_lost_by_silence_is_not_given_back_while_its_work_stops() {
    let server = Server::start();
    for grace in [None, Some(Duration::from_secs(20))] {
        let builder = Locks::builder(&url(&server)).fence(A_MOMENT * 10);
        let mut builder = builder.stop_within(Duration::from_secs(5));
        if let Some(grace) = grace {
            builder = builder.grace(grace);
        }
        let locks = soon(builder.connect()).await.unwrap();
        let name = format!("{grace:?}");
        let held = soon(locks.lock(&name).acquire()).await.unwrap();
        Server::signal(server.pid(), libc::SIGSTOP);
        assert_eq!(soon(held.lost()).await, Loss::Silence);
        Server::signal(server.pid(), libc::SIGCONT);
        drop(soon(locks.lock("another").acquire()).await.unwrap());
        let other = connect(&server).await;
        let refused = soon(other.lock(&name).no_wait().acquire()).await.err();
        assert_eq!(refused, Some(Error::Taken), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_watched_is_watched_on_after_a_restart() {
    let mut server = Server::start();
    let locks = connect(&server).await;
    let mut watch = locks.watch(["k"]);
    let states = |there: bool| match there {
        true => [
            tether_client::KeyChange::Exists,
            tether_client::KeyChange::Added,
        ],
        false => [
            tether_client::KeyChange::Missing,
            tether_client::KeyChange::Deleted,
        ],
    };
    assert!(states(false).contains(&soon(watch.next()).await.unwrap().change));
    server.resp2().run("SET k x");
    assert!(states(true).contains(&soon(watch.next()).await.unwrap().change));
    server.kill();
    server.restart_without_files();
    assert!(states(false).contains(&soon(watch.next()).await.unwrap().change));
    server.resp2().run("SET k x");
    assert!(states(true).contains(&soon(watch.next()).await.unwrap().change));
}

// ---- another master ----

/// Master and replica change places.
fn change_places(master: &Server, replica: &Server, by_failover: bool) {
    replica.catch_up(master);
    match by_failover {
        true => {
            eventually("the failover", || {
                let begun = master.resp2().call("FAILOVER TIMEOUT 10000");
                match begun == tether_testing::harness::ok() {
                    true => Ok(()),
                    false => Err(format!("{begun:?}")),
                }
            });
        }
        false => {
            replica.resp2().run("REPLICAOF NO ONE");
            let port = replica.port().to_string();
            master.resp2().run(["REPLICAOF", "127.0.0.1", &port]);
        }
    }
    eventually_equal("a master", true, || {
        replica.info("replication").contains("role:master")
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_planned_failover_costs_a_session_nothing() {
    for by_failover in [true, false] {
        let master = Server::start();
        let replica = Server::replica_of(&master, &[]);
        let locks = with_session(&master).await;
        let held = soon(locks.lock("report").acquire()).await.unwrap();
        let next = waits(&locks, "report", "next");
        let released = soon(locks.lock("released").acquire()).await.unwrap();
        let token = held.token();
        eventually_equal("waiters", 1, || waiters(&master));
        change_places(&master, &replica, by_failover);
        drop(released);
        eventually_equal("waiters at the new master", 1, || waiters(&replica));
        assert_eq!(held.check(), Ok(()));
        eventually_equal("holds at the new master", 1, || holds(&replica));
        assert_eq!(soon(held.release()).await, Ok(()));
        let next = soon(next).await.unwrap().unwrap();
        assert!(next.token() > token);
        // And back.
        eventually_equal("the link", true, || {
            master.info("replication").contains("master_link_status:up")
        });
        change_places(&replica, &master, by_failover);
        let other = soon(locks.lock("other").acquire()).await.unwrap();
        assert_eq!(next.check(), Ok(()));
        assert_eq!(soon(next.release()).await, Ok(()));
        assert_eq!(soon(other.release()).await, Ok(()));
        eventually_equal("holds", 0, || holds(&master));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_session_a_planned_failover_costs_what_is_held_and_no_more() {
    for by_failover in [true, false] {
        let master = Server::start();
        let replica = Server::replica_of(&master, &[]);
        let locks = connect(&master).await;
        let idle = connect(&master).await;
        let held = soon(locks.lock("report").acquire()).await.unwrap();
        let next = waits(&locks, "report", "next");
        eventually_equal("waiters", 1, || waiters(&master));
        change_places(&master, &replica, by_failover);
        assert_eq!(soon(held.lost()).await, Loss::Told("demoted".into()));
        assert_eq!(soon(next).await.unwrap().unwrap().check(), Ok(()));
        // One that heard nothing of it, on a connection that stays open.
        let at_once = soon(idle.lock("other").no_wait().acquire()).await;
        assert_eq!(at_once.unwrap().check(), Ok(()));
    }
}

// ---- what a server refuses for a moment ----

#[derive(Clone, Copy)]
enum Taken {
    AtOnce,
    /// Until then the server answers with this error.
    Later(&'static str),
}

/// What is given back meanwhile is taken at once, or once the server takes it, and nothing else is lost.
async fn give_back_while(
    server: &mut Server,
    taken: Taken,
    begin: impl FnOnce(&mut Client),
    end: impl FnOnce(&mut Client),
) {
    let mut admin = server.resp2();
    let (plain, session) = (connect(server).await, with_session(server).await);
    let mut kept = Vec::new();
    let mut released = Vec::new();
    for (locks, name) in [(&plain, "plain"), (&session, "session")] {
        kept.push(
            soon(locks.lock(format!("kept {name}")).acquire())
                .await
                .unwrap(),
        );
        released.push(soon(locks.lock(name).acquire()).await.unwrap());
        let temporary = locks.temporary_key(format!("temporary {name}"), "x");
        released.push(soon(temporary.acquire()).await.unwrap());
    }
    begin(&mut admin);
    let released: Vec<_> = released
        .into_iter()
        .map(|guard| tokio::spawn(guard.release()))
        .collect();
    for held in &kept {
        is_kept(held).await;
    }
    match taken {
        Taken::AtOnce => {
            given_back(released).await;
            end(&mut admin);
        }
        // The calls return with the first answer; the client goes on.
        Taken::Later(code) => {
            given_back(released).await;
            end(&mut admin);
            assert!(errors(server, code), "{}", server.info("errorstats"));
        }
    }
    for held in kept {
        assert_eq!(held.check(), Ok(()));
        assert_eq!(soon(held.release()).await, Ok(()));
    }
    eventually_equal("holds", 0, || holds(server));
}

async fn given_back(released: Vec<JoinHandle<Result<(), Error>>>) {
    for release in released {
        assert_eq!(soon(release).await.unwrap(), Ok(()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_lacks_replicas_takes_releases() {
    let begin = |admin: &mut Client| {
        admin.run("CONFIG SET min-replicas-to-write 1");
    };
    let end = |admin: &mut Client| {
        admin.run("CONFIG SET min-replicas-to-write 0");
    };
    give_back_while(&mut Server::start(), Taken::AtOnce, begin, end).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_lacks_a_disk_takes_releases() {
    let mut server = Server::start();
    let file = server.folder().join("dump.rdb");
    let save = |admin: &mut Client, becomes: &'static str| {
        admin.run("BGSAVE");
        eventually("the end of the save", || {
            let info = admin.run("INFO persistence").text().to_owned();
            let is_over = info.contains("rdb_bgsave_in_progress:0")
                && info.contains(&format!("rdb_last_bgsave_status:{becomes}"));
            if is_over { Ok(()) } else { Err(info) }
        });
    };
    let begin = |admin: &mut Client| {
        admin.run("CONFIG SET appendonly no");
        admin.run(["CONFIG", "SET", "save", "3600 1"]);
        let _ = std::fs::remove_file(&file);
        std::fs::create_dir(&file).unwrap();
        save(admin, "err");
    };
    let end = |admin: &mut Client| {
        std::fs::remove_dir(&file).unwrap();
        save(admin, "ok");
    };
    give_back_while(&mut server, Taken::AtOnce, begin, end).await;
}

/// Runs a script that ends when it is killed. Whoever is not answered is told BUSY.
fn keep_busy(port: u16) -> Client {
    let [mut script, mut admin] = [(); 2].map(|()| Client::connect(("127.0.0.1", port)).unwrap());
    admin.run("CONFIG SET busy-reply-threshold 10");
    script.send(["EVAL", "while true do end", "0"]);
    eventually("a busy server", || {
        let said = format!("{:?}", admin.call("PING"));
        if said.contains("BUSY") {
            Ok(())
        } else {
            Err(said)
        }
    });
    script
}

fn stop_script(admin: &mut Client) {
    eventually("the end of the script", || {
        let said = format!("{:?}", admin.call("SCRIPT KILL"));
        if said.contains("NOTBUSY") {
            Ok(())
        } else {
            Err(said)
        }
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_to_a_busy_server_is_sent_again() {
    let mut server = Server::start();
    let port = server.port();
    let script = std::cell::OnceCell::new();
    let begin = |_: &mut Client| {
        let _ = script.set(keep_busy(port));
    };
    give_back_while(&mut server, Taken::Later("BUSY"), begin, stop_script).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_busy_when_the_connection_breaks_costs_a_session_nothing() {
    let server = Arc::new(Server::start());
    let link = Link::to(server.port());
    let builder = Locks::builder(&format!("redis://127.0.0.1:{}", link.port()));
    let builder = builder.grace(Duration::from_secs(20));
    let locks = soon(builder.connect()).await.unwrap();
    let held = soon(locks.lock("report").acquire()).await.unwrap();
    let _script = keep_busy(server.port());
    link.break_off();
    is_kept(&held).await;
    stop_script(&mut server.resp2());
    let next = soon(locks.lock("next").acquire()).await.unwrap();
    assert!(next.token() > held.token());
    assert_eq!(soon(held.release()).await, Ok(()));
    assert!(errors(&server, "BUSY"));
}

// ---- sockets and the end of a program ----

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unix_socket_needs_no_grace() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let server = Server::with(&[&format!("unixsocket {}", path.display())]);
    for grace in [None, Some(Duration::from_secs(20))] {
        let mut builder = Locks::builder(&format!("unix://{}", path.display()));
        if let Some(grace) = grace {
            builder = builder.grace(grace);
        }
        let locks = soon(builder.connect()).await.unwrap();
        let held = soon(locks.lock("report").acquire()).await.unwrap();
        assert_eq!(held.check(), Ok(()));
        assert_eq!(soon(held.release()).await, Ok(()));
    }
    assert_eq!(holds(&server), 0);
}

/// The runtime ends in the same moment, and with it everything that could send.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_that_is_dropped_at_the_end_of_main_is_in_nobodys_way() {
    let server = Arc::new(Server::start());
    for is_many in [false, true] {
        for drops_locks in [false, true] {
            let url = url(&server);
            let main = move || {
                let mut runtime = match is_many {
                    true => tokio::runtime::Builder::new_multi_thread(),
                    false => tokio::runtime::Builder::new_current_thread(),
                };
                let runtime = runtime.enable_all().build().unwrap();
                let locks = runtime.block_on(async {
                    let builder = Locks::builder(&url).grace(Duration::from_secs(60));
                    let locks = builder.connect().await.unwrap();
                    let guard = locks.lock("report").acquire().await.unwrap();
                    drop(guard);
                    (!drops_locks).then_some(locks)
                });
                drop(runtime);
                drop(locks);
            };
            spawn_blocking(main).await.unwrap();
            let next = connect(&server).await;
            let next = soon(next.lock("report").no_wait().acquire()).await;
            assert_eq!(next.unwrap().check(), Ok(()));
            assert_eq!(server.gauge("tether", "tether_sessions_detached"), 0);
        }
    }
}

/// What is held still is relied on, perhaps: it stays for the grace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_that_outlives_its_runtime_is_lost_and_its_lock_stays_for_the_grace() {
    let server = Server::start();
    let url = url(&server);
    let main = move || {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_all().build().unwrap();
        let held = runtime.block_on(async {
            let builder = Locks::builder(&url).grace(Duration::from_secs(60));
            let locks = builder.connect().await.unwrap();
            locks.lock("report").acquire().await.unwrap()
        });
        drop(runtime);
        held.check()
    };
    let check = spawn_blocking(main).await.unwrap();
    assert_eq!(check, Err(Loss::Connection));
    assert_eq!(holds(&server), 1);
}
