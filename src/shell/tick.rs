//! What was deferred, when its time has come: pushes, a flush, waits and leases whose time is over, handovers, removals.

use crate::engine::Event;
use crate::shell::bridge::recheck::{self, KeyScope};
use crate::shell::bridge::{acks, slices, slots, tell};
use crate::shell::delivery::{blocked, push};
use crate::shell::guard::guard;
use crate::shell::persistence::aof;
use crate::shell::server::{epochs, io_threads, replicas, subscriptions};
use crate::shell::state::shell;
use crate::shell::sys::raw::{self, Ctx};
use crate::shell::timer;
use redis_module::raw as c;
use std::ffi::c_void;

/// What the timer calls.
pub unsafe extern "C" fn tick(ctx: *mut c::RedisModuleCtx, _data: *mut c_void) {
    guard((), || {
        // SAFETY: the server's argument, for the length of this call.
        let ctx = unsafe { Ctx::new(&ctx) };
        raw::on_our_own(|| go_off(ctx));
    });
}

fn go_off(ctx: Ctx<'_>) {
    timer::gone_off();
    shell().is_behind.set(false);
    shell().has_started.set(true);
    recheck::catch_up(ctx, KeyScope::All);
    slots::look(ctx);
    acks::look_at_replicas(ctx);
    acks::count_due(ctx);
    acks::end_if_idle();
    if !acks::is_counting() && !io_threads::is_any_deferred() {
        subscriptions::no_more_to_event_loop(ctx);
    }
    tell::handle(ctx, Event::Tick);
    blocked::give_back();
    aof::replicate_if_due(ctx);
    replicas::replicate_to_newcomer(ctx);
    epochs::replicate_epoch_again(ctx);
    slices::go_on(ctx);
    push::send_waiting(ctx);
    push::close_again(ctx);
}
