//! Redis 8's I/O threads.
//!
//! With `io-threads` above 1 a thread owns a connection's buffers between its commands, and nobody
//! else may write to them. The server itself keeps connections that it pushes to in its main
//! thread, by certain flags. So for each connection that can be pushed to we set the one that costs
//! nothing: client-side caching that tracks no key until it is asked to (`CLIENT TRACKING ON OPTIN`).
//!
//! The client may use `CLIENT TRACKING` all the same: a command filter takes our setting back before
//! its command runs where that would be in the way, and puts it on again after it where the client has none of its own. On a
//! replica it cannot do the latter: there `CLIENT TRACKING` and `RESET` end the connection's watches.
//!
//! A command that the server refuses is not executed at all, and one that it postpones (`CLIENT PAUSE`) does not come by the
//! filter again when it is. Both are over before the server looks for connections to give to a thread, and so comes an event of
//! its loop, in which we put our setting on again. And where the server attends to others in the middle of a command (a slow script, a load) there is no
//! such moment at all: so there the few of these commands that it would execute are refused as it refuses others.

use crate::engine::ClientId;
use crate::policy::attribution::{field, is_held_up};
use crate::policy::io_threads::Threads;
use crate::shell::guard::guard;
use crate::shell::server::subscriptions;
use crate::shell::state::shell;
use crate::shell::sys::raw::{self, Ctx, Text, api, c_string, filtered_word};
use crate::shell::sys::shim;
use crate::shell::timer;
use redis_module::raw as c;
use std::ffi::c_void;
use std::ptr::null_mut;

/// How long nothing is to be looked after before the event loop is listened to no longer.
const IDLE_MS: u64 = 1000;

/// From now on pushes may go to this connection, which is executing a command of ours.
pub fn attend(ctx: Ctx<'_>, client: ClientId) {
    if !shell().server.get().threads_own_clients {
        return;
    }
    shell().notices_tracking.set(true);
    subscriptions::to_commands(ctx);
    keep(client);
}

/// A connection is no more.
pub fn forget(client: ClientId) {
    shell().threads.with_mut(|threads| {
        threads.kept.remove(&client);
        threads.deferred.remove(&client);
        threads.queued.remove(&client);
    });
}

/// The server tells all tracking connections of a flush, also those that track no key: so for its
/// time ours do not. Begin and end come in one call of the server's, in the main thread.
pub fn flush_begins() {
    for client in kept() {
        shim::let_go_of_main_thread(client);
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

/// A command passes the filter that touches our setting, perhaps. Says whose watches end by it.
///
/// # Safety
/// The argument is what the server gave to a filter, for the length of this call.
pub unsafe fn notice(
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
        touched(ctx, client, touch);
        return None;
    }
    // There watches have to end, as docs/commands.md says; it holds nothing. (What EXEC has in it was seen when it was queued.)
    (touch != Touch::Exec).then(|| {
        let_go(client);
        (ctx, client)
    })
}

/// What a command does to our setting.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Touch {
    /// It may have `CLIENT TRACKING` in it.
    Exec,
    Reset,
    Tracking {
        on: bool,
    },
}

/// The server may refuse what it would execute, which no event tells. So nothing is taken back that need not be: our setting is
/// in the way only where the client switches its own on.
fn touched(ctx: Ctx<'_>, client: ClientId, touch: Touch) {
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
        let_go(client);
    }
    // As soon as it is executed, or else, if it is refused or postponed, in the event loop.
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
    threads.with_mut(|threads| threads.deferred.insert(client, may_be_postponed));
    subscriptions::to_event_loop(ctx);
}

fn let_go(client: ClientId) {
    let kept = |threads: &mut Threads| threads.kept.remove(&client);
    if shell().threads.with_mut(kept) {
        shim::let_go_of_main_thread(client);
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

/// Has the server refuse this command, as one that it does not execute while it is busy or loads.
fn refuse(filter: *mut c::RedisModuleCommandFilterCtx) {
    let ping = c_string("PING");
    // SAFETY: the table, the server's argument; the filter takes the string over.
    unsafe {
        let ping = api!(RedisModule_CreateString(null_mut(), ping.as_ptr(), 4));
        api!(RedisModule_CommandFilterArgReplace(filter, 0, ping));
    }
}

/// The server's loop is about to sleep: what was given in this turn has been executed or refused, what was postponed if its time
/// has come. Says whose watches end.
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

/// A command of this connection was perhaps not executed, so that nothing was put on again after it. No where it was given to a
/// thread already, in the turn in which it became ours, and nobody may write to it.
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

/// Whether a connection's command that touches our setting still waits for the end of a pause.
fn is_postponed(ctx: Ctx<'_>, client: ClientId) -> bool {
    ctx.client_line(client).is_some_and(|line| {
        let command = field(&line, "cmd=").unwrap_or_default();
        is_held_up(&line) && matches!(command, "exec" | "reset" | "client|tracking")
    })
}

pub fn is_any_deferred() -> bool {
    let threads = &shell().threads;
    threads.with(|threads| !threads.deferred.is_empty())
}
