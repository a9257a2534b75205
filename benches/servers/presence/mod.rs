//! A hundred thousand members, and a thousand watchers of all of them: how long until the last watcher knows that one is gone,
//! here, with etcd and with ZooKeeper; and what it costs when all watchers come at once.

mod ours;
mod storm;

use super::Bench;
use super::measure::Spread;
use super::server::Loaded;
use super::table::{Row, Table, Target};
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tether_peers::{ETCD, Member, Watcher, Way, ZOOKEEPER, await_any};
use tether_testing::process::end_with_us;

const OURS: &str = "this module";
const MEMBERS: usize = 100_000;
const WATCHERS: usize = 1_000;
/// Members that are killed, each a process of its own; and as many that leave.
const GONE: usize = 100;
/// Between two of them that are killed.
const PAUSE: Duration = Duration::from_millis(100);
/// How often a connection says that it lives.
const TEND: Duration = Duration::from_secs(3);
/// Nothing takes as long.
const PATIENCE: Duration = Duration::from_secs(60);
/// Where a member is killed, the slowest: the part of what etcd takes.
const TARGET: f64 = 0.5;
/// Of the program itself, as a member.
const JOIN: &str = "--join";

pub fn run(bench: &Bench, table: &mut Table) {
    let server = bench.start(Loaded::Module);
    let mut all = vec![(OURS, measure(bench, OURS, server.port()))];
    drop(server);
    let start: [Start; 2] = [tether_peers::etcd, tether_peers::zookeeper];
    for (name, start) in [ETCD, ZOOKEEPER].into_iter().zip(start) {
        match start() {
            Ok(way) => all.push((name, measure(bench, name, way.ports()[0]))),
            Err(error) => table.skip(name, &error.to_string()),
        }
    }
    let kinds: [(&str, Samples); 2] = [
        ("a member is killed", Took::killed),
        ("a member leaves", Took::left),
    ];
    for ((what, samples), target) in kinds.into_iter().zip([Some(Target::AtMost(TARGET)), None]) {
        let mut slowest = HashMap::new();
        for (name, took) in &all {
            match took {
                Ok(took) => {
                    let samples = samples(took);
                    slowest.insert(*name, percentile(samples, 0.99));
                    add(table, &format!("{what} to the last push: {name}"), samples);
                }
                Err(error) => table.skip(name, &error.to_string()),
            }
        }
        if let Some((ours, etcd)) = slowest.get(OURS).zip(slowest.get(ETCD)) {
            table.add(Row {
                what: format!("{what} to the last push, the slowest"),
                figure: "part of etcd's",
                value: Spread::of([ours / etcd]),
                target,
                detail: format!("p99 {ours:.1} ms against {etcd:.1} ms"),
            });
        }
    }
    storm::run(bench, table);
}

type Start = fn() -> io::Result<Box<dyn Way>>;
type Samples = fn(&Took) -> &[f64];

/// In ms, ascending: until the last watcher was told.
struct Took {
    killed: Vec<f64>,
    left: Vec<f64>,
}

impl Took {
    fn killed(&self) -> &[f64] {
        &self.killed
    }

    fn left(&self) -> &[f64] {
        &self.left
    }
}

fn add(table: &mut Table, what: &str, samples: &[f64]) {
    let part = |part| percentile(samples, part);
    table.add(Row {
        what: what.to_owned(),
        figure: "ms",
        value: Spread::of(samples.iter().copied()),
        target: None,
        detail: format!(
            "p50 {:.1}, p99 {:.1} of {} samples",
            part(0.5),
            part(0.99),
            samples.len()
        ),
    });
}

/// Of values that ascend.
fn percentile(samples: &[f64], part: f64) -> f64 {
    let at = (samples.len() as f64 * part).ceil() as usize;
    samples[at.clamp(1, samples.len()) - 1]
}

fn member(way: &str, port: u16) -> io::Result<Box<dyn Member>> {
    match way {
        OURS => Ok(Box::new(ours::Owner::join(port)?)),
        other => tether_peers::member(other, port),
    }
}

fn watcher(way: &str, port: u16) -> io::Result<Box<dyn Watcher>> {
    match way {
        OURS => Ok(Box::new(ours::PrefixWatch::begin(port)?)),
        other => tether_peers::watcher(other, port),
    }
}

