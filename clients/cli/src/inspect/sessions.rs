//! `tether sessions`

use super::reply::Map;
use super::server::{Failure, Server, masters, of_several};
use super::{print_json, print_page, text};
use crate::address::Target;
use crate::options::Sessions;
use crate::output::{self, Page};
use redis::cmd;

pub fn sessions(target: &Target, options: &Sessions) -> Result<u8, Failure> {
    let mut masters = masters(target)?;
    let mut rows = Vec::new();
    for server in &mut masters {
        let sessions: Vec<Map> = server.ask(&cmd("SESSION.LIST"))?;
        for session in &sessions {
            match options.json {
                true => print_json(&session.json_at(&server.name))?,
                false => rows.push(row(session, server)),
            }
        }
    }
    if !options.json {
        let titles = [
            "ID",
            of_several(&masters),
            "CLIENT",
            "ADDRESS",
            "USER",
            "GRACE",
            "KEYS",
            "HOLDS",
            "WAITS",
        ];
        let mut page = Page::default();
        text::table(&mut page, titles, &rows, output::width());
        print_page(&page)?;
    }
    Ok(0)
}

fn row(session: &Map, server: &Server) -> [String; 9] {
    let client = match session.number("client") {
        Some(0) => "(detached)".to_owned(),
        _ => session.text("client"),
    };
    let grace = session.number("grace-ms");
    [
        session.text("id"),
        server.name.clone(),
        client,
        session.text("addr"),
        session.text("user"),
        grace.map_or(String::new(), text::time),
        session.text("keys"),
        session.text("holds"),
        session.text("waits"),
    ]
}
