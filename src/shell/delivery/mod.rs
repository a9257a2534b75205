//! What connections are sent while no command of theirs asks for it.
//!
//! ```text
//!   push.rs   frames that are no replies     frames.rs   what they say, byte for byte
//!   reply.rs  the engine's answers in the protocol's words
//!   blocked.rs   replies to blocked clients  replication.rs   what replicas are told of sessions
//! ```

pub(in crate::shell) mod blocked;
pub(in crate::shell) mod frames;
pub(in crate::shell) mod push;
pub(in crate::shell) mod replication;
pub(in crate::shell) mod reply;
