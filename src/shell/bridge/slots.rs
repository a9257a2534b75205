//! Detects slots that this node lost without an event.
//!
//! A node that loses a slot deletes its keys and raises an event for each. There are exceptions: Redis 7.0 raises none.
//! Redis since 8.4 reports only the slot when a slot migrates atomically (also to its replicas, when the keys are deleted).
//! And nothing is deleted when slots are removed by hand (`CLUSTER DELSLOTS`), or when an import never completes (`SETSLOT
//! ... STABLE`, or a third node gets the slot): keys created with `ASKING` remain, unreachable. While such slots are
//! possible the module polls the server for its slots, and ends holds and waits in all others.

use crate::engine::{Engine, Event, KeyBuf};
use crate::policy::slots::{OwnSlots, Poll, SlotSet, is_replica, own_line, slot_of};
use crate::shell::bridge::recheck;
use crate::shell::bridge::tell::{handle, redirect_waiters};
use crate::shell::server::{cluster, writes};
use crate::shell::state::shell;
use crate::shell::sys::clock;
use crate::shell::sys::raw::Ctx;
use crate::shell::timer;

/// Whether this node is a replica in its cluster. O(nodes).
pub fn is_clusters_replica(ctx: Ctx<'_>) -> bool {
    shell().server.get().is_cluster && is_replica(&ctx.cluster_nodes())
}

/// The role changed: forgets the known slots.
pub fn forget_owned() {
    shell().own_slots.with_mut(|own| *own = OwnSlots::default());
}

/// Keys that may have been lost with their slot since the last poll. Called before this node becomes a replica, which does
/// not poll. O(known keys).
pub fn keys_maybe_lost() -> Vec<KeyBuf> {
    let (shell, server) = (shell(), shell().server.get());
    match server.is_cluster && server.slots_go_silently {
        true => shell.engine.with(Engine::keys_of_the_living),
        false => Vec::new(),
    }
}

/// Polls the server for its slots if it may have lost some without an event.
pub fn check_owned(ctx: Ctx<'_>) {
    let (shell, now) = (shell(), clock::now());
    let server = shell.server.get();
    if !server.is_cluster || !shell.subscribed_to_keys.get() {
        return;
    }
    let trims = shell.trims.take();
    if shell.is_replica() {
        if trims {
            recheck::recheck_all(ctx, &shell.engine.with(Engine::keys_known));
        }
        return;
    }
    let hands_over = |engine: &Engine| engine.is_awaited() && engine.has_work(now);
    let hands_over_now = shell.engine.with(hands_over);
    let when = shell
        .own_slots
        .with(|own| own.next_poll(now, server.slots_go_silently, || hands_over_now));
    match when {
        Poll::Never => return,
        Poll::InMs(ms) => return timer::wake_in_ms(ms),
        Poll::NowAndIn(ms) => timer::wake_in_ms(ms),
    }
    let nodes = ctx.cluster_nodes();
    let own = own_line(&nodes);
    if own.is_empty() {
        // CLUSTER is renamed: nobody tells which slots are this node's.
        return shell.trims.set(trims);
    }
    let (slots, importing) = SlotSet::of_line(own);
    let lost_some = shell
        .own_slots
        .with_mut(|own| own.polled(now, &slots, importing));
    let is_any_outside = (lost_some || trims) && !shell.engine.with(Engine::is_idle);
    if is_any_outside && !end_all_outside(ctx, &slots) {
        shell.trims.set(trims);
        return timer::wake_in_ms(timer::RETRY_MS);
    }
    shell.own_slots.with_mut(|own| own.confirm(slots));
}

/// While prefixes are watched: ends the watches of those in slots that this node, or its master, serves no longer.
pub fn check_prefixes(ctx: Ctx<'_>) {
    const INTERVAL_MS: u64 = 1000;
    let (shell, now) = (shell(), clock::now());
    if !shell.server.get().is_cluster || !shell.engine.with(Engine::watches_prefixes) {
        return;
    }
    let polled = shell
        .prefix_slots
        .with(|last| last.as_ref().map(|(at, _)| *at));
    let ago_ms = polled.map(|at| now.ms_since(at));
    if let Some(left_ms) = ago_ms.and_then(|ago_ms| INTERVAL_MS.checked_sub(ago_ms + 1)) {
        return timer::wake_in_ms(left_ms + 1);
    }
    timer::wake_in_ms(INTERVAL_MS);
    let Some(slots) = SlotSet::served(&ctx.cluster_nodes()) else {
        return;
    };
    let before = shell
        .prefix_slots
        .with_mut(|last| last.replace((now, slots.clone())));
    if before.is_some_and(|(_, before)| before == slots) {
        return;
    }
    for prefix in shell.engine.with(Engine::watched_prefixes) {
        if !slots.has(slot_of(&prefix.name)) {
            let prefix = prefix.as_key();
            handle(ctx, Event::PrefixElsewhere { prefix });
        }
    }
}

/// Ends holds and waits in all slots outside `slots`. If nothing may be written now, ends only the waits and returns false.
fn end_all_outside(ctx: Ctx<'_>, slots: &SlotSet) -> bool {
    let known = shell().engine.with(Engine::keys_of_the_living);
    let is_outside = |key: &KeyBuf| !slots.has(slot_of(&key.name));
    let outside: Vec<_> = known.into_iter().filter(is_outside).collect();
    let server = shell().server.get();
    if server.slots_go_silently || server.trims_slots {
        recheck::recheck_all(ctx, &outside);
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

/// The server deletes, or has deleted, the keys of migrated slots.
pub fn trimmed() {
    shell().trims.set(true);
    cluster::slot_config_changes();
}

/// Redirects the waiters of keys that are about to be granted but are no longer in this node's slots. Needed outside of
/// commands, where the server does not check slots. At most `most` keys of each kind.
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

/// Refreshes all TTL backstops: nobody did for a while, or another server did.
pub fn refresh_all_ttls(ctx: Ctx<'_>) {
    if !shell().is_replica() {
        handle(ctx, Event::RenewAll);
    }
}
