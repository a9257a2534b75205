//! Where a command's keys stand among its arguments. In a cluster: whether those that the server does not route by are in the slot
//! of the one that it does.

use crate::command::{KeyPlaces, Request};
use crate::policy::slots::slot_of;
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
        KeyPlaces::Nowhere => &[],
        KeyPlaces::First => &strings[..strings.len().min(1)],
        KeyPlaces::All => strings,
        KeyPlaces::Numbered => match request {
            Request::Acquire { keys, .. } => &strings[1..=keys.len()],
            _ => &[],
        },
    }
}

/// As the server words it for its own commands.
const CROSSSLOT: &str = "CROSSSLOT Keys in request don't hash to the same slot";

/// Of LOCK.GUARD, where the server cannot be asked what it is about to run.
pub const COMMAND_IS_RENAMED: &str =
    "ERR LOCK.GUARD needs the server's command COMMAND, which is renamed";

/// Why a command for several keys is refused, of which the server may have looked at the first one only.
pub fn refuse_slots(keys: &[Str<'_>]) -> Option<&'static str> {
    if !shell().server.get().is_cluster {
        return None;
    }
    let (first, others) = keys.split_first()?;
    let slot = |key: &Str<'_>| slot_of(key.bytes());
    let crosses = others.iter().any(|key| slot(key) != slot(first));
    crosses.then_some(CROSSSLOT)
}

/// The same where their slot is on its way, and not all of them are here.
pub fn refuse_partial(ctx: Ctx<'_>, keys: &[Str<'_>]) -> Option<&'static str> {
    let is_here = !shell().server.get().is_cluster || keys.len() < 2 || ctx.serves_all(keys);
    (!is_here).then_some(TRYAGAIN)
}

/// Why a command is not run inside one for this key: the server stores what it writes in the slot of the latter.
pub fn refuse_inside(ctx: Ctx<'_>, command: &[Str<'_>], name: &[u8]) -> Option<&'static str> {
    if !shell().server.get().is_cluster {
        return None;
    }
    // To ask for its keys would show its password in MONITOR.
    if command[0].bytes().eq_ignore_ascii_case(b"migrate") {
        return Some("ERR LOCK.GUARD does not run 'migrate' in a cluster");
    }
    let slot = slot_of(name);
    let mut all = true;
    if !ctx.each_key_of(command, |key| all &= slot_of(key) == slot) {
        return Some(COMMAND_IS_RENAMED);
    }
    // The server routes these by a word that it tells nobody of: a shard's channel, and a key where that is the only one.
    if let [first, word, ..] = command
        && (["spublish", "pfmerge"].iter())
            .any(|name| first.bytes().eq_ignore_ascii_case(name.as_bytes()))
    {
        all &= slot_of(word.bytes()) == slot;
    }
    (!all).then_some(CROSSSLOT)
}
