//! The server's event loop, which is listened to only while somebody needs that. A module has one callback for each of the
//! server's events, so there is one for all that is done in a turn.

use crate::shell::bridge::{acks, io_threads};
use crate::shell::guard::guard;
use crate::shell::state::shell;
use crate::shell::sys::raw::{self, Ctx};
use redis_module::raw as c;
use std::ffi::c_void;

/// From now on each turn is heard of.
pub fn listen(ctx: Ctx<'_>) {
    if !shell().hears_event_loop.replace(true) {
        ctx.listen((c::REDISMODULE_EVENT_EVENTLOOP, Some(on_event_loop)));
    }
}

/// Listens no longer, if nobody needs it. Not within the event itself: the server goes on with what it keeps of its listener.
pub fn end_if_idle(ctx: Ctx<'_>) {
    if shell().hears_event_loop.get() && !acks::is_counting() && !io_threads::is_any_deferred() {
        shell().hears_event_loop.set(false);
        ctx.listen((c::REDISMODULE_EVENT_EVENTLOOP, None));
    }
}

unsafe extern "C" fn on_event_loop(
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
        io_threads::before_sleep(ctx);
        if acks::is_counting() {
            raw::on_our_own(|| acks::before_sleep(ctx));
        }
    });
}
