//! A module without a rule: SETTP, DELTP, LOCK.ACQUIRE and LOCK.RELEASE made of the calls of the module API that they cannot
//! do without, and of nothing else. It keeps no books, notices no end of a connection and refuses nothing, so it is of no
//! use but to be measured (`make bench`, part `bare`): what it costs any module costs that works through the API.

use redis_module::raw as c;
use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicI64, AtomicPtr, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

type Context = *mut c::RedisModuleCtx;
type Text = *mut c::RedisModuleString;
type Command = unsafe extern "C" fn(Context, *mut Text, c_int) -> c_int;

/// A call of the API, which every server has.
macro_rules! api {
    ($name:ident $arguments:tt) => {
        (c::$name.expect(stringify!($name)))$arguments
    };
}

const OK: c_int = c::REDISMODULE_OK as c_int;

static LOCK: AtomicPtr<c::RedisModuleType> = AtomicPtr::new(null_mut());
/// As long as one of ours.
static TOKEN: AtomicI64 = AtomicI64::new(7_600_000_000_000_000);
static WAITING: Mutex<VecDeque<Blocked>> = Mutex::new(VecDeque::new());

struct Blocked(*mut c::RedisModuleBlockedClient);

// SAFETY: the server calls a module from its main thread only; the mutex is there for the compiler.
unsafe impl Send for Blocked {}

/// Loads the module, without arguments; with the argument `new` it also hears of all keys that come into being.
///
/// # Safety
/// For the server. So are all functions here: their arguments are its own, for the length of each call, and it has
/// filled in the API's table before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn RedisModule_OnLoad(ctx: Context, _: *mut Text, count: c_int) -> c_int {
    let hears_of_new = count > 0;
    // SAFETY: above.
    unsafe {
        let version = c::REDISMODULE_APIVER_1 as c_int;
        if c::Export_RedisModule_Init(ctx, c"bare".as_ptr(), 1, version) != OK {
            return c::REDISMODULE_ERR as c_int;
        }
        let explicit = c::REDISMODULE_OPTION_NO_IMPLICIT_SIGNAL_MODIFIED as c_int;
        api!(RedisModule_SetModuleOptions(ctx, explicit));
        let ends = c::REDISMODULE_NOTIFY_GENERIC
            | c::REDISMODULE_NOTIFY_EXPIRED
            | c::REDISMODULE_NOTIFY_EVICTED;
        let new = c::REDISMODULE_NOTIFY_NEW * c_int::from(hears_of_new);
        api!(RedisModule_SubscribeToKeyspaceEvents(
            ctx,
            ends | new,
            Some(on_key)
        ));
        let mut methods = c::RedisModuleTypeMethods {
            version: c::REDISMODULE_TYPE_METHOD_VERSION.into(),
            free: Some(free),
            ..std::mem::zeroed()
        };
        let name = c"bare-lock".as_ptr();
        let lock = api!(RedisModule_CreateDataType(ctx, name, 0, &raw mut methods));
        LOCK.store(lock, Relaxed);
        let commands: [(_, Command); 4] = [
            (c"settp", settp),
            (c"deltp", remove),
            (c"lock.acquire", acquire),
            (c"lock.release", release),
        ];
        for (name, command) in commands {
            let flags = c"write fast".as_ptr();
            api!(RedisModule_CreateCommand(
                ctx,
                name.as_ptr(),
                Some(command),
                flags,
                1,
                1,
                1
            ));
        }
    }
    OK
}

unsafe extern "C" fn on_key(_: Context, _: c_int, _: *const std::ffi::c_char, _: Text) -> c_int {
    OK
}

unsafe extern "C" fn free(_: *mut c_void) {}

/// `SETTP key value`
unsafe extern "C" fn settp(ctx: Context, words: *mut Text, _: c_int) -> c_int {
    // SAFETY: see `RedisModule_OnLoad`.
    unsafe {
        let Some(key) = open(ctx, *words.add(1), false) else {
            return api!(RedisModule_ReplyWithLongLong(ctx, 0));
        };
        api!(RedisModule_StringSet(key, *words.add(2)));
        written(ctx, key, *words.add(1));
        api!(RedisModule_ReplyWithLongLong(ctx, 1))
    }
}

/// `DELTP key`
unsafe extern "C" fn remove(ctx: Context, words: *mut Text, _: c_int) -> c_int {
    // SAFETY: see `RedisModule_OnLoad`.
    unsafe {
        let Some(key) = open(ctx, *words.add(1), true) else {
            return api!(RedisModule_ReplyWithLongLong(ctx, 0));
        };
        api!(RedisModule_UnlinkKey(key));
        written(ctx, key, *words.add(1));
        api!(RedisModule_ReplyWithLongLong(ctx, 1))
    }
}

/// `LOCK.ACQUIRE key`, or `LOCK.ACQUIRE key WAIT 0`
unsafe extern "C" fn acquire(ctx: Context, words: *mut Text, count: c_int) -> c_int {
    // SAFETY: see `RedisModule_OnLoad`.
    unsafe {
        if let Some(key) = open(ctx, *words.add(1), false) {
            // The type has no value: the server asks only for a pointer.
            let value = NonNull::<u8>::dangling().as_ptr().cast();
            api!(RedisModule_ModuleTypeSetValue(
                key,
                LOCK.load(Relaxed),
                value
            ));
            written(ctx, key, *words.add(1));
            return reply_token(ctx, words, count);
        }
        if count < 3 {
            return api!(RedisModule_ReplyWithNull(ctx));
        }
        let blocked = api!(RedisModule_BlockClient(
            ctx,
            Some(reply_token),
            None,
            None,
            0
        ));
        queue().push_back(Blocked(blocked));
        OK
    }
}

/// `LOCK.RELEASE key`: to whoever waits for any key.
unsafe extern "C" fn release(ctx: Context, words: *mut Text, count: c_int) -> c_int {
    // SAFETY: see `RedisModule_OnLoad`.
    unsafe {
        let Some(Blocked(next)) = queue().pop_front() else {
            return remove(ctx, words, count);
        };
        api!(RedisModule_UnblockClient(next, null_mut()));
        api!(RedisModule_ReplyWithLongLong(ctx, 1))
    }
}

unsafe extern "C" fn reply_token(ctx: Context, _: *mut Text, _: c_int) -> c_int {
    let token = TOKEN.fetch_add(1, Relaxed);
    // SAFETY: see `RedisModule_OnLoad`.
    unsafe { api!(RedisModule_ReplyWithLongLong(ctx, token)) }
}

/// The key, if it is there or not there as wished.
unsafe fn open(ctx: Context, name: Text, there: bool) -> Option<*mut c::RedisModuleKey> {
    let mode = (c::REDISMODULE_READ | c::REDISMODULE_WRITE) as c_int;
    // SAFETY: see `RedisModule_OnLoad`.
    unsafe {
        let key = api!(RedisModule_OpenKey(ctx, name, mode));
        let kind = api!(RedisModule_KeyType(key));
        if (kind != c::REDISMODULE_KEYTYPE_EMPTY as c_int) == there {
            return Some(key);
        }
        api!(RedisModule_CloseKey(key));
    }
    None
}

unsafe fn written(ctx: Context, key: *mut c::RedisModuleKey, name: Text) {
    // SAFETY: see `RedisModule_OnLoad`.
    unsafe {
        api!(RedisModule_CloseKey(key));
        api!(RedisModule_SignalModifiedKey(ctx, name));
        api!(RedisModule_ReplicateVerbatim(ctx));
    }
}

fn queue() -> std::sync::MutexGuard<'static, VecDeque<Blocked>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}
