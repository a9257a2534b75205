//! What matters to us of this server's replicas, and of how far they and the append-only file have come.

use crate::engine::Moment;
use crate::shell::guard::guard;
use crate::shell::server::subscriptions;
use crate::shell::state::shell;
use crate::shell::sys::clock;
use crate::shell::sys::raw::{self, Ctx};
use crate::shell::timer;
use redis_module::raw as c;
use std::cell::Cell;
use std::ffi::{CStr, c_void};

/// The server counts its replicas once a second, and so do we at most.
const FRESH_MS: u64 = 1000;

pub unsafe extern "C" fn on_change(
    _ctx: *mut c::RedisModuleCtx,
    _event: c::RedisModuleEvent,
    subevent: u64,
    _data: *mut c_void,
) {
    guard((), || {
        count_again();
        shell().replicas_changed.set(true);
        if shell().counts_acks.get() {
            // The server counts this one only when its event is over.
            timer::wake_in_ms(0);
        }
        if subevent == c::REDISMODULE_SUBEVENT_REPLICA_CHANGE_ONLINE {
            // It may not know the epoch of tokens: a copy of the data in which nothing is bound does not say it.
            shell().newcomer.set(true);
            shell()
                .engine
                .with_mut(|engine| engine.invalidate_epoch_sync());
            // Here the server is in the middle of greeting it.
            timer::wake_in_ms(0);
        }
    });
}

/// Somebody has changed the server's settings: the append-only file may be wanted from now on, although it is begun later.
pub unsafe extern "C" fn on_setting(
    _ctx: *mut c::RedisModuleCtx,
    _event: c::RedisModuleEvent,
    _subevent: u64,
    _data: *mut c_void,
) {
    guard((), count_again);
}

/// Tells replicas the epoch if one has come that may not know it.
pub fn replicate_to_newcomer(ctx: Ctx<'_>) {
    let shell = shell();
    // Of what a replica's replica knows the master decides.
    if !shell.newcomer.get() || shell.is_replica() {
        return;
    }
    if raw::must_not_write() {
        return timer::wake_in_ms(timer::RETRY_MS);
    }
    shell.newcomer.set(false);
    let token = shell.engine.with_mut(|engine| engine.pending_epoch());
    if let Some(token) = token {
        ctx.replicate_token(token);
    }
}

/// How far replication has come, as replicas acknowledge it.
pub fn offset(ctx: Ctx<'_>) -> Option<u64> {
    let offset = ctx.server_info(c"replication", c"master_repl_offset")?;
    offset.parse().ok()
}

/// What was found out within the last second, or what a look shows now.
fn within_a_second(
    known: &Cell<Option<(Moment, bool)>>,
    now: Moment,
    look: impl FnOnce() -> bool,
) -> bool {
    match known.get() {
        Some((looked, found)) if now.ms_since(looked) < FRESH_MS => found,
        _ => {
            let found = look();
            known.set(Some((now, found)));
            found
        }
    }
}

/// Whether there are as many good replicas as the server wants before it lets anybody write.
pub fn are_enough(ctx: Ctx<'_>) -> bool {
    within_a_second(&shell().enough_replicas, clock::now(), || {
        subscriptions::to_settings(ctx);
        let number = |text: String| text.parse::<u64>().ok();
        // It says so only where it wants any.
        let good = ctx.server_info(c"replication", c"min_slaves_good_slaves");
        good.and_then(number).is_none_or(|good| {
            let wanted = ctx.server_setting(c"min-replicas-to-write");
            wanted.and_then(number).is_none_or(|wanted| good >= wanted)
        })
    })
}

/// Whether nobody can ask, by `WAIT` or `WAITAOF`, how far others have come: there are neither replicas, nor a backlog with
/// which one could come back to where it was, nor an append-only file of which the server counts how far it is written.
pub fn nobody_counts(ctx: Ctx<'_>) -> bool {
    within_a_second(&shell().nobody_counts, clock::lately(), || {
        subscriptions::to_settings(ctx);
        let is_none = |section: &CStr, field: &CStr| {
            let number = ctx.server_info(section, field);
            number.is_some_and(|number| number == "0")
        };
        is_none(c"replication", c"connected_slaves")
            && is_none(c"replication", c"repl_backlog_active")
            && (!shell().server.get().counts_aof || is_none(c"persistence", c"aof_enabled"))
    })
}

/// A replica has come or gone, a file is being written, maybe for one, or is to be, or a setting is another: what was found
/// out is to be looked at anew. The server itself refuses writes from then on, or no longer.
pub fn count_again() {
    shell().nobody_counts.set(None);
    shell().enough_replicas.set(None);
}
