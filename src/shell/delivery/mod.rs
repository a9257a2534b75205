//! What the module sends to clients: pushes, replies, and answers to blocked clients.
//!
//! ```text
//!   push.rs      when pushes are sent            frames.rs       their bytes
//!   reply.rs     what replies are written with
//!   blocked.rs   answers to blocked clients      presence.rs  values for watches of prefixes
//! ```

pub(in crate::shell) mod blocked;
pub(in crate::shell) mod frames;
pub(in crate::shell) mod presence;
pub(in crate::shell) mod push;
pub(in crate::shell) mod reply;
