//! The same locks by other means: what a user would pick instead, each spoken to in its own protocol.
//!
//! A [`Way`] is one kind of lock on servers of its own. Its [`Contender`]s take and give back, each in a thread,
//! as the way's own client would: what waits, waits; what polls, sleeps in between.

mod etcd;
mod grpc;
mod link;
mod polling;
mod postgres;
mod process;
mod redisson;
mod zookeeper;

pub use etcd::{
    NAME as ETCD, ON_THREE as ETCD_ON_THREE, start as etcd, start_three as etcd_on_three,
};
pub use link::{Link, await_any, receive_any};
pub use polling::{LEASE, REDIS_PY, REDLOCK, REDLOCK_ON_THREE};
pub use process::cpu;
pub use redisson::{FAIR, PLAIN};
use std::io;
use std::os::fd::RawFd;
use std::time::Duration;
pub use zookeeper::{NAME as ZOOKEEPER, start as zookeeper};

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

/// A connection whose members are there as long as its process lives.
pub trait Member {
    /// Makes these members, with a value each.
    fn add(&mut self, names: &[String]) -> io::Result<()>;
    fn remove(&mut self, name: &str) -> io::Result<()>;
    /// To be called every few seconds.
    fn tend(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A connection that is told of every member.
pub trait Watcher {
    fn descriptor(&self) -> RawFd;
    /// Reads once, waiting for it if need be: the members of which it is told that they are gone.
    fn gone(&mut self) -> io::Result<Vec<String>>;
    /// To be called every few seconds.
    fn tend(&mut self) -> io::Result<()> {
        Ok(())
    }
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
    /// Which of its servers the others depend on most.
    fn leader(&self) -> io::Result<usize> {
        Ok(0)
    }
    /// What a contender must know to take part without this server: all the ports, unless one of them is enough.
    fn ports_without(&self, _: usize) -> Vec<u16> {
        self.ports()
    }
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
    lock: &str,
    number: usize,
) -> io::Result<Box<dyn Contender>> {
    Ok(match way {
        postgres::NAME => Box::new(postgres::Session::join(ports[0], lock)?),
        ETCD | ETCD_ON_THREE => Box::new(etcd::Client::join(ports[number % ports.len()], lock)?),
        ZOOKEEPER => Box::new(zookeeper::Session::join(ports[0], lock)?),
        PLAIN => Box::new(redisson::Plain::join(ports[0], lock, number)?),
        FAIR => Box::new(redisson::Fair::join(ports[0], lock, number)?),
        REDIS_PY | REDLOCK | REDLOCK_ON_THREE => {
            Box::new(polling::Client::join(way, ports, lock, number)?)
        }
        other => return Err(io::Error::other(format!("there is no {other}"))),
    })
}

/// Joins those who are there at a server of this way.
pub fn member(way: &str, port: u16) -> io::Result<Box<dyn Member>> {
    Ok(match way {
        ETCD => Box::new(etcd::Client::join(port, "members")?),
        ZOOKEEPER => Box::new(zookeeper::Session::join(port, zookeeper::MEMBERS)?),
        other => return Err(io::Error::other(format!("{other} has no members"))),
    })
}

/// Watches those who are there.
pub fn watcher(way: &str, port: u16) -> io::Result<Box<dyn Watcher>> {
    Ok(match way {
        ETCD => Box::new(etcd::PrefixWatch::begin(port)?),
        ZOOKEEPER => Box::new(zookeeper::Session::watch(port)?),
        other => return Err(io::Error::other(format!("{other} has no watchers"))),
    })
}

/// Those that bring servers of their own, each started or the reason why it cannot be.
pub fn strangers() -> impl Iterator<Item = io::Result<Box<dyn Way>>> {
    [postgres::start, zookeeper, etcd]
        .into_iter()
        .map(|start| start())
}

/// What came was not what the protocol says.
fn unexpected(what: &str, bytes: &[u8]) -> io::Error {
    let text = String::from_utf8_lossy(bytes);
    io::Error::other(format!("{what}: {text}"))
}
