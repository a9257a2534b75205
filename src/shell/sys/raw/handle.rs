//! The server's handles of blocked clients.

use crate::shell::sys::raw::calls::api;
use crate::shell::sys::raw::context::Ctx;
use redis_module::raw;
use std::ffi::c_int;
use std::ptr::{NonNull, null_mut};

/// The server's handle of a block, which must be released once, by [`unblock`](Self::unblock).
pub struct BlockHandle(NonNull<raw::RedisModuleBlockedClient>);

/// A callback that writes a client's reply.
pub type OnAnswer = unsafe extern "C" fn(
    *mut raw::RedisModuleCtx,
    *mut *mut raw::RedisModuleString,
    c_int,
) -> c_int;

/// A callback for a client that disconnected or that the server replied to.
pub type OnAbandoned =
    unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut raw::RedisModuleBlockedClient);

impl BlockHandle {
    /// Blocks the executing client, without a timeout. `None` if the server refuses.
    pub fn block(
        ctx: Ctx<'_>,
        on_answer: OnAnswer,
        on_unblock: OnAnswer,
        on_abandoned: OnAbandoned,
    ) -> Option<BlockHandle> {
        // SAFETY: the table, the context; the callbacks get what they expect.
        let handle = unsafe {
            api!(RedisModule_BlockClient(
                ctx.as_ptr(),
                Some(on_answer),
                Some(on_unblock),
                None,
                0
            ))
        };
        let handle = NonNull::new(handle)?;
        // SAFETY: the table, the handle; the callback gets what it expects.
        unsafe {
            api!(RedisModule_SetDisconnectCallback(
                handle.as_ptr(),
                Some(on_abandoned)
            ));
        }
        Some(BlockHandle(handle))
    }

    /// Disables `CLIENT UNBLOCK` for this block. The module API cannot remove a callback, so its pointer in the handle is
    /// zeroed.
    ///
    /// # Safety
    /// The server is a Redis 7.0 or 7.2, or a Valkey 7.2: there a handle begins with client, module and callbacks.
    pub unsafe fn clear_unblock_callback(&mut self, on_unblock: OnAnswer) {
        const WORDS: usize = 6;
        // SAFETY: what the server keeps for a block is longer, and is ours to give back. The words are pointers, or null.
        let words =
            unsafe { std::slice::from_raw_parts_mut(self.0.as_ptr().cast::<usize>(), WORDS) };
        for word in words {
            if *word == on_unblock as usize {
                *word = 0;
            }
        }
    }

    /// Ends the block. The server runs its callbacks after the current command or event.
    pub fn unblock(self) {
        // SAFETY: the table; a handle that was not unblocked yet, since that takes it.
        unsafe { api!(RedisModule_UnblockClient(self.0.as_ptr(), null_mut())) };
    }
}
