//! Between the server and the engine: what happens becomes facts, effects are performed.
//!
//! ```text
//!   keyspace_events.rs, server_events.rs, unblocked.rs   what the server tells us
//!   dispatch.rs    facts go in, effects out          perform.rs   effects are performed
//!   slices.rs      work that may take long               recheck.rs   keys that are to be looked at again
//!   slots.rs       slots that are gone                   rights.rs    rights that may be gone
//!   losses.rs      what only the server knows of holds that were lost
//!   io_threads.rs  Redis 8's I/O threads                 acks.rs      how many replicas have acknowledged a grant
//!   event_loop.rs  the one listener to the server's event loop
//! ```

pub(in crate::shell) mod acks;
pub(in crate::shell) mod dispatch;
pub(in crate::shell) mod event_loop;
pub(in crate::shell) mod io_threads;
pub(in crate::shell) mod keyspace_events;
pub(in crate::shell) mod losses;
pub(in crate::shell) mod perform;
pub(in crate::shell) mod recheck;
pub(in crate::shell) mod rights;
pub(in crate::shell) mod server_events;
pub(in crate::shell) mod slices;
pub(in crate::shell) mod slots;
pub(in crate::shell) mod unblocked;
