//! Passes an event to the engine and performs the effects.
//!
//! Decide, release, act: the engine is borrowed only while it decides. Performing an effect may call back into the module
//! (removing a key raises a keyspace event). That inner event is handled, with its effects, before the next effect of the
//! outer event, so effects keep the order of the keyspace. What follows from an effect itself ([`Follows`]) is handled in
//! the same order.

use crate::engine::{
    Effect, Engine, Event, Form, Key, KeySnapshot, KeyState, Loss, Moment, Timing,
};
use crate::policy::slots::SlotOwner;
use crate::shell::bridge::perform::{CommandContext, Follows, perform};
use crate::shell::delivery::push;
use crate::shell::server::{cluster, epochs, subscriptions};
use crate::shell::state::shell;
use crate::shell::sys::clock;
use crate::shell::sys::raw::Ctx;
use crate::shell::timer;

/// Handles an event that is not a command.
pub fn handle(ctx: Ctx<'_>, event: Event<'_>) {
    handle_in_command(ctx, None, event);
}

/// Handles an event; `in_command` is the command that caused it.
pub fn handle_in_command(ctx: Ctx<'_>, in_command: Option<&CommandContext<'_>>, event: Event<'_>) {
    settle_flush(ctx);
    tell(ctx, in_command, event);
}

/// Handles an event after which keyspace events matter, so subscribes to them first.
pub fn subscribe_and_handle(ctx: Ctx<'_>, event: Event<'_>) {
    subscriptions::to_keys(ctx);
    handle(ctx, event);
}

/// Handles the result of a key lookup.
pub fn found(ctx: Ctx<'_>, key: Key<'_>, state: KeyState) {
    let gone = match state {
        KeyState::Absent => cluster::loss_of_removal(ctx, key),
        KeyState::Lock | KeyState::Other => Loss::Overwritten,
    };
    let seen = KeySnapshot { key, state };
    handle(ctx, Event::Found { seen, gone });
    if !state.is_present() {
        redirect_waiters(ctx, key);
    }
}

/// Redirects the waiters of a removed key if its slot belongs to another node now. Returns whether there were any.
pub fn redirect_waiters(ctx: Ctx<'_>, key: Key<'_>) -> bool {
    let shell = shell();
    let is_elsewhere = shell.server.get().is_cluster
        && shell.engine.with(|engine| engine.has_waiters(key))
        && cluster::slot_owner(ctx, key) != SlotOwner::Here;
    if is_elsewhere {
        handle(ctx, Event::Elsewhere { key });
    }
    is_elsewhere
}

/// Handles a deferred flush, if there is one.
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
    let settle_deferred_flush = || tell(ctx, None, Event::Flushed { db, by });
    if shell().is_replica() {
        // A replica cannot tell when the master's command ended: the current command may already be a watcher's.
        push::defer_during(settle_deferred_flush);
    } else {
        settle_deferred_flush();
    }
    if shell().engine.with(Engine::is_flushing) {
        timer::wake_in_ms(0);
    }
}

fn tell(ctx: Ctx<'_>, in_command: Option<&CommandContext<'_>>, event: Event<'_>) {
    let shell = shell();
    let mut effects = shell.effects_buffer.take();
    let (now, next_work) = decide(event, &mut effects);
    for effect in effects.drain(..) {
        match perform(ctx, in_command, effect) {
            Follows::Nothing => {}
            follows => follow_up(ctx, follows),
        }
    }
    shell.effects_buffer.set(effects);
    if let Some(at) = next_work {
        timer::wake_at(now, at);
    }
}

/// In a cluster, keeps tokens above those of a server whose slots this one may have gained, or may be importing for these keys.
pub fn follow_clock<'a>(names: impl Iterator<Item = &'a [u8]>) {
    if shell().server.get().is_cluster && epochs::may_be_behind(names) {
        let now = clock::since_1970();
        let engine = &shell().engine;
        engine.with_mut(|engine| engine.follow_clock(now));
    }
}

fn follow_clock_before(event: &Event<'_>) {
    let seen = match event {
        // The name of a sequence's key has a token already, and the clock was followed for that.
        Event::Acquire(ask) if ask.form == Form::Sequence => return,
        Event::Acquire(ask) => ask.seen,
        _ => &[],
    };
    follow_clock(seen.iter().map(|seen| seen.key.name));
}

/// Lets the engine decide, and releases it. Returns the time of the event and the next deadline.
#[inline(always)]
fn decide(event: Event<'_>, effects: &mut Vec<Effect>) -> (Moment, Option<Moment>) {
    let shell = shell();
    if shell.server.get().is_cluster {
        follow_clock_before(&event);
    }
    shell.engine.with_mut(|engine| {
        let now = match engine.timing(&event) {
            Timing::Exact => clock::now(),
            Timing::Late => clock::coarse_now(),
            Timing::Any => Moment::default(),
        };
        engine.handle(now, event, effects);
        let next = match shell.awaits_writes.get() {
            false => engine.next_work(now),
            true => engine.next_tick(),
        };
        (now, next)
    })
}

/// Handles what follows from an effect, before the next effect is performed. At most three calls deep: that a key is missing
/// is pushed to those who watch its prefix, some of whom may lose their right to see it, and nothing follows from that.
#[cold]
fn follow_up(ctx: Ctx<'_>, follows: Follows) {
    match follows {
        Follows::Nothing => {}
        Follows::BlockRefused(client) => handle(ctx, Event::BlockRefused { client }),
        Follows::PageCut(client, prefix, last) => {
            let (prefix, last) = (prefix.as_key(), &*last);
            let event = Event::PageCut {
                client,
                prefix,
                last,
            };
            handle(ctx, event);
        }
        Follows::SightLost(clients) => {
            handle(ctx, Event::SightLost { clients: &clients });
            if shell().engine.with(Engine::is_any_blind) {
                timer::wake_in_ms(0);
            }
        }
        Follows::Renewed(key) => handle(ctx, Event::Renewed { key: key.as_key() }),
        Follows::Found(key, state) => found(ctx, key.as_key(), state),
    }
}
