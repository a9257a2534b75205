//! The bridge: facts to the engine, its orders to the server.
//!
//! Decide, let go, then act: the engine is borrowed only while it decides. Carrying out an order
//! makes the server call us back (a removed key is an event), and that inner fact is told and its
//! orders are carried out before the next order of the outer one: the order of things is the
//! keyspace's.

use crate::engine::{ClientId, Db, Engine, Event, Key, Moment, Timing};
use crate::shell::bridge::perform::{self, InHand};
use crate::shell::bridge::recheck;
use crate::shell::delivery::blocked;
use crate::shell::guard::guard;
use crate::shell::persistence::aof;
use crate::shell::server::{cluster, epochs, replicas, rights, slots};
use crate::shell::state::shell;
use crate::shell::sys::clock;
use crate::shell::sys::raw::{self, Ctx, Str, api, have};
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
    tell_flush(ctx);
    if shell.rights.matter() {
        rights::look(ctx, &event);
    }
    let mut effects = shell.spare.take();
    let gains = shell.server.get().is_cluster && epochs::may_have_gained();
    let (now, next_work) = shell.engine.with_mut(|engine| {
        if gains {
            engine.follow_clock(clock::since_1970());
        }
        let now = match engine.timing(&event) {
            Timing::Exact => clock::now(),
            Timing::Late => clock::lately(),
            Timing::Any => Moment::default(),
        };
        engine.handle(now, event, &mut effects);
        (now, engine.next_work(now))
    });
    for effect in effects.drain(..) {
        perform::perform(ctx, in_hand, effect);
    }
    shell.spare.set(effects);
    // On a replica nobody waits, and leases and graces are the master's affair.
    if let Some(at) = next_work
        && !shell.is_replica.get()
    {
        wake_at(now, at);
    }
}

/// The keys that may be touched in this callback.
///
/// In a cluster, servers since Redis 7.2 take every key for one of the slot of the command that is being
/// executed. So in the middle of a command keys of other slots cannot be found, or are made where
/// nobody finds them.
#[derive(Clone, Copy)]
pub enum Reach<'a> {
    All,
    /// These, of this database.
    Only(Db, &'a [Str<'a>]),
}

