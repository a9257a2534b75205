//! The arguments of callbacks: contexts, strings, events.

use crate::engine::{ClientId, Db};
use crate::shell::sys::raw::api_state::api_state;
use crate::shell::sys::raw::calls::{api, hot};
use crate::shell::sys::raw::strings::{Str, c_string};
use redis_module::raw;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::marker::PhantomData;
use std::ops::Deref;
use std::ptr::NonNull;

/// Wraps the arguments of a command callback: the context, and the command's arguments including its name.
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

/// An argument of a filtered command, if it has that many.
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

/// The context flags of [`Ctx::state`].
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

/// The context of the current callback.
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

    /// The executing client. In a script or another module's call: an id without a connection.
    pub fn client(self) -> ClientId {
        // SAFETY: the table, the context.
        ClientId(unsafe { hot!(RedisModule_GetClientId(self.as_ptr())) })
    }

    pub fn state(self) -> State {
        // SAFETY: the table, the context.
        State(unsafe { hot!(RedisModule_GetContextFlags(self.as_ptr())) })
    }

    pub fn db(self) -> Db {
        // SAFETY: the table, the context.
        Db(unsafe { hot!(RedisModule_GetSelectedDb(self.as_ptr())) } as u32)
    }

    /// A shared context with this database selected, valid until the next call. Not this context: it may be a real
    /// client's, whose own database Valkey 9 hides in a transaction, so that it could not be selected again.
    pub fn in_db(self, db: Db) -> InDb<'a> {
        let there = detached().unwrap_or(self);
        let back_to = api_state().event_moves_client_db.get().then(|| self.db());
        there.select(db);
        InDb {
            there,
            here: self,
            back_to,
        }
    }

    pub fn select(self, db: Db) {
        // SAFETY: the table, the context. Keys we know of are in databases that there are.
        unsafe { hot!(RedisModule_SelectDb(self.as_ptr(), db.0 as c_int)) };
    }

    /// Whether the database exists. Call on a detached context only.
    pub fn has_db(self, db: Db) -> bool {
        let Ok(number) = c_int::try_from(db.0) else {
            return false;
        };
        // SAFETY: the table, the context. A number that there is not is refused.
        let selected = unsafe { hot!(RedisModule_SelectDb(self.as_ptr(), number)) };
        selected == raw::REDISMODULE_OK as c_int
    }

    /// Subscribes to a server event.
    pub fn listen(self, id: u64, callback: raw::RedisModuleEventCallback) {
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

    /// Subscribes to keyspace events of these classes.
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

    /// Registers a command filter, which runs before every command, including the module's own calls.
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

    /// Writes a line to the server's log.
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

/// See [`Ctx::in_db`]. What happens there may raise keyspace events, which on some servers leave the client whose command is
/// executing in their database. So until this is dropped, the context it was made of may be in that one.
pub struct InDb<'a> {
    there: Ctx<'a>,
    here: Ctx<'a>,
    /// The database of `here`, on such a server.
    back_to: Option<Db>,
}

impl<'a> Deref for InDb<'a> {
    type Target = Ctx<'a>;

    fn deref(&self) -> &Ctx<'a> {
        &self.there
    }
}

impl Drop for InDb<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(db) = self.back_to {
            self.here.select(db);
        }
    }
}

/// Keeps a context that outlives callbacks. Once, at load.
pub fn keep_detached(ctx: *mut raw::RedisModuleCtx) {
    let _ = api_state().detached.set(ctx);
}

/// A context that outlives callbacks.
pub fn detached() -> Option<Ctx<'static>> {
    // SAFETY: a detached context of ours, never freed.
    api_state()
        .detached
        .get()
        .map(|ctx| unsafe { Ctx::new(ctx) })
}

/// A callback for keyspace events: context, class, name and key.
pub type OnKey = unsafe extern "C" fn(
    *mut raw::RedisModuleCtx,
    c_int,
    *const c_char,
    *mut raw::RedisModuleString,
) -> c_int;

/// A command filter.
pub type CommandFilter = unsafe extern "C" fn(*mut raw::RedisModuleCommandFilterCtx);

/// A timer or one-shot callback: context and data.
pub type Callback = unsafe extern "C" fn(*mut raw::RedisModuleCtx, *mut c_void);
