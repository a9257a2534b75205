//! Whose command is being executed, when a key goes.
//!
//! An owner that removes its own key is not told that it lost it; everyone else's hand is. But a
//! keyspace event does not say whose command caused it.
//!
//! Since Redis 7.2 a command filter can tell the client's id, so from the first hold on a filter
//! notes the last two ids it saw: a script's inner commands come with the id of a fake client, and
//! then the one before is the connection whose script it is. Redis 7.0 can only be asked what
//! `CLIENT LIST` says of the owner: an executing connection has its arguments in memory, and its
//! `cmd` is one that can end a key. (An owner that has sent half of its next command looks the same
//! if its last one was such a command too. It then is not told.)

use super::raw::{Ctx, api, have};
use super::shim;
use crate::engine::{ClientId, Hand};
use redis_module::raw as c;
use std::cell::Cell;

struct Seen {
    last: Cell<u64>,
    before: Cell<u64>,
    observing: Cell<bool>,
}

// SAFETY: touched by the server's main thread only, in which filters and events run.
unsafe impl Sync for Seen {}

static SEEN: Seen = Seen {
    last: Cell::new(0),
    before: Cell::new(0),
    observing: Cell::new(false),
};

/// Begins to note who executes commands. Until somebody holds something it is not worth its cost.
pub fn observe(ctx: Ctx<'_>) {
    if SEEN.observing.replace(true) || !have!(RedisModule_CommandFilterGetClientId) {
        return;
    }
    SEEN.last.set(ctx.client().0);
    // SAFETY: the table, the context.
    unsafe {
        api!(RedisModule_RegisterCommandFilter(
            ctx.as_ptr(),
            Some(note),
            0
        ))
    };
}

unsafe extern "C" fn note(filter: *mut c::RedisModuleCommandFilterCtx) {
    // No guard: there is nothing here that can panic, and it runs for every command.
    // SAFETY: the table, as asked for before this was registered; the server's argument.
    let id = unsafe { c::RedisModule_CommandFilterGetClientId.map(|get| get(filter)) };
    let Some(id) = id else { return };
    if SEEN.last.get() != id {
        SEEN.before.set(SEEN.last.replace(id));
    }
}

/// Whose command is being executed; `holder` is the one that matters.
pub fn hand(ctx: Ctx<'_>, holder: ClientId) -> Hand {
    if have!(RedisModule_CommandFilterGetClientId) {
        return noted();
    }
    match ctx.client_line(holder) {
        Some(line) if can_be_executing(&line) => Hand::Client(holder),
        _ => Hand::Nobody,
    }
}

/// Whose command is being executed, when any holder may matter.
pub fn hand_among_all(ctx: Ctx<'_>) -> Hand {
    if have!(RedisModule_CommandFilterGetClientId) {
        return noted();
    }
    let lines = ctx.client_lines().unwrap_or_default();
    let line = lines.lines().find(|line| can_be_executing(line));
    let id = line.and_then(|line| field(line, "id=")?.parse().ok());
    id.map_or(Hand::Nobody, |id| Hand::Client(ClientId(id)))
}

fn noted() -> Hand {
    [SEEN.last.get(), SEEN.before.get()]
        .into_iter()
        .map(ClientId)
        .find(|id| shim::is_connected(*id))
        .map_or(Hand::Nobody, Hand::Client)
}

fn can_be_executing(line: &str) -> bool {
    const ENDS_KEYS: &[&str] = &[
        "copy",
        "del",
        "eval",
        "evalsha",
        "exec",
        "expire",
        "expireat",
        "fcall",
        "flushall",
        "flushdb",
        "getdel",
        "getex",
        "migrate",
        "move",
        "pexpire",
        "pexpireat",
        "rename",
        "renamenx",
        "restore",
        "sort",
        "unlink",
    ];
    let command = field(line, "cmd=").unwrap_or_default();
    let has_arguments = field(line, "argv-mem=").is_some_and(|bytes| bytes != "0");
    has_arguments && ENDS_KEYS.contains(&command)
}

/// A field of a line of `CLIENT LIST`; its name comes with the equals sign.
pub fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.split_ascii_whitespace()
        .find_map(|field| field.strip_prefix(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_that_only_waits_for_input_is_not_executing() {
        let line = "id=7 addr=127.0.0.1:5 fd=8 name= qbuf=0 argv-mem=0 cmd=del user=default resp=3";
        assert!(!can_be_executing(line));
        assert!(can_be_executing(&line.replace("argv-mem=0", "argv-mem=10")));
        assert_eq!(field(line, "fd="), Some("8"));
        assert_eq!(field(line, "name="), Some(""));
        assert_eq!(field(line, "db="), None);
    }
}