fn measure(bench: &Bench, way: &'static str, port: u16) -> io::Result<Took> {
    let gone = bench.scaled(GONE);
    let names: Vec<_> = (0..bench.scaled(MEMBERS))
        .map(|number| format!("{number:06}"))
        .collect();
    let (to_kill, rest) = names.split_at(gone);
    let mut owner = member(way, port)?;
    owner.add(rest)?;
    let members: Vec<_> = to_kill
        .iter()
        .map(|name| Process::join(way, port, name))
        .collect::<io::Result<_>>()?;
    let mut crowd = Crowd {
        watchers: Vec::new(),
        owner,
        tended: Instant::now(),
        told: HashMap::new(),
    };
    for _ in 0..bench.scaled(WATCHERS) {
        crowd.watchers.push(watcher(way, port)?);
        crowd.tend()?;
    }
    let left = leave(&mut crowd, &rest[..gone])?;
    let killed = kill(&mut crowd, to_kill.iter().zip(members))?;
    Ok(Took { killed, left })
}

/// One after the other.
fn leave(crowd: &mut Crowd, names: &[String]) -> io::Result<Vec<f64>> {
    let mut took = Vec::new();
    for name in names {
        let begin = Instant::now();
        crowd.owner.remove(name)?;
        while !crowd.all_know(name) {
            crowd.listen(PAUSE)?;
            give_up_after(begin)?;
        }
        took.push(crowd.last_told(name, begin));
    }
    took.sort_by(f64::total_cmp);
    Ok(took)
}

/// At short intervals, since some servers only notice after seconds.
fn kill<'a>(
    crowd: &mut Crowd,
    members: impl Iterator<Item = (&'a String, Process)>,
) -> io::Result<Vec<f64>> {
    let mut killed = Vec::new();
    for (name, mut member) in members {
        let begin = Instant::now();
        member.0.kill()?;
        killed.push((name, begin));
        while begin.elapsed() < PAUSE {
            crowd.listen(PAUSE.saturating_sub(begin.elapsed()))?;
        }
    }
    let begin = Instant::now();
    while !killed.iter().all(|(name, _)| crowd.all_know(name)) {
        crowd.listen(PAUSE)?;
        give_up_after(begin)?;
    }
    let took = killed
        .iter()
        .map(|(name, begin)| crowd.last_told(name, *begin));
    let mut took: Vec<_> = took.collect();
    took.sort_by(f64::total_cmp);
    Ok(took)
}

fn give_up_after(begin: Instant) -> io::Result<()> {
    match begin.elapsed() > PATIENCE {
        true => Err(io::Error::other("the watchers are not told")),
        false => Ok(()),
    }
}

/// All watchers, and whom they are told of.
struct Crowd {
    watchers: Vec<Box<dyn Watcher>>,
    owner: Box<dyn Member>,
    tended: Instant,
    /// How many know that a member is gone, and when the last of them was told.
    told: HashMap<String, (usize, Instant)>,
}

impl Crowd {
    /// Reads what has come within this time.
    fn listen(&mut self, limit: Duration) -> io::Result<()> {
        self.tend()?;
        let sockets: Vec<_> = self.watchers.iter().map(|w| w.descriptor()).collect();
        for at in await_any(&sockets, limit) {
            for name in self.watchers[at].gone()? {
                let now = Instant::now();
                let told = self.told.entry(name).or_insert((0, now));
                *told = (told.0 + 1, now);
            }
        }
        Ok(())
    }

    fn tend(&mut self) -> io::Result<()> {
        if self.tended.elapsed() < TEND {
            return Ok(());
        }
        self.tended = Instant::now();
        self.owner.tend()?;
        self.watchers
            .iter_mut()
            .try_for_each(|watcher| watcher.tend())
    }

    fn all_know(&self, name: &str) -> bool {
        let told = self.told.get(name).map(|(count, _)| *count);
        assert!(
            told.is_none_or(|count| count <= self.watchers.len()),
            "{name} is told twice"
        );
        told == Some(self.watchers.len())
    }

    /// In ms from this moment.
    fn last_told(&self, name: &str, begin: Instant) -> f64 {
        let (_, last) = self.told[name];
        last.saturating_duration_since(begin).as_secs_f64() * 1e3
    }
}

/// A member that is a process of its own.
struct Process(Child);

impl Process {
    fn join(way: &str, port: u16, name: &str) -> io::Result<Process> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args([JOIN, way, &port.to_string(), name])
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        end_with_us(&mut command);
        let mut process = Process(command.spawn()?);
        let output = process.0.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut said = String::new();
        BufReader::new(output).read_line(&mut said)?;
        match said.trim() {
            "here" => Ok(process),
            _ => Err(io::Error::other(format!("a member says {said:?}"))),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What such a process does, until it is killed. Nothing if this program is not one.
pub fn join(words: &[String]) -> Option<()> {
    let [option, way, port, name] = words else {
        return None;
    };
    let port = port.parse().ok().filter(|_| option == JOIN)?;
    let mut member = member(way, port).expect("a member joins");
    let name = std::slice::from_ref(name);
    member.add(name).expect("a member is there");
    println!("here");
    loop {
        thread::sleep(TEND);
        member.tend().expect("the server is there");
    }
}
