//! All that the shell remembers, in one place that only the server's main thread enters.

use crate::engine::{Cause, ClientId, Db, Effect, Engine, Moment, Token};
use crate::policy::attribution::Noted;
use crate::policy::blocked::Blocked;
use crate::policy::io_threads::Threads;
use crate::policy::losses::LossLog;
use crate::policy::outbox::Outbox;
use crate::policy::recheck::Queue;
use crate::policy::release::Release;
use crate::policy::rights::Rights;
use crate::policy::server::{Server, Wanted};
use crate::policy::slots::{Own, Slots};
use crate::shell::sys::main_thread::MainThread;
use crate::shell::sys::raw::{
    BlockHandle, Callback, CommandFilter, Listener, OnAbandoned, OnAnswer, OnKey, Text, Timer,
    detached,
};
use crate::shell::sys::scoped::Scoped;
use hashbrown::HashMap;
use redis_module::raw;
use std::cell::Cell;
use std::collections::HashSet;
use std::time::Duration;

/// See `shell/commands/settings.rs`.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub resp2_push: bool,
    pub peer_timeout_ms: u32,
    pub cluster_backstop_ms: u32,
    pub quarantine_ms: u32,
    pub max_grace_ms: u32,
    pub private_functions: Wanted,
}

/// What the server calls of those rooms that stand above the ones in which it is asked to.
pub struct Callbacks {
    /// The timer has gone off.
    pub tick: Callback,
    pub on_key: OnKey,
    pub on_command: CommandFilter,
    pub on_event_loop: raw::RedisModuleEventCallback,
    pub on_setting: raw::RedisModuleEventCallback,
    /// Those of the server's events that matter only where something is known here.
    pub later: [&'static [Listener]; 2],
    /// `CLIENT UNBLOCK`.
    pub on_unblock: OnAnswer,
    /// A blocked client is gone, or was answered by the server.
    pub on_abandoned: OnAbandoned,
}

/// What every command asks for stands first, and side by side; the compiler would strew it.
#[repr(C)]
pub struct Shell {
    /// Who has given commands; see [`attribution`](crate::policy::attribution).
    pub noted: Cell<Noted>,
    /// That is noted.
    pub notes_clients: Cell<bool>,
    pub rights: Rights,
    /// Commands that say whose a slot is are noticed; see `server/cluster.rs`.
    pub notices_slots: Cell<bool>,
    /// So are those that touch a connection's tracking; see `server/io_threads.rs`.
    pub notices_tracking: Cell<bool>,
    /// The server's event loop has run since the module was loaded: what is loaded from now on is no start.
    pub has_started: Cell<bool>,
    /// `rechecks` has something in it, perhaps.
    pub has_deferred: Cell<bool>,
    /// See [`shim::learn_executing`](crate::shell::sys::shim::learn_executing): there is no more to learn. The shim knows that as
    /// well; but it is asked with each command, and for who gives that.
    pub knows_executing: Cell<bool>,
    pub server: Cell<Server>,
    /// A flush that is over but not yet told: what follows shows whether it belongs to a load.
    pub flush: Cell<Option<(Option<Db>, Cause)>>,
    /// The key whose effect is being carried out: events for it are of our own making.
    pub performing: Cell<Option<*mut raw::RedisModuleString>>,
    /// The connection whose command is being executed, and has not replied.
    pub turn: Cell<Option<ClientId>>,
    /// When the times to live end, since 1970, that held keys were given; by the tokens that they were first granted with.
    pub ends: Scoped<HashMap<Token, Duration>>,
    pub fault: Scoped<Option<String>>,
    /// The armed timer and when it goes off.
    pub timer: Cell<Option<(Timer, Moment)>>,
    /// The server's cron is listened to; see `timer.rs`.
    pub hears_of_cron: Cell<bool>,
    /// There was more to do than a slice's time was enough for.
    pub is_behind: Cell<bool>,
    /// A buffer for the engine's effects, so that a command allocates none.
    pub spare: Cell<Vec<Effect>>,
    /// What `LOCK.LOG` returns.
    pub losses: Scoped<LossLog>,
    pub outbox: Scoped<Outbox>,
    /// See [`hold`](crate::shell::delivery::push::hold).
    pub holds_pushes: Cell<bool>,
    /// What is pushed follows from a keyspace event; see [`in_event`](crate::shell::delivery::push::in_event).
    pub pushes_in_event: Cell<bool>,
    pub blocked: Scoped<Blocked<BlockHandle>>,
    /// The last value that was given to a key of a waiter's, if it is short.
    pub value: Cell<Option<Text>>,
    pub engine: Scoped<Engine>,
    pub threads: Scoped<Threads>,
    /// Keys that are to be looked at again.
    pub rechecks: Scoped<Queue>,
    /// The append-only file is being rewritten, and was not yet told what is bound.
    pub rewrite_is_due: Cell<bool>,
    /// A replica has come that may not know the epoch of tokens.
    pub newcomer: Cell<bool>,
    /// The tether that told what was read last: a file, or this server's master.
    pub sender: Scoped<Release>,
    /// How often something of that was refused.
    pub refused: Cell<u64>,
    /// Of those things this server's master told some, which acknowledges them all the same: until it is told everything anew
    /// this server does not know what sessions hold.
    pub misses_something: Cell<bool>,
    /// Keys were renewed and that was not replicated, because the server wanted no writes.
    pub unreplicated: Cell<bool>,
    /// Whether there were as many replicas as the server wants, when that was last looked at.
    pub enough_replicas: Cell<Option<(Moment, bool)>>,
    /// Whether nobody could ask for a replication offset, when that was last looked at.
    pub nobody_counts: Cell<Option<(Moment, bool)>>,
    /// Acknowledgements of grants are counted; see `bridge/acks.rs`.
    pub counts_acks: Cell<bool>,
    /// A replica has come or gone since they were last counted.
    pub replicas_changed: Cell<bool>,
    pub slots: Scoped<Slots>,
    pub own_slots: Scoped<Own>,
    /// What stood in slots that have moved is being deleted, or was, since keys were last looked at for that.
    pub trims: Cell<bool>,
    pub settings: Cell<Settings>,
    /// None is taken, see `commands/settings.rs`.
    pub refuses_settings: Cell<bool>,
    /// What is subscribed to; see `server/subscriptions.rs`.
    pub hears_of_keys: Cell<bool>,
    pub hears_of_new: Cell<bool>,
    pub hears_of_overwriting: Cell<bool>,
    pub hears_of_server: Cell<bool>,
    pub hears_of_settings: Cell<bool>,
    pub hears_of_commands: Cell<bool>,
    pub hears_event_loop: Cell<bool>,
    pub pushes_sent: Cell<u64>,
    /// When the other servers of the cluster were last told of our tokens.
    pub told_others: Cell<Moment>,
    /// Slots have come to this server of a cluster, or are about to.
    pub slots_changed: Cell<bool>,
    /// It is noticed when they do.
    pub hears_of_slots: Cell<bool>,
    /// Where a key was that is being moved; see `server/strays.rs`.
    pub home: Cell<Option<Db>>,
    pub callbacks: Callbacks,
    /// Names of commands that are the server's own and no module's, in lower case; see `commands/guarded.rs`.
    pub own_commands: Scoped<HashSet<Box<[u8]>>>,
}

static SHELL: MainThread<Shell> = MainThread::new();

/// Makes [`shell`]. Once, at load, before anything else of ours is called.
pub fn begin(callbacks: Callbacks) {
    SHELL.begin(Shell::new(callbacks));
}

/// What the shell remembers.
#[inline(always)]
pub fn shell() -> &'static Shell {
    SHELL.get()
}

