//! What the server calls later.

use crate::shell::sys::raw::calls::{api, have};
use crate::shell::sys::raw::context::{Callback, detached};
use redis_module::raw;
use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::null_mut;

/// A timer that is armed.
#[derive(Clone, Copy)]
pub struct Timer(raw::RedisModuleTimerID);

impl Timer {
    /// Has this called after so many milliseconds, not before the current command or event is over. Never in the middle of a
    /// script, unlike the server's one-shot callbacks.
    pub fn arm(delay_ms: u64, call: Callback) -> Option<Timer> {
        let ctx = detached()?.as_ptr();
        // SAFETY: the table, the context; the callback takes no data.
        let timer = unsafe {
            api!(RedisModule_CreateTimer(
                ctx,
                delay_ms as i64,
                Some(call),
                null_mut()
            ))
        };
        Some(Timer(timer))
    }

    /// Only of one that has not gone off.
    pub fn stop(self) {
        if let Some(ctx) = detached() {
            // SAFETY: the table, the context. Of a timer that is not there the server says so.
            unsafe { api!(RedisModule_StopTimer(ctx.as_ptr(), self.0, null_mut())) };
        }
    }
}

/// Has this called as soon as the current command is over, before the next one of its connection; or where none is executed, as
/// soon as the current event is. False where the server does not offer that, or not now.
pub fn call_after_command(call: Callback) -> bool {
    let Some(ctx) = detached().filter(|_| have!(RedisModule_AddPostNotificationJob)) else {
        return false;
    };
    // SAFETY: the table, the context; the callback takes no data.
    let done = unsafe {
        api!(RedisModule_AddPostNotificationJob(
            ctx.as_ptr(),
            Some(call),
            null_mut(),
            None
        ))
    };
    done == raw::REDISMODULE_OK as i32
}

thread_local! {
    /// The server's loop is woken and has not gone round since.
    static WAKING: Cell<bool> = const { Cell::new(false) };
}

/// Has the server's event loop go round once more before it sleeps, so that a timer is looked at that was armed after the server had
/// reckoned for how long to sleep (Redis 7.0 does that before it does what it has to do before each sleep).
pub fn wake_loop() {
    unsafe extern "C" fn woken(_data: *mut c_void) {
        WAKING.set(false);
    }
    if !WAKING.replace(true) {
        // SAFETY: the table; the callback takes no data.
        unsafe { api!(RedisModule_EventLoopAddOneShot(Some(woken), null_mut())) };
    }
}
