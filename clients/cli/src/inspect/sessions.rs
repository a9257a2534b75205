//! `tether sessions`

use super::reply::Map;
use super::server::{Failure, Server};
use super::{print_json, print_page, text};
use crate::address::Target;
use crate::options::Sessions;
use crate::output::{self, Page};
use redis::cmd;

pub fn sessions(target: &Target, options: &Sessions) -> Result<u8, Failure> {
    let mut server = Server::at(target)?;
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
        let mut page = Page::default();
        text::table(&mut page, titles, &rows, output::width());
        print_page(&page)?;
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
