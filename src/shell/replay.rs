//! What a master's stream and the append-only file tell.
//!
//! There a command of ours means that it was granted: the key was made, and somebody at the former
//! server held it. Here nobody does. A replica leaves such keys alone; as soon as this server may
//! remove them (it is promoted, or has loaded its data) they go.

use super::guard::guard;
use super::perform::write;
use super::persist;
use super::raw::{Ctx, Str, api};
use super::state::shell;
use crate::command::Request;
use crate::engine::{Mode, Standing, Token};
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
    persist::inherited(ctx, ctx.db(), string.bytes(), mode);
}

/// Registers the commands that only the stream and the append-only file have. Once, at load.
pub fn register(ctx: Ctx<'_>) -> bool {
    create(ctx, c"tether.token", token) && create(ctx, c"tether.bound", bound)
}

type Entry =
    unsafe extern "C" fn(*mut c::RedisModuleCtx, *mut *mut c::RedisModuleString, c_int) -> c_int;

fn create(ctx: Ctx<'_>, name: &CStr, entry: Entry) -> bool {
    let flags = c"write deny-script fast no-monitor".as_ptr();
    // SAFETY: the table, the context.
    let made = unsafe {
        api!(RedisModule_CreateCommand(
            ctx.as_ptr(),
            name.as_ptr(),
            Some(entry),
            flags,
            0,
            0,
            0
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
    unsafe { told(ctx, arguments, count, "TETHER.TOKEN", know_token) }
}

fn know_token(_ctx: Ctx<'_>, arguments: &[Str<'_>]) {
    let number = std::str::from_utf8(arguments[0].bytes()).ok();
    if let Some(number) = number.and_then(|number| number.parse().ok()) {
        shell().engine.borrow_mut().know_token(Token(number));
    }
}

/// `TETHER.BOUND key [key ...]`: these string keys, which are there, are temporary keys.
unsafe extern "C" fn bound(
    ctx: *mut c::RedisModuleCtx,
    arguments: *mut *mut c::RedisModuleString,
    count: c_int,
) -> c_int {
    // SAFETY: the server's arguments, for the length of this call.
    unsafe { told(ctx, arguments, count, "TETHER.BOUND", know_bound) }
}

fn know_bound(ctx: Ctx<'_>, arguments: &[Str<'_>]) {
    let db = ctx.db();
    for key in arguments {
        if ctx.standing(db, *key) == Standing::Other {
            persist::inherited(ctx, db, key.bytes(), Mode::Temporary);
        }
    }
}

/// A command of the stream that makes no key, and says something of what is there.
///
/// # Safety
/// The arguments are those that the server gave to the command in whose call this is.
unsafe fn told(
    ctx: *mut c::RedisModuleCtx,
    arguments: *mut *mut c::RedisModuleString,
    count: c_int,
    name: &str,
    know: fn(Ctx<'_>, &[Str<'_>]),
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
        know(ctx, arguments);
        ctx.replicate_verbatim();
        ctx.reply_integer(1);
    });
    c::REDISMODULE_OK as c_int
}
