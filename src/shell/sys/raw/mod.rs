//! The module API, as much of it as is used here, made safe.
//!
//! All calls into the server go through this folder (and, for the few functions that the API lacks,
//! through `sys/shim.rs`). Each `unsafe` block relies on one or more of these:
//!
//! - **the table**: the server fills in the API's function pointers before `OnLoad` runs, and never
//!   changes them; those that some servers lack are asked for by [`have`];
//! - **the context**: a [`Ctx`] or [`Str`] is made from a callback's arguments and lives no longer
//!   than that callback, by its lifetime;
//! - **the main thread**: the server calls modules from its main thread only.

mod ask;
mod files;
mod handle;
pub mod inner;
mod keys;
mod known;
mod replies;
mod table;
mod timers;

pub use ask::{
    Refusal, is_blocked, is_connected, is_in_multi, is_subscribed, is_tracking, note_unix_socket,
};
pub use files::{Damaged, Loading, Saving};
pub use handle::{BlockHandle, OnAbandoned, OnAnswer};
pub use keys::{OpenKey, Word, lock_value};
pub use known::{begin, detached, keep_detached, known};
pub use timers::{Timer, call_after_command, wake_loop};

use crate::engine::{ClientId, Db};
use crate::shell::sys::at_end::{AtEnd, meanwhile};
use redis_module::raw;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::ptr::{NonNull, null_mut};

/// Calls an API function that every supported server has.
macro_rules! api {
    ($name:ident $arguments:tt) => {{
        crate::shell::sys::scoped::nothing_is_lent();
        // SAFETY (with the caller's block): see "the table" above.
        (redis_module::raw::$name.expect(stringify!($name)))$arguments
    }};
}
pub(in crate::shell) use api;

/// Calls a command of the server's.
macro_rules! call {
    ($($argument:expr),* $(,)?) => {{
        crate::shell::sys::raw::caused();
        let _calling = crate::shell::sys::raw::calling();
        api!(RedisModule_Call($($argument),*))
    }};
}
use call;

/// The same for those of `table.rs`.
macro_rules! often {
    ($name:ident $arguments:tt) => {{
        crate::shell::sys::scoped::nothing_is_lent();
        (crate::shell::sys::raw::known::known().often.$name)$arguments
    }};
}
use often;

/// Whether the server has an API function that came after Redis 7.0.
macro_rules! have {
    ($name:ident) => {{
        // SAFETY: a read of a pointer that nobody writes any more, see "the table" above.
        let function = unsafe { redis_module::raw::$name };
        function.is_some()
    }};
}
pub(in crate::shell) use have;

/// One entry for each command of a table, by its number there.
macro_rules! entries {
    [$entry:ident: $($number:literal)*] => { [$(Some($entry::<$number>)),*] };
}
pub(in crate::shell) use entries;

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
            let bytes = often!(RedisModule_StringPtrLen(self.0.as_ptr(), &mut length));
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

