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
use crate::engine::{Mode, Token};
use redis_module::raw as c;
use std::ffi::c_int;

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

/// Registers the one command that only the stream has. Once, at load.
pub fn register(ctx: Ctx<'_>) -> bool {
    let flags = c"write deny-script fast no-monitor".as_ptr();
    let name = c"tether.token".as_ptr();
    // SAFETY: the table, the context.
    let made = unsafe {
        api!(RedisModule_CreateCommand(
            ctx.as_ptr(),
            name,
            Some(token),
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
    guard((), || {
        // SAFETY: the server's arguments, for the length of this call; see `commands::entry`.
        let (ctx, arguments) = unsafe {
            let arguments = std::slice::from_raw_parts(arguments.cast::<Str>(), count as usize);
            (Ctx::new(ctx), arguments)
        };
        let [_, number] = arguments else {
            return ctx.reply_wrong_arity();
        };
        if !ctx.state().is_replay() {
            return ctx.reply_error("ERR TETHER.TOKEN is for replication only");
        }
        let number = std::str::from_utf8(number.bytes()).ok();
        if let Some(number) = number.and_then(|number| number.parse().ok()) {
            shell().engine.borrow_mut().know_token(Token(number));
        }
        ctx.replicate_verbatim();
        ctx.reply_integer(1);
    });
    c::REDISMODULE_OK as c_int
}
