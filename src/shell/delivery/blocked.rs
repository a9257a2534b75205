//! Blocked clients: they wait in a command until they are granted what they asked for.
//!
//! `RM_UnblockClient` wakes the server's loop by a pipe and answers in its next turn, by which a handoff is a tenth dearer
//! than the server's own (BLPOP). So where nobody can tell the difference, a handoff by a command of ours ends the block as
//! `CLIENT UNBLOCK` does ([`shim::end_block`]), and the handles are given back some at a time. What could tell is a `WAIT` or
//! `WAITAOF` as the waiter's next command: it is about the replication offset that `RM_UnblockClient` notes. Where there is
//! something to wait for ([`replicas::nobody_counts`]), all go the usual way.

use crate::engine::ClientId;
use crate::policy::blocked::{Answer, Block, GiveBack};
use crate::shell::delivery::{push, reply};
use crate::shell::guard::guard;
use crate::shell::server::replicas;
use crate::shell::state::shell;
use crate::shell::sys::raw::{BlockHandle, Ctx};
use crate::shell::sys::shim;
use crate::shell::timer;
use redis_module::raw as c;
use std::ffi::c_int;

/// A client is no longer blocked, or has its answer.
pub fn forget(client: ClientId) -> Option<Block<BlockHandle>> {
    shell().blocked.with_mut(|blocked| blocked.forget(client))
}

/// Blocks the client whose command is running. False where the server refuses: Valkey since 8.1.1 does where the client
/// is subscribed to channels. The engine keeps the time.
#[must_use]
pub fn block(ctx: Ctx<'_>) -> bool {
    let ends = &shell().callbacks;
    let Some(handle) = BlockHandle::block(ctx, on_answer, ends.on_unblock, ends.on_abandoned)
    else {
        return false;
    };
    let client = ctx.client();
    let former = shell()
        .blocked
        .with_mut(|blocked| blocked.begins(client, handle));
    drop(former);
    true
}

/// Ends a client's block with this answer. `in_command`: by a command of ours, not in the middle of something that the
/// server does.
pub fn answer(ctx: Ctx<'_>, client: ClientId, answer: Answer, in_command: bool) {
    let blocked = &shell().blocked;
    let Some(handle) = blocked.with_mut(|blocked| blocked.answer(client, answer)) else {
        return;
    };
    if in_command && shell().server.get().ends_blocks && replicas::nobody_counts(ctx) {
        blocked.with_mut(|blocked| blocked.end_later(client, handle));
    } else {
        wake(handle);
    }
}

/// Ends an answered client's block the server's way: the client is written to before the loop sleeps.
fn wake(mut handle: BlockHandle) {
    let shell = shell();
    if shell.server.get().fails_late_unblock {
        // SAFETY: these are the servers.
        unsafe { handle.forgo_unblock(shell.callbacks.on_unblock) };
    }
    handle.unblock();
}

/// Ends the blocks that a command of ours has answered, once it has its own reply: the server writes to the last one first
/// that it has something for. So whoever was granted hears before who gave, and the first in line before the second.
pub fn end_answered() {
    let blocked = &shell().blocked;
    while let Some((client, handle, is_answered)) =
        blocked.with_mut(|blocked| blocked.next_to_end())
    {
        if !is_answered {
            handle.unblock();
            continue;
        }
        // SAFETY: a handle of ours that was not unblocked yet, and is this client's.
        if unsafe { shim::end_block(client, handle.as_ptr()) } {
            match blocked.with_mut(|blocked| blocked.keep_spent(handle)) {
                GiveBack::Now => give_back(),
                GiveBack::InMs(ms) => timer::wake_in_ms(ms),
                GiveBack::Later => {}
            }
        } else {
            wake(handle);
        }
    }
}

/// Gives the handles back of blocks that are over.
pub fn give_back() {
    let blocked = &shell().blocked;
    let mut spent = blocked.with_mut(|blocked| blocked.take_spent());
    spent.drain(..).for_each(BlockHandle::unblock);
    blocked.with_mut(|blocked| blocked.reuse(spent));
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
        let client = ctx.client();
        if let Some(Block::Answered(answer)) = forget(client) {
            push::send_first(ctx, client);
            reply::send(ctx, &answer.reply);
        }
    });
    c::REDISMODULE_OK as c_int
}
