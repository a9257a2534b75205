//! `tether who`

use super::reply::Map;
use super::server::{Failure, Server};
use super::{REPLICA, found, names, print, print_json, text};
use crate::options::Who;
use redis::cmd;
use std::os::unix::ffi::OsStrExt;

pub fn who(url: &str, options: &Who) -> Result<u8, Failure> {
    let mut server = Server::at(url)?;
    let mut question = cmd("LOCK.INFO");
    question.arg(options.key.as_bytes());
    question.arg("COUNT").arg(options.count);
    let key: Option<Map> = server.ask(&question)?;
    let name = text::shown(options.key.as_bytes());
    let code = found(&mut server, key.is_some(), REPLICA)?;
    let Some(key) = key else {
        match options.json {
            true => print_json(&serde_json::Value::Null)?,
            false => print(&format!("{name}: nobody holds it or waits for it\n"))?,
        }
        return Ok(code);
    };
    match options.json {
        true => print_json(&key.json())?,
        false => print(&described(&name, &key)?)?,
    }
    Ok(code)
}

fn described(name: &str, key: &Map) -> Result<String, Failure> {
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
    let mut described = format!("{name}: {kind}, {holders}, {waiters}\n");
    let rows: Vec<_> = key.maps("holders")?.iter().map(holder).collect();
    if !rows.is_empty() {
        let [name, host, pid] = names::TITLES;
        let titles = [
            "HOLDER", "ADDRESS", name, host, pid, "USER", "LABEL", "TOKEN", "PERMITS", "DEPTH",
            "HELD", "LEASE",
        ];
        described.push_str(&text::table(titles, &rows));
    }
    let rows: Vec<_> = key.maps("waiters")?.iter().map(waiter).collect();
    if !rows.is_empty() {
        let [name, host, pid] = names::TITLES;
        let titles = [
            "WAITER", "ADDRESS", name, host, pid, "LABEL", "ASKS FOR", "WAITING",
        ];
        described.push_str(&text::table(titles, &rows));
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
