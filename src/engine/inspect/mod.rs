//! What there is to tell about all that: for `LOCK.INFO`, `LOCK.LIST`, `LOCK.WHY`, `SESSION.LIST`, `INFO` and `MEMORY USAGE`.
//!
//! ```text
//!   inspection.rs   who holds and who waits     memory.rs   how much memory that takes
//!   sessions.rs     which sessions there are    current.rs  whether a token is that of a current hold
//!   why.rs          why nobody gets a key
//! ```

pub(in crate::engine) mod current;
pub(in crate::engine) mod inspection;
pub(in crate::engine) mod memory;
pub(in crate::engine) mod sessions;
pub(in crate::engine) mod why;
