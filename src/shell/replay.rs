//! What a master's stream and the append-only file tell.
//!
//! There a command of ours means that it was granted: the key was made, and somebody at the former
//! server held it. Here nobody does. A replica leaves such keys alone; as soon as this server may
//! remove them (it is promoted, or has loaded its data) they go. Sessions go on here: of those the
//! stream says all, in words that only it has (see `command/told.rs`).

use super::guard::guard;
use super::perform::write;
use super::raw::{Ctx, Str, api};
use super::state::shell;
use super::{locktype, persist};
use crate::command::{Request, told};
use crate::engine::{Key, Mode, Standing, Token, Told};
use redis_module::raw as c;
use std::ffi::{CStr, c_int};

/// Carries out a command of the stream. Nobody reads the reply.
pub fn apply(ctx: Ctx<'_>, request: &Request<'_, '_>, strings: &[Str<'_>]) {
    match request {
        Request::Settp { .. } => make(ctx, strings[0], Some(strings[1])),
        Request::Acquire { .. } => make(ctx, strings[0], None),
        _ => return ctx.reply_error("ERR only SETTP and LOCK.ACQUIRE are replicated"),
    }
    // Of use to this server's own append-only file.
    ctx.replicate_verbatim();
    ctx.reply_integer(1);
}

fn make(ctx: Ctx<'_>, string: Str<'_>, value: Option<Str<'_>>) {
    write(ctx, string, value, ctx.open(string));
    let mode = match value {
        Some(_) => Mode::Temporary,
        None => Mode::Exclusive,
    };
    let (db, name) = (ctx.db(), string.bytes());
    if !is_import() {
        persist::inherited(ctx, db, name, mode);
    } else if mode.is_lock() {
        locktype::restored(Key { db, name });
    }
}

/// Whether what is told comes with a slot that moves to here. Until it has, its former server may tell
/// more of its keys; after that a temporary key ends with the time that it was given, and a lock as soon
/// as it is looked at.
fn is_import() -> bool {
    !shell().is_replica.get() && !shell().loading.get()
}

/// Tells replicas and the append-only file what sessions hold.
pub fn tell(ctx: Ctx<'_>, said: &Told) {
    let (command, words) = told::words_of(said);
    let db = told::db_of(said).unwrap_or_else(|| ctx.db());
    ctx.replicate_words(db, command, &words);
}

/// Registers the commands that only the stream and the append-only file have. Once, at load.
pub fn register(ctx: Ctx<'_>) -> bool {
    create(ctx, c"tether.token", token, 0)
        && create(ctx, c"tether.bound", bound, 0)
        && create(ctx, c"tether.session", session, 0)
        && create(ctx, c"tether.hold", hold, 1)
        && create(ctx, c"tether.free", free, 1)
}

type Entry =
    unsafe extern "C" fn(*mut c::RedisModuleCtx, *mut *mut c::RedisModuleString, c_int) -> c_int;

/// `key`: where the command's only key stands; 0 where it has none or several.
fn create(ctx: Ctx<'_>, name: &CStr, entry: Entry, key: c_int) -> bool {
    let flags = c"write deny-script fast no-monitor".as_ptr();
    // SAFETY: the table, the context.
    let made = unsafe {
        api!(RedisModule_CreateCommand(
            ctx.as_ptr(),
            name.as_ptr(),
            Some(entry),
            flags,
            key,
            key,
            key
        ))
    };
    made == c::REDISMODULE_OK as c_int
}

/// `TETHER.TOKEN token`: tokens from this one on may have been given.
unsafe extern "C" fn token(
    ctx: *mut c::RedisModuleCtx,
    arguments: *mut *mut c::RedisModuleString,
    count: c_int,
) -> c_int {
    // SAFETY: the server's arguments, for the length of this call.
    unsafe { said(ctx, arguments, count, "TETHER.TOKEN", know_token) }
}

fn know_token(_ctx: Ctx<'_>, arguments: &[Str<'_>]) -> bool {
    let number = std::str::from_utf8(arguments[0].bytes()).ok();
    let number = number.and_then(|number| number.parse().ok());
    if let Some(number) = number {
        shell().engine.borrow_mut().know_token(Token(number));
    }
    number.is_some()
}

