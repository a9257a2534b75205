//! Connections that stand still until they are granted what they asked for.

use super::dispatch;
use super::guard::guard;
use super::raw::{Ctx, api};
use super::reply;
use super::state::shell;
use crate::engine::{ClientId, Event, Reply, Token};
use hashbrown::HashMap;
use redis_module::raw as c;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;

/// The server's handle of each blocked connection.
///
/// Invariant: a handle is in `handles` from `RM_BlockClient` until `RM_UnblockClient`, which the
/// server wants called once for each, also when the connection is gone. After that a grant is in
/// `granted` until the server has written the answer, a turn of its loop later.
#[derive(Default)]
pub struct Blocked {
    handles: HashMap<ClientId, *mut c::RedisModuleBlockedClient>,
    granted: HashMap<ClientId, Token>,
}

/// Blocks the connection whose command is in hand. The engine keeps the time.
pub fn block(ctx: Ctx<'_>) {
    // SAFETY: the table, the context; the callbacks get what they expect.
    let handle = unsafe {
        let handle = api!(RedisModule_BlockClient(
            ctx.as_ptr(),
            Some(on_answer),
            Some(on_unblock_command),
            Some(free_answer),
            0
        ));
        api!(RedisModule_SetDisconnectCallback(
            handle,
            Some(on_abandoned)
        ));
        handle
    };
    let mut blocked = shell().blocked.borrow_mut();
    blocked.handles.insert(ctx.client(), handle);
}

/// Ends a connection's block with this answer.
pub fn answer(client: ClientId, reply: Reply, granted: Option<Token>) {
    let answer = Box::into_raw(Box::new(reply));
    if !unblock(client, answer) {
        // SAFETY: ours a line ago, and nobody else's.
        drop(unsafe { Box::from_raw(answer) });
    } else if let Some(token) = granted {
        shell().blocked.borrow_mut().granted.insert(client, token);
    }
}

fn unblock(client: ClientId, answer: *mut Reply) -> bool {
    let handle = shell().blocked.borrow_mut().handles.remove(&client);
    if let Some(handle) = handle {
        // SAFETY: the table; a handle of ours that was not unblocked yet.
        unsafe { api!(RedisModule_UnblockClient(handle, answer.cast::<c_void>())) };
    }
    handle.is_some()
}

/// The server is ready to write the answer.
unsafe extern "C" fn on_answer(
    ctx: *mut c::RedisModuleCtx,
    _arguments: *mut *mut c::RedisModuleString,
    _count: c_int,
) -> c_int {
    guard((), || {
        // SAFETY: the server's argument; the data is what `answer` gave, and is freed later.
        let (ctx, reply) = unsafe {
            let data = api!(RedisModule_GetBlockedClientPrivateData(ctx));
            (Ctx::new(ctx), data.cast::<Reply>().as_ref())
        };
        shell().blocked.borrow_mut().granted.remove(&ctx.client());
        if let Some(reply) = reply {
            reply::send(ctx, reply);
        }
    });
    c::REDISMODULE_OK as c_int
}

unsafe extern "C" fn free_answer(_ctx: *mut c::RedisModuleCtx, data: *mut c_void) {
    if !data.is_null() {
        // SAFETY: what `answer` gave; the server frees it once.
        drop(unsafe { Box::from_raw(data.cast::<Reply>()) });
    }
}

/// `CLIENT UNBLOCK`: as if the time were over.
unsafe extern "C" fn on_unblock_command(
    ctx: *mut c::RedisModuleCtx,
    _arguments: *mut *mut c::RedisModuleString,
    _count: c_int,
) -> c_int {
    guard((), || {
        // SAFETY: the server's argument, for the length of this call.
        let ctx = unsafe { Ctx::new(ctx) };
        let client = ctx.client();
        unblock(client, null_mut());
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
        unblock(client, null_mut());
        let granted = shell().blocked.borrow_mut().granted.remove(&client);
        dispatch::tell(ctx, Event::Abandoned { client, granted });
    });
}
