//! What the server tells us of keys, as facts.
//!
//! Keyspace events come in the middle of others' commands, so nothing here writes. They are subscribed to when the
//! first connection comes to the engine's notice (`server/subscriptions.rs`): before that, the module costs other commands
//! nothing. Of keys that come into being only those need to know who watch or wait, so `new` is subscribed to when somebody
//! first does: each key that anybody makes pays for it, and there is no way back on all servers.

use crate::engine::{Cause, ClientId, Engine, Event, Key, Loss};
use crate::shell::bridge::recheck;
use crate::shell::bridge::tell::{handle, redirect_waiters};
use crate::shell::delivery::push;
use crate::shell::guard::guard;
use crate::shell::server::{attribution, cluster, strays};
use crate::shell::state::shell;
use crate::shell::sys::raw::{self, Ctx, Str};
use redis_module::raw as c;
use std::ffi::{CStr, c_char, c_int};

/// A keyspace event.
pub unsafe extern "C" fn on_key(
    ctx: *mut c::RedisModuleCtx,
    class: c_int,
    event: *const c_char,
    key: *mut c::RedisModuleString,
) -> c_int {
    guard((), || {
        hear(ctx, class, event, key);
        if shell().server.get().strays {
            // SAFETY: the server's arguments, for the length of this call.
            let (ctx, event) = unsafe { (Ctx::new(&ctx), CStr::from_ptr(event)) };
            strays::heard(ctx, event.to_bytes());
        }
    });
    c::REDISMODULE_OK as c_int
}

fn hear(
    ctx: *mut c::RedisModuleCtx,
    class: c_int,
    event: *const c_char,
    key: *mut c::RedisModuleString,
) {
    let shell = shell();
    // What we do ourselves is no news.
    if shell.performing.get() == Some(key) {
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
    // The new name of a held key is one that nobody knows yet.
    let look = |engine: &Engine| (engine.look_up(key), engine.is_moving());
    let (known, is_moving) = shell.engine.with(look);
    if known.is_some() || is_moving || recheck::concerns(key) {
        // SAFETY: as above.
        let word = unsafe { CStr::from_ptr(event) }.to_bytes();
        let holder = known.flatten();
        let happened = Happened { ctx, key, holder };
        happened.tell(class, word);
    }
}

/// Something happened to a key that is known, or that has taken a known one's place.
struct Happened<'a> {
    ctx: Ctx<'a>,
    key: Key<'a>,
    /// A living connection that holds it.
    holder: Option<ClientId>,
}

impl<'a> Happened<'a> {
    /// Apart from where all events of all keys come by, so that those of others cost little.
    #[inline(never)]
    fn tell(&self, class: c_int, word: &[u8]) {
        let Happened { ctx, key, .. } = *self;
        let is_set = word == b"set";
        if is_set && shell().engine.with(|engine| engine.is_orphaned(key)) {
            // Its owner's estate is worked off later, and this is not a part of it.
            return handle(ctx, Event::TakenOver { key });
        }
        if is_set || word == b"persist" {
            return recheck::overwritten(key);
        }
        // The first comes before the second where it is heard, and ends what the value's own loading has told.
        if class == c::REDISMODULE_NOTIFY_NEW || word == b"restore" {
            recheck::put_back(key);
        }
        let Some(event) = self.fact(class, word) else {
            return;
        };
        match event {
            Event::MovedFrom { .. } if recheck::leaves(key) => return,
            Event::MovedTo { .. } => recheck::arrives(ctx, key),
            Event::Gone { .. } => recheck::gone(key),
            Event::Timed { .. } if self.holder.is_some() => attribution::note_end(ctx, key),
            _ => {}
        }
        let by_itself = matches!(word, b"expired" | b"evicted");
        let tell = || push::in_event(by_itself, || handle(ctx, event));
        if by_itself && shell().turn.get().is_none() {
            // Whose the key is now is asked before anybody who waits for it is served.
            return raw::in_uncaused_event(tell);
        }
        tell();
        if matches!(event, Event::Gone { .. } | Event::MovedFrom { .. }) {
            redirect_waiters(ctx, key);
        }
    }

    fn fact(&self, class: c_int, word: &[u8]) -> Option<Event<'a>> {
        let Happened { ctx, key, .. } = *self;
        Some(match word {
            b"expire" => Event::Timed { key },
            b"rename_from" | b"move_from" => Event::MovedFrom { key },
            b"rename_to" | b"move_to" => {
                let by = self.cause();
                Event::MovedTo { key, by }
            }
            b"copy_to" | b"restore" => self.replaced(),
            b"del" | b"expired" | b"evicted" => {
                let (by, why) = match word {
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
                // Where keys can have gone without a word, what is made in the place of one is another.
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
        self.holder.map_or(Cause::Server, |one| {
            attribution::cause(self.ctx, self.key, one)
        })
    }
}
