//! Whose command is being executed, when a key goes.
//!
//! An owner that removes its own key is not told that it lost it; everyone else's hand is. But a
//! keyspace event does not say whose command caused it.
//!
//! Since Redis 7.2 a command filter can tell the client's id, so from the first hold on a filter
//! notes the last two ids it saw: a script's inner commands come with the id of a fake client, and
//! then the one before is the connection whose script it is. A command that the server has put off
//! (`CLIENT PAUSE`, a failover) comes by the filter when it is put off, and not again when it is
//! executed. So after a pause `CLIENT LIST` is asked for a while which of the holders is executing one.
//!
//! Redis 7.0 can only be asked what the owner is executing: if that is a command that ends keys, and
//! it names the key, it is the owner's own. (An owner that has sent half of such a command looks the
//! same, and is not told of a foreign hand that is quicker.) A flush names no key, so for one, and
//! where the arguments cannot be had, `CLIENT LIST` is asked.

use crate::engine::{ClientId, Hand, Key, Moment};
use crate::shell::server::{arguments, rights};
use crate::shell::state::shell;
use crate::shell::sys::raw::{self, Ctx, Str, api, have};
use crate::shell::sys::{clock, shim};
use redis_module::raw as c;
use std::cell::Cell;

struct Seen {
    last: Cell<u64>,
    before: Cell<u64>,
    observing: Cell<bool>,
    pause: Cell<Pause>,
}

/// Whether the server may be executing a command that it had put off.
#[derive(Clone, Copy)]
enum Pause {
    No,
    /// Somebody gave a command while the server wanted no writes.
    Seen,
    /// The server wanted writes again at this moment, or does since before.
    Over(Moment),
}

// SAFETY: touched by the server's main thread only, in which filters and events run.
unsafe impl Sync for Seen {}

static SEEN: Seen = Seen {
    last: Cell::new(0),
    before: Cell::new(0),
    observing: Cell::new(false),
    pause: Cell::new(Pause::No),
};

/// Begins to note who executes commands. Until somebody holds something it is not worth its cost.
pub fn observe(ctx: Ctx<'_>) {
    if SEEN.observing.replace(true) || !have!(RedisModule_CommandFilterGetClientId) {
        return;
    }
    SEEN.last.set(ctx.client().0);
    // What we ask the server ourselves has no connection.
    let not_ours = c::REDISMODULE_CMDFILTER_NOSELF as i32;
    // SAFETY: the table, the context.
    unsafe {
        api!(RedisModule_RegisterCommandFilter(
            ctx.as_ptr(),
            Some(note),
            not_ours
        ))
    };
}

unsafe extern "C" fn note(filter: *mut c::RedisModuleCommandFilterCtx) {
    // No guard: there is nothing here that can panic, and it runs for every command.
    // SAFETY: the server's argument, for the length of this call.
    unsafe { rights::note(filter) };
    // SAFETY: the table, as asked for before this was registered; the server's argument.
    let id = unsafe { c::RedisModule_CommandFilterGetClientId.map(|get| get(filter)) };
    let Some(id) = id else { return };
    // As long as the same one gives all commands, it is the one whose command was put off, too.
    if SEEN.last.get() != id {
        SEEN.before.set(SEEN.last.replace(id));
        if raw::must_not_write() {
            SEEN.pause.set(Pause::Seen);
        }
    }
}

/// Whether the command in hand may be one that was put off, of which the filter was not told again.
fn may_be_put_off() -> bool {
    /// Long enough for all that was put off to be executed.
    const WHILE_MS: u64 = 10_000;
    match SEEN.pause.get() {
        Pause::No => return false,
        Pause::Seen if raw::must_not_write() => {}
        Pause::Seen => SEEN.pause.set(Pause::Over(clock::now())),
        Pause::Over(moment) if clock::now().ms_since(moment) < WHILE_MS => {}
        Pause::Over(_) => {
            SEEN.pause.set(Pause::No);
            return false;
        }
    }
    true
}

