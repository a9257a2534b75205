//! The lowest layer: a safe module API, private functions that it lacks, memory, clocks, randomness.
//!
//! ```text
//!   raw/         the part of the module API in use        shim.c, shim.rs  private functions
//!   scoped.rs    borrows that end before server calls     alloc.rs         the server's allocator
//!   main_thread.rs   state of the server's main thread
//!   at_end.rs    cleanup at the end of a scope            secret.rs        session secrets
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
