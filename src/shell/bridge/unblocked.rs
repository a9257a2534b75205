//! Blocks that the server ends, not the module.

use crate::engine::Event;
use crate::policy::blocked::Block;
use crate::shell::bridge::acks;
use crate::shell::bridge::tell::handle;
use crate::shell::delivery::blocked::take;
use crate::shell::delivery::push;
use crate::shell::guard::guard;
use crate::shell::sys::raw::Ctx;
use crate::wire::replies;
use redis_module::raw as c;
use std::ffi::c_int;

/// `CLIENT UNBLOCK`: acts like a timeout. An answer given before stands, also one given by
/// [`end_block`](crate::shell::sys::shim::end_block).
pub unsafe extern "C" fn on_unblock(
    ctx: *mut c::RedisModuleCtx,
    _arguments: *mut *mut c::RedisModuleString,
    _count: c_int,
) -> c_int {
    guard((), || {
        // SAFETY: the server's argument, for the length of this call.
        let ctx = unsafe { Ctx::new(&ctx) };
        let client = ctx.client();
        // As long as the client is blocked: what is acknowledged by now is its answer.
        acks::count_blocking(ctx, client);
        push::send_before_answer(ctx, client);
        match take(client) {
            Some(Block::Answered(answer)) => return replies::send(&mut { ctx }, &answer.reply),
            Some(Block::Waiting(handle)) => handle.unblock(),
            None => (),
        }
        handle(ctx, Event::Unblocked { client });
    });
    c::REDISMODULE_OK as c_int
}

/// The client disconnected, or the server replied to it (`CLIENT UNBLOCK ... ERROR`, a role change).
pub unsafe extern "C" fn on_abandoned(
    ctx: *mut c::RedisModuleCtx,
    _handle: *mut c::RedisModuleBlockedClient,
) {
    guard((), || {
        // SAFETY: the server's argument, for the length of this call.
        let ctx = unsafe { Ctx::new(&ctx) };
        let client = ctx.client();
        let granted = match take(client) {
            Some(Block::Answered(answer)) => answer.granted,
            Some(Block::Waiting(handle)) => {
                handle.unblock();
                None
            }
            None => None,
        };
        handle(ctx, Event::Abandoned { client, granted });
    });
}
