//! Which client's command is executing when a key is removed.
//!
//! An owner that removes its own key is not notified of the loss; a removal by another client is reported. But a keyspace
//! event does not say which client caused it.
//!
//! Since Redis 7.2 a command filter gets the client's id. From the first hold on, a filter records the last few ids: the
//! commands of scripts and those that other modules call carry ids of fake clients, and the latest other id is that of the
//! connection in whose command they are called. A postponed command (`CLIENT PAUSE`, a failover) passes the filter when it
//! is postponed, not when it is executed. So for a while after a pause, `CLIENT LIST` is asked which of those that gave commands in
//! it is executing one.
//!
//! Redis 7.0 gives a filter no id. There the module reads the word in which the server keeps the executing client
//! (`shim.c`), where private functions may be called; otherwise no client is known to have caused anything.

use crate::engine::{Cause, ClientId, Key};
use crate::policy::attribution::{
    InPause, RecentClients, field, is_blocked_or_pending, is_executing, is_pending, sets_time,
};
use crate::shell::server::subscriptions;
use crate::shell::state::shell;
use crate::shell::sys::raw::{self, Ctx, Text, have};
use crate::shell::sys::{clock, shim};
use redis_module::raw as c;
use std::time::Duration;

/// Starts recording who executes commands. Called with the first hold: before that it is not worth its cost.
pub fn observe(ctx: Ctx<'_>) {
    let shell = shell();
    if shell.notes_executing.replace(true) || !have!(RedisModule_CommandFilterGetClientId) {
        return;
    }
    let last = ctx.client();
    shell.recent_clients.set(RecentClients::only(last));
    subscriptions::to_commands(ctx);
}

/// Records the client of a command. Runs for every command, and cannot panic.
///
/// # Safety
/// The argument is what the server gave to a filter, for the length of this call.
#[inline(always)]
pub unsafe fn on_filtered_command(filter: *mut c::RedisModuleCommandFilterCtx) {
    let shell = shell();
    if !shell.notes_executing.get() {
        return;
    }
    // SAFETY: the caller. Some servers lack it.
    let id = unsafe { c::RedisModule_CommandFilterGetClientId.map(|get| get(filter)) };
    let Some(id) = id else { return };
    let is_paused = raw::must_not_write();
    if is_paused || shell.recent_clients.get().last() != ClientId(id) {
        note(ClientId(id), is_paused);
    }
}

/// Apart from what runs for every command.
#[inline(never)]
fn note(client: ClientId, is_paused: bool) {
    let mut recent = shell().recent_clients.get();
    let last = recent.last();
    recent.note(client, is_paused, clock::now);
    shell().recent_clients.set(recent);
    let in_pause = &shell().in_pause;
    in_pause.with_mut(|in_pause| in_pause.note(client, last, is_paused));
}

/// See [`RecentClients::may_be_postponed`].
fn may_be_postponed() -> bool {
    let mut recent = shell().recent_clients.get();
    let may_be = recent.may_be_postponed(raw::must_not_write, clock::now);
    shell().recent_clients.set(recent);
    if !may_be {
        shell().in_pause.with_mut(InPause::clear);
    }
    may_be
}

/// The client whose command is executing, if it is known.
pub fn cause(ctx: Ctx<'_>) -> Cause {
    if !have!(RedisModule_CommandFilterGetClientId) {
        return first_connected(shim::executing());
    }
    match may_be_postponed() {
        true => cause_after_pause(ctx),
        false => last_client(),
    }
}

/// With I/O threads a client seems to be executing also when its next command was read. So if several seem to, none is known
/// to: rather is a client told of a loss that it has caused itself than another one not told.
#[cold]
fn cause_after_pause(ctx: Ctx<'_>) -> Cause {
    let in_pause = &shell().in_pause;
    let Some(candidates) = in_pause.with(InPause::all) else {
        return Cause::Server;
    };
    // Whom the pause blocked is pending when it is over: who is blocked then is so by a command of its own.
    let is_paused = raw::must_not_write();
    let is_postponed = if is_paused {
        is_blocked_or_pending
    } else {
        is_pending
    };
    let mut executing = Vec::new();
    for client in candidates {
        let line = ctx.client_line(client);
        match line.as_deref() {
            Some(line) if is_postponed(line) => {}
            Some(line) if is_executing(line) => executing.push(client),
            _ => in_pause.with_mut(|in_pause| in_pause.is_over(client)),
        }
    }
    if let Cause::Client(last) = last_client()
        && !executing.contains(&last)
        && is_executing_now(ctx, last)
    {
        executing.push(last);
    }
    match *executing {
        [one] => Cause::Client(one),
        _ => Cause::Server,
    }
}

/// Whether no client's command is executing; false if unknown.
pub fn is_no_client_executing() -> bool {
    shim::executing() == Some(ClientId(0))
}

