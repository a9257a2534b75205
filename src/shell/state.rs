//! All that the shell remembers, in one place that only the server's main thread enters.

use crate::engine::{ClientId, Db, Effect, Engine, Hand, Moment};
use crate::shell::bridge::recheck::Queue;
use crate::shell::delivery::blocked::Blocked;
use crate::shell::delivery::push::Outbox;
use crate::shell::server::cluster::Slots;
use crate::shell::server::io_threads::Threads;
use crate::shell::server::rights::Rights;
use crate::shell::server::slots::Own;
use crate::shell::server::strays::Home;
use crate::shell::sys::private::{Private, Wanted};
use crate::shell::sys::raw::{Ctx, Often, Text};
use crate::shell::sys::scoped::Scoped;
use crate::shell::sys::series::Version;
use redis_module::raw;
use std::cell::{Cell, OnceCell};
use std::sync::atomic::{AtomicUsize, Ordering};

/// What differs between servers, found out once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Server {
    /// A push to the connection whose command is running would be written before that command's
    /// reply, or inside EXEC's (Redis 7.0): all pushes wait until the command is done.
    pub late_pushes: bool,
    /// It ends, sooner or later, when a connection is pushed to while its own command comes upon a lapsed key, or while it
    /// wants no replies and its own command causes an event.
    pub loses_count_of_pushes: bool,
    /// In a transaction, an event's context names the transaction's database and not the event's
    /// (Valkey 9).
    pub event_db_is_wrong_in_exec: bool,
    /// Keys have slots, by which others follow what happens to them.
    pub is_cluster: bool,
    /// By its own word.
    pub version: Option<Version>,
    /// What is done with functions that the module API does not promise. None until that is decided.
    pub private: Option<Private>,
    /// We may use its own function for telling replicas.
    pub tells_directly: bool,
    /// We may use its own function for ending a block; see [`shim::end_block`](crate::shell::sys::shim::end_block).
    pub ends_blocks: bool,
    /// It can say how far its append-only file has been written (`WAITAOF`, since Redis 7.2).
    pub counts_aof: bool,
    /// I/O threads may own a connection's buffers (Redis 8 with `io-threads` above 1).
    pub threads_own_clients: bool,
    /// Slots move with all their keys in one step, if modules say that they can stand it (Valkey 9).
    pub moves_slots_in_one_go: bool,
    /// It leaves connections in the database of an event (Valkey 8.1); see [`strays`](crate::shell::server::strays).
    pub strays: bool,
    /// What stands in a slot that it loses goes without an event (Redis 7.0).
    pub slots_go_silently: bool,
}

/// See [`crate::shell::commands::settings`].
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub resp2_push: bool,
    pub peer_timeout_ms: u32,
    pub cluster_backstop_ms: u32,
    pub quarantine_ms: u32,
    pub private_functions: Wanted,
}

/// What every command asks for stands first, and side by side; the compiler would strew it.
#[repr(C)]
pub struct Shell {
    pub often: Often,
    pub is_replica: Cell<bool>,
    pub rights: Rights,
    /// A data set is being loaded; events mean nothing until it is there.
    pub loading: Cell<bool>,
    /// The server's event loop has run since the module was loaded: what is loaded from now on is no start.
    pub has_started: Cell<bool>,
    /// `rechecks` has something in it, perhaps.
    pub is_any_put_off: Cell<bool>,
    /// There is no other module that could hear what is done to keys.
    pub is_among_deaf: Cell<bool>,
    /// See [`shim::learn_arguments`](crate::shell::sys::shim::learn_arguments): there is no more to learn. The shim knows that as
    /// well; but it is asked with each command, and for who gives that.
    pub knows_arguments: Cell<bool>,
    pub server: Cell<Server>,
    /// A flush that is over but not yet told: what follows shows whether it belongs to a load.
    pub flush: Cell<Option<(Option<Db>, Hand)>>,
    /// The key whose effect is being carried out: events for it are of our own making.
    pub performing: Cell<Option<*mut raw::RedisModuleString>>,
    /// The connection whose command is being executed, and has not replied.
    pub turn: Cell<Option<ClientId>>,
    pub lock_type: Cell<Option<*mut raw::RedisModuleType>>,
    /// When the server last counted a change of ours, other than by a command that was granted.
    pub counted: Cell<Moment>,
    pub fault: Scoped<Option<String>>,
    /// The armed timer and when it goes off.
    pub timer: Cell<Option<(raw::RedisModuleTimerID, Moment)>>,
    /// There was more to do than a slice's time was enough for.
    pub is_behind: Cell<bool>,
    /// A buffer for the engine's orders, so that a command allocates none.
    pub spare: Cell<Vec<Effect>>,
    pub outbox: Scoped<Outbox>,
    pub blocked: Scoped<Blocked>,
    /// Those of [`raw::Word`](crate::shell::sys::raw::Word), made once.
    pub words: OnceCell<[Text; 4]>,
    /// The last value that was given to a key of a waiter's, if it is short.
    pub value: Cell<Option<Text>>,
    /// A context that outlives callbacks, for timers and the log.
    detached: OnceCell<*mut raw::RedisModuleCtx>,
    pub engine: Scoped<Engine>,
    pub threads: Scoped<Threads>,
    /// Keys that are to be looked at again.
    pub rechecks: Scoped<Queue>,
    /// The append-only file is being rewritten, and was not yet told what is bound.
    pub rewrite_is_due: Cell<bool>,
    /// A replica has come that may not know the epoch of tokens.
    pub newcomer: Cell<bool>,
    /// Keys were renewed without telling replicas, because the server wanted no writes.
    pub untold: Cell<bool>,
    /// Whether there were as many replicas as the server wants, when that was last looked at.
    pub enough_replicas: Cell<Option<(Moment, bool)>>,
    /// Whether nobody could ask for a replication offset, when that was last looked at.
    pub nobody_counts: Cell<Option<(Moment, bool)>>,
    pub slots: Scoped<Slots>,
    pub own_slots: Scoped<Own>,
    pub settings: Cell<Settings>,
    pub subscribed: Cell<bool>,
    /// See [`crate::shell::bridge::events::subscribe_to_new`].
    pub hears_of_new: Cell<bool>,
    /// See [`crate::shell::bridge::events::subscribe_to_more`].
    pub hears_more: Cell<bool>,
    /// See [`crate::shell::bridge::events::subscribe_to_settings`].
    pub hears_of_settings: Cell<bool>,
    pub pushes_sent: Cell<u64>,
    /// When the other servers of the cluster were last told of our tokens.
    pub told_others: Cell<Moment>,
    /// Slots have come to this server of a cluster, or are about to.
    pub slots_changed: Cell<bool>,
    /// It is noticed when they do.
    pub hears_of_slots: Cell<bool>,
    /// See [`crate::shell::server::epochs::notice_slots`].
    pub notices_slots: Cell<bool>,
    pub home: Home,
}

