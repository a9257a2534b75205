//! What the server tells us, as facts.
//!
//! Keyspace events come in the middle of others' commands, so nothing here writes. They are subscribed to when the
//! first connection comes to the engine's notice: before that, the module costs other commands nothing. Of keys that
//! come into being only those need to know who watch or wait, so `new` is subscribed to when somebody first does: each
//! key that anybody makes pays for it, and there is no way back on all servers.

use crate::engine::{ClientId, Db, Engine, Event, Hand, Key, Loss};
use crate::shell::bridge::dispatch::{self, Reach, tell};
use crate::shell::bridge::recheck;
use crate::shell::delivery::push;
use crate::shell::guard::guard;
use crate::shell::persistence::{aof, lock_type};
use crate::shell::server::{
    arguments, attribution, cluster, io_threads, listeners, replicas, slots,
};
use crate::shell::state::shell;
use crate::shell::sys::raw::{self, Ctx, Str, api};
use redis_module::raw as c;
use std::ffi::{CStr, c_char, c_int, c_void};

/// Subscribes to what happens to keys that are there, once.
pub fn subscribe(ctx: Ctx<'_>) {
    // A key goes by `del`, `expired` or `evicted`, or by a generic command's event, which also says that
    // another has taken its place. Writes to keys that stay are none of these.
    const CLASSES: c_int = c::REDISMODULE_NOTIFY_GENERIC
        | c::REDISMODULE_NOTIFY_EXPIRED
        | c::REDISMODULE_NOTIFY_EVICTED;
    // A file can name a held key that has lapsed, and is not there. Whoever makes it after that makes another key.
    if shell().loading.get() {
        subscribe_to_new(ctx);
    }
    if shell().subscribed.replace(true) {
        return;
    }
    subscribe_to_more(ctx);
    slots::begin(ctx);
    let server = shell().server.get();
    // Whether somebody takes a time to live away matters only where keys have one of ours.
    let overwriting = match server.is_cluster {
        true => c::REDISMODULE_NOTIFY_STRING as c_int,
        false => 0,
    };
    subscribe_to(ctx, CLASSES | overwriting);
    if server.slots_go_silently {
        // What is made in the place of a key that went without a word is not its owner's.
        subscribe_to_new(ctx);
    }
}

/// Subscribes to keys that come into being, once: in the command with which somebody begins to watch or to wait.
pub fn subscribe_to_new(ctx: Ctx<'_>) {
    if !shell().hears_of_new.replace(true) {
        subscribe_to(ctx, c::REDISMODULE_NOTIFY_NEW);
    }
}

fn subscribe_to(ctx: Ctx<'_>, classes: c_int) {
    let (ctx, call) = (ctx.as_ptr(), Some(on_key as _));
    // SAFETY: the table, the context.
    unsafe { api!(RedisModule_SubscribeToKeyspaceEvents(ctx, classes, call)) };
}

unsafe extern "C" fn on_key(
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
            shell().home.heard(ctx, event.to_bytes());
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
    if shell.engine.with(Engine::is_idle) && !shell.is_any_put_off.get() {
        return;
    }
    // SAFETY: the server's arguments, for the length of this call.
    let (ctx, string) = unsafe { (Ctx::new(&ctx), Str::new(key)) };
    let key = Key {
        db: ctx.event_db(string),
        name: string.bytes(),
    };
    // The new name of a held key is one that nobody knows yet.
    let look = |engine: &Engine| (engine.look_up(key), engine.is_carrying());
    let (known, is_carrying) = shell.engine.with(look);
    if known.is_some() || is_carrying || recheck::concerns(key) {
        // SAFETY: as above.
        let word = unsafe { CStr::from_ptr(event) }.to_bytes();
        let holder = known.flatten();
        let happened = Happened {
            ctx,
            key,
            string,
            holder,
        };
        happened.tell(class, word);
    }
}

/// Something happened to a key that is known, or that has taken a known one's place.
struct Happened<'a> {
    ctx: Ctx<'a>,
    key: Key<'a>,
    string: Str<'a>,
    /// A living connection that holds it.
    holder: Option<ClientId>,
}

impl<'a> Happened<'a> {
    /// Apart from where all events of all keys come by, so that those of others cost little.
    #[inline(never)]
    fn tell(&self, class: c_int, word: &[u8]) {
        let Happened { ctx, key, .. } = *self;
        if matches!(word, b"set" | b"persist") {
            return cluster::overwritten(key);
        }
        // The first comes before the second where it is heard, and ends what the value's own loading has told.
        if class == c::REDISMODULE_NOTIFY_NEW || word == b"restore" {
            lock_type::put_back(key);
        }
        let Some(event) = self.fact(class, word) else {
            return;
        };
        match event {
            Event::MovedFrom { .. } if recheck::leaves(key) => return,
            Event::MovedTo { .. } => recheck::arrives(ctx, key),
            Event::Gone { .. } => recheck::gone(key),
            _ => {}
        }
        push::in_event(word == b"expired", || tell(ctx, event));
        if matches!(event, Event::Gone { .. } | Event::MovedFrom { .. }) {
            cluster::follow(ctx, key);
        }
    }

