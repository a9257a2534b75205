//! Connections that stand still until they are granted what they asked for.
//!
//! `RM_UnblockClient` wakes the server's loop by a pipe and answers in its next turn, by which a handoff is a tenth dearer
//! than the server's own (BLPOP). So where nobody can tell the difference, a handoff by a command of ours ends the block as
//! `CLIENT UNBLOCK` does ([`shim::end_block`]), and the handles are given back some at a time. What could tell is a `WAIT` or
//! `WAITAOF` as the waiter's next command: it is about the replication offset that `RM_UnblockClient` notes. Where there is
//! something to wait for ([`replicas::nobody_counts`]), all go the usual way.

use crate::engine::{ClientId, Event, Reply, Token};
use crate::shell::bridge::dispatch;
use crate::shell::commands::reply;
use crate::shell::guard::guard;
use crate::shell::server::{attribution, replicas};
use crate::shell::state::shell;
use crate::shell::sys::raw::{Ctx, api};
use crate::shell::sys::shim;
use hashbrown::HashMap;
use redis_module::raw as c;
use std::ffi::c_int;
use std::ptr::{NonNull, null_mut};

/// What became of each blocked connection.
///
/// Invariant: a connection is in `all` as waiting from `RM_BlockClient` until `RM_UnblockClient`,
/// which the server wants called once for each, also when the connection is gone; then as answered
/// until the server has written the answer, a turn of its loop later. Or it is answered at once, and only its handle is
/// kept in `spent`, until `RM_UnblockClient`.
#[derive(Default)]
pub struct Blocked {
    all: HashMap<ClientId, Block>,
    /// Answered, and to be ended at the end of the command in hand.
    ending: Vec<(ClientId, Handle)>,
    spent: Vec<Handle>,
}

/// The server's.
struct Handle(NonNull<c::RedisModuleBlockedClient>);

enum Block {
    Waits(Handle),
    Answered(Answer),
}

/// What a connection that stands still is told.
pub struct Answer {
    pub reply: Reply,
    /// What it is granted by that.
    pub granted: Option<Token>,
}

/// Notes what has become of a connection; what had before is given back.
fn note(client: ClientId, block: Block) -> Option<Block> {
    let blocked = &shell().blocked;
    blocked.with_mut(|blocked| blocked.all.insert(client, block))
}

/// A connection no longer stands still, or has its answer.
fn forget(client: ClientId) -> Option<Block> {
    let blocked = &shell().blocked;
    blocked.with_mut(|blocked| blocked.all.remove(&client))
}

/// Blocks the connection whose command is in hand, unless the server refuses: Valkey since 8.1.1 does where the connection
/// is subscribed to channels. The engine keeps the time.
pub fn block(ctx: Ctx<'_>) {
    let client = ctx.client();
    // SAFETY: the table, the context; the callbacks get what they expect.
    let handle = unsafe {
        api!(RedisModule_BlockClient(
            ctx.as_ptr(),
            Some(on_answer),
            Some(on_unblock_command),
            None,
            0
        ))
    };
    let Some(handle) = NonNull::new(handle) else {
        return dispatch::tell(ctx, Event::BlockRefused { client });
    };
    // SAFETY: the table, the handle; the callback gets what it expects.
    unsafe {
        api!(RedisModule_SetDisconnectCallback(
            handle.as_ptr(),
            Some(on_abandoned)
        ));
    }
    note(client, Block::Waits(Handle(handle)));
}

/// Ends a connection's block with this answer. `in_command`: by a command of ours, not in the middle of something that the
/// server does.
pub fn answer(ctx: Ctx<'_>, client: ClientId, answer: Answer, in_command: bool) {
    let handle = shell().blocked.with_mut(|blocked| {
        let block = blocked.all.get_mut(&client)?;
        match std::mem::replace(block, Block::Answered(answer)) {
            Block::Waits(handle) => Some(handle),
            // The first answer stands.
            former => {
                *block = former;
                None
            }
        }
    });
    let Some(handle) = handle else { return };
    if in_command && shell().server.get().ends_blocks && replicas::nobody_counts(ctx) {
        let blocked = &shell().blocked;
        blocked.with_mut(|blocked| blocked.ending.push((client, handle)));
    } else {
        handle.unblock();
    }
}

