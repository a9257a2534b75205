//! The shell: everything that touches the server. It turns callbacks into events for the engine, and the engine's effects
//! into server calls. It decides nothing.
//!
//! ```text
//!   tick.rs       deferred work, when it is due
//!   commands/     commands and settings
//!   persistence/  RDB files, append-only files, the master's stream
//!   bridge/       events in, effects out
//!   delivery/     pushes, replies, answers to blocked clients
//!   server/       what the module has to find out about the server
//!   timer.rs      the one timer
//!   callbacks.rs  what the server calls           guard.rs   no panic reaches the server
//!   state.rs      the shell's state, borrowed in sys/scoped.rs only
//!   sys/          the lowest layer: a safe module API, private functions, memory, time
//! ```
//!
//! Each module uses only those below it. All of them use the engine, `command`, and `policy`, which has the decisions that
//! need no server.
//!
//! ```text
//!   unsafe        sys/raw/ (the module API), sys/main_thread.rs (one thread),
//!                 sys/shim.c and sys/shim.rs (what the API lacks), sys/alloc.rs;
//!                 and a few calls where callbacks are registered and their arguments
//!                 are wrapped: attribution.rs blocked.rs callbacks.rs clock.rs cluster.rs command_filter.rs epochs.rs info.rs
//!                 io_threads.rs keepalive.rs keyspace_events.rs lock_type.rs mod.rs rdb.rs register.rs rights.rs secret.rs
//!                 settings.rs stream.rs unblocked.rs
//! ```

mod bridge;
mod callbacks;
mod commands;
mod delivery;
mod guard;
mod persistence;
mod server;
mod state;
mod sys;
mod tick;
mod timer;

use crate::policy::release;
use crate::policy::server::{Report, Server, Version};
use bridge::{command_filter, keyspace_events, role, server_events, unblocked};
use commands::{info, register, settings};
use persistence::{lock_type, stream};
use redis_module::raw as c;
use server::{epochs, private};
use state::{Callbacks, shell};
use std::ffi::c_int;
use sys::raw::{Ctx, Str, api};

const NAME: &std::ffi::CStr = c"tether";

/// Valkey 9's option; Redis may use the number for another.
const HANDLE_ATOMIC_SLOT_MIGRATION: c_int = 1 << 5;

const CALLBACKS: Callbacks = Callbacks {
    tick: tick::tick,
    on_key: keyspace_events::on_key,
    on_command: command_filter::on_command,
    on_event: server_events::on_event,
    on_unblock: unblocked::on_unblock,
    on_abandoned: unblocked::on_abandoned,
};

