//! The bridge: facts to the engine, its orders to the server.
//!
//! Decide, let go, then act: the engine is borrowed only while it decides. Carrying out an order
//! makes the server call us back (a removed key is an event), and that inner fact is told and its
//! orders are carried out before the next order of the outer one: the order of things is the
//! keyspace's.

use super::guard::guard;
use super::perform::{self, InHand};
use super::raw::{self, Ctx, api};
use super::state::shell;
use crate::engine::Event;
use redis_module::raw as c;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::time::{Duration, Instant};

/// Tells the engine a fact that is no command.
pub fn tell(ctx: Ctx<'_>, event: Event<'_>) {
    tell_in_hand(ctx, None, event);
}

/// Tells the engine a fact; `in_hand` is the command that it stands for.
pub fn tell_in_hand(ctx: Ctx<'_>, in_hand: Option<&InHand<'_>>, event: Event<'_>) {
    let shell = shell();
    if let Some((db, by)) = shell.flush.take() {
        tell(ctx, Event::Flushed { db, by });
    }
    let mut effects = shell.spare.borrow_mut().pop().unwrap_or_default();
    shell.engine.borrow_mut().handle(event, &mut effects);
    for effect in effects.drain(..) {
        perform::perform(ctx, in_hand, effect);
    }
    shell.spare.borrow_mut().push(effects);
}

/// How long a slice of removals may keep the server from its clients.
const SLICE: Duration = Duration::from_millis(2);

/// How soon to try again while the server must not write.
const RETRY_MS: i64 = 20;

/// Removes what ended connections left, as far as that may be done now and for no longer than a
/// slice; the rest soon.
pub fn work(ctx: Ctx<'_>) {
    let shell = shell();
    if !shell.engine.borrow().has_work() || shell.is_replica.get() {
        return;
    }
    if !may_write(ctx) {
        wake_in(RETRY_MS);
        return;
    }
    let began = Instant::now();
    while shell.engine.borrow().has_work() {
        if began.elapsed() >= SLICE {
            wake_in(0);
            return;
        }
        tell(ctx, Event::Work { most: 64 });
    }
}

/// Whether the keyspace may be written in this callback. Connections can end while a script or a
/// load goes on, and while a failover waits for the replicas.
fn may_write(ctx: Ctx<'_>) -> bool {
    let state = ctx.state();
    !raw::must_not_write() && !state.in_script() && !state.loading()
}

/// Has the server call [`tick`] as soon as the command or event in hand is over and after so many
/// milliseconds. Never in the middle of a script, unlike the server's one-shot callbacks.
pub fn wake_in(delay_ms: i64) {
    let shell = shell();
    if shell.timer_armed.get() {
        return;
    }
    let Some(ctx) = shell.detached() else { return };
    shell.timer_armed.set(true);
    // SAFETY: the table, the context; the callback takes no data.
    unsafe {
        api!(RedisModule_CreateTimer(
            ctx.as_ptr(),
            delay_ms,
            Some(tick),
            null_mut()
        ))
    };
}

/// What was put off: pushes, a flush, removals.
unsafe extern "C" fn tick(ctx: *mut c::RedisModuleCtx, _data: *mut c_void) {
    guard((), || {
        // SAFETY: the server's argument, for the length of this call.
        let ctx = unsafe { Ctx::new(ctx) };
        let shell = shell();
        shell.timer_armed.set(false);
        if let Some((db, by)) = shell.flush.take() {
            tell(ctx, Event::Flushed { db, by });
        }
        super::push::send_waiting(ctx);
        work(ctx);
    });
}
