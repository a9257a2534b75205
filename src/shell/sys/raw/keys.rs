//! Keys: opening, creating and removing them.

use crate::engine::{Db, KeyState};
use crate::shell::sys::raw::api_state::api_state;
use crate::shell::sys::raw::calls::{api, assert_own_execution_unit, hot, published_classes};
use crate::shell::sys::raw::context::Ctx;
use crate::shell::sys::raw::strings::{Str, Text};
use redis_module::{RedisValue, raw};
use std::ffi::{CStr, c_int, c_void};
use std::marker::PhantomData;

impl<'a> Ctx<'a> {
    /// Opens a key of the selected database for writing. A master deletes it if it is past its TTL.
    pub fn open(self, key: Str<'_>) -> OpenKey<'a> {
        self.open_as(
            key,
            (raw::REDISMODULE_READ | raw::REDISMODULE_WRITE) as c_int,
        )
    }

    /// Opens a key of the selected database for writing, without touching its access time.
    pub fn open_no_touch(self, key: Str<'_>) -> OpenKey<'a> {
        let mode =
            raw::REDISMODULE_READ | raw::REDISMODULE_WRITE | raw::REDISMODULE_OPEN_KEY_NOTOUCH;
        self.open_as(key, mode as c_int)
    }

    /// Whether a key exists and has no TTL.
    pub fn exists_without_ttl(self, db: Db, key: Str<'_>) -> bool {
        let open = self.in_db(db).open_no_touch(key);
        open.key_state().is_present() && open.ttl_ms().is_none()
    }

    /// Whether a key exists. A key past its TTL does not.
    pub fn exists(self, db: Db, key: Str<'_>) -> bool {
        let there = self.in_db(db);
        // SAFETY: the table, the context.
        unsafe { api!(RedisModule_KeyExists(there.as_ptr(), key.as_ptr())) != 0 }
    }

    /// Whether a key exists, even past its TTL, without side effects. `None` if the server does not say: the command was
    /// renamed, or in a cluster the executing command is not for the key's slot. Takes about a microsecond.
    pub fn has(self, db: Db, key: Str<'_>) -> Option<bool> {
        // In a cluster, the context of a replica's reader may access the key, but a detached one may not.
        let elsewhere = (self.db() != db).then(|| self.in_db(db));
        let there = elsewhere.as_deref().copied().unwrap_or(self);
        // The only command that looks keys up without side effects on all servers.
        let words = [b"USAGE", key.bytes(), b"SAMPLES", b"1"];
        let usage = there.call("MEMORY", &words)?;
        Some(matches!(usage, Ok(RedisValue::Integer(_))))
    }

    pub fn open_as(self, key: Str<'_>, mode: c_int) -> OpenKey<'a> {
        // SAFETY: the table, the context. The server holds on to the name by itself.
        OpenKey(
            unsafe { hot!(RedisModule_OpenKey(self.as_ptr(), key.as_ptr(), mode)) },
            PhantomData,
        )
    }

    /// Writes a string key without a TTL, as `SET` would, over any existing value; transactions' watches and keyspace
    /// events see it. Does not replicate. False if the server refuses.
    pub fn make(self, key: Str<'_>, open: OpenKey<'_>, value: Str<'_>) -> bool {
        assert_own_execution_unit();
        if !open.is_open() {
            return false;
        }
        let done = if open.overwrite(value) {
            raw::REDISMODULE_OK as c_int
        } else {
            // SAFETY: the table, the context; the key is open for writing.
            unsafe { hot!(RedisModule_StringSet(open.0, value.as_ptr())) }
        };
        self.after_write(key, open, done, raw::REDISMODULE_NOTIFY_STRING, c"set")
    }

    /// Writes a lock over any existing value. Otherwise as [`make`](Self::make).
    pub fn make_lock(self, key: Str<'_>, open: OpenKey<'_>) -> bool {
        assert_own_execution_unit();
        let Some(lock) = api_state().lock_type.get().filter(|_| open.is_open()) else {
            return false;
        };
        // SAFETY: as in `make`; the value lives as long as the module.
        let done = unsafe { hot!(RedisModule_ModuleTypeSetValue(open.0, lock, lock_value())) };
        self.after_write(key, open, done, raw::REDISMODULE_NOTIFY_MODULE, c"lock")
    }

    /// Deletes a key as `DEL` would. False if it does not exist. Otherwise as `make`.
    pub fn remove(self, key: Str<'_>, open: OpenKey<'_>) -> bool {
        assert_own_execution_unit();
        if !open.key_state().is_present() {
            return false;
        }
        // SAFETY: as in `make`.
        let done = unsafe { hot!(RedisModule_DeleteKey(open.0)) };
        self.after_write(key, open, done, raw::REDISMODULE_NOTIFY_GENERIC, c"del")
    }

    /// Signals a write to watches and listeners. Closes the key first, since listeners may access it.
    fn after_write(
        self,
        key: Str<'_>,
        open: OpenKey<'_>,
        done: c_int,
        class: i32,
        event: &CStr,
    ) -> bool {
        drop(open);
        if done != raw::REDISMODULE_OK as c_int {
            return false;
        }
        // SAFETY: the table, the context.
        unsafe { hot!(RedisModule_SignalModifiedKey(self.as_ptr(), key.as_ptr())) };
        if has_listeners(class) {
            // SAFETY: the same.
            unsafe {
                api!(RedisModule_NotifyKeyspaceEvent(
                    self.as_ptr(),
                    class,
                    event.as_ptr(),
                    key.as_ptr()
                ))
            };
        }
        true
    }

    /// Selects a database for the client whose command is executing, if there is one, on servers where a keyspace event does so:
    /// raises one there that nobody else hears.
    pub fn select_for_executing_client(self, db: Db) {
        let (there, name) = (self.in_db(db), Text::new(b""));
        // SAFETY: the table, the context; the strings live for this call.
        unsafe {
            api!(RedisModule_NotifyKeyspaceEvent(
                there.as_ptr(),
                OWN_EVENTS,
                c"select".as_ptr(),
                name.as_str().as_ptr()
            ))
        };
    }

    /// The database of a keyspace event with this context and key.
    pub fn event_db(self, key: Str<'_>) -> Db {
        if api_state().event_db_is_wrong_in_exec.get() && self.state().in_exec() {
            // Opening a key may expire it, and that event must not precede this one.
            let mode =
                raw::REDISMODULE_READ | raw::REDISMODULE_WRITE | raw::REDISMODULE_OPEN_KEY_NOEXPIRE;
            let open = self.open_as(key, mode as c_int);
            if !open.is_open() {
                return self.db();
            }
            // SAFETY: the table; an open key.
            return Db(unsafe { api!(RedisModule_GetDbIdFromModuleKey(open.0)) } as u32);
        }
        self.db()
    }
}

/// A class of keyspace events that is none of the server's.
pub const OWN_EVENTS: c_int = 1 << 30;

/// Every lock value points here.
static LOCK: u8 = 0;

/// The value of a lock, without content.
pub fn lock_value() -> *mut c_void {
    (&raw const LOCK).cast_mut().cast::<c_void>()
}

/// Whether clients or other modules may listen to events of this class. Raising an event costs the server more than
/// removing a key, and mostly this module is the only listener, which knows already. O(1).
fn has_listeners(class: c_int) -> bool {
    !api_state().no_other_module_listens.get() || published_classes() & class != 0
}

/// A key that is open until this is dropped, in the callback in which it was opened.
///
/// Null for a missing key opened for reading, or a key that the server did not open: only its state may be queried then, or
/// the server would crash.
pub struct OpenKey<'a>(*mut raw::RedisModuleKey, PhantomData<&'a ()>);

impl OpenKey<'_> {
    /// Whether the server has opened it.
    fn is_open(&self) -> bool {
        !self.0.is_null()
    }

    pub fn key_state(&self) -> KeyState {
        // SAFETY: the table; an open key, or null, which the server takes for an absent one.
        unsafe {
            if hot!(RedisModule_KeyType(self.0)) == raw::REDISMODULE_KEYTYPE_EMPTY as c_int {
                return KeyState::Absent;
            }
            match api_state().lock_type.get() {
                Some(lock) if hot!(RedisModule_ModuleTypeGetType(self.0)) == lock => KeyState::Lock,
                _ => KeyState::Other,
            }
        }
    }

    /// A copy of the string at a key that is open for reading; none if it is no string, or longer than this.
    pub fn string(&self, most_bytes: usize) -> Option<Vec<u8>> {
        // SAFETY: the table; an open key, or null, which the server takes for an absent one. The bytes are as many as it says, and
        // are copied before the server is called again.
        unsafe {
            let is_string =
                hot!(RedisModule_KeyType(self.0)) == raw::REDISMODULE_KEYTYPE_STRING as c_int;
            if !is_string || api!(RedisModule_ValueLength(self.0)) > most_bytes {
                return None;
            }
            let mut length = 0;
            let mode = raw::REDISMODULE_READ as c_int;
            let there: *const u8 = api!(RedisModule_StringDMA(self.0, &mut length, mode)).cast();
            let is_there = !there.is_null() && length <= most_bytes;
            is_there.then(|| std::slice::from_raw_parts(there, length).to_vec())
        }
    }

    /// Overwrites a string without a TTL by a value of the same length, in place. Much cheaper than replacing the value;
    /// but the value is copied, so it must be short. (Redis 8 does not notice when a module changes a string's length, and
    /// would miscount its `keysizes`.) False if that is not possible.
    fn overwrite(&self, value: Str<'_>) -> bool {
        const MAX_OVERWRITE_BYTES: usize = 1024;
        // SAFETY: the table; a key that is open for writing, for null is no string. The server sees to it that nobody shares the
        // bytes that it hands out, which are as many as it says, and is not called before they are written.
        unsafe {
            let is_string =
                hot!(RedisModule_KeyType(self.0)) == raw::REDISMODULE_KEYTYPE_STRING as c_int;
            if !is_string {
                return false;
            }
            let value = value.bytes();
            let is_alike = api!(RedisModule_ValueLength(self.0)) == value.len();
            if !is_alike || value.len() > MAX_OVERWRITE_BYTES || self.ttl_ms().is_some() {
                return false;
            }
            let mut length = 0;
            let mode = raw::REDISMODULE_WRITE as c_int;
            let there: *mut u8 = api!(RedisModule_StringDMA(self.0, &mut length, mode)).cast();
            if there.is_null() || length != value.len() {
                return false;
            }
            std::ptr::copy_nonoverlapping(value.as_ptr(), there, length);
        }
        true
    }

    /// The remaining TTL, if any.
    pub fn ttl_ms(&self) -> Option<u64> {
        if !self.is_open() {
            return None;
        }
        // SAFETY: the table; an open key.
        u64::try_from(unsafe { api!(RedisModule_GetExpire(self.0)) }).ok()
    }

    /// Sets a TTL, by the wall clock, which replicas share; returns its end since 1970. Raises no event. The key must be
    /// open for writing.
    pub fn expire_in_ms(&self, ms: u64) -> i64 {
        // SAFETY: the table.
        let end = unsafe { api!(RedisModule_Milliseconds()).saturating_add_unsigned(ms) };
        self.expire_at_ms(end);
        end
    }

    /// Sets the end of the TTL, since 1970.
    pub fn expire_at_ms(&self, end: i64) {
        if self.is_open() {
            // SAFETY: as in `ttl_ms`.
            unsafe { api!(RedisModule_SetAbsExpire(self.0, end)) };
        }
    }

    /// Removes the TTL. Raises no event.
    pub fn persist(&self) {
        self.expire_at_ms(raw::REDISMODULE_NO_EXPIRE.into());
    }
}

impl Drop for OpenKey<'_> {
    fn drop(&mut self) {
        // SAFETY: the table; closed once. The server takes null for nothing.
        unsafe { hot!(RedisModule_CloseKey(self.0)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Invariant in `T`, including its lifetimes.
    type Exactly<T> = PhantomData<fn(T) -> T>;

    fn result_of<A, B, R>(_: impl FnOnce(A, B) -> R) -> Exactly<R> {
        PhantomData
    }

    /// A test cannot easily show that code fails to compile. So this compiles only if an open key has exactly the lifetime
    /// of its context.
    #[test]
    fn an_open_key_cannot_outlive_its_context() {
        fn opened<'a>() -> [Exactly<OpenKey<'a>>; 2] {
            [
                result_of(Ctx::<'a>::open),
                result_of(Ctx::<'a>::open_no_touch),
            ]
        }
        assert_eq!(opened().len(), 2);
    }
}
