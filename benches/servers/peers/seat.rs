//! The contenders of one way, and the rounds that they have played.
//!
//! Every contender is a thread that speaks to a server in its way's protocol. That no two hold a lock at a time is looked at, too.

use super::contender;
use crate::Bench;
use std::io;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};
use tether_peers::{Contender, Way, cpu};

/// Besides one that warms up.
const ROUNDS: usize = 5;
const ROUND: Duration = Duration::from_millis(600);
const SHORT_ROUND: Duration = Duration::from_millis(150);
/// Whoever needs longer for its rounds has fewer of them.
const PATIENCE: Duration = Duration::from_secs(15);

pub struct Seat<'a> {
    pub way: &'a dyn Way,
    contenders: Vec<Box<dyn Contender>>,
    locks: usize,
    pub rounds: Vec<Round>,
    pub failed: Option<String>,
    spent: Duration,
}

pub struct Round {
    pub seconds: f64,
    pub acquired: u64,
    /// Of `acquired`, those in which the lock went to another contender than the one that had it before.
    pub handed_over: u64,
    pub cpu: Duration,
    /// Of the whole round, with its end, when all who wait are still served.
    pub requests: u64,
    pub served: Vec<u64>,
    /// From the request, or from the release of the former holder if that was later, until the holder knows that it is one.
    /// In microseconds, ascending.
    grants_us: Vec<f64>,
}

impl Round {
    pub fn handovers_each_second(&self) -> f64 {
        self.handed_over as f64 / self.seconds
    }

    pub fn grant_us(&self, part: f64) -> f64 {
        percentile(&self.grants_us, part)
    }
}

/// Of values that ascend.
fn percentile(values: &[f64], part: f64) -> f64 {
    let last = values.len().saturating_sub(1);
    let at = (last as f64 * part).round() as usize;
    values.get(at).copied().unwrap_or(f64::NAN)
}

/// What the holders of a lock leave for each other.
#[derive(Default)]
struct Lock {
    is_held: AtomicBool,
    /// When the last release began, in nanoseconds since the round did.
    freed_ns: AtomicU64,
    /// The last holder's number and 1; 0 is nobody.
    last: AtomicU64,
}

impl Lock {
    /// Takes the lock and gives it back. How long the grant took, and whether another contender had the lock before.
    fn pass(
        &self,
        contender: &mut dyn Contender,
        number: usize,
        epoch: Instant,
    ) -> io::Result<(Duration, bool)> {
        let asked = epoch.elapsed();
        contender.acquire()?;
        let granted = epoch.elapsed();
        assert!(!self.is_held.swap(true, SeqCst), "two hold a lock");
        let freed = Duration::from_nanos(self.freed_ns.load(SeqCst));
        let own = number as u64 + 1;
        let is_another = self.last.swap(own, SeqCst) != own;
        let now = epoch.elapsed().as_nanos();
        let now = now.try_into().unwrap_or(u64::MAX);
        self.freed_ns.store(now, SeqCst);
        self.is_held.store(false, SeqCst);
        contender.release()?;
        Ok((granted.saturating_sub(asked.max(freed)), is_another))
    }
}

/// What one contender has to say of a round.
struct Work {
    requests: u64,
    grants_us: Vec<f64>,
}

