//! Commands of the server that the module calls, and what they answer.

use crate::shell::sys::raw::calls::{api, assert_not_in_uncaused_event, calling};
use crate::shell::sys::raw::context::Ctx;
use crate::shell::sys::scoped::assert_nothing_borrowed;
use redis_module::{Context, RedisResult, RedisValue, raw};
use std::ffi::c_int;
use std::ptr::NonNull;

impl Ctx<'_> {
    /// Calls a command with these words. `None` if the server refuses to run it.
    pub fn call(self, command: &str, words: &[&[u8]]) -> Option<RedisResult> {
        assert_nothing_borrowed();
        assert_not_in_uncaused_event();
        let _calling = calling();
        match Context::new(self.as_ptr()).call(command, words) {
            // What the crate makes of a refusal.
            Ok(RedisValue::StaticError(_)) => None,
            answer => Some(answer),
        }
    }

    /// What a command answers to these words. `None` if the server refuses to run it, or for an error.
    pub fn ask(self, command: &str, words: &[&str]) -> Option<RedisValue> {
        let words: Vec<_> = words.iter().map(|word| word.as_bytes()).collect();
        self.call(command, &words)?.ok()
    }
}

pub fn bytes_of(value: RedisValue) -> Option<Vec<u8>> {
    match value {
        RedisValue::SimpleString(text) => Some(text.into_bytes()),
        RedisValue::StringBuffer(bytes) => Some(bytes),
        _ => None,
    }
}

pub fn text_of(value: RedisValue) -> Option<String> {
    bytes_of(value).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// Of an array.
pub fn elements_of(value: RedisValue) -> Vec<RedisValue> {
    match value {
        RedisValue::Array(elements) => elements,
        _ => Vec::new(),
    }
}

/// The strings of an array of arrays; other elements are empty.
pub fn rows_of(value: Option<RedisValue>) -> Vec<Vec<String>> {
    let rows = value.map_or_else(Vec::new, elements_of).into_iter();
    let text = |element| text_of(element).unwrap_or_default();
    rows.map(|row| elements_of(row).into_iter().map(text).collect())
        .collect()
}

/// Calls a server command in a way that the crate does not offer. An error is that of the system, if the server refuses.
macro_rules! call {
    ($($argument:expr),* $(,)?) => {{
        crate::shell::sys::raw::calls::assert_not_in_uncaused_event();
        let _calling = crate::shell::sys::raw::calls::calling();
        let reply = crate::shell::sys::raw::calls::api!(RedisModule_Call($($argument),*));
        crate::shell::sys::raw::server_commands::CallReply::new(reply)
    }};
}
pub(super) use call;

/// The reply to a command call.
pub(super) struct CallReply(NonNull<raw::RedisModuleCallReply>);

impl CallReply {
    /// Right after the call.
    pub(super) fn new(reply: *mut raw::RedisModuleCallReply) -> Result<Self, Option<i32>> {
        let error = || std::io::Error::last_os_error().raw_os_error();
        NonNull::new(reply).map(CallReply).ok_or_else(error)
    }

    /// Whether the server sent no reply.
    pub(super) fn is_empty(&self) -> bool {
        self.kind() == raw::REDISMODULE_REPLY_UNKNOWN as c_int
    }

    /// The error text, if it is an error.
    pub(super) fn error(&self) -> Option<String> {
        if self.kind() != raw::REDISMODULE_REPLY_ERROR as c_int {
            return None;
        }
        let mut length = 0;
        // SAFETY: the table; the reply lives as long as `self`; the bytes are as many as it says, and copied.
        unsafe {
            let bytes: *const u8 =
                api!(RedisModule_CallReplyStringPtr(self.0.as_ptr(), &mut length)).cast();
            let bytes = std::slice::from_raw_parts(bytes, length);
            Some(String::from_utf8_lossy(bytes).into_owned())
        }
    }

    fn kind(&self) -> c_int {
        // SAFETY: the table; the reply lives as long as `self`.
        unsafe { api!(RedisModule_CallReplyType(self.0.as_ptr())) }
    }

    /// Sends it as the reply to the executing command.
    pub(super) fn pass_on(&self, ctx: Ctx<'_>) {
        // SAFETY: the table, the context; the reply lives as long as `self`, and is copied.
        unsafe {
            api!(RedisModule_ReplyWithCallReply(
                ctx.as_ptr(),
                self.0.as_ptr()
            ))
        };
    }
}

impl Drop for CallReply {
    fn drop(&mut self) {
        // SAFETY: the table; freed once.
        unsafe { api!(RedisModule_FreeCallReply(self.0.as_ptr())) }
    }
}
