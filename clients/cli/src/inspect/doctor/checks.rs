//! What is to say of a server's facts.

use super::facts::{Node, Sentinel};
use super::files::Line;
use crate::address;
use crate::inspect::server::Failure;
use crate::inspect::text;
use crate::output::Paint;
use redis::ConnectionInfo;
use std::path::Path;
use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    Ok,
    /// A choice that is as it is by default, and what it costs.
    Note,
    /// Works, but perhaps not as wished.
    Warning,
    Wrong,
}

impl Level {
    pub fn name(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Note => "note",
            Level::Warning => "warn",
            Level::Wrong => "wrong",
        }
    }

    pub fn paint(self) -> Paint {
        match self {
            Level::Ok => Paint::Green,
            Level::Note => Paint::Bold,
            Level::Warning => Paint::Yellow,
            Level::Wrong => Paint::Red,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    pub level: Level,
    /// Empty where the finding names it.
    pub server: String,
    pub what: String,
    /// What to do, and to know before.
    pub advice: Option<String>,
    /// That does it, or shows more of it.
    pub command: Option<String>,
}

/// Clocks that differ by more than that are a fault of somebody's.
const CLOCKS_APART_MS: i64 = 10_000;

/// How long Sentinels take to elect a leader and to promote a replica.
const PROMOTED_WITHIN: Duration = Duration::from_secs(2);

/// In seconds: a replica says something every second.
const LATE_REPLICA: u64 = 10;

/// A client reads no more of its pushes at once than that.
const SMALL_OUTPUT: u64 = 1 << 20;

/// Where a configuration file says nothing.
const DEFAULTS: [(&str, &str); 9] = [
    ("timeout", "0"),
    ("appendonly", "no"),
    ("appendfsync", "everysec"),
    ("maxmemory-policy", "noeviction"),
    ("min-replicas-to-write", "0"),
    ("tether.peer-timeout", "10000"),
    ("tether.quarantine", "0"),
    ("tether.cluster-backstop", "60000"),
    ("tether.qualified", "none"),
];

/// The findings of one server, as they come.
struct Findings<'a> {
    node: &'a Node,
    found: Vec<Finding>,
}

impl Findings<'_> {
    fn of(node: &Node) -> Findings<'_> {
        let found = Vec::new();
        Findings { node, found }
    }

    fn ok(&mut self, what: impl Into<String>) {
        self.found.push(Finding {
            level: Level::Ok,
            server: self.node.name.clone(),
            what: what.into(),
            advice: None,
            command: None,
        });
    }

    fn say(&mut self, level: Level, what: impl Into<String>, advice: &str, command: String) {
        self.found.push(Finding {
            level,
            server: self.node.name.clone(),
            what: what.into(),
            advice: (!advice.is_empty()).then(|| advice.to_owned()),
            command: Some(command),
        });
    }

    fn note(&mut self, what: impl Into<String>, advice: &str, command: String) {
        self.say(Level::Note, what, advice, command);
    }

    fn warn(&mut self, what: impl Into<String>, advice: &str, command: String) {
        self.say(Level::Warning, what, advice, command);
    }

    fn wrong(&mut self, what: impl Into<String>, advice: &str, command: String) {
        self.say(Level::Wrong, what, advice, command);
    }

    /// A command for the server.
    fn cli(&self, words: &str) -> String {
        format!("{} {words}", self.node.cli)
    }
}

/// Of the server that clients are to use.
pub fn of_server(node: &Node) -> Vec<Finding> {
    let mut findings = Findings::of(node);
    if has_module(&mut findings, None) {
        is_working(&mut findings);
        replicas(&mut findings);
        files(&mut findings);
        settings(&mut findings);
        room(&mut findings);
    }
    clock(&mut findings);
    findings.found
}

/// Of a replica, which may take the master's place.
pub fn of_replica(node: &Node, master: &Node) -> Vec<Finding> {
    let mut findings = Findings::of(node);
    if has_module(&mut findings, Some(master)) {
        if node.field("master_link_status") == Some("down") {
            let command = findings.cli("INFO replication");
            findings.warn(
                "its link to its master is down: it falls behind",
                "The log of each of the two says why.",
                command,
            );
        }
        replicas(&mut findings);
        files(&mut findings);
        settings(&mut findings);
    }
    clock(&mut findings);
    findings.found
}

