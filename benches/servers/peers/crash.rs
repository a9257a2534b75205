//! How long after the SIGKILL of a holder's process the next in line has the lock.
//!
//! Those whose servers notice are measured many times, by turns; those who wait for a time limit once, all at the
//! same time, since they only wait.

use super::contender;
use crate::Bench;
use crate::measure::Spread;
use crate::table::{Row, Table, Target};
use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tether_peers::{Crash, Way};
use tether_testing::process::end_with_us;

const SAMPLES: usize = 60;
/// Long enough for the waiter to stand in line.
const PAUSE: Duration = Duration::from_millis(20);
const TARGET_MS: f64 = 2.5;
/// What is measured, before the name of the way.
pub const MEASURED: &str = "SIGKILL of the holder to the next grant: ";
/// Of the program itself, as a holder.
const HOLD: &str = "--hold";

pub fn run(bench: &Bench, table: &mut Table, ways: &[Box<dyn Way>]) {
    let quick: Vec<_> = ways
        .iter()
        .filter(|way| way.after_a_crash() == Crash::AtOnce)
        .collect();
    let mut samples: Vec<Vec<f64>> = quick.iter().map(|_| Vec::new()).collect();
    for number in 0..bench.scaled(SAMPLES) {
        for (way, samples) in quick.iter().zip(&mut samples) {
            match sample(way.as_ref(), 1_000 + number) {
                Ok(took) => samples.push(took.as_secs_f64() * 1e3),
                Err(error) => table.skip(way.name(), &error.to_string()),
            }
        }
    }
    for (way, samples) in quick.iter().zip(samples) {
        if samples.is_empty() {
            continue;
        }
        let ours = way.about().starts_with("this module");
        add(
            table,
            way.as_ref(),
            &samples,
            ours.then_some(Target::AtMost(TARGET_MS)),
        );
    }
    if bench.short {
        return table.note("time limits of the others: left out of a short run");
    }
    let slow = ways
        .iter()
        .filter(|way| matches!(way.after_a_crash(), Crash::After(_)));
    let slow: Vec<_> = slow.collect();
    let took: Vec<_> = thread::scope(|scope| {
        // First all of them, then one after the other.
        let mut threads = Vec::new();
        for &way in &slow {
            threads.push(scope.spawn(move || sample(way.as_ref(), 1_000)));
        }
        threads
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect()
    });
    for (way, took) in slow.iter().zip(took) {
        match took {
            Ok(Ok(took)) => add(table, way.as_ref(), &[took.as_secs_f64() * 1e3], None),
            Ok(Err(error)) => table.skip(way.name(), &error.to_string()),
            Err(_) => table.skip(way.name(), "its waiter failed"),
        }
    }
}

fn add(table: &mut Table, way: &dyn Way, samples: &[f64], target: Option<Target>) {
    let limit = match way.after_a_crash() {
        Crash::After(limit) => format!(", a time limit of {} s", limit.as_secs()),
        _ => String::new(),
    };
    let longest = samples.iter().copied().fold(0.0, f64::max);
    table.add(Row {
        what: format!("{MEASURED}{}", way.name()),
        figure: "ms",
        value: Spread::of(samples.iter().copied()),
        target,
        detail: format!("longest {longest:.1} of {} samples{limit}", samples.len()),
    });
}

/// One holder's death. Each has a lock of its own, so that nothing is left from the one before.
fn sample(way: &dyn Way, lock: usize) -> io::Result<Duration> {
    let ports = way.ports();
    let mut waiter = contender(way.name(), &ports, lock, 1)?;
    let mut holder = Holder::start(way.name(), &ports, lock)?;
    let (granted, killed) = thread::scope(|scope| {
        let waiting = scope.spawn(move || {
            waiter.acquire()?;
            let granted = Instant::now();
            waiter.release()?;
            io::Result::Ok(granted)
        });
        thread::sleep(PAUSE);
        let killed = Instant::now();
        let ended = holder.0.kill();
        let granted = waiting
            .join()
            .map_err(|_| io::Error::other("the waiter failed"));
        ended.and(granted).map(|granted| (granted, killed))
    })?;
    Ok(granted?.saturating_duration_since(killed))
}

struct Holder(Child);

impl Holder {
    fn start(way: &str, ports: &[u16], lock: usize) -> io::Result<Holder> {
        let ports: Vec<_> = ports.iter().map(u16::to_string).collect();
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args([HOLD, way, &ports.join(","), &lock.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        end_with_us(&mut command);
        let mut holder = Holder(command.spawn()?);
        let mut said = String::new();
        let output = holder.0.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        BufReader::new(output).read_line(&mut said)?;
        if said.trim() != "held" {
            return Err(io::Error::other(format!("the holder says {said:?}")));
        }
        Ok(holder)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What such a child does: holds the lock until it is killed. Nothing if this program is not one.
pub fn hold(words: &[String]) -> Option<()> {
    let [option, way, ports, lock] = words else {
        return None;
    };
    let lock = lock.parse().ok().filter(|_| option == HOLD)?;
    let ports: Vec<u16> = ports
        .split(',')
        .filter_map(|port| port.parse().ok())
        .collect();
    let mut contender = contender(way, &ports, lock, 0).expect("the holder joins");
    contender.acquire().expect("the holder gets the lock");
    println!("held");
    loop {
        thread::park();
    }
}