/// What the server gives to a command of ours: its context and its arguments, the name among them.
///
/// # Safety
/// They are the server's own, and `'a` is no longer than the call in which it gave them.
pub unsafe fn given<'a>(
    ctx: &'a *mut raw::RedisModuleCtx,
    arguments: *mut *mut raw::RedisModuleString,
    count: c_int,
) -> (Ctx<'a>, &'a [Str<'a>]) {
    // SAFETY: the caller; a `Str` is a pointer to a string of the server's, and there is no null among them.
    unsafe {
        let arguments = std::slice::from_raw_parts(arguments.cast::<Str<'a>>(), count as usize);
        (Ctx::new(ctx), arguments)
    }
}

/// What the server gives with one of its events: a context, and the event's structure, if there is one.
///
/// # Safety
/// They are the server's own, the structure is a `T`, and `'a` is no longer than the call in which it gave them.
pub unsafe fn event<'a, T>(
    ctx: &'a *mut raw::RedisModuleCtx,
    data: *mut c_void,
) -> (Ctx<'a>, Option<&'a T>) {
    // SAFETY: the caller.
    unsafe { (Ctx::new(ctx), data.cast::<T>().as_ref()) }
}

/// The first and the last slot of each range.
///
/// # Safety
/// Null, or the server's, for the length of this call.
pub unsafe fn slot_ranges(ranges: *const raw::RedisModuleSlotRangeArray) -> Vec<(u64, u64)> {
    // SAFETY: the caller; there are so many ranges.
    let ranges = unsafe {
        let all = ranges.as_ref();
        all.map_or(&[][..], |all| all.ranges.as_slice(all.num_ranges as usize))
    };
    let numbers = ranges.iter();
    numbers
        .map(|range| (range.start.into(), range.end.into()))
        .collect()
}

/// A word of the command that passes a filter, if it has so many.
///
/// # Safety
/// The filter's context is what the server gave to the filter, and `'a` is no longer than that call.
#[inline(always)]
pub unsafe fn filtered_word<'a>(
    filter: *mut raw::RedisModuleCommandFilterCtx,
    place: c_int,
) -> Option<&'a [u8]> {
    // SAFETY: the table, the caller; the word lives as long as the call.
    let word = unsafe { api!(RedisModule_CommandFilterArgGet(filter, place)) };
    // SAFETY: the same.
    NonNull::new(word).map(|word| unsafe { Str::new(word.as_ptr()) }.bytes())
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
    /// This server is part of a cluster.
    pub fn in_cluster(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_CLUSTER)
    }
    /// More memory is used than `maxmemory`.
    pub fn is_out_of_memory(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_OOM)
    }
    /// This server has a master.
    pub fn is_replica(self) -> bool {
        self.has(raw::REDISMODULE_CTX_FLAGS_SLAVE)
    }
}

/// The context of the callback that we are in.
#[derive(Clone, Copy)]
pub struct Ctx<'a>(NonNull<raw::RedisModuleCtx>, PhantomData<&'a ()>);

impl<'a> Ctx<'a> {
    /// Lives no longer than the variable that holds the pointer: a callback's argument.
    ///
    /// # Safety
    /// The pointer is the one that the server gave to the callback in which `'a` lies, or a
    /// detached context that is not freed during `'a`.
    pub unsafe fn new(ctx: &'a *mut raw::RedisModuleCtx) -> Self {
        Ctx(
            NonNull::new(*ctx).expect("the server gives no null context"),
            PhantomData,
        )
    }

    pub fn as_ptr(self) -> *mut raw::RedisModuleCtx {
        self.0.as_ptr()
    }

    /// Whose command this is. In a script or another module's call: an id that no connection has.
    pub fn client(self) -> ClientId {
        // SAFETY: the table, the context.
        ClientId(unsafe { often!(RedisModule_GetClientId(self.as_ptr())) })
    }

    pub fn state(self) -> State {
        // SAFETY: the table, the context.
        State(unsafe { often!(RedisModule_GetContextFlags(self.as_ptr())) })
    }

    pub fn db(self) -> Db {
        // SAFETY: the table, the context.
        Db(unsafe { often!(RedisModule_GetSelectedDb(self.as_ptr())) } as u32)
    }

    /// A context with this database selected, until the next of these. Not this one: it may be a real connection's, whose own
    /// database a transaction hides on Valkey 9, so that it could not be selected again.
    pub fn in_db(self, db: Db) -> Self {
        let other = detached().unwrap_or(self);
        other.select(db);
        other
    }

    pub fn select(self, db: Db) {
        // SAFETY: the table, the context. Keys we know of are in databases that there are.
        unsafe { often!(RedisModule_SelectDb(self.as_ptr(), db.0 as c_int)) };
    }

    /// Whether there is such a database. To be asked of a detached context.
    pub fn has_db(self, db: Db) -> bool {
        let Ok(number) = c_int::try_from(db.0) else {
            return false;
        };
        // SAFETY: the table, the context. A number that there is not is refused.
        let selected = unsafe { often!(RedisModule_SelectDb(self.as_ptr(), number)) };
        selected == raw::REDISMODULE_OK as c_int
    }

    /// Has the server call this for each event of this kind.
    pub fn listen(self, (id, callback): Listener) {
        let event = raw::RedisModuleEvent { id, dataver: 1 };
        // SAFETY: the table, the context.
        unsafe {
            api!(RedisModule_SubscribeToServerEvent(
                self.as_ptr(),
                event,
                callback
            ))
        };
    }

