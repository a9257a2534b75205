//! Locks on a real server: guards, sessions, the fence.

use crate::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tether_client::{Observer, Unfit};
use tether_testing::harness::eventually;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_holds_it_and_tokens_rise() {
    let server = Server::start();
    let (ann, bob) = (connect(&server).await, connect(&server).await);
    let first = soon(ann.lock("report").acquire()).await.unwrap();
    assert_eq!(first.check(), Ok(()));
    let taken = soon(bob.lock("report").no_wait().acquire()).await;
    assert_eq!(taken.err(), Some(Error::Taken));
    let in_vain = bob.lock("report").wait(Duration::from_millis(30));
    assert_eq!(soon(in_vain.acquire()).await.err(), Some(Error::Taken));
    let token = first.token();
    assert_eq!(soon(first.release()).await, Ok(()));
    let second = soon(bob.lock("report").acquire()).await.unwrap();
    assert!(second.token() > token);
    // Nobody waits for the server when a guard is dropped, and the next is served all the same.
    let third = ann.lock("report").acquire();
    drop(second);
    assert!(soon(third).await.unwrap().check().is_ok());
    eventually_equal("holds", 0, || holds(&server));
}

/// Data of the same server, by a connection of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_runs_a_command_only_while_it_knows_the_lock_as_held() {
    let server = Server::start();
    let locks = connect(&server).await;
    let client = redis::Client::open(format!("redis://127.0.0.1:{}", server.port())).unwrap();
    let mut data = client.get_multiplexed_async_connection().await.unwrap();
    let held = soon(locks.all(["report", "list"]).acquire()).await.unwrap();
    held.check_server(&mut data).await.unwrap();
    let mut set = redis::cmd("SET");
    set.arg("data").arg("new");
    let reply: String = held.run(&mut data, &set).await.unwrap();
    assert_eq!(reply, "OK");
    // Somebody ends it; the guard may not know that yet.
    server.resp2().run("DEL report list");
    let error = held.run::<String>(&mut data, &set).await.unwrap_err();
    assert_eq!(error.code(), Some("STALE"));
    let error = held.check_server(&mut data).await.unwrap_err();
    assert_eq!(error.code(), Some("STALE"));
    server.resp2().run("RPUSH list a");
    let other = soon(locks.lock("other").acquire()).await.unwrap();
    let mut get = redis::cmd("GET");
    get.arg("list");
    let error = other.run::<String>(&mut data, &get).await.unwrap_err();
    assert_eq!(error.code(), Some("WRONGTYPE"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_is_granted_it_by_a_push() {
    let server = Server::start();
    let (ann, bob) = (connect(&server).await, connect(&server).await);
    let held = soon(ann.lock("report").acquire()).await.unwrap();
    let waits = tokio::spawn(bob.lock("report").acquire());
    eventually_equal("waiters", 1, || waiters(&server));
    soon(held.release()).await.unwrap();
    let granted = soon(waits).await.unwrap().unwrap();
    assert_eq!(granted.check(), Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_permits_and_several_at_once() {
    let server = Server::start();
    let locks = connect(&server).await;
    let reader = |owner: &str| locks.lock("page").owner(owner).shared().no_wait().acquire();
    let readers = (reader("one").await.unwrap(), reader("two").await.unwrap());
    let writer = locks.lock("page").owner("three").no_wait().acquire().await;
    assert_eq!(writer.err(), Some(Error::Taken));
    drop(readers);
    let permit = |owner: &str| {
        let request = locks.lock("printers").owner(owner).permits(1, 2);
        request.no_wait().acquire()
    };
    let _first = permit("one").await.unwrap();
    let _second = permit("two").await.unwrap();
    assert_eq!(permit("three").await.err(), Some(Error::Taken));
    let both = soon(locks.all(["from", "to"]).acquire()).await.unwrap();
    let one = locks.lock("to").owner("other").no_wait().acquire().await;
    assert_eq!(one.err(), Some(Error::Taken));
    soon(both.release()).await.unwrap();
    eventually_equal("holds", 2, || holds(&server));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_none_is_kept_when_one_is_lost() {
    let server = Server::start();
    let locks = connect(&server).await;
    let both = soon(locks.all(["from", "to"]).acquire()).await.unwrap();
    server.resp2().run("DEL to");
    assert_eq!(soon(both.lost()).await, Loss::Told("deleted".into()));
    eventually_equal("holds", 0, || holds(&server));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_request_is_an_owner_of_its_own_and_a_named_one_asks_once() {
    let server = Server::start();
    let locks = connect(&server).await;
    let report = locks.lock("report");
    let held = soon(report.acquire()).await.unwrap();
    let next = tokio::spawn(report.acquire());
    eventually_equal("waiters", 1, || waiters(&server));
    assert!(soon(report.try_acquire()).await.unwrap().is_none());
    drop(held);
    drop(soon(next).await.unwrap().unwrap());
    let job = locks.lock("report").owner("job");
    let held = soon(job.acquire()).await.unwrap();
    let again = soon(job.acquire()).await;
    assert!(matches!(again.err(), Some(Error::Deadlock(_))));
    assert!(soon(job.try_acquire()).await.unwrap().is_none());
    let other = tokio::spawn(report.acquire());
    eventually_equal("waiters", 1, || waiters(&server));
    // Given back without an answer yet, and asked for again: behind who waits.
    drop(held);
    let again = tokio::spawn(job.acquire());
    let other = soon(other).await.unwrap().unwrap();
    eventually_equal("waiters", 1, || waiters(&server));
    drop(other);
    drop(soon(again).await.unwrap().unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_named_owner_enters_again_and_all_hear_of_the_loss() {
    let server = Server::start();
    let locks = connect(&server).await;
    let job = locks.lock("report").owner("job").reentrant();
    let outer = soon(job.acquire()).await.unwrap();
    let inner = soon(job.acquire()).await.unwrap();
    assert_eq!(inner.token(), outer.token());
    assert_eq!(soon(inner.release()).await, Ok(()));
    assert_eq!((outer.check(), holds(&server)), (Ok(()), 1));
    let inner = soon(job.acquire()).await.unwrap();
    server.resp2().run("DEL report");
    for guard in [outer, inner] {
        assert_eq!(soon(guard.lost()).await, Loss::Told("deleted".into()));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_connects_when_it_is_needed_and_again() {
    let mut server = Server::start();
    let locks = Locks::builder(&url(&server)).build().unwrap();
    let clients = || {
        server
            .resp2()
            .run("CLIENT LIST TYPE normal")
            .text()
            .lines()
            .count()
    };
    assert_eq!(clients(), 1, "the one that asks");
    drop(soon(locks.lock("report").acquire()).await.unwrap());
    server.kill();
    let refused = soon(locks.lock("report").no_wait().acquire())
        .await
        .unwrap_err();
    assert_eq!(
        (refused.name(), refused.code()),
        ("unreachable", "UNREACHABLE")
    );
    server.restart_without_files();
    drop(soon(locks.lock("report").acquire()).await.unwrap());
    assert!(format!("{locks:?}").contains("is_connected: true"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_extended() {
    let server = Server::start();
    let locks = connect(&server).await;
    let lease = Duration::from_secs(60);
    let held = soon(locks.lock("report").lease(lease).acquire())
        .await
        .unwrap();
    assert_eq!(soon(held.extend(Duration::from_millis(20))).await, Ok(()));
    assert_eq!(soon(held.lost()).await, Loss::Told("lease".into()));
    let lost = Error::Lost(Loss::Told("lease".into()));
    assert_eq!(soon(held.extend(lease)).await, Err(lost));
}

/// Each acknowledged grant needs a session; what is kept for a time does, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_needs_a_session_is_refused_without_one() {
    let server = Server::start();
    let locks = connect(&server).await;
    let acks = soon(locks.lock("report").acks(1).acquire()).await.err();
    assert_eq!(acks, Some(Error::Unfit(Unfit::NoSession)));
    let at_least = locks.lock("report").at_least(Duration::from_secs(1));
    let refused = soon(at_least.acquire()).await.unwrap_err();
    assert_eq!((refused.name(), refused.code()), ("unfit", "UNFIT"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_that_would_wait_for_each_other_are_refused() {
    let server = Server::start();
    let locks = connect(&server).await;
    let lock = |key: &str, owner: &str| locks.lock(key).owner(owner).acquire();
    let _a = soon(lock("a", "one")).await.unwrap();
    let _b = soon(lock("b", "two")).await.unwrap();
    let waits = tokio::spawn(lock("b", "one"));
    eventually_equal("waiters", 1, || waiters(&server));
    let refused = soon(lock("a", "two")).await;
    assert!(matches!(refused, Err(Error::Deadlock(_))));
    waits.abort();
    eventually_equal("waiters", 0, || waiters(&server));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loss_is_told_with_its_reason() {
    let server = Server::start();
    let locks = connect(&server).await;
    let mut admin = server.resp2();
    let deleted = soon(locks.lock("a").acquire()).await.unwrap();
    let leased = locks.lock("b").lease(Duration::from_millis(20));
    let leased = soon(leased.acquire()).await.unwrap();
    let renamed = soon(locks.lock("c").acquire()).await.unwrap();
    let kept = soon(locks.lock("d").acquire()).await.unwrap();
    admin.run("DEL a");
    assert_eq!(soon(deleted.lost()).await, Loss::Told("deleted".into()));
    assert_eq!(soon(leased.lost()).await, Loss::Told("lease".into()));
    // Lost by a name by which nobody here asked for it.
    admin.run_all(&["RENAME c elsewhere", "DEL elsewhere"]);
    soon(renamed.lost()).await;
    assert_eq!(kept.check(), Ok(()));
    let lost = kept.lost();
    assert_eq!(soon(kept.release()).await, Ok(()));
    assert!(timeout(A_MOMENT, lost).await.is_err());
    assert_eq!(deleted.check(), Err(Loss::Told("deleted".into())));
    let lost = Error::Lost(Loss::Told("deleted".into()));
    assert_eq!(deleted.release().await, Err(lost));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_connection_loses_everything_that_is_held() {
    let server = Server::start();
    let locks = connect(&server).await;
    let held = soon(locks.lock("report").acquire()).await.unwrap();
    let other = soon(locks.lock("other").owner("x").acquire())
        .await
        .unwrap();
    let waits = tokio::spawn(locks.lock("other").owner("y").acquire());
    eventually_equal("waiters", 1, || waiters(&server));
    hang_up(&server);
    assert_eq!(soon(held.lost()).await, Loss::Connection);
    assert_eq!(other.check(), Err(Loss::Connection));
    // Who waits does so on the next connection, and new requests go there.
    let next = soon(waits).await.unwrap().unwrap();
    assert!(next.token() > other.token());
    let new = soon(locks.lock("report").acquire()).await.unwrap();
    assert_eq!(held.check(), Err(Loss::Connection));
    assert_eq!(held.release().await, Err(Error::Lost(Loss::Connection)));
    assert_eq!(new.check(), Ok(()));
    soon(locks.close()).await;
    assert_eq!(new.check(), Err(Loss::Closed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_answer_loses_everything_when_the_fence_falls() {
    let server = Server::start();
    let fence = Duration::from_millis(400);
    for grace in [None, Some(Duration::from_secs(30))] {
        let mut builder = Locks::builder(&url(&server)).fence(fence);
        if let Some(grace) = grace {
            builder = builder.grace(grace);
        }
        let locks = soon(builder.connect()).await.unwrap();
        let held = soon(locks.lock("report").acquire()).await.unwrap();
        tokio::time::sleep(fence * 2).await;
        assert_eq!(held.check(), Ok(()), "pings are answered");
        Server::signal(server.pid(), libc::SIGSTOP);
        assert_eq!(soon(held.lost()).await, Loss::Silence);
        assert_eq!(held.check(), Err(Loss::Silence));
        Server::signal(server.pid(), libc::SIGCONT);
        drop((held, locks));
        let mut admin = server.resp2();
        admin.run("DEL report");
    }
}

/// A wire to a server. After `arm`, one more request passes and no other, and its reply waits for `let_through`.
struct SlowWire {
    port: u16,
    armed: AtomicBool,
    passed: Mutex<Option<Instant>>,
    open: AtomicBool,
}

impl SlowWire {
    fn to(server: u16) -> Arc<SlowWire> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let wire = Arc::new(SlowWire {
            port: listener.local_addr().unwrap().port(),
            armed: AtomicBool::new(false),
            passed: Mutex::new(None),
            open: AtomicBool::new(true),
        });
        let carried = wire.clone();
        std::thread::spawn(move || {
            for near in listener.incoming().map_while(Result::ok) {
                let far = TcpStream::connect(("127.0.0.1", server)).unwrap();
                let (near_end, far_end) = (near.try_clone().unwrap(), far.try_clone().unwrap());
                let (requests, replies) = (carried.clone(), carried.clone());
                std::thread::spawn(move || requests.carry(near, far, SlowWire::passes));
                std::thread::spawn(move || replies.carry(far_end, near_end, SlowWire::waits));
            }
        });
        wire
    }

    fn carry(&self, mut from: TcpStream, mut to: TcpStream, passes: fn(&SlowWire) -> bool) {
        let mut bytes = [0; 4096];
        while let Ok(read @ 1..) = from.read(&mut bytes) {
            if passes(self) && to.write_all(&bytes[..read]).is_err() {
                return;
            }
        }
    }

    /// Whether a request passes.
    fn passes(&self) -> bool {
        let mut passed = self.passed.lock().unwrap();
        if self.armed.swap(false, Ordering::SeqCst) {
            self.open.store(false, Ordering::SeqCst);
            *passed = Some(Instant::now());
            return true;
        }
        passed.is_none()
    }

    /// A reply passes, once it may.
    fn waits(&self) -> bool {
        eventually("the wire", || {
            let open = self.open.load(Ordering::SeqCst);
            open.then_some(()).ok_or("held up".into())
        });
        true
    }

    /// When the last request passed.
    fn arm(&self) -> Instant {
        self.armed.store(true, Ordering::SeqCst);
        eventually("a request", || {
            self.passed.lock().unwrap().ok_or("none passes".into())
        })
    }

    fn let_through(&self) {
        self.open.store(true, Ordering::SeqCst);
    }
}

/// The server may have ended the connection as soon as it had sent the reply, so what vouches for the lock is the request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fence_counts_from_the_request_and_not_from_its_reply() {
    let server = Server::start();
    let wire = SlowWire::to(server.port());
    let (fence, delay) = (Duration::from_millis(2000), Duration::from_millis(1200));
    let url = format!("redis://127.0.0.1:{}", wire.port);
    let locks = soon(Locks::builder(&url).fence(fence).connect()).await;
    let held = soon(locks.unwrap().lock("report").acquire()).await.unwrap();
    let sent = wire.arm();
    tokio::time::sleep_until((sent + delay).into()).await;
    wire.let_through();
    tokio::time::sleep_until((sent + fence).into()).await;
    assert_eq!(held.check(), Err(Loss::Silence));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_session_locks_survive_a_broken_connection() {
    let server = Server::start();
    let (ann, bob) = (with_session(&server).await, connect(&server).await);
    let held = soon(ann.lock("report").acquire()).await.unwrap();
    let dropped = soon(ann.lock("dropped").acquire()).await.unwrap();
    let other = soon(ann.lock("other").owner("x").acquire()).await.unwrap();
    let waits = tokio::spawn(ann.lock("other").owner("y").acquire());
    eventually_equal("waiters", 1, || waiters(&server));
    drop(bob);
    hang_up(&server);
    // What is done meanwhile is done on the next connection.
    drop(dropped);
    eventually_equal("waiters", 1, || waiters(&server));
    assert_eq!(held.check(), Ok(()));
    eventually_equal("holds", 2, || holds(&server));
    soon(other.release()).await.unwrap();
    let granted = soon(waits).await.unwrap().unwrap();
    let taken = connect(&server).await;
    let taken = soon(taken.lock("report").no_wait().acquire()).await;
    assert_eq!(taken.err(), Some(Error::Taken));
    assert_eq!(soon(held.release()).await, Ok(()));
    assert_eq!(soon(granted.release()).await, Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_session_locks_survive_a_crash_of_the_server() {
    let mut server = Server::with(&["appendonly yes", "appendfsync always"]);
    let locks = with_session(&server).await;
    let held = soon(locks.lock("report").acquire()).await.unwrap();
    server.crash_and_restart();
    let next = soon(locks.lock("next").acquire()).await.unwrap();
    assert!(next.token() > held.token());
    assert_eq!(soon(held.release()).await, Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_lost_while_the_connection_was_broken_is_lost() {
    let server = Server::start();
    let locks = with_session(&server).await;
    let held = soon(locks.lock("report").acquire()).await.unwrap();
    let kept = soon(locks.lock("kept").acquire()).await.unwrap();
    server
        .resp2()
        .run_all(&["MULTI", "CLIENT KILL TYPE normal", "DEL report", "EXEC"]);
    assert_eq!(soon(held.lost()).await, Loss::Connection);
    assert_eq!(soon(kept.release()).await, Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_leaves_nothing_for_the_grace() {
    let server = Server::start();
    let locks = with_session(&server).await;
    let held = soon(locks.lock("report").acquire()).await.unwrap();
    soon(locks.close()).await;
    assert_eq!(held.check(), Err(Loss::Closed));
    soon(locks.closed()).await;
    assert_eq!(
        soon(locks.lock("next").acquire()).await.err(),
        Some(Error::Closed)
    );
    assert_eq!(holds(&server), 0);
    // So does the end of all that would use it.
    let locks = with_session(&server).await;
    drop(soon(locks.lock("report").acquire()).await.unwrap());
    drop(locks);
    eventually_equal("sessions", [0, 0], || {
        server.gauges(
            "tether",
            ["tether_sessions_attached", "tether_sessions_detached"],
        )
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn times_that_do_not_fit_are_refused() {
    let server = Server::start();
    let builder = || Locks::builder(&url(&server));
    let seconds = Duration::from_secs;
    let refused = [
        builder().grace(seconds(1)),
        builder().fence(seconds(6)),
        builder().stop_within(seconds(10)),
        builder()
            .grace(seconds(10))
            .stop_within(seconds(5))
            .fence(seconds(5)),
    ];
    for builder in refused {
        let error = soon(builder.connect()).await.err();
        assert!(matches!(error, Some(Error::Unfit(_))), "{error:?}");
    }
    server.resp2().run("CONFIG SET tether.peer-timeout 0");
    let error = soon(builder().connect()).await.err();
    assert_eq!(error, Some(Error::Unfit(Unfit::NoPeerTimeout)));
    soon(builder().grace(seconds(10)).connect()).await.unwrap();
    // The first address is a Unix socket, whose peer could not vanish, but nobody listens there.
    let nobody = Locks::builder("unix:///nowhere/socket");
    let error = soon(nobody.or_at([url(&server)]).connect()).await.err();
    assert_eq!(error, Some(Error::Unfit(Unfit::NoPeerTimeout)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_server_refuses_is_told() {
    let server = Server::start();
    let locks = connect(&server).await;
    server.resp2().run("SET plain value");
    let refused = soon(locks.lock("plain").acquire()).await.err();
    let is_told = matches!(&refused, Some(Error::Refused(text)) if text.starts_with("WRONGTYPE"));
    assert!(is_told, "{refused:?}");
    let nobody = Locks::connect("redis://127.0.0.1:1").await.err();
    assert!(matches!(nobody, Some(Error::Unreachable(_))), "{nobody:?}");
    let none = soon(locks.all([""; 0]).acquire()).await.unwrap_err();
    assert_eq!((none.name(), none.code()), ("refused", "KEYS"));
    let dot = soon(locks.lock("a").owner(".1").acquire())
        .await
        .unwrap_err();
    assert_eq!((dot.name(), dot.code()), ("refused", "OWNER"));
}

/// Counts what it is told.
#[derive(Clone, Default)]
struct Counter(Arc<Mutex<Vec<String>>>);

impl Counter {
    fn add(&self, what: &str, key: &[u8]) {
        let said = format!("{what} {}", String::from_utf8_lossy(key));
        self.0.lock().unwrap().push(said);
    }
}

impl Observer for Counter {
    fn granted(&self, key: &[u8], _: Duration) {
        self.add("granted", key);
    }

    fn refused(&self, key: &[u8], error: &Error, _: Duration) {
        self.add(error.name(), key);
    }

    fn released(&self, key: &[u8], _: Duration) {
        self.add("released", key);
    }

    fn lost(&self, key: &[u8], loss: &Loss, _: Duration) {
        self.add(loss.reason(), key);
    }

    fn resumed(&self) {
        self.add("resumed", b"");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observer_is_told_what_happens() {
    let server = Server::start();
    let counter = Counter::default();
    let builder = Locks::builder(&url(&server)).grace(Duration::from_secs(20));
    let locks = builder.observer(counter.clone()).build().unwrap();
    let held = soon(locks.lock("a").acquire()).await.unwrap();
    assert!(soon(locks.lock("a").try_acquire()).await.unwrap().is_none());
    hang_up(&server);
    let lost = soon(locks.lock("b").acquire()).await.unwrap();
    server.resp2().run("DEL b");
    soon(lost.lost()).await;
    soon(held.release()).await.unwrap();
    let told = [
        "granted a",
        "taken a",
        "resumed ",
        "granted b",
        "deleted b",
        "released a",
    ];
    eventually("what it is told", || {
        let said = counter.0.lock().unwrap().clone();
        if said == told {
            Ok(())
        } else {
            Err(format!("{said:?}"))
        }
    });
}

struct Panicker;

impl Observer for Panicker {
    fn granted(&self, _: &[u8], _: Duration) {
        panic!("at a grant");
    }

    fn resumed(&self) {
        panic!("at a resume");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observer_that_panics_ends_nothing() {
    let server = Server::start();
    let builder = Locks::builder(&url(&server)).grace(Duration::from_secs(20));
    let locks = builder.observer(Panicker).build().unwrap();
    let mut watch = locks.watch(["k"]);
    assert!(!soon(watch.next()).await.unwrap().change.is_there());
    let held = soon(locks.lock("a").acquire()).await.unwrap();
    hang_up(&server);
    server.resp2().run("SET k v");
    assert!(soon(watch.next()).await.unwrap().change.is_there());
    assert_eq!(held.check(), Ok(()));
}