/// Whether a client's command is executing at this moment. Takes some microseconds.
pub fn is_executing_now(ctx: Ctx<'_>, client: ClientId) -> bool {
    let line = ctx.client_line(client);
    line.is_some_and(|line| is_executing(&line))
}

/// The client that expired this key. Never its owner, except on Valkey since 8.1, which also reports `expired` when a
/// command sets a time in the past. An expiry that the owner's command merely triggers has no client.
pub fn cause_of_expiry(ctx: Ctx<'_>, key: Key<'_>) -> Cause {
    if !shell().server.get().past_is_expiry || ttl_had_ended(key) {
        return Cause::Server;
    }
    let Cause::Client(client) = cause(ctx) else {
        return Cause::Server;
    };
    let engine = &shell().engine;
    let is_holder = engine.with(|engine| engine.holders(key).contains(&client));
    let line = is_holder.then(|| ctx.client_line(client)).flatten();
    match line.is_some_and(|line| sets_time(&line)) {
        true => Cause::Client(client),
        false => Cause::Server,
    }
}

/// A held key got a TTL: records its end, where that is needed to tell an expiry from a time set in the past.
pub fn record_ttl_end(ctx: Ctx<'_>, key: Key<'_>) {
    /// Bound of recorded keys. An expiry of any other key counts as its owner's if the owner is setting a TTL at that
    /// moment.
    const RECORDED_KEYS_MAX: usize = 65_536;
    let shell = shell();
    if !shell.server.get().past_is_expiry {
        return;
    }
    let Some(token) = shell.engine.with(|engine| engine.first_granted_as(key)) else {
        return;
    };
    let name = Text::new(key.name);
    let left_ms = ctx.in_db(key.db).open_no_touch(name.as_str()).ttl_ms();
    let end = left_ms.map(|ms| clock::since_1970() + Duration::from_millis(ms));
    shell.ttl_ends.with_mut(|ends| {
        if ends.len() >= RECORDED_KEYS_MAX {
            ends.clear();
        }
        match end {
            Some(end) => ends.insert(token, end),
            None => ends.remove(&token),
        }
    });
}

/// Whether a key's recorded TTL had ended.
fn ttl_had_ended(key: Key<'_>) -> bool {
    let shell = shell();
    let token = shell.engine.with(|engine| engine.first_granted_as(key));
    let end = token.and_then(|token| shell.ttl_ends.with_mut(|ends| ends.remove(&token)));
    end.is_some_and(|end| end <= clock::since_1970())
}

/// Whether a MIGRATE is executing. After a pause another client's may have been read only: rather is a waiter redirected to the
/// server that it comes from than granted a key that lives on at another one. Then it takes O(connections).
pub fn is_migrating(ctx: Ctx<'_>) -> bool {
    let is_it = |line: &str| is_executing(line) && field(line, "cmd=") == Some("migrate");
    if have!(RedisModule_CommandFilterGetClientId) && may_be_postponed() {
        return ctx
            .client_lines()
            .is_some_and(|lines| lines.lines().any(is_it));
    }
    match cause(ctx) {
        Cause::Client(id) => ctx.client_line(id).is_some_and(|line| is_it(&line)),
        Cause::Server => false,
    }
}

/// Whether a client that is about to disconnect is killed by another client's `CLIENT KILL`.
pub fn is_killing(ctx: Ctx<'_>, client: ClientId) -> bool {
    let Cause::Client(killer) = cause(ctx) else {
        return false;
    };
    let line = (killer != client)
        .then(|| ctx.client_line(killer))
        .flatten();
    line.is_some_and(|line| is_executing(&line) && field(&line, "cmd=") == Some("client|kill"))
}

fn last_client() -> Cause {
    first_connected(shell().recent_clients.get().ids())
}

/// The connections among which is the one whose command is executing, if any is. `None` if it may be another one: commands are
/// not recorded yet, or too many were given in a pause.
pub fn may_be_executing() -> Option<impl Iterator<Item = ClientId>> {
    if !shell().notes_executing.get() {
        return None;
    }
    let postponed = match may_be_postponed() {
        true => shell().in_pause.with(InPause::all)?,
        false => Vec::new(),
    };
    let recent = shell().recent_clients.get().ids();
    let clients = recent.into_iter().chain(postponed);
    Some(clients.filter(|client| is_connected(*client)))
}

/// Whether an id is a connection's. Mostly the engine knows it.
pub fn is_connected(client: ClientId) -> bool {
    shell().engine.with(|engine| engine.knows_client(client)) || raw::is_connected(client)
}

/// Skips ids without a connection: those of scripts' inner commands and of commands from a file.
fn first_connected(ids: impl IntoIterator<Item = ClientId>) -> Cause {
    let mut ids = ids.into_iter();
    let first = ids.find(|id| is_connected(*id));
    first.map_or(Cause::Server, Cause::Client)
}
