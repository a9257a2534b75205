//! What a server counts, and by how much that has grown.

use crate::inspect::reply::Map;
use crate::inspect::server::{Failure, Server, field};
use redis::cmd;
use std::time::{Duration, Instant};

pub struct Counters {
    pub asked_at: Instant,
    info: String,
    /// LOCK.SERVER
    about: Map,
}

impl Counters {
    pub fn ask(server: &mut Server) -> Result<Counters, Failure> {
        let about = server.ask(&cmd("LOCK.SERVER"))?;
        let sections = ["server", "replication", "cluster", "tether"];
        let info: String = server.ask(cmd("INFO").arg(&sections))?;
        let asked_at = Instant::now();
        Ok(Counters {
            asked_at,
            info,
            about,
        })
    }

    pub fn number(&self, name: &str) -> u64 {
        let value = field(&self.info, name).and_then(|value| value.parse().ok());
        value.unwrap_or(0)
    }

    /// The cause, if the module has stopped after a fault.
    pub fn fault(&self) -> Option<&str> {
        field(&self.info, "tether_fault")
    }

    pub fn quarantine_left_ms(&self) -> i64 {
        self.about.number("quarantine-left-ms").unwrap_or(0)
    }

    pub fn is_replica(&self) -> bool {
        self.about.text("role") == "replica"
    }

    /// Whether it is a node of a cluster. What names its mode is called `redis_mode` by Redis and `server_mode` by Valkey.
    pub fn is_cluster(&self) -> bool {
        field(&self.info, "cluster_enabled") == Some("1")
    }

    /// `master`, or whose replica it is.
    pub fn role(&self) -> String {
        let part = |name| field(&self.info, name).unwrap_or("?");
        if self.is_replica() {
            format!("replica of {}:{}", part("master_host"), part("master_port"))
        } else {
            self.about.text("role")
        }
    }

    /// `Redis 7.0.15`. Valkey says of itself which Redis it is compatible with, too.
    pub fn version(&self) -> String {
        let of = |name| field(&self.info, name);
        match (of("valkey_version"), of("redis_version")) {
            (Some(valkey), _) => format!("Valkey {valkey}"),
            (None, redis) => format!("Redis {}", redis.unwrap_or("?")),
        }
    }

    pub fn module_version(&self) -> String {
        self.about.text("version")
    }

    /// How many holds ended for each reason, in the order of INFO.
    pub fn losses(&self) -> impl Iterator<Item = (&str, u64)> {
        let lines = self.info.lines().filter_map(|line| line.split_once(':'));
        lines.filter_map(|(name, value)| {
            let reason = name.strip_prefix("tether_lost_")?.strip_suffix("_total")?;
            Some((reason, value.trim_end().parse().ok()?))
        })
    }

    /// By how much a number has grown since then.
    pub fn growth(&self, earlier: &Counters, name: &str) -> u64 {
        self.number(name).saturating_sub(earlier.number(name))
    }

    /// How many grants a second came since then.
    pub fn grants_per_second(&self, (earlier, ago): (&Counters, Duration)) -> f64 {
        self.growth(earlier, "tether_grants_total") as f64 / ago.as_secs_f64().max(0.001)
    }
}
