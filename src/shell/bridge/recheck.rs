//! Deferred work: keys to look up again as soon as that is possible.
//!
//! The server reports some changes at a point where the key cannot be looked up, and does not say what the key holds: a
//! lock value is unlinked, `RESTORE` loads a lock, a key is overwritten. Until the lookup the key may be renamed, so its
//! queue entry follows it through `RENAME`, `MOVE`, `SWAPDB`, flushes and overwrites.

use crate::engine::{Db, Engine, Event, Key, KeyBuf, KeySnapshot, KeyState, Loss, Mode};
use crate::policy::recheck::{Queue, RecheckReason};
use crate::policy::slots::{OWNER_CACHE_MS, SlotOwner};
use crate::shell::bridge::tell::{
    found, handle, redirect_waiters, settle_flush, subscribe_and_handle,
};
use crate::shell::server::{cluster, lookup, subscriptions};
use crate::shell::state::shell;
use crate::shell::sys::raw::{self, Ctx, Str, Text, have};
use crate::shell::timer;

/// The keys that this callback may access.
///
/// In a cluster, servers since Redis 7.2 look up every key in the slot of the executing command. During a command, keys of
/// other slots are not found, or are created where no lookup finds them.
#[derive(Clone, Copy)]
pub enum KeyScope<'a> {
    All,
    /// These keys of this database.
    Only(Db, &'a [Str<'a>]),
}

