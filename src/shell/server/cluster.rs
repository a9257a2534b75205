//! Slot ownership in a cluster: whether this node may create a key, and which node owns its slot if not.
//!
//! Slots migrate while clients hold and wait for keys in them. The server redirects commands, but a blocked client's
//! command has passed that check, and a key handed to a waiter is created without a command.

use crate::engine::{Cause, Key, Loss};
use crate::policy::slots::{Served, SlotOwner, Slots, find, slot_of, slots_importing_to_master};
use crate::shell::server::attribution;
use crate::shell::state::shell;
use crate::shell::sys::clock;
use crate::shell::sys::raw::{Ctx, Refusal, Text, filtered_word};
use crate::shell::timer;
use redis_module::raw as c;

/// The node that commands for a key that does not exist must go to.
pub fn slot_owner(ctx: Ctx<'_>, key: Key<'_>) -> SlotOwner {
    match refusal(ctx, key) {
        Refusal::None => SlotOwner::Here,
        refusal => owner_if_refused(ctx, key, refusal),
    }
}

fn refusal(ctx: Ctx<'_>, key: Key<'_>) -> Refusal {
    match shell().server.get().is_cluster {
        true => ctx.refusal(key.db, Text::new(key.name).as_str()),
        false => Refusal::None,
    }
}

fn owner_if_refused(ctx: Ctx<'_>, key: Key<'_>, refusal: Refusal) -> SlotOwner {
    let slot = slot_of(key.name);
    let now = clock::now();
    if let Some(owner) = shell().slots.with(|slots| slots.last_owner(slot, now)) {
        return owner;
    }
    let owner = find(&ctx.cluster_nodes(), slot, uses_host_names(ctx));
    // Not cached while the cluster is down and the slot is this node's: nothing reports when that ends. (A redirection for
    // an own slot means that the slot is being imported; that one is cached.)
    if (refusal, &owner) != (Refusal::Down, &SlotOwner::Here) {
        let owner = owner.clone();
        shell()
            .slots
            .with_mut(|slots| slots.set_last(slot, now, owner));
    }
    owner
}

fn uses_host_names(ctx: Ctx<'_>) -> bool {
    let kind = ctx.server_setting("cluster-preferred-endpoint-type");
    kind.is_some_and(|kind| kind == "hostname")
}

/// The redirection error for a blocked client, as the server words it for its own commands.
pub fn redirection(ctx: Ctx<'_>, key: Key<'_>) -> String {
    let slot = slot_of(key.name);
    match slot_owner(ctx, key) {
        SlotOwner::There(address) => format!("MOVED {slot} {address}"),
        SlotOwner::Leaving(address) => format!("ASK {slot} {address}"),
        SlotOwner::Here => "TRYAGAIN the key's slot was on its way to another server".to_owned(),
        SlotOwner::Nowhere => "CLUSTERDOWN Hash slot not served".to_owned(),
    }
}

/// The redirection error if neither this node nor its master serves the slot of a key. Redis 8.6 does not route commands whose only
/// key is no key of the keyspace. O(slots).
pub fn redirect_unserved(ctx: Ctx<'_>, key: Key<'_>) -> Option<String> {
    let is_unserved = || {
        let served = Served::of(&ctx.cluster_nodes());
        served.is_some_and(|served| !served.slots.has(slot_of(key.name)))
    };
    let is_elsewhere = shell().server.get().is_cluster && is_unserved();
    is_elsewhere.then(|| redirection(ctx, key))
}

/// A watch begins in this slot, which is [served](redirect_unserved).
pub fn begins_in_slot_of(prefix: &[u8]) {
    if shell().server.get().is_cluster {
        let slot = slot_of(prefix);
        shell()
            .served_slots
            .with_mut(|served| served.begins_in(slot));
    }
}

