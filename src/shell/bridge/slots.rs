//! Slots that go without a word.
//!
//! A server that loses a slot deletes what is in it, and tells of each key. But Redis 7.0 tells nothing, Redis since 8.4 tells
//! only of the slot where that moves in one go (its replicas too, when the keys are deleted), and nothing is deleted
//! where slots are taken from a server by hand (`CLUSTER DELSLOTS`), or where one that was on its way to it never comes
//! (`SETSLOT ... STABLE`, or a third server gets it): then keys that were made with `ASKING` stay, where nobody finds them. So as
//! long as there can be such slots, the server is asked which ones it has. What is held and waited for in others ends.

use crate::engine::{Engine, Event, KeyBuf};
use crate::policy::slots::{Ask, Own, SlotSet, own_line, slot_of};
use crate::shell::bridge::recheck;
use crate::shell::bridge::tell::{handle, redirect_waiters};
use crate::shell::server::{cluster, writes};
use crate::shell::state::shell;
use crate::shell::sys::clock;
use crate::shell::sys::raw::Ctx;
use crate::shell::timer;

/// This server has another role: what it knows of its slots is of no use.
pub fn forget() {
    shell().own_slots.with_mut(|own| *own = Own::default());
}

/// Before this server becomes a replica, which does not ask for its slots: the keys that may have gone with a slot without a
/// word since it last did. O(keys known).
pub fn keys_in_doubt() -> Vec<KeyBuf> {
    let (shell, server) = (shell(), shell().server.get());
    match server.is_cluster && server.slots_go_silently {
        true => shell.engine.with(Engine::keys_of_the_living),
        false => Vec::new(),
    }
}

/// Asks the server which slots it has, where it may have lost some without a word.
pub fn look(ctx: Ctx<'_>) {
    let (shell, now) = (shell(), clock::now());
    let server = shell.server.get();
    if !server.is_cluster || !shell.hears_of_keys.get() {
        return;
    }
    let trims = shell.trims.take();
    if shell.is_replica() {
        if trims {
            recheck::look_at_all(ctx, &shell.engine.with(Engine::keys_known));
        }
        return;
    }
    let hands_over = |engine: &Engine| engine.is_awaited() && engine.has_work(now);
    let at_once = shell.engine.with(hands_over);
    let when = shell
        .own_slots
        .with(|own| own.when_to_ask(now, server.slots_go_silently, || at_once));
    match when {
        Ask::Never => return,
        Ask::InMs(ms) => return timer::wake_in_ms(ms),
        Ask::NowAndIn(ms) => timer::wake_in_ms(ms),
    }
    let nodes = ctx.cluster_nodes();
    let (slots, coming) = SlotSet::of_line(own_line(&nodes));
    let lost_some = shell
        .own_slots
        .with_mut(|own| own.said(now, &slots, coming));
    let is_any_outside = (lost_some || trims) && !shell.engine.with(Engine::is_idle);
    if is_any_outside && !end_all_outside(ctx, &slots) {
        shell.trims.set(trims);
        return timer::wake_in_ms(timer::RETRY_MS);
    }
    shell.own_slots.with_mut(|own| own.settled(slots));
}

/// Ends what is held and waited for in slots that are not among these; or only the latter, and says no, where nothing may be
/// written at the moment.
fn end_all_outside(ctx: Ctx<'_>, slots: &SlotSet) -> bool {
    let known = shell().engine.with(Engine::keys_of_the_living);
    let is_outside = |key: &KeyBuf| !slots.has(usize::from(slot_of(&key.name)));
    let outside: Vec<_> = known.into_iter().filter(is_outside).collect();
    let server = shell().server.get();
    if server.slots_go_silently || server.trims_slots {
        recheck::look_at_all(ctx, &outside);
    }
    let may_write = writes::may_write(ctx);
    for key in outside {
        let key = key.as_key();
        match may_write {
            true => handle(ctx, Event::Disowned { key }),
            false => handle(ctx, Event::Elsewhere { key }),
        }
    }
    may_write
}

/// What stood in slots that have moved is being deleted, or was.
pub fn trimmed() {
    shell().trims.set(true);
    cluster::slots_change();
}

/// Before keys are handed over outside of a command, of which the server would have said whose they are: what is no longer
/// this server's is not. Of so many of each kind at most.
pub fn redirect_late_waiters(ctx: Ctx<'_>, most: usize) {
    if !shell().server.get().is_cluster {
        return;
    }
    let now = clock::now();
    let about_to_be = shell()
        .engine
        .with(|engine| engine.keys_about_to_be_served(now, most));
    for key in about_to_be {
        redirect_waiters(ctx, key.as_key());
    }
}

/// Nobody has renewed keys for a while, or another server has.
pub fn renew_all(ctx: Ctx<'_>) {
    if !shell().is_replica() {
        handle(ctx, Event::RenewAll);
    }
}