impl<'a> Reach<'a> {
    /// In a command for these keys.
    pub fn of_command(ctx: Ctx<'_>, keys: &'a [Str<'a>]) -> Self {
        if shell().server.get().is_cluster {
            Reach::Only(ctx.db(), keys)
        } else {
            Reach::All
        }
    }
}

/// Tells what was put off. Before anything else is told, and before pushes are sent or taken back. Says whether there may
/// have been anything.
pub fn catch_up(ctx: Ctx<'_>, reach: Reach<'_>) -> bool {
    // This comes before every command, and mostly there is nothing.
    let (flush, look) = (shell().flush.get().is_some(), shell().is_any_put_off.get());
    if flush {
        tell_it(ctx);
    }
    if look {
        recheck::look(ctx, reach);
    }
    flush || look
}

/// How much of each kind of work is told at once, where it can be so much: where rights are to be looked at, one by one.
fn at_once(most: usize) -> usize {
    if shell().rights.matter() { 1 } else { most }
}

/// How many leases a command ends whose keys it does not name.
const LEASES: usize = 16;

/// Ends leases whose time is over, before a command that may write looks at its keys: all of those keys, so that it sees
/// what is so, and a few others. Where more are over, the rest is ended in slices.
pub fn end_leases(ctx: Ctx<'_>, reach: Reach<'_>, names: &[Str<'_>]) {
    let is_any_over = || {
        let end = shell().engine.with(|engine| engine.first_lease_end());
        end.is_some_and(|end| end <= clock::now())
    };
    if !is_any_over() {
        return;
    }
    if matches!(reach, Reach::All) {
        let most = at_once(LEASES);
        tell(ctx, Event::Lapse { most });
        if !is_any_over() {
            return;
        }
    }
    let db = ctx.db();
    let names = names.iter().map(|name| name.bytes());
    let keys: Vec<_> = names.map(|name| Key { db, name }).collect();
    tell(ctx, Event::LapseOf { keys: &keys });
}

/// Tells a flush that was put off.
pub fn tell_flush(ctx: Ctx<'_>) {
    if shell().flush.get().is_some() {
        tell_it(ctx);
    }
}

#[cold]
fn tell_it(ctx: Ctx<'_>) {
    let Some((db, by)) = shell().flush.take() else {
        return;
    };
    let tell_it = || tell(ctx, Event::Flushed { db, by });
    if shell().is_replica.get() {
        // It hears of no end of its master's command: the command in hand may be a watcher's already.
        crate::shell::delivery::push::hold(tell_it);
    } else {
        tell_it();
    }
}

/// A connection is no more: does what follows from that, for no longer than a slice. Where very many end at once, the first
/// ones' slice is all there is.
pub fn end(ctx: Ctx<'_>, client: ClientId) {
    tell(ctx, Event::Ended { client });
    if shell().is_behind.get() {
        return;
    }
    let slice = Slice::begin();
    forget(ctx, slice);
    // In a cluster not now: this may be in the middle of a command (see `Reach`).
    if !shell().server.get().is_cluster {
        work(ctx, slice);
    }
}

/// Forgets what ended connections have watched and waited for, for no longer than a slice; the rest soon. This writes nothing,
/// so it can be done at any time.
fn forget(ctx: Ctx<'_>, slice: Slice) {
    while shell().engine.with(Engine::is_fading) {
        if slice.is_over() {
            return go_on_soon();
        }
        tell(ctx, Event::Fade { most: STEP });
    }
}

/// The time is over, and there is more to do.
fn go_on_soon() {
    shell().is_behind.set(true);
    wake_in_ms(0);
}

/// The time that is left for work that can be put off.
#[derive(Clone, Copy)]
struct Slice(Instant);

impl Slice {
    /// How long such work may keep the server from its clients. With the pushes that it causes that comes to two milliseconds.
    const LENGTH: Duration = Duration::from_micros(1500);

    fn begin() -> Self {
        Slice(Instant::now())
    }

    fn is_over(self) -> bool {
        self.0.elapsed() >= Self::LENGTH
    }
}

/// How many of each kind of work are done between two looks at the clock.
const STEP: usize = 64;

/// How soon to try again while the server must not write.
pub const RETRY_MS: u64 = 20;

/// Does what the engine wants to write, as far as that may be done now and for no longer than a
/// slice; the rest soon.
fn work(ctx: Ctx<'_>, slice: Slice) {
    let shell = shell();
    let has_work = || shell.engine.with(|engine| engine.has_work(clock::now()));
    if shell.is_replica.get() || !(has_work() || shell.untold.get()) {
        return;
    }
    if !may_write(ctx) {
        if !wants_writes(ctx) && !ctx.state().in_script() && !ctx.state().loading() {
            while shell
                .engine
                .with(|engine| engine.has_renewals(clock::now()))
                && !slice.is_over()
            {
                tell(ctx, Event::Renew { most: STEP });
            }
        }
        wake_in_ms(RETRY_MS);
        return;
    }
    if shell.untold.take() {
        tell(ctx, Event::RenewAll);
    }
    while has_work() {
        if slice.is_over() {
            return go_on_soon();
        }
        cluster::send_away_whoever_is_late(ctx, STEP);
        let most = at_once(STEP);
        tell(ctx, Event::Work { most });
    }
}

/// Has the server call [`catch_up`] as soon as the command in hand is over, before the next one of
/// its connection; where it does not offer that, a little later.
pub fn catch_up_soon() {
    call_soon(after_command);
}

/// Has the server send what waits to be pushed as soon as the command in hand is over, as above.
pub fn push_soon() {
    call_soon(push_after_command);
}

fn call_soon(call: unsafe extern "C" fn(*mut c::RedisModuleCtx, *mut c_void)) {
    let Some(ctx) = shell().detached() else {
        return;
    };
    if have!(RedisModule_AddPostNotificationJob) {
        // SAFETY: the table, the context; the callback takes no data.
        unsafe {
            let ctx = ctx.as_ptr();
            api!(RedisModule_AddPostNotificationJob(
                ctx,
                Some(call),
                null_mut(),
                None
            ));
        }
    }
    wake_in_ms(0);
}

unsafe extern "C" fn after_command(ctx: *mut c::RedisModuleCtx, _data: *mut c_void) {
    guard((), || {
        // SAFETY: the server's argument, for the length of this call.
        catch_up(unsafe { Ctx::new(&ctx) }, Reach::All);
    });
}

unsafe extern "C" fn push_after_command(ctx: *mut c::RedisModuleCtx, _data: *mut c_void) {
    guard((), || {
        // SAFETY: the server's argument, for the length of this call.
        crate::shell::delivery::push::send_waiting(unsafe { Ctx::new(&ctx) });
    });
}

/// Whether a command that need not write may do so.
pub fn may_write_now(ctx: Ctx<'_>) -> bool {
    !shell().is_replica.get() && wants_writes(ctx)
}

/// Whether the keyspace may be written in this callback. Connections can end while a script or a
/// load goes on, and while a failover waits for the replicas.
pub fn may_write(ctx: Ctx<'_>) -> bool {
    let state = ctx.state();
    !state.in_script() && !state.loading() && wants_writes(ctx)
}

/// False while the server waits for a failover or a pause to be over, and while it refuses commands that write because
/// it has too few replicas (`min-replicas-to-write`): else a master that is cut off would hand keys over for ever.
fn wants_writes(ctx: Ctx<'_>) -> bool {
    !raw::must_not_write() && replicas::are_enough(ctx)
}

/// See [`wake_at`].
pub fn wake_in_ms(delay_ms: u64) {
    let now = clock::now();
    wake_at(now, now.after_ms(delay_ms));
}

/// Has the server call [`tick`] at this moment, and not before the command or event in hand is
/// over. Never in the middle of a script, unlike the server's one-shot callbacks.
fn wake_at(now: Moment, at: Moment) {
    let shell = shell();
    let former = shell.timer.get();
    if former.is_some_and(|(_, armed)| armed <= at) {
        return;
    }
    let Some(ctx) = shell.detached() else { return };
    // Not a moment too early: a tick before the deadline would find nothing to do.
    let delay_ms = at.us_since(now).div_ceil(1000) as i64;
    // SAFETY: the table, the context; the callback takes no data, and a timer that is stopped is
    // armed still.
    let timer = unsafe {
        if let Some((timer, _)) = former {
            api!(RedisModule_StopTimer(ctx.as_ptr(), timer, null_mut()));
        }
        api!(RedisModule_CreateTimer(
            ctx.as_ptr(),
            delay_ms,
            Some(tick),
            null_mut()
        ))
    };
    shell.timer.set(Some((timer, at)));
}

/// What was put off: pushes, a flush, waits and leases whose time is over, handovers, removals.
unsafe extern "C" fn tick(ctx: *mut c::RedisModuleCtx, _data: *mut c_void) {
    guard((), || {
        // SAFETY: the server's argument, for the length of this call.
        let ctx = unsafe { Ctx::new(&ctx) };
        shell().timer.set(None);
        shell().is_behind.set(false);
        shell().has_started.set(true);
        catch_up(ctx, Reach::All);
        slots::look(ctx);
        tell(ctx, Event::Tick);
        blocked::give_back();
        aof::tell_if_due(ctx);
        replicas::tell_newcomer(ctx);
        epochs::tell_others_again(ctx);
        let slice = Slice::begin();
        forget(ctx, slice);
        // Before pushes are sent: what a flusher is granted by its own flush comes after the answer.
        work(ctx, slice);
        crate::shell::delivery::push::send_waiting(ctx);
    });
}
