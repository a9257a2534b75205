//! Whether any other module listens to keyspace events.
//!
//! Raising an event costs the server more than removing a key, and mostly this module is the only listener, which knows
//! already.

use crate::shell::sys::raw::{self, Ctx, ServerEvent};
use redis_module::raw as c;

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
pub fn on_module(event: ServerEvent<'_>) {
    if event.subevent != c::REDISMODULE_SUBEVENT_MODULE_LOADED {
        return;
    }
    let name = event.module_name().and_then(|name| name.to_str().ok());
    let does_not_listen = name.is_some_and(|name| MODULES_THAT_DO_NOT_LISTEN.contains(&name));
    if !does_not_listen {
        raw::api_state().no_other_module_listens.set(false);
    }
}
