//! The module's one callback for the server's event loop, subscribed only while needed.

use crate::engine::Event;
use crate::shell::bridge::acks;
use crate::shell::bridge::tell::handle;
use crate::shell::guard::guard;
use crate::shell::server::io_threads;
use crate::shell::sys::raw::{self, Ctx};
use redis_module::raw as c;
use std::ffi::c_void;

pub unsafe extern "C" fn on_event_loop(
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
        for client in io_threads::before_sleep(ctx) {
            handle(ctx, Event::Ended { client });
        }
        if acks::is_counting() {
            raw::in_own_execution_unit(|| acks::before_sleep(ctx));
        }
    });
}
