//! Timers and one-shot callbacks.

use crate::shell::sys::raw::calls::{api, have};
use crate::shell::sys::raw::context::{Callback, detached};
use redis_module::raw;
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::null_mut;

/// An armed timer.
#[derive(Clone, Copy)]
pub struct Timer(raw::RedisModuleTimerID);

impl Timer {
    /// Calls `call` after `delay_ms`, not before the current command or event is over. Never in the middle of a script,
    /// unlike the server's one-shot callbacks.
    pub fn arm(delay_ms: u64, call: Callback, data: *mut c_void) -> Option<Timer> {
        let ctx = detached()?.as_ptr();
        // SAFETY: the table, the context; the server only passes the data on.
        let timer = unsafe {
            api!(RedisModule_CreateTimer(
                ctx,
                delay_ms as i64,
                Some(call),
                data
            ))
        };
        Some(Timer(timer))
    }

    /// Stops a timer that has not fired.
    pub fn stop(self) {
        if let Some(ctx) = detached() {
            // SAFETY: the table, the context. Of a timer that is not there the server says so.
            unsafe { api!(RedisModule_StopTimer(ctx.as_ptr(), self.0, null_mut())) };
        }
    }
}

/// Calls `call` right after the current command, before its client's next one; outside of a command, right after the
/// current event. False if the server has no such callback, or refuses it now.
pub fn call_after_command(call: Callback, data: *mut c_void) -> bool {
    let Some(ctx) = detached().filter(|_| have!(RedisModule_AddPostNotificationJob)) else {
        return false;
    };
    // SAFETY: the table, the context; the server only passes the data on.
    let done = unsafe {
        api!(RedisModule_AddPostNotificationJob(
            ctx.as_ptr(),
            Some(call),
            data,
            None
        ))
    };
    done == raw::REDISMODULE_OK as i32
}

thread_local! {
    /// The event loop was woken and has not run since.
    static WAKING: Cell<bool> = const { Cell::new(false) };
}

/// Makes the server's event loop run once more before it sleeps, so that it sees a timer armed after it computed its sleep
/// time (Redis 7.0 does that before its before-sleep work).
pub fn wake_loop() {
    unsafe extern "C" fn woken(_data: *mut c_void) {
        WAKING.set(false);
    }
    if !WAKING.replace(true) {
        // SAFETY: the table; the callback takes no data.
        unsafe { api!(RedisModule_EventLoopAddOneShot(Some(woken), null_mut())) };
    }
}
