//! Reading and writing of RDB files.

use crate::engine::Db;
use crate::shell::sys::raw::calls::api;
use crate::shell::sys::raw::strings::Str;
use redis_module::raw;
use std::ffi::c_char;
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;

/// The RDB file being saved.
#[derive(Clone, Copy)]
pub struct RdbWriter<'a>(NonNull<raw::RedisModuleIO>, PhantomData<&'a ()>);

impl RdbWriter<'_> {
    /// # Safety
    /// The pointer is the one that the server gave to the callback in which `'a` lies.
    pub unsafe fn new(io: *mut raw::RedisModuleIO) -> Self {
        RdbWriter(
            NonNull::new(io).expect("the server gives no null file"),
            PhantomData,
        )
    }

    pub fn number(self, number: u64) {
        // SAFETY: the table, the file.
        unsafe { api!(RedisModule_SaveUnsigned(self.0.as_ptr(), number)) };
    }

    pub fn bytes(self, bytes: &[u8]) {
        let start = bytes.as_ptr().cast::<c_char>();
        // SAFETY: the table, the file; the bytes are copied.
        unsafe {
            api!(RedisModule_SaveStringBuffer(
                self.0.as_ptr(),
                start,
                bytes.len()
            ));
        }
    }
}

/// The file is truncated or malformed.
#[derive(Debug)]
pub struct Damaged;

/// The RDB file being loaded. Values are read in the order in which they were saved.
#[derive(Clone, Copy)]
pub struct RdbReader<'a>(NonNull<raw::RedisModuleIO>, PhantomData<&'a ()>);

impl<'a> RdbReader<'a> {
    /// # Safety
    /// The pointer is the one that the server gave to the callback in which `'a` lies.
    pub unsafe fn new(io: *mut raw::RedisModuleIO) -> Self {
        RdbReader(
            NonNull::new(io).expect("the server gives no null file"),
            PhantomData,
        )
    }

    pub fn number(self) -> Result<u64, Damaged> {
        // SAFETY: the table, the file.
        let number = unsafe { api!(RedisModule_LoadUnsigned(self.0.as_ptr())) };
        self.unless_broken(number)
    }

    pub fn bytes(self) -> Result<Loaded, Damaged> {
        let mut length = 0;
        // SAFETY: the table, the file; what is loaded is ours until it is freed, once, with what is returned.
        let loaded = unsafe {
            let start = api!(RedisModule_LoadStringBuffer(
                self.0.as_ptr(),
                &raw mut length
            ));
            if start.is_null() {
                return Err(Damaged);
            }
            Loaded(std::slice::from_raw_parts(start.cast::<u8>(), length))
        };
        self.unless_broken(loaded)
    }

    /// Checks whether the last read failed.
    fn unless_broken<T>(self, read: T) -> Result<T, Damaged> {
        // SAFETY: the table, the file.
        match unsafe { api!(RedisModule_IsIOError(self.0.as_ptr())) } {
            0 => Ok(read),
            _ => Err(Damaged),
        }
    }

    /// The key whose value is being loaded, if the server provides it.
    pub fn key(self) -> Option<(Db, Str<'a>)> {
        // SAFETY: the table, the file; the name lives as long as the callback.
        unsafe {
            let name = api!(RedisModule_GetKeyNameFromIO(self.0.as_ptr())).cast_mut();
            let db = api!(RedisModule_GetDbIdFromIO(self.0.as_ptr()));
            (!name.is_null()).then(|| (Db(db as u32), Str::new(name)))
        }
    }
}

/// Bytes read from a file.
pub struct Loaded(&'static [u8]);

impl Deref for Loaded {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        // SAFETY: the table; made by `RdbReader::bytes` and freed once.
        unsafe { api!(RedisModule_Free(self.0.as_ptr().cast_mut().cast())) };
    }
}
