//! A look as text and as JSON.

use super::Look;
use super::keys::BusyKey;
use crate::inspect::names;
use crate::inspect::reply::{Map, json_of};
use crate::inspect::text::{shown, table, time};
use crate::output::{Page, cut};
use serde_json::{Value as Json, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// Lines that are as wide as that at most.
pub fn page(look: &Look, width: Option<usize>) -> Page {
    let mut page = Page::default();
    for line in head(look).lines() {
        page.line(width.map_or_else(|| line.to_owned(), |width| cut(line, width)));
    }
    if look.keys.is_empty() {
        page.line(if look.counters.is_replica() {
            "the master alone knows who holds keys and who waits"
        } else if look.pattern.is_empty() {
            "no key that this user may read is held or waited for"
        } else {
            "no such key that this user may read is held or waited for"
        });
        return page;
    }
    let rows: Vec<_> = look.keys.iter().map(row).collect();
    let [name, host, pid] = names::TITLES;
    let titles = [
        "KEY",
        "WAITERS",
        "WAITING",
        "HELD",
        "HOLDER",
        name,
        host,
        pid,
        "ADDRESS",
        "IDLE",
        "MODE",
        "WAITS FOR",
    ];
    table(&mut page, titles, &rows, width);
    page
}

/// The server, what it counts, what was lost, and what is wrong; each in a line.
fn head(look: &Look) -> String {
    let now = look.counters;
    let count = |name: &str| now.number(&format!("tether_{name}"));
    let part = match now.is_cluster() {
        true => "this node of the cluster".to_owned(),
        false => format!("database {}", look.db),
    };
    let mut head = format!(
        "{}, {part}: {}, {}, tether {}, at {}, up {}\n",
        look.server,
        now.role(),
        now.version(),
        now.module_version(),
        clock(),
        time(now.number("uptime_in_seconds") as i64 * 1000),
    );
    let rate = look.earlier.map_or(String::new(), |earlier| {
        format!(" ({:.1}/s)", now.grants_per_second(earlier))
    });
    head.push_str(&format!(
        "holds {}, temporary keys {}, waiters {}, sessions {} attached and {} detached, grants {}{rate}\n",
        count("holds"),
        count("temporary_keys"),
        count("waiters"),
        count("sessions_attached"),
        count("sessions_detached"),
        count("grants_total"),
    ));
    head.push_str(&losses(look));
    if let Some(fault) = now.fault() {
        head.push_str(&format!("the module has stopped after a fault: {fault}\n"));
    }
    let left = now.quarantine_left_ms();
    if left > 0 {
        let left = time(left);
        head.push_str(&format!("the quarantine after the start: {left} left\n"));
    }
    if !look.is_complete {
        let listed = look.listed;
        head.push_str(&format!(
            "{listed} keys were looked at now; the rest follows\n"
        ));
    }
    head
}

/// `lost: lease 7, deleted 3 (+1)`: since the start, and since the look before.
fn losses(look: &Look) -> String {
    let losses = look.counters.losses().filter(|(_, count)| *count > 0);
    let losses: Vec<_> = losses
        .map(|(reason, count)| match newly_lost(look, reason) {
            Some(new) if new > 0 => format!("{reason} {count} (+{new})"),
            _ => format!("{reason} {count}"),
        })
        .collect();
    match losses.is_empty() {
        true => "lost: nothing\n".to_owned(),
        false => format!("lost: {}\n", losses.join(", ")),
    }
}

fn newly_lost(look: &Look, reason: &str) -> Option<u64> {
    let (earlier, _) = look.earlier?;
    let name = format!("tether_lost_{reason}_total");
    Some(look.counters.growth(earlier, &name))
}

fn row(key: &BusyKey) -> [String; 12] {
    let of_holder = |name| key.holder.as_ref().map(|holder: &Map| holder.text(name));
    let of_holder = |name| of_holder(name).unwrap_or_default();
    let mut holder = match of_holder("session").as_str() {
        "detached" => "(detached)".to_owned(),
        _ => of_holder("client"),
    };
    if key.holders > 1 {
        holder.push_str(&format!(",+{}", key.holders - 1));
    }
    let spent = |ms: Option<i64>| ms.map_or(String::new(), time);
    let waits_for = match &key.waits_for {
        redis::Value::BulkString(name) => shown(name),
        _ => String::new(),
    };
    let [name, host, pid] = key.holder.as_ref().map(names::of).unwrap_or_default();
    [
        shown(&key.name),
        key.waiters.to_string(),
        spent(key.waiting_ms),
        spent(key.held_ms()),
        holder,
        name,
        host,
        pid,
        of_holder("addr"),
        spent(key.idle_ms),
        key.kind.clone(),
        waits_for,
    ]
}

pub fn json(look: &Look) -> Json {
    let now = look.counters;
    let count = |name: &str| now.number(&format!("tether_{name}"));
    let lost: serde_json::Map<_, _> = now
        .losses()
        .map(|(reason, count)| (reason.to_owned(), json!(count)))
        .collect();
    let newly =
        |(reason, _): (&str, u64)| Some((reason.to_owned(), json!(newly_lost(look, reason)?)));
    let newly: Option<serde_json::Map<_, _>> = now.losses().map(newly).collect();
    let keys: Vec<_> = look.keys.iter().map(json_of_key).collect();
    json!({
        "time_ms": milliseconds_since_1970(),
        "server": look.server,
        "db": look.db,
        "role": now.role(),
        "server_version": now.version(),
        "version": now.module_version(),
        "uptime_s": now.number("uptime_in_seconds"),
        "fault": now.fault(),
        "quarantine_left_ms": now.quarantine_left_ms(),
        "holds": count("holds"),
        "temporary_keys": count("temporary_keys"),
        "waiters": count("waiters"),
        "sessions_attached": count("sessions_attached"),
        "sessions_detached": count("sessions_detached"),
        "grants": count("grants_total"),
        "grants_per_second": look.earlier.map(|earlier| now.grants_per_second(earlier)),
        "lost": lost,
        "newly_lost": newly,
        "keys_looked_at": look.listed,
        "complete": look.is_complete,
        "keys": keys,
    })
}

fn json_of_key(key: &BusyKey) -> Json {
    json!({
        "key": String::from_utf8_lossy(&key.name),
        "kind": key.kind,
        "waiter_count": key.waiters,
        "waiting_ms": key.waiting_ms,
        "holder_count": key.holders,
        "holder": key.holder.as_ref().map(Map::json),
        "idle_ms": key.idle_ms,
        "waits_for": json_of(&key.waits_for),
    })
}

fn milliseconds_since_1970() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| now.as_millis() as u64)
}

/// The time of day: it is compared with logs of other machines.
fn clock() -> String {
    let seconds = milliseconds_since_1970() / 1000;
    let (hours, minutes) = (seconds / 3600 % 24, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02} UTC", seconds % 60)
}
