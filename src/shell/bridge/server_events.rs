//! Turns the server's other events into engine events: connections, flushes, loads, roles, slots.

use crate::engine::{ClientId, Db, Engine, Event};
use crate::shell::bridge::recheck::{self, KeyScope};
use crate::shell::bridge::tell::handle;
use crate::shell::bridge::{losses, role, slices, slots};
use crate::shell::delivery::push;
use crate::shell::guard::guard;
use crate::shell::server::{attribution, cluster, epochs, io_threads, listeners, replicas};
use crate::shell::state::shell;
use crate::shell::sys::raw::{self, Ctx, Listener};
use crate::shell::timer;
use redis_module::raw as c;
use std::ffi::c_void;

/// Events that always matter.
const ALWAYS: [Listener; 2] = [
    (c::REDISMODULE_EVENT_LOADING, Some(on_loading)),
    (c::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED, Some(on_role)),
];
/// Valkey 9's event id; Redis uses the number for another event.
const ATOMIC_SLOT_MIGRATION: u64 = 19;

/// Events of Redis 8.4 and later for atomic slot migration: a migration began or ended; the keys of a migrated slot are
/// deleted.
const OF_SLOTS: [Listener; 2] = [
    (
        c::REDISMODULE_EVENT_CLUSTER_SLOT_MIGRATION,
        Some(on_migration),
    ),
    (
        c::REDISMODULE_EVENT_CLUSTER_SLOT_MIGRATION_TRIM,
        Some(on_trim),
    ),
];

/// Events that matter only once the engine knows a connection, a key or a token; see `server/subscriptions.rs`.
pub const LATER: [Listener; 5] = [
    (c::REDISMODULE_EVENT_CLIENT_CHANGE, Some(on_client)),
    (c::REDISMODULE_EVENT_FLUSHDB, Some(on_flush)),
    (c::REDISMODULE_EVENT_SWAPDB, Some(on_swap)),
    (
        c::REDISMODULE_EVENT_REPLICA_CHANGE,
        Some(replicas::on_change),
    ),
    (
        c::REDISMODULE_EVENT_MODULE_CHANGE,
        Some(listeners::on_module),
    ),
];

/// Subscribes to [`ALWAYS`]. Once, at load.
pub fn subscribe_to_server(ctx: Ctx<'_>) {
    ALWAYS.iter().for_each(|one| ctx.listen(*one));
    let server = shell().server.get();
    if server.is_cluster && server.moves_slots_in_one_go {
        ctx.listen((ATOMIC_SLOT_MIGRATION, Some(on_moving)));
    }
    if server.is_cluster && server.trims_slots {
        OF_SLOTS.iter().for_each(|one| ctx.listen(*one));
    }
}

unsafe extern "C" fn on_client(
    ctx: *mut c::RedisModuleCtx,
    _event: c::RedisModuleEvent,
    subevent: u64,
    data: *mut c_void,
) {
    if subevent != c::REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED {
        return;
    }
    guard((), || {
        // SAFETY: the server's arguments, for the length of this call; this event comes with this
        // structure.
        let (ctx, info) = unsafe { raw::event::<c::RedisModuleClientInfo>(&ctx, data) };
        let Some(client) = info.map(|info| ClientId(info.id)) else {
            return;
        };
        if shell().engine.with(|engine| engine.knows_client(client)) {
            io_threads::forget(client);
            // The client may have overwritten its own lock, and then no longer holds that key.
            recheck::handle_deferred(ctx, KeyScope::of_command(ctx, &[]));
            losses::note_origin(ctx, client);
            slices::end_client(ctx, client);
        }
    });
}

unsafe extern "C" fn on_flush(
    ctx: *mut c::RedisModuleCtx,
    _event: c::RedisModuleEvent,
    subevent: u64,
    data: *mut c_void,
) {
    guard((), || {
        // SAFETY: as in `on_client`.
        let (ctx, flush) = unsafe { raw::event::<c::RedisModuleFlushInfo>(&ctx, data) };
        let Some(flush) = flush else { return };
        if subevent == c::REDISMODULE_SUBEVENT_FLUSHDB_START {
            // Keys can still be looked up. (In a cluster the deferred keys come from this same command, so they are in its
            // slot.) Of two flushes in one transaction, the first is handled first.
            recheck::handle_deferred(ctx, KeyScope::All);
            return io_threads::flush_begins();
        }
        io_threads::flush_ends();
        let shell = shell();
        let db = u32::try_from(flush.dbnum).ok().map(Db);
        recheck::databases_flushed(db);
        if shell.engine.with(|engine| engine.is_idle()) {
            return;
        }
        let by = attribution::cause_by_any_client(ctx);
        // While loading, the flush applies to what was loaded before it.
        if shell.is_loading() {
            return handle(ctx, Event::Flushed { db, by });
        }
        // The flush may begin a load, which replaces it.
        shell.flush.set(Some((db, by)));
        push::expect_late_flush_reply();
        recheck::handle_deferred_soon();
    });
}

