//! One lock that goes round: contenders that acquire, release at once, and acquire again.
//!
//! Where waiting is first come first served, the next holder is known, so the benchmark reads the next
//! socket and needs no way to wait for many; a broken order would make it stop and fail. The floor is the
//! server's own way to pass a token: BLPOP and RPUSH. The herd is the article's way: whoever finds the key taken watches
//! it, and all try again when it goes.

use super::Bench;
use super::measure::{Cost, Side, Spread, Turns, cost};
use super::place::OnOne;
use super::server::{Loaded, Server, field};
use super::table::{Row, Table, Target};
use std::time::{Duration, Instant};
use tether_testing::resp::{Connection, encode};

pub(super) const CONTENDERS: &[usize] = &[1, 8, 64, 256];
const HANDOFFS: usize = 2_000;
const ROUNDS: usize = 20;
const TARGET: Target = Target::AtLeast(1.0);

/// A way to wait in line.
pub(super) struct Way {
    name: &'static str,
    acquire: &'static str,
    release: &'static str,
}

const FLOOR: Way = Way {
    name: "BLPOP/RPUSH",
    acquire: "BLPOP token 0",
    release: "RPUSH token x",
};

/// The first is the lock's.
pub(super) const WAYS: &[Way] = &[
    Way {
        name: "LOCK.ACQUIRE WAIT",
        acquire: "LOCK.ACQUIRE lock WAIT 0",
        release: "LOCK.RELEASE lock",
    },
    Way {
        name: "SETTP WAIT",
        acquire: "SETTP key value WAIT 0",
        release: "DELTP key",
    },
];

pub fn run(bench: &Bench, table: &mut Table) {
    let _place = OnOne::new(false);
    let probe = bench.start(Loaded::Module);
    for way in WAYS {
        let needed = way.release.split(' ').next().unwrap_or_default();
        if !probe.has_command(needed) {
            table.note(&format!("{}: there is no {needed} yet", way.name));
            continue;
        }
        for &contenders in CONTENDERS {
            against_floor(bench, table, way, contenders);
        }
    }
    for &contenders in CONTENDERS {
        run_herd(bench, table, contenders);
    }
}

fn against_floor(bench: &Bench, table: &mut Table, way: &Way, contenders: usize) {
    let race = race(bench, Loaded::Module, way, contenders);
    table.add_speed_both(&race.what, &race.turns, TARGET);
    let [ours, floor] = race.commands_each;
    table.add(Row {
        what: String::new(),
        figure: "commands each",
        value: Spread::of([ours]),
        target: Some(Target::AtMost(2.0)),
        detail: format!("{floor:.2} for {}", FLOOR.name),
    });
}

/// What a way costs against the server's own.
pub(super) struct Race {
    pub(super) what: String,
    pub(super) turns: Turns,
    /// Ours and the floor's.
    commands_each: [f64; 2],
}

/// What it costs where this is loaded that a lock goes round, against the server's own way to pass anything on.
pub(super) fn race(bench: &Bench, loaded: Loaded, way: &Way, contenders: usize) -> Race {
    let (ours, floor) = (bench.start(loaded), bench.start(Loaded::Nothing));
    floor.connect().run(FLOOR.release);
    let mut ours = Ring::of(&ours, way, contenders);
    let mut floor = Ring::of(&floor, &FLOOR, contenders);
    let handoffs = bench.scaled(HANDOFFS);
    let mut turns = Turns::new();
    turns.take(bench.scaled(ROUNDS), |side| match side {
        Side::Ours => ours.round(handoffs),
        Side::Floor => floor.round(handoffs),
    });
    Race {
        what: format!(
            "{} against {}, {contenders} contenders",
            way.name, FLOOR.name
        ),
        turns,
        commands_each: [&mut ours, &mut floor].map(|ring| ring.commands_each(handoffs)),
    }
}

/// A lock goes round so many contenders, so often.
pub fn hand_around(server: &Server, contenders: usize, handoffs: usize) {
    Ring::of(server, &WAYS[0], contenders).round(handoffs);
}

/// Contenders in the order in which they wait; the one whose turn it is has been granted.
struct Ring {
    contenders: Vec<Connection>,
    observer: Connection,
    turn: usize,
    again: Vec<u8>,
}

