//! What the server calls for its events, for a timer and after a command: here once, and from here as safe functions. What it
//! calls for a command, a key or a file stands where that is registered.

use crate::shell::guard::guard;
use crate::shell::state::callbacks;
use crate::shell::sys::raw::{self, Ctx, Job, ServerEvent, Timer};
use redis_module::raw as c;
use std::ffi::c_void;
use std::mem;

/// Subscribes to a server event.
pub fn listen(ctx: Ctx<'_>, event: u64) {
    ctx.listen(event, Some(on_event));
}

unsafe extern "C" fn on_event(
    ctx: *mut c::RedisModuleCtx,
    event: c::RedisModuleEvent,
    subevent: u64,
    data: *mut c_void,
) {
    guard((), || {
        // SAFETY: the server's arguments, for the length of this call.
        let ctx = unsafe { Ctx::new(&ctx) };
        // SAFETY: the same.
        let event = unsafe { ServerEvent::new(event.id, subevent, &data) };
        (callbacks().on_event)(ctx, event);
    });
}

/// Does this in an execution unit of its own, right after the current command, before its client's next one; outside of a
/// command, right after the current event. False if the server has no such callback, or refuses it now.
pub fn call_after_command(job: Job) -> bool {
    raw::call_after_command(run, job as *mut c_void)
}

/// See [`Timer::arm`].
pub fn call_in_ms(delay_ms: u64, job: Job) -> Option<Timer> {
    Timer::arm(delay_ms, run, job as *mut c_void)
}

unsafe extern "C" fn run(ctx: *mut c::RedisModuleCtx, job: *mut c_void) {
    guard((), || {
        // SAFETY: the two functions above pass nothing else.
        let job = unsafe { mem::transmute::<*mut c_void, Job>(job) };
        // SAFETY: the server's argument, for the length of this call.
        let ctx = unsafe { Ctx::new(&ctx) };
        raw::in_own_execution_unit(|| job(ctx));
    });
}
