//! Between the server and the engine: what happens becomes facts, effects are performed.
//!
//! Each file uses only those that stand below it (`tests/style/floors.rs`):
//!
//! ```text
//!   what the server calls   keyspace_events.rs  server_events.rs  unblocked.rs  event_loop.rs  command_filter.rs
//!   work in slices          slices.rs
//!   looks at what changed   slots.rs    slots that are gone         acks.rs   how many replicas have acknowledged a grant
//!                           recheck.rs  what was deferred: keys that are to be looked at again
//!   facts                   tell.rs     the engine decides, and its effects are performed
//!   effects                 perform.rs  one effect: returns what follows
//!                           losses.rs   what only the server knows of holds that were lost
//! ```

pub(in crate::shell) mod acks;
pub(in crate::shell) mod command_filter;
pub(in crate::shell) mod event_loop;
pub(in crate::shell) mod keyspace_events;
pub(in crate::shell) mod losses;
pub(in crate::shell) mod perform;
pub(in crate::shell) mod recheck;
pub(in crate::shell) mod server_events;
pub(in crate::shell) mod slices;
pub(in crate::shell) mod slots;
pub(in crate::shell) mod tell;
pub(in crate::shell) mod unblocked;
