//! The module API, as much of it as is used here, made safe.
//!
//! All calls into the server go through this file (and, for the few functions that the API lacks,
//! through [`super::shim`]). Each `unsafe` block relies on one or more of these:
//!
//! - **the table**: the server fills in the API's function pointers before `OnLoad` runs, and never
//!   changes them; those that some servers lack are asked for by [`have`];
//! - **the context**: a [`Ctx`] or [`Str`] is made from a callback's arguments and lives no longer
//!   than that callback, by its lifetime;
//! - **the main thread**: the server calls modules from its main thread only.

use super::locktype;
use super::state::shell;
use crate::engine::{ClientId, Db, Key, Moment, Standing, Token};
use redis_module::raw;
use std::ffi::{CStr, CString, c_char, c_int, c_longlong, c_void};
use std::marker::PhantomData;
use std::ptr::{NonNull, null_mut};

/// Calls an API function that every supported server has.
macro_rules! api {
    ($name:ident $arguments:tt) => {
        // SAFETY (with the caller's block): see "the table" above.
        (redis_module::raw::$name.expect(stringify!($name)))$arguments
    };
}
pub(super) use api;

/// Whether the server has an API function that came after Redis 7.0.
macro_rules! have {
    ($name:ident) => {{
        // SAFETY: a read of a pointer that nobody writes any more, see "the table" above.
        let function = unsafe { redis_module::raw::$name };
        function.is_some()
    }};
}
pub(super) use have;

/// A server's string that belongs to the callback we are in.
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
            let bytes = api!(RedisModule_StringPtrLen(self.0.as_ptr(), &mut length));
            std::slice::from_raw_parts(bytes.cast(), length)
        }
    }

    pub fn as_ptr(self) -> *mut raw::RedisModuleString {
        self.0.as_ptr()
    }
}

/// A server's string of our own.
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

    pub fn as_str(&self) -> Str<'_> {
        Str(self.0, PhantomData)
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        // SAFETY: the table; made by `new` and freed once.
        unsafe { api!(RedisModule_FreeString(null_mut(), self.0.as_ptr())) }
    }
}

/// What [`Ctx::state`] tells.
#[derive(Clone, Copy)]
pub struct State(c_int);

impl State {
    fn has(self, flag: u32) -> bool {
        self.0 & flag as c_int != 0
    }
    /// The caller speaks RESP3.
    pub fn resp3(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_RESP3)
    }
    /// A transaction is being executed.
    pub fn in_exec(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_MULTI)
    }
    /// A script or function is being executed.
    pub fn in_script(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_LUA)
    }
    /// The caller cannot be blocked (it is in a transaction, for instance).
    pub fn denies_blocking(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_MULTI | raw::REDISMODULE_CTX_FLAGS_DENY_BLOCKING)
    }
    /// The command comes from this server's master, or from its append-only file.
    pub fn is_replay(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_REPLICATED) || self.loading()
    }
    /// A data set is being loaded.
    pub fn loading(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_LOADING | raw::REDISMODULE_CTX_FLAGS_ASYNC_LOADING)
    }
    /// This server has a master.
    pub fn is_replica(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_SLAVE)
    }
}

/// The context of the callback that we are in.
#[derive(Clone, Copy)]
pub struct Ctx<'a>(NonNull<raw::RedisModuleCtx>, PhantomData<&'a ()>);