    fn fact(&self, class: c_int, word: &[u8]) -> Option<Event<'a>> {
        let Happened { ctx, key, .. } = *self;
        Some(match word {
            b"expire" => Event::Timed { key },
            b"rename_from" | b"move_from" => Event::MovedFrom { key },
            b"rename_to" | b"move_to" => {
                let by = self.hand();
                Event::MovedTo { key, by }
            }
            b"copy_to" | b"restore" => self.replaced(),
            b"del" | b"expired" | b"evicted" => {
                let (by, why) = match word {
                    _ if self.holder.is_none() => (Hand::Nobody, Loss::Deleted),
                    b"del" => {
                        let by = cluster::hand_of_removal(ctx, key, self.hand());
                        (by, cluster::loss_of_removal(ctx, key))
                    }
                    b"expired" => (attribution::hand_of_expiry(ctx, key), Loss::Expired),
                    _ => (Hand::Nobody, Loss::Evicted),
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
        let (key, by) = (self.key, self.hand());
        Event::Replaced { key, by }
    }

    fn hand(&self) -> Hand {
        self.holder.map_or(Hand::Nobody, |one| {
            attribution::hand(self.ctx, self.key, self.string, one)
        })
    }
}

type Listener = (u64, c::RedisModuleEventCallback);

/// The server's events that always matter, and what they call.
const ALWAYS: [Listener; 2] = [
    (c::REDISMODULE_EVENT_LOADING, Some(on_loading)),
    (c::REDISMODULE_EVENT_REPLICATION_ROLE_CHANGED, Some(on_role)),
];
/// Valkey 9's event of this name; on Redis the number may mean anything.
const ATOMIC_SLOT_MIGRATION: u64 = 19;

/// Those that matter only where a connection, a key or a token is known. A server goes through its whole list for each
/// of its events, and since Redis 7.2 each value that is overwritten is one.
const LATER: [Listener; 6] = [
    (c::REDISMODULE_EVENT_CLIENT_CHANGE, Some(on_client)),
    (c::REDISMODULE_EVENT_FLUSHDB, Some(on_flush)),
    (c::REDISMODULE_EVENT_SWAPDB, Some(on_swap)),
    (
        c::REDISMODULE_EVENT_REPLICA_CHANGE,
        Some(replicas::on_change),
    ),
    (c::REDISMODULE_EVENT_FORK_CHILD, Some(aof::on_fork)),
    (
        c::REDISMODULE_EVENT_MODULE_CHANGE,
        Some(listeners::on_module),
    ),
];

/// Subscribes to [`ALWAYS`]. Once, at load.
pub fn subscribe_to_server(ctx: Ctx<'_>) {
    ALWAYS.iter().for_each(|one| listen(ctx, *one));
    let server = shell().server.get();
    if server.is_cluster && server.moves_slots_in_one_go {
        listen(ctx, (ATOMIC_SLOT_MIGRATION, Some(on_moving)));
    }
}

/// Subscribes to [`LATER`], once: before the first connection, key or token is known.
pub fn subscribe_to_more(ctx: Ctx<'_>) {
    if !shell().hears_more.replace(true) {
        LATER.iter().for_each(|one| listen(ctx, *one));
        listeners::look_around(ctx);
    }
}

/// Subscribes to changes of the server's settings, once: before one matters.
pub fn subscribe_to_settings(ctx: Ctx<'_>) {
    const SETTINGS: Listener = (c::REDISMODULE_EVENT_CONFIG, Some(replicas::on_setting));
    if !shell().hears_of_settings.replace(true) {
        listen(ctx, SETTINGS);
    }
}

fn listen(ctx: Ctx<'_>, (id, callback): Listener) {
    let event = c::RedisModuleEvent { id, dataver: 1 };
    let ctx = ctx.as_ptr();
    // SAFETY: the table, the context.
    unsafe { api!(RedisModule_SubscribeToServerEvent(ctx, event, callback)) };
}

unsafe extern "C" fn on_client(
    ctx: *mut c::RedisModuleCtx,
    _event: c::RedisModuleEvent,
    subevent: u64,
    data: *mut c_void,
) {
    if subevent != c::REDISMODULE_SUBEVENT_CLIENT_CHANGE_DISCONNECTED {
        return;
    }
    guard((), || {
        // SAFETY: the server's arguments, for the length of this call; this event comes with this
        // structure.
        let (ctx, info) = unsafe { raw::event::<c::RedisModuleClientInfo>(&ctx, data) };
        let Some(client) = info.map(|info| ClientId(info.id)) else {
            return;
        };
        if shell().engine.with(|engine| engine.knows_client(client)) {
            io_threads::forget(client);
            arguments::forget(client);
            // A lock of its own may have been overwritten: that key is not its any more.
            dispatch::catch_up(ctx, Reach::of_command(ctx, &[]));
            dispatch::end(ctx, client);
        }
    });
}

unsafe extern "C" fn on_flush(
    ctx: *mut c::RedisModuleCtx,
    _event: c::RedisModuleEvent,
    subevent: u64,
    data: *mut c_void,
) {
    guard((), || {
        // SAFETY: as in `on_client`.
        let (ctx, flush) = unsafe { raw::event::<c::RedisModuleFlushInfo>(&ctx, data) };
        let Some(flush) = flush else { return };
        if subevent == c::REDISMODULE_SUBEVENT_FLUSHDB_START {
            // What has happened to keys until now can still be seen. (In a cluster, what waits here is of the very command
            // that flushes, and so of its slot.) And of two flushes in one transaction the first is told first.
            dispatch::catch_up(ctx, Reach::All);
            return io_threads::flush_begins();
        }
        io_threads::flush_ends();
        let shell = shell();
        let db = u32::try_from(flush.dbnum).ok().map(Db);
        recheck::flushed(db);
        if shell.engine.with(|engine| engine.is_idle()) {
            return;
        }
        let by = attribution::hand_among_all(ctx);
        // Within a load, the file says it of what it told before.
        if shell.loading.get() {
            return tell(ctx, Event::Flushed { db, by });
        }
        // It may begin a load, whose end tells what is different.
        shell.flush.set(Some((db, by)));
        push::expect_late_reply();
        dispatch::catch_up_soon();
    });
}

unsafe extern "C" fn on_swap(
    ctx: *mut c::RedisModuleCtx,
    _event: c::RedisModuleEvent,
    _subevent: u64,
    data: *mut c_void,
) {
    guard((), || {
        // SAFETY: as in `on_client`.
        let (ctx, swap) = unsafe { raw::event::<c::RedisModuleSwapDbInfo>(&ctx, data) };
        let Some(swap) = swap else { return };
        let (one, other) = (Db(swap.dbnum_first as u32), Db(swap.dbnum_second as u32));
        recheck::swapped(one, other);
        tell(ctx, Event::Swapped { one, other });
        let known = |engine: &Engine| engine.keys_to_look_at(&[one, other]);
        recheck::look_again(ctx, shell().engine.with(known));
    });
}

unsafe extern "C" fn on_moving(
    _ctx: *mut c::RedisModuleCtx,
    _event: c::RedisModuleEvent,
    _subevent: u64,
    _data: *mut c_void,
) {
    guard((), cluster::moves_have_changed);
}

unsafe extern "C" fn on_loading(
    ctx: *mut c::RedisModuleCtx,
    _event: c::RedisModuleEvent,
    subevent: u64,
    _data: *mut c_void,
) {
    guard((), || {
        let shell = shell();
        let ended = matches!(
            subevent,
            c::REDISMODULE_SUBEVENT_LOADING_ENDED | c::REDISMODULE_SUBEVENT_LOADING_FAILED
        );
        // SAFETY: the server's argument, for the length of this call.
        let ctx = unsafe { Ctx::new(&ctx) };
        shell.loading.set(!ended);
        shell.flush.set(None);
        cluster::moves_have_changed();
        if ended {
            tell(ctx, Event::LoadEnded);
            crate::shell::begin_epoch();
            crate::shell::begin_quarantine(ctx);
            recheck::look_again(ctx, shell.engine.with(Engine::keys_of_the_living));
            cluster::renew_all(ctx);
            dispatch::wake_in_ms(0);
        } else {
            tell(ctx, Event::LoadBegins);
        }
    });
}

unsafe extern "C" fn on_role(
    ctx: *mut c::RedisModuleCtx,
    _event: c::RedisModuleEvent,
    subevent: u64,
    _data: *mut c_void,
) {
    guard((), || {
        // SAFETY: the server's argument, for the length of this call.
        let ctx = unsafe { Ctx::new(&ctx) };
        replicas::count_again();
        let is_replica = subevent == c::REDISMODULE_EVENT_REPLROLECHANGED_NOW_REPLICA;
        shell().is_replica.set(is_replica);
        slots::forget();
        if is_replica {
            if shell().server.get().is_cluster {
                cluster::send_all_away(ctx);
            }
            tell(ctx, Event::Demoted);
        } else {
            crate::shell::begin_epoch();
            tell(ctx, Event::Promoted);
            cluster::renew_all(ctx);
        }
        dispatch::wake_in_ms(0);
    });
}
