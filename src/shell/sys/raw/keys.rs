//! Keys: opened, made, removed, and told to replicas.

use crate::engine::{Db, KeyState, Token};
use crate::policy::release;
use crate::shell::sys::raw::api_state::api_state;
use crate::shell::sys::raw::ask::Answer;
use crate::shell::sys::raw::calls::{api, assert_own_execution_unit, call, hot, published_classes};
use crate::shell::sys::raw::context::Ctx;
use crate::shell::sys::raw::strings::{Str, Text, c_string};
use redis_module::raw;
use std::ffi::{CStr, c_int, c_void};
use std::marker::PhantomData;

/// The command in which replicas and the append-only file are told of a key.
#[derive(Clone, Copy)]
pub enum Word {
    Del,
    Settp,
    Acquire,
    Set,
}

impl Word {
    fn name(self) -> &'static CStr {
        match self {
            Word::Del => c"DEL",
            Word::Settp => c"SETTP",
            Word::Acquire => c"LOCK.ACQUIRE",
            Word::Set => c"SET",
        }
    }
}

impl<'a> Ctx<'a> {
    /// Opens a key of the selected database for writing. A master removes a key whose time has come.
    pub fn open(self, key: Str<'_>) -> OpenKey<'a> {
        self.open_as(
            key,
            (raw::REDISMODULE_READ | raw::REDISMODULE_WRITE) as c_int,
        )
    }

    /// Opens a key of the selected database for writing, without making it one that was used lately.
    pub fn open_quietly(self, key: Str<'_>) -> OpenKey<'a> {
        let mode =
            raw::REDISMODULE_READ | raw::REDISMODULE_WRITE | raw::REDISMODULE_OPEN_KEY_NOTOUCH;
        self.open_as(key, mode as c_int)
    }

    /// Whether a key is there and has no time to live.
    pub fn has_no_end(self, db: Db, key: Str<'_>) -> bool {
        let open = self.in_db(db).open_quietly(key);
        open.key_state().is_present() && open.left_ms().is_none()
    }

    /// Whether a key is there. One whose time has come is not.
    pub fn exists(self, db: Db, key: Str<'_>) -> bool {
        let ctx = self.in_db(db).as_ptr();
        // SAFETY: the table, the context.
        unsafe { api!(RedisModule_KeyExists(ctx, key.as_ptr())) != 0 }
    }

    /// Whether there is a key, be its time over or not; the look leaves no trace. Nothing where the server does not say:
    /// somebody took the command away (`rename-command`), or in a cluster this is not in a command for the key's slot.
    /// About a microsecond.
    pub fn has(self, db: Db, key: Str<'_>) -> Option<bool> {
        // In a cluster the context of a replica's reader is let to the key, but a detached one is not.
        let there = if self.db() == db {
            self
        } else {
            self.in_db(db)
        };
        // The one command that looks keys up like that on all servers.
        // SAFETY: the table, the context; the arguments are as the format says.
        let reply = unsafe {
            call!(
                there.as_ptr(),
                c"MEMORY".as_ptr(),
                c"cscc".as_ptr(),
                c"USAGE".as_ptr(),
                key.as_ptr(),
                c"SAMPLES".as_ptr(),
                c"1".as_ptr()
            )
        };
        Answer::new(reply).map(|answer| answer.is_integer())
    }

    pub fn open_as(self, key: Str<'_>, mode: c_int) -> OpenKey<'a> {
        // SAFETY: the table, the context. The server holds on to the name by itself.
        OpenKey(
            unsafe { hot!(RedisModule_OpenKey(self.as_ptr(), key.as_ptr(), mode)) },
            PhantomData,
        )
    }

    /// Makes a string key without a time to live, as `SET` would, in place of whatever stands there:
    /// transactions' watchers and keyspace events see it. Replicas are told separately. False if
    /// the server refuses.
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
        self.written(key, open, done, raw::REDISMODULE_NOTIFY_STRING, c"set")
    }

    /// Makes a lock, in place of whatever stands there. What sees it is as in [`make`](Self::make).
    pub fn make_lock(self, key: Str<'_>, open: OpenKey<'_>) -> bool {
        assert_own_execution_unit();
        let Some(lock) = api_state().lock_type.get().filter(|_| open.is_open()) else {
            return false;
        };
        // SAFETY: as in `make`; the value lives as long as the module.
        let done = unsafe { hot!(RedisModule_ModuleTypeSetValue(open.0, lock, lock_value())) };
        self.written(key, open, done, raw::REDISMODULE_NOTIFY_MODULE, c"lock")
    }

    /// Removes a key as `DEL` would. False if there is none. What sees it is as in `make`.
    pub fn remove(self, key: Str<'_>, open: OpenKey<'_>) -> bool {
        assert_own_execution_unit();
        if !open.key_state().is_present() {
            return false;
        }
        // SAFETY: as in `make`.
        let done = unsafe { hot!(RedisModule_DeleteKey(open.0)) };
        self.written(key, open, done, raw::REDISMODULE_NOTIFY_GENERIC, c"del")
    }

    /// Lets everyone know what was done to a key. It is closed before, since others hear of it and
    /// may do as they like.
    fn written(
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
        if is_heard(class) {
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

    /// Tells replicas and the append-only file the current command, as it was given.
    pub fn replicate_verbatim(self) {
        // SAFETY: the table, the context.
        unsafe { hot!(RedisModule_ReplicateVerbatim(self.as_ptr())) };
    }

    /// Tells replicas and the append-only file a command for a key of this database.
    pub fn replicate(self, db: Db, command: Word, key: Str<'_>, value: Option<Str<'_>>) {
        assert_own_execution_unit();
        let (ctx, key) = (self.in_db(db).as_ptr(), key.as_ptr());
        let command = command.name().as_ptr();
        // SAFETY: the table, the context; the arguments are as the formats say.
        unsafe {
            match value.map(Str::as_ptr) {
                Some(value) => {
                    api!(RedisModule_Replicate(
                        ctx,
                        command,
                        c"ss".as_ptr(),
                        key,
                        value
                    ))
                }
                None => api!(RedisModule_Replicate(ctx, command, c"s".as_ptr(), key)),
            }
        };
    }

    /// Tells the append-only file alone that these keys of a database are temporary keys.
    pub fn log_bound(self, db: Db, keys: &[Text]) {
        self.words_to(Target::File, db, "TETHER.BOUND", keys);
    }

    /// Tells the append-only file alone a command that is about this database.
    pub fn log_words(self, db: Db, command: &str, words: &[Vec<u8>]) {
        let words: Vec<_> = words.iter().map(|word| Text::new(word)).collect();
        self.words_to(Target::File, db, command, &words);
    }

    /// Tells replicas and the append-only file a command that is about this database.
    pub fn replicate_words(self, db: Db, command: &str, words: &[Vec<u8>]) {
        let words: Vec<_> = words.iter().map(|word| Text::new(word)).collect();
        self.words_to(Target::All, db, command, &words);
    }

    fn words_to(self, target: Target, db: Db, command: &str, words: &[Text]) {
        assert_own_execution_unit();
        let format = match target {
            Target::File => c"Rv",
            Target::All => c"v",
        };
        let command = c_string(command);
        let words: Vec<_> = words.iter().map(|word| word.as_str().as_ptr()).collect();
        // SAFETY: the table, the context; the arguments are as the formats say, and the server counts
        // its references to the strings.
        unsafe {
            api!(RedisModule_Replicate(
                self.in_db(db).as_ptr(),
                command.as_ptr(),
                format.as_ptr(),
                words.as_ptr(),
                words.len()
            ));
        }
    }

    /// Tells the append-only file alone that tokens up to this one have been given, and which tether tells it.
    pub fn log_token(self, token: Token) {
        self.token_to(Target::File, token);
    }

    /// Tells replicas and the append-only file that tokens from this one on may be given, and which tether tells it.
    pub fn replicate_token(self, token: Token) {
        self.token_to(Target::All, token);
    }

    fn token_to(self, target: Target, token: Token) {
        let token = token.0.to_string();
        let words = std::iter::once(&*token).chain(release::WORDS);
        let words: Vec<_> = words.map(|word| Text::new(word.as_bytes())).collect();
        self.words_to(target, self.db(), "TETHER.TOKEN", &words);
    }

    /// Tells replicas and the append-only file up to when a key of this database is renewed, or that it never ends.
    pub fn replicate_end(self, db: Db, key: Str<'_>, end_ms: Option<i64>) {
        let key = Text::new(key.bytes());
        match end_ms {
            Some(ms) => {
                let ms = Text::new(ms.to_string().as_bytes());
                self.words_to(Target::All, db, "TETHER.RENEW", &[key, ms]);
            }
            None => self.words_to(Target::All, db, "PERSIST", &[key]),
        }
    }

    /// The database of a keyspace event, which comes with this context and is about this key.
    pub fn event_db(self, key: Str<'_>) -> Db {
        if api_state().event_db_is_wrong_in_exec.get() && self.state().in_exec() {
            // To open a key can expire it, which must not be told before what this event is about.
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

/// For whom a command is.
#[derive(Clone, Copy)]
enum Target {
    /// The append-only file alone.
    File,
    /// Replicas and the append-only file.
    All,
}

/// Every lock's value points here.
static LOCK: u8 = 0;

/// The value of a lock: it says nothing.
pub fn lock_value() -> *mut c_void {
    (&raw const LOCK).cast_mut().cast::<c_void>()
}

/// Whether events of this class are heard: by clients, or perhaps by another module. To tell modules of an event costs a
/// server more than to remove a key, and mostly the only one that it would tell is this one, which knows. O(1).
fn is_heard(class: c_int) -> bool {
    !api_state().no_other_module_listens.get() || published_classes() & class != 0
}

/// A key that is open until this is dropped, in the callback in which it was opened.
///
/// Null is an absent one that was opened for reading, or one that the server did not open: of that nothing can be asked but
/// what stands there, for the server would crash.
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

    /// Gives a string that stands here, and has no time to live, another value as long. Much cheaper than
    /// to have the server take the key away and make it anew; but the value is copied, so it must be
    /// short. (Redis 8 does not notice when a module changes a string's length, and would count its
    /// `keysizes` wrong.) False if that cannot be.
    fn overwrite(&self, value: Str<'_>) -> bool {
        const SHORT: usize = 1024;
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
            if !is_alike || value.len() > SHORT || self.left_ms().is_some() {
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

    /// What is left of a key's time to live, if it has one.
    pub fn left_ms(&self) -> Option<u64> {
        if !self.is_open() {
            return None;
        }
        // SAFETY: the table; an open key.
        u64::try_from(unsafe { api!(RedisModule_GetExpire(self.0)) }).ok()
    }

    /// Lets a key that is open for writing end so many milliseconds from now, by the clock that
    /// replicas have too; the time since 1970 is given back. Sends no event.
    pub fn end_in_ms(&self, ms: u64) -> i64 {
        // SAFETY: the table.
        let end = unsafe { api!(RedisModule_Milliseconds()).saturating_add_unsigned(ms) };
        self.end_at_ms(end);
        end
    }

    /// The same, by a time since 1970.
    pub fn end_at_ms(&self, end: i64) {
        if self.is_open() {
            // SAFETY: as in `left_ms`.
            unsafe { api!(RedisModule_SetAbsExpire(self.0, end)) };
        }
    }

    /// Takes a key's time to live away. Sends no event.
    pub fn never_end(&self) {
        self.end_at_ms(raw::REDISMODULE_NO_EXPIRE.into());
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

    /// No other type will do in place of this, not even one that differs in a lifetime only.
    type Exactly<T> = PhantomData<fn(T) -> T>;

    fn result_of<A, B, R>(_: impl FnOnce(A, B) -> R) -> Exactly<R> {
        PhantomData
    }

    /// That something cannot be compiled is hard to say in a test. So this says the opposite: it is compiled only as long as
    /// what is opened lives as long as its context and not a moment longer, as for `'static`.
    #[test]
    fn an_open_key_cannot_outlive_its_context() {
        fn opened<'a>() -> [Exactly<OpenKey<'a>>; 2] {
            [
                result_of(Ctx::<'a>::open),
                result_of(Ctx::<'a>::open_quietly),
            ]
        }
        assert_eq!(opened().len(), 2);
    }
}
