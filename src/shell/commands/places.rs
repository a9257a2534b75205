//! Positions of a command's keys. In a cluster: whether the keys that the server does not route by are in the slot of the
//! one that it does.

use crate::command::{KeyPlaces, Request};
use crate::policy::slots::{hash_tag, slot_of};
use crate::shell::state::shell;
use crate::shell::sys::raw::inner::TRYAGAIN;
use crate::shell::sys::raw::{Ctx, Str};

/// The keys of a command, among its arguments.
pub fn keys_of<'a, 's>(
    places: KeyPlaces,
    request: &Request<'_, '_>,
    strings: &'a [Str<'s>],
) -> &'a [Str<'s>] {
    match places {
        KeyPlaces::Nowhere | KeyPlaces::Prefix => &[],
        KeyPlaces::First => &strings[..strings.len().min(1)],
        KeyPlaces::All => strings,
        KeyPlaces::Numbered => match request {
            Request::Acquire { keys, .. } => &strings[1..=keys.len()],
            _ => &[],
        },
    }
}

/// The server's own wording.
const CROSSSLOT: &str = "CROSSSLOT Keys in request don't hash to the same slot";

/// LOCK.GUARD cannot look up the command that it is about to run.
pub const COMMAND_IS_RENAMED: &str =
    "ERR LOCK.GUARD needs the server's command COMMAND, which is renamed";

/// Refuses a command whose keys are in several slots: the server may have checked only the first key.
pub fn refuse_cross_slot(keys: &[Str<'_>]) -> Option<&'static str> {
    if !shell().server.get().is_cluster {
        return None;
    }
    let (first, others) = keys.split_first()?;
    let slot = |key: &Str<'_>| slot_of(key.bytes());
    let crosses = others.iter().any(|key| slot(key) != slot(first));
    crosses.then_some(CROSSSLOT)
}

/// Refuses a sequence, or a prefix, whose names would be in other slots than the one that the server routes by.
pub fn refuse_untagged(key: &[u8]) -> Option<&'static str> {
    let crosses = shell().server.get().is_cluster && hash_tag(key).is_none();
    crosses.then_some(CROSSSLOT)
}

/// Refuses it while the slot migrates and not all of its keys are on this node.
pub fn refuse_during_migration(ctx: Ctx<'_>, keys: &[Str<'_>]) -> Option<&'static str> {
    let is_here = !shell().server.get().is_cluster || keys.len() < 2 || ctx.serves_all(keys);
    (!is_here).then_some(TRYAGAIN)
}

/// Refuses an inner command with keys outside of this key's slot: the server would store its writes in this key's slot.
pub fn refuse_inner_slots(ctx: Ctx<'_>, command: &[Str<'_>], name: &[u8]) -> Option<&'static str> {
    if !shell().server.get().is_cluster {
        return None;
    }
    // COMMAND GETKEYS would show its password in MONITOR.
    if command[0].bytes().eq_ignore_ascii_case(b"migrate") {
        return Some("ERR LOCK.GUARD does not run 'migrate' in a cluster");
    }
    let slot = slot_of(name);
    let Some(keys) = ctx.keys_of(command) else {
        return Some(COMMAND_IS_RENAMED);
    };
    let mut all = keys.iter().all(|key| slot_of(key) == slot);
    // The server routes these by an argument that COMMAND GETKEYS omits: a shard channel, or the only key.
    if let [first, word, ..] = command
        && (["spublish", "pfmerge"].iter())
            .any(|name| first.bytes().eq_ignore_ascii_case(name.as_bytes()))
    {
        all &= slot_of(word.bytes()) == slot;
    }
    (!all).then_some(CROSSSLOT)
}
