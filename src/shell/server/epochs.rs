//! What tokens the servers of a cluster have come to: each tells the others over the cluster's bus.
//!
//! A key's tokens are to rise, wherever its slot goes. So a server that gains slots goes on from what the clock says then
//! (see `engine/tokens.rs`), which is more than others have given. What is told here matters where a clock is wrong, or a
//! server has come to know of a token from the future. Who gains none stays in its epoch: a master that was stopped and
//! was replaced must not give greater tokens than its successor.

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

/// Of the messages of this module.
const TOKEN: u8 = 1;

/// How often the last token is told again, for those that were not there before.
const AGAIN_MS: u64 = 2000;

/// Has the server tell what others say. Once, at load.
pub fn listen(ctx: Ctx<'_>) {
    if shell().server.get().is_cluster {
        // SAFETY: the table, the context.
        unsafe {
            api!(RedisModule_RegisterClusterMessageReceiver(
                ctx.as_ptr(),
                TOKEN,
                Some(heard)
            ));
        }
    }
}

unsafe extern "C" fn heard(
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

/// Whether slots may have come to this server since this was last asked, in which others may have given greater tokens.
pub fn may_have_gained() -> bool {
    let shell = shell();
    shell.slots_changed.take() || !shell.hears_of_slots.get()
}

/// Tells all other servers of the cluster what this one's tokens have come to, and listens for slots from the first time on.
pub fn replicate_epoch(ctx: Ctx<'_>, token: Token) {
    let shell = shell();
    if !shell.server.get().is_cluster {
        return;
    }
    shell.hears_of_slots.set(true);
    subscriptions::to_slots(ctx);
    let bytes = token.0.to_le_bytes();
    // SAFETY: the table, the context; the server copies so many bytes, and takes no name for everybody's.
    unsafe {
        api!(RedisModule_SendClusterMessage(
            ctx.as_ptr(),
            null(),
            TOKEN,
            bytes.as_ptr().cast(),
            bytes.len() as u32
        ));
    }
    shell.told_others.set(clock::now());
    timer::wake_in_ms(AGAIN_MS);
}

/// Tells them once more, when it is time. What a replica knows is its master's to tell.
pub fn replicate_epoch_again(ctx: Ctx<'_>) {
    let shell = shell();
    if !shell.server.get().is_cluster || shell.is_replica() {
        return;
    }
    let now = clock::since_1970();
    let Some(token) = shell.engine.with(|engine| engine.reached_token(now)) else {
        return;
    };
    match clock::now().ms_since(shell.told_others.get()) {
        ago_ms if ago_ms < AGAIN_MS => timer::wake_in_ms(AGAIN_MS - ago_ms),
        _ => replicate_epoch(ctx, token),
    }
}

/// Makes all fencing tokens from now on greater than those before: at load and at promotion.
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
