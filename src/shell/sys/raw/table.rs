//! The API functions that nearly every command calls, in adjacent cache lines.
//!
//! The API's function pointers are spread over many cache lines, and each is found through another pointer: every call
//! costs two reads of mostly cold memory and a null check. Here the pointers for a whole command share a few cache lines.

use redis_module::raw;
use redis_module::raw::{RedisModuleCtx as Ctx, RedisModuleKey as Key, RedisModuleString as Str};
use std::ffi::{c_char, c_int, c_longlong, c_ulonglong, c_void};

macro_rules! functions {
    ($($name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// See the top of this file. The names are the API's.
        #[allow(non_snake_case)]
        #[repr(C, align(64))]
        pub struct HotApi {
            $(pub $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl HotApi {
            /// Copies the API's pointers. Call it after the server has set them, see "the table".
            pub fn of_server() -> Self {
                // SAFETY: reads of pointers that nobody writes any more, see "the table".
                unsafe { HotApi { $($name: raw::$name.expect(stringify!($name)),)* } }
            }
        }
    };
}

functions! {
    RedisModule_GetClientId(*mut Ctx) -> c_ulonglong;
    RedisModule_GetSelectedDb(*mut Ctx) -> c_int;
    RedisModule_SelectDb(*mut Ctx, c_int) -> c_int;
    RedisModule_GetContextFlags(*mut Ctx) -> c_int;
    RedisModule_StringPtrLen(*const Str, *mut usize) -> *const c_char;
    RedisModule_OpenKey(*mut Ctx, *mut Str, c_int) -> *mut Key;
    RedisModule_CloseKey(*mut Key);
    RedisModule_KeyType(*mut Key) -> c_int;
    RedisModule_ModuleTypeGetType(*mut Key) -> *mut raw::RedisModuleType;
    RedisModule_ModuleTypeSetValue(*mut Key, *mut raw::RedisModuleType, *mut c_void) -> c_int;
    RedisModule_StringSet(*mut Key, *mut Str) -> c_int;
    RedisModule_DeleteKey(*mut Key) -> c_int;
    RedisModule_SignalModifiedKey(*mut Ctx, *mut Str) -> c_int;
    RedisModule_GetNotifyKeyspaceEvents() -> c_int;
    RedisModule_ReplicateVerbatim(*mut Ctx) -> c_int;
    RedisModule_ReplyWithLongLong(*mut Ctx, c_longlong) -> c_int;
}
