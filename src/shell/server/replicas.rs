//! The server's replicas: how many there are, and how far they and the append-only file have acknowledged.

use crate::engine::{Engine, Moment};
use crate::shell::server::subscriptions;
use crate::shell::state::shell;
use crate::shell::sys::clock;
use crate::shell::sys::raw::{self, Ctx, ServerEvent, Target};
use crate::shell::timer;
use redis_module::raw as c;
use std::cell::Cell;
use std::ffi::CStr;

/// The server counts its good replicas once a second, so cache for that long.
const FRESH_MS: u64 = 1000;

/// One more or one less, or one that is ready.
pub fn on_change(event: ServerEvent<'_>) {
    invalidate();
    shell().replicas_changed.set(true);
    if matter() {
        // The server counts this replica only after its event.
        timer::wake_in_ms(0);
    }
    if event.subevent == c::REDISMODULE_SUBEVENT_REPLICA_CHANGE_ONLINE {
        // It may not know the token epoch: an RDB file without holds does not contain it.
        shell().has_new_replica.set(true);
        shell()
            .engine
            .with_mut(|engine| engine.invalidate_epoch_sync());
        // Not here: the server is still in the handshake with it.
        timer::wake_in_ms(0);
    }
}

/// Whether grants are pending, or a request waits whose turn comes by the number of replicas.
pub fn matter() -> bool {
    shell().counts_acks.get() || shell().engine.with(Engine::is_awaited)
}

/// Replicates the token epoch if a replica connected that may not know it.
pub fn replicate_epoch_to_new_replica(ctx: Ctx<'_>) {
    let shell = shell();
    // A replica passes on what its master replicates.
    if !shell.has_new_replica.get() || shell.is_replica() {
        return;
    }
    if raw::must_not_write() {
        return timer::wake_in_ms(timer::RETRY_MS);
    }
    shell.has_new_replica.set(false);
    let token = shell.engine.with_mut(|engine| engine.pending_epoch());
    if let Some(token) = token {
        ctx.replicate_token(Target::All, token);
    }
}

/// The replication offset, as replicas acknowledge it.
pub fn offset(ctx: Ctx<'_>) -> Option<u64> {
    let offset = ctx.server_info(c"replication", c"master_repl_offset")?;
    offset.parse().ok()
}

/// Returns the cached value, or evaluates `look` if that is older than a second.
fn cached_for_a_second(
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

/// Whether the server has the good replicas that it requires for writes (`min-replicas-to-write`).
#[inline]
pub fn has_enough(ctx: Ctx<'_>) -> bool {
    shell().requires_no_replicas.get() || has_required(ctx)
}

#[cold]
fn has_required(ctx: Ctx<'_>) -> bool {
    let shell = shell();
    cached_for_a_second(&shell.enough_replicas, clock::now(), || {
        subscriptions::to_settings(ctx);
        let number = |text: String| text.parse::<u64>().ok();
        // INFO has the field only if the server requires replicas: until a setting changes.
        let good = ctx.server_info(c"replication", c"min_slaves_good_slaves");
        shell.requires_no_replicas.set(good.is_none());
        good.and_then(number).is_none_or(|good| {
            let wanted = ctx.server_setting("min-replicas-to-write");
            wanted.and_then(number).is_none_or(|wanted| good >= wanted)
        })
    })
}

/// Whether `WAIT` and `WAITAOF` have nothing to wait for: no replicas, no backlog that one could resume from, and no
/// append-only file whose written offset the server tracks.
pub fn no_offset_waiters(ctx: Ctx<'_>) -> bool {
    let is_aof_counted = || shell().server.get().counts_aof;
    let look = || {
        subscriptions::to_settings(ctx);
        !has_replicas(ctx) && (!is_aof_counted() || is_none(ctx, c"persistence", c"aof_enabled"))
    };
    nobody_reads(ctx) || cached_for_a_second(&shell().no_offset_waiters, clock::coarse_now(), look)
}

/// Whether nobody reads what is replicated, so that it need not be: no replica, no backlog that one could resume from, and no
/// append-only file. A node of a cluster may move slots word by word. O(1).
///
/// What begins to read begins with a fork, and all of it is told after that: see [`invalidate`]. So a server that has no readers has
/// none until then.
#[inline]
pub fn nobody_reads(ctx: Ctx<'_>) -> bool {
    shell().nobody_reads.get() || look_for_readers(ctx)
}

#[cold]
fn look_for_readers(ctx: Ctx<'_>) -> bool {
    let shell = shell();
    if shell.server.get().is_cluster {
        return false;
    }
    let nobody_reads = cached_for_a_second(&shell.no_readers, clock::coarse_now(), || {
        subscriptions::to_server_events(ctx);
        subscriptions::to_settings(ctx);
        !has_replicas(ctx) && is_none(ctx, c"persistence", c"aof_enabled")
    });
    shell.nobody_reads.set(nobody_reads);
    nobody_reads
}

/// Or had one that could resume from the backlog.
fn has_replicas(ctx: Ctx<'_>) -> bool {
    let fields = [c"connected_slaves", c"repl_backlog_active"];
    !fields
        .iter()
        .all(|field| is_none(ctx, c"replication", field))
}

fn is_none(ctx: Ctx<'_>, section: &CStr, field: &CStr) -> bool {
    ctx.server_info(section, field)
        .is_some_and(|number| number == "0")
}

/// Drops the cached values: a replica connected or disconnected, a file is being written or about to be, or a setting
/// changed. From then on the server itself refuses or accepts writes accordingly.
pub fn invalidate() {
    shell().no_offset_waiters.set(None);
    shell().no_readers.set(None);
    shell().nobody_reads.set(false);
    shell().enough_replicas.set(None);
    shell().requires_no_replicas.set(false);
}
