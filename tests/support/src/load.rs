//! Clients that take keys, wait for them, give them back and resume their sessions while masters are replaced, and what
//! they were told: no token twice, each greater than those before it, and each session has what it knows to be safe.

use crate::grants::Grant;
use crate::harness::*;
use crate::line::field;
use crate::random::Random;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, ScopedJoinHandle, sleep};
use std::time::{Duration, Instant};

/// Nobody waits longer than this for an answer, whatever happens to a server, nor for a new master.
pub const STUCK: Duration = Duration::from_secs(90);

/// How long one look at a connection lasts (see [`Client::try_read_reply`]).
const LOOK: Duration = Duration::from_secs(5);

/// How long one waits before it calls another server, of whom none may be the master for seconds.
const BETWEEN_CALLS: Duration = Duration::from_millis(10);

/// How long a key is held, so that others come to wait for it.
const HELD: Duration = Duration::from_millis(1);

/// What servers say that are not the master, or not any more.
const ELSEWHERE: [&str; 8] = [
    "ERR WAIT cannot be used with replica instances",
    "MOVED",
    "READONLY",
    "UNBLOCKED",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "LOADING",
    "MASTERDOWN",
];

/// A connection to whichever of some servers is the master.
pub struct Line {
    ports: Vec<u16>,
    at: usize,
    client: Option<Client>,
    pub grants: Vec<Grant>,
}

impl Line {
    pub fn to(ports: &[u16]) -> Line {
        Line {
            ports: ports.to_vec(),
            at: 0,
            client: None,
            grants: Vec::new(),
        }
    }

    fn port(&self) -> u16 {
        self.ports[self.at]
    }

    /// Hangs up, and calls another server next time.
    fn turn(&mut self) {
        self.client = None;
        self.at = (self.at + 1) % self.ports.len();
        sleep(BETWEEN_CALLS);
    }

    /// The reply, or none where this server has none for us: then the connection is ended.
    fn call(&mut self, request: &str) -> Option<Frame> {
        let reply = self.ask(request);
        if reply.is_none() {
            self.turn();
        }
        reply
    }

    fn ask(&mut self, request: &str) -> Option<Frame> {
        if self.client.is_none() {
            self.client = Client::connect(("127.0.0.1", self.port())).ok();
        }
        let client = self.client.as_mut()?;
        if !client.try_send_bytes(&encode(request)) {
            return None;
        }
        let reply = patiently(client, request)?;
        let Frame::Error(_) = &reply else {
            return Some(reply);
        };
        let text = reply.text();
        let known = ELSEWHERE.iter().any(|start| text.starts_with(start));
        let no_session = text.starts_with("NOSESSION");
        assert!(known || no_session, "{request}: {text}");
        Some(reply).filter(|_| !known)
    }

    /// Asks for a key. The token, 0 where it is not granted.
    pub fn take(&mut self, request: &str) -> Option<i64> {
        let asked = Instant::now();
        let (reply, port) = (self.call(request)?, self.port());
        if reply == null() {
            return Some(0);
        }
        let (token, told) = (reply.number(), Instant::now());
        if token > 0 {
            self.grants.push(Grant {
                token,
                port,
                asked,
                told,
            });
        }
        Some(token)
    }
}

/// The first reply, or none if the connection ends before it. No answer at all is a mistake.
pub fn patiently(client: &mut Client, request: &str) -> Option<Frame> {
    let begin = Instant::now();
    while begin.elapsed() < STUCK {
        let look = Instant::now();
        let reply = client.try_read_reply();
        if reply.is_some() || look.elapsed() < LOOK {
            return reply;
        }
    }
    panic!("{request} has no answer after {STUCK:?}");
}

/// Something that goes on in steps.
pub trait Worker: Send {
    /// Nothing if there was no master.
    fn step(&mut self) -> Option<()>;

    /// Whether it has done something by which it can be judged.
    fn is_ready(&self) -> bool {
        true
    }