impl Ring {
    fn of(server: &Server, way: &Way, size: usize) -> Ring {
        let mut observer = server.connect();
        let mut contenders: Vec<_> = (0..size).map(|_| server.connect()).collect();
        for (place, contender) in contenders.iter_mut().enumerate() {
            contender.send(&encode(way.acquire));
            if place == 0 {
                contender.skip_replies(1);
            } else {
                wait_until_blocked(&mut observer, place);
            }
        }
        Ring {
            contenders,
            observer,
            turn: 0,
            again: [encode(way.release), encode(way.acquire)].concat(),
        }
    }

    /// So often: the holder releases and queues again at once, and the next one learns that it is the holder.
    fn round(&mut self, handoffs: usize) -> Cost {
        let Ring {
            contenders,
            observer,
            turn,
            again,
        } = self;
        let size = contenders.len();
        cost(observer, handoffs, || {
            for _ in 0..handoffs {
                let holder = &mut contenders[*turn];
                holder.send(again);
                // The release's; the grant's comes when it is this one's turn again.
                holder.skip_replies(1);
                *turn = (*turn + 1) % size;
                contenders[*turn].skip_replies(1);
            }
        })
    }

    fn commands_each(&mut self, handoffs: usize) -> f64 {
        let before = commands(&mut self.observer);
        self.round(handoffs);
        // The round itself asks for the processor time twice, and we for the number of commands once.
        (commands(&mut self.observer) - before - 3.0) / handoffs as f64
    }
}

fn wait_until_blocked(observer: &mut Connection, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let info = observer.text("INFO clients");
        let blocked = field(&info, "blocked_clients").and_then(|count| count.parse().ok());
        if blocked == Some(count) {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{blocked:?} wait instead of {count}"
        );
    }
}

fn commands(observer: &mut Connection) -> f64 {
    let info = observer.text("INFO stats");
    let count = field(&info, "total_commands_processed").and_then(|count| count.parse().ok());
    count.expect("INFO stats counts commands")
}

/// How many commands the article's way takes for each acquisition, and how long.
fn run_herd(bench: &Bench, table: &mut Table, size: usize) {
    let server = bench.start(Loaded::Module);
    let mut observer = server.connect();
    let mut herd = Herd::gather(&server, size);
    // As many commands for each number of contenders.
    let handoffs = (bench.scaled(HANDOFFS) * 8 / size).clamp(5, HANDOFFS);
    let mut costs = Vec::new();
    let before = commands(&mut observer);
    for _ in 0..bench.scaled(ROUNDS) {
        costs.push(cost(&mut observer, handoffs, || {
            for _ in 0..handoffs {
                herd.hand_over();
            }
        }));
    }
    let all = (costs.len() * handoffs) as f64;
    let asked = 2.0 * costs.len() as f64 + 1.0;
    let each = (commands(&mut observer) - before - asked) / all;
    table.add(Row {
        what: format!("SETTP + WATCHEX herd, {size} contenders"),
        figure: "commands each",
        value: Spread::of([each]),
        target: None,
        detail: format!(
            "{:.1} us of server CPU, {:.1} us by the clock each",
            Spread::of(costs.iter().map(Cost::cpu_ns_each)).median / 1000.0,
            Spread::of(costs.iter().map(Cost::wall_ns_each)).median / 1000.0
        ),
    });
}

struct Herd {
    contenders: Vec<Connection>,
    holder: usize,
    /// How many pushes each has had: a handover is two, DEL and ADD.
    pushes: u64,
}

impl Herd {
    fn gather(server: &Server, size: usize) -> Herd {
        let mut contenders: Vec<_> = (0..size).map(|_| server.connect_resp3()).collect();
        for contender in &mut contenders {
            contender.run("SETTP key value");
            contender.run("WATCHEX key");
        }
        Herd {
            contenders,
            holder: 0,
            pushes: 0,
        }
    }

    /// The holder releases; all hear of it and try; one of them gets the key.
    fn hand_over(&mut self) {
        self.contenders[self.holder].run("DEL key");
        let attempt = encode("SETTP key value");
        for contender in &mut self.contenders {
            contender.wait_for_pushes(self.pushes + 1);
            contender.send(&attempt);
        }
        self.pushes += 2;
        let mut winner = None;
        for (place, contender) in self.contenders.iter_mut().enumerate() {
            if contender.reply() == b":1\r\n" {
                winner = Some(place);
            }
            // The push that the key is there again stands on either side of the reply.
            contender.wait_for_pushes(self.pushes);
        }
        self.holder = winner.expect("one of them gets the key");
    }
}
