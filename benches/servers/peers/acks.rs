//! Grants that a replica acknowledges, beside the server's own way to wait for that.

use super::seat::{Round, Seat, take_turns};
use super::{crash, quorum};
use crate::Bench;
use crate::measure::Spread;
use crate::place::OnOne;
use crate::replicated::follow;
use crate::server::{Loaded, Server};
use crate::table::{Row, Table, Target, short};
use std::io;
use std::sync::Arc;
use tether_peers::{Contender, Crash, Way};
use tether_testing::resp::{Connection, encode};

pub const SETTP: &str = "SETTP, in a session";
pub const SETTP_WAIT: &str = "SETTP with WAIT 1 behind it";
pub const SETTP_THEN_WAIT: &str = "SETTP, then WAIT 1";
pub const SETTP_ACKS: &str = "SETTP ACKS 1";
pub const ACQUIRE: &str = "LOCK.ACQUIRE, in a session";
pub const ACQUIRE_ACKS: &str = "LOCK.ACQUIRE ACKS 1";

/// In the order in which [`run`] takes them apart.
const ALL: [&str; 5] = [SETTP_WAIT, SETTP_THEN_WAIT, SETTP, SETTP_ACKS, ACQUIRE_ACKS];
const CONTENDERS: &[usize] = &[1, 8, 64];
const REPLICAS: &[usize] = &[1, 2];
/// Plain and one round trip to a replica, with a tenth for chance.
const TARGET: Target = Target::AtMost(1.1);

/// A master with its replicas.
pub struct Group {
    master: Server,
    replicas: Vec<Server>,
}

impl Group {
    pub fn start(bench: &Bench, replicas: usize) -> Group {
        const SETTINGS: &str = "repl-diskless-sync-delay 0\n";
        let master = bench.start_with(Loaded::Module, SETTINGS);
        let start = |_| {
            let replica = bench.start_with(Loaded::Module, SETTINGS);
            follow(&replica, &master);
            replica
        };
        let replicas = (0..replicas).map(start).collect();
        Group { master, replicas }
    }

    /// The same with the replicas on the last processor, where the caller is on another.
    fn start_apart(bench: &Bench, replicas: usize) -> Group {
        let mut group = Group::start(bench, 0);
        let _apart = OnOne::new(true);
        for _ in 0..replicas {
            let replica = bench.start(Loaded::Module);
            follow(&replica, &group.master);
            group.replicas.push(replica);
        }
        group
    }
}

/// One way to lock on a group, which several of them share.
pub struct OnGroup {
    pub name: &'static str,
    pub about: &'static str,
    pub group: Arc<Group>,
}

impl Way for OnGroup {
    fn name(&self) -> &'static str {
        self.name
    }
    fn about(&self) -> &'static str {
        self.about
    }
    fn version(&self) -> String {
        self.group.master.version()
    }
    fn servers(&self) -> Vec<u32> {
        let Group { master, replicas } = &*self.group;
        let all = std::iter::once(master).chain(replicas);
        all.map(Server::id).collect()
    }
    fn ports(&self) -> Vec<u16> {
        vec![self.group.master.port()]
    }
    fn after_a_crash(&self) -> Crash {
        Crash::After(quorum::GRACE)
    }
}

pub fn run(bench: &Bench, table: &mut Table) {
    let _place = OnOne::new(false);
    for &replicas in REPLICAS {
        let group = Arc::new(Group::start_apart(bench, replicas));
        let way = |name| OnGroup {
            name,
            about: "this module",
            group: group.clone(),
        };
        let ways = ALL.map(way);
        for &contenders in CONTENDERS {
            let gather = |way| Seat::gather(way, contenders, 1).expect("contenders join");
            let mut seats: Vec<_> = ways.iter().map(|way| gather(way as &dyn Way)).collect();
            take_turns(bench, &mut seats);
            for seat in &seats {
                if let Some(why) = &seat.failed {
                    table.skip(seat.way.name(), why);
                }
            }
            if seats.iter().any(|seat| seat.rounds.is_empty()) {
                continue;
            }
            let [wait, then, plain, acks @ ..] = seats.as_slice() else {
                unreachable!("there is a seat for each way");
            };
            for seat in acks {
                let plural =
                    |count, what| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
                let place = [plural(replicas, "replica"), plural(contenders, "contender")];
                compare(table, &place.join(", "), seat, [wait, then, plain]);
            }
        }
        if replicas == 1 {
            let [.., settp, acquire] = ways;
            crash::run(bench, table, &[Box::new(settp), Box::new(acquire)]);
        }
    }
}

