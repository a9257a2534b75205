//! Turns the server's other events into engine events: connections, flushes, loads, roles, slots.

use crate::engine::{ClientId, Db, Engine, Event};
use crate::shell::bridge::recheck::{self, KeyScope};
use crate::shell::bridge::tell::handle;
use crate::shell::bridge::{acks, losses, role, slices, slots};
use crate::shell::callbacks::listen;
use crate::shell::delivery::push;
use crate::shell::persistence::aof;
use crate::shell::server::{attribution, cluster, epochs, io_threads, listeners, replicas};
use crate::shell::state::shell;
use crate::shell::sys::raw::{self, Ctx, ServerEvent};
use crate::shell::timer;
use redis_module::raw as c;

/// Valkey 9's event id; Redis uses the number for another event.
const ATOMIC_SLOT_MIGRATION: u64 = 19;

/// Subscribes to the events that always matter; `server/subscriptions.rs` has the others. Once, at load.
pub fn subscribe_to_server(ctx: Ctx<'_>) {
    listen(ctx, c::REDISMODULE_EVENT_LOADING);
    listen(ctx, c::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED);
    let server = shell().server.get();
    if server.is_cluster && server.moves_slots_in_one_go {
        listen(ctx, ATOMIC_SLOT_MIGRATION);
    }
    // Redis 8.4 and later: a migration began or ended; the keys of a migrated slot are deleted.
    if server.is_cluster && server.trims_slots {
        listen(ctx, c::REDISMODULE_EVENT_CLUSTER_SLOT_MIGRATION);
        listen(ctx, c::REDISMODULE_EVENT_CLUSTER_SLOT_MIGRATION_TRIM);
    }
}

/// Whatever of the server's events the module has subscribed to.
pub fn on_event(ctx: Ctx<'_>, event: ServerEvent<'_>) {
    match event.id {
        c::REDISMODULE_EVENT_EVENTLOOP => on_event_loop(ctx, event),
        c::REDISMODULE_EVENT_CRON_LOOP => timer::arm_anew_if_late(),
        c::REDISMODULE_EVENT_CLIENT_CHANGE => on_client(ctx, event),
        c::REDISMODULE_EVENT_FLUSHDB => on_flush(ctx, event),
        c::REDISMODULE_EVENT_SWAPDB => on_swap(ctx, event),
        c::REDISMODULE_EVENT_LOADING => on_loading(ctx, event),
        c::REDISMODULE_EVENT_FORK_CHILD => aof::on_fork(ctx, event),
        c::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED => on_role(ctx, event),
        c::REDISMODULE_EVENT_REPLICA_CHANGE => replicas::on_change(event),
        c::REDISMODULE_EVENT_MODULE_CHANGE => listeners::on_module(event),
        // `appendonly` may be on now, although the file begins later.
        c::REDISMODULE_EVENT_CONFIG => replicas::invalidate(),
        ATOMIC_SLOT_MIGRATION if shell().server.get().moves_slots_in_one_go => {
            cluster::migrations_changed();
        }
        c::REDISMODULE_EVENT_CLUSTER_SLOT_MIGRATION => on_migration(event),
        c::REDISMODULE_EVENT_CLUSTER_SLOT_MIGRATION_TRIM => slots::trimmed(&event.slot_ranges()),
        _ => {}
    }
}

fn on_event_loop(ctx: Ctx<'_>, event: ServerEvent<'_>) {
    if event.subevent != c::REDISMODULE_SUBEVENT_EVENTLOOP_BEFORE_SLEEP {
        return;
    }
    for client in io_threads::before_sleep(ctx) {
        handle(ctx, Event::Ended { client });
    }
    if acks::is_counting() {
        raw::in_own_execution_unit(|| acks::before_sleep(ctx));
    }
}

fn on_client(ctx: Ctx<'_>, event: ServerEvent<'_>) {
    if event.subevent != c::REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED {
        return;
    }
    let Some(client) = event.client().map(ClientId) else {
        return;
    };
    if shell().engine.with(|engine| engine.knows_client(client)) {
        io_threads::forget(client);
        // The client may have overwritten its own lock, and then no longer holds that key.
        recheck::handle_deferred(ctx, KeyScope::of_command(ctx, &[]));
        losses::note_origin(ctx, client);
        slices::end_client(ctx, client);
    }
}

