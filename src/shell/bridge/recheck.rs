//! What was deferred: keys that are looked at again, as soon as that can be done.
//!
//! Of some changes the server tells only where the key cannot be looked at, and does not say what stands there: a value of
//! ours leaves its key, a lock is read from what `RESTORE` brings, a key is overwritten. Until the look, the key can go by
//! another name: so what is known of it follows it, through `RENAME`, `MOVE`, `SWAPDB`, flushes and what takes its place.

use crate::engine::{Db, Event, Key, KeyBuf, KeySnapshot, KeyState, Loss, Mode};
use crate::policy::recheck::{Queue, Why};
use crate::policy::slots::{FRESH_MS, SlotOwner};
use crate::shell::bridge::tell::{
    found, handle, redirect_waiters, settle_flush, subscribe_and_handle,
};
use crate::shell::guard::guard;
use crate::shell::server::{cluster, look, subscriptions};
use crate::shell::state::shell;
use crate::shell::sys::raw::{self, Ctx, Str, Text, have};
use crate::shell::timer;
use redis_module::raw as c;
use std::ffi::c_void;

/// The keys that may be touched in this callback.
///
/// In a cluster, servers since Redis 7.2 take every key for one of the slot of the command that is being
/// executed. So in the middle of a command keys of other slots cannot be found, or are made where
/// nobody finds them.
#[derive(Clone, Copy)]
pub enum KeyScope<'a> {
    All,
    /// These, of this database.
    Only(Db, &'a [Str<'a>]),
}

