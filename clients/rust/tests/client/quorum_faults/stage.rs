//! Servers and clients, each in a network namespace of its own, and what the clients tell.

use super::client::{Board, ORDER, PROCESS};
use super::harm::{Counts, Harm};
use super::{CLIENTS, GRACE, SERVERS};
use std::array;
use std::env;
use std::fmt;
use std::process::{Child, Stdio};
use std::sync::atomic::Ordering::SeqCst;
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tether_client::BootTime;
use tether_testing::harness::Server;
use tether_testing::harness::namespace::Mesh;
use tether_testing::process::end_with_us;
use tether_testing::random::Random;
use tether_testing::shared::Shared;

/// With the grace it is shorter than the longest cut.
const PEER_TIMEOUT: Duration = Duration::from_secs(1);
/// Once all is well: a peer that vanished is noticed, its grace, and the quarantine; and what connections that are set up anew and
/// the machine may need.
const BOUND: Duration = Duration::from_secs(15);

pub struct Stage {
    pub clients: Vec<Process>,
    pub servers: Vec<Server>,
    pub mesh: Mesh,
    board: Shared<Board>,
    random: Random,
    counts: Counts,
    longest_wait: Duration,
    _folder: TempDir,
}

/// A client. It ends with this.
pub struct Process(Child);

