//! What calls into the server need to know: filled in at load, or kept from one call to the next.

use crate::shell::sys::main_thread::MainThread;
use crate::shell::sys::raw::table::HotApi;
use redis_module::raw;
use std::cell::{Cell, OnceCell};

/// What every command asks for stands first; the compiler would strew it.
#[repr(C)]
pub struct ApiState {
    pub hot: HotApi,
    pub lock_type: Cell<Option<*mut raw::RedisModuleType>>,
    /// A context that outlives callbacks, for timers and the log.
    pub(super) detached: OnceCell<*mut raw::RedisModuleCtx>,
    /// We may use the server's own function for describing a connection.
    pub describes_directly: Cell<bool>,
    /// See [`in_own_execution_unit`](super::calls::in_own_execution_unit).
    pub in_own_execution_unit: Cell<bool>,
    /// See [`in_uncaused_event`](super::calls::in_uncaused_event).
    pub in_uncaused_event: Cell<bool>,
    /// See [`is_calling`](super::calls::is_calling).
    pub is_calling: Cell<bool>,
    /// Where the server listens for connections of its own machine, if it does.
    pub unix_socket: OnceCell<String>,
    /// There is no other module that could hear what is done to keys.
    pub no_other_module_listens: Cell<bool>,
    /// In a transaction, an event's context names the transaction's database and not the event's.
    pub event_db_is_wrong_in_exec: Cell<bool>,
}

static API_STATE: MainThread<ApiState> = MainThread::new();

/// Makes [`api_state`]. Once, at load, before anything else of ours is called and after the API's table is there.
pub fn begin() {
    API_STATE.begin(ApiState {
        hot: HotApi::of_server(),
        lock_type: Cell::default(),
        detached: OnceCell::new(),
        describes_directly: Cell::default(),
        in_own_execution_unit: Cell::default(),
        in_uncaused_event: Cell::default(),
        is_calling: Cell::default(),
        unix_socket: OnceCell::new(),
        no_other_module_listens: Cell::default(),
        event_db_is_wrong_in_exec: Cell::default(),
    });
}

#[inline(always)]
pub fn api_state() -> &'static ApiState {
    API_STATE.get()
}
