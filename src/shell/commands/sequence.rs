//! The name that `SETTP ... SEQ` makes: the key that was given, and the token of the grant.

use crate::engine::{Db, Engine, Key, KeyState, NoRight, SequenceName};
use crate::shell::bridge::tell;
use crate::shell::commands::places;
use crate::shell::server::{lookup, rights};
use crate::shell::state::shell;
use crate::shell::sys::raw::{Ctx, Str, Text};

/// So many bytes of a name cost a step: the server copies and hashes each name that is tried.
const BYTES_PER_STEP: usize = 1024;

/// The first of the next names that nobody has; after as many steps as an event has, the last one tried, which the engine refuses.
/// An error in the server's words if the caller may not make it.
pub fn next_name(ctx: Ctx<'_>, key: Str<'_>) -> Result<Text, String> {
    if let Some(error) = places::refuse_untagged(key.bytes()) {
        return Err(error.to_owned());
    }
    tell::settle_flush(ctx);
    tell::follow_clock(std::iter::once(key.bytes()));
    let first = shell().engine.with(Engine::next_token_of_sequence);
    let mut name = SequenceName::new(key.bytes(), first);
    let mut text = checked(ctx, key, &name)?;
    let mut steps = shell().engine.with(Engine::limits).steps_per_event;
    let cost = 1 + name.bytes().len() / BYTES_PER_STEP;
    let (db, mut token) = (ctx.db(), first);
    while steps > cost && is_taken(ctx, db, &text) {
        steps -= cost;
        token.0 += 1;
        name.set(token);
        text = Text::new(name.bytes());
    }
    if token != first {
        text = checked(ctx, key, &name)?;
    }
    Ok(text)
}

/// The name as a server string, if the caller may make it here.
fn checked(ctx: Ctx<'_>, key: Str<'_>, name: &SequenceName) -> Result<Text, String> {
    let text = Text::new(name.bytes());
    if !ctx.may_write(text.as_str()) {
        return Err(rights::error_text(ctx, NoRight::Key));
    }
    match places::refuse_during_migration(ctx, &[key, text.as_str()]) {
        Some(error) => Err(error.to_owned()),
        None => Ok(text),
    }
}

fn is_taken(ctx: Ctx<'_>, db: Db, text: &Text) -> bool {
    let name = text.as_str().bytes();
    let is_claimed = |engine: &Engine| !engine.is_unclaimed(Key { db, name });
    shell().engine.with(is_claimed) || lookup::key_state(ctx, db, text.as_str()) != KeyState::Absent
}
