//! The shell's state, in one place that only the server's main thread accesses.

use crate::engine::{Cause, ClientId, Db, Effect, Engine, Moment, Survey, Token};
use crate::policy::attribution::{InPause, RecentClients};
use crate::policy::blocked::Blocked;
use crate::policy::io_threads::IoThreads;
use crate::policy::losses::LossLog;
use crate::policy::outbox::Outbox;
use crate::policy::pages::Pages;
use crate::policy::recheck::Queue;
use crate::policy::release::Release;
use crate::policy::rights::{Rights, Sights};
use crate::policy::server::{Server, Wanted};
use crate::policy::slots::{ServedSlots, SlotSet, Slots};
use crate::shell::sys::main_thread::MainThread;
use crate::shell::sys::raw::{
    BlockHandle, CommandFilter, Ctx, Job, OnAbandoned, OnAnswer, OnKey, ServerEvent, Text, Timer,
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

impl Default for Settings {
    fn default() -> Self {
        Settings {
            resp2_push: true,
            peer_timeout_ms: 10_000,
            cluster_backstop_ms: 60_000,
            quarantine_ms: 0,
            max_grace_ms: 86_400_000,
            private_functions: Wanted::Known,
        }
    }
}

/// Callbacks defined in upper modules, for the lower modules that register them.
pub struct Callbacks {
    /// The timer fired.
    pub tick: Job,
    pub on_key: OnKey,
    pub on_command: CommandFilter,
    pub on_event: fn(Ctx<'_>, ServerEvent<'_>),
    /// `CLIENT UNBLOCK`.
    pub on_unblock: OnAnswer,
    /// A blocked client disconnected, or the server replied to it.
    pub on_abandoned: OnAbandoned,
}

/// The fields that every command reads come first, in adjacent cache lines; `repr(C)` keeps them there.
#[derive(Default)]
#[repr(C)]
pub struct Shell {
    /// The last clients that sent commands; see [`attribution`](crate::policy::attribution).
    pub recent_clients: Cell<RecentClients>,
    /// See [`InPause`].
    pub in_pause: Scoped<InPause>,
    /// `recent_clients` is maintained.
    pub notes_executing: Cell<bool>,
    pub rights: Rights,
    /// The filter watches for commands that change slot ownership; see `server/cluster.rs`.
    pub filters_slots: Cell<bool>,
    /// The filter watches for commands that affect client tracking; see `server/io_threads.rs`.
    pub filters_tracking: Cell<bool>,
    /// The server's event loop has run since the module was loaded: later loads are not part of the start.
    pub has_started: Cell<bool>,
    /// `rechecks` may be non-empty.
    pub has_deferred: Cell<bool>,
    /// See [`shim::learn_executing`](crate::shell::sys::shim::learn_executing): nothing more to learn. Kept here, too,
    /// because every command checks it.
    pub knows_executing: Cell<bool>,
    pub server: Cell<Server>,
    /// A flush that the engine has not handled yet: the next event shows whether it belongs to a load.
    pub flush: Cell<Option<(Option<Db>, Cause)>>,
    /// The key that the module is writing: its events are the module's own.
    pub key_being_written: Cell<Option<*mut raw::RedisModuleString>>,
    /// The client whose command is executing and has not replied.
    pub executing_client: Cell<Option<ClientId>>,
    /// Ends of held keys' TTLs, since 1970, by the token of each key's first grant.
    pub ttl_ends: Scoped<HashMap<Token, Duration>>,
    pub fault: Scoped<Option<String>>,
    /// The armed timer and its deadline.
    pub timer: Cell<Option<(Timer, Moment)>>,
    /// Subscribed to the server's cron; see `timer.rs`.
    pub subscribed_to_cron: Cell<bool>,
    /// The server has said that it will load a data set, and nothing of it has come yet.
    pub load_is_to_begin: Cell<bool>,
    /// The last slice ended with work left.
    pub is_behind: Cell<bool>,
    /// The engine has keys to write while the server refuses writes: the tick tries again by itself; see `bridge/slices.rs`.
    pub awaits_writes: Cell<bool>,
    /// Reused for the engine's effects, so that a command allocates none.
    pub effects_buffer: Cell<Vec<Effect>>,
    /// What `LOCK.LOG` returns.
    pub losses: Scoped<LossLog>,
    pub outbox: Scoped<Outbox>,
    /// See [`defer_during`](crate::shell::delivery::push::defer_during).
    pub defers_pushes: Cell<bool>,
    /// Queued pushes are sent right after the current command.
    pub pushes_soon: Cell<bool>,
    pub blocked: Scoped<Blocked<BlockHandle>>,
    /// The value last written for a waiter, if short.
    pub value: Cell<Option<Text>>,
    pub engine: Scoped<Engine>,
    pub threads: Scoped<IoThreads>,
    /// Keys to look up again.
    pub rechecks: Scoped<Queue>,
    /// The name of the lock that was unlinked last, as the server passed it; kept until `rechecks` is empty.
    pub last_unlinked: Cell<Option<Text>>,
    /// The append-only file is being rewritten, and still lacks the holds.
    pub rewrite_is_due: Cell<bool>,
    /// A replica connected that may not know the token epoch.
    pub has_new_replica: Cell<bool>,
    /// The version that wrote the input read last: a file, or the master's stream.
    pub sender: Scoped<Release>,
    /// The tokens of the keys of the next `TETHER.BOUND`.
    pub bound_tokens: Scoped<Vec<Token>>,
    /// Number of refused records in it.
    pub refused: Cell<u64>,
    /// Records of the master's stream were refused, although the replication offset advanced: until a full resync this
    /// server does not know what sessions hold.
    pub has_refused_records: Cell<bool>,
    /// TTLs were refreshed but not replicated, since the server refused writes.
    pub has_unreplicated_ttls: Cell<bool>,
    /// Cached: whether the server has the replicas that it requires.
    pub enough_replicas: Cell<Option<(Moment, bool)>>,
    /// Cached: whether it requires none.
    pub requires_no_replicas: Cell<bool>,
    /// Cached: whether `WAIT` and `WAITAOF` have nothing to wait for.
    pub no_offset_waiters: Cell<Option<(Moment, bool)>>,
    /// Cached: whether nobody reads what is replicated.
    pub no_readers: Cell<Option<(Moment, bool)>>,
    /// It was so when last looked at, and is until [`invalidate`](crate::shell::server::replicas::invalidate).
    pub nobody_reads: Cell<bool>,
    /// Acknowledgements of grants are counted; see `bridge/acks.rs`.
    pub counts_acks: Cell<bool>,
    /// Replicas connected or disconnected since the last count.
    pub replicas_changed: Cell<bool>,
    pub slots: Scoped<Slots>,
    pub served_slots: Scoped<ServedSlots>,
    /// A replica of the cluster to which the server has given no master yet.
    pub awaits_master: Cell<bool>,
    /// What users may see, as numbers; see `server/rights.rs`.
    pub sights: Scoped<Sights>,
    /// Of this turn of the server's event loop.
    pub pages: Cell<Pages>,
    /// Migrated slots whose keys may have been deleted since the last recheck.
    pub trimmed: Cell<Option<SlotSet>>,
    pub settings: Cell<Settings>,
    /// `tether.qualified`: the build ids of servers that have qualified.
    pub qualified: Scoped<Vec<String>>,
    /// The same as the server was told last.
    pub qualified_text: Cell<Option<Text>>,
    /// The build id of the running program, once it was read.
    pub program: Scoped<Option<String>>,
    /// `tether qualify` tries the server; see `server/private.rs`.
    pub is_trial: Cell<bool>,
    /// Settings are refused, see `commands/settings.rs`.
    pub refuses_settings: Cell<bool>,
    /// Subscriptions; see `server/subscriptions.rs`.
    pub subscribed_to_keys: Cell<bool>,
    pub subscribed_to_new_keys: Cell<bool>,
    pub subscribed_to_overwrites: Cell<bool>,
    pub subscribed_to_values: Cell<bool>,
    pub subscribed_to_own_events: Cell<bool>,
    pub subscribed_to_server_events: Cell<bool>,
    pub subscribed_to_settings: Cell<bool>,
    pub filters_commands: Cell<bool>,
    pub subscribed_to_event_loop: Cell<bool>,
    pub pushes_sent: Cell<u64>,
    /// What INFO has found of the oldest wait and hold, and of the longest queue.
    pub survey: Scoped<Survey>,
    /// When the last token was last broadcast to the cluster.
    pub epoch_sent_at: Cell<Moment>,
    /// This node gained slots, or is about to.
    pub slots_changed: Cell<bool>,
    /// Gained slots are detected.
    pub notices_slot_gains: Cell<bool>,
    /// The source database of a MOVE; see `server/client_db.rs`.
    pub moved_from_db: Cell<Option<Db>>,
    /// Lower-case names of the server's own commands, as looked up; see `commands/guarded.rs`.
    pub own_commands: Scoped<HashSet<Box<[u8]>>>,
}

static SHELL: MainThread<Shell> = MainThread::new();
static CALLBACKS: MainThread<Callbacks> = MainThread::new();

/// Makes [`shell`] and [`callbacks`]. Once, at load, before anything else of ours is called.
pub fn begin(callbacks: Callbacks) {
    SHELL.begin(Shell::default());
    CALLBACKS.begin(callbacks);
}

pub fn callbacks() -> &'static Callbacks {
    CALLBACKS.get()
}

/// The shell's state.
#[inline(always)]
pub fn shell() -> &'static Shell {
    SHELL.get()
}

impl Shell {
    /// Whether this server is a replica, whose keys its master decides.
    #[inline]
    pub fn is_replica(&self) -> bool {
        self.engine.with(Engine::is_replica)
    }

    /// Whether a data set is being loaded; keyspace events are meaningless until it is complete.
    #[inline]
    pub fn is_loading(&self) -> bool {
        self.engine.with(Engine::is_loading)
    }

    /// Whether a deferred flush covers this database.
    pub fn is_flushed(&self, db: Db) -> bool {
        let flush = self.flush.get();
        flush.is_some_and(|(flushed, _)| flushed.is_none_or(|flushed| flushed == db))
    }
}

/// Records a fault: a bug in the module.
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
