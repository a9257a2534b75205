//! Three real servers in random trouble while clients hold and wait for one lock: servers are killed and restarted with or without
//! files, and stopped. No two clients believe that they hold the lock, tokens rise, and every wait ends within the bound.
//!
//! A failure prints its seed; `TETHER_SEED` chooses another, `TETHER_STEPS` how many faults.

use super::soon;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tether_client::{BootTime, Quorum};
use tether_testing::harness::Server;
use tether_testing::random::{Random, seed, steps};
use tokio::time::{sleep, timeout};

/// The quarantine is as long.
const GRACE: Duration = Duration::from_secs(2);
/// Once all servers are well: the former holder's fence and grace, the quarantine, and what the machine may need.
const BOUND: Duration = Duration::from_secs(15);
const CLIENTS: usize = 3;

#[derive(Default)]
struct Seen {
    overlaps: AtomicU64,
    /// Until when each believes that it holds the lock, as far as it has looked.
    until: [AtomicU64; CLIENTS],
    token: AtomicU64,
    token_falls: AtomicU64,
    grants: AtomicU64,
    losses: AtomicU64,
    is_over: AtomicBool,
    grants_of: [AtomicU64; CLIENTS],
}

async fn live(at: usize, quorum: Quorum, seen: Arc<Seen>, mut random: Random) {
    while !seen.is_over.load(Ordering::SeqCst) {
        let Ok(guard) = quorum.lock("report").acquire().await else {
            sleep(Duration::from_millis(20)).await;
            continue;
        };
        // Believed only where it is looked at, as a program would do before each write.
        if guard.check().is_ok() {
            let former = seen.token.fetch_max(guard.token(), Ordering::SeqCst);
            seen.token_falls
                .fetch_add(u64::from(former >= guard.token()), Ordering::SeqCst);
        }
        seen.grants.fetch_add(1, Ordering::SeqCst);
        seen.grants_of[at].fetch_add(1, Ordering::SeqCst);
        let until = Instant::now() + Duration::from_millis(random.next() % 1500);
        while Instant::now() < until && !seen.is_over.load(Ordering::SeqCst) {
            let held_until = guard.held_until().0;
            seen.until[at].store(held_until, Ordering::SeqCst);
            // What another was told it has is its own until then: nobody else may have it before.
            let now = BootTime::now().0;
            let others = (0..CLIENTS).filter(|other| *other != at);
            let believes = |other: usize| now < seen.until[other].load(Ordering::SeqCst);
            if now < held_until && others.into_iter().any(believes) {
                seen.overlaps.fetch_add(1, Ordering::SeqCst);
            }
            if guard.check().is_err() {
                seen.losses.fetch_add(1, Ordering::SeqCst);
                break;
            }
            sleep(Duration::from_millis(1)).await;
        }
        seen.until[at].store(0, Ordering::SeqCst);
        let _ = timeout(GRACE, guard.release()).await;
    }
}

/// One or two servers are stopped, or killed and restarted with or without their files.
async fn fail(servers: &mut [Server; 3], random: &mut Random) {
    let one = random.below(3);
    // Sometimes two at once, so that there is no majority for a while.
    let other = match random.per_mille(250) {
        true => random.below(3),
        false => one,
    };
    let loses_files = random.per_mille(500);
    let is_stop = random.per_mille(300);
    let pause = Duration::from_millis(random.next() % 1500);
    for at in [one, other] {
        match is_stop {
            true => Server::signal(servers[at].pid(), libc::SIGSTOP),
            false => servers[at].kill(),
        }
    }
    sleep(pause).await;
    for at in [one, other] {
        match is_stop {
            true => Server::signal(servers[at].pid(), libc::SIGCONT),
            false if servers[at].is_running() => {}
            false => {
                if loses_files {
                    for name in ["dump.rdb", "appendonlydir", "appendonly.aof"] {
                        let file = servers[at].folder().join(name);
                        let _ = std::fs::remove_file(&file);
                        let _ = std::fs::remove_dir_all(&file);
                    }
                }
                servers[at].restart_as_it_was();
            }
        }
    }
}

async fn trouble(faults: usize) {
    let seed = seed();
    eprintln!("TETHER_SEED={seed} TETHER_STEPS={faults}");
    let mut random = Random::new(seed);
    let mut servers = [(); 3].map(|()| Server::with(&["tether.quarantine 2000", "appendonly yes"]));
    let urls: Vec<_> = servers
        .iter()
        .map(|server| format!("redis://127.0.0.1:{}", server.port()))
        .collect();
    let seen = Arc::new(Seen::default());
    let mut quorums = Vec::new();
    let mut tasks = Vec::new();
    for at in 0..CLIENTS {
        let quorum = soon(Quorum::builder(urls.clone()).grace(GRACE).connect()).await;
        let quorum = quorum.unwrap();
        let random = Random::new(seed + 1 + at as u64);
        tasks.push(tokio::spawn(live(at, quorum.clone(), seen.clone(), random)));
        quorums.push(quorum);
    }
    for fault in 0..faults {
        fail(&mut servers, &mut random).await;
        if fault % 10 == 9 {
            everyone_gets_it(&seen).await;
        }
    }
    everyone_gets_it(&seen).await;
    seen.is_over.store(true, Ordering::SeqCst);
    for task in tasks {
        soon(task).await.unwrap();
    }
    let [overlaps, falls, grants, losses] = seen.counts();
    eprintln!(
        "{faults} faults: {grants} grants, {losses} losses, {overlaps} overlaps, {falls} falls"
    );
    assert_eq!((overlaps, falls), (0, 0), "TETHER_SEED={seed}");
}

impl Seen {
    /// Overlaps, tokens that fell, grants, losses.
    fn counts(&self) -> [u64; 4] {
        let counts = [
            &self.overlaps,
            &self.token_falls,
            &self.grants,
            &self.losses,
        ];
        counts.map(|count| count.load(Ordering::SeqCst))
    }
}

/// Without trouble each client is granted the lock within the bound.
async fn everyone_gets_it(seen: &Seen) {
    let count = |at: usize| seen.grants_of[at].load(Ordering::SeqCst);
    let before: Vec<_> = (0..CLIENTS).map(count).collect();
    let begun = Instant::now();
    while (0..CLIENTS).any(|at| count(at) == before[at]) {
        assert!(begun.elapsed() < BOUND, "a wait does not end");
        sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_fail_let_nobody_hold_the_lock_twice_and_nobody_wait_for_ever() {
    trouble(steps(8)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes half an hour"]
async fn the_same_with_five_hundred_faults() {
    trouble(steps(500)).await;
}