impl Shell {
    fn new(callbacks: Callbacks) -> Self {
        Shell {
            noted: Cell::new(Noted::only(ClientId(0))),
            notes_clients: Cell::default(),
            rights: Rights::default(),
            notices_slots: Cell::default(),
            notices_tracking: Cell::default(),
            has_started: Cell::default(),
            has_deferred: Cell::default(),
            knows_executing: Cell::default(),
            server: Cell::default(),
            flush: Cell::default(),
            performing: Cell::default(),
            turn: Cell::default(),
            ends: Scoped::default(),
            fault: Scoped::default(),
            timer: Cell::default(),
            hears_of_cron: Cell::default(),
            is_behind: Cell::default(),
            spare: Cell::default(),
            losses: Scoped::default(),
            outbox: Scoped::default(),
            holds_pushes: Cell::default(),
            pushes_in_event: Cell::default(),
            blocked: Scoped::default(),
            value: Cell::default(),
            engine: Scoped::default(),
            threads: Scoped::default(),
            rechecks: Scoped::default(),
            rewrite_is_due: Cell::default(),
            newcomer: Cell::default(),
            sender: Scoped::default(),
            refused: Cell::default(),
            misses_something: Cell::default(),
            unreplicated: Cell::default(),
            enough_replicas: Cell::default(),
            nobody_counts: Cell::default(),
            counts_acks: Cell::default(),
            replicas_changed: Cell::default(),
            slots: Scoped::default(),
            own_slots: Scoped::default(),
            trims: Cell::default(),
            settings: Cell::new(Settings {
                resp2_push: true,
                peer_timeout_ms: 10_000,
                cluster_backstop_ms: 60_000,
                quarantine_ms: 0,
                max_grace_ms: 86_400_000,
                private_functions: Wanted::Known,
            }),
            refuses_settings: Cell::default(),
            hears_of_keys: Cell::default(),
            hears_of_new: Cell::default(),
            hears_of_overwriting: Cell::default(),
            hears_of_server: Cell::default(),
            hears_of_settings: Cell::default(),
            hears_of_commands: Cell::default(),
            hears_event_loop: Cell::default(),
            pushes_sent: Cell::default(),
            told_others: Cell::default(),
            slots_changed: Cell::default(),
            hears_of_slots: Cell::default(),
            home: Cell::default(),
            callbacks,
            own_commands: Scoped::default(),
        }
    }

    /// A master decides about the keys.
    #[inline]
    pub fn is_replica(&self) -> bool {
        self.engine.with(Engine::is_replica)
    }

    /// A data set is being loaded; events mean nothing until it is there.
    #[inline]
    pub fn is_loading(&self) -> bool {
        self.engine.with(Engine::is_loading)
    }

    /// Whether this database was flushed, of which the engine was not yet told.
    pub fn is_flushed(&self, db: Db) -> bool {
        let flush = self.flush.get();
        flush.is_some_and(|(flushed, _)| flushed.is_none_or(|flushed| flushed == db))
    }
}

/// Notes that something happened that cannot: a bug of ours.
pub fn fault(cause: &str) {
    let shell = shell();
    if let Some(ctx) = detached() {
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
