//! What a server says of itself.

use super::files::{self, Line};
use crate::address;
use crate::inspect::reply::Map;
use crate::inspect::server::{Failure, Server, field};
use redis::{ConnectionInfo, cmd};
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The settings that matter to locks.
const SETTINGS: [&str; 14] = [
    "timeout",
    "maxmemory",
    "maxmemory-policy",
    "maxclients",
    "client-output-buffer-limit",
    "appendonly",
    "appendfsync",
    "save",
    "min-replicas-to-write",
    "min-replicas-max-lag",
    "cluster-enabled",
    "tether.peer-timeout",
    "tether.quarantine",
    "tether.cluster-backstop",
];

#[derive(Clone, Debug, Default)]
pub struct Node {
    pub name: String,
    /// How a shell speaks to it.
    pub cli: String,
    /// Of the module; None where it is not loaded.
    pub version: Option<String>,
    /// What is left of its quarantine, in milliseconds.
    pub quarantine_left: i64,
    pub info: String,
    /// None if this user may not read them.
    pub settings: Option<HashMap<String, String>>,
    /// What its configuration files say; None where they cannot be read here.
    pub lines: Option<Vec<Line>>,
    /// The library that is loaded; empty where that is not known.
    pub loaded: PathBuf,
    /// How far its clock is ahead of ours at least; negative if behind.
    pub clock_ahead: ClockDifference,
}

/// In milliseconds.
pub type ClockDifference = i64;

impl Node {
    pub fn examine(address: &ConnectionInfo) -> Result<Node, Failure> {
        let mut server = Server::connect(address.clone())?;
        let server = &mut server;
        let about: Option<Map> = match server.ask(&cmd("LOCK.SERVER")) {
            Ok(about) => Some(about),
            Err(Failure::NoModule(_)) => None,
            Err(failure) => return Err(failure),
        };
        let settings = match server.ask(cmd("CONFIG").arg("GET").arg(&SETTINGS)) {
            Ok(settings) => Some(settings),
            Err(Failure::Refused(_)) => None,
            Err(failure) => return Err(failure),
        };
        let mut info = server.info("default")?;
        info.push_str(&server.info("tether")?);
        let (lines, loaded) = files(address, &info, server)?;
        Ok(Node {
            name: address::name(address),
            cli: address::redis_cli(address),
            lines,
            loaded,
            version: about.as_ref().map(|about| about.text("version")),
            quarantine_left: about
                .and_then(|about| about.number("quarantine-left-ms"))
                .unwrap_or(0),
            info,
            settings,
            clock_ahead: clock_ahead(server)?,
        })
    }

    pub fn field(&self, name: &str) -> Option<&str> {
        field(&self.info, name)
    }

    pub fn number(&self, name: &str) -> Option<u64> {
        self.field(name)?.parse().ok()
    }

    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.as_ref()?.get(name).map(String::as_str)
    }

    /// Its replicas, as it knows them.
    pub fn replicas(&self) -> Vec<Link> {
        let lines = self
            .info
            .lines()
            .filter_map(|line| line.trim_end().split_once(':'));
        let of_replicas = lines.filter(|(name, _)| {
            name.strip_prefix("slave").is_some_and(|number| {
                !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
            })
        });
        of_replicas.filter_map(|(_, about)| link(about)).collect()
    }

    /// Of whom it is a replica.
    pub fn master(&self) -> Option<(String, u16)> {
        let host = self.field("master_host")?;
        Some((host.to_owned(), self.field("master_port")?.parse().ok()?))
    }
}

/// A replica, as its master sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    pub host: String,
    pub port: u16,
    pub state: String,
    /// How many seconds ago it was heard.
    pub lag: u64,
}

/// A path that the server names is looked at only if the server is on this machine.
fn files(
    address: &ConnectionInfo,
    info: &str,
    server: &mut Server,
) -> Result<(Option<Vec<Line>>, PathBuf), Failure> {
    let file = field(info, "config_file").filter(|file| !file.is_empty());
    let (Some(file), true) = (file, address::is_here(address)) else {
        return Ok((None, PathBuf::new()));
    };
    let modules: Vec<Map> = match server.ask(cmd("MODULE").arg("LIST")) {
        Ok(modules) => modules,
        Err(Failure::Refused(_)) => Vec::new(),
        Err(failure) => return Err(failure),
    };
    let module = modules
        .iter()
        .find(|module| module.text("name") == "tether");
    let loaded = module.map_or(PathBuf::new(), |module| module.text("path").into());
    Ok((files::lines(file.as_ref()).ok(), loaded))
}

/// ip=10.0.0.2,port=6379,state=online,offset=1,lag=0
fn link(about: &str) -> Option<Link> {
    let value = |name| {
        let mut pairs = about.split(',').filter_map(|pair| pair.split_once('='));
        pairs.find_map(|(known, value)| (known == name).then_some(value))
    };
    Some(Link {
        host: value("ip")?.to_owned(),
        port: value("port")?.parse().ok()?,
        state: value("state").unwrap_or_default().to_owned(),
        lag: value("lag").and_then(|lag| lag.parse().ok()).unwrap_or(0),
    })
}

/// What a Sentinel says of the master.
#[derive(Clone, Debug, Default)]
pub struct Sentinel {
    pub name: String,
    pub cli: String,
    /// Until it takes a master that is silent for dead.
    pub down_after_ms: u64,
    pub others: u64,
    /// How many must agree that the master is down.
    pub quorum: u64,
}

impl Sentinel {
    pub fn examine(url: &str, master: &str) -> Result<Sentinel, Failure> {
        let address = address::of(url).map_err(|error| Failure::Failed(error.to_string()))?;
        let cli = address::redis_cli(&address);
        let mut server = Server::connect(address)?;
        let about: Map = server.ask(cmd("SENTINEL").arg("MASTER").arg(master))?;
        let number = |name| about.text(name).parse().unwrap_or(0);
        Ok(Sentinel {
            down_after_ms: number("down-after-milliseconds"),
            others: number("num-other-sentinels"),
            quorum: number("quorum"),
            name: server.name.clone(),
            cli,
        })
    }
}

fn clock_ahead(server: &mut Server) -> Result<ClockDifference, Failure> {
    let asked = now();
    let (seconds, microseconds): (u64, u64) = server.ask(&cmd("TIME"))?;
    let answered = now();
    let theirs = Duration::from_secs(seconds) + Duration::from_micros(microseconds);
    let behind = asked.saturating_sub(theirs);
    let ahead = theirs.saturating_sub(answered);
    Ok(milliseconds(ahead) - milliseconds(behind))
}

fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}

fn milliseconds(time: Duration) -> ClockDifference {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_found() {
        let node = Node {
            info: "role:master\r\nslave_read_only:1\r\nslave0:ip=10.0.0.2,port=6380,state=online,offset=1,lag=3\r\n\
                   slave1:ip=::1,port=7,state=wait_bgsave\r\nslave2:broken\r\n"
                .to_owned(),
            ..Node::default()
        };
        let link = |host: &str, port, state: &str, lag| Link {
            host: host.to_owned(),
            port,
            state: state.to_owned(),
            lag,
        };
        let expected = [
            link("10.0.0.2", 6380, "online", 3),
            link("::1", 7, "wait_bgsave", 0),
        ];
        assert_eq!(node.replicas(), expected);
    }
}
