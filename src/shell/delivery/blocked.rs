//! Blocked clients, whose command waits for a grant.
//!
//! `RM_UnblockClient` wakes the server's loop through a pipe and replies in its next turn, which takes 16 % of the server's
//! time for a handoff. So where no client can see the difference, a command of the module unblocks the client as `CLIENT
//! UNBLOCK` does ([`shim::end_block`]), and the handles are released in batches. A client can see it by `WAIT` or `WAITAOF`
//! as its next command, which use the replication offset that `RM_UnblockClient` records. So if those have something to
//! wait for ([`replicas::no_offset_waiters`]), the module uses `RM_UnblockClient`.

use crate::engine::ClientId;
use crate::policy::blocked::{Answer, Block, ReleaseHandles};
use crate::shell::delivery::push;
use crate::shell::guard::guard;
use crate::shell::server::replicas;
use crate::shell::state::{callbacks, shell};
use crate::shell::sys::raw::{BlockHandle, Ctx};
use crate::shell::sys::shim;
use crate::shell::timer;
use crate::wire::replies;
use redis_module::raw as c;
use std::ffi::c_int;

/// Removes and returns a client's block: it is no longer blocked, or its answer is being written.
pub fn take(client: ClientId) -> Option<Block<BlockHandle>> {
    shell().blocked.with_mut(|blocked| blocked.take(client))
}

/// Blocks the executing client, without a timeout: the engine has the deadline. False if the server refuses: Valkey since
/// 8.1.1 blocks no client with subscriptions.
#[must_use]
pub fn block(ctx: Ctx<'_>) -> bool {
    let ends = callbacks();
    let Some(handle) = BlockHandle::block(ctx, on_answer, ends.on_unblock, ends.on_abandoned)
    else {
        return false;
    };
    let client = ctx.client();
    let previous = shell()
        .blocked
        .with_mut(|blocked| blocked.begin(client, handle));
    drop(previous);
    true
}

/// Answers a blocked client and unblocks it. `in_command`: a command of the module does so, not a callback in the middle of
/// the server's work.
pub fn answer(ctx: Ctx<'_>, client: ClientId, answer: Answer, in_command: bool) {
    let blocked = &shell().blocked;
    let Some(handle) = blocked.with_mut(|blocked| blocked.answer(client, answer)) else {
        return;
    };
    if in_command && shell().server.get().ends_blocks && replicas::no_offset_waiters(ctx) {
        blocked.with_mut(|blocked| blocked.defer_unblock(client, handle));
    } else {
        unblock(handle);
    }
}

/// Unblocks an answered client through the API: the server replies before its loop sleeps.
fn unblock(mut handle: BlockHandle) {
    let shell = shell();
    if shell.server.get().fails_unblock_after_answer {
        // SAFETY: these are the servers.
        unsafe { handle.clear_unblock_callback(callbacks().on_unblock) };
    }
    handle.unblock();
}

/// Unblocks the clients that a command has answered, after its own reply. The server writes to the most recently added
/// client first, so a grantee hears before the client that released the key, and the first waiter before the second.
pub fn unblock_answered() {
    let blocked = &shell().blocked;
    while let Some((client, handle, is_answered)) =
        blocked.with_mut(|blocked| blocked.next_deferred())
    {
        if !is_answered {
            handle.unblock();
            continue;
        }
        // SAFETY: a handle of ours that was not unblocked yet, and is this client's.
        if unsafe { shim::end_block(client) } {
            match blocked.with_mut(|blocked| blocked.add_spent(handle)) {
                ReleaseHandles::Now => release_handles(),
                ReleaseHandles::InMs(ms) => timer::wake_in_ms(ms),
                ReleaseHandles::Later => {}
            }
        } else {
            unblock(handle);
        }
    }
}

/// Releases the handles of ended blocks.
pub fn release_handles() {
    let blocked = &shell().blocked;
    let mut spent = blocked.with_mut(|blocked| blocked.take_spent());
    spent.drain(..).for_each(BlockHandle::unblock);
    blocked.with_mut(|blocked| blocked.reuse(spent));
}

/// The server's callback for writing the answer.
unsafe extern "C" fn on_answer(
    ctx: *mut c::RedisModuleCtx,
    _arguments: *mut *mut c::RedisModuleString,
    _count: c_int,
) -> c_int {
    guard((), || {
        // SAFETY: the server's argument, for the length of this call.
        let ctx = unsafe { Ctx::new(&ctx) };
        let client = ctx.client();
        if let Some(Block::Answered(answer)) = take(client) {
            push::send_before_answer(ctx, client);
            replies::send(&mut { ctx }, &answer.reply);
        }
    });
    c::REDISMODULE_OK as c_int
}
