//! Blocked clients, as the server knows them.

use crate::shell::sys::raw::calls::api;
use crate::shell::sys::raw::context::Ctx;
use redis_module::raw;
use std::ffi::c_int;
use std::ptr::{NonNull, null_mut};

/// The server's handle of a block, which it wants back once, by [`unblock`](Self::unblock).
pub struct BlockHandle(NonNull<raw::RedisModuleBlockedClient>);

/// An answer to a client, as the server has it written.
pub type OnAnswer = unsafe extern "C" fn(
    *mut raw::RedisModuleCtx,
    *mut *mut raw::RedisModuleString,
    c_int,
) -> c_int;

/// What is called when the client is gone, or was answered by the server.
pub type OnAbandoned =
    unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut raw::RedisModuleBlockedClient);

impl BlockHandle {
    /// Blocks the client whose command is running, without a time limit. None where the server refuses.
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

    pub fn as_ptr(&self) -> *mut raw::RedisModuleBlockedClient {
        self.0.as_ptr()
    }

    /// From now on `CLIENT UNBLOCK` does not reach this client. No function of the module API takes a callback back, so the word
    /// that names it is overwritten.
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

    /// Ends the block. The server calls nobody back before this command or event is over.
    pub fn unblock(self) {
        // SAFETY: the table; a handle that was not unblocked yet, since that takes it.
        unsafe { api!(RedisModule_UnblockClient(self.0.as_ptr(), null_mut())) };
    }
}
