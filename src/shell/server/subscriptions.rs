//! What the server is asked to tell: each thing once, and not before it matters. Until then the module costs others nothing.
//!
//! What the server then calls stands above this, and is handed in at load ([`Callbacks`](crate::shell::state::Callbacks)). It
//! has one callback of each module for each kind of its events, and goes through all filters with every command: so there is
//! one listener to its event loop and one command filter, for all who need them.

use crate::shell::server::listeners;
use crate::shell::state::shell;
use crate::shell::sys::raw::Ctx;
use crate::shell::timer;
use redis_module::raw as c;
use std::ffi::c_int;

/// What happens to keys that are there: before the first one is held, watched or waited for.
pub fn to_keys(ctx: Ctx<'_>) {
    // A key goes by `del`, `expired` or `evicted`, or by a generic command's event, which also says that
    // another has taken its place. Writes to keys that stay are none of these.
    const CLASSES: c_int = c::REDISMODULE_NOTIFY_GENERIC
        | c::REDISMODULE_NOTIFY_EXPIRED
        | c::REDISMODULE_NOTIFY_EVICTED;
    let shell = shell();
    // A file can name a held key that has lapsed, and is not there. Whoever makes it after that makes another key.
    if shell.is_loading() {
        to_new_keys(ctx);
    }
    if shell.hears_of_keys.replace(true) {
        return;
    }
    to_server_events(ctx);
    let server = shell.server.get();
    if server.is_cluster {
        to_slots(ctx);
        // It is asked which slots it has from now on; see `bridge/slots.rs`.
        timer::wake_in_ms(0);
    }
    ctx.listen_to_keys(CLASSES, shell.callbacks.on_key);
    if server.is_cluster {
        // Keys have a time to live of ours, which somebody may take away.
        to_overwriting(ctx);
    }
    if server.slots_go_silently {
        // What is made in the place of a key that went without a word is not its owner's.
        to_new_keys(ctx);
    }
}

/// Keys that come into being: in the command with which somebody begins to watch or to wait.
pub fn to_new_keys(ctx: Ctx<'_>) {
    let shell = shell();
    if !shell.hears_of_new.replace(true) {
        ctx.listen_to_keys(c::REDISMODULE_NOTIFY_NEW as c_int, shell.callbacks.on_key);
    }
}

/// Strings that are written: before a connection's temporary keys stay after its end, even for a moment. Who writes one then has
/// stored a value of its own, which must not go with them.
pub fn to_overwriting(ctx: Ctx<'_>) {
    let shell = shell();
    if !shell.hears_of_overwriting.replace(true) {
        ctx.listen_to_keys(
            c::REDISMODULE_NOTIFY_STRING as c_int,
            shell.callbacks.on_key,
        );
    }
}

/// Those of the server's events that matter only where a connection, a key or a token is known: before the first one is. A
/// server goes through its whole list for each of its events, and since Redis 7.2 each value that is overwritten is one.
pub fn to_server_events(ctx: Ctx<'_>) {
    let shell = shell();
    if !shell.hears_of_server.replace(true) {
        let later = shell.callbacks.later.iter().copied().flatten();
        later.for_each(|one| ctx.listen(*one));
        listeners::look_around(ctx);
    }
}

/// Changes of the server's settings: before one matters.
pub fn to_settings(ctx: Ctx<'_>) {
    let shell = shell();
    if !shell.hears_of_settings.replace(true) {
        ctx.listen((c::REDISMODULE_EVENT_CONFIG, shell.callbacks.on_setting));
    }
}

/// Commands that say whose a slot is, in a cluster, of which no event tells: before the first key is held, watched or waited for.
pub fn to_slots(ctx: Ctx<'_>) {
    if !shell().notices_slots.replace(true) {
        to_commands(ctx);
    }
}

/// All commands, before they are executed.
pub fn to_commands(ctx: Ctx<'_>) {
    let shell = shell();
    if !shell.hears_of_commands.replace(true) {
        ctx.filter_commands(shell.callbacks.on_command);
    }
}

/// Each turn of the server's event loop.
pub fn to_event_loop(ctx: Ctx<'_>) {
    let shell = shell();
    if !shell.hears_event_loop.replace(true) {
        ctx.listen((
            c::REDISMODULE_EVENT_EVENTLOOP,
            shell.callbacks.on_event_loop,
        ));
    }
}

/// Nobody needs that any more. Not to be called within the event itself: the server goes on with what it keeps of its listener.
pub fn no_more_to_event_loop(ctx: Ctx<'_>) {
    if shell().hears_event_loop.replace(false) {
        ctx.listen((c::REDISMODULE_EVENT_EVENTLOOP, None));
    }
}
