//! `tether log`

use super::reply::Map;
use super::server::{Failure, Server};
use super::{found, names, print_json, print_page, text};
use crate::address::Target;
use crate::options::Log;
use crate::output::{self, Page};
use redis::cmd;
use std::os::unix::ffi::OsStrExt;
use std::time::{SystemTime, UNIX_EPOCH};

const OF_A_REPLICA: &str = "how holds ended at its master is in the log there";

pub fn log(target: &Target, options: &Log) -> Result<u8, Failure> {
    let mut server = Server::at(target)?;
    let mut question = cmd("LOCK.LOG");
    question.arg("COUNT").arg(options.count);
    if let Some(key) = &options.key {
        question.arg("KEY").arg(key.as_bytes());
    }
    let entries: Vec<Map> = server.ask(&question)?;
    if options.json {
        for entry in &entries {
            print_json(&entry.json())?;
        }
    } else {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_millis() as i64);
        let rows: Vec<_> = entries.iter().map(|entry| row(entry, now)).collect();
        let [name, host, pid] = names::TITLES;
        let titles = [
            "AGO", "KEY", "LABEL", "TOKEN", "REASON", "HELD", "CLIENT", "ADDRESS", name, host, pid,
            "USER", "WAITERS", "NEXT", "COUNT",
        ];
        let mut page = Page::default();
        text::table(&mut page, titles, &rows, output::width());
        print_page(&page)?;
    }
    found(&mut server, !entries.is_empty(), OF_A_REPLICA)
}

fn row(entry: &Map, now: i64) -> [String; 15] {
    let ended = entry.number("time-ms").unwrap_or(now);
    let held = entry.number("held-ms");
    let [name, host, pid] = names::of(entry);
    [
        text::time(now - ended),
        entry.text("key"),
        entry.text("label"),
        entry.text("token"),
        entry.text("reason"),
        held.map_or(String::new(), text::time),
        entry.text("client"),
        entry.text("addr"),
        name,
        host,
        pid,
        entry.text("user"),
        entry.text("waiters"),
        entry.text("next-token"),
        entry.text("count"),
    ]
}
