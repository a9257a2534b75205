//! Reading and writing of RDB files.

use crate::engine::Db;
use crate::shell::sys::raw::calls::api;
use crate::shell::sys::raw::strings::Str;
use crate::shell::sys::scoped::assert_nothing_borrowed;
use redis_module::raw;
use std::marker::PhantomData;
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
        assert_nothing_borrowed();
        raw::save_unsigned(self.0.as_ptr(), number);
    }

    pub fn bytes(self, bytes: &[u8]) {
        assert_nothing_borrowed();
        raw::save_slice(self.0.as_ptr(), bytes);
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
        assert_nothing_borrowed();
        raw::load_unsigned(self.0.as_ptr()).map_err(|_| Damaged)
    }

    /// Copied, so that the server's memory is freed here, where nothing is borrowed.
    pub fn bytes(self) -> Result<Vec<u8>, Damaged> {
        assert_nothing_borrowed();
        let loaded = raw::load_string_buffer(self.0.as_ptr()).map_err(|_| Damaged)?;
        Ok(loaded.as_ref().to_vec())
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
