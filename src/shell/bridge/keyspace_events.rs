//! Turns the server's keyspace events into engine events.
//!
//! Keyspace events arrive in the middle of other clients' commands, so nothing here writes. The module subscribes when the
//! engine learns of the first connection (`server/subscriptions.rs`); before that it costs other commands nothing. Only
//! watchers and waiters need key creations, so it subscribes to `new` when the first client watches or waits: every created
//! key pays for that, and not every server can unsubscribe.

use crate::engine::{Cause, ClientId, Engine, Event, Key, Loss};
use crate::policy::recheck::RecheckReason;
use crate::shell::bridge::recheck;
use crate::shell::bridge::tell::{handle, redirect_waiters};
use crate::shell::delivery::push;
use crate::shell::guard::guard;
use crate::shell::server::{attribution, client_db, cluster, subscriptions};
use crate::shell::state::shell;
use crate::shell::sys::raw::{self, Ctx, Str};
use redis_module::raw as c;
use std::ffi::{CStr, c_char, c_int};

/// The server's callback for keyspace events.
pub unsafe extern "C" fn on_key(
    ctx: *mut c::RedisModuleCtx,
    class: c_int,
    event: *const c_char,
    key: *mut c::RedisModuleString,
) -> c_int {
    guard((), || {
        on_keyspace_event(ctx, class, event, key);
        if shell().server.get().event_moves_client_db {
            // SAFETY: the server's arguments, for the length of this call.
            let (ctx, event) = unsafe { (Ctx::new(&ctx), CStr::from_ptr(event)) };
            client_db::on_keyspace_event(ctx, event.to_bytes());
        }
    });
    c::REDISMODULE_OK as c_int
}

fn on_keyspace_event(
    ctx: *mut c::RedisModuleCtx,
    class: c_int,
    event: *const c_char,
    key: *mut c::RedisModuleString,
) {
    let shell = shell();
    // The module's own write.
    if shell.key_being_written.get() == Some(key) {
        return;
    }
    if shell.engine.with(Engine::is_idle) && !shell.has_deferred.get() {
        return;
    }
    // SAFETY: the server's arguments, for the length of this call.
    let (ctx, string) = unsafe { (Ctx::new(&ctx), Str::new(key)) };
    let key = Key {
        db: ctx.event_db(string),
        name: string.bytes(),
    };
    // The engine does not know the new name of a held key yet.
    let look = |engine: &Engine| (engine.look_up(key), engine.has_key_in_transit());
    let (known, is_moving) = shell.engine.with(look);
    if known.is_some() || is_moving || recheck::concerns(key) {
        // SAFETY: as above.
        let name = unsafe { CStr::from_ptr(event) }.to_bytes();
        let holder = known.flatten();
        let event = KeyspaceEvent {
            ctx,
            key,
            string,
            holder,
        };
        event.handle_event(class, name);
    }
}

/// An event of a key that the engine knows, or that replaces one it knows.
struct KeyspaceEvent<'a> {
    ctx: Ctx<'a>,
    key: Key<'a>,
    /// The key's name, as the server passed it.
    string: Str<'a>,
    /// A connected client that holds the key.
    holder: Option<ClientId>,
}

impl<'a> KeyspaceEvent<'a> {
    /// Not inlined: every event of every key runs the caller, which must stay small.
    #[inline(never)]
    fn handle_event(&self, class: c_int, name: &[u8]) {
        let KeyspaceEvent { ctx, key, .. } = *self;
        let is_set = name == b"set";
        if is_set && shell().engine.with(|engine| engine.is_orphaned(key)) {
            // The value belongs to the client that wrote it, and stays when the orphaned hold is released.
            let by = Cause::Server;
            return handle(ctx, Event::Replaced { key, by });
        }
        if class & subscriptions::VALUES != 0
            && shell().engine.with(|engine| engine.is_value_watched(key))
        {
            recheck::recheck_soon(key, RecheckReason::CHANGED);
        }
        if is_set || name == b"persist" {
            return recheck::key_overwritten(key);
        }
        // A `new` event precedes `restore` if the module gets both, and supersedes what loading the value reported.
        if class == c::REDISMODULE_NOTIFY_NEW || name == b"restore" {
            recheck::key_created(key);
        }
        let Some(event) = self.to_engine_event(class, name) else {
            return;
        };
        match event {
            Event::MovedFrom { .. } if recheck::key_moved_from(key) => return,
            Event::Timed { .. } if self.holder.is_some() => attribution::record_ttl_end(ctx, key),
            _ => {}
        }
        let spontaneous = matches!(name, b"expired" | b"evicted");
        let tell = || push::in_event(|| self.tell(event));
        if spontaneous && shell().executing_client.get().is_none() {
            // Slot ownership is checked before a waiter is served.
            return raw::in_uncaused_event(tell);
        }
        tell();
        if matches!(event, Event::Gone { .. } | Event::MovedFrom { .. }) {
            redirect_waiters(ctx, key);
        }
    }

    /// Handles the event, after what is known of its key only now.
    fn tell(&self, event: Event<'_>) {
        let KeyspaceEvent {
            ctx, key, string, ..
        } = *self;
        match event {
            Event::MovedTo { .. } => recheck::key_moved_to(ctx, key),
            Event::Gone { .. } => recheck::key_removed(ctx, key, string),
            _ => {}
        }
        handle(ctx, event);
    }

    fn to_engine_event(&self, class: c_int, name: &[u8]) -> Option<Event<'a>> {
        let KeyspaceEvent { ctx, key, .. } = *self;
        Some(match name {
            b"expire" => Event::Timed { key },
            b"rename_from" | b"move_from" => Event::MovedFrom { key },
            b"rename_to" | b"move_to" => {
                let by = self.cause();
                Event::MovedTo { key, by }
            }
            b"copy_to" | b"restore" => self.replaced(),
            b"del" | b"expired" | b"evicted" => {
                let (by, why) = match name {
                    _ if self.holder.is_none() => (Cause::Server, Loss::Deleted),
                    b"del" => {
                        let by = cluster::cause_of_removal(ctx, key, self.cause());
                        (by, cluster::loss_of_removal(ctx, key))
                    }
                    b"expired" => (attribution::cause_of_expiry(ctx, key), Loss::Expired),
                    _ => (Cause::Server, Loss::Evicted),
                };
                Event::Gone { key, by, why }
            }
            _ if class == c::REDISMODULE_NOTIFY_NEW => {
                // Where the server removes keys without an event, a created key replaces the held one.
                match self.holder.is_none() || shell().server.get().slots_go_silently {
                    true => self.replaced(),
                    false => Event::Made { key },
                }
            }
            _ => return None,
        })
    }

    fn replaced(&self) -> Event<'a> {
        let (key, by) = (self.key, self.cause());
        Event::Replaced { key, by }
    }

    fn cause(&self) -> Cause {
        let cause = |_| attribution::cause(self.ctx);
        self.holder.map_or(Cause::Server, cause)
    }
}
