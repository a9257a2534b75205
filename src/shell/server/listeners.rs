//! Whether anybody hears the keyspace events of what we do ourselves.
//!
//! To tell modules of an event costs a server more than to remove a key, and mostly the only one that it would tell is this
//! one, which knows.

use crate::shell::guard::guard;
use crate::shell::sys::raw::{self, Ctx};
use redis_module::raw as c;
use std::ffi::{CStr, c_void};

/// Modules that hear no keyspace events, or need not hear of ours: this one, and those that are part of Redis 8 and of
/// Valkey 9.1.
const DEAF: [&str; 3] = ["tether", "vectorset", "lua"];

/// Finds out whether there are others. Once, before any key is made; then [`on_module`] tells of those that come.
pub fn look_around(ctx: Ctx<'_>) {
    let modules = ctx.modules();
    let is_deaf = |name: &String| DEAF.contains(&&**name);
    let are_all = !modules.is_empty() && modules.iter().all(is_deaf);
    raw::known().is_among_deaf.set(are_all);
}

/// A module was loaded. Whether it hears events cannot be asked, so from now on it is taken that one does.
pub unsafe extern "C" fn on_module(
    _ctx: *mut c::RedisModuleCtx,
    _event: c::RedisModuleEvent,
    subevent: u64,
    data: *mut c_void,
) {
    guard((), || {
        if subevent != c::REDISMODULE_SUBEVENT_MODULE_LOADED {
            return;
        }
        // SAFETY: the server's argument, for the length of this call; this event comes with this structure.
        let is_deaf = unsafe {
            let change = data.cast::<c::RedisModuleModuleChange>().as_ref();
            let name = change.map(|change| change.module_name);
            name.filter(|name| !name.is_null())
                .and_then(|name| CStr::from_ptr(name).to_str().ok())
                .is_some_and(|name| DEAF.contains(&name))
        };
        if !is_deaf {
            raw::known().is_among_deaf.set(false);
        }
    });
}