impl<'a> KeyScope<'a> {
    /// In a command for these keys.
    pub fn of_command(ctx: Ctx<'_>, keys: &'a [Str<'a>]) -> Self {
        if shell().server.get().is_cluster {
            KeyScope::Only(ctx.db(), keys)
        } else {
            KeyScope::All
        }
    }
}

/// Handles what was deferred. Before anything else is told, and before pushes are sent or taken back. Says whether there may
/// have been anything.
pub fn catch_up(ctx: Ctx<'_>, reach: KeyScope<'_>) -> bool {
    // This comes before every command, and mostly there is nothing.
    let (has_flush, has_keys) = (shell().flush.get().is_some(), shell().has_deferred.get());
    if has_flush {
        settle_flush(ctx);
    }
    if has_keys {
        look(ctx, reach);
    }
    has_flush || has_keys
}

/// Has the server call [`catch_up`] as soon as the current command is over, before the next one of
/// its connection; where it does not offer that, a little later.
pub fn catch_up_soon() {
    timer::call_soon(after_command);
}

unsafe extern "C" fn after_command(ctx: *mut c::RedisModuleCtx, _data: *mut c_void) {
    guard((), || {
        // SAFETY: the server's argument, for the length of this call.
        let ctx = unsafe { Ctx::new(&ctx) };
        raw::on_our_own(|| catch_up(ctx, KeyScope::All));
    });
}

/// Has a key looked at again as soon as the current command is over.
pub fn soon(key: Key<'_>, why: Why) {
    let is_next = shell().has_deferred.get();
    defer(key, why);
    // One look is for all of them.
    match is_next {
        true => timer::wake_in_ms(0),
        false => catch_up_soon(),
    }
}

/// Has a key looked at again when [`catch_up`] is called next.
pub fn defer(key: Key<'_>, why: Why) {
    let shell = shell();
    shell.rechecks.with_mut(|queue| queue.put(key, why));
    shell.has_deferred.set(true);
}

/// Whether an event of this key matters here.
pub fn concerns(key: Key<'_>) -> bool {
    let shell = shell();
    shell.has_deferred.get() && shell.rechecks.with(|queue| queue.concerns(key))
}

/// A key has gone: there is nothing to look at.
pub fn gone(key: Key<'_>) {
    let shell = shell();
    if shell.has_deferred.get() {
        shell.rechecks.with_mut(|queue| queue.take(key));
    }
}

/// A key leaves its place for another, which is told next. True if the engine is to be told of both then: what stands there
/// may be what somebody has written over a lock, and at its new place it can be seen.
pub fn leaves(key: Key<'_>) -> bool {
    let shell = shell();
    if !shell.has_deferred.get() {
        return false;
    }
    let why = shell.rechecks.with_mut(|queue| {
        let why = queue.why(key);
        queue.leaves(key);
        why
    });
    why.is_some_and(|why| why.overwritten)
}

/// The key that has just left its place stands at this one from now on.
pub fn arrives(ctx: Ctx<'_>, key: Key<'_>) {
    let shell = shell();
    if !shell.has_deferred.get() {
        return;
    }
    let arrived = shell.rechecks.with_mut(|queue| queue.arrives(key));
    let Some(from) = arrived else {
        return;
    };
    let from = from.as_key();
    // The current command has looked at the key itself, so this look does not find that its time is over.
    let standing = look::standing(ctx, key.db, Text::new(key.name).as_str());
    if standing != KeyState::Lock {
        let seen = KeySnapshot {
            key: from,
            standing: KeyState::Other,
        };
        let gone = Loss::Deleted;
        handle(ctx, Event::Found { seen, gone });
    }
    handle(ctx, Event::MovedFrom { key: from });
    redirect_waiters(ctx, from);
}

/// Looks at those within reach. While a data set is loaded they wait for its end.
#[cold]
fn look(ctx: Ctx<'_>, reach: KeyScope<'_>) {
    if !shell().is_loading() {
        look_now(ctx, reach);
    }
}

/// A data set is there, of which this is a part: what it says was lost once.
pub fn load_ends(ctx: Ctx<'_>) {
    look_now(ctx, KeyScope::All);
}

fn look_now(ctx: Ctx<'_>, reach: KeyScope<'_>) {
    let shell = shell();
    let due = match reach {
        KeyScope::All => shell.rechecks.with_mut(Queue::take_all),
        KeyScope::Only(db, names) => {
            let names: Vec<_> = names.iter().map(|name| name.bytes()).collect();
            let keys = names.into_iter().map(|name| Key { db, name });
            let take = |queue: &mut Queue| {
                keys.filter_map(|key| Some((key.to_owned(), queue.take(key)?)))
                    .collect()
            };
            shell.rechecks.with_mut(take)
        }
    };
    for (key, why) in due {
        look_at(ctx, key.as_key(), why);
    }
    let is_any_left = !shell.rechecks.with(Queue::is_empty);
    shell.has_deferred.set(is_any_left);
}

fn look_at(ctx: Ctx<'_>, key: Key<'_>, why: Why) {
    if why.overwritten {
        let standing = look::standing(ctx, key.db, Text::new(key.name).as_str());
        found(ctx, key, standing);
    }
    if why.restored {
        look_at_restored(ctx, key);
    }
    if why.untimed {
        look_at_untimed(ctx, key);
    }
}

pub fn swapped(one: Db, other: Db) {
    shell().rechecks.with_mut(|queue| queue.swapped(one, other));
}

/// One database, or each, is empty.
pub fn flushed(db: Option<Db>) {
    shell().rechecks.with_mut(|queue| queue.flushed(db));
}

/// After a change without events of its own: looks at each of the keys that it can matter to.
pub fn look_at_all(ctx: Ctx<'_>, keys: &[KeyBuf]) {
    for key in keys {
        look_again(ctx, key.as_key());
    }
}

/// Looks at one of them.
pub fn look_again(ctx: Ctx<'_>, key: Key<'_>) {
    let name = Text::new(key.name);
    let standing = without_trace(ctx, key, name.as_str());
    found(ctx, key, standing);
}

/// What stands at a key, without a trace of the look: no key is expired by it. (To expire one in
/// the middle of a SWAPDB would be told to replicas before the swap.)
fn without_trace(ctx: Ctx<'_>, key: Key<'_>, name: Str<'_>) -> KeyState {
    if have!(RedisModule_CommandFilterGetClientId) {
        return look::standing_without_trace(ctx, key.db, name);
    }
    // In a cluster there is no SWAPDB, and a command of ours would not be let to every key.
    let is_there = match shell().server.get().is_cluster {
        true => None,
        false => ctx.has(key.db, name),
    };
    // Redis 7.0 does not say what it is.
    match is_there {
        Some(true) => {
            recheck_lock(key);
            shell().engine.with(|engine| engine.stands(key))
        }
        Some(false) => KeyState::Absent,
        None => look::standing(ctx, key.db, name),
    }
}

/// Has a key looked at again that is held as a lock.
pub fn recheck_lock(key: Key<'_>) {
    if shell().engine.with(|engine| engine.stands(key)) == KeyState::Lock {
        soon(key, Why::OVERWRITTEN);
    }
}

/// A lock is about to be there that came by RESTORE (MIGRATE of another server sends that), or with a
/// slot. It is looked at when it is there.
pub fn restored(key: Key<'_>) {
    if let Some(ctx) = raw::detached() {
        // Until then it may go by another name.
        subscriptions::to_keys(ctx);
    }
    soon(key, Why::RESTORED);
}

/// A key was made, perhaps by RESTORE. While an append-only file is loaded it can be a lock that nobody holds.
pub fn put_back(key: Key<'_>) {
    let shell = shell();
    if shell.is_loading() && shell.engine.with(|engine| engine.stands(key)) == KeyState::Lock {
        restored(key);
    }
}

/// A lock that came by RESTORE, or with a slot: nobody here holds it, so it goes. While its slot
/// is still another server's, that one's stream may yet name it.
fn look_at_restored(ctx: Ctx<'_>, key: Key<'_>) {
    let standing = look::standing(ctx, key.db, Text::new(key.name).as_str());
    if standing != KeyState::Lock {
        return;
    }
    if shell().is_replica() || cluster::place(ctx, key) == SlotOwner::Here {
        orphan(ctx, key);
    } else {
        defer(key, Why::RESTORED);
        timer::wake_in_ms(FRESH_MS);
    }
}

/// A lock that nobody here holds.
pub fn orphan(ctx: Ctx<'_>, key: Key<'_>) {
    let mode = Mode::Exclusive;
    subscribe_and_handle(ctx, Event::Inherited { key, mode });
}

/// A key was overwritten, or lost its time to live.
pub fn overwritten(key: Key<'_>) {
    let shell = shell();
    if !shell.is_replica() && shell.engine.with(|engine| engine.has_backstop(key)) {
        soon(key, Why::UNTIMED);
    }
}

/// A temporary key whose time to live somebody may have taken away.
fn look_at_untimed(ctx: Ctx<'_>, key: Key<'_>) {
    let name = Text::new(key.name);
    if ctx.has_no_end(key.db, name.as_str()) {
        handle(ctx, Event::Untimed { key });
    }
}

/// Before a command looks at what is held of these keys: a key whose time to live is over is lost, be it that the server has not
/// removed it yet, or may not now. Mostly no key has a time to live.
pub fn end_lapsed(ctx: Ctx<'_>, names: &[Str<'_>]) {
    let shell = shell();
    if shell.is_replica() || shell.is_loading() {
        return;
    }
    let db = ctx.db();
    for string in names {
        let name = string.bytes();
        let key = Key { db, name };
        if !shell.engine.with(|engine| engine.may_be_over(key)) {
            continue;
        }
        let standing = look::standing(ctx, db, *string);
        if !standing.is_present() {
            let seen = KeySnapshot { key, standing };
            let gone = Loss::Expired;
            handle(ctx, Event::Found { seen, gone });
        }
    }
}
