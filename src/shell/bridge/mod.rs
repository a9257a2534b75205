//! Between the server and the engine: what happens becomes facts, orders are carried out.
//!
//! ```text
//!   events.rs    what the server tells us                dispatch.rs  facts go in, orders come out
//!   perform.rs   orders are carried out                  recheck.rs   keys that are to be looked at again
//! ```

pub(in crate::shell) mod dispatch;
pub(in crate::shell) mod events;
pub(in crate::shell) mod perform;
pub(in crate::shell) mod recheck;