impl Process {
    pub fn signal(&self, signal: libc::c_int) {
        Server::signal(self.0.id() as libc::pid_t, signal);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Stage {
    /// The clients go on for `overstay` after their time is over, which they must not.
    pub fn set(seed: u64, overstay: Duration) -> Stage {
        let mesh = Mesh::lay(SERVERS, CLIENTS);
        let start = |at| {
            let lines = [
                format!("bind 127.0.0.1 {}", Mesh::server_address(at)),
                "protected-mode no".to_owned(),
                format!("tether.quarantine {}", GRACE.as_millis()),
                format!("tether.peer-timeout {}", PEER_TIMEOUT.as_millis()),
                "appendonly yes".to_owned(),
            ];
            let lines = lines.each_ref().map(String::as_str);
            mesh.server(at).enter(|| Server::with(&lines))
        };
        let servers: Vec<_> = (0..SERVERS).map(start).collect();
        let folder = TempDir::with_prefix("tether-test-").expect("a temporary folder");
        let path = folder.path().join("board");
        let board = Shared::open(&path);
        let urls = servers.iter().enumerate().map(|(at, server)| {
            let address = Mesh::server_address(at);
            format!(" redis://{address}:{}", server.port())
        });
        let urls: String = urls.collect();
        let spawn = |at| {
            let mut command = mesh
                .client(at)
                .command(env::current_exe().expect("this program"));
            command.args([PROCESS, "--exact", "--ignored", "--nocapture"]);
            let (path, overstay) = (path.display(), overstay.as_millis());
            let order = format!("{at} {} {overstay} {path}{urls}", seed + 1 + at as u64);
            command.env(ORDER, order).stdout(Stdio::null());
            end_with_us(&mut command);
            Process(command.spawn().expect("a client"))
        };
        Stage {
            clients: (0..CLIENTS).map(spawn).collect(),
            servers,
            mesh,
            board,
            random: Random::new(seed),
            counts: Counts::default(),
            longest_wait: Duration::ZERO,
            _folder: folder,
        }
    }

    /// One fault, or two at a time, until both are over.
    pub fn fail(&mut self) {
        if self.random.per_mille(300)
            && let Some(holder) = self.holder()
        {
            return self.fail_behind(holder);
        }
        let random = &mut self.random;
        let count = 1 + usize::from(random.per_mille(300));
        let harms: Vec<_> = (0..count).map(|_| Harm::any(random)).collect();
        for harm in &harms {
            self.counts.count(harm);
            harm.begin(self);
            self.pause(300);
        }
        // Some are shorter than the fence, the grace and the quarantine, some longer.
        match self.random.per_mille(700) {
            true => self.pause(1500),
            false => {
                sleep(Duration::from_millis(1500));
                self.pause(3500);
            }
        }
        for harm in &harms {
            harm.end(self);
            self.pause(300);
        }
        // Half of them meet a client that has just got the lock, the others one another's consequences.
        if self.random.per_mille(500) {
            self.await_grants("a grant to anyone", |is_granted| is_granted.contains(&true));
        }
    }

    /// The holder, if there is one, as it believes.
    fn holder(&self) -> Option<usize> {
        let now = BootTime::now().0;
        let mut clients = self.board.clients.iter();
        clients.position(|client| now < client.until.load(SeqCst))
    }

    /// A majority is restarted while the holder cannot notice that, and still believes that it holds the lock.
    fn fail_behind(&mut self, holder: usize) {
        let (away, restart) = Harm::behind(holder, &mut self.random);
        self.counts.count(&away);
        self.counts.count(&restart);
        away.begin(self);
        restart.begin(self);
        restart.end(self);
        self.pause(4000);
        away.end(self);
    }

    fn pause(&mut self, most: u64) {
        sleep(Duration::from_millis(self.random.next() % most));
    }

    /// Without trouble each client is granted the lock within the bound.
    pub fn everyone_gets_it(&mut self) {
        self.await_grants("a grant to each", |is_granted| {
            is_granted == [true; CLIENTS]
        });
    }

    /// Waits until these clients are granted the lock.
    fn await_grants(&mut self, what: &str, is_enough: impl Fn([bool; CLIENTS]) -> bool) {
        let before = self.grants();
        let begun = Instant::now();
        self.board.is_hurried.store(1, SeqCst);
        loop {
            let now = self.grants();
            if is_enough(array::from_fn(|at| now[at] > before[at])) {
                break;
            }
            let waited = begun.elapsed();
            assert!(
                waited < BOUND,
                "it waits for ever: {what}: {now:?} after {before:?}"
            );
            for client in &mut self.clients {
                let ended = client.0.try_wait().expect("the client's state");
                assert_eq!(ended, None, "a client has ended");
            }
            sleep(Duration::from_millis(10));
        }
        self.board.is_hurried.store(0, SeqCst);
        self.longest_wait = self.longest_wait.max(begun.elapsed());
    }

    fn grants(&self) -> [u64; CLIENTS] {
        let clients = self.board.clients.each_ref();
        clients.map(|client| client.grants.load(SeqCst))
    }

    /// Lets the clients end.
    pub fn end(&mut self) {
        self.board.is_over.store(1, SeqCst);
        let begun = Instant::now();
        for client in &mut self.clients {
            let status = loop {
                match client.0.try_wait().expect("the client's state") {
                    Some(status) => break status,
                    None => sleep(Duration::from_millis(10)),
                }
                assert!(begun.elapsed() < BOUND, "a client does not end");
            };
            assert!(status.success(), "a client failed: {status}");
        }
    }

    pub fn report(&self) -> Report {
        let losses = self
            .board
            .clients
            .iter()
            .map(|client| client.losses.load(SeqCst));
        Report {
            counts: self.counts,
            grants: self.grants().iter().sum(),
            losses: losses.sum(),
            overlaps: self.board.overlaps.load(SeqCst),
            token_falls: self.board.token_falls.load(SeqCst),
            longest_wait: self.longest_wait,
        }
    }
}

/// What has happened so far.
pub struct Report {
    counts: Counts,
    grants: u64,
    losses: u64,
    pub overlaps: u64,
    pub token_falls: u64,
    longest_wait: Duration,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report {
            counts,
            grants,
            losses,
            overlaps,
            token_falls,
            longest_wait,
        } = self;
        write!(
            f,
            "{counts}; {grants} grants, {losses} losses, {overlaps} overlaps, {token_falls} tokens that fell, "
        )?;
        write!(
            f,
            "once well a wait of {} ms at most",
            longest_wait.as_millis()
        )
    }
}