/// The entry point of the module.
///
/// # Safety
/// Called by a server that is loading this module, as the module API says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RedisModule_OnLoad(
    ctx: *mut c::RedisModuleCtx,
    arguments: *mut *mut c::RedisModuleString,
    count: c_int,
) -> c_int {
    let (ok, err) = (c::REDISMODULE_OK as c_int, c::REDISMODULE_ERR as c_int);
    // SAFETY: the caller. No module code may allocate before this has filled in the API's table.
    let initialised = unsafe {
        c::Export_RedisModule_Init(
            ctx,
            NAME.as_ptr(),
            release::NUMBER as c_int,
            c::REDISMODULE_APIVER_1 as c_int,
        )
    };
    if initialised != ok {
        // The table is filled by now, unless this is no server that we know.
        if sys::raw::have!(RedisModule_Log) {
            // SAFETY: the server's argument, for the length of this call.
            let ctx: Ctx<'_> = unsafe { Ctx::new(&ctx) };
            ctx.log(
                c"warning",
                "tether is loaded already: the configuration names it twice, perhaps in an included file",
            );
        }
        return err;
    }
    if !sys::raw::have!(RedisModule_RegisterNumericConfig) {
        // SAFETY: as above; every server with modules has a log.
        let ctx: Ctx<'_> = unsafe { Ctx::new(&ctx) };
        ctx.log(
            c"warning",
            "tether is not loaded: it needs Redis 7.0 or Valkey 7.2, or later",
        );
        return err;
    }
    sys::raw::begin();
    state::begin(CALLBACKS);
    guard::install_hook();
    guard::guard(err, || {
        let (ctx, words): (_, &[Str<'_>]) = match count {
            // SAFETY: the server's argument, for the length of this call.
            0 => (unsafe { Ctx::new(&ctx) }, &[]),
            // SAFETY: the same; there are so many words.
            _ => unsafe { sys::raw::given(&ctx, arguments, count) },
        };
        let arguments: Vec<_> = words.iter().map(|word| word.bytes()).collect();
        if !private::begin_trial(&arguments) {
            ctx.log(
                c"warning",
                "tether is not loaded: it takes no arguments after loadmodule; its settings are lines tether.<name> <value>",
            );
            return err;
        }
        if load(ctx) { ok } else { err }
    })
}

/// Registers a part of the module, or says what of it the server refuses.
type Register = fn(Ctx<'_>) -> Result<(), String>;

fn load(ctx: Ctx<'_>) -> bool {
    // SAFETY: the table, the context.
    let detached = unsafe { api!(RedisModule_GetDetachedThreadSafeContext(ctx.as_ptr())) };
    let shell = shell();
    if detached.is_null() {
        ctx.log(
            c"warning",
            "tether is not loaded: the server gives it no context to work in",
        );
        return false;
    }
    sys::raw::keep_detached(detached);
    let server = server(ctx);
    shell.server.set(server);
    sys::raw::store_unix_socket_path(ctx);
    let api = sys::raw::api_state();
    api.event_db_is_wrong_in_exec
        .set(server.event_db_is_wrong_in_exec);
    api.event_moves_client_db.set(server.event_moves_client_db);
    epochs::begin_epoch();
    // SAFETY: the table, the context. A key that is opened for writing but found taken is not written, so closing it must
    // not abort transactions that watch it.
    unsafe {
        let explicit = c::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED as c_int;
        // The module refuses damaged files; without this option the server would abort.
        let refuses = c::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS as c_int;
        // Imported slots are handled in `persistence/stream.rs`.
        let slots = match shell.server.get().moves_slots_in_one_go {
            true => HANDLE_ATOMIC_SLOT_MIGRATION,
            false => 0,
        };
        api!(RedisModule_SetModuleOptions(
            ctx.as_ptr(),
            explicit | refuses | slots
        ));
    }
    role::begin(ctx);
    info::register(ctx);
    let parts: [Register; 4] = [
        lock_type::register,
        register::commands,
        stream::register,
        settings::register,
    ];
    if let Err(what) = parts.iter().try_for_each(|register| register(ctx)) {
        let text = format!("tether is not loaded: the server refuses {what}");
        ctx.log(c"warning", &text);
        return false;
    }
    // Last: if a setting is refused (MODULE LOADEX), Redis 7.0 would call subscribed callbacks of the unloaded library.
    private::decide();
    server_events::subscribe_to_server(ctx);
    epochs::listen(ctx);
    server_events::begin_quarantine(ctx);
    timer::wake_in_ms(0);
    true
}

/// Determines the server's properties.
fn server(ctx: Ctx<'_>) -> Server {
    let field = |name| ctx.server_info(c"server", name);
    let redis = field(c"redis_version");
    let valkey = field(c"valkey_version");
    let (name, stage) = (field(c"server_name"), field(c"valkey_release_stage"));
    let redict = field(c"redict_version");
    let io_threads = ctx.server_setting("io-threads");
    Server::of(
        Version::read(Report {
            redis: redis.as_deref(),
            valkey: valkey.as_deref(),
            name: name.as_deref(),
            stage: stage.as_deref(),
            redict: redict.as_deref(),
        }),
        ctx.state().in_cluster(),
        sys::raw::have!(RedisModule_CommandFilterGetClientId),
        io_threads.is_some_and(|threads| threads != "1"),
    )
}
