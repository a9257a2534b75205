//! `tether why`

use super::reply::Map;
use super::server::{Failure, Server};
use super::{NOTHING, REPLICA, names, print_json, print_page, text};
use crate::address::Target;
use crate::options::Why;
use crate::output::{self, Page};
use redis::cmd;
use std::os::unix::ffi::OsStrExt;

pub fn why(target: &Target, options: &Why) -> Result<u8, Failure> {
    let question = cmd("LOCK.WHY").arg(options.key.as_bytes()).to_owned();
    let (mut server, steps): (_, Vec<Map>) = Server::with_answer(target, &question)?;
    if options.json {
        for step in &steps {
            print_json(&step.json())?;
        }
    } else {
        print_page(&described(
            &mut server,
            &text::shown(options.key.as_bytes()),
            &steps,
        ))?;
    }
    Ok(if steps.is_empty() { NOTHING } else { 0 })
}

fn described(server: &mut Server, name: &str, steps: &[Map]) -> Page {
    let mut described = Page::default();
    if steps.is_empty() {
        let rest = ": nothing is in the way";
        described.line(text::sentence(name, rest, output::width()));
        return described;
    }
    let is_holder = |step: &&Map| step.text("cause") == "holder";
    let rows: Vec<_> = steps.iter().filter(is_holder).map(holder).collect();
    if !rows.is_empty() {
        let [name, host, pid] = names::TITLES;
        let titles = [
            "KEY",
            "HOLDER",
            "ADDRESS",
            name,
            host,
            pid,
            "USER",
            "LABEL",
            "HELD",
            "LEASE",
            "IDLE",
            "WAITS FOR",
        ];
        text::table(&mut described, titles, &rows, output::width());
    }
    for step in steps.iter().filter(|step| !is_holder(step)) {
        let left = step.number("left-ms").unwrap_or(0);
        let what = match step.text("cause").as_str() {
            "unheld" => {
                let rest = ": the key exists, but nobody holds it (made by SET?)";
                text::sentence(name, rest, output::width())
            }
            "quarantine" => format!("the quarantine after the start: {} left", text::time(left)),
            "pause" => "the server wants no writes (CLIENT PAUSE, or a failover)".to_owned(),
            "replicas" => "fewer replicas than min-replicas-to-write".to_owned(),
            "memory" => "the server is out of memory (OOM): see maxmemory".to_owned(),
            "misconf" => "the server cannot write its files (MISCONF): see its log".to_owned(),
            "replica" => server.as_replica(REPLICA),
            other => other.to_owned(),
        };
        described.line(what);
    }
    described
}

fn holder(step: &Map) -> [String; 12] {
    let client = match step.text("session").as_str() {
        "detached" => "(detached)".to_owned(),
        "attached" => format!("{} (session)", step.text("client")),
        _ => step.text("client"),
    };
    let time = |name| step.number(name).map_or(String::new(), text::time);
    let [name, host, pid] = names::of(step);
    [
        step.text("key"),
        client,
        step.text("addr"),
        name,
        host,
        pid,
        step.text("user"),
        step.text("label"),
        time("held-ms"),
        time("lease-ms"),
        time("idle-ms"),
        step.text("waits-for"),
    ]
}