impl Ctx<'_> {
    /// # Safety
    /// The pointer is the one that the server gave to the callback in which `'a` lies, or a
    /// detached context that is not freed during `'a`.
    pub unsafe fn new(ctx: *mut raw::RedisModuleCtx) -> Self {
        Ctx(
            NonNull::new(ctx).expect("the server gives no null context"),
            PhantomData,
        )
    }

    pub fn as_ptr(self) -> *mut raw::RedisModuleCtx {
        self.0.as_ptr()
    }

    /// Whose command this is. In a script or another module's call: an id that no connection has.
    pub fn client(self) -> ClientId {
        // SAFETY: the table, the context.
        ClientId(unsafe { api!(RedisModule_GetClientId(self.as_ptr())) })
    }

    pub fn state(self) -> State {
        // SAFETY: the table, the context.
        State(unsafe { api!(RedisModule_GetContextFlags(self.as_ptr())) })
    }

    pub fn db(self) -> Db {
        // SAFETY: the table, the context.
        Db(unsafe { api!(RedisModule_GetSelectedDb(self.as_ptr())) } as u32)
    }

    /// A context with this database selected, until the next of these. Not this one: it may be a real connection's, whose own
    /// database a transaction hides on Valkey 9, so that it could not be selected again.
    pub fn in_db(self, db: Db) -> Self {
        let other = shell().detached().unwrap_or(self);
        other.select(db);
        other
    }

    fn select(self, db: Db) {
        // SAFETY: the table, the context. Keys we know of are in databases that there are.
        unsafe { api!(RedisModule_SelectDb(self.as_ptr(), db.0 as c_int)) };
    }

    /// Whether a key is there. One whose time has come is not; a master removes it, with its event.
    pub fn exists(self, db: Db, key: Str<'_>) -> bool {
        let ctx = self.in_db(db).as_ptr();
        // SAFETY: the table, the context.
        unsafe { api!(RedisModule_KeyExists(ctx, key.as_ptr())) != 0 }
    }

    /// What stands at a key.
    pub fn standing(self, db: Db, key: Str<'_>) -> Standing {
        if !self.exists(db, key) {
            return Standing::Absent;
        }
        let mode = raw::REDISMODULE_READ | raw::REDISMODULE_OPEN_KEY_NOTOUCH;
        self.in_db(db).open_as(key, mode as c_int).standing()
    }

    /// What stands at a key, without a trace of the look: no key is expired by it. (To expire one in
    /// the middle of a SWAPDB would be told to replicas before the swap.)
    pub fn standing_without_trace(self, db: Db, key: Str<'_>) -> Standing {
        let there = self.in_db(db);
        if have!(RedisModule_CommandFilterGetClientId) {
            let mode = raw::REDISMODULE_READ | raw::REDISMODULE_OPEN_KEY_NOEFFECTS;
            return there.open_as(key, mode as c_int).standing();
        }
        // Redis 7.0 has no such flag, but this command looks the key up like that. Its type cannot
        // be had so: a lock is where we hold one.
        // SAFETY: the table, the context; the arguments are as the format says.
        let reply = unsafe {
            api!(RedisModule_Call(
                there.as_ptr(),
                c"MEMORY".as_ptr(),
                c"cscc".as_ptr(),
                c"USAGE".as_ptr(),
                key.as_ptr(),
                c"SAMPLES".as_ptr(),
                c"1".as_ptr()
            ))
        };
        let name = key.bytes();
        match Answer::new(reply) {
            Some(answer) if answer.is_integer() => shell().engine.borrow().stands(Key { db, name }),
            _ => Standing::Absent,
        }
    }

    /// Opens a key of the selected database for writing. A master removes a key whose time has come.
    pub fn open(self, key: Str<'_>) -> OpenKey {
        self.open_as(
            key,
            (raw::REDISMODULE_READ | raw::REDISMODULE_WRITE) as c_int,
        )
    }

    fn open_as(self, key: Str<'_>, mode: c_int) -> OpenKey {
        // SAFETY: the table, the context. The server holds on to the name by itself.
        OpenKey(unsafe { api!(RedisModule_OpenKey(self.as_ptr(), key.as_ptr(), mode)).cast() })
    }

    /// Makes a string key without a time to live, as `SET` would, in place of whatever stands there:
    /// transactions' watchers and keyspace events see it. Replicas are told separately. False if
    /// the server refuses.
    pub fn make(self, key: Str<'_>, open: OpenKey, value: Str<'_>) -> bool {
        // SAFETY: the table, the context; the key is open for writing.
        let done = unsafe { api!(RedisModule_StringSet(open.0, value.as_ptr())) };
        self.written(key, open, done, raw::REDISMODULE_NOTIFY_STRING, c"set")
    }

    /// Makes a lock, in place of whatever stands there. What sees it is as in [`make`](Self::make).
    pub fn make_lock(self, key: Str<'_>, open: OpenKey) -> bool {
        let Some(lock) = shell().lock_type.get() else {
            return false;
        };
        // SAFETY: as in `make`; the value lives as long as the module.
        let done = unsafe {
            api!(RedisModule_ModuleTypeSetValue(
                open.0,
                lock,
                locktype::value()
            ))
        };
        self.written(key, open, done, raw::REDISMODULE_NOTIFY_MODULE, c"lock")
    }

    /// Removes a key as `DEL` would. False if there is none. What sees it is as in `make`.
    pub fn remove(self, key: Str<'_>, open: OpenKey) -> bool {
        if !open.standing().is_present() {
            return false;
        }
        // SAFETY: as in `make`.
        let done = unsafe { api!(RedisModule_UnlinkKey(open.0)) };
        self.written(key, open, done, raw::REDISMODULE_NOTIFY_GENERIC, c"del")
    }

    /// Lets everyone know what was done to a key. It is closed before, since others hear of it and
    /// may do as they like.
    fn written(self, key: Str<'_>, open: OpenKey, done: c_int, class: i32, event: &CStr) -> bool {
        drop(open);
        if done != raw::REDISMODULE_OK as c_int {
            return false;
        }
        // SAFETY: the table, the context.
        unsafe {
            api!(RedisModule_SignalModifiedKey(self.as_ptr(), key.as_ptr()));
            api!(RedisModule_NotifyKeyspaceEvent(
                self.as_ptr(),
                class,
                event.as_ptr(),
                key.as_ptr()
            ));
        }
        true
    }

    /// Tells replicas and the append-only file the command in hand, as it was given.
    pub fn replicate_verbatim(self) {
        // SAFETY: the table, the context.
        unsafe { api!(RedisModule_ReplicateVerbatim(self.as_ptr())) };
    }

    /// Tells replicas and the append-only file a command for a key of this database.
    pub fn replicate(self, db: Db, command: &CStr, key: Str<'_>, value: Option<Str<'_>>) {
        let (ctx, command, key) = (self.in_db(db).as_ptr(), command.as_ptr(), key.as_ptr());
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

    /// Tells replicas and the append-only file that tokens from this one on may be given.
    pub fn replicate_token(self, token: Token) {
        // SAFETY: the table, the context; the argument is as the format says.
        unsafe {
            let (command, token) = (c"TETHER.TOKEN".as_ptr(), token.0 as c_longlong);
            api!(RedisModule_Replicate(
                self.as_ptr(),
                command,
                c"l".as_ptr(),
                token
            ));
        }
    }

    /// The database of a keyspace event, which comes with this context and is about this key.
    pub fn event_db(self, key: Str<'_>) -> Db {
        if shell().server.get().event_db_is_wrong_in_exec && self.state().in_exec() {
            // To open a key can expire it, which must not be told before what this event is about.
            let mode =
                raw::REDISMODULE_READ | raw::REDISMODULE_WRITE | raw::REDISMODULE_OPEN_KEY_NOEXPIRE;
            let open = self.open_as(key, mode as c_int);
            // SAFETY: the table; an open key.
            return Db(unsafe { api!(RedisModule_GetDbIdFromModuleKey(open.0)) } as u32);
        }
        self.db()
    }

    pub fn reply_integer(self, value: i64) {
        // SAFETY: the table, the context.
        unsafe { api!(RedisModule_ReplyWithLongLong(self.as_ptr(), value)) };
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

    /// Whether the server only wants to know where the keys are.
    pub fn asks_for_keys(self) -> bool {
        // SAFETY: the table, the context.
        unsafe { api!(RedisModule_IsKeysPositionRequest(self.as_ptr())) != 0 }
    }

    /// One answer to that; the command's name stands at 0.
    pub fn key_stands_at(self, place: usize) {
        // SAFETY: the table, the context.
        unsafe { api!(RedisModule_KeyAtPos(self.as_ptr(), place as c_int)) };
    }

    /// In the server's own words.
    pub fn reply_wrong_arity(self) {
        // SAFETY: the table, the context.
        unsafe { api!(RedisModule_WrongArity(self.as_ptr())) };
    }

    /// What `CLIENT LIST ID` says of a connection; nothing where there is none. Some microseconds.
    pub fn client_line(self, client: ClientId) -> Option<String> {
        let id = c_longlong::try_from(client.0).ok()?;
        // SAFETY: the table, the context; the arguments are as the format says.
        let reply = unsafe {
            api!(RedisModule_Call(
                self.as_ptr(),
                c"CLIENT".as_ptr(),
                c"ccl".as_ptr(),
                c"LIST".as_ptr(),
                c"ID".as_ptr(),
                id
            ))
        };
        Answer::new(reply)
            .and_then(|answer| answer.text())
            .filter(|line| !line.is_empty())
    }

    /// What `CLIENT LIST` says of all connections. O(their number).
    pub fn client_lines(self) -> Option<String> {
        // SAFETY: the table, the context; the argument is as the format says.
        let reply = unsafe {
            api!(RedisModule_Call(
                self.as_ptr(),
                c"CLIENT".as_ptr(),
                c"c".as_ptr(),
                c"LIST".as_ptr()
            ))
        };
        Answer::new(reply).and_then(|answer| answer.text())
    }

    /// Whether the caller may read this key. One that no longer exists as a user may not.
    pub fn may_read(self, key: Str<'_>) -> bool {
        // SAFETY: the table, the context; what is got is freed.
        unsafe {
            let name = api!(RedisModule_GetCurrentUserName(self.as_ptr()));
            let user = api!(RedisModule_GetModuleUserFromUserName(name));
            api!(RedisModule_FreeString(null_mut(), name));
            if user.is_null() {
                return false;
            }
            let access = raw::REDISMODULE_CMD_KEY_ACCESS as c_int;
            let allowed = api!(RedisModule_ACLCheckKeyPermissions(
                user,
                key.as_ptr(),
                access
            ));
            api!(RedisModule_FreeModuleUser(user));
            allowed == raw::REDISMODULE_OK as c_int
        }
    }

    /// A field of `INFO`'s section `server`.
    pub fn server_info(self, field: &CStr) -> Option<String> {
        // SAFETY: the table, the context; what is got is freed, and the text is copied before.
        unsafe {
            let info = api!(RedisModule_GetServerInfo(self.as_ptr(), c"server".as_ptr()));
            let text = api!(RedisModule_ServerInfoGetFieldC(info, field.as_ptr()));
            let text =
                (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned());
            api!(RedisModule_FreeServerInfo(self.as_ptr(), info));
            text
        }
    }

    /// A setting of the server itself.
    pub fn server_setting(self, name: &CStr) -> Option<String> {
        // SAFETY: the table, the context; the arguments are as the format says.
        let reply = unsafe {
            api!(RedisModule_Call(
                self.as_ptr(),
                c"CONFIG".as_ptr(),
                c"cc".as_ptr(),
                c"GET".as_ptr(),
                name.as_ptr()
            ))
        };
        Answer::new(reply).and_then(|answer| answer.element_text(1))
    }

    /// One line in the server's log.
    pub fn log(self, level: &CStr, message: &str) {
        let message = c_string(message);
        // SAFETY: the table, the context; the format takes one string.
        unsafe {
            api!(RedisModule_Log(
                self.as_ptr(),
                level.as_ptr(),
                c"%s".as_ptr(),
                message.as_ptr()
            ));
        }
    }
}

/// A key that is open until this is dropped, in the callback in which it was opened.
pub struct OpenKey(*mut raw::RedisModuleKey);

impl OpenKey {
    pub fn standing(&self) -> Standing {
        // SAFETY: the table; an open key, or null for an absent one opened for reading.
        unsafe {
            if api!(RedisModule_KeyType(self.0)) == raw::REDISMODULE_KEYTYPE_EMPTY as c_int {
                return Standing::Absent;
            }
            match shell().lock_type.get() {
                Some(lock) if api!(RedisModule_ModuleTypeGetType(self.0)) == lock => Standing::Lock,
                _ => Standing::Other,
            }
        }
    }
}

impl Drop for OpenKey {
    fn drop(&mut self) {
        // SAFETY: the table; closed once. The server takes null for nothing.
        unsafe { api!(RedisModule_CloseKey(self.0)) }
    }
}

/// A reply to a call of ours.
struct Answer(NonNull<raw::RedisModuleCallReply>);

impl Answer {
    fn new(reply: *mut raw::RedisModuleCallReply) -> Option<Self> {
        NonNull::new(reply).map(Answer)
    }

    fn is_integer(&self) -> bool {
        // SAFETY: the table; the reply lives as long as `self`.
        let kind = unsafe { api!(RedisModule_CallReplyType(self.0.as_ptr())) };
        kind == raw::REDISMODULE_REPLY_INTEGER as c_int
    }

    fn text(&self) -> Option<String> {
        // SAFETY: the table; the reply lives as long as `self`.
        unsafe { text_of(self.0.as_ptr()) }
    }

    fn element_text(&self, place: usize) -> Option<String> {
        // SAFETY: as in `text`; an element belongs to its reply.
        unsafe {
            text_of(api!(RedisModule_CallReplyArrayElement(
                self.0.as_ptr(),
                place
            )))
        }
    }
}

/// # Safety
/// The reply is null or alive.
unsafe fn text_of(reply: *mut raw::RedisModuleCallReply) -> Option<String> {
    let mut length = 0;
    // SAFETY: the table, and the caller.
    unsafe {
        let bytes: *const u8 = api!(RedisModule_CallReplyStringPtr(reply, &mut length)).cast();
        (!bytes.is_null()).then(|| {
            String::from_utf8_lossy(std::slice::from_raw_parts(bytes, length)).into_owned()
        })
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // SAFETY: the table; freed once.
        unsafe { api!(RedisModule_FreeCallReply(self.0.as_ptr())) }
    }
}

/// Whether the server wants no writes now (`CLIENT PAUSE`, a failover under way). A write all the
/// same would abort Redis 7.0.
pub fn must_not_write() -> bool {
    // SAFETY: the table.
    unsafe { api!(RedisModule_AvoidReplicaTraffic()) != 0 }
}

/// Whether this connection has client-side caching (`CLIENT TRACKING`) switched on.
pub fn is_tracking(client: ClientId) -> bool {
    client_flags(client) & u64::from(raw::REDISMODULE_CLIENTINFO_FLAG_TRACKING) != 0
}

/// Whether this connection stands still until a command of its own is answered.
pub fn is_blocked(client: ClientId) -> bool {
    client_flags(client) & u64::from(raw::REDISMODULE_CLIENTINFO_FLAG_BLOCKED) != 0
}

/// None where there is no such connection.
fn client_flags(client: ClientId) -> u64 {
    // SAFETY: plain integers and characters; zero is a value of each.
    let mut info: raw::RedisModuleClientInfo = unsafe { std::mem::zeroed() };
    info.version = u64::from(raw::REDISMODULE_CLIENTINFO_VERSION);
    // SAFETY: the table; the structure says its version.
    let found = unsafe {
        api!(RedisModule_GetClientInfoById(
            (&raw mut info).cast::<c_void>(),
            client.0
        ))
    };
    if found == raw::REDISMODULE_OK as c_int {
        info.flags
    } else {
        0
    }
}

/// The time on a clock that never goes back.
pub fn now() -> Moment {
    // SAFETY: the table.
    Moment(unsafe { api!(RedisModule_MonotonicMicroseconds()) })
}

/// For the server, which knows no inner zero.
pub fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "\\0")).unwrap_or_default()
}

/// A C string that lives as long as the server: for what is registered once.
pub fn forever(text: &str) -> *const c_char {
    c_string(text).into_raw()
}
