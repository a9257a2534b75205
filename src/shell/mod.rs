//! The shell: all that touches the server. It turns what the server does into facts for the engine
//! and the engine's orders into server calls, and decides nothing.
//!
//! ```text
//!   commands/     commands and settings: the server's arguments in, answers out
//!   bridge/       facts go in, orders out: events of the server, dispatch, what is performed
//!   delivery/     frames that are no replies, and answers to those who wait
//!   server/       what the server knows and does not tell by itself
//!   persistence/  RDB files, append-only files, replicas
//!   state.rs      what is remembered, borrowed in sys/scoped.rs only
//!   guard.rs      the border: no panic crosses it
//!   sys/          the bottom: the module API made safe, what it lacks, memory, time
//!   unsafe        sys/raw/ (the module API),
//!                 sys/shim.c and sys/shim.rs (what it lacks), sys/alloc.rs, state.rs (one thread);
//!                 and a call or two where callbacks are handed in and what they are given
//!                 is taken over: aof.rs arguments.rs attribution.rs blocked.rs clock.rs dispatch.rs epochs.rs events.rs info.rs
//!                 io_threads.rs keepalive.rs listeners.rs lock_type.rs mod.rs rdb.rs register.rs rights.rs secret.rs settings.rs
//!                 stream.rs
//! ```

mod bridge;
mod commands;
mod delivery;
mod guard;
mod persistence;
mod server;
mod state;
mod sys;

use bridge::{dispatch, events};
use commands::{info, register, settings};
use persistence::{lock_type, stream};
use redis_module::raw as c;
use server::epochs;
use state::{Server, shell};
use std::ffi::c_int;
use sys::raw::{Ctx, api};
use sys::series::Version;
use sys::{clock, private};

const NAME: &std::ffi::CStr = c"tether";
const VERSION: c_int = 100;

/// Valkey 9's option of this name; on Redis the number may mean anything.
const HANDLE_ATOMIC_SLOT_MIGRATION: c_int = 1 << 5;

/// The server's way in.
///
/// # Safety
/// Called by a server that is loading this module, as the module API says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RedisModule_OnLoad(
    ctx: *mut c::RedisModuleCtx,
    _arguments: *mut *mut c::RedisModuleString,
    count: c_int,
) -> c_int {
    let (ok, err) = (c::REDISMODULE_OK as c_int, c::REDISMODULE_ERR as c_int);
    // SAFETY: the caller. Nothing of ours may allocate before this has filled in the API's table.
    let initialised = unsafe {
        c::Export_RedisModule_Init(
            ctx,
            NAME.as_ptr(),
            VERSION,
            c::REDISMODULE_APIVER_1 as c_int,
        )
    };
    if initialised != ok {
        return err;
    }
    state::begin();
    guard::install_hook();
    guard::guard(err, || {
        // SAFETY: the server's argument, for the length of this call.
        let ctx = unsafe { Ctx::new(&ctx) };
        if count != 0 {
            ctx.log(
                c"warning",
                "tether takes no arguments after loadmodule; its settings are lines tether.<name> <value>",
            );
            return err;
        }
        if load(ctx) { ok } else { err }
    })
}

fn load(ctx: Ctx<'_>) -> bool {
    // SAFETY: the table, the context.
    let detached = unsafe { api!(RedisModule_GetDetachedThreadSafeContext(ctx.as_ptr())) };
    let shell = shell();
    if detached.is_null() {
        return false;
    }
    shell.keep_detached(detached);
    shell.server.set(server(ctx));
    shell.is_replica.set(ctx.state().is_replica());
    begin_epoch();
    // SAFETY: the table, the context. A key that is opened for writing and found taken is not
    // written, so closing it must not abort transactions that watch it.
    unsafe {
        let explicit = c::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED as c_int;
        // A damaged file is refused by us; without this option the server would abort.
        let refuses = c::REDISMODULE_OPTIONS_HANDLE_IO_ERRORS as c_int;
        // What comes with a slot is in `replay.rs`.
        let slots = match shell.server.get().moves_slots_in_one_go {
            true => HANDLE_ATOMIC_SLOT_MIGRATION,
            false => 0,
        };
        api!(RedisModule_SetModuleOptions(
            ctx.as_ptr(),
            explicit | refuses | slots
        ));
    }
    if shell.is_replica.get() {
        dispatch::tell(ctx, crate::engine::Event::Demoted);
    }
    info::register(ctx);
    let is_loaded = lock_type::register(ctx)
        && register::commands(ctx)
        && stream::register(ctx)
        && settings::register(ctx);
    // The last: a setting may have been refused (MODULE LOADEX), and Redis 7.0 goes on to call a library that it has put away.
    if is_loaded {
        private::decide();
        events::subscribe_to_server(ctx);
        epochs::listen(ctx);
        begin_quarantine(ctx);
        dispatch::wake_in_ms(0);
    }
    is_loaded
}

/// Lets nothing be granted for a while, as `tether.quarantine` says: when the module is loaded, and when the server has
/// then loaded its files. Not on a replica, and so not at a promotion either.
fn begin_quarantine(ctx: Ctx<'_>) {
    let shell = shell();
    let ms = shell.settings.get().quarantine_ms.into();
    if ms > 0 && !shell.is_replica.get() && !shell.has_started.get() {
        dispatch::tell(ctx, crate::engine::Event::Quarantine { ms });
    }
}

/// Makes all fencing tokens from now on greater than those before: at load and at promotion.
fn begin_epoch() {
    let since_1970 = clock::since_1970();
    let shell = shell();
    shell.engine.with_mut(|engine| {
        if shell.server.get().is_cluster {
            engine.follow_clock(since_1970);
        }
        engine.begin_epoch(since_1970);
    });
}

/// Finds out what is special about this server.
fn server(ctx: Ctx<'_>) -> Server {
    let redis = ctx.server_info(c"server", c"redis_version");
    let valkey = ctx.server_info(c"server", c"valkey_version");
    let version = Version::read(redis.as_deref(), valkey.as_deref());
    let series_if = |is_valkey| {
        let version = version.filter(|version| version.is_valkey == is_valkey);
        version.map(|version| version.series)
    };
    let (redis, valkey) = (series_if(false), series_if(true));
    let io_threads = ctx.server_setting(c"io-threads");
    let is_cluster = ctx.state().in_cluster();
    let threads_own_clients =
        redis >= Some((8, 0)) && io_threads.is_some_and(|threads| threads != "1");
    Server {
        event_db_is_wrong_in_exec: valkey >= Some((9, 0)),
        is_cluster,
        moves_slots_in_one_go: valkey >= Some((9, 0)),
        // See `private.rs`.
        tells_directly: false,
        ends_blocks: false,
        private: None,
        version,
        late_pushes: !sys::raw::have!(RedisModule_CommandFilterGetClientId),
        strays: valkey == Some((8, 1)),
        loses_count_of_pushes: valkey >= Some((8, 1)),
        slots_go_silently: is_cluster && !sys::raw::have!(RedisModule_CommandFilterGetClientId),
        // Each Valkey came from a Redis that can.
        counts_aof: valkey.is_some() || redis >= Some((7, 2)),
        threads_own_clients,
    }
}
