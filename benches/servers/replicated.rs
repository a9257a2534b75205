//! Taking and giving back with one replica and the append-only file synced every second, against the server's
//! own commands for the same under the same.

use super::Bench;
use super::measure::{Cost, Side, Turns};
use super::pairs::{batches, round};
use super::place::OnOne;
use super::server::{Loaded, Server, field};
use super::table::{Table, Target};
use std::time::{Duration, Instant};
use tether_testing::resp::Connection;

/// Commands sent at once, and commands in one round.
const DEPTHS: &[(usize, usize)] = &[(1, 2_000), (16, 16_000)];
const STARTS: usize = 3;
const ROUNDS: usize = 10;

pub fn run(bench: &Bench, table: &mut Table) {
    let _place = OnOne::new(false);
    let mut all_turns: Vec<Turns> = DEPTHS.iter().map(|_| Turns::new()).collect();
    for _ in 0..bench.scaled(STARTS) {
        let mut ours = Seat::new(bench, Loaded::Module);
        let mut floor = Seat::new(bench, Loaded::Nothing);
        for ((depth, commands), turns) in DEPTHS.iter().zip(&mut all_turns) {
            let our_batches = batches(["SETTP KEY value", "DELTP KEY"], *depth, *commands);
            let floor_batches = batches(["SET KEY value NX", "DEL KEY"], *depth, *commands);
            turns.take(bench.scaled(ROUNDS), |side| match side {
                Side::Ours => ours.round(&our_batches, *depth),
                Side::Floor => floor.round(&floor_batches, *depth),
            });
        }
    }
    for ((depth, _), turns) in DEPTHS.iter().zip(&all_turns) {
        let what = format!("SETTP + DELTP, a replica, AOF everysec, {depth} at once");
        table.add_speed(&what, turns, Target::AtLeast(0.9));
    }
}

struct Seat {
    connection: Connection,
    observer: Connection,
    _master: Server,
    replica: Server,
}

impl Seat {
    fn new(bench: &Bench, loaded: Loaded) -> Seat {
        let settings = "appendonly yes\nappendfsync everysec\nrepl-diskless-sync-delay 0\n";
        let master = bench.start_with(loaded, settings);
        let replica = {
            let _apart = OnOne::new(true);
            bench.start_with(loaded, "repl-diskless-sync-delay 0\n")
        };
        follow(&replica, &master);
        Seat {
            connection: master.connect(),
            observer: master.connect(),
            _master: master,
            replica,
        }
    }

    /// The replica's own work is no part of it, but must not fall into the other's turn.
    fn round(&mut self, batches: &[Vec<u8>], depth: usize) -> Cost {
        let cost = round(&mut self.connection, &mut self.observer, batches, depth);
        let info = self.observer.text("INFO replication");
        let goal = number(&info, "master_repl_offset");
        wait_for(&self.replica, |info| {
            number(info, "slave_repl_offset") >= goal
        });
        cost
    }
}

/// Makes it a replica, and waits until it is one.
pub(super) fn follow(replica: &Server, master: &Server) {
    let order = format!("REPLICAOF 127.0.0.1 {}", master.port());
    replica.connect().run(&order);
    wait_for(replica, |info| {
        field(info, "master_link_status") == Some("up")
    });
}

fn number(info: &str, name: &str) -> u64 {
    let value = field(info, name).and_then(|value| value.trim().parse().ok());
    value.unwrap_or(0)
}

fn wait_for(server: &Server, is_so: impl Fn(&str) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut connection = server.connect();
    while !is_so(&connection.text("INFO replication")) {
        assert!(Instant::now() < deadline, "the replica does not follow");
        std::thread::sleep(Duration::from_millis(1));
    }
}
