//! `tether kick`

use super::reply::Map;
use super::server::{Failure, Server};
use super::{NOTHING, REPLICA, print, text};
use crate::address::Target;
use crate::options::Kick;
use redis::{Cmd, cmd};
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;

/// What LOCK.INFO shows at once of a key's holders, at most.
const SHOWN: usize = 1000;

/// The oldest holders of a key, and how many more there are.
#[derive(Default)]
struct Holders {
    shown: Vec<Map>,
    more: usize,
}

impl Holders {
    fn of(info: Option<Map>, server: &str) -> Result<Holders, Failure> {
        let Some(info) = info else {
            return Ok(Holders::default());
        };
        let shown = info.maps("holders", server)?;
        let all = info.number("holder-count").unwrap_or(0);
        let all = usize::try_from(all).unwrap_or(0);
        Ok(Holders {
            more: all.saturating_sub(shown.len()),
            shown,
        })
    }

    /// Only the one with this token, if there is one that is meant.
    fn only(mut self, token: Option<&str>, server: &Server) -> Result<Holders, Failure> {
        let Some(token) = token else { return Ok(self) };
        self.shown.retain(|holder| holder.text("token") == token);
        match self.more {
            more if self.shown.is_empty() && more > 0 => Err(Failure::Refused(format!(
                "{}: the key has {} holders, and the server shows the oldest {SHOWN}, none of them with token {token}",
                server.name,
                SHOWN + more
            ))),
            _ => Ok(Holders { more: 0, ..self }),
        }
    }
}

pub fn kick(target: &Target, options: &Kick) -> Result<u8, Failure> {
    let key = options.key.as_bytes();
    let (mut server, ()) = Server::with_answer(target, cmd("WATCH").arg(key))?;
    if server.is_replica()? {
        return Err(Failure::Refused(server.as_replica(REPLICA)));
    }
    let name = text::shown(key);
    let token = options.token.map(|token| token.to_string());
    let kicked = match options.connection {
        true => end_holders(&mut server, key, token.as_deref())?,
        false => take_away(&mut server, key, token.as_deref())?,
    };
    if !kicked {
        let with = token.map_or(String::new(), |token| format!(" with token {token}"));
        print(&format!("{name}: nobody holds it{with}\n"))?;
        return Ok(NOTHING);
    }
    Ok(0)
}

fn question(key: &[u8]) -> Cmd {
    cmd("LOCK.INFO").arg(key).arg("COUNT").arg(SHOWN).to_owned()
}

/// Deletes the key, and says who held it. False if nobody did.
fn take_away(server: &mut Server, key: &[u8], token: Option<&str>) -> Result<bool, Failure> {
    let look = question(key);
    let Holders { shown, more } = loop {
        server.ask::<()>(cmd("WATCH").arg(key))?;
        let info = server.ask(&look)?;
        let meant = Holders::of(info, &server.name)?.only(token, server)?;
        if meant.shown.is_empty() {
            server.ask::<()>(&cmd("UNWATCH"))?;
            break meant;
        }
        // If the key was written meanwhile, its holders may be others.
        if let Some(deleted) = delete(server, key, &look)? {
            break deleted;
        }
    };
    let name = text::shown(key);
    for holder in &shown {
        print(&format!("{name}: {}\n", described(holder)))?;
    }
    if more > 0 {
        print(&format!("{name}: {more} more\n"))?;
    }
    Ok(!shown.is_empty())
}

/// Deletes the key if nobody has written it since it was looked at, and returns who held it at that moment; else None.
fn delete(server: &mut Server, key: &[u8], look: &Cmd) -> Result<Option<Holders>, Failure> {
    server.ask::<()>(&cmd("MULTI"))?;
    server.ask::<()>(look)?;
    server.ask::<()>(cmd("DEL").arg(key))?;
    let done: Option<(Option<Map>, u64)> = server.ask(&cmd("EXEC"))?;
    done.map(|(info, _)| Holders::of(info, &server.name))
        .transpose()
}

/// Ends all that the holders have, and says of each what was done. Of more than are shown at once the next follow, but not those who
/// got the key meanwhile. False if nobody held it.
fn end_holders(server: &mut Server, key: &[u8], token: Option<&str>) -> Result<bool, Failure> {
    server.ask::<()>(&cmd("UNWATCH"))?;
    let (name, look) = (text::shown(key), question(key));
    let (mut ended, mut all) = (HashSet::new(), None);
    loop {
        let info = server.ask(&look)?;
        let Holders { shown, more } = Holders::of(info, &server.name)?.only(token, server)?;
        let all = *all.get_or_insert(shown.len() + more);
        let before = ended.len();
        for holder in shown.iter().take(all - before) {
            if ended.insert(holder.number("token")) {
                let done = end_all(server, holder)?;
                print(&format!("{name}: {done} {}\n", described(holder)))?;
            }
        }
        if more == 0 || ended.len() == before || ended.len() == all {
            return Ok(all > 0);
        }
    }
}

/// Ends all that the holder has, and says what was done. A session outlives its connection, whose client would go on with it on
/// the next one, so it is the session that is ended there.
fn end_all(server: &mut Server, holder: &Map) -> Result<String, Failure> {
    if holder.text("session").is_empty() {
        let Some(client) = connection(holder) else {
            return Ok("nothing could be done to".to_owned());
        };
        let kill = cmd("CLIENT").arg("KILL").arg("ID").arg(client).to_owned();
        return Ok(match server.ask::<u64>(&kill)? {
            0 => "nothing was left of".to_owned(),
            _ => "closed the connection of".to_owned(),
        });
    }
    let Some(session) = session_of(server, holder)? else {
        return Ok("nothing was left of the session of".to_owned());
    };
    match server.ask::<u64>(cmd("SESSION.KILL").arg(session)) {
        Ok(1) => Ok(format!("ended session {session} (1 hold) of")),
        Ok(holds) => Ok(format!("ended session {session} ({holds} holds) of")),
        Err(Failure::Refused(why)) if why.contains("NOSESSION") => {
            Ok(format!("nothing was left of session {session} of"))
        }
        Err(failure) => Err(failure),
    }
}

/// The holder's session by its id. LOCK.INFO does not tell that, so one of several detached ones is not known.
fn session_of(server: &mut Server, holder: &Map) -> Result<Option<i64>, Failure> {
    let mut sessions: Vec<Map> = server.ask(&cmd("SESSION.LIST"))?;
    let client = holder.number("client").unwrap_or(0);
    sessions.retain(|session| session.number("client") == Some(client));
    if client == 0 {
        let holds = |session: &Map| {
            let count = |name| session.number(name).unwrap_or(0);
            count("keys") + count("holds") > 0
        };
        sessions.retain(holds);
    }
    match sessions.as_slice() {
        [] => Ok(None),
        [session] => Ok(session.number("id")),
        several => Err(Failure::Refused(format!(
            "{}: the key is held by one of {} detached sessions, and the server does not say by which: nothing was done. \
             `tether kick` without --connection takes the key away; `tether sessions` lists them, SESSION.KILL ends one",
            server.name,
            several.len()
        ))),
    }
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
