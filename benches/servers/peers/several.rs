//! Locks that survive the loss of a server: on a majority of independent servers, on a master and its replica, on members that
//! agree on each step.

use super::acks::{ACQUIRE, ACQUIRE_ACKS, Group, OnGroup};
use super::native::OnServers;
use super::seat::{Round, Seat, take_turns};
use super::{contender, crash, quorum};
use crate::Bench;
use crate::measure::Spread;
use crate::server::Loaded;
use crate::table::{Grid, Row, Table, Target, short};
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tether_peers::{Crash, ETCD, ETCD_ON_THREE, LEASE, REDLOCK_ON_THREE, Way};

const CONTENDERS: &[usize] = &[1, 8, 64];
/// Each kills a server.
const LOSSES: usize = 5;
/// Long enough for the waiter to stand in line, and for all members to know of it.
const PAUSE: Duration = Duration::from_millis(300);
const WAYS: &[&str] = &[
    ACQUIRE,
    ACQUIRE_ACKS,
    quorum::NAME,
    REDLOCK_ON_THREE,
    ETCD_ON_THREE,
    ETCD,
];
/// Which lose a server, and still grant.
const OUTLIVE: &[&str] = &[quorum::NAME, REDLOCK_ON_THREE, ETCD_ON_THREE];
/// One against the other, and what is to be reached where there is more than one contender.
const RATIOS: &[(&str, &str, Option<Target>)] = &[
    (quorum::NAME, ETCD_ON_THREE, Some(Target::AtLeast(10.0))),
    (quorum::NAME, ACQUIRE, Some(Target::AtLeast(0.15))),
    (quorum::NAME, REDLOCK_ON_THREE, None),
    (ACQUIRE_ACKS, ETCD_ON_THREE, None),
    (ACQUIRE_ACKS, ETCD, None),
];
const HEADER: &[&str] = &[
    "",
    "per second",
    "quartiles",
    "handed over per second",
    "grant p50",
    "grant p99",
    "server CPU per 1,000",
    "requests each",
    "least and most served",
];

fn start(bench: &Bench, name: &str) -> io::Result<Box<dyn Way>> {
    let on_group = |name, about, replicas| {
        let group = Arc::new(Group::start(bench, replicas));
        Box::new(OnGroup { name, about, group }) as Box<dyn Way>
    };
    let on_servers = |name, about, loaded, crash| {
        let servers = (0..quorum::SERVERS).map(|_| bench.start(loaded)).collect();
        Box::new(OnServers {
            name,
            about,
            crash,
            servers,
        }) as Box<dyn Way>
    };
    Ok(match name {
        ACQUIRE => on_group(
            ACQUIRE,
            "this module on one server, as the floor: the lock does not survive the loss of the server",
            0,
        ),
        ACQUIRE_ACKS => on_group(
            ACQUIRE_ACKS,
            "this module on a master and one replica, which acknowledges each grant",
            1,
        ),
        quorum::NAME => on_servers(
            quorum::NAME,
            "this module on three independent masters, each contender with a session on each; no append-only file, and no quarantine, which counts only after a start",
            Loaded::Module,
            Crash::After(quorum::GRACE),
        ),
        REDLOCK_ON_THREE => on_servers(
            REDLOCK_ON_THREE,
            "Redlock on three servers with a time limit of 10 s: SET NX PX on all at once, retried after 200 to 400 ms; no append-only file",
            Loaded::Nothing,
            Crash::After(LEASE),
        ),
        ETCD_ON_THREE => tether_peers::etcd_on_three()?,
        _ => tether_peers::etcd()?,
    })
}

pub fn run(bench: &Bench, table: &mut Table) {
    let mut ways = Vec::new();
    for name in WAYS {
        match start(bench, name) {
            Ok(way) => ways.push(way),
            Err(error) => table.skip(name, &error.to_string()),
        }
    }
    let about = |way: &dyn Way| vec![way.name().to_owned(), way.about().to_owned(), way.version()];
    table.grid(Grid {
        title: "Who takes part in this".to_owned(),
        header: vec!["", "what it does", "server"],
        rows: ways.iter().map(|way| about(way.as_ref())).collect(),
    });
    for &contenders in CONTENDERS {
        contest(bench, table, &ways, contenders);
    }
    crash::run(bench, table, &ways);
    drop(ways);
    losses(bench, table);
}

fn contest(bench: &Bench, table: &mut Table, ways: &[Box<dyn Way>], contenders: usize) {
    let mut seats = Vec::new();
    for way in ways {
        match Seat::gather(way.as_ref(), contenders, 1) {
            Ok(seat) => seats.push(seat),
            Err(error) => table.skip(way.name(), &error.to_string()),
        }
    }
    take_turns(bench, &mut seats);
    for seat in &seats {
        if let Some(why) = &seat.failed {
            table.skip(seat.way.name(), why);
        }
    }
    seats.retain(|seat| !seat.rounds.is_empty());
    let plural = if contenders == 1 { "" } else { "s" };
    table.grid(Grid {
        title: format!("{contenders} contender{plural}, 1 lock, more than one server"),
        header: HEADER.to_vec(),
        rows: seats.iter().map(row).collect(),
    });
    for &(ours, theirs, target) in RATIOS {
        let seat = |name| seats.iter().find(|seat| seat.way.name() == name);
        if let (Some(ours), Some(theirs)) = (seat(ours), seat(theirs)) {
            compare(table, ours, theirs, contenders, target);
        }
    }
}

