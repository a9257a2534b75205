//! `tether kick`

use super::reply::Map;
use super::server::{Failure, Server};
use super::{NOTHING, print, text};
use crate::options::Kick;
use redis::{Cmd, cmd};
use std::os::unix::ffi::OsStrExt;

pub fn kick(url: &str, options: &Kick) -> Result<u8, Failure> {
    let mut server = Server::at(url)?;
    let key = options.key.as_bytes();
    let token = options.token.map(|token| token.to_string());
    let look = cmd("LOCK.INFO").arg(key).to_owned();
    server.ask::<()>(cmd("WATCH").arg(key))?;
    let is_meant = |holder: &Map| {
        token
            .as_ref()
            .is_none_or(|token| holder.text("token") == *token)
    };
    let mut holders = holders(server.ask(&look)?)?;
    holders.retain(is_meant);
    if options.connection {
        for client in holders.iter().filter_map(connection) {
            server.ask::<u64>(cmd("CLIENT").arg("KILL").arg("ID").arg(client))?;
        }
    } else if !holders.is_empty() {
        holders = delete(&mut server, key, &look)?;
    }
    let name = text::shown(key);
    if holders.is_empty() {
        let with = token.map_or(String::new(), |token| format!(" with token {token}"));
        print(&format!("{name}: nobody holds it{with}\n"))?;
        return Ok(NOTHING);
    }
    for holder in &holders {
        print(&format!("{name}: {}\n", described(holder)))?;
    }
    Ok(0)
}

/// Deletes the key if nobody has written it since it was looked at, and returns who held it at that moment.
fn delete(server: &mut Server, key: &[u8], look: &Cmd) -> Result<Vec<Map>, Failure> {
    server.ask::<()>(&cmd("MULTI"))?;
    server.ask::<()>(look)?;
    server.ask::<()>(cmd("DEL").arg(key))?;
    let done: Option<(Option<Map>, u64)> = server.ask(&cmd("EXEC"))?;
    holders(done.and_then(|(info, _)| info))
}

fn holders(info: Option<Map>) -> Result<Vec<Map>, Failure> {
    Ok(info.map_or(Ok(Vec::new()), |info| info.maps("holders"))?)
}

/// None for a session that has none. A connection's id is never given again.
fn connection(holder: &Map) -> Option<i64> {
    holder.number("client").filter(|client| *client > 0)
}

fn described(holder: &Map) -> String {
    let mut words = match connection(holder) {
        Some(client) => format!("client {client} at {}", holder.text("addr")),
        None => "a detached session".to_owned(),
    };
    for (what, name) in [("named", "name"), ("label", "label"), ("token", "token")] {
        let text = holder.text(name);
        if !text.is_empty() {
            words.push_str(&format!(", {what} {text}"));
        }
    }
    words
}
