//! The one timer, and what is called as soon as the current command is over.

use crate::engine::Moment;
use crate::shell::state::shell;
use crate::shell::sys::clock;
use crate::shell::sys::raw::{Callback, Timer, call_after_command, wake_loop};

/// How soon to try again while the server must not write.
pub const RETRY_MS: u64 = 20;

/// Says what the timer calls. Once, at load.
pub fn begin(tick: Callback) {
    shell().tick.set(Some(tick));
}

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
    let delay_ms = at.us_since(now).div_ceil(1000);
    let tick = shell.tick.get();
    let timer = tick.and_then(|tick| Timer::arm(delay_ms, tick));
    shell.timer.set(timer.map(|timer| (timer, at)));
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
