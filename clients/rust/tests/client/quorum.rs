//! A lock on three servers: it outlives one of them, and is lost with two; who is stopped or cut off gives way in time.

use super::{A_MOMENT, soon};
use std::time::{Duration, Instant};
use tether_client::quorum::Builder;
use tether_client::{Error, Loss, Quorum, Unfit};
use tether_testing::harness::{Server, encode};
use tokio::time::sleep;

/// The fence is this less a second, and the quarantine is as long.
const GRACE: Duration = Duration::from_secs(2);
const QUARANTINE: &str = "tether.quarantine 2000";
/// What it takes until somebody else can have what a client held that is heard of no more, with what the machine may need.
const BOUND: Duration = Duration::from_secs(6);

fn server() -> Server {
    Server::with(&[QUARANTINE])
}

fn three() -> [Server; 3] {
    [(); 3].map(|()| server())
}

fn builder(servers: &[Server]) -> Builder {
    let url = |server: &Server| format!("redis://127.0.0.1:{}", server.port());
    Quorum::builder(servers.iter().map(url)).grace(GRACE)
}

async fn connect(servers: &[Server]) -> Quorum {
    let quorum = soon(builder(servers).connect()).await.unwrap();
    // All of them, so that what follows does not depend on which came first.
    while quorum.reached() < servers.len() {
        sleep(Duration::from_millis(5)).await;
    }
    quorum
}

