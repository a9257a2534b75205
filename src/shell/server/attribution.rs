//! Whose command is being executed, when a key goes.
//!
//! An owner that removes its own key is not told that it lost it; everyone else's hand is. But a
//! keyspace event does not say whose command caused it.
//!
//! Since Redis 7.2 a command filter can tell the client's id, so from the first hold on a filter
//! notes the last two ids it saw: a script's inner commands come with the id of a fake client, and
//! then the one before is the connection whose script it is. A command that the server has postponed
//! (`CLIENT PAUSE`, a failover) comes by the filter when it is postponed, and not again when it is
//! executed. So after a pause `CLIENT LIST` is asked for a while which of the holders is executing one.
//!
//! Redis 7.0 tells a filter no id. There the word is read in which it keeps whose command it executes (`shim.c`). Until that
//! is known, `CLIENT LIST` is asked which of the holders has said a command that can end keys. (An owner that has sent half of such
//! a command looks the same, and is not told of another client that is quicker.)

use crate::engine::{Cause, ClientId, Key};
use crate::policy::attribution::{Noted, can_be_executing, field, is_executing, sets_time};
use crate::shell::server::subscriptions;
use crate::shell::state::shell;
use crate::shell::sys::raw::{self, Ctx, Text, have};
use crate::shell::sys::{clock, shim};
use redis_module::raw as c;
use std::time::Duration;

/// Begins to note who executes commands. Until somebody holds something it is not worth its cost.
pub fn observe(ctx: Ctx<'_>) {
    let shell = shell();
    if shell.notes_clients.replace(true) || !have!(RedisModule_CommandFilterGetClientId) {
        return;
    }
    let last = ctx.client();
    shell.noted.set(Noted::only(last));
    subscriptions::to_commands(ctx);
}

/// Notes whose command it is. Runs for every command, and there is nothing here that can panic.
///
/// # Safety
/// The argument is what the server gave to a filter, for the length of this call.
#[inline(always)]
pub unsafe fn note(filter: *mut c::RedisModuleCommandFilterCtx) {
    let shell = shell();
    if !shell.notes_clients.get() {
        return;
    }
    // SAFETY: the caller. Some servers lack it.
    let id = unsafe { c::RedisModule_CommandFilterGetClientId.map(|get| get(filter)) };
    let Some(id) = id else { return };
    let (client, noted) = (ClientId(id), &shell.noted);
    if noted.get().last != client {
        let mut last = noted.get();
        last.note(client, raw::must_not_write());
        noted.set(last);
    }
}

/// See [`Noted::may_be_postponed`].
fn may_be_postponed() -> bool {
    let mut noted = shell().noted.get();
    let may_be = noted.may_be_postponed(raw::must_not_write, clock::now);
    shell().noted.set(noted);
    may_be
}

/// Whose command is executed; nothing where that has to be asked of `CLIENT LIST`.
fn executing() -> Option<Cause> {
    if have!(RedisModule_CommandFilterGetClientId) {
        return (!may_be_postponed()).then(noted);
    }
    Some(first_connected([shim::executing()?]))
}

/// Whether no connection's command is executed; no where that cannot be told.
pub fn is_nobody_executing() -> bool {
    shim::executing() == Some(ClientId(0))
}

/// Whether a connection may be the one whose command ends a key, by what `CLIENT LIST` says of it.
fn may_end_keys(line: &str) -> bool {
    match have!(RedisModule_CommandFilterGetClientId) {
        true => is_executing(line),
        false => can_be_executing(line),
    }
}

/// Whose command ends this key, as far as it is one of those who hold it, of whom the caller knows
/// `one`. Where the server cannot tell, O(holders).
pub fn cause(ctx: Ctx<'_>, key: Key<'_>, one: ClientId) -> Cause {
    if let Some(cause) = executing() {
        return cause;
    }
    let is_own = |holder: &ClientId| {
        let line = ctx.client_line(*holder);
        line.is_some_and(|line| may_end_keys(&line))
    };
    // Mostly it is the only one, and then the key need not be looked up once more.
    if is_own(&one) {
        return Cause::Client(one);
    }
    let holders = shell().engine.with(|engine| engine.holders(key));
    let mut others = holders.iter().copied().filter(|holder| *holder != one);
    others.find(is_own).map_or(Cause::Server, Cause::Client)
}

