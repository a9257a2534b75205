//! `tether sessions`

use super::reply::Map;
use super::server::{Failure, Server};
use super::{print, print_json, text};
use crate::options::Sessions;
use redis::cmd;

pub fn sessions(url: &str, options: &Sessions) -> Result<u8, Failure> {
    let mut server = Server::at(url)?;
    let sessions: Vec<Map> = server.ask(&cmd("SESSION.LIST"))?;
    if options.json {
        for session in &sessions {
            print_json(&session.json())?;
        }
    } else {
        let rows: Vec<_> = sessions.iter().map(row).collect();
        let titles = [
            "ID", "CLIENT", "ADDRESS", "USER", "GRACE", "KEYS", "HOLDS", "WAITS",
        ];
        print(&text::table(titles, &rows))?;
    }
    Ok(0)
}

fn row(session: &Map) -> [String; 8] {
    let client = match session.number("client") {
        Some(0) => "(detached)".to_owned(),
        _ => session.text("client"),
    };
    let grace = session.number("grace-ms");
    [
        session.text("id"),
        client,
        session.text("addr"),
        session.text("user"),
        grace.map_or(String::new(), text::time),
        session.text("keys"),
        session.text("holds"),
        session.text("waits"),
    ]
}
