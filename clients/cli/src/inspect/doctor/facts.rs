//! What a server says of itself.

use super::files::{self, LoadLine};
use crate::address;
use crate::inspect::reply::Map;
use crate::inspect::server::{Failure, NO_MODULE, Server, field};
use redis::{ConnectionInfo, cmd};
use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The settings that matter to locks.
const SETTINGS: [&str; 13] = [
    "timeout",
    "maxmemory",
    "maxmemory-policy",
    "maxclients",
    "client-output-buffer-limit",
    "appendonly",
    "appendfsync",
    "save",
    "min-replicas-to-write",
    "cluster-enabled",
    "tether.peer-timeout",
    "tether.quarantine",
    "tether.cluster-backstop",
];

#[derive(Clone, Debug, Default)]
pub struct Node {
    pub name: String,
    /// Of the module; None where it is not loaded.
    pub version: Option<String>,
    /// What is left of its quarantine, in milliseconds.
    pub quarantine_left: i64,
    pub info: String,
    /// None if this user may not read them.
    pub settings: Option<HashMap<String, String>>,
    /// Where its configuration loads the module; None where its files cannot be read here.
    pub load_lines: Option<Vec<LoadLine>>,
    /// How far its clock is ahead of ours at least; negative if behind.
    pub clock_ahead: ClockDifference,
}

/// In milliseconds.
pub type ClockDifference = i64;

impl Node {
    pub fn examine(address: &ConnectionInfo, server: &mut Server) -> Result<Node, Failure> {
        let about: Option<Map> = match server.ask(&cmd("LOCK.SERVER")) {
            Ok(about) => Some(about),
            Err(Failure::Refused(why)) if why == NO_MODULE => None,
            Err(failure) => return Err(failure),
        };
        let settings = match server.ask(cmd("CONFIG").arg("GET").arg(&SETTINGS)) {
            Ok(settings) => Some(settings),
            Err(Failure::Refused(_)) => None,
            Err(failure) => return Err(failure),
        };
        let mut info = server.info("default")?;
        info.push_str(&server.info("tether")?);
        let load_lines = load_lines(address, &info, server)?;
        Ok(Node {
            name: address::name(address),
            load_lines,
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

    /// The addresses of its replicas, as it knows them.
    pub fn replicas(&self) -> Vec<(String, u16)> {
        let lines = self
            .info
            .lines()
            .filter_map(|line| line.trim_end().split_once(':'));
        let of_replicas = lines.filter(|(name, _)| {
            name.strip_prefix("slave").is_some_and(|number| {
                !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
            })
        });
        of_replicas
            .filter_map(|(_, about)| address(about))
            .collect()
    }
}

/// A path that the server names is looked at only if the server is on this machine.
fn load_lines(
    address: &ConnectionInfo,
    info: &str,
    server: &mut Server,
) -> Result<Option<Vec<LoadLine>>, Failure> {
    let file = field(info, "config_file").filter(|file| !file.is_empty());
    let (Some(file), true) = (file, address::is_here(address)) else {
        return Ok(None);
    };
    let modules: Vec<Map> = match server.ask(cmd("MODULE").arg("LIST")) {
        Ok(modules) => modules,
        Err(Failure::Refused(_)) => return Ok(None),
        Err(failure) => return Err(failure),
    };
    let module = modules
        .iter()
        .find(|module| module.text("name") == "tether");
    let library = module.map(|module| module.text("path"));
    Ok(library.and_then(|library| files::load_lines(file.as_ref(), library.as_ref()).ok()))
}

/// ip=10.0.0.2,port=6379,state=online,...
fn address(about: &str) -> Option<(String, u16)> {
    let value = |name| {
        let mut pairs = about.split(',').filter_map(|pair| pair.split_once('='));
        pairs.find_map(|(known, value)| (known == name).then_some(value))
    };
    Some((value("ip")?.to_owned(), value("port")?.parse().ok()?))
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
            info: "role:master\r\nslave_read_only:1\r\nslave0:ip=10.0.0.2,port=6380,state=online,offset=1\r\n\
                   slave1:ip=::1,port=7,state=wait_bgsave\r\nslave2:broken\r\n"
                .to_owned(),
            ..Node::default()
        };
        let expected = [("10.0.0.2".to_owned(), 6380), ("::1".to_owned(), 7)];
        assert_eq!(node.replicas(), expected);
    }
}