unsafe extern "C" fn on_swap(
    ctx: *mut c::RedisModuleCtx,
    _event: c::RedisModuleEvent,
    _subevent: u64,
    data: *mut c_void,
) {
    guard((), || {
        // SAFETY: as in `on_client`.
        let (ctx, swap) = unsafe { raw::event::<c::RedisModuleSwapDbInfo>(&ctx, data) };
        let Some(swap) = swap else { return };
        let (one, other) = (Db(swap.dbnum_first as u32), Db(swap.dbnum_second as u32));
        recheck::databases_swapped(one, other);
        handle(ctx, Event::Swapped { one, other });
        slices::recheck_after_swap(ctx);
        if shell().engine.with(Engine::is_flushing) {
            timer::wake_in_ms(0);
        }
    });
}

unsafe extern "C" fn on_moving(
    _ctx: *mut c::RedisModuleCtx,
    _event: c::RedisModuleEvent,
    _subevent: u64,
    _data: *mut c_void,
) {
    guard((), cluster::migrations_changed);
}

unsafe extern "C" fn on_migration(
    ctx: *mut c::RedisModuleCtx,
    _event: c::RedisModuleEvent,
    subevent: u64,
    data: *mut c_void,
) {
    // The server raises this one in a forked child.
    if subevent == c::REDISMODULE_SUBEVENT_CLUSTER_SLOT_MIGRATION_MIGRATE_MODULE_PROPAGATE {
        return;
    }
    guard((), || {
        cluster::slot_config_changes();
        cluster::slots_gained();
        // SAFETY: as in `on_client`.
        let (_, info) = unsafe { raw::event::<c::RedisModuleClusterSlotMigrationInfo>(&ctx, data) };
        let coming = match subevent {
            // SAFETY: the server's ranges, for the length of this call.
            c::REDISMODULE_SUBEVENT_CLUSTER_SLOT_MIGRATION_IMPORT_STARTED => unsafe {
                info.map_or_else(Vec::new, |info| raw::slot_ranges(info.slots))
            },
            c::REDISMODULE_SUBEVENT_CLUSTER_SLOT_MIGRATION_IMPORT_COMPLETED
            | c::REDISMODULE_SUBEVENT_CLUSTER_SLOT_MIGRATION_IMPORT_FAILED => Vec::new(),
            _ => return,
        };
        shell().slots.with_mut(|slots| slots.set_importing(coming));
    });
}

unsafe extern "C" fn on_trim(
    _ctx: *mut c::RedisModuleCtx,
    _event: c::RedisModuleEvent,
    _subevent: u64,
    _data: *mut c_void,
) {
    guard((), slots::trimmed);
}

unsafe extern "C" fn on_loading(
    ctx: *mut c::RedisModuleCtx,
    _event: c::RedisModuleEvent,
    subevent: u64,
    _data: *mut c_void,
) {
    guard((), || {
        let shell = shell();
        let ended = matches!(
            subevent,
            c::REDISMODULE_SUBEVENT_LOADING_ENDED | c::REDISMODULE_SUBEVENT_LOADING_FAILED
        );
        // SAFETY: the server's argument, for the length of this call.
        let ctx = unsafe { Ctx::new(&ctx) };
        shell.flush.set(None);
        cluster::migrations_changed();
        if ended {
            recheck::load_ended(ctx);
            handle(ctx, Event::LoadEnded);
            epochs::begin_epoch();
            begin_quarantine(ctx);
            recheck::recheck_all(ctx, &shell.engine.with(Engine::keys_of_the_living));
            slots::refresh_all_ttls(ctx);
            timer::wake_in_ms(0);
        } else {
            shell.has_refused_records.set(false);
            handle(ctx, Event::LoadBegins);
        }
    });
}

unsafe extern "C" fn on_role(
    ctx: *mut c::RedisModuleCtx,
    _event: c::RedisModuleEvent,
    subevent: u64,
    _data: *mut c_void,
) {
    guard((), || {
        // SAFETY: the server's argument, for the length of this call.
        let ctx = unsafe { Ctx::new(&ctx) };
        replicas::invalidate();
        if subevent == c::REDISMODULE_EVENT_REPLROLECHANGED_NOW_REPLICA {
            slots::forget_served();
            let redirect = shell().server.get().is_cluster;
            let doubtful = slots::keys_maybe_lost();
            handle(ctx, Event::Demoted { redirect });
            recheck::recheck_all(ctx, &doubtful);
        } else {
            role::promoted(ctx);
        }
        timer::wake_in_ms(0);
    });
}

/// Suspends grants for the time of `tether.quarantine`: when the module is loaded, and again when the server has then
/// loaded its files. Not on a replica, hence not at promotion.
pub fn begin_quarantine(ctx: Ctx<'_>) {
    let shell = shell();
    let ms = shell.settings.get().quarantine_ms.into();
    if ms > 0 && !shell.is_replica() && !shell.has_started.get() {
        handle(ctx, Event::Quarantine { ms });
    }
}
