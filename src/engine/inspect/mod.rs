//! What there is to tell about all that: for `LOCK.INFO`, `LOCK.LIST`, `LOCK.WHY`, `SESSION.LIST`, `INFO` and `MEMORY USAGE`.
//!
//! ```text
//!   inspection.rs   who holds and who waits     memory.rs   how much memory that takes
//!   wait_times.rs   how long grants were waited for     current.rs  whether a token is that of a current hold
//!   sessions.rs     which sessions there are            why.rs      why nobody gets a key
//! ```

pub(in crate::engine) mod current;
pub(in crate::engine) mod inspection;
pub(in crate::engine) mod memory;
pub(in crate::engine) mod sessions;
pub(in crate::engine) mod wait_times;
pub(in crate::engine) mod why;
