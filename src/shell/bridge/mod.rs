//! Translates between the server and the engine: callbacks become events, effects become server calls.
//!
//! Each file uses only those that stand below it (`tests/style/floors.rs`):
//!
//! ```text
//!   callbacks               keyspace_events.rs  server_events.rs  unblocked.rs  command_filter.rs
//!   work in slices          slices.rs                                     role.rs   master or replica
//!   rechecks                slots.rs    slots that this node lost         acks.rs   replica acknowledgements of grants
//!                           recheck.rs  deferred work: keys to look up again
//!   events                  tell.rs     the engine decides, its effects are performed
//!   effects                 perform.rs  performs one effect, returns what follows
//!                           losses.rs   the log of lost holds
//! ```

pub(in crate::shell) mod acks;
pub(in crate::shell) mod command_filter;
pub(in crate::shell) mod keyspace_events;
pub(in crate::shell) mod losses;
pub(in crate::shell) mod perform;
pub(in crate::shell) mod recheck;
pub(in crate::shell) mod role;
pub(in crate::shell) mod server_events;
pub(in crate::shell) mod slices;
pub(in crate::shell) mod slots;
pub(in crate::shell) mod tell;
pub(in crate::shell) mod unblocked;
