//! Writers that are stopped and killed, leases that end, and masters that are replaced: of writes that are guarded by a token none is
//! applied after one with a later token, on no server's history. Without guards some are.

use crate::harness::*;
use crate::random::{self, Random};
use crate::sentinel::Sentinel;
use std::env;
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle, sleep};
use std::time::{Duration, Instant};
use tether_testing::process::end_with_us;

/// Tells a writer the Sentinel's port, and whether it guards.
const ORDER: &str = "TETHER_WRITER";
const WRITERS: usize = 4;
const BATCH: usize = 40;
/// Mostly a writer is stopped here, with a part of its writes still to come. They need not be more than the test can use.
const BETWEEN_BATCHES: Duration = Duration::from_millis(4);

/// A process of its own, so that it can be stopped: takes the lock for a short time, and writes its token to a list as if that
/// time had no end.
#[test]
#[ignore = "it is run by the test below"]
fn writer() {
    let Ok(order) = env::var(ORDER) else { return };
    let (port, guards) = order.split_once(' ').expect("an order");
    let port = port.parse().expect("a port");
    let guards = guards == "guarded";
    loop {
        let master = Client::connect(("127.0.0.1", port)).ok();
        let master = master.and_then(|mut sentinel| {
            let reply = sentinel.call("SENTINEL GET-MASTER-ADDR-BY-NAME tether");
            reply.items().get(1)?.text().parse().ok()
        });
        let connect = |port: u16| Client::connect(("127.0.0.1", port)).ok();
        if let Some((locks, data)) = master.and_then(|port| connect(port).zip(connect(port))) {
            while_it_lasts(locks, data, guards);
        }
        sleep(Duration::from_millis(20));
    }
}

/// Writes until one of the connections ends, or the server is none to write to any more.
fn while_it_lasts(mut locks: Client, mut data: Client, guards: bool) -> Option<()> {
    loop {
        locks.try_send("LOCK.ACQUIRE lock LEASE 60 WAIT 500")?;
        let token = match locks.try_read_reply()? {
            Frame::Integer(token) => token,
            Frame::Null => continue,
            _ => return None,
        };
        let write = match guards {
            true => format!("LOCK.GUARD lock {token} RPUSH data {token}"),
            false => format!("RPUSH data {token}"),
        };
        let batch = encode(&write).repeat(BATCH);
        for _ in 0..6 {
            sleep(BETWEEN_BATCHES);
            if !data.try_send_bytes(&batch) {
                return None;
            }
            for _ in 0..BATCH {
                if let Frame::Error(text) = data.try_read_reply()?
                    && !text.starts_with(b"STALE")
                {
                    return None;
                }
            }
        }
        locks.try_send("LOCK.RELEASE lock")?;
        locks.try_read_reply()?;
    }
}

trait TrySend {
    fn try_send(&mut self, command: &str) -> Option<()>;
}

impl TrySend for Client {
    fn try_send(&mut self, command: &str) -> Option<()> {
        self.try_send_bytes(&encode(command)).then_some(())
    }
}

struct Writer(Child);

impl Writer {
    fn start(sentinel: &Sentinel, guards: bool) -> Writer {
        let mut command = Command::new(env::current_exe().expect("this program"));
        command.args(["guarded::writer", "--exact", "--ignored"]);
        let way = if guards { "guarded" } else { "bare" };
        command.env(ORDER, format!("{} {way}", sentinel.port()));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        end_with_us(&mut command);
        Writer(command.spawn().expect("a writer"))
    }

    fn signal(&self, signal: libc::c_int) {
        Server::signal(self.0.id() as libc::pid_t, signal);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What one server applied, in order.
#[derive(Default, Clone, Copy)]
struct History {
    applied: usize,
    /// Writes that came after one with a later token.
    stale: usize,
}

/// Listens to what a master applies, until it is none any more.
fn record(master: &Server) -> JoinHandle<History> {
    let mut tap = Tap::open(master);
    thread::spawn(move || {
        let (mut history, mut last) = (History::default(), 0);
        while let Some(words) = tap.next() {
            let [command, key, token] = &words[..] else {
                continue;
            };
            if (&**command, &**key) != ("rpush", "data") {
                continue;
            }
            let token: u64 = token.parse().expect("a token");
            history.applied += 1;
            history.stale += usize::from(token < last);
            last = last.max(token);
        }
        history
    })
}

#[derive(Default, Debug)]
struct Outcome {
    applied: usize,
    stale: usize,
    histories: usize,
    stops: usize,
    kills: usize,
}

/// So many writes, stops and failovers at least.
fn write(guards: bool, writes: usize, stops: usize, failovers: usize) -> Outcome {
    const PATIENCE: Duration = Duration::from_secs(120);
    let lines = ["repl-diskless-sync no"];
    let master = Server::with(&lines);
    let replicas = [(); 2].map(|()| Server::replica_of(&master, &lines));
    let sentinel = Sentinel::watching(&master);
    let servers: Vec<_> = [master].into_iter().chain(replicas).collect();
    let master = |sentinel: &Sentinel| {
        let port = sentinel.master_port()?;
        servers.iter().position(|server| server.port() == port)
    };
    let mut random = Random::new(random::seed());
    let mut writers: Vec<_> = (0..WRITERS)
        .map(|_| Writer::start(&sentinel, guards))
        .collect();
    let mut current = 0;
    let mut records = vec![record(&servers[current])];
    let mut outcome = Outcome::default();
    let deadline = Instant::now() + PATIENCE + Duration::from_millis(writes as u64 / 2);
    let mut next_failover = Instant::now() + Duration::from_secs(2);
    let mut asked = 0;
    loop {
        assert!(Instant::now() < deadline, "{outcome:?}");
        let writer = random.below(writers.len());
        if random.per_mille(60) {
            writers[writer] = Writer::start(&sentinel, guards);
            outcome.kills += 1;
        } else {
            writers[writer].signal(libc::SIGSTOP);
            sleep(Duration::from_millis(20 + random.below(150) as u64));
            writers[writer].signal(libc::SIGCONT);
            outcome.stops += 1;
        }
        sleep(Duration::from_millis(random.below(30) as u64));
        let is_next = master(&sentinel).filter(|number| *number != current);
        if let Some(next) = is_next
            && servers[next].info("replication").contains("role:master")
        {
            current = next;
            records.push(record(&servers[current]));
            next_failover = Instant::now() + Duration::from_secs(5);
        } else if asked < failovers && Instant::now() > next_failover {
            asked += usize::from(sentinel.fail_over());
            next_failover = Instant::now() + Duration::from_secs(3);
        }
        let list = servers[current].resp2().run("LLEN data").number();
        if list >= writes as i64 && outcome.stops >= stops && records.len() > failovers {
            break;
        }
    }
    drop(writers);
    outcome.histories = records.len();
    drop(servers);
    for record in records {
        let history = record.join().expect("a history");
        outcome.applied += history.applied;
        outcome.stale += history.stale;
    }
    outcome
}

#[test]
fn no_guarded_write_is_applied_after_one_with_a_later_token() {
    let writes = random::steps(20_000);
    let guarded = write(true, writes, 60, 2);
    say(&format!("guarded: {guarded:?}"));
    let bare = write(false, writes.min(20_000), 60, 1);
    say(&format!("not guarded: {bare:?}"));
    assert_eq!(guarded.stale, 0);
    assert!(guarded.applied >= writes * 9 / 10, "{guarded:?}");
    assert!(bare.stale > 0, "the test finds nothing: {bare:?}");
}
