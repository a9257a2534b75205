//! In a cluster: whether a key is this server's to make, and whose it is if not.
//!
//! Slots move from server to server while keys in them are held and waited for. The server routes
//! commands by itself, but a blocked client has given its command already, and a key
//! that is handed over is made without one.

use crate::engine::{Cause, Key, Loss};
use crate::policy::slots::{SlotOwner, Slots, coming_to_master, find};
use crate::shell::server::attribution;
use crate::shell::state::shell;
use crate::shell::sys::clock;
use crate::shell::sys::raw::{Ctx, Refusal, Text, filtered_word};
use crate::shell::timer;
use redis_module::raw as c;

/// Where a key is to be asked for that is not there.
pub fn place(ctx: Ctx<'_>, key: Key<'_>) -> SlotOwner {
    match refusal(ctx, key) {
        Refusal::None => SlotOwner::Here,
        refusal => place_of_refused(ctx, key, refusal),
    }
}

fn refusal(ctx: Ctx<'_>, key: Key<'_>) -> Refusal {
    match shell().server.get().is_cluster {
        true => ctx.refusal(key.db, Text::new(key.name).as_str()),
        false => Refusal::None,
    }
}

fn place_of_refused(ctx: Ctx<'_>, key: Key<'_>, refusal: Refusal) -> SlotOwner {
    let slot = ctx.slot(Text::new(key.name).as_str());
    let now = clock::now();
    if let Some(place) = shell().slots.with(|slots| slots.last_place(slot, now)) {
        return place;
    }
    let place = find(&ctx.cluster_nodes(), slot, uses_host_names(ctx));
    // Of what is this server's own it is not told when that ends. (Who is redirected all the same has to do with a slot that
    // is on its way to here.)
    if (refusal, &place) != (Refusal::Down, &SlotOwner::Here) {
        let place = place.clone();
        shell()
            .slots
            .with_mut(|slots| slots.found(slot, now, place));
    }
    place
}

fn uses_host_names(ctx: Ctx<'_>) -> bool {
    let kind = ctx.server_setting(c"cluster-preferred-endpoint-type");
    kind.is_some_and(|kind| kind == "hostname")
}

/// Tells a client that was blocked where to ask, in the words in which the server sends
/// others there.
pub fn redirection(ctx: Ctx<'_>, key: Key<'_>) -> String {
    let slot = ctx.slot(Text::new(key.name).as_str());
    match place(ctx, key) {
        SlotOwner::There(address) => format!("MOVED {slot} {address}"),
        SlotOwner::Leaving(address) => format!("ASK {slot} {address}"),
        SlotOwner::Here => "TRYAGAIN the key's slot was on its way to another server".to_owned(),
        SlotOwner::Nowhere => "CLUSTERDOWN Hash slot not served".to_owned(),
    }
}

/// Who did it, if it seems to be a connection's. What goes with its slot goes by nobody's command, but whoever gave
/// the last one looks like it.
pub fn cause_of_removal(ctx: Ctx<'_>, key: Key<'_>, by: Cause) -> Cause {
    let Cause::Client(client) = by else {
        return by;
    };
    let refusal = refusal(ctx, key);
    let is_own = refusal == Refusal::None
        || match place_of_refused(ctx, key, refusal) {
            SlotOwner::There(_) | SlotOwner::Nowhere => false,
            // This may have been so a moment ago only.
            SlotOwner::Here | SlotOwner::Leaving(_) => attribution::is_executing_now(ctx, client),
        };
    if is_own { by } else { Cause::Server }
}

/// How a key went that is not there, and neither lapsed nor was evicted. (What MIGRATE deletes follows its slot.)
pub fn loss_of_removal(ctx: Ctx<'_>, key: Key<'_>) -> Loss {
    match place(ctx, key) {
        SlotOwner::There(_) | SlotOwner::Nowhere => Loss::Moved,
        SlotOwner::Leaving(_) if attribution::is_migrating(ctx) => Loss::Moved,
        SlotOwner::Here | SlotOwner::Leaving(_) => Loss::Deleted,
    }
}

/// Whether a key that a master's stream names is in a slot that is on its way to that master: a server that moves slots in one
/// go passes on to a replica what its master is told by the slot's former one, word by word. Between the two commands that
/// begin and end such a move that is so for all that the stream says of its slots. (Redis says with them which slots come.)
pub fn is_coming(ctx: Ctx<'_>, name: &[u8]) -> bool {
    let server = shell().server.get();
    if !server.is_cluster || !(server.moves_slots_in_one_go || server.trims_slots) {
        return false;
    }
    let slots = &shell().slots;
    if server.moves_slots_in_one_go && !slots.with(Slots::knows_what_comes) {
        let coming = coming_to_master(&ctx.slot_migrations());
        slots.with_mut(|slots| slots.come(coming));
    }
    if !slots.with(Slots::is_any_coming) {
        return false;
    }
    let slot = ctx.slot(Text::new(name).as_str());
    slots.with(|slots| slots.is_coming(slot))
}

/// Slots come to this server, or are about to.
pub fn slots_come() {
    shell().slots_changed.set(true);
}

/// Notices `CLUSTER SETSLOT`, `ADDSLOTS` and the like, of which the server tells modules nothing.
///
/// # Safety
/// The argument is what the server gave to a filter, for the length of this call.
pub unsafe fn notice(filter: *mut c::RedisModuleCommandFilterCtx) {
    // SAFETY: the caller.
    let word = |place| unsafe { filtered_word(filter, place) };
    let begins = |word: Option<&[u8]>, with: &str| {
        let begin = word.and_then(|word| word.get(..with.len()));
        begin.is_some_and(|begin| begin.eq_ignore_ascii_case(with.as_bytes()))
    };
    if !begins(word(0), "cluster") {
        return;
    }
    let is_one_of = |words: [&str; 2]| words.iter().any(|with| begins(word(1), with));
    let comes = is_one_of(["setslot", "addslots"]);
    if comes {
        slots_come();
    }
    if comes || is_one_of(["delslots", "flushslots"]) {
        slots_change();
    }
}

/// Somebody is about to say whose a slot is.
pub fn slots_change() {
    shell().slots.with_mut(Slots::change);
    let now = clock::now();
    shell().own_slots.with_mut(|own| own.change(now));
    timer::wake_in_ms(0);
}

/// A move of slots to this server's master has begun or ended, or a file has told of one.
pub fn moves_have_changed() {
    slots_come();
    // A file of Redis's tells of one while it is loaded.
    if !shell().server.get().trims_slots {
        shell().slots.with_mut(Slots::moves_have_changed);
    }
}
