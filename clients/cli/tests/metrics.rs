//! What `tether metrics` prints of a real server: all that INFO has, and as Prometheus wants it.

#![cfg(unix)]

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};
use tether_testing::harness::{Server, eventually_equal};

fn metrics(server: &Server) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tether"));
    let url = format!("redis://127.0.0.1:{}", server.port());
    command.arg("metrics").env("TETHER_URL", url);
    let output = command.stdin(Stdio::null()).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A family of samples: what stands between its HELP line and the next one.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    /// By name and labels, as they stand there.
    samples: Vec<(String, f64)>,
}

/// Panics where the text is not as the format says, or not as the conventions for names say.
fn parse(text: &str) -> BTreeMap<String, Family> {
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut last = String::new();
    let mut seen = BTreeSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a name and a text");
            assert!(help.ends_with('.'), "{line}");
            let is_new = families
                .insert(name.to_owned(), Family::default())
                .is_none();
            assert!(is_new, "{name} comes twice");
            name.clone_into(&mut last);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a name and a type");
            let family = families.get_mut(name).expect("its HELP comes first");
            assert!(name == last && family.samples.is_empty() && family.kind.is_empty());
            kind.clone_into(&mut family.kind);
        } else {
            let (sample, value) = line.rsplit_once(' ').expect("a sample and a value");
            assert!(seen.insert(sample.to_owned()), "{sample} comes twice");
            let family = families.get_mut(&last).expect("its HELP comes first");
            let value = value.parse().expect("a number");
            family.samples.push((sample.to_owned(), value));
        }
    }
    assert!(text.ends_with('\n'));
    for (name, family) in &families {
        check(name, family);
    }
    families
}

fn check(name: &str, family: &Family) {
    let is_name = |name: &str| {
        let mut bytes = name.bytes();
        bytes.all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    assert!(name.starts_with("tether_") && is_name(name), "{name}");
    assert!(!family.samples.is_empty(), "{name} has no sample");
    for (sample, value) in &family.samples {
        let (own, labels) = sample.split_once('{').unwrap_or((sample, "}"));
        let labels = labels.strip_suffix('}').expect("the labels end");
        for label in labels.split(',').filter(|label| !label.is_empty()) {
            let (label, value) = label.split_once('=').expect("a label and a value");
            assert!(is_name(label), "{sample}");
            assert!(value.len() >= 2 && value.starts_with('"') && value.ends_with('"'));
        }
        let end = own.strip_prefix(name).expect("the family's name");
        let is_right = match family.kind.as_str() {
            "gauge" => end.is_empty() && !name.ends_with("_total"),
            "counter" => end.is_empty() && name.ends_with("_total"),
            "histogram" => ["_bucket", "_sum", "_count"].contains(&end),
            other => panic!("{name} is a {other}"),
        };
        assert!(is_right && *value >= 0.0, "{sample} {value}");
    }
    if family.kind == "histogram" {
        check_histogram(name, family);
    }
}

/// The buckets rise and are cumulative; the last one is the count.
fn check_histogram(name: &str, family: &Family) {
    let (mut bound, mut below) = (f64::NEG_INFINITY, 0.0);
    let mut buckets = 0;
    let prefix = format!("{name}_bucket{{le=\"");
    for (sample, count) in &family.samples {
        let Some(le) = sample.strip_prefix(&prefix) else {
            continue;
        };
        let le: f64 = le.strip_suffix("\"}").unwrap().parse().unwrap();
        assert!(le > bound && *count >= below, "{sample}");
        (bound, below) = (le, *count);
        buckets += 1;
    }
    assert_eq!((buckets, bound), (20, f64::INFINITY), "{name}");
    let of = |end: &str| {
        let name = format!("{name}_{end}");
        let found = family.samples.iter().find(|(sample, _)| *sample == name);
        found.unwrap_or_else(|| panic!("{name} is missing")).1
    };
    assert_eq!(of("count"), below);
    assert!(of("sum") >= 0.0);
    assert_eq!(family.samples.len(), 22);
}

#[test]
fn metrics_are_what_prometheus_wants_and_have_every_number_of_info() {
    let server = Server::start();
    let (mut owner, mut waiter) = (server.resp3(), server.resp3());
    owner.run_all(&["LOCK.ACQUIRE report", "SETTP a v", "SETTP b v"]);
    waiter.run("LOCK.ACQUIRE report WAIT 0 PUSH");
    server.resp3().run("DEL a");
    drop(owner);
    assert!(waiter.next_push().starts_with("lock report "));
    eventually_equal("both have died", 2, || {
        server.gauge("tether", "tether_lost_died_total")
    });
    waiter.run("LOCK.RELEASE report");
    waiter.run("LOCK.ACQUIRE report");
    let text = metrics(&server);
    let families = parse(&text);
    let samples: BTreeMap<_, _> = families
        .values()
        .flat_map(|family| family.samples.iter().cloned())
        .collect();
    for (sample, expected) in [
        ("tether_up", 1.0),
        ("tether_fault", 0.0),
        ("tether_holds", 1.0),
        ("tether_held_keys", 1.0),
        ("tether_lost_total{reason=\"deleted\"}", 1.0),
        ("tether_lost_total{reason=\"died\"}", 2.0),
        ("tether_lost_total{reason=\"promoted\"}", 0.0),
        ("tether_pushes_total{state=\"sent\"}", 1.0),
        ("tether_pushes_total{state=\"dropped\"}", 0.0),
        ("tether_wait_seconds_count", 1.0),
        ("tether_hold_seconds_count", 4.0),
        ("tether_hold_seconds_bucket{le=\"86400\"}", 4.0),
    ] {
        assert_eq!(samples.get(sample), Some(&expected), "{sample} in\n{text}");
    }
    let build = samples
        .keys()
        .find(|name| name.starts_with("tether_build_info{"));
    let build = build.expect("the version");
    let version = format!("version=\"{}\",commit=\"", env!("CARGO_PKG_VERSION"));
    assert!(build.contains(&version), "{build}");
    let is_server = ["server=\"Redis ", "server=\"Valkey "];
    assert!(is_server.iter().any(|name| build.contains(name)), "{build}");
    // Each number of INFO is there, by its name or with a label.
    let info = server.info("tether");
    let fields = info
        .lines()
        .filter_map(|line| line.trim_end().split_once(':'));
    let numbers = fields.filter(|(_, value)| value.parse::<f64>().is_ok());
    let mut lost = 0.0;
    for (name, value) in numbers {
        let labelled = |prefix: &str, label: &str| {
            let word = name.strip_prefix(prefix)?.strip_suffix("_total")?;
            let (family, _) = prefix.rsplit_once('_')?;
            Some(format!("{family}_total{{{label}=\"{word}\"}}"))
        };
        let sample = labelled("tether_lost_", "reason")
            .or_else(|| labelled("tether_pushes_", "state"))
            .unwrap_or_else(|| name.to_owned());
        // The sum has no sample of its own: it would count twice in sums.
        let is_known =
            samples.contains_key(&sample) || ["tether_lost_total", "tether_commit"].contains(&name);
        assert!(is_known, "{name} is missing in\n{text}");
        if sample.contains("reason=") {
            lost += value.parse::<f64>().unwrap();
        }
    }
    assert_eq!(lost, server.gauge("tether", "tether_lost_total") as f64);
}