/// As [`HEADER`] has it.
fn row(seat: &Seat) -> Vec<String> {
    let speed = Spread::of(seat.speeds());
    let median = |of: &dyn Fn(&Round) -> f64| Spread::of(seat.rounds.iter().map(of)).median;
    let cpu_ms = median(&|round| round.cpu.as_secs_f64() * 1e6 / round.acquired.max(1) as f64);
    vec![
        seat.way.name().to_owned(),
        short(speed.median),
        speed.quartiles(),
        short(median(&Round::handovers_each_second)),
        format!("{} us", short(seat.grant_us(0.5))),
        format!("{} us", short(seat.grant_us(0.99))),
        format!("{} ms", short(cpu_ms)),
        format!("{:.1}", seat.requests_each()),
        seat.fairness(),
    ]
}

/// One contender hands nothing over: there it is how often it gets the lock.
fn compare(
    table: &mut Table,
    ours: &Seat,
    theirs: &Seat,
    contenders: usize,
    target: Option<Target>,
) {
    let (figure, speed): (_, fn(&Round) -> f64) = match contenders {
        1 => ("acquisitions, ratio", |round| {
            round.acquired as f64 / round.seconds
        }),
        _ => ("handovers, ratio", Round::handovers_each_second),
    };
    let median = |seat: &Seat| short(Spread::of(seat.rounds.iter().map(speed)).median);
    // A round without any handover cannot be compared with.
    let rounds = ours.rounds.iter().zip(&theirs.rounds);
    let rounds = rounds.filter(|(_, theirs)| theirs.handed_over > 0);
    let ratios: Vec<_> = rounds
        .map(|(ours, theirs)| speed(ours) / speed(theirs))
        .collect();
    let (name, other) = (ours.way.name(), theirs.way.name());
    if ratios.is_empty() {
        return table.note(&format!("{name} against {other}: that hands nothing over"));
    }
    let plural = if contenders == 1 { "" } else { "s" };
    table.add(Row {
        what: format!("{name} against {other}, {contenders} contender{plural}"),
        figure,
        value: Spread::of(ratios),
        target: target.filter(|_| contenders > 1),
        detail: format!("{} per second against {}", median(ours), median(theirs)),
    });
}

/// How long after the SIGKILL of a server the next in line has the lock, whose holder gives it back right after it.
fn losses(bench: &Bench, table: &mut Table) {
    let mut samples: Vec<Vec<f64>> = OUTLIVE.iter().map(|_| Vec::new()).collect();
    for _ in 0..bench.scaled(LOSSES) {
        for (name, samples) in OUTLIVE.iter().zip(&mut samples) {
            match start(bench, name).and_then(|way| lose_one(way.as_ref())) {
                Ok(took) => samples.push(took.as_secs_f64() * 1e3),
                Err(error) => table.skip(name, &format!("without a server: {error}")),
            }
        }
    }
    for (name, samples) in OUTLIVE.iter().zip(samples) {
        if samples.is_empty() {
            continue;
        }
        let longest = samples.iter().copied().fold(0.0, f64::max);
        table.add(Row {
            what: format!("SIGKILL of one server to the next grant: {name}"),
            figure: "ms",
            value: Spread::of(samples.iter().copied()),
            target: None,
            detail: format!("longest {longest:.1} of {} samples", samples.len()),
        });
    }
}

fn lose_one(way: &dyn Way) -> io::Result<Duration> {
    let leader = way.leader()?;
    let ports = way.ports_without(leader);
    let mut holder = contender(way.name(), &ports, 0, 0)?;
    let mut waiter = contender(way.name(), &ports, 0, 1)?;
    holder.acquire()?;
    let (granted, killed) = thread::scope(|scope| {
        let waiting = scope.spawn(move || waiter.acquire().map(|()| Instant::now()));
        thread::sleep(PAUSE);
        let killed = Instant::now();
        let released = kill(way.servers()[leader]).and_then(|()| holder.release());
        let granted = waiting
            .join()
            .map_err(|_| io::Error::other("the waiter failed"));
        released.and(granted?).map(|granted| (granted, killed))
    })?;
    Ok(granted.saturating_duration_since(killed))
}

/// Of a child of ours that nobody has waited for yet.
fn kill(server: u32) -> io::Result<()> {
    let process = libc::pid_t::try_from(server).map_err(io::Error::other)?;
    // SAFETY: a signal to such a child, so the number is still its own.
    match unsafe { libc::kill(process, libc::SIGKILL) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
