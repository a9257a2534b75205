//! What is to say of a server's facts.

use super::facts::Node;
use super::files::LoadLine;
use crate::inspect::server::Failure;
use crate::inspect::text;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    Ok,
    /// Works, but perhaps not as wished.
    Warning,
    Wrong,
}

impl Level {
    pub fn name(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Warning => "warn",
            Level::Wrong => "wrong",
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    pub level: Level,
    pub server: String,
    pub what: String,
    /// What to do.
    pub advice: Option<String>,
}

/// Clocks that differ by more than that are a fault of somebody's.
const CLOCKS_APART_MS: i64 = 10_000;

/// The findings of one server, as they come.
struct Findings<'a> {
    node: &'a Node,
    found: Vec<Finding>,
}

impl Findings<'_> {
    fn say(&mut self, level: Level, what: impl Into<String>, advice: Option<&str>) {
        self.found.push(Finding {
            level,
            server: self.node.name.clone(),
            what: what.into(),
            advice: advice.map(str::to_owned),
        });
    }

    fn ok(&mut self, what: impl Into<String>) {
        self.say(Level::Ok, what, None);
    }

    fn warn(&mut self, what: impl Into<String>, advice: &str) {
        self.say(Level::Warning, what, Some(advice));
    }

    fn wrong(&mut self, what: impl Into<String>, advice: &str) {
        self.say(Level::Wrong, what, Some(advice));
    }
}

/// Of the server that clients are to use.
pub fn of_server(node: &Node) -> Vec<Finding> {
    let mut findings = Findings {
        node,
        found: Vec::new(),
    };
    if has_module(&mut findings, None) {
        is_working(&mut findings);
        load_lines(&mut findings);
        settings(&mut findings);
        room(&mut findings);
    }
    clock(&mut findings);
    findings.found
}

/// Of a replica, which may take the master's place.
pub fn of_replica(node: &Node, master: &Node) -> Vec<Finding> {
    let mut findings = Findings {
        node,
        found: Vec::new(),
    };
    if has_module(&mut findings, master.version.as_deref()) {
        load_lines(&mut findings);
        settings(&mut findings);
    }
    clock(&mut findings);
    findings.found
}

pub fn of_unreachable(server: String, failure: &Failure) -> Vec<Finding> {
    let (Failure::Unreachable(why) | Failure::Refused(why) | Failure::Failed(why)) = failure else {
        return Vec::new();
    };
    vec![Finding {
        level: Level::Warning,
        server,
        what: format!("this replica could not be asked: {why}"),
        advice: Some("Run `tether doctor` where it can be reached.".to_owned()),
    }]
}

fn has_module(findings: &mut Findings, masters: Option<&str>) -> bool {
    let node = findings.node;
    let Some(version) = &node.version else {
        findings.wrong(
            "the module tether is not loaded",
            "Put `loadmodule /path/to/libtether.so` into its configuration: on the master and on each replica.",
        );
        return false;
    };
    match masters {
        Some(masters) if masters != version => findings.warn(
            format!("the module has version {version}, and the master's has {masters}"),
            "Replicas get the new version first, then take over: docs/operations.md, \"Upgrade\".",
        ),
        _ => findings.ok(format!("the module is loaded, version {version}")),
    }
    if let Some(fault) = node.field("tether_fault") {
        findings.wrong(
            format!("the module has stopped after a fault: {fault}"),
            "Restart the server or fail over, and report the cause.",
        );
    }
    let series = node.field("valkey_version").map_or_else(
        || format!("Redis {}", node.field("redis_version").unwrap_or("?")),
        |version| format!("Valkey {version}"),
    );
    pushes(findings, &series);
    true
}

/// Whether functions are called that no API promises.
fn pushes(findings: &mut Findings, series: &str) {
    const QUALIFY: &str =
        "Run `tether qualify` on its machine, and append what that prints to its redis.conf.";
    match findings.node.field("tether_private_functions") {
        Some("known") | None => findings.ok(format!("pushes are on: {series} is known to tether")),
        Some("qualified") => findings.ok(format!("pushes are on: {series} has qualified")),
        Some("unknown") => findings.warn(
            format!("pushes are off: {series} has not been tried with tether"),
            QUALIFY,
        ),
        Some("tried") => findings.warn(
            format!("pushes are on, and {series} has not been tried with tether (tether.private-functions always)"),
            QUALIFY,
        ),
        Some("never") => findings.warn(
            "pushes are off (tether.private-functions never)",
            "CONFIG SET tether.private-functions known",
        ),
        Some("trial") => findings.warn(
            "the module was loaded as `tether qualify` does, to try the server",
            "Load it without arguments.",
        ),
        Some("bad") => findings.warn(
            format!("pushes are off: {series} is known to fail with tether"),
            "Take a later patch release of the server.",
        ),
        Some(state) => findings.warn(
            format!("pushes are off: {series} does not have what they need (tether_private_functions: {state})"),
            "docs/servers.md says what works without them.",
        ),
    }
}

