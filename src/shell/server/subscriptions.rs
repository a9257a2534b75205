//! Subscriptions to the server's events: each made once, and not before it matters, so that an idle module costs other
//! commands nothing.
//!
//! The callbacks are defined in the files above this one and passed in at load
//! ([`Callbacks`](crate::shell::state::Callbacks)). The server keeps one callback per module and event type, and runs every
//! filter for every command. So there is one event-loop listener and one command filter for all users.

use crate::shell::callbacks::listen;
use crate::shell::server::listeners;
use crate::shell::state::{callbacks, shell};
use crate::shell::sys::raw::{Ctx, OWN_EVENTS};
use crate::shell::timer;
use redis_module::raw as c;
use std::ffi::c_int;

/// Events of existing keys. Called before the first key is held, watched or waited for.
pub fn to_keys(ctx: Ctx<'_>) {
    // A key is removed by `del`, `expired` or `evicted`, or by a generic command's event, which also says that another key
    // replaced it. Plain writes to a key raise none of these.
    const CLASSES: c_int = c::REDISMODULE_NOTIFY_GENERIC
        | c::REDISMODULE_NOTIFY_EXPIRED
        | c::REDISMODULE_NOTIFY_EVICTED;
    let shell = shell();
    // A file may name a held key that has expired. A client that creates it later creates another key.
    if shell.is_loading() {
        to_new_keys(ctx);
    }
    if shell.subscribed_to_keys.replace(true) {
        return;
    }
    to_server_events(ctx);
    let server = shell.server.get();
    if server.is_cluster {
        to_slots(ctx);
        // From now on the server is polled for its slots; see `bridge/slots.rs`.
        timer::wake_in_ms(0);
    }
    ctx.listen_to_keys(CLASSES, callbacks().on_key);
    if server.is_cluster {
        // Held keys have a backstop TTL, which another client may remove.
        to_overwrites(ctx);
    }
    if server.slots_go_silently {
        // A key created in place of one that was removed without an event is not the owner's.
        to_new_keys(ctx);
    }
}

/// Key creations. Called in the command that adds the first watch or wait.
pub fn to_new_keys(ctx: Ctx<'_>) {
    let shell = shell();
    if !shell.subscribed_to_new_keys.replace(true) {
        ctx.listen_to_keys(c::REDISMODULE_NOTIFY_NEW as c_int, callbacks().on_key);
    }
}

/// Writes of strings. Called before a disconnected client's temporary keys stay for a moment: a value that another client
/// writes there must not be removed with them.
pub fn to_overwrites(ctx: Ctx<'_>) {
    let shell = shell();
    if !shell.subscribed_to_overwrites.replace(true) {
        ctx.listen_to_keys(c::REDISMODULE_NOTIFY_STRING as c_int, callbacks().on_key);
    }
}

/// Events that only this module raises and hears. Called before the first one.
pub fn to_own_events(ctx: Ctx<'_>) {
    let shell = shell();
    if !shell.subscribed_to_own_events.replace(true) {
        ctx.listen_to_keys(OWN_EVENTS, callbacks().on_key);
    }
}

/// Writes of any value. Called in the command that adds the first watch of a prefix with values: temporary keys are strings, until
/// another client stores something else there.
pub fn to_values(ctx: Ctx<'_>) {
    const CLASSES: c_int = VALUES & !c::REDISMODULE_NOTIFY_STRING;
    to_overwrites(ctx);
    if !shell().subscribed_to_values.replace(true) {
        ctx.listen_to_keys(CLASSES, callbacks().on_key);
    }
}

/// The classes of events that tell of a written value.
pub const VALUES: c_int = c::REDISMODULE_NOTIFY_STRING
    | c::REDISMODULE_NOTIFY_LIST
    | c::REDISMODULE_NOTIFY_SET
    | c::REDISMODULE_NOTIFY_HASH
    | c::REDISMODULE_NOTIFY_ZSET
    | c::REDISMODULE_NOTIFY_STREAM
    | c::REDISMODULE_NOTIFY_MODULE;

/// Server events that matter only once the engine knows a connection, a key or a token. The server scans all listeners for
/// each event, and since Redis 7.2 each overwritten value is one.
pub fn to_server_events(ctx: Ctx<'_>) {
    const LATER: [u64; 6] = [
        c::REDISMODULE_EVENT_CLIENT_CHANGE,
        c::REDISMODULE_EVENT_FLUSHDB,
        c::REDISMODULE_EVENT_SWAPDB,
        c::REDISMODULE_EVENT_REPLICA_CHANGE,
        c::REDISMODULE_EVENT_MODULE_CHANGE,
        c::REDISMODULE_EVENT_FORK_CHILD,
    ];
    let shell = shell();
    if !shell.subscribed_to_server_events.replace(true) {
        LATER.iter().for_each(|event| listen(ctx, *event));
        listeners::find_other_listeners(ctx);
    }
}

/// Changes of the server's settings.
pub fn to_settings(ctx: Ctx<'_>) {
    let shell = shell();
    if !shell.subscribed_to_settings.replace(true) {
        listen(ctx, c::REDISMODULE_EVENT_CONFIG);
    }
}

/// Commands that change slot ownership in a cluster, which raise no event. Called before the first key is held, watched or
/// waited for.
pub fn to_slots(ctx: Ctx<'_>) {
    if !shell().filters_slots.replace(true) {
        to_commands(ctx);
    }
}

/// All commands, before they are executed.
pub fn to_commands(ctx: Ctx<'_>) {
    let shell = shell();
    if !shell.filters_commands.replace(true) {
        ctx.filter_commands(callbacks().on_command);
    }
}

/// Every turn of the server's event loop.
pub fn to_event_loop(ctx: Ctx<'_>) {
    let shell = shell();
    if !shell.subscribed_to_event_loop.replace(true) {
        listen(ctx, c::REDISMODULE_EVENT_EVENTLOOP);
    }
}

/// Unsubscribes from the event loop. Must not be called within that event: the server still uses its listener entry.
pub fn no_more_to_event_loop(ctx: Ctx<'_>) {
    if shell().subscribed_to_event_loop.replace(false) {
        ctx.listen(c::REDISMODULE_EVENT_EVENTLOOP, None);
    }
}