struct MainThread(OnceCell<Shell>);

// SAFETY: the server calls a module's commands, events, timers and settings from its main thread
// only, and nothing here starts a thread. Tests do not touch this state.
unsafe impl Sync for MainThread {}

static SHELL: MainThread = MainThread(OnceCell::new());

/// The thread in which the module was loaded: the server's main one.
static MAIN_THREAD: AtomicUsize = AtomicUsize::new(0);

/// A thread's number in the system. To ask for it allocates nothing, so that it may be done in a crash.
fn this_thread() -> usize {
    // SAFETY: takes nothing, and cannot fail.
    unsafe { libc::pthread_self() as usize }
}

/// Whether [`shell`] may be asked for. Only a crash report comes from other threads.
pub fn is_main_thread() -> bool {
    MAIN_THREAD.load(Ordering::Relaxed) == this_thread()
}

/// Makes [`shell`]. Once, at load, before anything else of ours is called and after the API's table is there.
pub fn begin() {
    MAIN_THREAD.store(this_thread(), Ordering::Relaxed);
    let _ = SHELL.0.set(Shell::new());
}

/// What the shell remembers. Asked for some dozen times with each command, so it is not looked every time whether it is there.
#[inline(always)]
pub fn shell() -> &'static Shell {
    let shell = SHELL.0.get();
    debug_assert!(shell.is_some() && is_main_thread());
    // SAFETY: `begin` was called when the module was loaded, before the server was told of anything of ours.
    unsafe { shell.unwrap_unchecked() }
}

impl Shell {
    fn new() -> Self {
        Shell {
            often: Often::of_server(),
            is_replica: Cell::default(),
            rights: Rights::default(),
            loading: Cell::default(),
            has_started: Cell::default(),
            is_any_put_off: Cell::default(),
            is_among_deaf: Cell::default(),
            knows_arguments: Cell::default(),
            server: Cell::default(),
            flush: Cell::default(),
            performing: Cell::default(),
            turn: Cell::default(),
            lock_type: Cell::default(),
            counted: Cell::default(),
            fault: Scoped::default(),
            timer: Cell::default(),
            is_behind: Cell::default(),
            spare: Cell::default(),
            outbox: Scoped::default(),
            blocked: Scoped::default(),
            words: OnceCell::new(),
            value: Cell::default(),
            detached: OnceCell::new(),
            engine: Scoped::default(),
            threads: Scoped::default(),
            rechecks: Scoped::default(),
            rewrite_is_due: Cell::default(),
            newcomer: Cell::default(),
            untold: Cell::default(),
            enough_replicas: Cell::default(),
            nobody_counts: Cell::default(),
            slots: Scoped::default(),
            own_slots: Scoped::default(),
            settings: Cell::new(Settings {
                resp2_push: true,
                peer_timeout_ms: 10_000,
                cluster_backstop_ms: 60_000,
                quarantine_ms: 0,
                private_functions: Wanted::Known,
            }),
            subscribed: Cell::default(),
            hears_of_new: Cell::default(),
            hears_more: Cell::default(),
            hears_of_settings: Cell::default(),
            pushes_sent: Cell::default(),
            told_others: Cell::default(),
            slots_changed: Cell::default(),
            hears_of_slots: Cell::default(),
            notices_slots: Cell::default(),
            home: Home::default(),
        }
    }

    /// Keeps a context that outlives callbacks. Once, at load.
    pub fn keep_detached(&self, ctx: *mut raw::RedisModuleCtx) {
        let _ = self.detached.set(ctx);
    }

    /// Whether this database was flushed, of which the engine was not yet told.
    pub fn is_flushed(&self, db: Db) -> bool {
        let flush = self.flush.get();
        flush.is_some_and(|(flushed, _)| flushed.is_none_or(|flushed| flushed == db))
    }

    /// A context that belongs to no callback.
    pub fn detached(&'static self) -> Option<Ctx<'static>> {
        // SAFETY: a detached context of ours, never freed.
        self.detached.get().map(|ctx| unsafe { Ctx::new(ctx) })
    }
}

/// Notes that something happened that cannot: a bug of ours.
pub fn fault(cause: &str) {
    let shell = shell();
    if let Some(ctx) = shell.detached() {
        ctx.log(
            c"warning",
            &format!("fault, commands are refused from now on: {cause}"),
        );
    }
    let keep = |fault: &mut Option<String>| {
        fault.get_or_insert_with(|| cause.to_owned());
    };
    shell.fault.try_with_mut(keep);
}