/// Whether a connection's command is being executed at this moment. Some microseconds.
pub fn is_executing_now(ctx: Ctx<'_>, client: ClientId) -> bool {
    let line = ctx.client_line(client);
    line.is_some_and(|line| is_executing(&line))
}

/// Whose command ends this key by expiry. That is never its owner's, with one exception: Valkey since 8.1 says so also when a command names a
/// time that has passed. A lapse that the owner's own command only comes upon is nobody's.
pub fn cause_of_expiry(ctx: Ctx<'_>, key: Key<'_>) -> Cause {
    if !shell().server.get().past_is_expiry || has_lapsed(key) {
        return Cause::Server;
    }
    let executing = executing();
    let holders = shell().engine.with(|engine| engine.holders(key));
    let mut holders = holders
        .iter()
        .copied()
        .filter(|holder| executing.is_none_or(|by| by == Cause::Client(*holder)));
    let own = holders.find(|holder| {
        ctx.client_line(*holder)
            .is_some_and(|line| sets_time(&line))
    });
    own.map_or(Cause::Server, Cause::Client)
}

/// A held key was given a time to live: notes its end, where that tells a lapse from a time that has passed.
pub fn note_end(ctx: Ctx<'_>, key: Key<'_>) {
    /// Of so many keys it is noted at most. Of others a lapse counts as its owner's if that gives them a time at that moment.
    const MOST: usize = 65_536;
    let shell = shell();
    if !shell.server.get().past_is_expiry {
        return;
    }
    let Some(token) = shell.engine.with(|engine| engine.first_granted_as(key)) else {
        return;
    };
    let name = Text::new(key.name);
    let left_ms = ctx.in_db(key.db).open_quietly(name.as_str()).left_ms();
    let end = left_ms.map(|ms| clock::since_1970() + Duration::from_millis(ms));
    shell.ends.with_mut(|ends| {
        if ends.len() >= MOST {
            ends.clear();
        }
        match end {
            Some(end) => ends.insert(token, end),
            None => ends.remove(&token),
        }
    });
}

/// Whether a key's time to live was over when it ended, as far as that was noted.
fn has_lapsed(key: Key<'_>) -> bool {
    let shell = shell();
    let token = shell.engine.with(|engine| engine.first_granted_as(key));
    let end = token.and_then(|token| shell.ends.with_mut(|ends| ends.remove(&token)));
    end.is_some_and(|end| end <= clock::since_1970())
}

/// Whose command is being executed, when any holder may matter. Where the server cannot tell, O(connections).
pub fn cause_among_all(ctx: Ctx<'_>) -> Cause {
    if let Some(cause) = executing() {
        return cause;
    }
    let lines = ctx.client_lines().unwrap_or_default();
    let line = lines.lines().find(|line| may_end_keys(line));
    let id = line.and_then(|line| field(line, "id=")?.parse().ok());
    id.map_or(Cause::Server, |id| Cause::Client(ClientId(id)))
}

/// Whether the command that is executed is a MIGRATE.
pub fn is_migrating(ctx: Ctx<'_>) -> bool {
    let Cause::Client(id) = cause_among_all(ctx) else {
        return false;
    };
    let line = ctx.client_line(id);
    line.is_some_and(|line| field(&line, "cmd=") == Some("migrate"))
}

/// Whether a connection that is about to end is ended by another one's `CLIENT KILL`.
pub fn is_killing(ctx: Ctx<'_>, client: ClientId) -> bool {
    let Cause::Client(killer) = executing().unwrap_or_else(noted) else {
        return false;
    };
    let line = (killer != client)
        .then(|| ctx.client_line(killer))
        .flatten();
    line.is_some_and(|line| is_executing(&line) && field(&line, "cmd=") == Some("client|kill"))
}

fn noted() -> Cause {
    let Noted { last, before, .. } = shell().noted.get();
    first_connected([last, before])
}

/// Whether an id is a connection's. Mostly it is that of one that holds something.
pub fn is_connected(client: ClientId) -> bool {
    shell().engine.with(|engine| engine.knows_client(client)) || raw::is_connected(client)
}

/// A script's inner commands, and what is read from a file, come with ids that no connection has.
fn first_connected(ids: impl IntoIterator<Item = ClientId>) -> Cause {
    let mut ids = ids.into_iter();
    let first = ids.find(|id| is_connected(*id));
    first.map_or(Cause::Server, Cause::Client)
}
