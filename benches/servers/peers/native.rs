//! What a Redis or Valkey server does by itself or with the module, and the servers of those who build on it.

use crate::Bench;
use crate::server::{Loaded, Server};
use std::io;
use std::time::Duration;
use tether_peers::{Contender, Crash, FAIR, LEASE, PLAIN, REDIS_PY, REDLOCK, Way};
use tether_testing::resp::{Connection, encode};

pub const BLPOP: &str = "BLPOP/RPUSH";
pub const ACQUIRE: &str = "LOCK.ACQUIRE WAIT";
pub const SETTP: &str = "SETTP WAIT";
pub const HERD: &str = "SETTP + WATCHEX herd";
const REDLOCK_SERVERS: usize = 5;
/// Of a token for each of so many locks.
const LOCKS: usize = 64;

/// A way to lock on servers of its own.
pub struct OnServers {
    pub name: &'static str,
    pub about: &'static str,
    pub crash: Crash,
    pub servers: Vec<Server>,
}

impl Way for OnServers {
    fn name(&self) -> &'static str {
        self.name
    }
    fn about(&self) -> &'static str {
        self.about
    }
    fn version(&self) -> String {
        self.servers[0].version()
    }
    fn servers(&self) -> Vec<u32> {
        self.servers.iter().map(Server::id).collect()
    }
    fn ports(&self) -> Vec<u16> {
        self.servers.iter().map(Server::port).collect()
    }
    fn after_a_crash(&self) -> Crash {
        self.crash
    }
}

const WATCHDOG: Crash = Crash::After(Duration::from_secs(30));
const LAPSING: Crash = Crash::After(LEASE);

/// Each with what it is for the reader, and what happens when a holder is killed.
const ALL: &[(&str, &str, Crash)] = &[
    (
        BLPOP,
        "the floor: the server's own way to pass a token, without any safety",
        Crash::Never,
    ),
    (
        ACQUIRE,
        "this module: LOCK.ACQUIRE lock WAIT 0, LOCK.RELEASE",
        Crash::AtOnce,
    ),
    (
        SETTP,
        "this module: SETTP key value WAIT 0, DELTP",
        Crash::AtOnce,
    ),
    (
        HERD,
        "this module as in the article: each client that finds the key taken watches it, and all try again when it is deleted",
        Crash::AtOnce,
    ),
    (
        PLAIN,
        "Redisson's RLock: its scripts and its channel, each contender a process of its own",
        WATCHDOG,
    ),
    (
        FAIR,
        "Redisson's fair lock: its scripts and channels, each contender a process of its own",
        WATCHDOG,
    ),
    (
        REDIS_PY,
        "redis-py's Lock with a timeout of 10 s: SET NX PX, retried every 100 ms",
        LAPSING,
    ),
    (
        REDLOCK,
        "Redlock on 5 servers with a time limit of 10 s, retried after 200 to 400 ms",
        LAPSING,
    ),
];

pub fn ways(bench: &Bench) -> Vec<Box<dyn Way>> {
    let start = |&(name, about, crash): &(&'static str, &'static str, Crash)| {
        let ours = [ACQUIRE, SETTP, HERD].contains(&name);
        let loaded = if ours {
            Loaded::Module
        } else {
            Loaded::Nothing
        };
        let count = if name == REDLOCK { REDLOCK_SERVERS } else { 1 };
        let servers: Vec<_> = (0..count)
            .map(|_| Server::start(&bench.program, loaded))
            .collect();
        if name == BLPOP {
            for lock in 0..LOCKS {
                servers[0]
                    .connect()
                    .run(&format!("RPUSH lock:{lock} token"));
            }
        }
        let way = OnServers {
            name,
            about,
            crash,
            servers,
        };
        Box::new(way) as Box<dyn Way>
    };
    ALL.iter().map(start).collect()
}

pub fn contender(way: &str, port: u16, lock: &str) -> io::Result<Box<dyn Contender>> {
    let mut connection = Connection::open(port)?;
    let (acquire, release) = match way {
        BLPOP => (format!("BLPOP {lock} 0"), format!("RPUSH {lock} token")),
        ACQUIRE => (
            format!("LOCK.ACQUIRE {lock} WAIT 0"),
            format!("LOCK.RELEASE {lock}"),
        ),
        SETTP => (
            format!("SETTP {lock} value WAIT 0"),
            format!("DELTP {lock}"),
        ),
        _ => {
            connection.run("HELLO 3");
            let watching = false;
            let lock = lock.to_owned();
            return Ok(Box::new(Member {
                connection,
                lock,
                watching,
                requests: 0,
            }));
        }
    };
    let (acquire, release) = (encode(&acquire), encode(&release));
    Ok(Box::new(InLine {
        connection,
        acquire,
        release,
        requests: 0,
    }))
}

/// Waits in the server's line.
struct InLine {
    connection: Connection,
    acquire: Vec<u8>,
    release: Vec<u8>,
    requests: u64,
}

impl Contender for InLine {
    fn acquire(&mut self) -> io::Result<()> {
        self.requests += 1;
        self.connection.run_all(&self.acquire, 1);
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

/// Of the herd.
struct Member {
    connection: Connection,
    lock: String,
    watching: bool,
    requests: u64,
}

impl Member {
    fn run(&mut self, words: &str) -> &[u8] {
        self.requests += 1;
        self.connection.run(&format!("{words} {}", self.lock))
    }
}

impl Contender for Member {
    fn acquire(&mut self) -> io::Result<()> {
        let attempt = format!("SETTP {} value", self.lock);
        loop {
            self.requests += 1;
            if self.connection.run(&attempt) == b":1\r\n" {
                return Ok(());
            }
            if !std::mem::replace(&mut self.watching, true)
                && self.run("WATCHEX").ends_with(b"NOEXIST\r\n")
            {
                continue;
            }
            // What came before the refusal is old.
            let mut gone = false;
            while !gone {
                let push = self.connection.next_push(None);
                gone = push.is_some_and(|push| push.ends_with(b"DEL\r\n"));
            }
        }
    }
    fn release(&mut self) -> io::Result<()> {
        self.run("DELTP");
        Ok(())
    }
    fn requests(&self) -> u64 {
        self.requests
    }
}
