//! Looks at keys.
//!
//! On a replica a key whose time has come is hidden from readers, but it is there until the master says that it has
//! gone; and the master may have given it more time before that, which is still to come. So there such a key is present:
//! what is told of it agrees with the events that will follow.

use crate::engine::{Db, Key, KeyState};
use crate::shell::state::shell;
use crate::shell::sys::raw::{Ctx, Str};
use redis_module::raw;
use std::ffi::c_int;

/// What stands at a key. A master removes one whose time has come, with its event.
pub fn standing(ctx: Ctx<'_>, db: Db, key: Str<'_>) -> KeyState {
    if !ctx.exists(db, key) {
        return hidden(ctx, db, key);
    }
    let mode = raw::REDISMODULE_READ | raw::REDISMODULE_OPEN_KEY_NOTOUCH;
    ctx.in_db(db).open_as(key, mode as c_int).standing()
}

/// The same on servers since Redis 7.2, without a trace of the look: no key is expired by it.
pub fn standing_without_trace(ctx: Ctx<'_>, db: Db, key: Str<'_>) -> KeyState {
    let mode = raw::REDISMODULE_READ | raw::REDISMODULE_OPEN_KEY_NOEFFECTS;
    match ctx.in_db(db).open_as(key, mode as c_int).standing() {
        KeyState::Absent => hidden(ctx, db, key),
        standing => standing,
    }
}

/// What stands at a key that readers do not find. Its type cannot be had: a lock is where we hold one.
fn hidden(ctx: Ctx<'_>, db: Db, key: Str<'_>) -> KeyState {
    if !shell().is_replica() || ctx.has(db, key) != Some(true) {
        return KeyState::Absent;
    }
    let name = key.bytes();
    shell()
        .engine
        .with(|engine| engine.stands(Key { db, name }))
}
