//! Work in slices: long work runs a piece at a time, so that it does not delay other clients.

use crate::engine::{ClientId, Engine, Event, Key};
use crate::shell::bridge::recheck::{self, KeyScope};
use crate::shell::bridge::slots;
use crate::shell::bridge::tell::handle;
use crate::shell::server::writes::{self, accepts_writes, may_write};
use crate::shell::server::{attribution, client_db, subscriptions};
use crate::shell::state::shell;
use crate::shell::sys::clock::{self, Slice};
use crate::shell::sys::raw::{Ctx, Str};
use crate::shell::timer;

/// Expired leases of keys that a command does not name, which it ends in passing.
const LEASES_PER_COMMAND: usize = 16;

/// Ends expired leases before a writing command looks up its keys: all leases of these keys, so that the command finds the
/// true state, and a few others. The rest follow in slices.
pub fn end_leases(ctx: Ctx<'_>, scope: KeyScope<'_>, names: &[Str<'_>]) {
    let is_any_over = || {
        let end = shell().engine.with(|engine| engine.first_lease_end());
        end.is_some_and(|end| end <= clock::now())
    };
    if !is_any_over() {
        return;
    }
    if matches!(scope, KeyScope::All) {
        let steps = LEASES_PER_COMMAND;
        handle(ctx, Event::Lapse { steps });
        if !is_any_over() {
            return;
        }
    }
    let db = ctx.db();
    let names = names.iter().map(|name| name.bytes());
    let keys: Vec<_> = names.map(|name| Key { db, name }).collect();
    handle(ctx, Event::LapseOf { keys: &keys });
}

/// Handles a disconnect, for one slice at most. If very many clients disconnect at once, they share the first one's slice.
pub fn end_client(ctx: Ctx<'_>, client: ClientId) {
    handle(ctx, Event::Ended { client });
    if shell().is_behind.get() {
        return;
    }
    let slice = Slice::begin();
    reap(ctx, slice);
    if !has_work() {
        return;
    }
    if !attribution::is_no_client_executing() {
        subscribe_to_overwrites(ctx);
    }
    // In a cluster the tick does it: a callback after the command may still be bound to its slot (see `KeyScope`).
    match shell().server.get().is_cluster {
        true => timer::wake_promptly(),
        false => writes::run_outside_command(ctx, |ctx| {
            client_db::with_client_db_restored(ctx, |ctx| {
                recheck::handle_deferred(ctx, KeyScope::All);
                work(ctx, Slice::begin());
            });
        }),
    }
}

/// Before orphaned temporary keys stay for a moment: a value that another client writes there meanwhile is that client's.
fn subscribe_to_overwrites(ctx: Ctx<'_>) {
    if shell().engine.with(Engine::has_temporary_keys) {
        subscriptions::to_overwrites(ctx);
    }
}

/// Whether the engine has keys to write.
fn has_work() -> bool {
    let engine = &shell().engine;
    engine.with(|engine| !engine.is_replica() && engine.has_work(clock::now()))
}

/// Does deferred work for one slice at most.
pub fn run(ctx: Ctx<'_>) {
    let slice = Slice::begin();
    reap(ctx, slice);
    recheck_stale(ctx, slice);
    // Before pushes are sent: a grant caused by a client's own flush follows the reply to that flush.
    work(ctx, slice);
}

/// Sweeps flushed keys, removes the watches and waits of disconnected clients, and tells of watches that are over, for half a
/// slice at most; schedules the rest. It writes nothing, so it may run at any time.
fn reap(ctx: Ctx<'_>, slice: Slice) {
    let has_more = |engine: &Engine| {
        engine.is_flushing()
            || engine.has_dead_waits()
            || engine.is_building_index()
            || engine.is_any_blind()
    };
    while shell().engine.with(has_more) {
        if slice.is_half_over() {
            return continue_soon();
        }
        handle(
            ctx,
            Event::Reap {
                steps: STEPS_PER_CLOCK_CHECK,
            },
        );
    }
}

/// After SWAPDB: looks up the keys that are watched or waited for. If there are very many, most of them follow in slices.
pub fn recheck_after_swap(ctx: Ctx<'_>) {
    if shell().is_loading() {
        return;
    }
    // Skipping the other keys costs no more than the swap itself.
    let at_once = shell()
        .engine
        .with(|engine| engine.limits().steps_per_event);
    if recheck_next(ctx, at_once, usize::MAX) {
        timer::wake_in_ms(0);
    }
}

/// Continues that until half of the slice is used; makes some progress in any case.
fn recheck_stale(ctx: Ctx<'_>, slice: Slice) {
    while !shell().is_loading() && recheck_next(ctx, STEPS_PER_CLOCK_CHECK, STEPS_PER_CLOCK_CHECK) {
        if slice.is_half_over() {
            return continue_soon();
        }
    }
}

/// Looks up at most `looks` keys, and skips at most `others` before each. Returns whether there may be more.
fn recheck_next(ctx: Ctx<'_>, looks: usize, others: usize) -> bool {
    let engine = &shell().engine;
    for _ in 0..looks {
        if let Some(key) = engine.with_mut(|engine| engine.next_stale_name(others)) {
            recheck::recheck_now(ctx, key.as_key());
        } else if !engine.with(Engine::has_stale_names) {
            break;
        }
    }
    engine.with(Engine::has_stale_names)
}

/// The slice is used up, with work left.
fn continue_soon() {
    shell().is_behind.set(true);
    timer::wake_in_ms(0);
}

/// The steps of one event, between two clock reads.
const STEPS_PER_CLOCK_CHECK: usize = 64;

/// Schedules what events have not, while the server refused writes.
fn schedule_next() {
    let now = clock::now();
    if let Some(at) = shell().engine.with(|engine| engine.next_work(now)) {
        timer::wake_at(now, at);
    }
}

/// Does the engine's pending writes if writing is allowed now, for one slice at most; schedules the rest.
fn work(ctx: Ctx<'_>, slice: Slice) {
    let shell = shell();
    let has_writes = !shell.is_replica() && (has_work() || shell.has_unreplicated_ttls.get());
    let is_refused = has_writes && !may_write(ctx);
    if shell.awaits_writes.replace(is_refused) && !is_refused {
        schedule_next();
    }
    if !has_writes {
        return;
    }
    if is_refused {
        subscribe_to_overwrites(ctx);
        if !accepts_writes(ctx) && !ctx.state().in_script() && !ctx.state().loading() {
            while shell
                .engine
                .with(|engine| engine.has_renewals(clock::now()))
                && !slice.is_over()
            {
                handle(
                    ctx,
                    Event::Renew {
                        steps: STEPS_PER_CLOCK_CHECK,
                    },
                );
            }
        }
        timer::wake_in_ms(timer::RETRY_MS);
        return;
    }
    if shell.has_unreplicated_ttls.take() {
        handle(ctx, Event::RenewAll);
    }
    slots::redirect_from_leaving(ctx, KeyScope::All);
    while has_work() {
        if slice.is_over() {
            subscribe_to_overwrites(ctx);
            return continue_soon();
        }
        let steps = STEPS_PER_CLOCK_CHECK;
        if !slots::redirect_late_waiters(ctx, steps) {
            handle(ctx, Event::Work { steps });
        }
    }
}
