//! INFO tether in the text format of Prometheus. The names are those of INFO, but for labels.

use crate::inspect::server::field;
use std::fmt::Write;

enum Kind {
    Gauge,
    Counter,
}

use Kind::{Counter, Gauge};

impl Kind {
    fn name(&self) -> &'static str {
        match self {
            Gauge => "gauge",
            Counter => "counter",
        }
    }
}

/// A number of INFO.
type Metric = (Kind, &'static str, &'static str);

#[rustfmt::skip]
const METRICS: [Metric; 22] = [
    (Gauge, "tether_held_keys", "Keys that have a holder: temporary keys and locks."),
    (Gauge, "tether_temporary_keys", "Temporary keys."),
    (Gauge, "tether_holds", "Holds of locks: one for each owner of each key."),
    (Gauge, "tether_grants_pending", "Grants that wait for acknowledgements of replicas."),
    (Gauge, "tether_waiters", "Requests that wait."),
    (Gauge, "tether_longest_queue", "The most requests that wait for one key."),
    (Gauge, "tether_oldest_waiter_seconds", "How long the oldest waiting request has waited."),
    (Gauge, "tether_oldest_hold_seconds", "The age of the oldest hold."),
    (Gauge, "tether_watches", "Watches: pairs of a connection and a key or prefix."),
    (Gauge, "tether_watched_keys", "Keys with a watcher."),
    (Gauge, "tether_sessions_attached", "Sessions that have a connection."),
    (Gauge, "tether_sessions_detached", "Sessions that have none, and whose grace runs."),
    (Gauge, "tether_quarantine_left_seconds", "What is left of the quarantine after the start."),
    (Gauge, "tether_last_token", "The last token given."),
    (Counter, "tether_grants_total", "Grants of temporary keys and locks."),
    (Counter, "tether_handoffs_total", "Times that a key was handed over in the step in which it became free."),
    (Counter, "tether_timeouts_total", "Waits whose time was over."),
    (Counter, "tether_removed_by_disconnect_total", "Keys and holds given back because their connection had ended."),
    (Counter, "tether_grants_withdrawn_total", "Grants that too few replicas acknowledged."),
    (Counter, "tether_deadlocks_refused_total", "Requests refused with DEADLOCK."),
    (Counter, "tether_deadlock_searches_cut_total", "Requests that wait although the search for a cycle was cut."),
    (Counter, "tether_records_refused_total", "Records of files and of the master that this version does not understand."),
];

/// Fields `<prefix>_<value of the label>_total`, which add up to `<prefix>_total`.
struct Labelled {
    prefix: &'static str,
    label: &'static str,
    help: &'static str,
}

const LABELLED: [Labelled; 2] = [
    Labelled {
        prefix: "tether_lost",
        label: "reason",
        help: "Holds that their owner did not end.",
    },
    Labelled {
        prefix: "tether_pushes",
        label: "state",
        help: "Pushes that were sent, and that were dropped since too many waited for one connection.",
    },
];

const WAITING: Metric = (
    Gauge,
    "tether_pushes_waiting",
    "Pushes that wait to be sent.",
);

const HISTOGRAMS: [(&str, &str); 2] = [
    (
        "tether_wait_seconds",
        "The time from request to grant, of grants that were waited for.",
    ),
    (
        "tether_hold_seconds",
        "The time from grant to end, of holds that ended.",
    ),
];

const UP: &str = "tether_up";
const UP_HELP: &str = "Whether the server answers and has the module.";
const FAULT: &str = "tether_fault";
const FAULT_HELP: &str = "Whether the module has stopped after a fault.";
const BUILD: &str = "tether_build_info";
const BUILD_HELP: &str = "The module's version and commit, and the server's name and version.";

/// None if that is not of a server with the module.
pub fn metrics(info: &str) -> Option<String> {
    field(info, "tether_holds")?;
    let mut text = single(UP, UP_HELP, true);
    text.push_str(&single(FAULT, FAULT_HELP, field(info, FAULT).is_some()));
    build(&mut text, info);
    for (kind, name, help) in METRICS.iter().chain([&WAITING]) {
        if let Some(value) = number(info, name) {
            head(&mut text, name, kind.name(), help);
            sample(&mut text, name, &[], value);
        }
    }
    for family in LABELLED {
        labelled(&mut text, info, &family);
    }
    for (name, help) in HISTOGRAMS {
        histogram(&mut text, info, name, help);
    }
    Some(text)
}

fn number<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    field(info, name).filter(|value| value.parse::<f64>().is_ok())
}

fn build(text: &mut String, info: &str) {
    let of = |name| field(info, name).unwrap_or("");
    let labels = [
        ("version", of("tether_version")),
        ("commit", of("tether_commit")),
        ("server", of("tether_server")),
    ];
    head(text, BUILD, "gauge", BUILD_HELP);
    sample(text, BUILD, &labels, "1");
}

