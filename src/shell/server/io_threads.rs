//! Keeps connections with pushes in the main thread on servers with I/O threads (Redis 8).
//!
//! With `io-threads` above 1 a thread owns a connection's buffers between its commands, and nothing else may write to them.
//! The server keeps connections that it pushes to in its main thread, which it recognises by certain flags. So the module
//! sets the cheapest of these flags on each connection that can be pushed to: client-side caching that tracks no key until
//! asked to (`CLIENT TRACKING ON OPTIN`).
//!
//! The client may still use `CLIENT TRACKING`. A command filter clears the module's flag before such a command if it would
//! be in the way, and sets it again afterwards if the client has no tracking of its own. On a replica it cannot do the
//! latter: there `CLIENT TRACKING` and `RESET` end the connection's watches.
//!
//! A command that the server refuses is never executed, and a postponed one (`CLIENT PAUSE`) does not pass the filter
//! again. Both are over before the server assigns connections to threads, which happens after an event of its loop; in that
//! event the module sets its flag again. While the server serves clients in the middle of a command (a slow script, a load)
//! there is no such event, so these few commands are refused then, as the server refuses others.

use crate::engine::ClientId;
use crate::policy::attribution::{field, is_blocked_or_pending};
use crate::policy::io_threads::IoThreads;
use crate::shell::guard::guard;
use crate::shell::server::subscriptions;
use crate::shell::state::shell;
use crate::shell::sys::raw::{self, Ctx, Text, api, c_string, filtered_word};
use crate::shell::sys::shim;
use crate::shell::timer;
use redis_module::raw as c;
use std::ffi::c_void;
use std::ptr::null_mut;

/// Idle time after which the module unsubscribes from the event loop.
const IDLE_MS: u64 = 1000;

/// Prepares a connection for pushes. It is executing one of the module's commands.
pub fn enable_push(ctx: Ctx<'_>, client: ClientId) {
    if !shell().server.get().threads_own_clients {
        return;
    }
    shell().filters_tracking.set(true);
    subscriptions::to_commands(ctx);
    keep(client);
    // The rest of its transaction may clear the flag: when it was queued, nobody knew the client.
    if ctx.state().in_exec() {
        keep_after_command(ctx, client);
    }
}

/// Forgets a closed connection.
pub fn forget(client: ClientId) {
    shell().threads.with_mut(|threads| {
        threads.kept.remove(&client);
        threads.deferred.remove(&client);
        threads.queued.remove(&client);
    });
}

/// The server sends an invalidation of a flush to all tracking connections, also those that track no key. So the module's
/// flag is cleared for its duration. Both events come in one call of the server, in the main thread.
pub fn flush_begins() {
    for client in kept() {
        shim::release_from_main_thread(client);
    }
}

/// See [`flush_begins`].
pub fn flush_ends() {
    for client in kept() {
        shim::keep_in_main_thread(client);
    }
}

fn kept() -> Vec<ClientId> {
    let threads = &shell().threads;
    threads.with(|threads| threads.kept.iter().copied().collect())
}

fn keep(client: ClientId) {
    if !raw::is_tracking(client) && shim::keep_in_main_thread(client) {
        shell()
            .threads
            .with_mut(|threads| threads.kept.insert(client));
    }
}

/// Handles a command that may change the module's flag. Returns the client whose watches end.
///
/// # Safety
/// The argument is what the server gave to a filter, for the length of this call.
pub unsafe fn on_filtered_command(
    filter: *mut c::RedisModuleCommandFilterCtx,
) -> Option<(Ctx<'static>, ClientId)> {
    // SAFETY: the caller.
    let word = |place| unsafe { filtered_word(filter, place) }.unwrap_or_default();
    let is = |place, name: &str| word(place).eq_ignore_ascii_case(name.as_bytes());
    let touch = match () {
        () if is(0, "exec") => Touch::Exec,
        () if is(0, "reset") => Touch::Reset,
        () if is(0, "client") && is(1, "tracking") => Touch::Tracking { on: is(2, "on") },
        () => return None,
    };
    // SAFETY: the table (Redis 8 has it), the caller.
    let client = ClientId(unsafe { api!(RedisModule_CommandFilterGetClientId(filter)) });
    if !shell().engine.with(|engine| engine.knows_client(client)) {
        return None;
    }
    let ctx = raw::detached()?;
    if ctx.state().in_script() || ctx.state().loading() {
        if touch != Touch::Exec {
            refuse(filter);
        }
        return None;
    }
    if !shell().is_replica() {
        before_command(ctx, client, touch);
        return None;
    }
    // On a replica its watches end, as docs/commands.md says; it holds nothing. (Commands in EXEC passed the filter when
    // they were queued.)
    (touch != Touch::Exec).then(|| {
        release(client);
        (ctx, client)
    })
}