/// Of what could not be asked, which the failure names.
pub fn of_unreachable(what: &str, failure: &Failure) -> Vec<Finding> {
    let (Failure::Unreachable(why)
    | Failure::NoModule(why)
    | Failure::Refused(why)
    | Failure::Failed(why)) = failure
    else {
        return Vec::new();
    };
    vec![Finding {
        level: Level::Warning,
        server: String::new(),
        what: format!("this {what} could not be asked: {why}"),
        advice: Some("Run this where it can be reached:".to_owned()),
        command: Some("tether doctor".to_owned()),
    }]
}

/// Of a cluster whose masters this user may not ask for.
pub fn of_unknown_cluster(node: &ConnectionInfo, why: &str) -> Finding {
    Finding {
        level: Level::Note,
        server: String::new(),
        what: format!("only this node of the cluster is looked at: {why}"),
        advice: Some("Or run `tether doctor` for each master:".to_owned()),
        command: Some(format!("{} CLUSTER NODES", address::redis_cli(node))),
    }
}

/// Whether clients with this grace, which stop their work within that time, are still at it when a failover is over.
pub fn of_sentinel(
    sentinel: &Sentinel,
    master: &str,
    grace: Duration,
    stop_within: Duration,
) -> Vec<Finding> {
    let Sentinel {
        name,
        cli,
        down_after_ms,
        others,
        quorum,
    } = sentinel;
    let finding = |level, what, advice: &str, words: &str| Finding {
        level,
        server: name.clone(),
        what,
        advice: Some(advice.to_owned()),
        command: Some(format!("{cli} {words}")),
    };
    let mut found = Vec::new();
    let down_after = Duration::from_millis(*down_after_ms);
    let fence = grace.saturating_sub(stop_within + tether_client::timing::MARGIN);
    let times = format!(
        "a grace of {} and {} to stop",
        text::time(grace.as_millis() as i64),
        text::time(stop_within.as_millis() as i64)
    );
    if down_after + PROMOTED_WITHIN > fence {
        let most = fence.saturating_sub(PROMOTED_WITHIN).as_millis();
        found.push(finding(
            Level::Warning,
            format!(
                "it waits {} until it replaces a silent master: with {times} clients give their locks up before that",
                text::time(down_after.as_millis() as i64),
            ),
            "Give clients a longer grace (--grace and --kill-after say what they have), or shorten this at each Sentinel:",
            &format!("SENTINEL SET {master} down-after-milliseconds {}", most.max(1000)),
        ));
    }
    if others + 1 < *quorum {
        found.push(finding(
            Level::Wrong,
            format!(
                "it knows {others} other Sentinels, and {quorum} must agree: no failover happens"
            ),
            "Start the others, or correct the number:",
            &format!("SENTINEL CKQUORUM {master}"),
        ));
    }
    if found.is_empty() {
        found.push(Finding {
            level: Level::Ok,
            server: name.clone(),
            what: format!("this Sentinel's times fit {times}"),
            advice: None,
            command: None,
        });
    }
    found
}