fn labelled(text: &mut String, info: &str, family: &Labelled) {
    let name = format!("{}_total", family.prefix);
    head(text, &name, "counter", family.help);
    for (known, value) in info.lines().filter_map(|line| line.split_once(':')) {
        let label = known.strip_prefix(family.prefix).and_then(|rest| {
            let rest = rest.strip_prefix('_')?;
            rest.strip_suffix("_total")
        });
        if let Some(label) = label {
            sample(text, &name, &[(family.label, label)], value.trim_end());
        }
    }
}

/// `tether_wait_seconds_bucket:0.001=3,+Inf=4`
fn histogram(text: &mut String, info: &str, name: &str, help: &str) {
    let part = |end: &str| field(info, &format!("{name}_{end}"));
    let (Some(buckets), Some(sum), Some(count)) = (part("bucket"), part("sum"), part("count"))
    else {
        return;
    };
    head(text, name, "histogram", help);
    for (bound, count) in buckets.split(',').filter_map(|one| one.split_once('=')) {
        sample(text, &format!("{name}_bucket"), &[("le", bound)], count);
    }
    sample(text, &format!("{name}_sum"), &[], sum);
    sample(text, &format!("{name}_count"), &[], count);
}

/// Where no server answers.
pub fn down() -> String {
    single(UP, UP_HELP, false)
}

fn single(name: &str, help: &str, is_so: bool) -> String {
    let mut text = String::new();
    head(&mut text, name, "gauge", help);
    sample(&mut text, name, &[], if is_so { "1" } else { "0" });
    text
}

// Writing to a string does not fail.

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn sample(text: &mut String, name: &str, labels: &[(&str, &str)], value: &str) {
    text.push_str(name);
    for (at, (label, value)) in labels.iter().enumerate() {
        let begin = if at == 0 { '{' } else { ',' };
        let value = value.replace('\\', "\\\\").replace('"', "\\\"");
        let _ = write!(text, "{begin}{label}=\"{value}\"");
    }
    let end = if labels.is_empty() { "" } else { "}" };
    let _ = writeln!(text, "{end} {value}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_times_are_printed() {
        let info = "# tether\r\ntether_holds:3\r\ntether_oldest_hold_seconds:0.5\r\ntether_grants_total:12\r\n\
                    tether_lost_total:3\r\ntether_lost_lease_total:2\r\ntether_lost_died_total:1\r\n\
                    tether_wait_seconds_bucket:0.001=3,+Inf=4\r\ntether_wait_seconds_sum:7.25\r\n\
                    tether_wait_seconds_count:4\r\ntether_pushes_sent_total:6\r\ntether_pushes_waiting:0\r\n\
                    tether_version:0.2.0\r\ntether_commit:1234567\r\ntether_server:Valkey 9.1.0\r\n\
                    tether_private_functions:known\r\n";
        let expected = "\
# HELP tether_up Whether the server answers and has the module.
# TYPE tether_up gauge
tether_up 1
# HELP tether_fault Whether the module has stopped after a fault.
# TYPE tether_fault gauge
tether_fault 0
# HELP tether_build_info The module's version and commit, and the server's name and version.
# TYPE tether_build_info gauge
tether_build_info{version=\"0.2.0\",commit=\"1234567\",server=\"Valkey 9.1.0\"} 1
# HELP tether_holds Holds of locks: one for each owner of each key.
# TYPE tether_holds gauge
tether_holds 3
# HELP tether_oldest_hold_seconds The age of the oldest hold.
# TYPE tether_oldest_hold_seconds gauge
tether_oldest_hold_seconds 0.5
# HELP tether_grants_total Grants of temporary keys and locks.
# TYPE tether_grants_total counter
tether_grants_total 12
# HELP tether_pushes_waiting Pushes that wait to be sent.
# TYPE tether_pushes_waiting gauge
tether_pushes_waiting 0
# HELP tether_lost_total Holds that their owner did not end.
# TYPE tether_lost_total counter
tether_lost_total{reason=\"lease\"} 2
tether_lost_total{reason=\"died\"} 1
# HELP tether_pushes_total Pushes that were sent, and that were dropped since too many waited for one connection.
# TYPE tether_pushes_total counter
tether_pushes_total{state=\"sent\"} 6
# HELP tether_wait_seconds The time from request to grant, of grants that were waited for.
# TYPE tether_wait_seconds histogram
tether_wait_seconds_bucket{le=\"0.001\"} 3
tether_wait_seconds_bucket{le=\"+Inf\"} 4
tether_wait_seconds_sum 7.25
tether_wait_seconds_count 4
";
        assert_eq!(metrics(info).unwrap(), expected);
    }

    #[test]
    fn a_fault_is_told() {
        let info = "tether_holds:0\r\ntether_fault:a panic\r\n";
        assert!(metrics(info).unwrap().contains("\ntether_fault 1\n"));
    }

    #[test]
    fn without_the_module_there_is_nothing() {
        assert_eq!(metrics(""), None);
        assert!(down().ends_with("tether_up 0\n"));
    }

    #[test]
    fn a_label_cannot_end_its_quotes() {
        let mut text = String::new();
        sample(&mut text, "n", &[("a", "x\"y\\"), ("b", "z")], "1");
        assert_eq!(text, "n{a=\"x\\\"y\\\\\",b=\"z\"} 1\n");
    }
}