fn on_flush(ctx: Ctx<'_>, event: ServerEvent<'_>) {
    let Some(number) = event.flushed_db() else {
        return;
    };
    if event.subevent == c::REDISMODULE_SUBEVENT_FLUSHDB_START {
        recheck::load_begins_at_last(ctx);
        // Keys can still be looked up. (In a cluster the deferred keys come from this same command, so they are in its
        // slot.) Of two flushes in one transaction, the first is handled first.
        recheck::handle_deferred(ctx, KeyScope::All);
        return io_threads::flush_begins();
    }
    io_threads::flush_ends();
    let shell = shell();
    let db = u32::try_from(number).ok().map(Db);
    recheck::databases_flushed(db);
    if shell.engine.with(|engine| engine.is_idle()) {
        return;
    }
    let by = attribution::cause(ctx);
    // While loading, the flush applies to what was loaded before it.
    if shell.is_loading() {
        return handle(ctx, Event::Flushed { db, by });
    }
    // The flush may begin a load, which replaces it.
    shell.flush.set(Some((db, by)));
    push::expect_late_flush_reply();
    recheck::handle_deferred_soon();
}

fn on_swap(ctx: Ctx<'_>, event: ServerEvent<'_>) {
    let Some(dbs) = event.swapped_dbs() else {
        return;
    };
    let [one, other] = dbs.map(|number| Db(number as u32));
    recheck::databases_swapped(one, other);
    handle(ctx, Event::Swapped { one, other });
    slices::recheck_after_swap(ctx);
    if shell().engine.with(Engine::is_flushing) {
        timer::wake_in_ms(0);
    }
}

fn on_migration(event: ServerEvent<'_>) {
    // The server raises this one in a forked child.
    if event.subevent == c::REDISMODULE_SUBEVENT_CLUSTER_SLOT_MIGRATION_MIGRATE_MODULE_PROPAGATE {
        return;
    }
    cluster::slot_config_changes();
    cluster::slots_gained();
    let coming = match event.subevent {
        c::REDISMODULE_SUBEVENT_CLUSTER_SLOT_MIGRATION_IMPORT_STARTED => event.slot_ranges(),
        c::REDISMODULE_SUBEVENT_CLUSTER_SLOT_MIGRATION_IMPORT_COMPLETED
        | c::REDISMODULE_SUBEVENT_CLUSTER_SLOT_MIGRATION_IMPORT_FAILED => Vec::new(),
        _ => return,
    };
    shell().slots.with_mut(|slots| slots.set_importing(coming));
}

fn on_loading(ctx: Ctx<'_>, event: ServerEvent<'_>) {
    let shell = shell();
    let ended = matches!(
        event.subevent,
        c::REDISMODULE_SUBEVENT_LOADING_ENDED | c::REDISMODULE_SUBEVENT_LOADING_FAILED
    );
    let is_emptied = shell.flush.take().is_some();
    cluster::migrations_changed();
    if ended {
        if shell.load_is_to_begin.get() {
            if event.subevent == c::REDISMODULE_SUBEVENT_LOADING_FAILED {
                shell.load_is_to_begin.set(false);
                return;
            }
            recheck::load_begins_at_last(ctx);
        }
        recheck::load_ended(ctx);
        handle(ctx, Event::LoadEnded);
        epochs::begin_epoch();
        begin_quarantine(ctx);
        // A replica's keys are its master's matter. Redis 7.0 cannot look without deleting those past their time to live until it has
        // been given its master.
        if !shell.is_replica() {
            recheck::recheck_all(ctx, &shell.engine.with(Engine::keys_of_the_living));
        }
        slots::refresh_all_ttls(ctx);
        timer::wake_in_ms(0);
    } else {
        shell.load_is_to_begin.set(true);
        if is_emptied || event.subevent != c::REDISMODULE_SUBEVENT_LOADING_REPL_START {
            recheck::load_begins_at_last(ctx);
        }
    }
}

fn on_role(ctx: Ctx<'_>, event: ServerEvent<'_>) {
    replicas::invalidate();
    if event.subevent == c::REDISMODULE_EVENT_REPLROLECHANGED_NOW_REPLICA {
        slots::forget_served();
        let redirect = shell().server.get().is_cluster;
        let doubtful = slots::keys_maybe_lost();
        handle(ctx, Event::Demoted { redirect });
        recheck::recheck_gone(ctx, &doubtful);
    } else {
        role::promoted(ctx);
    }
    timer::wake_in_ms(0);
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