    fn line(&mut self) -> &mut Line;

    /// Goes on until told to stop, and for at least a step; counts its steps.
    fn run(&mut self, stop: &AtomicBool, steps: &AtomicUsize) {
        let mut done = false;
        while !(done && stop.load(Ordering::Relaxed)) {
            done = self.step().is_some();
            if done && self.is_ready() {
                steps.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// A connection that takes keys which others want too, and gives them back.
pub struct Taker {
    line: Line,
    names: Vec<String>,
    dice: Random,
}

impl Taker {
    pub fn new(ports: &[u16], names: &[String], seed: u64) -> Taker {
        Taker {
            line: Line::to(ports),
            names: names.to_vec(),
            dice: Random::new(seed),
        }
    }
}

impl Worker for Taker {
    fn step(&mut self) -> Option<()> {
        let at = self.dice.below(self.names.len());
        let key = &self.names[at];
        let wait = self.dice.pick(&["", "WAIT 20", "WAIT 1000", "WAIT 0"]);
        let (take, give) = match (at % 2, self.dice.below(3)) {
            (0, _) => (format!("SETTP {key} v TOKEN {wait}"), "DELTP {key}"),
            (_, 0) => (format!("LOCK.ACQUIRE {key} {wait}"), "LOCK.RELEASE {key}"),
            (_, 1) => (
                format!("LOCK.ACQUIRE {key} SHARED OWNER task LEASE 600000 {wait}"),
                "LOCK.RELEASE {key} OWNER task",
            ),
            _ => (
                format!("LOCK.MACQUIRE 2 {key} {key}+ {wait}"),
                "LOCK.RELEASE {key}+",
            ),
        };
        if self.line.take(&take)? == 0 {
            return Some(());
        }
        sleep(HELD);
        self.line.call(&give.replace("{key}", key))?;
        if take.contains("MACQUIRE") {
            self.line.call(&format!("LOCK.RELEASE {key}"))?;
        }
        Some(())
    }

    fn line(&mut self) -> &mut Line {
        &mut self.line
    }
}

/// What an owner knows of one of its session's keys.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Known {
    /// Its token, while it holds it.
    token: Option<i64>,
    /// The replicas know as well.
    safe: bool,
}

/// A session, its keys, and what it knows of them.
pub struct Owner {
    line: Line,
    secret: String,
    keys: BTreeMap<String, Known>,
    dice: Random,
    /// How many must know something so that it is safe: at first all of them.
    replicas: usize,
    resumed: usize,
}

impl Owner {
    /// Begins a session at the first of the servers, whose replicas the others are.
    pub fn new(ports: &[u16], names: &[String], seed: u64) -> Owner {
        let mut line = Line::to(ports);
        let secret = line.call("SESSION.START GRACE 600000");
        let unknown = Known::default();
        Owner {
            line,
            secret: secret.expect("a session").text(),
            keys: names.iter().map(|name| (name.clone(), unknown)).collect(),
            dice: Random::new(seed),
            replicas: ports.len() - 1,
            resumed: 0,
        }
    }

    /// How often it had to be resumed.
    pub fn resumed(&self) -> usize {
        self.resumed
    }

    /// The keys that it holds.
    pub fn held(&self) -> impl Iterator<Item = &String> {
        let held = self.keys.iter().filter(|(_, known)| known.token.is_some());
        held.map(|(name, _)| name)
    }

    /// Ends the session, which gives back all that it holds.
    #[allow(dead_code)] // not every test that uses this file does
    pub fn end(&mut self) {
        let held = self.held().count() as i64;
        assert_eq!(self.line.call("SESSION.END"), Some(int(held)));
    }

    /// Goes on at the master, whichever that is by now, and has there what is safe: each key with its token.
    fn resume(&mut self) -> Option<()> {
        let begin = Instant::now();
        let count = loop {
            let reply = self.line.call(&format!("SESSION.RESUME {}", self.secret));
            match reply {
                Some(Frame::Integer(count)) => break count,
                // A server that has crashed and does not know its new master yet.
                Some(_) => self.line.turn(),
                None => {}
            }
            assert!(begin.elapsed() < STUCK, "no session: {reply:?}");
        };
        self.resumed += 1;
        // The former master may be away for good.
        self.replicas = 1;
        let mut held = 0;
        for (name, known) in &mut self.keys {
            let info = self.line.call(&format!("LOCK.INFO {name}"))?;
            let holder = || field(&info, "holders").items().swap_remove(0);
            let token = (info != null()).then(|| field(&holder(), "token").number());
            if known.safe {
                assert_eq!(token, known.token, "{name} at {}", self.line.port());
            }
            known.token = token;
            held += i64::from(token.is_some());
        }
        assert_eq!(count, held, "keys of the session at {}", self.line.port());
        Some(())
    }
}

impl Worker for Owner {
    fn step(&mut self) -> Option<()> {
        if self.line.client.is_none() {
            self.resume()?;
        }
        let at = self.dice.below(self.keys.len());
        let kind = self.dice.below(3);
        let (name, known) = self.keys.iter_mut().nth(at).expect("a key");
        known.safe = false;
        if known.token.is_some() {
            let temporary = self.line.call(&format!("DELTP {name}"))?.number();
            if temporary == 0 {
                self.line.call(&format!("LOCK.RELEASE {name}"))?;
            }
            known.token = None;
        } else {
            let request = match kind {
                0 => format!("SETTP {name} v TOKEN"),
                1 => format!("LOCK.ACQUIRE {name}"),
                _ => format!("LOCK.ACQUIRE {name} LEASE 600000"),
            };
            let token = self.line.take(&request)?;
            assert!(token > 0, "{request} is answered {token}");
            known.token = Some(token);
        }
        // That it was carried out is known; that a new master will know of it only now, if it is so.
        let wait = format!("WAIT {} 500", self.replicas);
        known.safe = self.line.call(&wait)?.number() >= self.replicas as i64;
        Some(())
    }

    fn is_ready(&self) -> bool {
        let mut known = self.keys.values();
        known.any(|known| known.safe && known.token.is_some())
    }

    fn line(&mut self) -> &mut Line {
        &mut self.line
    }
}

/// Has workers at work while `replace` has another server take the master's place, and for some steps before and after.
pub fn work_while<T>(workers: Vec<&mut dyn Worker>, replace: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    let steps: Vec<_> = workers.iter().map(|_| AtomicUsize::new(0)).collect();
    thread::scope(|scope| {
        let _stop = StopAtEnd(&stop);
        let pairs = workers.into_iter().zip(&steps);
        let workers: Vec<_> = pairs
            .map(|(worker, steps)| {
                let stop = &stop;
                scope.spawn(move || worker.run(stop, steps))
            })
            .collect();
        more_steps(&workers, &steps, 20);
        let replaced = replace();
        more_steps(&workers, &steps, 20);
        replaced
    })
}

/// Ends the workers also where the test fails.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Waits until each of some workers has done so many steps more; or one of them has failed.
fn more_steps(workers: &[ScopedJoinHandle<'_, ()>], steps: &[AtomicUsize], count: usize) {
    let all = || steps.iter().map(|steps| steps.load(Ordering::Relaxed));
    let goals: Vec<_> = all().map(|steps| steps + count).collect();
    eventually_within(STUCK, "everyone's next steps", || {
        let failed = workers.iter().any(ScopedJoinHandle::is_finished);
        assert!(!failed, "a worker has failed");
        let late: Vec<_> = all().zip(&goals).map(|(at, goal)| (at, *goal)).collect();
        match late.iter().all(|(at, goal)| at >= goal) {
            true => Ok(()),
            false => Err(format!("{late:?}")),
        }
    });
}
