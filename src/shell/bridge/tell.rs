//! Tells the engine a fact, and performs its effects.
//!
//! Decide, let go, then act: the engine is borrowed only while it decides. Performing an effect makes the server call us back
//! (a removed key is an event), and that inner fact is told and its effects are performed before the next effect of the outer
//! one: the order of things is the keyspace's. So is what follows from an effect by itself ([`Follows`]), in the same
//! order: a client that cannot be blocked is answered before anybody else hears more, and a key that is found to have gone has
//! gone before the next one is renewed. That is a loop here ([`follow_up`]): however much follows, the stack does not grow.

use crate::engine::{
    Effect, Engine, Event, Key, KeyBuf, KeySnapshot, KeyState, Loss, Moment, Timing,
};
use crate::policy::slots::SlotOwner;
use crate::shell::bridge::perform::{CommandContext, Follows, perform};
use crate::shell::delivery::push;
use crate::shell::server::{cluster, epochs, rights, subscriptions};
use crate::shell::state::shell;
use crate::shell::sys::at_end::at_end;
use crate::shell::sys::clock;
use crate::shell::sys::raw::Ctx;
use crate::shell::timer;
use std::cell::Cell;

/// Tells the engine a fact that is no command.
pub fn handle(ctx: Ctx<'_>, event: Event<'_>) {
    handle_in_command(ctx, None, event);
}

/// Tells the engine a fact; `in_command` is the command that it stands for.
pub fn handle_in_command(ctx: Ctx<'_>, in_command: Option<&CommandContext<'_>>, event: Event<'_>) {
    settle_flush(ctx);
    tell(ctx, in_command, event);
}

/// Tells a fact after which it matters what becomes of keys.
pub fn subscribe_and_handle(ctx: Ctx<'_>, event: Event<'_>) {
    subscriptions::to_keys(ctx);
    handle(ctx, event);
}

/// Tells what a fresh look at a key has shown.
pub fn found(ctx: Ctx<'_>, key: Key<'_>, standing: KeyState) {
    settle_flush(ctx);
    follow_up(ctx, Follows::Found(key.to_owned(), standing));
}

/// A key has gone: who waits for it is sent after it, where it is no longer this server's to make.
pub fn redirect_waiters(ctx: Ctx<'_>, key: Key<'_>) {
    if is_to_redirect(ctx, key) {
        handle(ctx, Event::Elsewhere { key });
    }
}

fn is_to_redirect(ctx: Ctx<'_>, key: Key<'_>) -> bool {
    let shell = shell();
    shell.server.get().is_cluster
        && shell.engine.with(|engine| engine.has_waiters(key))
        && cluster::place(ctx, key) != SlotOwner::Here
}

/// Tells of a flush that was deferred.
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
        // It hears of no end of its master's command: the current command may be a watcher's already.
        push::hold(settle_deferred_flush);
    } else {
        settle_deferred_flush();
    }
    if shell().engine.with(Engine::is_flushing) {
        timer::wake_in_ms(0);
    }
}

fn tell(ctx: Ctx<'_>, in_command: Option<&CommandContext<'_>>, event: Event<'_>) {
    let shell = shell();
    if shell.rights.matter() {
        look_at_rights(ctx, &event);
    }
    let mut effects = shell.spare.take();
    let (now, next_work) = decide(event, &mut effects);
    for effect in effects.drain(..) {
        match perform(ctx, in_command, effect) {
            Follows::Nothing => {}
            follows => follow_up(ctx, follows),
        }
    }
    shell.spare.set(effects);
    if let Some(at) = next_work {
        timer::wake_at(now, at);
    }
}

/// Has the engine decide what follows from a fact, and lets it go. Says when that was, and when there is work next.
#[inline(always)]
fn decide(event: Event<'_>, effects: &mut Vec<Effect>) -> (Moment, Option<Moment>) {
    let shell = shell();
    let gains = shell.server.get().is_cluster && epochs::may_have_gained();
    shell.engine.with_mut(|engine| {
        if gains {
            engine.follow_clock(clock::since_1970());
        }
        let now = match engine.timing(&event) {
            Timing::Exact => clock::now(),
            Timing::Late => clock::lately(),
            Timing::Any => Moment::default(),
        };
        engine.handle(now, event, effects);
        (now, engine.next_work(now))
    })
}

enum Step {
    Perform(Effect),
    Tell(Follows),
    /// See [`redirect_waiters`].
    Redirect(KeyBuf),
}

/// Tells what follows from an effect, and what follows from that. The last step is the next one: so all that a fact leads to
/// comes before what was still to come when it was found.
#[cold]
fn follow_up(ctx: Ctx<'_>, first: Follows) {
    let mut steps = vec![Step::Tell(first)];
    while let Some(step) = steps.pop() {
        let effects = match step {
            Step::Perform(effect) => {
                steps.push(Step::Tell(perform(ctx, None, effect)));
                continue;
            }
            Step::Tell(Follows::Nothing) => continue,
            Step::Tell(Follows::BlockRefused(client)) => {
                effects_of(ctx, Event::BlockRefused { client })
            }
            Step::Tell(Follows::Renewed(key)) => {
                effects_of(ctx, Event::Renewed { key: key.as_key() })
            }
            Step::Tell(Follows::Found(key, standing)) => {
                let effects = effects_of(ctx, found_event(ctx, key.as_key(), standing));
                if !standing.is_present() {
                    steps.push(Step::Redirect(key));
                }
                effects
            }
            Step::Redirect(key) if is_to_redirect(ctx, key.as_key()) => {
                effects_of(ctx, Event::Elsewhere { key: key.as_key() })
            }
            Step::Redirect(_) => continue,
        };
        steps.extend(effects.into_iter().rev().map(Step::Perform));
    }
}

/// The effects of a fact, still to be performed.
fn effects_of(ctx: Ctx<'_>, event: Event<'_>) -> Vec<Effect> {
    if shell().rights.matter() {
        look_at_rights(ctx, &event);
    }
    let mut effects = Vec::new();
    let (now, next_work) = decide(event, &mut effects);
    if let Some(at) = next_work {
        timer::wake_at(now, at);
    }
    effects
}

fn found_event<'a>(ctx: Ctx<'_>, key: Key<'a>, standing: KeyState) -> Event<'a> {
    let seen = KeySnapshot { key, standing };
    let gone = match standing {
        KeyState::Absent => cluster::loss_of_removal(ctx, key),
        KeyState::Lock | KeyState::Other => Loss::Overwritten,
    };
    Event::Found { seen, gone }
}

/// Looks at the rights of those whose turn may come by this event, before it is told. What is told meanwhile needs no such look:
/// so there is none within another.
#[cold]
fn look_at_rights(ctx: Ctx<'_>, event: &Event<'_>) {
    /// Whoever comes after so many is served a little later.
    const MOST: usize = 64;
    let noted = &shell().rights;
    let have_changed = noted.begin_look(ctx.state().in_exec());
    // Where a panic ends the look, not everybody was looked at.
    let has_doubts = Cell::new(true);
    let _end = at_end(|| noted.end_look(has_doubts.get()));
    if have_changed {
        tell(ctx, None, Event::RightsChanged);
    }
    for _ in 0..MOST {
        let Some(doubt) = shell().engine.with(|engine| engine.doubt(event)) else {
            break;
        };
        let (wait, lost) = (doubt.wait, rights::lost(ctx, &doubt));
        tell(ctx, None, Event::Rights { wait, lost });
    }
    has_doubts.set(shell().engine.with(|engine| engine.has_doubts()));
}
