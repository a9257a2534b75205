//! INFO tether in the text format of Prometheus.

use crate::inspect::server::field;
use std::fmt::Write;

enum Kind {
    Gauge,
    Counter,
    /// A quantile of the time from request to grant, in microseconds.
    Wait(&'static str),
}

/// A field of INFO and what it becomes: its kind, its name and what it says.
type Metric = (&'static str, Kind, &'static str, &'static str);

use Kind::{Counter, Gauge, Wait};

const WAIT: &str = "tether_wait_seconds";

#[rustfmt::skip]
const METRICS: [Metric; 32] = [
    ("tether_temporary_keys", Gauge, "tether_temporary_keys", "Temporary keys."),
    ("tether_holds", Gauge, "tether_holds", "Holds of locks: one for each owner of each key."),
    ("tether_grants_pending", Gauge, "tether_grants_pending", "Grants that wait for acknowledgements of replicas."),
    ("tether_waiters", Gauge, "tether_waiters", "Requests that wait."),
    ("tether_watches", Gauge, "tether_watches", "Watches: pairs of a connection and a key."),
    ("tether_watched_keys", Gauge, "tether_watched_keys", "Keys with a watcher."),
    ("tether_sessions_attached", Gauge, "tether_sessions_attached", "Sessions that have a connection."),
    ("tether_sessions_detached", Gauge, "tether_sessions_detached", "Sessions that have none, and whose grace runs."),
    ("tether_pushes_sent", Counter, "tether_pushes_total", "Pushes of any kind, counted for each connection."),
    ("tether_grants_total", Counter, "tether_grants_total", "Grants of temporary keys and locks."),
    ("tether_handoffs_total", Counter, "tether_handoffs_total", "Times that a key was handed over in the step in which it became free."),
    ("tether_keys_removed_by_disconnect", Counter, "tether_removed_by_disconnect_total", "Keys and holds given back because their connection had ended."),
    ("tether_timeouts_total", Counter, "tether_timeouts_total", "Waits whose time was over."),
    ("tether_grants_withdrawn", Counter, "tether_grants_withdrawn_total", "Grants that too few replicas acknowledged."),
    ("tether_deadlocks_refused", Counter, "tether_deadlocks_refused_total", "Requests refused with DEADLOCK."),
    ("tether_deadlock_searches_cut", Counter, "tether_deadlock_searches_cut_total", "Requests that wait although the search for a cycle was cut."),
    ("tether_lost_total", Counter, "tether_lost_total", "Holds that ended otherwise than by their owner, including leases."),
    ("tether_lost_lease", Counter, "tether_lost_lease_total", "Holds that ended by a lease that was over."),
    ("tether_lost_deleted", Counter, "tether_lost_deleted_total", "Holds that ended by a deleted key."),
    ("tether_lost_expired", Counter, "tether_lost_expired_total", "Holds that ended by a key whose time to live was over."),
    ("tether_lost_evicted", Counter, "tether_lost_evicted_total", "Holds that ended by an evicted key."),
    ("tether_lost_flushed", Counter, "tether_lost_flushed_total", "Holds that ended by a flush."),
    ("tether_lost_overwritten", Counter, "tether_lost_overwritten_total", "Holds that ended by a key that was overwritten."),
    ("tether_lost_moved", Counter, "tether_lost_moved_total", "Holds that ended by a slot that moved."),
    ("tether_lost_demoted", Counter, "tether_lost_demoted_total", "Holds that ended by a server that became a replica."),
    ("tether_lost_ended", Counter, "tether_lost_ended_total", "Holds that ended by a session that was ended."),
    ("tether_lost_died", Counter, "tether_lost_died_total", "Holds that ended by a connection that ended."),
    ("tether_lost_killed", Counter, "tether_lost_killed_total", "Holds that ended by a connection that was killed."),
    ("tether_records_refused", Counter, "tether_records_refused_total", "Records of files and of the master that this version does not understand."),
    ("tether_last_token", Gauge, "tether_last_token", "The last token given."),
    ("tether_wait_usec_p50", Wait("0.5"), WAIT, "The time from request to grant, of grants that were waited for."),
    ("tether_wait_usec_p99", Wait("0.99"), WAIT, ""),
];

const UP: &str = "tether_up";
const UP_HELP: &str = "Whether the server answers and has the module.";
const FAULT: &str = "tether_fault";
const FAULT_HELP: &str = "Whether the module has stopped after a fault.";

/// None if that is not of a server with the module.
pub fn metrics(info: &str) -> Option<String> {
    field(info, "tether_holds")?;
    let mut text = single(UP, UP_HELP, true);
    text.push_str(&single(FAULT, FAULT_HELP, field(info, FAULT).is_some()));
    for (known, kind, name, help) in METRICS {
        let Some(value) = field(info, known).and_then(|value| value.parse::<u64>().ok()) else {
            continue;
        };
        if !help.is_empty() {
            let kind = match kind {
                Gauge => "gauge",
                Counter => "counter",
                Wait(_) => "summary",
            };
            head(&mut text, name, kind, help);
        }
        // Writing to a string does not fail.
        let _ = match kind {
            Gauge | Counter => writeln!(text, "{name} {value}"),
            Wait(quantile) => {
                let (seconds, rest) = (value / 1_000_000, value % 1_000_000);
                writeln!(
                    text,
                    "{name}{{quantile=\"{quantile}\"}} {seconds}.{rest:06}"
                )
            }
        };
    }
    Some(text)
}

/// Where no server answers.
pub fn down() -> String {
    single(UP, UP_HELP, false)
}

fn single(name: &str, help: &str, is_so: bool) -> String {
    let mut text = String::new();
    head(&mut text, name, "gauge", help);
    text.push_str(&format!("{name} {}\n", u8::from(is_so)));
    text
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_times_are_told() {
        let info = "# tether\r\ntether_holds:3\r\ntether_grants_total:12\r\ntether_wait_usec_p50:70\r\n\
                    tether_wait_usec_p99:2000003\r\ntether_private_functions:known\r\n";
        let expected = "\
# HELP tether_up Whether the server answers and has the module.
# TYPE tether_up gauge
tether_up 1
# HELP tether_fault Whether the module has stopped after a fault.
# TYPE tether_fault gauge
tether_fault 0
# HELP tether_holds Holds of locks: one for each owner of each key.
# TYPE tether_holds gauge
tether_holds 3
# HELP tether_grants_total Grants of temporary keys and locks.
# TYPE tether_grants_total counter
tether_grants_total 12
# HELP tether_wait_seconds The time from request to grant, of grants that were waited for.
# TYPE tether_wait_seconds summary
tether_wait_seconds{quantile=\"0.5\"} 0.000070
tether_wait_seconds{quantile=\"0.99\"} 2.000003
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
}
