//! Detects slots that this node, or its master, lost without an event.
//!
//! A node that loses a slot deletes its keys and raises an event for each. There are exceptions: Redis 7.0 raises none.
//! Redis since 8.4 reports only the slot when a slot migrates atomically (also to its replicas, when the keys are deleted).
//! And nothing is deleted when slots are removed by hand (`CLUSTER DELSLOTS`), or when an import never completes (`SETSLOT
//! ... STABLE`, or a third node gets the slot): keys created with `ASKING` remain, unreachable. While such slots are
//! possible the module polls the server for its slots, and ends holds and waits in all others. For a watched prefix no event
//! ever says that its slot is gone: while there is one, also on a replica, the module polls, too.

use crate::engine::{Engine, Event, KeyBuf};
use crate::policy::slots::{Poll, Served, ServedSlots, SlotRange, SlotSet, is_replica, slot_of};
use crate::shell::bridge::recheck::{self, KeyScope};
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
pub fn forget_served() {
    let served = &shell().served_slots;
    served.with_mut(|served| *served = ServedSlots::default());
}

/// Keys that a master may have lost with their slot since the last poll. Called before this node becomes a replica, or gets another
/// master: a replica does not poll for them. O(known keys).
pub fn keys_maybe_lost() -> Vec<KeyBuf> {
    let (engine, server) = (&shell().engine, shell().server.get());
    let may_be = server.is_cluster && server.slots_go_silently && !engine.with(Engine::is_replica);
    match may_be {
        true => engine.with(Engine::keys_of_the_living),
        false => Vec::new(),
    }
}

/// Polls the server for the slots that it serves, if it may have lost some without an event.
pub fn check_served(ctx: Ctx<'_>) {
    let (shell, now) = (shell(), clock::now());
    let server = shell.server.get();
    if !server.is_cluster || !shell.subscribed_to_keys.get() {
        return;
    }
    let (is_replica, trimmed) = (shell.is_replica(), shell.trimmed.take());
    if let (true, Some(trimmed)) = (is_replica, &trimmed) {
        let known = shell.engine.with(Engine::keys_known).into_iter();
        let gone: Vec<_> = known
            .filter(|key| trimmed.has(slot_of(&key.name)))
            .collect();
        recheck::recheck_gone(ctx, &gone);
    }
    let watches_prefixes = shell.engine.with(Engine::watches_prefixes);
    if is_replica && !watches_prefixes {
        return;
    }
    let may_lose_silently = server.slots_go_silently || watches_prefixes;
    let hands_over = |engine: &Engine| engine.is_awaited() && engine.has_work(now);
    let hands_over_now = shell.engine.with(hands_over);
    let when = shell
        .served_slots
        .with(|served| served.next_poll(now, may_lose_silently, || hands_over_now));
    match when {
        Poll::Never => return,
        Poll::InMs(ms) => return timer::wake_in_ms(ms),
        Poll::NowAndIn(ms) => timer::wake_in_ms(ms),
    }
    let Some(served) = Served::of(&ctx.cluster_nodes()) else {
        // CLUSTER is renamed: nobody tells which slots are this node's.
        return shell.trimmed.set(trimmed.filter(|_| !is_replica));
    };
    let slots = served.slots.clone();
    let lost_some = shell
        .served_slots
        .with_mut(|known| known.polled(now, served));
    let is_any_outside = (lost_some || trimmed.is_some()) && !shell.engine.with(Engine::is_idle);
    let is_done = is_replica || !is_any_outside || end_all_outside(ctx, &slots);
    if lost_some {
        end_prefixes_outside(ctx, &slots);
    }
    if !is_done {
        shell.trimmed.set(trimmed);
        return timer::wake_in_ms(timer::RETRY_MS);
    }
    shell.served_slots.with_mut(|served| served.confirm(slots));
}

/// Ends the watches of prefixes in all slots outside `slots`.
fn end_prefixes_outside(ctx: Ctx<'_>, slots: &SlotSet) {
    for prefix in shell().engine.with(Engine::watched_prefixes) {
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

/// The server deletes, or has deleted, the keys of these migrated slots.
pub fn trimmed(ranges: &[SlotRange]) {
    let mut trimmed = shell().trimmed.take().unwrap_or_default();
    for (first, last) in ranges {
        trimmed.add(*first, *last);
    }
    shell().trimmed.set(Some(trimmed));
    cluster::slot_config_changes();
}

/// Redirects the waiters of keys that are about to be granted but are no longer in this node's slots. Needed outside of
/// commands, where the server does not check slots. At most `most` keys of each kind. Returns whether there were any: then
/// other keys may be about to be granted, to those who were behind a request for several.
pub fn redirect_late_waiters(ctx: Ctx<'_>, most: usize) -> bool {
    if !shell().server.get().is_cluster {
        return false;
    }
    let now = clock::now();
    let about_to_be = shell()
        .engine
        .with(|engine| engine.keys_about_to_be_served(now, most));
    let mut any = false;
    for key in about_to_be {
        any |= redirect_waiters(ctx, key.as_key());
    }
    any
}

/// Redirects those who wait for several keys of a slot that is on its way, of which one is not here: the node that gets the slot may
/// grant that one. Called before anything is handed over. O(names) while slots are being moved and somebody waits for several keys.
pub fn redirect_from_leaving(ctx: Ctx<'_>, scope: KeyScope<'_>) {
    let shell = shell();
    if !shell.server.get().is_cluster {
        return;
    }
    let now = clock::now();
    if !shell.served_slots.with(|served| served.may_be_leaving(now)) {
        return;
    }
    let of_command = match scope {
        KeyScope::All => None,
        KeyScope::Only(_, keys) => Some(keys.first().map(|key| slot_of(key.bytes()))),
    };
    for key in shell.engine.with(Engine::free_keys_waited_for) {
        if of_command.is_none_or(|slot| slot == Some(slot_of(&key.name))) {
            redirect_waiters(ctx, key.as_key());
        }
    }
}

/// Refreshes all TTL backstops: nobody did for a while, or another server did.
pub fn refresh_all_ttls(ctx: Ctx<'_>) {
    if !shell().is_replica() {
        handle(ctx, Event::RenewAll);
    }
}