/// Kills the lowest server in the order of the clients, or the highest.
fn lowest(servers: &mut [Server; 3]) -> &mut Server {
    let order = |server: &&mut Server| format!("127.0.0.1:{}", server.port());
    servers.iter_mut().min_by_key(order).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_has_the_lock_and_the_next_gets_it_with_a_greater_token() {
    let servers = three();
    let (ann, bob) = (connect(&servers).await, connect(&servers).await);
    let held = soon(ann.lock("report").acquire()).await.unwrap();
    assert_eq!(held.check(), Ok(()));
    let refused = soon(bob.lock("report").no_wait().acquire()).await;
    assert_eq!(refused.err(), Some(Error::Taken));
    let waits = tokio::spawn(bob.lock("report").acquire());
    sleep(A_MOMENT).await;
    assert!(!waits.is_finished());
    let token = held.token();
    soon(held.release()).await.unwrap();
    let next = soon(waits).await.unwrap().unwrap();
    assert!(next.token() > token);
    assert_eq!(next.check(), Ok(()));
    soon(next.release()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_refuses_the_release_takes_it_later() {
    let servers = three();
    let quorum = connect(&servers).await;
    let held = soon(quorum.lock("report").acquire()).await.unwrap();
    holds_everywhere(&servers).await;
    let mut refusing = servers[0].resp2();
    refusing.run("ACL SETUSER default -lock.release");
    soon(held.release()).await.unwrap();
    assert_eq!(super::holds(&servers[0]), 1);
    refusing.run("ACL SETUSER default +lock.release");
    soon(async {
        while super::holds(&servers[0]) > 0 {
            sleep(A_MOMENT).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_rise_whichever_majority_grants() {
    let mut servers = three();
    let mut last = 0;
    for _ in 0..2 {
        for ahead in 0..3 {
            // One of them has given many more tokens than the others.
            let mut client = servers[ahead].resp2();
            for _ in 0..50 {
                client.run("LOCK.ACQUIRE other WAIT 0");
                client.run("LOCK.RELEASE other");
            }
            let quorum = connect(&servers).await;
            let held = soon(quorum.lock("report").acquire()).await.unwrap();
            assert!(held.token() > last, "{} after {last}", held.token());
            last = held.token();
            soon(held.release()).await.unwrap();
            soon(quorum.close()).await;
        }
        lowest(&mut servers).kill();
        let quorum = soon(builder(&servers).connect()).await.unwrap();
        let held = soon(quorum.lock("report").acquire()).await.unwrap();
        assert!(held.token() > last, "{} after {last}", held.token());
        last = held.token();
        lowest(&mut servers).restart_as_it_was();
    }
}

/// As one user can bring about who raises a token as far as it goes, on one server whose clock is ahead by two seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_that_the_others_do_not_raise_to_yet_delay_the_lock_and_do_not_end_it() {
    let mut servers = three();
    let mut client = servers[0].resp2();
    client.run("LOCK.ACQUIRE mine WAIT 0");
    let refusal = client.refused("LOCK.RAISE mine 9007199254740991");
    let (_, edge) = refusal.rsplit_once(' ').expect("how far it goes");
    let token = edge.parse::<i64>().expect("a token") + (3 << 22);
    let ahead = lowest(&mut servers);
    let file = ahead.folder().join("appendonly.aof");
    std::fs::write(file, encode(["TETHER.TOKEN", &token.to_string()])).unwrap();
    ahead.restart(&[QUARANTINE, "appendonly yes"]);
    let quorum = connect(&servers).await;
    for wait in [true, false] {
        let request = quorum.lock("report");
        let request = if wait { request } else { request.no_wait() };
        let held = soon(request.acquire()).await.unwrap();
        assert!(
            held.token() > token as u64,
            "{} after {token}",
            held.token()
        );
        soon(held.release()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_outlives_each_server_in_turn() {
    let mut servers = three();
    let quorum = connect(&servers).await;
    let held = soon(quorum.lock("report").acquire()).await.unwrap();
    for at in 0..3 {
        holds_everywhere(&servers).await;
        servers[at].kill();
        sleep(GRACE).await;
        assert_eq!(held.check(), Ok(()), "without the server {at}");
        servers[at].restart_as_it_was();
    }
    assert_eq!(held.check(), Ok(()));
}

/// Waits until the lock is held on all of them.
async fn holds_everywhere(servers: &[Server]) {
    let begun = Instant::now();
    while !servers.iter().all(|server| super::holds(server) == 1) {
        assert!(begun.elapsed() < BOUND, "not held everywhere");
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_majority_the_lock_is_lost_within_the_fence_and_nothing_waits() {
    let mut servers = three();
    let quorum = connect(&servers).await;
    let held = soon(quorum.lock("report").acquire()).await.unwrap();
    holds_everywhere(&servers).await;
    servers[0].kill();
    servers[1].kill();
    let begun = Instant::now();
    soon(held.lost()).await;
    assert!(begun.elapsed() < GRACE, "{:?}", begun.elapsed());
    assert!(held.check().is_err());
    // Whoever was told that it is held may rely on that still: what is left is given back when the guard goes.
    sleep(A_MOMENT).await;
    assert_eq!(super::holds(&servers[2]), 1);
    drop(held);
    // Who wants the lock queues nowhere.
    let waits = tokio::spawn(quorum.lock("report").owner("other").acquire());
    sleep(A_MOMENT * 4).await;
    let left = [super::holds(&servers[2]), super::waiters(&servers[2])];
    assert_eq!(left, [0, 0]);
    assert!(!waits.is_finished());
    servers[0].restart_as_it_was();
    let next = soon(waits).await.unwrap().unwrap();
    assert_eq!(next.check(), Ok(()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_reason_of_a_loss_is_what_the_servers_say() {
    let servers = three();
    let quorum = connect(&servers).await;
    let held = soon(quorum.lock("report").acquire()).await.unwrap();
    holds_everywhere(&servers).await;
    let mut clients = servers.each_ref().map(Server::resp2);
    soon(async {
        // A server that lost it is asked again at once.
        while held.check().is_ok() {
            for client in &mut clients {
                client.run("DEL report");
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(soon(held.lost()).await.reason(), "deleted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_majority_ends_the_lock_and_the_next_has_it_after_grace_and_quarantine() {
    let servers = three();
    let (ann, bob) = (connect(&servers).await, connect(&servers).await);
    let held = soon(ann.lock("report").acquire()).await.unwrap();
    holds_everywhere(&servers).await;
    for server in &servers[..2] {
        Server::signal(server.pid(), libc::SIGSTOP);
    }
    let waits = tokio::spawn(bob.lock("report").acquire());
    assert_eq!(soon(held.lost()).await, Loss::Silence);
    assert!(held.check().is_err());
    for server in &servers[..2] {
        Server::signal(server.pid(), libc::SIGCONT);
    }
    let begun = Instant::now();
    let next = soon(waits).await.unwrap().unwrap();
    assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
    assert!(next.token() > held.token());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_do_not_fit_are_refused() {
    let two = Quorum::builder(["redis://127.0.0.1:1", "redis://127.0.0.1:2"]);
    let refused = two.connect().await.err();
    assert_eq!(refused, Some(Error::Unfit(Unfit::Servers(2))));

    let [one, other, short] = [server(), server(), Server::start()];
    let twice = [&one, &one, &short].map(|server| format!("redis://127.0.0.1:{}", server.port()));
    let refused = soon(Quorum::builder(twice).grace(GRACE).connect()).await;
    assert!(matches!(refused, Err(Error::Unfit(_))));

    let servers = [one, short, other];
    let quorum = soon(builder(&servers).connect()).await.unwrap();
    sleep(A_MOMENT * 4).await;
    assert_eq!(
        quorum.reached(),
        2,
        "the one without a quarantine does not count"
    );
    let longer = builder(&servers).grace(GRACE * 2);
    let refused = soon(longer.connect()).await;
    assert!(matches!(
        refused,
        Err(Error::Unfit(Unfit::Quarantine { .. }))
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_gives_up_in_time_or_when_dropped() {
    let servers = three();
    let (ann, bob) = (connect(&servers).await, connect(&servers).await);
    let held = soon(ann.lock("report").acquire()).await.unwrap();
    let late = soon(bob.lock("report").wait(A_MOMENT).acquire()).await;
    assert_eq!(late.err(), Some(Error::Taken));
    drop(soon(bob.lock("other").acquire()).await.unwrap());
    let begun = Instant::now();
    while servers.iter().any(|server| super::waiters(server) > 0) {
        assert!(begun.elapsed() < BOUND, "a place in a queue is left");
        sleep(Duration::from_millis(10)).await;
    }
    soon(held.release()).await.unwrap();
    while servers.iter().any(|server| super::holds(server) > 0) {
        assert!(begun.elapsed() < BOUND, "a hold is left");
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_closed_quorum_ends_requests_and_holds() {
    let mut servers = three();
    let quorum = connect(&servers).await;
    let closed = quorum.clone();
    let (held, waits) = (closed.lock("held"), closed.lock("held").owner("other"));
    let held = soon(held.acquire()).await.unwrap();
    let waits = tokio::spawn(waits.acquire());
    let begun = Instant::now();
    while servers.iter().all(|server| super::waiters(server) == 0) {
        assert!(begun.elapsed() < BOUND, "nothing waits");
        sleep(Duration::from_millis(10)).await;
    }
    soon(quorum.close()).await;
    assert_eq!(soon(held.lost()).await, Loss::Closed);
    assert_eq!(soon(waits).await.unwrap().err(), Some(Error::Closed));
    for request in [closed.lock("late"), closed.lock("late").no_wait()] {
        assert_eq!(soon(request.acquire()).await.err(), Some(Error::Closed));
    }

    // One that waits for a majority to be reached.
    let quorum = connect(&servers).await;
    servers[0].kill();
    servers[1].kill();
    let waits = tokio::spawn(quorum.lock("report").acquire());
    while quorum.reached() > 1 {
        sleep(Duration::from_millis(5)).await;
    }
    sleep(A_MOMENT).await;
    soon(quorum.close()).await;
    assert_eq!(soon(waits).await.unwrap().err(), Some(Error::Closed));
}