/// How a command affects the module's flag.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Touch {
    /// It may contain `CLIENT TRACKING`.
    Exec,
    Reset,
    Tracking {
        on: bool,
    },
}

/// Clears the module's flag only if the client is about to switch its own tracking on. The server may refuse the command
/// without an event, so the flag is not cleared needlessly.
fn before_command(ctx: Ctx<'_>, client: ClientId, touch: Touch) {
    let threads = &shell().threads;
    let may_switch_on = match touch {
        Touch::Tracking { .. } if raw::is_in_multi(client) => {
            threads.with_mut(|threads| threads.queued.insert(client));
            return;
        }
        Touch::Tracking { on } => on && may_track(ctx, client),
        Touch::Exec if threads.with_mut(|threads| threads.queued.remove(&client)) => true,
        Touch::Exec => return,
        Touch::Reset => false,
    };
    if may_switch_on {
        release(client);
    }
    keep_after_command(ctx, client);
}

/// Sets the flag again after the command, or in the event loop if the command is refused or postponed.
fn keep_after_command(ctx: Ctx<'_>, client: ClientId) {
    let may_be_postponed = raw::must_not_write();
    if !may_be_postponed {
        // SAFETY: the table (Redis 8 has it), the context; an id fits a pointer.
        unsafe {
            api!(RedisModule_AddPostNotificationJob(
                ctx.as_ptr(),
                Some(after_command),
                client.0 as *mut c_void,
                None
            ))
        };
    }
    let threads = &shell().threads;
    threads.with_mut(|threads| threads.deferred.insert(client, may_be_postponed));
    subscriptions::to_event_loop(ctx);
}

fn release(client: ClientId) {
    let kept = |threads: &mut IoThreads| threads.kept.remove(&client);
    if shell().threads.with_mut(kept) {
        shim::release_from_main_thread(client);
    }
}

/// Whether the client's user has the right to `CLIENT TRACKING`.
fn may_track(ctx: Ctx<'_>, client: ClientId) -> bool {
    let words = [&b"client"[..], b"tracking", b"on"].map(Text::new);
    let words = words.each_ref().map(Text::as_str);
    ctx.user_of(client).is_none_or(|user| user.may_give(&words))
}

unsafe extern "C" fn after_command(_ctx: *mut c::RedisModuleCtx, client: *mut c_void) {
    guard((), || {
        let client = ClientId(client as u64);
        if shell().engine.with(|engine| engine.knows_client(client)) {
            keep(client);
        }
    });
}

/// Makes the server refuse this command, as it refuses others while busy or loading: replaces its name.
fn refuse(filter: *mut c::RedisModuleCommandFilterCtx) {
    let ping = c_string("PING");
    // SAFETY: the table, the server's argument; the filter takes the string over.
    unsafe {
        let ping = api!(RedisModule_CreateString(null_mut(), ping.as_ptr(), 4));
        api!(RedisModule_CommandFilterArgReplace(filter, 0, ping));
    }
}

/// The event loop is about to sleep: all commands of this turn were executed or refused, except those still postponed.
/// Returns the clients whose watches end.
pub fn before_sleep(ctx: Ctx<'_>) -> Vec<ClientId> {
    let threads = &shell().threads;
    let deferred = threads.with(|threads| threads.deferred.clone());
    let mut ended = Vec::new();
    for (client, may_be_postponed) in &deferred {
        if *may_be_postponed && is_postponed(ctx, *client) {
            continue;
        }
        threads.with_mut(|threads| threads.deferred.remove(client));
        let is_known = shell().engine.with(|engine| engine.knows_client(*client));
        if is_known && !is_kept_again(ctx, *client) {
            ended.push(*client);
        }
    }
    if !deferred.is_empty() && !is_any_deferred() {
        timer::wake_in_ms(IDLE_MS);
    }
    ended
}

/// Sets the flag of a connection whose command may not have been executed. False if the connection was given to a thread in
/// the turn in which it became ours: then nothing may write to it.
fn is_kept_again(ctx: Ctx<'_>, client: ClientId) -> bool {
    if raw::is_tracking(client) {
        return true;
    }
    let line = ctx.client_line(client).unwrap_or_default();
    let is_given = field(&line, "io-thread=").is_some_and(|thread| thread != "0");
    if !is_given {
        keep(client);
    }
    !is_given
}

/// Whether a connection's command that affects the flag still waits for the end of a pause.
fn is_postponed(ctx: Ctx<'_>, client: ClientId) -> bool {
    ctx.client_line(client).is_some_and(|line| {
        let command = field(&line, "cmd=").unwrap_or_default();
        is_blocked_or_pending(&line) && matches!(command, "exec" | "reset" | "client|tracking")
    })
}

pub fn is_any_deferred() -> bool {
    let threads = &shell().threads;
    threads.with(|threads| !threads.deferred.is_empty())
}
