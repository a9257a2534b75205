//! Whether any other module listens to keyspace events.
//!
//! Raising an event costs the server more than removing a key, and mostly this module is the only listener, which knows
//! already.

use crate::shell::guard::guard;
use crate::shell::sys::raw::{self, Ctx};
use redis_module::raw as c;
use std::ffi::{CStr, c_void};

/// Modules without keyspace listeners, or that need none of our events: this one, and those bundled with Redis 8 and Valkey
/// 9.1.
const MODULES_THAT_DO_NOT_LISTEN: [&str; 3] = ["tether", "vectorset", "lua"];

/// Checks whether other modules are loaded. Once, before any key is created; [`on_module`] covers later ones.
pub fn find_other_listeners(ctx: Ctx<'_>) {
    let modules = ctx.modules();
    let does_not_listen = |name: &String| MODULES_THAT_DO_NOT_LISTEN.contains(&&**name);
    let are_all = !modules.is_empty() && modules.iter().all(does_not_listen);
    raw::api_state().no_other_module_listens.set(are_all);
}

/// A module was loaded. Whether it listens cannot be queried, so assume that it does.
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
        let does_not_listen = unsafe {
            let change = data.cast::<c::RedisModuleModuleChange>().as_ref();
            let name = change.map(|change| change.module_name);
            name.filter(|name| !name.is_null())
                .and_then(|name| CStr::from_ptr(name).to_str().ok())
                .is_some_and(|name| MODULES_THAT_DO_NOT_LISTEN.contains(&name))
        };
        if !does_not_listen {
            raw::api_state().no_other_module_listens.set(false);
        }
    });
}