/// Ends the blocks that a command of ours has answered, once it has its own reply: the server writes to the last one first
/// that it has something for. So whoever was granted hears before who gave, and the first in line before the second.
pub fn end_answered() {
    loop {
        let last = shell().blocked.with_mut(|blocked| {
            let (client, handle) = blocked.ending.pop()?;
            let is_answered = matches!(blocked.all.get(&client), Some(Block::Answered(_)));
            Some((client, handle, is_answered))
        });
        let Some((client, handle, is_answered)) = last else {
            return;
        };
        // SAFETY: a handle of ours that was not unblocked yet, and is this connection's.
        if is_answered && unsafe { shim::end_block(client, handle.0.as_ptr()) } {
            keep(handle);
        } else {
            handle.unblock();
        }
    }
}

/// Keeps the handle of a block that is over.
fn keep(handle: Handle) {
    const MANY: usize = 16;
    /// The server keeps some memory for each.
    const LONG_MS: u64 = 1000;
    let count = shell().blocked.with_mut(|blocked| {
        blocked.spent.push(handle);
        blocked.spent.len()
    });
    match count {
        1 => dispatch::wake_in_ms(LONG_MS),
        MANY.. => give_back(),
        _ => {}
    }
}

/// Gives the handles back of blocks that are over.
pub fn give_back() {
    let blocked = &shell().blocked;
    let mut spent = blocked.with_mut(|blocked| std::mem::take(&mut blocked.spent));
    spent.drain(..).for_each(Handle::unblock);
    // Its memory is of use again.
    blocked.with_mut(|blocked| blocked.spent = spent);
}

impl Handle {
    fn unblock(self) {
        // SAFETY: the table; a handle of ours that was not unblocked yet. The server calls nobody
        // back before this command or event is over.
        unsafe { api!(RedisModule_UnblockClient(self.0.as_ptr(), null_mut())) };
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
        let ctx = unsafe { Ctx::new(&ctx) };
        let block = forget(ctx.client());
        if let Some(Block::Answered(answer)) = block {
            reply::send(ctx, &answer.reply);
        }
    });
    c::REDISMODULE_OK as c_int
}

/// `CLIENT UNBLOCK`: as if the time were over. What was answered before that stays answered; also by [`shim::end_block`].
unsafe extern "C" fn on_unblock_command(
    ctx: *mut c::RedisModuleCtx,
    _arguments: *mut *mut c::RedisModuleString,
    _count: c_int,
) -> c_int {
    guard((), || {
        // SAFETY: the server's argument, for the length of this call.
        let ctx = unsafe { Ctx::new(&ctx) };
        let client = ctx.client();
        match forget(client) {
            Some(Block::Answered(answer)) => return reply::send(ctx, &answer.reply),
            Some(Block::Waits(handle)) => handle.unblock(),
            None => (),
        }
        dispatch::tell(ctx, Event::Unblocked { client });
    });
    c::REDISMODULE_OK as c_int
}

/// Whether a connection has not ended. Nothing may be asked about one that has.
fn lives(client: ClientId) -> bool {
    shell().engine.with(|engine| engine.knows_client(client))
}

/// The connection is gone, or the server has answered it (`CLIENT UNBLOCK ... ERROR`, a new role). Or it is Redis 7.0, which
/// was told `CLIENT UNBLOCK` of one whose answer is on its way, and would answer it nothing.
unsafe extern "C" fn on_abandoned(
    ctx: *mut c::RedisModuleCtx,
    _handle: *mut c::RedisModuleBlockedClient,
) {
    guard((), || {
        // SAFETY: the server's argument, for the length of this call.
        let ctx = unsafe { Ctx::new(&ctx) };
        let client = ctx.client();
        let granted = match forget(client) {
            Some(Block::Answered(answer))
                if lives(client) && attribution::is_unblocking(ctx, client) =>
            {
                return reply::send(ctx, &answer.reply);
            }
            Some(Block::Answered(answer)) => answer.granted,
            Some(Block::Waits(handle)) => {
                handle.unblock();
                None
            }
            None => None,
        };
        dispatch::tell(ctx, Event::Abandoned { client, granted });
    });
}
