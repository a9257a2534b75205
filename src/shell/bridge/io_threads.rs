//! Redis 8's I/O threads.
//!
//! With `io-threads` above 1 a thread owns a connection's buffers between its commands, and nobody
//! else may write to them. The server itself keeps connections that it pushes to in its main
//! thread, by certain flags. So for each connection that can be pushed to we set the one that costs
//! nothing: client-side caching that tracks no key until it is asked to (`CLIENT TRACKING ON OPTIN`).
//!
//! The client may use `CLIENT TRACKING` all the same: a command filter takes our setting back before
//! its command runs, and puts it on again after it where the client has none of its own. On a replica
//! it cannot do the latter: there `CLIENT TRACKING` and `RESET` end the connection's watches.
//!
//! A command that the server postpones (`CLIENT PAUSE`) does not come by the filter again when it is executed. That happens
//! before the server looks for connections to give to a thread, and so does an event of its loop, in which we put our
//! setting on again. And where the server attends to others in the middle of a command (a slow script, a load) there is no
//! such moment at all: so there the few of these commands that it would execute are refused as it refuses others.

use crate::engine::{ClientId, Event};
use crate::policy::attribution::{field, is_held_up};
use crate::shell::bridge::dispatch::handle;
use crate::shell::guard::guard;
use crate::shell::state::shell;
use crate::shell::sys::raw::{self, Ctx, Str, api, c_string};
use crate::shell::sys::shim;
use redis_module::raw as c;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

/// From now on pushes may go to this connection, which is executing a command of ours.
pub fn attend(ctx: Ctx<'_>, client: ClientId) {
    if !shell().server.get().threads_own_clients {
        return;
    }
    let filtering = shell()
        .threads
        .with_mut(|threads| std::mem::replace(&mut threads.filtering, true));
    if !filtering {
        // SAFETY: the table, the context.
        unsafe {
            api!(RedisModule_RegisterCommandFilter(
                ctx.as_ptr(),
                Some(on_command),
                0
            ))
        };
    }
    keep(client);
}

/// A connection is no more.
pub fn forget(client: ClientId) {
    shell().threads.with_mut(|threads| {
        threads.kept.remove(&client);
        threads.deferred.remove(&client);
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

unsafe extern "C" fn on_command(filter: *mut c::RedisModuleCommandFilterCtx) {
    guard((), || {
        // SAFETY: the table, the server's argument.
        let word = |place: c_int| unsafe {
            let word = api!(RedisModule_CommandFilterArgGet(filter, place));
            if word.is_null() {
                b""
            } else {
                Str::new(word).bytes()
            }
        };
        let is = |place, name: &str| word(place).eq_ignore_ascii_case(name.as_bytes());
        // A transaction may have CLIENT TRACKING in it. (On a replica that was seen when it was queued,
        // see below.)
        let is_exec = is(0, "exec") && !shell().is_replica();
        let touches = is_exec || is(0, "reset") || (is(0, "client") && is(1, "tracking"));
        if !touches {
            return;
        }
        // SAFETY: the table (Redis 8 has it), the server's argument.
        let client = ClientId(unsafe { api!(RedisModule_CommandFilterGetClientId(filter)) });
        let shell = shell();
        if !shell.engine.with(|engine| engine.knows_client(client)) {
            return;
        }
        let Some(ctx) = raw::detached() else { return };
        if ctx.state().in_script() || ctx.state().loading() {
            if !is_exec {
                refuse(filter);
            }
            return;
        }
        let was_kept = shell
            .threads
            .with_mut(|threads| threads.kept.remove(&client));
        if was_kept {
            shim::let_go_of_main_thread(client);
        }
        if raw::must_not_write() && !shell.is_replica() {
            return defer(ctx, client);
        }
        // SAFETY: the table (Redis 8 has it), the context; an id fits a pointer.
        let deferred = unsafe {
            api!(RedisModule_AddPostNotificationJob(
                ctx.as_ptr(),
                Some(after_command),
                client.0 as *mut c_void,
                None
            ))
        };
        if deferred != c::REDISMODULE_OK as c_int {
            // A replica's server does not call us after the command, so the connection would go to
            // a thread: its watches have to end. It holds nothing there.
            handle(ctx, Event::Ended { client });
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

/// This connection's command may be postponed: it is kept again once it is executed.
fn defer(ctx: Ctx<'_>, client: ClientId) {
    let was_looping = shell().threads.with_mut(|threads| {
        threads.deferred.insert(client);
        std::mem::replace(&mut threads.looping, true)
    });
    if was_looping {
        return;
    }
    let (id, dataver) = (c::REDISMODULE_EVENT_EVENTLOOP, 1);
    let event = c::RedisModuleEvent { id, dataver };
    // SAFETY: the table, the context.
    unsafe {
        api!(RedisModule_SubscribeToServerEvent(
            ctx.as_ptr(),
            event,
            Some(on_loop)
        ))
    };
}

/// The server's loop is about to sleep: what was postponed has been executed if its time has come, and no connection was given
/// to a thread since.
unsafe extern "C" fn on_loop(
    ctx: *mut c::RedisModuleCtx,
    _event: c::RedisModuleEvent,
    subevent: u64,
    _data: *mut c_void,
) {
    if subevent != c::REDISMODULE_SUBEVENT_EVENTLOOP_BEFORE_SLEEP {
        return;
    }
    guard((), || {
        // SAFETY: the server's argument, for the length of this call.
        let ctx = unsafe { Ctx::new(&ctx) };
        let threads = &shell().threads;
        let mut waiting = threads.with_mut(|threads| std::mem::take(&mut threads.deferred));
        waiting.retain(|client| {
            let line = ctx.client_line(*client);
            let is_waiting = line.is_some_and(|line| {
                let command = field(&line, "cmd=").unwrap_or_default();
                is_held_up(&line) && matches!(command, "exec" | "reset" | "client|tracking")
            });
            if !is_waiting {
                keep(*client);
            }
            is_waiting
        });
        threads.with_mut(|threads| threads.deferred = waiting);
    });
}

unsafe extern "C" fn after_command(_ctx: *mut c::RedisModuleCtx, client: *mut c_void) {
    guard((), || {
        let client = ClientId(client as u64);
        if shell().engine.with(|engine| engine.knows_client(client)) {
            keep(client);
        }
    });
}
