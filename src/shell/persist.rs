//! What RDB files say beside the keys: which of them are temporary keys, and the last token given.
//!
//! Locks need no mention: their type tells (see `locktype.rs`). Where nothing is bound nothing is
//! written, so that a server without the module can load the file; Redis 7.0 offers no way for that.

use super::dispatch::tell;
use super::guard::guard;
use super::observe;
use super::raw::{self, Ctx, api, have};
use super::state::shell;
use crate::engine::{Db, Event, Key, Mode, Token};
use redis_module::raw as c;
use std::ffi::{c_char, c_int};

/// Of what is written here.
const ENCODING: c_int = 0;

/// Adds saving and loading to the methods of the lock type.
pub fn add_to(methods: &mut c::RedisModuleTypeMethods) {
    methods.aux_load = Some(load);
    methods.aux_save_triggers = c::REDISMODULE_AUX_AFTER_RDB as c_int;
    if have!(RedisModule_CommandFilterGetClientId) {
        methods.aux_save2 = Some(save);
    } else {
        methods.aux_save = Some(save);
    }
}

unsafe extern "C" fn save(io: *mut c::RedisModuleIO, _when: c_int) {
    guard((), || {
        // Saved by a child process, which has the engine as it was when it was born.
        let Ok(engine) = shell().engine.try_borrow() else {
            return;
        };
        let count = engine.temporary_keys().count();
        if count == 0 && have!(RedisModule_CommandFilterGetClientId) {
            return;
        }
        // SAFETY: the table, the server's argument; names are copied.
        unsafe {
            api!(RedisModule_SaveUnsigned(io, engine.last_token().0));
            api!(RedisModule_SaveUnsigned(io, count as u64));
            for key in engine.temporary_keys() {
                let name = key.name.as_ptr().cast::<c_char>();
                api!(RedisModule_SaveUnsigned(io, key.db.0.into()));
                api!(RedisModule_SaveStringBuffer(io, name, key.name.len()));
            }
        }
    });
}

unsafe extern "C" fn load(io: *mut c::RedisModuleIO, encoding: c_int, _when: c_int) -> c_int {
    let err = c::REDISMODULE_ERR as c_int;
    if encoding != ENCODING {
        return err;
    }
    guard(err, || {
        // SAFETY: the table, the server's argument. A file that is cut short ends the load inside.
        let (token, count) = unsafe {
            let token = api!(RedisModule_LoadUnsigned(io));
            (Token(token), api!(RedisModule_LoadUnsigned(io)))
        };
        let Some(ctx) = shell().detached() else {
            return err;
        };
        if count > 0 {
            observe::subscribe(ctx);
        }
        let now = raw::now();
        let mut effects = Vec::new();
        // Nothing below calls us back, so one borrowing is enough for a million keys.
        let mut engine = shell().engine.borrow_mut();
        engine.know_token(token);
        for _ in 0..count {
            // SAFETY: as above; what is loaded is ours to free, and is copied before.
            unsafe {
                let db = Db(api!(RedisModule_LoadUnsigned(io)) as u32);
                let mut length = 0;
                let name = api!(RedisModule_LoadStringBuffer(io, &raw mut length));
                let name = std::slice::from_raw_parts(name.cast::<u8>(), length);
                let (key, mode) = (Key { db, name }, Mode::Temporary);
                engine.handle(now, Event::Inherited { key, mode }, &mut effects);
                api!(RedisModule_Free(name.as_ptr().cast_mut().cast()));
            }
        }
        // What is loaded is told to nobody before all of it is there.
        debug_assert!(effects.is_empty());
        c::REDISMODULE_OK as c_int
    })
}

/// A key in the file belonged to a connection of the server that wrote it.
pub fn inherited(ctx: Ctx<'_>, db: Db, name: &[u8], mode: Mode) {
    let key = Key { db, name };
    // What becomes of it matters from now on.
    observe::subscribe(ctx);
    tell(ctx, Event::Inherited { key, mode });
}
