//! What the server calls later.

use crate::shell::sys::raw::known::detached;
use crate::shell::sys::raw::{Callback, api, have};
use redis_module::raw;
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

/// Has this called as soon as the current command is over, before the next one of its connection, where the server offers that.
pub fn call_after_command(call: Callback) {
    let Some(ctx) = detached() else { return };
    if have!(RedisModule_AddPostNotificationJob) {
        // SAFETY: the table, the context; the callback takes no data.
        unsafe {
            api!(RedisModule_AddPostNotificationJob(
                ctx.as_ptr(),
                Some(call),
                null_mut(),
                None
            ));
        }
    }
}
