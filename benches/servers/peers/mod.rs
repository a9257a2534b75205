//! The same locks by other means (see the crate `tether-peers`), and by this module, measured side by side.

mod acks;
mod contest;
mod crash;
mod native;
mod quorum;
mod seat;
mod several;

use super::Bench;
use super::table::{Grid, Table};
use std::io;
use tether_peers::{Contender, Way};

pub use acks::run as run_acks;
pub use contest::{AT_A_GLANCE, CROWD};
pub use crash::{MEASURED as CRASH, hold};
pub use several::run as run_quorum;

/// Joins the contest for a lock, knowing nothing but the way's name and ports; `number` tells contenders apart.
fn contender(
    way: &str,
    ports: &[u16],
    lock: usize,
    number: usize,
) -> io::Result<Box<dyn Contender>> {
    let lock = format!("lock:{lock}");
    match way {
        native::BLPOP | native::ACQUIRE | native::SETTP | native::HERD => {
            native::contender(way, ports[0], &lock)
        }
        acks::SETTP
        | acks::SETTP_THEN_WAIT
        | acks::SETTP_WAIT
        | acks::SETTP_ACKS
        | acks::ACQUIRE
        | acks::ACQUIRE_ACKS => acks::contender(way, ports[0], &lock),
        quorum::NAME => quorum::contender(ports, &lock),
        other => tether_peers::contender(other, ports, &lock, number),
    }
}

/// All of them that can be had here; what cannot is said loudly.
fn ways(bench: &Bench, table: &mut Table) -> Vec<Box<dyn Way>> {
    let mut ways = native::ways(bench);
    for stranger in tether_peers::strangers() {
        match stranger {
            Ok(way) => ways.push(way),
            Err(error) => table.skip("a peer", &error.to_string()),
        }
    }
    ways
}

pub fn run(bench: &Bench, table: &mut Table) {
    let ways = ways(bench, table);
    let row = |way: &dyn Way| vec![way.name().to_owned(), way.about().to_owned(), way.version()];
    table.grid(Grid {
        title: "Who takes part".to_owned(),
        header: vec!["", "what it does", "server"],
        rows: ways.iter().map(|way| row(way.as_ref())).collect(),
    });
    contest::run(bench, table, &ways);
}

pub fn run_crash(bench: &Bench, table: &mut Table) {
    let ways = ways(bench, table);
    crash::run(bench, table, &ways);
}
