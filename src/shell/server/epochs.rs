//! Keeps tokens rising across a cluster: each node broadcasts its last token on the cluster bus.
//!
//! A key's tokens must rise wherever its slot goes. So a node that gains slots continues from its clock (see
//! `engine/state/tokens.rs`), which is ahead of what the others have issued; and while it imports a slot, whose owner still
//! issues tokens, it does so for each request there. The broadcast matters only if a clock is wrong, or a node has seen a
//! token from the future. Any other node stays in its epoch: a master that was stopped and replaced must not issue greater
//! tokens than its successor.

use crate::engine::Token;
use crate::shell::guard::guard;
use crate::shell::server::subscriptions;
use crate::shell::state::shell;
use crate::shell::sys::clock;
use crate::shell::sys::raw::{Ctx, api};
use crate::shell::timer;
use redis_module::raw as c;
use std::ffi::{c_char, c_uchar};
use std::ptr::null;

/// The message type on the cluster bus.
const TOKEN_MESSAGE: u8 = 1;

/// Interval of repeated broadcasts, for nodes that missed the earlier ones.
const REBROADCAST_MS: u64 = 2000;

/// Registers the message receiver. Once, at load.
pub fn listen(ctx: Ctx<'_>) {
    if shell().server.get().is_cluster {
        // SAFETY: the table, the context.
        unsafe {
            api!(RedisModule_RegisterClusterMessageReceiver(
                ctx.as_ptr(),
                TOKEN_MESSAGE,
                Some(on_message)
            ));
        }
    }
}

unsafe extern "C" fn on_message(
    _ctx: *mut c::RedisModuleCtx,
    _sender: *const c_char,
    _kind: u8,
    payload: *const c_uchar,
    length: u32,
) {
    guard((), || {
        const LENGTH: usize = size_of::<u64>();
        if length as usize != LENGTH {
            return;
        }
        // SAFETY: the server's argument, of that length, for the length of this call.
        let token = unsafe { payload.cast::<[u8; LENGTH]>().read_unaligned() };
        let token = Token(u64::from_le_bytes(token));
        shell()
            .engine
            .with_mut(|engine| engine.observe_token(token, clock::since_1970()));
    });
}

/// Whether other nodes may have issued greater tokens for a slot that this node may have gained since the last call, or for one of
/// these keys, whose slot this node may be importing.
pub fn may_be_behind<'a>(mut names: impl Iterator<Item = &'a [u8]>) -> bool {
    let shell = shell();
    shell.slots_changed.take()
        || !shell.notices_slot_gains.get()
        || names.any(|name| {
            shell
                .served_slots
                .with(|served| served.may_be_importing(name))
        })
}

/// Broadcasts the last token to the cluster, and watches for gained slots from the first call on.
pub fn broadcast_token(ctx: Ctx<'_>, token: Token) {
    let shell = shell();
    if !shell.server.get().is_cluster {
        return;
    }
    shell.notices_slot_gains.set(true);
    subscriptions::to_slots(ctx);
    let bytes = token.0.to_le_bytes();
    // SAFETY: the table, the context; the server copies so many bytes, and takes no name for everybody's.
    unsafe {
        api!(RedisModule_SendClusterMessage(
            ctx.as_ptr(),
            null(),
            TOKEN_MESSAGE,
            bytes.as_ptr().cast(),
            bytes.len() as u32
        ));
    }
    shell.epoch_sent_at.set(clock::now());
    timer::wake_in_ms(REBROADCAST_MS);
}

/// Repeats the broadcast when it is due. A replica leaves that to its master.
pub fn rebroadcast_if_due(ctx: Ctx<'_>) {
    let shell = shell();
    if !shell.server.get().is_cluster || shell.is_replica() {
        return;
    }
    let now = clock::since_1970();
    let Some(token) = shell.engine.with(|engine| engine.reached_token(now)) else {
        return;
    };
    match clock::now().ms_since(shell.epoch_sent_at.get()) {
        ago_ms if ago_ms < REBROADCAST_MS => timer::wake_in_ms(REBROADCAST_MS - ago_ms),
        _ => broadcast_token(ctx, token),
    }
}

/// Begins a new epoch, so that all later tokens are greater than all earlier ones. Called at load and at promotion.
pub fn begin_epoch() {
    let since_1970 = clock::since_1970();
    let shell = shell();
    shell.engine.with_mut(|engine| {
        if shell.server.get().is_cluster {
            engine.follow_clock(since_1970);
        }
        engine.begin_epoch(since_1970);
    });
}
