//! The module's one timer, and callbacks right after the current command.
//!
//! The server's timers use the wall clock: setting it back delays them by as much. The server's cron uses a monotonic
//! clock, so each of its runs (`hz` per second) re-arms a timer that is late.

use crate::engine::Moment;
use crate::shell::callbacks::{call_after_command, call_in_ms, listen};
use crate::shell::state::{callbacks, shell};
use crate::shell::sys::clock;
use crate::shell::sys::raw::{Job, detached, wake_loop};
use redis_module::raw as c;

/// Retry interval while the server refuses writes.
pub const RETRY_MS: u64 = 20;

/// See [`wake_at`].
pub fn wake_in_ms(delay_ms: u64) {
    let now = clock::now();
    wake_at(now, now.after_ms(delay_ms));
}

/// Schedules the tick at this moment, not before the current command or event is over.
pub fn wake_at(now: Moment, at: Moment) {
    let shell = shell();
    let former = shell.timer.get();
    if former.is_some_and(|(_, armed)| armed <= at) {
        return;
    }
    if let Some((timer, _)) = former {
        timer.stop();
    }
    // Rounded up: a tick before the deadline would find nothing to do.
    arm(at.us_since(now).div_ceil(1000), at);
    if !shell.subscribed_to_cron.get() {
        subscribe_to_cron();
    }
}

fn arm(delay_ms: u64, at: Moment) {
    let shell = shell();
    let timer = call_in_ms(delay_ms, callbacks().tick);
    shell.timer.set(timer.map(|timer| (timer, at)));
}

#[cold]
fn subscribe_to_cron() {
    if let Some(ctx) = detached() {
        shell().subscribed_to_cron.set(true);
        listen(ctx, c::REDISMODULE_EVENT_CRON_LOOP);
    }
}

/// Only re-arms: the tick runs right after the cron.
pub fn arm_anew_if_late() {
    /// Until then it may be about to fire.
    const LATE_MS: u64 = 5;
    let armed = shell().timer.get();
    if let Some((timer, at)) = armed
        && at.after_ms(LATE_MS) < clock::coarse_now()
    {
        timer.stop();
        arm(0, at);
    }
}

/// The timer has fired.
pub fn gone_off() {
    shell().timer.set(None);
}

/// Schedules a call right after the current command, before its client's next one; on servers without such callbacks, the
/// tick runs a little later.
pub fn call_soon(job: Job) {
    call_after_command(job);
    wake_in_ms(0);
}

/// Schedules the tick right after the current command or event, before the server sleeps.
pub fn wake_promptly() {
    wake_in_ms(0);
    wake_loop();
}
