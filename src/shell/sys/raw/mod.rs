//! A safe interface to the part of the module API in use.
//!
//! All calls into the server go through this folder (and, for the few functions that the API lacks,
//! through `sys/shim.rs`). Each `unsafe` block relies on one or more of these:
//!
//! - **the table**: the server fills in the API's function pointers before `OnLoad` runs, and never
//!   changes them; those that some servers lack are asked for by [`have`];
//! - **the context**: a [`Ctx`] or [`Str`] is made from a callback's arguments and lives no longer
//!   than that callback, by its lifetime;
//! - **the main thread**: the server calls modules from its main thread only.
//!
//! ```text
//!   keys.rs  replies.rs  handle.rs  ask.rs  inner.rs  files.rs  timers.rs    calls into the server
//!   server_commands.rs  replication.rs    commands that are called, and that are replicated
//!   commands.rs    registers commands
//!   context.rs  events.rs    arguments of callbacks      strings.rs   server strings
//!   calls.rs       macros and checks of calls
//!   api_state.rs   state of the calls          table.rs     the functions that nearly every command calls
//! ```

mod api_state;
mod ask;
mod calls;
mod commands;
mod context;
mod events;
mod files;
mod handle;
pub mod inner;
mod keys;
mod replication;
mod replies;
mod server_commands;
pub(in crate::shell) mod strings;
mod table;
mod timers;

pub use api_state::{api_state, begin};
pub use ask::{
    Refusal, db_of, has_rights_by_db, is_blocked, is_connected, is_in_multi, is_tracking,
    store_unix_socket_path,
};
pub(in crate::shell) use calls::{api, entries, have};
pub use calls::{
    describe_directly, in_foreign_execution_unit, in_own_execution_unit, in_uncaused_event,
    is_calling, must_not_write,
};
pub use commands::{Docs, NewCommand};
pub use context::{CommandFilter, Ctx, OnKey, detached, filtered_word, given, keep_detached};
pub use events::{Job, ServerEvent};
pub use files::{Damaged, RdbReader, RdbWriter};
pub use handle::{BlockHandle, OnAbandoned, OnAnswer};
pub use keys::{OWN_EVENTS, OpenKey, lock_value};
pub use replication::Target;
pub use strings::{Str, Text, c_string, forever};
pub use timers::{Timer, call_after_command, wake_loop};
