//! What was deferred, when its time has come: pushes, a flush, waits and leases whose time is over, handovers, removals.

use crate::engine::Event;
use crate::shell::bridge::dispatch::{self, KeyScope};
use crate::shell::bridge::{acks, event_loop, slices, slots};
use crate::shell::delivery::{blocked, push};
use crate::shell::guard::guard;
use crate::shell::persistence::aof;
use crate::shell::server::{epochs, replicas};
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
    dispatch::catch_up(ctx, KeyScope::All);
    slots::look(ctx);
    acks::look_at_replicas(ctx);
    acks::count_due(ctx);
    acks::end_if_idle();
    event_loop::end_if_idle(ctx);
    dispatch::handle(ctx, Event::Tick);
    blocked::give_back();
    aof::replicate_if_due(ctx);
    replicas::replicate_to_newcomer(ctx);
    epochs::replicate_epoch_again(ctx);
    slices::go_on(ctx);
    push::send_waiting(ctx);
    push::close_again(ctx);
}
