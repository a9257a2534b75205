//! The data type of locks.
//!
//! A lock's value is empty: the engine knows its holders. The type exists so that the keyspace contains the key, and no
//! command for other types can change it.

use crate::engine::{Db, Key};
use crate::shell::bridge::recheck;
use crate::shell::guard::guard;
use crate::shell::persistence::rdb;
use crate::shell::state::shell;
use crate::shell::sys::main_thread::assert_main_thread;
use crate::shell::sys::raw::{self, Ctx, RdbReader, Str, api};
use redis_module::raw as c;
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;

/// Nine characters, as the server requires.
const NAME: &std::ffi::CStr = c"tetherloc";

/// Registers the type. Once, at load. Or says what the server refuses.
pub fn register(ctx: Ctx<'_>) -> Result<(), String> {
    // SAFETY: integers and function pointers, of which null is one.
    let mut methods: c::RedisModuleTypeMethods = unsafe { std::mem::zeroed() };
    methods.version = u64::from(c::REDISMODULE_TYPE_METHOD_VERSION);
    methods.rdb_load = Some(rdb_load);
    methods.rdb_save = Some(rdb_save);
    methods.aof_rewrite = Some(aof_rewrite);
    methods.free = Some(free);
    methods.unlink2 = Some(on_unlink);
    methods.mem_usage2 = Some(mem_usage);
    rdb::add_to(&mut methods);
    // SAFETY: the table, the context; the methods are copied.
    let made = unsafe {
        api!(RedisModule_CreateDataType(
            ctx.as_ptr(),
            NAME.as_ptr(),
            rdb::ENCODING,
            &raw mut methods
        ))
    };
    let made = NonNull::new(made).map(NonNull::as_ptr);
    raw::api_state().lock_type.set(made);
    let refused = || format!("the data type {NAME:?}, which another module may have");
    made.map(|_| ()).ok_or_else(refused)
}

unsafe extern "C" fn rdb_load(io: *mut c::RedisModuleIO, encoding: c_int) -> *mut c_void {
    if !rdb::has_readable_values(encoding) {
        guard((), || rdb::refuse_encoding("a lock", encoding));
        return std::ptr::null_mut();
    }
    guard((), || {
        // SAFETY: the server's argument, for the length of this call.
        let Some((db, name)) = unsafe { RdbReader::new(io) }.key() else {
            return;
        };
        let name = name.bytes();
        let key = Key { db, name };
        let Some(ctx) = raw::detached() else {
            return;
        };
        recheck::load_begins_at_last(ctx);
        match shell().is_loading() {
            true => recheck::add_ownerless_lock(ctx, key),
            false => recheck::lock_restored(key),
        }
    });
    raw::lock_value()
}

unsafe extern "C" fn rdb_save(_io: *mut c::RedisModuleIO, _value: *mut c_void) {}

unsafe extern "C" fn aof_rewrite(
    aof: *mut c::RedisModuleIO,
    key: *mut c::RedisModuleString,
    _value: *mut c_void,
) {
    assert_main_thread();
    // SAFETY: the table, the server's arguments; the argument is as the format says.
    unsafe {
        api!(RedisModule_EmitAOF(
            aof,
            c"LOCK.ACQUIRE".as_ptr(),
            c"s".as_ptr(),
            key
        ));
    }
}

/// May run in other threads of the server.
unsafe extern "C" fn free(_value: *mut c_void) {}

/// `MEMORY USAGE`: the server adds the key itself.
unsafe extern "C" fn mem_usage(
    ctx: *mut c::RedisModuleKeyOptCtx,
    _value: *const c_void,
    samples: usize,
) -> usize {
    /// Also for `SAMPLES 0`, which means all.
    const MAX_SAMPLES: usize = 1000;
    guard(0, || {
        // SAFETY: the server's argument, for the length of this call.
        let Some((db, name)) = (unsafe { key_of(ctx) }) else {
            return 0;
        };
        let samples = if samples == 0 {
            MAX_SAMPLES
        } else {
            samples.min(MAX_SAMPLES)
        };
        let name = name.bytes();
        let key = Key { db, name };
        shell().engine.with(|engine| engine.bytes_of(key, samples))
    })
}

/// The key that a type method was called for.
///
/// # Safety
/// The context is what the server gave to the method, and `'a` is no longer than that call.
unsafe fn key_of<'a>(ctx: *mut c::RedisModuleKeyOptCtx) -> Option<(Db, Str<'a>)> {
    // SAFETY: the table, the caller; the name lives as long as the call.
    unsafe {
        let name = api!(RedisModule_GetKeyNameFromOptCtx(ctx)).cast_mut();
        let db = api!(RedisModule_GetDbIdFromOptCtx(ctx));
        (!name.is_null()).then(|| (Db(db as u32), Str::new(name)))
    }
}

/// A lock value is unlinked: the key was removed, which also raises an event, or overwritten, which does not. So the key is
/// rechecked soon.
unsafe extern "C" fn on_unlink(ctx: *mut c::RedisModuleKeyOptCtx, _value: *const c_void) {
    guard((), || {
        let shell = shell();
        // SAFETY: the server's argument, for the length of this call.
        let Some((db, name)) = (unsafe { key_of(ctx) }) else {
            return;
        };
        if shell.key_being_written.get() == Some(name.as_ptr()) {
            return;
        }
        let key = Key {
            db,
            name: name.bytes(),
        };
        if shell.engine.with(|engine| engine.knows(key)) {
            recheck::lock_unlinked(key, name);
        }
    });
}
