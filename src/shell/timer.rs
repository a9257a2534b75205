//! The one timer, and what is called as soon as the current command is over.
//!
//! The server's timers go by the wall clock: one that is set back makes them late by so much. The server's cron goes by a clock that
//! never goes back, so with each of its rounds (`hz` in a second) a timer that should have gone off is armed anew.

use crate::engine::Moment;
use crate::shell::guard::guard;
use crate::shell::state::shell;
use crate::shell::sys::clock;
use crate::shell::sys::raw::{Callback, Listener, Timer, call_after_command, detached, wake_loop};
use redis_module::raw as c;
use std::ffi::c_void;

/// How soon to try again while the server must not write.
pub const RETRY_MS: u64 = 20;

/// See [`wake_at`].
pub fn wake_in_ms(delay_ms: u64) {
    let now = clock::now();
    wake_at(now, now.after_ms(delay_ms));
}

/// Has the tick called at this moment, and not before the current command or event is over.
pub fn wake_at(now: Moment, at: Moment) {
    let shell = shell();
    let former = shell.timer.get();
    if former.is_some_and(|(_, armed)| armed <= at) {
        return;
    }
    if let Some((timer, _)) = former {
        timer.stop();
    }
    // Not a moment too early: a tick before the deadline would find nothing to do.
    arm(at.us_since(now).div_ceil(1000), at);
    if !shell.hears_of_cron.get() {
        hear_of_cron();
    }
}

fn arm(delay_ms: u64, at: Moment) {
    let shell = shell();
    let timer = Timer::arm(delay_ms, shell.callbacks.tick);
    shell.timer.set(timer.map(|timer| (timer, at)));
}

#[cold]
fn hear_of_cron() {
    const CRON: Listener = (c::REDISMODULE_EVENT_CRON_LOOP, Some(on_cron));
    if let Some(ctx) = detached() {
        shell().hears_of_cron.set(true);
        ctx.listen(CRON);
    }
}

unsafe extern "C" fn on_cron(
    _ctx: *mut c::RedisModuleCtx,
    _event: c::RedisModuleEvent,
    _subevent: u64,
    _data: *mut c_void,
) {
    guard((), arm_anew_if_late);
}

/// Nothing is done here: the tick comes as soon as the cron is over.
fn arm_anew_if_late() {
    /// Until then it may just be about to go off.
    const LATE_MS: u64 = 5;
    let armed = shell().timer.get();
    if let Some((timer, at)) = armed
        && at.after_ms(LATE_MS) < clock::lately()
    {
        timer.stop();
        arm(0, at);
    }
}

/// The timer has gone off.
pub fn gone_off() {
    shell().timer.set(None);
}

/// Has this called as soon as the current command is over, before the next one of its connection; where the server does not
/// offer that, the tick comes a little later.
pub fn call_soon(call: Callback) {
    call_after_command(call);
    wake_in_ms(0);
}

/// Has the tick called as soon as the current command or event is over, and before the server sleeps.
pub fn wake_promptly() {
    wake_in_ms(0);
    wake_loop();
}
