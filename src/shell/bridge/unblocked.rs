//! Blocks that the server ends by itself.

use crate::engine::Event;
use crate::policy::blocked::Block;
use crate::shell::bridge::acks;
use crate::shell::bridge::tell::handle;
use crate::shell::delivery::blocked::forget;
use crate::shell::delivery::{push, reply};
use crate::shell::guard::guard;
use crate::shell::sys::raw::Ctx;
use redis_module::raw as c;
use std::ffi::c_int;

/// `CLIENT UNBLOCK`: as if the time were over. What was answered before that stays answered; also by
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
        push::send_first(ctx, client);
        match forget(client) {
            Some(Block::Answered(answer)) => return reply::send(ctx, &answer.reply),
            Some(Block::Waits(handle)) => handle.unblock(),
            None => (),
        }
        acks::count_blocking(ctx, client);
        handle(ctx, Event::Unblocked { client });
    });
    c::REDISMODULE_OK as c_int
}

/// The client is gone, or the server has answered it (`CLIENT UNBLOCK ... ERROR`, a new role).
pub unsafe extern "C" fn on_abandoned(
    ctx: *mut c::RedisModuleCtx,
    _handle: *mut c::RedisModuleBlockedClient,
) {
    guard((), || {
        // SAFETY: the server's argument, for the length of this call.
        let ctx = unsafe { Ctx::new(&ctx) };
        let client = ctx.client();
        let granted = match forget(client) {
            Some(Block::Answered(answer)) => answer.granted,
            Some(Block::Waits(handle)) => {
                handle.unblock();
                None
            }
            None => None,
        };
        handle(ctx, Event::Abandoned { client, granted });
    });
}