/// Whether the server starts again.
fn load_lines(findings: &mut Findings) {
    let place = |line: &LoadLine| format!("{} line {}", line.file.display(), line.number);
    match findings.node.load_lines.as_deref() {
        Some(lines @ [_, _, ..]) => {
            let places: Vec<_> = lines.iter().map(place).collect();
            findings.wrong(
                format!(
                    "its configuration loads the library {} times, and with that it does not start: {}",
                    lines.len(),
                    places.join(", ")
                ),
                "Keep one `loadmodule` line, in the main file, and delete the others: CONFIG REWRITE does not know those in an `include`, and appends its own.",
            );
        }
        Some([line]) if line.is_included => findings.warn(
            format!(
                "its `loadmodule` line is in a file that is included: {}",
                place(line)
            ),
            "Move it to the main file, before CONFIG REWRITE (which Sentinel sends) appends a second one there: with two the server does not start.",
        ),
        _ => {}
    }
}

fn is_working(findings: &mut Findings) {
    let node = findings.node;
    if node.field("role") == Some("slave") {
        findings.warn(
            "this server is a replica, and grants nothing",
            "Use the master's address, or Sentinel's.",
        );
    }
    if node.quarantine_left > 0 {
        findings.warn(
            format!(
                "it was just started: nothing is granted for another {}",
                text::time(node.quarantine_left)
            ),
            "Wait; tether.quarantine says how long it lasts.",
        );
    }
    if let Some(refused) = node
        .number("rejected_connections")
        .filter(|count| *count > 0)
    {
        findings.warn(
            format!("{refused} connections were refused since its start"),
            "Raise maxclients: each client that holds a lock by itself has a connection.",
        );
    }
}

fn settings(findings: &mut Findings) {
    let node = findings.node;
    if node.settings.is_none() {
        let advice = "Allow this user `config|get`, or ask as an administrator.";
        return findings.warn("its settings cannot be read", advice);
    }
    let is = |name, value: &str| node.setting(name) == Some(value);
    let before = findings.found.len();
    if !is("timeout", "0") {
        findings.warn(
            "it closes idle connections (timeout), and what they hold is lost",
            "CONFIG SET timeout 0",
        );
    }
    let policy = node.setting("maxmemory-policy").unwrap_or_default();
    if policy.starts_with("allkeys") && !is("maxmemory", "0") {
        findings.warn(
            format!("maxmemory-policy {policy} evicts locks"),
            "CONFIG SET maxmemory-policy noeviction, or one of volatile-*",
        );
    }
    let limits = node
        .setting("client-output-buffer-limit")
        .unwrap_or_default();
    if limits.contains("normal 0 0 0") {
        findings.warn(
            "a client that does not read its pushes can fill the memory (client-output-buffer-limit normal 0 0 0)",
            "CONFIG SET client-output-buffer-limit 'normal 64mb 16mb 60'",
        );
    }
    if is("tether.peer-timeout", "0") {
        findings.warn(
            "a host that vanishes keeps its locks until tcp-keepalive notices (tether.peer-timeout 0)",
            "CONFIG SET tether.peer-timeout 10000",
        );
    }
    if is("tether.quarantine", "0") && !(is("appendonly", "yes") && is("appendfsync", "always")) {
        findings.warn(
            "if it crashes, it may forget what was granted last while clients still rely on it",
            "Set tether.quarantine in its configuration file to the time in which clients notice, or use appendfsync always.",
        );
    }
    if is("cluster-enabled", "yes") {
        if is("tether.cluster-backstop", "0") {
            findings.warn(
                "temporary keys whose slot moves stay for ever (tether.cluster-backstop 0)",
                "CONFIG SET tether.cluster-backstop 60000",
            );
        }
        findings.warn(
            "only this node of the cluster was looked at",
            "Run `tether doctor` for each master.",
        );
    }
    let has_replicas = !node.replicas().is_empty();
    if has_replicas && is("min-replicas-to-write", "0") {
        findings.warn(
            "a master that is cut off from its replicas goes on granting (min-replicas-to-write 0)",
            "CONFIG SET min-replicas-to-write 1, if refusing is better: docs/operations.md, \"A parted network\"",
        );
    }
    if findings.found.len() == before {
        findings.ok("its settings are fit for locks");
    }
}

