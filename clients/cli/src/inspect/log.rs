//! `tether log`

use super::reply::Map;
use super::server::{Failure, masters, of_several};
use super::{found, names, print, print_json, print_page, text};
use crate::address::Target;
use crate::options::Log;
use crate::output::{self, Page};
use redis::cmd;
use std::cmp::Reverse;
use std::os::unix::ffi::OsStrExt;
use std::time::{SystemTime, UNIX_EPOCH};

const OF_A_REPLICA: &str = "how holds ended at its master is in the log there";

pub fn log(target: &Target, options: &Log) -> Result<u8, Failure> {
    let mut masters = masters(target)?;
    let mut question = cmd("LOCK.LOG");
    question.arg("COUNT").arg(options.count);
    if let Some(key) = &options.key {
        question.arg("KEY").arg(key.as_bytes());
    }
    let mut entries: Vec<(String, Map)> = Vec::new();
    for server in &mut masters {
        let said: Vec<Map> = server.ask(&question)?;
        let name = &server.name;
        entries.extend(said.into_iter().map(|entry| (name.clone(), entry)));
    }
    if masters.len() > 1 {
        entries.sort_by_key(|(_, entry)| Reverse(entry.number("time-ms")));
        entries.truncate(usize::try_from(options.count).unwrap_or(usize::MAX));
    }
    let code = found(&mut masters[0], !entries.is_empty(), OF_A_REPLICA)?;
    if options.json {
        for (server, entry) in &entries {
            print_json(&entry.json_at(server))?;
        }
    } else if entries.is_empty() {
        print(&nothing(options))?;
    } else {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now = now.map_or(0, |now| now.as_millis() as i64);
        let rows = entries
            .iter()
            .map(|(server, entry)| row(entry, server, now));
        let rows: Vec<_> = rows.collect();
        let [name, host, pid] = names::TITLES;
        let titles = [
            "ENDED",
            "AGO",
            of_several(&masters),
            "KEY",
            "REASON",
            "HELD",
            name,
            host,
            pid,
            "LABEL",
            "TOKEN",
            "NEXT",
            "WAITERS",
            "CLIENT",
            "ADDRESS",
            "USER",
            "COUNT",
        ];
        let mut page = Page::default();
        text::table(&mut page, titles, &rows, output::width());
        print_page(&page)?;
    }
    Ok(code)
}

fn nothing(options: &Log) -> String {
    const REST: &str = "the log has no lost lock; it begins anew when the server starts\n";
    match &options.key {
        None => REST.to_owned(),
        Some(key) => {
            let rest = format!(": {REST}");
            text::sentence(&text::shown(key.as_bytes()), &rest, output::width())
        }
    }
}

fn row(entry: &Map, server: &str, now: i64) -> [String; 17] {
    let ended = entry.number("time-ms").unwrap_or(now);
    let held = entry.number("held-ms");
    let [name, host, pid] = names::of(entry);
    [
        text::instant(ended),
        text::time(now - ended),
        server.to_owned(),
        entry.text("key"),
        entry.text("reason"),
        held.map_or(String::new(), text::time),
        name,
        host,
        pid,
        entry.text("label"),
        entry.text("token"),
        entry.text("next-token"),
        entry.text("waiters"),
        entry.text("client"),
        entry.text("addr"),
        entry.text("user"),
        entry.text("count"),
    ]
}
