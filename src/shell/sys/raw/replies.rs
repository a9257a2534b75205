//! Replies to the current command.

use crate::shell::sys::raw::calls::{api, hot};
use crate::shell::sys::raw::context::Ctx;
use crate::shell::sys::raw::strings::c_string;

impl Ctx<'_> {
    pub fn reply_integer(self, value: i64) {
        // SAFETY: the table, the context.
        unsafe { hot!(RedisModule_ReplyWithLongLong(self.as_ptr(), value)) };
    }

    pub fn reply_bulk(self, bytes: &[u8]) {
        // SAFETY: the table, the context; the bytes are copied.
        unsafe {
            api!(RedisModule_ReplyWithStringBuffer(
                self.as_ptr(),
                bytes.as_ptr().cast(),
                bytes.len()
            ));
        }
    }

    pub fn reply_ok(self) {
        // SAFETY: the table, the context; the text is copied.
        unsafe {
            api!(RedisModule_ReplyWithSimpleString(
                self.as_ptr(),
                c"OK".as_ptr()
            ))
        };
    }

    pub fn reply_null(self) {
        // SAFETY: the table, the context.
        unsafe { api!(RedisModule_ReplyWithNull(self.as_ptr())) };
    }

    /// An array of pairs on RESP2.
    pub fn reply_map(self, length: usize) {
        // SAFETY: the table, the context.
        unsafe { api!(RedisModule_ReplyWithMap(self.as_ptr(), length as _)) };
    }

    pub fn reply_array(self, length: usize) {
        // SAFETY: the table, the context.
        unsafe { api!(RedisModule_ReplyWithArray(self.as_ptr(), length as _)) };
    }

    /// The message begins with its error code.
    pub fn reply_error(self, message: &str) {
        let message = c_string(message);
        // SAFETY: the table, the context; the message is copied.
        unsafe { api!(RedisModule_ReplyWithError(self.as_ptr(), message.as_ptr())) };
    }

    /// In the server's own wording.
    pub fn reply_wrong_arity(self) {
        // SAFETY: the table, the context.
        unsafe { api!(RedisModule_WrongArity(self.as_ptr())) };
    }
}
