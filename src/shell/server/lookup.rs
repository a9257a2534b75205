//! Looks up a key's state.
//!
//! A replica hides a key past its TTL from readers, but keeps it until the master deletes it; the master may have extended
//! the TTL, with that command still to come. So here such a key counts as present, in line with the events that will
//! follow.

use crate::engine::{Db, Key, KeyState};
use crate::shell::state::shell;
use crate::shell::sys::raw::{Ctx, Str};
use redis_module::raw;
use std::ffi::c_int;

/// A key's state. A master deletes a key past its TTL, with its event.
pub fn key_state(ctx: Ctx<'_>, db: Db, key: Str<'_>) -> KeyState {
    if !ctx.exists(db, key) {
        return state_of_hidden(ctx, db, key);
    }
    let mode = raw::REDISMODULE_READ | raw::REDISMODULE_OPEN_KEY_NOTOUCH;
    ctx.in_db(db).open_as(key, mode as c_int).key_state()
}

/// The same without side effects: does not expire the key. Needs Redis 7.2 or later.
pub fn peek(ctx: Ctx<'_>, db: Db, key: Str<'_>) -> KeyState {
    let mode = raw::REDISMODULE_READ | raw::REDISMODULE_OPEN_KEY_NOEFFECTS;
    match ctx.in_db(db).open_as(key, mode as c_int).key_state() {
        KeyState::Absent => state_of_hidden(ctx, db, key),
        state => state,
    }
}

/// The state of a key that readers do not find. Its type cannot be read: it is a lock if one is held here. Where the server does not
/// say whether the key is there, as in a cluster, a held one is: its master would have said that it has gone.
fn state_of_hidden(ctx: Ctx<'_>, db: Db, key: Str<'_>) -> KeyState {
    if !shell().is_replica() {
        return KeyState::Absent;
    }
    let is_there = ctx.has(db, key);
    let name = key.bytes();
    let held = shell()
        .engine
        .with(|engine| engine.held_state(Key { db, name }));
    match is_there {
        Some(true) => held.unwrap_or(KeyState::Other),
        Some(false) => KeyState::Absent,
        None => held.unwrap_or(KeyState::Absent),
    }
}
