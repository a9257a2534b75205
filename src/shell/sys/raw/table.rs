//! Those functions of the module API that nearly every command of ours calls, side by side.
//!
//! Each of the API's pointers stands for itself among a thousand, and where it stands has to be looked up as well: two reads
//! from memory that is seldom warm, and a test for null, with every call. Here the pointers of a whole command are in a
//! few lines of the cache.

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
            /// What the server has given. To be called after it has, see "the table".
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
