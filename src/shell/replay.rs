//! The commands that replicas and the append-only file are told, where the server has none of its
//! own. Nobody else may give them.

use super::guard::guard;
use super::raw::{Ctx, Str, api};
use redis_module::raw as c;
use std::ffi::c_int;

/// Registers the internal commands. Once, at load.
pub fn register(ctx: Ctx<'_>) -> bool {
    // SAFETY: the table, the context.
    let made = unsafe {
        api!(RedisModule_CreateCommand(
            ctx.as_ptr(),
            c"tether.lock".as_ptr(),
            Some(lock),
            c"write deny-script fast".as_ptr(),
            1,
            1,
            1
        ))
    };
    made == c::REDISMODULE_OK as c_int
}

/// `TETHER.LOCK key`: there is a lock at this key.
unsafe extern "C" fn lock(
    ctx: *mut c::RedisModuleCtx,
    arguments: *mut *mut c::RedisModuleString,
    count: c_int,
) -> c_int {
    guard((), || {
        // SAFETY: the server's arguments, for the length of this call; see `commands::entry`.
        let (ctx, arguments) = unsafe {
            let arguments = std::slice::from_raw_parts(arguments.cast::<Str>(), count as usize);
            (Ctx::new(ctx), arguments)
        };
        let [_, key] = arguments else {
            return ctx.reply_wrong_arity();
        };
        if !ctx.state().is_replay() {
            return ctx.reply_error("ERR TETHER.LOCK is for replication only");
        }
        ctx.make_lock(ctx.db(), *key);
        ctx.reply_integer(1);
    });
    c::REDISMODULE_OK as c_int
}
