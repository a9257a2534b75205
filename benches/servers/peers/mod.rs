//! The same locks by other means: what a user would pick instead, each a real server that is spoken to in its own
//! protocol by the same threads.
//!
//! A [`Way`] is one kind of lock on servers of its own. Its [`Contender`]s take and give back, each in a thread,
//! as the way's own client would: what waits, waits; what polls, sleeps in between.

mod contest;
mod crash;
mod etcd;
mod grpc;
mod native;
mod polling;
mod postgres;
mod process;
mod redisson;
mod zookeeper;

use super::Bench;
use super::table::{Grid, Table};
use std::io;
use std::time::Duration;

pub use contest::{AT_A_GLANCE, CROWD};
pub use crash::{MEASURED as CRASH, hold};

/// One process that takes part, as its lock's own client would.
pub trait Contender: Send {
    /// Before a round: whatever might have lapsed since the last one is renewed.
    fn prepare(&mut self) -> io::Result<()> {
        Ok(())
    }
    /// Comes back when the lock is held.
    fn acquire(&mut self) -> io::Result<()>;
    fn release(&mut self) -> io::Result<()>;
    /// Requests sent since it was made.
    fn requests(&self) -> u64;
}

/// A kind of lock, with its servers.
pub trait Way: Sync {
    fn name(&self) -> &'static str;
    /// What it stands for, for the reader of the tables.
    fn about(&self) -> &'static str;
    /// Of its servers.
    fn version(&self) -> String;
    /// The servers' process ids: their processor time is what an acquisition costs.
    fn servers(&self) -> Vec<u32>;
    /// Where they listen: all that another process needs to take part.
    fn ports(&self) -> Vec<u16>;
    /// What happens when a holder is killed.
    fn after_a_crash(&self) -> Crash;
    /// Works for so long, where the servers become faster by that.
    fn warm_up(&self, _: Duration) -> io::Result<()> {
        Ok(())
    }
}

/// How a lock becomes free when its holder is killed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Crash {
    /// The server notices.
    AtOnce,
    /// A time limit ends; the default of its clients.
    After(Duration),
    /// Never, so it is not measured.
    Never,
}

/// Joins the contest for a lock, knowing nothing but the way's name and ports; `number` tells contenders apart.
pub fn contender(
    way: &str,
    ports: &[u16],
    lock: usize,
    number: usize,
) -> io::Result<Box<dyn Contender>> {
    let lock = format!("lock:{lock}");
    Ok(match way {
        native::BLPOP | native::ACQUIRE | native::SETTP | native::HERD => {
            native::contender(way, ports, &lock)?
        }
        postgres::NAME => Box::new(postgres::Session::join(ports[0], &lock)?),
        etcd::NAME => Box::new(etcd::Client::join(ports[0], &lock)?),
        zookeeper::NAME => Box::new(zookeeper::Session::join(ports[0], &lock)?),
        redisson::PLAIN => Box::new(redisson::Plain::join(ports[0], &lock, number)?),
        redisson::FAIR => Box::new(redisson::Fair::join(ports[0], &lock, number)?),
        polling::REDIS_PY | polling::REDLOCK => {
            Box::new(polling::Client::join(way, ports, &lock, number)?)
        }
        other => return Err(io::Error::other(format!("there is no {other}"))),
    })
}

type Start = fn(&Bench) -> io::Result<Box<dyn Way>>;

/// All of them that can be had here; what cannot is said loudly.
fn ways(bench: &Bench, table: &mut Table) -> Vec<Box<dyn Way>> {
    let mut ways = native::ways(bench);
    let strangers: [Start; 3] = [postgres::start, zookeeper::start, etcd::start];
    for start in strangers {
        match start(bench) {
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

/// What came was not what the protocol says.
fn unexpected(what: &str, bytes: &[u8]) -> io::Error {
    let text = String::from_utf8_lossy(bytes);
    io::Error::other(format!("{what}: {text}"))
}