/// Whose command ends this key, as far as it is one of those who hold it, of whom the caller knows
/// `one`. Where the server cannot tell, O(holders).
pub fn hand(ctx: Ctx<'_>, key: Key<'_>, name: Str<'_>, one: ClientId) -> Hand {
    let has_filter = have!(RedisModule_CommandFilterGetClientId);
    if has_filter && !may_be_put_off() {
        return noted();
    }
    let is_own = |holder: &ClientId| {
        if has_filter {
            return is_in_hand(ctx, *holder);
        }
        let names_key = |arguments: &[Str<'_>]| names(ctx, *holder, arguments, name);
        shim::arguments(*holder, names_key).unwrap_or_else(|| {
            let line = ctx.client_line(*holder);
            line.is_some_and(|line| can_be_executing(&line))
        })
    };
    // Mostly it is the only one, and then the key need not be looked up once more.
    if is_own(&one) {
        return Hand::Client(one);
    }
    let holders = shell().engine.with(|engine| engine.holders(key));
    let mut others = holders.iter().copied().filter(|holder| *holder != one);
    others.find(is_own).map_or(Hand::Nobody, Hand::Client)
}

/// Whether a connection's command is being executed at this moment. Some microseconds.
pub fn is_in_hand(ctx: Ctx<'_>, client: ClientId) -> bool {
    let line = ctx.client_line(client);
    line.is_some_and(|line| is_executing(&line))
}

/// Whose command ends this key by expiry: Valkey 9 says so also when an EXPIRE names a time that has
/// passed. A lapse that the owner's own command only comes upon is nobody's.
pub fn hand_of_expiry(ctx: Ctx<'_>, key: Key<'_>) -> Hand {
    const SET_TIMES: &[&str] = &[
        "eval",
        "evalsha",
        "exec",
        "expire",
        "expireat",
        "fcall",
        "getex",
        "pexpire",
        "pexpireat",
    ];
    if !have!(RedisModule_CommandFilterGetClientId) {
        return Hand::Nobody;
    }
    let put_off = may_be_put_off();
    let noted = noted();
    let holders = shell().engine.with(|engine| engine.holders(key));
    let mut holders = holders
        .iter()
        .copied()
        .filter(|holder| put_off || noted == Hand::Client(*holder));
    let sets_time = |line: String| {
        let command = field(&line, "cmd=").unwrap_or_default();
        is_executing(&line) && SET_TIMES.contains(&command)
    };
    let own = holders.find(|holder| ctx.client_line(*holder).is_some_and(sets_time));
    own.map_or(Hand::Nobody, Hand::Client)
}

fn names(ctx: Ctx<'_>, holder: ClientId, arguments: &[Str<'_>], key: Str<'_>) -> bool {
    let Some((command, _)) = arguments.split_first() else {
        return false;
    };
    let command = command.bytes();
    let is = |name: &&str| name.as_bytes().eq_ignore_ascii_case(command);
    // A script need not name the keys that it ends.
    const SCRIPTS: [&str; 3] = ["eval", "evalsha", "fcall"];
    let ends_keys = is(&"del") || ENDS_KEYS.iter().any(is);
    SCRIPTS.iter().any(is) || (ends_keys && arguments::name(ctx, holder, arguments, key))
}

/// Whose command is being executed, when any holder may matter.
pub fn hand_among_all(ctx: Ctx<'_>) -> Hand {
    let has_filter = have!(RedisModule_CommandFilterGetClientId);
    if has_filter && !may_be_put_off() {
        return noted();
    }
    let lines = ctx.client_lines().unwrap_or_default();
    let line = lines.lines().find(|line| match has_filter {
        true => is_executing(line),
        false => can_be_executing(line),
    });
    let id = line.and_then(|line| field(line, "id=")?.parse().ok());
    id.map_or(Hand::Nobody, |id| Hand::Client(ClientId(id)))
}

/// Whether the command that is executed is a MIGRATE.
pub fn is_migrating(ctx: Ctx<'_>) -> bool {
    let Hand::Client(id) = hand_among_all(ctx) else {
        return false;
    };
    let line = ctx.client_line(id);
    line.is_some_and(|line| field(&line, "cmd=") == Some("migrate"))
}