/// How long a grant takes and how often the lock is granted, against WAIT's.
fn compare(table: &mut Table, place: &str, ours: &Seat, [wait, then, plain]: [&Seat; 3]) {
    let against = |of: &dyn Fn(&Round) -> f64| {
        let rounds = ours.rounds.iter().zip(&wait.rounds);
        Spread::of(rounds.map(|(ours, wait)| of(ours) / of(wait)))
    };
    let name = ours.way.name();
    let mut what = format!("{name} against SETTP with WAIT 1, {place}");
    for (figure, part, target) in [
        ("grant p50, ratio", 0.5, Some(TARGET)),
        ("grant p99, ratio", 0.99, None),
    ] {
        let [ours, wait, then, plain] =
            [ours, wait, then, plain].map(|seat| short(seat.grant_us(part)));
        table.add(Row {
            what: std::mem::take(&mut what),
            figure,
            value: against(&|round| round.grant_us(part)),
            target,
            detail: format!(
                "{ours} us against {wait} us; {then} us if WAIT is sent after the reply, {plain} us without WAIT"
            ),
        });
    }
    let speed = |round: &Round| round.acquired as f64 / round.seconds;
    let [ours, wait, plain] =
        [ours, wait, plain].map(|seat| short(Spread::of(seat.speeds()).median));
    table.add(Row {
        what: String::new(),
        figure: "handoffs, ratio",
        value: against(&speed),
        target: None,
        detail: format!("{ours} per second against {wait}; {plain} without WAIT"),
    });
}

pub fn contender(way: &str, port: u16, lock: &str) -> io::Result<Box<dyn Contender>> {
    let mut connection = Connection::open(port)?;
    connection.run(&format!(
        "SESSION.START GRACE {}",
        quorum::GRACE.as_millis()
    ));
    let acks = match way {
        SETTP_ACKS | ACQUIRE_ACKS => " ACKS 1",
        _ => "",
    };
    let (acquire, release) = match way {
        ACQUIRE | ACQUIRE_ACKS => (
            format!("LOCK.ACQUIRE {lock} WAIT 0{acks}"),
            format!("LOCK.RELEASE {lock}"),
        ),
        _ => (
            format!("SETTP {lock} value WAIT 0{acks}"),
            format!("DELTP {lock}"),
        ),
    };
    let mut acquire = vec![encode(&acquire)];
    let wait = encode("WAIT 1 1000");
    let mut then = None;
    match way {
        SETTP_WAIT => acquire.push(wait),
        SETTP_THEN_WAIT => then = Some(wait),
        _ => {}
    }
    Ok(Box::new(InSession {
        connection,
        replies: acquire.len(),
        acquire: acquire.concat(),
        then,
        release: encode(&release),
        requests: 0,
    }))
}

struct InSession {
    connection: Connection,
    acquire: Vec<u8>,
    /// To `acquire`.
    replies: usize,
    /// What is sent after these.
    then: Option<Vec<u8>>,
    release: Vec<u8>,
    requests: u64,
}

impl InSession {
    fn granted(&mut self) -> io::Result<()> {
        // A grant is 1 or a token; WAIT tells of how many replicas.
        match self.connection.reply() {
            b":0\r\n" => Err(io::Error::other("not granted, or not acknowledged")),
            _ => Ok(()),
        }
    }
}

impl Contender for InSession {
    fn acquire(&mut self) -> io::Result<()> {
        self.requests += self.replies as u64;
        self.connection.send(&self.acquire);
        for _ in 0..self.replies {
            self.granted()?;
        }
        if let Some(then) = &self.then {
            self.requests += 1;
            self.connection.send(then);
            self.granted()?;
        }
        Ok(())
    }
    fn release(&mut self) -> io::Result<()> {
        self.requests += 1;
        self.connection.run_all(&self.release, 1);
        Ok(())
    }
    fn requests(&self) -> u64 {
        self.requests
    }
}