fn room(findings: &mut Findings) {
    let node = findings.node;
    let limit = |name| {
        node.setting(name)?
            .parse::<u64>()
            .ok()
            .filter(|limit| *limit > 0)
    };
    if let (Some(used), Some(limit)) = (node.number("used_memory"), limit("maxmemory"))
        && used / 9 >= limit / 10
    {
        findings.warn(
            format!("{used} of {limit} bytes of memory are used; at the limit nothing is granted"),
            "Raise maxmemory, or store less.",
        );
    }
    if let (Some(clients), Some(limit)) = (node.number("connected_clients"), limit("maxclients"))
        && clients / 9 >= limit / 10
    {
        findings.warn(
            format!("{clients} of {limit} connections are open"),
            "Raise maxclients, or share connections with labels (OWNER).",
        );
    }
}

fn clock(findings: &mut Findings) {
    let apart = findings.node.clock_ahead;
    if apart.abs() <= CLOCKS_APART_MS {
        return findings.ok("its clock agrees with ours");
    }
    let which = if apart > 0 { "ahead of" } else { "behind" };
    findings.warn(
        format!(
            "its clock is {} {which} ours",
            text::time(apart.saturating_abs())
        ),
        "Keep clocks by NTP: where a server starts without its files, tokens rise by its clock.",
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn healthy() -> Node {
        let settings = [
            ("timeout", "0"),
            ("maxmemory", "0"),
            ("maxmemory-policy", "noeviction"),
            ("maxclients", "10000"),
            (
                "client-output-buffer-limit",
                "normal 1 1 60 slave 0 0 0 pubsub 1 1 60",
            ),
            ("appendonly", "yes"),
            ("appendfsync", "always"),
            ("min-replicas-to-write", "0"),
            ("cluster-enabled", "no"),
            ("tether.peer-timeout", "10000"),
            ("tether.quarantine", "0"),
            ("tether.cluster-backstop", "60000"),
        ];
        let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Node {
            name: "here:1".to_owned(),
            version: Some("1.2.3".to_owned()),
            info: "role:master\r\nredis_version:7.0.15\r\ntether_private_functions:known\r\nused_memory:5\r\n\
                   connected_clients:3\r\nrejected_connections:0\r\n"
                .to_owned(),
            settings: Some(HashMap::from(settings)),
            ..Node::default()
        }
    }

    fn with(name: &str, value: &str) -> Node {
        let mut node = healthy();
        let settings = node.settings.as_mut().unwrap();
        assert!(
            settings.insert(name.to_owned(), value.to_owned()).is_some(),
            "{name}"
        );
        node
    }

    fn saying(line: &str) -> Node {
        let mut node = healthy();
        node.info = format!("{line}\r\n{}", node.info);
        node
    }

    fn bad(findings: Vec<Finding>) -> Vec<(Level, String)> {
        let bad = findings
            .into_iter()
            .filter(|finding| finding.level != Level::Ok);
        bad.map(|finding| {
            assert!(finding.advice.is_some(), "{finding:?}");
            (finding.level, finding.what)
        })
        .collect()
    }

    /// What is bad about it: that one thing.
    fn one(findings: Vec<Finding>) -> (Level, String) {
        let mut bad = bad(findings);
        assert_eq!(bad.len(), 1, "{bad:?}");
        bad.remove(0)
    }

    #[test]
    fn of_a_healthy_server_nothing_bad_is_said() {
        assert_eq!(bad(of_server(&healthy())), []);
        assert_eq!(bad(of_replica(&healthy(), &healthy())), []);
    }

    #[test]
    fn a_server_without_the_module_is_wrong() {
        let node = Node {
            version: None,
            ..healthy()
        };
        for findings in [of_server(&node), of_replica(&node, &healthy())] {
            let (level, what) = one(findings);
            assert_eq!(
                (level, what.as_str()),
                (Level::Wrong, "the module tether is not loaded")
            );
        }
        let (level, what) = one(of_server(&saying("tether_fault:a panic")));
        assert_eq!(level, Level::Wrong);
        assert!(what.contains("a panic"));
    }

    #[test]
    fn each_setting_that_harms_locks_is_named() {
        for (name, value, word) in [
            ("timeout", "300", "timeout"),
            (
                "client-output-buffer-limit",
                "normal 0 0 0 slave 1 1 1 pubsub 1 1 1",
                "client-output-buffer-limit",
            ),
            ("appendonly", "no", "crashes"),
            ("appendfsync", "everysec", "crashes"),
            ("tether.peer-timeout", "0", "tether.peer-timeout"),
            ("maxmemory", "5", "memory"),
            ("maxclients", "3", "connections"),
        ] {
            let (level, what) = one(of_server(&with(name, value)));
            assert_eq!(level, Level::Warning);
            assert!(what.contains(word), "{name}: {what}");
        }
        let mut evicting = with("maxmemory-policy", "allkeys-lru");
        assert_eq!(bad(of_server(&evicting)), []);
        let settings = evicting.settings.as_mut().unwrap();
        settings.insert("maxmemory".to_owned(), "1000".to_owned());
        assert!(one(of_server(&evicting)).1.contains("evicts"));
        let unread = Node {
            settings: None,
            ..healthy()
        };
        assert!(one(of_server(&unread)).1.contains("cannot be read"));
    }

    #[test]
    fn a_quarantine_is_enough_where_files_are_not() {
        let mut node = with("appendonly", "no");
        let settings = node.settings.as_mut().unwrap();
        settings.insert("tether.quarantine".to_owned(), "9000".to_owned());
        assert_eq!(bad(of_server(&node)), []);
    }

    #[test]
    fn what_keeps_a_server_from_granting_is_named() {
        assert!(one(of_server(&saying("role:slave"))).1.contains("replica"));
        assert!(
            one(of_server(&saying("rejected_connections:4")))
                .1
                .contains('4')
        );
        let quarantined = Node {
            quarantine_left: 2000,
            ..healthy()
        };
        assert!(one(of_server(&quarantined)).1.contains("2.0s"));
    }

    #[test]
    fn servers_that_nobody_tested_other_versions_and_clocks_are_named() {
        let untested = saying("tether_private_functions:unknown\r\nvalkey_version:99.1");
        assert!(one(of_server(&untested)).1.contains("Valkey 99.1"));
        for (state, what, advice) in [
            (
                "unknown",
                "pushes are off: Redis 7.0.15 has not been tried",
                "tether qualify",
            ),
            ("tried", "Redis 7.0.15 has not been tried", "tether qualify"),
            (
                "bad",
                "pushes are off: Redis 7.0.15 is known to fail",
                "later patch",
            ),
            ("unfit", "pushes are off: Redis 7.0.15", "servers.md"),
            (
                "never",
                "pushes are off (tether.private-functions never)",
                "CONFIG SET",
            ),
            ("trial", "to try the server", "without arguments"),
        ] {
            let findings = of_server(&saying(&format!("tether_private_functions:{state}")));
            let is_bad = |finding: &&Finding| finding.level == Level::Warning;
            let finding = findings.iter().find(is_bad).unwrap();
            assert!(finding.what.contains(what), "{finding:?}");
            assert!(
                finding.advice.as_ref().unwrap().contains(advice),
                "{finding:?}"
            );
        }
        let qualified = saying("tether_private_functions:qualified");
        assert_eq!(bad(of_server(&qualified)), []);
        let older = Node {
            version: Some("1.2.2".to_owned()),
            ..healthy()
        };
        assert!(one(of_replica(&older, &healthy())).1.contains("1.2.2"));
        for (apart, word) in [(60_000, "ahead"), (-60_000, "behind")] {
            let node = Node {
                clock_ahead: apart,
                ..healthy()
            };
            assert!(one(of_server(&node)).1.contains(word));
        }
    }

    #[test]
    fn a_cluster_and_replicas_have_settings_of_their_own() {
        let cluster = with("cluster-enabled", "yes");
        assert!(one(of_server(&cluster)).1.contains("only this node"));
        let with_replica = saying("slave0:ip=10.0.0.2,port=6380,state=online");
        assert!(one(of_server(&with_replica)).1.contains("min-replicas"));
    }
}