impl Seat<'_> {
    pub fn gather(way: &dyn Way, size: usize, locks: usize) -> io::Result<Seat<'_>> {
        let ports = way.ports();
        let join = |number| contender(way.name(), &ports, number % locks, number);
        Ok(Seat {
            way,
            contenders: (0..size).map(join).collect::<io::Result<_>>()?,
            locks,
            rounds: Vec::new(),
            failed: None,
            spent: Duration::ZERO,
        })
    }

    fn play(&mut self, limit: Duration) {
        if self.failed.is_none() && (self.spent < PATIENCE || self.rounds.is_empty()) {
            let begin = Instant::now();
            match self.round(limit) {
                Ok(round) => self.rounds.push(round),
                Err(error) => self.failed = Some(error.to_string()),
            }
            self.spent += begin.elapsed();
        }
    }

    fn round(&mut self, limit: Duration) -> io::Result<Round> {
        const STACK: usize = 256 * 1024;
        let size = self.contenders.len();
        let (ready, start) = (Barrier::new(size + 1), Barrier::new(size + 1));
        let stop = AtomicBool::new(false);
        let locks: Vec<_> = (0..self.locks).map(|_| Lock::default()).collect();
        let served: Vec<_> = (0..size).map(|_| AtomicU64::new(0)).collect();
        let handed_over = AtomicU64::new(0);
        let servers = self.way.servers();
        let epoch = Instant::now();
        thread::scope(|scope| {
            let (ready, start, stop) = (&ready, &start, &stop);
            let handed_over = &handed_over;
            let mut threads = Vec::new();
            for (number, contender) in self.contenders.iter_mut().enumerate() {
                let (lock, served) = (&locks[number % locks.len()], &served[number]);
                let work = move || {
                    let prepared = contender.prepare();
                    let before = contender.requests();
                    ready.wait();
                    start.wait();
                    prepared?;
                    let mut grants_us = Vec::new();
                    while !stop.load(SeqCst) {
                        let (took, is_another) = lock.pass(contender.as_mut(), number, epoch)?;
                        grants_us.push(took.as_secs_f64() * 1e6);
                        handed_over.fetch_add(u64::from(is_another), SeqCst);
                        served.fetch_add(1, SeqCst);
                    }
                    let requests = contender.requests() - before;
                    io::Result::Ok(Work {
                        requests,
                        grants_us,
                    })
                };
                let builder = thread::Builder::new().stack_size(STACK);
                threads.push(builder.spawn_scoped(scope, work)?);
            }
            ready.wait();
            let cpu_before = cpu(&servers);
            let begin = Instant::now();
            start.wait();
            thread::sleep(limit);
            let seconds = begin.elapsed().as_secs_f64();
            let acquired = served.iter().map(|served| served.load(SeqCst)).sum();
            let handed_over = handed_over.load(SeqCst);
            let used = cpu(&servers).saturating_sub(cpu_before);
            stop.store(true, SeqCst);
            let mut requests = 0;
            let mut grants_us = Vec::new();
            for thread in threads {
                let work = thread
                    .join()
                    .map_err(|_| io::Error::other("a contender failed"))??;
                requests += work.requests;
                grants_us.extend(work.grants_us);
            }
            grants_us.sort_by(f64::total_cmp);
            Ok(Round {
                seconds,
                acquired,
                handed_over,
                cpu: used,
                requests,
                served: served.iter().map(|served| served.load(SeqCst)).collect(),
                grants_us,
            })
        })
    }

    pub fn speeds(&self) -> Vec<f64> {
        let speed = |round: &Round| round.acquired as f64 / round.seconds;
        self.rounds.iter().map(speed).collect()
    }

    /// Of all rounds' grants together.
    pub fn grant_us(&self, part: f64) -> f64 {
        let grants = self.rounds.iter().flat_map(|round| &round.grants_us);
        let mut grants: Vec<f64> = grants.copied().collect();
        grants.sort_by(f64::total_cmp);
        percentile(&grants, part)
    }

    /// Of the client per acquisition, with all attempts in vain.
    pub fn requests_each(&self) -> f64 {
        let sum = |part: fn(&Round) -> f64| self.rounds.iter().map(part).sum::<f64>();
        sum(|round| round.requests as f64) / sum(|round| round.served.iter().sum::<u64>() as f64)
    }

    /// In parts of what each would have had if all had had the same.
    pub fn fairness(&self) -> String {
        let size = self.contenders.len();
        let of = |number: usize| {
            self.rounds
                .iter()
                .map(|round| round.served[number])
                .sum::<u64>()
        };
        let served: Vec<_> = (0..size).map(of).collect();
        let even = served.iter().sum::<u64>() as f64 / size as f64;
        let part = |count: Option<&u64>| count.map_or(0.0, |count| *count as f64 / even);
        format!(
            "{:.2} .. {:.2}",
            part(served.iter().min()),
            part(served.iter().max())
        )
    }
}

/// All play by turns, in every other round the other way about.
pub fn take_turns(bench: &Bench, seats: &mut [Seat]) {
    let limit = if bench.short { SHORT_ROUND } else { ROUND };
    for round in 0..=bench.scaled(ROUNDS) {
        if round % 2 == 1 {
            seats.iter_mut().rev().for_each(|seat| seat.play(limit));
        } else {
            seats.iter_mut().for_each(|seat| seat.play(limit));
        }
        if round == 0 {
            seats.iter_mut().for_each(|seat| seat.rounds.clear());
        }
    }
}