    /// Has the server call this for keyspace events of these classes.
    pub fn listen_to_keys(self, classes: c_int, call: OnKey) {
        // SAFETY: the table, the context.
        unsafe {
            api!(RedisModule_SubscribeToKeyspaceEvents(
                self.as_ptr(),
                classes,
                Some(call)
            ));
        };
    }

    /// Has the server call this with each command, before it is executed: also with those that we have it call.
    pub fn filter_commands(self, call: CommandFilter) {
        // SAFETY: the table, the context.
        unsafe {
            api!(RedisModule_RegisterCommandFilter(
                self.as_ptr(),
                Some(call),
                0
            ))
        };
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

/// What is called for a keyspace event: with its class, its name and its key.
pub type OnKey = unsafe extern "C" fn(
    *mut raw::RedisModuleCtx,
    c_int,
    *const c_char,
    *mut raw::RedisModuleString,
) -> c_int;

/// What is called with each command.
pub type CommandFilter = unsafe extern "C" fn(*mut raw::RedisModuleCommandFilterCtx);

/// A kind of event of the server's, and what is to be called for it.
pub type Listener = (u64, raw::RedisModuleEventCallback);

/// What the server calls later, with a context and what it was given for that.
pub type Callback = unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut c_void);

/// Whether the server may be told directly which connection it is to describe; see `shim::describe`.
pub fn describe_directly(yes: bool) {
    known().describes_directly.set(yes);
}

/// Hears of a key that the server removes by itself, perhaps in the middle of nobody's command. No command of the server's may be
/// called meanwhile, and nothing replicated: Redis 7.0 takes such a call for the outermost one, at whose end it forgets that it
/// has to replicate what it removes after that. Builds with debug assertions hold each call against that.
pub fn in_uncaused_event(hear: impl FnOnce()) {
    let _meanwhile = meanwhile(&known().in_uncaused_event, true);
    hear();
}

/// See [`in_uncaused_event`].
pub fn is_in_uncaused_event() -> bool {
    known().in_uncaused_event.get()
}

/// Whether a command is executed that we have the server call, or something within one.
#[inline(always)]
pub fn is_calling() -> bool {
    known().is_calling.get()
}

fn calling() -> AtEnd<impl FnMut()> {
    meanwhile(&known().is_calling, true)
}

/// To be called before each command that the server is to call or replicate.
#[inline(always)]
fn caused() {
    debug_assert!(
        !is_in_uncaused_event(),
        "a command is called or replicated in the middle of what the server does by itself"
    );
}

/// Runs what the server calls for our own sake: a command of ours, a timer, or what it was asked to call once the current command
/// is over. Only there are keys written and commands replicated. In the middle of somebody else's command the server would take
/// what we write for a change by that command, and replicate it as well: a `CLIENT KILL ID 7` would end another client at each
/// replica. Builds with debug assertions hold each write against that.
pub fn on_our_own<T>(act: impl FnOnce() -> T) -> T {
    let _meanwhile = meanwhile(&known().on_our_own, true);
    act()
}

/// Runs a command of somebody else's in the middle of that.
pub fn not_on_our_own<T>(act: impl FnOnce() -> T) -> T {
    let _meanwhile = meanwhile(&known().on_our_own, false);
    act()
}

/// To be called before anything is written or replicated.
#[inline(always)]
fn in_our_own_unit() {
    caused();
    debug_assert!(
        known().on_our_own.get(),
        "a key is written or a command replicated in the middle of a command or event that is not ours"
    );
}

/// Whether the server wants no writes now (`CLIENT PAUSE`, a failover under way). A write all the
/// same would abort Redis 7.0.
pub fn must_not_write() -> bool {
    // SAFETY: the table.
    unsafe { api!(RedisModule_AvoidReplicaTraffic()) != 0 }
}

/// The classes of keyspace events that the server publishes to clients.
pub fn published_classes() -> c_int {
    // SAFETY: the table.
    unsafe { often!(RedisModule_GetNotifyKeyspaceEvents()) }
}

/// For the server, which knows no inner zero.
pub fn c_string(text: &str) -> CString {
    CString::new(text.replace('\0', "\\0")).unwrap_or_default()
}

/// A C string that lives as long as the server: for what is registered once.
pub fn forever(text: &str) -> *const c_char {
    c_string(text).into_raw()
}
