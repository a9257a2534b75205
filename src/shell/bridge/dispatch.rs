//! The bridge: facts to the engine, its effects to the server.
//!
//! Decide, let go, then act: the engine is borrowed only while it decides. Performing an effect
//! makes the server call us back (a removed key is an event), and that inner fact is told and its
//! effects are performed before the next effect of the outer one: the order of things is the
//! keyspace's.

use crate::engine::{Db, Engine, Event, Moment, Timing};
use crate::shell::bridge::perform::{self, CommandContext};
use crate::shell::bridge::{losses, recheck, rights};
use crate::shell::delivery::push;
use crate::shell::guard::guard;
use crate::shell::server::epochs;
use crate::shell::state::shell;
use crate::shell::sys::clock;
use crate::shell::sys::raw::{self, Ctx, Str};
use crate::shell::timer;
use redis_module::raw as c;
use std::ffi::c_void;

/// Tells the engine a fact that is no command.
pub fn handle(ctx: Ctx<'_>, event: Event<'_>) {
    handle_in_command(ctx, None, event);
}

/// Tells the engine a fact; `in_command` is the command that it stands for.
pub fn handle_in_command(ctx: Ctx<'_>, in_command: Option<&CommandContext<'_>>, event: Event<'_>) {
    let shell = shell();
    settle_flush(ctx);
    if shell.rights.matter() {
        rights::look(ctx, &event);
    }
    let mut effects = shell.spare.take();
    let gains = shell.server.get().is_cluster && epochs::may_have_gained();
    let (now, next_work, has_losses) = shell.engine.with_mut(|engine| {
        if gains {
            engine.follow_clock(clock::since_1970());
        }
        let now = match engine.timing(&event) {
            Timing::Exact => clock::now(),
            Timing::Late => clock::lately(),
            Timing::Any => Moment::default(),
        };
        engine.handle(now, event, &mut effects);
        (now, engine.next_work(now), engine.has_new_losses())
    });
    if has_losses {
        losses::describe(ctx);
    }
    for effect in effects.drain(..) {
        perform::perform(ctx, in_command, effect);
    }
    shell.spare.set(effects);
    if let Some(at) = next_work {
        timer::wake_at(now, at);
    }
}

/// The keys that may be touched in this callback.
///
/// In a cluster, servers since Redis 7.2 take every key for one of the slot of the command that is being
/// executed. So in the middle of a command keys of other slots cannot be found, or are made where
/// nobody finds them.
#[derive(Clone, Copy)]
pub enum KeyScope<'a> {
    All,
    /// These, of this database.
    Only(Db, &'a [Str<'a>]),
}

impl<'a> KeyScope<'a> {
    /// In a command for these keys.
    pub fn of_command(ctx: Ctx<'_>, keys: &'a [Str<'a>]) -> Self {
        if shell().server.get().is_cluster {
            KeyScope::Only(ctx.db(), keys)
        } else {
            KeyScope::All
        }
    }
}

/// Handles what was deferred. Before anything else is told, and before pushes are sent or taken back. Says whether there may
/// have been anything.
pub fn catch_up(ctx: Ctx<'_>, reach: KeyScope<'_>) -> bool {
    // This comes before every command, and mostly there is nothing.
    let (flush, look) = (shell().flush.get().is_some(), shell().has_deferred.get());
    if flush {
        settle_deferred_flush(ctx);
    }
    if look {
        recheck::look(ctx, reach);
    }
    flush || look
}

/// Handles a flush that was deferred.
pub fn settle_flush(ctx: Ctx<'_>) {
    if shell().flush.get().is_some() {
        settle_deferred_flush(ctx);
    }
}

#[cold]
fn settle_deferred_flush(ctx: Ctx<'_>) {
    let Some((db, by)) = shell().flush.take() else {
        return;
    };
    let settle_deferred_flush = || handle(ctx, Event::Flushed { db, by });
    if shell().is_replica() {
        // It hears of no end of its master's command: the current command may be a watcher's already.
        push::hold(settle_deferred_flush);
    } else {
        settle_deferred_flush();
    }
    if shell().engine.with(Engine::is_flushing) {
        timer::wake_in_ms(0);
    }
}

/// Has the server call [`catch_up`] as soon as the current command is over, before the next one of
/// its connection; where it does not offer that, a little later.
pub fn catch_up_soon() {
    timer::call_soon(after_command);
}

unsafe extern "C" fn after_command(ctx: *mut c::RedisModuleCtx, _data: *mut c_void) {
    guard((), || {
        // SAFETY: the server's argument, for the length of this call.
        let ctx = unsafe { Ctx::new(&ctx) };
        raw::on_our_own(|| catch_up(ctx, KeyScope::All));
    });
}