fn has_module(findings: &mut Findings, master: Option<&Node>) -> bool {
    let node = findings.node;
    let Some(version) = &node.version else {
        let command = findings.cli("MODULE LIST");
        findings.wrong(
            "the module tether is not loaded",
            "Put `loadmodule /path/to/libtether.so` into its configuration, on the master and on each replica, and restart it.",
            command,
        );
        return false;
    };
    match master.and_then(|master| Some((&master.name, master.version.as_ref()?))) {
        Some((name, theirs)) if theirs != version => {
            let command = findings.cli("MODULE LIST");
            findings.warn(
                format!("the module has version {version}, but its master {name} has {theirs}"),
                "Replicas get the new version first, then take over: docs/tasks.md, \"Upgrade\".",
                command,
            );
        }
        _ => findings.ok(format!("the module is loaded, version {version}")),
    }
    if let Some(fault) = node.field("tether_fault") {
        let command = findings.cli("INFO tether");
        findings.wrong(
            format!("the module has stopped after a fault: {fault}"),
            "Restart the server or fail over, and report the cause.",
            command,
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
    const QUALIFY: &str = "On its machine, with its own program (--server), and then restart it:";
    let qualify = "tether qualify >> /path/to/redis.conf".to_owned();
    let never = findings.cli("CONFIG SET tether.private-functions known");
    let info = findings.cli("INFO server");
    match findings.node.field("tether_private_functions") {
        Some("known") | None => findings.ok(format!("pushes are on: {series} is known to tether")),
        Some("qualified") => findings.ok(format!("pushes are on: {series} has qualified")),
        Some("unknown") => findings.warn(
            format!("pushes are off: {series} has not been tried with tether"),
            QUALIFY,
            qualify,
        ),
        Some("tried") => findings.warn(
            format!("pushes are on, and {series} has not been tried with tether (tether.private-functions always)"),
            QUALIFY,
            qualify,
        ),
        Some("never") => findings.warn("pushes are off (tether.private-functions never)", "", never),
        Some("trial") => findings.warn(
            "the module was loaded as `tether qualify` does, to try the server",
            "Load it without arguments.",
            "grep -n loadmodule /path/to/redis.conf".to_owned(),
        ),
        Some("bad") => findings.warn(
            format!("pushes are off: {series} is known to fail with tether"),
            "Take a later patch release of the server. This one is:",
            info,
        ),
        Some(state) => findings.warn(
            format!("pushes are off: {series} lacks server functions that they need (tether_private_functions: {state})"),
            "docs/servers.md says what works without them.",
            info,
        ),
    }
}

fn is_working(findings: &mut Findings) {
    let node = findings.node;
    if node.field("role") == Some("slave") {
        let master = node.master();
        let master = master.map_or("HOST".to_owned(), |(host, port)| format!("{host}:{port}"));
        findings.warn(
            "this server is a replica, and grants nothing",
            "Use the master's address, or redis+sentinel://.",
            format!("tether doctor --url redis://{master}"),
        );
    }
    if node.quarantine_left > 0 {
        let command = findings.cli("CONFIG GET tether.quarantine");
        findings.warn(
            format!(
                "it was just started: nothing is granted for another {}",
                text::time(node.quarantine_left)
            ),
            "Wait; tether.quarantine says how long it lasts.",
            command,
        );
    }
    if let Some(refused) = node
        .number("rejected_connections")
        .filter(|count| *count > 0)
    {
        let command = findings.cli("CONFIG SET maxclients 20000");
        findings.warn(
            format!("{refused} connections were refused since its start"),
            "Raise maxclients: each client that holds locks has its own connection.",
            command,
        );
    }
}

/// What it knows of its replicas, and whether they are enough.
fn replicas(findings: &mut Findings) {
    let node = findings.node;
    let links = node.replicas();
    let command = findings.cli("INFO replication");
    for link in &links {
        let of = format!("its replica {}:{}", link.host, link.port);
        if link.state != "online" {
            let what = format!("{of} is not there yet (state {})", link.state);
            findings.warn(what, "It cannot take over now.", command.clone());
        } else if link.lag > LATE_REPLICA {
            let what = format!("{of} has said nothing for {} seconds", link.lag);
            findings.warn(
                what,
                "What it does not have is lost in a failover.",
                command.clone(),
            );
        }
    }
    let wanted = node
        .setting("min-replicas-to-write")
        .and_then(|count| count.parse().ok());
    let wanted: u64 = wanted.unwrap_or(0);
    let most_lag = node
        .setting("min-replicas-max-lag")
        .and_then(|lag| lag.parse().ok());
    let is_good = |lag| most_lag.is_none_or(|most| most == 0 || lag <= most);
    let good = links
        .iter()
        .filter(|link| link.state == "online" && is_good(link.lag));
    let good = good.count() as u64;
    if node.field("role") == Some("master") && good < wanted {
        findings.wrong(
            format!("nothing is granted: {good} replicas are connected, and min-replicas-to-write is {wanted}"),
            "Bring replicas back, or ask for fewer:",
            findings.cli(&format!("CONFIG SET min-replicas-to-write {good}")),
        );
    } else if !links.is_empty() && wanted == 0 && node.settings.is_some() {
        findings.note(
            "if it is cut off from its replicas, it keeps granting locks (min-replicas-to-write 0)",
            "With 1 it refuses instead, and the loss of the last replica stops all locks (docs/operations.md, \"A parted network\"):",
            findings.cli("CONFIG SET min-replicas-to-write 1"),
        );
    }
}

/// Whether the server starts again, and as it is now.
fn files(findings: &mut Findings) {
    let node = findings.node;
    let Some(lines) = &node.lines else { return };
    let loads: Vec<_> = lines
        .iter()
        .filter(|line| line.loads(&node.loaded))
        .collect();
    // The path may be that of a version that the next start loads.
    let loads_another = |line: &Line| {
        line.name == "loadmodule" && Path::new(&line.first()).file_name() == node.loaded.file_name()
    };
    match loads.as_slice() {
        several @ [_, _, ..] => {
            let places: Vec<_> = several.iter().map(|line| line.place()).collect();
            let files: Vec<_> = several.iter().map(|line| line.file.display().to_string()).collect();
            findings.wrong(
                format!(
                    "its configuration loads the library {} times, and with that it does not start: {}",
                    several.len(),
                    places.join(", ")
                ),
                "Keep one `loadmodule` line, in the main file, and delete the others: CONFIG REWRITE does not know those in an `include`, and appends its own.",
                format!("grep -n loadmodule {}", files.join(" ")),
            );
        }
        [line] if line.is_included => findings.warn(
            format!(
                "its `loadmodule` line is in a file that is included: {}",
                line.place()
            ),
            "Move it to the main file, before CONFIG REWRITE (which Sentinel sends) appends a second one there: with two the server does not start.",
            format!("grep -n loadmodule {}", line.file.display()),
        ),
        [] if !node.loaded.as_os_str().is_empty() && !lines.iter().any(loads_another) => {
            let command = findings.cli("CONFIG REWRITE");
            findings.wrong(
                "the module is loaded, but the configuration file does not load it",
                "It does not start again with files that have locks. If the module is not given when the server starts, write it down:",
                command,
            );
        }
        _ => {}
    }
    role(findings, lines);
    save_points(findings, lines);
    rewritten(findings);
}

/// Whether it saves as often after a restart. Redis forgets all `save` lines before one that follows an `include`; CONFIG REWRITE
/// appends them there.
fn save_points(findings: &mut Findings, lines: &[Line]) {
    let saves = lines.iter().filter(|line| line.name == "save");
    let below = lines.iter().skip_while(|line| !line.is_included);
    let below = below.filter(|line| !line.is_included && line.name == "save");
    let (Some(last), true) = (below.last(), saves.count() > 1) else {
        return;
    };
    if findings.node.field("valkey_version").is_some() {
        return;
    }
    findings.warn(
        format!(
            "a restart forgets save points: only {} counts, since it follows an include",
            last.place()
        ),
        "Move all `save` lines above the `include`.",
        format!("grep -nE '^(save|include) ' {}", last.file.display()),
    );
}

/// Whether it restarts in the role that it has: not as a second master, which grants locks a second time.
fn role(findings: &mut Findings, lines: &[Line]) {
    let node = findings.node;
    // The nodes of a cluster keep it in nodes.conf.
    if node.setting("cluster-enabled") != Some("no") {
        return;
    }
    let following = lines
        .iter()
        .rfind(|line| matches!(line.name.as_str(), "replicaof" | "slaveof"))
        .filter(|line| !line.value.eq_ignore_ascii_case("no one"));
    let what = match (node.field("role"), following) {
        (Some("slave"), None) => {
            "it is a replica, but its configuration file does not say so: it restarts as a master, and grants locks that its master has granted".to_owned()
        }
        (Some("master"), Some(line)) => {
            format!("it is a master, but restarts as a replica: {} says so", line.place())
        }
        _ => return,
    };
    let command = findings.cli("CONFIG REWRITE");
    findings.warn(
        what,
        "If its role is not given when the server starts, write it down:",
        command,
    );
}

/// What a rewrite has put in front of an included file, and what no file has.
fn rewritten(findings: &mut Findings) {
    let node = findings.node;
    let lines = node.lines.as_deref().unwrap_or_default();
    for (name, default) in DEFAULTS {
        let said: Vec<_> = lines.iter().filter(|line| line.name == name).collect();
        if let [.., hidden, last] = said.as_slice()
            && hidden.is_included != last.is_included
            && hidden.whole() != last.whole()
            // Files that name every setting, as those of this project do, have it at its default until somebody wants another.
            && hidden.whole() != default
        {
            findings.warn(
                format!(
                    "{name} is set twice: {} counts ({}), and {} does not ({})",
                    last.place(),
                    last.whole(),
                    hidden.place(),
                    hidden.whole()
                ),
                "CONFIG REWRITE, which Sentinel sends, appends settings to the main file. Keep one of the two.",
                format!("grep -n {name} {} {}", last.file.display(), hidden.file.display()),
            );
        }
        let written = said.last().map_or(default.to_owned(), |line| line.whole());
        let Some(now) = node.setting(name).filter(|now| *now != written) else {
            continue;
        };
        let (place, advice, command) = match said.last() {
            // CONFIG REWRITE would leave that line, and append another one to the main file.
            Some(line) if line.is_included => (
                format!("as {} says", line.place()),
                "If it is not given when the server starts, write it into that file:",
                line.replacement(now),
            ),
            _ => (
                "its file says nothing else".to_owned(),
                "If it is not given when the server starts, write it down:",
                findings.cli("CONFIG REWRITE"),
            ),
        };
        let what = format!("{name} is {now}, and {written} after a restart: {place}");
        findings.note(what, advice, command);
    }
}

fn settings(findings: &mut Findings) {
    let node = findings.node;
    if node.settings.is_none() {
        let user = "Allow this user `config|get`, or ask as an administrator.";
        let command = findings.cli("ACL WHOAMI");
        return findings.warn("its settings cannot be read", user, command);
    }
    let is = |name, value: &str| node.setting(name) == Some(value);
    let before = findings.found.len();
    if !is("timeout", "0") {
        let command = findings.cli("CONFIG SET timeout 0");
        findings.warn(
            "it closes idle connections (timeout), and their locks are lost",
            "",
            command,
        );
    }
    let policy = node.setting("maxmemory-policy").unwrap_or_default();
    let is_cluster = is("cluster-enabled", "yes");
    let (evicts, advice) = match is_cluster {
        // There temporary keys have a time to live.
        true => (policy != "noeviction", "Take noeviction:"),
        false => (
            policy.starts_with("allkeys"),
            "Take noeviction, or one of volatile-*:",
        ),
    };
    if evicts && !is("maxmemory", "0") {
        let command = findings.cli("CONFIG SET maxmemory-policy noeviction");
        findings.warn(
            format!("maxmemory-policy {policy} evicts locks"),
            advice,
            command,
        );
    }
    output_limits(findings);
    if is("tether.peer-timeout", "0") {
        let command = findings.cli("CONFIG SET tether.peer-timeout 10000");
        findings.warn(
            "a host that vanishes keeps its locks until tcp-keepalive notices (tether.peer-timeout 0)",
            "",
            command,
        );
    }
    if is("tether.quarantine", "0") && !(is("appendonly", "yes") && is("appendfsync", "always")) {
        let command = findings.cli("CONFIG SET tether.quarantine 10000");
        findings.note(
            "after a crash it may grant a lock again while its old holder still works (appendfsync is not always, tether.quarantine is 0)",
            "Use appendonly yes with appendfsync always; or set tether.quarantine to the longest grace of its clients, for which then nothing is granted after each start. CONFIG REWRITE writes it down.",
            command,
        );
    }
    if is("cluster-enabled", "yes") && is("tether.cluster-backstop", "0") {
        let command = findings.cli("CONFIG SET tether.cluster-backstop 60000");
        findings.warn(
            "temporary keys whose slot moves stay for ever (tether.cluster-backstop 0)",
            "",
            command,
        );
    }
    if findings.found.len() == before {
        findings.ok("its settings are fit for locks");
    }
}

/// Who does not read its pushes neither fills the memory nor is closed for a few.
fn output_limits(findings: &mut Findings) {
    let limits = findings.node.setting("client-output-buffer-limit");
    let mut words = limits.unwrap_or_default().split_whitespace();
    let is_normal = words.any(|word| word == "normal");
    let hard = words.next().and_then(bytes);
    let soft = words.next().and_then(bytes);
    let command = findings.cli("CONFIG SET client-output-buffer-limit 'normal 64mb 16mb 60'");
    match (is_normal, hard, soft) {
        (true, Some(0), Some(0)) => findings.warn(
            "a client that does not read its pushes can fill the memory (client-output-buffer-limit normal 0 0 0)",
            "",
            command,
        ),
        (true, Some(hard @ 1..SMALL_OUTPUT), _) => findings.warn(
            format!("a client that is late with its pushes is closed, and its locks end (client-output-buffer-limit normal {hard})"),
            "",
            command,
        ),
        _ => {}
    }
}

/// As CONFIG GET returns it, and as files have it.
fn bytes(word: &str) -> Option<u64> {
    let at = word
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(word.len());
    let number: u64 = word[..at].parse().ok()?;
    let unit = match word[at..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" => 1000,
        "kb" => 1 << 10,
        "m" => 1_000_000,
        "mb" => 1 << 20,
        "g" => 1_000_000_000,
        "gb" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(unit)
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
        let command = findings.cli(&format!("CONFIG SET maxmemory {}", limit.saturating_mul(2)));
        findings.warn(
            format!("{used} of {limit} bytes of memory are used; at the limit nothing is granted"),
            "Raise maxmemory, or store less.",
            command,
        );
    }
    if let (Some(clients), Some(limit)) = (node.number("connected_clients"), limit("maxclients"))
        && clients / 9 >= limit / 10
    {
        let command = findings.cli(&format!(
            "CONFIG SET maxclients {}",
            limit.saturating_mul(2)
        ));
        findings.warn(
            format!("{clients} of {limit} connections are open"),
            "Raise maxclients, or share connections with labels (OWNER).",
            command,
        );
    }
}

fn clock(findings: &mut Findings) {
    let apart = findings.node.clock_ahead;
    if apart.abs() <= CLOCKS_APART_MS {
        return findings.ok("its clock agrees with ours");
    }
    let which = if apart > 0 { "ahead of" } else { "behind" };
    let command = findings.cli("TIME");
    findings.warn(
        format!(
            "its clock is {} {which} ours",
            text::time(apart.saturating_abs())
        ),
        "Keep clocks by NTP: where a server starts without its files, tokens rise by its clock.",
        command,
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
                "normal 67108864 16777216 60 slave 0 0 0 pubsub 1 1 60",
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
            assert!(finding.command.is_some(), "{finding:?}");
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
            ("appendonly", "no", "after a crash"),
            ("appendfsync", "everysec", "after a crash"),
            ("tether.peer-timeout", "0", "tether.peer-timeout"),
            ("maxmemory", "5", "memory"),
            ("maxclients", "3", "connections"),
        ] {
            let (level, what) = one(of_server(&with(name, value)));
            // As the project's own configuration has it.
            let is_default = name.starts_with("append");
            let expected = if is_default {
                Level::Note
            } else {
                Level::Warning
            };
            assert_eq!(level, expected, "{name}");
            assert!(what.contains(word), "{name}: {what}");
        }
        let mut evicting = with("maxmemory-policy", "allkeys-lru");
        assert_eq!(bad(of_server(&evicting)), []);
        let settings = evicting.settings.as_mut().unwrap();
        settings.insert("maxmemory".to_owned(), "1000".to_owned());
        assert!(one(of_server(&evicting)).1.contains("evicts"));
        let mut volatile = with("maxmemory-policy", "volatile-lru");
        let settings = volatile.settings.as_mut().unwrap();
        settings.insert("maxmemory".to_owned(), "1000".to_owned());
        assert_eq!(bad(of_server(&volatile)), []);
        let settings = volatile.settings.as_mut().unwrap();
        settings.insert("cluster-enabled".to_owned(), "yes".to_owned());
        assert!(one(of_server(&volatile)).1.contains("evicts"));
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
                format!("{:?} {:?}", finding.advice, finding.command).contains(advice),
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
        let mut cluster = with("cluster-enabled", "yes");
        assert_eq!(bad(of_server(&cluster)), []);
        let settings = cluster.settings.as_mut().unwrap();
        settings.insert("tether.cluster-backstop".to_owned(), "0".to_owned());
        assert!(one(of_server(&cluster)).1.contains("for ever"));
        let with_replica = saying("slave0:ip=10.0.0.2,port=6380,state=online");
        assert!(one(of_server(&with_replica)).1.contains("min-replicas"));
    }

    #[test]
    fn links_and_the_replicas_that_are_wanted_are_looked_at() {
        let mut syncing = saying("slave0:ip=10.0.0.2,port=6380,state=wait_bgsave,lag=0");
        let settings = syncing.settings.as_mut().unwrap();
        settings.insert("min-replicas-to-write".to_owned(), "1".to_owned());
        let found = bad(of_server(&syncing));
        assert!(
            found[0].1.contains("10.0.0.2:6380 is not there yet"),
            "{found:?}"
        );
        assert_eq!(found[1].0, Level::Wrong);
        assert!(
            found[1].1.contains("nothing is granted: 0 replicas"),
            "{found:?}"
        );
        let late = saying("slave0:ip=10.0.0.2,port=6380,state=online,lag=99");
        assert!(bad(of_server(&late))[0].1.contains("for 99 seconds"));
        let down = saying("role:slave\r\nmaster_link_status:down");
        assert!(
            one(of_replica(&down, &healthy()))
                .1
                .contains("link to its master is down")
        );
    }

    #[test]
    fn output_limits_are_neither_none_nor_small() {
        let limits = |limits: &str| bad(of_server(&with("client-output-buffer-limit", limits)));
        assert_eq!(limits("normal 67108864 16777216 60 slave 0 0 0"), []);
        assert!(
            limits("slave 0 0 0 normal 1000 0 0")[0]
                .1
                .contains("normal 1000")
        );
        assert_eq!(bytes("64mb"), Some(64 << 20));
    }

    /// A line of the main file, or of one that it includes.
    fn line(number: usize, is_included: bool, name: &str, value: &str) -> Line {
        let file = if is_included {
            "more.conf"
        } else {
            "main.conf"
        };
        Line {
            file: file.into(),
            number,
            is_included,
            name: name.to_owned(),
            value: value.to_owned(),
        }
    }

    #[test]
    fn what_a_rewrite_did_to_a_configuration_is_named() {
        let mut node = with("tether.quarantine", "5");
        let always = [
            line(1, false, "appendonly", "yes"),
            line(2, false, "appendfsync", "always"),
        ];
        let twice = [
            line(7, true, "tether.quarantine", "9000"),
            line(3, false, "tether.quarantine", "5"),
        ];
        node.lines = Some([&always[..], &twice].concat());
        let defaults = [
            line(7, true, "tether.quarantine", "0"),
            line(3, false, "tether.quarantine", "5"),
        ];
        let with_defaults = Node {
            lines: Some([&always[..], &defaults].concat()),
            ..node.clone()
        };
        assert_eq!(bad(of_server(&with_defaults)), []);
        let (level, what) = one(of_server(&node));
        assert_eq!(level, Level::Warning);
        assert!(
            what.contains("main.conf line 3 counts (5), and more.conf line 7"),
            "{what}"
        );
        node.lines = Some(always.to_vec());
        let (level, what) = one(of_server(&node));
        assert_eq!(level, Level::Note);
        assert!(
            what.contains("tether.quarantine is 5, and 0 after a restart"),
            "{what}"
        );
        // As the package has it. CONFIG REWRITE would make this one the setting that is given twice.
        let included = line(7, true, "tether.quarantine", "0");
        node.lines = Some([&always[..], &[included]].concat());
        let found = of_server(&node);
        let note = found.iter().find(|finding| finding.level == Level::Note);
        let note = note.expect("a note");
        assert!(note.what.ends_with("as more.conf line 7 says"), "{note:?}");
        let command = "sed -i '7s/.*/tether.quarantine 5/' more.conf";
        assert_eq!(note.command.as_deref(), Some(command));
        // The package's two lines, and what a rewrite has kept of the server before.
        let qualified = |rewritten| {
            let lines = [
                line(8, true, "tether.qualified", "none"),
                line(1, true, "tether.qualified", "a b"),
                line(4, false, "tether.qualified", rewritten),
            ];
            Node {
                lines: Some([&always[..], &lines].concat()),
                ..healthy()
            }
        };
        assert_eq!(bad(of_server(&qualified("\"a b\""))), []);
        let (level, what) = one(of_server(&qualified("\"a c\"")));
        assert_eq!(level, Level::Warning);
        assert!(
            what.contains("main.conf line 4 counts (a c), and more.conf line 1 does not (a b)"),
            "{what}"
        );
    }

    #[test]
    fn save_points_that_a_restart_would_forget_are_named() {
        let (one_point, other) = (("save", "3600 1"), ("save", "60 10000"));
        let written = |lines: &[(bool, &str, &str)], version| {
            let always = [
                (false, "appendonly", "yes"),
                (false, "appendfsync", "always"),
            ];
            let all = always.iter().chain(lines);
            let all = (1..).zip(all).map(|(number, (is_included, name, value))| {
                line(number, *is_included, name, value)
            });
            Node {
                lines: Some(all.collect()),
                ..saying(version)
            }
        };
        let include = (true, "tether.log-max-len", "1024");
        let save = |(name, value)| (false, name, value);
        for lines in [
            vec![save(one_point), save(other), include],
            vec![include, save(other)],
        ] {
            assert_eq!(bad(of_server(&written(&lines, ""))), []);
        }
        let apart = [save(one_point), include, save(other)];
        let below = [include, save(one_point), save(other)];
        for lines in [apart, below] {
            let (level, what) = one(of_server(&written(&lines, "")));
            assert_eq!(level, Level::Warning);
            assert!(what.contains("only main.conf line 5 counts"), "{what}");
            assert_eq!(bad(of_server(&written(&lines, "valkey_version:9.1.0"))), []);
        }
    }

    #[test]
    fn a_role_or_a_module_that_a_restart_would_change_is_named() {
        let line = |name, value| line(3, false, name, value);
        let written = |role, more: &[Line]| {
            let lines = [line("appendonly", "yes"), line("appendfsync", "always")];
            Node {
                lines: Some([&lines[..], more].concat()),
                ..saying(role)
            }
        };
        let follows = |name| line(name, "10.0.0.1 6379");
        for node in [
            written("role:master", &[]),
            written("role:master", &[line("replicaof", "no one")]),
            written("role:slave", &[follows("replicaof")]),
            written("role:slave", &[follows("slaveof")]),
        ] {
            assert_eq!(bad(of_replica(&node, &healthy())), []);
        }
        let (level, what) = one(of_server(&written("role:master", &[follows("replicaof")])));
        assert_eq!(level, Level::Warning);
        assert!(what.contains("main.conf line 3"), "{what}");
        let (level, what) = one(of_replica(&written("role:slave", &[]), &healthy()));
        assert_eq!(level, Level::Warning);
        assert!(what.contains("restarts as a master"), "{what}");
        let mut node = written("role:slave", &[]);
        let settings = node.settings.as_mut().unwrap();
        settings.insert("cluster-enabled".to_owned(), "yes".to_owned());
        assert_eq!(bad(of_replica(&node, &healthy())), []);

        let mut node = written("role:master", &[]);
        node.loaded = "/libtether.so".into();
        let (level, what) = one(of_server(&node));
        assert_eq!(level, Level::Wrong);
        assert!(what.contains("does not load it"), "{what}");
        for path in ["/libtether.so", "/next/libtether.so"] {
            node = written("role:master", &[line("loadmodule", path)]);
            node.loaded = "/libtether.so".into();
            assert_eq!(bad(of_server(&node)), []);
        }
    }

    #[test]
    fn sentinels_are_in_time_for_the_grace() {
        let sentinel = |down_after_ms, others, quorum| Sentinel {
            name: "s:1".to_owned(),
            cli: "redis-cli -h s -p 1".to_owned(),
            down_after_ms,
            others,
            quorum,
        };
        let [grace, stop_within] = [10, 1].map(Duration::from_secs);
        let found = |sentinel: &Sentinel| of_sentinel(sentinel, "m", grace, stop_within);
        assert_eq!(bad(found(&sentinel(5000, 2, 2))), []);
        let late = found(&sentinel(7000, 2, 2));
        assert_eq!(late[0].level, Level::Warning);
        let command = "redis-cli -h s -p 1 SENTINEL SET m down-after-milliseconds 6000";
        assert_eq!(late[0].command.as_deref(), Some(command));
        assert_eq!(found(&sentinel(5000, 0, 2))[0].level, Level::Wrong);
    }
}
