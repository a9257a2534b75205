//! The server's event loop, which is listened to only while somebody needs that: one callback for all that is done in a turn.

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
            raw::on_our_own(|| acks::before_sleep(ctx));
        }
    });
}
