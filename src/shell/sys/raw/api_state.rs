//! State of calls into the server: set at load, or kept between calls.

use crate::shell::sys::main_thread::MainThread;
use crate::shell::sys::raw::table::HotApi;
use redis_module::raw;
use std::cell::{Cell, OnceCell};

/// The fields that every command reads come first; `repr(C)` keeps them there.
#[repr(C)]
pub struct ApiState {
    pub hot: HotApi,
    pub lock_type: Cell<Option<*mut raw::RedisModuleType>>,
    /// A context that outlives callbacks, for timers and the log.
    pub(super) detached: OnceCell<*mut raw::RedisModuleCtx>,
    /// The server's private function for describing a client may be called.
    pub describes_directly: Cell<bool>,
    /// See [`in_own_execution_unit`](super::calls::in_own_execution_unit).
    pub in_own_execution_unit: Cell<bool>,
    /// See [`in_uncaused_event`](super::calls::in_uncaused_event).
    pub in_uncaused_event: Cell<bool>,
    /// See [`is_calling`](super::calls::is_calling).
    pub is_calling: Cell<bool>,
    /// The path of the server's Unix socket, if it has one.
    pub unix_socket: OnceCell<String>,
    /// No other module may listen to keyspace events.
    pub no_other_module_listens: Cell<bool>,
    /// In a transaction, an event's context names the transaction's database and not the event's.
    pub event_db_is_wrong_in_exec: Cell<bool>,
    /// A keyspace event leaves the client whose command is executing in the event's database.
    pub event_moves_client_db: Cell<bool>,
}

static API_STATE: MainThread<ApiState> = MainThread::new();

/// Initialises [`api_state`]. Once, at load: after the API's table is filled in, before any other call of the module.
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
        event_moves_client_db: Cell::default(),
    });
}

#[inline(always)]
pub fn api_state() -> &'static ApiState {
    API_STATE.get()
}