impl<'a> KeyScope<'a> {
    /// The scope of a command with these keys.
    pub fn of_command(ctx: Ctx<'_>, keys: &'a [Str<'a>]) -> Self {
        if shell().server.get().is_cluster {
            KeyScope::Only(ctx.db(), keys)
        } else {
            KeyScope::All
        }
    }
}

/// Handles deferred work. Call it before passing any event to the engine, and before pushes are sent or cancelled. Returns
/// whether there may have been work.
pub fn handle_deferred(ctx: Ctx<'_>, scope: KeyScope<'_>) -> bool {
    // This runs before every command, mostly with nothing to do.
    let (has_flush, has_keys) = (shell().flush.get().is_some(), shell().has_deferred.get());
    if has_flush {
        settle_flush(ctx);
    }
    if has_keys {
        recheck_unless_loading(ctx, scope);
    }
    has_flush || has_keys
}

/// Schedules [`handle_deferred`] right after the current command, before its client's next one; a little later on servers
/// without that callback.
pub fn handle_deferred_soon() {
    timer::call_soon(|ctx| {
        handle_deferred(ctx, KeyScope::All);
    });
}

/// Rechecks a key right after the current command.
pub fn recheck_soon(key: Key<'_>, reason: RecheckReason) {
    let is_next = shell().has_deferred.get();
    recheck_later(key, reason);
    // One callback handles all queued keys.
    match is_next {
        true => timer::wake_in_ms(0),
        false => handle_deferred_soon(),
    }
}

/// Rechecks a key on the next [`handle_deferred`].
pub fn recheck_later(key: Key<'_>, reason: RecheckReason) {
    let shell = shell();
    shell.rechecks.with_mut(|queue| queue.add(key, reason));
    shell.has_deferred.set(true);
}

/// Whether the queue must see an event of this key.
pub fn concerns(key: Key<'_>) -> bool {
    let shell = shell();
    shell.has_deferred.get() && shell.rechecks.with(|queue| queue.concerns(key))
}

/// The value of a held lock was unlinked, under this name of the server's.
pub fn lock_unlinked(key: Key<'_>, name: Str<'_>) {
    shell().last_unlinked.set(Text::keep(name));
    recheck_soon(key, RecheckReason::OVERWRITTEN);
}

/// A key was removed, in an event with this name of the server's. Drops it from the queue.
///
/// A command unlinks the value and raises the event with one and the same string, and each command has strings of its own.
/// So if the lock was unlinked with another string, an earlier command overwrote it, and this one removed what replaced it.
pub fn key_removed(ctx: Ctx<'_>, key: Key<'_>, name: Str<'_>) {
    let shell = shell();
    if !shell.has_deferred.get() {
        return;
    }
    let reason = shell.rechecks.with_mut(|queue| queue.take(key));
    if !reason.is_some_and(|reason| reason.overwritten) {
        return;
    }
    let unlinked = shell.last_unlinked.take();
    let is_overwritten = unlinked.as_ref().is_some_and(|text| text.as_str() != name);
    shell.last_unlinked.set(unlinked);
    if is_overwritten {
        lock_overwritten(ctx, key);
    }
}

fn lock_overwritten(ctx: Ctx<'_>, key: Key<'_>) {
    let seen = KeySnapshot {
        key,
        state: KeyState::Other,
    };
    let gone = Loss::Overwritten;
    handle(ctx, Event::Found { seen, gone });
}

/// A key is renamed or moved; the event of its new name follows. Returns true if the key may have been overwritten: then
/// [`key_moved_to`] looks it up and passes both events to the engine.
pub fn key_moved_from(key: Key<'_>) -> bool {
    let shell = shell();
    if !shell.has_deferred.get() {
        return false;
    }
    let reason = shell.rechecks.with_mut(|queue| {
        let reason = queue.reason(key);
        queue.moved_from(key);
        reason
    });
    reason.is_some_and(|reason| reason.overwritten)
}

/// The renamed or moved key has this name now.
pub fn key_moved_to(ctx: Ctx<'_>, key: Key<'_>) {
    let shell = shell();
    if !shell.has_deferred.get() {
        return;
    }
    let arrived = shell.rechecks.with_mut(|queue| queue.moved_to(key));
    let Some(from) = arrived else {
        return;
    };
    let from = from.as_key();
    // The current command has looked up the key itself, so this lookup does not expire it.
    let state = lookup::key_state(ctx, key.db, Text::new(key.name).as_str());
    if state != KeyState::Lock {
        lock_overwritten(ctx, from);
    }
    handle(ctx, Event::MovedFrom { key: from });
    redirect_waiters(ctx, from);
}

/// Looks up the queued keys in scope. During a load they wait for its end.
#[cold]
fn recheck_unless_loading(ctx: Ctx<'_>, scope: KeyScope<'_>) {
    if !shell().is_loading() {
        recheck_queued(ctx, scope);
    }
}

/// Something of the data set that the server said it would load is about to take the place of the former one. Valkey since 9.1 looks at
/// a master's file before it empties its own data, and keeps them if it cannot read that file.
pub fn load_begins_at_last(ctx: Ctx<'_>) {
    let shell = shell();
    if shell.load_is_to_begin.take() {
        shell.has_refused_records.set(false);
        handle(ctx, Event::LoadBegins);
    }
}

/// A load has ended: the queued keys belong to its data set.
pub fn load_ended(ctx: Ctx<'_>) {
    recheck_queued(ctx, KeyScope::All);
}

fn recheck_queued(ctx: Ctx<'_>, scope: KeyScope<'_>) {
    let shell = shell();
    let due = match scope {
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
    for (key, reason) in due {
        recheck_one(ctx, key.as_key(), reason);
    }
    let is_any_left = !shell.rechecks.with(Queue::is_empty);
    shell.has_deferred.set(is_any_left);
    if !is_any_left {
        shell.last_unlinked.take();
    }
}

fn recheck_one(ctx: Ctx<'_>, key: Key<'_>, reason: RecheckReason) {
    if reason.overwritten {
        let state = lookup::key_state(ctx, key.db, Text::new(key.name).as_str());
        found(ctx, key, state);
    }
    if reason.restored {
        check_restored(ctx, key);
    }
    if reason.untimed {
        check_ttl(ctx, key);
    }
    if reason.changed {
        handle(ctx, Event::Changed { key });
    }
}

pub fn databases_swapped(one: Db, other: Db) {
    shell().rechecks.with_mut(|queue| queue.swapped(one, other));
}

/// Empties the queue of one database, or of all.
pub fn databases_flushed(db: Option<Db>) {
    shell().rechecks.with_mut(|queue| queue.flushed(db));
}

/// After a change without keyspace events: looks up each key that it may affect.
pub fn recheck_all(ctx: Ctx<'_>, keys: &[KeyBuf]) {
    for key in keys {
        recheck_now(ctx, key.as_key());
    }
}

/// Looks up keys that may have gone without an event, with slots that this node or its master had. What readers do not find has gone:
/// no master says more of it.
pub fn recheck_gone(ctx: Ctx<'_>, keys: &[KeyBuf]) {
    for key in keys {
        let key = key.as_key();
        if !ctx.exists(key.db, Text::new(key.name).as_str()) {
            found(ctx, key, KeyState::Absent);
        }
    }
}

/// Looks up one key and handles the result.
pub fn recheck_now(ctx: Ctx<'_>, key: Key<'_>) {
    let name = Text::new(key.name);
    let state = peek(ctx, key, name.as_str());
    found(ctx, key, state);
}

/// A key's state, without side effects: the lookup does not expire the key. (During a SWAPDB, replicas would get the expiry
/// before the swap.)
fn peek(ctx: Ctx<'_>, key: Key<'_>, name: Str<'_>) -> KeyState {
    if have!(RedisModule_CommandFilterGetClientId) {
        return lookup::peek(ctx, key.db, name);
    }
    // A cluster has no SWAPDB, and would not let our command access every key.
    let is_there = match shell().server.get().is_cluster {
        true => None,
        false => ctx.has(key.db, name),
    };
    // Redis 7.0 does not report the type.
    match is_there {
        Some(true) => {
            recheck_lock(key);
            shell().engine.with(|engine| engine.key_state(key))
        }
        Some(false) => KeyState::Absent,
        None => lookup::key_state(ctx, key.db, name),
    }
}

/// Rechecks a key that is held as a lock.
pub fn recheck_lock(key: Key<'_>) {
    if shell().engine.with(|engine| engine.key_state(key)) == KeyState::Lock {
        recheck_soon(key, RecheckReason::OVERWRITTEN);
    }
}

/// A lock is being created by RESTORE (which MIGRATE sends) or a slot migration. It is looked up once it exists.
pub fn lock_restored(key: Key<'_>) {
    if let Some(ctx) = raw::detached() {
        // It may be renamed before that.
        subscriptions::to_keys(ctx);
    }
    recheck_soon(key, RecheckReason::RESTORED);
}

/// A key was created, perhaps by RESTORE. While an append-only file is loaded, it can be a lock without a holder.
pub fn key_created(key: Key<'_>) {
    let shell = shell();
    if shell.is_loading() && shell.engine.with(|engine| engine.key_state(key)) == KeyState::Lock {
        lock_restored(key);
    }
}

/// A lock that came by RESTORE or a slot migration has no holder on this server, so it is removed. While another node still
/// owns its slot, that node's stream may yet name it.
fn check_restored(ctx: Ctx<'_>, key: Key<'_>) {
    let state = lookup::key_state(ctx, key.db, Text::new(key.name).as_str());
    if state != KeyState::Lock {
        return;
    }
    if shell().is_replica() || cluster::slot_owner(ctx, key) == SlotOwner::Here {
        add_ownerless_lock(ctx, key);
    } else {
        recheck_later(key, RecheckReason::RESTORED);
        timer::wake_in_ms(OWNER_CACHE_MS);
    }
}

/// Adds a lock without a holder on this server.
pub fn add_ownerless_lock(ctx: Ctx<'_>, key: Key<'_>) {
    let (mode, token) = (Mode::Exclusive, None);
    subscribe_and_handle(ctx, Event::Inherited { key, mode, token });
}

/// A key was overwritten, or lost its TTL.
pub fn key_overwritten(key: Key<'_>) {
    let shell = shell();
    if !shell.is_replica() && shell.engine.with(|engine| engine.has_backstop(key)) {
        recheck_soon(key, RecheckReason::UNTIMED);
    }
}

/// Handles a temporary key that may have lost its backstop TTL.
fn check_ttl(ctx: Ctx<'_>, key: Key<'_>) {
    let name = Text::new(key.name);
    if ctx.exists_without_ttl(key.db, name.as_str()) {
        handle(ctx, Event::Untimed { key });
    }
}

/// Before a command looks at the holds of these keys: a key past its TTL is lost, even if the server has not removed it yet
/// or must not now. Mostly no key has a TTL.
pub fn remove_expired(ctx: Ctx<'_>, names: &[Str<'_>]) {
    let shell = shell();
    let may_be = |engine: &Engine| {
        engine.may_any_be_expired() && !engine.is_replica() && !engine.is_loading()
    };
    if !shell.engine.with(may_be) {
        return;
    }
    let db = ctx.db();
    for string in names {
        let name = string.bytes();
        let key = Key { db, name };
        if !shell.engine.with(|engine| engine.may_be_expired(key)) {
            continue;
        }
        let state = lookup::key_state(ctx, db, *string);
        if !state.is_present() {
            let seen = KeySnapshot { key, state };
            let gone = Loss::Expired;
            handle(ctx, Event::Found { seen, gone });
        }
    }
}
