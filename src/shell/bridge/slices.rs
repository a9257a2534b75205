//! Work in slices: what may take long is done a piece at a time, so that other clients do not wait.

use crate::engine::{ClientId, Engine, Event, Key};
use crate::shell::bridge::recheck::{self, KeyScope};
use crate::shell::bridge::slots;
use crate::shell::bridge::tell::handle;
use crate::shell::guard::guard;
use crate::shell::server::writes::{self, may_write, wants_writes};
use crate::shell::server::{attribution, subscriptions};
use crate::shell::state::shell;
use crate::shell::sys::clock::{self, Slice};
use crate::shell::sys::raw::{self, Ctx, Str};
use crate::shell::timer;
use redis_module::raw as c;
use std::ffi::c_void;

/// How much of each kind of work is told at once, where it can be so much: where rights are to be looked at, one by one.
fn at_once(most: usize) -> usize {
    if shell().rights.matter() { 1 } else { most }
}

/// How many leases a command ends whose keys it does not name.
const LEASES: usize = 16;

/// Ends leases whose time is over, before a command that may write looks at its keys: all of those keys, so that it sees
/// what is so, and a few others. Where more are over, the rest is ended in slices.
pub fn end_leases(ctx: Ctx<'_>, reach: KeyScope<'_>, names: &[Str<'_>]) {
    let is_any_over = || {
        let end = shell().engine.with(|engine| engine.first_lease_end());
        end.is_some_and(|end| end <= clock::now())
    };
    if !is_any_over() {
        return;
    }
    if matches!(reach, KeyScope::All) {
        let most = at_once(LEASES);
        handle(ctx, Event::Lapse { most });
        if !is_any_over() {
            return;
        }
    }
    let db = ctx.db();
    let names = names.iter().map(|name| name.bytes());
    let keys: Vec<_> = names.map(|name| Key { db, name }).collect();
    handle(ctx, Event::LapseOf { keys: &keys });
}

/// A connection is no more: does what follows from that, for no longer than a slice. Where very many end at once, the first
/// ones' slice is all there is.
pub fn end(ctx: Ctx<'_>, client: ClientId) {
    handle(ctx, Event::Ended { client });
    if shell().is_behind.get() {
        return;
    }
    let slice = Slice::begin();
    forget(ctx, slice);
    if !has_work() {
        return;
    }
    if !attribution::is_nobody_executing() {
        keep_what_others_write(ctx);
    }
    // In a cluster the tick does it: what is called after a command may still be in its slot (see `KeyScope`).
    match shell().server.get().is_cluster {
        true => timer::wake_promptly(),
        false => writes::outside(after_end, || work(ctx, slice)),
    }
}

unsafe extern "C" fn after_end(ctx: *mut c::RedisModuleCtx, _data: *mut c_void) {
    guard((), || {
        // SAFETY: the server's argument, for the length of this call.
        let ctx = unsafe { Ctx::new(&ctx) };
        raw::on_our_own(|| {
            recheck::catch_up(ctx, KeyScope::All);
            work(ctx, Slice::begin());
        });
    });
}

/// Temporary keys stay for a moment that nobody holds any more: what others write there meanwhile is theirs.
fn keep_what_others_write(ctx: Ctx<'_>) {
    if shell().engine.with(Engine::has_temporary_keys) {
        subscriptions::to_overwriting(ctx);
    }
}

/// Whether there is anything to be written.
fn has_work() -> bool {
    let engine = &shell().engine;
    engine.with(|engine| !engine.is_replica() && engine.has_work(clock::now()))
}

/// Does what was deferred, for no longer than a slice.
pub fn go_on(ctx: Ctx<'_>) {
    let slice = Slice::begin();
    forget(ctx, slice);
    look(ctx, slice);
    // Before pushes are sent: what a flusher is granted by its own flush comes after the answer.
    work(ctx, slice);
}

/// Does what is left to be done of flushes, and forgets what ended connections have watched and waited for, for no longer than
/// half a slice; the rest soon. This writes nothing, so it can be done at any time.
fn forget(ctx: Ctx<'_>, slice: Slice) {
    let has_more = |engine: &Engine| engine.is_flushing() || engine.is_fading();
    while shell().engine.with(has_more) {
        if slice.is_half_over() {
            return go_on_soon();
        }
        handle(ctx, Event::Fade { most: STEP });
    }
}

/// Databases have exchanged their contents: looks at the keys to which that can matter. Where they are very many, most of them
/// follow in slices.
pub fn look_after_swap(ctx: Ctx<'_>) {
    if shell().is_loading() {
        return;
    }
    // To pass by all other keys takes no longer than the exchange itself.
    let at_once = shell().engine.with(|engine| engine.limits().at_once);
    if look_at_next(ctx, at_once, usize::MAX) {
        timer::wake_in_ms(0);
    }
}

/// The same at those that are left, until the first half of a slice is over; at some in any case.
fn look(ctx: Ctx<'_>, slice: Slice) {
    while !shell().is_loading() && look_at_next(ctx, STEP, STEP) {
        if slice.is_half_over() {
            return go_on_soon();
        }
    }
}

/// Looks at so many keys at most, and passes by so many others before each. Whether there are more, perhaps.
fn look_at_next(ctx: Ctx<'_>, looks: usize, others: usize) -> bool {
    let engine = &shell().engine;
    for _ in 0..looks {
        if let Some(key) = engine.with_mut(|engine| engine.next_unseen(others)) {
            recheck::look_again(ctx, key.as_key());
        } else if !engine.with(Engine::has_unseen) {
            break;
        }
    }
    engine.with(Engine::has_unseen)
}

/// The time is over, and there is more to do.
fn go_on_soon() {
    shell().is_behind.set(true);
    timer::wake_in_ms(0);
}

/// How many of each kind of work are done between two looks at the clock.
const STEP: usize = 64;

/// Does what the engine wants to write, as far as that may be done now and for no longer than a
/// slice; the rest soon.
fn work(ctx: Ctx<'_>, slice: Slice) {
    let shell = shell();
    if shell.is_replica() || !(has_work() || shell.unreplicated.get()) {
        return;
    }
    if !may_write(ctx) {
        keep_what_others_write(ctx);
        if !wants_writes(ctx) && !ctx.state().in_script() && !ctx.state().loading() {
            while shell
                .engine
                .with(|engine| engine.has_renewals(clock::now()))
                && !slice.is_over()
            {
                handle(ctx, Event::Renew { most: STEP });
            }
        }
        timer::wake_in_ms(timer::RETRY_MS);
        return;
    }
    if shell.unreplicated.take() {
        handle(ctx, Event::RenewAll);
    }
    while has_work() {
        if slice.is_over() {
            keep_what_others_write(ctx);
            return go_on_soon();
        }
        slots::redirect_late_waiters(ctx, STEP);
        let most = at_once(STEP);
        handle(ctx, Event::Work { most });
    }
}
