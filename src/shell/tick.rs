//! Runs deferred work: pushes, a flush, timeouts and expired leases, grants to waiters, removals.

use crate::engine::Event;
use crate::shell::bridge::recheck::{self, KeyScope};
use crate::shell::bridge::{acks, role, slices, slots, tell};
use crate::shell::delivery::{blocked, presence, push};
use crate::shell::guard::guard;
use crate::shell::persistence::aof;
use crate::shell::server::{epochs, io_threads, replicas, subscriptions};
use crate::shell::state::shell;
use crate::shell::sys::raw::{self, Ctx};
use crate::shell::timer;
use redis_module::raw as c;
use std::ffi::c_void;

/// The timer's callback.
pub unsafe extern "C" fn tick(ctx: *mut c::RedisModuleCtx, _data: *mut c_void) {
    guard((), || {
        // SAFETY: the server's argument, for the length of this call.
        let ctx = unsafe { Ctx::new(&ctx) };
        raw::in_own_execution_unit(|| go_off(ctx));
    });
}

fn go_off(ctx: Ctx<'_>) {
    timer::gone_off();
    presence::turn_ended();
    shell().is_behind.set(false);
    shell().has_started.set(true);
    recheck::handle_deferred(ctx, KeyScope::All);
    role::check_awaited_master(ctx);
    slots::check_served(ctx);
    acks::count_replicas_if_changed(ctx);
    acks::count_due(ctx);
    acks::stop_if_idle();
    if !acks::is_counting() && !io_threads::is_any_deferred() {
        subscriptions::no_more_to_event_loop(ctx);
    }
    tell::handle(ctx, Event::Tick);
    blocked::release_handles();
    aof::replicate_if_due(ctx);
    replicas::replicate_epoch_to_new_replica(ctx);
    epochs::rebroadcast_if_due(ctx);
    slices::run(ctx);
    push::send_waiting(ctx);
    push::close_over_limit(ctx);
}
