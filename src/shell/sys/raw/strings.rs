//! Server strings: borrowed and owned.

use crate::shell::sys::raw::calls::{api, hot};
use redis_module::raw;
use std::ffi::{CString, c_char};
use std::marker::PhantomData;
use std::ptr::{NonNull, null_mut};

/// A server string that lives as long as the current callback.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Str<'a>(NonNull<raw::RedisModuleString>, PhantomData<&'a [u8]>);

impl<'a> Str<'a> {
    /// # Safety
    /// The pointer is one that the server gave to the callback in which `'a` lies.
    pub unsafe fn new(string: *mut raw::RedisModuleString) -> Self {
        Str(
            NonNull::new(string).expect("the server gives no null string"),
            PhantomData,
        )
    }

    pub fn bytes(self) -> &'a [u8] {
        let mut length = 0;
        // SAFETY: the table; the string lives for 'a and nobody changes it meanwhile.
        unsafe {
            let bytes = hot!(RedisModule_StringPtrLen(self.0.as_ptr(), &mut length));
            std::slice::from_raw_parts(bytes.cast(), length)
        }
    }

    pub fn as_ptr(self) -> *mut raw::RedisModuleString {
        self.0.as_ptr()
    }
}

/// An owned server string.
pub struct Text(NonNull<raw::RedisModuleString>);

impl Text {
    pub fn new(bytes: &[u8]) -> Self {
        // SAFETY: the table; the bytes are copied. A null context means that we free it ourselves.
        let string = unsafe {
            api!(RedisModule_CreateString(
                null_mut(),
                bytes.as_ptr().cast(),
                bytes.len()
            ))
        };
        Text(NonNull::new(string).expect("the server aborts when it has no memory"))
    }

    /// Takes a string over; none for null.
    ///
    /// # Safety
    /// The string is null, or the caller's own.
    pub(super) unsafe fn own(string: *mut raw::RedisModuleString) -> Option<Text> {
        NonNull::new(string).map(Text)
    }

    /// Keeps a string of the server's: no other string gets its address meanwhile. `None` if the server would copy it.
    pub fn keep(string: Str<'_>) -> Option<Text> {
        // SAFETY: the table, the string. A null context means that we free it ourselves.
        let kept = unsafe { api!(RedisModule_HoldString(null_mut(), string.as_ptr())) };
        let kept = NonNull::new(kept).map(Text)?;
        (kept.as_str() == string).then_some(kept)
    }

    pub fn as_str(&self) -> Str<'_> {
        Str(self.0, PhantomData)
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        // SAFETY: the table; made or kept by us, and freed once.
        unsafe { api!(RedisModule_FreeString(null_mut(), self.0.as_ptr())) }
    }
}

/// The server's pointers to these strings, for reading only.
pub(super) fn pointers_of(words: &[Str<'_>]) -> *mut *mut raw::RedisModuleString {
    // A `Str` is such a pointer.
    words
        .as_ptr()
        .cast::<*mut raw::RedisModuleString>()
        .cast_mut()
}

/// A C string; escapes inner zero bytes.
pub fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "\\0")).unwrap_or_default()
}

/// A C string that is never freed, for registrations.
pub fn forever(text: &str) -> *const c_char {
    c_string(text).into_raw()
}