/// `TETHER.BOUND key [key ...]`: these string keys, which are there, are temporary keys.
unsafe extern "C" fn bound(
    ctx: *mut c::RedisModuleCtx,
    arguments: *mut *mut c::RedisModuleString,
    count: c_int,
) -> c_int {
    // SAFETY: the server's arguments, for the length of this call.
    unsafe { said(ctx, arguments, count, "TETHER.BOUND", know_bound) }
}

fn know_bound(ctx: Ctx<'_>, arguments: &[Str<'_>]) -> bool {
    let db = ctx.db();
    for key in arguments {
        if ctx.standing(db, *key) == Standing::Other {
            persist::inherited(ctx, db, key.bytes(), Mode::Temporary);
        }
    }
    true
}

/// See `command/told.rs`.
unsafe extern "C" fn session(
    ctx: *mut c::RedisModuleCtx,
    arguments: *mut *mut c::RedisModuleString,
    count: c_int,
) -> c_int {
    let know = |ctx: Ctx<'_>, arguments: &[Str<'_>]| know(ctx, told::SESSION, arguments);
    // SAFETY: the server's arguments, for the length of this call.
    unsafe { said(ctx, arguments, count, told::SESSION, know) }
}

/// See `command/told.rs`.
unsafe extern "C" fn hold(
    ctx: *mut c::RedisModuleCtx,
    arguments: *mut *mut c::RedisModuleString,
    count: c_int,
) -> c_int {
    let know = |ctx: Ctx<'_>, arguments: &[Str<'_>]| know(ctx, told::HOLD, arguments);
    // SAFETY: the server's arguments, for the length of this call.
    unsafe { said(ctx, arguments, count, told::HOLD, know) }
}

/// See `command/told.rs`.
unsafe extern "C" fn free(
    ctx: *mut c::RedisModuleCtx,
    arguments: *mut *mut c::RedisModuleString,
    count: c_int,
) -> c_int {
    let know = |ctx: Ctx<'_>, arguments: &[Str<'_>]| know(ctx, told::FREE, arguments);
    // SAFETY: the server's arguments, for the length of this call.
    unsafe { said(ctx, arguments, count, told::FREE, know) }
}

/// What is said of sessions. False where it makes no sense.
fn know(ctx: Ctx<'_>, name: &str, arguments: &[Str<'_>]) -> bool {
    if is_import() {
        // Sessions do not move with a slot.
        return true;
    }
    let words: Vec<_> = arguments.iter().map(|word| word.bytes()).collect();
    let said = told::told(name, ctx.db(), &words);
    if let Some(said) = &said {
        persist::told(ctx, said);
    }
    said.is_some()
}

/// A command of the stream that makes no key, and says something of what is there.
///
/// # Safety
/// The arguments are those that the server gave to the command in whose call this is.
unsafe fn said(
    ctx: *mut c::RedisModuleCtx,
    arguments: *mut *mut c::RedisModuleString,
    count: c_int,
    name: &str,
    know: fn(Ctx<'_>, &[Str<'_>]) -> bool,
) -> c_int {
    guard((), || {
        // SAFETY: the caller; a `Str` is a pointer to one, and there is no null among them.
        let (ctx, arguments) = unsafe {
            let arguments = std::slice::from_raw_parts(arguments.cast::<Str>(), count as usize);
            (Ctx::new(ctx), &arguments[1..])
        };
        if arguments.is_empty() {
            return ctx.reply_wrong_arity();
        }
        if !ctx.state().is_replay() {
            return ctx.reply_error(&format!("ERR {name} is for replication only"));
        }
        if !know(ctx, arguments) {
            return ctx.reply_error(&format!("ERR {name} makes no sense"));
        }
        // Of use to this server's own append-only file, and to replicas of it.
        ctx.replicate_verbatim();
        ctx.reply_integer(1);
    });
    c::REDISMODULE_OK as c_int
}
