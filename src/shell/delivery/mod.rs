//! What connections are sent while no command of theirs asks for it.
//!
//! ```text
//!   push.rs   frames that are no replies     frames.rs   what they say, byte for byte
//!   blocked.rs   replies to those who wait in a command
//! ```

pub(in crate::shell) mod blocked;
pub(in crate::shell) mod frames;
pub(in crate::shell) mod push;
