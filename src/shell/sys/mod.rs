//! The bottom: the module API made safe, what it lacks, memory, clocks, chance.
//!
//! ```text
//!   raw/         the module API, as much of it as is used        shim.c, shim.rs  what it lacks
//!   scoped.rs    borrows that end before the server is called    alloc.rs         the server's allocator
//!   main_thread.rs   what only the server's main thread enters
//!   at_end.rs    what a panic must not leave behind              secret.rs        secrets of sessions
//!   clock.rs     the time
//! ```

pub(in crate::shell) mod alloc;
pub(in crate::shell) mod at_end;
pub(in crate::shell) mod clock;
pub(in crate::shell) mod main_thread;
pub(in crate::shell) mod raw;
pub(in crate::shell) mod scoped;
pub(in crate::shell) mod secret;
pub(in crate::shell) mod shim;