/// The client that removed a key. A key deleted because its slot left was removed by no client, although the last client
/// seen looks responsible.
pub fn cause_of_removal(ctx: Ctx<'_>, key: Key<'_>, by: Cause) -> Cause {
    let Cause::Client(client) = by else {
        return by;
    };
    let refusal = refusal(ctx, key);
    let is_own = refusal == Refusal::None
        || match owner_if_refused(ctx, key, refusal) {
            SlotOwner::There(_) | SlotOwner::Nowhere => false,
            // The cached answer may be outdated.
            SlotOwner::Here | SlotOwner::Leaving(_) => attribution::is_executing_now(ctx, client),
        };
    if is_own { by } else { Cause::Server }
}

/// Why a key is gone that neither expired nor was evicted: deleted, or moved with its slot. (MIGRATE deletes keys that
/// follow their slot.)
pub fn loss_of_removal(ctx: Ctx<'_>, key: Key<'_>) -> Loss {
    match slot_owner(ctx, key) {
        SlotOwner::There(_) | SlotOwner::Nowhere => Loss::Moved,
        SlotOwner::Leaving(_) if attribution::is_migrating(ctx) => Loss::Moved,
        SlotOwner::Here | SlotOwner::Leaving(_) => Loss::Deleted,
    }
}

/// Whether a key in the master's stream belongs to a slot that the master is importing. With atomic slot migration the
/// master passes the source node's commands on to its replicas verbatim. Between the two commands that begin and end an
/// import, that holds for every key of its slots. (Redis names the slots in those commands.)
pub fn is_importing(ctx: Ctx<'_>, name: &[u8]) -> bool {
    let server = shell().server.get();
    if !server.is_cluster || !(server.moves_slots_in_one_go || server.trims_slots) {
        return false;
    }
    let slots = &shell().slots;
    if server.moves_slots_in_one_go && !slots.with(Slots::knows_importing) {
        let importing = slots_importing_to_master(&ctx.slot_migrations());
        slots.with_mut(|slots| slots.set_importing(importing));
    }
    if !slots.with(Slots::imports_any) {
        return false;
    }
    let slot = slot_of(name);
    slots.with(|slots| slots.is_importing(slot))
}

/// This node gains slots, or is about to.
pub fn slots_gained() {
    shell().slots_changed.set(true);
}

/// Detects `CLUSTER SETSLOT`, `ADDSLOTS` and the like, for which the server raises no event.
///
/// # Safety
/// The argument is what the server gave to a filter, for the length of this call.
pub unsafe fn on_filtered_command(filter: *mut c::RedisModuleCommandFilterCtx) {
    // SAFETY: the caller.
    let word = |at| unsafe { filtered_word(filter, at) };
    let begins = |word: Option<&[u8]>, with: &str| {
        let begin = word.and_then(|word| word.get(..with.len()));
        begin.is_some_and(|begin| begin.eq_ignore_ascii_case(with.as_bytes()))
    };
    if !begins(word(0), "cluster") {
        return;
    }
    let is_one_of = |words: [&str; 2]| words.iter().any(|with| begins(word(1), with));
    let gains = is_one_of(["setslot", "addslots"]);
    if gains {
        slots_gained();
    }
    if gains || is_one_of(["delslots", "flushslots"]) {
        slot_config_changes();
    }
    if begins(word(1), "setslot") && begins(word(3), "importing") {
        let slot = word(2).and_then(|slot| str::from_utf8(slot).ok());
        if let Some(slot) = slot.and_then(|slot| slot.parse().ok()) {
            shell().served_slots.with_mut(|served| served.imports(slot));
        }
    }
}

/// A command is about to change slot ownership.
pub fn slot_config_changes() {
    shell().slots.with_mut(Slots::config_changes);
    let now = clock::now();
    shell()
        .served_slots
        .with_mut(|served| served.config_changes(now));
    timer::wake_in_ms(0);
}

/// An import of slots by this node's master began or ended, or a file contains one.
pub fn migrations_changed() {
    slots_gained();
    // A Redis file reports imports while it is loaded.
    if !shell().server.get().trims_slots {
        shell().slots.with_mut(Slots::migrations_changed);
    }
}
