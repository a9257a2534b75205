//! Connections that stand still until they are granted what they asked for.

use super::dispatch;
use super::guard::guard;
use super::raw::{Ctx, api};
use super::reply;
use super::state::shell;
use crate::engine::{ClientId, Event, Reply, Token};
use hashbrown::HashMap;
use redis_module::raw as c;
use std::cell::RefMut;
use std::ffi::c_int;
use std::ptr::null_mut;

/// What became of each blocked connection.
///
/// Invariant: a connection is in `all` as waiting from `RM_BlockClient` until `RM_UnblockClient`,
/// which the server wants called once for each, also when the connection is gone; then as answered
/// until the server has written the answer, a turn of its loop later.
#[derive(Default)]
pub struct Blocked {
    all: HashMap<ClientId, Block>,
}

enum Block {
    /// With the server's handle.
    Waits(*mut c::RedisModuleBlockedClient),
    Answered {
        reply: Reply,
        granted: Option<Token>,
    },
}

fn all() -> RefMut<'static, HashMap<ClientId, Block>> {
    RefMut::map(shell().blocked.borrow_mut(), |blocked| &mut blocked.all)
}

/// Blocks the connection whose command is in hand. The engine keeps the time.
pub fn block(ctx: Ctx<'_>) {
    // SAFETY: the table, the context; the callbacks get what they expect.
    let handle = unsafe {
        let handle = api!(RedisModule_BlockClient(
            ctx.as_ptr(),
            Some(on_answer),
            Some(on_unblock_command),
            None,
            0
        ));
        api!(RedisModule_SetDisconnectCallback(
            handle,
            Some(on_abandoned)
        ));
        handle
    };
    all().insert(ctx.client(), Block::Waits(handle));
}

/// Ends a connection's block with this answer.
pub fn answer(client: ClientId, reply: Reply, granted: Option<Token>) {
    let mut all = all();
    if let Some(block @ Block::Waits(_)) = all.get_mut(&client) {
        let answered = Block::Answered { reply, granted };
        unblock(std::mem::replace(block, answered));
    }
}

fn unblock(block: Block) {
    if let Block::Waits(handle) = block {
        // SAFETY: the table; a handle of ours that was not unblocked yet. The server calls nobody
        // back before this command or event is over.
        unsafe { api!(RedisModule_UnblockClient(handle, null_mut())) };
    }
}

/// The server is ready to write the answer.
unsafe extern "C" fn on_answer(
    ctx: *mut c::RedisModuleCtx,
    _arguments: *mut *mut c::RedisModuleString,
    _count: c_int,
) -> c_int {
    guard((), || {
        // SAFETY: the server's argument, for the length of this call.
        let ctx = unsafe { Ctx::new(ctx) };
        let block = all().remove(&ctx.client());
        if let Some(Block::Answered { reply, .. }) = block {
            reply::send(ctx, &reply);
        }
    });
    c::REDISMODULE_OK as c_int
}

/// `CLIENT UNBLOCK`: as if the time were over. What was answered before that stays answered.
unsafe extern "C" fn on_unblock_command(
    ctx: *mut c::RedisModuleCtx,
    _arguments: *mut *mut c::RedisModuleString,
    _count: c_int,
) -> c_int {
    guard((), || {
        // SAFETY: the server's argument, for the length of this call.
        let ctx = unsafe { Ctx::new(ctx) };
        let client = ctx.client();
        match all().remove(&client) {
            Some(Block::Answered { reply, .. }) => return reply::send(ctx, &reply),
            Some(waits) => unblock(waits),
            None => (),
        }
        dispatch::tell(ctx, Event::Unblocked { client });
    });
    c::REDISMODULE_OK as c_int
}

/// The connection is gone, or the server has answered it (`CLIENT UNBLOCK ... ERROR`, a new role).
unsafe extern "C" fn on_abandoned(
    ctx: *mut c::RedisModuleCtx,
    _handle: *mut c::RedisModuleBlockedClient,
) {
    guard((), || {
        // SAFETY: the server's argument, for the length of this call.
        let ctx = unsafe { Ctx::new(ctx) };
        let client = ctx.client();
        let granted = match all().remove(&client) {
            Some(Block::Answered { granted, .. }) => granted,
            Some(waits) => {
                unblock(waits);
                None
            }
            None => None,
        };
        dispatch::tell(ctx, Event::Abandoned { client, granted });
    });
}
