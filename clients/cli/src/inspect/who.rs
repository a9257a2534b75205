//! `tether who`

use super::reply::Map;
use super::server::{Failure, Server};
use super::{REPLICA, found, names, print, print_json, print_page, text};
use crate::address::Target;
use crate::options::Who;
use crate::output::{self, Page};
use redis::cmd;
use std::os::unix::ffi::OsStrExt;

pub fn who(target: &Target, options: &Who) -> Result<u8, Failure> {
    let mut question = cmd("LOCK.INFO");
    question.arg(options.key.as_bytes());
    question.arg("COUNT").arg(options.count);
    let (mut server, key): (_, Option<Map>) = Server::with_answer(target, &question)?;
    let name = text::shown(options.key.as_bytes());
    let code = found(&mut server, key.is_some(), REPLICA)?;
    let Some(key) = key else {
        match options.json {
            true => print_json(&serde_json::Value::Null)?,
            false => {
                let rest = ": nobody holds it or waits for it\n";
                print(&text::sentence(&name, rest, output::width()))?;
            }
        }
        return Ok(code);
    };
    match options.json {
        true => print_json(&key.json())?,
        false => print_page(&described(&server.name, &name, &key)?)?,
    }
    Ok(code)
}

/// `10.0.0.1:6379: held by client 45 (10.0.0.3:50744, web-3) since 4m12s`; None if nobody holds it by now, or that cannot be found
/// out.
pub fn held_by(target: &Target, key: &[u8]) -> Option<String> {
    let question = cmd("LOCK.INFO").arg(key).arg("COUNT").arg(1).to_owned();
    let (server, info): (_, Option<Map>) = Server::with_answer(target, &question).ok()?;
    let info = info?;
    let holder = info
        .maps("holders", &server.name)
        .ok()?
        .into_iter()
        .next()?;
    let who = match holder.text("session").as_str() {
        "detached" => "a session whose connection is gone".to_owned(),
        _ => format!("client {} ({})", holder.text("client"), place(&holder)),
    };
    let others = match info.number("holder-count") {
        Some(count) if count > 1 => format!(", and {} more", count - 1),
        _ => String::new(),
    };
    let held = text::time(holder.number("held-ms")?);
    let server = &server.name;
    Some(format!("{server}: held by {who} since {held}{others}"))
}

/// Its address, and its name, if it has one.
fn place(holder: &Map) -> String {
    let [name, host, pid] = names::of(holder);
    let parts = [holder.text("addr"), name, host, pid].into_iter();
    let parts: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
    parts.join(", ")
}

fn described(server: &str, name: &str, key: &Map) -> Result<Page, Failure> {
    let kind = match key.text("kind").as_str() {
        "permits" => format!("a semaphore of {}", key.text("total")),
        "exclusive" => "an exclusive lock".to_owned(),
        "shared" => "a shared lock".to_owned(),
        "temporary-key" => "a temporary key".to_owned(),
        other => other.to_owned(),
    };
    let count = |name, one: &str| match key.number(name).unwrap_or(0) {
        1 => format!("1 {one}"),
        many => format!("{many} {one}s"),
    };
    let holders = count("holder-count", "holder");
    let waiters = count("waiter-count", "waiter");
    let mut described = Page::default();
    let rest = format!(": {kind}, {holders}, {waiters}");
    described.line(text::sentence(name, &rest, output::width()));
    let rows: Vec<_> = key.maps("holders", server)?.iter().map(holder).collect();
    if !rows.is_empty() {
        let [name, host, pid] = names::TITLES;
        let titles = [
            "HOLDER", "ADDRESS", name, host, pid, "USER", "LABEL", "TOKEN", "PERMITS", "DEPTH",
            "HELD", "LEASE",
        ];
        text::table(&mut described, titles, &rows, output::width());
    }
    let rows: Vec<_> = key.maps("waiters", server)?.iter().map(waiter).collect();
    if !rows.is_empty() {
        let [name, host, pid] = names::TITLES;
        let titles = [
            "WAITER", "ADDRESS", name, host, pid, "LABEL", "ASKS FOR", "WAITING",
        ];
        text::table(&mut described, titles, &rows, output::width());
    }
    Ok(described)
}

fn holder(holder: &Map) -> [String; 12] {
    let client = match holder.text("session").as_str() {
        "detached" => "(detached)".to_owned(),
        "attached" => format!("{} (session)", holder.text("client")),
        _ => holder.text("client"),
    };
    let time = |name| holder.number(name).map_or(String::new(), text::time);
    let permits = holder.number("permits").filter(|count| *count > 0);
    let [name, host, pid] = names::of(holder);
    [
        client,
        holder.text("addr"),
        name,
        host,
        pid,
        holder.text("user"),
        holder.text("label"),
        holder.text("token"),
        permits.map_or(String::new(), |count| count.to_string()),
        holder.text("depth"),
        time("held-ms"),
        time("lease-ms"),
    ]
}

fn waiter(waiter: &Map) -> [String; 8] {
    let [name, host, pid] = names::of(waiter);
    [
        waiter.text("client"),
        waiter.text("addr"),
        name,
        host,
        pid,
        waiter.text("label"),
        waiter.text("mode"),
        waiter
            .number("waiting-ms")
            .map_or(String::new(), text::time),
    ]
}
