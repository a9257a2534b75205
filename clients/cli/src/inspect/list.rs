//! `tether ls`

use super::reply::Map;
use super::server::{Failure, Server, masters, of_several};
use super::{REPLICA, found, print_json, print_page, text};
use crate::address::Target;
use crate::options::Ls;
use crate::output::{self, Page};
use redis::{Value, cmd};
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;

/// So many keys are looked at in a step, so that no step keeps the server.
const STEP: u32 = 1000;
/// So many holders are named.
const NAMED: usize = 3;

pub fn list(target: &Target, options: &Ls) -> Result<u8, Failure> {
    let mut masters = masters(target)?;
    let mut seen = HashSet::new();
    let mut rows = Vec::new();
    for server in &mut masters {
        list_of(server, options, &mut seen, &mut rows)?;
    }
    if !options.json {
        rows.sort();
        let mut page = Page::default();
        let titles = ["KEY", "HOLDERS", "WAITERS", "HELD", of_several(&masters)];
        text::table(&mut page, titles, &rows, output::width());
        print_page(&page)?;
    }
    found(&mut masters[0], !seen.is_empty(), REPLICA)?;
    Ok(0)
}

/// Adds the keys of this server, or prints them as JSON.
fn list_of(
    server: &mut Server,
    options: &Ls,
    seen: &mut HashSet<Vec<u8>>,
    rows: &mut Vec<[String; 5]>,
) -> Result<(), Failure> {
    let mut cursor = "0".to_owned();
    loop {
        let mut question = cmd("LOCK.LIST");
        question.arg(&cursor).arg("COUNT").arg(STEP);
        if let Some(pattern) = &options.pattern {
            question.arg("MATCH").arg(pattern.as_bytes());
        }
        let client = if options.detached {
            Some(0)
        } else {
            options.client
        };
        if let Some(client) = client {
            question.arg("CLIENT").arg(client);
        }
        let (next, keys): (String, Vec<Map>) = server.ask(&question)?;
        for key in keys {
            let Value::BulkString(name) = key.get("key") else {
                continue;
            };
            // An iteration may return a key twice.
            if !seen.insert(name.clone()) {
                continue;
            }
            if options.json {
                print_json(&key.json_at(&server.name))?;
            } else {
                rows.push(row(&key, server));
            }
        }
        cursor = next;
        if cursor == "0" {
            return Ok(());
        }
    }
}

fn row(key: &Map, server: &Server) -> [String; 5] {
    let holders = match key.get("holders") {
        Value::Array(holders) => holders.as_slice(),
        _ => &[],
    };
    let name = |holder: &Value| match holder {
        Value::Int(0) => "(detached)".to_owned(),
        Value::Int(client) => client.to_string(),
        _ => String::new(),
    };
    let mut named: Vec<_> = holders.iter().take(NAMED).map(name).collect();
    if holders.len() > NAMED {
        named.push(format!("+{}", holders.len() - NAMED));
    }
    [
        key.text("key"),
        named.join(","),
        key.text("waiters"),
        key.number("oldest-hold-ms")
            .map_or(String::new(), text::time),
        server.name.clone(),
    ]
}
