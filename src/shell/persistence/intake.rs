//! What files and streams tell, of whatever version, is given to the engine.
//!
//! While it reads a file the server attends to others, who have us called: so each piece is read first, and then handed to the
//! engine.

use crate::command::pack;
use crate::engine::{Db, Event, Key, Mode, SessionRecord, Token};
use crate::policy::release::Release;
use crate::shell::bridge::tell::subscribe_and_handle;
use crate::shell::server::subscriptions;
use crate::shell::state::shell;
use crate::shell::sys::clock;
use crate::shell::sys::raw::{Ctx, Damaged};

/// Tokens from this one on may have been given. False if no server can have told this by now.
pub fn token(ctx: Ctx<'_>, token: Token) -> bool {
    let is_credible = token.is_credible(clock::since_1970());
    if is_credible && token != Token::default() {
        subscriptions::to_server_events(ctx);
    }
    if is_credible {
        shell().engine.with_mut(|engine| engine.apply_token(token));
    }
    is_credible
}

/// About so many keys follow.
pub fn expect_keys(ctx: Ctx<'_>, count: u64) {
    // Not more than a file can mean; and memory for no more is taken before they are there.
    let count = count.min(1 << 20) as usize;
    shell().engine.with_mut(|engine| engine.make_room(count));
    if count > 0 {
        // What becomes of them matters from now on.
        subscriptions::to_keys(ctx);
    }
}

/// Keys of a file. What is loaded is told to nobody before all of it is there.
pub fn keys(keys: &[Key<'_>]) {
    let mut effects = Vec::new();
    let engine = &shell().engine;
    engine.with_mut(|engine| engine.inherit(clock::now(), keys, &mut effects));
    debug_assert!(effects.is_empty());
}

/// Many keys in one piece; returns how many they are.
pub fn pack(ctx: Ctx<'_>, bytes: &[u8]) -> Result<u64, Damaged> {
    let mut rest = bytes;
    let named: Vec<_> = std::iter::from_fn(|| pack::take_first(&mut rest)).collect();
    let mut dbs = named.chunk_by(|one, other| one.db == other.db);
    if !rest.is_empty() || named.is_empty() || !dbs.all(|keys| ctx.has_db(keys[0].db)) {
        return Err(Damaged);
    }
    keys(&named);
    Ok(named.len() as u64)
}

pub fn db(ctx: Ctx<'_>, number: u64) -> Result<Db, Damaged> {
    let db = u32::try_from(number).map(Db).map_err(|_| Damaged)?;
    ctx.has_db(db).then_some(db).ok_or(Damaged)
}

/// A session, or what it holds, out of a file.
pub fn saved_record(ctx: Ctx<'_>, record: Option<&SessionRecord>) -> Result<(), Damaged> {
    let record = record.filter(|record| is_credible(record)).ok_or(Damaged)?;
    subscriptions::to_keys(ctx);
    let mut effects = Vec::new();
    let engine = &shell().engine;
    let event = Event::SessionRecord(record);
    engine.with_mut(|engine| engine.handle(clock::now(), event, &mut effects));
    debug_assert!(effects.is_empty());
    Ok(())
}

/// The same out of a stream. False if no server can have told this by now.
pub fn told_record(ctx: Ctx<'_>, record: &SessionRecord) -> bool {
    let is_credible = is_credible(record);
    if is_credible {
        subscribe_and_handle(ctx, Event::SessionRecord(record));
    }
    is_credible
}

fn is_credible(record: &SessionRecord) -> bool {
    match record {
        SessionRecord::Held(held) => held.token.is_credible(clock::since_1970()),
        _ => true,
    }
}

/// This key belonged to a connection of the server that told of it.
pub fn inherited(ctx: Ctx<'_>, db: Db, name: &[u8], mode: Mode) {
    let key = Key { db, name };
    subscribe_and_handle(ctx, Event::Inherited { key, mode });
}

/// What was told, or stands in a file, is not understood. Both versions stand in the log.
pub fn refused(ctx: Ctx<'_>, what: &str) {
    let shell = shell();
    let sender = shell.sender.with(Clone::clone);
    let this = Release::this();
    ctx.log(
        c"warning",
        &format!("{what}, written by {sender}, makes no sense to this {this}"),
    );
    shell.refused.set(shell.refused.get() + 1);
    if shell.is_replica() && !shell.is_loading() {
        shell.misses_something.set(true);
    }
}
