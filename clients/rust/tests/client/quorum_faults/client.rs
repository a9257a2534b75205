//! A client of the quorum, as a process, so that it can be stopped.

use super::{CLIENTS, GRACE};
use crate::soon;
use std::env;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use tether_client::quorum::Guard;
use tether_client::{BootTime, Quorum};
use tether_testing::random::Random;
use tether_testing::shared::{Shareable, Shared};
use tokio::time::{sleep, timeout};

/// Tells a client its number, its seed, for how many milliseconds it goes on after its time is over, the file that is shared, and
/// the servers' URLs.
pub const ORDER: &str = "TETHER_QUORUM_CLIENT";
/// The test that is the process.
pub const PROCESS: &str = "quorum_faults::client::process";

/// What the clients tell each other, and the test.
pub struct Board {
    pub overlaps: AtomicU64,
    pub token_falls: AtomicU64,
    pub is_over: AtomicU64,
    /// While it is set, who holds the lock gives it back at once.
    pub is_hurried: AtomicU64,
    token: AtomicU64,
    pub clients: [Own; CLIENTS],
}

/// What one client tells.
pub struct Own {
    /// Until when it believes that it holds the lock, as far as it has looked; in nanoseconds of [`BootTime`]. It stands while the
    /// process is stopped, since what a client was told once is its own until then.
    pub until: AtomicU64,
    pub grants: AtomicU64,
    pub losses: AtomicU64,
}

// SAFETY: atomics alone.
unsafe impl Shareable for Board {}

struct Client {
    at: usize,
    board: Shared<Board>,
    quorum: Quorum,
    random: Random,
    overstay: Duration,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "it is run by the tests of quorum_faults"]
async fn process() {
    let Ok(order) = env::var(ORDER) else { return };
    let words: Vec<_> = order.split(' ').collect();
    let [at, seed, overstay, board, urls @ ..] = &words[..] else {
        panic!("the order {order:?}");
    };
    let quorum = Quorum::builder(urls.iter().copied()).grace(GRACE);
    let client = Client {
        at: at.parse().unwrap(),
        board: Shared::open(Path::new(board)),
        quorum: soon(quorum.connect()).await.unwrap(),
        random: Random::new(seed.parse().unwrap()),
        overstay: Duration::from_millis(overstay.parse().unwrap()),
    };
    client.live().await;
}

impl Client {
    async fn live(mut self) {
        while !self.is_over() {
            let Ok(guard) = self.quorum.lock("report").acquire().await else {
                sleep(Duration::from_millis(20)).await;
                continue;
            };
            self.own().grants.fetch_add(1, SeqCst);
            self.note_token(&guard);
            let limit = self.random.pick(&[300, 1500, 6000]);
            let until = Instant::now() + Duration::from_millis(self.random.next() % limit);
            self.hold(&guard, until).await;
            self.own().until.store(0, SeqCst);
            let _ = timeout(GRACE, guard.release()).await;
        }
    }

    fn own(&self) -> &Own {
        &self.board.clients[self.at]
    }

    fn is_over(&self) -> bool {
        self.board.is_over.load(SeqCst) != 0
    }

    fn is_hurried(&self) -> bool {
        self.is_over() || self.board.is_hurried.load(SeqCst) != 0
    }

    /// Every token that is there already is of an earlier grant, if the lock is still held after this has looked.
    fn note_token(&self, guard: &Guard) {
        if guard.check().is_err() {
            return;
        }
        let former = self.board.token.fetch_max(guard.token(), SeqCst);
        if guard.check().is_ok() && former >= guard.token() {
            self.board.token_falls.fetch_add(1, SeqCst);
        }
    }

    /// Looks again and again, as a program would do before each write.
    async fn hold(&self, guard: &Guard, until: Instant) {
        let mut told = 0;
        loop {
            told = guard.held_until().0.max(told);
            self.look(told);
            if guard.check().is_err() {
                break;
            }
            if Instant::now() >= until || self.is_hurried() {
                return;
            }
            sleep(Duration::from_millis(1)).await;
        }
        self.own().losses.fetch_add(1, SeqCst);
        let until = BootTime(told) + self.overstay;
        while BootTime::now() < until && !self.is_over() {
            self.look(until.0);
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Publishes until when it believes that it holds the lock; then nobody else may believe that.
    fn look(&self, until: u64) {
        self.own().until.store(until, SeqCst);
        let others = (0..CLIENTS).filter(|other| *other != self.at);
        let others = others.map(|other| self.board.clients[other].until.load(SeqCst));
        let others = others.max().unwrap_or(0);
        // The time comes last: should this process be stopped here, both have believed it when it looked at the others.
        let now = BootTime::now().0;
        if now < until && now < others {
            self.board.overlaps.fetch_add(1, SeqCst);
        }
    }
}