/// Whether the command in hand is a `CLIENT UNBLOCK` of this connection as if its time were over. Only for Redis 7.0, which
/// forgets to answer a connection by that whose answer is on its way. It is one that has not ended. O(connections).
pub fn is_unblocking(ctx: Ctx<'_>, client: ClientId) -> bool {
    if have!(RedisModule_CommandFilterGetClientId) {
        return false;
    }
    let lines = ctx.client_lines().unwrap_or_default();
    let executing = lines.lines().filter(|line| is_executing(line));
    let mut ids = executing.filter_map(|line| field(line, "id=")?.parse().ok());
    let unblocks = |arguments: &[Str<'_>]| {
        let words: Vec<_> = arguments.iter().map(|word| word.bytes()).collect();
        unblocks(&words, client)
    };
    ids.any(|id| shim::arguments(ClientId(id), unblocks).unwrap_or(false))
}

fn unblocks(words: &[&[u8]], client: ClientId) -> bool {
    let [command, what, id, how @ ..] = words else {
        return false;
    };
    let is_client = *id == client.0.to_string().as_bytes();
    let is_unblock =
        command.eq_ignore_ascii_case(b"client") && what.eq_ignore_ascii_case(b"unblock");
    is_client && is_unblock && how.iter().all(|how| how.eq_ignore_ascii_case(b"timeout"))
}

fn noted() -> Hand {
    [SEEN.last.get(), SEEN.before.get()]
        .into_iter()
        .map(ClientId)
        .find(|id| shim::is_connected(*id))
        .map_or(Hand::Nobody, Hand::Client)
}

/// Commands that can end a key, or run one that can.
#[rustfmt::skip]
const ENDS_KEYS: &[&str] = &[
    "bitop", "blmove", "blmpop", "blpop", "brpop", "brpoplpush", "bzmpop", "bzpopmax", "bzpopmin",
    "copy", "del", "eval", "evalsha", "exec", "expire", "expireat", "fcall", "flushall", "flushdb",
    "georadius", "georadiusbymember", "geosearchstore", "getdel", "getex", "hdel", "lmove", "lmpop",
    "lpop", "lrem", "ltrim", "migrate", "move", "pexpire", "pexpireat", "rename", "renamenx",
    "restore", "rpop", "rpoplpush", "sdiffstore", "sinterstore", "smove", "sort", "spop", "srem",
    "sunionstore", "unlink", "zdiffstore", "zinterstore", "zmpop", "zpopmax", "zpopmin",
    "zrangestore", "zrem", "zremrangebylex", "zremrangebyrank", "zremrangebyscore", "zunionstore",
];

fn can_be_executing(line: &str) -> bool {
    let command = field(line, "cmd=").unwrap_or_default();
    let has_input = field(line, "qbuf=").is_some_and(|bytes| bytes != "0");
    has_input && has_arguments(line) && ENDS_KEYS.contains(&command)
}

/// Whether a connection executes a command, as far as it does not just read the next one: then it has arguments, and is
/// neither blocked (also by a pause) nor still to go on after that.
fn is_executing(line: &str) -> bool {
    has_arguments(line) && !is_held_up(line)
}

/// Whether a connection is blocked, or no longer, but has still to go on.
pub fn is_held_up(line: &str) -> bool {
    field(line, "flags=").is_some_and(|flags| flags.contains(['b', 'u']))
}

fn has_arguments(line: &str) -> bool {
    field(line, "argv-mem=").is_some_and(|bytes| bytes != "0")
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
    fn who_is_told_an_error_is_not_unblocked_as_if_its_time_were_over() {
        let unblocks = |line: &str| {
            let words: Vec<_> = line.split(' ').map(str::as_bytes).collect();
            unblocks(&words, ClientId(7))
        };
        assert!(unblocks("client unblock 7") && unblocks("CLIENT UNBLOCK 7 Timeout"));
        assert!(!unblocks("CLIENT UNBLOCK 7 ERROR") && !unblocks("CLIENT UNBLOCK 70"));
        assert!(!unblocks("CLIENT UNBLOCK") && !unblocks("CLIENT KILL 7"));
    }

    #[test]
    fn a_client_that_only_waits_for_input_is_not_executing() {
        let line =
            "id=7 addr=127.0.0.1:5 fd=8 name= qbuf=26 argv-mem=0 cmd=del user=default resp=3";
        assert!(!can_be_executing(line));
        assert!(can_be_executing(&line.replace("argv-mem=0", "argv-mem=10")));
        assert_eq!(field(line, "fd="), Some("8"));
        assert_eq!(field(line, "name="), Some(""));
        assert_eq!(field(line, "db="), None);
    }
}
