//! Passes what files and streams contain, of any version, to the engine.
//!
//! The server serves other clients while it reads a file, and may call the module. So each piece is read completely before
//! the engine is borrowed.

use crate::command::pack;
use crate::engine::{Db, Event, Key, Mode, SessionRecord, Token};
use crate::policy::release::Release;
use crate::shell::bridge::tell::subscribe_and_handle;
use crate::shell::server::subscriptions;
use crate::shell::state::shell;
use crate::shell::sys::clock;
use crate::shell::sys::raw::{Ctx, Damaged};

/// Applies a token: it and later tokens of its epoch may have been issued. False if no server can have issued it by now.
pub fn apply_token(ctx: Ctx<'_>, token: Token) -> bool {
    let is_credible = token.is_credible(clock::since_1970());
    if is_credible && token != Token::default() {
        subscriptions::to_server_events(ctx);
    }
    if is_credible {
        shell().engine.with_mut(|engine| engine.apply_token(token));
    }
    is_credible
}

/// Reserves memory for this number of keys.
pub fn reserve_keys(ctx: Ctx<'_>, count: u64) {
    // Bounded, so that a damaged count cannot allocate much.
    let count = count.min(1 << 20) as usize;
    shell().engine.with_mut(|engine| engine.reserve_keys(count));
    if count > 0 {
        // Their keyspace events matter from now on.
        subscriptions::to_keys(ctx);
    }
}

/// Adds temporary keys from a file, owned by connections of another server, with their tokens if the file has them. RdbReader
/// notifies no client, so there are no effects.
pub fn add_foreign_keys(keys: &[Key<'_>], tokens: &[Token]) {
    let mut effects = Vec::new();
    let engine = &shell().engine;
    engine.with_mut(|engine| engine.inherit(clock::now(), keys, tokens, &mut effects));
    debug_assert!(effects.is_empty());
}

/// Adds a pack of keys, with these tokens unless there are none; returns the number of keys.
pub fn add_pack(ctx: Ctx<'_>, bytes: &[u8], tokens: &[Token]) -> Result<u64, Damaged> {
    let mut rest = bytes;
    let named: Vec<_> = std::iter::from_fn(|| pack::take_first(&mut rest)).collect();
    let mut dbs = named.chunk_by(|one, other| one.db == other.db);
    if !rest.is_empty() || named.is_empty() || !dbs.all(|keys| ctx.has_db(keys[0].db)) {
        return Err(Damaged);
    }
    if !tokens.is_empty() && tokens.len() != named.len() {
        return Err(Damaged);
    }
    add_foreign_keys(&named, tokens);
    Ok(named.len() as u64)
}

/// The tokens of the keys that come next.
pub fn read_tokens(bytes: &[u8]) -> Option<Vec<Token>> {
    let tokens = pack::unpack_tokens(bytes)?;
    let greatest = tokens.iter().copied().max();
    greatest.is_none_or(is_credible_token).then_some(tokens)
}

pub fn check_db(ctx: Ctx<'_>, number: u64) -> Result<Db, Damaged> {
    let db = u32::try_from(number).map(Db).map_err(|_| Damaged)?;
    ctx.has_db(db).then_some(db).ok_or(Damaged)
}

/// Applies a session record from a file.
pub fn apply_saved_record(ctx: Ctx<'_>, record: Option<&SessionRecord>) -> Result<(), Damaged> {
    let record = record.filter(|record| is_credible(record)).ok_or(Damaged)?;
    subscriptions::to_keys(ctx);
    let mut effects = Vec::new();
    let engine = &shell().engine;
    let event = Event::SessionRecord(record);
    engine.with_mut(|engine| engine.handle(clock::now(), event, &mut effects));
    debug_assert!(effects.is_empty());
    Ok(())
}

/// Applies a session record from the stream. False if no server can have issued its token by now.
pub fn apply_streamed_record(ctx: Ctx<'_>, record: &SessionRecord) -> bool {
    let is_credible = is_credible(record);
    if is_credible {
        subscribe_and_handle(ctx, Event::SessionRecord(record));
    }
    is_credible
}

fn is_credible(record: &SessionRecord) -> bool {
    match record {
        SessionRecord::Held(held) => is_credible_token(held.token),
        _ => true,
    }
}

/// Whether a server can have issued it by now.
pub fn is_credible_token(token: Token) -> bool {
    token.is_credible(clock::since_1970())
}

/// Adds a hold of a connection of the server that sent it.
pub fn add_foreign_hold(ctx: Ctx<'_>, db: Db, name: &[u8], mode: Mode, token: Option<Token>) {
    let key = Key { db, name };
    subscribe_and_handle(ctx, Event::Inherited { key, mode, token });
}

/// Logs refused input, with the version of its writer and this one.
pub fn refused(ctx: Ctx<'_>, what: &str) {
    let sender = shell().sender.with(Clone::clone);
    let this = Release::this();
    refused_because(
        ctx,
        &format!("{what}, written by {sender}, makes no sense to this {this}"),
    );
}

/// Logs why input is refused, and counts it.
pub fn refused_because(ctx: Ctx<'_>, why: &str) {
    let shell = shell();
    ctx.log(c"warning", why);
    shell.refused.set(shell.refused.get() + 1);
    if shell.is_replica() && !shell.is_loading() {
        shell.has_refused_records.set(true);
    }
}
