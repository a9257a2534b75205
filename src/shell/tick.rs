//! Runs deferred work: pushes, a flush, timeouts and expired leases, grants to waiters, removals.

use crate::engine::Event;
use crate::shell::bridge::recheck::{self, KeyScope};
use crate::shell::bridge::{acks, role, slices, slots, tell};
use crate::shell::delivery::{blocked, presence, push};
use crate::shell::persistence::aof;
use crate::shell::server::{epochs, io_threads, replicas, subscriptions};
use crate::shell::state::shell;
use crate::shell::sys::raw::Ctx;
use crate::shell::timer;

/// The timer has fired.
pub fn tick(ctx: Ctx<'_>) {
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
